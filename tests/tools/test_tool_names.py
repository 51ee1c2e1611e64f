"""Tool names occur in the registry only: no other module compares with one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.tools.catalog import tool_names

SOURCE = Path(__file__).parents[2] / "src" / "respool"

# Names that are also plain words of some wire or record: they say nothing of a tool.
WORDS = frozenset(
    {
        "create", "edit", "fetch", "find", "finish", "glob", "list", "memory", "open", "patch",
        "question", "read", "replace", "search", "shell", "skill", "task", "think", "view", "write",
        "agent", "batch", "browser", "computer", "delegate", "insert", "python", "submit",
        "terminal",
    }
)  # fmt: skip
SERVER_TOOLS = {
    "bash_code_execution", "code_execution", "text_editor_code_execution", "web_fetch",
    "web_search",
}  # fmt: skip
# What a format itself calls the items of its wire, and what a reader must spell to build messages.
SPELLED = {
    "providers/openai_responses/codec.py": {"local_shell", "apply_patch"},
    # the provider runs these itself, and its rules name them
    "providers/anthropic/request_rules.py": SERVER_TOOLS,
    "providers/anthropic/check.py": SERVER_TOOLS,
    # the shape of a result in Claude Code's hooks depends on its tool
    "hooks/events.py": {"Bash", "Grep", "Read", "WebFetch"},
}


def compared(tree: ast.AST) -> Iterator[str]:
    """The strings that something is compared with, or looked up by."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                yield from _strings([left, *others])
            case ast.MatchValue(value=value):
                yield from _strings([value])
            case ast.Subscript(slice=key):
                yield from _strings([key])
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "get"), args=given):
                yield from _strings(given)
            case ast.Dict(keys=keys):
                yield from _strings([key for key in keys if key is not None])
            case _:
                pass


def _strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if "tools" not in path.relative_to(SOURCE).parts
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_other_module_matches_on_the_name_of_a_tool(path: Path):
    spelled = SPELLED.get(path.relative_to(SOURCE).as_posix(), set())
    found = set(compared(ast.parse(path.read_text("utf-8")))) & tool_names()
    assert found - WORDS - spelled == set()


@pytest.mark.parametrize(
    "code",
    [
        "if name == 'Bash': pass",
        "x = name in ('Bash', 'Edit')",
        "match name:\n    case 'Bash': pass",
        "KINDS = {'Bash': 'run'}",
        "x = table['Bash']",
        "x = table.get('Bash')",
    ],
)
def test_a_violation_is_seen(code: str):
    assert "Bash" in set(compared(ast.parse(code))) & tool_names()
