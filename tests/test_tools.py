"""The registry of tools: what is declared, what wins, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from respool.errors import PolicyError
from respool.tools import UNLIMITED, Tool, Tools

DEFAULT = 32_000
DECLARED = Tools(
    [
        Tool("small", cap_chars=100),
        Tool("large", cap_chars=64_000),
        Tool("nothing", cap_chars=0),
        Tool("whole", cap_chars=UNLIMITED),
        Tool("again", rerun=True),
        Tool("mcp__github__search", cap_chars=5),
    ]
)

tool = st.builds(
    Tool,
    st.sampled_from("abcdef"),
    cap=st.just(UNSET) | st.none() | st.integers(0, 10**9),
    rerun=st.booleans(),
)
some_tools = st.lists(tool, unique_by=lambda one: one.name)


@pytest.mark.parametrize(
    ("name", "cap_chars"),
    [
        ("small", 100),
        ("large", 64_000),
        ("nothing", 0),
        ("whole", None),
        ("again", DEFAULT),  # declared, but without a cap of its own
        ("unknown", DEFAULT),
        ("Small", DEFAULT),  # case counts
        ("search", DEFAULT),  # an ending is not a name
        ("mcp__github__search", 5),
        ("mcp__gitlab__search", DEFAULT),
        ("", DEFAULT),
    ],
)
def test_a_tools_own_cap_wins(name: str, cap: int | None):
    assert DECLARED.cap_for(name, DEFAULT) == cap


def test_an_undeclared_tool_gets_the_defaults():
    assert DECLARED.get("unknown") == Tool("unknown")
    assert Tool("unknown").cap_chars is UNSET
    assert not DECLARED.get("").rerun
    assert Tools().cap_for("unknown", None) is None


def test_a_declared_tool_is_found():
    assert DECLARED.get("again").rerun
    assert "again" in DECLARED
    assert "unknown" not in DECLARED
    assert len(DECLARED) == 6


def test_declaring_makes_a_new_registry_and_the_later_declaration_wins():
    tools = Tools([Tool("a", cap_chars=1, rerun=True), Tool("b", cap_chars=2)])
    revised = tools.declare(Tool("a", cap_chars=3), Tool("c"))
    assert list(revised) == [Tool("a", cap_chars=3), Tool("b", cap_chars=2), Tool("c")]
    assert tools.get("a") == Tool("a", cap_chars=1, rerun=True)


@given(some_tools, st.randoms())
def test_order_does_not_matter(tools: list[Tool], random: Any):
    shuffled = random.sample(tools, len(tools))
    assert Tools(shuffled) == Tools(tools)
    assert hash(Tools(shuffled)) == hash(Tools(tools))
    assert list(Tools(shuffled)) == sorted(tools, key=lambda one: one.name)
    assert pickle.loads(pickle.dumps(Tools(tools))) == Tools(tools)


@given(some_tools, some_tools)
def test_equal_means_the_same_content(one: list[Tool], other: list[Tool]):
    assert (Tools(one) == Tools(other)) == (set(one) == set(other))


@given(some_tools, tool)
def test_what_was_declared_last_is_what_is_found(tools: list[Tool], new: Tool):
    declared = Tools(tools).declare(new)
    assert declared.get(new.name) == new
    assert {one for one in declared if one.name != new.name} == {
        one for one in tools if one.name != new.name
    }


def test_both_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Tool("a").cap_chars = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        Tools()._declared = ()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cap_chars": -1}, "tool 'Bash': cap: -1 is not allowed; allowed: a whole number from 0"),
        ({"cap_chars": True}, "cap: True"),
        ({"cap_chars": 1.0}, "cap: 1.0"),
        ({"cap_chars": "unlimited"}, "cap: 'unlimited'"),
        ({"cap_chars": 10**9 + 1}, "1,000,000,000"),
        ({"rerun": 1}, "rerun: 1 is not allowed; allowed: true or false"),
        ({"caps": 3}, "unknown key 'caps' (value 3); did you mean cap? allowed: name, cap, rerun"),
    ],
)
def test_a_tool_refuses_what_is_not_allowed(given: dict[str, Any], said: str):
    with pytest.raises(PolicyError) as error:
        Tool("Bash", **given)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([Tool("a"), Tool("a", cap_chars=1)], "tool 'a' is declared twice"),
        ([Tool("")], "name: ''"),
        ([Tool(" \n")], "name: ' \\n'"),
        ([("a", 1)], "('a', 1) is not allowed; allowed: a list of Tool"),
        ("Bash", "'Bash' is not allowed"),
        (3, "3 is not allowed"),
        (None, "None is not allowed"),
    ],
)
def test_the_registry_refuses_what_is_no_tool(tools: Any, said: str):
    with pytest.raises(PolicyError) as error:
        Tools(tools)
    assert said in str(error.value)


@pytest.mark.parametrize("name", [3, None, b"Bash"])
def test_a_name_is_text(name: Any):
    with pytest.raises(PolicyError, match=r"name: .* is not allowed"):
        Tool(name)
