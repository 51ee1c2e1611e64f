"""pi."""

from __future__ import annotations

from .row import Rows, creates, edits, hits, lists, reads, shells

ROWS: Rows = (
    *shells("bash", "command", "workdir"),
    *reads("read", "path", lines="offset+limit", page=2_000),
    *creates("write", "path", "content"),
    *edits("edit", "path", "oldText"),
    *edits("edit", "path", "edits"),
    *hits("grep", "pattern", "path", {"include": (None,), "paths": (None,)}),
    *lists("find", "pattern", "path"),
    *lists("ls", "", "path"),
)
