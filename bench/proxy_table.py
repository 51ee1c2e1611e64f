"""Table of the proxy bench: the figures of each way, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from bench.proxy_load import Round

LARGE = "800 KB"
MEASURES = ("1 KB", LARGE, "first byte")
HEADINGS = ("1 KB/s", "800 KB/s", "first byte, ms", "errors", "MB")


class Row(msgspec.Struct, frozen=True):
    """Figures of one way, and its number of failed responses."""

    name: str
    figures: dict[str, float | None]
    asked: int
    errors: int
    megabytes: float


class Absent(msgspec.Struct, frozen=True):
    """A way that could not be measured, and the reason it gave."""

    name: str
    reason: str


def row(name: str, rounds: dict[str, list[Round]], megabytes: float) -> Row:
    """The figures of several rounds; rounds without a good answer have none.

    The median, but at 800 KB the rate over all rounds: some hold more evaluations than others.
    """
    every = [one for each in rounds.values() for one in each]
    figure = {key: _overall if key == LARGE else _median for key in rounds}
    return Row(
        name,
        {key: figure[key]([one for one in each if one.figure]) for key, each in rounds.items()},
        sum(one.asked for one in every),
        sum(one.errors for one in every),
        megabytes,
    )


def _median(rounds: Sequence[Round]) -> float | None:
    return median(one.figure or 0.0 for one in rounds) if rounds else None


def _overall(rounds: Sequence[Round]) -> float | None:
    """Requests of all rounds, by the seconds of all rounds."""
    seconds = sum(one.asked / one.figure for one in rounds if one.figure)
    return sum(one.asked for one in rounds) / seconds if seconds else None


def table(rows: Sequence[Row | Absent]) -> str:
    """All of them, in columns."""
    wide = max(len(one.name) for one in rows) + 2
    lines = [" " * wide + "".join(f"{heading:>16}" for heading in HEADINGS)]
    for one in rows:
        told = f"  {one.reason}" if isinstance(one, Absent) else _cells(one)
        lines.append(f"{one.name:<{wide}}{told}")
    return "\n".join(lines)


def _cells(one: Row) -> str:
    small, large, first = (one.figures.get(key) for key in MEASURES)
    errors = f"{one.errors:,} of {one.asked:,}" if one.errors else "0"
    cells = (_shown(small), _shown(large), _shown(first, 2), errors, _shown(one.megabytes or None))
    return "".join(f"{cell:>16}" for cell in cells)


def _shown(figure: float | None, digits: int | None = None) -> str:
    """A figure; without digits given, as many as a small one needs."""
    if figure is None:
        return "none"
    return f"{figure:,.{(1 if figure < 100 else 0) if digits is None else digits}f}"


def compared(one: Row, bare: Row) -> str:
    """Compare a way with the bare pass-through, in a sentence."""
    small, large = (_ratio(one.figures.get(key), bare.figures.get(key)) for key in MEASURES[:2])
    first, without = one.figures.get("first byte"), bare.figures.get("first byte")
    later = "none" if first is None or without is None else f"{first - without:.2f} ms later"
    return (
        f"{one.name} beside the bare pass-through: {small} at 1 KB, {large} at 800 KB, "
        f"first byte {later}"
    )


def _ratio(figure: float | None, whole: float | None) -> str:
    return f"{figure / whole:.3f}" if figure is not None and whole else "none"
