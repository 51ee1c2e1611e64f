"""Edits, the offers that passes make of them, and the parts that an edit touches."""

from __future__ import annotations

from typing import Any, Literal, assert_never, get_args

from msgspec import Struct

from .transcript import ReadOnlyTranscript, Ref

Level = Literal["trim", "stub", "drop"]
LEVELS: tuple[Level, ...] = get_args(Level)
Reason = Literal[
    "over_cap",
    "tidied",
    "identical",
    "contained",
    "repeated_call",
    "superseded",
    "stale",
    "resolved",
    "old_reasoning",
    "whitespace",
    "trimmed",
    "stubbed",
    "folded",
    "shown_before",
    "bound_reasoning",
    "unlikely_needed",
    "over_limit",
    "advised",
    "overwritten",
]
REASONS: tuple[str, ...] = get_args(Reason)  # never renamed; REASON_SPECS describes them
FOLDED = "folded"  # the reason of edits that put a summary of several exchanges in one's place
UNLIKELY_NEEDED = "unlikely_needed"  # the reason of edits that keep the lines that may be needed
ADVISED = "advised"  # the reason of edits that add advice; they are counted apart from savings
SUPERSEDED = "superseded"  # the reason of drops of files that were wholly written again
OVERWRITTEN = "overwritten"  # the reason of drops of writes of which no line is left
STALE = "stale"  # the reason of edits on reads whose file was read or written again
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
    stands_for: tuple[int, ...] = ()  # the exchanges that it summarizes, its own last


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


class PlaceBreakpoint(Struct, frozen=True, tag="place_breakpoint"):
    """Put a cache breakpoint on the block that holds a part."""

    part: int
    ref: Ref
    control: dict[str, Any]  # the value of `cache_control`
    reason: str
    evidence: str
    saved: int = 0


class Advise(Struct, frozen=True, tag="advise"):
    """Put `text` on a line of its own at the end of a result, in addition to other edits."""

    part: int
    ref: Ref
    text: str
    reason: str
    evidence: str
    saved: int  # below zero: what it adds


Edit = Replace | DropExchange | DropReasoning | PlaceBreakpoint | Advise


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


def touched_parts(edit: Edit, transcript: ReadOnlyTranscript) -> tuple[int, ...]:
    """The parts that an edit changes or takes out, the one it is known by first."""
    match edit:
        case Replace() | PlaceBreakpoint() | Advise():
            return (edit.part,)
        case DropReasoning():
            return transcript.units[edit.unit].reasoning
        case DropExchange():
            return exchange_closure(transcript, edit.exchange)
        case _:
            assert_never(edit)


def touched_rows(edit: Edit, transcript: ReadOnlyTranscript) -> set[int]:
    """The rows that an edit can change: a removal may unbind all that its unit's model wrote."""
    rows = {transcript.parts[part].ref.row for part in touched_parts(edit, transcript)}
    if isinstance(edit, DropExchange | DropReasoning):
        unit = transcript.units[
            edit.unit
            if isinstance(edit, DropReasoning)
            else transcript.exchanges[edit.exchange].unit
        ]
        rows.update(range(*unit.rows))
    return rows


def exchange_closure(transcript: ReadOnlyTranscript, exchange: int) -> tuple[int, ...]:
    """All parts that go when this exchange goes: the call, its result, what is bound to them."""
    unit = transcript.units[transcript.exchanges[exchange].unit]
    together = unit.exchanges if unit.locked else (exchange,)
    parts: list[int] = []
    for ordinal in (exchange, *(other for other in together if other != exchange)):
        pair = transcript.exchanges[ordinal]
        parts.append(pair.call)
        if pair.result is not None:
            parts += result_with_media(transcript, pair.result)
    return (*parts, *unit.reasoning)


def result_with_media(transcript: ReadOnlyTranscript, result: int) -> list[int]:
    """A result and the images and documents inside it."""
    parts = transcript.parts
    row, path = parts[result].ref.row, parts[result].ref.path
    depth = len(path)
    found = [result]
    for position in range(result + 1, len(parts)):
        inner = parts[position].ref
        if inner.row != row or inner.path[:depth] != path:
            break
        found.append(position)
    return found


