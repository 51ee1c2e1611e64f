"""Needs of later turns per result and line, with the features known before. Needs numpy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from respool.forecast.features import (
    AGES,
    RESULT_FEATURES,
    ResultFeatures,
    bin_of,
    result_features,
)
from respool.forecast.line_codes import LINE_FORMATS, UNIQUE_BINS
from respool.forecast.line_parts import SplitText, split_lines
from respool.forecast.mentions import Mentions
from respool.history.ledger import Ledger
from respool.providers.base import split_steps
from respool.replay.policies import ReplacingSender, ResultLocation
from respool.replay.recording import Recording
from respool.tools import Tools
from respool.transcript import Part, TranscriptIndex

LEAST = 200  # characters; shorter results are never cut
USES_SHAPE = (2, len(RESULT_FEATURES["kind"]), len(AGES))  # exposures and uses
UNNEEDED = 0.08  # of the lines that nobody needs, this share is enough
_UNIQUE = np.array(UNIQUE_BINS, np.int8)
_FORMATS = np.array(LINE_FORMATS, np.int8)


class Walk:
    """A session read unit by unit, with the features at the end of the last one."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.index, self.ledger, self.mentions = TranscriptIndex(), Ledger(), Mentions()
        self._steps = list(split_steps(recording.codec, recording.session.messages))
        self._tools = Tools()
        self._noted = 0

    @property
    def transcript(self) -> TranscriptIndex:
        """The history so far."""
        return self.index

    def until(self, row: int) -> None:
        """Read on up to a row."""
        while len(self.index.units) < len(self._steps):
            step = self._steps[len(self.index.units)]
            if step.at + len(step.messages) > row:
                return
            codec, model, answers = self.recording.codec, list[Part](), list[Part]()
            for at, message in enumerate(step.messages, step.at):
                made = codec.is_model_made(message)
                (model if made else answers).extend(codec.decode(at, message))
            rows = (step.at, step.at + len(step.messages))
            self.index.add_unit(rows, model, answers, locked=False)
            self.mentions.extend(self.index.units, self.index.parts, len(self.index.units) - 1)
            exchanges = self.index.exchanges
            new = exchanges[self._noted :]
            self.ledger.extend(
                self._noted,
                exchanges=new,
                parts=self.index.parts,
                tools=self._tools,
                definitions={},
            )
            self._noted = len(exchanges)

    def aged(self) -> Iterator[tuple[int, int]]:
        """The results that just came, or whose age is a power of two, by number and position."""
        now = len(self.index.units) - 1
        for number, position in enumerate(self.own_results()):
            age = now - self.mentions.results[position].unit
            if age & (age - 1) == 0:
                yield number, position

    def own_results(self) -> list[int]:
        """The results of tools that the client ran, as the replay numbers them."""
        return [at for at in self.index.results if not self.index.parts[at].server]


class _AsPlaced(ReplacingSender):
    """A sender that replaces nothing, for the locations of a session's results."""

    def due_count(self, request: int) -> int:
        return 0

    def replacement(self, result: int) -> str | None:
        return None


def result_locations(recording: Recording) -> Sequence[ResultLocation]:
    """The results of a session."""
    return _AsPlaced(recording).results


class Need(Struct, frozen=True):
    """Needs of one turn from one result: whole lines, and lines with names."""

    request: int
    whole: frozenset[int]
    named: frozenset[int]


def needs_of(recording: Recording, results: Sequence[ResultLocation]) -> list[list[Need]]:
    """For each result the turns that needed something of which it was the newest source.

    What a call or a talk before says too does not count: that stays.
    """
    number_of = {(place.row, place.block): n for n, place in enumerate(results)}
    homes: dict[int, list[int]] = {}
    stays: dict[int, int] = {}
    for source in recording.sources:
        number = number_of.get((source.row, source.block))
        for need in source.needs:
            if number is None:
                stays.setdefault(need, source.row)
            else:
                homes.setdefault(need, []).append(number)
    rows = [place.row for place in results]
    found: list[list[Need]] = [[] for _ in results]
    starts = [SplitText(place.part.text).starts for place in results]
    for request, needed in enumerate(recording.turn_needs):
        cut = recording.cuts[request]
        before = bisect_left(rows, cut)
        lines: dict[int, tuple[set[int], set[int]]] = {}
        for need in {*needed.atoms, *needed.lines}:
            at = bisect_right(homes.get(need, ()), before - 1)
            if not at or stays.get(need, cut) < cut:
                continue
            result = homes[need][at - 1]
            place = results[result].part.text.find(recording.finder.needs[need])
            line = bisect_right(starts[result], max(0, place)) - 1
            lines.setdefault(result, (set(), set()))[need not in needed.lines].add(line)
        for result, (whole, named) in lines.items():
            found[result].append(Need(request, frozenset(whole), frozenset(named - whole)))
    return found


