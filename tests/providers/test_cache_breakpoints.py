"""The cache breakpoint that respool places: block, lifetime, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import Facts, Memo, Policy
from respool.engine import FoldedRequest, fold_request
from respool.pricing import LONG_TTL_SECONDS, BreakpointUsage
from respool.providers.anthropic.request_rules import MAX_BREAKPOINTS, blocks_in, head_breakpoints
from respool.providers.cache_breakpoints import (
    client_breakpoints,
    client_breakpoints_so_far,
    own_breakpoint,
)
from respool.wire.body import read_body
from tests.effort import examples
from tests.judges import judge
from tests.laws.spans import without_breakpoints
from tests.providers.anthropic.support import EPHEMERAL, OLD, THINKING, m, res, text, u, use
from tests.providers.anthropic.support import HOUR as AN_HOUR
from tests.providers.signing_provider import BOUND, TOOLS, Signer

LARGE = "\n".join(f"line {number} of what the tool printed" for number in range(900))
POLICY = Policy(
    cap_chars=500,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    miss_penalty=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
TOOL = {"name": "read", "input_schema": {"type": "object"}}
Where = tuple[int, int]  # a message, and a block of it


def session(*results: str, said: str = "go") -> list[Any]:
    """A history of one call after the other, with these results."""
    messages = [u(text(said))]
    for number, result in enumerate(results):
        messages += [m(use(f"t{number}")), u(res(f"t{number}", result))]
    return messages


def with_controls(messages: Sequence[Any], *controls: tuple[int, Any]) -> list[Any]:
    """The same with marks on the last blocks of these messages."""
    found = copy.deepcopy(list(messages))
    for at, mark in controls:
        found[at]["content"][-1]["cache_control"] = mark
    return found


def asked(messages: list[Any], **fields: Any) -> dict[str, Any]:
    """A request to a model for which edits take force where they are decided."""
    return {"model": BOUND, "max_tokens": 9, "tools": [TOOL], "messages": messages} | fields


def breakpoints_in(request: Any) -> dict[Where, Any]:
    """Every mark of a history by the block it stands on."""
    return {
        (ref.row, int(ref.path[1])): block["cache_control"]
        for ref, block in blocks_in(request["messages"])
        if "cache_control" in block
    }


def placed(request: dict[str, Any], policy: Policy = POLICY) -> dict[Where, Any]:
    """The marks that came to a request's own, after all that must hold was looked at."""
    kept = copy.deepcopy(request)
    out = respool.compact(request, policy=policy, memo=None)
    assert request == kept
    assert judge("anthropic", out.request) == []
    assert [one for one in respool.check(out.request) if one.severity == "error"] == []
    before, after = breakpoints_in(request), breakpoints_in(out.request)
    assert before.items() <= after.items(), "a mark of the client's is gone"
    count = len(after) + len(head_breakpoints(request)) + ("cache_control" in request)
    assert count <= MAX_BREAKPOINTS
    assert out.report.epochs == 1, "nothing was cut, so this shows nothing"
    return {place: mark for place, mark in after.items() if place not in before}


# One large result in the middle is cut, so that the prefix before its call stays.