class ReasonSpec(Struct, frozen=True):
    """A reason code in the words of the reference."""

    code: str
    passes: tuple[str, ...]  # that offer edits for this reason
    meaning: str
    example: str  # of the evidence


# Reasons in the words of the reference, which is generated from this table.
REASON_SPECS: tuple[ReasonSpec, ...] = (
    ReasonSpec(
        "tidied",
        ("tidy_results",),
        "A new result lost what no reader misses: escape codes, redrawn lines, repeated lines "
        "(counted), trailing blanks, decoration by tools.",
        "30 chars of escape codes, 29 repeated lines",
    ),
    ReasonSpec(
        "identical",
        ("identical_results",),
        "The result equals an earlier one, which stays. Nothing relevant was written in between.",
        "same as call toolu_01, 1,640 chars",
    ),
    ReasonSpec(
        "contained",
        ("contained_results", "covered_reads"),
        "All lines of this read stand in another read of the same file, which stays.",
        "29 lines are in call toolu_01",
    ),
    ReasonSpec(
        "shown_before",
        ("lines_shown",),
        "A new result lost lines that stand word for word in earlier parts, which stay.",
        "56 lines the same as in the read of src/loom.py above",
    ),
    ReasonSpec(
        "over_cap",
        ("cap_results",),
        "A seen result is longer than its cap. Head and tail stay, and the lines that say why if "
        "the call failed.",
        "48,213 chars, cap 32,000",
    ),
    ReasonSpec(
        "over_limit",
        ("shed_images",),
        "The request would hold more images, larger ones, or more bytes than the provider accepts.",
        "image of 1,204,118 bytes",
    ),
    ReasonSpec(
        "stale",
        ("stale_reads",),
        "The file was shown again, or wholly written, since this read.",
        "read again by call toolu_09, 41 lines",
    ),
    ReasonSpec(
        "superseded",
        ("superseded_writes",),
        "The file was wholly written again. Call and result went together.",
        "/w/a.py was wholly written again by call toolu_09, 3,692 chars",
    ),
    ReasonSpec(
        "overwritten",
        ("superseded_edits",),
        "Later writes of the file wrote each line of this write again, or removed it. A failed "
        "write goes once another one wrote its lines. Call and result went together.",
        "12 lines for /w/a.py were written again or removed, last by call toolu_09",
    ),
    ReasonSpec(
        "resolved",
        ("resolved_errors",),
        "The operation succeeded on the same target since. The line that names the error stays.",
        "resolved by call toolu_09, 88 lines",
    ),
    ReasonSpec(
        "old_reasoning",
        ("old_reasoning",),
        "The reasoning is old, and the provider does not want it back.",
        "1 block, 14 turns ago",
    ),
    ReasonSpec(
        "bound_reasoning",
        (),
        "The reasoning was signed for a prefix that this epoch changed. The planner drops it.",
        "2 blocks signed for what stood before",
    ),
    ReasonSpec(
        "unlikely_needed",
        ("keep_lines",),
        "By the forecast, no later turn is likely to need these lines. Names that stood only there "
        "are listed.",
        "47 of 121 lines, 0.188 turns may miss one",
    ),
    ReasonSpec(
        "trimmed",
        ("trim_results",),
        "An old result was cut to the shape of its kind of content.",
        "log: 98 of 123 lines",
    ),
    ReasonSpec(
        "stubbed",
        ("stub_results",),
        "An old result became one line. Open errors stay.",
        "read, 412 lines",
    ),
    ReasonSpec(
        "folded",
        ("fold_exchanges",),
        "The result of the last call of a batch summarises all of them. The reference leads back "
        "to all.",
        "14 calls told in one result",
    ),
    ReasonSpec(
        "repeated_call",
        ("repeated_calls",),
        "The same call was made before, with nothing written since. Its arguments name the first.",
        "same as call_1, 120 of 212 bytes saved",
    ),
    ReasonSpec(
        "whitespace",
        ("squeeze_prose",),
        "Old assistant text lost needless white space outside code, tables and lists.",
        "34 of 6,084 chars",
    ),
    ReasonSpec(
        "advised",
        (),
        "A line of advice is at the end of the result (setting `advise`). Its tokens are counted "
        "apart.",
        "on Bash",
    ),
)
