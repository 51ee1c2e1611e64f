"""OpenHands event streams, before version 1 and since, as chat messages.

Since version 1 an event is a file of its own, a call is an event, and the calls of one answer name
the same response. Before, an action holds the model's whole answer, and several actions may share
one; an answer that could not be parsed as an action is not recorded, only its error. The texts that
OpenHands writes around an observation are reproduced from the event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

from ..pricing import Usage
from ..regex import lazy_compile
from ..wire.json import JSON, Object, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    SessionBuilder,
    Skipped,
    TurnPiece,
    chat_call,
    chat_result,
    chat_usage,
    objects_in,
    parse_timestamp,
    text_at,
    token_count,
    usage_or_none,
)
from .transcript_file import UnreadableFile, read_value, read_values

_BOOKKEEPING_V1 = frozenset(
    """
    ConversationStateUpdateEvent CondensationRequest PauseEvent InterruptEvent TokenEvent
    LLMCompletionLogEvent StreamingDeltaEvent ConversationErrorEvent HookExecutionEvent
    """.split()  # noqa: SIM905 - reads better
)
_ERROR_PREFIX_V1 = "[An error occurred during execution.]\n"

AGENT = "openhands"
_SOURCE = lazy_compile(rb'"source"\s*:\s*"(agent|user|environment)"')
_EVENT = lazy_compile(rb'"(action|observation)"\s*:\s*"')
_JSON_START = lazy_compile(rb"\s*(\[\s*)?\{")
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
_KIND = lazy_compile(
    rb'"kind"\s*:\s*"(SystemPrompt|Message|Action|Observation|ConversationStateUpdate)Event"'
)
_EVENT_FILE = lazy_compile(r"event-\d+\b.*\.json")
_ERROR_SUFFIX = "\n[Error occurred in processing last action]"


def _conversation_events(first: Path) -> Iterator[JSON | Skipped]:
    """All events of the conversation whose first event this file is."""
    problems: list[str] = []
    events = list(read_values(sorted(first.parent.glob("event-*.json")), problems))
    home = first.parent.parent
    yield {
        "instance_id": home.name,
        "history": events,
        "stats": _token_stats(home / "base_state.json"),
    }
    if problems:
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        yield Skipped(str(first), f"{problems[0]}{more}")


def _token_stats(state: Path) -> JSON:
    """Return the token statistics in the conversation's state, which may be missing."""
    try:
        return get(read_value(state), ("stats",))
    except (OSError, UnreadableFile):
        return None


def _requests_by_response(stats: JSON) -> dict[str, RecordedRequest]:
    """The usage and model of each response, by its id."""
    metrics = get(stats, ("usage_to_metrics",))
    requests: dict[str, RecordedRequest] = {}
    for metric in cast(Object, metrics).values() if isinstance(metrics, dict) else ():
        for usage in objects_in(get(metric, ("token_usages",))):
            read, written = (
                token_count(usage, "cache_read_tokens"),
                token_count(usage, "cache_write_tokens"),
            )
            given = max(0, token_count(usage, "prompt_tokens") - read - written)
            billed = Usage(
                input=given,
                cache_read=read,
                cache_write=written,
                cache_write_1h=0,
                output=token_count(usage, "completion_tokens"),
            )
            model = text_at(usage, "model") or None
            requests[text_at(usage, "response_id")] = RecordedRequest(
                0, None, usage_or_none(billed), model
            )
    return requests


