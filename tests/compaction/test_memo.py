"""The memo changes nothing but time, and is bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from threading import Thread
from typing import Any

import pytest

import respool
import respool.engine
from respool import Memo, Policy
from respool.edits import Offer
from respool.passes.base import View
from tests.laws.sessions import long_session

SESSION = long_session("anthropic", 30, result=800)
POLICY = Policy(cap_chars=300, eager=True, keep_exchanges=0)


def grown(count: int) -> dict[str, Any]:
    return {**SESSION, "messages": SESSION["messages"][: 2 * count + 1]}


def test_a_conversation_keeps_its_last_states_only() -> None:
    memo = Memo()
    for count in range(1, 31):
        respool.compact(grown(count), policy=POLICY, memo=memo)
    assert 1 <= len(memo) <= 3


def test_many_conversations_are_bounded() -> None:
    memo = Memo(max_states=10)
    for number in range(50):
        history = [{"role": "user", "content": f"task {number}"}, *SESSION["messages"][1:5]]
        respool.compact({**SESSION, "messages": history}, policy=POLICY, memo=memo)
    assert len(memo) <= 10


def told_at_length(number: int, exchanges: int) -> bytes:
    """A conversation of its own, with results as long as coding agents' are."""
    return json.dumps(long_session("anthropic", exchanges, result=2_400, seed=number)).encode()


def test_large_states_are_bounded_by_their_size() -> None:
    memo = Memo(max_bytes=1)
    for number in range(3):
        respool.compact(told_at_length(number, 3), policy=POLICY, memo=memo)
    assert len(memo) == 1
    assert memo.size_bytes > 0
    memo.clear()
    assert (len(memo), memo.size_bytes) == (0, 0)


def test_what_a_conversation_shares_is_counted_once() -> None:
    memo, held = Memo(), list[int]()
    for count in (29, 30):
        respool.compact(grown(count), policy=POLICY, memo=memo)
        held.append(memo.size_bytes)
    assert len(memo) > 1
    assert held[1] < 1.2 * held[0]


