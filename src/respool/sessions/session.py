"""Recorded sessions: requests, reported usage, and the builder that all readers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ..pricing import Usage
from ..wire.base import FormatName
from ..wire.json import JSON, Object, compact_json, get

NO_REQUEST = (
    "no answer of a model is recorded in it"  # the reason if a readable file has no session
)

_MAX_TOKENS = 1_000_000_000  # of a request; a larger number is an error in the record
_MODEL_SIDE = {"anthropic": ("assistant", "content"), "gemini": ("model", "parts")}


class RecordedRequest(Struct, frozen=True, gc=False):
    """One request: the history up to `cut`, where the model's answer starts."""

    cut: int
    time: float | None = None  # seconds since the epoch, as recorded
    usage: Usage | None = None
    model: str | None = None
    answer: str | None = None  # id of its answer, the same in every copy


class RecordedSession(Struct, frozen=True):
    """One conversation in its wire format, from its start or the agent's own compaction on."""

    id: str
    agent: str  # "claude-code", "codex", …
    format: FormatName
    messages: Sequence[JSON]
    requests: tuple[RecordedRequest, ...]
    source: str = ""  # the file it was read from
    segment: int = 0  # how many compactions of the agent's own came before
    parent: str | None = None  # the conversation that started this one, for a sub-agent
    notes: tuple[str, ...] = ()  # what could not be used, for a person
    head: str = ""  # system prompt and tools, if recorded
    tools: tuple[tuple[str, str], ...] = ()  # names and definitions, if recorded


class Skipped(Struct, frozen=True, gc=False):
    """A source that could not be read, and the reason."""

    source: str
    reason: str


TurnPiece = tuple[str | None, JSON]  # call id or None, and the wire object


class ModelTurn(Struct):
    """The answer to one request, and the results of its calls."""

    pieces: Sequence[TurnPiece]
    sent: RecordedRequest | None  # None: another session has the request, or it was not recorded
    results: dict[str, list[JSON]] = {}


