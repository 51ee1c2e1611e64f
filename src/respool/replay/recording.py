"""A session prepared for replay: rows, billing conditions, and needs of each next turn."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ahocorasick_rs import AhoCorasick
from msgspec import Struct
from msgspec.structs import replace

from ..pricing import CacheTerms, priced, terms_for
from ..providers.base import Codec
from ..providers.registry import PROVIDERS
from ..regex import lazy_compile
from ..sessions.session import RecordedRequest, RecordedSession
from ..tokens import replace_surrogates
from ..transcript import Part, Ref
from ..wire.base import wire_format
from ..wire.json import JSON
from .prompt_cache import (
    HOUR,
    MINUTES,
    NO_WARM_PREFIX,
    MessageRow,
    TokenMeasure,
    WarmPrefix,
    read_row,
    with_breakpoint,
)

_ATOM = lazy_compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_IDENTIFIER = lazy_compile(r"[_./:@\\-]|\d|[a-z][A-Z]")
_MIN_ATOM_CHARS = 5
_MIN_LINE_CHARS = 16
_CHUNK_CHARS = 65_536  # characters searched at once, to bound the memory of matches

_MAX_LABEL_CHARS = 100  # characters of a call in a description
# Tokens of system prompt and tools if they are not recorded: the median that reported usage shows
# for other sessions of the agent (110 sessions, 26,900 to 42,400 for eight in
# ten of them; 19 sessions, 9,600 to 11,600).
DEFAULT_HEAD_TOKENS = {"claude-code": 31_800, "codex": 9_800}
_WRITE_FIELDS = ("cache_write", "cache_write_1h")
_HOUR_CACHE_AGENTS = ("claude-code",)  # agents that ask for an hour where nothing else is known


def extract_needs(call_text: str) -> tuple[set[str], set[str]]:
    """The identifiers (names, paths, numbers; not plain words) and the lines of a call."""
    _, _, arguments = call_text.partition("\n")
    atoms = {atom.strip(".:/-") for atom in _ATOM.findall(arguments)}
    lines = {line.strip() for line in arguments.splitlines()}
    return (
        {atom for atom in atoms if len(atom) >= _MIN_ATOM_CHARS and _IDENTIFIER.search(atom)},
        {line for line in lines if len(line) >= _MIN_LINE_CHARS},
    )


class NeedFinder:
    """Finds all of a session's needs in a text at one go."""

    def __init__(self, needs: Iterable[str]) -> None:
        self.needs = sorted(needs)
        self.numbers = {need: number for number, need in enumerate(self.needs)}
        self._max_length = max(map(len, self.needs), default=0)
        spelled = [_encodable(need) for need in self.needs]
        self._automaton = AhoCorasick(spelled) if spelled else None

    def find(self, text: str) -> set[int]:
        """Return the numbers of the needs that occur in a text."""
        if self._automaton is None or not text:
            return set()
        piece = max(_CHUNK_CHARS, 4 * self._max_length)
        if len(text) <= piece:
            return self._find_in_chunk(text)
        found: set[int] = set()
        for start in range(0, len(text), piece):
            found |= self._find_in_chunk(text[start : start + piece + self._max_length - 1])
        return found

    def _find_in_chunk(self, text: str) -> set[int]:
        assert self._automaton is not None
        matches = self._automaton.find_matches_as_indexes(_encodable(text), overlapping=True)
        return {match[0] for match in matches}


def _encodable(text: str) -> str:
    """The text without lone surrogates, which the automaton cannot take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text)
    return text


class BillingConditions(Struct, frozen=True):
    """Billing conditions of a session's requests."""

    terms: CacheTerms
    head: int  # tokens of system prompt and tools
    lifetime: float = 0  # lifetime of the client's cache breakpoints in seconds; 0: none
    window: int | None = None
    warm: WarmPrefix = NO_WARM_PREFIX  # in the cache before the first request
    prices: Mapping[str, float | None] = {}  # of other models, as in terms; None: none is listed

    @property
    def write(self) -> float:
        """Return the price of a cache write at the client's lifetime."""
        return self.terms.write_1h if self.lifetime == HOUR else self.terms.write

    @property
    def cold_after(self) -> float:
        """Seconds after which a cache has gone cold, as a proxy would take it."""
        has_breakpoints = self.terms.cache == "explicit" and self.lifetime > 0
        return self.lifetime if has_breakpoints else self.terms.gone

    def dollars(self, cost: float, model: str | None) -> float | None:
        """Convert tokens of plain input to dollars at a model's price."""
        dollars = self.terms.dollars and self.prices.get(model or "", self.terms.dollars)
        return None if dollars is None else cost * dollars / 1e6


