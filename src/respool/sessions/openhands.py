"""OpenHands' events as chat messages: a list, an event a line, or a run's history a line.

An action holds the model's whole answer; several actions may share one. The texts that OpenHands
writes around an observation are written here again from what the event holds. An answer that
could not be read as an action is not recorded, only the error it met. Since version 1 an event is
a file of its own, and of another shape (`openhands_v1.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

from ..codecs.json_tree import JSON, Object, get
from . import openhands_v1
from .history import (
    History,
    chat_call,
    chat_result,
    objects,
    reported,
    seconds,
    text_at,
)
from .session import NO_REQUEST, Sent, Session, Skipped
from .usages import chat_usage

AGENT = "openhands"

_SOURCE = re.compile(rb'"source"\s*:\s*"(agent|user|environment)"')
_EVENT = re.compile(rb'"(action|observation)"\s*:\s*"')
_OPENS = re.compile(rb"\s*(\[\s*)?\{")
_BOOKKEEPING = frozenset(
    {
        "agent_state_changed",
        "change_agent_state",
        "condensation_request",
        "null",
        "pause",
        "recall",
        "resume",
        "start",
    }
)
_KIND = re.compile(
    rb'"kind"\s*:\s*"(SystemPrompt|Message|Action|Observation|ConversationStateUpdate)Event"'
)
_FILE = re.compile(r"event-\d+\b.*\.json")
_FAILED = "\n[Error occurred in processing last action]"


def recognises(head: bytes, name: str) -> bool:
    """Whether a file holds events with a source and an action or observation."""
    opens = _OPENS.match(head) and b'"timestamp"' in head and _SOURCE.search(head)
    return bool(opens) and bool(_EVENT.search(head) or _KIND.search(head))


def stored(path: Path) -> Iterator[JSON | Skipped] | None:
    """The conversation that an event's file belongs to."""
    event = _FILE.fullmatch(path.name) and path.parent.name == "events"
    return openhands_v1.conversation(path) if event else None


def read(records: Iterable[JSON], source: str) -> Iterator[Session | Skipped]:
    """A session for each list of events; records that are events make one together."""
    found = False
    for id, events, stats in _runs(records, source):
        for session in _segments(id, events, stats, source):
            found = True
            yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _runs(records: Iterable[JSON], source: str) -> Iterator[tuple[str, list[Object], JSON]]:
    stream = iter(records)
    for number, record in enumerate(stream):
        if isinstance(record, list):
            yield _name(source, number), objects(cast(JSON, record)), None
        elif isinstance(history := get(record, ("history",)), list):
            id = text_at(record, "instance_id") or _name(source, number)
            yield id, objects(cast(JSON, history)), get(record, ("stats",))
        else:
            yield _name(source, number), objects(list(chain([record], stream))), None


def _name(source: str, number: int) -> str:
    return f"{source}:{number}" if number else source


def _segments(id: str, events: Sequence[Object], stats: JSON, source: str) -> Iterator[Session]:
    """The run as segments; a condensation forgets events and says what they held."""
    told: set[str] = set()
    kept: list[Object] = []
    billed = openhands_v1.usages(stats) if any("kind" in event for event in events) else None
    run, segment = _run(told, billed), 0
    for event in events:
        if not _condenses(event):
            kept.append(event)
            run.add(event)
            continue
        if session := run.session(id, AGENT, source, segment):
            yield session
        told |= run.answer_keys
        kept = _condensed(kept, event)
        run, segment = _run(told, billed), segment + 1
        for old in kept:
            run.add(old)
    if session := run.session(id, AGENT, source, segment):
        yield session


def _run(repeated: set[str], requests: dict[str, Sent] | None) -> _Run | openhands_v1.Run:
    return _Run(repeated) if requests is None else openhands_v1.Run(repeated, requests)


def _condenses(event: Object) -> bool:
    return event.get("action") == "condensation" or event.get("kind") == "Condensation"


def _condensed(events: Sequence[Object], condensation: Object) -> list[Object]:
    """The events that are left, with the summary where the condensation puts it."""
    args = condensation.get("args", condensation)
    left = [event for event in events if not _forgotten(event.get("id"), args)]
    if summary := text_at(args, "summary"):
        place = get(args, ("summary_offset",))
        said: Object = {"action": "message", "source": "user", "args": {"content": summary}}
        if "kind" in condensation:
            said = {"kind": "CondensationSummaryEvent", "summary": summary}
        left.insert(place if isinstance(place, int) else len(left), said)
    return left


