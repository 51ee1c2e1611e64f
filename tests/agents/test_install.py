"""Installations: where each agent goes, that requests go on as before, and undo to the byte."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from respool.agents.install import (
    INSTALLABLE,
    CannotInstall,
    InstallContext,
    InstallPlan,
    merge_upstreams,
    plan_install,
)
from respool.agents.installation import (
    AgentRecord,
    FileRecord,
    Record,
    back_up,
    direct_table,
    is_in_force,
    plan_changes,
    skip_installed_proxies,
    undo,
    write_change,
)
from respool.agents.service import (
    Service,
    kept_environment,
    launchd_agent,
    serve_words,
    service_files,
    systemd_units,
)
from respool.agents.settings_edits import UneditableSettings
from respool.proxy.server_options import (
    Upstreams,
    read_upstreams,
    upstream_at,
    upstreams_of,
)

PROXY = "http://127.0.0.1:7733"
GATEWAY = "https://gateway.example/llm"


@dataclass(frozen=True)
class Case:
    """An agent with settings of its user's, and what they are when it is installed."""

    agent: str
    files: dict[str, str]  # before
    routed: dict[str, list[str]]  # what the files say then
    goes_on: dict[str, str]  # upstreams
    environ: dict[str, str] = field(default_factory=dict)


ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com"
NAMED = f"{PROXY}/respool-upstream/gateway.example"
URL, URL_V1 = f'"{PROXY}"', f'"{PROXY}/v1"'
FIRST_PARTY = '"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"'
CODEX = f'[model_providers.g]\nname = "g"\nbase_url = "{GATEWAY}" # ours\n'
CONTINUE = f"""\
# mine
name: mine
models:
  - name: one
    provider: openai
    apiBase: {GATEWAY} # ours
    model: m
  - name: two
    provider: anthropic
    model: claude-sonnet-4-5
"""
CASES = [
    Case(
        "claude",
        {},
        {
            ".claude/settings.json": [URL, FIRST_PARTY, '"ENABLE_TOOL_SEARCH": "true"', "guard.sh"],
            ".claude.json": ['"respool"', '"mcp"'],
        },
        {"anthropic": ANTHROPIC},
    ),
    Case(
        "claude",
        {
            ".claude/settings.json": f'{{"env": {{"ANTHROPIC_BASE_URL": "{GATEWAY}"}},\n'
            ' "hooks": {"SessionStart": [{"hooks": []}]}}',
            ".claude.json": '{\n  "projects": {},\n  "mcpServers": {"a": {"command": "b"}}\n}\n',
        },
        {".claude/settings.json": [URL, '{"hooks": []}, {"hooks"'], ".claude.json": ['"a"']},
        {"anthropic": GATEWAY},
    ),
    Case("claude", {}, {".claude/settings.json": [URL]}, {"anthropic": GATEWAY},
         {"ANTHROPIC_BASE_URL": GATEWAY}),
    Case("codex", {}, {".codex/config.toml": [f"openai_base_url = {URL_V1}"]}, {"openai": OPENAI}),
    Case("codex", {".codex/config.toml": f'# mine\nmodel_provider = "g"\n{CODEX}'},
         {".codex/config.toml": [f"base_url = {URL_V1} # ours", "[mcp_servers.respool]", "# mine"]},
         {"openai_responses": GATEWAY}),
    Case("codex", {".codex/auth.json": '{"tokens": {"a": "b"}}'},
         {".codex/config.toml": [f"openai_base_url = {URL_V1}"]},
         {"openai_responses": "https://chatgpt.com/backend-api/codex"}),
    Case("opencode",
         {".config/opencode/opencode.json":
          f'{{"provider": {{"anthropic": {{"options": {{"baseURL": "{GATEWAY}/v1"}}}}}}}}'},
         {".config/opencode/plugin/respool.js": [f'"anthropic": "{NAMED}/v1"', "healthz"]},
         {"named/gateway.example": f"{GATEWAY}/v1"}),
    Case("pi", {}, {".pi/agent/extensions/respool.ts": ['"anthropic", {"baseUrl": ' + URL]},
         {"anthropic": ANTHROPIC}),
    Case("gemini", {".gemini/.env": f"GEMINI_API_KEY=x\nGOOGLE_GEMINI_BASE_URL={GATEWAY}\n"},
         {".gemini/.env": [f"\nGOOGLE_GEMINI_BASE_URL={PROXY}\n", "GEMINI_API_KEY=x"],
          ".gemini/settings.json": ["mcpServers", "SessionStart"]},
         {"gemini": GATEWAY}),
    Case("gemini", {".env": "GEMINI_API_KEY=x"}, {".env": [f"x\nGOOGLE_GEMINI_BASE_URL={PROXY}\n"]},
         {"gemini": "https://generativelanguage.googleapis.com"}),
    Case("qwen", {".qwen/settings.json": f'{{\n\t"env": {{"OPENAI_BASE_URL": "{GATEWAY}"}}\n}}\n'},
         {".qwen/settings.json": [f'"OPENAI_BASE_URL": "{NAMED}/v1"', '"respool"']},
         {"named/gateway.example": GATEWAY}),
    Case("qwen", {".qwen/.env": f"OPENAI_BASE_URL={GATEWAY}\n"},
         {".qwen/.env": [f"OPENAI_BASE_URL={NAMED}/v1"]}, {"named/gateway.example": GATEWAY}),
    Case("mini", {".config/mini-swe-agent/.env": f"OPENAI_BASE_URL={GATEWAY}\n"},
         {".config/mini-swe-agent/.env": [f"OPENAI_BASE_URL={PROXY}/v1", "ANTHROPIC_BASE_URL"]},
         {"openai_chat": GATEWAY, "anthropic": ANTHROPIC}),
    Case("cn", {".continue/config.yaml": CONTINUE},
         {".continue/config.yaml":
          [f'apiBase: "{NAMED}/v1" # ours', f'apiBase: "{PROXY}/v1"', "guard.sh"]},
         {"named/gateway.example": GATEWAY, "anthropic": ANTHROPIC}),
    Case("aider", {".aider.conf.yml": "# mine\nmodel: gpt-5\n"},
         {".aider.conf.yml": [f"# mine\nmodel: gpt-5\nopenai-api-base: {PROXY}/v1\n"]},
         {"openai_chat": OPENAI}),
]  # fmt: skip
cases = pytest.mark.parametrize("case", CASES)


