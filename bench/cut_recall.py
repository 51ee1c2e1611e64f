"""Cuts in a replayed session by age and kind, and those that a later turn needed.

An age is the number of earlier requests that sent the content: 0 is content the model has not seen
yet. A cut was needed if a later turn used something whose newest copy was in the cut text, and no
copy was left in the request. The newest copy counts, as everywhere in replay: a refetch would bring
back that one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from rich import box
from rich.table import Table

from respool.compaction.state import State
from respool.edits import DropExchange, Edit, PlaceBreakpoint, Replace, touched_parts
from respool.replay.policies import ProjectionSender
from respool.replay.prompt_cache import group_parts
from respool.replay.recording import Recording
from respool.replay.score import PolicyRun
from respool.shapes import classify
from respool.transcript import Part

AGES = ((0, "0"), (2, "1–2"), (5, "3–5"), (10, "6–10"), (20, "11–20"), (10**9, ">20"))
NAMES = tuple(name for _, name in AGES)
ALL = "all"  # the row of all kinds together

# (kind, figure, age) -> count. By the age at the cut: "cuts", "tokens" and "needed";
# by the age at the first need: "missed".
Tally = Counter[tuple[str, str, str]]


class Cut(Struct):
    """One edit that was put in force, with those of its reason that took its place."""

    reason: str
    kind: str  # of what it cut
    age: int  # of that, in the request that first went out without it
    tokens: int = 0  # saved beyond earlier cuts of the same parts
    saved: int = 0  # in all
    needed: int | None = None  # the age at which it was first missed


def age_name(age: int) -> str:
    """The column of an age."""
    return next(name for most, name in AGES if age <= most)


def tally_of(cuts: Sequence[Cut]) -> Tally:
    """Cuts counted by kind and age."""
    tally: Tally = Counter()
    for cut in cuts:
        age = age_name(cut.age)
        tally[cut.kind, "cuts", age] += 1
        tally[cut.kind, "tokens", age] += cut.tokens
        if cut.needed is not None:
            tally[cut.kind, "needed", age] += 1
            tally[cut.kind, "missed", age_name(cut.needed)] += 1
    return tally


class Watched(PolicyRun):
    """A policy run that records its cuts and the needs they removed."""

    def __init__(self, recording: Recording, sender: ProjectionSender) -> None:
        super().__init__(recording, sender)
        self.cuts: list[Cut] = []
        self.unplaced = 0  # needs whose newest copy is in no cut
        self.refused: set[str] = set()  # places of offers that were not taken
        self._projected = sender
        self._request = 0
        self._known: dict[int, Edit] = {}  # the edits in force, by part
        self._owners: dict[int, Cut] = {}  # part -> the cut that took something out of it
        self._places: dict[tuple[int, int], list[int]] = {}  # (row, block) -> its parts
        self._read = 0  # parts recorded in places

    def _record_losses(self, request: int) -> None:
        self._request = request
        folded = self._projected._folded
        assert folded is not None
        self._note_places(folded.state)
        self._note_cuts(folded.state)
        self._note_refusals(folded.state)
        super()._record_losses(request)

    def _lost_sources(self, lost: Sequence[int], cut: int) -> list[int]:
        for need in lost:
            source = self._recording.newest_source(need, cut)
            assert source is not None  # a need always has a source
            self._note_need(source)
        return super()._lost_sources(lost, cut)

    def _note_places(self, state: State) -> None:
        """Find the blocks of the parts that came with this request."""
        parts = state.transcript.parts
        at = self._read
        for row, group in groupby(parts[at:], lambda part: part.ref.row):
            for block, inner in enumerate(group_parts(self._recording.codec, list(group))):
                source = state.repairs.sources[row]
                if source is not None:
                    self._places[source, block] = list(range(at, at + len(inner)))
                at += len(inner)
        self._read = at

    def _note_cuts(self, state: State) -> None:
        new = [edit for at, edit in state.edits.by_part.items() if self._known.get(at) is not edit]
        self._known = dict(state.edits.by_part)
        for edit in new:
            if not isinstance(edit, PlaceBreakpoint):
                self._note_cut(edit, state)

    def _note_cut(self, edit: Edit, state: State) -> None:
        parts = touched_parts(edit, state.transcript)
        before = {id(self._owners[at]): self._owners[at] for at in parts if at in self._owners}
        saved = self._saved(edit, [state.transcript.parts[at] for at in parts])
        more = saved - sum(cut.saved for cut in before.values())
        kind, age = kind_cut(edit, parts[0], state), self._age(state.repairs.sources[edit.ref.row])
        cut = self._owners.get(parts[0])
        if cut is None or (cut.reason, cut.kind) != (edit.reason, kind):
            cut = Cut(edit.reason, kind, age)
            self.cuts.append(cut)
        cut.tokens, cut.saved = cut.tokens + more, saved
        self._owners.update(dict.fromkeys(parts, cut))

    def _saved(self, edit: Edit, parts: Sequence[Part]) -> int:
        """The tokens that an edit saves, counted as the replay counts."""
        if isinstance(edit, Replace):
            return self._recording.tokens_saved(parts[0], edit.text)
        measure, codec = self._recording._measure, self._recording.codec
        return sum(measure(codec, part) for part in parts)

    def _age(self, row: int | None) -> int:
        """In how many requests before this one a row was sent."""
        if row is None:
            return 0
        return self._request - bisect_right(self._recording.cuts, row)

    def _note_refusals(self, state: State) -> None:
        """Note the offers since the last request that were not taken, and ask for the next ones."""
        missed = (one for one in state.evaluation.trace or () if one.outcome == "not taken")
        self.refused.update(str(one.ref) for one in missed)
        state.evaluation.trace = []

    def _note_need(self, source: int) -> None:
        place = self._recording.sources[source]
        owners = self._owners_of(self._places.get((place.row, place.block), ()))
        cut = next(owners, None)
        if cut is None:
            self.unplaced += 1
        elif cut.needed is None:
            cut.needed = self._age(place.row)

    def _owners_of(self, parts: Sequence[int]) -> Iterator[Cut]:
        return (self._owners[at] for at in parts if at in self._owners)


def kind_cut(edit: Edit, position: int, state: State) -> str:
    """Kind of a cut: the part's kind, the call's kind and the result's content type."""
    index = state.transcript
    part, ordinal = index.parts[position], index.exchange_of[position]
    if ordinal < 0:
        return part.kind
    use = state.analysis.ledger.uses[ordinal]
    if part.kind == "call" and not isinstance(edit, DropExchange):
        return f"call: {use.kind}"
    answer = index.exchanges[ordinal].result
    shown = "" if answer is None else f" {classify(index.parts[answer].text, use.content)}"
    whole = "exchange: " if isinstance(edit, DropExchange) else ""
    return f"{whole}{use.kind}{shown}"


