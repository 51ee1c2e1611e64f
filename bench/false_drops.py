"""False drops: of what later turns needed of old results, the share that a selection dropped.

At some moments of a session each method chooses what is kept of all old results. A need counts if
old results alone hold it: no call, no message and no younger or short result says it too.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from bench.forecast_data import LEAST, Walk
from respool.forecast.features import result_features
from respool.forecast.model import forecast_lines
from respool.replay.policies import ResultLocation
from respool.replay.recording import Recording

MIN_AGE = 4  # requests that sent a result before it counts as old
MOMENTS = (0.25, 0.5, 0.75)  # of a session's requests
RESAMPLES = 2_000
SEED = 20261118


class Line(Struct, frozen=True, gc=False):
    """One line of an old result."""

    result: int
    number: int
    text: str
    value: float = 0.0  # expected, or known, needs

    @property
    def size(self) -> int:
        """Its characters, with the line break."""
        return len(self.text) + 1


class Moment:
    """A request of a session, its old results, and the needs of later turns that they alone hold.

    `walk` has read the session up to here.
    """

    def __init__(
        self, recording: Recording, walk: Walk, results: Sequence[ResultLocation], request: int
    ) -> None:
        self.recording, self.request = recording, request
        limit = recording.cuts[request - MIN_AGE]
        rows = [place.row for place in results]
        self.old = {
            number: results[number].part.text
            for number in range(bisect_left(rows, limit))
            if len(results[number].part.text) >= LEAST
        }
        self.size = sum(map(len, self.old.values()))
        self._walk, self._results, self._rows = walk, results, rows
        self.homes: dict[int, int] = {}  # need -> the newest old result that holds it
        self.needs = self._find_needs()  # need -> later turns that need it

    def _find_needs(self) -> dict[int, int]:
        recording = self.recording
        number_of = {(place.row, place.block): n for n, place in enumerate(self._results)}
        found: dict[int, int] = {}
        for request in range(self.request, len(recording.turn_needs)):
            cut, needed = recording.cuts[request], recording.turn_needs[request]
            for need in {*needed.atoms, *needed.lines}:
                if self._is_only_in_old(need, cut, number_of):
                    found[need] = found.get(need, 0) + 1
        return found

    def _is_only_in_old(
        self, need: int, cut: int, number_of: Mapping[tuple[int, int], int]
    ) -> bool:
        sources = (self.recording.sources[at] for at in self.recording.sources_by_need[need])
        homes = [number_of.get((one.row, one.block)) for one in sources if one.row < cut]
        if not homes or any(home not in self.old for home in homes):
            return False
        self.homes[need] = max(home for home in homes if home is not None)
        return True

    def lines(self) -> list[Line]:
        """All lines of old results, the newest result first."""
        return [
            Line(result, number, text)
            for result in sorted(self.old, reverse=True)
            for number, text in enumerate(self.old[result].split("\n"))
        ]

    def forecast(self) -> list[Line]:
        """The same lines with the needs that respool expects."""
        found: list[Line] = []
        positions, walk = self._walk.own_results(), self._walk
        for result in sorted(self.old, reverse=True):
            known = result_features(positions[result], walk.index, walk.ledger, walk.mentions)
            rates = None if known is None else forecast_lines(known)
            found += [
                Line(result, number, text, 0.0 if rates is None else rates.of(number))
                for number, text in enumerate(self.old[result].split("\n"))
            ]
        return found

    def prophecy(self) -> list[Line]:
        """The same lines with the later turns that really need them."""
        values: dict[tuple[int, int], float] = {}
        needs = self.recording.finder.needs
        for need, turns in self.needs.items():
            home = self.homes[need]
            text = self.old[home]
            line = text.count("\n", 0, text.find(needs[need]))
            values[home, line] = values.get((home, line), 0.0) + turns
        return [
            Line(one.result, one.number, one.text, values.get((one.result, one.number), 0.0))
            for one in self.lines()
        ]

    def dropped(self, texts: Iterable[str]) -> int:
        """The later needs that none of the kept texts serves."""
        served: set[int] = set()
        for text in texts:
            served |= self.recording.finder.find(text)
        return sum(turns for need, turns in self.needs.items() if need not in served)

    @property
    def total(self) -> int:
        """All later needs."""
        return sum(self.needs.values())


def moments_of(recording: Recording, results: Sequence[ResultLocation]) -> Iterable[Moment]:
    """Moments of a session at which old results are needed later."""
    walk = Walk(recording)
    for share in MOMENTS:
        request = round(share * len(recording.cuts))
        if request <= MIN_AGE:
            continue
        walk.until(recording.cuts[request])
        moment = Moment(recording, walk, results, request)
        if moment.needs:
            yield moment


# --- selections of a given size ----------------------------------------------------------------


def best_lines(lines: Sequence[Line], size: int) -> list[str]:
    """The most valuable lines for their size that fit, as texts by result.

    >>> lines = [Line(0, 0, "dear", 1.0), Line(0, 1, "cheap", 9.0), Line(1, 0, "x", 0.0)]
    >>> best_lines(lines, 8)
    ['cheap', 'x']
    """
    ranked = sorted(lines, key=lambda line: -line.value / line.size)
    return _fill(ranked, size)


def newest_lines(lines: Sequence[Line], size: int) -> list[str]:
    """The newest results that fit, and the beginning of the next; lines come newest first."""
    return _fill(lines, size, whole=True)


def smallest_lines(lines: Sequence[Line], size: int) -> list[str]:
    """The smallest results that fit, and the beginning of the next: the largest are cut."""
    sizes: dict[int, int] = {}
    for line in lines:
        sizes[line.result] = sizes.get(line.result, 0) + line.size
    return _fill(
        sorted(lines, key=lambda line: (sizes[line.result], -line.result)), size, whole=True
    )


def _fill(ranked: Sequence[Line], size: int, *, whole: bool = False) -> list[str]:
    """Texts by result, filled up to a size; `whole`: nothing behind the first that does not fit."""
    chosen: dict[int, list[Line]] = {}
    left = size
    for line in ranked:
        if line.size > left:
            if whole:
                break
            continue
        left -= line.size
        chosen.setdefault(line.result, []).append(line)
    return [
        "\n".join(one.text for one in sorted(held, key=lambda line: line.number))
        for held in chosen.values()
    ]


# --- intervals ---------------------------------------------------------------------------------


def bootstrap_ratio(
    parts: Sequence[tuple[float, float]], resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float, float]:
    """The ratio of two sums over repositories, and its 95 % interval by drawing repositories.

    >>> bootstrap_ratio([(1.0, 10.0)] * 5)
    (0.1, 0.1, 0.1)
    """
    chance = random.Random(seed)

    def ratio(some: Sequence[tuple[float, float]]) -> float:
        whole = sum(base for _, base in some)
        return sum(part for part, _ in some) / whole if whole else 0.0

    drawn = sorted(ratio(chance.choices(parts, k=len(parts))) for _ in range(resamples))
    edge = round(0.025 * resamples)
    return ratio(parts), drawn[edge], drawn[-1 - edge]


Selection = Callable[[Moment, int], list[str]]
SELECTIONS: Mapping[str, Selection] = {
    "respool's forecast": lambda moment, size: best_lines(moment.forecast(), size),
    "newest kept": lambda moment, size: newest_lines(moment.lines(), size),
    "largest cut": lambda moment, size: smallest_lines(moment.lines(), size),
    "oracle": lambda moment, size: best_lines(moment.prophecy(), size),
}
