"""A session made ready for replay: read once, whatever the policies are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..codecs.codec import Codec
from ..codecs.formats import CODECS
from ..codecs.json_tree import JSON
from ..prices import Terms
from ..sessions.session import Session
from ..transcript import Part
from .caches import NOTHING, Found
from .needs import Finder, needs_in
from .reading import HOUR, Measure, Row, read_row, with_mark

_WIDTH = 100  # characters of a call that are told


class Conditions(Struct, frozen=True):
    """What a session's requests were sent under."""

    terms: Terms
    head: int  # tokens of system prompt and tools
    lifetime: float = 0  # seconds that the client's cache marks ask for; 0: it sets none
    window: int | None = None
    warm: Found = NOTHING  # what the first request finds in the cache
    prices: Mapping[str, float | None] = {}  # of other models, as in terms; None: none is listed

    @property
    def write(self) -> float:
        """What a written token costs, for as long as the client asks for."""
        return self.terms.write_1h if self.lifetime == HOUR else self.terms.write

    @property
    def cold_after(self) -> float:
        """Seconds after which a cache has gone cold, as a proxy would take it."""
        marked = self.terms.cache == "marks" and self.lifetime > 0
        return self.lifetime if marked else self.terms.gone

    def dollars(self, cost: float, model: str | None) -> float | None:
        """What so many tokens of plain input come to in dollars, for the model they went to."""
        dollars = self.terms.dollars and self.prices.get(model or "", self.terms.dollars)
        return None if dollars is None else cost * dollars / 1e6


class Needed(Struct, frozen=True, gc=False):
    """What the turn after one request needed and its history held, by number."""

    atoms: tuple[int, ...]
    lines: tuple[int, ...]


class Source(Struct, frozen=True, gc=False):
    """A block of the history, as a place where needs stood."""

    row: int
    block: int
    needs: frozenset[int]


class Recording:
    """A session's rows, its requests as they were sent, and what each next turn needed."""

    def __init__(self, session: Session, measure: Measure, conditions: Conditions) -> None:
        self.session = session
        self.codec: Codec = CODECS[session.format]
        self.conditions = conditions
        self._measure = measure
        self._row_cache: dict[int, Row] = {}
        self._need_cache: dict[int, frozenset[int]] = {}
        self.rows = [self.row(message) for message in session.messages]
        self.cuts = [sent.cut for sent in session.requests]
        turns = [self._extract_turn_needs(number) for number in range(len(self.cuts))]
        self.finder = Finder({need for atoms, lines in turns for need in atoms | lines})
        self.sources = self._find_sources()
        self.sources_by_need = self._index_sources()
        self.turn_needs = [self._available_needs(number, *turn) for number, turn in enumerate(turns)]
        self._call_blocks = {
            block.call_id: block for row in self.rows for block in row.blocks if block.kind == "call"
        }
        self.last_messages = [self._with_client_breakpoint(cut) for cut in self.cuts]  # each request's last message

    def row(self, message: JSON) -> Row:
        """A message's row, read once as long as the recording lives."""
        known = self._row_cache.get(id(message))
        if known is None:
            known = self._row_cache[id(message)] = read_row(self.codec, message, self._measure)
        return known

    def needs_in_row(self, row: Row) -> frozenset[int]:
        """The needs that stand in a row."""
        known = self._need_cache.get(id(row.message))
        if known is None:
            found = self.finder.find("\n".join(block.text for block in row.blocks))
            known = self._need_cache[id(row.message)] = frozenset(found)
        return known

    def tokens_saved(self, part: Part, text: str) -> int:
        """The tokens that a part saves when it says `text`."""
        shorter = replace(part, text=text)
        return self._measure(self.codec, part) - self._measure(self.codec, shorter)

    def request(self, number: int) -> list[JSON]:
        """The messages of one request, as the client sent them."""
        cut = self.cuts[number]
        return [*self.session.messages[: cut - 1], self.last_messages[number]]

    def newest_source(self, need: int, before: int) -> int | None:
        """The newest block before a row in which a need stands, by its number among the sources."""
        homes = self.sources_by_need.get(need, ())
        at = bisect_left(homes, self._first_source(before))
        return homes[at - 1] if at else None

    def _first_source(self, row: int) -> int:
        return self._source_starts[row]

    def _with_client_breakpoint(self, cut: int) -> JSON:
        """The last message before a cut, with the mark that the client sets."""
        message = self.session.messages[cut - 1]
        lifetime = self.conditions.lifetime
        if self.session.format != "anthropic" or not lifetime:
            return message
        marked = with_mark(message, lifetime)
        plain = self.row(message)
        if marked is not message and plain.blocks:
            self._row_cache[id(marked)] = plain.with_breakpoint(marked, lifetime)
            self._need_cache[id(marked)] = self.needs_in_row(plain)
        return marked

    def _extract_turn_needs(self, number: int) -> tuple[set[str], set[str]]:
        """What the calls after one request were made of."""
        end = self.cuts[number + 1] if number + 1 < len(self.cuts) else len(self.rows)
        atoms: set[str] = set()
        lines: set[str] = set()
        for row in self.rows[self.cuts[number] : end]:
            for block in row.blocks:
                if block.kind == "call":
                    more = needs_in(block.text)
                    atoms |= more[0]
                    lines |= more[1]
        return atoms, lines

    def _find_sources(self) -> list[Source]:
        sources: list[Source] = []
        self._source_starts: list[int] = []
        for at, row in enumerate(self.rows):
            self._source_starts.append(len(sources))
            found = [frozenset(self.finder.find(block.text)) for block in row.blocks]
            sources += [Source(at, number, carries) for number, carries in enumerate(found)]
            self._need_cache[id(row.message)] = frozenset().union(*found)
        self._source_starts.append(len(sources))
        return sources

    def _index_sources(self) -> dict[int, Sequence[int]]:
        """For each need the sources in which it stands, in order."""
        homes: dict[int, list[int]] = {}
        for number, source in enumerate(self.sources):
            for need in source.needs:
                homes.setdefault(need, []).append(number)
        return dict(homes)

    def _available_needs(self, number: int, atoms: set[str], lines: set[str]) -> Needed:
        """Of what a turn needed, all that stood in the history before it."""
        cut = self.cuts[number]
        known = self.need_numbers
        return Needed(
            tuple(n for n in sorted(known[a] for a in atoms) if self.newest_source(n, cut) is not None),
            tuple(n for n in sorted(known[a] for a in lines) if self.newest_source(n, cut) is not None),
        )

    @property
    def need_numbers(self) -> dict[str, int]:
        """The number of each need."""
        return self.finder.numbers

    def describe_source(self, source: int) -> str:
        """A block of the history for a person: the tool and what it was called on, clipped."""
        place = self.sources[source]
        block = self.rows[place.row].blocks[place.block]
        if block.kind not in ("call", "result"):
            return f"{block.kind} in message {place.row}"
        called = self._call_blocks.get(block.call_id, block)
        what = " ".join(called.text.split())
        return f"{what[:_WIDTH]} ({block.kind}, message {place.row})"
