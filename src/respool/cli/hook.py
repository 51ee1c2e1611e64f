"""`respool hook`: shape a tool's result inside an agent, without a proxy."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import click

from ..hooks.hook_client import MAX_SECONDS
from ..hooks.hook_command import AGENTS, AgentName, hook_words

_ENDED = 0  # a hook never fails: an agent would take that for the result of its tool


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option(
    "--print",
    "wants_snippet",
    is_flag=True,
    help="Print the settings, or the file, that make the agent call this.",
)
@click.option(
    "--expand-tool",
    metavar="NAME",
    help="Name this tool in markers: respool's MCP tool as the agent knows it.",
)
def hook(agent: AgentName, wants_snippet: bool, expand_tool: str | None) -> None:
    """Shape the result that AGENT has just got, as its hook.

    The agent runs this; --print shows what it needs for that. It reads the event from standard
    input and prints the answer, or nothing where the result stays as it is. The original is kept
    in the store: respool expand gives it back. Claude Code also gets a brief of the conversation
    before and after its own compaction.
    """
    options = () if expand_tool is None else ("--expand-tool", expand_tool)
    if wants_snippet:
        from ..hooks.snippets import install_place, snippet  # lazily: a hook has no time for it

        click.echo(f"For {install_place(agent)}:", err=True)
        click.echo(snippet(agent, options), nl=False)
        return
    if sys.platform != "win32":
        words = hook_words(agent, options)
        os.execv(words[0], words)  # noqa: S606 - the client, which asks the resident process
    _answer_directly([agent, *options])


def _answer_directly(arguments: list[str]) -> None:
    """Answer in this process, within the deadline."""
    found: list[bytes] = []
    working = threading.Thread(target=_answer, args=(arguments, found), daemon=True)
    working.start()
    working.join(MAX_SECONDS)
    sys.stdout.buffer.write(found[0] if found else b"")
    sys.stdout.buffer.flush()
    os._exit(_ENDED)


def _answer(arguments: list[str], found: list[bytes]) -> None:
    from ..hooks.responder import HookCall, Responder

    data = sys.stdin.buffer.read()
    try:
        call = HookCall(
            arguments=arguments, folder=str(Path.cwd()), environ=dict(os.environ), data=data
        )
        found.append(Responder().answer(call))
    except Exception:  # noqa: BLE001, S110 - law 9: an agent goes on without its hook
        pass
