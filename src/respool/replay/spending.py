"""Where a session's tokens went: by kind, by tool and by age, without any compaction."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain

from msgspec import Struct

from ..codecs.json_tree import get
from ..prices import Terms
from .bounds import Foreseen
from .caches import Billed, Caches, Prompt
from .reading import Block, Row
from .recording import Recording
from .result import Share, Spent

AGES = ((0, "new in this request"), (1, "1–2 requests old"), (3, "3–5"), (6, "6–10"),
        (11, "11–20"), (21, "21–40"), (41, "over 40"))  # fmt: skip
_KINDS = {"call": "tool calls", "result": "tool results", "reasoning": "reasoning"}


class _Weight(Struct):
    """What some content came to."""

    tokens: int = 0
    cost: float = 0.0
    unused: int = 0

    def add(self, tokens: int, cost: float, unused: int = 0) -> None:
        self.tokens += tokens
        self.cost += cost
        self.unused += unused


_Weights = defaultdict[str, _Weight]
Times = tuple[list[int], list[float]]


def spent_on(recording: Recording, charges: Times | None = None) -> Spent:
    """A session's tokens, as often as they were sent, and what they cost."""
    sent, paid = charges or times_of(recording)
    unused = _unused(recording)
    kinds, tools, ages = (_Weights(_Weight) for _ in range(3))
    head = recording.conditions.head
    if head:
        kinds["system prompt and tools"].add(head * sent[0], head * paid[0])
    names = {block.call_id: block.name for block in _blocks(recording) if block.kind == "call"}
    at = 0
    for row in recording.rows:
        for block in row.blocks:
            at += 1
            times, cost = sent[at], block.tokens * paid[at]
            again = unused.get(at, 0) * max(0, times - 1)
            kinds[_kind(row, block)].add(block.tokens * times, cost, again)
            if block.kind in ("call", "result"):
                tools[names.get(block.call_id) or block.name or "?"].add(
                    block.tokens * times, cost, again
                )
            if block.kind == "result":
                _add_ages(ages, block.tokens, times, cost, recording.conditions.write)
    order = [name for _, name in AGES]
    return Spent(_shares(kinds), _shares(tools), _shares(ages, order))


def _blocks(recording: Recording) -> Iterable[Block]:
    return chain.from_iterable(row.blocks for row in recording.rows)


def times_of(recording: Recording) -> Times:
    """For the head and each block: how often it was sent, and what a token of it was charged."""
    conditions = recording.conditions
    prompt = Prompt(conditions.head)
    caches = Caches(conditions.terms, conditions.lifetime, conditions.warm)
    count = 1 + sum(len(row.blocks) for row in recording.rows)
    sent, paid = [0] * (count + 1), [0.0] * (count + 2)  # changes from one block to the next
    kept = 0
    for number, cut in enumerate(recording.cuts):
        rows = [*recording.rows[: cut - 1], recording.row(recording.last_messages[number])]
        prompt.update(rows, kept, max(0, kept - 1))
        kept = cut
        sent_at = recording.session.requests[number]
        billed = caches.bill(prompt, sent_at.time, sent_at.model)
        sent[0] += 1
        sent[len(prompt.chain)] -= 1
        _charge(paid, prompt, billed, conditions.terms)
    return list(accumulate(sent)), list(accumulate(paid))


def _charge(paid: list[float], prompt: Prompt, billed: Billed, terms: Terms) -> None:
    """Note what one request charged for a token of each block; a block may be read in part."""
    new = prompt.tokens - billed.read
    dearer = (billed.cost(terms) - terms.read * billed.read) / new - terms.read if new else 0.0
    hit = bisect_right(prompt.sums, billed.read)
    paid[0] += terms.read
    paid[len(prompt.chain)] -= terms.read + dearer
    paid[hit] += dearer
    if hit < len(prompt.sums):
        start = prompt.sums[hit - 1] if hit else 0
        part = dearer * (billed.read - start) / (prompt.sums[hit] - start)
        paid[hit] -= part
        paid[hit + 1] += part


def _unused(recording: Recording) -> dict[int, int]:
    """For each result's block, how many of its tokens no later action used."""
    foreseen = Foreseen(recording, on_arrival=True)
    starts = list(accumulate((len(row.blocks) for row in recording.rows), initial=1))
    return {starts[place.row] + place.block: saved for place, saved in foreseen.unused_tokens()}


def _kind(row: Row, block: Block) -> str:
    if block.kind != "text":
        return _KINDS.get(block.kind, "images and other")
    if row.is_model_made:
        return "what the model said"
    role = get(row.message, ("role",))
    return "what the user said" if role == "user" else "instructions"


def _add_ages(ages: _Weights, tokens: int, times: int, cost: float, write: float) -> None:
    """Spread a result over the requests it was sent in; its first sending is the dear one."""
    first = min(cost, tokens * write) if times > 1 else cost
    later = (cost - first) / (times - 1) if times > 1 else 0.0
    for (start, name), (end, _) in zip(AGES, (*AGES[1:], (times, "")), strict=True):
        count = min(times, max(end, start)) - start
        if count > 0:
            ages[name].add(tokens * count, first if start == 0 else later * count)


def _shares(weights: Mapping[str, _Weight], order: list[str] | None = None) -> tuple[Share, ...]:
    """The weights with their names, the dearest first or in an order of their own."""
    names = [name for name in order if name in weights] if order is not None else sorted(
        weights, key=lambda name: (-weights[name].cost, name)
    )  # fmt: skip
    return tuple(
        Share(name, weights[name].tokens, round(weights[name].cost, 1), weights[name].unused)
        for name in names
    )


def merged(all_spent: Iterable[Spent]) -> Spent:
    """Many sessions' spending as one."""
    kinds, tools, ages = (_Weights(_Weight) for _ in range(3))
    for spent in all_spent:
        for weights, shares in ((kinds, spent.kinds), (tools, spent.tools), (ages, spent.ages)):
            for share in shares:
                weights[share.name].add(share.tokens, share.cost, share.unused)
    return Spent(_shares(kinds), _shares(tools), _shares(ages, [name for _, name in AGES]))
