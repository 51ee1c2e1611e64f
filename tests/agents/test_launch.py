"""The variables, options and files that each agent is started with."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from respool.agents import base_urls
from respool.agents.launch import (
    BASE_URL_VARIABLES,
    LaunchSetup,
    launch_environment,
    plan_launch,
)
from respool.proxy.server_options import (
    StartupError,
    Upstream,
    UpstreamName,
    Upstreams,
    upstream_at,
    upstreams_of,
)

URL = "http://127.0.0.1:4711"
V1 = f"{URL}/v1"


def at(host: str, version: str = "/v1") -> str:
    """Base URL at the proxy for an upstream with a name."""
    return f"{URL}/respool-upstream/{host}{version}"


QWEN_HOST = "dashscope.aliyuncs.com"
QWEN_UPSTREAM = upstream_at(f"https://{QWEN_HOST}/compatible-mode/v1", replaces_version=True)


def setup(
    folder: Path, *command: str, files: Any = None, **world: str
) -> tuple[tuple[str, ...], LaunchSetup]:
    """Command and setup of a launch, in a home with these files."""
    for name, held in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = held if isinstance(held, str | bytes) else json.dumps(held)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    own, here = folder / "own", folder / "here"
    for place in (own, here):
        place.mkdir(exist_ok=True)
    return plan_launch(command, URL, {"HOME": str(folder), **world}, own, here)


def gate(number: int) -> dict[str, Any]:
    return {"provider": {"anthropic": {"options": {"baseURL": f"http://gate{number}/v1"}}}}


@pytest.mark.parametrize(
    ("command", "client", "environment"),
    [
        ("claude", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("/usr/bin/claude", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("C:\\bin\\claude.CMD", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("aider", "aider", {"OPENAI_API_BASE": V1, "ANTHROPIC_BASE_URL": URL}),
        ("mini", "mini-swe-agent", {"OPENAI_API_BASE": V1, "ANTHROPIC_BASE_URL": URL}),
        (
            "python3",
            None,
            {"OPENAI_BASE_URL": V1, "OPENAI_API_BASE": V1, "ANTHROPIC_BASE_URL": URL,
             "ANTHROPIC_API_BASE": URL, "GOOGLE_GEMINI_BASE_URL": URL},
        ),
    ],
)  # fmt: skip
def test_variables_point_most_agents(
    tmp_path: Path, command: str, client: str | None, environment: dict[str, str]
):
    words, found = setup(tmp_path, command, "-p", "go")
    assert words == (command, "-p", "go")
    assert (found.agent, found.environment) == (client, environment)
    assert set(found.applied) == environment.keys()
    assert found.upstreams == {}


@pytest.mark.parametrize(
    ("command", "client", "at"),
    [
        (("npx", "-y", "@openai/codex@0.166.0", "exec", "go"), "Codex", 3),
        (("bunx", "@anthropic-ai/claude-code", "-p", "go"), "Claude Code", 2),
        (("uvx", "aider-chat==0.86.2", "--yes"), "aider", 2),
        (("npx", "prettier", "codex"), None, 1),
        (("npx", "--version"), None, 1),
    ],
)
def test_an_agent_is_known_behind_what_launches_it(
    tmp_path: Path, command: tuple[str, ...], client: str | None, at: int
):
    words, found = setup(tmp_path, *command)
    assert found.agent == client
    assert words[:at] == command[:at]
    assert words[len(words) - len(command) + at :] == command[at:]


@pytest.mark.parametrize("name", BASE_URL_VARIABLES)
def test_what_a_variable_was_set_to_is_where_requests_go_on_to(tmp_path: Path, name: str):
    _, found = setup(tmp_path, "python3", **{name: "https://gateway.example/team/v1/"})
    variable = BASE_URL_VARIABLES[name]
    (upstream,) = found.upstreams.values()
    assert (upstream.origin, upstream.prefix) == ("https://gateway.example", "/team/v1")
    assert (upstream.is_custom, upstream.replaces_version) == (True, variable.has_version)
    assert found.environment[name].startswith(URL)


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("claude", "ANTHROPIC_BASE_URL"),
        ("python3", "OPENAI_API_BASE"),
        ("copilot", "COPILOT_PROVIDER_BASE_URL"),
    ],
)
def test_a_base_url_that_is_none_is_said_by_its_name(tmp_path: Path, command: str, variable: str):
    with pytest.raises(StartupError, match=f"^{variable} is a URL that begins with https"):
        setup(tmp_path, command, **{variable: "gateway"})


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("http://host/v1", "/v1/chat/completions", "http://host/v1/chat/completions"),
        ("http://host", "/v1/chat/completions", "http://host/chat/completions"),
        ("http://host/openai", "/v1/responses", "http://host/openai/responses"),
        ("http://host/x", "/v1", "http://host/x"),
        ("http://host/x", "/v1x/y", "http://host/x/v1x/y"),
        ("http://host/x", "/healthy", "http://host/x/healthy"),
        (
            "https://chatgpt.com/backend-api/codex",
            "/v1/responses",
            "https://chatgpt.com/backend-api/codex/responses",
        ),
    ],
)
def test_a_base_url_is_used_as_its_client_would_use_it(base: str, path: str, url: str):
    assert upstream_at(base, replaces_version=True).url(path, "") == url


def test_what_is_chosen_holds_before_what_was_found():
    found: dict[UpstreamName, Upstream] = {
        "openai": upstream_at("http://found"),
        "anthropic": upstream_at("http://other"),
    }
    ups = upstreams_of(["openai-chat=http://chosen"], found)
    origins = (ups.openai_chat.origin, ups.openai_responses.origin, ups.anthropic.origin)
    assert origins == ("http://chosen", "http://found", "http://other")
    ups = upstreams_of(["openai=http://chosen"], {"openai-chat": upstream_at("http://found")})
    assert {ups.openai.origin, ups.openai_chat.origin} == {"http://chosen"}
    assert upstreams_of([], {}) == upstreams_of([])


# Claude Code

ASSUME = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"


@pytest.mark.parametrize(
    ("command", "world", "chosen", "more"),
    [
        ("claude", {}, (), {ASSUME: "1", "ENABLE_TOOL_SEARCH": "true"}),
        ("claude", {"ANTHROPIC_BASE_URL": "https://api.anthropic.com"}, (),
         {ASSUME: "1", "ENABLE_TOOL_SEARCH": "true"}),
        ("claude", {"ENABLE_TOOL_SEARCH": "auto:5"}, (), {ASSUME: "1"}),
        ("claude", {"ENABLE_TOOL_SEARCH": "", ASSUME: "0"}, (), {}),
        ("claude", {"ANTHROPIC_BASE_URL": "https://gate.example"}, (), {}),
        ("claude", {"ANTHROPIC_BASE_URL": "https://api.anthropic.com.example"}, (), {}),
        ("claude", {}, ("anthropic=http://gate.example",), {}),
        ("claude", {"ANTHROPIC_BASE_URL": "https://gate.example"},
         ("anthropic=https://api.anthropic.com",), {ASSUME: "1", "ENABLE_TOOL_SEARCH": "true"}),
        ("claude", {}, ("openai=http://gate.example",),
         {ASSUME: "1", "ENABLE_TOOL_SEARCH": "true"}),
        ("mini", {}, (), {}),
        ("codex", {}, (), {}),
    ],
)  # fmt: skip
def test_claude_code_is_told_where_its_requests_go_on_to(
    tmp_path: Path,
    command: str,
    world: dict[str, str],
    chosen: tuple[str, ...],
    more: dict[str, str],
):
    """Before Anthropic it does all that it does without respool; what its user set holds."""
    _, found = setup(tmp_path, command, **world)
    made = launch_environment(found, upstreams_of(chosen, found.upstreams))
    assert made == {**found.environment, **more}
    assert "ANTHROPIC_BASE_URL" in made or command == "codex"


def says(number: int, **more: str) -> dict[str, Any]:
    return {"model": f"m{number}", "env": {"ANTHROPIC_BASE_URL": f"http://gate{number}", **more}}


USER, PROJECT = ".claude/settings.json", "here/.claude/settings.json"
LOCAL, GIVEN = "here/.claude/settings.local.json", "here/given.json"
MACHINE, DROP_IN = "etc/managed-settings.json", "etc/managed-settings.d/10-gate.json"
GATE_4 = {"ANTHROPIC_BASE_URL": "http://gate4"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for all users of a machine stands in the test's own folder."""
    monkeypatch.setattr(base_urls, "_CLAUDE_MANAGED", tmp_path / "etc")
    monkeypatch.setattr(base_urls, "_CODEX_MANAGED_CONFIG", tmp_path / "etc" / "managed.toml")
    monkeypatch.setattr(base_urls, "_OPENCODE_MANAGED", tmp_path / "etc")


