"""Parts, exchanges and units: a tool history in any wire format."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

PartKind = Literal["text", "reasoning", "call", "result", "media", "opaque"]
Speaker = Literal["system", "user", "model", "tool"]
BlockPath = tuple[str | int, ...]


class Ref(Struct, frozen=True, gc=False):
    """Position of a part: the row of its message in the repaired history, and the path inside."""

    row: int
    path: BlockPath

    def __str__(self) -> str:
        return f"[{self.row}]" + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path
        )


class Part(Struct, frozen=True, gc=False):
    """One text, reasoning, call, result, media or opaque block."""

    ref: Ref
    kind: PartKind
    speaker: Speaker
    text: str = ""  # its text; for a call its arguments, for a result all its text
    name: str = ""  # the tool's name, where the wire gives it
    id: str = ""  # the call's id on the wire, "" when the wire has none
    error: bool = False  # a result that its sender flags as failed
    signed: bool = False  # has a signature or encrypted content: kept intact or removed
    server: bool = False  # run by the provider itself: its call and result are never edited
    weight: int = 0  # tokens that text does not show: images, documents, encrypted reasoning


class Exchange(Struct, frozen=True, gc=False):
    """A call and its result, by their positions among the parts."""

    ordinal: int  # survives repeated ids
    unit: int  # the unit of its call
    call: int
    result: int | None
    server: bool = False


class Unit(Struct, frozen=True, gc=False):
    """One run of model output and its answers: reasoning, calls and results stay together."""

    rows: tuple[int, int]
    parts: tuple[int, int]
    answers_from: int  # the first part that is not the model's; parts[1] before an answer
    exchanges: tuple[int, ...]
    reasoning: tuple[int, ...]  # parts removed together; empty where reasoning must stay
    locked: bool  # its exchanges can only be removed together


class ReadOnlyTranscript(Protocol):
    """A read-only index of a history: the only view that passes have of it."""

    @property
    def parts(self) -> Sequence[Part]:
        """All parts, in order."""
        ...

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All calls with their results."""
        ...

    @property
    def units(self) -> Sequence[Unit]:
        """All runs of model output with their answers."""
        ...

    @property
    def exchange_of(self) -> Sequence[int]:
        """For each part the exchange it belongs to, or -1."""
        ...

    @property
    def results(self) -> Sequence[int]:
        """The positions of all results."""
        ...

    def call_of(self, result: int) -> Part | None:
        """The call that a result answers."""
        ...


class Transcript(Struct, frozen=True):
    """A frozen index of a history."""

    parts: tuple[Part, ...]
    exchanges: tuple[Exchange, ...]
    units: tuple[Unit, ...]
    exchange_of: tuple[int, ...]  # for each part the exchange it belongs to, or -1
    results: tuple[int, ...]  # the positions of all results

    def call_of(self, result: int) -> Part | None:
        """The call that a result answers."""
        ordinal = self.exchange_of[result]
        return None if ordinal < 0 else self.parts[self.exchanges[ordinal].call]


