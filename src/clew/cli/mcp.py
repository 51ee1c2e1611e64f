"""`clew mcp`: originals and history for agents, over the Model Context Protocol."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from .ending import Failure
from .stored import any_store, store_option


@click.command()
@store_option
def mcp(store_file: str | None) -> None:
    """Let an agent get originals back by itself.

    Speaks the Model Context Protocol over standard input and output; an agent starts it. For
    Claude Code: claude mcp add clew -- clew mcp. For others: docs/mcp.md.
    """
    try:
        from ..mcp_server.server import serve_stdio  # late: no other command needs the SDK
    except ImportError as error:
        raise Failure(
            f"The server needs {error.name}, which is not installed: pip install 'clew[mcp]'."
        ) from None
    with any_store(store_file) as store:
        serve_stdio(store, _version())


def _version() -> str:
    try:
        return version("clew")
    except PackageNotFoundError:
        return "0"
