"""Claude Code."""

from __future__ import annotations

from .row import Rows, agents, creates, edits, hits, lists, reads, rows, shells, talks

ROWS: Rows = (
    *shells("Bash Monitor", "command"),
    *rows("PowerShell", "command", kind="run", barrier=True, target="command", content="log"),
    *reads("Read", "file_path", "pages", lines="pages", content="page"),
    *reads("Read", "file_path", lines="offset+limit", page=2_000, numbers=True),
    *reads("NotebookRead", "notebook_path", content="json"),
    *creates("Write", "file_path", "content", numbers=True),
    *edits("Edit MultiEdit Update", "file_path", numbers=True),
    *edits("NotebookEdit", "notebook_path"),
    *hits("Grep", "pattern", "path", {"output_mode": ("content",)}),
    *lists("Grep", "pattern", "path"),
    *lists("Glob", "pattern", "path"),
    *lists("LS", "path", "path"),
    *hits("LSP", "operation", "filePath file_path", operation="operation"),
    *reads("WebFetch", "url", content="page"),
    *hits("WebSearch", "query", "", target="query"),
    *lists("ToolSearch", "query", "", target="query"),
    *rows("BashOutput", "bash_id", kind="run", target="bash_id", content="log"),
    *rows("TaskOutput TaskStop", "task_id", kind="run", target="task_id", content="log"),
    *rows("TaskStop", kind="run", target="shell_id"),
    *rows("Monitor", "description", kind="run", target="description", content="log"),
    *rows("AgentOutputTool", "agentId", kind="run", target="agentId", content="page"),
    *rows("KillShell KillBash", "shell_id", kind="run", target="shell_id"),
    *agents("Task Agent", "prompt", "description"),
    *agents("Workflow", "", "name"),
    *talks("TodoWrite TodoRead TaskCreate TaskUpdate TaskList TaskGet", target="taskId"),
    *talks("EnterPlanMode ExitPlanMode AskUserQuestion ScheduleWakeup SendMessage"),
    *talks("CronCreate CronDelete CronList ListAgents ReportFindings PushNotification"),
    *talks("TeamCreate TeamDelete WaitForMcpServers StructuredOutput"),
    *rows("Artifact", "file_path", kind="run", target="file_path"),
    *talks("Skill SlashCommand", target="skill", content="page"),
    *talks("ListMcpResourcesTool", content="listing"),
    *reads("ReadMcpResourceTool", "uri", content="page"),
    *rows("EnterWorktree ExitWorktree", kind="write", barrier=True),
)
