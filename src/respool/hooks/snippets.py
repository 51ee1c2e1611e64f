"""What makes an agent call its hook: settings to add, or a file to put beside its others."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .hook_command import AgentName, hook_words

_TIMEOUT_SECONDS = 10  # after which an agent gives its hook up; it gives up itself before
_PLUGIN_FILES = {"opencode": "opencode_plugin.js", "pi": "pi_extension.js"}
_PLACES = {
    "claude": "~/.claude/settings.json",
    "gemini": "~/.gemini/settings.json",
    "opencode": "~/.config/opencode/plugin/respool.js",
    "pi": "~/.pi/agent/extensions/respool.js",
}
_BRIEF_MATCHERS = {"PreCompact": "manual|auto", "SessionStart": "startup|resume|compact"}


def hook_command(agent: AgentName, options: Sequence[str] = ()) -> str:
    """The command that an agent's hook runs, for a shell."""
    words = hook_words(agent, options)
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def install_place(agent: AgentName) -> str:
    """The file that a snippet belongs into."""
    return _PLACES[agent]


def hook_settings(agent: AgentName, options: Sequence[str] = ()) -> dict[str, object]:
    """The settings of Claude Code or Gemini CLI that call the hook."""
    command = hook_command(agent, options)
    if agent == "gemini":
        entry = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS * 1_000}
        return {
            "hooks": {"AfterTool": [{"matcher": ".*", "hooks": [{"name": "respool", **entry}]}]}
        }
    entry = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS}
    matchers = {"PostToolUse": "*", **_BRIEF_MATCHERS}
    hooks = {name: [{"matcher": one, "hooks": [entry]}] for name, one in matchers.items()}
    return {"hooks": hooks}


def snippet(agent: AgentName, options: Sequence[str] = ()) -> str:
    """The settings to add, or the text of the file to put in place."""
    if agent not in _PLUGIN_FILES:
        return json.dumps(hook_settings(agent, options), indent=2) + "\n"
    text = Path(__file__).with_name(_PLUGIN_FILES[agent]).read_text("utf-8")
    return text.replace("[/* COMMAND */]", json.dumps(hook_words(agent, options)))
