"""Gemini CLI."""

from __future__ import annotations

from ..declaration import Arguments
from .row import Rows, Where, agents, creates, edits, hits, lists, reads, rows, shells, talks

_WHOLE: Where = {"pages": (None,)}
_TRACKER = (
    "tracker_create_task tracker_get_task tracker_list_tasks tracker_update_task "
    "tracker_add_dependency tracker_visualize"
)


def _process(arguments: Arguments) -> str | None:
    """A running process goes by a number."""
    return str(arguments.get("pid"))


ROWS: Rows = (
    *rows("read_background_output", "pid", kind="run", target=_process, content="log"),
    *talks("list_background_processes", content="listing"),
    *talks(_TRACKER, content="listing"),
    *shells("run_shell_command", "command", "dir_path", where={"directory": (None,)}),
    *reads("read_file", "file_path", "start_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", "end_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", "", _WHOLE, lines="offset+limit from 0", page=2_000),
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
    *agents("invoke_agent", "agent_name prompt", "agent_name"),
)