CUT = session("one", "two", LARGE, "four")  # messages 0 to 8; the large result is in message 6
TWO = [{**TOOL, "cache_control": EPHEMERAL}]
SYSTEM = [{"type": "text", "text": "You are careful.", "cache_control": EPHEMERAL}]
LONG_SYSTEM = [{"type": "text", "text": "You are careful.", "cache_control": AN_HOUR}]
OWN: dict[str, tuple[dict[str, Any], dict[Where, Any]]] = {
    "on the last block before the call whose result is cut": (
        asked(with_controls(CUT, (8, EPHEMERAL))),
        {(4, 0): EPHEMERAL},
    ),
    "for as long as the mark that follows it": (
        asked(with_controls(CUT, (8, AN_HOUR))),
        {(4, 0): AN_HOUR},
    ),
    "not for as long as the one before it": (
        asked(with_controls(CUT, (8, EPHEMERAL)), system=LONG_SYSTEM),
        {(4, 0): EPHEMERAL},
    ),
    "like the first of two that follow": (
        asked(with_controls(CUT, (6, AN_HOUR), (8, EPHEMERAL))),
        {(4, 0): AN_HOUR},
    ),
    "as the fourth": (
        asked(with_controls(CUT, (8, EPHEMERAL)), system=SYSTEM, tools=TWO),
        {(4, 0): EPHEMERAL},
    ),
    "never as the fifth": (
        asked(with_controls(CUT, (6, EPHEMERAL), (8, EPHEMERAL)), system=SYSTEM, tools=TWO),
        {},
    ),
    "none where the history has four": (
        asked(with_controls(CUT, (2, EPHEMERAL), (4, EPHEMERAL), (6, EPHEMERAL), (8, EPHEMERAL))),
        {},
    ),
    "none where the client has none": (asked(CUT), {}),
    "none where only the head has any": (asked(CUT, system=SYSTEM), {}),
    "none where its message has one": (
        asked(with_controls(CUT, (4, EPHEMERAL), (8, EPHEMERAL))),
        {},
    ),
    "none where none follows": (asked(with_controls(CUT, (2, EPHEMERAL))), {}),
    "like the one that the provider is asked to place": (
        asked(CUT, cache_control=AN_HOUR),
        {(4, 0): AN_HOUR},
    ),
    "which counts as one": (
        asked(
            with_controls(CUT, (8, EPHEMERAL)), cache_control=EPHEMERAL, system=SYSTEM, tools=TWO
        ),
        {},
    ),
    "before the first call, on what the user said": (
        asked(with_controls(session(LARGE, "two"), (4, EPHEMERAL))),
        {(0, 0): EPHEMERAL},
    ),
    "on the user's words behind a result": (
        asked(
            with_controls(
                [*CUT[:4], u(res("t1", "two"), text("and now?")), *CUT[5:]], (8, EPHEMERAL)
            )
        ),
        {(4, 1): EPHEMERAL},
    ),
    "not on a blank result": (
        asked(with_controls(session("one", "", LARGE, "four"), (8, EPHEMERAL))),
        {(3, 0): EPHEMERAL},
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_own_mark(case: str) -> None:
    request, expected = OWN[case]
    assert placed(request) == expected


@pytest.mark.parametrize("case", OWN)
def test_bytes_and_objects_get_the_same_mark(case: str) -> None:
    request, _ = OWN[case]
    body = json.dumps(request).encode()
    memo = Memo()
    out = respool.compact(request, policy=POLICY, memo=None).request
    for _ in range(2):
        assert json.loads(respool.compact(body, policy=POLICY, memo=memo).request) == out


def test_words_that_are_a_string_become_a_block_that_can_be_marked() -> None:
    messages = with_controls(session(LARGE, "two"), (4, EPHEMERAL))
    request = asked([{"role": "user", "content": "go"}, *messages[1:]])
    out = respool.compact(request, policy=POLICY, memo=None).request
    assert out["messages"][0] == u(text("go", cache_control=EPHEMERAL))
    assert judge("anthropic", out) == []
    assert respool.check(out) == []


def test_nothing_is_marked_before_an_epoch() -> None:
    request = asked(with_controls(session("one", "two", "three"), (6, EPHEMERAL)))
    out = respool.compact(request, policy=POLICY, memo=None)
    assert out.report.epochs == 0
    assert out.request is request


def test_nothing_is_marked_where_every_offer_is_taken_at_once() -> None:
    request = asked(with_controls(CUT, (8, EPHEMERAL)))
    assert placed(request, POLICY.replace(eager=True)) == {}


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "gemini"])
def test_other_wires_are_not_looked_at(format: str) -> None:
    field = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    item = {"role": "user", "content": [text("go", cache_control=EPHEMERAL)]}
    assert client_breakpoints(read_body({field: [item]}), format) == BreakpointUsage()


