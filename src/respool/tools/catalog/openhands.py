"""OpenHands, and the editor it shares with Anthropic's API and SWE-agent."""

from __future__ import annotations

from .row import Rows, Where, agents, creates, edits, reads, rows, shells, talks

_EDITORS = "str_replace_editor str_replace_based_edit_tool file_editor text_editor_code_execution"
_VIEW: Where = {"command": ("view",)}
_CREATE: Where = {"command": ("create",)}
_CHANGE: Where = {"command": ("str_replace", "insert", "undo_edit")}

ROWS: Rows = (
    *reads(_EDITORS, "path", "", _VIEW, operation="command", lines="view_range", numbers=True),
    *creates(_EDITORS, "path", "", _CREATE, operation="command"),
    *edits(_EDITORS, "path", "", _CHANGE, operation="command", numbers=True),
    *reads("planning_file_editor", "path", "", _VIEW, operation="command", lines="view_range"),
    *creates("planning_file_editor", "path", "", _CREATE, operation="command"),
    *edits("planning_file_editor", "path", "", _CHANGE, operation="command"),
    *shells("execute_bash terminal", "command"),
    *rows("execute_ipython_cell", "code", kind="run", barrier=True, content="log"),
    *reads("fetch", "url", content="page"),
    *rows("browser", "code", kind="run", target="code", content="page"),
    *rows("browser_navigate", "url", kind="run", target="url", content="page"),
    *talks("browser_get_state browser_get_content browser_list_tabs", content="page"),
    *talks("browser_click browser_type browser_scroll browser_go_back", content="page"),
    *talks("browser_switch_tab browser_close_tab", content="page"),
    *talks("think finish request_condensation"),
    *talks("task_tracker", "command", operation="command"),
    *agents("delegate", ""),
)
