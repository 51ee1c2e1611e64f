"""`respool_history`: which conversations there were, and what was done in one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..store import Conversation, EditMade, Record, Store
from .answer import Answer, Unanswerable, paged
from .asked import number_in, text_in

LATEST: Final = "latest"
_CONVERSATIONS: Final = 20
_REQUESTS: Final = 20
_MOST: Final = 500  # of either, in one answer


def told(store: Store, arguments: Mapping[str, Any]) -> Answer:
    """The conversations of late, or the last requests of one, with their edits."""
    name, skip = text_in(arguments, "conversation"), number_in(arguments, "skip", 0, 0)
    limit = min(_MOST, number_in(arguments, "limit", _REQUESTS if name else _CONVERSATIONS, 1))
    if name is None:
        return _conversations(store, limit, skip)
    return _requests(store, _named(store, name), limit, skip)


def _conversations(store: Store, limit: int, skip: int) -> Answer:
    found = store.conversations(None, limit=limit)
    if not found:
        return Answer("", "No conversation is recorded yet.")
    text = "".join(f"{_conversation(one)}\n" for one in found)
    remark = "The latest first. Name one as `conversation` to see its requests and edits."
    return paged(text, skip, remark)


def _named(store: Store, name: str) -> str:
    if name != LATEST:
        return name
    found = store.conversations(None, limit=1)
    if not found:
        raise Unanswerable("No conversation is recorded yet.")
    return found[0].name


def _requests(store: Store, name: str, limit: int, skip: int) -> Answer:
    every = store.requests(name, None, limit=100_000)
    if not every:
        raise Unanswerable(
            f"No request of a conversation {name!r:.60} is recorded. Ask without `conversation` "
            "for those that are."
        )
    shown = every[-limit:]
    text = "".join(f"{line}\n" for one in shown for line in _request(store, one))
    remark = f"These are the last {len(shown):,} of {len(every):,} requests, in their order."
    return paged(text, skip, remark)


def _conversation(conversation: Conversation) -> str:
    return (
        f"{conversation.name}  {_at(conversation.started)} to {_at(conversation.last)}  {conversation.format} {conversation.model}  "
        f"{conversation.requests:,} requests  {conversation.tokens_before:,} tokens, {conversation.saved:,} saved"
    )


def _request(store: Store, record: Record) -> Iterator[str]:
    """A request in a line, and each of its edits in one more."""
    fallback = f"  not compacted: {record.fallback}" if record.fallback else ""
    broke = f"  prefix break: {record.prefix_break}" if record.prefix_break else ""
    yield (
        f"{_at(record.time)}  {record.model}  status {record.status}  {record.tokens_before:,} tokens, "
        f"{record.saved:,} saved{broke}{fallback}"
    )
    yield from (_edit(edit) for edit in store.edits(record.id, None) or ())


def _edit(edit: EditMade) -> str:
    ref = f"  ref {edit.ref}" if edit.ref else ""
    return f"  {edit.reason} at {edit.place}: {edit.evidence}  {edit.saved:,} tokens{ref}"


def _at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
