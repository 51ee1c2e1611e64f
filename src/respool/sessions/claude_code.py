"""Claude Code transcripts and the requests that newer versions record.

An `api-request` record names the messages of a request by their hashes: a prefix of the previous
request (`base`, `keep`), then others (`tail`). Messages that no other record holds as sent, such as
reminders, are in `api-request-blob` records. With them it is certain which requests of a
conversation are known exactly.

A record is a piece of a message: the pieces of one answer share its id, and every result has its
own record. A sub-agent's records are flagged as a sidechain, in the main file or in their own; they
form a separate conversation. Reminders are part of the messages only where requests are recorded.
Elsewhere they are counted: an `attachment` names the subject of a reminder, not its text. The
system prompt and the tools are not read. Progress records of a sub-agent are skipped.

A prompt that follows an earlier record than the last one rewinds the conversation. The removed
turns become a session of their own if the model answered in them.

An answer that was interrupted during reasoning ends with that reasoning, as recorded; `check`
reports it (A11) in later requests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import PurePath
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..pricing import Usage
from ..regex import lazy_compile
from ..wire.json import JSON, Object, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    Skipped,
    anthropic_usage,
    parse_timestamp,
    record_type,
    text_at,
    token_count,
)

MessageHashes = tuple[str, ...]

AGENT = "claude-code"
# Records about the session, or that repeat others.
_BOOKKEEPING = frozenset(
    """
    ai-title agent-name api-request api-request-blob api-request-shape atis-latch bridge-session
    cost-state custom-title file-history-snapshot last-prompt mode permission-mode pr-link progress
    queue-operation summary system tag tools-used
    """.split()  # noqa: SIM905 - reads better
)
_REQUEST_KINDS = frozenset({"api-request", "api-request-blob"})
_REMINDER_NOTE = "reminders that were sent along"
_TRUNCATED_RECORD = lazy_compile(
    rb'^\s*\{[^{}\[\]]*"parentUuid"\s*:[^{}\[\]]*"(?:isSidechain|sessionId)"\s*:'
)


class ApiRequestRecords:
    """The requests of one conversation while its records are read."""

    def __init__(self) -> None:
        self._blobs: dict[str, Object] = {}
        self._sent: dict[str, MessageHashes] = {}  # a request's messages, by its id
        self._last: str | None = None

    def add(self, kind: str, record: Object) -> None:
        """Reads a record about a request."""
        message = record.get("message")
        if kind == "api-request-blob" and isinstance(message, dict):
            self._blobs[text_at(record, "hash")] = cast(Object, message)
        elif kind == "api-request":
            base = self._sent.get(text_at(record, "base"), ())
            tail = record.get("tail")
            names = [str(name) for name in cast(list[JSON], tail)] if isinstance(tail, list) else []
            self._last = text_at(record, "id")
            self._sent[self._last] = (*base[: token_count(record, "keep")], *names)

    def pop_request(self) -> str | None:
        """The request that the answer which comes now is for, if one was recorded."""
        last, self._last = self._last, None
        return last

    def reconstruct(
        self,
        recorded: Sequence[Object],
        rest: Sequence[Object],
        requests: Sequence[RecordedRequest],
        ids: Sequence[str | None],
    ) -> tuple[list[Object], tuple[RecordedRequest, ...]] | None:
        """Return the messages as sent, and the rest; None unless all are known for certain.

        `recorded` are the transcript's messages, `rest` those after the last request.
        """
        sent = [self._sent.get(id or "", ()) for id in ids]
        if not sent or not all(sent) or not _is_growing(sent):
            return None
        known = {_message_hash(message): message for message in recorded} | self._blobs
        if any(name not in known for name in sent[-1]):
            return None
        history = [known[name] for name in sent[-1]]
        starts = [len(names) for names in sent]
        if any(history[at].get("role") != "assistant" for at in starts[:-1]):
            return None
        cuts = zip(requests, starts, strict=True)
        return [*history, *rest], tuple(replace(request, cut=at) for request, at in cuts)


def _is_growing(sent: Sequence[MessageHashes]) -> bool:
    """Check that each request extends the previous one."""
    return all(len(a) < len(b) and b[: len(a)] == a for a, b in pairwise(sent))


def _message_hash(message: Object) -> str:
    """A message's hash as Claude Code takes it: of its JSON with sorted keys."""
    text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def recognizes(head: bytes, name: str) -> bool:
    """Check if this is the head of a Claude Code transcript."""
    if not name.removesuffix(".gz").endswith(".jsonl"):
        return False
    return any(_is_record(line) for line in head.splitlines()[:50])


