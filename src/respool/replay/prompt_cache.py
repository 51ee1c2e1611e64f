"""Prompts as blocks, and the providers' prompt caches that bill them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain as joined
from itertools import groupby, islice
from typing import Protocol, assert_never, cast

import msgspec
from msgspec import Struct

from ..pricing import CacheTerms
from ..providers.base import Codec
from ..tokens import TokenCounter, part_tokens
from ..transcript import Part
from ..wire.base import wire_format
from ..wire.json import JSON, Object, compact_json, get
from ..wire.message_identity import strip_breakpoints

HOUR = 3600.0
MINUTES = 300.0

_GROUPED_KINDS = ("call", "result")  # a run of these is one position of the lookback


class TokenMeasure(Protocol):
    """Count of a part's tokens."""

    name: str

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        ...


class CharacterMeasure:
    """Characters / 4 per part, rounded up; parts without text count 0."""

    name = "characters / 4"

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return (len(counted_text(codec, part)) + 3) // 4


class CounterMeasure:
    """A counter's tokens, with images and other parts without text."""

    def __init__(self, counter: TokenCounter, name: str | None = None) -> None:
        self._counter = counter
        self.name = name or counter.name

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return part_tokens(part, self._counter)


def counted_text(codec: Codec, part: Part) -> str:
    """A part's text as people count it: a call is its name and its arguments."""
    if part.kind in ("opaque", "media"):
        return ""
    if part.kind != "call":
        return part.text
    objects = wire_format(codec.name).has_object_arguments
    return f"{part.name} {_dumped_arguments(part.text) if objects else part.text}"


