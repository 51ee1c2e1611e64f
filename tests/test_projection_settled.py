"""What went out before goes out again without another look: the same as if it were looked at."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import respool
from respool.codecs.object_body import ObjectBody
from respool.engine import Folded, fold_on, fold_request
from respool.facts import Facts
from respool.folding.memo import Memo
from respool.projection import project
from tests.formats import FIELD, FORMATS
from tests.laws.sessions import long_session

formats = pytest.mark.parametrize("format", FORMATS)
POLICY = respool.Policy(cap_chars=300, eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0, passes=("cap_results",))
PLANNED = respool.Policy(reevaluate_tokens=500, reevaluate_ratio=0.05, miss_penalty=2.0)
MODEL = {"anthropic": "claude-opus-4-5"}
SHORT = {"type": "ephemeral"}


def history_of(format: str) -> list[Any]:
    """Thirty exchanges: the results of the first half are too long, the others short."""
    long = long_session(format, 15, result=2_400)[FIELD[format]]
    short = json.dumps(long_session(format, 15, result=200)[FIELD[format]][1:])
    return [*long, *json.loads(short.replace('"toolu_', '"toolu_s').replace('"call_', '"call_s'))]


def marked(history: list[Any]) -> list[Any]:
    """A history with Anthropic's mark on its last block, as clients put it."""
    last = copy.deepcopy(history[-1])
    if isinstance(last["content"], str):
        last["content"] = [{"type": "text", "text": last["content"]}]
    last["content"][-1]["cache_control"] = SHORT
    return [*history[:-1], last]


def grown(format: str) -> list[dict[str, Any]]:
    """The requests of a session, each an exchange longer than the one before."""
    history = history_of(format)
    ends = [end for end in range(1, len(history) + 1) if _asks(format, history[end - 1])]
    held = [history[:end] for end in ends]
    if format == "anthropic":
        held = [marked(one) for one in held]
    return [{"model": MODEL.get(format, "gpt-5.1"), FIELD[format]: one} for one in held]


def _asks(format: str, message: Any) -> bool:
    """Whether a request may end with this message."""
    told = message.get("role") in ("user", "tool") or message.get("type") == "function_call_output"
    return told and not (format == "gemini" and message.get("role") == "model")


@formats
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_warm_projection_is_the_cold_one(format: str, as_bytes: bool) -> None:
    """Whatever was remembered, each request goes out as it would from a new process."""
    memo, settled = Memo(), 0
    for request in grown(format):
        asked: Any = json.dumps(request).encode() if as_bytes else request
        warm = respool.compact(asked, format=format, policy=POLICY, memo=memo)
        assert warm.request == respool.compact(asked, format=format, policy=POLICY).request
        state = fold_request(asked, format, POLICY, Facts(), memo).state
        settled += state.rendered.settled is not None
    # Objects that went out are the caller's to change: they are made anew each time.
    assert settled > 10 if as_bytes else settled == 0, settled


def test_a_mark_of_ours_is_put_anew_into_what_is_settled() -> None:
    """The row that bears it is spelled each time, and all others go out as they did."""
    memo, anew = Memo(), 0
    for request in grown("anthropic"):
        asked = json.dumps(request).encode()
        warm = respool.compact(asked, policy=PLANNED, memo=memo)
        assert warm.request == respool.compact(asked, policy=PLANNED).request
        known = fold_request(asked, "anthropic", PLANNED, Facts(), memo).state.rendered.settled
        if known is None or not known.variable_pieces:
            continue
        anew += 1
        ((row, at),) = known.variable_pieces.items()
        assert known.pieces[at].source == row  # type: ignore[union-attr]
    assert anew > 5