def plan_for(case: Case, folder: Path) -> InstallPlan:
    if case.agent == "cn":
        pytest.importorskip("yaml", reason="Continue's configuration needs PyYAML")
    home, scratch = folder / "home", folder / "scratch"
    scratch.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    for name, text in case.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(text.encode())
    environ = {"HOME": str(home), **case.environ}
    guard = folder / "state" / "guard.sh"
    return plan_install(case.agent, InstallContext(environ, PROXY, guard, scratch))


def contents(home: Path) -> dict[str, bytes | None]:
    """Every file and folder below a home."""
    return {
        str(one.relative_to(home)): one.read_bytes() if one.is_file() else None
        for one in home.rglob("*")
    }


def installed(plan: InstallPlan, folder: Path) -> list[FileRecord]:
    changes = plan_changes(plan)
    records = [back_up(change, folder / "state") for change in changes]
    for change in changes:
        write_change(change)
    return records


@cases
def test_an_agent_is_pointed_at_the_proxy_and_its_requests_go_on_as_before(
    case: Case, tmp_path: Path
):
    plan = plan_for(case, tmp_path)
    installed(plan, tmp_path)
    for name, texts in case.routed.items():
        written = (tmp_path / "home" / name).read_text()
        assert [text for text in texts if text not in written] == []
        if name.endswith(".json"):
            assert isinstance(json.loads(written), dict)
        if name.endswith(".toml"):
            assert tomllib.loads(written)
    merged = merge_upstreams({plan.label: (plan.upstreams, plan.uses)})
    for name, url in case.goes_on.items():
        _, is_named, key = name.partition("named/")
        assert is_named or name in plan.uses
        upstream = merged.named[key] if is_named else getattr(merged, name)
        assert upstream.origin + upstream.prefix == url
    assert (FIRST_PARTY in str(contents(tmp_path / "home"))) == (
        case.agent == "claude" and case.goes_on == {"anthropic": ANTHROPIC}
    )