class SessionBuilder:
    """Builder of a session from records, in order.

    Results go after their calls, in the order of the calls. A call without a result is removed,
    unless it is the last event: a pending call is valid, and it is the model's next action. Answers
    before the first input and empty answers are skipped; notes count them. Adjacent answers are
    one request.
    """

    def __init__(self, format: FormatName) -> None:
        self.format: FormatName = format
        self._events: list[ModelTurn | list[JSON]] = []
        self._turn_by_call: dict[str, ModelTurn] = {}
        self._skipped: Counter[tuple[str, str]] = Counter()

    def add_input(self, *content: JSON) -> None:
        """Something for the model: blocks for Anthropic, else whole messages."""
        if content:
            self._events.append(list(content))

    def add_first(self, *content: JSON) -> None:
        """Insert a message at the start, although it is recorded later."""
        self._events.insert(0, list(content))

    def last_event(self) -> object:
        """Return the last event, to return to."""
        return self._events[-1] if self._events else None

    def split_off(self, after: object) -> SessionBuilder:
        """Remove all events after one; return the full history as a session.

        The returned session omits the requests that stay here.
        """
        ends = (at + 1 for at, one in enumerate(self._events) if one is after)
        start = 0 if after is None else next(ends, len(self._events))
        branch = SessionBuilder(self.format)
        branch._events = [
            ModelTurn(one.pieces, None, one.results) if isinstance(one, ModelTurn) else one
            for one in self._events[:start]
        ]
        branch._events += self._events[start:]
        del self._events[start:]
        return branch

    def is_pending(self, call: str) -> bool:
        """Check if this call has no result yet; an unknown call is counted."""
        asked = self._turn_by_call.get(call)
        return asked is None or call not in asked.results

    def add_answer(self, pieces: Sequence[TurnPiece], sent: RecordedRequest | None) -> None:
        """Add an answer; `sent` is its request, whose cut is set later."""
        answer = ModelTurn(pieces, sent)
        self._events.append(answer)
        self._turn_by_call.update({call: answer for call, _ in pieces if call is not None})

    def add_result(self, call: str, *result: JSON) -> None:
        """Add a call's result; the first one counts."""
        asked = self._turn_by_call.get(call)
        if asked is None:
            self.count_skipped("result", "without a call")
        elif call in asked.results:
            self.count_skipped("result", "of a call that had one")
        else:
            asked.results[call] = list(result)

    def count_skipped(self, what: str, which: str) -> None:
        """Count something that goes into no request."""
        self._skipped[what, which[:80]] += 1

    def count_unknown(self, kind: object) -> None:
        """Count a record that the reader does not know."""
        self.count_skipped("record", f"of unknown kind {str(kind)[:40]!r}")

    def build(
        self, id: str, agent: str, source: str, *, segment: int = 0, parent: str | None = None
    ) -> RecordedSession | None:
        """The session that this is; None when it holds no request."""
        messages, requests = self._assemble()
        if not requests:
            return None
        notes = tuple(
            f"{count:,} {what}{'' if count == 1 else 's'} {which} left out"
            for (what, which), count in self._skipped.items()
        )
        return RecordedSession(
            id=id,
            agent=agent,
            format=self.format,
            messages=messages,
            requests=tuple(requests),
            source=source,
            segment=segment,
            parent=parent,
            notes=notes,
        )

    def _assemble(self) -> tuple[list[JSON], list[RecordedRequest]]:
        messages: list[JSON] = []
        requests: list[RecordedRequest] = []
        answered = False  # whether the last message is the model's
        for event in self._events:
            if not isinstance(event, ModelTurn):
                self._append_input(messages, event)
                answered = False
            elif kept := self._sendable_pieces(event, bool(messages)):
                if event.sent is not None and not answered:
                    requests.append(replace(event.sent, cut=len(messages)))
                self._append_answer(messages, kept)
                results = [part for call, _ in kept for part in event.results.get(call or "", ())]
                self._append_input(messages, results)
                answered = not results
        return messages, requests

    def _sendable_pieces(self, answer: ModelTurn, has_input: bool) -> list[TurnPiece]:
        """The pieces of an answer that can be sent again."""
        pending = answer is self._events[-1] and not answer.results
        kept = [p for p in answer.pieces if p[0] is None or p[0] in answer.results or pending]
        for _ in range(len(answer.pieces) - len(kept)):
            self.count_skipped("call", "without a result")
        if not has_input:
            self.count_skipped("answer", "before anything was asked")
        elif not any(call is not None or _has_content(piece) for call, piece in kept):
            self.count_skipped("answer", "without content")
        else:
            return kept
        return []

    def _append_input(self, messages: list[JSON], content: Sequence[JSON]) -> None:
        if not content:
            return
        if self.format == "openai-chat":
            messages.extend(content)
        elif self.format == "gemini":
            messages.append({"role": "user", "parts": list(content)})
        elif messages and messages[-1]["role"] == "user":
            messages[-1]["content"].extend(content)
        else:
            messages.append({"role": "user", "content": list(content)})

    def _append_answer(self, messages: list[JSON], kept: Sequence[TurnPiece]) -> None:
        if self.format == "openai-chat":
            messages.append(_chat_answer(kept))
            return
        role, field = _MODEL_SIDE[self.format]
        pieces = [piece for _, piece in kept]
        if messages[-1]["role"] == role:
            messages[-1][field].extend(pieces)
        else:
            messages.append({"role": role, field: pieces})


def _has_content(piece: JSON) -> bool:
    """Check if a piece of an answer is more than reasoning."""
    if "type" in piece:
        return piece["type"] not in ("thinking", "redacted_thinking")
    return "content" not in piece or bool(piece["content"])


def _chat_answer(kept: Sequence[TurnPiece]) -> Object:
    """A chat message: its fields are one piece, and each call is another."""
    message: Object = {"role": "assistant", "content": None}
    for call, piece in kept:
        if call is None:
            message.update(piece)
    calls = [piece for call, piece in kept if call is not None]
    return {**message, "tool_calls": calls} if calls else message


