"""The requests that newer versions of Claude Code record, message by message.

An `api-request` names the messages that were sent by their hashes: the first ones of the request
before it (`base`, `keep`), and then others (`tail`). Those that no other record holds as they were
sent, such as reminders, stand in `api-request-blob` records. So it can be told for certain whether
the requests of a conversation are known word for word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from typing import cast

from msgspec.structs import replace

from ..codecs.json_tree import JSON, Object
from .history import count, text_at
from .session import Sent

Hashes = tuple[str, ...]


class Recorded:
    """The requests of one conversation while its records are read."""

    def __init__(self) -> None:
        self._blobs: dict[str, Object] = {}
        self._sent: dict[str, Hashes] = {}  # a request's messages, by its id
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
            self._sent[self._last] = (*base[: count(record, "keep")], *names)

    def pop_request(self) -> str | None:
        """The request that the answer which comes now is for, if one was recorded."""
        last, self._last = self._last, None
        return last

    def reconstruct(
        self,
        recorded: Sequence[Object],
        rest: Sequence[Object],
        requests: Sequence[Sent],
        ids: Sequence[str | None],
    ) -> tuple[list[Object], tuple[Sent, ...]] | None:
        """The messages as they were sent, and the rest; None unless all is known for certain.

        `recorded` are the messages of the transcript, `rest` what came with the last answer.
        """
        sent = [self._sent.get(id or "", ()) for id in ids]
        if not sent or not all(sent) or not _extend(sent):
            return None
        known = {_hash(message): message for message in recorded} | self._blobs
        if any(name not in known for name in sent[-1]):
            return None
        history = [known[name] for name in sent[-1]]
        starts = [len(names) for names in sent]
        if any(history[at].get("role") != "assistant" for at in starts[:-1]):
            return None
        cuts = zip(requests, starts, strict=True)
        return [*history, *rest], tuple(replace(request, cut=at) for request, at in cuts)


def _extend(sent: Sequence[Hashes]) -> bool:
    """Whether each request begins with all of the one before it."""
    return all(len(a) < len(b) and b[: len(a)] == a for a, b in pairwise(sent))


def _hash(message: Object) -> str:
    """A message's hash as Claude Code takes it: of its JSON with sorted keys."""
    text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
