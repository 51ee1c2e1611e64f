"""The limits of any policy, known only afterwards: each result cut to the lines used later."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from .recording import Recording
from .senders import Place, Replaced, results_before


class Foreseen(Replaced):
    """Of each result only the lines that some later action used.

    For each need the newest line that carries it is kept, so nothing is ever lost. The oracle cuts
    a result once the model has answered to it; the floor cuts it as it arrives, so that no edit
    ever breaks the cache.
    """

    reason = "not used later"

    def __init__(self, recording: Recording, *, on_arrival: bool) -> None:
        super().__init__(recording)
        self._on_arrival = on_arrival
        self.needed_lines = _kept_lines(self)
        self._texts = [_shortened(place.part.text, kept)
                       for place, kept in zip(self.results, self.needed_lines, strict=True)]  # fmt: skip

    def due_count(self, request: int) -> int:
        """All results, or all but those since the model's last answer."""
        cuts = self.recording.cuts
        if self._on_arrival:
            return results_before(self, cuts[request])
        return results_before(self, cuts[request - 1]) if request else 0

    def replacement(self, result: int) -> str | None:
        """The lines that are used later."""
        return self._texts[result]

    def unused_tokens(self) -> Iterator[tuple[Place, int]]:
        """Each result that can be cut, and the tokens that no later action uses of it."""
        for result, place in enumerate(self.results):
            text = self.replacement(result)
            if text is not None:
                yield place, self.recording.tokens_saved(place.part, text)


def _kept_lines(sender: Replaced) -> list[set[int]]:
    """For each result the numbers of the lines that some later action needed from it."""
    recording = sender.recording
    number_of = {(place.row, place.block): n for n, place in enumerate(sender.results)}
    homes: dict[int, list[int]] = {}  # need -> the results in which it stands
    for source in recording.sources:
        result = number_of.get((source.row, source.block))
        if result is not None:
            for need in source.needs:
                homes.setdefault(need, []).append(result)
    kept: list[set[int]] = [set() for _ in sender.results]
    starts: dict[int, list[int]] = {}
    for request, needed in enumerate(recording.turn_needs):
        before = results_before(sender, recording.cuts[request])
        for need in {*needed.atoms, *needed.lines}:
            at = bisect_right(homes.get(need, ()), before - 1)
            if at:
                result = homes[need][at - 1]
                text = sender.results[result].part.text
                lines = starts.setdefault(result, _line_starts(text))
                found = text.find(recording.finder.needs[need])
                kept[result].add(bisect_right(lines, found) - 1)
    return kept


def _line_starts(text: str) -> list[int]:
    """Where each line of a text begins."""
    lengths = [len(line) for line in text.splitlines(keepends=True)]
    return [0, *accumulate(lengths)][: len(lengths)] or [0]


def _shortened(text: str, kept: set[int]) -> str | None:
    """The lines that are kept, or None when that is no shorter."""
    lines: Sequence[str] = text.splitlines()
    short = "\n".join(lines[number] for number in sorted(kept)) or "-"
    return short if len(short) < len(text) else None