class _EventsV1:
    """One history of a conversation, and the answers whose requests it holds."""

    def __init__(self, repeated: Iterable[str], requests: dict[str, RecordedRequest]) -> None:
        self.answer_keys: set[str] = set()
        self._history = SessionBuilder("openai-chat")
        self._repeated = frozenset(repeated)
        self._requests = requests
        self._calls: list[Object] = []  # of the answer that is being read

    def add(self, event: Object) -> None:
        """Follow one event."""
        kind = text_at(event, "kind")
        if kind == "ActionEvent":
            if self._calls and _response_id(self._calls[0]) != _response_id(event):
                self._flush_answer()
            self._calls.append(event)
            return
        self._flush_answer()
        if kind == "SystemPromptEvent":
            parts = [event.get("system_prompt"), event.get("dynamic_context")]
            self._add_input("system", _chat_parts(self._history, parts))
        elif kind == "MessageEvent":
            self._add_message(event)
        elif kind == "CondensationSummaryEvent":
            self._add_input("user", [{"type": "text", "text": text_at(event, "summary")}])
        elif text_at(event, "tool_call_id"):
            self._add_result(event)
        elif kind not in _BOOKKEEPING_V1:
            self._history.count_unknown(kind)

    def session(self, id: str, agent: str, source: str, segment: int) -> RecordedSession | None:
        """The session that the events so far are."""
        self._flush_answer()
        return self._history.build(id, agent, source, segment=segment)

    def _add_input(self, role: str, content: Sequence[JSON]) -> None:
        if content:
            self._history.add_input({"role": role, "content": list(content)})

    def _add_message(self, event: Object) -> None:
        message = event.get("llm_message")
        content = _chat_parts(self._history, get(message, ("content",)))
        content += _chat_parts(self._history, event.get("extended_content"))
        if event.get("source") != "agent":
            self._add_input("user", content)
            return
        fields = _answer_fields(content, text_at(message, "reasoning_content"))
        self._history.add_answer([(None, fields)], self._request(event))

    def _flush_answer(self) -> None:
        """The answer that the calls so far are."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        first = calls[0]
        content = _chat_parts(self._history, first.get("thought"))
        fields = _answer_fields(content, text_at(first, "reasoning_content"))
        self._history.add_answer([(None, fields), *map(_chat_call_v1, calls)], self._request(first))

    def _request(self, event: Object) -> RecordedRequest | None:
        key = _response_id(event)
        self.answer_keys.add(key)
        if key in self._repeated:
            return None
        billed = self._requests.get(text_at(event, "llm_response_id"))
        time = parse_timestamp(event.get("timestamp"))
        return RecordedRequest(
            0, time, billed.usage if billed else None, billed.model if billed else None
        )

    def _add_result(self, event: Object) -> None:
        call = text_at(event, "tool_call_id")
        rejected = text_at(event, "rejection_reason")
        error = text_at(event, "error") or (f"Action rejected: {rejected}" if rejected else "")
        if error:
            content: list[JSON] = [{"type": "text", "text": error}]
        else:
            content = _observation_v1(self._history, event.get("observation"))
            content += _chat_parts(self._history, event.get("extended_content"))
        self._history.add_result(call, chat_result(call, content))


def _response_id(event: Object) -> str:
    return text_at(event, "llm_response_id") or f"event {event.get('id')}"


def _chat_call_v1(event: Object) -> TurnPiece:
    """Return a call; older versions record it in the wire format."""
    made = event.get("tool_call")
    name = text_at(made, "name") or text_at(made, "function", "name")
    given = get(made, ("arguments",)) or get(made, ("function", "arguments"))
    return chat_call(text_at(event, "tool_call_id"), name or text_at(event, "tool_name"), given)


def _answer_fields(content: list[JSON], thought: str) -> Object:
    fields: Object = {"content": content or None}
    return {**fields, "reasoning_content": thought} if thought else fields


def _chat_parts(history: SessionBuilder, content: JSON) -> list[JSON]:
    """Content of the SDK's kinds as chat parts; empty text is not sent."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts: list[JSON] = []
    for part in objects_in(content):
        if part.get("type") == "image":
            urls = part.get("image_urls")
            images = cast(list[JSON], urls) if isinstance(urls, list) else []
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in images]
        elif part.get("type", "text") != "text":
            history.count_skipped("part", f"of kind {str(part.get('type'))[:40]!r}")
        elif text := text_at(part, "text"):
            parts.append({"type": "text", "text": text})
    return parts


