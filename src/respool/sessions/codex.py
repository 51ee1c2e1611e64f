"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) as Responses API requests.

The payloads of `response_item` records are the items of the requests. A `compacted` record ends a
segment; the replacement history, if recorded, begins the next one. Turns that were rolled back
become a session of their own if the model answered in them. Hosted calls (a web search) have no
result item and are skipped. Rollouts of older versions begin with a record without a type, and
hold plain items without times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import PurePath
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..pricing import Usage
from ..regex import lazy_compile
from ..wire.json import JSON, Object, compact_json
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    Skipped,
    objects_in,
    parse_timestamp,
    record_type,
    text_at,
    token_count,
)

AGENT = "codex"

_RECORD_KINDS = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
)
# Start of a record that is longer than the inspected head.
_TRUNCATED_RECORD = lazy_compile(
    rb'\{[^{}\[\]]*"type"\s*:\s*"(session_meta|response_item)"[^{}\[\]]*"payload"\s*:\s*\{'
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({f"{call}_output" for call in _CALLS})
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning"}
_CLIENT_METADATA = (
    "internal_chat_message_metadata_passthrough"  # which Codex notes on items for itself
)
_USAGE_FIELDS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")


def recognizes(head: bytes, name: str) -> bool:
    """Check if this is the head of a Codex rollout."""
    if not name.removesuffix(".gz").endswith(".jsonl"):
        return False
    line = head.lstrip().split(b"\n", 1)[0]
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The first record holds the instructions, and may be longer than the head.
        return _TRUNCATED_RECORD.match(line) is not None
    if not isinstance(record, dict):
        return False
    holder = cast(Object, record)
    if _is_old_head(holder):
        return True
    return record_type(holder) in _RECORD_KINDS and isinstance(holder.get("payload"), dict)


def _is_old_head(record: Object) -> bool:
    """Check for the head of an older rollout, whose items are not wrapped."""
    named = isinstance(record.get("id"), str) and isinstance(record.get("timestamp"), str)
    return named and "instructions" in record and "type" not in record


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """The conversation in these records, split where it was compacted."""
    rollout = _Rollout(source)
    found = False
    for record in records:
        session = rollout.add(record)
        if session is not None:
            found = True
            yield session
    session = rollout.finish()
    if session is not None:
        yield session
    elif not found:
        yield Skipped(source, NO_REQUEST)


class _ModelRun(Struct):
    """A run of items that the model made: the answer to one request."""

    model: str | None
    previous_call: str | None  # the latest call before it
    usage: Usage | None = None
    first_call: str | None = None  # its first


class _Item(Struct):
    """One item with the time of its record, and the run it belongs to or follows."""

    item: Object
    time: float | None
    run: _ModelRun | None
    is_replayed: bool = False  # no request was sent for it, or another session has it
    starts_turn: bool = False  # the user began a turn with it


class _Rollout:
    """One conversation while its records are read."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._id: str | None = None
        self._parent: str | None = None
        self._model: str | None = None
        self._segment = 0
        self._rewound = 0
        self._totals: JSON = None  # the last token count
        self._call: str | None = None  # the latest
        self._items: list[_Item] = []
        self._notes: Counter[str] = Counter()

    def add(self, record: JSON) -> RecordedSession | None:
        """Reads one record; the segment that it ends, if it ends one."""
        if not isinstance(record, dict):
            self._notes["records that are no objects"] += 1
            return None
        holder = cast(Object, record)
        kind, found = record_type(holder), holder.get("payload")
        payload = cast(Object, found) if isinstance(found, dict) else {}
        if "payload" not in holder and (not kind or kind in _ITEMS):
            self._add_legacy(holder)
            return None
        match kind:
            case "compacted":
                return self._end_segment(payload)
            case "response_item":
                self._add_item(payload, holder.get("timestamp"))
            case "event_msg":
                return self._add_event(payload)
            case "session_meta" | "turn_context":
                self._set_context(payload, meta=kind == "session_meta")
            case "token_usage_record" | "world_state":
                pass  # about the session; the counts come again as events
            case _:
                self._notes[f"records of unknown kind {kind[:40]!r}"] += 1
        return None

    def _add_legacy(self, record: Object) -> None:
        """A record of an older version: its head, a state that is no part of it, or an item."""
        if record_type(record):
            self._add_item(record, record.get("timestamp"))
        elif self._id is None and _is_old_head(record):
            self._id = text_at(record, "id")
        elif "record_type" not in record:
            self._notes["records of unknown kind ''"] += 1

    def _end_segment(self, payload: Object) -> RecordedSession | None:
        """Ends a segment; the prompt for a summary is not recorded, so its answer is left out."""
        summary = text_at(payload, "message")
        last = self._items[-1].item if self._items else {}
        said = "".join(text_at(part, "text") for part in objects_in(last.get("content")))
        if said and last.get("role") == "assistant" and summary.endswith(said):
            self._items.pop()
            self._notes["answers with a summary"] += 1
        done = self.finish()
        self._segment += 1
        for item in objects_in(payload.get("replacement_history")):
            self._add_item(item, None)
        for one in self._items:
            one.is_replayed, one.run = True, None
        return done

    def _add_item(self, item: Object, stamp: JSON) -> None:
        kind = record_type(item)
        if kind not in _ITEMS:
            self._notes[f"items of kind {kind[:40]!r}"] += 1
            return
        last = self._items[-1] if self._items else None
        run = last.run if last else None
        if _is_model_made(item) and (
            last is None or last.is_replayed or not _is_model_made(last.item)
        ):
            run = _ModelRun(self._model, self._call)
        if kind in _CALLS and run is not None and (call := _call_id(item)) is not None:
            self._call, run.first_call = call, run.first_call or call
        sent = (
            {key: item[key] for key in item if key != _CLIENT_METADATA}
            if _CLIENT_METADATA in item
            else item
        )
        self._items.append(_Item(sent, parse_timestamp(stamp), run))

    def _add_event(self, event: Object) -> RecordedSession | None:
        match event.get("type"):
            case "token_count":
                self._add_usage(event.get("info"))
            case "user_message" if self._items:
                self._items[-1].starts_turn = True
            case "thread_rolled_back":
                return self._rewind(token_count(event, "num_turns"))
            case _:
                pass  # for the user, not sent to the model
        return None

    def _add_usage(self, info: JSON) -> None:
        """A count of tokens belongs to the run before it; one that only repeats, to none."""
        if not isinstance(info, dict):
            return
        counts = cast(Object, info)
        totals, repeats = counts.get("total_token_usage"), self._totals
        self._totals = totals
        run = self._items[-1].run if self._items else None
        if run is not None and run.usage is None and (totals is None or totals != repeats):
            run.usage = _parse_usage(counts.get("last_token_usage"))

    def _rewind(self, turns: int) -> RecordedSession | None:
        """Remove the last turns from the history; return them if the model answered in them."""
        asked = [at for at, one in enumerate(self._items) if one.starts_turn]
        if not turns or not asked:
            return None
        cut = asked[max(0, len(asked) - turns)]
        before = [replace(one, is_replayed=True) for one in self._items[:cut]]
        branch = [*before, *self._items[cut:]]
        self._items = self._items[:cut]
        session = self._session(branch, Counter(), f"/rewound-{self._rewound + 1}")
        self._rewound += session is not None
        return session

    def _set_context(self, payload: Object, *, meta: bool) -> None:
        model = payload.get("model")
        self._model = model if isinstance(model, str) else self._model
        id = payload.get("id")
        # A forked session repeats its ancestors' heads after its own.
        if meta and self._id is None and isinstance(id, str):
            self._id = id
            self._parent = _parent_id(payload)

    def finish(self) -> RecordedSession | None:
        """Return the segment since the last compaction, if it holds a request."""
        session = self._session(self._items, self._notes)
        self._items, self._notes = [], Counter()
        return session

    def _session(
        self, items: Sequence[_Item], notes: Counter[str], suffix: str = ""
    ) -> RecordedSession | None:
        kept = _paired_items(items, notes)
        requests = tuple(_requests(kept))
        if not requests:
            return None
        return RecordedSession(
            id=(self._id or PurePath(self._source).stem) + suffix,
            agent=AGENT,
            format="openai-responses",
            messages=[one.item for one in kept],
            requests=requests,
            source=self._source,
            segment=self._segment,
            parent=self._parent,
            notes=tuple(f"{count} {what} left out" for what, count in notes.items()),
        )


def _paired_items(items: Sequence[_Item], notes: Counter[str]) -> list[_Item]:
    """The items without calls that were never answered, and answers to no call."""
    answered = {_call_id(one.item) for one in items if one.item["type"] in _OUTPUTS}
    called: set[str | None] = set()
    kept: list[_Item] = []
    for one in items:
        kind, call = one.item["type"], _call_id(one.item)
        if kind in _CALLS:
            if call is None or call not in answered:
                notes["calls without a result"] += 1
                continue
            called.add(call)
        elif kind in _OUTPUTS and (call is None or call not in called):
            notes["results without a call"] += 1
            continue
        kept.append(one)
    while kept and kept[-1].item["type"] == "reasoning":
        kept.pop()  # nothing came of it
    return kept


def _requests(items: Sequence[_Item]) -> Iterator[RecordedRequest]:
    for at in range(1, len(items)):
        one = items[at]
        before = items[at - 1]
        if one.is_replayed or not _is_model_made(one.item):
            continue
        if before.is_replayed or not _is_model_made(before.item):
            yield _request(at, one, before)


def _request(at: int, one: _Item, before: _Item) -> RecordedRequest:
    run = one.run
    if run is None:
        return RecordedRequest(at, one.time)
    return RecordedRequest(
        at,
        time=one.time,
        usage=run.usage,
        model=run.model,
        answer=_answer_name(run, before.item, one.item),
    )


def _answer_name(run: _ModelRun, before: Object, first: Object) -> str | None:
    """Return an id that copies of an answer share: times are new there, call ids are not.

    Some servers number their calls, so the text around them is hashed too.
    """
    call = run.first_call or run.previous_call
    if call is None:
        return None
    values = [call, compact_json(before), compact_json(first), repr(run.usage)]
    return blake2b("\n".join(values).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _is_model_made(item: Object) -> bool:
    kind = item["type"]
    if kind == "message":
        return item.get("role") == "assistant"
    return kind in _CALLS or kind == "reasoning"


def _call_id(item: Object) -> str | None:
    id = item.get("call_id")
    return id if isinstance(id, str) else None


def _parent_id(meta: Object) -> str | None:
    """The thread that started this one, in the words of newer and older versions."""
    parent: JSON = meta.get("parent_thread_id")
    if not isinstance(parent, str):
        parent = meta.get("source")
        for name in ("subagent", "thread_spawn", "parent_thread_id"):
            parent = cast(Object, parent).get(name) if isinstance(parent, dict) else None
    return parent if isinstance(parent, str) else None


def _parse_usage(usage: JSON) -> Usage | None:
    """Parse usage; the reported input includes cache reads and writes."""
    if not isinstance(usage, dict):
        return None
    prompt, cached, written, output = (
        token_count(cast(JSON, usage), name) for name in _USAGE_FIELDS
    )
    return Usage(
        input=max(prompt - cached - written, 0),
        cache_read=cached,
        cache_write=written,
        output=output,
    )
