"""Where each message of a history stands in the bytes of its body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import msgspec

Spans = tuple[list[int], list[int]]  # where each message starts, and where it ends

_SPACE = b" \t\r\n"
_BETWEEN = re.compile(rb"[\s,]*")
_OPENING = re.compile(rb"\s*:\s*\[")


def candidates(body: bytes, field: str | None, raws: list[msgspec.Raw]) -> Iterator[Spans]:
    """Where each message may start and end in the body, for every array that holds the same."""
    key = f'"{field}"'.encode()
    at = body.find(key) if field is not None else body.index(b"[")
    while at >= 0:
        opening = _OPENING.match(body, at + len(key)) if field is not None else None
        start = opening.end() if opening else at + 1
        found = spans_from(body, start, raws) if opening or field is None else None
        if found is not None:
            yield found
        at = body.find(key, at + 1) if field is not None else -1


def spans_from(body: bytes, at: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans of these messages if they, and the end of the array, are what follows here."""
    gap = _BETWEEN.match(body, at)
    start = gap.end() if gap else at
    if not body.startswith(bytes(raws[0]), start):
        return None
    if len(raws) == 1:
        end = start + len(raws[0])
        return ([start], [end]) if _is_closed(body, end) else None
    return _evenly_spaced(body, start, raws) or _one_by_one(body, start, raws)


def _evenly_spaced(body: bytes, start: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans when all separators are as long as the first: what every serialiser writes."""
    first_gap = _BETWEEN.match(body, start + len(raws[0]))
    width = first_gap.end() - first_gap.start() if first_gap and len(raws) > 1 else 0
    starts = list(accumulate((len(raw) + width for raw in raws), initial=start))
    starts.pop()
    ends = [at + len(raw) for at, raw in zip(starts, raws, strict=True)]
    last = bytes(raws[-1])
    if not body.startswith(last, starts[-1]) or not _is_closed(body, ends[-1]):
        return None
    gap = body[ends[0] : ends[0] + width]
    if any(body[e:s] != gap or body[s] in _SPACE for e, s in zip(ends, starts[1:], strict=False)):
        return None
    return starts, ends


def _one_by_one(body: bytes, start: int, raws: list[msgspec.Raw]) -> Spans | None:
    """The spans with separators of any length, each message compared."""
    starts: list[int] = []
    ends: list[int] = []
    for raw in raws:
        gap = _BETWEEN.match(body, start)
        at = gap.end() if gap else start
        if not body.startswith(bytes(raw), at):
            return None
        start = at + len(raw)
        starts.append(at)
        ends.append(start)
    return (starts, ends) if _is_closed(body, start) else None


def _is_closed(body: bytes, at: int) -> bool:
    gap = _BETWEEN.match(body, at)
    return gap is not None and body[gap.end() : gap.end() + 1] == b"]"
