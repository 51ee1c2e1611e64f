"""GitHub Copilot in VS Code, whose tools extensions and gateways of others see, too."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *reads("read_file", "filePath", "startLine", lines="startLine..endLine"),
    *reads("read_file", "path", "startLine", lines="startLine..endLine"),
    *reads("read_file", "filePath", lines="offset+limit", page=2_000),
    *creates("create_file", "filePath", ""),
    *edits("replace_string_in_file", "filePath", "oldString"),
    *edits("insert_edit_into_file edit_notebook_file", "filePath"),
    *rows("multi_replace_string_in_file", "replacements", kind="write", content="edit"),
    *edits("create_directory", "dirPath"),
    *shells("run_in_terminal", "command"),
    *rows("get_terminal_output await_terminal", "id", kind="run", target="id", content="log"),
    *rows("kill_terminal", "id", kind="run", target="id"),
    *talks("terminal_last_command terminal_selection", content="log"),
    *hits("grep_search", "query", "includePattern", target="query"),
    *hits("semantic_search", "query", "", target="query", content=None),
    *lists("file_search", "query", "", target="query"),
    *lists("list_dir", "path", "path"),
    *hits("list_code_usages", "symbolName", "filePaths", target="symbolName"),
    *rows("get_errors", kind="run", content="log"),
    *rows("get_changed_files", kind="read", content="diff"),
    *reads("fetch_webpage", "urls", content="page"),
    *hits("github_repo", "repo query", "", target="query", content=None),
    *rows("runTests run_tests test_failure", kind="run", content="test"),
    *rows("run_task create_and_run_task", kind="run", barrier=True, content="log"),
    *rows("get_task_output", "id", kind="run", target="id", content="log"),
    *rows("run_notebook_cell", "filePath", kind="run", barrier=True, target="filePath"),
    *talks("manage_todo_list get_vscode_api get_project_setup_info get_search_view_results"),
    *agents("runSubagent", "prompt", "description"),
)
