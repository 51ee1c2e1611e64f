"""What each agent is started with so that its requests come to a proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.proxy.agents.clients import VARIABLES, Setup, setup_of
from clew.proxy.forwarding.upstreams import Name, Unservable, Upstream, upstream_at, upstreams_of

URL = "http://127.0.0.1:4711"
V1 = f"{URL}/v1"


def setup(
    folder: Path, *command: str, files: Any = None, **world: str
) -> tuple[tuple[str, ...], Setup]:
    """What a command is started with, in a home with these files."""
    for name, held in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held if isinstance(held, str) else json.dumps(held))
    own, here = folder / "own", folder / "here"
    for place in (own, here):
        place.mkdir(exist_ok=True)
    return setup_of(command, URL, {"HOME": str(folder), **world}, own, here)


@pytest.mark.parametrize(
    ("command", "client", "environment"),
    [
        ("claude", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("/usr/bin/claude", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("C:\\bin\\claude.CMD", "Claude Code", {"ANTHROPIC_BASE_URL": URL}),
        ("gemini", "Gemini CLI", {"GOOGLE_GEMINI_BASE_URL": URL}),
        ("qwen", "Qwen Code", {"OPENAI_BASE_URL": V1}),
        (
            "aider",
            "aider",
            {"OPENAI_BASE_URL": V1, "OPENAI_API_BASE": V1,
             "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_BASE": URL},
        ),
        (
            "mini",
            "mini-swe-agent",
            {"OPENAI_BASE_URL": V1, "OPENAI_API_BASE": V1,
             "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_BASE": URL},
        ),
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
    assert (found.client, found.environment) == (client, environment)
    assert set(found.told) == environment.keys()
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
    assert found.client == client
    assert words[:at] == command[:at]
    assert words[len(words) - len(command) + at :] == command[at:]


@pytest.mark.parametrize("name", VARIABLES)
def test_what_a_variable_was_set_to_is_where_requests_go_on_to(tmp_path: Path, name: str):
    _, found = setup(tmp_path, "python3", **{name: "https://gateway.example/team/v1/"})
    variable = VARIABLES[name]
    (upstream,) = found.upstreams.values()
    assert (upstream.origin, upstream.prefix) == ("https://gateway.example", "/team/v1")
    assert (upstream.chosen, upstream.whole) == (True, variable.versioned)
    assert found.environment[name].startswith(URL)


def test_a_base_url_that_is_none_is_said(tmp_path: Path):
    with pytest.raises(Unservable, match="begins with https"):
        setup(tmp_path, "claude", ANTHROPIC_BASE_URL="gateway")


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
    assert upstream_at(base, whole=True).url(path, "") == url


def test_what_is_chosen_holds_before_what_was_found():
    found: dict[Name, Upstream] = {
        "openai": upstream_at("http://found"),
        "anthropic": upstream_at("http://other"),
    }
    ups = upstreams_of(["openai-chat=http://chosen"], found)
    origins = (ups.openai_chat.origin, ups.openai_responses.origin, ups.anthropic.origin)
    assert origins == ("http://chosen", "http://found", "http://other")
    ups = upstreams_of(["openai=http://chosen"], {"openai-chat": upstream_at("http://found")})
    assert {ups.openai.origin, ups.openai_chat.origin} == {"http://chosen"}
    assert upstreams_of([], {}) == upstreams_of([])


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


def test_codexs_own_words_are_put_right(tmp_path: Path):
    """A later option holds before an earlier one."""
    said = 'model_providers.x.base_url="http://there/v1"'
    words = ("exec", "-c", "model_provider=x", "-c", said, "go")
    given, found = setup(tmp_path, "codex", *words)
    assert said not in given
    assert given.count(f'model_providers.x.base_url="{V1}"') == 2
    assert found.upstreams == {"openai": upstream_at("http://there/v1", whole=True)}


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
    expected = Upstream("https://chatgpt.com", "/backend-api/codex", chosen=True, whole=True)
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
        "mine": {"options": {"x": 2, "baseURL": V1}},  # the model in use is its, so odd has to wait
        "anthropic": {"options": {"baseURL": V1}},
        "openai": {"options": {"baseURL": V1}},
        "google": {"options": {"baseURL": f"{URL}/v1beta"}},
    }
    assert found.upstreams == {"openai-chat": upstream_at("http://mine/v1", whole=True)}
    assert "mine" in found.note


def test_opencode_with_content_that_cannot_be_read_is_left_as_it_is(tmp_path: Path):
    words, found = setup(tmp_path, "opencode", "run", OPENCODE_CONFIG_CONTENT="{")
    assert (words, found.environment, found.told) == (("opencode", "run"), {}, ())
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
    assert f'pi.registerProvider("gate", {{"baseUrl": "{URL}"}});' in said
    assert f'pi.registerProvider("openai", {{"baseUrl": "{V1}"}});' in said
    assert "anthropic" not in said  # its place is taken by the gate, which is in use
    assert found.upstreams == {"anthropic": upstream_at("http://gate")}
    assert (
        json.loads((tmp_path / ".pi/agent/models.json").read_text())
        == files[".pi/agent/models.json"]
    )


def test_pis_own_commands_are_left_alone(tmp_path: Path):
    words, found = setup(tmp_path, "pi", "install", "x")
    assert (words, found.told) == (("pi", "install", "x"), ())


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
    assert setup(tmp_path, "gemini", GEMINI_API_KEY="k")[1].note == ""


def test_aiders_own_variable_holds_before_the_others(tmp_path: Path):
    world = {"AIDER_OPENAI_API_BASE": "http://own/v1", "OPENAI_API_BASE": "http://other/v1"}
    _, found = setup(tmp_path, "aider", **world)
    assert found.environment["AIDER_OPENAI_API_BASE"] == V1
    assert found.upstreams["openai"].origin == "http://own"