def _forgotten(id: JSON, args: JSON) -> bool:
    """Whether a condensation names an event, in a list or as one of a range."""
    ids = get(args, ("forgotten_event_ids",))
    first = get(args, ("forgotten_events_start_id",))
    last = get(args, ("forgotten_events_end_id",))
    if isinstance(id, int) and isinstance(first, int) and isinstance(last, int):
        return first <= id <= last
    return isinstance(ids, list) and id is not None and id in ids


class _Run:
    """One history of a run, and the answers whose requests it holds."""

    def __init__(self, repeated: Iterable[str]) -> None:
        self.history = History("openai-chat")
        self.answer_keys: set[str] = set()
        self._repeated = frozenset(repeated)

    def session(self, id: str, agent: str, source: str, segment: int) -> Session | None:
        """The session that the events so far are."""
        return self.history.build(id, agent, source, segment)

    def add(self, event: Object) -> None:
        """Follow one event."""
        made = event.get("tool_call_metadata")
        action = text_at(event, "action")
        if action == "system":
            self._add_input("system", text_at(event, "args", "content"))
        elif action == "message":
            self._add_message(event)
        elif action and isinstance(made, dict):
            self._add_answer(get(made, ("model_response",)), event)
        elif action and action not in _BOOKKEEPING:
            self.history.count_unknown(action)
        elif not action:
            self._add_observation(event, text_at(made, "tool_call_id"))

    def _add_input(self, role: str, text: JSON) -> None:
        self.history.add_input({"role": role, "content": text})

    def _add_message(self, event: Object) -> None:
        text = text_at(event, "args", "content")
        urls = get(event, ("args", "image_urls"))
        if event.get("source") == "agent":
            made = event.get("tool_call_metadata")
            response = get(made, ("model_response",))
            key = f"message {event.get('id')}"
            self.history.add_answer([(None, {"content": text})], self._request(key, response, event))
        elif isinstance(urls, list) and urls:
            links = [{"type": "image_url", "image_url": {"url": u}} for u in cast(list[str], urls)]
            self._add_input("user", [{"type": "text", "text": text}, *links])
        else:
            self._add_input("user", text)

    def _add_answer(self, response: JSON, event: Object) -> None:
        """The answer that an action came from, unless an action before it told it."""
        key = text_at(response, "id") or f"event {event.get('id')}"
        if key in self.answer_keys:
            return
        choices = objects(get(response, ("choices",)))
        message = get(choices[0], ("message",)) if choices else None
        calls = [
            chat_call(
                text_at(call, "id"),
                text_at(call, "function", "name"),
                get(call, ("function", "arguments")),
            )
            for call in objects(get(message, ("tool_calls",)))
        ]
        fields: Object = {"content": get(message, ("content",)) or None}
        if thought := text_at(message, "reasoning_content"):
            fields["reasoning_content"] = thought
        self.history.add_answer([(None, fields), *calls], self._request(key, response, event))

    def _request(self, key: str, response: JSON, event: Object) -> Sent | None:
        self.answer_keys.add(key)
        if key in self._repeated:
            return None
        # The event's own time is local to a place that is not recorded.
        time = seconds(get(response, ("created",)) or event.get("timestamp"))
        usage = reported(chat_usage(get(response, ("usage",))))
        return Sent(0, time, usage, text_at(response, "model") or None)

    def _add_observation(self, event: Object, call: str) -> None:
        kind = text_at(event, "observation")
        text = _observed(event)
        if call:
            self.history.add_result(call, chat_result(call, text))
        elif kind == "recall":
            for known in objects(get(event, ("extras", "microagent_knowledge"))):
                self._add_input("user", f"<EXTRA_INFO>\n{text_at(known, 'content')}\n</EXTRA_INFO>")
        elif kind == "error" or (kind and kind not in _BOOKKEEPING and text):
            self._add_input("user", text)
        elif not kind:
            self.history.count_unknown(event.get("kind"))


def _observed(event: Object) -> str:
    """An observation as OpenHands tells it to the model."""
    text = text_at(event, "content")
    if event.get("observation") == "error":
        return text + _FAILED
    about = get(event, ("extras", "metadata"))
    if event.get("observation") != "run" or not isinstance(about, dict):
        return text
    return openhands_v1.ran(text, cast(JSON, about))
