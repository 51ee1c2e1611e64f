"""Repairs of Gemini generateContent histories."""

from __future__ import annotations

import copy
import json
import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given

import respool
from respool.compaction.memo import Memo
from respool.policy import Policy
from respool.providers.base import (
    BLANK_TEXT,
    CONTINUE_TEXT,
    EARLIER_TEXT,
    NO_RESULT_TEXT,
    Problem,
    RuleState,
    Step,
    split_steps,
    unpaired_result_text,
)
from respool.providers.gemini import repair as repairing
from respool.providers.gemini.check import GeminiRules
from respool.providers.gemini.codec import SKIP_SIGNATURE, GeminiCodec
from respool.providers.gemini.repair import UNNAMED_FUNCTION, GeminiRepairer
from tests.judges import HISTORY_JUDGES
from tests.laws.sessions import long_session
from tests.laws.trial_passes import drop_every_other_exchange
from tests.strategies import arbitrary_json_messages, broken, histories, requests
from tests.support.timing import takes_at_most

CODEC, RULES, REPAIRER = GeminiCodec(), GeminiRules(), GeminiRepairer()
GEMINI_3: dict[str, Any] = {"model": "gemini-3-pro-preview"}
Fields = dict[str, Any] | None


def errors(contents: list[Any], fields: Fields = None) -> list[Problem]:
    seen, found = RuleState(), list[Problem]()
    for step in split_steps(CODEC, contents):
        found += RULES.check_step(step, seen, fields)
        RULES.advance(step, seen)
    found += RULES.check_end(seen, len(contents), contents.__getitem__, fields)
    return [problem for problem in found if problem.severity == "error"]


def repair_steps(contents: list[Any], fields: Fields = None) -> tuple[list[Any], RuleState]:
    """The history mended step by step, without what its end needs."""
    seen, rows = RuleState(), list[Any]()
    for step in split_steps(CODEC, contents):
        repaired = REPAIRER.repair_step(step, seen, fields)
        new = list(step.messages) if repaired is None else [row.message for row in repaired.rows]
        for sub in split_steps(CODEC, new):
            RULES.advance(Step(sub.messages, len(rows) + sub.at, sub.model_count), seen)
        rows += new
    return rows, seen


def repair(contents: list[Any], fields: Fields = None) -> list[Any]:
    rows, seen = repair_steps(contents, fields)
    ending = REPAIRER.repair_end(seen, len(rows), rows.__getitem__, fields)
    if ending is None:
        return rows
    out: list[Any] = []
    for row, message in enumerate(rows):
        out += [
            ending.message(row) if row in ending.changed_rows() else message,
            *ending.inserts.get(row, ()),
        ]
    return out


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def snake(value: Any) -> Any:
    """The same value with its keys as the SDK's dicts have them."""
    if isinstance(value, dict):
        return {
            re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), k): snake(v) for k, v in value.items()
        }
    return [snake(item) for item in value] if isinstance(value, list) else value


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(said: str) -> dict[str, Any]:
    return {"text": said}


def call(name: str, id: str | None = None, **part: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **({"id": id} if id else {}), "args": {}}, **part}


def answer(name: str, id: str | None = None, said: str | None = None) -> dict[str, Any]:
    response = {"output": f"{name} says" if said is None else said}
    return {"functionResponse": {"name": name, **({"id": id} if id else {}), "response": response}}


def stub(name: str, id: str | None = None) -> dict[str, Any]:
    return answer(name, id, NO_RESULT_TEXT)


def told(id: str, name: str) -> dict[str, Any]:
    return text(unpaired_result_text(id, f"{name} says"))


ASK, MORE = user(text("Go.")), user(text("And then?"))
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
SIGNED = {"thoughtSignature": "c2ln"}

