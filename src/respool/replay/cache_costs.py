"""Costs of a session's pauses, cache misses and tool definitions, and of their remedies.

Each remedy is replayed: the same requests are billed by a cache on other terms, or with keep-alive
pings in the pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

from msgspec import Struct
from msgspec.structs import replace

from ..pauses import WaitsFor, ping_seconds, ping_value
from ..pricing import CacheTerms
from ..sessions.session import RecordedSession
from ..tokens import TokenCounter, counter_for
from ..tools.switch_off import switch_off_line
from .policies import COLD, sender_factory
from .prompt_cache import (
    HOUR,
    BilledTokens,
    ModelCaches,
    PrefixCache,
    Prompt,
)
from .recording import Recording, main_model
from .result import CacheCosts, PolicyScore, UnusedTool
from .score import score_policy

READ_PRICES = (0.1, 0.05, 0.025)  # of the generations of models, in tokens of plain input
LONG_REQUESTS = 25  # from which on a session is long
MANY_AGENTS = 3  # sub-agents of a conversation
MANY_PAUSES = 3  # expired prefixes of a session
_UNLIMITED = 1 << 40  # positions of a lookback


class _Charges(Struct):
    """Running totals of one cache."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    plain: int = 0

    def add(self, billed: BilledTokens) -> None:
        self.read += billed.read
        self.write += billed.write
        self.write_1h += billed.write_1h
        self.plain += billed.plain

    def cost(self, terms: CacheTerms) -> float:
        return BilledTokens(self.read, self.write, self.write_1h, self.plain).cost(terms)


def waits_for(answer: Iterable[str]) -> WaitsFor:
    """Whose input a conversation waits for, by the kinds of the parts after a request."""
    return "tool" if "call" in answer else "user"


class _Pinged:
    """A session with keep-alive pings in its pauses, decided as the proxy decides."""

    def __init__(self, recording: Recording, terms: CacheTerms) -> None:
        conditions = recording.conditions
        self._terms, self._lifetime = terms, conditions.lifetime
        self._write = terms.write_1h if conditions.lifetime == HOUR else terms.write
        self._caches = ModelCaches(conditions.terms, conditions.lifetime, conditions.warm)
        self.charges = _Charges()
        self.pings = 0
        self.ping_cost = 0.0

    def bill(self, prompt: Prompt, now: float | None, model: str | None) -> None:
        """Charge a request."""
        self.charges.add(self._caches.bill(prompt, now, model))

    def pause(
        self, prompt: Prompt, *, since: float, until: float, model: str | None, kind: WaitsFor
    ) -> None:
        """Charge the pings between a request and the next one, or after the last one."""
        number, due = 1, since + ping_seconds(self._lifetime)
        repeated = copy(prompt)
        repeated.shared = len(prompt.chain)  # a ping is the request before it, again
        while due < until and self._pays(number, prompt.tokens, kind):
            billed = self._caches.bill(repeated, due, model)
            self.ping_cost += billed.cost(self._terms) + self._terms.output
            self.pings += 1
            number, due = number + 1, due + ping_seconds(self._lifetime)

    def _pays(self, number: int, tokens: int, kind: WaitsFor) -> bool:
        if not tokens:
            return False
        worth = ping_value(
            number,
            lifetime=self._lifetime,
            waits_for=kind,
            read=self._terms.read,
            write=self._write,
            fixed=self._terms.output / tokens,
        )
        return worth > 0


class _MissedTokens(Struct):
    """Tokens that the provider had been sent within the lifetime, and did not find."""

    tokens: int = 0
    beyond_lookback: int = 0  # of them, with an entry that was too far from a breakpoint


