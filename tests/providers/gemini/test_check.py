"""Gemini generateContent rules: each one broken and kept."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.providers.base import Problem, RuleState, Step, split_steps
from respool.providers.gemini.check import GeminiRules, check_every_rule, is_plain
from respool.providers.gemini.codec import GeminiCodec
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json_messages, broken, pending, requests
from tests.support.timing import takes_at_most

RULES = GeminiRules()
GEMINI_3: dict[str, Any] = {"model": "models/gemini-3-pro-preview"}
GEMINI_2: dict[str, Any] = {"model": "gemini-2.5-flash"}
Found = list[tuple[str, str]]


def check(contents: list[Any], fields: dict[str, Any] | None = None) -> list[Problem]:
    """All that the rules find in a history."""
    seen, found = RuleState(), list[Problem]()
    for step in split_steps(GeminiCodec(), contents):
        found += RULES.check_step(step, seen, fields)
        RULES.advance(step, seen)
    found += RULES.check_end(seen, len(contents), contents.__getitem__, fields)
    return found + RULES.check_fields(contents, fields)


def codes(contents: list[Any], fields: dict[str, Any] | None = None) -> Found:
    return [(p.code, p.place) for p in check(contents, fields) if p.severity == "error"]


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


def call(name: str = "f", id: str | None = None, **part: Any) -> dict[str, Any]:
    return {"functionCall": {**({"id": id} if id else {}), "name": name, "args": {}}, **part}


def answer(name: str = "f", id: str | None = None) -> dict[str, Any]:
    return {
        "functionResponse": {
            **({"id": id} if id else {}),
            "name": name,
            "response": {"output": "x"},
        }
    }


ASK = user(text("Go."))
SIGNED = {"thoughtSignature": "c2ln"}
FINE: list[list[Any]] = [
    [ASK],
    [user(text("Go.")), user(text("Now."))],
    [{"role": "user", "parts": text("Go.")}],
    [ASK, model(call()), user(answer())],
    [ASK, model(text("First."), call("a"), call("b")), user(answer("b"), answer("a"))],
    [ASK, model(call("a", "1"), call("a", "2")), user(answer("a", "2"), answer("a", "1"))],
    [ASK, model(call()), user(answer(), text("and this"))],
    [ASK, model(call()), user(answer()), user(text("and this"))],
    [ASK, model(call("a"), call("b")), user(answer("a"), {"inlineData": {}}, answer("b"))],
    [ASK, model(text("a")), model(text("b")), ASK],
    [model(text("Welcome.")), ASK],
    [ASK, model(call())],
    [ASK, model({"executableCode": {"code": "1"}}, {"codeExecutionResult": {}}), ASK],
    [ASK, model({"text": "", "thoughtSignature": "c2ln"}), ASK],
    [ASK, model({"hologram": 1}), ASK],
    [ASK, model({"functionCall": {"name": "f"}}), user(answer())],
    [ASK, model({"functionCall": {"name": "f"}, "text": None}), user(answer())],
    # An id on one side only: a call's that its response does not repeat, or the other way.
    [ASK, model(call(id="1")), user(answer())],
    [ASK, model(call()), user(answer(id="1"))],
    [ASK, model(call("a", "1"), call("b")), user(answer("a"), answer("b", "2"))],
    [ASK, model(call("a", "1"), call("a", "2")), user(answer("a"), answer("a"))],
]


@pytest.mark.parametrize("contents", [*FINE, *(snake(one) for one in FINE)])
def test_what_gemini_accepts_is_no_problem(contents: list[Any]) -> None:
    assert check(contents) == []
    assert check(contents, GEMINI_2) == []


BROKEN: list[tuple[list[Any], Found, list[Any]]] = [
    (["Go."], [("G0", "contents[0]")], [ASK]),
    ([text("Go.")], [("G0", "contents[0]")], [ASK]),
    ([{"role": "user", "parts": "Go."}], [("G0", "contents[0].parts")], [ASK]),
    ([user("Go.")], [("G0", "contents[0].parts[0]")], [ASK]),
    ([user({"text": 3})], [("G0", "contents[0].parts[0].text")], [ASK]),
    (
        [user({"text": "Go.", "inlineData": {}})],
        [("G0", "contents[0].parts[0]")],
        [user(text("Go."), {"inlineData": {}})],
    ),
    (
        [ASK, model(call()), ASK],
        [("G1", "contents[1].parts[0]")],
        [ASK, model(call()), user(answer()), ASK],
    ),
    ([user(answer())], [("G1", "contents[0].parts[0]")], [ASK]),
    (
        [ASK, model(call()), user(answer(), answer())],
        [("G1", "contents[2].parts[1]")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model(call()), ASK, user(answer())],
        [("G1", "contents[3].parts[0]")],
        [ASK, model(call()), user(answer()), ASK],
    ),
    (
        [ASK, model(call()), user(text("wait"), answer())],
        [("G1", "contents[2].parts[1]")],
        [ASK, model(call()), user(answer(), text("wait"))],
    ),
    (
        [ASK, model(call("a"), call("b")), user(answer("a")), user(answer("b"))],
        [("G1", "contents[3].parts[0]")],
        [ASK, model(call("a"), call("b")), user(answer("a"), answer("b"))],
    ),
    (
        [ASK, model(call()), model(text("so")), user(answer())],
        [("G1", "contents[1]")],
        [ASK, model(call(), text("so")), user(answer())],
    ),
    (
        [ASK, model(answer("a"), call()), user(answer())],
        [("G1", "contents[1].parts[0].functionResponse")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [model(call()), user(answer())],
        [("G2", "contents[0]")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model(text("so")), model(call()), user(answer())],
        [("G2", "contents[2]")],
        [ASK, model(text("so"), call()), user(answer())],
    ),
    (
        [ASK, model({"functionCall": {"name": "f", **SIGNED}}), user(answer())],
        [("G5", "contents[1].parts[0].functionCall.thoughtSignature")],
        [ASK, model(call(**SIGNED)), user(answer())],
    ),
    ([{**ASK, "role": "system"}], [("G6", "contents[0].role")], [ASK]),
    (
        [ASK, {**model(text("a")), "role": "assistant"}, ASK],
        [("G6", "contents[1].role")],
        [ASK, model(text("a")), ASK],
    ),
    (
        [ASK, model(call()), {**user(answer()), "role": "function"}],
        [("G6", "contents[2].role")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model(call()), model(answer())],
        [("G6", "contents[2].role")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, {"parts": [call()]}, user(answer())],
        [("G6", "contents[1].role")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, user(call()), user(answer())],
        [("G6", "contents[1].role")],
        [ASK, model(call()), user(answer())],
    ),
    ([], [("G8", "contents")], [ASK]),
    ([user()], [("G8", "contents[0]")], [ASK]),
    ([{"role": "user"}], [("G8", "contents[0]")], [ASK]),
    ([user(text("Go."), {})], [("G8", "contents[0].parts[1]")], [ASK]),
    ([user(text("Go."), {"thought": True})], [("G8", "contents[0].parts[1]")], [ASK]),
    ([user(text(""))], [("G8", "contents[0].parts[0]")], [ASK]),
    (
        [ASK, model({"functionCall": {"name": "f", "args": "a"}}), user(answer())],
        [("G9", "contents[1].parts[0].functionCall.args")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model({"functionCall": {"name": "", "id": "1"}}), user(answer("", "1"))],
        [("G9", "contents[1].parts[0].functionCall.name")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model(call()), user({"functionResponse": {"name": "f", "response": "x"}})],
        [("G9", "contents[2].parts[0].functionResponse.response")],
        [ASK, model(call()), user(answer())],
    ),
    (
        [ASK, model(call(id="1")), user(answer(id="2"))],
        [("G9", "contents[2].parts[0]")],
        [ASK, model(call(id="1")), user(answer(id="1"))],
    ),
    (
        [ASK, model(call("a", "1")), user(answer("b", "1"))],
        [("G9", "contents[2].parts[0]")],
        [ASK, model(call("a", "1")), user(answer("a", "1"))],
    ),
]


@pytest.mark.parametrize(("contents", "expected", "repaired"), BROKEN)
def test_each_rule_is_found_in_its_place(
    contents: list[Any], expected: Found, repaired: list[Any]
) -> None:
    assert codes(contents) == expected
    assert check(repaired) == []


@pytest.mark.parametrize(("contents", "expected", "repaired"), BROKEN)
def test_each_rule_is_found_in_the_sdks_spelling(
    contents: list[Any], expected: Found, repaired: list[Any]
) -> None:
    found = [
        (code, re.sub(r"_(\w)", lambda m: m[1].upper(), p)) for code, p in codes(snake(contents))
    ]
    assert found == expected
    assert check(snake(repaired)) == []


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": ""}])
def test_a_missing_role_is_a_warning(role: dict[str, Any]) -> None:
    (problem,) = check([{**role, "parts": [text("Go.")]}])
    assert (problem.code, problem.place, problem.severity) == ("G6", "contents[0].role", "warning")


def test_a_request_must_not_end_on_the_model_but_a_list_may() -> None:
    contents = [ASK, model(text("Done."))]
    assert codes(contents, {}) == [("G7", "contents[1]")]
    assert codes(contents, None) == []
    assert codes([*contents, ASK], {}) == []
    assert codes([ASK, model(call())], {}) == []


STEP = [model(call()), user(answer())]
SIGNATURES: list[tuple[list[Any], Found]] = [
    ([ASK, *STEP], [("G3", "contents[1].parts[0]")]),
    ([ASK, model(text("so"), call(**SIGNED), call()), user(answer(), answer())], []),
    (
        [ASK, model(text("so"), call(), call(**SIGNED)), user(answer(), answer())],
        [("G3", "contents[1].parts[1]")],
    ),
    ([ASK, *STEP, ASK], []),
    ([ASK, *STEP, ASK, *STEP], [("G3", "contents[4].parts[0]")]),
    ([ASK, *STEP, *STEP], [("G3", "contents[1].parts[0]"), ("G3", "contents[3].parts[0]")]),
    (
        [ASK, model(call()), user(answer(), text("and now"))],
        [("G3a", "contents[1].parts[0]")],
    ),
    (
        [ASK, model(call()), user(answer(), text("and now")), *STEP],
        [("G3a", "contents[1].parts[0]"), ("G3", "contents[3].parts[0]")],
    ),
    ([ASK, model(call()), user(answer()), user(text("and now"))], []),
    ([ASK, model(call()), user(answer(), text("and now")), ASK], []),
    ([ASK, model(call())], [("G3", "contents[1].parts[0]")]),
]


@pytest.mark.parametrize(("contents", "expected"), SIGNATURES)
def test_signatures_are_asked_for_in_the_current_turn(contents: list[Any], expected: Found) -> None:
    assert codes(contents, GEMINI_3) == expected
    assert codes(snake(contents), GEMINI_3) == expected
    assert codes(contents, GEMINI_2) == codes(contents, {}) == codes(contents, None) == []


@given(requests("gemini"))
def test_whole_requests_have_no_problem(request: dict[str, Any]) -> None:
    fields = {key: value for key, value in request.items() if key != "contents"}
    assert check(request["contents"], fields) == []


@given(pending("gemini"))
def test_pending_calls_are_no_problem(contents: list[Any]) -> None:
    assert check(contents) == []


@given(arbitrary_json_messages())
def test_judging_never_raises_and_is_pure(contents: list[Any]) -> None:
    before = repr(contents)
    assert check(contents, GEMINI_3) == check(contents, GEMINI_3)
    assert repr(contents) == before


NAMES, IDS = st.sampled_from("ab"), st.sampled_from((None, "", "1", "2"))
ODD: tuple[Any, ...] = (
    *(text("hi"), text(""), text("hi") | SIGNED, {"text": "hi", "thought": True}, "hi", {}),
    *({"inlineData": {"data": "x"}}, {"inlineData": {}}, {"hologram": 1}, {"thought": True}),
    *({"executableCode": {"code": "1"}}, {"text": "hi", "fileData": {"fileUri": "x"}}),
    {"functionCall": {"name": "a", "args": {}, **SIGNED}},
    {"functionCall": {"name": "", "args": {}}, **SIGNED},
    {"functionCall": {"id": 3, "name": "a", "args": {}}},
    {"functionCall": {"name": "a", "args": "x"}},
    {"functionResponse": {"id": 3, "name": "a", "response": {}}},
    {"functionResponse": {"name": "a", "response": "x"}},
    {"functionResponse": {"response": {}}},
)
ODDS = st.sampled_from(ODD)
ROLES = st.sampled_from(("user", "model", "assistant", "", None))


@st.composite
def nearly_sound(draw: st.DrawFn) -> list[Any]:
    """Calls and their responses, with something odd among them, or an id lost, cut or pending."""
    names = draw(st.lists(st.tuples(NAMES, IDS), max_size=3))
    run: list[Any] = [call(name, id) for name, id in names]
    answers: list[Any] = [answer(name, draw(st.sampled_from((id, id, None)))) for name, id in names]
    for parts in draw(st.sampled_from(((), (run,), (answers,)))):
        parts.insert(draw(st.integers(0, len(parts))), draw(ODDS | st.builds(answer, NAMES, IDS)))
    halves = [user(*answers[:1]), user(*answers[1:])]
    behind = draw(st.sampled_from(([user(*answers)], [user(*answers)], halves, [])))
    return [model(*run) | draw(st.sampled_from(({}, {}, {"role": "user"}))), *behind]


CONTENTS = st.builds(lambda role, part: [{"role": role, "parts": [part]}], ROLES, ODDS)
NEARLY = st.lists(nearly_sound() | nearly_sound() | CONTENTS, max_size=3).flatmap(
    lambda many: st.sampled_from(([ASK], [])).map(lambda first: sum(many, first))
)


def plain_steps(contents: list[Any]) -> int:
    """Number of plain steps; each of them must pass every rule."""
    seen, count = RuleState(), 0
    for step in split_steps(GeminiCodec(), contents):
        if is_plain(step):
            count += 1
            assert check_every_rule(step, seen) == []
        RULES.advance(step, seen)
    return count


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_part_is_plain_only_where_it_passes_every_rule(odd: Any) -> None:
    for run in ([odd], [call(), odd], [odd, call()]):
        for answers in ([], [answer()], [answer(), odd], [odd, answer()], [answer(), answer()]):
            behind = [user(*answers)] if answers else []
            plain_steps([ASK, model(*run), *behind])
            plain_steps([ASK, model(*run), *behind, user(odd)])


@settings(max_examples=examples(300))
@given(NEARLY)
def test_what_is_plain_passes_every_rule(contents: list[Any]) -> None:
    plain_steps(contents)
    plain_steps(snake(contents))


@given(requests("gemini") | broken("gemini"))
def test_what_is_plain_in_a_request_passes_every_rule(request: dict[str, Any]) -> None:
    contents = request["contents"]
    plain_steps(contents if isinstance(contents, list) else [contents])


@given(NEARLY | arbitrary_json_messages(), st.integers(0, 2), st.integers(0, 3))
def test_what_is_plain_passes_every_rule_wherever_a_step_is_cut(
    contents: list[Any], at: int, split: int
) -> None:
    step = Step(contents, at, min(split, len(contents)))
    assert not is_plain(step) or check_every_rule(step, RuleState()) == []


def test_the_steps_of_most_sessions_are_plain() -> None:
    contents = long_session("gemini", 5)["contents"]
    assert plain_steps(contents) == plain_steps(snake(contents)) == 6
    ids = [ASK, model(text("so"), call("a", "1"), call("b", "2", **SIGNED))]
    assert plain_steps([*ids, user(answer("a", "1"), answer("b", "2")), ASK]) == 2
    assert plain_steps([*ids, user(answer("a"), answer("b"))]) == 2
    assert plain_steps(ids) == 2


def test_values_of_any_depth_are_judged() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    odd = {"functionResponse": {"id": deep, "name": deep, "response": deep}}
    contents = [{"role": deep, "parts": [deep, odd, {"text": deep}]}, deep]
    assert {code for code, _ in codes(contents, GEMINI_3)} == {"G0", "G1", "G6", "G9"}


def test_ten_thousand_calls_in_one_content_are_judged_in_linear_time() -> None:
    def judge(count: int) -> None:
        contents = [ASK, model(*[call()] * count), user(*[answer()] * (count - 1)), user(answer())]
        assert len(check(contents)) == 1

    takes_at_most(40, lambda: judge(10_000), lambda: judge(1_000))