# Which of them holds was seen with Claude Code 2.1.325 itself.
@pytest.mark.parametrize(
    ("files", "words", "world", "origin"),
    [
        ({USER: says(1)}, (), {}, "http://gate1"),
        ({USER: says(1)}, (), GATE_4, "http://gate1"),
        ({USER: {"env": {"ANTHROPIC_BASE_URL": ""}}}, (), GATE_4, None),
        ({USER: "no json"}, (), {}, None),
        ({USER: says(1)}, ("--settings", "given.json"), {}, ""),
        ({USER: says(1), GIVEN: says(2)}, ("--settings", "given.json"), {}, "http://gate2"),
        ({USER: says(1), GIVEN: says(2)}, ("--settings=given.json", "-p", "x"), {}, "http://gate2"),
        ({LOCAL: says(1)}, ("--settings", json.dumps(says(2))), {}, "http://gate2"),
        ({}, ("--settings", "{}", "--settings", json.dumps(says(2))), {}, "http://gate2"),
        ({USER: says(1), PROJECT: says(2)}, (), {}, ""),
        ({PROJECT: says(2), LOCAL: says(4)}, (), GATE_4, "http://gate4"),
        ({PROJECT: says(4), LOCAL: says(2)}, (), GATE_4, ""),
        ({USER: says(1), LOCAL: says(2)}, ("--setting-sources", "user"), {}, "http://gate1"),
        ({USER: says(1)}, ("--setting-sources=",), {}, None),
        ({USER: says(1), PROJECT: says(2)}, ("--restricted",), {}, None),
        ({USER: says(1)}, ("--settings", "{"), {}, ""),
        ({USER: {"env": {"ANTHROPIC_BASE_URL": "${GATE}"}}}, (), {}, ""),
        ({MACHINE: says(1)}, (), {}, ""),
        ({MACHINE: {}, DROP_IN: says(1)}, ("--settings", json.dumps(says(2))), GATE_4, ""),
        ({"own-config/settings.json": says(1)}, (), {"CLAUDE_CONFIG_DIR": "{}/own-config"},
         "http://gate1"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("machine")
def test_claude_codes_settings_hold_before_the_environment(
    tmp_path: Path,
    files: dict[str, Any],
    words: tuple[str, ...],
    world: dict[str, str],
    origin: str | None,
):
    """None: nothing is in the way. Nothing: its requests do not come through, and that is said."""
    world = {name: value.format(tmp_path) for name, value in world.items()}
    given, found = setup(tmp_path, "claude", *words, files=files, **world)
    if origin is None:
        assert (given, found.applied, found.note) == (
            ("claude", *words), ("ANTHROPIC_BASE_URL",), ""
        )  # fmt: skip
    elif not origin:
        assert (given, found.environment, found.applied) == (("claude", *words), {}, ())
        assert launch_environment(found, upstreams_of([], found.upstreams)) == {}
        assert found.note
    else:
        assert found.upstreams["anthropic"].origin == origin
        assert (found.applied, found.note) == (("--settings",), "")
        file = base_urls.last_flag_value(given, "--settings")
        told = json.loads(Path(file).read_text())
        assert told["env"]["ANTHROPIC_BASE_URL"] == URL
        if "--settings" in str(words) and origin == "http://gate2":
            assert told["model"] == "m2"  # the rest of what was given


@pytest.mark.usefixtures("machine")
def test_a_file_that_holds_is_named(tmp_path: Path):
    _, found = setup(tmp_path, "claude", files={MACHINE: says(1)})
    assert str(tmp_path / MACHINE) in found.note
    _, found = setup(tmp_path, "claude", files={MACHINE: "", PROJECT: says(1)})
    assert str(tmp_path / PROJECT) in found.note


@pytest.mark.parametrize(
    ("value", "world", "cloud"),
    [("1", {}, True), (1, {}, True), (True, {}, True), ("0", {}, False), (False, {}, False),
     ("0", {"CLAUDE_CODE_USE_VERTEX": "1"}, False), ("", {"CLAUDE_CODE_USE_VERTEX": "1"}, True)],
)  # fmt: skip
@pytest.mark.usefixtures("machine")
def test_claude_codes_settings_may_name_a_cloud(
    tmp_path: Path, value: Any, world: dict[str, str], cloud: bool
):
    files = {USER: {"env": {"CLAUDE_CODE_USE_VERTEX": value}}}
    _, found = setup(tmp_path, "claude", files=files, **world)
    variable = "ANTHROPIC_VERTEX_BASE_URL" if cloud else "ANTHROPIC_BASE_URL"
    assert found.environment == {variable: f"{URL}/v1" if cloud else URL}
    assert (found.first_party == {}) == cloud


BEDROCK = {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "eu-west-1"}
BEARER = {**BEDROCK, "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-x"}
SKIPPED = {**BEDROCK, "CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1"}
FOUNDRY = {"CLAUDE_CODE_USE_FOUNDRY": "1", "ANTHROPIC_FOUNDRY_RESOURCE": "gauges"}
RUNTIME = "https://bedrock-runtime.eu-west-1.amazonaws.com"
IN_CLOUDS: list[tuple[dict[str, str], str, str]] = [
    (BEARER, "ANTHROPIC_BEDROCK_BASE_URL", RUNTIME),
    ({**BEARER, "AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-1"},
     "ANTHROPIC_BEDROCK_BASE_URL", RUNTIME),
    ({**BEARER, "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION": "eu-west-1"},
     "ANTHROPIC_BEDROCK_BASE_URL", RUNTIME),
    ({**SKIPPED, "ANTHROPIC_BEDROCK_BASE_URL": "https://gate/bedrock"},
     "ANTHROPIC_BEDROCK_BASE_URL", "https://gate/bedrock"),
    ({**BEARER, "CLAUDE_CODE_USE_BEDROCK": "0", "CLAUDE_CODE_USE_MANTLE": "1"},
     "ANTHROPIC_BEDROCK_MANTLE_BASE_URL", "https://bedrock-mantle.eu-west-1.api.aws/anthropic"),
    ({"CLAUDE_CODE_USE_VERTEX": "1"}, "ANTHROPIC_VERTEX_BASE_URL", ""),
    ({"CLAUDE_CODE_USE_VERTEX": "1", "ANTHROPIC_VERTEX_BASE_URL": "https://gate/vertex/v1"},
     "ANTHROPIC_VERTEX_BASE_URL", "https://gate/vertex/v1"),
    (FOUNDRY, "ANTHROPIC_FOUNDRY_BASE_URL", "https://gauges.services.ai.azure.com/anthropic"),
]  # fmt: skip


@pytest.mark.parametrize(("world", "variable", "upstream"), IN_CLOUDS)
@pytest.mark.usefixtures("machine")
def test_claude_code_comes_from_a_cloud(
    tmp_path: Path, world: dict[str, str], variable: str, upstream: str
):
    """The same in its own settings, where the option that names a file overrides them."""
    _, found = setup(tmp_path, "claude", **world)
    told = {variable: f"{URL}/v1" if "VERTEX" in variable else URL}
    if world is FOUNDRY:
        told["ANTHROPIC_FOUNDRY_RESOURCE"] = ""  # it takes only one of both
    assert (found.environment, found.note, found.first_party) == (told, "", {})
    assert [one.origin + one.prefix for one in found.upstreams.values()] == (
        [upstream] if upstream else []
    )
    words, filed = setup(tmp_path, "claude", files={USER: {"env": world}})
    assert filed.upstreams == found.upstreams
    assert filed.environment == found.environment
    assert ("--settings" in words) == any(name in world for name in told)


NOT_FROM_CLOUDS: list[tuple[dict[str, str], dict[str, str], str]] = [
    (BEDROCK, {}, "AWS_BEARER_TOKEN_BEDROCK"),
    ({**BEARER, "AWS_REGION": ""}, {}, "AWS_REGION is not set"),
    ({**BEARER, "AWS_REGION": "evil.com/"}, {}, "AWS_REGION"),
    (BEARER, {"AWS_REGION": "us-east-1"}, "AWS_REGION"),
    ({**BEARER, "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION": "us-east-1"}, {}, "SMALL_FAST_MODEL"),
    ({**BEARER, "CLAUDE_CODE_USE_MANTLE": "1"}, {}, "MANTLE"),
    ({"CLAUDE_CODE_USE_MANTLE": "1"}, {}, "AWS_BEARER_TOKEN_BEDROCK"),
    ({"CLAUDE_CODE_USE_ANTHROPIC_AWS": "1"}, {}, "CLAUDE_CODE_USE_ANTHROPIC_AWS"),
    ({"CLAUDE_CODE_USE_FOUNDRY": "1"}, {}, "ANTHROPIC_FOUNDRY_RESOURCE"),
    (FOUNDRY, {"ANTHROPIC_FOUNDRY_RESOURCE": "other"}, "ANTHROPIC_FOUNDRY_RESOURCE"),
    (BEARER, {"ANTHROPIC_BEDROCK_BASE_URL": "https://other"}, "settings.json"),
]


@pytest.mark.parametrize(("world", "project", "note"), NOT_FROM_CLOUDS)
@pytest.mark.usefixtures("machine")
def test_a_cloud_that_does_not_come_through_is_said(
    tmp_path: Path, world: dict[str, str], project: dict[str, str], note: str
):
    """No signed request, none to several hosts, and no key to a host that a project names."""
    words, found = setup(tmp_path, "claude", files={PROJECT: {"env": project}}, **world)
    assert (words, found.environment, found.upstreams) == (("claude",), {}, {})
    assert note in found.note


@pytest.mark.usefixtures("machine")
def test_what_is_managed_cannot_be_overridden(tmp_path: Path):
    files = {"etc/managed.toml": 'openai_base_url = "http://gate/v1"'}
    given, found = setup(tmp_path, "codex", "exec", files=files)
    assert (given, found.applied) == (("codex", "exec"), ())
    assert f"openai_base_url in {tmp_path / 'etc' / 'managed.toml'}" in found.note
    _, found = setup(tmp_path, "codex", files={"etc/managed.toml": 'model = "m"'})
    assert found.applied
    files = {"etc/opencode.json": gate(1)}
    _, found = setup(tmp_path, "opencode", files=files)
    told = json.loads(found.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert told.keys() == {"openai", "google"}
    assert found.upstreams == {}


# Continue

CONFIG = ".continue/config.yaml"
MODELS = """
name: mine # and nobody else's
models:
  - name: gauges
    provider: openai
    apiBase: "http://gate/v1/"  # ours
    apiKey: ${{ secrets.KEY }}
  - {provider: vllm, name: flow, apiBase: http://gate:8000/v1, temperature: 0.5}
  - &maker
    name: Claude
    provider: anthropic
  - name: other
    provider: openai
  - uses: ./model.yaml
rules: [{uses: ./rule.yaml}, {uses: ./here.yaml}, be brief]
"""


def moved(folder: Path, text: str, *words: str, **files: str) -> tuple[Any, Any, LaunchSetup]:
    given, found = setup(folder, "cn", *words, "-p", "go", files={CONFIG: text, **files})
    file = base_urls.last_flag_value(given, "--config")
    held = (folder / "here" / file) if file else folder / CONFIG
    return given, held.read_text(), found


def test_continue_has_a_copy_of_its_configuration(tmp_path: Path):
    """Only base URLs and the files beside it differ, and those that are here are left."""
    given, copy, found = moved(tmp_path, MODELS, **{"here/here.yaml": ""})
    assert given == ("cn", "--config", str(tmp_path / "own" / "config.yaml"), "-p", "go")
    expected = MODELS.replace('"http://gate/v1/"', f'"{at("gate")}"')
    expected = expected.replace("http://gate:8000/v1", f'"{at("gate-2")}"')
    expected = expected.replace("    name: Claude", f'    apiBase: "{V1}"\n    name: Claude')
    for name in ("model", "rule"):
        path = tmp_path / ".continue" / f"{name}.yaml"
        expected = expected.replace(f"./{name}.yaml", f'"{path}"')
    assert copy == expected
    assert found.note == "for its models gauges, flow, Claude"
    assert found.upstreams == {"openai": upstream_at("http://gate/v1", replaces_version=True)}
    assert found.named == {
        "gate": "openai",
        "gate-2": upstream_at("http://gate:8000/v1", replaces_version=True),
    }
    assert (tmp_path / CONFIG).read_text() == MODELS


ONE = "models: [{{name: one, provider: {}, apiBase: {}}}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("models: [", ()),
        ("models: 1", ()),
        ("models: [{uses: owner/package}]", ()),
        (ONE.format("openai", "https://api.openai.com/v1"), ()),  # other requests elsewhere
        (ONE.format("openai", "https://x.openai.azure.com"), ()),
        (ONE.format("anthropic", '"${{ secrets.URL }}"'), ()),
        (ONE.format("bedrock", "http://gate"), ()),
        (ONE.format("openai", "http://gate/v1"), ("--config", "owner/package")),
        (ONE.format("openai", "http://gate/v1"), ("--config", "./none.yaml")),
        ("requestOptions: {proxy: http://p}\n" + ONE.format("openai", "http://gate/v1"), ()),
        ("x: &u http://gate/v1\n" + ONE.format("openai", "*u") + "\ny: &z [*u]", ()),
    ],
)
def test_continue_is_left_as_it_is_and_that_is_said(
    tmp_path: Path, text: str, words: tuple[str, ...]
):
    given, found = setup(tmp_path, "cn", *words, "-p", "go", files={CONFIG: text})
    assert (given, found.environment, found.applied) == (("cn", *words, "-p", "go"), {}, ())
    assert found.note


def test_continue_may_have_another_configuration(tmp_path: Path):
    files = {"here/own.yaml": ONE.format("ollama", "http://gate:11434")}
    given, found = setup(tmp_path, "cn", "--config=./own.yaml", files=files)
    assert given == ("cn", f"--config={tmp_path / 'own' / 'config.yaml'}")
    assert found.upstreams["openai"] == upstream_at("http://gate:11434/v1", replaces_version=True)


@pytest.mark.parametrize(
    "servers",
    ["", "mcpServers: []", "mcpServers: [{name: x, command: y}]", "mcpServers:\n  - name: x\n"],
)
def test_continues_copy_has_the_server(tmp_path: Path, servers: str):
    text = f"{ONE.format('openai', 'http://gate/v1')}\n{servers}\n"
    words, found = registered(tmp_path, "cn", files={CONFIG: text})
    held = yaml.safe_load(Path(words[2]).read_text())["mcpServers"]
    assert held[0] == {"name": "respool", "command": SERVER[0], "args": list(SERVER[1:])}
    assert held[1:] == (yaml.safe_load(servers) or {"mcpServers": []})["mcpServers"]
    assert "MCP" in found.note
    text = text.replace(servers, "mcpServers: [{name: respool, command: mine}]") if servers else ""
    if text:
        words, found = registered(tmp_path, "cn", files={CONFIG: text})
        assert yaml.safe_load(Path(words[2]).read_text())["mcpServers"][0]["command"] == "mine"


# Qwen Code


def test_qwen_goes_on_to_its_makers_host_and_recognises_it(tmp_path: Path):
    """It goes there where nothing is set, and sends other headers and breakpoints there."""
    given, found = setup(tmp_path, "qwen", "-p", "go")
    assert given == ("qwen", "-p", "go")
    assert found.environment == {"OPENAI_BASE_URL": at(QWEN_HOST)}
    assert (found.upstreams, found.named) == ({"openai": QWEN_UPSTREAM}, {QWEN_HOST: "openai"})


@pytest.mark.parametrize("flag", ["--openai-base-url", "--openaiBaseUrl"])
def test_qwens_own_option_is_put_right(tmp_path: Path, flag: str):
    world = {"OPENAI_BASE_URL": "http://other/v1"}
    given, found = setup(tmp_path, "qwen", flag, "http://said/v1", "-p", "go", **world)
    assert given == ("qwen", flag, at("said"), "-p", "go")
    assert found.upstreams["openai"].origin == "http://said"


@pytest.mark.parametrize(
    ("words", "settings", "world"),
    [
        (("--proxy", "http://p"), {}, {}),
        ((), {"proxy": "http://p"}, {}),
        ((), {}, {"https_proxy": "http://p", "NO_PROXY": "127.0.0.1"}),
    ],
)
def test_qwen_behind_an_http_proxy_is_left_as_it_is(
    tmp_path: Path, words: tuple[str, ...], settings: dict[str, str], world: dict[str, str]
):
    """It asks that proxy for every host, which cannot know of this machine."""
    files = {".qwen/settings.json": settings}
    given, found = setup(tmp_path, "qwen", *words, files=files, **world)
    assert (given, found.environment, found.applied) == (("qwen", *words), {}, ())
    assert "HTTP proxy" in found.note


def entries(*urls: str) -> dict[str, Any]:
    return {"openai": [{"id": f"m{at}", "baseUrl": url} for at, url in enumerate(urls)]}


SYSTEM_PATH = "QWEN_CODE_SYSTEM_SETTINGS_PATH"


def test_qwens_models_have_base_urls_of_their_own(tmp_path: Path):
    lists = {**entries("http://a/v1", "", "http://b/v1"), "other": 1}
    files = {
        ".qwen/settings.json": {"modelProviders": lists},
        "etc/qwen.json": {"tools": {"x": 1}},
    }
    world = {SYSTEM_PATH: str(tmp_path / "etc/qwen.json"), "OPENAI_BASE_URL": "http://b/v1"}
    _, found = setup(tmp_path, "qwen", files=files, **world)
    told = json.loads(Path(found.environment[SYSTEM_PATH]).read_text())
    assert told == {
        "tools": {"x": 1},
        "modelProviders": {**entries(at("a"), "", at("b")), "other": 1},
    }
    assert found.environment["OPENAI_BASE_URL"] == at("b")
    assert found.named == {"b": "openai", "a": upstream_at("http://a/v1", replaces_version=True)}
    assert found.note == ""


@pytest.mark.parametrize("file", ["here/.qwen/settings.json", "etc/qwen.json"])
def test_models_of_the_project_or_the_machine_are_left_as_they_are(tmp_path: Path, file: str):
    files = {file: {"modelProviders": entries("http://a/v1")}}
    world = {SYSTEM_PATH: str(tmp_path / "etc/qwen.json")}
    _, found = setup(tmp_path, "qwen", files=files, **world)
    assert SYSTEM_PATH not in found.environment
    assert f"modelProviders in {tmp_path / file}" in found.note


@pytest.mark.parametrize(
    ("words", "chosen", "told"),
    [
        ((), "qwen-oauth", False),
        (("--auth-type", "qwen-oauth"), "openai", False),
        (("--auth-type=openai",), "qwen-oauth", True),
        ((), "vertex-ai", False),
        ((), "anthropic", True),
    ],
)
def test_qwens_login_is_said_not_to_come_through(
    tmp_path: Path, words: tuple[str, ...], chosen: str, told: bool
):
    files = {".qwen/settings.json": {"security": {"auth": {"selectedType": chosen}}}}
    world = {"ANTHROPIC_BASE_URL": "http://gate"}
    _, found = setup(tmp_path, "qwen", *words, files=files, **world)
    assert bool(found.applied) == told
    assert bool(found.note) != told
    if told:
        assert found.environment["ANTHROPIC_BASE_URL"] == at("gate", "")


# The MCP server, registered for one run

SERVER = ("/usr/bin/python", "-m", "respool", "mcp", "--expand-only", "--store", "/a b/respool.db")
OWN_SERVER = {"mcpServers": {"respool": {"command": "mine"}}}
TABLE = '[mcp_servers.respool]\ncommand = "mine"\n'


def registered(folder: Path, *command: str, files: Any = None, **world: str) -> tuple[Any, Any]:
    setup(folder, *command, files=files, **world)  # the files
    given = {"HOME": str(folder), **world}
    return plan_launch(
        command, URL, given, folder / "own", folder / "here", mcp_command=SERVER
    )  # fmt: skip


def test_the_server_is_registered_by_what_each_agent_merges(tmp_path: Path):
    """Nothing of the user's is hidden."""
    entry = {"command": SERVER[0], "args": list(SERVER[1:])}
    world = {
        "COPILOT_PROVIDER_BASE_URL": "http://x/v1",
        "OPENCODE_CONFIG_CONTENT": '{"mcp": {"x": {}}}',
    }
    _, found = registered(tmp_path, "opencode", **world)
    told = json.loads(found.environment["OPENCODE_CONFIG_CONTENT"])
    local = {"type": "local", "command": list(SERVER), "enabled": True}
    assert told["mcp"] == {"x": {}, "respool": local}
    for agent, flag, more in (
        ("qwen", "--mcp-config", {}),
        ("copilot", "--additional-mcp-config", {"type": "local", "tools": ["*"]}),
    ):
        words, found = registered(tmp_path, agent, "-p", "go", **world)
        assert "MCP" in found.note
        assert (words[1], words[3:]) == (flag, ("-p", "go"))
        held = json.loads(Path(words[2].removeprefix("@")).read_text())
        assert held == {"mcpServers": {"respool": {**entry, **more}}}


def test_pis_extension_has_a_tool_in_place_of_the_server(tmp_path: Path):
    words, found = registered(tmp_path, "pi", "-p", "go")
    said = Path(words[2]).read_text()
    command = [*SERVER[:3], "expand", "--store", SERVER[-1]]
    assert said.count(json.dumps(command)) == 2
    assert 'name: "respool_expand"' in said
    assert "tool" in found.note
    words, _ = setup(tmp_path, "pi", "-p", "go")
    assert "respool_expand" not in Path(words[2]).read_text()


@pytest.mark.usefixtures("machine")
def test_the_server_is_registered_by_the_agents_own_options(tmp_path: Path):
    words, found = registered(tmp_path, "claude", "say ok", "-p")
    assert (words[0], words[2:]) == ("claude", ("say ok", "-p"))
    flag, _, file = words[1].partition("=")
    assert (flag, json.loads(Path(file).read_text())) == (
        "--mcp-config",
        {"mcpServers": {"respool": {"command": SERVER[0], "args": list(SERVER[1:])}}},
    )
    assert "MCP" in found.note
    words, found = registered(tmp_path, "codex", "exec", "go")
    given = [tomllib.loads(words[at + 1]) for at in range(1, 5, 2)]
    assert (words[1], words[3]) == ("-c", "-c")
    assert base_urls.merge_settings(given) == {
        "mcp_servers": {"respool": {"command": SERVER[0], "args": list(SERVER[1:])}}
    }
    assert words[5:] == ("-c", f'openai_base_url="{V1}"', "exec", "go")


@pytest.mark.parametrize(
    ("command", "files", "world"),
    [
        (("claude", "--strict-mcp-config"), {}, {}),
        (("claude",), {"etc/managed-mcp.json": {}}, {}),
        (("claude",), {}, {"CLAUDE_CODE_USE_BEDROCK": "1"}),
        (("codex",), {".codex/config.toml": TABLE}, {}),
        (("codex", "-c", 'mcp_servers.respool.command="mine"'), {}, {}),
        (("codex",), {"etc/managed.toml": 'profile = "x"'}, {}),
        (("qwen", "--mcp-config={}"), {}, {}),
        (("qwen",), {".qwen/settings.json": OWN_SERVER}, {}),
        (("gemini",), {}, {"GEMINI_API_KEY": "k"}),
        (("copilot",), {".copilot/mcp-config.json": OWN_SERVER},
         {"COPILOT_PROVIDER_BASE_URL": "http://x/v1"}),
        (("claude",), {".claude.json": OWN_SERVER}, {}),
        (("opencode",), {}, {"OPENCODE_CONFIG_CONTENT": '{"mcp": {"respool": {}}}'}),
        (("opencode",), {"here/opencode.json": {"mcp": {"respool": {"enabled": False}}}}, {}),
        (("aider",), {}, {}),
        (("mini",), {}, {}),
        (("python3",), {}, {}),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("machine")
def test_the_server_is_not_registered_where_that_would_be_in_the_way(
    tmp_path: Path, command: tuple[str, ...], files: dict[str, Any], world: dict[str, str]
):
    words, found = registered(tmp_path, *command, files=files, **world)
    assert (words, found) == setup(tmp_path, *command, **world)


# Codex

CODEX = '[model_providers.mine]\nbase_url = "https://mine.example/api/v1"\n'


@pytest.mark.parametrize(
    ("config", "words", "setting", "upstream"),
    [
        ("", ("exec", "go"), "openai_base_url", None),
        ('openai_base_url = "https://gate.example/v1"', (), "openai_base_url", "gate.example/v1"),
        (
            f'model_provider = "mine"\n{CODEX}',
            ("exec",),
            "model_providers.mine.base_url",
            "mine.example/api/v1",
        ),
        (CODEX, ("-c", "model_provider=mine"), "model_providers.mine.base_url",
         "mine.example/api/v1"),
        (CODEX, (), "openai_base_url", None),
        (f'[profiles.old]\nmodel_provider = "mine"\n{CODEX}', ("-p", "old"),
         "model_providers.mine.base_url", "mine.example/api/v1"),
        ("not toml [", (), "openai_base_url", None),
    ],
)  # fmt: skip
def test_codex_is_told_by_its_own_option(
    tmp_path: Path, config: str, words: tuple[str, ...], setting: str, upstream: str | None
):
    given, found = setup(tmp_path, "codex", *words, files={".codex/config.toml": config})
    assert given == ("codex", "-c", f'{setting}="{V1}"', *words)
    known = found.upstreams.get("openai")
    assert (known and f"{known.origin.removeprefix('https://')}{known.prefix}") == upstream


@pytest.mark.parametrize("words", [("--profile", "work"), ("exec", "--profile=work", "go")])
def test_codexs_profile_has_a_file_of_its_own(tmp_path: Path, words: tuple[str, ...]):
    files = {
        ".codex/config.toml": 'openai_base_url = "https://usual.example/v1"',
        ".codex/work.config.toml": 'openai_base_url = "https://work.example/v1"',
    }
    given, found = setup(tmp_path, "codex", *words, files=files)
    assert given == ("codex", "-c", f'openai_base_url="{V1}"', *words)
    assert found.upstreams["openai"].origin == "https://work.example"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('model_provider = "ollama"', "model_providers.ollama.base_url"),
        ('cli_auth_credentials_store = "keyring"', "openai_base_url"),
    ],
    ids=["a provider of Codex's own", "a login in the keyring"],
)
def test_codex_is_left_as_it_is_where_nobody_can_know_its_place(
    tmp_path: Path, config: str, said: str
):
    files = {".codex/config.toml": config}
    given, found = setup(tmp_path, "codex", "exec", files=files)
    assert (given, found.applied, found.upstreams) == (("codex", "exec"), (), {})
    assert said in found.note
    setting = said + '="http://there/v1"'
    given, found = setup(tmp_path, "codex", "-c", setting, files=files)
    assert found.upstreams == {"openai": upstream_at("http://there/v1", replaces_version=True)}


def test_codexs_own_words_are_put_right(tmp_path: Path):
    """A later option holds before an earlier one."""
    said = 'model_providers.x.base_url="http://there/v1"'
    words = ("exec", "-c", "model_provider=x", "-c", said, "go")
    given, found = setup(tmp_path, "codex", *words)
    assert said not in given
    assert given.count(f'model_providers.x.base_url="{V1}"') == 2
    assert found.upstreams == {"openai": upstream_at("http://there/v1", replaces_version=True)}


@pytest.mark.parametrize(
    ("login", "world", "chatgpt"),
    [
        ({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}}, {}, True),
        ({"OPENAI_API_KEY": "sk-x", "tokens": None}, {}, False),
        ({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}}, {"CODEX_API_KEY": "k"}, False),
        ("no json", {}, False),
    ],
)
def test_codex_with_chatgpts_login_goes_on_to_chatgpt(
    tmp_path: Path, login: Any, world: dict[str, str], chatgpt: bool
):
    _, found = setup(tmp_path, "codex", files={".codex/auth.json": login}, **world)
    expected = Upstream(
        "https://chatgpt.com", "/backend-api/codex", is_custom=True, replaces_version=True
    )
    assert found.upstreams == ({"openai": expected} if chatgpt else {})


# opencode and pi


def test_opencode_is_told_by_a_variable_that_is_merged(tmp_path: Path):
    mine = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://mine/v1", "x": 1}}
    odd = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://odd/v1"}}
    other = {"npm": "of-its-own", "options": {"baseURL": "http://other"}}
    settings = {"provider": {"odd": odd, "mine": mine, "other": other}, "model": "mine/m"}
    files = {".config/opencode/opencode.json": settings}
    content = json.dumps({"theme": "dark", "provider": {"mine": {"options": {"x": 2}}}})
    _, found = setup(tmp_path, "opencode", files=files, OPENCODE_CONFIG_CONTENT=content)
    told = json.loads(found.environment["OPENCODE_CONFIG_CONTENT"])
    assert told["theme"] == "dark"
    assert told["provider"] == {
        "mine": {"options": {"x": 2, "baseURL": at("mine")}},
        "odd": {"options": {"baseURL": at("odd")}},
        "anthropic": {"options": {"baseURL": V1}},
        "openai": {"options": {"baseURL": V1}},
        "google": {"options": {"baseURL": f"{URL}/v1beta"}},
    }
    assert found.upstreams == {"openai-chat": upstream_at("http://mine/v1", replaces_version=True)}
    assert found.named == {
        "mine": "openai-chat",  # the model in use is its: an option of respool's may move it
        "odd": upstream_at("http://odd/v1", replaces_version=True),
    }
    assert "mine" in found.note


COMPATIBLE = "@ai-sdk/openai-compatible"
GATE = {"provider": {"anthropic": {"options": {"baseURL": "https://gate.example/v1"}}}}


def test_opencodes_later_settings_hold_before_earlier_ones(tmp_path: Path):
    """A project may say where a provider of the user's is, and which model is in use."""
    usual = {"npm": COMPATIBLE, "options": {"baseURL": "http://usual/v1"}}
    mine = {"npm": COMPATIBLE, "options": {"baseURL": "http://mine/v1", "x": 1}}
    files = {
        ".config/opencode/opencode.json": {
            "model": "usual/m", "provider": {"usual": usual, "mine": mine}
        },
        ".git/HEAD": "",
        "opencode.json": {"model": "mine/m"},
        "here/.opencode/opencode.jsonc": {
            "provider": {"mine": {"options": {"baseURL": "http://moved/v1"}}}
        },
    }  # fmt: skip
    _, found = setup(tmp_path, "opencode", files=files)
    assert found.upstreams == {"openai-chat": upstream_at("http://moved/v1", replaces_version=True)}
    assert found.note == "for its providers mine, usual, anthropic, openai, google"


@pytest.mark.parametrize(
    ("text", "world"),
    [
        (json.dumps(GATE), {}),
        ("// ours\n" + json.dumps(GATE, indent=1).replace("}\n", "}, /* and */\n"), {}),
        (json.dumps(GATE).replace("https://gate.example", "{env:GATE}"),
         {"GATE": "https://gate.example"}),
        ("{}", {"ANTHROPIC_BASE_URL": "https://gate.example/v1"}),
    ],
    ids=["plain", "comments", "variables", "environment"],
)  # fmt: skip
def test_opencodes_own_provider_goes_on_to_where_it_was(
    tmp_path: Path, text: str, world: dict[str, str]
):
    """The key that it sends is for there, and for nobody else."""
    files = {".config/opencode/opencode.jsonc": text}
    _, found = setup(tmp_path, "opencode", files=files, **world)
    assert found.upstreams == {
        "anthropic": upstream_at("https://gate.example/v1", replaces_version=True)
    }
    told = json.loads(found.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert told["anthropic"]["options"]["baseURL"] == at("gate.example")
    assert found.named == {"gate.example": "anthropic"}


def test_opencodes_provider_at_an_address_that_only_it_knows_is_left_there(tmp_path: Path):
    text = json.dumps(GATE).replace("https://gate.example/v1", "{file:~/gate}")
    _, found = setup(tmp_path, "opencode", files={".config/opencode/opencode.json": text})
    told = json.loads(found.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert told.keys() == {"openai", "google"}
    assert found.upstreams == {}


def test_opencode_with_content_that_cannot_be_read_is_left_as_it_is(tmp_path: Path):
    words, found = setup(tmp_path, "opencode", "run", OPENCODE_CONFIG_CONTENT="{")
    assert (words, found.environment, found.applied) == (("opencode", "run"), {}, ())
    assert "no JSON object" in found.note


def test_pi_is_told_by_an_extension_of_our_own(tmp_path: Path):
    gate = {"baseUrl": "http://gate", "api": "anthropic-messages"}
    files = {".pi/agent/models.json": {"providers": {"gate": gate}}}
    words, found = setup(tmp_path, "pi", "--provider", "gate", "-p", "go", files=files)
    assert words[:2] == ("pi", "-e")
    assert words[3:] == ("--provider", "gate", "-p", "go")
    extension = Path(words[2])
    assert extension.parent == tmp_path / "own"
    said = extension.read_text()
    maker = at("api.anthropic.com", "")
    assert f'pi.registerProvider("gate", {{"baseUrl": "{at("gate", "")}"}});' in said
    assert f'pi.registerProvider("openai", {{"baseUrl": "{V1}"}});' in said
    assert f'pi.registerProvider("anthropic", {{"baseUrl": "{maker}"}});' in said
    assert found.upstreams == {"anthropic": upstream_at("http://gate")}
    assert found.named == {"gate": "anthropic", "api.anthropic.com": Upstreams().anthropic}
    assert (
        json.loads((tmp_path / ".pi/agent/models.json").read_text())
        == files[".pi/agent/models.json"]
    )


def test_pis_own_commands_are_left_alone(tmp_path: Path):
    words, found = setup(tmp_path, "pi", "install", "x")
    assert (words, found.applied) == (("pi", "install", "x"), ())


# Copilot, and what cannot be pointed


@pytest.mark.parametrize(
    ("world", "told", "note"),
    [
        ({}, (), "COPILOT_PROVIDER_BASE_URL is not set"),
        ({"COPILOT_PROVIDER_TYPE": "azure"}, (), "is not set"),
        ({"COPILOT_PROVIDER_BASE_URL": "http://x", "COPILOT_PROVIDER_TYPE": "azure"}, (), "azure"),
        ({"COPILOT_PROVIDER_BASE_URL": "http://x/v1"}, (V1,), ""),
        (
            {"COPILOT_PROVIDER_BASE_URL": "http://x", "COPILOT_PROVIDER_TYPE": "anthropic"},
            (URL,),
            "",
        ),
    ],
)
def test_copilot_comes_with_a_provider_of_its_users_own(
    tmp_path: Path, world: dict[str, str], told: tuple[str, ...], note: str
):
    _, found = setup(tmp_path, "copilot", "-p", "go", **world)
    assert tuple(found.environment.values()) == told
    assert note in found.note
    assert bool(found.note) == bool(note)


def test_what_does_not_come_through_is_said(tmp_path: Path):
    assert "BEDROCK" in setup(tmp_path, "claude", CLAUDE_CODE_USE_BEDROCK="1")[1].note
    assert setup(tmp_path, "claude", CLAUDE_CODE_USE_BEDROCK="0")[1].note == ""
    assert "Google login" in setup(tmp_path, "gemini")[1].note


@pytest.mark.parametrize(
    ("world", "auth", "file", "told"),
    [
        ({"GEMINI_API_KEY": "k"}, "", "", True),
        ({"GOOGLE_GEMINI_BASE_URL": "http://gate"}, "", "", True),
        ({}, "gemini-api-key", "", True),
        ({}, "", "GEMINI_API_KEY=k", True),
        ({}, "oauth-personal", "", False),
        ({}, "", "", False),
        ({"CLOUD_SHELL": "true"}, "", "", False),
    ],
)
def test_gemini_cli_comes_with_a_key(
    tmp_path: Path, world: dict[str, str], auth: str, file: str, told: bool
):
    """A base URL without one would keep it from the login that it has."""
    settings = {"security": {"auth": {"selectedType": auth}}}
    files = {".gemini/settings.json": settings, ".gemini/.env": file}
    words, found = setup(tmp_path, "gemini", "-p", "go", files=files, **world)
    assert words == ("gemini", "-p", "go")
    assert found.environment == ({"GOOGLE_GEMINI_BASE_URL": URL} if told else {})
    assert bool(found.note) != told


def test_aiders_own_variable_holds_before_the_others(tmp_path: Path):
    world = {"AIDER_OPENAI_API_BASE": "http://own/v1", "OPENAI_API_BASE": "http://other/v1"}
    _, found = setup(tmp_path, "aider", **world)
    assert found.environment["AIDER_OPENAI_API_BASE"] == V1
    assert found.upstreams["openai"].origin == "http://own"


def test_what_litellm_believes_first_is_where_requests_go_on_to(tmp_path: Path):
    world = {"OPENAI_BASE_URL": "http://first/v1", "OPENAI_API_BASE": "http://second/v1"}
    for agent in ("aider", "mini"):
        _, found = setup(tmp_path, agent, **world, AIDER_OPENAI_API_BASE="http://third/v1")
        assert found.environment["OPENAI_BASE_URL"] == V1
        assert "OPENAI_API_BASE" not in found.environment  # it names another place
        assert found.upstreams == {"openai": upstream_at("http://first/v1", replaces_version=True)}


@pytest.mark.parametrize("words", [("--openai-api-base", "{}"), ("--openai-api-base={}",)])
def test_aiders_own_option_is_put_right(tmp_path: Path, words: tuple[str, ...]):
    """It holds before the variables; with another one set beside it, its key went to that place."""
    given, found = setup(
        tmp_path,
        "aider",
        *(word.format("http://said/v1") for word in words),
        "--yes",
        AIDER_OPENAI_API_BASE="http://own/v1",
    )
    assert given == ("aider", *(word.format(V1) for word in words), "--yes")
    assert found.upstreams == {"openai": upstream_at("http://said/v1", replaces_version=True)}
    assert "OPENAI_BASE_URL" not in found.environment