class UseHistory:
    """Calls that used something of a result, and the requests in which they could have."""

    def __init__(self) -> None:
        self._kinds: dict[int, int] = {}  # by position
        self._exposed = np.zeros(USES_SHAPE)  # results by kind and age, summed over requests

    def learn(self, position: int, kind: int) -> None:
        """Learn the kind of a result."""
        self._kinds[position] = kind

    def end_request(self, walk: Walk) -> None:
        """Add one request to the exposure of each result."""
        now = len(walk.index.units) - 1
        for position, kind in self._kinds.items():
            age = now - walk.mentions.results[position].unit
            self._exposed[0, kind, bin_of(AGES, age)] += 1

    def so_far(self, walk: Walk) -> np.ndarray:
        """Exposures and uses so far, by kind and age."""
        found = self._exposed.copy()
        for position, kind in self._kinds.items():
            words = walk.mentions.results[position]
            for unit in walk.mentions.mentions_of(words).units:
                found[1, kind, bin_of(AGES, unit - words.unit)] += 1
        return found


class ResultRow(Struct, frozen=True):
    """One result at one request: its features, and the later turns that needed something of it."""

    known: ResultFeatures
    text: str
    needs: Sequence[Need]
    moment: int  # number of the moment in the session


def rows_of(
    recording: Recording, results: Sequence[ResultLocation], moments: list[np.ndarray]
) -> Iterator[ResultRow]:
    """Every result of a session, when it comes and at each age that is a power of two.

    `moments` receives the uses of results before each request.
    """
    needs = needs_of(recording, results)
    walk, uses = Walk(recording), UseHistory()
    for request, cut in enumerate(recording.cuts):
        walk.until(cut)
        moments.append(uses.so_far(walk))
        for number, position in walk.aged():
            text = walk.index.parts[position].text
            if len(text) < LEAST:
                continue
            found = result_features(position, walk.index, walk.ledger, walk.mentions)
            if found is not None:
                uses.learn(position, found.bins[0])
                later = [need for need in needs[number] if need.request >= request]
                yield ResultRow(found, text, later, len(moments) - 1)
        uses.end_request(walk)


class Lines(Struct, frozen=True):
    """Lines of results at some moment, and the later turns that needed them, as columns."""

    bins: np.ndarray  # features of the result, then of the line
    turns: np.ndarray  # turns that needed the line as such, and a name only there
    weight: np.ndarray  # lines that each stands for
    size: np.ndarray  # characters
    moment: np.ndarray  # number of the moment, within the file

    def only(self, rows: np.ndarray) -> Lines:
        """Some of them."""
        return Lines(*(getattr(self, name)[rows] for name in Lines.__struct_fields__))


def join(tables: Sequence[Lines]) -> Lines:
    """All lines of some tables."""
    fields = Lines.__struct_fields__
    return Lines(*(np.concatenate([getattr(one, name) for one in tables]) for name in fields))


def sampled_lines(row: ResultRow, rng: np.random.Generator) -> Lines:
    """All lines of a result that were needed, and some of the others."""
    lines = row.known.line_bins
    turns = np.zeros((len(lines.formats), 2), np.float32)
    for column, whole in enumerate((True, False)):
        for line, share in _shares(row.needs, whole).items():
            turns[line, column] = share
    needed = turns.sum(axis=1) > 0
    at = np.flatnonzero(needed | (rng.random(len(needed)) < UNNEEDED))
    formats = np.frombuffer(lines.formats, np.uint8)[at]
    near = (lines.used, lines.mentioned, lines.discussed, lines.places)
    columns = (
        np.broadcast_to(np.array(row.known.bins, np.int8), (len(at), len(row.known.bins))),
        _UNIQUE[np.frombuffer(lines.unique, np.uint16)[at]],
        *(np.frombuffer(one, np.int8)[at, None] for one in near),
        _FORMATS[formats],
    )
    sizes = np.array([len(line) + 1 for line in split_lines(row.text)], np.int32)[at]
    weight = np.where(needed[at], 1.0, 1 / UNNEEDED).astype(np.float32)
    moments = np.full(len(at), row.moment, np.int32)
    return Lines(np.concatenate(columns, axis=1), turns[at], weight, sizes, moments)


def _shares(needs: Sequence[Need], whole: bool) -> dict[int, float]:
    """The turns by line: each is shared by all lines that it needed of this result."""
    shares: dict[int, float] = {}
    for need in needs:
        each = 1 / (len(need.whole) + len(need.named))
        for line in need.whole if whole else need.named:
            shares[line] = shares.get(line, 0) + each
    return shares


def call_rows(recording: Recording) -> Iterator[tuple[str, int, int, float]]:
    """Every call at each such age: its kind, age, lines, and the later turns that needed it."""
    last: dict[int, list[int]] = {}  # source -> the requests that had something only from there
    for request, needed in enumerate(recording.turn_needs):
        cut = recording.cuts[request]
        for source in {
            recording.newest_source(need, cut) for need in {*needed.atoms, *needed.lines}
        }:
            if source is not None:
                last.setdefault(source, []).append(request)
    walk = Walk(recording)
    walk.until(len(recording.rows))
    calls = {part.id: at for at, part in enumerate(walk.index.parts) if part.kind == "call"}
    for number, source in enumerate(recording.sources):
        block = recording.rows[source.row].blocks[source.block]
        at = calls.get(block.call_id) if block.kind == "call" else None
        if at is None or len(block.text) < LEAST:
            continue
        kind = walk.ledger.uses[walk.index.exchange_of[at]].kind
        first = bisect_right(recording.cuts, source.row)
        age = 0
        while first + age < len(recording.cuts):
            later = sum(request >= first + age for request in last.get(number, ()))
            yield kind, age, block.text.count("\n"), later
            age = 2 * age or 1
