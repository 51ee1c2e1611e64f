"""Excess refetch: how often what was cut is requested again, less how often what is whole is.

An agent repeats some reads and runs although nothing was cut. So results that were cut are compared
with whole ones of the same kind of call and the same age. An age is the number of requests that
sent a result before the one that it is counted at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import sqrt
from typing import Final

from msgspec import Struct

from ..edits import TIDIED
from ..tools.identity import is_expand_tool
from .refetches import VisibleHistory

MAX_AGES: Final = (0, 2, 5, 10, 20, 50)  # the last age of each group; older results are left out
_Z: Final = 1.96  # standard errors on either side of a 95 % interval


class RepeatCell(Struct, frozen=True, gc=False, array_like=True):
    """Results of one kind and group of ages, counted once per request that sent them."""

    kind: str
    ages: int  # the group, by its number
    cut: int = 0
    cut_again: int = 0  # requested again in the turn after
    whole: int = 0
    whole_again: int = 0


class ExcessRefetch(Struct, frozen=True, kw_only=True):
    """Refetches after a cut, beside those to be expected without one."""

    after_cut: int = 0
    expected: float = 0.0  # if they were requested as often as whole results
    error: float = 0.0  # standard error of the difference
    cut: int = 0  # results times requests that sent them cut
    unmatched: int = 0  # of these, those without any whole result of their kind and age

    @property
    def excess(self) -> float:
        """Refetches that the cuts explain."""
        return self.after_cut - self.expected

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the excess."""
        return self.excess - _Z * self.error, self.excess + _Z * self.error


def group_of(age: int) -> int | None:
    """The group of an age; None: it is left out.

    >>> group_of(0), group_of(4), group_of(51)
    (0, 2, None)
    """
    return next((at for at, last in enumerate(MAX_AGES) if age <= last), None)


_GROUPS: Final = tuple(group_of(age) or 0 for age in range(MAX_AGES[-1] + 1))


def repeat_cells(
    visible: VisibleHistory, again: Iterable[tuple[int, int, bool]]
) -> tuple[RepeatCell, ...]:
    """Count the results that a request sends, and those that its latest calls requested again.

    `again` are those calls by exchange, with the earlier exchange and whether that was cut.
    """
    counts: dict[tuple[str, int], list[int]] = {}
    history, uses = visible.history, visible.ledger.uses
    exchanges, parts, known = history.exchanges, history.parts, len(uses)
    last = len(history.units) - 1
    for unit in range(max(0, last - MAX_AGES[-1]), last + 1):
        ages = _GROUPS[last - unit]
        for ordinal in history.units[unit].exchanges:
            exchange = exchanges[ordinal]
            if exchange.result is None or exchange.server or ordinal >= known:
                continue
            use = uses[ordinal]
            if use.outcome_kind == "write" or is_expand_tool(parts[exchange.call].name):
                continue  # it is never counted as requested again
            held = counts.setdefault((use.kind, ages), [0, 0, 0, 0])
            held[0 if _is_cut(visible, exchange.result) else 2] += 1
    for exchange, earlier, was_cut in again:
        group = group_of(exchanges[exchange].unit - 1 - exchanges[earlier].unit)
        if group is not None:
            held = counts.setdefault((uses[earlier].kind, group), [0, 0, 0, 0])
            held[1 if was_cut else 3] += 1
    return tuple(RepeatCell(*key, *held) for key, held in sorted(counts.items()))


def _is_cut(visible: VisibleHistory, position: int) -> bool:
    if position not in visible.claimed or position in visible.dependents:
        return False
    edit = visible.edits.get(position)
    return edit is None or edit.reason != TIDIED


def add_cells(cells: Iterable[RepeatCell]) -> tuple[RepeatCell, ...]:
    """Sums by kind and group of ages."""
    counts: dict[tuple[str, int], list[int]] = {}
    for one in cells:
        held = counts.setdefault((one.kind, one.ages), [0, 0, 0, 0])
        for at, count in enumerate((one.cut, one.cut_again, one.whole, one.whole_again)):
            held[at] += count
    return tuple(RepeatCell(*key, *held) for key, held in sorted(counts.items()))


def excess_refetch(cells: Collection[RepeatCell]) -> ExcessRefetch:
    """Compare what was cut with what was whole, within each kind and group of ages.

    >>> cells = [RepeatCell("read", 2, cut=100, cut_again=9, whole=200, whole_again=10)]
    >>> found = excess_refetch(cells)
    >>> found.after_cut, found.expected, found.excess
    (9, 5.0, 4.0)
    """
    after_cut = cut = unmatched = 0
    expected = variance = 0.0
    for one in add_cells(cells):
        if not one.whole:
            unmatched += one.cut
            continue
        ratio = one.cut / one.whole
        after_cut += one.cut_again
        cut += one.cut
        expected += ratio * one.whole_again
        variance += one.cut_again + ratio * ratio * one.whole_again
    return ExcessRefetch(
        after_cut=after_cut,
        expected=expected,
        error=sqrt(variance),
        cut=cut,
        unmatched=unmatched,
    )
