"""The agents that leave transcripts: how each is set up, what it is asked, and what it leaves."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from dataclasses import replace
from typing import Any

from tests.transcripts.agent import (
    FIRST,
    HOME,
    MAZE,
    SECOND,
    TASK,
    THIRD,
    Agent,
    Left,
    Run,
    main_or_sub,
    main_script,
    nothing,
    sub_script,
    texts,
    write_settings,
)
from tests.transcripts.upstream import Answer

# Claude Code

_CLAUDE_SESSION = "00000000-0000-4000-8000-000000000001"


def _claude_turns(run: Run) -> list[list[str]]:
    claude, tools = str(run.bin / "claude"), ["--allowedTools", "Bash", "Read", "Agent"]
    again = [claude, "-p", "--resume", _CLAUDE_SESSION]
    return [
        [claude, "-p", "--session-id", _CLAUDE_SESSION, FIRST, *tools],
        [*again, SECOND, *tools],
        [*again, "/compact", *tools],
        [*again, THIRD, *tools],
    ]


def _claude_left(_: Run) -> Left:
    root = HOME / ".claude" / "projects" / "-tmp-maze"
    for path in sorted(root.rglob("*.json*")):
        yield str(path.relative_to(root)), path.read_text()


def _claude_named(body: dict[str, Any]) -> str:
    if "Respond with TEXT ONLY" in json.dumps(body["messages"][-1]):
        return "beside"
    after = texts(body).startswith('[{"role": "user", "content": "This session is being continued')
    return "main/1" if after else main_or_sub(body)


def _claude_task(in_background: bool) -> Answer:
    told = {"description": "Count", "prompt": TASK, "subagent_type": "general-purpose"}
    return Answer(calls=(("Agent", {**told, "run_in_background": in_background}),))


CLAUDE_CODE = Agent(
    package="@anthropic-ai/claude-code@2.1.325",
    script={
        "main": main_script(
            "Bash",
            "command",
            ("Read", {"file_path": "/tmp/maze/notes.txt"}),
            _claude_task(in_background=False),
            thought="Two things to know.",
        ),
        "sub": sub_script("Bash", "command"),
    },
    set_up=nothing,
    turns=_claude_turns,
    variables=lambda run: {
        "ANTHROPIC_BASE_URL": run.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": str(HOME),
    },
    left=_claude_left,
    named=_claude_named,
)
# What a sub-agent in the background found comes as a turn of its own.
CLAUDE_CODE_BACKGROUND = replace(
    CLAUDE_CODE,
    script={
        "main": [
            _claude_task(in_background=True),
            Answer("I wait for the count."),
            Answer("There are two doors."),
        ],
        "sub": sub_script("Bash", "command"),
    },
    turns=lambda run: _claude_turns(run)[:1],
)


# Codex


def _codex(run: Run, **more: str) -> list[str]:
    settings = {
        "model": "gpt-5",
        "model_provider": "maze",
        "model_providers.maze.name": "maze",
        "model_providers.maze.base_url": f"{run.url}/v1",
        "model_providers.maze.env_key": "MAZE_KEY",
        "model_providers.maze.wire_api": "responses",
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
    }
    told = [f'{name}="{value}"' for name, value in settings.items()]
    told += [f"{name}={value}" for name, value in more.items()]
    options = [part for setting in told for part in ("-c", setting)]
    return [str(run.bin / "codex"), "exec", *options, "--json", "--skip-git-repo-check"]


def _codex_turns(run: Run) -> list[list[str]]:
    return [[*_codex(run), FIRST], [*_codex(run), "resume", "--last", SECOND]]


def _codex_compacted_turns(run: Run) -> list[list[str]]:
    # The second answer takes it above this many tokens, in the middle of a turn.
    tight = _codex(run, model_auto_compact_token_limit="2440")
    return [[*tight, FIRST], [*_codex(run), "resume", "--last", SECOND]]


def _codex_left(_: Run) -> Left:
    for at, path in enumerate(sorted((HOME / ".codex" / "sessions").rglob("rollout-*.jsonl"))):
        yield f"rollout-{at}.jsonl", path.read_text()


def _codex_named(body: dict[str, Any]) -> str:
    after = "Another language model started to solve" in texts(body)
    return "main/1" if after and body.get("tools") else main_or_sub(body)


_CODEX_TASK = [
    Answer("", (("multi_agent_v1.spawn_agent", {"message": TASK}),)),
    Answer("", (("multi_agent_v1.wait_agent", {"targets": ["AGENT-ID"], "timeout_ms": 20000}),)),
]
_CODEX_SCRIPT = main_script(
    "exec_command", "cmd", ("exec_command", {"cmd": "cat notes.txt"}), thought="Two things to know."
)

CODEX = Agent(
    package="@openai/codex@0.166.0",
    script={
        "main": [_CODEX_SCRIPT[0], *_CODEX_TASK, *_CODEX_SCRIPT[1:]],
        "sub": sub_script("exec_command", "cmd"),
    },
    set_up=nothing,
    turns=_codex_turns,
    variables=lambda _: {"MAZE_KEY": "none"},
    left=_codex_left,
    named=_codex_named,
)
CODEX_COMPACTED = replace(
    CODEX,
    script={"main": _CODEX_SCRIPT[:2], "main/1": _CODEX_SCRIPT[2:]},
    turns=_codex_compacted_turns,
)


# opencode


def _opencode_set_up(run: Run, window: int = 200_000) -> None:
    model = {"name": "gpt-5", "tool_call": True, "limit": {"context": window, "output": 1_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "maze",
        "options": {"baseURL": f"{run.url}/v1", "apiKey": "none"},
        "models": {"gpt-5": model},
    }
    settings = {"provider": {"maze": provider}, "model": "maze/gpt-5"}
    write_settings(HOME / ".config" / "opencode" / "opencode.json", settings)


def _opencode_turns(run: Run) -> list[list[str]]:
    opencode = str(run.bin / "opencode")
    return [[opencode, "run", FIRST], [opencode, "run", "--continue", SECOND]]


def _opencode_left(run: Run) -> Left:
    base = sqlite3.connect(":memory:")
    with sqlite3.connect(HOME / ".local" / "share" / "opencode" / "opencode.db") as kept:
        kept.backup(base)
    tables = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in tables:
        if name not in ("session", "message", "part"):
            base.execute(f'DROP TABLE "{name}"')
    yield "opencode.sql", "\n".join(base.iterdump()) + "\n"
    for id, parent in base.execute("SELECT id, parent_id FROM session").fetchall():
        command = [str(run.bin / "opencode"), "export", id]
        world = {"PATH": os.environ["PATH"], "HOME": str(HOME), **OPENCODE_WORLD}
        told = subprocess.run(command, cwd=MAZE, env=world, capture_output=True, check=True)
        yield f"{'sub' if parent else 'main'}.json", told.stdout.decode()


OPENCODE_WORLD = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
_TASK_CALL = {"description": "Count", "prompt": TASK}

OPENCODE = Agent(
    package="opencode-ai@1.18.33",
    script={
        "main": main_script(
            "bash",
            "command",
            ("read", {"filePath": "/tmp/maze/notes.txt"}),
            Answer("", (("task", {**_TASK_CALL, "subagent_type": "general"}),)),
        ),
        "sub": sub_script("bash", "command"),
    },
    set_up=_opencode_set_up,
    turns=_opencode_turns,
    variables=lambda _: OPENCODE_WORLD,
    left=_opencode_left,
    named=main_or_sub,
)


def _opencode_named(body: dict[str, Any]) -> str:
    after = "What did we do so far?" in texts(body) and body.get("tools")
    return "main/1" if after else main_or_sub(body)


_OPENCODE_SCRIPT = main_script("bash", "command", ("read", {"filePath": "/tmp/maze/notes.txt"}))

OPENCODE_COMPACTED = replace(
    OPENCODE,
    script={"main": _OPENCODE_SCRIPT[:2], "main/1": _OPENCODE_SCRIPT[2:]},
    set_up=lambda run: _opencode_set_up(run, 3_500),
    named=_opencode_named,
)


# pi


def _pi_set_up(run: Run, window: int = 200_000) -> None:
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 1)
    limits = {"contextWindow": window, "maxTokens": 8192, "cost": cost}
    about = {"name": "maze", "reasoning": True, "input": ["text"], **limits}
    reached = {"baseUrl": run.url, "api": "anthropic-messages", "apiKey": "none"}
    provider = {**reached, "models": [{"id": "claude-sonnet-4-5", **about}]}
    write_settings(HOME / ".pi" / "agent" / "models.json", {"providers": {"maze": provider}})


def _pi_turns(run: Run) -> list[list[str]]:
    pi = [str(run.bin / "pi"), "--provider", "maze", "--model", "claude-sonnet-4-5"]
    return [[*pi, "-p", FIRST], [*pi, "--continue", "-p", SECOND]]


def _pi_left(_: Run) -> Left:
    (path,) = (HOME / ".pi" / "agent" / "sessions").rglob("*.jsonl")
    yield "session.jsonl", path.read_text()


PI = Agent(
    package="@mariozechner/pi-coding-agent@0.73.1",
    script={
        "main": main_script(
            "bash", "command", ("read", {"path": "notes.txt"}), thought="Two things to know."
        )
    },
    set_up=_pi_set_up,
    turns=_pi_turns,
    variables=lambda _: {"PI_OFFLINE": "1"},
    left=_pi_left,
    named=main_or_sub,
)


def _pi_named(body: dict[str, Any]) -> str:
    after = "The conversation history before this point was compacted" in texts(body)
    return "main/1" if after and body.get("tools") else main_or_sub(body)


_PI_SCRIPT = PI.script["main"]

PI_COMPACTED = replace(
    PI,
    script={"main": _PI_SCRIPT[:3], "main/1": _PI_SCRIPT[3:]},
    set_up=lambda run: _pi_set_up(run, 18_900),
    named=_pi_named,
)


# Gemini CLI


def _gemini_set_up(_: Run) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    write_settings(HOME / ".gemini" / "settings.json", settings)


def _gemini_turns(run: Run) -> list[list[str]]:
    gemini = [str(run.bin / "gemini"), "-m", "gemini-2.5-pro", "--yolo"]
    return [[*gemini, "-p", FIRST], [*gemini, "--resume", "latest", "-p", SECOND]]


def _gemini_left(_: Run) -> Left:
    for at, path in enumerate(sorted((HOME / ".gemini" / "tmp").rglob("session-*.jsonl"))):
        yield f"session-{at}.jsonl", path.read_text()


GEMINI_CLI = Agent(
    package="@google/gemini-cli@0.61.0",
    script={
        "main": main_script(
            "run_shell_command",
            "command",
            ("read_file", {"file_path": "notes.txt"}),
            thought="**Two things** to know.",
        )
    },
    set_up=_gemini_set_up,
    turns=lambda run: _gemini_turns(run)[:1],
    variables=lambda run: {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": run.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    left=_gemini_left,
    named=main_or_sub,
)
GEMINI_CLI_RESUMED = replace(
    GEMINI_CLI,
    turns=_gemini_turns,
    pause=61,  # its files are named by the minute; few people go on in the same one
)


# Copilot CLI


def _copilot_turns(run: Run) -> list[list[str]]:
    copilot = [str(run.bin / "copilot"), "--allow-all-tools"]
    return [[*copilot, "-p", FIRST], [*copilot, "--continue", "-p", SECOND]]


def _copilot_left(_: Run) -> Left:
    (path,) = (HOME / ".copilot" / "session-state").rglob("events.jsonl")
    yield "events.jsonl", path.read_text()


COPILOT_CLI = Agent(
    package="@github/copilot@1.0.102",
    script={
        "main": main_script(
            "bash",
            "command",
            ("view", {"path": "/tmp/maze/notes.txt"}),
            Answer(
                "",
                (("task", {**_TASK_CALL, "agent_type": "task", "name": "count", "mode": "sync"}),),
            ),
        ),
        "sub": sub_script("bash", "command"),
    },
    set_up=nothing,
    turns=_copilot_turns,
    variables=lambda run: {
        "COPILOT_PROVIDER_BASE_URL": f"{run.url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_PROVIDER_WIRE_API": "completions",
        "COPILOT_MODEL": "gpt-5",
        "COPILOT_OFFLINE": "true",
    },
    left=_copilot_left,
    named=main_or_sub,
)


# mini-swe-agent


def _mini_turns(run: Run) -> list[list[str]]:
    mini = [str(run.folder / "bin" / "mini"), "-y", "--exit-immediately", "-m", "openai/gpt-5"]
    return [[*mini, "-o", str(HOME / "maze.traj.json"), "-t", FIRST]]


def _mini_left(_: Run) -> Left:
    yield "maze.traj.json", (HOME / "maze.traj.json").read_text()


_MINI_ENDS = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}

MINI_SWE_AGENT = Agent(
    package="mini-swe-agent==2.4.6",
    script={
        "main": [
            *main_script("bash", "command", ("bash", {"command": "cat notes.txt"}))[:2],
            Answer("Done.", (("bash", _MINI_ENDS),)),
        ]
    },
    set_up=nothing,
    turns=_mini_turns,
    variables=lambda run: {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_BASE_URL": f"{run.url}/v1",
        "OPENAI_API_KEY": "none",
    },
    left=_mini_left,
    named=main_or_sub,
)


AGENTS: dict[str, Agent] = {
    "claude-code": CLAUDE_CODE,
    "claude-code-background": CLAUDE_CODE_BACKGROUND,
    "codex": CODEX,
    "codex-compacted": CODEX_COMPACTED,
    "opencode": OPENCODE,
    "opencode-compacted": OPENCODE_COMPACTED,
    "pi": PI,
    "pi-compacted": PI_COMPACTED,
    "gemini-cli": GEMINI_CLI,
    "gemini-cli-resumed": GEMINI_CLI_RESUMED,
    "copilot-cli": COPILOT_CLI,
    "mini-swe-agent": MINI_SWE_AGENT,
}
