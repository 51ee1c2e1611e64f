"""Settings of known agents that leave a tool's definition out of their requests.

Each is checked with the real agents: tests/e2e/test_switch_off.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

_MCP_PREFIX = "mcp__"  # Claude Code and Codex name a server's tool mcp__SERVER__TOOL
# Without its search Claude Code sends the definitions of all tools that it had deferred.
_CLAUDE_SEARCH: Final = frozenset({"ToolSearch", "DeferredToolPlaceholder"})
_CODEX_FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "goals": ("create_goal", "get_goal", "update_goal"),
    "multi_agent": ("close_agent", "resume_agent", "send_input", "spawn_agent", "wait_agent"),
    "view_image": ("view_image",),
}
_OPENCODE_EDITS: Final = ("apply_patch", "edit", "patch", "write")  # one setting for all


def switch_off_line(agent: str, tool: str) -> str:
    """The setting by which an agent stops sending a tool's definition; empty: not known.

    >>> switch_off_line("claude-code", "WebSearch")
    'in .claude/settings.json: {"permissions": {"deny": ["WebSearch"]}}'
    >>> switch_off_line("codex", "mcp__tracker__create")
    'in ~/.codex/config.toml under [mcp_servers.tracker]: enabled = false'
    >>> switch_off_line("codex", "get_goal")
    'in ~/.codex/config.toml under [features]: goals = false (with create_goal, update_goal)'
    >>> switch_off_line("an agent of mine", "search")
    ''
    """
    name = json.dumps(tool, ensure_ascii=False)
    match agent.lower().replace(" ", "-").replace("_", "-"):
        case "claude-code" | "claude" if tool not in _CLAUDE_SEARCH:
            return f'in .claude/settings.json: {{"permissions": {{"deny": [{name}]}}}}'
        case "codex":
            return _codex_line(tool)
        case "gemini-cli" | "gemini":
            return f'in .gemini/settings.json: {{"tools": {{"exclude": [{name}]}}}}'
        case "opencode" if tool in _OPENCODE_EDITS:
            return f'in opencode.json: {{"tools": {{"edit": false}}}}{_with(tool, _OPENCODE_EDITS)}'
        case "opencode":
            return f'in opencode.json: {{"tools": {{{name}: false}}}}'
        case _:
            return ""


def _codex_line(tool: str) -> str:
    if tool == "web_search":
        return 'in ~/.codex/config.toml: web_search = "disabled"'
    if server := _mcp_server(tool):
        return f"in ~/.codex/config.toml under [mcp_servers.{server}]: enabled = false"
    for feature, tools in _CODEX_FEATURES.items():
        if tool in tools:
            line = f"in ~/.codex/config.toml under [features]: {feature} = false"
            return f"{line}{_with(tool, tools)}"
    return ""


def _with(tool: str, tools: tuple[str, ...]) -> str:
    """What else a setting switches off."""
    others = ", ".join(one for one in tools if one != tool)
    return f" (with {others})" if others else ""


def _mcp_server(tool: str) -> str:
    """The MCP server of a tool; empty: it has none."""
    server, separator, _ = tool.removeprefix(_MCP_PREFIX).partition("__")
    return server if tool.startswith(_MCP_PREFIX) and separator else ""
