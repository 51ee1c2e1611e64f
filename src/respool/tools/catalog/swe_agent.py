"""SWE-agent and mini-swe-agent: a shell, and an editor that has one file open.

What the editor changes without a name is the open file, which no argument tells: it counts as
writing anything.
"""

from __future__ import annotations

from .row import Rows, creates, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *shells("bash", "cmd"),
    *reads("open", "path", content="code"),
    *rows("goto", "line_number", kind="read", content="code"),
    *rows("scroll_up scroll_down", kind="read", content="code"),
    *creates("create", "filename", ""),
    *rows("edit", "replacement_text start_line", kind="write", barrier=True, content="edit"),
    *rows("edit", "search replace", kind="write", barrier=True, content="edit"),
    *rows("insert", "text", kind="write", barrier=True, content="edit"),
    *lists("find_file", "file_name", "dir"),
    *hits("search_dir", "search_term", "dir"),
    *hits("search_file", "search_term", "file"),
    *hits("filemap", "file_path", "file_path", content="code"),
    *reads("view_image", "image_file", content=None),
    *talks("submit exit_forfeit exit_cost"),
)
