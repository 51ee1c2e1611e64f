"""Cost breakdown of a session: by kind, tool and age of content, and by loop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

from msgspec import Struct

from ..loops import Loop, find_loops
from ..loops.detector import call_label, index_history
from ..pricing import CacheTerms
from ..tools import Tools
from ..transcript import Exchange, TranscriptIndex
from ..wire.base import wire_format
from ..wire.json import get
from .policies import OracleSender
from .prompt_cache import BilledTokens, MessageRow, ModelCaches, Prompt, PromptBlock
from .recording import Recording
from .result import CostBreakdown, CostShare, LoopCost, LoopTotals, SessionResult

AGES = ((0, "new in this request"), (1, "1–2 requests old"), (3, "3–5"), (6, "6–10"),
        (11, "11–20"), (21, "21–40"), (41, "over 40"))  # fmt: skip
_KIND_NAMES = {"call": "tool calls", "result": "tool results", "reasoning": "reasoning"}

_TOOLS = Tools()  # the detector keeps state per call


class _ContentCost(Struct):
    """Running cost of one kind of content."""

    tokens: int = 0
    cost: float = 0.0
    unused: int = 0

    def add(self, tokens: int, cost: float, unused: int = 0) -> None:
        self.tokens += tokens
        self.cost += cost
        self.unused += unused


_ContentCosts = defaultdict[str, _ContentCost]
BlockCharges = tuple[list[int], list[float]]


def break_down_cost(recording: Recording, charges: BlockCharges | None = None) -> CostBreakdown:
    """Break down a session's tokens and cost, counted each time they were sent."""
    sent, paid = charges or block_charges(recording)
    unused = _unused_by_block(recording)
    kinds, tools, ages = (_ContentCosts(_ContentCost) for _ in range(3))
    head = recording.conditions.head
    if head:
        kinds["system prompt and tools"].add(head * sent[0], head * paid[0])
    names = {block.call_id: block.name for block in _all_blocks(recording) if block.kind == "call"}
    at = 0
    for row in recording.rows:
        for block in row.blocks:
            at += 1
            times, cost = sent[at], block.tokens * paid[at]
            again = unused.get(at, 0) * max(0, times - 1)
            kinds[_content_kind(row, block)].add(block.tokens * times, cost, again)
            if block.kind in ("call", "result"):
                tools[names.get(block.call_id) or block.name or "?"].add(
                    block.tokens * times, cost, again
                )
            if block.kind == "result":
                _add_ages(
                    ages, block.tokens, times=times, cost=cost, write=recording.conditions.write
                )
    order = [name for _, name in AGES]
    return CostBreakdown(_cost_shares(kinds), _cost_shares(tools), _cost_shares(ages, order))


def _all_blocks(recording: Recording) -> Iterable[PromptBlock]:
    return chain.from_iterable(row.blocks for row in recording.rows)


def block_charges(recording: Recording) -> BlockCharges:
    """For the head and each block: times sent, and total charge per token."""
    conditions = recording.conditions
    prompt = Prompt(conditions.head)
    caches = ModelCaches(conditions.terms, conditions.lifetime, conditions.warm)
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
        _add_charge(paid, prompt, billed, conditions.terms)
    return list(accumulate(sent)), list(accumulate(paid))


def _add_charge(paid: list[float], prompt: Prompt, billed: BilledTokens, terms: CacheTerms) -> None:
    """Add one request's charge per token of each block; a block may be read in part."""
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


def _unused_by_block(recording: Recording) -> dict[int, int]:
    """For each result's block, how many of its tokens no later action used."""
    foreseen = OracleSender(recording, on_arrival=True)
    starts = list(accumulate((len(row.blocks) for row in recording.rows), initial=1))
    return {starts[place.row] + place.block: saved for place, saved in foreseen.unused_tokens()}


def _content_kind(row: MessageRow, block: PromptBlock) -> str:
    if block.kind != "text":
        return _KIND_NAMES.get(block.kind, "images and other")
    if row.is_model_made:
        return "what the model said"
    role = get(row.message, ("role",))
    return "what the user said" if role == "user" else "instructions"


