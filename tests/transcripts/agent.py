"""Definitions of the driven agents, and the responses of the upstream to each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.transcripts.upstream import Answer, Script

HOME = Path("/tmp/maze-home")
MAZE = Path("/tmp/maze")

FIRST = "Find the way out of the maze."
SECOND = "And back again."
THIRD = "Say it once more."
TASK = "Count the doors."

Left = Iterator[tuple[str, str]]  # name of the fixture, and its text


@dataclass(frozen=True)
class Run:
    """Folder of an installed agent, and address of the upstream."""

    folder: Path
    url: str

    @property
    def bin(self) -> Path:
        return self.folder / "node_modules" / ".bin"


@dataclass(frozen=True)
class Agent:
    """One agent, driven once."""

    package: str  # with its version, for npm or (with "==") for pip
    script: Script
    set_up: Callable[[Run], None]
    turns: Callable[[Run], list[list[str]]]
    variables: Callable[[Run], dict[str, str]]
    left: Callable[[Run], Left]
    named: Callable[[dict[str, Any]], str]  # the conversation that a request belongs to
    pause: float = 0.0  # seconds between its turns


def main_script(
    shell: str, given: str, read: tuple[str, Any], task: Answer | None = None, thought: str = ""
) -> list[Answer]:
    """Two calls at once, a task for a sub-agent, a command that fails, a text; then a text."""
    both = ((shell, {given: "sleep 0.2; echo three steps", **SAID[shell]}), read)
    fails = ((shell, {given: "echo out; false", **SAID[shell]}),)
    return [
        Answer("I look at both.", both, thought),
        *([task] if task else []),
        Answer("", fails),
        Answer("The way is found."),
        Answer("It is the same way."),
    ]


def sub_script(shell: str, given: str) -> list[Answer]:
    return [Answer("", ((shell, {given: "echo two doors", **SAID[shell]}),)), Answer("Two doors.")]


# What a shell's tool must be told beside the command.
SAID: dict[str, dict[str, str]] = {
    "Bash": {"description": "Look"},
    "bash": {"description": "Look"},
    "run_shell_command": {"description": "Look"},
    "exec_command": {},
}


def texts(body: dict[str, Any], role: str = "user") -> str:
    """Texts of this role, as JSON."""
    history = body.get("messages") or body.get("input") or body.get("contents") or []
    return json.dumps([one for one in history if one.get("role") == role])


def main_or_sub(body: dict[str, Any]) -> str:
    """A sub-agent is asked what only it is asked; a request without tools is beside both."""
    if not body.get("tools"):
        return "beside"
    return "sub" if TASK in texts(body) else "main"


def nothing(_: Run) -> None:
    """Nothing has to be set up."""


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """A file of settings, in a folder that may have to be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))