class CacheReplay:
    """One session's requests, billed by several caches side by side."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        conditions = recording.conditions
        terms, lifetime, warm = conditions.terms, conditions.lifetime, conditions.warm
        self.is_explicit = terms.cache == "explicit" and lifetime > 0
        self._real = ModelCaches(terms, lifetime, warm)
        self._immortal = ModelCaches(terms, lifetime, warm)
        self._unlimited = ModelCaches(replace(terms, look_back=_UNLIMITED), lifetime, warm)
        self._hour = ModelCaches(terms, HOUR if self.is_explicit else lifetime, warm)
        self._sent: dict[str | None, PrefixCache] = {}
        self._shared: dict[str | None, int] = {}
        prices = (terms.read, *READ_PRICES) if self.is_explicit else ()
        self.pinged = [_Pinged(recording, replace(terms, read=price)) for price in prices]
        self.real, self.immortal, self.hour = _Charges(), _Charges(), _Charges()
        self.pauses = self.expired = 0
        self.head_read = self.head_written = 0
        self.missed = _MissedTokens()

    def run(self) -> None:
        """Bill all requests."""
        recording, requests = self._recording, self._recording.session.requests
        prompt = Prompt(recording.conditions.head)
        kept = 0
        for number, cut in enumerate(recording.cuts):
            rows = [*recording.rows[: cut - 1], recording.row(recording.last_messages[number])]
            prompt.update(rows, kept, max(0, kept - 1))
            kept = cut
            sent = requests[number]
            self._bill(prompt, sent.time, sent.model)
            until = requests[number + 1].time if number + 1 < len(requests) else float("inf")
            if number and sent.time is not None and until is not None:  # as the proxy does
                kind = self._waits_for(number)
                for one in self.pinged:
                    one.pause(prompt, since=sent.time, until=until, model=sent.model, kind=kind)

    def _waits_for(self, number: int) -> WaitsFor:
        recording = self._recording
        cuts = recording.cuts
        end = cuts[number + 1] if number + 1 < len(cuts) else len(recording.rows)
        rows = recording.rows[cuts[number] : end]
        return waits_for(block.kind for row in rows for block in row.blocks)

    def _bill(self, prompt: Prompt, now: float | None, model: str | None) -> None:
        real = self._real.bill(prompt, now, model)
        immortal = self._immortal.bill(prompt, None, model)
        self.real.add(real)
        self.immortal.add(immortal)
        for one in self.pinged:
            one.bill(prompt, now, model)
        head = self._recording.conditions.head
        self.head_read += min(real.read, head)
        self.head_written += head - min(real.read, head)
        lost = max(0, immortal.read - real.read)
        self.expired += lost
        self.pauses += lost > 0
        self._count_missed(prompt, now, model, real)
        lasting = prompt
        if self.is_explicit:
            lasting = copy(prompt)
            lasting.breakpoints = [(at, HOUR) for at, _ in prompt.breakpoints]
        self.hour.add(self._hour.bill(lasting, now, model))

    def _count_missed(
        self, prompt: Prompt, now: float | None, model: str | None, real: BilledTokens
    ) -> None:
        """Compare with a cache that finds the whole prefix of the model's request before."""
        unlimited = self._unlimited.bill(prompt, now, model)
        if not self.is_explicit:
            return
        for other, shared in self._shared.items():
            self._shared[other] = min(shared, prompt.shared)
        conditions = self._recording.conditions
        whole = replace(conditions.terms, step=1, lifetime=conditions.lifetime)
        cache = self._sent.setdefault(model, PrefixCache(whole))
        best = cache.bill(prompt, now, self._shared.get(model, prompt.shared)).read
        self._shared[model] = len(prompt.chain)
        far = max(0, unlimited.read - real.read)
        self.missed.beyond_lookback += far
        self.missed.tokens += max(far, best - real.read, 0)


