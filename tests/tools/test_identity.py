"""Identity of a call: operation, target and key, their defaults and fallbacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respool.errors import PolicyError
from respool.tools import CallIdentity, Tool, Tools, Use


def identity(tool: Tool | None, arguments: Any) -> CallIdentity:
    """The identity of a call of a tool that is declared like this."""
    tools = Tools([tool] if tool else [])
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return tools.identity("office", text)


def used(tool: Tool, arguments: Any) -> Use:
    return Tools([tool]).use_of("office", json.dumps(arguments))


def first_word(arguments: Any) -> str | None:
    """A target that is composed: the action, and how its command begins."""
    command = arguments.get("command")
    return f"{arguments['action']}:{command.split()[0]}" if command else None


def failing(arguments: Any) -> str | None:
    raise KeyError("no such thing")


def test_a_tool_that_declares_nothing_has_one_operation_no_target_and_its_arguments():
    assert identity(None, {"b": 1, "a": 2}) == CallIdentity("default", None, '{"a":2,"b":1}')
    assert identity(Tool("office", cap_chars=3), {"a": 2}) == CallIdentity(
        "default", None, '{"a":2}'
    )


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        ({"action": "pdf_fields"}, "pdf_fields"),
        ({"action": " spaced "}, " spaced "),  # taken as it is
        ({}, "default"),
        ({"action": 3}, "default"),
        ({"action": None}, "default"),
        ({"action": ["a"]}, "default"),
        ([1], "default"),
        ("no JSON", "default"),
    ],
)
def test_the_operation_is_what_the_declared_argument_says(arguments: Any, operation: str):
    assert identity(Tool("office", operation="action"), arguments).operation == operation


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ({"path": "a.docx"}, "a.docx"),
        ({"path": "  a.docx\n"}, "a.docx"),
        ({"path": "   "}, None),
        ({"path": ""}, None),
        ({"path": 3}, None),
        ({"path": None}, None),
        ({}, None),
        ({"path": "HTTPS://X.io:443/a#b"}, "https://x.io/a"),
    ],
)
def test_the_target_is_trimmed_and_an_empty_one_is_none(arguments: Any, target: str | None):
    found = identity(Tool("office", target="path"), arguments)
    assert found.target == target
    assert found.counter == (found.key if target is None else target)


def test_a_function_finds_a_target_that_is_composed():
    tool = Tool("office", target=first_word)
    assert identity(tool, {"action": "run", "command": "git status"}).target == "run:git"
    assert identity(tool, {"action": "run"}).target is None


def test_calls_with_the_same_arguments_repeat_one_another():
    tool = Tool("office", target="path")
    one = identity(tool, '{"path": "a", "page": 1}').key
    assert one == identity(tool, '{ "page":1,\n "path":"a" }').key
    assert one != identity(tool, '{"path": "a", "page": 2}').key  # reading on is no repeat


def test_the_key_shaped_like_the_target_is_there_by_declaration():
    tool = Tool("office", target="path", key="target")
    assert identity(tool, {"path": " a ", "page": 1}).key == "target=office:a"
    assert identity(tool, {"path": " ", "page": 1}).key == '{"page":1,"path":" "}'
    plain = Tool("office", target="path", key="arguments")
    assert identity(plain, {"path": "a"}).key == '{"path":"a"}'


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"status": "done", "path": "a"}, "status=done"),
        ({"path": "a"}, "target=office:a"),  # the function says nothing: the target
        ({"page": 1}, '{"page":1}'),  # no target either: the arguments
    ],
)
def test_a_declared_key_falls_back_to_the_target_then_to_the_arguments(arguments: Any, key: str):
    def by_status(given: Any) -> str | None:
        return f"status={given['status']}" if "status" in given else None

    assert identity(Tool("office", target="path", key=by_status), arguments).key == key


def test_a_function_that_fails_is_contained_and_told():
    found = used(Tool("office", target=failing), {"path": "a"})
    assert found.target is None
    assert found.problem == "office: target: KeyError: 'no such thing'"
    found = used(Tool("office", target="path", key=failing), {"path": "a"})
    assert (found.target, found.key) == ("a", "target=office:a")
    assert found.problem == "office: key: KeyError: 'no such thing'"
    assert used(Tool("office"), {}).problem is None


@pytest.mark.parametrize("returned", [3, b"x", ["x"], None])
def test_a_function_that_returns_no_text_says_nothing(returned: Any):
    tool = Tool("office", target=lambda _: returned, key=lambda _: returned)
    assert identity(tool, {"a": 1}) == CallIdentity("default", None, '{"a":1}')


def test_one_declaration_serves_every_operation():
    tool = Tool("office", operation="action", target="path")
    one = identity(tool, {"action": "read", "path": "a"})
    other = identity(tool, {"action": "write", "path": "a"})
    assert one.target == other.target
    assert one.operation != other.operation
    assert one.key != other.key


def test_paths_are_brought_to_one_spelling():
    tool = Tool("office", kind="read", reads="path", target="path", workdir="cwd")
    assert identity(tool, {"path": "./a//b"}).target == "a/b"
    assert identity(tool, {"path": "./a", "cwd": "/w/"}).target == "/w/a"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"path": "a/b.py"}, {"path": " ./a//b.py"}, True),
        ({"path": "HTTPS://X.io:443/a"}, {"path": "https://x.io/a#top"}, True),
        ({"path": "a.py", "limit": 5}, {"path": "./a.py", "limit": 5}, True),
        ({"path": "a.py", "limit": 5}, {"path": "./a.py", "limit": 6}, False),
        ({"path": "a.py"}, {"path": "b.py"}, False),
        ({"path": ["./a.py"]}, {"path": ["a.py"]}, False),  # of several, what stands there counts
        ({"note": "./a"}, {"note": "a"}, False),  # not declared to name a file
    ],
)
def test_a_file_in_another_spelling_makes_no_other_call(one: Any, other: Any, same: bool):
    tool = Tool("office", kind="read", reads="path")
    assert (identity(tool, one).key == identity(tool, other).key) is same
    exact = Tool("office", kind="read", reads="path", key="arguments")
    assert (identity(exact, one).key == identity(exact, other).key) is (one == other)


@pytest.mark.parametrize("tool", ["Bash", "sh"])
def test_a_shell_call_is_its_command_in_its_folder_whatever_is_said_beside_it(tool: str):
    tools = Tools([Tool("sh", command="command", workdir="cwd")])

    def key(**arguments: Any) -> str:
        return tools.identity(tool, json.dumps(arguments)).key

    one = key(command="make", description="Build it", timeout=3)
    assert one == key(command="make", description="Build it again") == key(command="make")
    assert one != key(command="make all", description="Build it", timeout=3)
    assert key(description="Build it") != key(description="Build it again")
    assert (one == key(command="make", cwd="/w")) == (tool == "Bash")  # which knows no folder


def test_a_shell_that_declares_its_arguments_as_its_key_is_told_by_all_of_them():
    tool = Tool("office", command="command", key="arguments")
    assert identity(tool, {"command": "make", "x": 1}) != identity(tool, {"command": "make"})


def test_long_arguments_have_a_short_key():
    found = identity(None, {"text": "x" * 10_000})
    assert len(found.key) < 100
    assert found.key == identity(None, json.dumps({"text": "x" * 10_000}, indent=9)).key
    assert found.key != identity(None, {"text": "x" * 10_001}).key


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": 3}, "the name of an argument; in code also a function"),
        ({"target": ""}, "the name of an argument"),
        ({"key": "path"}, "arguments or target; in code also a function"),
        ({"operation": 3}, "operation: 3 is not allowed; allowed: the name of an argument"),
        ({"reads": 3}, "reads: 3 is not allowed"),
        ({"writes": ["a", ""]}, "writes: ['a', ''] is not allowed"),
        ({"kind": "reads"}, "kind: 'reads' is not allowed; allowed: one of read, write, run"),
        ({"content": "text"}, "content: 'text' is not allowed; allowed: one of code, listing"),
        ({"lines": " "}, "one argument that holds a pair"),
        ({"page": 0}, "page: 0 is not allowed"),
        ({"replaces": 1}, "replaces: 1 is not allowed"),
        ({"barrier": "yes"}, "barrier: 'yes' is not allowed"),
        ({"read": "path"}, "did you mean reads?"),
    ],
)
def test_a_declaration_refuses_what_is_not_allowed(given: dict[str, Any], said: str):
    with pytest.raises(PolicyError) as error:
        Tool("office", **given)
    assert said in str(error.value)


def test_a_declaration_reads_like_what_was_written():
    tool = Tool("view", kind="read", reads=["path"], lines="view_range", target=first_word)
    assert repr(Tool("view", kind="read", reads="path")) == (
        "Tool(name='view', kind='read', reads=('path',))"
    )
    assert tool.plain()[:2] == [["name", "view"], ["kind", "read"]]
    assert tool.plain()[2][0] == "target"
    assert str(tool.plain()[2][1]).endswith(":first_word")
    assert json.dumps(tool.plain())
