"""OpenAI Chat Completions rules: each one broken and kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.providers.base import Problem, RuleState, Step
from respool.providers.openai_chat.check import OpenAIChatRules, check_every_rule, is_plain
from respool.providers.openai_chat.codec import OpenAIChatCodec
from respool.providers.openai_string_limit import MAX_STRING_CHARS
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json_messages, broken, histories, pending, requests

RULES = OpenAIChatRules()
OPENAI = {"model": "gpt-4.1"}
USER = {"role": "user", "content": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
LONG = "x" * (MAX_STRING_CHARS + 1)


def call(id: Any = "a", arguments: Any = "{}", name: Any = "read") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def custom(input: Any) -> dict[str, Any]:
    return {"id": "a", "type": "custom", "custom": {"name": "patch", "input": input}}


def asks(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(id: Any = "a", content: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def steps_of(messages: list[Any]) -> list[Step]:
    made = OpenAIChatCodec().is_model_made
    starts = [
        i for i, m in enumerate(messages) if i == 0 or (made(m) and not made(messages[i - 1]))
    ]
    ends = [*starts[1:], len(messages)]
    return [
        Step(messages[i:j], i, sum(1 for _ in itertools.takewhile(made, messages[i:j])))
        for i, j in zip(starts, ends, strict=False)
    ]


def check(messages: list[Any], fields: dict[str, Any] | None = None) -> list[Problem]:
    seen = RuleState()
    found: list[Problem] = []
    for step in steps_of(messages):
        found += RULES.check_step(step, seen, fields)
        RULES.advance(step, seen)
    found += RULES.check_end(seen, len(messages), messages.__getitem__, fields)
    return found + RULES.check_fields(messages, fields)


def told(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(p.code, p.place) for p in problems if p.severity == "error"]


# What is broken, the problems, and the same as it should be.
BROKEN: list[tuple[str, list[Any], list[tuple[str, str]], list[Any]]] = [
    ("no messages", [], [("C0", "messages")], [USER]),
    ("no object", ["hi"], [("C0", "messages[0]")], [USER]),
    ("unknown role", [USER, {"role": "ai", "content": ""}], [("C0", "messages[1]")], [USER]),
    ("role of another type", [{"role": [], "content": ""}], [("C0", "messages[0]")], [USER]),
    (
        "content of another type",
        [{"role": "user", "content": 3}],
        [("C0", "messages[0].content")],
        [{"role": "user", "content": "3"}],
    ),
    (
        "part without a type",
        [{"role": "user", "content": ["hi", {"text": "x"}]}],
        [("C0", "messages[0].content[0]"), ("C0", "messages[0].content[1]")],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "future"}]}],
    ),
    (
        "text of another type",
        [{"role": "user", "content": [{"type": "text", "text": None}]}],
        [("C0", "messages[0].content[0].text")],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
    ),
    (
        "calls of a user",
        [{**USER, "tool_calls": [call()]}],
        [("C0", "messages[0].tool_calls")],
        [{**USER, "tool_calls": None}],
    ),
    (
        "empty calls",
        [USER, {"role": "assistant", "content": "x", "tool_calls": []}],
        [("C0", "messages[1].tool_calls")],
        [USER, {"role": "assistant", "content": "x"}],
    ),
    (
        "empty calls and no words",
        [asks()],
        [("C0", "messages[0].tool_calls"), ("C4", "messages[0].content")],
        [asks(call())],
    ),
    ("call that is no object", [asks("x")], [("C0", "messages[0].tool_calls[0]")], [asks(call())]),
    (
        "call without anything",
        [asks({})],
        [
            ("C0", "messages[0].tool_calls[0].id"),
            ("C0", "messages[0].tool_calls[0].type"),
            ("C0", "messages[0].tool_calls[0].function"),
        ],
        [asks({"id": "a", "type": "future_call"})],
    ),
    (
        "call without a name",
        [asks(call(name=""))],
        [("C0", "messages[0].tool_calls[0].function.name")],
        [asks(call(name="f"))],
    ),
    (
        "ids missing on both sides",
        [asks(call(None)), tool(None)],
        [("C0", "messages[0].tool_calls[0].id"), ("C0", "messages[1].tool_call_id")],
        [asks(call()), tool()],
    ),
    (
        "legacy result without a name",
        [{"role": "function", "content": "r"}],
        [("C0", "messages[0].name")],
        [{"role": "function", "name": "f", "content": None}],
    ),
    (
        "legacy call of another type",
        [asks(call(), function_call=3)],
        [("C0", "messages[0].function_call")],
        [asks(call(), function_call=None)],
    ),
    (
        "call without result",
        [asks(call()), USER],
        [("C1", "messages[0].tool_calls[0]")],
        [asks(call()), tool(), USER],
    ),
    (
        "one of two calls without result",
        [asks(call("a"), call("b")), tool("a")],
        [("C1", "messages[0].tool_calls[1]")],
        [asks(call("a"), call("b")), tool("b"), tool("a")],
    ),
    (
        "one id called twice and answered once",
        [asks(call("a"), call("a")), tool("a"), USER],
        [("C1", "messages[0].tool_calls[1]")],
        [asks(call("a"), call("a")), tool("a"), tool("a"), USER],
    ),
    (
        "words between call and result",
        [asks(call()), USER, tool()],
        [("C1", "messages[0].tool_calls[0]"), ("C2", "messages[2]")],
        [asks(call()), tool(), USER],
    ),
    (
        "another turn between call and result",
        [asks(call()), {"role": "assistant", "content": "x"}, tool()],
        [("C1", "messages[0].tool_calls[0]"), ("C2", "messages[2]")],
        [asks(call()), tool(), {"role": "assistant", "content": "x"}],
    ),
    (
        "another turn after a call, and nothing more",
        [asks(call("a")), asks(call("b"))],
        [("C1", "messages[0].tool_calls[0]")],
        [asks(call("a")), tool("a"), asks(call("b"))],
    ),
    ("result without call", [USER, tool()], [("C2", "messages[1]")], [USER, asks(call()), tool()]),
    (
        "result of the turn before",
        [asks(call("a")), tool("a"), asks(call("b")), tool("a"), tool("b")],
        [("C2", "messages[3]")],
        [asks(call("a")), tool("a"), asks(call("a")), tool("a")],
    ),
    (
        "second result",
        [asks(call()), tool(), tool()],
        [("C2", "messages[2]")],
        [asks(call()), tool()],
    ),
    (
        "null content of a user",
        [{"role": "user", "content": None}],
        [("C4", "messages[0].content")],
        [{"role": "user", "content": ""}],
    ),
    (
        "missing content of a system message",
        [{"role": "system"}],
        [("C4", "messages[0].content")],
        [{"role": "system", "content": []}],
    ),
    (
        "nothing said, nothing called",
        [{"role": "assistant", "content": None}],
        [("C4", "messages[0].content")],
        [{"role": "assistant", "refusal": "no"}],
    ),
    (
        "null content beside audio",
        [{"role": "assistant", "audio": 3}],
        [("C4", "messages[0].content")],
        [{"role": "assistant", "audio": {"id": "x"}}],
    ),
    (
        "null content of a result",
        [asks(call()), tool(content=None)],
        [("C4", "messages[1].content")],
        [asks(call()), tool(content="")],
    ),
    (
        "arguments that are an object",
        [asks(call(arguments={}))],
        [("C5", "messages[0].tool_calls[0].function.arguments")],
        [asks(call(arguments=" {}"))],
    ),
    (
        "arguments that are no JSON",
        [asks(call(arguments='{"a"'))],
        [("C5", "messages[0].tool_calls[0].function.arguments")],
        [asks(call(arguments='{"a":NaN}'))],
    ),
    (
        "arguments that are empty",
        [asks(call(arguments=""))],
        [("C5", "messages[0].tool_calls[0].function.arguments")],
        [asks(call(arguments="[]"))],
    ),
    (
        "legacy arguments",
        [{"role": "assistant", "function_call": {"name": "f"}}],
        [("C5", "messages[0].function_call.arguments")],
        [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}],
    ),
    (
        "free text that is none",
        [asks(custom(None))],
        [("C5", "messages[0].tool_calls[0].custom.input")],
        [asks(custom('{"a"'))],
    ),
    (
        "a very long string",
        [{"role": "user", "content": LONG}],
        [("C6", "messages[0].content")],
        [{"role": "user", "content": LONG[:MAX_STRING_CHARS]}],
    ),
    (
        "very long parts, arguments and input",
        [asks(call(arguments=f'"{LONG}"'), custom(LONG), content=[{"type": "text", "text": LONG}])],
        [
            ("C6", "messages[0].tool_calls[0].function.arguments"),
            ("C6", "messages[0].tool_calls[1].custom.input"),
            ("C6", "messages[0].content[0].text"),
        ],
        [asks(call(), custom("x"))],
    ),
]


@pytest.mark.parametrize(
    ("name", "broken", "expected", "sound"), BROKEN, ids=[row[0] for row in BROKEN]
)
def test_each_rule_is_seen_where_it_is_broken_and_only_there(
    name: str, broken: list[Any], expected: list[tuple[str, str]], sound: list[Any]
) -> None:
    assert told(check(broken)) == expected
    assert check(sound) == []


def test_a_long_id_is_a_warning() -> None:
    (problem,) = check([asks(call("x" * 41)), tool("x" * 41)])
    assert (problem.code, problem.place, problem.severity) == (
        "C3",
        "messages[0].tool_calls[0].id",
        "warning",
    )
    assert check([asks(call("x" * 40)), tool("x" * 40)]) == []


@pytest.mark.parametrize(
    ("fields", "severity"),
    [(None, "warning"), ({"model": "qwen3-vl"}, "warning"), (OPENAI, "error")],
)
def test_media_in_a_result_are_an_error_only_where_the_model_is_openais(
    fields: dict[str, Any] | None, severity: str
) -> None:
    (problem,) = check([asks(call()), tool(content=[IMAGE])], fields)
    assert (problem.code, problem.place) == ("C4", "messages[1].content[0]")
    assert problem.severity == severity
    assert check([{"role": "user", "content": [IMAGE]}], fields) == []


FUNCTIONS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"model": "gpt-5.4", "tools": FUNCTIONS, "reasoning_effort": "low"}, "error"),
        ({"model": "gpt-6", "functions": [{"name": "f"}], "reasoning_effort": "high"}, "error"),
        ({"model": "gpt-5.4", "tools": FUNCTIONS, "reasoning_effort": "none"}, None),
        ({"model": "gpt-5.4", "tools": FUNCTIONS}, None),
        ({"model": "gpt-5.6", "tools": FUNCTIONS}, "warning"),
        ({"model": "gpt-5.6", "tools": FUNCTIONS, "reasoning_effort": None}, "warning"),
        ({"model": "gpt-5.6", "tools": [{"type": "custom"}], "reasoning_effort": "low"}, None),
        ({"model": "gpt-5.6", "reasoning_effort": "low"}, None),
        ({"model": "gpt-5.3", "tools": FUNCTIONS, "reasoning_effort": "low"}, None),
        ({"model": "deepseek-chat", "tools": FUNCTIONS, "reasoning_effort": "low"}, None),
        ({"model": 3, "tools": 3, "reasoning_effort": 3}, None),
        (None, None),
    ],
)
def test_effort_with_function_tools(fields: dict[str, Any] | None, severity: str | None) -> None:
    found = [(p.code, p.place, p.severity) for p in check([USER], fields)]
    assert found == ([("C7", "reasoning_effort", severity)] if severity else [])


SOUND: list[tuple[str, list[Any]]] = [
    ("pending calls at the end", [USER, asks(call("a"), call("b"))]),
    ("pending legacy call", [USER, {"role": "assistant", "function_call": call()["function"]}]),
    ("results in another order", [asks(call("a"), call("b")), tool("b"), tool("a"), USER]),
    ("the same id again later", [asks(call("a")), tool("a"), asks(call("a")), tool("a")]),
    ("assistant last", [USER, {"role": "assistant", "content": "x"}]),
    (
        "assistant first",
        [{"role": "assistant", "content": "x"}, {"role": "assistant", "content": ""}],
    ),
    ("calls beside empty parts", [asks(call(), content=[]), tool()]),
    ("result in parts", [asks(call()), tool(content=[{"type": "text", "text": "r"}])]),
    ("a legacy result alone", [{"role": "function", "name": "f", "content": "r"}]),
    ("calls of a type to come", [asks({"id": "a", "type": "future", "future": 3}), tool()]),
    ("reasoning in the message", [asks(call(), reasoning_content="x"), tool()]),
]


@pytest.mark.parametrize(("name", "messages"), SOUND, ids=[row[0] for row in SOUND])
def test_what_the_api_takes_has_no_problem(name: str, messages: list[Any]) -> None:
    assert check(messages, OPENAI) == []


@given(requests("openai-chat"))
def test_whole_requests_have_no_error(request: dict[str, Any]) -> None:
    fields = {key: value for key, value in request.items() if key != "messages"}
    assert told(check(request["messages"], fields)) == []


@given(histories("openai-chat") | pending("openai-chat"))
def test_whole_and_pending_lists_have_no_error(history: list[Any]) -> None:
    assert told(check(history)) == []


@given(arbitrary_json_messages())
def test_nothing_raises_on_any_json(messages: list[Any]) -> None:
    for problem in check(messages, OPENAI):
        assert str(problem)
        assert len(problem.message) < 200


CONTENTS: tuple[Any, ...] = (
    *("r", "", None, [], 3, LONG, [IMAGE], ["r"], [{"type": "text", "text": "r"}]),
    *([{"type": "text", "text": LONG}], [{"type": "text"}], [{"type": "refusal"}]),
)
ODD_CALLS: tuple[Any, ...] = (
    *(call(arguments=said) for said in ("[]", "NaN", "{", "", None, {}, f'"{LONG}"')),
    *(call(name=name) for name in ("", None, [])),
    *(call(id) for id in ("", None, 3, [], "x" * 41)),
    *(custom("x"), {"id": "a", "type": "future"}, {"id": "a"}, 3),
)
MORES: tuple[dict[str, Any], ...] = (
    *({}, {"tool_calls": None}, {"tool_calls": [call()]}, {"function_call": {"name": "f"}}, USER),
)
IDS = st.sampled_from(("a", "b", "", None))
CONTENT, MORE = st.sampled_from(CONTENTS), st.sampled_from(MORES)
CALLS = st.lists(IDS.map(call) | st.sampled_from(ODD_CALLS), max_size=3)
ASKING = st.builds(
    lambda calls, content, more: asks(*calls, content=content) | more, CALLS, CONTENT, MORE
)
ANSWERING = st.builds(tool, IDS, st.just("r") | CONTENT)
TELLING = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    st.sampled_from(("user", "system", "developer", "function", "assistant", "ai", None)),
    CONTENT,
    MORE,
)
EXCHANGE = st.permutations(["a", "b"]).flatmap(
    lambda ids: st.just((asks(call("a"), call("b")), *(tool(id) for id in ids)))
)
NEARLY = st.lists(
    (ASKING | ANSWERING | TELLING).map(lambda one: (one,)) | EXCHANGE, max_size=5
).map(lambda many: [one for some in many for one in some])
FIELDS = st.sampled_from((None, OPENAI))


def plain_steps(messages: list[Any], fields: dict[str, Any] | None = None) -> int:
    """Number of plain steps; each of them must pass every rule."""
    plain = [step for step in steps_of(messages) if is_plain(step)]
    assert [problem for step in plain for problem in check_every_rule(step, fields)] == []
    return len(plain)


@pytest.mark.parametrize("fields", [None, OPENAI])
def test_one_odd_thing_is_plain_only_where_it_passes_every_rule(fields: Any) -> None:
    for odd in (call(), *ODD_CALLS):
        for calls in ([odd], [odd, call("b")], [call("b"), odd]):
            plain_steps([asks(*calls)], fields)
            plain_steps([asks(*calls), tool("a"), tool("b"), USER], fields)
    for content, more in itertools.product(CONTENTS, MORES):
        said = {"content": content, **more}
        plain_steps([asks(call()) | said, tool()], fields)
        plain_steps([asks(call()), tool() | said, USER], fields)
        plain_steps([asks(call(), call("b")), tool() | said, tool("b")], fields)
        for role in ("user", "system", "function", "assistant", "ai"):
            plain_steps([asks(call()), tool(), {"role": role, **said}], fields)


@settings(max_examples=examples(300))
@given(NEARLY, FIELDS)
def test_what_is_plain_passes_every_rule(messages: list[Any], fields: Any) -> None:
    plain_steps(messages, fields)


@given(requests("openai-chat") | broken("openai-chat"))
def test_what_is_plain_in_a_request_passes_every_rule(request: dict[str, Any]) -> None:
    messages = request["messages"]
    plain_steps(messages if isinstance(messages, list) else [messages], request)


@given(NEARLY | arbitrary_json_messages(), FIELDS, st.integers(0, 3))
def test_what_is_plain_passes_every_rule_wherever_a_step_is_cut(
    messages: list[Any], fields: Any, split: int
) -> None:
    step = Step(messages, 0, min(split, len(messages)))
    assert not is_plain(step) or check_every_rule(step, fields) == []


def test_the_steps_of_most_sessions_are_plain() -> None:
    assert plain_steps(long_session("openai-chat", 5)["messages"]) == 6
    both = [USER, asks(call("a"), call("b"))]
    assert plain_steps([*both, tool("b"), tool("a"), {"role": "user", "content": [IMAGE]}]) == 2
    assert plain_steps(both) == 2
