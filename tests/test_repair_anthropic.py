"""Anthropic's repairs: what a broken history becomes, and that nothing else is touched."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.check.anthropic import AnthropicRules
from clew.check.formats import problems_in
from clew.check.rules import Seen, Step, steps_of
from clew.codecs.anthropic import AnthropicCodec
from clew.repair.anthropic import REPAIRED, AnthropicMender
from clew.repair.mending import Repair
from clew.repair.words import BLANK, CONTINUE, EARLIER, NO_RESULT, unpaired_result
from tests.strategies import arbitrary_json, arbitrary_json_messages, broken, pending, requests

CODEC, RULES, MENDER = AnthropicCodec(), AnthropicRules(), AnthropicMender()
OLD, NEW = "claude-sonnet-4-5", "claude-opus-5-5"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
LOST = {
    "type": "web_search_tool_result",
    "tool_use_id": "s",
    "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
}
EFFORT = {"role": "system", "output_config": {"effort": "low"}}

Messages = list[Any]
Fields = dict[str, Any] | None


class Mended:
    """A history after repair: its steps, all rows, and what was done."""

    def __init__(self, messages: Messages, fields: Fields = None, ending: bool = True) -> None:
        self.steps: list[Messages] = []
        self.rows: Messages = []
        self.repairs: list[Repair] = []
        seen = Seen()
        for step in steps_of(CODEC, messages):
            self._add(step, seen, fields)
        if ending:
            self._end(seen, fields)

    def _add(self, step: Step, seen: Seen, fields: Fields) -> None:
        mended = MENDER.step(step, seen, fields)
        rows = list(step.messages)
        if mended is not None:
            rows = [row.message for row in mended.rows]
            self.repairs += mended.repairs
            for row in mended.rows:
                assert row.source is None or 0 <= row.source - step.at < len(step.messages)
        for sub in steps_of(CODEC, rows):
            RULES.advance(Step(sub.messages, len(self.rows) + sub.at, sub.split), seen)
        self.rows += rows
        self.steps.append(rows)

    def _end(self, seen: Seen, fields: Fields) -> None:
        rows = self.rows
        ending = MENDER.end(seen, len(rows), lambda row: rows[row], fields)
        changes = dict(ending.changes) if ending else {}
        marked = [(row, changes.get(row, message)) for row, message in enumerate(rows)]
        limited = MENDER.limit_marks(marked, fields)
        changes |= limited.changes if limited else {}
        for one in (ending, limited):
            self.repairs += one.repairs if one else []
        inserts = ending.inserts if ending else {}
        self.rows = [
            message
            for row, source in enumerate(rows)
            for message in (changes.get(row, source), *inserts.get(row, ()))
        ]


def text(said: Any = "x", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(id: Any = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "read", "input": {}, **more}


def res(id: Any = "a", content: Any = "r", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def none(id: str) -> dict[str, Any]:
    return res(id, NO_RESULT)


def orphan(id: str, said: str = "r") -> dict[str, Any]:
    return text(unpaired_result(id, said))


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks) or "hi"}


def m(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks) or "ok"}


def s(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks) or "note", **more}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


TABLE: list[tuple[str, Messages, Messages]] = [
    # Pairs: unmatched, interleaved, duplicate, in the wrong order, parallel, mixed with text.
    ("call without result", [u(), m(use()), u()], [u(), m(use()), u(none("a"), text("hi"))]),
    ("call without anything before the next turn", [u(), m(use()), m(), u(res())], [u(), m(use()), m(), u(res())]),
    ("call without result, only a system message", [u(), m(use()), s()], [u(), m(use()), u(none("a")), s()]),
    ("result without call", [u(res())], [u(orphan("a"))]),
    ("result without call keeps its pictures", [u(res(content=[text("r"), IMAGE]))], [u(orphan("a"), IMAGE)]),
    ("result without id", [u({"type": "tool_result"})], [u(orphan("", ""))]),
    ("result before its call", [u(res()), m(use()), u()], [u(orphan("a")), m(use()), u(none("a"), text("hi"))]),
    ("one of two parallel results", [u(), m(use(), use("b")), u(res("b"))], [u(), m(use(), use("b")), u(res("b"), none("a"))]),
    ("parallel results in two messages", [u(), m(use(), use("b"), use("c")), u(res()), u(res("b"))], [u(), m(use(), use("b"), use("c")), u(res()), u(res("b"), none("c"))]),
    (
        "interleaved: the second result comes a turn late",
        [u(), m(use(), use("b")), u(res()), m(), u(res("b"))],
        [u(), m(use(), use("b")), u(res(), none("b")), m(), u(orphan("b"))],
    ),
    ("text before the result", [u(), m(use()), u(text(), res())], [u(), m(use()), u(res(), text())]),
    ("text between results", [u(), m(use(), use("b")), u(res(), text(), res("b"))], [u(), m(use(), use("b")), u(res(), res("b"), text())]),
    ("message before the results", [u(), m(use()), u(), u(res())], [u(), m(use()), u(res(), text("hi"))]),
    ("message before results and more", [u(), m(use()), u(), u(res(), text("y"))], [u(), m(use()), u(res(), text("hi")), u(text("y"))]),
    ("results in another order are fine", [u(), m(use(), use("b")), u(res("b"), res())], [u(), m(use(), use("b")), u(res("b"), res())]),
    ("two results for one call: the first stays", [u(), m(use()), u(res(), res(content="again"))], [u(), m(use()), u(res())]),
    ("a result told again later", [u(), m(use()), u(res()), m(), u(res())], [u(), m(use()), u(res()), m(), u(orphan("a"))]),
    (
        "one id for two calls of a turn",
        [u(), m(use(), use()), u(res(content="1"), res(content="2"))],
        [u(), m(use(), use("a_2")), u(res(content="1"), res("a_2", "2"))],
    ),
    (
        "one id for calls of three turns",
        [u(), m(use()), u(res()), m(use()), u(res()), m(use()), u(res())],
        [u(), m(use()), u(res()), m(use("a_2")), u(res("a_2")), m(use("a_3")), u(res("a_3"))],
    ),
    (
        "a repeat meets an id that is taken",
        [u(), m(use("a_2"), use()), u(res("a_2"), res()), m(use()), u(res())],
        [u(), m(use("a_2"), use()), u(res("a_2"), res()), m(use("a_3")), u(res("a_3"))],
    ),
    ("ids that are none", [u(), m(use("a b!"), use(""), use(None)), u(res("a b!"), res(""), res(None))], [u(), m(use("a_b_"), use("call"), use("call_2")), u(res("a_b_"), res("call"), res("call_2"))]),
    ("a result whose id is a number", [u(), m(use("7")), u(res(7))], [u(), m(use("7")), u(res("7"))]),
    ("pending calls stay", [u(), m(use())], [u(), m(use())]),
    ("pending calls are mended all the same", [u(), m(use("a b", input=None))], [u(), m(use("a_b"))]),
    # Calls and results of the wrong shape, or in the wrong place.
    ("arguments as text", [u(), m(use(input='{"p": 1}')), u(res())], [u(), m(use(input={"p": 1})), u(res())]),
    ("arguments cut off", [u(), m(use(input='{"p": ')), u(res())], [u(), m(use(input={"input": '{"p": '})), u(res())]),
    ("arguments empty", [u(), m(use(input="")), u(res())], [u(), m(use()), u(res())]),
    ("arguments as list", [u(), m(use(input=[1])), u(res())], [u(), m(use(input={"input": [1]})), u(res())]),
    ("no name", [u(), m(use(name=None)), u(res())], [u(), m(use(name="unknown")), u(res())]),
    ("result of a number", [u(), m(use()), u(res(content=3))], [u(), m(use()), u(res(content="3"))]),
    ("result of odd items", [u(), m(use()), u(res(content=["r", None, {"text": "t"}, IMAGE]))], [u(), m(use()), u(res(content=[text("r"), text("t"), IMAGE]))]),
    ("result in the assistant's message", [u(), m(use(), res(), text())], [u(), m(use(), text()), u(res())]),
    ("result in the assistant's message, and words after", [u(), m(use(), res()), u()], [u(), m(use()), u(res(), text("hi"))]),
    ("stray result in the assistant's message", [u(), m(res("z")), u()], [u(), m(orphan("z")), u()]),
    ("result in a system message", [u(), m(use()), u(), s(res(), text())], [u(), m(use()), u(res(), text("hi")), s(text())]),
    ("call in the user's message", [u(use(input={"p": 1}))], [u(text("[tool call that is not the assistant's: read {\"p\":1}]"))]),
    ("thinking in the user's message", [u(THINKING, text())], [u(text())]),
    # Messages and blocks that say nothing, or are none.
    ("blank user", [said("user", " ")], [u(text(BLANK))]),
    ("no blocks", [said("user", [])], [u(text(BLANK))]),
    ("blank blocks", [u(text(" "), text())], [u(text())]),
    ("blank user beside another", [said("user", ""), u()], [u()]),
    ("blank assistant", [u(), said("assistant", ""), u()], [u(), m(text(BLANK)), u()]),
    ("blank assistant beside another", [u(), said("assistant", " "), m(), u()], [u(), m(), u()]),
    ("blank words beside a call", [u(), m(text(""), use()), u(res())], [u(), m(use()), u(res())]),
    ("empty end", [u(), said("assistant", "")], [u(), said("assistant", "")]),
    ("null message", [u(), None, m(), u()], [u(), m(), u()]),
    ("only a null", [None], [u(text(BLANK))]),
    ("a string as message", [u(), "words"], [u(), u(text("words"))]),
    ("content that is one block", [said("user", text())], [u(text())]),
    ("content that is a number", [said("user", 3)], [u(text("3"))]),
    ("content that is null", [u(), said("assistant", None), u()], [u(), m(text(BLANK)), u()]),
    ("blocks that are strings", [u("words", None, {"text": "t"}, {})], [u(text("words"), text("t"))]),
    ("unknown role", [said("tool", "x")], [said("user", "x")]),
    ("empty compaction", [u(), m({"type": "compaction", "content": ""}, text()), u()], [u(), m(text()), u()]),
    # Where things stand.
    ("assistant first", [m(), u()], [u(text(EARLIER)), m(), u()]),
    ("cut behind a call", [u(res()), m(), u()], [u(orphan("a")), m(), u()]),
    ("system first", [s(), u(), m(), u()], [u(), s(), m(), u()]),
    ("only a system message", [s()], [u(text(EARLIER)), s()]),
    ("effort first, then the assistant", [EFFORT, m(), u()], [u(text(EARLIER)), EFFORT, m(), u()]),
    ("system between call and result", [u(), m(use()), s(), u(res())], [u(), m(use()), u(res()), s()]),
    ("system before the user", [u(), m(), s(), u(), EFFORT, m(), u()], [u(), m(), u(), s(), EFFORT, m(), u()]),
    ("system after words", [u(), m(), s(), m(), u()], [u(), m(), u(text(CONTINUE)), s(), m(), u()]),
    ("cleared and no text", [u(), s(IMAGE, clear_at="x")], [u(), s(IMAGE)]),
    # Thinking stays whole and in its place, or goes.
    ("thinking last", [u(), m(THINKING), u()], [u(), m(text(BLANK)), u()]),
    ("thinking last after words", [u(), m(THINKING, text(), THINKING), u()], [u(), m(text()), u()]),
    ("thinking not first", [u(), m(text(), THINKING, use()), u(res())], [u(), m(text(), use()), u(res())]),
    ("thinking not whole", [u(), m({"type": "thinking", "thinking": "x"}, text()), m(THINKING, text()), u()], [u(), m(text()), m(text()), u()]),
    ("thinking before a blank", [u(), m(THINKING, text("")), u()], [u(), m(text(BLANK)), u()]),
    ("thinking of a mended turn stays", [u(), m(THINKING, use("a b")), u(res("a b"))], [u(), m(THINKING, use("a_b")), u(res("a_b"))]),
    # Tools that the provider runs.
    ("server-side result without call", [u(), m(FOUND, text()), u()], [u(), m(text()), u()]),
    ("server-side call without result", [u(), m(text(), SEARCH), u()], [u(), m(text()), u()]),
    ("server-side call alone", [u(), m(SEARCH), u(), m(FOUND), u()], [u(), m(text(BLANK)), u(), m(text(BLANK)), u()]),
    (
        "server-side call that a client's call was made from",
        [u(), m(SEARCH, use(caller={"type": "code", "tool_id": "s"})), u(res(), text())],
        [u(), m(use()), u(res(), text())],
    ),
    (
        "server-side call whose result never came",
        [u(), m(SEARCH, use()), u(res()), m(THINKING, text()), u()],
        [u(), m(SEARCH, use()), u(res()), m(THINKING, LOST, text()), u()],
    ),
    ("server-side call pending beside a stray result", [u(), m(SEARCH), u(res("z"))], [u(), m(text(BLANK)), u(orphan("z"))]),
    ("server-side call pending before a system message", [u(), m(SEARCH), s()], [u(), m(text(BLANK)), u(text(CONTINUE)), s()]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "messages", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_a_history(name: str, messages: Messages, expected: Messages) -> None:
    before = copy.deepcopy(messages)
    mended = Mended(messages)
    assert mended.rows == expected
    assert messages == before
    assert bool(mended.repairs) == (messages != expected)
    assert problems_in(CODEC, mended.rows, None) == []


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("mcp_tool_use", "mcp", "mcp_tool_result"),
        ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result"),
        ("server_tool_use", "tool_search_tool_regex", "tool_search_tool_result"),
    ],
)
def test_stand_ins_for_server_side_results(name: str, code: str, kind: str) -> None:
    call = {"type": name, "id": "s", "name": code, "input": {}}
    rows = Mended([u(), m(call, use()), u(res()), m(), u()]).rows
    stand_in = rows[3]["content"][0]
    assert (stand_in["type"], stand_in["tool_use_id"]) == (kind, "s")
    assert rows[3]["content"][1] == text("ok")


DONE: list[tuple[str, Messages, tuple[str, str, str]]] = [
    ("stand-in", [u(), m(use()), u()], ("A1", "messages[1]", "put a stand-in result for call 'a'")),
    ("rename", [u(), m(use(), use())], ("A3", "messages[1].content[1]", "renamed the id to a_2")),
    ("thinking", [u(), m(THINKING), u()], ("A11", "messages[1]", "dropped the turn's thinking")),
    ("moved", [u(), m(use()), u(text(), res())], ("A1", "messages[2].content[1]", "moved the result right behind its call")),
    ("opening", [m(), u()], ("A7", "messages[0]", "put a user message in front of it")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "messages", "expected"), DONE, ids=[row[0] for row in DONE])
def test_what_was_done_is_told(
    name: str, messages: Messages, expected: tuple[str, str, str]
) -> None:
    assert Repair(*expected) in Mended(messages).repairs


def test_untouched_blocks_and_messages_are_the_same_objects() -> None:
    messages = [u(), m(THINKING, text(), use("a b")), u(res("a b"), text("y")), m(use("c")), u(res("c"))]
    rows = Mended(messages).rows
    assert rows[0] is messages[0]
    assert [new is old for new, old in zip(rows[1]["content"], messages[1]["content"], strict=True)] == [True, True, False]  # fmt: skip
    assert rows[2]["content"][1] is messages[2]["content"][1]
    assert rows[3] is messages[3]
    assert rows[4] is messages[4]


def marked(*marks: Any) -> dict[str, Any]:
    return u(*(text(cache_control=mark) if mark else text() for mark in marks))


# The name, the history, the fields beside it, the history after.
ENDS: list[tuple[str, Messages, dict[str, Any], Messages]] = [
    ("words at the end", [u(), m()], {"model": NEW}, [u(), m(), u(text(CONTINUE))]),
    ("words at the end of an older model", [u(), m()], {"model": OLD}, [u(), m()]),
    ("white space at the end", [u(), m(text("x \n"))], {"model": OLD}, [u(), m(text("x"))]),
    ("white space at the end of a string", [u(), said("assistant", "x ")], {"model": OLD}, [u(), said("assistant", "x")]),
    ("nothing at the end", [u(), said("assistant", "")], {"model": NEW}, [u(), m(text(BLANK)), u(text(CONTINUE))]),
    ("a pending call", [u(), m(use())], {"model": NEW}, [u(), m(use())]),
    ("a paused turn", [u(), m(SEARCH)], {"model": NEW}, [u(), m(SEARCH)]),
    ("a paused turn with words", [u(), m(SEARCH, text())], {"model": NEW}, [u(), m(SEARCH, text())]),
    ("thinking at the end", [u(), m(THINKING, text())], {"model": OLD, "thinking": {"type": "disabled"}}, [u(), m(text())]),
    ("thinking with a call at the end", [u(), m(THINKING, use())], {"model": OLD, "thinking": {"type": "disabled"}}, [u(), m(use())]),
    ("thinking at the end of a newer model", [u(), m(THINKING, text())], {"model": NEW, "thinking": {"type": "disabled"}}, [u(), m(text()), u(text(CONTINUE))]),
    ("thinking and white space", [u(), m(THINKING, text("x "))], {"model": OLD, "thinking": {"type": "disabled"}}, [u(), m(text("x"))]),
    ("five marks", [marked(MARK, MARK), marked(MARK, MARK, MARK)], {}, [marked(None, MARK), marked(MARK, MARK, MARK)]),
    ("five marks with the head's", [marked(MARK, MARK, MARK)], {"system": [text(cache_control=MARK)] * 2}, [marked(None, MARK, MARK)]),
    ("five marks with the automatic one", [marked(MARK, MARK, MARK, MARK)], {"cache_control": MARK}, [marked(None, MARK, MARK, MARK)]),
    ("a mark inside a result", [u(), m(use()), u(res(content=[text(cache_control=MARK)])), marked(MARK, MARK, MARK, MARK)], {}, [u(), m(use()), u(res(content=[text()])), marked(MARK, MARK, MARK, MARK)]),
    ("an hour behind five minutes", [marked(MARK, HOUR)], {}, [marked(MARK, MARK)]),
    ("an hour behind five minutes of the head", [marked(HOUR)], {"system": [text(cache_control=MARK)]}, [marked(MARK)]),
    ("an hour behind a mark that goes", [marked(MARK, HOUR, HOUR, HOUR, HOUR)], {}, [marked(None, HOUR, HOUR, HOUR, HOUR)]),
    ("an hour, then five minutes", [marked(HOUR, MARK)], {}, [marked(HOUR, MARK)]),
    ("what only looks like marks", [u(), m(*(use(str(n), input={"cache_control": MARK}) for n in range(6)))], {}, [u(), m(*(use(str(n), input={"cache_control": MARK}) for n in range(6)))]),
    ("a mark on what is to be cleared", [u(), s(text(cache_control=MARK), clear_at="x")], {}, [u(), s(text(), clear_at="x")]),
    ("a head with too many marks", [marked(MARK)], {"system": [text(cache_control=MARK)] * 5}, [marked(MARK)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "messages", "fields", "expected"), ENDS, ids=[row[0] for row in ENDS]
)
def test_an_end(
    name: str, messages: Messages, fields: dict[str, Any], expected: Messages
) -> None:
    before = copy.deepcopy(messages)
    mended = Mended(messages, fields)
    assert mended.rows == expected
    assert messages == before
    assert bool(mended.repairs) == (messages != expected)
    if messages == expected:
        assert all(new is old for new, old in zip(mended.rows, messages, strict=True))


def repairable(messages: Messages, fields: Fields) -> list[Any]:
    """Errors that repair is there for: what is in the history, not in the fields beside it."""
    beside = ("tools[", "system[")
    return [
        p
        for p in problems_in(CODEC, messages, fields)
        if p.severity == "error"
        and p.code in REPAIRED | {"A21"}
        and p.place != "messages"
        and not p.place.startswith(beside)
        and "not among the tools" not in p.message
    ]


def same(rows: Messages, messages: Messages) -> bool:
    return len(rows) == len(messages) and all(a is b for a, b in zip(rows, messages, strict=True))


@given(requests("anthropic"))
def test_what_the_provider_accepts_is_not_touched(request: dict[str, Any]) -> None:
    assert same(Mended(request["messages"], request).rows, request["messages"])
    assert same(Mended(request["messages"]).rows, request["messages"])


@given(pending("anthropic"))
def test_pending_calls_stay(messages: Messages) -> None:
    assert same(Mended(messages).rows, messages)


@given(broken("anthropic"), st.booleans())
def test_damage_is_mended_once_and_the_same_way(request: dict[str, Any], bare: bool) -> None:
    messages, fields = request["messages"], None if bare else request
    before = copy.deepcopy(messages)
    mended = Mended(messages, fields)
    assert messages == before
    assert repairable(mended.rows, fields) == []
    assert same(Mended(mended.rows, fields).rows, mended.rows)
    assert Mended(copy.deepcopy(messages), fields).rows == mended.rows
    sound = not repairable(messages, fields)
    assert same(mended.rows, messages) == sound
    assert bool(mended.repairs) != sound


@given(broken("anthropic"))
def test_what_follows_never_changes_what_was_mended(request: dict[str, Any]) -> None:
    messages = request["messages"]
    steps = Mended(messages, ending=False).steps
    for count, step in enumerate(steps_of(CODEC, messages)):
        assert Mended(messages[: step.at], ending=False).steps == steps[:count]


@given(arbitrary_json_messages() | st.lists(arbitrary_json(20), max_size=3), arbitrary_json(10))
def test_any_json_is_mended(messages: Messages, beside: Any) -> None:
    fields = beside if isinstance(beside, dict) else None
    assert repairable(Mended(messages, fields).rows, fields) == []


def long_histories() -> dict[str, Messages]:
    count = 10_000
    ids = [f"a{n}" for n in range(count)]
    turns = [x for _ in range(count) for x in (m(use()), u(res()))]
    return {
        "many calls, no results": [u(), m(*map(use, ids)), u()],
        "many calls of one id": [u(), m(*[use()] * count), u(*[res()] * count)],
        "one id in many turns": [u(), *turns],
        "taken names, then one id": [u(), *(x for n in range(2, 2000) for x in (m(use(f"a_{n}")), u(res(f"a_{n}")))), *turns[:4000]],
        "many stray results": [u(*map(res, ids))],
        "many server-side calls": [u(), m(*({**SEARCH, "id": id} for id in ids)), u()],
        "server-side calls that stay open": [u(), *(x for id in ids for x in (m({**SEARCH, "id": f"s{id}"}, use(id)), u(res(id)))), m(), u()],
        "many late results": [u(), m(*map(use, ids)), u(), *(u(res(id)) for id in ids)],
    }  # fmt: skip


@pytest.mark.parametrize("name", long_histories())
def test_long_histories_take_linear_time(name: str) -> None:
    messages = long_histories()[name]
    start = time.perf_counter()
    mended = Mended(messages)
    assert time.perf_counter() - start < 5  # a quadratic way takes minutes
    assert mended.repairs
    assert repairable(mended.rows, None) == []