class TurnNeeds(Struct, frozen=True, gc=False):
    """Needs of the turn after one request that its history contains, by number."""

    atoms: tuple[int, ...]
    lines: tuple[int, ...]


class NeedSource(Struct, frozen=True, gc=False):
    """A block of the history that contains needs."""

    row: int
    block: int
    needs: frozenset[int]


class Recording:
    """A session's rows, its requests as sent, and the needs of each next turn."""

    def __init__(
        self, session: RecordedSession, measure: TokenMeasure, conditions: BillingConditions
    ) -> None:
        self.session = session
        self.codec: Codec = PROVIDERS[session.format].codec
        self.conditions = conditions
        self._measure = measure
        self._row_cache: dict[int, MessageRow] = {}
        self._need_cache: dict[int, frozenset[int]] = {}
        self.rows = [self.row(message) for message in session.messages]
        self.cuts = [sent.cut for sent in session.requests]
        turns = [self._extract_turn_needs(number) for number in range(len(self.cuts))]
        self.finder = NeedFinder({need for atoms, lines in turns for need in atoms | lines})
        self.sources = self._find_sources()
        self.sources_by_need = self._index_sources()
        self.turn_needs = [
            self._available_needs(number, *turn) for number, turn in enumerate(turns)
        ]
        self._call_blocks = {
            block.call_id: block
            for row in self.rows
            for block in row.blocks
            if block.kind == "call"
        }
        self.last_messages = [
            self._with_client_breakpoint(cut) for cut in self.cuts
        ]  # each request's last message

    def row(self, message: JSON) -> MessageRow:
        """A message's row, read once as long as the recording lives."""
        known = self._row_cache.get(id(message))
        if known is None:
            known = self._row_cache[id(message)] = read_row(self.codec, message, self._measure)
        return known

    def needs_in_row(self, row: MessageRow) -> frozenset[int]:
        """Return the needs that occur in a row."""
        known = self._need_cache.get(id(row.message))
        if known is None:
            found = self.finder.find("\n".join(block.text for block in row.blocks))
            known = self._need_cache[id(row.message)] = frozenset(found)
        return known

    def tokens_saved(self, part: Part, text: str) -> int:
        """Return the tokens saved by replacing a part's text with `text`."""
        shorter = replace(part, text=text)
        return self._measure(self.codec, part) - self._measure(self.codec, shorter)

    def request(self, number: int) -> list[JSON]:
        """The messages of one request, as the client sent them."""
        cut = self.cuts[number]
        return [*self.session.messages[: cut - 1], self.last_messages[number]]

    def newest_source(self, need: int, before: int) -> int | None:
        """Return the newest source of a need before a row, by its number."""
        homes = self.sources_by_need.get(need, ())
        at = bisect_left(homes, self._first_source(before))
        return homes[at - 1] if at else None

    def _first_source(self, row: int) -> int:
        return self._source_starts[row]

    def _with_client_breakpoint(self, cut: int) -> JSON:
        """Return the last message before a cut, with the client's cache breakpoint."""
        message = self.session.messages[cut - 1]
        lifetime = self.conditions.lifetime
        if not wire_format(self.session.format).has_client_breakpoints or not lifetime:
            return message
        changed = with_breakpoint(message, lifetime)
        plain = self.row(message)
        if changed is not message and plain.blocks:
            self._row_cache[id(changed)] = plain.with_breakpoint(changed, lifetime)
            self._need_cache[id(changed)] = self.needs_in_row(plain)
        return changed

    def _extract_turn_needs(self, number: int) -> tuple[set[str], set[str]]:
        """Extract the needs of the calls after one request."""
        end = self.cuts[number + 1] if number + 1 < len(self.cuts) else len(self.rows)
        atoms: set[str] = set()
        lines: set[str] = set()
        for row in self.rows[self.cuts[number] : end]:
            for block in row.blocks:
                if block.kind == "call":
                    more = extract_needs(block.text)
                    atoms |= more[0]
                    lines |= more[1]
        return atoms, lines

    def _find_sources(self) -> list[NeedSource]:
        sources: list[NeedSource] = []
        self._source_starts: list[int] = []
        for at, row in enumerate(self.rows):
            self._source_starts.append(len(sources))
            found = [frozenset(self.finder.find(block.text)) for block in row.blocks]
            sources += [NeedSource(at, number, carries) for number, carries in enumerate(found)]
            self._need_cache[id(row.message)] = frozenset().union(*found)
        self._source_starts.append(len(sources))
        return sources

    def _index_sources(self) -> dict[int, Sequence[int]]:
        """For each need, list its sources in order."""
        homes: dict[int, list[int]] = {}
        for number, source in enumerate(self.sources):
            for need in source.needs:
                homes.setdefault(need, []).append(number)
        return dict(homes)

    def _available_needs(self, number: int, atoms: set[str], lines: set[str]) -> TurnNeeds:
        """Return the needs of a turn that its history contains."""
        cut = self.cuts[number]
        known = self.need_numbers
        return TurnNeeds(
            tuple(
                n for n in sorted(known[a] for a in atoms) if self.newest_source(n, cut) is not None
            ),
            tuple(
                n for n in sorted(known[a] for a in lines) if self.newest_source(n, cut) is not None
            ),
        )

    @property
    def need_numbers(self) -> dict[str, int]:
        """The number of each need."""
        return self.finder.numbers

    def describe_source(self, source: int) -> str:
        """Describe a block of the history: the tool and its target, clipped."""
        place = self.sources[source]
        block = self.rows[place.row].blocks[place.block]
        if block.kind not in ("call", "result"):
            return f"{block.kind} in message {place.row}"
        called = self._call_blocks.get(block.call_id, block)
        what = " ".join(called.text.split())
        return f"{what[:_MAX_LABEL_CHARS]} ({block.kind}, message {place.row})"


