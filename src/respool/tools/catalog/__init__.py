"""The tools of known agents: one file an agent, one row a tool, told apart by their arguments.

Names clash between agents, so a row holds only for calls that have the arguments it needs; the
first row that fits counts. Nothing is guessed from which agent it might be.
"""

from __future__ import annotations

from functools import cache

from ..declaration import Arguments, Tool
from .row import Row, Rows


def catalogued(name: str, arguments: Arguments) -> Tool | None:
    """What the catalog knows of a call with this name and these arguments."""
    for row in _rows().get(name, ()):
        if row.matches(arguments):
            return row.tool
    return None


def names() -> frozenset[str]:
    """Every name in the catalog."""
    return frozenset(_rows())


def agents() -> dict[str, Rows]:
    """The tables, by the agents' names."""
    from . import (
        apis,
        claude_code,
        cline,
        codex,
        copilot_chat,
        copilot_cli,
        gemini_cli,
        opencode,
        openhands,
        pi,
        qwen_code,
        swe_agent,
        tau_bench,
    )

    return {
        "Claude Code": claude_code.ROWS,
        "Codex": codex.ROWS,
        "pi": pi.ROWS,
        "opencode": opencode.ROWS,
        "Gemini CLI": gemini_cli.ROWS,
        "Copilot CLI": copilot_cli.ROWS,
        "Copilot in VS Code": copilot_chat.ROWS,
        "Cline": cline.ROWS,
        "qwen-code": qwen_code.ROWS,
        "SWE-agent and mini-swe-agent": swe_agent.ROWS,
        "OpenHands": openhands.ROWS,
        "the providers' own tools": apis.ROWS,
        "tau-bench": tau_bench.ROWS,
    }


@cache
def _rows() -> dict[str, Rows]:
    """All rows by name, built with the first call that is looked up."""
    found: dict[str, list[Row]] = {}
    for table in agents().values():
        for row in table:
            found.setdefault(row.tool.name, []).append(row)
    return {name: tuple(same) for name, same in found.items()}
