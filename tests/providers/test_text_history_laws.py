"""Laws of rendered histories, in every format."""

from __future__ import annotations

import copy
import json
from itertools import dropwhile, pairwise
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool.compaction.memo import Memo
from respool.policy import Policy
from respool.providers.registry import PROVIDERS
from respool.providers.text_history import fence_text
from respool.tokens import counter_for, part_tokens
from tests.effort import examples
from tests.judges import JUDGES
from tests.laws import laws
from tests.laws.laws import UNREPAIRABLE
from tests.laws.subject import EAGER, IDLE, compactor
from tests.providers.rendered_history import (
    assert_alternates,
    assert_grows,
    assert_nothing_lost,
    parts_of,
    read_told,
    roles_of,
)
from tests.strategies import FORMATS, HISTORY, broken, growing, pending, requests
from tests.support.formats import Exchange
from tests.support.formats import request as small_request

formats = pytest.mark.parametrize("format", FORMATS)
STYLES = ("text", "text-only", "rfc013")
IN_TURN = "in turn"  # by the history; `make laws` has every style with all of them
styles = pytest.mark.parametrize(
    "style", [IN_TURN, *(pytest.param(style, marks=pytest.mark.laws) for style in STYLES)]
)
FEW = settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def style_for(style: str, history: Any) -> str:
    """The style whose turn it is, or the one that was asked for."""
    return STYLES[crc32(repr(history).encode()) % len(STYLES)] if style == IN_TURN else style


def told(request: Any, format: str, style: str = "text", policy: Policy = IDLE) -> Any:
    """The request as plain messages."""
    how = policy.replace(rendering=style)
    return respool.compact(request, format=format, policy=how, memo=None)


def holds_tools(format: str, request: Any) -> bool:
    return any(part.kind in ("call", "result") for part in parts_of(format, request))


@formats
@styles
def test_what_comes_out_is_plain_valid_and_alternates(format: str, style: str) -> None:
    seen = 0

    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        nonlocal seen
        chosen = style_for(style, request)
        kept = copy.deepcopy(request)
        for policy in (IDLE, EAGER):
            out = told(request, format, chosen, policy).request
            assert request == kept, "the caller's request was changed"
            assert not holds_tools(format, out)
            left = [p for p in respool.check(out, format=format) if p.severity == "error"]
            assert [p for p in left if p.code not in UNREPAIRABLE] == []
            assert JUDGES[format][0](out) == []
            roles = [*dropwhile(lambda role: role == "other", roles_of(format, out))]
            if format == "openai-chat" and "other" not in roles:
                assert JUDGES[format][1](out) == []  # which refuses roles that do not alternate
            if not holds_tools(format, request):
                assert out == request or chosen == "text-only"
                continue
            seen += 1
            assert_alternates(format, out)
            for name in request.keys() - {HISTORY[format], *PROVIDERS[format].definition_fields}:
                assert out[name] is request[name]
            offered = chosen != "text-only" and "tools" in request
            assert ("tools" in out) == offered

    run()
    assert seen > 5


@formats
def test_nothing_is_lost(format: str) -> None:
    seen = 0

    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        nonlocal seen
        source = respool.compact(request, format=format, policy=IDLE, memo=None).request
        out = told(request, format).request
        if out is request:
            return
        seen += assert_nothing_lost(format, source, out)

    run()
    assert seen > 20


@formats
@styles
def test_requests_that_extend_one_another_still_do(format: str, style: str) -> None:
    seen = 0

    @FEW
    @given(growing(format))
    def run(session: Any) -> None:
        nonlocal seen
        chosen = style_for(style, session)
        outs = [
            pair
            for policy in (IDLE, EAGER)
            for pair in pairwise([told(request, format, chosen, policy) for request in session])
        ]
        for one, after in outs:
            made_up = any(r.code in ("A7", "G7", "G3", "G3a", "R1") for r in one.report.repairs)
            if one.report.epochs != after.report.epochs or one.report.untouched or made_up:
                continue
            assert_grows(format, one.request, after.request)
            seen += 1

    run()
    assert seen > 5


