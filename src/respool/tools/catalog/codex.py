"""Codex: nearly everything goes through one shell tool, and patches."""

from __future__ import annotations

from ..declaration import Arguments
from .row import Rows, Where, agents, hits, lists, reads, rows, shells, talks

_QUIET: Where = {"chars": (None, "", "\u0003")}  # nothing is typed, or the process is stopped


def _session(arguments: Arguments) -> str | None:
    """A running process goes by a number."""
    return str(arguments.get("session_id"))


ROWS: Rows = (
    *shells("exec_command", "cmd", "workdir"),
    *shells("shell container.exec shell_command", "command", "workdir"),
    *rows("write_stdin", "session_id", _QUIET, kind="run", target=_session, content="log"),
    *rows("write_stdin", "session_id", kind="run", barrier=True, target=_session, content="log"),
    *rows("apply_patch", "input", patch="input", workdir="workdir"),
    *rows("apply_patch", "patch", patch="patch", workdir="workdir"),
    *hits("read_file", "file_path", "file_path", {"mode": ("indentation",)}, content="code"),
    *lists("list_dir", "dir_path", "dir_path"),
    *lists("grep_files", "pattern", "path"),
    *reads("view_image", "path", content=None),
    *talks("update_plan request_user_input close_agent wait_agent list_agents"),
    *talks("load_workspace_dependencies list_mcp_resources list_mcp_resource_templates"),
    *reads("read_mcp_resource", "uri", content="page"),
    *talks("get_goal create_goal update_goal"),
    *agents("spawn_agent", "", "agent_type"),
    *agents("send_input resume_agent followup_task", "", "target"),
)