MARKINGS: dict[str, tuple[dict[str, Any], BreakpointUsage]] = {
    "none": (asked(CUT), BreakpointUsage()),
    "only on the head": (asked(CUT, system=SYSTEM, tools=TWO), BreakpointUsage()),
    "one": (asked(with_controls(CUT, (8, EPHEMERAL))), BreakpointUsage(300, has_spare=True)),
    "an hour said in full": (
        asked(with_controls(CUT, (8, AN_HOUR))),
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
    ),
    "five minutes said in full": (
        asked(with_controls(CUT, (8, {**EPHEMERAL, "ttl": "5m"}))),
        BreakpointUsage(300, has_spare=True),
    ),
    "one of two for an hour": (
        asked(with_controls(CUT, (6, AN_HOUR), (8, EPHEMERAL))),
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
    ),
    "three": (
        asked(with_controls(CUT, (8, EPHEMERAL)), system=SYSTEM, tools=TWO),
        BreakpointUsage(300, has_spare=True),
    ),
    "four": (
        asked(with_controls(CUT, (6, EPHEMERAL), (8, EPHEMERAL)), system=SYSTEM, tools=TWO),
        BreakpointUsage(300),
    ),
    "automatic": (asked(CUT, cache_control=EPHEMERAL), BreakpointUsage(300, has_spare=True)),
    "automatic for an hour": (
        asked(CUT, cache_control=AN_HOUR),
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
    ),
    "automatic as the fourth": (
        asked(
            with_controls(CUT, (8, EPHEMERAL)),
            cache_control=EPHEMERAL,
            system=SYSTEM,
            tools=TWO,
        ),
        BreakpointUsage(300),
    ),
    "one that moves on, if slowly": (
        asked(with_controls(session(*["one"] * 20), (21, EPHEMERAL))),
        BreakpointUsage(300, has_spare=True),
    ),
    "one that stays where it is": (
        asked(with_controls(session(*["one"] * 20), (20, EPHEMERAL))),
        BreakpointUsage(),
    ),
    "one that stays, and one that the provider is asked to place": (
        asked(with_controls(session(*["one"] * 20), (0, EPHEMERAL)), cache_control=EPHEMERAL),
        BreakpointUsage(300, has_spare=True),
    ),
    "a mark that is null": (asked(with_controls(CUT, (8, None))), BreakpointUsage()),
}


@pytest.mark.parametrize("case", MARKINGS)
def test_how_a_client_marks(case: str) -> None:
    request, expected = MARKINGS[case]
    assert client_breakpoints(read_body(request), "anthropic") == expected
    assert client_breakpoints(read_body(json.dumps(request).encode()), "anthropic") == expected


# Where no fact tells how earlier requests were marked: what holds for all of them.

LONG = session(*["one"] * 20)
FAR: dict[str, tuple[dict[str, Any], BreakpointUsage]] = {
    "none": (asked(LONG), BreakpointUsage()),
    "in front of all answers": (
        asked(with_controls(LONG, (0, EPHEMERAL)), model=OLD),
        BreakpointUsage(),
    ),
    "reasoning is signed for what was sent": (
        asked(with_controls(LONG, (0, EPHEMERAL)), model=BOUND),
        BreakpointUsage(300, has_spare=True),
    ),
    "behind an answer, far": (
        asked(with_controls(LONG, (2, EPHEMERAL))),
        BreakpointUsage(300, has_spare=True),
    ),
    "behind an answer, near": (
        asked(with_controls(LONG, (40, EPHEMERAL))),
        BreakpointUsage(300, has_spare=True),
    ),
    "asked of the provider": (
        asked(with_controls(LONG, (0, EPHEMERAL)), cache_control=EPHEMERAL),
        BreakpointUsage(300, has_spare=True),
    ),
}