def cache_costs(
    recording: Recording, base: PolicyScore, head_cost: float
) -> tuple[CacheCosts, tuple[CacheCosts, ...]]:
    """What pauses, misses and the head cost in a session, and at each generation's read price."""
    replay = CacheReplay(recording)
    replay.run()
    cold: PolicyScore | None = None
    if replay.pauses:
        cold = score_policy(recording, sender_factory(COLD)(recording), COLD)
    here = _costs_at(recording, replay, 0, base.bill.money)
    here = replace(
        here,
        head=head_cost,
        cold=here.bill if cold is None else cold.all_in,
        cold_lost=0 if cold is None else cold.lost_turns,
    )
    generations = range(1, len(replay.pinged))  # none without cache breakpoints
    return here, tuple(_costs_at(recording, replay, at, None) for at in generations)


def _costs_at(
    recording: Recording, replay: CacheReplay, at: int, money: float | None
) -> CacheCosts:
    """The costs at one read price: the session's own (0) or that of a generation."""
    conditions = recording.conditions
    terms = conditions.terms if at == 0 else replace(conditions.terms, read=READ_PRICES[at - 1])
    bill = replay.real.cost(terms)
    pinged = replay.pinged[at] if replay.pinged else None
    expired = bill - replay.immortal.cost(terms)
    return CacheCosts(
        read_price=terms.read,
        requests=len(recording.cuts),
        bill=bill,
        pauses=replay.pauses,
        expired=replay.expired,
        expired_cost=expired,
        expired_money=None if money is None or not bill else money * expired / bill,
        missed=replay.missed.tokens,
        beyond_lookback=replay.missed.beyond_lookback,
        missed_cost=replay.missed.tokens * (conditions.write - terms.read),
        head=replay.head_read * terms.read + replay.head_written * conditions.write,
        one_hour=replay.hour.cost(terms),
        keep_alive=bill if pinged is None else pinged.charges.cost(terms) + pinged.ping_cost,
        pings=0 if pinged is None else pinged.pings,
        ping_cost=0.0 if pinged is None else pinged.ping_cost,
    )


def add_costs(costs: Iterable[CacheCosts]) -> CacheCosts:
    """Sum up costs; the read price is the highest, the money that of the priced sessions."""
    total = CacheCosts(sessions=0)
    for one in costs:
        sums = {
            name: getattr(total, name) + getattr(one, name)
            for name in CacheCosts.__struct_fields__
            if name not in ("read_price", "expired_money")
        }
        known = [part for part in (total.expired_money, one.expired_money) if part is not None]
        total = CacheCosts(
            **sums,
            read_price=max(total.read_price, one.read_price),
            expired_money=sum(known) if known else None,
        )
    return total


# --- tool definitions --------------------------------------------------------------------------


def unused_tools(recording: Recording) -> tuple[UnusedTool, ...] | None:
    """The defined tools of a session that were never called; None: no definition is recorded."""
    session = recording.session
    if not session.tools:
        return None
    counter = counter_for(session.format, main_model(session))
    called = {block.name for row in recording.rows for block in row.blocks if block.kind == "call"}
    return tuple(_unused(session, called, counter))


def _unused(
    session: RecordedSession, called: set[str], counter: TokenCounter
) -> Iterator[UnusedTool]:
    agent, requests = session.agent, len(session.requests)
    for name, definition in session.tools:
        if name not in called:
            yield UnusedTool(
                name=name,
                tokens=counter.count(definition),
                requests=requests,
                off=switch_off_line(agent, name),
            )


def merge_unused(
    found: Iterable[tuple[UnusedTool, ...]], called: Iterable[str]
) -> tuple[UnusedTool, ...]:
    """Tools that no session called, the dearest first."""
    used = set(called)
    merged: dict[str, UnusedTool] = {}
    for tool in (tool for tools in found for tool in tools if tool.name not in used):
        known = merged.get(tool.name)
        merged[tool.name] = (
            tool
            if known is None
            else UnusedTool(
                name=tool.name,
                tokens=max(known.tokens, tool.tokens),
                requests=known.requests + tool.requests,
                off=tool.off,
            )
        )
    return tuple(sorted(merged.values(), key=lambda one: (-one.tokens * one.requests, one.name)))
