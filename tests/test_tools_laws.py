"""Laws of the registry: it never raises, is deterministic, and misses no write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.tools import Tools
from respool.tools.catalog import names
from respool.tools.commands import PROGRAMS
from respool.tools.identity import arguments_of, canonical
from respool.tools.paths import content_of, folder_before, may_reach, normal
from tests.test_tools_shell import READS, SEARCHES, use

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
tool_name = st.sampled_from(sorted(names())) | st.text(max_size=10)
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
    assert canonical(arguments_of(one)) == canonical(arguments_of(other))


@given(arguments, arguments)
def test_other_arguments_have_another_key(one: dict[str, Any], other: dict[str, Any]):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical(one) == canonical(other)) == same


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
    once = normal(path)
    assert normal(once) == once
    joined = normal(path, base)
    assert normal(joined) == joined
    assert "//" not in joined
    assert content_of(path)
    assert folder_before(path)


@given(tidy, tidy)
def test_a_write_reaches_the_same_file_and_its_folder(path: str, other: str):
    whole, below = normal(path), normal(other, path)
    assert may_reach(whole, whole)
    if below.startswith(f"{whole.rstrip('/')}/"):
        assert may_reach(whole, below)
        assert may_reach(below, whole)


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
    assert normal(path, base) == expected


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
    assert may_reach(written, read) is expected