@pytest.mark.parametrize("case", FAR)
def test_how_a_client_marked_all_along(case: str) -> None:
    request, expected = FAR[case]
    for body in (read_body(request), read_body(json.dumps(request).encode())):
        assert client_breakpoints_so_far(body, "anthropic", body.fields) == expected


def _newest_words(messages: Sequence[Any]) -> int:
    """The last message in which the user says something."""
    said = (any(one["type"] == "text" for one in message["content"]) for message in messages)
    return max(at for at, says in enumerate(said) if says and messages[at]["role"] == "user")


def test_decisions_do_not_turn_with_how_far_a_mark_is() -> None:
    """Signed content stays valid when a client sets breakpoints on user messages."""
    provider, memo, messages = Signer(), Memo(), [u(text("go"))]
    for number in range(20):
        request = asked(
            with_controls(messages, (_newest_words(messages), EPHEMERAL)),
            model=BOUND,
            tools=TOOLS,
        )
        out = respool.compact(json.dumps(request).encode(), policy=POLICY, memo=memo)
        assert provider.problems(out.request) == [], f"request {number}"
        answer = provider.answer(out.request)
        told = [res(answer[-1]["id"], "\n".join(f"{number}: {n} of it" for n in range(300)))]
        messages += [m(*answer), u(*told, *[text("And on.")] * (number % 15 == 14))]


# Which block can carry it, wherever a cut may come to stand.


def folded(*messages: Any) -> FoldedRequest:
    request = asked([*messages, u(text("on", cache_control=EPHEMERAL))])
    return fold_request(
        request, format="anthropic", policy=Policy(passes=()), facts=Facts(), memo=None
    )


THOUGHT = folded(
    u(text("go")),  # part 0
    m(THINKING, text("so"), use("a"), use("b")),  # 1 to 4
    u(res("a", "one"), res("b", " \n")),  # 5 and 6, the second of them blank
    m(THINKING, use("c")),  # 7 and 8
    u(res("c", "three")),  # 9
    m(text("done")),  # 10
)
# case: the cut, the parts that are gone, the part that carries the mark
CARRIERS: dict[str, tuple[int, list[int], int | None]] = {
    "nothing stands before it": (0, [], None),
    "the user's words": (1, [], 0),
    "not on reasoning": (2, [], 0),
    "on the model's words": (3, [], 2),
    "on a call": (5, [], 4),
    "on a result": (6, [], 5),
    "not on a blank result": (7, [], 5),
    "neither on reasoning nor on a blank result": (8, [], 5),
    "on the latest result": (10, [], 9),
    "not on what is gone": (10, [7, 8, 9], 5),
    "not on any of that": (6, [0, 1, 2, 3, 4, 5], None),
}


@pytest.mark.parametrize("case", CARRIERS)
def test_which_block_carries_it(case: str) -> None:
    cut, gone, expected = CARRIERS[case]
    state = THOUGHT.state
    mark = own_breakpoint(
        THOUGHT.body,
        state.transcript,
        sources=state.repairs.sources,
        cut=cut,
        is_gone=gone.__contains__,
    )
    assert (None if mark is None else mark.part) == expected
    if mark is not None:
        assert (mark.ref, mark.control, mark.saved) == (
            state.transcript.parts[mark.part].ref,
            EPHEMERAL,
            0,
        )


def test_the_mark_is_a_copy_of_the_client_s() -> None:
    state = THOUGHT.state
    mark = own_breakpoint(
        THOUGHT.body,
        state.transcript,
        sources=state.repairs.sources,
        cut=6,
        is_gone=lambda _: False,
    )
    assert mark is not None
    assert mark.control is not THOUGHT.body.message(6)["content"][0]["cache_control"]


# A session as it grows: its client moves one mark to the newest block.


def growing(results: Iterable[str], mark: Any = EPHEMERAL, **fields: Any) -> list[dict[str, Any]]:
    """Every request of a session."""
    messages = session(*results)
    ends = range(1, len(messages) + 1, 2)
    return [asked(with_controls(messages[:end], (end - 1, mark)), **fields) for end in ends]


