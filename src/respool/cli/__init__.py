"""The command line: one file per command."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from .console import CommandGroup, CommandTable

# By name, each in the file of that name: what the list of commands says of it.
_COMMANDS = {
    "compact": "Write FILE with a smaller tool history.",
    "explain": "Explain what respool would do to FILE, and why.",
    "check": "List what the provider would reject in FILE.",
    "replay": "Say what past sessions cost, and what respool would have saved.",
    "loops": "List the loops of the agent in FILE.",
    "brief": "Say what the agent in FILE did.",
    "run": "Run an agent with a proxy of its own.",
    "install": "Send an agent's requests through respool for good.",
    "uninstall": "Undo what respool install has changed.",
    "serve": "Serve the proxy and its dashboard.",
    "hook": "Shape an agent's results as they arrive, without a proxy.",
    "status": "Show the proxy, the store and what was saved, on one screen.",
    "stats": "Show what respool saved, by time, agent and project.",
    "statusline": "Print a line for Claude Code's status line.",
    "doctor": "Check the installation, and say what to do.",
    "mcp": "Let an agent expand and find originals by itself.",
    "expand": "Write the original that a marker leads to.",
    "search": "Find originals in the store by their words.",
    "team": "Manage teams, their tokens, settings and quotas.",
    "forget": "Delete stored originals, records of requests and facts.",
    "demo": "Show what respool does on a bundled example.",
    "docs": "Show the documentation.",
    "settings": "Show every setting, its value and its origin.",
    "completion": "Print the completion script of a shell.",
}
_FILES = {"uninstall": "install"}  # of commands that are in another's file
_CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the installed version and end."""
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version  # lazily: few commands need it

    try:
        click.echo(f"respool {version('respool')}")
    except PackageNotFoundError:
        click.echo("respool, not installed as a package")
    context.exit()


def _load(name: str) -> click.Command:
    """Import a command."""
    from .docs import page_of_command

    command: click.Command = getattr(import_module(f".{_FILES.get(name, name)}", __name__), name)
    command.epilog = f"More: respool docs {page_of_command(name)}"
    return command


@click.group(
    cls=CommandGroup, commands=CommandTable(_COMMANDS, _load), context_settings=_CONTEXT_SETTINGS
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Make an agent's tool history smaller on its way to the model.

    \b
    Start with one of these:
      respool demo           shows what it does, on an example
      respool replay         shows what your past sessions cost
      respool run -- claude  runs an agent with it
      respool docs           lists the documentation

    FILE is the body of a request to a provider, or a list of messages, in JSON. A dash (-) reads it
    from standard input.

    Exit status: 0 on success; 1 if check or doctor found problems, or search found nothing; 2 if
    the input or an option cannot be used.
    """


def drop_working_directory() -> None:
    """Import nothing more from the working directory, which `python -m` searches first.

    Lazy imports and worker processes would run what a repository puts there. It stays if respool
    itself is in it.
    """
    first = sys.path[0] if sys.path and not sys.flags.safe_path else None
    if first in ("", str(Path.cwd())) and Path(__file__).parents[2] != Path.cwd():
        del sys.path[0]


__all__ = ["drop_working_directory", "main"]
