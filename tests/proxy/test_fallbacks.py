"""Fallbacks when a compaction is late, fails or is refused, and their consequences."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.policy import PRESETS
from respool.proxy import compactor as module
from respool.proxy.breaker import BreakerRules, CircuitBreaker
from respool.proxy.decide import Decider
from respool.proxy.middleware import UNCLEAR_STATUSES
from respool.proxy.recorder import changed_settings, policy_with, project_again
from tests.providers.signing_provider import BOUND, TOOLS, Signer
from tests.proxy.compaction import (
    DEADLINE,
    EAGER_POLICY,
    INVALID,
    OVERFLOW,
    Compacted,
    answer,
    answer_by_body,
    drive,
    parsed,
    refusal,
    request_body,
    response_header,
)
from tests.proxy.sockets import SOON, ask, post, until
from tests.support.formats import FORMATS
from tests.test_engine import thought, thoughts

formats = pytest.mark.parametrize("format", FORMATS)
OK = answer(200, {})


@pytest.fixture(autouse=True)
def _always_aside(monkeypatch: pytest.MonkeyPatch):
    """Small requests too are decided on off the loop, under the deadline."""
    monkeypatch.setattr(module, "_IMMEDIATE_BYTES", 0)


def name_of(one: Compacted) -> str:
    (conversation,) = one.store.conversations(None)
    return conversation.name


class TestLate:
    @formats
    def test_edits_in_force_go_up_and_no_others(self, tmp_path: Path, format: str):
        async def act(one: Compacted) -> None:
            await one.ask(format, 3)
            async with one.late():
                reply = await one.ask(format, 5)
                assert response_header(reply, "x-respool-sent") == "known-edits"
                assert one.received(format)[:2] == one.received(format, 0)[:2]
                assert one.shortened(format) == [True, True, False, False, False]
                facts = one.store.facts((await one.records(2))[0].conversation)
                assert len(facts.skipped) == 2
            assert response_header(await one.ask(format, 6), "x-respool-sent") == "projection"
            assert one.received(format)[:2] == one.received(format, 0)[:2]
            assert one.shortened(format) == [True] * 5 + [False]

        drive(tmp_path, act)

    @formats
    def test_without_any_the_original_goes_up(self, tmp_path: Path, format: str):
        async def act(one: Compacted) -> None:
            async with one.late():
                reply = await one.ask(format, 3)
            assert response_header(reply, "x-respool-sent") == "original"
            assert one.bodies == [request_body(format, 3)]
            (record,) = await one.records(1)
            assert record.fallback == "late: over 0.4 s"
            assert len(one.store.facts(record.conversation).skipped) == 1

        drive(tmp_path, act)

    def test_where_that_might_not_fit_the_request_waits(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            asked = {**json.loads(request_body("anthropic", 3)), "system": "x" * 500_000}
            async with one.late(2 * DEADLINE):
                reply = await one.send("anthropic", json.dumps(asked).encode())
            assert response_header(reply, "x-respool-sent") == "projection"
            assert one.shortened("anthropic") == [True, True, False]

        drive(tmp_path, act)

    def test_it_does_not_wait_for_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """The time is bounded, whatever the size; the breaker stays closed for others."""
        monkeypatch.setattr(module, "_FIT_SECONDS", DEADLINE)

        async def act(one: Compacted) -> None:
            bodies = [
                json.dumps(
                    {**json.loads(request_body("anthropic", 3)), "system": f"{n}" + "x" * 500_000}
                ).encode()
                for n in range(6)
            ]
            async with one.late():
                began = time.monotonic()
                replies = await asyncio.gather(*(one.send("anthropic", body) for body in bodies))
                assert time.monotonic() - began < SOON / 2
            assert [response_header(reply, "x-respool-sent") for reply in replies] == [
                "original"
            ] * 6
            assert one.compactor.breaker.state().phase == "closed"

        drive(tmp_path, act, threads=6)

    def test_a_slow_fallback_sends_the_bytes_that_came(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """The sent request is recorded later, when there is time."""
        monkeypatch.setattr(module, "_FALLBACK_SECONDS", DEADLINE)

        async def act(one: Compacted) -> None:
            decide, go = one.decider.decide_without_new_edits, threading.Event()

            def held(*given: Any, **named: Any) -> Any:
                go.wait(SOON)
                return decide(*given, **named)

            monkeypatch.setattr(one.decider, "decide_without_new_edits", held)
            async with one.late():
                reply = await one.ask("anthropic", 3)
                assert response_header(reply, "x-respool-sent") == "original"
                assert one.bodies == [request_body("anthropic", 3)]
                known = one.decider._conversations._known
                await until(lambda: any(found.facts.skipped for found in known.values()))
                go.set()

        drive(tmp_path, act)

    def test_a_retry_after_an_overflow_does_not_wait_for_long(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "_FIT_SECONDS", DEADLINE)

        async def act(one: Compacted) -> None:
            async with one.late():
                assert (await one.ask("anthropic", 3)).status == 400  # the provider's own error
            assert len(one.bodies) == 1

        drive(tmp_path, act, script=answer_by_body(lambda _: OVERFLOW))

    def test_a_limit_that_was_named_makes_it_wait_too(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            await one.ask("anthropic", 3)
            assert one.store.facts(name_of(one)).windows
            one.decider._session._memo.clear()
            async with one.late(2 * DEADLINE):
                assert (
                    response_header(await one.ask("anthropic", 4), "x-respool-sent") == "projection"
                )

        received: list[bytes] = []

        def judge(body: bytes) -> bytes:
            received.append(body)
            return OVERFLOW if len(received) == 1 else OK

        drive(tmp_path, act, script=answer_by_body(judge))

    def test_what_came_late_is_remembered(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            async with one.late():
                await one.ask("anthropic", 3)
            assert len(one.decider._session._memo) == 2
            async with one.late():
                reply = await one.ask("anthropic", 4)  # again, but now something is known
            assert response_header(reply, "x-respool-sent") == "known-edits"
            assert one.shortened("anthropic")[:2] == [True, False]

        drive(tmp_path, act)

    @formats
    def test_a_new_process_agrees_with_what_was_sent(self, tmp_path: Path, format: str):
        async def act(one: Compacted) -> None:
            await one.ask(format, 3)
            async with one.late():
                await one.ask(format, 4)
            await one.ask(format, 5)
            (record, *_) = await one.records(3)
            model = "gemini-2.5-pro" if format == "gemini" else None
            anew = Decider(EAGER_POLICY, one.store)
            for steps, body in zip((4, 5), one.bodies[1:], strict=True):
                asked = parsed(
                    request_body(format, steps), format, model, record.owner, record.time
                )  # type: ignore[arg-type]
                decision = anew.decide(asked)
                assert (decision.body or asked.body) == body

        drive(tmp_path, act)


class TestAFaultOfRespools:
    @formats
    def test_edits_in_force_go_up_else_the_original(self, tmp_path: Path, format: str):
        async def act(one: Compacted) -> None:
            one.decider.fault = RuntimeError("a fault")
            assert (await one.ask(format, 2)).status == 200
            assert one.bodies == [request_body(format, 2)]
            one.decider.fault = None
            await one.ask(format, 3)
            one.decider.fault = RecursionError()
            reply = await one.ask(format, 4)
            assert response_header(reply, "x-respool-sent") == "known-edits"
            assert one.received(format)[:2] == one.received(format, 1)[:2]
            assert one.shortened(format)[0]

        drive(tmp_path, act)

    def test_where_even_reading_fails_the_original_goes_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        async def act(one: Compacted) -> None:
            def broken(*_: object, **__: object) -> None:
                raise MemoryError

            monkeypatch.setattr("respool.engine.Session.parse", broken)
            reply = await one.ask("anthropic", 3)
            assert reply.status == 200
            assert response_header(reply, "x-respool-sent") == "untouched"
            assert one.bodies == [request_body("anthropic", 3)]

        drive(tmp_path, act)


class TestRefused:
    """The provider finds fault with a projection."""

    @formats
    def test_the_original_is_tried_once_and_the_conversation_left_alone(
        self, tmp_path: Path, format: str
    ):
        originals = {request_body(format, steps) for steps in range(1, 9)}

        async def act(one: Compacted) -> None:
            reply = await one.ask(format, 3)
            assert reply.status == 200
            assert len(one.bodies) == 2
            assert one.bodies[1] == request_body(format, 3)
            for steps in (4, 5):
                assert response_header(await one.ask(format, steps), "x-respool-sent") == "original"
            assert one.bodies[2:] == [request_body(format, 4), request_body(format, 5)]
            await until(lambda: one.store.rejected_requests(None))
            (case,) = one.store.rejected_requests(None)
            assert (case.request, case.sent, case.status) == (one.bodies[1], one.bodies[0], 400)
            assert "something is wrong" in case.error
            assert project_again(case) == case.sent
            await until(lambda: one.store.facts(case.conversation).left_alone)
            for shared in (False, True):  # a restart, and another server
                other = Decider(EAGER_POLICY, one.store, shared_store=shared)
                model = "gemini-2.5-pro" if format == "gemini" else None
                asked = parsed(request_body(format, 6), format, model, case.owner, case.time)  # type: ignore[arg-type]
                assert other.decide(asked).reason == "left alone"

        drive(
            tmp_path, act, script=answer_by_body(lambda body: OK if body in originals else INVALID)
        )

    @pytest.mark.parametrize("status", sorted(UNCLEAR_STATUSES))
    def test_repeated_failures_of_a_projection_try_the_original(self, tmp_path: Path, status: int):
        originals = {request_body("anthropic", steps) for steps in range(1, 9)}
        failures = 2 if status < 500 else 3

        async def act(one: Compacted) -> None:
            for _ in range(failures - 1):
                assert (await one.ask("anthropic", 3)).status == status
            reply = await one.ask("anthropic", 3)
            assert reply.status == 200
            assert one.bodies[-1] == request_body("anthropic", 3)
            assert len(one.bodies) == failures + 1
            reply = await one.ask("anthropic", 4)
            assert (reply.status, response_header(reply, "x-respool-sent")) == (200, "original")
            await until(lambda: one.store.rejected_requests(None))
            (case,) = one.store.rejected_requests(None)
            assert case.status == status

        failed = refusal("no", status)
        drive(
            tmp_path, act, script=answer_by_body(lambda body: OK if body in originals else failed)
        )

    def test_an_outage_is_not_taken_for_a_refusal(self, tmp_path: Path):
        """The original fails as well; the next one is tried after twice as many failures."""
        up = list[bool]()

        async def act(one: Compacted) -> None:
            for _ in range(9):  # the original after three failures, then after six
                assert (await one.ask("anthropic", 3)).status == 500
            assert one.bodies.count(request_body("anthropic", 3)) == 2
            assert len(one.bodies) == 11
            up.append(True)
            assert response_header(await one.ask("anthropic", 3), "x-respool-sent") == "projection"
            up.clear()
            for steps in (3, 4):
                assert (await one.ask("anthropic", steps)).status == 500
            assert len(one.bodies) == 14
            assert not one.store.facts(name_of(one)).left_alone

        drive(tmp_path, act, script=answer_by_body(lambda _: OK if up else refusal("down", 500)))

    @pytest.mark.parametrize("status", [401, 402, 408, 409, 429, 502, 503, 504, 529])
    def test_other_errors_never_try_the_original(self, tmp_path: Path, status: int):
        async def act(one: Compacted) -> None:
            for _ in range(4):
                assert (await one.ask("anthropic", 3)).status == status
            assert len(one.bodies) == 4

        drive(tmp_path, act, script=answer_by_body(lambda _: refusal("later", status)))

    def test_a_count_that_is_refused_leaves_nothing_alone(self, tmp_path: Path):
        """Near a window it may be another projection than is sent, and its thoughts not fit."""
        originals, counted = (
            {request_body("anthropic", steps) for steps in range(1, 9)},
            list[bytes](),
        )

        async def act(one: Compacted) -> None:
            count = post(
                "/v1/messages/count_tokens", request_body("anthropic", 3), "x-api-key: one"
            )
            assert (await ask(one.standing.port, count)).status == 200
            assert len(one.bodies) == 2
            counted.append(one.bodies[0])
            await until(lambda: one.store.rejected_requests(None))
            assert response_header(await one.ask("anthropic", 4), "x-respool-sent") == "projection"
            assert one.compactor.breaker.state().phase == "closed"

        def judge(body: bytes) -> bytes:
            return OK if counted or body in originals else INVALID

        drive(tmp_path, act, script=answer_by_body(judge))

    @pytest.mark.parametrize(
        "policy",
        [
            respool.Policy(),
            *(respool.Policy.preset(name) for name in PRESETS),
            respool.Policy(
                tools=respool.Tools(
                    [
                        respool.Tool("Read", cap_chars=None, reads=("path",)),
                        respool.Tool("Run", kind="run", command="cmd"),
                    ]
                )
            ),
            respool.Policy(passes=("default", "-trim_results"), budget=9_000, rendering="text"),
        ],
    )
    def test_the_settings_of_a_case_are_those_that_held(self, policy: respool.Policy):
        written = json.loads(json.dumps(changed_settings(policy)))
        assert policy_with(written).fingerprint() == policy.fingerprint()

    def test_if_that_fails_too_the_client_gets_the_answer_to_what_it_sent(self, tmp_path: Path):
        mine = request_body("anthropic", 3)

        async def act(one: Compacted) -> None:
            reply = await one.ask("anthropic", 3)
            assert reply.status == 400
            assert b"the client's own" in reply.body
            assert len(one.bodies) == 2
            assert one.store.rejected_requests(None) == []
            assert not one.store.facts((await one.records(1))[0].conversation).left_alone

        wrong = refusal("messages.1: the client's own")
        drive(tmp_path, act, script=answer_by_body(lambda body: wrong if body == mine else INVALID))

    def test_an_original_is_not_tried_again(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            assert (await one.ask("anthropic", 1)).status == 400
            assert (await one.ask("anthropic", 3, "x-respool-bypass: 1")).status == 400
            assert len(one.bodies) == 2

        drive(tmp_path, act, script=answer_by_body(lambda _: INVALID))

    @pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 529])
    def test_other_errors_come_down_as_they_are(self, tmp_path: Path, status: int):
        async def act(one: Compacted) -> None:
            assert (await one.ask("anthropic", 3)).status == status
            assert len(one.bodies) == 1

        said_so = answer(status, {"error": {"type": "some_error", "message": "no"}})
        drive(tmp_path, act, script=answer_by_body(lambda _: said_so))

    def test_reasoning_signed_for_projections_is_dropped_from_the_original(self, tmp_path: Path):
        bad: list[bytes] = []

        async def act(one: Compacted) -> None:
            for steps in (2, 3):
                await one.send("anthropic", json.dumps(thought(steps)).encode())
            bad.append(b"refuse")
            reply = await one.send("anthropic", json.dumps(thought(4)).encode())
            assert reply.status == 200
            assert len(one.bodies) == 4
            sent = json.loads(one.bodies[-1])
            assert [len(text) > 1_000 for text in one.received("anthropic")] == [True] * 4
            assert thoughts(sent) == []
            await one.send("anthropic", json.dumps(thought(6)).encode())
            assert thoughts(json.loads(one.bodies[-1])) == ["thought 9", "thought 11"]

        def judge(body: bytes) -> bytes:
            return INVALID if bad and b"left out" in body else OK

        drive(tmp_path, act, script=answer_by_body(judge))


class TestOverflow:
    def judged(self, seen: list[bytes]) -> Any:
        def judge(body: bytes) -> bytes:
            seen.append(body)
            return OVERFLOW if len(body) > 16_000 else OK

        return answer_by_body(judge)

    @formats
    def test_it_is_tried_again_under_the_limit_that_is_named(self, tmp_path: Path, format: str):
        policy = respool.Policy(
            cap_chars=500, reevaluate_tokens=1_000_000, reevaluate_ratio=1.0, keep_exchanges=0
        )
        seen: list[bytes] = []

        async def act(one: Compacted) -> None:
            reply = await one.ask(format, 6)
            assert seen[0] == request_body(format, 6)  # nothing was done before
            assert reply.status == 200
            assert len(seen) == 2
            assert len(seen[1]) < 16_000
            (record,) = await one.records(1)
            assert (record.fallback, record.again) == ("", "overflow")
            assert len(one.store.facts(record.conversation).windows) == 1
            assert (await one.ask(format, 7)).status == 200

        drive(tmp_path, act, script=self.judged(seen), policy=policy)

    def test_one_that_went_up_late_and_as_it_came_is_too(self, tmp_path: Path):
        seen: list[bytes] = []

        async def act(one: Compacted) -> None:
            async with one.late() as go:
                asking = asyncio.ensure_future(one.ask("anthropic", 6))
                await until(lambda: seen)
                go.set()
                reply = await asking
            assert seen[0] == request_body("anthropic", 6)
            assert reply.status == 200
            assert len(seen) == 2
            await one.ask("anthropic", 7)
            before, after = (json.loads(body)["messages"] for body in seen[1:])
            assert after[: len(before) - 1] == before[:-1]

        drive(tmp_path, act, script=self.judged(seen))

    def test_once_only(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            reply = await one.ask("anthropic", 6)
            assert reply.status == 400
            assert b"too long" in reply.body
            assert len(one.bodies) <= 2

        drive(tmp_path, act, script=answer_by_body(lambda _: OVERFLOW))


class TestTheBreaker:
    def test_it_opens_after_repeated_trouble_and_closes_again(self, tmp_path: Path):
        now = [0.0]

        async def act(one: Compacted) -> None:
            one.compactor.breaker = CircuitBreaker(lambda: now[0], BreakerRules(max_failures=3))
            await one.ask("anthropic", 2)
            one.decider.fault = RuntimeError("a fault")
            for steps in (3, 4, 5):
                await one.ask("anthropic", steps)
            assert one.compactor.breaker.state().phase == "open"
            one.decider.fault = None
            reply = await one.ask("anthropic", 6)
            assert response_header(reply, "x-respool-sent") == "known-edits"  # edits in force stay
            why = "breaker open: 3 failures within 120 s, the last: RuntimeError"
            assert (await one.records(5))[-1].fallback == why
            now[0] += 61
            await one.ask(
                "anthropic", 6, "x-respool-bypass: 1"
            )  # which tells nothing of compaction
            assert one.compactor.breaker.state().phase == "open"
            assert response_header(await one.ask("anthropic", 7), "x-respool-sent") == "projection"
            assert one.compactor.breaker.state().phase == "closed"

        drive(tmp_path, act)

    def test_only_the_first_late_request_of_a_conversation_is_excused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """It fills the memo for the next one. One that never ends is not excused either."""

        async def act(one: Compacted) -> None:
            one.compactor.breaker = CircuitBreaker(lambda: 0.0, BreakerRules(max_failures=1))
            async with one.late():
                await one.ask("anthropic", 3)
                await one.ask("anthropic", 4)  # the first one is not decided yet
                assert one.compactor.breaker.state().phase == "closed"
                monkeypatch.setattr(module, "_HUNG_SECONDS", 0.0)
                await one.ask("anthropic", 5)
                assert one.compactor.breaker.state().phase == "open"
            one.compactor.breaker = CircuitBreaker(lambda: 0.0, BreakerRules(max_failures=1))
            async with one.late():
                await one.ask("anthropic", 6)
            assert one.compactor.breaker.state().phase == "open"

        drive(tmp_path, act)


class TestSigned:
    """A provider that checks its signatures, and everything that makes respool fall back."""

    def test_no_thought_meets_what_it_was_not_signed_for(self, tmp_path: Path):
        provider = Signer()

        async def act(one: Compacted) -> None:
            one.compactor.breaker = CircuitBreaker(lambda: 0.0, BreakerRules(max_failures=50))
            messages: list[Any] = [{"role": "user", "content": "go on"}]
            calm, sent = (False, None, ()), list[str]()
            late, fault = (True, None, ()), (False, RuntimeError(), ())
            bypass = (False, None, ("x-respool-bypass: 1",))
            plan = [
                calm, calm, calm, late, calm, late, late, calm, calm, fault, calm, bypass, bypass,
                calm, fault, calm, bypass, late, calm, calm,
            ]  # fmt: skip
            for is_late, broken, headers in plan:
                one.decider.fault = broken
                body = {"model": BOUND, "max_tokens": 9, "tools": TOOLS, "messages": messages}
                async with one.late() if is_late else nullcontext():
                    reply = await one.send("anthropic", json.dumps(body).encode(), *headers)
                assert reply.status == 200, reply.body
                sent.append(response_header(reply, "x-respool-sent"))
                made = json.loads(reply.body)["content"]
                messages += [{"role": "assistant", "content": made}, _result(made[-1]["id"])]
            assert {"projection", "known-edits", "original"} == set(sent)
            assert sent[-1] == "projection"
            assert any(b'"thinking"' in body for body in one.bodies)

        def judge(body: bytes) -> bytes:
            found = provider.problems(body)
            return refusal(found[0]) if found else answer(200, {"content": provider.answer(body)})

        drive(tmp_path, act, script=answer_by_body(judge))

    @pytest.mark.parametrize("bypass", [(), ("x-respool-bypass: 1",)], ids=["failing", "bypassed"])
    def test_thoughts_whose_projections_nobody_knows_any_more_are_left_behind(
        self, tmp_path: Path, bypass: tuple[str, ...]
    ):
        """The store was deleted, and another process falls back: the provider is believed."""
        provider, messages = Signer(), list[Any]([{"role": "user", "content": "go on"}])

        async def grow(one: Compacted, *headers: str) -> str:
            body = {"model": BOUND, "max_tokens": 9, "tools": TOOLS, "messages": messages}
            reply = await one.send("anthropic", json.dumps(body).encode(), *headers)
            assert reply.status == 200, reply.body
            made = json.loads(reply.body)["content"]
            messages.extend([{"role": "assistant", "content": made}, _result(made[-1]["id"])])
            return response_header(reply, "x-respool-sent")

        async def before(one: Compacted) -> None:
            assert [await grow(one) for _ in range(9)] == ["projection"] * 9
            assert b"[respool: " in one.bodies[-1]
            assert b'"thinking"' in one.bodies[-1]

        async def after(one: Compacted) -> None:
            one.decider.fault = None if bypass else RuntimeError()
            assert await grow(one, *bypass) == "original"
            assert [b'"thinking"' in body for body in one.bodies] == [True, False]
            assert await grow(one, *bypass) == "original"
            assert len(one.bodies) == 3
            one.decider.fault = None
            assert [await grow(one) for _ in range(3)] == ["projection"] * 3
            assert len(one.bodies) == 6

        def judge(body: bytes) -> bytes:
            found = provider.problems(body)
            return refusal(found[0]) if found else answer(200, {"content": provider.answer(body)})

        drive(tmp_path / "one", before, script=answer_by_body(judge))
        drive(tmp_path / "another", after, script=answer_by_body(judge))


def _result(id: str) -> dict[str, Any]:
    lines = 60 if int(id.removeprefix("call_")) % 4 == 0 else 3
    text = "".join(f"{id} line {n} of the output\n" for n in range(lines))
    block = {"type": "tool_result", "tool_use_id": id, "content": text}
    return {"role": "user", "content": [block]}
