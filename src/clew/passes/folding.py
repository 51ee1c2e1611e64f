"""How batches of old exchanges fold: the last one stays, and its result tells of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from ..edits import DropExchange, DropReasoning, Edit, Offer, Replace
from ..marker import Short, find_marker, reference
from ..policy import Policy
from ..summaries.batch import told
from ..summaries.deeds import Deed
from ..summaries.outcomes import count_lines
from ..touching import closure
from ..transcript import Exchange, Unit
from .telling import told_deed
from .view import View

REASON: Final = "folded"
_TURN: Final = 8  # calls after which a word of the user ends a batch


class Tiers(Struct, frozen=True):
    """When old exchanges fold, and into how much."""

    budget: int | None = None  # tokens that the projection may have; over them exchanges fold
    down_to: float = 0.6  # the share of the budget that a fold aims at
    threshold: int | None = None  # characters of calls and results over which all old ones fold
    summary: int = 500  # tokens of a summary at most
    batch: int = 40  # calls that one summary tells of at most, until summaries merge
    standing: int = 6  # summaries that may stand beside one another before they merge
    least: int = 1_000  # tokens that a batch must save


def tiers_of(policy: Policy) -> Tiers:
    """What the policy says of folding."""
    return Tiers(getattr(policy, "budget", None), threshold=getattr(policy, "fold_over", None))


def fold(view: View, tiers: Tiers) -> Iterator[Offer]:
    """The offers of one evaluation, the oldest exchanges first, until enough is saved."""
    if view.arrival or (tiers.threshold is None and not _is_over(view, tiers)):
        return
    old = max(0, view.seen_exchanges() - view.keep)  # the exchanges before it are old
    first = _after_last_summary(view, old)
    wanted = _wanted(view, tiers, first)
    if wanted <= 0:
        return
    standing = _summaries_before(view, first)
    left = _left_behind(view, standing)
    for members in _batches(view, left, first, old, tiers):
        merged = _to_merge(standing, tiers, len(members))
        earlier = [o for one in reversed(merged) for o in _told_of(view, one)]
        offer = _offer(view, tiers, [*earlier, *members])
        if offer is None or offer.saved < tiers.least:
            continue
        calls = len(earlier) + len(members)
        standing = [_Standing(members[-1], members[0], calls), *standing[len(merged) :]]
        yield offer
        wanted -= offer.saved
        if wanted <= 0:
            return


def _is_over(view: View, tiers: Tiers) -> bool:
    return tiers.budget is not None and view.projected > tiers.budget


def _wanted(view: View, tiers: Tiers, first: int) -> float:
    """How many tokens are to be saved: enough for the budget, or all that can be."""
    if tiers.threshold is not None and _characters(view, first) > tiers.threshold:
        return math.inf
    if tiers.budget is None or not _is_over(view, tiers):
        return 0
    return view.projected - tiers.down_to * tiers.budget


def _characters(view: View, first: int) -> int:
    """How much the calls and results say that no summary tells of."""
    total = 0
    for exchange in view.transcript.exchanges[first:]:
        for position in (exchange.call, exchange.result):
            if position is not None:
                edit = view.in_force.get(position)
                said = edit if isinstance(edit, Replace) else view.transcript.parts[position]
                total += len(said.text)
    return total


# Summaries that stand already.


class _Standing(Struct, frozen=True, gc=False):
    """A summary: the exchange whose result it is, and the exchanges that it tells of."""

    last: int
    first: int
    calls: int


def _calls_told(view: View, ordinal: int) -> int | None:
    """How many calls the summary in this exchange tells of; None: there is none in force."""
    result = view.transcript.exchanges[ordinal].result
    edit = None if result is None else view.in_force.get(result)
    if not isinstance(edit, Replace) or edit.reason != REASON:
        return None
    return _calls_in(edit.text)


def _calls_in(text: str) -> int | None:
    """How many calls a text tells of, if it is a summary."""
    marker = find_marker(text)
    if not isinstance(marker, Short) or marker.unit != "calls":
        return None
    return marker.gone + 1


def _after_last_summary(view: View, old: int) -> int:
    """Where the exchanges begin that are to be looked at; a client may send summaries back."""
    parts = view.transcript.parts
    for ordinal in range(old - 1, -1, -1):
        exchange = view.transcript.exchanges[ordinal]
        if exchange.result is None:
            continue
        edit = view.in_force.get(exchange.result)
        said = edit if isinstance(edit, Replace) else parts[exchange.result]
        if _calls_in(said.text) is not None:
            return exchange.ordinal + 1
    return 0


def _summaries_before(view: View, first: int) -> list[_Standing]:
    """All summaries in force, the newest first; what each tells of is jumped over."""
    found: list[tuple[int, int]] = []
    ordinal = first - 1
    while ordinal >= 0:
        calls = _calls_told(view, ordinal)
        if calls is not None:
            found.append((ordinal, calls))
        ordinal -= calls or 1
    begins = [*(ordinal + 1 for ordinal, _ in found[1:]), 0]
    return [
        _Standing(last, begin, calls) for (last, calls), begin in zip(found, begins, strict=False)
    ]


def _told_of(view: View, summary: _Standing) -> list[int]:
    """The exchanges that a summary tells of, its own the last."""
    return [o for o in range(summary.first, summary.last + 1) if _is_told(view, o)]


def _is_told(view: View, ordinal: int) -> bool:
    result = view.transcript.exchanges[ordinal].result
    edit = None if result is None else view.in_force.get(result)
    return edit.reason == REASON if edit is not None else result in view.claimed


def _to_merge(standing: Sequence[_Standing], tiers: Tiers, calls: int) -> Sequence[_Standing]:
    """The newest summaries, when there are too many: those that tell of less than comes new.

    So each call is told again only when what it is told with has about doubled.
    """
    if len(standing) < tiers.standing:
        return ()
    count = 0
    for summary in standing:
        if count and summary.calls > calls:
            break
        calls += summary.calls
        count += 1
    return standing[:count]


# What may fold.


def _left_behind(view: View, standing: Sequence[_Standing]) -> list[int]:
    """What had to stay when its neighbours folded, and may go now."""
    found: list[int] = []
    exchanges = view.transcript.exchanges
    for summary in reversed(standing):
        if summary.last - summary.first + 1 == summary.calls:
            continue
        units = range(exchanges[summary.first].unit, exchanges[summary.last].unit + 1)
        for number in units:
            found += _foldable(view, view.transcript.units[number])
    return list(dict.fromkeys(found))


def _batches(
    view: View, left: Sequence[int], first: int, old: int, tiers: Tiers
) -> Iterator[list[int]]:
    """Neighbouring old exchanges that may fold, whole units only, the last one able to stay."""
    exchanges, units = view.transcript.exchanges, view.transcript.units
    batch = list(left)
    number = exchanges[first].unit if first < old else len(units)
    while number < len(units) and _is_old(units[number], old):
        unit = units[number]
        batch += [ordinal for ordinal in _foldable(view, unit) if ordinal not in left]
        if len(batch) >= tiers.batch or (len(batch) >= _TURN and _user_speaks(view, unit)):
            members = _up_to_keeper(view, batch)
            if len(members) > 1:
                yield members
                batch = batch[batch.index(members[-1]) + 1 :]
        number += 1
    members = _up_to_keeper(view, batch)
    if len(members) > 1:
        yield members


def _is_old(unit: Unit, old: int) -> bool:
    return all(ordinal < old for ordinal in unit.exchanges)


def _user_speaks(view: View, unit: Unit) -> bool:
    parts = view.transcript.parts[unit.answers : unit.parts[1]]
    return any(part.kind == "text" and part.speaker == "user" for part in parts)


def _foldable(view: View, unit: Unit) -> list[int]:
    """The exchanges of a unit that may go; of a locked one all or none."""
    found = [ordinal for ordinal in unit.exchanges if _may_go(view, ordinal)]
    return found if len(found) == len(unit.exchanges) or not unit.locked else []


def _may_go(view: View, ordinal: int) -> bool:
    exchange = view.transcript.exchanges[ordinal]
    if exchange.result is None or exchange.server or _is_told(view, ordinal):
        return False
    parts = closure(view.transcript, ordinal)
    if not all(_is_free(view, part) for part in parts):
        return False
    return find_marker(view.transcript.parts[exchange.result].text) is None


def _is_free(view: View, position: int) -> bool:
    """Whether a part can still go: nothing took it out yet, unless all reasoning of its unit."""
    if view.is_protected(position):
        return False
    if position not in view.claimed:
        return True
    edit = view.in_force.get(position)
    if edit is None and view.transcript.parts[position].kind == "reasoning":
        before = position
        while before not in view.in_force and view.transcript.parts[before].kind == "reasoning":
            before -= 1
        edit = view.in_force.get(before)
    return isinstance(edit, Replace | DropReasoning)


def _up_to_keeper(view: View, batch: Sequence[int]) -> list[int]:
    """The batch up to the last exchange whose result can tell of it: one that did not fail."""
    for count in range(len(batch), 1, -1):
        result = view.transcript.exchanges[batch[count - 1]].result
        if result is None or not view.may_rewrite(result) or _parts_a_unit(view, batch, count):
            continue
        part = view.transcript.parts[result]
        if part.text and not part.error:  # what has no text, as a screenshot, may take none
            return _without_needed(view, batch[:count])
    return []


def _without_needed(view: View, batch: Sequence[int]) -> list[int]:
    """The batch without what an edit outside of it needs whole; the last one tells, and stays."""
    exchanges = view.transcript.exchanges
    inside = {part for ordinal in batch for part in closure(view.transcript, ordinal)}
    needed = {part for at, parts in view.leans.items() if at not in inside for part in parts}
    left = {o for o in batch if needed.intersection(closure(view.transcript, o))}
    if not left or batch[-1] in left:
        return [] if left else list(batch)
    units = {exchanges[o].unit for o in left if view.transcript.units[exchanges[o].unit].locked}
    return [o for o in batch if o not in left and exchanges[o].unit not in units]


def _parts_a_unit(view: View, batch: Sequence[int], count: int) -> bool:
    """Whether the exchange behind this place belongs to the same unit."""
    exchanges = view.transcript.exchanges
    return count < len(batch) and exchanges[batch[count]].unit == exchanges[batch[count - 1]].unit


# What is offered.


def _offer(view: View, tiers: Tiers, members: Sequence[int]) -> Offer | None:
    """The last member's result becomes the summary, and the others go."""
    keeper = view.transcript.exchanges[members[-1]]
    assert keeper.result is not None
    deeds = _deeds(view, members)
    original = view.transcript.parts[keeper.result]
    ref = reference(original.text)
    marker = Short(len(members) - 1, "calls", ref, why="told above", fetch=view.fetch)
    room = tiers.summary - view.counter.count(f"\n{marker}")
    if len(members) < 2 or room <= 0:
        return None
    text = f"{told(deeds, room, view.counter.count)}\n{marker}"
    evidence = f"{len(members):,} calls told in one result"
    saved = view.saved_by(keeper.result, text)
    edit = Replace(keeper.result, original.ref, text, ref, REASON, evidence, saved)
    others = tuple(_other_edits(view, members, keeper))
    return Offer("drop", edit, also=others)


