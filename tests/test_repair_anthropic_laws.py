"""What holds of Anthropic's repairs whatever the history."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.check.rules import steps_of
from tests.anthropic_mended import CODEC, Mended, Messages, repairable, same
from tests.anthropic_messages import SEARCH, m, res, text, u, use
from tests.strategies import arbitrary_json, arbitrary_json_messages, broken, pending, requests


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


ids = st.sampled_from(["s", "t"])
names = st.sampled_from(["web_fetch", "web_search", "tool_search_tool_bm25", "future", None])
kinds = st.sampled_from(["web_fetch", "web_search", "tool_search", "mcp", "future"])
marks = st.sampled_from([None, {"type": "ephemeral"}])
served = st.one_of(
    st.builds(lambda id, name: {**SEARCH, "id": id, "name": name}, ids, names),
    st.builds(lambda id: {**SEARCH, "id": id, "type": "mcp_tool_use"}, ids),
    st.builds(lambda id, kind: {"type": f"{kind}_tool_result", "tool_use_id": id}, ids, kinds),
    st.builds(lambda null: {"type": "compaction", "content": "x", "signature": null}, marks),
)
inner = st.builds(
    lambda said, mark: text(said, cache_control=mark), st.sampled_from(["x", ""]), marks
)
turns = st.builds(
    lambda n, blocks, said, content: (m(*blocks, use(n)), u(res(n, content), *said)),
    st.uuids().map(str),
    st.lists(served, max_size=4),
    st.sampled_from([[], [text()]]),
    st.lists(inner, max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(turns, min_size=1, max_size=4), st.lists(served, max_size=3))
def test_tools_of_the_provider_are_mended(pairs: list[Any], last: list[Any]) -> None:
    messages = [u(), *(message for pair in pairs for message in pair), m(*last, text())]
    mended = Mended(messages)
    assert repairable(mended.rows, None) == []
    assert same(Mended(mended.rows).rows, mended.rows)
    sound = not repairable(messages, None)
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


def long_histories(count: int) -> dict[str, Messages]:
    ids = [f"a{n}" for n in range(count)]
    turns = [x for _ in range(count) for x in (m(use()), u(res()))]
    return {
        "many calls, no results": [u(), m(*map(use, ids)), u()],
        "many calls of one id": [u(), m(*[use()] * count), u(*[res()] * count)],
        "one id in many turns": [u(), *turns],
        "taken names, then one id": [
            u(),
            *(x for n in range(2, 2000) for x in (m(use(f"a_{n}")), u(res(f"a_{n}")))),
            *turns[:4000],
        ],
        "many stray results": [u(*map(res, ids))],
        "many server-side calls": [u(), m(*({**SEARCH, "id": id} for id in ids)), u()],
        "server-side calls that stay open": [
            u(),
            *(x for id in ids for x in (m({**SEARCH, "id": f"s{id}"}, use(id)), u(res(id)))),
            m(),
            u(),
        ],
        "many late results": [u(), m(*map(use, ids)), u(), *(u(res(id)) for id in ids)],
    }


@pytest.mark.parametrize("name", long_histories(1))
def test_long_histories_take_linear_time(name: str) -> None:
    messages = long_histories(10_000)[name]
    start = time.process_time()
    mended = Mended(messages)
    assert time.process_time() - start < 5  # a quadratic way takes minutes
    assert mended.repairs
    assert repairable(mended.rows, None) == []
