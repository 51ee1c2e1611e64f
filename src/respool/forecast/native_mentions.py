"""Index of identifiers and lines in native code, with the results of `Mentions`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from ..accelerator import FlatFactors, IndexedState, Selection, accelerator
from .line_codes import RemovedLines, ResultState, ResultWords
from .mentions import Mentions

_BY_CALL, _BY_TALK = 1, 2  # uses of a line


class NativeMentions(Mentions):
    """The same index, held by the native library; its words cannot be looked at from Python."""

    def __init__(self, library: Any) -> None:
        from ..native_library import NativeIndex  # lazily: ctypes is slow to import

        super().__init__()
        del self.word_index, self.used, self._numbers  # what the library holds in their place
        self._index = NativeIndex(library)
        self._states: dict[int, IndexedState] = {}  # by result number, as of its last refresh
        self._lines = 0

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory."""
        with self.lock:
            held = self._index.size_bytes
        return held + self.recent.size_bytes + self._bytes_remembered(self._lines)

    def release(self, positions: Iterable[int]) -> None:
        """Let go of what is cached of results at these positions: they were taken out."""
        taken = list(positions)
        super().release(taken)
        for words in filter(None, map(self.results.get, taken)):
            self._states.pop(words.number, None)

    def last_mention(self, path: str) -> int:
        """The last unit in which a call or message named a file, by path or name; -1 if none."""
        with self.lock:
            return self._index.last_mention(path.rpartition("/")[2])

    def owned(self, words: ResultWords) -> tuple[ResultState, bool]:
        """The state of a result, and whether a line's unique words changed."""
        with self.lock:
            state = self._states[words.number] = self._index.refresh(words.number)
        found = self._owned.get(words.number)
        if found is None:
            found = self._owned[words.number] = ResultState()
        return found, state.changed

    def unique_bins_of(self, words: ResultWords) -> tuple[int, int]:
        """The share of a result that occurs nowhere else: lines, and names, in bins."""
        state = self._states[words.number]
        return state.share, state.names

    def stamp_of(self, words: ResultWords) -> tuple[int, int]:
        """The numbers of a result's lines that calls and messages used."""
        state = self._states[words.number]
        return state.calls, state.talk

    def uses_of(self, words: ResultWords) -> tuple[int, int]:
        """The number of units in which a call used something new of a result, and the last."""
        state = self._states[words.number]
        return state.uses, state.last_use

    def codes_of(self, words: ResultWords) -> array[int]:
        """The codes of a result's lines."""
        with self.lock:
            return self._index.codes(words.number)[0]

    def used_lines_of(self, words: ResultWords) -> tuple[set[int], set[int]]:
        """The lines of a result that calls used, and those that messages used."""
        with self.lock:
            used = self._index.codes(words.number)[1]
        calls = {line for line, how in enumerate(used) if how & _BY_CALL}
        return calls, {line for line, how in enumerate(used) if how & _BY_TALK}

    def line_shares(
        self, words: ResultWords, whole: FlatFactors, names: FlatFactors
    ) -> tuple[array[float], array[float]]:
        """The factors of a result's lines: for lines as such, and for names."""
        with self.lock:
            return self._index.line_shares(words.number, words.formats, whole=whole, names=names)

    def removed_sums(
        self, whole: Sequence[float], names: Sequence[float], missing: RemovedLines
    ) -> tuple[float, float, float, float]:
        """The sums of removed lines' factors, as such and for names; the largest of all lines."""
        return self._index.removed_sums(whole, names, missing.lines)

    def select_lines(self, words: ResultWords, text: str, **asked: Any) -> Selection | None:
        """Select the lines of a result to keep; None if all stay."""
        with self.lock:
            return self._index.select_lines(words.number, text, words.formats, **asked)

    def _missing(self, words: ResultWords, original: str, text: str) -> RemovedLines:
        with self.lock:
            return RemovedLines(hash(text), self._index.missing(words.number, original, text))

    def _note_result(self, position: int, text: str, unit: int) -> None:
        number, formats = self._index.note_result(text, unit)
        self.results[position] = ResultWords(
            number=number, unit=unit, first=self._lines, formats=formats
        )
        self._lines += len(formats)

    def _take_up(self, text: str, unit: int, *, called: bool) -> None:
        self.late_uses = self._index.take_up(text, unit, called=called)


def make_mentions() -> Mentions:
    """A new index: in native code where that is installed."""
    library = accelerator().library
    return Mentions() if library is None else NativeMentions(library)
