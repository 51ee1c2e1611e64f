"""`respool_expand`: the original behind a marker, or some lines of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..searching import Unsearchable, searcher
from ..store import Store
from .answer import Answer, Unanswerable, paged
from .asked import lines_in, number_in, reference_in, text_in

_NAMED: Final = 40  # line numbers that a remark lists
_FEWER: Final = "For less of it, give lines or a pattern."


def expanded(store: Store, arguments: Mapping[str, Any]) -> Answer:
    """What stood where a marker stands now."""
    ref = reference_in(arguments)
    text = store.original(ref, None)
    if text is None:
        raise Unanswerable(
            f"No original is kept under {ref}: it was never there, is too old, or was forgotten. "
            "What it said may be had where it came from: run the tool again."
        )
    skip = number_in(arguments, "skip", 0, 0)
    pattern = text_in(arguments, "pattern")
    chosen = lines_in(arguments, len(_lines(text)))
    if chosen is None and pattern is None:
        return paged(text, skip, narrow_hint=_FEWER)
    return _some(_lines(text), chosen, pattern, skip)


def _some(
    lines: list[str], chosen: tuple[int, int] | None, pattern: str | None, skip: int
) -> Answer:
    """Those of the lines that are in the range and fit the pattern, with where they stand."""
    count = len(lines)
    first, last = chosen or (1, count)
    if not 1 <= first <= last or first > max(count, 1):
        raise Unanswerable(
            f"There are no lines {first}-{last} here: this original has the lines 1-{count}."
        )
    last = min(last, count)
    if pattern is None:
        remark = f"These are the lines {first:,}-{last:,} of {count:,}."
        return paged("".join(lines[first - 1 : last]), skip, remark, _FEWER)
    fits = _searcher(pattern)
    found = [at for at in range(first, last + 1) if fits(lines[at - 1].removesuffix("\n"))]
    said = f"{len(found):,} of the lines {first:,}-{last:,} fit the pattern"
    if not found:
        return Answer("", f"{said}; this original has {count:,} lines.")
    return paged("".join(lines[at - 1] for at in found), skip, f"{said}: {_listed(found)}.", _FEWER)


def _searcher(pattern: str) -> Callable[[str], bool]:
    try:
        return searcher(pattern)
    except Unsearchable as error:
        raise Unanswerable(f"This pattern is not allowed: {error}.") from None


def _lines(text: str) -> list[str]:
    """The lines with their ends, counted as markers count them."""
    *ended, rest = text.split("\n")
    return [f"{line}\n" for line in ended] + ([rest] if rest else [])


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_NAMED])
    left = len(numbers) - _NAMED
    return f"{shown} and {left:,} more" if left > 0 else shown
