"""Requests compacted on their way up, through a real proxy, a real store and real sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.compaction import remainder
from respool.edits import Offer
from respool.markers import reference
from respool.passes.base import View
from respool.policy import Policy
from respool.proxy.decide import Decider
from respool.proxy.middleware import ParsedRequest
from respool.store import SQLiteStore
from respool.wire.base import FormatName
from tests.proxy.compaction import (
    EAGER_POLICY,
    INVALID,
    LONG,
    PATHS,
    Compacted,
    answer,
    answer_by_body,
    drive,
    parsed,
    request_body,
    response_header,
)
from tests.proxy.sockets import CHUNKED, SOON, ask, get, post, reply_with, until
from tests.support.formats import FORMATS

formats = pytest.mark.parametrize("format", FORMATS)
MINUTE = 60.0
OK = answer(200, {})


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@formats
def test_what_was_seen_goes_up_smaller_and_stays_so(tmp_path: Path, format: str):
    async def act(one: Compacted) -> None:
        reply = await one.ask(format, 3)
        assert reply.status == 200
        assert response_header(reply, "x-respool-sent") == "projection"
        assert int(response_header(reply, "x-respool-saved")) > 500
        await one.ask(format, 4)
        first, second = one.received(format, 0), one.received(format, 1)
        assert [len(text) < 1_000 for text in first] == [True, True, False]
        assert second[:2] == first[:2]

    drive(tmp_path, act)


@formats
def test_observing_changes_no_byte_and_tells_what_would_be_saved(tmp_path: Path, format: str):
    async def act(one: Compacted) -> None:
        replies = [await one.ask(format, steps) for steps in (3, 4)]
        assert one.bodies == [request_body(format, 3), request_body(format, 4)]
        assert [response_header(reply, "x-respool-sent") for reply in replies] == ["observed"] * 2
        assert all(int(response_header(reply, "x-respool-saved")) > 500 for reply in replies)
        first, second = await one.records(2)
        assert first.mode == second.mode == "observed"
        assert second.saved > first.saved > 500
        assert first.sent_as == "original"
        assert one.store.refs(None) == []  # for nothing was put aside

    drive(tmp_path, act, observe=True)


@formats
def test_a_header_bypasses_respool_once(tmp_path: Path, format: str):
    async def act(one: Compacted) -> None:
        await one.ask(format, 3)
        reply = await one.ask(format, 4, "x-respool-bypass: 1")
        assert one.bodies[-1] == request_body(format, 4)
        assert response_header(reply, "x-respool-sent") == "original"
        assert response_header(reply, "x-respool-saved") == "0"
        assert "x-respool-bypass" not in dict(one.standing.behind.received[-1].headers)
        await one.ask(format, 5, "x-respool-bypass: 0")
        assert one.shortened(format)[:3] == [True] * 3
        modes = [record.mode for record in await one.records(3)]
        assert modes == ["compacted", "bypassed", "compacted"]

    drive(tmp_path, act)


def test_every_elided_text_is_in_the_store_under_its_key(tmp_path: Path):
    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3)
        (conversation,) = one.store.conversations(None)
        text = f"0 {LONG}"
        assert one.store.original(reference(text), conversation.owner) == text
        assert one.store.original(reference(text), "f" * 32) is None
        assert "one" not in conversation.owner

    drive(tmp_path, act)


def test_gemini_counts_a_request_inside_another_as_it_is_sent(tmp_path: Path):
    path = PATHS["gemini"].replace("generateContent", "countTokens")

    def holding(body: bytes, more: str = "") -> bytes:
        return b'{%s"generateContentRequest": %s}' % (more.encode(), body)

    async def act(one: Compacted) -> None:
        async def count(body: bytes) -> bytes:
            raw = post(path, body, "x-goog-api-key: one")
            assert (await ask(one.standing.port, raw)).status == 200
            return one.bodies[-1]

        await one.ask("gemini", 3)
        sent = one.bodies[0]
        assert len(sent) < len(request_body("gemini", 3))
        assert await count(request_body("gemini", 3)) == sent
        inside = json.loads(await count(holding(request_body("gemini", 3))))
        assert inside == {"generateContentRequest": json.loads(sent)}
        for odd in (holding(b"7"), holding(b"[1"), holding(sent, '"contents": [], '), b"[]"):
            assert await count(odd) == odd  # what is not understood goes up as it came

    drive(tmp_path, act)


def test_a_refused_count_is_tried_again_inside_another_too(tmp_path: Path):
    raw = b'{"generateContentRequest":%s}' % request_body("gemini", 3)
    path = PATHS["gemini"].replace("generateContent", "countTokens")

    async def act(one: Compacted) -> None:
        reply = await ask(one.standing.port, post(path, raw, "x-goog-api-key: one"))
        assert reply.status == 200
        assert one.bodies[-1] == raw
        assert len(one.bodies) == 2

    drive(
        tmp_path,
        act,
        script=answer_by_body(lambda body: answer(200, {}) if body == raw else INVALID),
    )


@pytest.mark.parametrize(
    ("format", "path"),
    [
        ("anthropic", "/v1/messages/count_tokens"),
        ("openai-responses", "/v1/responses/input_tokens"),
    ],
)
def test_counting_is_forwarded_with_the_projection_and_is_no_request(
    tmp_path: Path, format: str, path: str
):
    async def act(one: Compacted) -> None:
        await one.ask(format, 3)
        assert one.shortened(format)[:2] == [True, True]
        counting = post(path, request_body(format, 3), "x-api-key: one")
        assert (await ask(one.standing.port, counting)).status == 200
        assert one.bodies[1] == one.bodies[0]
        assert len(await one.records(1)) == 1

    drive(tmp_path, act)


class TestTheColdCache:
    def test_time_between_requests_is_a_fact(self, tmp_path: Path):
        clock = Clock()

        async def act(one: Compacted) -> None:
            for steps, wait in ((3, MINUTE), (4, 61 * MINUTE), (5, MINUTE)):
                await one.ask("anthropic", steps)
                clock.now += wait
            (conversation,) = one.store.conversations(None)
            facts = one.store.facts(conversation.name)
            assert len(facts.cold) == 1
            breaks = [record.prefix_break for record in await one.records(3)]
            assert breaks[2] == "cold"
            assert breaks[1] != "cold"

        drive(tmp_path, act, clock=clock)

    @pytest.mark.parametrize(
        ("format", "model", "minutes"),
        [
            ("openai-chat", "gpt-5.4", 10),
            ("openai-responses", "gpt-5.5", 10),
            ("openai-responses", "gpt-5.6", 30),
            ("openai-chat", "some-model", 10),
            ("openai-chat", "anthropic/claude-opus-4.8", 60),  # whoever marks it may ask for that
            ("gemini", "gemini-3-pro", 5),
        ],
    )
    def test_a_cache_is_cold_after_its_lifetime(
        self, tmp_path: Path, format: FormatName, model: str, minutes: int
    ):
        for share, moment in ((0.9, ""), (1.1, "cold")):
            one = Decider(EAGER_POLICY, SQLiteStore(tmp_path / f"{share}.db"))
            now = 1_800_000_000.0
            for steps in (1, 2, 3):
                now += share * minutes * MINUTE
                body = json.dumps(
                    {**json.loads(request_body(format, steps)), "model": model}
                ).encode()
                asked = parsed(body, format, None, "owner", now)
                made = one.decide(asked)
                one.note_accepted(asked, made)
                assert made.moment == (moment if steps > 1 else "")

    def test_a_late_decision_does_not_say_that_a_pinned_original_was_sent(self, tmp_path: Path):
        """It was pinned while the decision ran; something else had been sent in its place."""
        store = SQLiteStore(tmp_path / "respool.db")
        one = Decider(EAGER_POLICY, store)
        first = parsed(request_body("anthropic", 2), "anthropic", None, "owner", 1e9)
        name = one.decide(first).identity.conversation
        store.keep("owner", name, {reference("text"): "text"})
        assert store.set_pinned(name, True)
        asked = parsed(request_body("anthropic", 3), "anthropic", None, "owner", 1e9)
        late = threading.Event()
        late.set()
        for event, skipped in ((late, 0), (threading.Event(), 1)):
            assert one.decide(asked, event).reason == "pinned"
            assert len(store.facts(name).skipped) == skipped
        store.close()

    def test_another_model_or_other_tools_are_a_fact(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            await one.ask("anthropic", 3)
            other = json.loads(request_body("anthropic", 4))
            await one.send("anthropic", json.dumps({**other, "model": "claude-opus-4-1"}).encode())
            (conversation,) = one.store.conversations(None)
            assert len(one.store.facts(conversation.name).changed) == 1
            assert [record.prefix_break for record in await one.records(2)][1] == "changed"

        drive(tmp_path, act)

    @pytest.mark.parametrize("recorded", [True, False])
    @formats
    def test_replicas_and_restarts_agree_byte_for_byte(
        self, tmp_path: Path, format: str, recorded: bool
    ):
        """Three that share a store take turns; one does all alone.

        A record is written later than its response: the next decision may come before that.
        """
        clock = Clock()
        shared = SQLiteStore(tmp_path / "shared.db")
        replicas = [Decider(EAGER_POLICY, shared, shared_store=True) for _ in range(2)]
        alone = Decider(EAGER_POLICY, SQLiteStore(tmp_path / "alone.db"))
        for steps in range(1, 9):
            clock.now += 90_000 if steps in (4, 6) else 10
            asked = parsed(request_body(format, steps), format, None, "owner", clock.now)  # type: ignore[arg-type]
            by_turns = (
                replicas[steps % 2]
                if steps != 5
                else Decider(EAGER_POLICY, shared, shared_store=True)
            )
            decisions = [by_turns.decide(asked), alone.decide(asked)]
            assert decisions[0].body == decisions[1].body
            assert decisions[0].moment == decisions[1].moment == ("cold" if steps in (4, 6) else "")
            for who, decision in zip((by_turns, alone), decisions, strict=True):
                who.note_accepted(asked, decision)
            if recorded:
                write_down(shared, asked, decisions[0])

    @formats
    def test_an_edit_is_told_once_whoever_made_it(self, tmp_path: Path, format: str):
        """By two in turns, and by one that was just started: the record of all is that of one."""
        told: list[list[tuple[str, str]]] = []
        for shared in (True, False):
            store = SQLiteStore(tmp_path / f"{shared}.db", clock=lambda: 100.0)  # nothing is old
            turns = [Decider(EAGER_POLICY, store, shared_store=shared) for _ in range(1 + shared)]
            for steps in range(1, 8):
                who = turns[steps % len(turns)] if steps != 5 else Decider(EAGER_POLICY, store)
                asked = parsed(request_body(format, steps), format, None, "owner", 10.0 * steps)  # type: ignore[arg-type]
                decision = who.decide(asked)
                who.note_accepted(asked, decision)
                write_down(store, asked, decision, who)
            (conversation,) = store.conversations(None)
            every = store.requests(conversation.name, None)
            assert [one.made for one in every] == [0, *[1] * 6]
            edits = [edit for one in every for edit in store.edits(one.id, None) or ()]
            told.append([(edit.place, edit.ref) for edit in edits])
            assert {edit.tool for edit in edits} == {"shell"}
            assert sorted(edit.target for edit in edits) == [f"make {at}" for at in range(6)]
            words = (store.original(edits[3].ref, "owner") or "").split()
            hits = store.search(words[0], "owner").hits
            assert [one.target for one in hits if one.ref == edits[3].ref] == [edits[3].target]
            store.close()
        assert told[0] == told[1]
        assert len(set(told[0])) == len(told[0]) == 6


def test_an_edit_is_counted_once_however_soon_the_next_request_is_over(tmp_path: Path):
    """None of them is written down yet when the next one is asked."""

    async def act(one: Compacted) -> None:
        for steps in range(1, 8):
            await one.ask("anthropic", steps)
        made = [record.made for record in await one.records(7)]
        counted = [
            record.compaction.new_edits for record in one.standing.records if record.compaction
        ]
        assert counted == made == [0, *[1] * 6]

    drive(tmp_path, act)


def write_down(
    store: SQLiteStore, asked: ParsedRequest, decision: Any, who: Decider | None = None
) -> None:
    from respool.proxy.middleware import InFlight
    from respool.proxy.recorder import Recorder

    recorder = Recorder(store)
    new = decision.edits if who is None else who.take_new_edits(decision)
    recorder.record(InFlight(request=asked, decision=decision, status=200, new_edits=new))
    recorder.stop()
    assert store.flush()


USAGE = {"input_tokens": 4_000, "cache_read_input_tokens": 0, "output_tokens": 5}
EVENTS = b"".join(
    b"event: %s\ndata: %s\n\n" % (kind, json.dumps(data).encode())
    for kind, data in (
        (b"message_start", {"type": "message_start", "message": {"usage": USAGE}}),
        (b"message_delta", {"type": "message_delta", "usage": {"output_tokens": 7}}),
        (b"message_stop", {"type": "message_stop"}),
    )
)


class TestCalibration:
    @pytest.mark.parametrize(
        "reply",
        [
            answer(200, {"type": "message", "usage": USAGE}),
            CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENTS), EVENTS),
        ],
        ids=["whole", "streamed"],
    )
    def test_usage_changes_reports_and_no_projection(self, tmp_path: Path, reply: bytes):
        async def act(one: Compacted) -> None:
            for steps in range(3, 9):
                await one.ask("anthropic", steps)
            records = await one.records(6)
            assert all(record.usage is not None for record in records)
            assert records[0].usage is not None
            assert records[0].usage.input == 4_000
            found = one.compactor._recorder.calibrations.all()
            assert len(found) == 1
            assert next(iter(found.values())).factor > 1.2
            alone = Decider(EAGER_POLICY, SQLiteStore(tmp_path / "other.db"))
            asked = parsed(request_body("anthropic", 8), "anthropic", None, "owner", 1.0)
            assert one.bodies[-1] == alone.decide(asked).body

        drive(tmp_path, act, script=reply_with(reply))


def test_one_upstream_is_told_in_words_and_the_others_are_not(tmp_path: Path):
    async def act(one: Compacted) -> None:
        await one.ask("openai-chat", 3)
        await one.ask("openai-chat", 4)
        await one.ask("anthropic", 3)
        first, second, other = (json.loads(body) for body in one.bodies)
        for body in (first, second):
            roles = [message["role"] for message in body["messages"]]
            assert "tool" not in roles
            assert not any("tool_calls" in message for message in body["messages"])
            assert "make 0" in json.dumps(body)
        assert second["messages"][-1]["content"].startswith(first["messages"][-1]["content"])
        assert other["messages"][1]["content"][0]["type"] == "tool_use"

    drive(tmp_path, act, policy=Policy(passes=()), text_formats=("openai-chat",))


class TestOffTheLoop:
    """Compaction may take its time; who has nothing to do with it does not wait."""

    def test_one_that_is_slow_holds_up_nobody_else(self, tmp_path: Path):
        async def act(one: Compacted) -> None:
            one.decider.held = threading.Event()
            slow = asyncio.ensure_future(one.ask("anthropic", 3))
            await until(lambda: one.decider.running)
            reply = await ask(one.standing.port, get("/v1/models", "x-api-key: one"))
            assert reply.status == 200
            assert not slow.done()
            one.decider.held.set()
            assert response_header(await slow, "x-respool-sent") == "projection"

        drive(tmp_path, act)

    def test_a_users_own_pass_is_under_the_deadline_however_small_a_request(self, tmp_path: Path):
        begun, go = list[str](), threading.Event()

        def dawdle(view: View, _policy: respool.Policy) -> Iterator[Offer]:
            begun.append(threading.current_thread().name)
            go.wait(SOON)
            yield from ()

        async def act(one: Compacted) -> None:
            first = asyncio.ensure_future(one.ask("anthropic", 1))
            await until(lambda: begun)
            assert (await ask(one.standing.port, get("/v1/models", "x-api-key: one"))).status == 200
            await first
            go.set()
            await until(lambda: not one.decider.running)
            go.clear()
            reply = await one.ask("anthropic", 2)  # now the conversation is known
            assert response_header(reply, "x-respool-sent") != "projection"
            assert len(request_body("anthropic", 2)) < 16_384
            assert threading.main_thread().name not in begun
            go.set()

        policy = respool.Policy(
            passes=(dawdle,),
            eager=True,
            reevaluate_tokens=1,
            reevaluate_ratio=0.0,
            keep_exchanges=0,
        )
        drive(tmp_path, act, policy=policy, deadline=0.3)


def test_no_key_and_no_cookie_is_in_the_store(tmp_path: Path):
    """Not even in what is kept of a request that the provider refused."""
    secrets = ("key-in-header", "key-in-bearer", "key-for-google", "a-cookie", "key-in-query")
    headers = (
        "authorization: Bearer key-in-bearer",
        "x-goog-api-key: key-for-google",
        "cookie: session=a-cookie",
    )

    async def act(one: Compacted) -> None:
        path = f"{PATHS['anthropic']}?key=key-in-query"
        for steps in (1, 2, 3):
            raw = post(path, request_body("anthropic", steps), "x-api-key: key-in-header", *headers)
            assert (await ask(one.standing.port, raw)).status == 200
        await one.records(3)
        await until(lambda: one.store.rejected_requests(None))

    originals = {request_body("anthropic", steps) for steps in (1, 2, 3)}
    drive(tmp_path, act, script=answer_by_body(lambda body: OK if body in originals else INVALID))
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"toolu" in held or len(held) > 10_000
    assert [secret for secret in secrets if secret.encode() in held] == []


PATIENT = respool.Policy(
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("stub_results",),
    miss_penalty=100.0,
    keep_exchanges=0,
)


def test_what_waits_is_logged_and_recorded_as_a_report_says_it(tmp_path: Path):
    """The log's last line and the record agree with the library's report of the same request."""

    async def act(one: Compacted) -> None:
        for steps in (2, 3, 4):
            await one.ask("anthropic", steps)
        report = respool.compact(request_body("anthropic", 4), policy=PATIENT, memo=None).report
        left = report.remainder
        assert left.offers == 3
        done = one.standing.records[-1].compaction
        assert done is not None
        found = (done.results, done.waiting_offers, done.waiting_tokens)
        assert found == (left.results, left.offers, left.offer_tokens)
        records = await one.records(3)
        assert [kept.waiting_offers for kept in records] == [1, 2, 3]
        assert records[-1].waiting_tokens == left.offer_tokens

    drive(tmp_path, act, policy=PATIENT)


def test_what_waits_is_counted_once_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted: list[object] = []
    real = remainder.compatible_waiting
    monkeypatch.setattr(
        remainder, "compatible_waiting", lambda view: counted.append(view) or real(view)
    )

    async def act(one: Compacted) -> None:
        for steps in (2, 2, 3, 3):
            await one.ask("anthropic", steps)

    drive(tmp_path, act, policy=PATIENT.replace(reevaluate_tokens=100_000))
    assert counted == []  # there was no evaluation
    drive(tmp_path, act, policy=PATIENT)
    assert len(counted) == 2


def test_why_there_was_no_answer_is_recorded(tmp_path: Path):
    async def close(_received: object, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 2)
        (record,) = await one.records(1)
        where = f"127.0.0.1:{one.standing.behind.port}"
        assert (record.status, record.error) == (
            0,
            f"{where}: closed the connection without an answer",
        )

    drive(tmp_path, act, script=close)


def test_what_is_passed_through_is_not_called_unreadable(tmp_path: Path):
    async def act(one: Compacted) -> None:
        body = {"model": "gpt-5", "previous_response_id": "r", "input": []}
        await one.send("openai-responses", json.dumps(body).encode())
        await one.send("openai-responses", b'{"input": 7, "secret": "s"}')
        through, unread = (record.compaction for record in one.standing.records)
        assert through is not None
        assert unread is not None
        assert (through.sent, through.fallback) == ("untouched", "passed-through")
        assert through.why == "The provider holds the history (previous_response_id)."
        assert (unread.sent, unread.fallback, unread.why) == ("untouched", "unreadable", "")

    drive(tmp_path, act)