def holds_between_epochs(requests: Sequence[dict[str, Any]], policy: Policy) -> int:
    """Look at every two requests of a session in turn; returns how many epochs there were."""
    outs = [respool.compact(one, policy=policy, memo=None) for one in requests]
    for request, out in zip(requests, outs, strict=True):
        assert judge("anthropic", out.request) == []
        assert [one for one in respool.check(out.request) if one.severity == "error"] == []
        assert len(breakpoints_in(out.request)) + len(head_breakpoints(request)) <= MAX_BREAKPOINTS
    for (before, one), (_, other) in pairwise(zip(requests, outs, strict=True)):
        if one.report.epochs != other.report.epochs:
            continue
        said, next_said = (
            without_breakpoints(one.request["messages"]),
            without_breakpoints(other.request["messages"]),
        )
        assert json.dumps(next_said[: len(said)]) == json.dumps(said), "more than marks changed"
        own = breakpoints_in(one.request).keys() - breakpoints_in(before).keys()
        assert own <= breakpoints_in(other.request).keys(), "our mark moved"
    return outs[-1].report.epochs


@pytest.mark.parametrize("mark", [EPHEMERAL, AN_HOUR], ids=["5m", "1h"])
@pytest.mark.parametrize("head", [{}, {"system": SYSTEM}, {"system": SYSTEM, "tools": TWO}])
def test_between_epochs_nothing_but_marks_changes(mark: Any, head: dict[str, Any]) -> None:
    results = [LARGE if number % 4 == 2 else f"result {number}" for number in range(16)]
    if mark == AN_HOUR:  # marks for an hour may not stand behind others
        head = json.loads(json.dumps(head).replace(json.dumps(EPHEMERAL), json.dumps(AN_HOUR)))
    assert holds_between_epochs(growing(results, mark, **head), POLICY) >= 2


def test_after_an_epoch_the_mark_stays_where_that_began() -> None:
    requests = growing(["one", "two", LARGE, *(f"result {number}" for number in range(30))])
    outs = [respool.compact(one, policy=POLICY, memo=None) for one in requests]
    own = [
        breakpoints_in(out.request).keys() - breakpoints_in(one).keys()
        for one, out in zip(requests, outs, strict=True)
    ]
    assert [bool(place) for place in own] == [False] * 4 + [True] * (len(requests) - 4)
    assert own[4:] == [{(4, 0)}] * (len(requests) - 4)


def test_the_next_epoch_moves_it_on() -> None:
    requests = growing(["one", LARGE, "three", LARGE + "!", "five"])
    out = respool.compact(requests[-1], policy=POLICY, memo=None)
    assert out.report.epochs == 2
    assert breakpoints_in(out.request).keys() - breakpoints_in(requests[-1]).keys() == {(6, 0)}


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=12),
    st.sampled_from([EPHEMERAL, AN_HOUR]),
    st.sampled_from(
        [
            POLICY,
            Policy(cap_chars=500, reevaluate_tokens=1, reevaluate_ratio=0.0, keep_exchanges=0),
            Policy(cap_chars=2_000),
        ]
    ),
)
def test_any_session_keeps_its_prefix_between_epochs(
    sizes: list[int], mark: Any, policy: Policy
) -> None:
    results = [f"{at}\n" + LARGE[: 4_000 * size**2] for at, size in enumerate(sizes)]
    holds_between_epochs(growing(results, mark), policy)


def test_warm_equals_cold_with_marks_of_our_own() -> None:
    results = [LARGE if number % 3 == 1 else f"result {number}" for number in range(9)]
    memo = Memo()
    for request in growing(results):
        body = json.dumps(request).encode()
        cold = respool.compact(body, policy=POLICY, memo=None).request
        assert respool.compact(body, policy=POLICY, memo=memo).request == cold
        assert respool.compact(body, policy=POLICY, memo=memo).request == cold