COMPLIANCE: dict[str, tuple[list[Any], list[Any]]] = {
    "unmatched call": (
        [ASK, model(call("a", "1")), MORE],
        [ASK, model(call("a", "1")), user(stub("a", "1")), MORE],
    ),
    "unmatched call without id": (
        [ASK, model(call("a")), MORE],
        [ASK, model(call("a")), user(stub("a")), MORE],
    ),
    "one of two calls unmatched": (
        [ASK, model(call("a", "1"), call("b", "2")), user(answer("b", "2"))],
        [ASK, model(call("a", "1"), call("b", "2")), user(stub("a", "1"), answer("b", "2"))],
    ),
    "unmatched response": (
        [ASK, model(text("so")), user(answer("a", "1"))],
        [ASK, model(text("so")), user(told("1", "a"))],
    ),
    "unmatched response beside a matched one": (
        [ASK, model(call("a", "1")), user(answer("b", "2"), answer("a", "1"))],
        [ASK, model(call("a", "1")), user(answer("a", "1"), told("2", "b"))],
    ),
    "response that comes a step too late": (
        [ASK, model(call("a", "1")), MORE, model(call("a", "2")), user(answer("a", "1"))],
        [
            *(ASK, model(call("a", "1")), user(stub("a", "1")), MORE),
            *(model(call("a", "2")), user(stub("a", "2")), user(told("1", "a"))),
        ],
    ),
    "interleaved contents": (
        [
            *(ASK, model(call("a", "1")), model(call("b", "2"))),
            *(user(answer("a", "1")), user(answer("b", "2"))),
        ],
        [ASK, model(call("a", "1"), call("b", "2")), user(answer("a", "1"), answer("b", "2"))],
    ),
    "interleaved with text": (
        [ASK, model(call("a")), MORE, user(answer("a"))],
        [ASK, model(call("a")), user(answer("a")), MORE],
    ),
    "text stays apart from a response that is moved up": (
        [ASK, model(call("a")), MORE, user(answer("a"), text("too"))],
        [ASK, model(call("a")), user(answer("a")), MORE, user(text("too"))],
    ),
    "duplicate response": (
        [ASK, model(call("a", "1")), user(answer("a", "1")), user(answer("a", "1")), MORE],
        [ASK, model(call("a", "1")), user(answer("a", "1")), MORE],
    ),
    "duplicate response without id": (
        [ASK, model(call("a")), user(answer("a"), answer("a"))],
        [ASK, model(call("a")), user(answer("a"))],
    ),
    "second response that says something else": (
        [ASK, model(call("a")), user(answer("a", said="x"), answer("a"))],
        [ASK, model(call("a")), user(answer("a", said="x"), told("a", "a"))],
    ),
    "wrong order": (
        [ASK, user(answer("a", "1")), model(call("a", "1")), MORE],
        [ASK, user(told("1", "a")), model(call("a", "1")), user(stub("a", "1")), MORE],
    ),
    "parallel, answered in two contents": (
        [ASK, model(call("a"), call("b")), user(answer("b")), user(answer("a"))],
        [ASK, model(call("a"), call("b")), user(answer("a"), answer("b"))],
    ),
    "parallel, with the pictures of each": (
        [ASK, model(call("a"), call("b")), user(text("so"), answer("b"), PICTURE, answer("a"))],
        [ASK, model(call("a"), call("b")), user(answer("a"), answer("b"), PICTURE, text("so"))],
    ),
    "mixed with text in front": (
        [ASK, model(call("a")), user(text("wait"), answer("a"), text("now"))],
        [ASK, model(call("a")), user(answer("a"), text("wait"), text("now"))],
    ),
    "mixed with the model's text behind": (
        [ASK, model(call("a")), model(text("so")), user(answer("a"))],
        [ASK, model(call("a"), text("so")), user(answer("a"))],
    ),
    "calls after a turn of the model": (
        [ASK, model(text("so")), model(), model(call("a")), user(answer("a"))],
        [ASK, model(text("so"), call("a")), user(answer("a"))],
    ),
    "cut in front": (
        [model(call("a")), user(answer("a"))],
        [user(text(EARLIER_TEXT)), model(call("a")), user(answer("a"))],
    ),
    "roles of other providers": (
        [
            *({**ASK, "role": "system"}, {**model(call("a")), "role": "assistant"}),
            *({**user(answer("a")), "role": "tool"}, {**model(text("so")), "role": "assistant"}),
            {**MORE, "role": "developer"},
        ],
        [ASK, model(call("a")), user(answer("a")), model(text("so")), MORE],
    ),
    "calls of a user, responses of the model": (
        [ASK, user(call("a")), model(answer("a"))],
        [ASK, model(call("a")), user(answer("a"))],
    ),
    "a response inside the model's turn": (
        [ASK, model(answer("z", "0"), call("a")), user(answer("a"))],
        [ASK, model(told("0", "z"), call("a")), user(answer("a"))],
    ),
    "nothing in it": (
        [ASK, model(), user(), model(text("so"), {}, text("")), {"role": "user"}],
        [
            ASK,
            model(text(BLANK_TEXT)),
            user(text(BLANK_TEXT)),
            model(text("so")),
            user(text(BLANK_TEXT)),
        ],
    ),
    "a signature without data": (
        [ASK, model(text("so"), dict(SIGNED)), MORE],
        [ASK, model(text("so"), {**SIGNED, "text": ""}), MORE],
    ),
    "no contents and no parts": (
        ["Go.", {"role": "user", "parts": "Go."}, user("Go.", None, 3)],
        [ASK, ASK, user(text("Go."), text("3"))],
    ),
    "parts in place of contents": (
        [text("Go."), call("a"), answer("a"), {"role": "user", **text("More.")}],
        [ASK, model(call("a")), user(answer("a")), user(text("More."))],
    ),
    "two kinds of data in one part": (
        [ASK, model({"text": "so", **call("a", **SIGNED)}), user(answer("a"))],
        [ASK, model(text("so"), call("a", **SIGNED)), user(answer("a"))],
    ),
    "signature inside the call": (
        [ASK, model({"functionCall": {"name": "a", **SIGNED, "args": {}}}), user(answer("a"))],
        [ASK, model(call("a", **SIGNED)), user(answer("a"))],
    ),
    "arguments and responses that are no objects": (
        [
            *(ASK, model(*({"functionCall": {"name": "a", "args": v}} for v in ("x", '{"b":1}')))),
            user(*({"functionResponse": {"name": "a", "response": v}} for v in ("y", None))),
        ],
        [
            ASK,
            model(
                *({"functionCall": {"name": "a", "args": v}} for v in ({"input": "x"}, {"b": 1}))
            ),
            user(
                *({"functionResponse": {"name": "a", "response": v}} for v in ({"output": "y"}, {}))
            ),
        ],
    ),
    "no arguments at all, as an empty text": (
        [ASK, model({"functionCall": {"name": "a", "args": ""}}), user(answer("a"))],
        [ASK, model(call("a")), user(answer("a"))],
    ),
    "an id that is not its call's": (
        [ASK, model(call("a", "1"), call("b")), user(answer("a", "2"), answer("b"))],
        [ASK, model(call("a", "1"), call("b")), user(answer("a", "1"), answer("b"))],
    ),
    "an id of another kind, on one side": (
        [
            *(ASK, model(call("a", "1"), call("b"))),
            user(
                {"functionResponse": {"id": 0, "name": "a", "response": {"output": "a says"}}},
                {"functionResponse": {"id": 0, "name": "b", "response": {"output": "b says"}}},
            ),
        ],
        [ASK, model(call("a", "1"), call("b")), user(answer("a", "1"), answer("b"))],
    ),
    "an id of another kind": (
        [
            *(ASK, model({"functionCall": {"id": 7, "name": "a", "args": {}}})),
            user({"functionResponse": {"id": 7, "name": "a", "response": {"output": "a says"}}}),
        ],
        [ASK, model(call("a")), user(answer("a"))],
    ),
    "a name that is not repeated": (
        [ASK, model(call("a", "1")), user(answer("b", "1", "x"))],
        [ASK, model(call("a", "1")), user(answer("a", "1", "x"))],
    ),
    "no name": (
        [ASK, model({"functionCall": {"id": "1", "args": {}}}), user(answer("a", "1", "x"))],
        [
            *(ASK, model({"functionCall": {"id": "1", "args": {}, "name": UNNAMED_FUNCTION}})),
            user(answer(UNNAMED_FUNCTION, "1", "x")),
        ],
    ),
    "neither id nor name": (
        [ASK, model(call("a", "1")), user({"functionResponse": {"response": {"output": "x"}}})],
        [ASK, model(call("a", "1")), user(answer("a", "1", "x"))],
    ),
}
CASES = pytest.mark.parametrize(
    ("contents", "expected"), list(COMPLIANCE.values()), ids=list(COMPLIANCE)
)