def test_whatever_goes_is_no_longer_counted() -> None:
    memo = Memo(max_states=2)
    for number in (*range(6), 5):
        respool.compact(told_at_length(number, 3), policy=POLICY, memo=memo)
    alone = Memo(max_states=2)
    respool.compact(told_at_length(5, 3), policy=POLICY, memo=alone)
    assert memo.size_bytes == alone.size_bytes


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first messages of the steps that are folded from now on."""
    found: list[int] = []
    fold_step = respool.engine.fold_step

    def watched(state: Any, step: Any, *rest: Any) -> None:
        found.append(step.at)
        fold_step(state, step, *rest)

    monkeypatch.setattr(respool.engine, "fold_step", watched)
    return found


def test_a_warm_request_reads_only_what_is_new(read: list[int]) -> None:
    memo = Memo()
    respool.compact(grown(20), policy=POLICY, memo=memo)
    assert len(read) == 21
    read.clear()
    respool.compact(grown(21), policy=POLICY, memo=memo)
    assert read == [41]
    read.clear()
    respool.compact(grown(21), policy=POLICY, memo=memo)
    assert read == []


def test_marks_that_move_are_no_change() -> None:
    memo = Memo()
    with_breakpoint = {"cache_control": {"type": "ephemeral"}}
    for count in range(1, 12):
        request = grown(count)
        *head, last = request["messages"]
        blocks = [{**last["content"][0], **with_breakpoint}]
        request = {**request, "messages": [*head, {**last, "content": blocks}]}
        warm = respool.compact(request, policy=POLICY, memo=memo)
        assert warm.request == respool.compact(request, policy=POLICY, memo=None).request
        assert warm.request["messages"][-1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert len(memo) <= 3


def test_an_edited_block_keeps_its_mark() -> None:
    request = grown(12)
    block = {**request["messages"][2]["content"][0], "cache_control": {"type": "ephemeral"}}
    request["messages"][2] = {"role": "user", "content": [block]}
    out = respool.compact(request, policy=POLICY.replace(reevaluate_tokens=1_000), memo=None)
    kept = out.request["messages"][2]["content"][0]
    assert kept["content"] != block["content"]
    assert kept["cache_control"] == {"type": "ephemeral"}


BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


def spelled(format: str, count: int, with_breakpoint: int) -> dict[str, Any]:
    """A request whose user words are strings, but for the one that carries the mark."""
    whole = long_session(format, 12, result=800)
    words = [{"role": "user", "content": f"word {k} of the user"} for k in range(6)]
    history: list[Any] = []
    for k in range(count):
        text = words[k]["content"]
        block = [{"type": "text", "text": text, **BREAKPOINT}]
        history.append({"role": "user", "content": block} if k == with_breakpoint else words[k])
        history += whole["messages"][2 * k + 1 : 2 * k + 3]
    return {**whole, "messages": history}


@pytest.mark.parametrize("format", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("indent", [None, 1])
def test_words_are_the_same_as_a_string_and_as_a_marked_block(
    format: str, indent: int | None, read: list[int]
) -> None:
    for given in (lambda request: json.dumps(request, indent=indent).encode(), lambda one: one):
        memo = Memo()
        prefixes = []
        for count in range(2, 7):
            read.clear()
            for with_breakpoint in (count - 1, 0):
                body = given(spelled(format, count, with_breakpoint))
                warm = respool.compact(body, format=format, policy=POLICY, memo=memo)
                prefixes.append(warm.report.prefix)
            assert len(read) <= 2 if count > 2 else 3, "a mark that moved made it read again"
            cold = respool.compact(body, format=format, policy=POLICY, memo=None)
            assert warm.request == cold.request
        assert len(set(prefixes)) == 5


FIELD = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


def told(format: str, seed: int) -> list[bytes]:
    """A session's requests, one exchange longer each; all begin alike, with words in escapes."""
    step = 3 if format == "openai-responses" else 2
    alike, other = (long_session(format, 34, result=900, seed=one) for one in (1, seed))
    parted = 1 + step * 26
    history = [*alike[FIELD[format]][:parted], *other[FIELD[format]][parted:]]
    escaped = json.loads(json.dumps(history).replace("value", "v\\u00e9rit\\u00e9"))
    ends = range(1 + step * 20, len(history) + 1, step)
    return [json.dumps({**alike, FIELD[format]: escaped[:end]}).encode() for end in ends]


