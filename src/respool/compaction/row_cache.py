"""Row cache: bytes and pieces of a projection that later requests reuse."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from ..edits import Advise, Edit, PlaceBreakpoint, Replace
from ..transcript import Part
from ..wire.base import Piece


class RowChanges(Struct, gc=False):
    """All changes of edits to one row."""

    replaced: tuple[Replace, ...] = ()
    advised: tuple[Advise, ...] = ()
    marked: tuple[PlaceBreakpoint, ...] = ()
    removed: tuple[Part, ...] = ()
    unbound: bool = False


class SettledRows(Struct, frozen=True, kw_only=True):
    """The output of the first rows of a history, until an edit changes one of them."""

    end: int  # the first row after them
    pieces: tuple[Piece, ...]
    changed_sources: frozenset[int]  # source messages among them that do not go out unchanged
    steps: int  # the number of steps read when they were settled
    prefix: bytes  # the hash of the history there
    variable_pieces: dict[int, int]  # rows that are encoded for each request: their pieces' indexes
    lasting: int  # the first row changed by the repair of the end; `end`: none is


class RenderedRows(Struct):
    """Derived values of a projection, shared by all states with the same edits in force."""

    changes: dict[int, RowChanges] | None = None  # by row
    variable_rows: frozenset[int] = frozenset()  # rows among them whose bytes are not cached
    rows_before_removed: frozenset[int] = frozenset()  # rows before one that loses a part
    edits: tuple[Edit, ...] | None = None  # in the order of the history
    edition: int = 0  # a number of these edits alone, in this process
    settled: SettledRows | None = None


class RowCache(Struct):
    """Encoded rows of a projection."""

    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])  # changed rows
    encoded_at_end: dict[int, bytes] = field(default_factory=dict[int, bytes])  # repaired for it
    shared: RenderedRows = field(default_factory=RenderedRows)

    @property
    def edition(self) -> int:
        """The number of the edits in force."""
        return self.shared.edition

    def copy(self) -> RowCache:
        """Return a cache that can change apart from this one."""
        return RowCache(self.encoded.copy(), self.encoded_at_end.copy(), self.shared)

    def forget(self, rows: Collection[int]) -> None:
        """Drop everything that depends on these rows."""
        for row in rows:
            self.encoded.pop(row, None)
            self.encoded_at_end.pop(row, None)
        settled = self.shared.settled
        if settled is not None and min(rows, default=0) < settled.end:
            settled = None
        self.shared = RenderedRows(settled=settled)  # other states share the old one
