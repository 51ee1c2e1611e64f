"""Fold batches of old exchanges into summaries when the history is over its budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..edits import (
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    Replace,
    exchange_closure,
    touched_parts,
)
from ..limits import RequestLimits
from ..markers import OmissionMarker, find_marker, reference, reference_of_pieces
from ..policy import Policy
from ..summaries.batch import (
    describe_batch,
    describe_with_summary,
    is_inseparable,
    min_batch_tokens,
    render_exchanges,
)
from ..summaries.call_summary import CallSummary
from ..summaries.outcome import count_lines
from ..transcript import Exchange, Unit
from .base import View, deed_in_view
from .protections import FETCHED_AGAIN, Protections

_FOLDED_REASON: Final = "folded"
_NO_LIMITS: Final = RequestLimits()
_KEEP_RECENT: Final = 6  # exchanges that most agents still refer to
_MIN_TURN_CALLS: Final = 8  # calls after which a user message ends a batch


class FoldThresholds(Struct, frozen=True):
    """Limits over which old exchanges fold, and sizes of the summaries."""

    budget: int | None = None  # tokens of the projection over which exchanges fold
    target_ratio: float = 0.6  # share of the budget that a fold aims at
    waiver_ratio: float = 0.8  # share over which old reads of files edited since fold too
    threshold_chars: int | None = None  # of calls and results, over which all old ones fold
    max_summary_tokens: int = 500  # names and errors that must stay may exceed it
    max_batch_calls: int = 40  # of one summary, before summaries merge
    max_summaries: int = 6  # more of them merge
    min_saved_tokens: int = 1_000  # by one batch
    keep_recent: int = 0  # latest exchanges that never fold


def fold_thresholds(policy: Policy, limits: RequestLimits = _NO_LIMITS) -> FoldThresholds:
    """The thresholds of a policy and of the model's context window."""
    budget = policy.budget if limits.tokens is None else limits.tokens
    if policy.fold_over_chars is None:
        return FoldThresholds(budget, keep_recent=_KEEP_RECENT)
    # The policy says how many recent exchanges stay.
    return FoldThresholds(budget, threshold_chars=policy.fold_over_chars, min_saved_tokens=1)


def fold_offers(view: View, tiers: FoldThresholds) -> Iterator[Offer]:
    """Offer to fold the oldest exchanges first, until enough is saved."""
    if view.arrival or (tiers.threshold_chars is None and not _is_over_budget(view, tiers)):
        return
    keep = max(view.recent_count, tiers.keep_recent)
    old = max(0, view.seen_exchanges() - keep)  # exchanges before this one are old
    first = _after_last_summary(view, old)
    wanted = _tokens_to_save(view, tiers, first)
    if wanted <= 0:
        return
    search = _GroupSearch(
        view=view,
        tiers=tiers,
        existing=_existing_groups(view, first),
        span=(first, old),
        wanted=wanted,
    )
    waived_nothing = ProtectionWaiver()
    groups, gained = search.grow(waived_nothing)
    if (
        tiers.budget is not None
        and waived_nothing.refused
        and view.projected_tokens - gained > tiers.waiver_ratio * tiers.budget
    ):
        groups, _ = search.grow(replace(waived_nothing, reads=True))
    for group in _merge_groups(groups, tiers.max_summaries):
        if (
            group.new
            and _net_saving(view, offer := _fold_offer(view, tiers, group))
            >= tiers.min_saved_tokens
        ):
            yield offer


def _is_over_budget(view: View, tiers: FoldThresholds) -> bool:
    return tiers.budget is not None and view.projected_tokens > tiers.budget


def _tokens_to_save(view: View, tiers: FoldThresholds, first: int) -> float:
    """The number of tokens to save: enough for the budget, or all that is possible."""
    if (
        tiers.threshold_chars is not None
        and _unsummarized_chars(view, first) > tiers.threshold_chars
    ):
        return math.inf
    if tiers.budget is None or not _is_over_budget(view, tiers):
        return 0
    return view.projected_tokens - tiers.target_ratio * tiers.budget


def _unsummarized_chars(view: View, first: int) -> int:
    """Characters of calls and results that are in no summary."""
    total = 0
    for exchange in view.transcript.exchanges[first:]:
        for position in (exchange.call, exchange.result):
            if position is not None:
                edit = view.in_force.get(position)
                shown = edit if isinstance(edit, Replace) else view.transcript.parts[position]
                total += len(shown.text)
    return total


