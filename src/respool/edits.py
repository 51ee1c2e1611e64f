"""The closed set of edits, and the offers that passes make of them."""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct

from .transcript import Ref

Level = Literal["trim", "stub", "drop"]
LEVELS: tuple[Level, ...] = get_args(Level)
Reason = Literal[
    "over_cap", "tidied", "identical", "contained", "repeated_call", "superseded", "stale",
    "resolved", "old_reasoning", "blanks", "trimmed", "stubbed", "folded", "shown_before",
    "bound_reasoning", "unlikely_needed", "over_limit", "advised",
]  # fmt: skip
REASONS: tuple[str, ...] = get_args(Reason)  # documented in docs/reasons.md, never renamed
FOLDED = "folded"  # the reason of edits that put a summary of several exchanges in one's place
KEPT_LINES = "unlikely_needed"  # the reason of edits that keep the lines that may be needed
ADVISED = "advised"  # the reason of edits that add advice; they are counted apart from savings
TIDIED = "tidied"  # the reason of edits that take out only what no reader misses


class Replace(Struct, frozen=True, tag="replace", omit_defaults=True):
    """Put `text` in place of what a part says; its original is kept under `original`.

    Where it stands for whole exchanges, that original is the record of them all.
    """

    part: int
    ref: Ref
    text: str
    original: str  # the content hash that the marker in `text` names
    reason: str
    evidence: str
    saved: int
    stands_for: tuple[int, ...] = ()  # the exchanges that it tells of, this one's own the last


class DropExchange(Struct, frozen=True, tag="drop_exchange"):
    """Take out a call and its result, with the reasoning bound to them."""

    exchange: int
    ref: Ref
    reason: str
    evidence: str
    saved: int


class DropReasoning(Struct, frozen=True, tag="drop_reasoning"):
    """Take out all the reasoning of one unit."""

    unit: int
    ref: Ref
    reason: str
    evidence: str
    saved: int


class PlaceMark(Struct, frozen=True, tag="place_mark"):
    """Put a cache mark on the block that holds a part."""

    part: int
    ref: Ref
    mark: dict[str, Any]
    reason: str
    evidence: str
    saved: int = 0


class Advise(Struct, frozen=True, tag="advise"):
    """Put `text` on a line of its own at the end of a result, whatever else that says."""

    part: int
    ref: Ref
    text: str
    reason: str
    evidence: str
    saved: int  # below zero: what it adds


Edit = Replace | DropExchange | DropReasoning | PlaceMark | Advise


class Offer(Struct, frozen=True):
    """An edit that a pass holds possible: how deep it cuts, and which other parts it relies on."""

    level: Level
    edit: Edit
    depends_on: tuple[int, ...] = ()  # parts that must stay whole for this edit to be honest
    also: tuple[Edit, ...] = ()  # edits that make sense only together with this one

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits of the offer."""
        return (self.edit, *self.also)

    @property
    def saved(self) -> int:
        """The tokens that all of them save."""
        return sum(edit.saved for edit in self.edits)
