"""qwen-code, where it differs from Gemini CLI."""

from __future__ import annotations

from .row import Rows, agents, edits, hits, reads, rows, shells, talks

ROWS: Rows = (
    *shells("run_shell_command", "command", "directory"),
    *reads("read_file", "file_path", "pages", lines="pages", content="page"),
    *shells("monitor", "command", "directory"),
    *edits("notebook_edit", "notebook_path"),
    *rows("enter_worktree exit_worktree", kind="write", barrier=True),
    *rows("task_stop task_output", "task_id", kind="run", target="task_id", content="log"),
    *agents("agent", "prompt", "description"),
    *agents("create_sub_session", ""),
    *talks("task_create task_get task_list task_update team_create team_delete send_message"),
    *talks("cron_create cron_list cron_delete loop_wakeup structured_output tool_search"),
    *reads("read_file", "absolute_path", lines="offset+limit from 0", page=2_000),
    *edits("edit", "file_path", "old_string"),
    *hits("web_search", "query", "", target="query"),
    *agents("task", "subagent_type prompt", "description"),
    *talks("todo_write ask_user_question"),
)