@cases
def test_undo_gives_back_every_byte_and_removes_what_was_made(case: Case, tmp_path: Path):
    plan = plan_for(case, tmp_path)
    before = contents(tmp_path / "home")
    records = installed(plan, tmp_path)
    assert contents(tmp_path / "home") != before
    for record in reversed(records):
        undo(record, tmp_path / "state")
    assert contents(tmp_path / "home") == before
    assert [one for one in (tmp_path / "state").rglob("*") if one.is_file()] == []


@cases
def test_undo_keeps_what_was_edited_since(case: Case, tmp_path: Path):
    """Each file is edited at its end; then only respool's own values are taken out."""
    plan = plan_for(case, tmp_path)
    records = installed(plan, tmp_path)
    home = tmp_path / "home"
    for record in records:
        file = Path(record.file)
        if record.edits or record.backup:
            file.write_bytes(_edited(file))
    for record in reversed(records):
        undo(record, tmp_path / "state")
    left = {name: data for name, data in contents(home).items() if data is not None}
    assert not any(PROXY.encode() in data or b"guard.sh" in data for data in left.values())
    for record in records:
        name = str(Path(record.file).relative_to(home))
        if record.edits or record.backup:
            assert b"later" in left[name]
            for line in case.files.get(name, "").splitlines():
                assert line.rstrip("{}, ") in left[name].decode().replace('"later": 1,', "")


def _edited(file: Path) -> bytes:
    data = file.read_bytes()
    match file.suffix or file.name:
        case ".json":
            return data.replace(b"{", b'{"later": 1,', 1)
        case ".toml" | ".yml" | ".yaml" | ".env":
            return data + b"# later\n"
        case _:
            raise AssertionError(file)


@cases
@pytest.mark.parametrize("edited", [False, True])
def test_the_guard_script_takes_the_proxy_out_without_python(
    case: Case, edited: bool, tmp_path: Path
):
    plan = plan_for(case, tmp_path)
    before = contents(tmp_path / "home")
    records = installed(plan, tmp_path)
    agent = AgentRecord(
        label=plan.label,
        port=7733,
        upstreams=plan.upstreams,
        uses=plan.uses,
        files=tuple(records),
    )
    assert is_in_force(agent)
    state = tmp_path / "state"
    service = Service(7733, "/nowhere/python", state)
    for file, (text, _) in service_files(service).items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (state / "direct.tsv").write_text(direct_table(state, [agent]))
    routed = [one for one in records if one.direct]
    for record in routed if edited else []:
        Path(record.file).write_bytes(_edited(Path(record.file)))
    subprocess.run(["/bin/sh", service.guard, "direct"], check=True, env={"PATH": "/usr/bin:/bin"})
    for record in routed:
        name = str(Path(record.file).relative_to(tmp_path / "home"))
        after = contents(tmp_path / "home").get(name)
        if not edited:
            assert after == before.get(name)
            continue
        assert after is not None
        assert PROXY.encode() not in after
        assert all(url.encode() in after for url in record.direct.values())
    assert is_in_force(agent) == (not routed)


def test_claude_codes_plugin_brings_the_server_itself(tmp_path: Path):
    settings = '{"enabledPlugins": {"respool@respool": true}}'
    plan = plan_for(Case("claude", {".claude/settings.json": settings}, {}, {}), tmp_path)
    assert {edit.file.name for edit in plan.edits} == {"settings.json"}


