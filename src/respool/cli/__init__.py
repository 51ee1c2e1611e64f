"""The command line: one file per command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .brief import brief
from .check import check
from .compact import compact
from .completion import completion
from .console import CommandGroup
from .demo import demo
from .docs import docs, page_of_command
from .doctor import doctor
from .expand import expand
from .explain import explain
from .forget import forget
from .hook import hook
from .install import install, uninstall
from .loops import loops
from .mcp import mcp
from .replay import replay
from .run import run
from .search import search
from .serve import serve
from .settings import settings
from .stats import stats
from .status import status
from .statusline import statusline

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


@click.group(cls=CommandGroup, context_settings=_CONTEXT_SETTINGS)
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


for _command in (
    compact,
    explain,
    check,
    replay,
    loops,
    brief,
    run,
    install,
    uninstall,
    serve,
    hook,
    status,
    stats,
    statusline,
    doctor,
    mcp,
    expand,
    search,
    forget,
    demo,
    docs,
    settings,
    completion,
):
    main.add_command(_command)

for _name, _command in main.commands.items():
    _command.epilog = f"More: respool docs {page_of_command(_name)}"

__all__ = ["drop_working_directory", "main"]