def with_breakpoints(body: bytes, number: int) -> bytes:
    """A request with four cache marks, on its last texts; now and then one is on an old text."""
    text, end = b'"type": "text"', len(body)
    for at in range(4):
        end = body.rindex(text, 0, end if at < 3 or number % 3 else len(body) // 4)
        body = b'%s"cache_control": {"type": "ephemeral"}, %s' % (body[:end], body[end:])
    return body


@pytest.mark.parametrize(
    ("format", "breakpoints"),
    [
        ("anthropic", True),
        *(pytest.param(format, False, marks=pytest.mark.laws) for format in FIELD),
    ],
)
def test_what_folds_goes_out_the_same_as_if_nothing_was_remembered(
    format: str, breakpoints: bool
) -> None:
    policy, memo, folds = Policy(budget=6_000, reevaluate_tokens=1, keep_exchanges=2), Memo(), 0
    first, other = told(format, 1), told(format, 2)
    for number, body in enumerate((*first[:9], *other[6:12], *first[9:], *other[12:])):
        sent = with_breakpoints(body, number) if breakpoints else body
        warm = respool.compact(sent, format=format, policy=policy, memo=memo)
        cold = respool.compact(sent, format=format, policy=policy, memo=None)
        assert warm.request == cold.request
        assert warm.report.edits == cold.report.edits
        folds += sum(edit.reason == "folded" for edit in cold.report.edits)
    assert folds > 100


def test_what_was_taken_in_one_state_does_not_go_out_in_another() -> None:
    body, memo = grown(20), Memo()
    prefix = respool.compact(body, policy=POLICY, memo=memo).report.prefix
    assert prefix is not None
    skipped = respool.Facts(skipped=frozenset({prefix}))
    warm = respool.compact(body, policy=POLICY, facts=skipped, memo=memo)
    assert warm.request == respool.compact(body, policy=POLICY, facts=skipped, memo=None).request


# How much output a request asks for: that much of the window is kept free.

ASKING: dict[str, Any] = {
    "anthropic": lambda tokens: {"max_tokens": tokens},
    "openai-chat": lambda tokens: {"max_completion_tokens": tokens},
    "openai-responses": lambda tokens: {"max_output_tokens": tokens},
    "gemini": lambda tokens: {"generationConfig": {"maxOutputTokens": tokens}},
}


@cache
def _long(format: str) -> dict[str, Any]:
    whole = long_session(format, 40, result=1_500)
    return {name: value for name, value in whole.items() if name != "max_tokens"}


def asking(format: str, count: int, tokens: int | None) -> str:
    """A request after so many calls, that asks for so much output; None: it says nothing of it."""
    step = 3 if format == "openai-responses" else 2
    whole = _long(format)
    told = {} if tokens is None else ASKING[format](tokens)
    return json.dumps({**whole, **told, FIELD[format]: whole[FIELD[format]][: 1 + step * count]})


@pytest.mark.parametrize(
    ("format", "less"),
    [
        ("gemini", 500),
        *(
            pytest.param(format, less, marks=pytest.mark.laws)
            for format, less in product(FIELD, (None, 500))
            if (format, less) != ("gemini", 500)
        ),
    ],
)
def test_how_much_output_was_asked_for_before_changes_nothing(
    format: str, less: int | None
) -> None:
    """A client counts before it asks, or asks for more now and then: each as if it came alone."""
    first = respool.compact(asking(format, 0, None), format=format, memo=None).report.prefix
    assert first is not None
    facts, memo, differ = respool.Facts(windows=((first, 14_000),)), Memo(), 0
    for count in range(9, 36, 2):
        made: list[Any] = []
        for output in (less, 6_000) if count % 3 else (6_000, less):
            body = asking(format, count, output)
            warm = respool.compact(body, format=format, facts=facts, memo=memo)
            cold = respool.compact(body, format=format, facts=facts, memo=None)
            assert (warm.request, warm.report) == (cold.request, cold.report), (count, output)
            made.append(cold.report.edits)
        differ += made[0] != made[1]
    assert differ > 3, "it never mattered, so this shows nothing"


def test_far_from_a_window_other_outputs_cost_nothing(read: list[int]) -> None:
    for policy in (POLICY, POLICY.replace(budget=10_000)):
        memo = Memo()
        respool.compact(grown(20) | {"max_tokens": 1}, policy=policy, memo=memo)
        read.clear()
        respool.compact(grown(21) | {"max_tokens": 9_000}, policy=policy, memo=memo)
        assert read == [41]


# Two branches at once, which go on from the same state.

FILE = {"file_path": "a.py", "content": "b"}
WRITES = {"type": "tool_use", "id": "w", "name": "Write", "input": FILE}
WRITTEN = {"type": "tool_result", "tool_use_id": "w", "content": "done"}
BRANCHES = (
    [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now? " * 50}],
    [{"role": "assistant", "content": [WRITES]}, {"role": "user", "content": [WRITTEN]}],
)


def test_what_another_branch_does_meanwhile_changes_nothing() -> None:
    memo, others = Memo(), list[Thread]()
    start = {**SESSION, "messages": SESSION["messages"][:41]}
    one, other = ({**start, "messages": [*start["messages"], *branch]} for branch in BRANCHES)

    def meanwhile(view: View, policy: Policy) -> Iterator[Offer]:
        """While the first branch is looked at, the other one's calls are noted."""
        noted = len(view.ledger.uses)
        for thread in others:
            others.remove(thread)
            thread.start()
            while len(view.ledger.uses) == noted and thread.is_alive():
                time.sleep(0.001)
            assert len(view.ledger.uses) > noted, "it came too late, so this shows nothing"
        return iter(())

    policy = Policy(
        passes=(meanwhile, "keep_lines"),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        keep_exchanges=0,
    )
    respool.compact(start, policy=policy, memo=memo)
    rival = Thread(target=respool.compact, args=(other,), kwargs={"policy": policy, "memo": memo})
    others.append(rival)
    warm = respool.compact(one, policy=policy, memo=memo)
    rival.join()
    cold = respool.compact(one, policy=policy, memo=None)
    assert (warm.request, warm.report) == (cold.request, cold.report)
    assert warm.report.failures == {}
