"""The agents that have a hook, and the command that each runs as its hook.

It imports little: `respool hook` has no time for more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from . import hook_client

AgentName = Literal["claude", "gemini", "opencode", "pi"]
AGENTS: tuple[AgentName, ...] = ("claude", "gemini", "opencode", "pi")


def hook_words(agent: AgentName, options: Sequence[str] = ()) -> list[str]:
    """The command that an agent's hook runs, as words."""
    if sys.platform == "win32":  # where there is no resident process
        return [sys.executable, "-m", "respool", "hook", agent, *options]
    return [sys.executable, "-I", "-S", str(Path(hook_client.__file__).resolve()), agent, *options]
