"""The files of the corpus, their sessions, and the requests of each history in them."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpus import chat, claude_code, codex, copilot_cli, gemini_cli, opencode, openhands, pi
from tests.corpus.recording import Message, Recording
from tests.strategies import HISTORY

READERS: dict[str, Callable[[Message], Recording]] = {
    "claude-code": claude_code.read,
    "codex": codex.read,
    "copilot-cli": copilot_cli.read,
    "gemini-cli": gemini_cli.read,
    "inspect": chat.read_inspect,
    "openai-chat": chat.read,
    "opencode": opencode.read,
    "openhands-events": openhands.read,
    "pi": pi.read,
}
# Claude Code's mark, on the last block of the newest message, where it is every time another one.
BREAKPOINT = b',"cache_control":{"type":"ephemeral"}'
SHARD = 600_000  # compressed bytes: what one test reads, so that workers are evenly loaded


@dataclass(frozen=True)
class History:
    """One conversation, and where in it requests were sent."""

    id: str
    format: str
    head: Message
    messages: list[Message]
    cuts: list[int]  # request k was messages[:cuts[k]]
    has_breakpoints: bool

    @property
    def last(self) -> Message:
        """The last request, as an object."""
        messages = self.messages[: self.cuts[-1]]
        if self.has_breakpoints:
            messages[-1] = with_breakpoint(messages[-1])
        return {**self.head, HISTORY[self.format]: messages}

    def bodies(self) -> Iterator[bytes]:
        """Every request in turn, as bytes; what was sent before is not encoded again."""
        start = encode(self.head)[:-1] + f',"{HISTORY[self.format]}":['.encode()
        sent: list[bytes] = []
        for cut in self.cuts:
            sent += [encode(message) for message in self.messages[len(sent) : cut]]
            newest = (
                encode(with_breakpoint(self.messages[cut - 1]))
                if self.has_breakpoints
                else sent[-1]
            )
            yield start + b",".join([*sent[:-1], newest]) + b"]}"


@dataclass(frozen=True)
class Session:
    """One recorded session."""

    id: str
    histories: list[History]
    left: Counter[str]


def corpus() -> Path | None:
    """The folder that CORPUS names, if it is there."""
    named = os.environ.get("CORPUS")
    return Path(named) if named and Path(named).is_dir() else None


def shards() -> list[tuple[str, int, int]]:
    """Every file of the corpus in slices of about the same size: name, which slice, of how many."""
    folder = corpus()
    files = sorted(folder.glob("*.jsonl.gz")) if folder else []
    found: list[tuple[str, int, int]] = []
    for file in files:
        count = 1 + file.stat().st_size // SHARD
        found += [(file.name, number, count) for number in range(count)]
    return found


def sessions(shard: tuple[str, int, int]) -> Iterator[Session]:
    """The sessions of one slice of a file, one at a time."""
    name, number, count = shard
    folder = corpus()
    assert folder is not None
    with gzip.open(folder / name, "rt", encoding="utf-8") as lines:
        for at, line in enumerate(lines):
            if at % count == number:
                yield read(json.loads(line))


def read(session: Message) -> Session:
    """One session in the form of its requests."""
    told = READERS[session["format"]](session)
    has_breakpoints = session["format"] == "claude-code"
    histories: list[History] = []
    for number, messages in enumerate(told.histories):
        if cuts := _cuts(told.format, messages):
            head = _HEADS[told.format](told)
            id = f"{session['id']}#{number}"
            histories.append(History(id, told.format, head, messages, cuts, has_breakpoints))
    return Session(session["id"], histories, told.left)


def encode(value: Any) -> bytes:
    """JSON as clients write it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can spell
        return json.dumps(value, separators=(",", ":")).encode()


def with_breakpoint(message: Message) -> Message:
    """A message with a cache mark on its last block."""
    *before, last = message["content"]
    has_breakpoints = {**last, "cache_control": {"type": "ephemeral"}}
    return {**message, "content": [*before, has_breakpoints]}


def _cuts(format: str, messages: list[Message]) -> list[int]:
    """Starts of the model's turns, and the end if its turn would be next."""
    mine = [_is_models(format, message) for message in messages]
    starts = [at for at in range(1, len(mine)) if mine[at] and not mine[at - 1]]
    return [*starts, len(mine)] if mine and not mine[-1] else starts


def _is_models(format: str, message: Message) -> bool:
    kind = message.get("type", "message")
    if format == "openai-responses" and kind != "message":
        return kind == "reasoning" or kind.endswith("_call")
    return message["role"] in ("assistant", "model")


def _anthropic(told: Recording) -> Message:
    said = [
        {"type": "text", "text": "You are a coding agent."},
        {"type": "text", "text": "Be terse."},
    ]
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in told.tools]
    head = {"model": told.model, "max_tokens": 32000}
    has_breakpoints = [{**block, "cache_control": {"type": "ephemeral"}} for block in said]
    return {**head, "system": has_breakpoints, **({"tools": tools} if tools else {})}


def _chat(told: Recording) -> Message:
    tools = [
        definition or {"type": "function", "function": {"name": name, "parameters": {}}}
        for name, definition in told.tools.items()
    ]
    return {"model": told.model or "gpt-4.1", **({"tools": tools} if tools else {})}


def _responses(told: Recording) -> Message:
    tools = [
        {"type": "custom", "name": name}
        if kind == "custom_tool_call"
        else {"type": "function", "name": name, "parameters": {}, "strict": False}
        for name, kind in told.tools.items()
    ]
    head: Message = {"model": told.model, "store": False}
    return {**head, "include": ["reasoning.encrypted_content"], "tools": tools}


def _gemini(told: Recording) -> Message:
    return {"tools": [{"functionDeclarations": [{"name": name} for name in told.tools]}]}


_HEADS: dict[str, Callable[[Recording], Message]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
