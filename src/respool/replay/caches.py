"""The providers' prompt caches: which tokens of a request are read, written, or plain input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain as joined
from itertools import islice
from typing import Protocol, assert_never

from msgspec import Struct

from ..prices import Terms
from .reading import HOUR, Row

_RUNS = ("call", "result")  # a run of these is one position of the look-back


class Prompt:
    """A request as a cache sees it: blocks behind a fixed head, chained from the start.

    Each request changes the last one from some block on, so that what is not new costs nothing.
    """

    def __init__(self, head: int) -> None:
        self.chain = [
            hash("head")
        ]  # of everything up to and with each block; the head is the first
        self.sums = [head]  # tokens up to and with each block
        self.positions = [-1]
        self.model_made = [True]  # whether the model made it; the head has no end of its own
        self.breakpoints: list[tuple[int, float]] = []  # blocks with a mark, and its lifetime
        self.shared = 1  # blocks that are as they were in the request before
        self._run_kinds: list[str] = [""]
        self._row_starts: list[int] = []  # the first block of each row

    def update(self, rows: Sequence[Row], same_rows: int, same_breakpoint_rows: int = 0) -> None:
        """Become the next request, of which the first `kept` rows are as they were.

        Of those, the marks of the first `same` ones are as they were too.
        """
        start = self._row_starts[same_rows] if same_rows < len(self._row_starts) else len(self.chain)
        before = self.chain[start:]
        for grown in (self.chain, self.sums, self.positions, self.model_made, self._run_kinds):
            del grown[start:]
        del self._row_starts[same_rows:]
        for at in range(same_rows, len(rows)):
            self._add(rows[at])
        after = self.chain[start : start + len(before)]
        self.shared = start + _alike(before, after)
        first = self._row_starts[same_breakpoint_rows] if same_breakpoint_rows < len(self._row_starts) else len(self.chain)
        self.breakpoints = [mark for mark in self.breakpoints if mark[0] < first]
        for at in range(same_breakpoint_rows, len(rows)):
            row = rows[at]
            if row.breakpoints:
                self.breakpoints += [(self._row_starts[at] + n, row.blocks[n].cache_lifetime) for n in row.breakpoints]

    def _add(self, row: Row) -> None:
        self._row_starts.append(len(self.chain))
        for block in row.blocks:
            run = block.kind if block.kind in _RUNS else ""
            fresh = not run or run != self._run_kinds[-1]
            self.chain.append(hash((self.chain[-1], block.key)))
            self.sums.append(self.sums[-1] + block.tokens)
            self.positions.append(self.positions[-1] + fresh)
            self.model_made.append(row.is_model_made)
            self._run_kinds.append(run)

    @property
    def tokens(self) -> int:
        """All of the request's tokens, its head included."""
        return self.sums[-1]


def _alike(before: Sequence[int], after: Sequence[int]) -> int:
    """How many elements two sequences begin with in common."""
    for count, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return count
    return min(len(before), len(after))


class Billed(Struct, frozen=True, gc=False):
    """One request's tokens by how they are charged."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    plain: int = 0

    def cost(self, terms: Terms) -> float:
        """What it comes to, in tokens of plain input."""
        written = terms.write * self.write + terms.write_1h * self.write_1h
        return terms.read * self.read + written + self.plain


class Cache(Protocol):
    """One conversation's cache at its provider, for one model."""

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> Billed:
        """Charge a request and remember it; a time that is not known never lets anything expire.

        The first `shared` blocks are as they were when it was asked last.
        """
        ...


class Found(Struct, frozen=True, gc=False):
    """What the first request finds: another conversation, which began alike, had written it."""

    head: int = 0  # tokens of the head
    history: float = 0.0  # the share of what stands behind it

    def tokens_in(self, prompt: Prompt) -> int:
        """The tokens of it in a prompt."""
        return self.head + int(self.history * (prompt.tokens - prompt.sums[0]))


NOTHING = Found()


def cache_for(terms: Terms, lifetime: float, warm: Found = NOTHING) -> Cache:
    """The cache that these terms describe, with nothing of this conversation in it.

    `lifetime` is what the client's marks ask for; `warm` is what the first request finds.
    """
    match terms.cache:
        case "marks":
            return MarkedCache(terms, lifetime, warm) if lifetime else NoCache()
        case "prefix" | "implicit":
            return PrefixCache(terms, warm)
        case "breakpoints":
            return BreakpointCache(terms, warm)
        case "none":
            return NoCache()
        case _:
            assert_never(terms.cache)


class Caches:
    """A conversation's caches, one for each model: none finds what another one wrote."""

    def __init__(self, terms: Terms, lifetime: float, warm: Found = NOTHING) -> None:
        self._terms, self._lifetime, self._warm = terms, lifetime, warm
        self._by_model: dict[str | None, Cache] = {}
        self._shared: dict[str | None, int] = {}  # blocks as they were when it was last asked

    def bill(self, prompt: Prompt, now: float | None, model: str | None) -> Billed:
        """Charge a request to a model and remember it."""
        for other, shared in self._shared.items():
            self._shared[other] = min(shared, prompt.shared)
        if model not in self._by_model:
            warm = NOTHING if self._by_model else self._warm
            self._by_model[model] = cache_for(self._terms, self._lifetime, warm)
        shared = self._shared.get(model, prompt.shared)
        self._shared[model] = len(prompt.chain)
        return self._by_model[model].bill(prompt, now, shared)