@formats
@styles
def test_twice_is_once_and_warm_is_cold(format: str, style: str) -> None:
    @FEW
    @given(growing(format))
    def run(session: Any) -> None:
        chosen = style_for(style, session)
        memo = Memo()
        how = EAGER.replace(rendering=chosen)
        for request in session:
            body = json.dumps(request).encode()
            cold = respool.compact(body, format=format, policy=how, memo=None)
            warm = respool.compact(body, format=format, policy=how, memo=memo)
            assert warm.request == cold.request
            objects = respool.compact(request, format=format, policy=how, memo=None).request
            assert json.loads(cold.request) == json.loads(json.dumps(objects))
            listed = respool.compact(request[HISTORY[format]], format=format, policy=how, memo=None)
            assert isinstance(listed.request, list)
            again = told(objects, format, chosen)
            assert again.request is objects

    run()


@formats
@styles
def test_the_figures_are_those_of_what_goes_out(format: str, style: str) -> None:
    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        chosen = style_for(style, request)
        out = told(request, format, chosen, EAGER)
        report = out.report
        if report.untouched or report.repairs:
            return
        counter = counter_for(format, request.get("model"))
        head = PROVIDERS[format].codec.decode_head(out.request)  # type: ignore[index]
        after = sum(part_tokens(p, counter) for p in [*head, *parts_of(format, out.request)])
        assert report.tokens_after == after
        saved = report.tokens_before + report.tokens_rendered - report.tokens_after
        assert report.tokens_saved == saved >= 0
        plain = respool.compact(request, format=format, policy=EAGER, memo=None).report
        assert plain.tokens_saved == saved
        assert plain.tokens_rendered == 0

    run()


@formats
@styles
def test_broken_and_pending_histories_become_plain_too(format: str, style: str) -> None:
    @FEW
    @given(broken(format), pending(format))
    def run(request: Any, history: Any) -> None:
        chosen = style_for(style, request)
        out = told(request, format, chosen)
        if not out.report.untouched:
            assert not holds_tools(format, out.request)
        body = {HISTORY[format]: history}
        ended = told(body, format, chosen).request
        assert not holds_tools(format, ended)

    run()


@given(st.text(alphabet="`~\n aé\r\u2028", max_size=60) | st.text(max_size=40))
def test_no_text_can_close_its_fence(text: str) -> None:
    history = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": text}}]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    how = IDLE.replace(rendering="text", repair=False)
    out = respool.compact(history, format="openai-chat", policy=how, memo=None).request
    (message,) = out
    read = read_told(message["content"])
    assert [one.text for one in read.entries] == [text, text]
    assert read.prose == ["Look.", "And?"]
    fence, *_, end = fence_text(text).split("\n")
    assert fence == end
    assert f"\n{fence}\n" not in f"\n{text}\n"


def test_the_judges_above_can_fail() -> None:
    """Each of them refuses a history in which one thing is wrong."""
    asked = small_request(
        "openai-chat", "Why?", [Exchange("red"), Exchange("ok", id="call_2")], "So?"
    )
    out = told(asked, "openai-chat").request
    assert assert_nothing_lost("openai-chat", asked, out) == 4
    (message,) = out["messages"]
    for was, is_now in (("red", "rad"), ("call_2", "call_3"), ("make", "bake"), ("Why", "Who")):
        wrong = {
            **out,
            "messages": [{**message, "content": message["content"].replace(was, is_now)}],
        }
        with pytest.raises(AssertionError):
            assert_nothing_lost("openai-chat", asked, wrong)
    with pytest.raises(AssertionError):
        assert_alternates("openai-chat", {"messages": [message, message]})
    with pytest.raises(AssertionError):
        assert_grows("openai-chat", out, {"messages": [{"role": "user", "content": "Why?"}]})


def test_ten_times_the_history_takes_about_ten_times_the_time() -> None:
    def make(count: int) -> Any:
        steps = [[Exchange(f"line {n}\n" * 20, id=f"c{n}")] for n in range(count)]
        return small_request("anthropic", "Go.", *steps)

    laws.linear(compactor(), make, policy=IDLE.replace(rendering="text"))