# Groups: each summary describes all exchanges that folded since the summary before it.


class FoldGroup(Struct, frozen=True):
    """Exchanges of one summary, which replaces the result of the last; others may be between."""

    first: int  # the first exchange that may belong to it
    summarized: Sequence[int] = ()  # exchanges of the summary in force
    new: tuple[int, ...] = ()  # exchanges that fold now

    @property
    def members(self) -> list[int]:
        """All exchanges of the group, in order."""
        return sorted((*self.summarized, *self.new))

    @property
    def calls(self) -> int:
        """Number of exchanges."""
        return len(self.summarized) + len(self.new)


def _summarized_calls(view: View, ordinal: int) -> int | None:
    """Number of calls in the summary of this exchange; None: no summary is in force."""
    result = view.transcript.exchanges[ordinal].result
    edit = None if result is None else view.in_force.get(result)
    if not isinstance(edit, Replace) or edit.reason != _FOLDED_REASON:
        return None
    return _calls_in_summary(edit.text)


def _calls_in_summary(text: str) -> int | None:
    """Number of calls in a summary; None if the text is none."""
    marker = find_marker(text)
    if not isinstance(marker, OmissionMarker) or marker.unit != "calls":
        return None
    return marker.omitted + 1


def _after_last_summary(view: View, old: int) -> int:
    """The first exchange after the last summary, in force or sent back by the client."""
    parts = view.transcript.parts
    for ordinal in range(old - 1, -1, -1):
        exchange = view.transcript.exchanges[ordinal]
        if exchange.result is None:
            continue
        edit = view.in_force.get(exchange.result)
        shown = edit if isinstance(edit, Replace) else parts[exchange.result]
        if _calls_in_summary(shown.text) is not None:
            return exchange.ordinal + 1
    return 0


def _existing_groups(view: View, first: int) -> list[FoldGroup]:
    """The groups of the summaries in force, the oldest first; most of their members are skipped."""
    ends: list[tuple[int, int]] = []  # the exchange of each summary, and its number of calls
    ordinal = first - 1
    while ordinal >= 0:
        calls = _summarized_calls(view, ordinal)
        if calls is not None:
            ends.append((ordinal, calls))
        ordinal -= calls or 1
    ends.reverse()
    begins = [0, *(end + 1 for end, _ in ends)]
    return [
        FoldGroup(begin, _summarized_up_to(view, begin, end, calls))
        for begin, (end, calls) in zip(begins, ends, strict=False)
    ]


def _summarized_up_to(view: View, first: int, last: int, calls: int) -> Sequence[int]:
    """The exchanges from first to last that a summary of this many calls, in the last, describes.

    If these are all exchanges in the range, only those in the summary's own unit need a check.
    """
    beside = view.transcript.units[view.transcript.exchanges[last].unit].exchanges
    if calls == last - first + 1 and all(
        _is_summarized(view, o) for o in beside if first <= o <= last
    ):
        return range(first, last + 1)
    return _summarized_among(view, first, last + 1)


def _summarized_among(view: View, first: int, end: int) -> tuple[int, ...]:
    """The exchanges of a range that a summary describes."""
    claimed, in_force = view.claimed, view.in_force
    results = [exchange.result for exchange in view.transcript.exchanges[first:end]]
    edits = [None if result is None else in_force.get(result) for result in results]
    rows = zip(range(first, end), results, edits, strict=True)
    return tuple(
        [
            o
            for o, at, edit in rows
            if (at in claimed if edit is None else edit.reason == _FOLDED_REASON)
        ]
    )


def _is_summarized(view: View, ordinal: int) -> bool:
    result = view.transcript.exchanges[ordinal].result
    edit = None if result is None else view.in_force.get(result)
    return edit.reason == _FOLDED_REASON if edit is not None else result in view.claimed


class _GroupSearch(Struct, frozen=True):
    """The search for exchanges to fold at one evaluation."""

    view: View
    tiers: FoldThresholds
    existing: Sequence[FoldGroup]
    span: tuple[int, int]  # exchanges that no summary describes and that are old
    wanted: float  # tokens to save

    def grow(self, waiver: ProtectionWaiver) -> tuple[list[FoldGroup], int]:
        """Add exchanges to groups until enough is saved; return the groups and the saving."""
        view = self.view
        groups: list[FoldGroup] = []
        gained = 0
        new = _batches(view, self.span, self.tiers, waiver)
        for group in chain((_with_leftovers(view, one, waiver) for one in self.existing), new):
            if gained >= self.wanted and not group.summarized:
                break  # all that follow are new ones
            gain = sum(_remaining_tokens(view, ordinal) for ordinal in group.new)
            if gain < self.tiers.min_saved_tokens or gained >= self.wanted:
                groups += [replace(group, new=())] if group.summarized else []
                continue
            groups.append(group)
            gained += gain
        return groups, gained


