"""Tools that providers define, under the names that their wires give them."""

from __future__ import annotations

from .row import Rows, creates, edits, hits, reads, rows, shells, talks

ROWS: Rows = (
    *talks("bash", "restart"),
    *shells("bash_code_execution", "command"),
    *rows("code_execution python", "code", kind="run", barrier=True, content="log"),
    *reads("memory", "path", "", {"command": ("view",)}, operation="command", content="page"),
    *creates("memory", "path", "", {"command": ("create", "delete")}, operation="command"),
    *edits("memory", "path", "", {"command": ("str_replace", "insert")}, operation="command"),
    *rows("memory", "old_path new_path", kind="write", writes=("old_path", "new_path")),
    *reads("web_fetch", "url", content="page"),
    *hits("web_search", "query", "", target="query"),
    *rows("computer", "action", kind="run", operation="action"),
    *shells("local_shell", "command", "working_directory"),
    *shells("shell", "commands[]"),
    *creates("apply_patch", "path", "", {"type": ("create_file", "delete_file")}, operation="type"),
    *edits("apply_patch", "path", "", {"type": ("update_file",)}, operation="type"),
)
