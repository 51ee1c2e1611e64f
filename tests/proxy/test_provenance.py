"""Agent, project folder and first prompt of requests, as the real clients send them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respool.engine import Session
from respool.proxy.provenance import Launch, Provenance, combine, read_head, read_opening
from respool.store import SQLiteStore
from tests.dashboard.support import dashboarded, only
from tests.support.formats import Exchange

ASKED = "Read all gauges, and say which is the highest."
REMINDER = "<system-reminder>\nAttribution for commits: none.\n</system-reminder>"
CODEX_CONTEXT = (
    "<environment_context>\n  <cwd>/srv/infra</cwd>\n  <shell>bash</shell>\n</environment_context>"
)
GEMINI_CONTEXT = (
    "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
    "The project's temporary directory is: /tmp/x\n- **Workspace Directories:**\n  - /srv/infra\n"
    "- **Directory Structure:**\n\n/srv/infra/\n</session_context>"
)
QWEN_CONTEXT = (
    "This is the Qwen Code. We are setting up the context for our chat.\n"
    "I'm currently working in the directory: /srv/infra\nHere is the folder structure"
)
CLAUDE_CONTEXT = "# Environment\n - Primary working directory: /srv/infra\n - Platform: linux\n"
MINI_TASK = f"Please solve this issue: {ASKED}\n\nYou can execute bash commands and edit files."


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": list(messages)}


def claude(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 9, "messages": list(messages), **fields}


# The user agent and the beginning of the request, as each client was seen to send them.
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Claude Code": (
        "claude-cli/2.1.325 (external, sdk-cli)",
        claude(user(REMINDER, ASKED), system(CLAUDE_CONTEXT)),
    ),
    "Codex": (
        "codex_exec/0.166.0 (Debian 12.0.0; x86_64)",
        {
            "model": "gpt-5",
            "input": [
                {"role": role, "content": [{"type": "input_text", "text": text}]}
                for role, text in (("developer", "You."), ("user", CODEX_CONTEXT), ("user", ASKED))
            ],
        },
    ),
    "opencode": (
        "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14",
        chat(
            system("You are OpenCode\n<env>\n  Working directory: /srv/infra\n</env>"),
            {"role": "user", "content": f'"{ASKED}"'},
        ),
    ),
    "pi": (
        "Anthropic/JS 0.91.1",
        claude(
            user(ASKED),
            system=[
                {
                    "type": "text",
                    "text": "You are an expert operating inside pi, a coding agent harness.\n"
                    "Current working directory: /srv/infra",
                }
            ],
        ),
    ),
    "Gemini CLI": (
        "GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux; x64; terminal)",
        {"contents": [{"role": "user", "parts": [{"text": GEMINI_CONTEXT}, {"text": ASKED}]}]},
    ),
    "Qwen Code": (
        "QwenCode/0.15.10 (linux; x64)",
        chat(
            system("You are Qwen Code"),
            user(QWEN_CONTEXT),
            {"role": "assistant", "content": "Got it. Thanks for the context!"},
            user(ASKED),
        ),
    ),
    "Copilot": (
        "OpenAI/JS 5.20.1",
        chat(
            system("You are the GitHub Copilot CLI\n* Current working directory: /srv/infra\n"),
            {
                "role": "user",
                "content": f"<current_datetime>now</current_datetime>\n\n{ASKED}",
            },
        ),
    ),
}


def read(user_agent: str, body: dict[str, Any], launch: Launch | None = None) -> Provenance:
    format = next(
        format
        for field, format in (
            ("max_tokens", "anthropic"),
            ("messages", "openai-chat"),
            ("input", "openai-responses"),
            ("contents", "gemini"),
        )
        if field in body
    )
    history = Session().parse(json.dumps(body).encode(), format)
    headers = ((b"host", b"x"), (b"user-agent", user_agent.encode()))
    return combine(headers, read_head(history), read_opening(history), launch or Launch())


@pytest.mark.parametrize("name", CLIENTS)
def test_clients_are_known_with_their_folder_and_prompt(name: str):
    assert read(*CLIENTS[name]) == Provenance(name, "/srv/infra", ASKED)


@pytest.mark.parametrize(
    ("user_agent", "agent"),
    [
        ("OpenAI/Python 2.54.0", "OpenAI's SDK"),
        ("AsyncAnthropic/Python 1.0", "Anthropic's SDK"),
        ("MyAgent/1.0 (x)", "MyAgent"),
        ("", ""),
        ("<script>", ""),
        ("x" * 500, "x" * 40),
    ],
)
def test_unknown_clients_go_by_their_user_agent(user_agent: str, agent: str):
    assert read(user_agent, chat(user("hello"))) == Provenance(agent, "", "hello")


def test_a_launch_says_what_the_request_does_not():
    launch = Launch("mini-swe-agent", "/home/a")
    assert read("OpenAI/Python 2", chat(user(MINI_TASK)), launch).agent == "mini-swe-agent"
    assert read("OpenAI/Python 2", chat(user(MINI_TASK)), launch).project == "/home/a"
    assert read(*CLIENTS["Codex"], launch) == Provenance("Codex", "/srv/infra", ASKED)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        (MINI_TASK, f"{ASKED} You can execute bash commands and edit files."),
        (f"{REMINDER}\n{REMINDER}  \n fix\n\n  it ", "fix it"),
        ("<div>not closed", "<div>not closed"),
        ("<a>" * 20_000, ("<a>" * 100)[:159] + "…"),
        (REMINDER, ""),
        ("", ""),
        ("long " * 100, ("long " * 100)[:159] + "…"),
    ],
)
def test_prompts_are_short_and_the_users_own(text: str, prompt: str):
    assert read("x/1", chat(user(text))).prompt == prompt


@pytest.mark.parametrize(
    "text",
    [
        "Working directory: not a path",
        "<cwd></cwd>",
        "the working directory: relative/path",
    ],
)
def test_what_is_no_path_is_no_folder(text: str):
    assert read("x/1", chat(user(text))).project == ""


@pytest.mark.parametrize("path", ["C:\\Users\\a\\shop", "/home/a b/ünï", "~/x", "\\\\host\\share"])
def test_folders_of_all_systems(path: str):
    assert read("x/1", chat(system(f"Working directory: {path}/\n"))).project == path


class TestRecords:
    def test_are_kept_and_forgotten(self, tmp_path: Path):
        task = f"{CODEX_CONTEXT}\nA secret prompt of mine"
        with dashboarded(tmp_path) as one:
            one.send(
                [Exchange("ok", id="call_0")], task=task, headers=("user-agent: codex_exec/1",)
            )
            (summary,) = one.store.conversations(None)
            (record,) = one.store.requests(summary.name, None)
            for held in (summary, record):
                assert (held.agent, held.project) == ("Codex", "/srv/infra")
                assert held.prompt == "A secret prompt of mine"
            path = one.store.path
        store = SQLiteStore(path)
        assert store.forget(conversation=summary.name).erased
        store.close()
        for file in tmp_path.iterdir():
            assert b"A secret prompt of mine" not in file.read_bytes()

    def test_observed_and_bypassed_requests_keep_no_text(self, tmp_path: Path):
        for observe, headers in ((True, ()), (False, ("x-respool-bypass: 1",))):
            with dashboarded(tmp_path / str(observe), observe=observe) as one:
                one.send([Exchange("ok", id="call_0")], task="A secret prompt", headers=headers)
                assert only(one)[0]["prompt"] == ""
            for file in (tmp_path / str(observe)).iterdir():
                assert b"A secret prompt" not in file.read_bytes()

    def test_one_that_cannot_be_read_costs_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def fail(_history: object) -> Provenance:
            raise RuntimeError("broken for a test")

        monkeypatch.setattr("respool.proxy.conversation.read_opening", fail)
        with dashboarded(tmp_path) as one:
            one.talk(3)
            assert "respool:" in one.received[-1].body.decode()
            assert only(one)[-1]["prompt"] == ""
