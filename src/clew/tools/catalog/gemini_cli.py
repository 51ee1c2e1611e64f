"""Gemini CLI."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *shells("run_shell_command", "command", "dir_path", where={"directory": (None,)}),
    *reads("read_file", "file_path", "start_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", "end_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", lines="offset+limit from 0", page=2_000),
    *reads("read_many_files", "include"),
    *reads("read_many_files", "paths"),
    *creates("write_file", "file_path", "content"),
    *edits("replace", "file_path", "old_string"),
    *lists("list_directory", "dir_path", "dir_path"),
    *lists("list_directory", "path", "path"),
    *hits("grep_search search_file_content", "pattern", "dir_path path"),
    *hits("google_web_search", "query", "", target="query"),
    *rows("web_fetch", "prompt", {"url": (None,)}, kind="read", target="prompt", content="page"),
    *talks("write_todos ask_user enter_plan_mode exit_plan_mode update_topic complete_task"),
    *rows("save_memory", "fact", kind="write", barrier=True, target="fact"),
    *talks("activate_skill", "name", target="name", content="page"),
    *talks("get_internal_docs", target="path", content="page"),
    *agents("codebase_investigator cli_help", ""),
)
