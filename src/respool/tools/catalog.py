"""Catalog of the tools of known agents: one table per agent, one row per tool.

Names clash between agents, so a row applies only to calls that have the arguments it needs; the
first matching row counts. The agent is not guessed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct

from .declaration import Arguments, Tool

ArgumentValue = str | None  # None: the argument is missing


class CatalogRow(Struct, frozen=True):
    """A declaration for calls that have these arguments, some of them with these values."""

    tool: Tool
    needs: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[ArgumentValue, ...]], ...] = ()

    def matches(self, arguments: Arguments) -> bool:
        """Check whether this row applies to a call."""
        return all(name in arguments for name in self.needs) and all(
            arguments.get(name) in values for name, values in self.where
        )


CatalogRows = tuple[CatalogRow, ...]
ArgumentValues = dict[str, tuple[ArgumentValue, ...]]


def rows(
    names: str, needs: str = "", where: ArgumentValues | None = None, **declared: Any
) -> CatalogRows:
    """One row under several names; `needs` lists arguments, the rest are keys of `Tool`."""
    needed, values = tuple(needs.split()), tuple((where or {}).items())
    return tuple(CatalogRow(Tool(name, **declared), needed, values) for name in names.split())


def shells(names: str, command: str, workdir: str | None = None, **declared: Any) -> CatalogRows:
    """Tools that run a shell command."""
    needs = command.removesuffix("[]")
    return rows(names, needs, command=command, workdir=workdir, content="log", **declared)


def reads(
    names: str, path: str, also: str = "", where: ArgumentValues | None = None, **more: Any
) -> CatalogRows:
    """Tools that read a file, a URL or a record."""
    declared: dict[str, Any] = {"kind": "read", "reads": path, "content": "code", **more}
    return rows(names, f"{path} {also}", where, **declared)


def creates(
    names: str, path: str, also: str, where: ArgumentValues | None = None, **more: Any
) -> CatalogRows:
    """Tools that write a whole file."""
    declared: dict[str, Any] = {"replaces": True, **more}
    return edits(names, path, also, where, **declared)


def edits(
    names: str, path: str, also: str = "", where: ArgumentValues | None = None, **more: Any
) -> CatalogRows:
    """Tools that change a part of a file."""
    declared: dict[str, Any] = {"kind": "write", "writes": path, "content": "edit", **more}
    return rows(names, f"{path} {also}", where, **declared)


def searches(
    names: str, needs: str, places: str, where: ArgumentValues | None = None, **more: Any
) -> CatalogRows:
    """Tools that search in files."""
    declared: dict[str, Any] = {"kind": "search", "content": "hits", **more}
    return rows(names, needs, where, reads=tuple(places.split()), **declared)


def lists(
    names: str, needs: str, places: str, where: ArgumentValues | None = None, **more: Any
) -> CatalogRows:
    """Tools that list files or other things."""
    return searches(names, needs, places, where, content="listing", **more)


def subagents(names: str, needs: str, target: Any = None) -> CatalogRows:
    """Tools that start another agent, which may write anything."""
    return rows(names, needs, kind="run", barrier=True, target=target, content="page")


def fileless(names: str, needs: str = "", **more: Any) -> CatalogRows:
    """Tools without files: plans, questions, thoughts."""
    return rows(names, needs, kind="other", **more)


CLAUDE_CODE: CatalogRows = (
    *shells("Bash Monitor", "command"),
    *rows("PowerShell", "command", kind="run", barrier=True, target="command", content="log"),
    *reads("Read", "file_path", "pages", lines="pages", content="page"),
    *reads("Read", "file_path", lines="offset+limit", page=2_000, numbers=True),
    *reads("NotebookRead", "notebook_path", content="json"),
    *creates("Write", "file_path", "content", numbers=True),
    *edits("Edit MultiEdit Update", "file_path", numbers=True),
    *edits("NotebookEdit", "notebook_path"),
    *searches("Grep", "pattern", "path", {"output_mode": ("content",)}),
    *lists("Grep", "pattern", "path"),
    *lists("Glob", "pattern", "path"),
    *lists("LS", "path", "path"),
    *searches("LSP", "operation", "filePath file_path", operation="operation"),
    *reads("WebFetch", "url", content="page"),
    *searches("WebSearch", "query", "", target="query"),
    *lists("ToolSearch", "query", "", target="query"),
    *rows("BashOutput", "bash_id", kind="run", target="bash_id", content="log"),
    *rows("TaskOutput TaskStop", "task_id", kind="run", target="task_id", content="log"),
    *rows("TaskStop", kind="run", target="shell_id"),
    *rows("Monitor", "description", kind="run", target="description", content="log"),
    *rows("AgentOutputTool", "agentId", kind="run", target="agentId", content="page"),
    *rows("KillShell KillBash", "shell_id", kind="run", target="shell_id"),
    *subagents("Task Agent", "prompt", "description"),
    *subagents("Workflow", "", "name"),
    *fileless("TodoWrite TodoRead TaskCreate TaskUpdate TaskList TaskGet", target="taskId"),
    *fileless("EnterPlanMode ExitPlanMode AskUserQuestion ScheduleWakeup SendMessage"),
    *fileless("CronCreate CronDelete CronList ListAgents ReportFindings PushNotification"),
    *fileless("TeamCreate TeamDelete WaitForMcpServers StructuredOutput"),
    *rows("Artifact", "file_path", kind="run", target="file_path"),
    *fileless("Skill SlashCommand", target="skill", content="page"),
    *fileless("ListMcpResourcesTool", content="listing"),
    *reads("ReadMcpResourceTool", "uri", content="page"),
    *rows("EnterWorktree ExitWorktree", kind="write", barrier=True),
)


_NO_INPUT: ArgumentValues = {"chars": (None, "", "\u0003")}  # no input, or an interrupt


def _session_target(arguments: Arguments) -> str | None:
    """The id of a running process, as text."""
    return str(arguments.get("session_id"))


# Nearly everything goes through one shell tool and patches.
CODEX: CatalogRows = (
    *shells("exec_command", "cmd", "workdir"),
    *shells("shell container.exec shell_command", "command", "workdir"),
    *rows(
        "write_stdin", "session_id", _NO_INPUT, kind="run", target=_session_target, content="log"
    ),
    *rows(
        "write_stdin", "session_id", kind="run", barrier=True, target=_session_target, content="log"
    ),
    *rows("apply_patch", "input", patch="input", workdir="workdir"),
    *rows("apply_patch", "patch", patch="patch", workdir="workdir"),
    *searches("read_file", "file_path", "file_path", {"mode": ("indentation",)}, content="code"),
    *lists("list_dir", "dir_path", "dir_path"),
    *lists("grep_files", "pattern", "path"),
    *reads("view_image", "path", content=None),
    *fileless("update_plan request_user_input close_agent wait_agent list_agents"),
    *fileless("load_workspace_dependencies list_mcp_resources list_mcp_resource_templates"),
    *reads("read_mcp_resource", "uri", content="page"),
    *fileless("get_goal create_goal update_goal"),
    *subagents("spawn_agent", "", "agent_type"),
    *subagents("send_input resume_agent followup_task", "", "target"),
)


PI: CatalogRows = (
    *shells("bash", "command", "workdir"),
    *reads("read", "path", lines="offset+limit", page=2_000),
    *creates("write", "path", "content"),
    *edits("edit", "path", "oldText"),
    *edits("edit", "path", "edits"),
    *searches("grep", "pattern", "path", {"include": (None,), "paths": (None,)}),
    *lists("find", "pattern", "path"),
    *lists("ls", "", "path"),
)


OPENCODE: CatalogRows = (
    *reads("read", "filePath", lines="offset+limit", page=2_000, numbers=True),
    *creates("write", "filePath", "content"),
    *edits("edit multiedit", "filePath"),
    *rows("apply_patch patch", "patchText", patch="patchText"),
    *searches("grep", "pattern", "path", {"paths": (None,)}),
    *lists("glob", "pattern", "path dir_path paths"),
    *lists("list", "path", "path"),
    *searches("lsp", "operation", "filePath", operation="operation"),
    *reads("webfetch", "url", content="page"),
    *searches("websearch codesearch", "query", "", target="query"),
    *subagents("task", "prompt", "description"),
    *subagents("batch", "tool_calls"),
    *fileless("todowrite todoread question plan_enter plan_exit"),
    *fileless("skill", "name", target="name", content="page"),
)


_WITHOUT_PAGES: ArgumentValues = {"pages": (None,)}
_TRACKER_TOOLS = (
    "tracker_create_task tracker_get_task tracker_list_tasks tracker_update_task "
    "tracker_add_dependency tracker_visualize"
)


def _process_target(arguments: Arguments) -> str | None:
    """The id of a running process, as text."""
    return str(arguments.get("pid"))


GEMINI_CLI: CatalogRows = (
    *rows("read_background_output", "pid", kind="run", target=_process_target, content="log"),
    *fileless("list_background_processes", content="listing"),
    *fileless(_TRACKER_TOOLS, content="listing"),
    *shells("run_shell_command", "command", "dir_path", where={"directory": (None,)}),
    *reads("read_file", "file_path", "start_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", "end_line", lines="start_line..end_line", page=2_000),
    *reads("read_file", "file_path", "", _WITHOUT_PAGES, lines="offset+limit from 0", page=2_000),
    *reads("read_many_files", "include"),
    *reads("read_many_files", "paths"),
    *creates("write_file", "file_path", "content"),
    *edits("replace", "file_path", "old_string"),
    *lists("list_directory", "dir_path", "dir_path"),
    *lists("list_directory", "path", "path"),
    *searches("grep_search search_file_content", "pattern", "dir_path path"),
    *searches("google_web_search", "query", "", target="query"),
    *rows("web_fetch", "prompt", {"url": (None,)}, kind="read", target="prompt", content="page"),
    *fileless("write_todos ask_user enter_plan_mode exit_plan_mode update_topic complete_task"),
    *rows("save_memory", "fact", kind="write", barrier=True, target="fact"),
    *fileless("activate_skill", "name", target="name", content="page"),
    *fileless("get_internal_docs", target="path", content="page"),
    *subagents("codebase_investigator cli_help", ""),
    *subagents("invoke_agent", "agent_name prompt", "agent_name"),
)


COPILOT_CLI: CatalogRows = (
    *reads("view", "path", lines="view_range"),
    *creates("create", "path", "file_text"),
    *edits("edit", "path", "old_str"),
    *edits("edit", "path", "new_str"),
    *searches("rg grep", "pattern", "paths path"),
    *lists("glob", "pattern", "paths path"),
    *shells("bash", "command"),
    *rows("read_bash", "sessionId", kind="run", target="sessionId", content="log"),
    *rows("read_bash", "shellId", kind="run", target="shellId", content="log"),
    *rows("write_bash", "sessionId input", kind="run", barrier=True, target="sessionId"),
    *rows("write_bash", "shellId input", kind="run", barrier=True, target="shellId"),
    *rows("stop_bash", "sessionId", kind="run", target="sessionId"),
    *rows("stop_bash", "shellId", kind="run", target="shellId"),
    *fileless("report_intent exit_plan_mode update_todo task_complete list_bash"),
    *fileless("fetch_copilot_cli_documentation", content="page"),
    *fileless("session_store_sql", "query", target="description", content="table"),
    *rows("read_agent", "agent_id", kind="run", target="agent_id", content="page"),
    *subagents("write_agent", "message", "agent_id"),
    *fileless("skill", "skill", target="skill", content="page"),
    *fileless("sql", "query description", target="description", content="table"),
    *subagents("task", "prompt agent_type", "description"),
)


# Copilot in VS Code; other extensions and gateways see the same tools.
COPILOT_CHAT: CatalogRows = (
    *reads("read_file", "filePath", "startLine", lines="startLine..endLine"),
    *reads("read_file", "path", "startLine", lines="startLine..endLine"),
    *reads("read_file", "filePath", lines="offset+limit", page=2_000),
    *creates("create_file", "filePath", ""),
    *edits("replace_string_in_file", "filePath", "oldString"),
    *edits("insert_edit_into_file edit_notebook_file", "filePath"),
    *rows("multi_replace_string_in_file", "replacements", kind="write", content="edit"),
    *edits("create_directory", "dirPath"),
    *shells("run_in_terminal", "command"),
    *rows("get_terminal_output await_terminal", "id", kind="run", target="id", content="log"),
    *rows("kill_terminal", "id", kind="run", target="id"),
    *fileless("terminal_last_command terminal_selection", content="log"),
    *searches("grep_search", "query", "includePattern", target="query"),
    *searches("semantic_search", "query", "", target="query", content=None),
    *lists("file_search", "query", "", target="query"),
    *lists("list_dir", "path", "path"),
    *searches("list_code_usages", "symbolName", "filePaths", target="symbolName"),
    *rows("get_errors", kind="run", content="log"),
    *rows("get_changed_files", kind="read", content="diff"),
    *reads("fetch_webpage", "urls", content="page"),
    *searches("github_repo", "repo query", "", target="query", content=None),
    *rows("runTests run_tests test_failure", kind="run", content="test"),
    *rows("run_task create_and_run_task", kind="run", barrier=True, content="log"),
    *rows("get_task_output", "id", kind="run", target="id", content="log"),
    *rows("run_notebook_cell", "filePath", kind="run", barrier=True, target="filePath"),
    *fileless("manage_todo_list get_vscode_api get_project_setup_info get_search_view_results"),
    *subagents("runSubagent", "prompt", "description"),
)


CLINE: CatalogRows = (
    *shells("execute_command", "command", "cwd"),
    *reads("read_file", "path", lines="start_line..end_line"),
    *creates("write_to_file", "path", "content"),
    *creates("write_to_file", "absolutePath", "content"),
    *edits("replace_in_file", "path", "diff"),
    *edits("replace_in_file", "absolutePath", "diff"),
    *searches("search_files", "path regex", "path"),
    *lists("list_files", "path", "path"),
    *lists("list_code_definition_names", "path", "path"),
    *rows("browser_action", "action", kind="run", operation="action", target="url"),
    *fileless(
        "ask_followup_question attempt_completion plan_mode_respond act_mode_respond new_task"
    ),
    *fileless("focus_chain condense summarize_task load_mcp_documentation generate_explanation"),
    *fileless("use_skill", "skill_name", target="skill_name", content="page"),
    *rows("new_rule", "path", kind="write", writes="path", replaces=True, content="edit"),
    *subagents("search_subagent use_subagents", ""),
    *reads("access_mcp_resource", "uri", content="page"),
)


# Only the differences from Gemini CLI.
QWEN_CODE: CatalogRows = (
    *shells("run_shell_command", "command", "directory"),
    *reads("read_file", "file_path", "pages", lines="pages", content="page"),
    *shells("monitor", "command", "directory"),
    *edits("notebook_edit", "notebook_path"),
    *rows("enter_worktree exit_worktree", kind="write", barrier=True),
    *rows("task_stop task_output", "task_id", kind="run", target="task_id", content="log"),
    *subagents("agent", "prompt", "description"),
    *subagents("create_sub_session", ""),
    *fileless("task_create task_get task_list task_update team_create team_delete send_message"),
    *fileless("cron_create cron_list cron_delete loop_wakeup structured_output tool_search"),
    *reads("read_file", "absolute_path", lines="offset+limit from 0", page=2_000),
    *edits("edit", "file_path", "old_string"),
    *searches("web_search", "query", "", target="query"),
    *subagents("task", "subagent_type prompt", "description"),
    *fileless("todo_write ask_user_question"),
)


# A shell, and an editor with one open file. Edits without a path change the open file, which no
# argument names, so they count as a barrier.
SWE_AGENT: CatalogRows = (
    *shells("bash", "cmd"),
    *reads("open", "path", content="code"),
    *rows("goto", "line_number", kind="read", content="code"),
    *rows("scroll_up scroll_down", kind="read", content="code"),
    *creates("create", "filename", ""),
    *rows("edit", "replacement_text start_line", kind="write", barrier=True, content="edit"),
    *rows("edit", "search replace", kind="write", barrier=True, content="edit"),
    *rows("insert", "text", kind="write", barrier=True, content="edit"),
    *lists("find_file", "file_name", "dir"),
    *searches("search_dir", "search_term", "dir"),
    *searches("search_file", "search_term", "file"),
    *searches("filemap", "file_path", "file_path", content="code"),
    *reads("view_image", "image_file", content=None),
    *fileless("submit exit_forfeit exit_cost"),
)


_EDITORS = "str_replace_editor str_replace_based_edit_tool file_editor text_editor_code_execution"
_VIEW_COMMAND: ArgumentValues = {"command": ("view",)}
_CREATE_COMMAND: ArgumentValues = {"command": ("create",)}
_EDIT_COMMANDS: ArgumentValues = {"command": ("str_replace", "insert", "undo_edit")}

# The editor is shared with Anthropic's API and SWE-agent.
OPENHANDS: CatalogRows = (
    *reads(
        _EDITORS, "path", "", _VIEW_COMMAND, operation="command", lines="view_range", numbers=True
    ),
    *creates(_EDITORS, "path", "", _CREATE_COMMAND, operation="command"),
    *edits(_EDITORS, "path", "", _EDIT_COMMANDS, operation="command", numbers=True),
    *reads(
        "planning_file_editor", "path", "", _VIEW_COMMAND, operation="command", lines="view_range"
    ),
    *creates("planning_file_editor", "path", "", _CREATE_COMMAND, operation="command"),
    *edits("planning_file_editor", "path", "", _EDIT_COMMANDS, operation="command"),
    *shells("execute_bash terminal", "command"),
    *rows("execute_ipython_cell", "code", kind="run", barrier=True, content="log"),
    *reads("fetch", "url", content="page"),
    *rows("browser", "code", kind="run", target="code", content="page"),
    *rows("browser_navigate", "url", kind="run", target="url", content="page"),
    *fileless("browser_get_state browser_get_content browser_list_tabs", content="page"),
    *fileless("browser_click browser_type browser_scroll browser_go_back", content="page"),
    *fileless("browser_switch_tab browser_close_tab", content="page"),
    *fileless("think finish request_condensation"),
    *fileless("task_tracker", "command", operation="command"),
    *subagents("delegate", ""),
)


# Tools that providers define, under the names in their wire formats.
PROVIDER_TOOLS: CatalogRows = (
    *fileless("bash", "restart"),
    *shells("bash_code_execution", "command"),
    *rows("code_execution python", "code", kind="run", barrier=True, content="log"),
    *reads("memory", "path", "", {"command": ("view",)}, operation="command", content="page"),
    *creates("memory", "path", "", {"command": ("create", "delete")}, operation="command"),
    *edits("memory", "path", "", {"command": ("str_replace", "insert")}, operation="command"),
    *rows("memory", "old_path new_path", kind="write", writes=("old_path", "new_path")),
    *reads("web_fetch", "url", content="page"),
    *searches("web_search", "query", "", target="query"),
    *rows("computer", "action", kind="run", operation="action"),
    *shells("local_shell", "command", "working_directory"),
    *shells("shell", "commands[]"),
    *creates("apply_patch", "path", "", {"type": ("create_file", "delete_file")}, operation="type"),
    *edits("apply_patch", "path", "", {"type": ("update_file",)}, operation="type"),
)


_RESERVATION_ID = "reservation_id"
_FLIGHT_SEARCHES = "search_direct_flight search_onestop_flight"
_RESERVATION_CHANGES = (
    "update_reservation_flights update_reservation_baggages update_reservation_passengers "
    "cancel_reservation"
)


def _flight_target(arguments: Arguments) -> str | None:
    """A flight's origin, destination and date."""
    return " ".join(str(arguments.get(name)) for name in ("origin", "destination", "date"))