def chat_call(id: str, name: str, arguments: JSON) -> TurnPiece:
    """Return a function call in the chat format."""
    text = compact_json({} if arguments is None else arguments)
    return id, {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def chat_result(call: str, content: JSON) -> Object:
    """A tool's message; content that is no text and no list of parts is sent as JSON."""
    unchecked: JSON = content  # so that a check does not narrow its type
    encoded = unchecked if isinstance(content, list) else compact_json(content)
    return {"role": "tool", "tool_call_id": call, "content": encoded}


def parse_timestamp(value: JSON) -> float | None:
    """Parse ISO text (UTC by default) or a number to seconds since the epoch."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value / 1000 if value > 1e11 else float(value)  # so large: milliseconds
        if not isinstance(value, str):
            return None
        read = datetime.fromisoformat(value)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def record_type(record: Object) -> str:
    """Return the type of a record."""
    return text_at(record, "type")


def token_count(value: JSON, *path: str) -> int:
    """Return the token count at a path; 0 if there is none."""
    number = get(value, path)
    known = isinstance(number, int) and not isinstance(number, bool) and 0 < number <= _MAX_TOKENS
    return number if known else 0


def usage_or_none(usage: Usage) -> Usage | None:
    """The usage, or None when nothing was reported: an agent writes zeros then."""
    return usage if usage.prompt else None


def text_at(value: JSON, *path: str) -> str:
    """The text at a path, or none."""
    text = get(value, path)
    return text if isinstance(text, str) else ""


def objects_in(value: JSON) -> list[Object]:
    """Return the objects in a list; empty if it is no list."""
    items = cast(list[JSON], value) if isinstance(value, list) else []
    return [cast(Object, item) for item in items if isinstance(item, dict)]


def parse_usage(usage: JSON) -> Usage | None:
    """The usage that a provider's answer reports; None when it reports none."""
    if get(usage, ("promptTokenCount",)) is not None:
        return usage_or_none(gemini_usage(usage))
    if get(usage, ("prompt_tokens",)) is not None:
        return usage_or_none(chat_usage(usage))
    if get(usage, ("input_tokens_details",)) is not None:
        return usage_or_none(responses_usage(usage))
    return usage_or_none(anthropic_usage(usage))


def anthropic_usage(usage: JSON) -> Usage:
    """Parse Anthropic's usage; cache reads and writes are counted apart from the input."""
    return Usage(
        input=token_count(usage, "input_tokens"),
        cache_read=token_count(usage, "cache_read_input_tokens"),
        cache_write=token_count(usage, "cache_creation_input_tokens"),
        cache_write_1h=token_count(usage, "cache_creation", "ephemeral_1h_input_tokens"),
        output=token_count(usage, "output_tokens"),
    )


def chat_usage(usage: JSON) -> Usage:
    """Parse chat usage; the prompt's tokens include cache reads and writes."""
    read = token_count(usage, "prompt_tokens_details", "cached_tokens")
    read = read or token_count(usage, "cache_read_input_tokens")
    read = read or token_count(usage, "prompt_cache_hit_tokens")  # DeepSeek's word
    written = token_count(usage, "prompt_tokens_details", "cache_write_tokens")
    written = written or token_count(usage, "cache_creation_input_tokens")
    given = max(0, token_count(usage, "prompt_tokens") - read - written)
    return Usage(
        input=given,
        cache_read=read,
        cache_write=written,
        cache_write_1h=0,
        output=token_count(usage, "completion_tokens"),
    )


def responses_usage(usage: JSON) -> Usage:
    """Parse Responses usage; the input includes cache reads and writes."""
    read = token_count(usage, "input_tokens_details", "cached_tokens")
    written = token_count(usage, "input_tokens_details", "cache_write_tokens")
    given = max(0, token_count(usage, "input_tokens") - read - written)
    return Usage(
        input=given,
        cache_read=read,
        cache_write=written,
        cache_write_1h=0,
        output=token_count(usage, "output_tokens"),
    )


def gemini_usage(usage: JSON) -> Usage:
    """Parse Gemini's usage; the prompt includes cache reads, thoughts are counted apart."""
    read = token_count(usage, "cachedContentTokenCount")
    given = max(0, token_count(usage, "promptTokenCount") - read)
    output = token_count(usage, "candidatesTokenCount") + token_count(usage, "thoughtsTokenCount")
    return Usage(
        input=given + token_count(usage, "toolUsePromptTokenCount"),
        cache_read=read,
        cache_write=0,
        cache_write_1h=0,
        output=output,
    )