def kinds_in(tally: Mapping[tuple[str, str, str], int]) -> list[str]:
    """The kinds in a tally, the most frequent cuts first."""
    cuts: Counter[str] = Counter()
    for (kind, what, _), count in tally.items():
        cuts[kind] += count if what == "cuts" else 0
    return [kind for kind, _ in sorted(cuts.items(), key=lambda one: (-one[1], one[0]))]


def total(tally: Mapping[tuple[str, str, str], int], what: str, kind: str, age: str = ALL) -> int:
    """Sum of a figure for a kind and an age, or for all."""
    return sum(
        count
        for (of, counted, at), count in tally.items()
        if counted == what and kind in (of, ALL) and age in (at, ALL)
    )


def needed_table(title: str, tally: Tally) -> Table:
    """For each kind: cuts, tokens, how many were needed, by age at the cut and at the need."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE)
    shown.add_column("what was cut", no_wrap=True)
    ages = (*(f"cut {age}" for age in NAMES), *(f"need {age}" for age in NAMES))
    for column in ("cuts", "tokens", "needed", "share", *ages):
        shown.add_column(column, justify="right", no_wrap=True)
    for kind in (*kinds_in(tally), ALL):
        shown.add_row(*needed_row(tally, kind), end_section=kind == kinds_in(tally)[-1])
    return shown


def needed_row(tally: Tally, kind: str) -> list[str]:
    """One kind: the needed of those cut at each age as 1/3, then those first missed at it."""
    cuts, needed = total(tally, "cuts", kind), total(tally, "needed", kind)
    tokens, share = total(tally, "tokens", kind), f"{100 * needed / max(1, cuts):.0f} %"
    row = [kind, f"{cuts:,}", f"{tokens:,}", str(needed), share]
    for age in NAMES:
        some = total(tally, "cuts", kind, age)
        row.append(f"{total(tally, 'needed', kind, age)}/{some}" if some else "")
    return row + [str(total(tally, "missed", kind, age) or "") for age in NAMES]


def needed_rows(tally: Tally) -> list[dict[str, Any]]:
    """The tally as plain values, to compare two runs."""
    rows: list[dict[str, Any]] = []
    for kind in (*kinds_in(tally), ALL):
        row: dict[str, Any] = {"kind": kind}
        for what in ("cuts", "tokens", "needed", "missed"):
            row[what] = total(tally, what, kind)
            row[f"{what} by age"] = {age: total(tally, what, kind, age) for age in NAMES}
        rows.append(row)
    return rows


MAX_KINDS = 7  # per pass; the rest is one row
REST = "the rest"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def coded(name: str) -> str:
    """A pass by its name as code; that its offers are taken goes without saying."""
    name, comma, setting = name.removesuffix(", taken").partition(", ")
    return f"`{name}`{comma}{setting and f'`{setting}`'}" if name != "defaults" else name


def needed_markdown(tallies: Mapping[str, Tally]) -> str:
    """A row for each pass and kind."""
    ages = [f"at {age}" for age in NAMES]
    columns = ("pass", "what was cut", "cuts", "tokens", "needed", *ages, "first missed at")
    rows = (row for name, tally in tallies.items() if tally for row in _rows(name, tally))
    return markdown(columns, rows)


def _rows(name: str, tally: Tally) -> Iterator[list[str]]:
    tally = merged(tally)
    kinds = sorted(kinds_in(tally), key=REST.__eq__)  # the rest comes last
    for at, kind in enumerate((*kinds, ALL) if len(kinds) > 1 else kinds):
        cuts, needed = total(tally, "cuts", kind), total(tally, "needed", kind)
        share = f"{100 * needed / cuts:.0f} %" if needed else "0"
        tokens = f"{total(tally, 'tokens', kind):,}"
        told = [_at(tally, kind, age) for age in NAMES]
        first = "" if at else coded(name)
        yield [first, kind, f"{cuts:,}", tokens, share, *told, _missed(tally, kind)]


def merged(tally: Tally) -> Tally:
    """The same with all but the most frequent kinds in one."""
    kinds = kinds_in(tally)
    kept = set(kinds if len(kinds) <= MAX_KINDS + 1 else kinds[:MAX_KINDS])
    found: Tally = Counter()
    for (kind, what, age), count in tally.items():
        found[kind if kind in kept else REST, what, age] += count
    return found


def _at(tally: Tally, kind: str, age: str) -> str:
    cuts = total(tally, "cuts", kind, age)
    return f"{total(tally, 'needed', kind, age)}/{cuts}" if cuts else ""


def _missed(tally: Tally, kind: str) -> str:
    counts = ((age, total(tally, "missed", kind, age)) for age in NAMES)
    return ", ".join(f"{age}: {count}" for age, count in counts if count)
