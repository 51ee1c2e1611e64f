"""`respool mcp`: serve originals and history to agents over the Model Context Protocol."""

from __future__ import annotations

import signal
import sys

import click

from ..plugins import installed_version
from .console import missing_package
from .options import open_reader, remote_option, store_option, team_option

_TERMINAL_HINT = (
    "respool: This waits for an agent to speak to it, which would start it itself; Ctrl-C ends it."
)


@click.command()
@store_option
@team_option
@remote_option
@click.option(
    "--expand-only",
    is_flag=True,
    help="Offer respool_expand alone, without search and history.",
)
def mcp(
    store_file: str | None, team_name: str | None, url: str | None, *, expand_only: bool
) -> None:
    """Let an agent expand and find originals by itself.

    Speaks the Model Context Protocol over standard input and output; an agent starts it. For
    Claude Code: claude mcp add respool -- respool mcp. For others: respool docs operate/mcp. With
    --url it asks a proxy on another machine; briefs are of this machine's transcripts.
    """
    try:
        from ..mcp_server.server import serve_stdio  # lazily: no other command needs the SDK
    except ImportError as error:
        raise missing_package("The server", error, "mcp") from None
    if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        click.echo(_TERMINAL_HINT, err=True)
    # It only reads the store, and a thread blocked on standard input would delay a normal exit.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with open_reader(store_file, team_name, url, may_be_missing=True) as reader:
            serve_stdio(reader, installed_version(), expand_only=expand_only)
    finally:
        signal.signal(signal.SIGINT, before)
