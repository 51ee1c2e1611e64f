"""Answers to the hooks of agents: a shaped result, or a brief."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from ..policy import Policy
from ..store import Retention, SQLStore, StoreLocation, open_store, store_location
from ..tools.identity import is_expand_tool
from ..wire.json import JSON, Object
from .conversation_brief import BRIEF_EVENTS, answer_brief
from .events import ResultEvent, parse_event
from .hook_command import AGENTS, AgentName
from .shaper import History, Shaper
from .transcripts import Transcripts, opencode_records

OWNER = "hook"  # of the originals that hooks keep: whoever owns the store reads them
_EXPAND_OPTION = "--expand-tool"


class HookCall(Struct, frozen=True, kw_only=True):
    """One call of a hook: its arguments, its environment and its standard input."""

    arguments: Sequence[str]  # the agent, and options
    folder: str
    environ: Mapping[str, str]
    data: bytes


class Responder:
    """Answers hook calls; what it remembers makes it faster."""

    def __init__(self) -> None:
        self._shaper = Shaper()
        self._transcripts = Transcripts()
        self._stores: dict[StoreLocation, SQLStore] = {}

    def answer(self, call: HookCall) -> bytes:
        """The standard output of a hook; empty: nothing is changed."""
        agent = parse_agent(call.arguments)
        event: JSON = msgspec.json.decode(call.data)
        if agent is None or not isinstance(event, dict):
            return b""
        fields = cast(Object, event)
        if agent == "claude" and fields.get("hook_event_name") in BRIEF_EVENTS:
            return answer_brief(fields, self._transcripts)
        found = parse_event(agent, fields)
        if found is None or is_expand_tool(found.result.tool):
            return b""
        return self._shape(found, call)

    def close(self) -> None:
        """Close all stores."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def _shape(self, event: ResultEvent, call: HookCall) -> bytes:
        past = self._history(event, call)
        policy = Policy.load(call.folder, call.environ)
        if event.numbers_lines:
            policy = policy.replace(line_number_interval=1)
        shaped = self._shaper.shape(past, event.result, policy, _expand_tool(call.arguments))
        made = None if shaped is None else event.replace(shaped.text)
        if shaped is None or made is None:
            return b""
        # Originals are on disk before the text that refers to them.
        name = f"{event.agent} {event.session}".strip()
        self._store(call.environ).keep(OWNER, name, shaped.originals)
        self._shaper.set_sent(past, event.result.call, made.sent)
        return msgspec.json.encode(made.answer)

    def _history(self, event: ResultEvent, call: HookCall) -> History:
        """The conversation that a result ends."""
        if event.agent == "opencode":
            home = Path(call.environ.get("HOME") or Path.home())
            records, source = opencode_records(event.session, call.environ, home), event.session
        else:
            records, source = self._transcripts.records(event.transcript), str(event.transcript)
        return History(event.agent, records, source)

    def _store(self, environ: Mapping[str, str]) -> SQLStore:
        home = environ.get("HOME")
        location = store_location(environ, Path(home) if home else None)
        if location not in self._stores:
            self._stores[location] = open_store(location, retention=Retention.from_env(environ))
        return self._stores[location]


def parse_agent(arguments: Sequence[str]) -> AgentName | None:
    """The agent whose hook this is."""
    named = arguments[0] if arguments else ""
    return next((one for one in AGENTS if one == named), None)


def _expand_tool(arguments: Sequence[str]) -> str:
    """The tool that markers name, where the agent has it."""
    with contextlib.suppress(ValueError, IndexError):
        return arguments[arguments.index(_EXPAND_OPTION) + 1]
    return ""