def _deeds(view: View, members: Sequence[int]) -> list[Deed]:
    exchanges = view.transcript.exchanges
    whys = _whys(view, exchanges[members[0]].unit, exchanges[members[-1]].unit)
    found = (told_deed(view, exchanges[ordinal], whys.get(ordinal, "")) for ordinal in members)
    return [deed for deed in found if deed is not None]


def _whys(view: View, first: int, last: int) -> dict[int, str]:
    """What the assistant said last before each call, since the user spoke."""
    parts, exchange_of = view.transcript.parts, view.transcript.exchange_of
    said, whys = "", dict[int, str]()
    for unit in view.transcript.units[first : last + 1]:
        for position in range(*unit.parts):
            part = parts[position]
            if part.kind == "text" and part.speaker == "model":
                said = part.text
            elif part.kind == "text" and not part.text.startswith("<"):  # a reminder is no word
                said = ""
            elif part.kind == "call":
                whys[exchange_of[position]] = said
    return whys


def _other_edits(view: View, members: Sequence[int], keeper: Exchange) -> Iterator[Edit]:
    """What becomes of the other members: they go; beside the keeper they may have to stay."""
    transcript = view.transcript
    home = transcript.units[keeper.unit]
    beside = home.locked or bool(home.reasoning)
    counted: set[int] = set()  # parts that an edit before takes along
    call = transcript.parts[keeper.call].id or f"no. {keeper.ordinal + 1}"
    evidence = f"told in the result of call {call}"
    for ordinal in members[:-1]:
        exchange = transcript.exchanges[ordinal]
        if exchange.unit == keeper.unit and beside:
            yield from _pointer(view, exchange, evidence)
        elif exchange.call not in counted and not _is_gone(view, exchange.call):
            parts = [p for p in closure(transcript, ordinal) if p not in counted]
            counted.update(parts)
            saved = sum(view.tokens_of(part) for part in parts)
            ref = transcript.parts[exchange.call].ref
            yield DropExchange(ordinal, ref, REASON, evidence, saved)


def _is_gone(view: View, position: int) -> bool:
    return position in view.claimed and not isinstance(view.in_force.get(position), Replace)


def _pointer(view: View, exchange: Exchange, evidence: str) -> Iterator[Edit]:
    """A result beside the summary, in a unit that can only go as a whole."""
    position = exchange.result
    if position is None or not view.may_rewrite(position):
        return
    part = view.transcript.parts[position]
    ref = reference(part.text)
    lines = count_lines(part.text)
    gone, unit = (lines, "lines") if lines > 1 else (len(part.text), "chars")
    text = str(Short(gone, unit, ref, why="told in a result below", fetch=view.fetch))
    saved = view.saved_by(position, text)
    if saved > 0:
        yield Replace(position, part.ref, text, ref, REASON, evidence, saved)
