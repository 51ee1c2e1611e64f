"""opencode."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, talks

ROWS: Rows = (
    *reads("read", "filePath", lines="offset+limit", page=2_000, numbers=True),
    *creates("write", "filePath", "content"),
    *edits("edit multiedit", "filePath"),
    *rows("apply_patch patch", "patchText", patch="patchText"),
    *hits("grep", "pattern", "path", {"paths": (None,)}),
    *lists("glob", "pattern", "path dir_path paths"),
    *lists("list", "path", "path"),
    *hits("lsp", "operation", "filePath", operation="operation"),
    *reads("webfetch", "url", content="page"),
    *hits("websearch codesearch", "query", "", target="query"),
    *agents("task", "prompt", "description"),
    *agents("batch", "tool_calls"),
    *talks("todowrite todoread question plan_enter plan_exit"),
    *talks("skill", "name", target="name", content="page"),
)