MODELS = json.dumps(
    {"modelProviders": {"openai": [{"id": "m", "name": "m", "baseUrl": GATEWAY, "envKey": "K"}]}}
)
REFUSED: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("copilot", {}, {}, "respool run -- copilot"),
    ("cn", {}, {}, "names no models that can be read"),
    ("qwen", {".qwen/settings.json": MODELS}, {}, "respool run -- qwen"),
    ("emacs", {}, {}, "known are claude"),
    ("gemini", {}, {}, "with an API key, not with a Google login"),
    ("gemini", {}, {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": GATEWAY}, "overrides its"),
    ("qwen", {}, {"OPENAI_BASE_URL": GATEWAY}, "OPENAI_BASE_URL is set in the environment"),
    ("aider", {}, {"OPENAI_API_BASE": GATEWAY}, "OPENAI_API_BASE is set in the environment"),
    ("claude", {}, {"CLAUDE_CODE_USE_BEDROCK": "1"}, "AWS signatures do not come through"),
    ("claude", {}, {"CLAUDE_CODE_USE_VERTEX": "1"}, "uses a cloud here: use respool run"),
    ("claude", {}, {"ANTHROPIC_BASE_URL": PROXY}, "already, and respool has no record"),
    ("codex", {}, {"OPENAI_BASE_URL": GATEWAY}, "does not say"),
]


@pytest.mark.parametrize(("agent", "files", "environ", "why"), REFUSED)
def test_what_cannot_be_installed_is_said_with_its_reason(
    agent: str, files: dict[str, str], environ: dict[str, str], why: str, tmp_path: Path
):
    with pytest.raises(CannotInstall, match=why):
        plan_for(Case(agent, files, {}, {}, environ), tmp_path)


@pytest.mark.parametrize(
    ("agent", "files"),
    [
        ("claude", {".claude/settings.json": "{"}),
        ("claude", {".claude/settings.json": '{"env": []}'}),
        ("codex", {".codex/config.toml": "a = "}),
        ("aider", {".aider.conf.yml": "- a\n"}),
    ],
)
def test_a_file_that_cannot_be_read_is_not_changed(
    agent: str, files: dict[str, str], tmp_path: Path
):
    with pytest.raises(UneditableSettings):
        plan_changes(plan_for(Case(agent, files, {}, {}), tmp_path))


def test_every_agent_that_can_be_installed_is_in_the_table():
    assert {case.agent for case in CASES} == set(INSTALLABLE)


def test_agents_with_different_upstreams_need_different_ports():
    uses = ("openai", "openai_responses")
    url = "https://chatgpt.com/backend-api/codex"
    chatgpt = upstreams_of((), {"openai": upstream_at(url, replaces_version=True)})
    with pytest.raises(CannotInstall, match="--port takes another one"):
        merge_upstreams({"Qwen Code": (Upstreams(), ("openai",)), "Codex": (chatgpt, uses)})
    merged = merge_upstreams({"Codex": (chatgpt, uses), "Claude": (Upstreams(), ("anthropic",))})
    assert merged.openai == chatgpt.openai
    assert merged.openai_chat == Upstreams().openai_chat


# --- the service -------------------------------------------------------------------------------


def strange_service(folder: Path) -> Service:
    strange = folder / "a b'c%d$e"
    strange.mkdir()
    other = upstream_at("https://host/x", replaces_version=True)
    upstreams = upstreams_of(("anthropic=https://gateway/a;b",), {"openai": other}, {"x": other})
    return Service(7733, "/opt/my python", strange, upstreams, {"HTTPS_PROXY": "http://u:p'@h"})


def test_the_options_of_the_service_are_its_upstreams(tmp_path: Path):
    service = strange_service(tmp_path)
    for file, (text, _) in service_files(service).items():
        file.write_text(text)
    words = serve_words(service)
    named = dict(pairwise(words))["--upstreams"]
    assert read_upstreams(Path(named)) == service.upstreams


def test_units_are_valid_for_systemd(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    service = strange_service(tmp_path)
    units = tmp_path / "units"
    units.mkdir()
    for name, text in systemd_units(service).items():
        (units / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", *sorted(units.iterdir())],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert "respool" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_agent_of_launchd_is_a_property_list(tmp_path: Path):
    service = strange_service(tmp_path)
    about: dict[str, Any] = plistlib.loads(launchd_agent(service).encode())
    assert about["ProgramArguments"] == ["/bin/sh", str(service.guard), "serve"]
    assert (about["RunAtLoad"], about["KeepAlive"]) == (True, True)


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox"])
def test_the_guard_script_runs_in_any_shell(shell: str, tmp_path: Path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    service = strange_service(tmp_path)
    for file, (text, mode) in service_files(service).items():
        file.write_text(text)
        file.chmod(mode)
    words = [program, "sh"] if shell == "busybox" else [program]
    environ = {"PATH": str(tmp_path)}  # no Python in it
    done = subprocess.run(
        [*words, service.guard, "serve"], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    done = subprocess.run(
        [*words, service.guard], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_the_tool_of_pis_extension_gets_an_original(tmp_path: Path):
    """Its command is the guard script's, which passes the words on to `respool expand`."""
    plan = plan_for(Case("pi", {}, {}, {}), tmp_path)
    (file,) = plan.files
    guard = tmp_path / "state" / "guard.sh"
    assert f'["/bin/sh", "{guard}", "expand"]' in file.text
    service = Service(7733, "/bin/echo", tmp_path / "state")
    service.folder.mkdir()
    for path, (text, _) in service_files(service).items():
        path.write_text(text)
    words = ["/bin/sh", guard, "expand", "--lines=1:2", "--", "a b"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "-P -m respool expand --lines=1:2 -- a b\n"


KEPT: list[tuple[Callable[[], dict[str, str]], list[str]]] = [
    (lambda: {"https_proxy": "x", "NO_PROXY": "y"}, ["NO_PROXY", "https_proxy"]),
    (lambda: {"RESPOOL_STORE": "/x", "RESPOOL_PRESET": ""}, ["RESPOOL_STORE"]),
    (lambda: {"ANTHROPIC_API_KEY": "secret", "PATH": "/bin"}, []),
]


@pytest.mark.parametrize(("environ", "names"), KEPT)
def test_the_service_keeps_what_it_needs_of_the_environment_and_no_key(
    environ: Callable[[], dict[str, str]], names: list[str]
):
    assert list(kept_environment(environ())) == names


def test_a_run_of_an_installed_agent_goes_through_one_proxy():
    gate = upstream_at(GATEWAY, replaces_version=True)
    agents = {
        "claude": AgentRecord(
            label="Claude Code",
            port=7733,
            upstreams=upstreams_of([f"anthropic={GATEWAY}"]),
            uses=("anthropic",),
        ),
        "codex": AgentRecord(label="Codex", port=7733, upstreams=Upstreams(), uses=("openai",)),
        "pi": AgentRecord(
            label="pi", port=7733, upstreams=Upstreams(named={"gate": gate}), uses=()
        ),
    }
    record = Record(agents=agents)
    named = {"x": upstream_at(f"{PROXY}/respool-upstream/gate/v1"), "y": upstream_at("https://y")}
    asked = upstreams_of([f"anthropic={PROXY}", f"openai={PROXY}/v1"], named=named)
    found = skip_installed_proxies(asked, record)
    assert found.anthropic == upstream_at(GATEWAY)
    assert (found.openai, found.openai_chat) == (Upstreams().openai, Upstreams().openai_chat)
    assert found.named == {"x": gate, "y": named["y"]}
    other = upstreams_of(["anthropic=http://127.0.0.1:7734"])
    assert skip_installed_proxies(other, record) == other
    assert skip_installed_proxies(asked, Record()) == asked