def _observation_v1(history: SessionBuilder, observation: JSON) -> list[JSON]:
    """Return an observation as the SDK sends it to the model."""
    content = get(observation, ("content",))
    parts = _chat_parts(history, content if content else get(observation, ("output",)))
    about = get(observation, ("metadata",))
    if isinstance(about, dict):
        text = "".join(text_at(part, "text") for part in parts)
        parts = [{"type": "text", "text": _command_output(text, cast(JSON, about))}]
    failed = get(observation, ("is_error",)) is True
    return [{"type": "text", "text": _ERROR_PREFIX_V1}, *parts] if failed else parts


def _command_output(text: str, about: JSON) -> str:
    """Return a command's output with the text that OpenHands adds."""
    text = text_at(about, "prefix") + text + text_at(about, "suffix")
    if folder := text_at(about, "working_dir"):
        text += f"\n[Current working directory: {folder}]"
    if python := text_at(about, "py_interpreter_path"):
        text += f"\n[Python interpreter: {python}]"
    code = get(about, ("exit_code",))
    known = isinstance(code, int) and code != -1
    return f"{text}\n[Command finished with exit code {code}]" if known else text


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file holds events with a source and an action or observation."""
    opens = _JSON_START.match(head) and b'"timestamp"' in head and _SOURCE.search(head)
    return bool(opens) and bool(_EVENT.search(head) or _KIND.search(head))


def stored_records(path: Path) -> Iterator[JSON | Skipped] | None:
    """The conversation that an event's file belongs to."""
    event = _EVENT_FILE.fullmatch(path.name) and path.parent.name == "events"
    return _conversation_events(path) if event else None


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """A session for each list of events; records that are events make one together."""
    found = False
    for id, events, stats in _conversations(records, source):
        for session in _segments(id, events, stats, source):
            found = True
            yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _conversations(
    records: Iterable[JSON], source: str
) -> Iterator[tuple[str, list[Object], JSON]]:
    stream = iter(records)
    for number, record in enumerate(stream):
        if isinstance(record, list):
            yield _session_id(source, number), objects_in(cast(JSON, record)), None
        elif isinstance(history := get(record, ("history",)), list):
            id = text_at(record, "instance_id") or _session_id(source, number)
            yield id, objects_in(cast(JSON, history)), get(record, ("stats",))
        else:
            yield _session_id(source, number), objects_in(list(chain([record], stream))), None


def _session_id(source: str, number: int) -> str:
    return f"{source}:{number}" if number else source


def _segments(
    id: str, events: Sequence[Object], stats: JSON, source: str
) -> Iterator[RecordedSession]:
    """Yield the run as segments; a condensation replaces events with a summary."""
    seen: set[str] = set()
    kept: list[Object] = []
    billed = _requests_by_response(stats) if any("kind" in event for event in events) else None
    run, segment = _event_reader(seen, billed), 0
    for event in events:
        if not _is_condensation(event):
            kept.append(event)
            run.add(event)
            continue
        if session := run.session(id, AGENT, source, segment):
            yield session
        seen |= run.answer_keys
        kept = _apply_condensation(kept, event)
        run, segment = _event_reader(seen, billed), segment + 1
        for old in kept:
            run.add(old)
    if session := run.session(id, AGENT, source, segment):
        yield session


def _event_reader(
    repeated: set[str], requests: dict[str, RecordedRequest] | None
) -> _EventsV0 | _EventsV1:
    return _EventsV0(repeated) if requests is None else _EventsV1(repeated, requests)


def _is_condensation(event: Object) -> bool:
    return event.get("action") == "condensation" or event.get("kind") == "Condensation"


