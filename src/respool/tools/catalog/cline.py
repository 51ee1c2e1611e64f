"""Cline."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *shells("execute_command", "command", "cwd"),
    *reads("read_file", "path", lines="start_line..end_line"),
    *creates("write_to_file", "path", "content"),
    *creates("write_to_file", "absolutePath", "content"),
    *edits("replace_in_file", "path", "diff"),
    *edits("replace_in_file", "absolutePath", "diff"),
    *hits("search_files", "path regex", "path"),
    *lists("list_files", "path", "path"),
    *lists("list_code_definition_names", "path", "path"),
    *rows("browser_action", "action", kind="run", operation="action", target="url"),
    *talks("ask_followup_question attempt_completion plan_mode_respond act_mode_respond new_task"),
    *talks("focus_chain condense summarize_task load_mcp_documentation generate_explanation"),
    *talks("use_skill", "skill_name", target="skill_name", content="page"),
    *rows("new_rule", "path", kind="write", writes="path", replaces=True, content="edit"),
    *agents("search_subagent use_subagents", ""),
    *reads("access_mcp_resource", "uri", content="page"),
)