def _add_ages(ages: _ContentCosts, tokens: int, *, times: int, cost: float, write: float) -> None:
    """Spread a result over the requests it was sent in; its first sending is the dear one."""
    first = min(cost, tokens * write) if times > 1 else cost
    later = (cost - first) / (times - 1) if times > 1 else 0.0
    for (start, name), (end, _) in zip(AGES, (*AGES[1:], (times, "")), strict=True):
        count = min(times, max(end, start)) - start
        if count > 0:
            ages[name].add(tokens * count, first if start == 0 else later * count)


def _cost_shares(
    weights: Mapping[str, _ContentCost], order: list[str] | None = None
) -> tuple[CostShare, ...]:
    """The weights with their names, the dearest first or in an order of their own."""
    names = (
        [name for name in order if name in weights]
        if order is not None
        else sorted(weights, key=lambda name: (-weights[name].cost, name))
    )
    return tuple(
        CostShare(name, weights[name].tokens, round(weights[name].cost, 1), weights[name].unused)
        for name in names
    )


def merge_breakdowns(all_spent: Iterable[CostBreakdown]) -> CostBreakdown:
    """Many sessions' spending as one."""
    kinds, tools, ages = (_ContentCosts(_ContentCost) for _ in range(3))
    for spent in all_spent:
        for weights, shares in ((kinds, spent.kinds), (tools, spent.tools), (ages, spent.ages)):
            for share in shares:
                weights[share.name].add(share.tokens, share.cost, share.unused)
    return CostBreakdown(
        _cost_shares(kinds), _cost_shares(tools), _cost_shares(ages, [name for _, name in AGES])
    )


def session_loops(recording: Recording, token_costs: Sequence[float]) -> tuple[LoopCost, ...]:
    """Find a session's loops; `paid` is the charge per token of each block, the head first."""
    messages = recording.session.messages
    history, ledger = index_history(recording.codec, messages, _TOOLS, {})
    loops = find_loops(history, ledger)
    if not loops:
        return ()
    numbers = list(_block_numbers(recording, history))
    tokens = [block.tokens for block in chain.from_iterable(row.blocks for row in recording.rows)]
    costs: list[LoopCost] = []
    for one in loops:
        again = {
            number for at in _part_positions(history, one.repeated) for number in (numbers[at],)
        }
        cost = sum(tokens[number] * token_costs[number + 1] for number in again)
        costs.append(
            _loop_cost(recording, history, one, tokens=sum(tokens[n] for n in again), cost=cost)
        )
    return tuple(costs)


def _loop_cost(
    recording: Recording, history: TranscriptIndex, one: Loop, *, tokens: int, cost: float
) -> LoopCost:
    result = history.exchanges[one.advised[0]].result or 0
    row = history.parts[result].ref.row
    return LoopCost(
        kind=one.kind,
        what=call_label(one.tool, one.operation, one.target),
        calls=len(one.calls),
        again=len(one.repeated),
        tokens=tokens,
        cost=round(cost, 1),
        advised_after=one.advised_after,
        request=bisect_left(recording.cuts, row + 1),
        level=one.level,
        message=one.message,
    )


def _part_positions(history: TranscriptIndex, ordinals: Iterable[int]) -> Iterator[int]:
    """Return the block positions of these exchanges' calls and results."""
    exchanges: Iterator[Exchange] = (history.exchanges[ordinal] for ordinal in ordinals)
    return (at for one in exchanges for at in (one.call, one.result) if at is not None)


def _block_numbers(recording: Recording, history: TranscriptIndex) -> Iterator[int]:
    """For each part the number of its block; only Anthropic has several parts in one."""
    has_blocks = wire_format(recording.codec.name).has_client_breakpoints
    number, last = -1, None
    for at, part in enumerate(history.parts):
        within = part.ref.path[:2] if has_blocks else at
        number += (part.ref.row, within) != last
        last = part.ref.row, within
        yield number


def total_loops(sessions: Sequence[SessionResult]) -> LoopTotals:
    """Sum up the loops of all sessions."""
    found = [one for session in sessions for one in session.loops]
    return LoopTotals(
        count=len(found),
        sessions=sum(bool(session.loops) for session in sessions),
        calls=sum(one.calls for one in found),
        again=sum(one.again for one in found),
        tokens=sum(one.tokens for one in found),
        cost=round(sum(one.cost for one in found), 1),
        advised_after=sum(one.advised_after for one in found),
    )