def _dumped_arguments(arguments: str) -> str:
    """A JSON object as json.dumps spells it, which is how the published baselines count it."""
    try:
        return json.dumps(msgspec.json.decode(arguments), ensure_ascii=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


def searchable_text(part: Part) -> str:
    """Return a part's searchable text: a call's arguments as plain strings."""
    if part.kind != "call":
        return "" if part.kind in ("opaque", "media") else part.text
    try:
        return part.name + "\n" + "\n".join(_strings(msgspec.json.decode(part.text)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return f"{part.name} {part.text}"


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast(Object, value).values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in cast(list[JSON], value):
            yield from _strings(inner)


class PromptBlock(Struct, frozen=True, gc=False):
    """One block of a message: the key that a cache compares, and its searchable text."""

    key: int  # hash of its content, without its cache breakpoint
    tokens: int
    kind: str  # of its first part
    call_id: str  # of the call or the result
    name: str
    text: str
    cache_lifetime: float  # lifetime of its cache breakpoint in seconds; 0: it has none


class MessageRow(Struct, frozen=True):
    """One parsed message."""

    message: JSON
    blocks: tuple[PromptBlock, ...]
    key: int
    tokens: int
    shape: int  # hash of what later messages refer to: roles, kinds and ids
    breakpoints: tuple[int, ...]  # the blocks with a cache breakpoint
    is_model_made: bool  # by the model
    has_media: bool  # it holds images or documents

    def with_breakpoint(self, message: JSON, lifetime: float) -> MessageRow:
        """Return the row with a cache breakpoint on its last block."""
        last = self.blocks[-1]
        with_lifetime = msgspec.structs.replace(last, cache_lifetime=lifetime)
        at = len(self.blocks) - 1
        blocks = (*self.blocks[:-1], with_lifetime)
        breakpoints = (*self.breakpoints, at)
        return msgspec.structs.replace(
            self, message=message, blocks=blocks, breakpoints=breakpoints
        )


def read_row(codec: Codec, message: JSON, measure: TokenMeasure) -> MessageRow:
    """A message in blocks."""
    parts = codec.decode(0, message)
    blocks = tuple(
        _prompt_block(codec, message, group, measure) for group in group_parts(codec, parts)
    )
    role = _role(message)
    return MessageRow(
        message=message,
        blocks=blocks,
        key=hash((role, tuple(block.key for block in blocks))),
        tokens=sum(block.tokens for block in blocks),
        shape=hash((role, tuple((block.kind, block.call_id, block.name) for block in blocks))),
        breakpoints=tuple(at for at, block in enumerate(blocks) if block.cache_lifetime),
        is_model_made=codec.is_model_made(message),
        has_media=any(part.kind == "media" for part in parts),
    )


def group_parts(codec: Codec, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Group parts by block; only Anthropic's wire has several blocks per message."""
    if not wire_format(codec.name).has_client_breakpoints:
        yield from ([part] for part in parts)
        return
    for _, group in groupby(parts, lambda part: part.ref.path[:2]):
        yield list(group)


def _prompt_block(
    codec: Codec, message: JSON, parts: list[Part], measure: TokenMeasure
) -> PromptBlock:
    first = parts[0]
    said = (
        get(message, first.ref.path[:2]) if wire_format(codec.name).has_client_breakpoints else None
    )
    return PromptBlock(
        key=_block_key(codec, message, parts, said),
        tokens=sum(measure(codec, part) for part in parts),
        kind=first.kind,
        call_id=first.id,
        name=first.name,
        text="\n".join(searchable_text(part) for part in parts),
        cache_lifetime=_cache_lifetime(said),
    )


def _block_key(codec: Codec, message: JSON, parts: list[Part], said: JSON) -> int:
    """Return the key that a cache compares; on Anthropic the block and its message's role."""
    first = parts[0]
    if not wire_format(codec.name).has_client_breakpoints:
        return hash((_role(message), first.kind, first.id, first.name, first.text, first.weight))
    bare = said if isinstance(said, str) else compact_json(strip_breakpoints(said))
    return hash((_role(message), bare))


def _cache_lifetime(block: JSON) -> float:
    control = get(block, ("cache_control",)) if isinstance(block, dict) else None
    if not isinstance(control, dict):
        return 0
    return HOUR if cast(Object, control).get("ttl") == "1h" else MINUTES


def _role(message: JSON) -> str:
    holder = cast(Object, message) if isinstance(message, dict) else {}
    return str(holder.get("role") or holder.get("type") or "")


def with_breakpoint(message: JSON, lifetime: float) -> JSON:
    """Return an Anthropic message with a cache breakpoint on its last block."""
    content = get(message, ("content",))
    if not isinstance(content, list) or not content or not isinstance(content[-1], dict):
        return message
    control = {"type": "ephemeral", "ttl": "1h"} if lifetime == HOUR else {"type": "ephemeral"}
    blocks = cast(list[Object], content)
    return {
        **cast(Object, message),
        "content": [*blocks[:-1], {**blocks[-1], "cache_control": control}],
    }


class Prompt:
    """A request as a cache sees it: a fixed head and blocks, hashed as a chain.

    A request updates the previous one from some block on, so that only new blocks cost time.
    """

    def __init__(self, head: int) -> None:
        self.chain = [
            hash("head")
        ]  # hash of the prefix that ends with each block; the head is the first
        self.sums = [head]  # tokens of the prefix that ends with each block
        self.positions = [-1]
        self.model_made = [True]  # the model made it; the head counts as such
        self.breakpoints: list[
            tuple[int, float]
        ] = []  # blocks with a cache breakpoint, and its lifetime
        self.shared = 1  # blocks shared with the previous request
        self._run_kinds: list[str] = [""]
        self._row_starts: list[int] = []  # the first block of each row

    def update(
        self, rows: Sequence[MessageRow], same_rows: int, same_breakpoint_rows: int = 0
    ) -> None:
        """Become the next request, which shares its first `same_rows` rows.

        The first `same_breakpoint_rows` of them have the same cache breakpoints too.
        """
        start = (
            self._row_starts[same_rows] if same_rows < len(self._row_starts) else len(self.chain)
        )
        before = self.chain[start:]
        for grown in (self.chain, self.sums, self.positions, self.model_made, self._run_kinds):
            del grown[start:]
        del self._row_starts[same_rows:]
        for at in range(same_rows, len(rows)):
            self._add(rows[at])
        after = self.chain[start : start + len(before)]
        self.shared = start + _common_length(before, after)
        first = (
            self._row_starts[same_breakpoint_rows]
            if same_breakpoint_rows < len(self._row_starts)
            else len(self.chain)
        )
        self.breakpoints = [breakpoint for breakpoint in self.breakpoints if breakpoint[0] < first]
        for at in range(same_breakpoint_rows, len(rows)):
            row = rows[at]
            if row.breakpoints:
                self.breakpoints += [
                    (self._row_starts[at] + n, row.blocks[n].cache_lifetime)
                    for n in row.breakpoints
                ]

    def _add(self, row: MessageRow) -> None:
        self._row_starts.append(len(self.chain))
        for block in row.blocks:
            run = block.kind if block.kind in _GROUPED_KINDS else ""
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


def _common_length(before: Sequence[int], after: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    for count, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return count
    return min(len(before), len(after))


class BilledTokens(Struct, frozen=True, gc=False):
    """One request's tokens by how they are charged."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    plain: int = 0

    def cost(self, terms: CacheTerms) -> float:
        """Return the cost in tokens of plain input."""
        written = terms.write * self.write + terms.write_1h * self.write_1h
        return terms.read * self.read + written + self.plain


class PromptCache(Protocol):
    """One conversation's cache at its provider, for one model."""

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> BilledTokens:
        """Charge a request and update the cache; with an unknown time nothing expires.

        The first `shared` blocks are the same as in the previous call.
        """
        ...


class WarmPrefix(Struct, frozen=True, gc=False):
    """A prefix that another conversation had cached before the first request."""

    head: int = 0  # tokens of the head
    history: float = 0.0  # share of the history

    def tokens_in(self, prompt: Prompt) -> int:
        """Return its tokens in a prompt."""
        return self.head + int(self.history * (prompt.tokens - prompt.sums[0]))


NO_WARM_PREFIX = WarmPrefix()


def make_cache(
    terms: CacheTerms, lifetime: float, warm: WarmPrefix = NO_WARM_PREFIX
) -> PromptCache:
    """Create an empty cache with these terms.

    `lifetime` is that of the client's cache breakpoints; `warm` is what the first request finds.
    """
    match terms.cache:
        case "explicit":
            return ExplicitBreakpointCache(terms, lifetime, warm) if lifetime else NoCache()
        case "prefix" | "implicit":
            return PrefixCache(terms, warm)
        case "breakpoints":
            return ImplicitBreakpointCache(terms, warm)
        case "none":
            return NoCache()
        case _:
            assert_never(terms.cache)


class ModelCaches:
    """A conversation's caches, one per model."""

    def __init__(
        self, terms: CacheTerms, lifetime: float, warm: WarmPrefix = NO_WARM_PREFIX
    ) -> None:
        self._terms, self._lifetime, self._warm = terms, lifetime, warm
        self._by_model: dict[str | None, PromptCache] = {}
        self._shared: dict[str | None, int] = {}  # blocks shared with its last request

    def bill(self, prompt: Prompt, now: float | None, model: str | None) -> BilledTokens:
        """Charge a request to a model and remember it."""
        for other, shared in self._shared.items():
            self._shared[other] = min(shared, prompt.shared)
        if model not in self._by_model:
            warm = NO_WARM_PREFIX if self._by_model else self._warm
            self._by_model[model] = make_cache(self._terms, self._lifetime, warm)
        shared = self._shared.get(model, prompt.shared)
        self._shared[model] = len(prompt.chain)
        return self._by_model[model].bill(prompt, now, shared)


class NoCache:
    """Everything is plain input."""

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> BilledTokens:
        """Charge a request."""
        return BilledTokens(plain=prompt.tokens)


class _CacheEntry(Struct):
    """Something in the cache: when it was last used, and how long it lives after that."""

    used: float | None
    lifetime: float

    def is_alive(self, now: float | None) -> bool:
        return now is None or self.used is None or now - self.used <= self.lifetime


class ExplicitBreakpointCache:
    """Anthropic's cache: entries are written at cache breakpoints and found within the lookback.

    The head has cache breakpoints too, in the client's system prompt, with the same lifetime.
    """

    def __init__(
        self, terms: CacheTerms, lifetime: float, warm: WarmPrefix = NO_WARM_PREFIX
    ) -> None:
        self._terms, self._warm = terms, warm
        self._head = (0, lifetime)
        self._entries: dict[int, _CacheEntry] = {}

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> BilledTokens:
        """Charge a request and remember it."""
        breakpoints = [self._head, *prompt.breakpoints]
        breakpoints = [
            breakpoint
            for breakpoint in breakpoints
            if prompt.sums[breakpoint[0]] >= self._terms.minimum
        ]
        hit = self._find_hit(prompt, [at for at, _ in breakpoints], now)
        read = prompt.sums[hit] if hit >= 0 else self._warm.tokens_in(prompt)
        self._warm = NO_WARM_PREFIX
        billed = self._bill_written(prompt, breakpoints, read)
        for at, lifetime in breakpoints:
            self._entries[prompt.chain[at]] = _CacheEntry(now, lifetime)
        if hit >= 0:
            self._entries[prompt.chain[hit]].used = now
        return billed

    def _find_hit(self, prompt: Prompt, breakpoints: Sequence[int], now: float | None) -> int:
        """Return the end of the longest cached prefix within the lookback; -1: none."""
        positions, chain = prompt.positions, prompt.chain
        for breakpoint in reversed(breakpoints):
            at = breakpoint
            while at >= 0 and positions[breakpoint] - positions[at] < self._terms.look_back:
                entry = self._entries.get(chain[at])
                if entry is not None and entry.is_alive(now):
                    return at
                at -= 1
        return -1

    def _bill_written(
        self, prompt: Prompt, breakpoints: Sequence[tuple[int, float]], read: int
    ) -> BilledTokens:
        """Charge the rest: written up to the last cache breakpoint, plain after it."""
        upto, minutes, hour = read, 0, 0
        for at, lifetime in breakpoints:
            more = max(0, prompt.sums[at] - upto)
            if lifetime == HOUR:
                hour += more
            else:
                minutes += more
            upto += more
        return BilledTokens(read, minutes, hour, prompt.tokens - upto)


class PrefixCache:
    """OpenAI's up to 5.5, and Gemini's implicit one: the longest prefix of the request before."""

    def __init__(self, terms: CacheTerms, warm: WarmPrefix = NO_WARM_PREFIX) -> None:
        self._terms, self._warm = terms, warm
        self._last: _CacheEntry | None = None

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> BilledTokens:
        """Charge a request and remember it."""
        read = self._warm.tokens_in(prompt) if self._last is None else 0
        if self._last is not None and self._last.is_alive(now):
            read = prompt.sums[shared - 1]
            read -= read % self._terms.step
            read = read if read >= self._terms.minimum else 0
        self._last = _CacheEntry(now, self._terms.lifetime)
        return BilledTokens(read, prompt.tokens - read)


class ImplicitBreakpointCache:
    """OpenAI's cache from 5.6 on: a hit ends where an earlier request had a breakpoint.

    Each request has one at the end of its newest message that the model did not make, and none at
    the end of the head. Breakpoints that a client sets itself are ignored.
    """

    def __init__(self, terms: CacheTerms, warm: WarmPrefix = NO_WARM_PREFIX) -> None:
        self._terms, self._warm = terms, warm
        self._entries: dict[int, _CacheEntry] = {}

    def bill(self, prompt: Prompt, now: float | None, shared: int) -> BilledTokens:
        """Charge a request and remember it."""
        ends = _breakpoint_ends(prompt)
        last = next(ends, 0)
        hit = self._find_hit(prompt, joined((last,), ends), now)
        read = prompt.sums[hit] if hit else self._warm.tokens_in(prompt)
        self._warm = NO_WARM_PREFIX
        upto = prompt.sums[last] if last and prompt.sums[last] >= self._terms.minimum else 0
        for at in {hit, last if upto else 0} - {0}:
            self._entries[prompt.chain[at]] = _CacheEntry(now, self._terms.lifetime)
        written = max(0, upto - read)
        return BilledTokens(read, written, plain=prompt.tokens - read - written)

    def _find_hit(self, prompt: Prompt, ends: Iterator[int], now: float | None) -> int:
        """The longest prefix that ends at one of the latest breakpoints; 0: none."""
        for at in islice(ends, self._terms.look_back):
            entry = self._entries.get(prompt.chain[at])
            if entry is not None and entry.is_alive(now):
                return at
        return 0


def _breakpoint_ends(prompt: Prompt) -> Iterator[int]:
    """Return the last block of each run that the model did not make, the newest first."""
    made = prompt.model_made
    at = len(made) - 1
    while at > 0:
        if not made[at] and (at + 1 == len(made) or made[at + 1]):
            yield at
        at -= 1