class TranscriptIndex:
    """Builder of a transcript, unit by unit in one pass; cheap to copy at a boundary."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.exchanges: list[Exchange] = []
        self.units: list[Unit] = []
        self.exchange_of: list[int] = []
        self.results: list[int] = []
        self.first_user = (-1, -1)  # the parts of the first user message; -1: none yet
        self._by_id: dict[str, deque[int]] = {}  # call id -> ordinals still unanswered

    def copy(self) -> TranscriptIndex:
        """An independent copy of this index."""
        copied = TranscriptIndex()
        copied.parts = self.parts.copy()
        copied.exchanges = self.exchanges.copy()
        copied.units = self.units.copy()
        copied.exchange_of = self.exchange_of.copy()
        copied.results = self.results.copy()
        copied.first_user = self.first_user
        copied._by_id = {id: ordinals.copy() for id, ordinals in self._by_id.items()}
        return copied

    def call_of(self, result: int) -> Part | None:
        """The call that a result answers."""
        ordinal = self.exchange_of[result]
        return None if ordinal < 0 else self.parts[self.exchanges[ordinal].call]

    def freeze(self) -> Transcript:
        """The transcript built so far."""
        return Transcript(
            tuple(self.parts),
            tuple(self.exchanges),
            tuple(self.units),
            tuple(self.exchange_of),
            tuple(self.results),
        )

    def add_unit(
        self,
        rows: tuple[int, int],
        model: Iterable[Part],
        answers: Iterable[Part],
        *,
        locked: bool,
        keeps_reasoning: bool = False,
    ) -> Unit:
        """Append one unit's parts and pair its calls with its results."""
        first = len(self.parts)
        ordinals: list[int] = []
        reasoning: list[int] = []
        unpaired: list[int] = []
        for part in model:
            self._add_part(part, ordinals, reasoning, unpaired)
        answered_from = len(self.parts)
        for part in answers:
            self._add_part(part, ordinals, reasoning, unpaired)
        if unpaired:
            self._pair_by_tool(unpaired, ordinals)
        removable = () if keeps_reasoning else tuple(reasoning)
        unit = Unit(
            rows, (first, len(self.parts)), answered_from, tuple(ordinals), removable, locked
        )
        self.units.append(unit)
        if self.first_user[0] < 0:
            self.first_user = self._find_first_user(first)
        return unit

    def _find_first_user(self, start: int) -> tuple[int, int]:
        """The parts of the first user message from this part on."""
        for position in range(start, len(self.parts)):
            if self.parts[position].speaker == "user":
                row, end = self.parts[position].ref.row, position
                while end < len(self.parts) and self.parts[end].ref.row == row:
                    end += 1
                return position, end
        return -1, -1

    def _add_part(
        self, part: Part, ordinals: list[int], reasoning: list[int], unpaired: list[int]
    ) -> None:
        position = len(self.parts)
        self.parts.append(part)
        self.exchange_of.append(-1)
        if part.kind == "call":
            ordinal = len(self.exchanges)
            self.exchanges.append(Exchange(ordinal, len(self.units), position, None, part.server))
            self.exchange_of[position] = ordinal
            if part.id:
                self._by_id.setdefault(part.id, deque()).append(ordinal)
            ordinals.append(ordinal)
        elif part.kind == "result":
            self.results.append(position)
            if not self._pair_by_id(part.id, position):
                unpaired.append(position)
        elif part.kind == "reasoning":
            reasoning.append(position)

    def _pair_by_id(self, id: str, position: int) -> bool:
        """Pair a result with the first open call that has its id."""
        waiting = self._by_id.get(id)
        if waiting is None:
            return False
        ordinal = self._next(waiting, position)
        if not waiting:
            del self._by_id[id]
        return self._pair(ordinal, position)

    def _pair_by_tool(self, unpaired: list[int], ordinals: list[int]) -> None:
        """Pair results that no id matched with the open calls of their tool in this unit, in order.

        A result with the id of a call in this unit is a second answer to it: it stays unpaired.
        """
        ids: set[str] = set()
        open_calls: dict[str, deque[int]] = {}
        for ordinal in ordinals:
            call = self.parts[self.exchanges[ordinal].call]
            ids.add(call.id)
            open_calls.setdefault(_tool_key(call), deque()).append(ordinal)
        for position in unpaired:
            part = self.parts[position]
            if not part.id or part.id not in ids:
                waiting = open_calls.get(_tool_key(part))
                self._pair(self._next(waiting, position), position)

    def _pair(self, ordinal: int | None, position: int) -> bool:
        if ordinal is None:
            return False
        exchange = self.exchanges[ordinal]
        paired = Exchange(ordinal, exchange.unit, exchange.call, position, exchange.server)
        self.exchanges[ordinal] = paired
        self.exchange_of[position] = ordinal
        return True

    def _next(self, waiting: deque[int] | None, position: int) -> int | None:
        """The first unanswered call before this position."""
        while waiting and self.exchanges[waiting[0]].call < position:
            ordinal = waiting.popleft()
            if self.exchanges[ordinal].result is None:
                return ordinal
        return None


def _tool_key(part: Part) -> str:
    return f"{'server' if part.server else 'client'} {part.name}"
