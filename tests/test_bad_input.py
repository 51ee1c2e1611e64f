"""Bad input: a clear typed error, or the input as it came; never a traceback, never a hang."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import respool
from respool import Policy
from tests.laws.sessions import broken_session
from tests.support.formats import FORMATS, Exchange, request
from tests.support.timing import takes_at_most

NESTED = b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"messages": [{"role": "user", "content": "h',
    "no JSON": b"hello",
    "binary": bytes(range(256)),
    "NaN": b'{"messages": [{"role": "user", "content": NaN}]}',
    "lone surrogate": b'{"model":"claude-x","messages":[{"role":"user","content":"\\ud800"}]}',
    "invalid UTF-8": b'{"model":"claude-opus-4-5","messages":[{"role":"user","content":"\xff"}]}',
    "BOM": b'\xef\xbb\xbf{"messages": []}',
    "nested": NESTED,
    "trailing": b'{"messages": []} {}',
}
NO_REQUEST: dict[str, bytes] = {
    "a number": b"1",
    "null": b"null",
    "a string": b'"messages"',
    "no history": b'{"model": "x"}',
    "history is a number": b'{"messages": 3}',
    "history is an object": b'{"messages": {}}',
    "a list of numbers": b"[1, 2, 3]",
    "an empty list": b"[]",
}


@pytest.mark.parametrize(
    "body", [*MALFORMED.values(), *NO_REQUEST.values()], ids=[*MALFORMED, *NO_REQUEST]
)
def test_what_cannot_be_read_is_passed_on_as_it_came(body: bytes) -> None:
    out = respool.compact(body)
    assert out.request is body
    assert out.report.untouched


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_check_and_repair_say_what_is_wrong(body: bytes) -> None:
    with pytest.raises(respool.UnreadableRequest, match=r"[A-Z].*\."):
        respool.check(body)
    with pytest.raises(respool.UnreadableRequest):
        respool.repair(body)


@pytest.mark.parametrize(
    "value", [None, 3, 2.5, object(), {1, 2}, ("a",), [object()], [{"role": object()}]]
)
def test_no_json_at_all(value: Any) -> None:
    assert respool.compact(value).request is value


def test_objects_of_an_unknown_kind_are_refused_and_passed_on() -> None:
    class TextBlock:
        type, text = "text", "hi"

    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [TextBlock(), {"type": "tool_use", "id": "a"}]},
    ]
    out = respool.compact(history, format="anthropic")
    assert out.request is history
    assert "TextBlock" in str(out.report.untouched)
    assert "pass plain data" in str(out.report.untouched)


def test_a_wrong_format_name_is_named_with_the_allowed_ones() -> None:
    with pytest.raises(respool.UnknownFormat, match=r"'claude'.*anthropic, openai-chat"):
        respool.compact([], format="claude")


def test_a_format_that_does_not_fit_is_said() -> None:
    with pytest.raises(respool.UnreadableRequest, match="contents"):
        respool.check({"messages": []}, format="gemini")


@pytest.mark.parametrize("format", FORMATS)
def test_odd_numbers_and_doubled_keys_keep_their_spelling(format: str) -> None:
    long = "x" * 3_000
    body = json.dumps(request(format, "go", [Exchange(long, id="a")], [Exchange("b", id="b")]))
    odd = body.replace('"command": "make"', f'"n": {"7" * 400}, "f": 1E5, "d": 1, "d": 2', 1)
    if format in ("openai-chat", "openai-responses"):
        odd = body.replace('\\"command\\": \\"make\\"', f'\\"n\\": {"7" * 400}', 1)
    assert odd != body
    out = respool.compact(
        odd.encode(),
        format=format,
        policy=Policy(
            cap_chars=1_000, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
        ),
    )
    assert len(out.report.edits) == 1
    assert b"7" * 400 in out.request
    assert (b"1E5" in out.request) == ("1E5" in odd)


def test_numbers_of_python_that_json_has_not() -> None:
    history = request("anthropic", "go", [Exchange("x" * 3_000, id="a")], [Exchange("b", id="b")])
    history["messages"][1]["content"][0]["input"] = {"x": float("nan"), "s": "\ud800", "n": 10**400}
    out = respool.compact(
        history,
        policy=Policy(
            cap_chars=1_000, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
        ),
    )
    assert len(out.report.edits) == 1
    assert out.request["messages"][1] is history["messages"][1]


def test_deep_objects_are_passed_on() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": deep}]
    out = respool.compact(history, format="anthropic")
    assert out.request is history or out.report.repairs


large = pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])


@pytest.mark.parametrize("format", FORMATS)
@large
def test_thousands_of_calls_in_one_message(format: str, count: int) -> None:
    many = [Exchange("x" * 20, id=f"call_{number}") for number in range(count)]
    start = time.process_time()
    out = respool.compact(request(format, "go", many, "more"), format=format)
    lost = request(format, "go", many)
    lost[next(k for k in ("messages", "input", "contents") if k in lost)].pop()
    repaired = respool.repair(lost, format=format)
    assert time.process_time() - start < count / 500
    assert respool.check(out.request, format=format) == []
    assert repaired.request


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("times", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_history_broken_everywhere_is_mended_in_linear_time(format: str, times: int) -> None:
    def repaired(body: bytes) -> None:
        out = respool.compact(body, format=format, memo=None)
        assert respool.check(out.request, format=format) == []

    short, long = (json.dumps(broken_session(format, n)).encode() for n in (200, 200 * times))
    takes_at_most(3 * times, lambda: repaired(long), lambda: repaired(short))


def megabytes(count: int) -> bytes:
    """A request with so many results of a megabyte each."""
    line = "the same words over and over, 1234567\\n"
    blocks = ",".join(
        f'{{"type":"tool_result","tool_use_id":"t{k}","content":"{line * 26_000}"}}'
        for k in range(count)
    )
    calls = ",".join(
        f'{{"type":"tool_use","id":"t{k}","name":"n","input":{{}}}}' for k in range(count)
    )
    return (
        f'{{"model":"claude-opus-4-5","tools":[{{"name":"n","input_schema":{{}}}}],"messages":['
        f'{{"role":"user","content":"go"}},{{"role":"assistant","content":[{calls}]}},'
        f'{{"role":"user","content":[{blocks}]}},{{"role":"assistant","content":"ok"}},'
        f'{{"role":"user","content":"on"}}]}}'
    ).encode()


@pytest.mark.parametrize(("least", "most"), [(1, 3), pytest.param(10, 100, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_hundred_megabytes(least: int, most: int) -> None:
    """They take about ten times as long as ten, and three as long as three of one."""
    few, many = megabytes(least), megabytes(most)
    assert len(many) > 980_000 * most
    made: list[respool.Compaction[bytes]] = []
    takes_at_most(
        2 * most / least,
        lambda: made.append(respool.compact(many, memo=None)),
        lambda: respool.compact(few, memo=None),
    )
    assert len(made[0].report.edits) == most
    assert len(made[0].request) < 40_000 * most


def test_a_body_larger_than_anthropic_takes_is_a_problem() -> None:
    whole = request("anthropic", "x" * (33 * 1024 * 1024))
    problems = respool.check(json.dumps(whole).encode())
    assert [(p.code, p.place) for p in problems] == [("A22", "body")]