@CASES
def test_broken_histories_are_mended(contents: list[Any], expected: list[Any]) -> None:
    assert errors(contents)
    before = copy.deepcopy(contents)
    assert repair(contents) == expected
    assert contents == before
    assert errors(expected) == []


@CASES
def test_the_sdks_spelling_is_kept(contents: list[Any], expected: list[Any]) -> None:
    assert repair(snake(contents)) == snake(expected)


def test_what_is_not_broken_stays_the_same_object() -> None:
    first, second = call("a"), {"functionCall": {"name": "b", **SIGNED}}
    contents = [ASK, model(first, second), user(answer("a"), answer("b")), MORE]
    repaired = repair(contents)
    assert repaired[1]["parts"][0] is first
    assert same(repaired[:1] + repaired[2:], contents[:1] + contents[2:])


def test_an_id_on_one_side_only_stays_there() -> None:
    calls, answers = model(call("a", "1"), call("b")), user(answer("a"), answer("b", "2"))
    contents = [ASK, calls, answers, MORE]
    assert same(repair(contents), contents)
    late = [ASK, calls, MORE, answers]
    repaired = repair(late)
    assert repaired == [ASK, calls, answers, MORE]
    assert repaired[2] is answers


def test_rows_name_their_source_and_repairs_their_rule() -> None:
    contents = [model(call("a")), MORE, user(answer("a"))]
    repaired = REPAIRER.repair_step(Step(contents, 0, 1), RuleState(), None)
    assert repaired is not None
    assert [row.source for row in repaired.rows] == [None, 0, 2, 1]
    assert repaired.rows[2].message is contents[2]
    assert [(r.code, r.place) for r in repaired.repairs] == [
        ("G2", "contents[0]"),
        ("G1", "contents[2].parts[0]"),
    ]


