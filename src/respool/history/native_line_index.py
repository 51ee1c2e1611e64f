"""Index of the lines in results and writes in native code, with the results of `LineIndex`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..accelerator import accelerator
from ..transcript import Part
from .line_index import MIN_TEXT_CHARS, LineIndex, LineRun, part_text


class NativeLineIndex(LineIndex):
    """The same index, held by the native library, which keeps no texts."""

    def __init__(self, library: Any) -> None:
        from ..native_library import NativeLines  # lazily: ctypes is slow to import

        super().__init__()
        self._index = NativeLines(library)

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory."""
        return self._index.size_bytes

    def extend(self, parts: Iterable[tuple[int, Part]]) -> None:
        """Index the lines of these parts, which come in history order."""
        for position, part in parts:
            text = part_text(part)
            if len(text) >= MIN_TEXT_CHARS:
                self._index.add(position, text)

    def can_occur_before(self, position: int, part: Part) -> bool:
        """Check whether an earlier part may contain a line of this part, by hash."""
        return self._index.can_occur_before(position, part_text(part))

    def runs(
        self,
        text: str,
        at: int,
        end: int,
        *,
        before: int,
        exact: bool,
        min_lines_of: Callable[[int], int],
        max_sources: int,
    ) -> Iterator[LineRun]:
        """The runs of lines of a text that parts before a position have, greedily."""
        lines = self._index.parse(text)
        min_lines: dict[int, int] = {}
        sources: set[int] = set()
        while at < end:
            is_full = len(sources) == max_sources
            known = {one: min_lines[one] for one in sources} if is_full else min_lines
            outcome, first, stop, source = self._index.next_run(
                lines,
                at,
                end,
                before=before,
                exact=exact,
                min_lines=known,
                is_restricted=is_full,
            )
            if not outcome:
                return
            at = first
            if outcome == _RUN:
                yield first, stop, source
                sources.add(source)
                at = stop
            else:
                min_lines[source] = min_lines_of(source)


_RUN = 1  # an outcome of a search


def make_line_index() -> LineIndex:
    """A new index: in native code where that is installed."""
    library = accelerator().library
    return LineIndex() if library is None else NativeLineIndex(library)
