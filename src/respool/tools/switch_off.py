"""Settings of known agents that leave a tool's definition out of their requests."""

from __future__ import annotations

import json

_MCP_PREFIX = "mcp__"  # Claude Code and Codex name a server's tool mcp__SERVER__TOOL


def switch_off_line(agent: str, tool: str) -> str:
    """The setting by which an agent stops sending a tool's definition; empty: not known.

    >>> switch_off_line("claude-code", "WebSearch")
    'in .claude/settings.json: {"permissions": {"deny": ["WebSearch"]}}'
    >>> switch_off_line("codex", "mcp__tracker__create")
    'in ~/.codex/config.toml: [mcp_servers.tracker] enabled = false'
    >>> switch_off_line("an agent of mine", "search")
    ''
    """
    name = json.dumps(tool, ensure_ascii=False)
    match agent.lower().replace(" ", "-").replace("_", "-"):
        case "claude-code" | "claude":
            return f'in .claude/settings.json: {{"permissions": {{"deny": [{name}]}}}}'
        case "codex" if server := _mcp_server(tool):
            return f"in ~/.codex/config.toml: [mcp_servers.{server}] enabled = false"
        case "gemini-cli" | "gemini":
            return f'in .gemini/settings.json: {{"tools": {{"exclude": [{name}]}}}}'
        case "opencode":
            return f'in opencode.json: {{"tools": {{{name}: false}}}}'
        case _:
            return ""


def _mcp_server(tool: str) -> str:
    """The MCP server of a tool; empty: it has none."""
    server, separator, _ = tool.removeprefix(_MCP_PREFIX).partition("__")
    return server if tool.startswith(_MCP_PREFIX) and separator else ""
