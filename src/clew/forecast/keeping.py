"""What remains of a text: the lines that will probably be needed, and the names in the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ..marker import hole
from ..shapes.frame import framed
from .features import DEFINITION, RESULT, Known
from .looks import LOOKS
from .mentions import Mentions
from .model import Forecast
from .owned import HAS_NAMES

_TOKEN: Final = 4  # characters, about
_SHORT_RUN: Final = 60  # characters; a hole instead of so few would save next to nothing
_LEAST_SIZE: Final = 7  # characters that telling a name takes at least
_MOST_NAMES: Final = 12  # that are told for one hole
_CODE: Final = RESULT["kind"].index("read code")  # whose outermost definitions stay
_OUTLINE: Final = bytes(
    at for at, (form, _, set_in) in enumerate(LOOKS) if form == DEFINITION and set_in == 0
)
_RUNS: Final = frozenset(n for n, kind in enumerate(RESULT["kind"]) if kind.startswith("run"))
_ENDING: Final = 2  # lines of a run that tell how it ended


class Kept(Struct, frozen=True):
    """What remains of a text, which of its lines are gone, and what that risks."""

    text: str
    lines: Sequence[int]
    all: int
    risk: float

    @property
    def gone(self) -> int:
        """How many lines are gone."""
        return len(self.lines)


def kept_of(
    text: str, found: Known, expected: Forecast, mentions: Mentions, rate: float, *,
    named: bool = True, gone_before: Collection[int] = (),
) -> Kept | None:  # fmt: skip
    """The lines of a text that risk more than a rate for each token; None: all of them stay.

    Lines that an earlier cut took out do not come back, and are no risk any more.
    """
    lines = text.split("\n")
    stays = _staying(text, lines, found, gone_before)
    names = _names(lines, stays, found, expected, mentions, rate) if named else {}
    _stay_where_needed(lines, stays, expected, names, rate)
    for line in gone_before:
        stays[line] = False
    if not lines[-1]:
        stays[-1] = True  # the end of the last line is not another
    _fill_short_runs(lines, stays, gone_before)
    pieces: list[str] = []
    gone: list[int] = []
    risk, at = 0.0, 0
    while (start := stays.find(0, at)) >= 0:
        end = stays.find(1, start)
        end = len(lines) if end < 0 else end
        told = _told(names, expected, start, end)
        pieces += lines[at:start]
        pieces += _hole(end - start, [name for line in sorted(told) for name in names[line]])
        gone += range(start, end)
        risk += _risk(expected, start, end, told, gone_before)
        at = end
    pieces += lines[at:]
    all = len(lines) - (not lines[-1])
    return Kept("\n".join(pieces), gone, all, risk) if gone else None


def _risk(
    expected: Forecast, start: int, end: int, told: Collection[int], gone_before: Collection[int]
) -> float:
    """What is at risk where these lines go and some of their names are told."""
    risk = sum(expected.whole[start:end]) + sum(expected.names[start:end])
    risk -= sum(expected.names[line] for line in told)
    for line in range(start, end) if gone_before else ():
        if line in gone_before:
            risk -= expected.whole[line] + (0 if line in told else expected.names[line])
    return risk


def _hole(gone: int, names: Sequence[str]) -> list[str]:
    said = [f"[names only there: {', '.join(names)}]"] if names else []
    return [hole(gone, "lines"), *said]


def _names(
    lines: Sequence[str], stays: bytearray, found: Known, expected: Forecast, mentions: Mentions,
    rate: float,
) -> dict[int, list[str]]:  # fmt: skip
    """The own names of the lines for which these are worth being told when the line goes."""
    told: dict[int, list[str]] = {}
    least, limit, owned = rate * _LEAST_SIZE / _TOKEN, rate / _TOKEN, found.all.owned
    for line in [line for line, need in enumerate(expected.names) if need > least]:
        if stays[line] == _STAYS or not HAS_NAMES[owned[line]]:
            continue
        named, size = expected.names[line], len(lines[line]) + 1
        if not stays[line] and _without_names(expected, line) > limit * size:
            continue  # it stays, whatever its names are
        names = mentions.names_only_in(found.words, line, lines[line])
        if names and named * _TOKEN > rate * _size(names):
            told[line] = names
    return told


def _without_names(expected: Forecast, line: int) -> float:
    """What will be needed of a line of which the names are told."""
    return expected.whole[line] + 0.1 * expected.names[line]


def _size(names: Sequence[str]) -> int:
    return sum(map(len, names)) + 2 * len(names)


_STAYS, _WENT = 1, 2


def _staying(
    text: str, lines: Sequence[str], found: Known, gone_before: Collection[int]
) -> bytearray:
    """Which lines stay whatever they are needed for, the frame and the outline; which went."""
    stays = bytearray(len(lines))
    if found.bins[0] == _CODE:
        for line, look in enumerate(found.words.looks):
            if look in _OUTLINE:
                stays[line] = _STAYS
    first, last = _framing(text, lines, is_run=found.bins[0] in _RUNS)
    stays[:first] = b"\1" * len(stays[:first])
    stays[last:] = b"\1" * len(stays[last:])
    for line in gone_before:
        stays[line] = _WENT
    return stays


def _stay_where_needed(
    lines: Sequence[str], stays: bytearray, expected: Forecast,
    names: Mapping[int, list[str]], rate: float,
) -> None:  # fmt: skip
    """Let the lines stay that will be needed for more than they take."""
    limit = rate / _TOKEN
    needs = enumerate(zip(expected.whole, expected.names, map(len, lines), strict=True))
    needed = [line for line, (whole, name, size) in needs if whole + name > limit * (size + 1)]
    for line in needed:
        if line not in names:
            stays[line] = _STAYS
    for line, told in names.items():
        size = max(1, len(lines[line]) + 1 - _size(told))
        if _without_names(expected, line) > limit * size:
            stays[line] = _STAYS


def _framing(text: str, lines: Sequence[str], *, is_run: bool) -> tuple[int, int]:
    """Where the lines end that stand before an output, and where those behind it begin."""
    frame = framed(text)
    first = max(1, frame.head.count("\n"))
    last = len(lines) - (frame.note.count("\n") + 1 if frame.note else 0)
    last -= _ENDING + (not lines[last - 1]) if is_run else 0
    return first, max(0, last)


def _fill_short_runs(lines: Sequence[str], stays: bytearray, gone_before: Collection[int]) -> None:
    """A few characters between lines that stay are not worth a hole."""
    at = 0
    while (start := stays.find(0, at)) >= 0:
        end = stays.find(1, start)
        at = end if end >= 0 else len(stays)
        room = _SHORT_RUN - (at - start)
        is_short = room > 0 and sum(map(len, lines[start:at])) < room
        if is_short and not _any_in(gone_before, start, at):
            stays[start:at] = b"\1" * (at - start)


def _any_in(lines: Collection[int], start: int, end: int) -> bool:
    return bool(lines) and any(line in lines for line in range(start, end))


def _told(names: Mapping[int, list[str]], expected: Forecast, start: int, end: int) -> set[int]:
    """The lines whose names are told for one hole; of too many, those needed most."""
    lines = [line for line in names if start <= line < end]
    told: set[int] = set()
    count = 0
    for line in sorted(lines, key=lambda line: -expected.names[line]):
        count += len(names[line])
        if count > _MOST_NAMES:
            break
        told.add(line)
    return told