def _remaining_tokens(view: View, ordinal: int) -> int:
    """The tokens of an exchange in the projection."""
    exchange = view.transcript.exchanges[ordinal]
    total = 0
    for position in (exchange.call, exchange.result):
        if position is not None:
            edit = view.in_force.get(position)
            total += view.tokens_of(position) - (edit.saved if edit is not None else 0)
    return total


def _merge_groups(groups: Sequence[FoldGroup], max_groups: int) -> list[FoldGroup]:
    """Merge the newest groups if there are too many and one has new exchanges.

    A group merges with the next one if it is not larger. So the summary that describes a call
    about doubles each time it is rewritten.
    """
    left = list(groups)
    while len(left) > max_groups and any(group.new for group in left):
        last = left.pop()
        while left and (left[-1].calls <= last.calls or len(left) >= max_groups):
            before = left.pop()
            new = (*before.members, *last.members)
            last = FoldGroup(before.first, (), new)
        left.append(last)
    return left


# Exchanges that may fold.


class ProtectionWaiver(Struct, frozen=True):
    """Protections that are waived."""

    reads: bool = False  # of latest reads of files edited since, and of refetched results
    foldable: set[int] = set()  # exchanges found that may fold, also with more waived
    refused: set[int] = set()  # parts found that may go with more waived


def _with_leftovers(view: View, group: FoldGroup, waiver: ProtectionWaiver) -> FoldGroup:
    """Add the exchanges to a group that were protected when it folded and are not now."""
    first, last = group.first, group.summarized[-1]
    if last - first + 1 == len(group.summarized):
        return group
    exchanges, units = view.transcript.exchanges, view.transcript.units
    others = sorted(set(range(first, last)).difference(group.summarized))
    numbers = dict.fromkeys(exchanges[ordinal].unit for ordinal in others)
    left = [o for number in numbers for o in _foldable_exchanges(view, units[number], waiver)]
    return replace(
        group,
        new=_without_dependencies(view, [o for o in left if first <= o < last], group.summarized),
    )


def _batches(
    view: View, span: tuple[int, int], tiers: FoldThresholds, waiver: ProtectionWaiver
) -> Iterator[FoldGroup]:
    """Batches of old exchanges that may fold, in whole units; the last holds the summary."""
    first, old = span
    exchanges, units = view.transcript.exchanges, view.transcript.units
    batch: list[int] = []
    barren = 0  # exchanges of the batch that were checked and cannot hold the summary
    number = exchanges[first].unit if first < old else len(units)
    while number < len(units) and _is_old(units[number], old):
        unit = units[number]
        batch += [o for o in _foldable_exchanges(view, unit, waiver) if o >= first]
        if len(batch) >= tiers.max_batch_calls or (
            len(batch) >= _MIN_TURN_CALLS and _has_user_text(view, unit)
        ):
            members = _up_to_keeper(view, batch, barren)
            barren = len(batch)
            if len(members) > 1:
                yield FoldGroup(first, (), members)
                batch, barren = batch[batch.index(members[-1]) + 1 :], 0
                first = members[-1] + 1
        number += 1
    members = _up_to_keeper(view, batch, barren)
    if len(members) > 1:
        yield FoldGroup(first, (), members)


def _is_old(unit: Unit, old: int) -> bool:
    return all(ordinal < old for ordinal in unit.exchanges)


def _has_user_text(view: View, unit: Unit) -> bool:
    parts = view.transcript.parts[unit.answers_from : unit.parts[1]]
    return any(part.kind == "text" and part.speaker == "user" for part in parts)


def _foldable_exchanges(view: View, unit: Unit, waiver: ProtectionWaiver) -> list[int]:
    """The exchanges of a unit that may fold; of a locked unit all or none."""
    found = [ordinal for ordinal in unit.exchanges if _can_fold(view, ordinal, waiver)]
    return found if len(found) == len(unit.exchanges) or not unit.locked else []