def test_pending_calls_stay() -> None:
    contents = [ASK, model(call("a"), call("b"))]
    assert same(repair(contents, {}), contents)
    assert repair([ASK, model(text("so")), model(call("a"))]) == [ASK, model(text("so"), call("a"))]


@pytest.mark.parametrize("spell", [lambda value: value, snake])
def test_unsigned_calls_of_the_current_turn_get_the_stand_in(spell: Any) -> None:
    contents = spell(
        [
            *(ASK, model(call("old")), user(answer("old"))),
            *(MORE, model(text("so"), call("a"), call("b")), user(answer("a"), answer("b"))),
            *(model(call("c", **SIGNED)), user(answer("c"))),
        ]
    )
    repaired = repair(contents, GEMINI_3)
    stand_in = spell({"thoughtSignature": SKIP_SIGNATURE})
    assert repaired[4]["parts"][1] == {**contents[4]["parts"][1], **stand_in}
    assert same(repaired[:4] + repaired[5:], contents[:4] + contents[5:])
    assert same(repair(contents, {"model": "gemini-2.5-pro"}), contents)
    assert same(repair(contents), contents)


def test_calls_exposed_by_text_beside_a_response_get_the_stand_in() -> None:
    contents = [ASK, model(call("a")), user(answer("a"), text("and now"))]
    repaired = repair(contents, GEMINI_3)
    assert repaired == [ASK, model(call("a", thoughtSignature=SKIP_SIGNATURE)), contents[2]]
    assert errors(repaired, GEMINI_3) == []


def test_a_request_that_ends_on_the_model_gets_a_user_turn() -> None:
    contents = [ASK, model(call("a")), user(answer("a")), model(text("Done."))]
    for fields in ({}, GEMINI_3):
        repaired = repair(contents, fields)
        assert repaired == [*contents, user(text(CONTINUE_TEXT))]
        assert errors(repaired, fields) == []
    assert same(repair(contents), contents)


def test_there_are_no_marks_to_limit() -> None:
    assert REPAIRER.limit_breakpoints([(0, ASK)], {}) is None


def test_values_of_any_depth_are_mended() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    held = {"functionResponse": {"id": deep, "name": "a", "response": deep}}
    contents = [{"role": deep, "parts": [deep]}, model(call("a"), {"text": deep}), user(held), deep]
    repaired = repair(contents, GEMINI_3)
    assert errors(repaired, GEMINI_3) == []
    assert repaired[2]["parts"][0]["functionResponse"]["response"] == {"output": deep}


def counts_agree(contents: list[Any]) -> bool:
    """As many responses as the content before has calls, counted by hand."""
    waiting = 0
    for content in contents:
        kinds = [set(part) for part in content["parts"]]
        if sum("functionResponse" in kind for kind in kinds) != waiting:
            return False
        waiting = sum("functionCall" in kind for kind in kinds)
    return True