def _apply_condensation(events: Sequence[Object], condensation: Object) -> list[Object]:
    """The events that are left, with the summary where the condensation puts it."""
    args = condensation.get("args", condensation)
    left = [event for event in events if not _is_forgotten(event.get("id"), args)]
    if summary := text_at(args, "summary"):
        place = get(args, ("summary_offset",))
        said: Object = {"action": "message", "source": "user", "args": {"content": summary}}
        if "kind" in condensation:
            said = {"kind": "CondensationSummaryEvent", "summary": summary}
        left.insert(place if isinstance(place, int) else len(left), said)
    return left


def _is_forgotten(id: JSON, args: JSON) -> bool:
    """Check if a condensation names an event, in a list or in a range."""
    ids = get(args, ("forgotten_event_ids",))
    first = get(args, ("forgotten_events_start_id",))
    last = get(args, ("forgotten_events_end_id",))
    if isinstance(id, int) and isinstance(first, int) and isinstance(last, int):
        return first <= id <= last
    return isinstance(ids, list) and id is not None and id in ids


class _EventsV0:
    """One history of a run, and the answers whose requests it holds."""

    def __init__(self, repeated: Iterable[str]) -> None:
        self.history = SessionBuilder("openai-chat")
        self.answer_keys: set[str] = set()
        self._repeated = frozenset(repeated)

    def session(self, id: str, agent: str, source: str, segment: int) -> RecordedSession | None:
        """The session that the events so far are."""
        return self.history.build(id, agent, source, segment=segment)

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
            self.history.add_answer(
                [(None, {"content": text})], self._request(key, response, event)
            )
        elif isinstance(urls, list) and urls:
            links = [{"type": "image_url", "image_url": {"url": u}} for u in cast(list[str], urls)]
            self._add_input("user", [{"type": "text", "text": text}, *links])
        else:
            self._add_input("user", text)

    def _add_answer(self, response: JSON, event: Object) -> None:
        """Add the answer that an action came from, unless an earlier action did."""
        key = text_at(response, "id") or f"event {event.get('id')}"
        if key in self.answer_keys:
            return
        choices = objects_in(get(response, ("choices",)))
        message = get(choices[0], ("message",)) if choices else None
        calls = [
            chat_call(
                text_at(call, "id"),
                text_at(call, "function", "name"),
                get(call, ("function", "arguments")),
            )
            for call in objects_in(get(message, ("tool_calls",)))
        ]
        fields: Object = {"content": get(message, ("content",)) or None}
        if thought := text_at(message, "reasoning_content"):
            fields["reasoning_content"] = thought
        self.history.add_answer([(None, fields), *calls], self._request(key, response, event))

    def _request(self, key: str, response: JSON, event: Object) -> RecordedRequest | None:
        self.answer_keys.add(key)
        if key in self._repeated:
            return None
        # The event's own time is local to a place that is not recorded.
        time = parse_timestamp(get(response, ("created",)) or event.get("timestamp"))
        usage = usage_or_none(chat_usage(get(response, ("usage",))))
        return RecordedRequest(0, time, usage, text_at(response, "model") or None)

    def _add_observation(self, event: Object, call: str) -> None:
        kind = text_at(event, "observation")
        text = _observation_v0(event)
        if call:
            self.history.add_result(call, chat_result(call, text))
        elif kind == "recall":
            for known in objects_in(get(event, ("extras", "microagent_knowledge"))):
                self._add_input("user", f"<EXTRA_INFO>\n{text_at(known, 'content')}\n</EXTRA_INFO>")
        elif kind == "error" or (kind and kind not in _BOOKKEEPING and text):
            self._add_input("user", text)
        elif not kind:
            self.history.count_unknown(event.get("kind"))


def _observation_v0(event: Object) -> str:
    """Return an observation as OpenHands sends it to the model."""
    text = text_at(event, "content")
    if event.get("observation") == "error":
        return text + _ERROR_SUFFIX
    about = get(event, ("extras", "metadata"))
    if event.get("observation") != "run" or not isinstance(about, dict):
        return text
    return _command_output(text, cast(JSON, about))
