"""Catalog of known agents' tools, beside declarations and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respool.policy import Policy
from respool.providers.tool_definitions import tool_definitions
from respool.tools import TOOL_KEYS, Tool, Tools, Use
from respool.tools.catalog import find_tool, tables_by_agent, tool_names
from respool.tools.use import END_OF_FILE
from tests.tools.shell.test_effects import describe_use

TOOLS = Tools()
END = END_OF_FILE


def use(name: str, arguments: Any, definition: Any = None, *declared: Tool) -> Use:
    tools = Tools(declared) if declared else TOOLS
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return tools.use_of(name, text, definition)


CLAUDE_CODE = [
    ("Read", {"file_path": "/w/a.py"}, "read code /w/a.py:1-2000"),
    ("Read", {"file_path": "/w/a.py", "offset": 10, "limit": 5}, "read code /w/a.py:10-14"),
    ("Read", {"file_path": "/w/a.py", "offset": 10}, "read code /w/a.py:10-2009"),
    ("Read", {"file_path": "/w/a.py", "limit": 5}, "read code /w/a.py:1-5"),
    ("Read", {"file_path": "/w/a.py", "offset": "10", "limit": "5"}, "read code /w/a.py:10-14"),
    ("Read", {"file_path": "/w/./a.json"}, "read json /w/a.json:1-2000"),
    ("Write", {"file_path": "/w/a.py", "content": "x"}, "write edit =/w/a.py"),
    ("Edit", {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"}, "write edit +/w/a.py"),
    ("MultiEdit", {"file_path": "/w/a.py", "edits": []}, "write edit +/w/a.py"),
    ("NotebookEdit", {"notebook_path": "/w/a.ipynb", "new_source": ""}, "write edit +/w/a.ipynb"),
    ("Bash", {"command": "cat a.py", "description": "x"}, "read code a.py"),
    ("Grep", {"pattern": "x", "path": "src", "output_mode": "content"}, "search hits src~"),
    ("Grep", {"pattern": "x"}, "search listing .~"),
    ("Glob", {"pattern": "**/*.py", "path": "/w"}, "search listing /w~"),
    ("LS", {"path": "/w"}, "search listing /w~"),
    ("WebFetch", {"url": "https://X.io", "prompt": "?"}, "read page https://x.io/"),
    ("WebSearch", {"query": "x"}, "search hits"),
    ("TodoWrite", {"todos": []}, "other None"),
    ("TaskUpdate", {"taskId": "3", "status": "done"}, "other None"),
    ("Task", {"prompt": "x", "description": "d"}, "run page barrier"),
    ("BashOutput", {"bash_id": "3"}, "run log"),
    ("mcp__linear__get_issue", {"id": "3"}, "other None barrier unknown"),
    ("Read", {"file_path": "/w/a.pdf", "pages": "6-10"}, "read page /w/a.pdf~"),
    ("Monitor", {"command": "tail -f a.log", "description": "d"}, "read log a.log~"),
    ("Monitor", {"ws": "wss://x.io", "description": "d"}, "run log"),
    ("PowerShell", {"command": "Get-Content a.py"}, "run log barrier"),
    ("TaskStop", {"task_id": "b1"}, "run log"),
    ("TaskStop", {"shell_id": "b1"}, "run None"),
    ("Workflow", {"script": "x"}, "run page barrier"),
    ("CronCreate", {"cron": "7 * * * *", "prompt": "look"}, "other None"),
    ("ReportFindings", {"findings": []}, "other None"),
    ("Artifact", {"file_path": "/w/a.html"}, "run None"),
]
OTHERS = [
    # Codex
    ("exec_command", {"cmd": "cat a", "workdir": "/w"}, "read code /w/a"),
    ("shell", {"command": ["bash", "-lc", "cat a"], "workdir": "/w"}, "read code /w/a"),
    ("shell_command", {"command": "cat a", "workdir": "/w"}, "read code /w/a"),
    ("write_stdin", {"session_id": 3, "chars": ""}, "run log"),
    ("write_stdin", {"session_id": 3}, "run log"),
    ("write_stdin", {"session_id": 3, "chars": "rm a\n"}, "run log barrier"),
    ("update_plan", {"plan": []}, "other None"),
    ("spawn_agent", {"message": "x", "agent_type": "y"}, "run page barrier"),
    ("view_image", {"path": "a.png"}, "read None a.png"),
    ("list_dir", {"dir_path": "/w"}, "search listing /w~"),
    # pi
    ("read", {"path": "a.py", "offset": 5, "limit": 5}, "read code a.py:5-9"),
    ("write", {"path": "a.py", "content": ""}, "write edit =a.py"),
    ("edit", {"path": "a.py", "oldText": "x", "newText": "y"}, "write edit +a.py"),
    ("bash", {"command": "ls", "timeout": 3}, "search listing ."),
    ("grep", {"pattern": "x", "path": "src"}, "search hits src~"),
    ("ls", {}, "search listing .~"),
    # opencode
    ("read", {"filePath": "/w/a.py"}, "read code /w/a.py:1-2000"),
    ("write", {"filePath": "/w/a.py", "content": ""}, "write edit =/w/a.py"),
    ("edit", {"filePath": "/w/a.py", "oldString": "x", "newString": "y"}, "write edit +/w/a.py"),
    ("bash", {"command": "ls", "workdir": "/w"}, "search listing /w"),
    ("glob", {"pattern": "*", "path": "/w"}, "search listing /w~"),
    ("grep", {"pattern": "x", "include": "*.py", "path": "/w"}, "search hits /w~"),
    ("webfetch", {"url": "https://x.io/a", "format": "text"}, "read page https://x.io/a"),
    ("task", {"prompt": "x", "subagent_type": "y"}, "run page barrier"),
    # Gemini CLI, qwen-code
    ("read_file", {"file_path": "a.py", "start_line": 3, "end_line": 5}, "read code a.py:3-5"),
    ("read_file", {"file_path": "a.py", "offset": 2, "limit": 3}, "read code a.py:3-5"),
    ("read_file", {"file_path": "a.py"}, "read code a.py:1-2000"),
    ("read_file", {"absolute_path": "/w/a.py"}, "read code /w/a.py:1-2000"),
    ("write_file", {"file_path": "a.py", "content": ""}, "write edit =a.py"),
    ("replace", {"file_path": "a", "old_string": "x", "new_string": ""}, "write edit +a"),
    ("run_shell_command", {"command": "cat a", "dir_path": "/w"}, "read code /w/a"),
    ("run_shell_command", {"command": "cat a", "directory": "/w"}, "read code /w/a"),
    ("list_directory", {"dir_path": "src"}, "search listing src~"),
    ("grep_search", {"pattern": "x", "dir_path": "src"}, "search hits src~"),
    ("search_file_content", {"pattern": "x"}, "search hits .~"),
    ("edit", {"file_path": "a", "old_string": "x", "new_string": ""}, "write edit +a"),
    # Copilot CLI
    ("view", {"path": "a.py", "view_range": [3, 5]}, "read code a.py:3-5"),
    ("view", {"path": "a.py", "view_range": [3, -1]}, f"read code a.py:3-{END}"),
    ("view", {"path": "a.py"}, "read code a.py"),
    ("rg", {"pattern": "x", "paths": ["src", "lib"]}, "search hits src~ lib~"),
    ("glob", {"pattern": "*", "paths": "src"}, "search listing src~"),
    ("create", {"path": "a", "file_text": ""}, "write edit =a"),
    ("edit", {"path": "a", "old_str": "x", "new_str": "y"}, "write edit +a"),
    ("write_bash", {"sessionId": "3", "input": "y"}, "run None barrier"),
    (
        "write_bash",
        {"file_path": "a", "content": ""},
        "other None barrier unknown",
    ),  # not Copilot's
    # Copilot in VS Code
    ("read_file", {"filePath": "/w/a.ts", "startLine": 1, "endLine": 50}, "read code /w/a.ts:1-50"),
    (
        "read_file",
        {"path": "/src/foo.ts", "startLine": 1, "endLine": 50},
        "read code /src/foo.ts:1-50",
    ),
    ("read_file", {"filePath": "/w/a.ts", "offset": 11, "limit": 5}, "read code /w/a.ts:11-15"),
    ("read_file", {"filePath": "/w/a.ts"}, "read code /w/a.ts:1-2000"),
    ("create_file", {"filePath": "/w/a.ts", "content": "x"}, "write edit =/w/a.ts"),
    (
        "replace_string_in_file",
        {"filePath": "/w/a.ts", "oldString": "x", "newString": "y"},
        "write edit +/w/a.ts",
    ),
    ("insert_edit_into_file", {"filePath": "/w/a.ts", "code": "x"}, "write edit +/w/a.ts"),
    ("multi_replace_string_in_file", {"replacements": []}, "write edit barrier"),
    (
        "run_in_terminal",
        {"command": "sed -n 1,5p a.ts", "explanation": "x", "isBackground": False},
        "read code a.ts:1-5",
    ),
    ("get_terminal_output", {"id": "t1"}, "run log"),
    ("grep_search", {"query": "x", "isRegexp": False}, "search hits .~"),
    ("grep_search", {"query": "x", "includePattern": "src/**"}, "search hits src~"),
    ("semantic_search", {"query": "where is it"}, "search None"),
    ("file_search", {"query": "**/*.ts"}, "search listing"),
    ("list_dir", {"path": "/w/src"}, "search listing /w/src~"),
    ("list_code_usages", {"symbolName": "weave"}, "search hits .~"),
    ("get_errors", {"filePaths": ["/w/a.ts"]}, "run log"),
    ("get_changed_files", {}, "read diff"),
    ("fetch_webpage", {"urls": ["https://x.io/a"], "query": "x"}, "read page https://x.io/a"),
    ("runTests", {"files": ["/w/a.test.ts"]}, "run test"),
    ("run_task", {"id": "build"}, "run log barrier"),
    ("manage_todo_list", {"todoList": []}, "other None"),
    ("runSubagent", {"prompt": "x", "description": "d"}, "run page barrier"),
    # Cline
    ("read_file", {"path": "a.py"}, "read code a.py"),
    ("write_to_file", {"path": "a.py", "content": ""}, "write edit =a.py"),
    ("replace_in_file", {"path": "a.py", "diff": ""}, "write edit +a.py"),
    ("execute_command", {"command": "ls", "requires_approval": False}, "search listing ."),
    ("search_files", {"path": "src", "regex": "x"}, "search hits src~"),
    # SWE-agent
    ("open", {"path": "a.py", "line_number": 3}, "read code a.py"),
    ("create", {"filename": "a.py"}, "write edit =a.py"),
    ("edit", {"search": "x", "replace": "y"}, "write edit barrier"),
    ("edit", {"start_line": 1, "end_line": 2, "replacement_text": ""}, "write edit barrier"),
    ("insert", {"text": "x"}, "write edit barrier"),
    ("find_file", {"file_name": "a", "dir": "src"}, "search listing src~"),
    ("submit", {}, "other None"),
    # OpenHands
    ("execute_bash", {"command": "cat a"}, "read code a"),
    ("terminal", {"command": "cat a", "security_risk": "LOW"}, "read code a"),
    ("str_replace_editor", {"command": "view", "path": "/w/a"}, "read code /w/a"),
    (
        "str_replace_editor",
        {"command": "view", "path": "/w/a", "view_range": [1, 5]},
        "read code /w/a:1-5",
    ),
    ("str_replace_editor", {"command": "create", "path": "/w/a"}, "write edit =/w/a"),
    ("str_replace_editor", {"command": "insert", "path": "/w/a"}, "write edit +/w/a"),
    ("str_replace_editor", {"command": "dance", "path": "/w/a"}, "other None barrier unknown"),
    ("execute_ipython_cell", {"code": "x"}, "run log barrier"),
    ("think", {"thought": "x"}, "other None"),
    # the providers' own
    ("bash", {"restart": True}, "other None"),
    ("memory", {"command": "view", "path": "/memories"}, "read page /memories"),
    ("local_shell", {"command": ["cat", "a"], "working_directory": "/w"}, "read code /w/a"),
    ("shell", {"commands": ["cat a", "ls"]}, "read log a ."),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": ""}, "write edit +a"),
    ("apply_patch", {"type": "create_file", "path": "a", "diff": ""}, "write edit =a"),
    ("web_fetch", {"url": "https://x.io/a"}, "read page https://x.io/a"),
    # what is newer
    ("spawn_agent", {"items": []}, "run page barrier"),
    ("create_goal", {"objective": "x"}, "other None"),
    ("invoke_agent", {"agent_name": "a", "prompt": "x"}, "run page barrier"),
    ("read_background_output", {"pid": 12}, "run log"),
    ("tracker_create_task", {"title": "x"}, "other listing"),
    ("edit", {"path": "a.py", "new_str": "x"}, "write edit +a.py"),
    ("read_agent", {"agent_id": "a"}, "run page"),
    ("write_agent", {"agent_id": "a", "message": "x"}, "run page barrier"),
    ("session_store_sql", {"description": "d", "query": "select 1"}, "other table"),
    ("agent", {"description": "d", "prompt": "x"}, "run page barrier"),
    ("read_file", {"file_path": "/w/a.pdf", "pages": "1-5"}, "read page /w/a.pdf~"),
    ("notebook_edit", {"notebook_path": "/w/a.ipynb"}, "write edit +/w/a.ipynb"),
    ("monitor", {"command": "make test", "directory": "/w"}, "run test"),
    ("new_rule", {"path": ".clinerules/a.md", "content": "x"}, "write edit =.clinerules/a.md"),
    ("use_subagents", {"prompt_1": "x"}, "run page barrier"),
    ("planning_file_editor", {"command": "create", "path": "PLAN.md"}, "write edit =PLAN.md"),
    # the same name with other arguments is another tool
    ("read", {"book": "x"}, "other None barrier unknown"),
    ("bash", {"script": "x"}, "other None barrier unknown"),
    ("Read", {}, "other None barrier unknown"),
    ("READ", {"file_path": "a"}, "other None barrier unknown"),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), [*CLAUDE_CODE, *OTHERS])
def test_a_known_agents_tool_is_told_by_its_arguments(name: str, arguments: Any, expected: str):
    assert describe_use(use(name, arguments)) == expected


def test_each_agent_has_a_table_and_each_row_a_name():
    tables = tables_by_agent()
    assert len(tables) >= 11
    assert all(tables.values())
    assert tool_names() == {row.tool.name for table in tables.values() for row in table}
    assert find_tool("Read", {"file_path": "a"}) is not None
    assert find_tool("Read", {"path": "a"}) is None


def test_every_row_says_what_its_calls_do():
    for table in tables_by_agent().values():
        for row in table:
            assert row.tool.has_effects, row.tool.name


READ_ONLY = {"name": "x", "annotations": {"readOnlyHint": True}}
WRITING = {"name": "x", "annotations": {"readOnlyHint": False, "idempotentHint": True}}


@pytest.mark.parametrize(
    ("definition", "expected", "rerun"),
    [
        (READ_ONLY, "read None", True),
        (WRITING, "write None barrier", True),
        ({"annotations": {"destructiveHint": False}}, "write None barrier", False),
        ({"type": "function", "function": READ_ONLY}, "read None", True),
        ({"name": "x", "_meta": {"annotations": {"readOnlyHint": True}}}, "read None", True),
        ({"name": "x", "_meta": {"readOnlyHint": True}}, "read None", True),
        ({"annotations": {"title": "x"}}, "other None barrier unknown", False),
        ({"annotations": {"readOnlyHint": "yes"}}, "other None barrier unknown", False),
        ({"annotations": {"openWorldHint": True}}, "other None barrier unknown", False),
        ({"input_schema": {"properties": {"path": {}}}}, "other None barrier unknown", False),
        ({"annotations": 3, "function": [], "_meta": None}, "other None barrier unknown", False),
        ([], "other None barrier unknown", False),
        ("x", "other None barrier unknown", False),
        (None, "other None barrier unknown", False),
    ],
)
def test_a_definition_with_hints_is_believed(definition: Any, expected: str, rerun: bool):
    found = use("mcp__x__y", {"a": 1}, definition)
    assert describe_use(found) == expected
    assert found.rerun == rerun
    assert found.key == '{"a":1}'


def test_of_two_tools_with_one_name_nothing_is_believed():
    """Codex sends the tools of each server in a namespace, and calls by their bare names."""
    docs = {"type": "namespace", "name": "mcp__docs", "tools": [{**READ_ONLY, "name": "look"}]}
    shop = {"type": "namespace", "name": "mcp__shop", "tools": [{**WRITING, "name": "look"}]}
    alone = tool_definitions({"tools": [docs]})
    assert set(alone) == {"look"}  # nothing calls a namespace
    assert describe_use(use("look", {}, alone["look"])) == "read None"
    for tools in ([docs, shop], [shop, docs], [docs, shop, docs]):
        both = tool_definitions({"tools": tools})
        assert describe_use(use("look", {}, both["look"])) == "other None barrier unknown"
    twice = tool_definitions({"tools": [docs, docs]})
    assert describe_use(use("look", {}, twice["look"])) == "read None"


def test_the_stronger_source_wins():
    arguments = {"file_path": "/w/a"}
    assert describe_use(use("Read", arguments)) == "read code /w/a:1-2000"
    assert describe_use(use("Read", arguments, WRITING)) == "write None barrier"
    own = Tool("Read", kind="run", content="log")
    assert describe_use(use("Read", arguments, WRITING, own)) == "run log"


def test_what_is_not_declared_is_taken_from_the_weaker_source():
    arguments = {"file_path": "/w/a"}
    found = use("Read", arguments, None, Tool("Read", cap_chars=3))
    assert describe_use(found) == "read code /w/a:1-2000"
    assert found.target == "/w/a"
    assert use("Read", arguments, None, Tool("Read", content="table")).content == "table"
    assert use("Task", {"prompt": "x"}, None, Tool("Task", rerun=True)).rerun
    keyed = Tool("Read", target="file_path", key="target")
    assert use("Read", arguments, None, keyed).key == "target=Read:/w/a"
    assert describe_use(use("Read", arguments, None, keyed)) == "read code /w/a:1-2000"


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        (Tool("t", kind="read", reads="p"), {"p": " a//b "}, "read None a/b"),
        (Tool("t", reads=["p", "q"]), {"p": "a", "q": ["b", 3, "c"]}, "read None a b c"),
        (Tool("t", reads="p"), {"p": "src/**/*.py"}, "read None src~"),
        (Tool("t", reads="p", workdir="d"), {"p": "a", "d": "/w"}, "read None /w/a"),
        (Tool("t", reads="p", workdir="d"), {"p": "a", "d": 3}, "read None a"),
        (Tool("t", writes="p"), {"p": "a"}, "write None +a"),
        (Tool("t", writes="p", replaces=True), {"p": "a"}, "write None =a"),
        (Tool("t", writes="p"), {}, "write None barrier"),
        (Tool("t", writes="p", barrier=False), {}, "write None"),
        (Tool("t", kind="write"), {"p": "a"}, "write None barrier"),
        (Tool("t", kind="run"), {}, "run None"),
        (Tool("t", kind="search"), {}, "search None"),
        (Tool("t", kind="search", reads="p"), {}, "search None .~"),
        (Tool("t", barrier=True), {}, "other None barrier"),
        (Tool("t", command="c"), {"c": "rm a"}, "write edit =a"),
        (Tool("t", command="c"), {}, "run None barrier unknown"),
        (Tool("t", command="c[]"), {"c": ["ls", "rm a"]}, "write listing . =a"),
        (Tool("t", patch="p"), {"p": "--- a/x\n+++ b/x\n"}, "write edit +x"),
        (Tool("t", reads="p", lines="r"), {"p": "a", "r": [2, 3]}, "read None a:2-3"),
        (Tool("t", reads="p", lines="r"), {"p": "a", "r": "2-3"}, "read None a~"),
        (Tool("t", reads="p", lines="f..l"), {"p": "a", "f": 2, "l": 3}, "read None a:2-3"),
        (Tool("t", reads="p", lines="f..l"), {"p": "a", "f": 2}, f"read None a:2-{END}"),
        (Tool("t", reads="p", lines="f..l"), {"p": "a", "l": 3}, "read None a:1-3"),
        (Tool("t", reads="p", lines="f..l"), {"p": "a", "f": 2, "l": -1}, f"read None a:2-{END}"),
        (Tool("t", reads="p", lines="f+n"), {"p": "a", "f": 2, "n": 3}, "read None a:2-4"),
        (Tool("t", reads="p", lines="f+n from 0"), {"p": "a", "f": 2, "n": 3}, "read None a:3-5"),
        (Tool("t", reads="p", lines="f+n"), {"p": "a", "f": True, "n": 1e99}, "read None a"),
        (Tool("t", reads="p", lines="f+n"), {"p": "a", "f": -5, "n": 3}, "read None a:1-3"),
        (Tool("t", reads="p", page=9), {"p": "a"}, "read None a:1-9"),
    ],
)
def test_a_declaration_is_applied(tool: Tool, arguments: Any, expected: str):
    assert describe_use(use("t", arguments, None, tool)) == expected


def test_tools_are_declared_in_toml_with_the_same_keys(tmp_path: Path):
    file = tmp_path / "respool.toml"
    file.write_text(
        '[tools.lookup]\nkind = "read"\nreads = ["path", "also"]\nlines = "from..to"\npage = 100\n'
        'operation = "how"\ntarget = "path"\nkey = "target"\ncontent = "table"\n'
        'numbers = true\n[tools.run]\ncommand = "script"\nworkdir = "where"\n'
        'cap_chars = "unlimited"\n'
        '[tools.put]\nwrites = "path"\nreplaces = true\nbarrier = false\nrerun = true\n'
        '[tools.mend]\npatch = "diff"\n'
    )
    tools = Policy.from_toml(file).tools
    assert tools.get("lookup") == Tool(
        "lookup",
        kind="read",
        reads=("path", "also"),
        lines="from..to",
        page=100,
        operation="how",
        target="path",
        key="target",
        content="table",
        numbers=True,
    )
    assert (
        describe_use(tools.use_of("run", '{"script": "cat a", "where": "/w"}')) == "read code /w/a"
    )
    assert describe_use(tools.use_of("put", '{"path": "a"}')) == "write None =a"
    describe_span = file.read_text()
    assert [key for key in TOOL_KEYS if f"{key} =" not in describe_span] == []


def test_a_registry_remembers_and_stays_bounded():
    tools = Tools()
    first = tools.use_of("Bash", '{"command": "cat a"}')
    assert tools.use_of("Bash", '{"command": "cat a"}') is first
    for number in range(20_000):
        tools.use_of("x", f'{{"a": {number}}}')
    assert len(tools._remembered) <= 8_192
    assert tools.use_of("Bash", '{"command": "cat a"}') == first
    long = json.dumps({"file_path": "/a", "content": "x" * 100_000})
    assert tools.use_of("Write", long) is tools.use_of("Write", long)