class NoCache:
    """Everything is plain input."""

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> Billed:
        """Charge a request."""
        return Billed(plain=prompt.tokens)


class _Entry(Struct):
    """Something in the cache: when it was last used, and how long it lives after that."""

    used: float | None
    lifetime: float

    def is_alive(self, now: float | None) -> bool:
        return now is None or self.used is None or now - self.used <= self.lifetime


class MarkedCache:
    """Anthropic's: entries are written at marks, and found a few positions before one at most.

    The head has marks of its own, in the client's system prompt, with the lifetime of the others.
    """

    def __init__(self, terms: Terms, lifetime: float, warm: Found = NOTHING) -> None:
        self._terms, self._warm = terms, warm
        self._head = (0, lifetime)
        self._entries: dict[int, _Entry] = {}

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> Billed:
        """Charge a request and remember it."""
        marks = [self._head, *prompt.breakpoints]
        marks = [mark for mark in marks if prompt.sums[mark[0]] >= self._terms.minimum]
        hit = self._find_hit(prompt, [at for at, _ in marks], now)
        read = prompt.sums[hit] if hit >= 0 else self._warm.tokens_in(prompt)
        self._warm = NOTHING
        billed = self._bill_written(prompt, marks, read)
        for at, lifetime in marks:
            self._entries[prompt.chain[at]] = _Entry(now, lifetime)
        if hit >= 0:
            self._entries[prompt.chain[hit]].used = now
        return billed

    def _find_hit(self, prompt: Prompt, marks: Sequence[int], now: float | None) -> int:
        """The longest prefix that is in the cache where it is looked for; -1: none."""
        positions, chain = prompt.positions, prompt.chain
        for mark in reversed(marks):
            at = mark
            while at >= 0 and positions[mark] - positions[at] < self._terms.look_back:
                entry = self._entries.get(chain[at])
                if entry is not None and entry.is_alive(now):
                    return at
                at -= 1
        return -1

    def _bill_written(self, prompt: Prompt, marks: Sequence[tuple[int, float]], read: int) -> Billed:
        """What is behind the hit: written up to the last mark, plain after it."""
        upto, minutes, hour = read, 0, 0
        for at, lifetime in marks:
            more = max(0, prompt.sums[at] - upto)
            if lifetime == HOUR:
                hour += more
            else:
                minutes += more
            upto += more
        return Billed(read, minutes, hour, prompt.tokens - upto)


class PrefixCache:
    """OpenAI's up to 5.5, and Gemini's implicit one: the longest prefix of the request before."""

    def __init__(self, terms: Terms, warm: Found = NOTHING) -> None:
        self._terms, self._warm = terms, warm
        self._last: _Entry | None = None

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> Billed:
        """Charge a request and remember it."""
        read = self._warm.tokens_in(prompt) if self._last is None else 0
        if self._last is not None and self._last.is_alive(now):
            read = prompt.sums[shared - 1]
            read -= read % self._terms.step
            read = read if read >= self._terms.minimum else 0
        self._last = _Entry(now, self._terms.lifetime)
        return Billed(read, prompt.tokens - read)


class BreakpointCache:
    """OpenAI's from 5.6 on: a prefix is found only where an earlier request's breakpoint stood.

    One stands at the end of each request's newest message that the model did not make, and none
    at the end of the head. Breakpoints that a client sets itself are not looked at.
    """

    def __init__(self, terms: Terms, warm: Found = NOTHING) -> None:
        self._terms, self._warm = terms, warm
        self._entries: dict[int, _Entry] = {}

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> Billed:
        """Charge a request and remember it."""
        ends = _ends(prompt)
        last = next(ends, 0)
        hit = self._find_hit(prompt, joined((last,), ends), now)
        read = prompt.sums[hit] if hit else self._warm.tokens_in(prompt)
        self._warm = NOTHING
        upto = prompt.sums[last] if last and prompt.sums[last] >= self._terms.minimum else 0
        for at in {hit, last if upto else 0} - {0}:
            self._entries[prompt.chain[at]] = _Entry(now, self._terms.lifetime)
        written = max(0, upto - read)
        return Billed(read, written, plain=prompt.tokens - read - written)

    def _find_hit(self, prompt: Prompt, ends: Iterator[int], now: float | None) -> int:
        """The longest prefix that ends at one of the latest breakpoints; 0: none."""
        for at in islice(ends, self._terms.look_back):
            entry = self._entries.get(prompt.chain[at])
            if entry is not None and entry.is_alive(now):
                return at
        return 0


def _ends(prompt: Prompt) -> Iterator[int]:
    """The last blocks of all that was said to the model between its answers, the newest first."""
    made = prompt.model_made
    at = len(made) - 1
    while at > 0:
        if not made[at] and (at + 1 == len(made) or made[at + 1]):
            yield at
        at -= 1
