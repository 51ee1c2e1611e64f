"""qwen-code, where it differs from Gemini CLI."""

from __future__ import annotations

from .row import Rows, agents, edits, hits, reads, shells, talks

ROWS: Rows = (
    *shells("run_shell_command", "command", "directory"),
    *reads("read_file", "absolute_path", lines="offset+limit from 0", page=2_000),
    *edits("edit", "file_path", "old_string"),
    *hits("web_search", "query", "", target="query"),
    *agents("task", "subagent_type prompt", "description"),
    *talks("todo_write ask_user_question"),
)
