"""Refetches: calls that ask again for what an earlier result holds or held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from ..edits import FOLDED, TIDIED, Edit, Replace
from ..markers import OmissionMarker, find_marker
from ..shapes.decoration import strip_padding
from ..tools.identity import is_expand_tool
from ..tools.use import Span, Use
from ..transcript import Exchange, Part, ReadOnlyTranscript, Ref
from .ledger import Ledger
from .line_index import parse_line

_MAX_FILE_EVENTS = 64  # earlier dealings with a file that are looked through
_MAX_REPEATS = 8  # earlier calls that were the same
_MIN_OVERLAP_RATIO = 0.5  # of the lines that came, so many were there before
_MIN_LINE_CHARS = 8  # characters of a line; a shorter one stands everywhere
_CLIENT_CUT_REASON = (
    "before it came here"  # the reason of a cut that the client's own history shows
)


class Refetch(Struct, frozen=True, gc=False, kw_only=True):
    """A result that brings again what respool had taken out of an earlier one: respool's error."""

    ref: Ref  # of the result that came again; it stays whole from then on
    earlier: Ref  # of the result that was cut, and stays cut
    tool: str
    target: str  # what was read or run again
    reason: str  # of the edit that had taken it out
    exchange: int
    earlier_exchange: int
    tokens: int = 0  # of the call and its result


class RepeatedRequest(Struct, frozen=True, gc=False):
    """An exchange that asks for what an earlier one had brought, and what became of that."""

    exchange: int
    earlier: int
    cut: str | None  # the reason for which it was cut; None: it stands


class VisibleHistory(Struct, frozen=True):
    """What the model saw when it made its calls."""

    history: ReadOnlyTranscript
    ledger: Ledger
    edits: Mapping[int, Edit]
    claimed: Collection[int]
    dependents: Collection[int]  # parts whose edits point to a copy that stands


def find_repeated_request(seen: VisibleHistory, ordinal: int) -> RepeatedRequest | None:
    """Whether a call asked again for what an earlier one brought, with nothing written since."""
    exchange = seen.history.exchanges[ordinal]
    call = seen.history.parts[exchange.call]
    if exchange.result is None or exchange.server or is_expand_tool(call.name):
        return None
    use = seen.ledger.uses[ordinal]
    if use.outcome_kind == "write":
        return None  # who writes the same again asks for nothing
    spans = [span for span in use.reads if not span.part]
    found = [
        again
        for known in (
            [_earlier_reads(seen, exchange, span) for span in spans]
            if spans
            else [_earlier_calls(seen, exchange, call, use)]
        )
        if (again := _judge_candidates(seen, exchange, known)) is not None
    ]
    cut = next((one for one in found if one.cut is not None), None)
    return cut or (found[0] if found else None)


def _judge_candidates(
    seen: VisibleHistory, exchange: Exchange, candidates: Iterable[tuple[Exchange, bool]]
) -> RepeatedRequest | None:
    """What became of the earlier results, of which the latest comes first.

    Who reads on, and sees a few lines again at the seam, asks for nothing again.
    """
    assert exchange.result is not None
    came = _significant_lines(seen.history.parts[exchange.result].text)
    known, shown = set[str](), set[str]()
    had: list[tuple[Exchange, _Remainder]] = []
    for earlier, covers in candidates:
        left = _remainder_of(seen, earlier)
        if left is None:
            continue
        said = came if left.text is None else came & _significant_lines(left.text)
        if said:
            had.append((earlier, left))
            known |= said
            shown |= said if left.cut is None else _significant_lines(left.visible)
        if covers:
            break  # what came before that is not missed, or no longer so
    if not had or len(known) < _MIN_OVERLAP_RATIO * len(came):
        return None
    missed = not known <= shown
    cut = next((one for one in had if one[1].cut is not None), None) if missed else None
    earlier, left = had[0] if cut is None else cut
    return RepeatedRequest(exchange.ordinal, earlier.ordinal, None if cut is None else left.cut)


def _earlier_calls(
    seen: VisibleHistory, exchange: Exchange, call: Part, use: Use
) -> Iterator[tuple[Exchange, bool]]:
    """Earlier calls that were the same, the latest first, as long as nothing was written."""
    known = seen.ledger.repeats(call.name, use, exchange.ordinal)[-_MAX_REPEATS:]
    for ordinal in reversed(known):
        earlier = seen.history.exchanges[ordinal]
        if seen.ledger.has_any_write(ordinal, exchange.ordinal):
            return
        if earlier.unit < exchange.unit:
            yield earlier, True


def _earlier_reads(
    seen: VisibleHistory, exchange: Exchange, span: Span
) -> Iterator[tuple[Exchange, bool]]:
    """Earlier reads of the same lines, the latest first, and whether they showed all of them."""
    until = exchange.ordinal
    for event in seen.ledger.latest(span.path, exchange.ordinal, _MAX_FILE_EVENTS):
        if event.is_write or seen.ledger.can_be_written(span.path, event.ordinal, until):
            return
        until = event.ordinal + 1  # what came after was looked through
        earlier = seen.history.exchanges[event.ordinal]
        if earlier.unit < exchange.unit and event.span.overlaps(span):
            yield earlier, event.span.covers(span)


class _Remainder(Struct, frozen=True, gc=False):
    """What the model still saw of an earlier result when it called again."""

    cut: str | None  # why it was cut; None: it stands, here or in a copy
    text: str | None  # all that it said; None: that is not known
    visible: str  # of it, what stood there


def _remainder_of(seen: VisibleHistory, earlier: Exchange) -> _Remainder | None:
    """What was left of an earlier result; None where that cannot be told."""
    position = earlier.result
    if position is None:
        return None
    text, edit = seen.history.parts[position].text, seen.edits.get(position)
    if position in seen.claimed and (edit is None or edit.reason != TIDIED):
        if position in seen.dependents:
            return _Remainder(None, text, "")
        if isinstance(edit, Replace):
            return _Remainder(edit.reason, text, edit.text)
        return _Remainder(_drop_reason(seen, earlier), text, "")
    marker = find_marker(text)
    if marker is None:
        return _Remainder(None, text, "")
    points_to_a_copy = isinstance(marker, OmissionMarker) and bool(marker.reason)
    return None if points_to_a_copy else _Remainder(_CLIENT_CUT_REASON, None, text)


def _drop_reason(seen: VisibleHistory, earlier: Exchange) -> str:
    """The reason of the edit by which an exchange went as a whole."""
    unit = seen.history.units[earlier.unit]  # it may be known by another call of the same unit
    calls = (seen.history.exchanges[ordinal].call for ordinal in unit.exchanges)
    edits = (seen.edits.get(at) for at in (earlier.call, *calls))
    return next((edit.reason for edit in edits if edit is not None), FOLDED)


def _significant_lines(text: str) -> set[str]:
    """The lines that are worth looking for, without the numbers that tools put before them."""
    shown = strip_padding(text)
    bare = (parse_line(line).bare.strip() for line in shown.split("\n"))
    return {line for line in bare if len(line) >= _MIN_LINE_CHARS} or {shown.strip()} - {""}