@formats
def test_objects_are_shared_where_nobody_changes_them(format: str) -> None:
    """The same objects go out as long as no edit changes them, and they say the same."""
    before: Folded | None = None
    again, last = 0, dict[int, int]()
    for request in grown(format):
        body = ObjectBody(request, shares=True)
        before = fold_on(body, format, POLICY, Facts(), before)  # type: ignore[arg-type]
        pieces, _ = project(body, before.state, before.context)
        out = body.splice(pieces)
        assert out == respool.compact(request, format=format, policy=POLICY).request
        ids = {at: id(one) for at, one in enumerate(out[FIELD[format]])}
        changed = [at for at, one in ids.items() if last.get(at) == one]
        again += len(changed)
        last = ids
    assert again > 100


UNSIGNED = "gemini-3-pro-preview"


def unsigned(exchanges: int, model: str, asks_at: int) -> list[dict[str, Any]]:
    """The requests of a session without signatures, in which the user speaks again midway."""
    history: list[Any] = long_session("gemini", exchanges, result=60)["contents"]
    said = {"role": "user", "parts": [{"text": "Go on, please."}]}
    history = [*history[: 2 * asks_at + 1], said, *history[2 * asks_at + 1 :]]
    return [{"model": model, "contents": history[:end]} for end in range(1, len(history) + 1, 2)]


@pytest.mark.parametrize("asks_at", [5, 40, 70])
def test_what_an_unsigned_turn_needs_is_settled_too(asks_at: int) -> None:
    """Each request of a long turn costs about its own exchange, and says what it would say cold."""
    memo, ends = Memo(), list[int]()
    for request in unsigned(70, UNSIGNED, asks_at):
        asked = json.dumps(request).encode()
        warm = respool.compact(asked, memo=memo)
        cold = respool.compact(asked)
        assert (warm.request, warm.report) == (cold.request, cold.report)
        settled = fold_request(
            asked, "gemini", respool.Policy(), Facts(), memo
        ).state.rendered.settled
        ends.append(len(request["contents"]) - (0 if settled is None else settled.end))
        assert respool.check(json.loads(warm.request)) == []
    assert max(ends[40:]) < 40, "rows are looked at again"


def coloured(format: str) -> dict[str, Any]:
    """A session in which every line of a result has a colour."""
    session = json.dumps(long_session(format, 60, result=600))
    return json.loads(session.replace("\\n", "\\u001b[0m\\n\\u001b[32m"))


@formats
@pytest.mark.parametrize("mark", [True, False])
def test_rows_are_settled_where_what_comes_is_tidied(format: str, mark: bool) -> None:
    """No two untouched rows stand behind the last one that is not, and that may carry a mark."""
    memo, policy, session = Memo(), respool.Policy(passes=("tidy_results",)), coloured(format)
    history, left = session[FIELD[format]], list[int]()
    for end in range(1, len(history) + 1):
        if not _asks(format, history[end - 1]):
            continue
        held = history[:end] if not mark or format != "anthropic" else marked(history[:end])
        asked = json.dumps({**session, FIELD[format]: held}).encode()
        warm = respool.compact(asked, format=format, policy=policy, memo=memo)
        assert warm.request == respool.compact(asked, format=format, policy=policy).request
        settled = fold_request(asked, format, policy, Facts(), memo).state.rendered.settled
        left.append(end - (0 if settled is None else settled.end))
    assert max(left[40:]) < 50, "rows are looked at again"


def test_rows_are_settled_where_a_mark_of_ours_stands_beside_what_folded() -> None:
    """Neighbours that stay apart do so however the marked one of them is spelled."""
    memo, policy = Memo(), respool.Policy(budget=6_000, keep_exchanges=2)
    history, left = long_session("anthropic", 60, result=600)["messages"], list[int]()
    for end in range(41, len(history) + 1, 2):
        asked = json.dumps({"model": MODEL["anthropic"], "messages": marked(history[:end])})
        warm = respool.compact(asked, policy=policy, memo=memo)
        assert warm.request == respool.compact(asked, policy=policy).request
        state = fold_request(asked, "anthropic", policy, Facts(), memo).state
        beside = state.rendered.settled
        if state.cut > 0 and any(edit.reason == "folded" for edit in warm.report.edits):
            left.append(end - (0 if beside is None else beside.end))
    assert len(left) > 10
    assert sorted(left)[len(left) // 2] < 30, left
