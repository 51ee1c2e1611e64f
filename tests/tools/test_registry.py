"""Registry of tools: declarations, precedence, refusals, and its laws."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from respool.errors import PolicyError
from respool.tools import UNLIMITED, Tool, Tools
from respool.tools.catalog import tool_names
from respool.tools.identity import canonical_text, parse_arguments
from respool.tools.paths import can_reach, content_by_suffix, glob_root, normalize
from respool.tools.shell.programs import PROGRAMS
from tests.tools.shell.test_effects import READS, SEARCHES, use

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
    cap_chars=st.just(UNSET) | st.none() | st.integers(0, 10**9),
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
def test_a_tools_own_cap_wins(name: str, cap_chars: int | None):
    assert DECLARED.cap_for(name, DEFAULT) == cap_chars


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
        (
            {"cap_chars": -1},
            "tool 'Bash': cap_chars: -1 is not allowed; allowed: a whole number from 0",
        ),
        ({"cap_chars": True}, "cap_chars: True"),
        ({"cap_chars": 1.0}, "cap_chars: 1.0"),
        ({"cap_chars": "unlimited"}, "cap_chars: 'unlimited'"),
        ({"cap_chars": 10**9 + 1}, "1,000,000,000"),
        ({"rerun": 1}, "rerun: 1 is not allowed; allowed: true or false"),
        (
            {"caps": 3},
            "unknown key 'caps' (value 3); did you mean cap_chars? allowed: name, cap_chars, rerun",
        ),
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


leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
json_value = st.recursive(
    leaf,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
ARGUMENTS = (
    "command cmd path file_path filePath offset limit view_range pattern input patchText type "
    "content workdir chars session_id start_line end_line paths commands"
)
argument = st.sampled_from(ARGUMENTS.split())
arguments = st.dictionaries(argument | st.text(max_size=5), json_value, max_size=5)
tool_name = st.sampled_from(sorted(tool_names())) | st.text(max_size=10)
SYNTAX = (
    "| || && ; & > >> < << <<< 2>&1 ( ) { } $( ` ' \" $x ${ * -n -i -e -- a.py 1,5p EOF if then fi "
    "for in do done while case esac function [[ ]] (( )) ! = x=1"
)
piece = st.sampled_from([*sorted(PROGRAMS), *SYNTAX.split(), "\n", ""])
shell_text = st.lists(piece, max_size=15).map(" ".join) | st.text(max_size=60)
tidy = st.lists(st.text("ab./~ *", min_size=1, max_size=6), min_size=1, max_size=5).map("/".join)


@given(tool_name, arguments.map(json.dumps) | st.text(max_size=60), json_value)
def test_any_arguments_are_told_of_and_always_the_same(name: str, text: str, definition: Any):
    one = Tools().use_of(name, text, definition)
    assert one == Tools().use_of(name, text, definition)
    assert one.key or not text.strip()
    assert one.known or one.barrier
    assert one.kind == "write" or not one.writes
    for span in (*one.reads, *one.writes):
        assert span.lines is None or 1 <= span.lines[0] <= span.lines[1]


@given(shell_text)
def test_any_shell_text_is_told_of(text: str):
    found = use(text)
    assert found == Tools().use_of("exec_command", json.dumps({"cmd": text}))
    assert found.known or found.barrier
    assert found.kind == "write" or not found.writes


@given(st.lists(shell_text, max_size=4))
def test_any_list_of_words_is_told_of(words: list[str]):
    found = use(words)
    assert found.known or found.barrier


@given(arguments, st.randoms())
def test_the_key_ignores_order_and_white_space(value: dict[str, Any], random: Any):
    pairs = list(value.items())
    random.shuffle(pairs)
    one, other = json.dumps(value), json.dumps(dict(pairs), indent=3)
    assert canonical_text(parse_arguments(one)) == canonical_text(parse_arguments(other))


@given(arguments, arguments)
def test_other_arguments_have_another_key(one: dict[str, Any], other: dict[str, Any]):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical_text(one) == canonical_text(other)) == same


@pytest.mark.parametrize("redirect", ["> out.txt", ">> out.txt", "2> out.txt", "&> out.txt"])
@pytest.mark.parametrize("command", [command for command, _ in (*READS, *SEARCHES)])
def test_a_redirection_added_to_a_reading_command_is_a_write(command: str, redirect: str):
    if "#" in command or "<<" in command:
        pytest.skip("the redirection would stand in a comment")
    found = use(f"{command} {redirect}")
    assert found.kind == "write"
    assert "out.txt" in [span.path for span in found.writes] or found.barrier


FRAMES = [
    "{} && rm x",
    "rm x; {}",
    "({}; rm x)",
    "if true; then rm x; fi; {}",
    "{} | tee x",
    "echo $(rm x); {}",
    "bash -c 'rm x'; {}",
    "{} | xargs rm",
    "{} || rm x",
    "while true; do rm x; done; {}",
    "time rm x; {}",
    "{}\nrm x",
    "{} & rm x",
    "! rm x; {}",
    "f() {{ rm x; }}; f; {}",
    "eval rm x; {}",
]


@pytest.mark.parametrize("frame", FRAMES)
@given(st.sampled_from([command for command, _ in (*READS, *SEARCHES) if "[" not in command]))
def test_a_write_beside_a_read_is_never_missed(frame: str, command: str):
    found = use(frame.format(command))
    assert found.can_write
    assert found.kind == "write" or found.barrier


@given(tidy, tidy)
def test_a_normal_path_stays_as_it_is(path: str, base: str):
    once = normalize(path)
    assert normalize(once) == once
    joined = normalize(path, base)
    assert normalize(joined) == joined
    assert "//" not in joined
    assert content_by_suffix(path)
    assert glob_root(path)


@given(tidy, tidy)
def test_a_write_reaches_the_same_file_and_its_folder(path: str, other: str):
    whole, below = normalize(path), normalize(other, path)
    assert can_reach(whole, whole)
    if below.startswith(f"{whole.rstrip('/')}/"):
        assert can_reach(whole, below)
        assert can_reach(below, whole)


@pytest.mark.parametrize(
    ("path", "base", "expected"),
    [
        ("./a//b/../c", None, "a/c"),
        ("a/", None, "a"),
        ("", None, "."),
        (".", "/w", "/w"),
        ("../a", "/w/src", "/w/a"),
        ("../a", None, "../a"),
        ("/a/../../b", None, "/b"),
        ("//a", None, "/a"),
        ("~/x/../y", "/w", "~/y"),
        ("A/b", "/W", "/W/A/b"),
        ("file:///w/a%20b", None, "/w/a b"),
        ("C:\\a\\b", "/w", "C:/a/b"),
        ("HTTP://X.io:80/A/b?c=1&a=2#d", "/w", "http://x.io/A/b?c=1&a=2"),
        ("https://me@X.io:8443", None, "https://me@x.io:8443/"),
    ],
)
def test_one_spelling_for_each_name(path: str, base: str | None, expected: str):
    assert normalize(path, base) == expected


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        ("/w/a.py", "/w/a.py", True),
        ("/w/a.py", "a.py", True),
        ("src/a.py", "/w/src/a.py", True),
        ("src/a.py", "/w/lib/a.py", False),
        ("/w/b.py", "a.py", False),
        ("/w/src", "/w/src/a.py", True),
        ("/w/src", "src/a.py", True),
        ("/w/src/a.py", "/w/src", True),
        ("/w/srcs", "/w/src", False),
        (".", "/w/a.py", True),
        ("../a", "/w/b", True),
        ("https://x.io/a", "https://x.io/a", True),
        ("/a", "https://x.io/a", False),
    ],
)
def test_what_a_write_may_reach(written: str, read: str, expected: bool):
    assert can_reach(written, read) is expected