# The airline domain: records that are read and changed, no files.
TAU_BENCH: CatalogRows = (
    *rows(
        "get_reservation_details",
        _RESERVATION_ID,
        kind="read",
        target=_RESERVATION_ID,
        content="json",
    ),
    *rows("get_user_details", "user_id", kind="read", target="user_id", content="json"),
    *rows(_FLIGHT_SEARCHES, "origin", kind="search", target=_flight_target, content="json"),
    *fileless("list_all_airports", content="json"),
    *rows(
        _RESERVATION_CHANGES, _RESERVATION_ID, kind="write", barrier=True, target=_RESERVATION_ID
    ),
    *rows("book_reservation", "user_id", kind="write", barrier=True, target="user_id"),
    *rows("send_certificate", "user_id", kind="write", barrier=True, target="user_id"),
    *fileless("transfer_to_human_agents", "summary"),
    *fileless("calculate", "expression", target="expression"),
)


def find_tool(name: str, arguments: Arguments) -> Tool | None:
    """The row's tool for a call with this name and these arguments."""
    for row in _rows_by_name().get(name, ()):
        if row.matches(arguments):
            return row.tool
    return None


def tool_names() -> frozenset[str]:
    """Every name in the catalog."""
    return frozenset(_rows_by_name())


def tables_by_agent() -> dict[str, CatalogRows]:
    """The tables, by the agents' names."""
    return {
        "Claude Code": CLAUDE_CODE,
        "Codex": CODEX,
        "pi": PI,
        "opencode": OPENCODE,
        "Gemini CLI": GEMINI_CLI,
        "Copilot CLI": COPILOT_CLI,
        "Copilot in VS Code": COPILOT_CHAT,
        "Cline": CLINE,
        "qwen-code": QWEN_CODE,
        "SWE-agent and mini-swe-agent": SWE_AGENT,
        "OpenHands": OPENHANDS,
        "the providers' own tools": PROVIDER_TOOLS,
        "tau-bench": TAU_BENCH,
    }


@cache
def _rows_by_name() -> dict[str, CatalogRows]:
    """All rows by name, built at the first lookup."""
    found: dict[str, list[CatalogRow]] = {}
    for table in tables_by_agent().values():
        for row in table:
            found.setdefault(row.tool.name, []).append(row)
    return {name: tuple(same) for name, same in found.items()}