def _is_record(line: bytes) -> bool:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _TRUNCATED_RECORD.match(line) is not None
    if not isinstance(record, dict):
        return False
    holder = cast(Object, record)
    kind = record_type(holder)
    if kind == "summary":
        return "leafUuid" in holder
    if kind == "file-history-snapshot":
        return "snapshot" in holder
    known = kind in ("user", "assistant", "attachment") or kind in _BOOKKEEPING
    return known and isinstance(holder.get("sessionId"), str)


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """The conversation in these records, split where it was compacted, then its sub-agents."""
    chains = _Conversations(source)
    found = False
    for record in records:
        session = chains.add(record)
        if session is not None:
            found = True
            yield session
    for session in chains.finish():
        found = True
        yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


class _Conversations:
    """The main conversation of a file and its sidechains, separated record by record."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._main = _Conversation(source)
        self._sides: dict[str, _Conversation] = {}
        self._side_of: dict[str, str] = {}  # record of a sidechain -> the sidechain's key

    def add(self, record: JSON) -> RecordedSession | None:
        """Reads one record; the segment that it ends, if it ends one."""
        if not isinstance(record, dict):
            self._main.notes["records that are no objects"] += 1
            return None
        holder = cast(Object, record)
        aside = holder.get("isSidechain") or (
            record_type(holder) in _REQUEST_KINDS and "agentId" in holder
        )
        chain = self._sidechain(holder) if aside else self._main
        session = holder.get("sessionId")
        if not chain.session and isinstance(session, str):
            chain.session = session
        return chain.add(holder)

    def _sidechain(self, record: Object) -> _Conversation:
        """The sidechain a record belongs to: by its agent, or by the record it follows."""
        agent, own, before = (record.get(name) for name in ("agentId", "uuid", "parentUuid"))
        if isinstance(agent, str) and agent:
            key = agent
        else:
            key = self._side_of.get(before) if isinstance(before, str) else None
            key = key or (own if isinstance(own, str) else "sidechain")
        if isinstance(own, str):
            self._side_of[own] = key
        return self._sides.setdefault(key, _Conversation(self._source, key))

    def finish(self) -> Iterator[RecordedSession]:
        """Yield the segments still open at the end of the file."""
        for chain in (self._main, *self._sides.values()):
            session = chain.finish()
            if session is not None:
                yield session


class _RecordPiece(Struct, frozen=True):
    """Content of one record."""

    number: int  # of the record in its conversation
    uuid: str
    blocks: list[Object]


class _Message(Struct):
    """One message, assembled from its records."""

    role: str
    pieces: list[_RecordPiece]
    time: float | None = None
    usage: Usage | None = None
    model: str | None = None
    request: str | None = None  # the record of the request that it answers
    request_id: str = ""  # the provider's
    name: str | None = None  # stable id of an answer, in every copy
    is_repeated: bool = False  # it belongs to an earlier session already

    @property
    def blocks(self) -> list[Object]:
        """Return all of its blocks."""
        return [block for piece in self.pieces for block in piece.blocks]

    def is_same_answer(self, request: str, usage: Usage | None) -> bool:
        """Check if an answer with the same id is this one; some gateways reuse one id."""
        if request and self.request_id:
            return request == self.request_id
        known = 0 if self.usage is None else self.usage.prompt
        reported = 0 if usage is None else usage.prompt  # a stream's first event may have none yet
        return not known or not reported or known == reported


class _Conversation:
    """One conversation while its records are read."""

    def __init__(self, source: str, side: str | None = None) -> None:
        self.session = ""
        self.notes: Counter[str] = Counter()
        self._source = source
        self._side = side
        self._segment = 0
        self._begun = True  # whether anything came since the last compaction
        self._rewound = 0
        self._number = 0  # of the record that is read
        self._latest = 0  # the last record with content
        self._numbers: dict[str, int] = {}  # of the records since the last compaction
        self._turns: list[_Message] = []
        self._answers: dict[str, _Message] = {}
        self._requests = ApiRequestRecords()
        self._preserved: list[_Message] = []  # messages preserved beside the next summary

    def add(self, record: Object) -> RecordedSession | None:
        """Read one record; return the segment that it ends or rewinds, if any."""
        self._number += 1
        kind = record_type(record)
        done = self._rewind(record) if kind == "user" else None
        if record.get("isCompactSummary") or (
            kind == "system" and record.get("subtype") == "compact_boundary"
        ):
            done = self._end_segment(record)
        if kind in ("user", "assistant"):
            self._add_message(kind, record)
            if record.get("isCompactSummary"):
                self._turns += self._preserved
                self._preserved = []
        elif kind == "attachment":
            self.notes[_REMINDER_NOTE] += 1
        elif kind in _REQUEST_KINDS:
            self._requests.add(kind, record)
        elif kind not in _BOOKKEEPING:
            self.notes[f"records of unknown kind {kind[:40]!r}"] += 1
        if own := text_at(record, "uuid"):
            self._numbers[own] = self._number
        return done

    def _rewind(self, record: Object) -> RecordedSession | None:
        """Return the turns after the record that a prompt follows, if they have an answer."""
        last = self._numbers.get(text_at(record, "parentUuid"))
        if last is None or last >= self._latest or self._side or not _is_prompt(record):
            return None
        behind = [
            replace(one, is_repeated=one.is_repeated or one.pieces[0].number <= last)
            for one in self._turns
        ]
        session = self._session(behind, Counter(), f"/rewound-{self._rewound + 1}")
        if session is None:
            self.notes["prompts that were taken back"] += 1
        else:
            self._rewound += 1
        for turn in self._turns:
            turn.pieces = [piece for piece in turn.pieces if piece.number <= last]
        self._turns = [turn for turn in self._turns if turn.pieces]
        self._answers = {id: turn for id, turn in self._answers.items() if turn.pieces}
        self._numbers = {own: at for own, at in self._numbers.items() if at <= last}
        self._latest = last
        return session

    def _end_segment(self, record: Object) -> RecordedSession | None:
        """One compaction leaves two records: its boundary, and the summary that follows it."""
        if not self._begun:
            return None
        named = get(record, ("compactMetadata", "preservedMessages", "uuids"))
        stays = {str(name) for name in cast(list[JSON], named)} if isinstance(named, list) else ()
        kept = [turn for turn in self._turns if any(one.uuid in stays for one in turn.pieces)]
        self._preserved = [_Message(turn.role, turn.pieces, is_repeated=True) for turn in kept]
        done = self.finish()
        self._segment += 1
        self._begun = False
        return done

    def _add_message(self, kind: str, record: Object) -> None:
        found = record.get("message")
        message = cast(Object, found) if isinstance(found, dict) else {}
        blocks = self._blocks(message.get("content"))
        if not blocks:
            return
        self._begun = True
        piece = _RecordPiece(self._number, text_at(record, "uuid"), blocks)
        if kind == "assistant":
            self._add_answer(record, message, piece)
            return
        self._latest = self._number
        if self._turns and self._turns[-1].role == "user":
            self._turns[-1].pieces.append(piece)
        else:
            self._turns.append(_Message("user", [piece]))

    def _blocks(self, content: JSON) -> list[Object]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        items = cast(list[JSON], content) if isinstance(content, list) else []
        blocks = [cast(Object, item) for item in items if isinstance(item, dict)]
        if len(blocks) < len(items) or not isinstance(content, list | None):
            self.notes["pieces of content that are no blocks"] += 1
        return blocks

    def _add_answer(self, record: Object, message: Object, piece: _RecordPiece) -> None:
        if message.get("model") == "<synthetic>":
            self.notes["messages that the client made itself"] += 1
            return
        self._latest = self._number
        usage, id = _parse_usage(message.get("usage")), message.get("id")
        request = text_at(record, "requestId")
        known = self._answers.get(id) if isinstance(id, str) and id else None
        if known is not None and known.is_same_answer(request, usage):
            said = known.blocks
            new = [block for block in piece.blocks if block not in said]  # some are written twice
            known.pieces.append(replace(piece, blocks=new))
            known.usage = usage or known.usage  # only the last record has all of the output
            return
        if not self._turns:
            self.notes["answers to nothing"] += 1
            return
        model = message.get("model")
        model_name = model if isinstance(model, str) else None
        time = parse_timestamp(record.get("timestamp"))
        turn = _Message(
            "assistant",
            pieces=[piece],
            time=time,
            usage=usage,
            model=model_name,
            request=self._requests.pop_request(),
        )
        turn.name, turn.request_id = _answer_name(id, record), request
        self._turns.append(turn)
        if isinstance(id, str):
            self._answers[id] = turn

    def finish(self) -> RecordedSession | None:
        """Return the segment since the last compaction, if it holds a request."""
        session = self._session(self._turns, self.notes)
        self._turns, self._answers, self.notes = [], {}, Counter()
        self._numbers, self._latest = {}, 0
        return session

    def _session(
        self, turns: Sequence[_Message], notes: Counter[str], suffix: str = ""
    ) -> RecordedSession | None:
        messages, requests, ids = _assemble_messages(turns, notes)
        woven = self._reconstruct(turns, messages, requests, ids) if any(ids) else None
        if woven is not None:
            messages, requests = woven
            notes.pop(_REMINDER_NOTE, None)
        if not requests:
            return None
        main = self.session or PurePath(self._source).stem
        return RecordedSession(
            id=(main if self._side is None else f"{main}/{self._side}") + suffix,
            agent=AGENT,
            format="anthropic",
            messages=messages,
            requests=requests,
            source=self._source,
            segment=self._segment,
            parent=None if self._side is None else main,
            notes=tuple(f"{count} {what} left out" for what, count in notes.items()),
        )

    def _reconstruct(
        self,
        turns: Sequence[_Message],
        messages: list[Object],
        requests: Sequence[RecordedRequest],
        ids: Sequence[str | None],
    ) -> tuple[list[Object], tuple[RecordedRequest, ...]] | None:
        recorded: list[Object] = [{"role": turn.role, "content": turn.blocks} for turn in turns]
        return self._requests.reconstruct(recorded, messages[requests[-1].cut :], requests, ids)


def _assemble_messages(
    turns: Sequence[_Message], notes: Counter[str]
) -> tuple[list[Object], tuple[RecordedRequest, ...], list[str | None]]:
    """Assemble the messages as sent, results right after their calls and first in a message.

    Then the requests, and the names of their records.
    """
    results = _first_results(turns)
    messages: list[Object] = []
    requests: list[RecordedRequest] = []
    ids: list[str | None] = []
    for turn in turns:
        blocks = [block for block in turn.blocks if _is_sendable(block, turn.role, results)]
        if turn.role == "assistant":
            notes["calls without a result"] += _call_count(turn.blocks) - _call_count(blocks)
        if not blocks or (turn.role == "assistant" and not messages):
            continue
        if messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += blocks
        else:
            if turn.role == "assistant" and not turn.is_repeated:
                requests.append(
                    RecordedRequest(
                        len(messages),
                        time=turn.time,
                        usage=turn.usage,
                        model=turn.model,
                        answer=turn.name,
                    )
                )
                ids.append(turn.request)
            messages.append({"role": turn.role, "content": blocks})
        answers = [results[block["id"]] for block in blocks if block.get("type") == "tool_use"]
        if answers:
            messages.append({"role": "user", "content": answers})
    notes += Counter()  # drop zero counts
    return messages, tuple(requests), ids


def _first_results(turns: Sequence[_Message]) -> dict[str, Object]:
    """The first result of each call."""
    found: dict[str, Object] = {}
    for turn in turns:
        if turn.role == "user":
            for block in turn.blocks:
                call = block.get("tool_use_id")
                if block.get("type") == "tool_result" and isinstance(call, str):
                    found.setdefault(call, block)
    return found


def _is_sendable(block: Object, role: str, results: dict[str, Object]) -> bool:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return isinstance(text, str) and bool(text.strip())
    if role == "user":
        return kind not in ("tool_result", "tool_use")
    id = block.get("id")
    return kind != "tool_use" or (isinstance(id, str) and id in results)


def _is_prompt(record: Object) -> bool:
    """Check if a user's record is a prompt: no result, and not written by the client."""
    content = get(record, ("message", "content"))
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    answers = any(get(block, ("type",)) == "tool_result" for block in blocks)
    return not answers and not record.get("isMeta") and not record.get("isCompactSummary")


def _call_count(blocks: Sequence[Object]) -> int:
    return sum(block.get("type") == "tool_use" for block in blocks)


def _answer_name(id: JSON, record: Object) -> str | None:
    """Return an id that copies of an answer share; gateways reuse ids for other requests."""
    also = text_at(record, "requestId") or text_at(record, "timestamp")
    return f"{id} {also}" if isinstance(id, str) and id and also else None


def _parse_usage(usage: JSON) -> Usage | None:
    return anthropic_usage(usage) if isinstance(usage, dict) else None
