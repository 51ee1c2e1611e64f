"""Rows of a framework's messages: what is decided on them, and which changes come back."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from respool import Policy, PolicyError, Tool, Tools, UnknownReference
from respool.integrations.request_compactor import RequestCompactor
from respool.integrations.shadow import (
    NO_CHANGE,
    Call,
    FrameworkCompactor,
    Row,
    Shadow,
    ShadowRequest,
    lacks_calls,
    status_of,
)
from respool.markers import find_marker
from respool.pricing import Usage

MODELS = ("claude-sonnet-4-5", "gpt-5.2", "gemini-3-pro", "some-model")
EAGER = Policy(
    eager=True,
    keep_exchanges=2,
    reevaluate_tokens=1,
    tools=Tools(
        [
            Tool("read_file", kind="read", reads="path"),
            Tool("write_file", kind="write", writes="path", replaces=True),
        ]
    ),
)


def text(number: int) -> str:
    return "\n".join(f"line {at} of {number}: value_{at * number}" for at in range(200))


def read(turn: int, *, id: str = "", parallel: int = 2) -> list[Row]:
    """A turn of parallel reads, the second of which fails."""
    calls = tuple(
        Call(id or f"call_{turn}_{at}", "read_file", {"path": f"/w/{turn}_{at}.py"})
        for at in range(parallel)
    )
    results = [
        Row(
            role="tool",
            call_id=call.id,
            text=text(10 * turn + at) if at != 1 else f"Error: /w/{turn}_1.py: no such file",
            is_error=at == 1,
        )
        for at, call in enumerate(calls)
    ]
    said = Row(role="assistant", text="I read on.", calls=calls, reasoning=(f"sign{turn}" * 9,))
    return [said, *results]


def write(turn: int) -> list[Row]:
    arguments = {"path": "/w/out.py", "content": text(turn)}
    call = Call(f"call_w{turn}", "write_file", arguments)
    said = Row(role="assistant", calls=(call,))
    return [said, Row(role="tool", call_id=call.id, text="ok")]


def history(turns: int) -> list[Row]:
    rows = [Row(role="system", text="You are an agent."), Row(role="user", text="Go on.")]
    for turn in range(turns):
        rows += read(turn) if turn % 3 else write(turn)
    return rows


def decided(compactor: FrameworkCompactor, rows: list[Row], model: str) -> Shadow:
    shadow = compactor.shadow(ShadowRequest(rows=rows, model=model))
    compactor.accepted(shadow.sent)
    return shadow


@pytest.mark.parametrize("model", MODELS)
def test_results_shrink_and_calls_go_with_their_results(model: str) -> None:
    compactor, rows = FrameworkCompactor(EAGER), history(12)
    shadow = decided(compactor, rows, model)
    changed = {at: shadow.of(at) for at in range(len(rows)) if shadow.of(at) != NO_CHANGE}
    texts = [one.text for one in changed.values() if one.text is not None]
    assert len(texts) >= 4
    for at, change in changed.items():
        if change.text is None:
            continue
        marker = find_marker(change.text)
        assert rows[at].role == "tool"
        assert marker is not None
        assert compactor.expand(marker.ref) == rows[at].text
    gone = [
        call.id
        for at, change in changed.items()
        for number, call in enumerate(rows[at].calls)
        if number in change.dropped_calls
    ]
    results = {rows[at].call_id for at, change in changed.items() if change.is_dropped}
    assert gone
    assert set(gone) == results
    emptied = [at for at, change in changed.items() if change.empties(rows[at])]
    assert any(rows[at].role == "assistant" for at in emptied)


@pytest.mark.parametrize("model", MODELS)
def test_changes_of_growing_histories_stay(model: str) -> None:
    compactor = FrameworkCompactor(EAGER.replace(reevaluate_tokens=10_000))
    before, known, last, checked = dict[int, object](), 0, 0, 0
    for turns in range(2, 26):
        rows = history(turns)
        shadow = decided(compactor, rows, model)
        epochs = shadow.sent.decision.epochs
        if epochs == last:
            assert {at: one for at, one in shadow.changes.items() if at < known} == before
            checked += bool(before)
        before, known, last = dict(shadow.changes), len(rows), epochs
    assert checked >= 3
    assert last > 0
    assert compactor.savings.requests == 24


def test_repeated_and_missing_ids_pair_in_order() -> None:
    compactor = FrameworkCompactor(EAGER)
    rows = [Row(role="user", text="Go on.")]
    for turn in range(8):
        rows += read(turn, id="same" if turn % 2 else "")
    shadow = decided(compactor, rows, "gpt-5.2")
    changed = [at for at in shadow.changes if shadow.of(at).text is not None]
    assert changed
    for at in changed:
        marker = find_marker(shadow.of(at).text or "")
        assert marker is not None
        assert compactor.expand(marker.ref) == rows[at].text


def test_nothing_to_do_is_no_change() -> None:
    shadow = FrameworkCompactor().shadow(ShadowRequest(rows=history(1), model="gpt-5.2"))
    assert shadow.changes == {}
    assert not shadow.sent.is_changed


def test_a_fault_leaves_every_message_as_it_came() -> None:
    call = Call("a", "read_file", {"path": object()})  # no JSON
    rows = [*history(6), Row(role="assistant", calls=(call,))]
    assert FrameworkCompactor(EAGER).shadow(ShadowRequest(rows=rows, model="gpt-5.2")).changes == {}


def test_a_refused_projection_is_taken_back_and_left_alone() -> None:
    compactor, rows = FrameworkCompactor(EAGER), history(9)
    shadow = decided(compactor, rows, "gpt-5.2")
    error = RuntimeError("invalid_request_error")
    error.response = SimpleNamespace(status_code=400)  # pyright: ignore[reportAttributeAccessIssue]
    assert shadow.changes
    again = compactor.after_error(shadow, error)
    assert again is not None
    assert again.changes == {}
    compactor.accepted(again.sent)
    assert compactor.savings.refused == 1
    assert decided(compactor, history(10), "gpt-5.2").changes == {}


def test_other_errors_stand() -> None:
    compactor = FrameworkCompactor(EAGER)
    shadow = decided(compactor, history(9), "gpt-5.2")
    for status in (401, 429, 503):
        error = RuntimeError("no")
        error.status_code = status  # pyright: ignore[reportAttributeAccessIssue]
        assert status_of(error) == status
        assert compactor.after_error(shadow, error) is None
    assert compactor.after_error(shadow, RuntimeError("no status")) is None


def test_results_without_their_calls_are_recognised() -> None:
    rows = history(3)
    assert not lacks_calls(rows)
    at = next(at for at, row in enumerate(rows) if row.calls)
    assert lacks_calls([*rows[:at], *rows[at + 1 :]])
    assert not lacks_calls([])


def test_the_deadline_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    compactor = FrameworkCompactor(EAGER, deadline=0.05)
    decide = compactor._decider.decide

    def slow(*given: object, **named: object) -> object:
        time.sleep(0.5)
        return decide(*given, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(compactor._decider, "decide", slow)
    request = ShadowRequest(rows=history(9), model="gpt-5.2")
    started = time.monotonic()
    assert compactor.shadow(request).changes == {}
    assert asyncio.run(compactor.shadow_async(request)).changes == {}
    assert time.monotonic() - started < 0.9  # one slow decision alone takes .5


def test_the_event_loop_goes_on() -> None:
    compactor = FrameworkCompactor(EAGER)

    async def both() -> tuple[Shadow, int]:
        ticks = 0
        work = asyncio.create_task(
            compactor.shadow_async(ShadowRequest(rows=history(60), model="gpt-5.2"))
        )
        while not work.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return await work, ticks

    shadow, ticks = asyncio.run(both())
    assert shadow.changes
    assert ticks > 3


def test_usage_adds_up_and_references_are_answered() -> None:
    compactor = FrameworkCompactor(EAGER)
    shadow = decided(compactor, history(9), "gpt-5.2")
    for _ in range(2):
        compactor.used(shadow.sent, Usage(input=5, cache_read=7, output=1))
    assert compactor.savings.usage == Usage(input=10, cache_read=14, output=2)
    assert compactor.savings.tokens_saved > 1_000
    at, change = next((at, one) for at, one in shadow.changes.items() if one.text)
    marker = find_marker(change.text or "")
    assert marker is not None
    assert compactor.answer(f" {marker.ref} ") == history(9)[at].text
    assert "No original is kept" in compactor.answer("nothing")
    with pytest.raises(UnknownReference):
        compactor.expand("a" * 20)


@pytest.mark.parametrize(
    ("given", "named"),
    [("no such preset", "safe"), (7, "Policy"), ({"eager": True}, "Policy")],
)
def test_wrong_policies_get_a_sentence(given: object, named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        RequestCompactor(given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PolicyError, match="seconds"):
        RequestCompactor(deadline=0)


def test_a_cache_that_the_usage_shows_is_not_broken_at_every_turn() -> None:
    """Frameworks often set cache breakpoints behind the hook, where rows do not show them."""

    policy = Policy(passes=("stub_results",), keep_exchanges=1, miss_penalty=0)

    def times_changed(usage: Usage) -> int:
        compactor = FrameworkCompactor(policy)
        rows, seen, changed = [Row(role="user", text="Read.")], {}, 0
        for turn in range(30):
            rows += read(turn, parallel=1)
            request = ShadowRequest(rows=list(rows), model="claude-sonnet-4-5")
            shadow = compactor.shadow(request)
            changed += any(shadow.of(at) != change for at, change in seen.items())
            seen = {at: shadow.of(at) for at in range(len(rows))}
            compactor.accepted(shadow.sent)
            compactor.used(shadow.sent, usage)
        return changed

    uncached = times_changed(Usage(input=50_000, output=5))
    cached = times_changed(Usage(input=10, cache_read=40_000, cache_write=10_000, output=5))
    assert uncached >= 6
    assert cached < 0.75 * uncached