def _can_fold(view: View, ordinal: int, waiver: ProtectionWaiver) -> bool:
    if ordinal in waiver.foldable:
        return True
    exchange = view.transcript.exchanges[ordinal]
    if exchange.result is None or exchange.server or _is_summarized(view, ordinal):
        return False
    if not _can_remove(view, exchange.call, waiver):
        return False  # most were removed before
    _, *others = exchange_closure(view.transcript, ordinal)
    if not all(_can_remove(view, part, waiver) for part in others):
        return False
    if find_marker(view.transcript.parts[exchange.result].text) is not None:
        return False
    waiver.foldable.add(ordinal)
    return True


def _can_remove(view: View, position: int, waiver: ProtectionWaiver) -> bool:
    """Return whether a part is still there to remove; only its unit's reasoning may be gone."""
    if view.is_protected(position):
        if not _can_waive(view, position):
            return False
        if not waiver.reads:
            waiver.refused.add(position)
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


def _can_waive(view: View, position: int) -> bool:
    """Return whether a part is protected only for its content, not pinned."""
    why = view.pinned.reason_for(position) if isinstance(view.pinned, Protections) else None
    return why is not None and why.startswith(("latest read of ", FETCHED_AGAIN))


def _up_to_keeper(view: View, batch: Sequence[int], barren: int) -> tuple[int, ...]:
    """The batch up to the last exchange whose result can hold the summary: one without an error.

    The first `barren` exchanges were checked before, so a run of failures is checked once.
    """
    for count in range(len(batch), max(1, barren), -1):
        result = view.transcript.exchanges[batch[count - 1]].result
        if result is None or not view.can_rewrite(result) or _splits_unit(view, batch, count):
            continue
        part = view.transcript.parts[result]
        if (
            part.text and not part.error
        ):  # a result without text, such as a screenshot, may allow none
            members = _without_dependencies(view, batch[:count])
            return members if members[-1:] == (batch[count - 1],) else ()
    return ()


def _without_dependencies(
    view: View, batch: Sequence[int], beside: Sequence[int] = ()
) -> tuple[int, ...]:
    """The batch without exchanges that an edit outside it, and outside `beside`, depends on."""
    if not view.dependencies:
        return tuple(batch)
    exchanges = view.transcript.exchanges
    closures = [exchange_closure(view.transcript, ordinal) for ordinal in batch]
    own = frozenset(chain.from_iterable(closures))
    depending = {at: ps for at, ps in view.dependencies.items() if not own.isdisjoint(ps)}
    if not depending:
        return tuple(batch)
    beside_parts = (exchange_closure(view.transcript, ordinal) for ordinal in beside)
    inside = own.union(*beside_parts)
    needed = {part for at, parts in depending.items() if at not in inside for part in parts}
    left = {o for o, parts in zip(batch, closures, strict=True) if needed.intersection(parts)}
    units = {exchanges[o].unit for o in left if view.transcript.units[exchanges[o].unit].locked}
    return tuple(o for o in batch if o not in left and exchanges[o].unit not in units)


def _splits_unit(view: View, batch: Sequence[int], count: int) -> bool:
    """Return whether the next exchange belongs to the same unit."""
    exchanges = view.transcript.exchanges
    return count < len(batch) and exchanges[batch[count]].unit == exchanges[batch[count - 1]].unit


# Offers.


def _net_saving(view: View, offer: Offer) -> int:
    """Tokens that an offer saves beyond the edits it replaces."""
    parts = {part for edit in offer.edits for part in touched_parts(edit, view.transcript)}
    return offer.saved - sum(view.in_force[part].saved for part in parts if part in view.in_force)


def _fold_offer(view: View, tiers: FoldThresholds, group: FoldGroup) -> Offer:
    """Replace the last member's result by the summary and drop the others."""
    members = tuple(group.members)
    keeper = view.transcript.exchanges[members[-1]]
    assert keeper.result is not None
    calls = _call_summaries(view, members)
    original = view.transcript.parts[keeper.result]
    ref = reference_of_pieces(render_exchanges(view.transcript, members, view.media))
    marker = OmissionMarker(
        len(members) - 1, "calls", ref, reason="told above", fetch_tool=view.fetch_tool
    )
    count = view.counter.count
    max_tokens = max(
        tiers.max_summary_tokens - count(f"\n{marker}"),
        min_batch_tokens(calls, count) + tiers.max_summary_tokens // 2,
    )
    given = dict(view.summaries).get(ref, "").strip()
    summary = (
        describe_with_summary(given, calls, max_tokens, count)
        if given
        else describe_batch(calls, max_tokens, count)
    )
    text = f"{summary}\n{marker}"
    evidence = f"{len(members):,} calls told in one result"
    saved = view.saved_by(keeper.result, text)
    edit = Replace(
        part=keeper.result,
        ref=original.ref,
        text=text,
        original=ref,
        reason=_FOLDED_REASON,
        evidence=evidence,
        saved=saved,
        stands_for=members,
    )
    others = tuple(_other_edits(view, members, keeper))
    return Offer("drop", edit, also=others)


