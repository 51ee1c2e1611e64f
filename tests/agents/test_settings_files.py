"""Settings and variables that agents read from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respool.agents import base_urls
from respool.agents.launch import plan_launch
from respool.agents.settings_files import parse_object
from respool.proxy.server_options import upstream_at
from tests.agents.test_launch import CODEX, QWEN_UPSTREAM, URL, V1, gate, setup

GATE_URL = "https://gate.example/v1"
DOTENV = f"""
# the gate
export OPENAI_API_KEY='k'
OPENAI_BASE_URL = "{GATE_URL}"  # ours
OPENAI_API_BASE={GATE_URL} # too
GOOGLE_GEMINI_BASE_URL={GATE_URL}
"""
BY_SETTINGS = {"env": {"OPENAI_BASE_URL": GATE_URL}}
FILES = [
    ("qwen", ".qwen/.env", DOTENV),
    ("qwen", ".env", DOTENV),
    ("qwen", ".qwen/settings.json", BY_SETTINGS),
    ("qwen", ".qwen/settings.json", {"security": {"auth": {"apiKey": "k", "baseUrl": GATE_URL}}}),
    ("gemini", ".gemini/.env", DOTENV),
    ("gemini", ".env", DOTENV),
    ("mini", ".config/mini-swe-agent/.env", DOTENV),
    ("gemini", ".gemini/.env", b"# cl\xe9\n" + DOTENV.encode()),
    ("qwen", ".qwen/.env", b"# cl\xe9\n" + DOTENV.encode()),
    ("qwen", ".qwen/settings.json", b"// cl\xe9\n" + json.dumps(BY_SETTINGS).encode()),
]


@pytest.mark.parametrize(("agent", "file", "held"), FILES)
def test_a_base_url_in_a_file_of_the_users_own_is_where_requests_go_on_to(
    tmp_path: Path, agent: str, file: str, held: Any
):
    """The agent would go by the file; the key in it is for there, and for nobody else."""
    _, found = setup(tmp_path, agent, files={file: held})
    assert found.applied
    assert [one.origin for one in found.upstreams.values()] == ["https://gate.example"]
    name = found.applied[0]
    _, found = setup(tmp_path, agent, **{name: "http://set/v1"})
    assert [one.origin for one in found.upstreams.values()] == ["http://set"]


@pytest.mark.parametrize(
    ("agent", "file"),
    [
        ("qwen", "here/.env"), ("qwen", "here/.qwen/.env"), ("gemini", "here/.gemini/.env"),
        ("python3", "here/.env"), ("python3", "here/.env.local"), ("python3", ".env"),
    ],
)  # fmt: skip
def test_what_a_file_of_the_folder_says_is_left_as_it_is(tmp_path: Path, agent: str, file: str):
    """Only the agent knows if it trusts the file: it is neither overruled nor used."""
    _, found = setup(tmp_path, agent, files={file: DOTENV, ".gemini/.env": "", ".qwen/.env": ""})
    assert not {"OPENAI_BASE_URL", "OPENAI_API_BASE", "GOOGLE_GEMINI_BASE_URL"} & set(found.applied)
    assert found.upstreams == {}
    assert str(tmp_path / file) in found.note


def test_the_nearest_file_alone_is_read(tmp_path: Path):
    files = {"here/.env": "OPENAI_API_KEY=k\n", ".qwen/.env": DOTENV}
    _, found = setup(tmp_path, "qwen", files=files)
    assert (found.applied, found.upstreams) == (("OPENAI_BASE_URL",), {"openai": QWEN_UPSTREAM})


def test_a_file_that_is_none_says_nothing(tmp_path: Path):
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen" / ".env").write_bytes(b"\xff\xfe\x00OPENAI_BASE_URL=x")
    _, found = setup(tmp_path, "qwen", files={".qwen/settings.json": "[]"})
    assert (found.applied, found.upstreams) == (("OPENAI_BASE_URL",), {"openai": QWEN_UPSTREAM})


def test_a_folder_that_cannot_be_looked_into_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: Path, **_how: Any) -> Any:
        raise PermissionError(13, "not for you", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    own, here = tmp_path / "own", tmp_path / "here"
    for agent in ("claude", "qwen", "gemini", "python3", "opencode"):
        world = {"HOME": str(tmp_path), "GEMINI_API_KEY": "k"}
        _, found = plan_launch([agent], URL, world, own, here)
        usual = {"openai": QWEN_UPSTREAM} if agent == "qwen" else {}
        assert (bool(found.applied), found.upstreams) == (True, usual)


def test_a_value_that_is_no_url_is_left_as_it_is(tmp_path: Path):
    files = {".qwen/.env": "OPENAI_BASE_URL=${GATE}/v1\n"}
    assert setup(tmp_path, "qwen", files=files)[1].applied == ()


@pytest.mark.parametrize(
    "text",
    [
        f"GOOGLE_GEMINI_BASE_URL: {GATE_URL}\n",
        f"#{'x' * 1_000_000}\nGOOGLE_GEMINI_BASE_URL={GATE_URL}\n",
    ],
    ids=["a colon", "too large to be read"],
)
def test_what_only_some_would_find_in_a_file_is_left_as_it_is(tmp_path: Path, text: str):
    files = {".gemini/.env": text}
    _, found = setup(tmp_path, "gemini", files=files, GEMINI_API_KEY="k")
    assert (found.applied, found.upstreams) == ((), {})
    assert str(tmp_path / ".gemini" / ".env") in found.note


# As the dotenv of Node reads them, which Gemini CLI and Qwen Code use; python-dotenv reads none so.
@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("OPENAI_BASE_URL=https://gate.example/v1#ours", "https://gate.example"),
        ("OPENAI_BASE_URL='https://gate.example/v1", None),
        ("OPENAI_BASE_URL='https://gate.example/v1'x", None),
    ],
)
def test_lines_are_read_as_the_agents_read_them(tmp_path: Path, line: str, known: str | None):
    _, found = setup(tmp_path, "qwen", files={".qwen/.env": f"{line}\n"})
    assert [one.origin for one in found.upstreams.values()] == ([known] if known else [])
    assert bool(found.applied) == (known is not None)


def test_gemini_cli_may_have_another_home(tmp_path: Path):
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    files: dict[str, Any] = {"third/.gemini/settings.json": settings}
    _, found = setup(tmp_path, "gemini", files=files, GEMINI_CLI_HOME=str(tmp_path / "third"))
    assert (bool(found.applied), found.upstreams) == (True, {})
    files = {"other/.gemini/.env": f"GEMINI_API_KEY=k\n{DOTENV}"}
    _, found = setup(tmp_path, "gemini", files=files, GEMINI_CLI_HOME=str(tmp_path / "other"))
    assert found.upstreams == {"gemini": upstream_at(GATE_URL)}


OPENCODES = (  # each holds before those above it, as opencode 1.18.33 has it
    ".config/opencode/config.json", ".config/opencode/opencode.json", "opencode.json",
    "here/opencode.json", "here/.opencode/opencode.json", ".opencode/opencode.json",
)  # fmt: skip


@pytest.mark.parametrize("count", range(1, len(OPENCODES) + 1))
def test_which_of_opencodes_files_holds(tmp_path: Path, count: int):
    files = {name: gate(number) for number, name in enumerate(OPENCODES[:count])}
    _, found = setup(tmp_path, "opencode", files={".git/HEAD": "", **files})
    assert found.upstreams["anthropic"].origin == f"http://gate{count - 1}"


def test_opencodes_home_is_looked_into_from_anywhere(tmp_path: Path):
    files = {"here/.git/HEAD": "", "here/.opencode/opencode.json": gate(1)}
    _, found = setup(tmp_path, "opencode", files={**files, ".opencode/opencode.jsonc": gate(2)})
    assert found.upstreams["anthropic"].origin == "http://gate2"


@pytest.mark.parametrize(("flag", "origin"), [("1", "http://gate1"), ("0", "http://gate2")])
def test_a_projects_files_are_left_where_opencode_leaves_them(
    tmp_path: Path, flag: str, origin: str
):
    """A key would go to where a folder says that its agent does not even look into."""
    files = {
        ".config/opencode/opencode.json": gate(1), "here/.git/HEAD": "",
        "here/opencode.json": gate(2), "here/.opencode/opencode.json": gate(2),
    }  # fmt: skip
    world = {"OPENCODE_DISABLE_PROJECT_CONFIG": flag}
    _, found = setup(tmp_path, "opencode", files=files, **world)
    assert found.upstreams["anthropic"].origin == origin


def test_opencode_with_settings_that_it_fetches_is_left_as_it_is(tmp_path: Path):
    login = {"https://work.example": {"type": "wellknown", "key": "K", "token": "t"}}
    files = {".local/share/opencode/auth.json": login}
    words, found = setup(tmp_path, "opencode", "run", files=files)
    assert (words, found.environment, found.applied) == (("opencode", "run"), {}, ())
    assert "https://work.example" in found.note


def test_codex_has_settings_for_the_whole_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine = tmp_path / "etc" / "config.toml"
    monkeypatch.setattr(base_urls, "_CODEX_SYSTEM_CONFIG", machine)
    files = {"etc/config.toml": f'openai_base_url = "{GATE_URL}"'}
    _, found = setup(tmp_path, "codex", files=files)
    assert found.upstreams == {"openai": upstream_at(GATE_URL, replaces_version=True)}
    files = {".codex/config.toml": 'openai_base_url = "http://own/v1"'}
    _, found = setup(tmp_path, "codex", files=files)
    assert found.upstreams == {"openai": upstream_at("http://own/v1", replaces_version=True)}


def test_codex_may_have_a_usual_profile(tmp_path: Path):
    files = {
        ".codex/config.toml": f'profile = "old"\n[profiles.old]\nmodel_provider = "mine"\n{CODEX}'
    }
    given, _ = setup(tmp_path, "codex", files=files)
    assert given == ("codex", "-c", f'model_providers.mine.base_url="{V1}"')


def test_a_variable_that_only_older_versions_of_codex_go_by_is_left_to_them(tmp_path: Path):
    world = {"OPENAI_BASE_URL": GATE_URL}
    given, found = setup(tmp_path, "codex", **world)
    assert (given, found.applied, found.upstreams) == (("codex",), (), {})
    assert "OPENAI_BASE_URL" in found.note
    login = {"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}}
    assert setup(tmp_path, "codex", files={".codex/auth.json": login}, **world)[1].applied
    files = {".codex/config.toml": 'openai_base_url = "http://own/v1"'}
    assert setup(tmp_path, "codex", files=files, **world)[1].applied


# As jsonc-parser with trailing commas reads them, which opencode does; JSON5 readers take more.
@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('{// x\n"a": 1}', {"a": 1}),
        ('{/* , } */ "a": [1, 2,], // x\r\n}', {"a": [1, 2]}),
        ('{"a": "http://x/*y*/,}"}', {"a": "http://x/*y*/,}"}),
        ('{"a": "\\"//x"}', {"a": '"//x'}),
        ('{"a": "\\ud800x"}', {"a": "\ud800x"}),
        ("{//x\u2028'a': 1\n}", {}),
        ("{'a': 1}", None),
        ("{a: 1}", None),
        ('{"a": 0x10}', None),
        ('{"a": "x\ty"}', None),
        ('{"a": "\\q"}', None),
        ('{"a": 1,,}', None),
        ("[1]", None),
    ],
)
def test_settings_are_json_with_comments_and_no_more(text: str, held: dict[str, Any] | None):
    assert parse_object(text) == held


@pytest.mark.parametrize("text", ["/*" * 300_000, '"' + '\\"' * 300_000, '"' + "\\" * 300_001])
def test_a_hostile_file_is_read_to_its_end_once(text: str):
    assert parse_object(text) is None


# As aider 0.86.2 reads them: its files override the environment.
@pytest.mark.parametrize(
    ("files", "words", "option", "origin"),
    [
        ({".env": "OPENAI_API_BASE=http://gate1/v1"}, (),
         ("--set-env", f"OPENAI_API_BASE={V1}"), "http://gate1"),
        ({".env": "AIDER_OPENAI_API_BASE=http://gate1/v1"}, (),
         ("--openai-api-base", V1), "http://gate1"),
        ({".env": "ANTHROPIC_BASE_URL=http://gate1"}, (),
         ("--set-env", f"ANTHROPIC_BASE_URL={URL}"), "http://gate1"),
        ({".aider.conf.yml": "openai-api-base: http://gate1/v1"}, (),
         ("--openai-api-base", V1), "http://gate1"),
        ({"given.env": "OPENAI_API_BASE=http://gate2/v1", "here/.env": "OPENAI_API_BASE=http://x"},
         ("--env-file", "../given.env"), ("--set-env", f"OPENAI_API_BASE={V1}"), "http://gate2"),
        ({"here/.env": "OPENAI_API_BASE=http://x"}, (), (), ""),
        ({"here/.env": "OPENAI_API_BASE=http://set/v1"}, (),
         ("--set-env", f"OPENAI_API_BASE={V1}"), "http://set"),
        ({".git/HEAD": "", ".env": "OPENAI_BASE_URL=http://gate1/v1"}, (),
         ("--set-env", f"OPENAI_BASE_URL={V1}"), "http://gate1"),
        ({"here/.git/HEAD": "", "here/.env": "ANTHROPIC_BASE_URL=http://x"}, (), (), ""),
        ({"here/.aider.conf.yml": "openai-api-base: http://x/v1"}, (), (), ""),
    ],
)  # fmt: skip
def test_aiders_files_are_overridden_by_its_own_options_or_said_to_hold(
    tmp_path: Path,
    files: dict[str, str],
    words: tuple[str, ...],
    option: tuple[str, ...],
    origin: str,
):
    world = {"OPENAI_API_BASE": "http://set/v1"} if origin else {}
    given, found = setup(tmp_path, "aider", *words, files=files, **world)
    assert given == ("aider", *option, *words)
    origins = [one.origin for one in found.upstreams.values()]
    if origin:
        assert origin in origins
        assert option[0] in found.applied
    else:
        assert origins == []
        *_, file = files
        assert f"what {tmp_path / file} says" in found.note
