"""What a repair consists of: rows that replace a step's messages, and what was done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from ..check.rules import Seen, Step
from ..codecs.codec import Fields
from ..codecs.json_tree import JSON


class Repair(Struct, frozen=True, gc=False):
    """One change that repair made: the rule it serves, the place in the source, what was done."""

    code: str
    place: str
    done: str

    def with_source_place(self, sources: Sequence[int | None]) -> Repair:
        """The repair of a row, with the place that this row has in the source.

        One that was put in has the place of the row before it.
        """
        history, _, rest = self.place.partition("[")
        number, _, inside = rest.partition("]")
        row = int(number)
        while row and sources[row] is None:
            row -= 1
        return Repair(self.code, f"{history}[{sources[row] or 0}]{inside}", self.done)


class Row(Struct, frozen=True):
    """A message of the repaired history and the source message it comes from (None: inserted)."""

    message: JSON
    source: int | None


class Mended(Struct, frozen=True):
    """A step after repair. A row whose message is the source's own object is untouched."""

    rows: list[Row]
    repairs: list[Repair]


class Ending(Struct, frozen=True):
    """What the end of the history needs: rows changed, and messages put behind a row."""

    changes: dict[int, JSON] = field(default_factory=dict[int, JSON])
    inserts: dict[int, list[JSON]] = field(default_factory=dict[int, list[JSON]])
    repairs: list[Repair] = field(default_factory=list[Repair])
    # Rows that every request changes in the same way, as long as it does the first of them; in
    # their order, each made when asked for.
    recurring_changes: Mapping[int, JSON] = field(default_factory=dict[int, JSON])

    def changed_rows(self) -> set[int]:
        """All rows that are changed."""
        return self.changes.keys() | self.recurring_changes.keys()

    def message(self, row: int) -> JSON:
        """A changed row as it goes out."""
        return self.changes[row] if row in self.changes else self.recurring_changes[row]


class Mender(Protocol):
    """The smallest change that makes one provider accept a history.

    Whatever is made up (ids, stand-in results) depends only on the history before it, so the same
    history is mended the same way every time.
    """

    def repair_step(self, step: Step, state: Seen, fields: Fields | None) -> Mended | None:
        """The mended step, or None when the provider would accept it as it is."""
        ...

    def repair_end(
        self, state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> Ending | None:
        """What only the end of the history needs; `count` is the number of rows."""
        ...

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> Ending | None:
        """What the number and order of cache marks need; `marked` are the rows that hold any."""
        ...