def describe_exchanges(view: View, max_tokens: int) -> str:
    """The summary of all exchanges as one batch; empty if there are none.

    Changed files and open errors may exceed `max_tokens`.
    """
    members = [one.ordinal for one in view.transcript.exchanges if one.result is not None]
    if not members:
        return ""
    calls, count = _call_summaries(view, members), view.counter.count
    return describe_batch(calls, max(max_tokens, min_batch_tokens(calls, count)), count)


def _call_summaries(view: View, members: Sequence[int]) -> list[CallSummary]:
    exchanges = view.transcript.exchanges
    reasons = _stated_reasons(view, exchanges[members[0]].unit, exchanges[members[-1]].unit)
    found = (deed_in_view(view, exchanges[one], reasons.get(one, "")) for one in members)
    return [one for one in found if one is not None]


def _stated_reasons(view: View, first: int, last: int) -> dict[int, str]:
    """The assistant's last text before each call, since the last user message."""
    parts, exchange_of = view.transcript.parts, view.transcript.exchange_of
    text, reasons = "", dict[int, str]()
    for unit in view.transcript.units[first : last + 1]:
        for position in range(*unit.parts):
            part = parts[position]
            if part.kind == "text" and part.speaker == "model":
                text = part.text
            elif part.kind == "text" and not part.text.startswith("<"):  # "<": a reminder
                text = ""
            elif part.kind == "call":
                reasons[exchange_of[position]] = text
    return reasons


def _other_edits(view: View, members: Sequence[int], keeper: Exchange) -> Iterator[Edit]:
    """Edits of the other members: they are dropped, or replaced if they cannot leave the unit."""
    transcript = view.transcript
    home = transcript.units[keeper.unit]
    beside = is_inseparable(home)
    counted: set[int] = set()  # parts that an earlier edit drops
    call = transcript.parts[keeper.call].id or f"no. {keeper.ordinal + 1}"
    evidence = f"told in the result of call {call}"
    for ordinal in members[:-1]:
        exchange = transcript.exchanges[ordinal]
        if exchange.unit == keeper.unit and beside:
            yield from _pointer_edit(view, exchange, evidence)
        elif exchange.call not in counted and not _is_gone(view, exchange.call):
            parts = [p for p in exchange_closure(transcript, ordinal) if p not in counted]
            counted.update(parts)
            saved = sum(view.tokens_of(part) for part in parts)
            ref = transcript.parts[exchange.call].ref
            yield DropExchange(
                exchange=ordinal, ref=ref, reason=_FOLDED_REASON, evidence=evidence, saved=saved
            )


def _is_gone(view: View, position: int) -> bool:
    return position in view.claimed and not isinstance(view.in_force.get(position), Replace)


def _pointer_edit(view: View, exchange: Exchange, evidence: str) -> Iterator[Edit]:
    """Replace a result in the summary's unit, which can only go as a whole, by a marker."""
    position = exchange.result
    if position is None or not view.can_rewrite(position):
        return
    part = view.transcript.parts[position]
    ref = reference(part.text)
    lines = count_lines(part.text)
    gone, unit = (lines, "lines") if lines > 1 else (len(part.text), "chars")
    text = str(
        OmissionMarker(gone, unit, ref, reason="told in a result below", fetch_tool=view.fetch_tool)
    )
    saved = view.saved_by(position, text)
    if saved > 0:
        yield Replace(
            part=position,
            ref=part.ref,
            text=text,
            original=ref,
            reason=_FOLDED_REASON,
            evidence=evidence,
            saved=saved,
        )


def fold_exchanges(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to fold old exchanges when the history is over its budget or its threshold."""
    return fold_offers(view, fold_thresholds(policy, view.limits))
