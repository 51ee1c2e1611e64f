"""A random client, a provider that signs, and all that can go wrong between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import respool
from respool.proxy.breaker import BreakerRules, CircuitBreaker
from respool.proxy.compactor import Compactor, Mode
from respool.proxy.decide import Decider
from respool.proxy.middleware import Decision, ErrorResponse, InFlight, ParsedRequest
from respool.proxy.recorder import Recorder
from respool.proxy.server_options import CompactionOptions, HoldoutOptions
from respool.store import SQLiteStore
from tests.providers.signing_provider import (
    BOUND,
    OTHER_BOUND,
    TOOLS,
    UNBOUND,
    Signer,
    without_breakpoints,
)
from tests.store.support import salt_of

EAGER_POLICY = respool.Policy(
    cap_chars=500,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
PLANNED = respool.Policy(
    cap_chars=2_000, reevaluate_tokens=300, reevaluate_ratio=0.02, keep_exchanges=0
)
BUDGET = respool.Policy(
    budget=6_000, cap_chars=2_000, reevaluate_tokens=300, reevaluate_ratio=0.02, keep_exchanges=0
)
DEADLINE = 0.1
MODES: tuple[Mode, ...] = ("pause", "observe")


class Unsteady(Decider):
    """Decides late, or fails, when it is told to."""

    slow = broken = False
    running = 0

    def decide(self, request: ParsedRequest, late: Any = None) -> Decision:
        self.running += 1
        try:
            if self.slow:
                time.sleep(2 * DEADLINE)
            if self.broken:
                raise RuntimeError("broken for a test")
            return super().decide(request, late)
        finally:
            self.running -= 1

    def decide_immediately(self, request: ParsedRequest) -> Decision | None:
        return None if self.slow or self.broken else super().decide_immediately(request)


@dataclass
class Branch:
    """A history as its client holds it, and what of it went up last."""

    messages: list[dict[str, Any]]
    model: str
    tools: list[Any] = field(default_factory=lambda: TOOLS)
    went: tuple[list[Any], Decision] | None = None
    forgotten: bool = False  # what went up of it was never written down, and nobody knows it now

    def body(self) -> bytes:
        told = {"model": self.model, "max_tokens": 99, "tools": self.tools}
        return json.dumps({**told, "messages": self.messages}).encode()

    def fork(self) -> Branch:
        return Branch(list(self.messages), self.model, self.tools, self.went, self.forgotten)


class Driver:
    """Plays a session by chance; every law is checked as it goes."""

    def __init__(self, folder: Path, seed: int, servers: int = 1) -> None:
        self.chance = random.Random(seed)
        self.path = folder / "respool.db"
        self.now = 1_800_000_000.0
        self.policy = self.chance.choice([EAGER_POLICY, EAGER_POLICY, PLANNED, BUDGET])
        self.shared = servers > 1
        self.holdout = self._draw_holdout()
        self.provider = Signer()
        self.servers = [self._server() for _ in range(servers)]
        model = self.chance.choice([BOUND, BOUND, BOUND, UNBOUND])
        self.branches = [Branch([{"role": "user", "content": f"task {seed}"}], model)]
        self.lock: sqlite3.Connection | None = None
        self.log: list[str] = []
        self.kinds: dict[str, int] = {}
        self.projected: set[str] = set()
        self.together: asyncio.Barrier | None = None  # of requests that are all up before an answer

    def _server(self) -> tuple[Compactor, Unsteady, SQLiteStore]:
        # What one server cannot write down, the other does not know.
        store = SQLiteStore(self.path, wait=2.0 if self.shared else 0.01)
        decider = Unsteady(self.policy, store, shared_store=self.shared)
        options = CompactionOptions(
            policy=self.policy,
            deadline=DEADLINE,
            shared_store=self.shared,
            holdout=HoldoutOptions(self.holdout),
        )
        made = Compactor(
            decider,
            Recorder(store),
            options,
            salt=salt_of(store),
            clock=lambda: self.now,
            observer=Decider(self.policy, store, observe=True, shared_store=self.shared),
        )
        made.breaker = CircuitBreaker(
            lambda: self.now, BreakerRules(max_failures=self.chance.choice([5, 50]))
        )
        return made, decider, store

    def _draw_holdout(self) -> float:
        return self.chance.choice([0.0, 0.0, 0.0, 0.9])

    async def play(self, steps: int) -> None:
        acts = [self.grow] * 12 + [
            self.grow_slowly,
            self.grow_slowly,
            self.grow_brokenly,
            self.fork,
            self.retry,
            self.switch,
            self.sleep,
            self.toggle_lock,
            self.bypass,
            self.count,
            self.restart,
            self.fail,
            self.refuse,
            self.overflow,
            self.say,
            self.kill,
            self.grow_beside,
            self.switch_mode,
            self.pin,
        ]
        if self.shared:  # of what a server could not write, the other does not know
            acts.remove(self.toggle_lock)
        for _ in range(steps):
            act = self.chance.choice(acts)
            branch = self.chance.choice(self.branches)
            self.log.append(f"{act.__name__} {self.branches.index(branch)} {len(branch.messages)}")
            await act(branch)
            if self.chance.random() < 0.8 and not self.shared:  # a model takes its time
                await self._rest()
        self.unlock()
        await self.close()

    async def _rest(self) -> None:
        """Wait until what came too late has come, and what one server knows is written for all."""
        while any(decider.running for _, decider, _ in self.servers):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self.shared:
            for compactor, decider, store in self.servers:
                while (  # noqa: ASYNC110
                    compactor._fallback_executor._pending
                    or decider._guard._pending
                    or compactor._recorder._ended
                ):
                    await asyncio.sleep(0.005)
                assert store.flush()

    async def close(self) -> None:
        for middleware, _, _ in self.servers:
            await middleware.stop()
        store = SQLiteStore(self.path)
        assert store.readable_refs(self.provider.refs, None) == self.provider.refs
        store.close()

    async def grow(self, branch: Branch, *headers: tuple[bytes, bytes], error: str = "") -> None:
        """Ask; if the model answers, run what it calls."""
        self.now += self.chance.choice([1, 5, 30])
        body, thinks = branch.body(), branch.model != UNBOUND or self.chance.random() < 0.5
        sent, decision = await self._ask(branch, body, headers, error)
        if sent is None or decision is None:
            return
        self._check_stable(branch, sent, decision)
        # Late is not skipped: what came just in time after all went up with its new edits.
        projects = decision.kind in ("projection", "known-edits")
        if projects and decision.identity.prefix not in decision.facts.skipped:
            self.projected.add(decision.identity.prefix)
        answer = self.provider.answer(sent, thinks=thinks)
        lines = self.chance.choice([2, 40, 150])
        text = "".join(f"line {n} {self.chance.random()} of it\n" for n in range(lines))
        result = {"type": "tool_result", "tool_use_id": answer[-1]["id"], "content": text}
        branch.went = (json.loads(sent)["messages"], decision)
        branch.messages = [
            *branch.messages,
            {"role": "assistant", "content": answer},
            {"role": "user", "content": [result]},
        ]

    async def say(self, branch: Branch) -> None:
        """The user has something to add."""
        content = list(branch.messages[-1]["content"])
        if isinstance(branch.messages[-1]["content"], list):
            content.append({"type": "text", "text": "and one more thing"})
            branch.messages = [*branch.messages[:-1], {"role": "user", "content": content}]
            branch.went = None
        await self.grow(branch)

    async def grow_slowly(self, branch: Branch) -> None:
        with self._all(slow=True):
            await self.grow(branch)

    async def grow_beside(self, branch: Branch) -> None:
        """Two go on from one history at once, and one of them is late."""
        other = branch.fork()
        branch.went = other.went = None
        self.branches = [*self.branches[-3:], other]
        await self._beside(branch, other, self.chance.choice(self.servers)[1])
        branch.went = other.went = None

    async def _beside(self, branch: Branch, other: Branch, slow: Unsteady) -> None:
        self.together, slow.slow = asyncio.Barrier(2), True
        try:
            await asyncio.gather(self.grow(branch), self.grow(other))
        finally:
            self.together, slow.slow = None, False

    async def grow_brokenly(self, branch: Branch) -> None:
        with self._all(broken=True):
            await self.grow(branch)

    async def bypass(self, branch: Branch) -> None:
        await self.grow(branch, (b"x-respool-bypass", b"1"))

    async def switch_mode(self, branch: Branch) -> None:
        """The user pauses or observes for some requests, and compacts again."""
        middleware = self.chance.choice(self.servers)[0]
        middleware.switch(self.chance.choice(MODES))
        for _ in range(self.chance.randrange(1, 4)):
            await self.grow(branch)
        middleware.switch("compact")

    async def pin(self, branch: Branch) -> None:
        """The user pins the conversation at one server for some requests, and unpins it."""
        middleware, _, store = self.chance.choice(self.servers)
        if branch.went is None or self.lock is not None:
            return
        store.flush()
        name = branch.went[1].identity.conversation
        for pinned in (True, False):
            with contextlib.closing(SQLiteStore(self.path)) as patient:  # a user tries again
                patient.set_pinned(name, pinned)
            middleware.note_pinned(name, pinned)
            for _ in range(self.chance.randrange(1, 3)):
                await self.grow(branch)

    async def fail(self, branch: Branch) -> None:
        await self.grow(branch, error="overloaded")

    async def refuse(self, branch: Branch) -> None:
        """The provider finds fault with respool's work; seldom, for that ends it."""
        await self.grow(branch, error="changed" if self.chance.random() < 0.2 else "")

    async def overflow(self, branch: Branch) -> None:
        await self.grow(branch, error="overflow")

    async def count(self, branch: Branch) -> None:
        await self._ask(branch, branch.body(), (), "", operation="count")

    async def fork(self, branch: Branch) -> None:
        """Go on from an earlier place too."""
        other = branch.fork()
        back = self.chance.randrange(0, 3)
        if len(other.messages) > 2 * back + 1 and back:
            other.messages, other.went = other.messages[: -2 * back], None
        self.branches = [*self.branches[-3:], other]
        await self.grow(other)

    async def retry(self, branch: Branch) -> None:
        """The answer is lost, or not wanted; later perhaps it is."""
        kept = branch.fork()
        await self.grow(branch)
        if self.chance.random() < 0.7:
            branch.messages, branch.went = kept.messages, None
            await self.grow(branch)

    async def switch(self, branch: Branch) -> None:
        if self.chance.random() < 0.5 and branch.model != UNBOUND:
            branch.model = OTHER_BOUND if branch.model == BOUND else BOUND
        else:
            more = {"name": "more", "description": "", "input_schema": {"type": "object"}}
            branch.tools = [*TOOLS, more] if len(branch.tools) == 1 else TOOLS
        branch.went = None
        await self.grow(branch)

    async def sleep(self, branch: Branch) -> None:
        self.now += 4_000
        branch.went = None
        await self.grow(branch)

    async def restart(self, _branch: Branch) -> None:
        """A server ends, and another begins."""
        at = self.chance.randrange(len(self.servers))
        middleware, _, store = self.servers[at]
        store.flush(1.0)
        if self.lock is None:
            await middleware.stop()
            self.holdout = self.holdout if self.shared else self._draw_holdout()
            self.servers[at] = self._server()

    async def kill(self, _branch: Branch) -> None:
        """A server is gone at once, with all that it had not written yet; another begins.

        Of what it could not write down nobody knows. Then a request may be refused, once, and goes
        up again without what was signed.
        """
        if not self.shared:  # else the others know what it has sent
            await self._rest()
        if self.lock is not None:
            for branch in self.branches:
                branch.forgotten = True
        at = self.chance.randrange(len(self.servers))
        middleware, decider, store = self.servers[at]
        decider._guard._pending.clear()
        middleware._recorder._ended.clear()
        with store._queue._changed:
            store._queue._waiting.clear()
        await middleware.stop()
        self.servers[at] = self._server()

    async def toggle_lock(self, _branch: Branch) -> None:
        """The store cannot be written, and later can be."""
        if self.lock is None:
            self.lock = sqlite3.connect(self.path, isolation_level=None)
            self.lock.execute("BEGIN IMMEDIATE")
        else:
            self.unlock()

    def unlock(self) -> None:
        if self.lock is not None:
            self.lock.execute("ROLLBACK")
            self.lock.close()
            self.lock = None

    @contextlib.contextmanager
    def _all(self, **how: bool) -> Iterator[None]:
        for _, decider, _ in self.servers:
            for name, value in how.items():
                setattr(decider, name, value)
        try:
            yield
        finally:
            for _, decider, _ in self.servers:
                decider.slow = decider.broken = False

    async def _ask(
        self, branch: Branch, body: bytes, headers: Any, error: str, operation: Any = "generate"
    ) -> tuple[bytes | None, Decision | None]:
        """Send a request as forwarding does; return the accepted body and its decision."""
        middleware = self.chance.choice(self.servers)[0]
        incoming = ParsedRequest(
            "POST",
            "/v1/messages",
            "",
            ((b"x-api-key", b"one"), *headers),
            "anthropic",
            operation,
            None,
            None,
            body,
        )
        flight = await middleware.request_parsed(incoming)
        for tries in (3, 2, 1):
            sent = body if flight.body is None else flight.body
            refusal = self._refusal(branch, body, sent, error if tries == 3 else "")
            status, said = refusal or (200, b'{"type": "message"}')
            following: InFlight | None = None
            judged = flight.body is not None or flight.is_retriable
            if 400 <= status < 500 and judged and tries > 1:
                answer = ErrorResponse(status, (), said)
                following = await middleware.error_received(flight, answer)
            assert following is not None or status != 400 or error, self.log
            if following is None:
                if self.together is not None:
                    await self.together.wait()
                decision = flight.decision
                if flight.is_observed:
                    decision = flight.original or Decision(kind="original")
                middleware.response_started(flight, status, ())
                middleware.ended(flight, "complete")
                self.kinds[decision.kind] = self.kinds.get(decision.kind, 0) + 1
                return (sent, decision) if status == 200 else (None, None)
            middleware.ended(flight, "retried")
            flight = following
        raise AssertionError("the last try returns")

    def _refusal(
        self, branch: Branch, body: bytes, sent: bytes, error: str
    ) -> tuple[int, bytes] | None:
        found = self.provider.problems(sent)
        if found and branch.forgotten:
            branch.forgotten, branch.went = False, None
            return 400, _error("messages.1: thinking is bound to a different conversation")
        assert not found, (found, self.log)
        if error == "overloaded":
            return 529, b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
        if error == "changed" and sent != body:
            return 400, _error("messages.3: something is wrong with it")
        if error == "overflow":
            return 400, _error("prompt is too long: 210000 tokens > 200000 maximum")
        return None

    def _check_stable(self, branch: Branch, sent: bytes, decision: Decision) -> None:
        """Between epochs, what goes up extends what went up."""
        if branch.went is None:
            return
        before, last = branch.went
        if decision.facts.skipped & self.projected:
            return  # a retry went up as it came where a projection had gone up: a prefix break
        kinds = {decision.kind, last.kind}
        if not kinds <= {"projection", "known-edits"} or decision.moment:
            return
        if decision.identity.prefix in decision.facts.cold | decision.facts.changed:
            return  # a free moment, which another process or an earlier try has noted
        now = [without_breakpoints(one) for one in json.loads(sent)["messages"]]
        if decision.epochs == last.epochs:
            assert now[: len(before)] == [without_breakpoints(one) for one in before], self.log


def _error(message: str) -> bytes:
    told = {"type": "invalid_request_error", "message": message}
    return json.dumps({"type": "error", "error": told}).encode()