def main_model(session: RecordedSession) -> str | None:
    """The model that most of a session's requests went to."""
    named = Counter(sent.model for sent in session.requests if sent.model)
    return named.most_common(1)[0][0] if named else None


def infer_conditions(
    session: RecordedSession, measure: TokenMeasure, window: int | None = None
) -> BillingConditions:
    """Infer terms, head and cache breakpoints of a session."""
    model = main_model(session)
    time = next((sent.time for sent in session.requests if sent.time is not None), None)
    terms = priced(terms_for(session.format, model), session.format, model, time)
    if terms.cache == "explicit" and not wire_format(session.format).has_client_breakpoints:
        terms = replace(terms, cache="prefix")  # a gateway sets the breakpoints
    listed = window if window is not None else terms.window
    head = infer_head_tokens(session, measure)
    others = {sent.model for sent in session.requests if sent.model} - {model}
    prices = {one: _input_price(session, one, time) for one in others}
    return BillingConditions(
        terms,
        head=head,
        lifetime=infer_cache_lifetime(session),
        window=listed,
        warm=infer_warm_prefix(session, head),
        prices=prices,
    )


def _input_price(session: RecordedSession, model: str, time: float | None) -> float | None:
    return priced(terms_for(session.format, model), session.format, model, time).dollars


def infer_head_tokens(session: RecordedSession, measure: TokenMeasure) -> int:
    """Infer the tokens of system prompt and tools: the first reported prompt less its history.

    Without reported usage, the recorded prompt and tools are counted.
    """
    first = next((sent for sent in session.requests if sent.usage is not None), None)
    if first is None or first.usage is None:
        system_part = Part(Ref(0, ()), "text", "system", session.head)
        recorded = measure(PROVIDERS[session.format].codec, system_part) if session.head else 0
        return recorded or DEFAULT_HEAD_TOKENS.get(session.agent, 0)
    return max(0, first.usage.prompt - _visible_tokens(session, first, measure))


def infer_warm_prefix(session: RecordedSession, head: int) -> WarmPrefix:
    """Infer what the cache held before the first request, from its reported usage.

    Of the head, what any conversation of this agent may have written. Of the history only what
    another one began with: a fork, or what was said before a rewind.
    """
    first = session.requests[0] if session.requests else None
    if first is None or first.usage is None:
        return NO_WARM_PREFIX
    read, history = first.usage.cache_read, first.usage.prompt - head
    if history <= 0 or not _is_continuation(session, first):
        return WarmPrefix(min(head, read))
    return WarmPrefix(min(head, read), max(0, read - head) / history)


def _is_continuation(session: RecordedSession, first: RecordedRequest) -> bool:
    """Check for a model's answer before the first request, which another session records."""
    made = PROVIDERS[session.format].codec.is_model_made
    return any(made(message) for message in session.messages[: first.cut])


def _visible_tokens(session: RecordedSession, sent: RecordedRequest, measure: TokenMeasure) -> int:
    codec = PROVIDERS[session.format].codec
    return sum(read_row(codec, message, measure).tokens for message in session.messages[: sent.cut])


def infer_cache_lifetime(session: RecordedSession) -> float:
    """Infer the lifetime of the client's cache breakpoints from reported usage."""
    usages = [sent.usage for sent in session.requests if sent.usage is not None]
    if not usages:
        return HOUR if session.agent in _HOUR_CACHE_AGENTS else MINUTES
    written, lasting = (sum(getattr(usage, name) for usage in usages) for name in _WRITE_FIELDS)
    if lasting and 2 * lasting >= written:  # a client may ask for less when its plan is used up
        return HOUR
    return MINUTES if any(usage.cache_read or usage.cache_write for usage in usages) else 0.0
