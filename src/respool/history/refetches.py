"""Refetches: calls that request again what an earlier result holds or held."""

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
from .line_index import unnumbered_lines

_MAX_FILE_EVENTS = 64  # earlier accesses to a file that are checked
_MAX_REPEATS = 8  # earlier calls that are checked
_MIN_OVERLAP_RATIO = 0.5  # share of the new lines that were shown before
_MIN_LINE_CHARS = 8  # characters; shorter lines occur everywhere
_CLIENT_CUT_REASON = "before it came here"  # reason of a cut found in the client's own history


class Refetch(Struct, frozen=True, gc=False, kw_only=True):
    """A result that brings back what respool had removed from an earlier one."""

    ref: Ref  # the new result, which stays whole from now on
    earlier: Ref  # the result that was cut, and stays cut
    tool: str
    target: str  # read or run again
    reason: str  # of the edit that removed it
    exchange: int
    earlier_exchange: int
    tokens: int = 0  # of the call and its result


class RepeatedRequest(Struct, frozen=True, gc=False):
    """An exchange that requests an earlier result again, and the state of that result."""

    exchange: int
    earlier: int
    cut: str | None  # the reason of the cut; None: it is whole


class VisibleHistory(Struct, frozen=True):
    """The history as the model saw it when it made its calls."""

    history: ReadOnlyTranscript
    ledger: Ledger
    edits: Mapping[int, Edit]
    claimed: Collection[int]
    dependents: Collection[int]  # parts whose edits refer to a copy that is whole


def find_repeated_request(visible: VisibleHistory, ordinal: int) -> RepeatedRequest | None:
    """Find the earlier result that a call requests again, with nothing written since."""
    exchange = visible.history.exchanges[ordinal]
    call = visible.history.parts[exchange.call]
    if exchange.result is None or exchange.server or is_expand_tool(call.name):
        return None
    use = visible.ledger.uses[ordinal]
    if use.outcome_kind == "write":
        return None  # repeating a write requests nothing
    spans = [span for span in use.reads if not span.part]
    found = [
        again
        for known in (
            [_earlier_reads(visible, exchange, span) for span in spans]
            if spans
            else [_earlier_calls(visible, exchange, call, use)]
        )
        if (again := _judge_candidates(visible, exchange, known)) is not None
    ]
    cut = next((one for one in found if one.cut is not None), None)
    return cut or (found[0] if found else None)


def _judge_candidates(
    visible: VisibleHistory, exchange: Exchange, candidates: Iterable[tuple[Exchange, bool]]
) -> RepeatedRequest | None:
    """The state of the earlier results, newest first.

    A read that continues an earlier one, with a few lines of overlap, is not a repeat.
    """
    assert exchange.result is not None
    new_lines = set[str]()  # of most results no earlier one is a candidate
    known, shown = set[str](), set[str]()
    had: list[tuple[Exchange, _Remainder]] = []
    for earlier, covers in candidates:
        left = _remainder_of(visible, earlier)
        if left is None:
            continue
        new_lines = new_lines or _significant_lines(visible.history.parts[exchange.result].text)
        repeated = new_lines if left.text is None else new_lines & _significant_lines(left.text)
        if repeated:
            had.append((earlier, left))
            known |= repeated
            shown |= repeated if left.cut is None else _significant_lines(left.visible)
        if covers:
            break  # earlier results are not what is missed
    if not had or len(known) < _MIN_OVERLAP_RATIO * len(new_lines):
        return None
    missed = not known <= shown
    cut = next((one for one in had if one[1].cut is not None), None) if missed else None
    earlier, left = had[0] if cut is None else cut
    return RepeatedRequest(exchange.ordinal, earlier.ordinal, None if cut is None else left.cut)


def _earlier_calls(
    visible: VisibleHistory, exchange: Exchange, call: Part, use: Use
) -> Iterator[tuple[Exchange, bool]]:
    """Earlier identical calls, newest first, while nothing was written in between."""
    known = visible.ledger.repeats(call.name, use, exchange.ordinal)[-_MAX_REPEATS:]
    for ordinal in reversed(known):
        earlier = visible.history.exchanges[ordinal]
        if visible.ledger.has_any_write(ordinal, exchange.ordinal):
            return
        if earlier.unit < exchange.unit:
            yield earlier, True


def _earlier_reads(
    visible: VisibleHistory, exchange: Exchange, span: Span
) -> Iterator[tuple[Exchange, bool]]:
    """Earlier reads of the same lines, newest first, and whether they covered all of them."""
    until = exchange.ordinal
    for event in visible.ledger.latest(span.path, exchange.ordinal, _MAX_FILE_EVENTS):
        if event.is_write or visible.ledger.can_be_written(span.path, event.ordinal, until):
            return
        until = event.ordinal + 1  # later exchanges were checked
        earlier = visible.history.exchanges[event.ordinal]
        if earlier.unit < exchange.unit and event.span.overlaps(span):
            yield earlier, event.span.covers(span)


class _Remainder(Struct, frozen=True, gc=False):
    """The part of an earlier result that the model still saw when it called again."""

    cut: str | None  # reason of the cut; None: it is whole, here or in a copy
    text: str | None  # its full text; None if unknown
    visible: str  # the text that was visible


def _remainder_of(visible: VisibleHistory, earlier: Exchange) -> _Remainder | None:
    """The remainder of an earlier result; None if that is unknown."""
    position = earlier.result
    if position is None:
        return None
    text, edit = visible.history.parts[position].text, visible.edits.get(position)
    if position in visible.claimed and (edit is None or edit.reason != TIDIED):
        if position in visible.dependents:
            return _Remainder(None, text, "")
        if isinstance(edit, Replace):
            return _Remainder(edit.reason, text, edit.text)
        return _Remainder(_drop_reason(visible, earlier), text, "")
    marker = find_marker(text)
    if marker is None:
        return _Remainder(None, text, "")
    points_to_a_copy = isinstance(marker, OmissionMarker) and bool(marker.reason)
    return None if points_to_a_copy else _Remainder(_CLIENT_CUT_REASON, None, text)


def _drop_reason(visible: VisibleHistory, earlier: Exchange) -> str:
    """The reason of the edit that dropped a whole exchange."""
    unit = visible.history.units[earlier.unit]  # the edit may name another call of the same unit
    calls = (visible.history.exchanges[ordinal].call for ordinal in unit.exchanges)
    edits = (visible.edits.get(at) for at in (earlier.call, *calls))
    return next((edit.reason for edit in edits if edit is not None), FOLDED)


def _significant_lines(text: str) -> set[str]:
    """The lines worth comparing, without line numbers."""
    shown = strip_padding(text)
    bare = map(str.strip, unnumbered_lines(shown))
    return {line for line in bare if len(line) >= _MIN_LINE_CHARS} or {shown.strip()} - {""}
