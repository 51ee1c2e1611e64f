"""GitHub Copilot CLI."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *reads("view", "path", lines="view_range"),
    *creates("create", "path", "file_text"),
    *edits("edit", "path", "old_str"),
    *edits("edit", "path", "new_str"),
    *hits("rg grep", "pattern", "paths path"),
    *lists("glob", "pattern", "paths path"),
    *shells("bash", "command"),
    *rows("read_bash", "sessionId", kind="run", target="sessionId", content="log"),
    *rows("read_bash", "shellId", kind="run", target="shellId", content="log"),
    *rows("write_bash", "sessionId input", kind="run", barrier=True, target="sessionId"),
    *rows("write_bash", "shellId input", kind="run", barrier=True, target="shellId"),
    *rows("stop_bash", "sessionId", kind="run", target="sessionId"),
    *rows("stop_bash", "shellId", kind="run", target="shellId"),
    *talks("report_intent exit_plan_mode update_todo task_complete list_bash"),
    *talks("fetch_copilot_cli_documentation", content="page"),
    *talks("session_store_sql", "query", target="description", content="table"),
    *rows("read_agent", "agent_id", kind="run", target="agent_id", content="page"),
    *agents("write_agent", "message", "agent_id"),
    *talks("skill", "skill", target="skill", content="page"),
    *talks("sql", "query description", target="description", content="table"),
    *agents("task", "prompt agent_type", "description"),
)