def history_of(request: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return request["contents"], {k: v for k, v in request.items() if k != "contents"}


@given(requests("gemini"))
def test_whole_requests_are_not_touched(request: dict[str, Any]) -> None:
    contents, fields = history_of(request)
    assert same(repair(contents, fields), contents)


@given(broken("gemini"))
def test_after_repair_nothing_is_wrong(request: dict[str, Any]) -> None:
    contents, fields = history_of(request)
    before = copy.deepcopy(contents)
    repaired = repair(contents, fields)
    assert contents == before
    assert errors(repaired, fields) == [] or not contents
    assert repaired == repair(copy.deepcopy(contents), fields)
    assert same(repair(repaired, fields), repaired)
    assert counts_agree(repaired)
    refused = [told for told in HISTORY_JUDGES["gemini"](repaired) if "Extra inputs" not in told]
    assert refused == []
    if not errors(contents, fields):
        assert same(repaired, contents)


@given(broken("gemini"))
def test_what_is_mended_once_stays_as_it_is_when_the_history_grows(request: dict[str, Any]) -> None:
    contents, fields = history_of(request)
    whole, _ = repair_steps(contents, fields)
    for step in split_steps(CODEC, contents):
        shorter, _ = repair_steps(contents[: step.at], fields)
        assert whole[: len(shorter)] == shorter


@given(arbitrary_json_messages())
def test_any_json_is_mended_into_contents(contents: list[Any]) -> None:
    for fields in (None, GEMINI_3):
        repaired = repair(contents, fields)
        assert errors(repaired, fields) == [] or not contents
        assert same(repair(repaired, fields), repaired)


@given(histories("gemini"))
def test_lost_responses_are_replaced_in_their_places(contents: list[Any]) -> None:
    """Without any response, every call is answered by a stand-in."""
    held = [c for c in contents if not any("functionResponse" in part for part in c["parts"])]
    repaired = repair([*held, ASK])
    assert errors(repaired) == []
    assert counts_agree(repaired)
    calls = sum("functionCall" in part for content in held for part in content["parts"])
    stubs = sum(
        part["functionResponse"]["response"] == {"output": NO_RESULT_TEXT}
        for content in repaired
        for part in content["parts"]
        if "functionResponse" in part
    )
    assert stubs == calls


@pytest.mark.slow
def test_ten_thousand_calls_are_mended_in_linear_time() -> None:
    def repair_contents(count: int) -> None:
        calls = (model(call("a")) for _ in range(count))
        answers = (user(answer("a")) for _ in range(count - 1))
        assert len(repair([ASK, *calls, *answers])) == 3

    takes_at_most(40, lambda: repair_contents(10_000), lambda: repair_contents(1_000))


def _bodies(count: int) -> list[bytes]:
    """A turn of Gemini 3 that grows by an unsigned call at a time, then the user speaks."""
    whole = long_session("gemini", count, result=2_000, model=GEMINI_3["model"])
    contents = [*whole["contents"], ASK, *whole["contents"][1:3]]
    ends = [*range(3, 2 * count + 2, 2), len(contents)]
    return [json.dumps({**whole, "contents": contents[:end]}).encode() for end in ends]


def test_each_call_of_a_turn_is_signed_once_in_all_its_requests() -> None:
    signed = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal signed
        signed += event == "call" and frame.f_code is repairing._sign_call.__code__

    memo, bodies = Memo(), _bodies(40)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for body in bodies:
            respool.compact(body, format="gemini", memo=memo, policy=Policy(passes=()))
    finally:
        sys.setprofile(before)
    assert signed == len(bodies)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(
            cap_chars=300, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
        ),
    ],
)
def test_what_is_remembered_of_signatures_is_what_a_new_process_makes(policy: Policy) -> None:
    memo = Memo()
    for body in _bodies(24):
        warm = respool.compact(body, format="gemini", memo=memo, policy=policy)
        cold = respool.compact(body, format="gemini", memo=None, policy=policy)
        assert warm.request == cold.request
        assert warm.report.repairs == cold.report.repairs
        unsigned = sum(one.code == "G3" for one in warm.report.repairs)
        assert warm.request.count(SKIP_SIGNATURE.encode()) == unsigned > 0


def _at_once(calls: int, **first: str) -> list[Any]:
    """Calls that were made at once, the first of them with this beside it, and their responses."""
    asked = [{"functionCall": {"name": "look", "args": {"at": at}}} for at in range(calls)]
    told = {"name": "look", "response": {"output": "a thread, and another one\n" * 40}}
    return [
        {"role": "model", "parts": [{**asked[0], **first}, *asked[1:]]},
        {"role": "user", "parts": [{"functionResponse": told}] * calls},
    ]


@pytest.mark.parametrize("first", [{}, {"thoughtSignature": "c2lnbmVk"}])
@pytest.mark.parametrize("drops", ["fold_exchanges", "every other"])
def test_where_the_first_of_several_calls_goes_the_next_one_is_let_through(
    first: dict[str, str], drops: str
) -> None:
    """Of calls made at once only the first is signed; a signature of Google's keeps them all."""
    step = _at_once(3, **first)
    body = {**GEMINI_3, "contents": [{"role": "user", "parts": [{"text": "go"}]}, *step * 9]}
    passes = (drops if drops == "fold_exchanges" else drop_every_other_exchange,)
    policy = Policy(
        passes=passes,
        keep_calls=3,
        fold_over_chars=2_000,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
    )
    out = respool.compact(body, format="gemini", policy=policy, memo=None)
    assert respool.check(out.request, format="gemini") == []
    assert bool(out.report.edits) or drops == "fold_exchanges"
    told = json.dumps(out.request)
    assert (told.count(SKIP_SIGNATURE) > 0) is (not first)
