"""`respool search`: find originals in the store by their words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from .console import escape_unprintable
from .options import (
    json_option,
    open_reader,
    remote_option,
    store_option,
    team_option,
    to_json,
)

if TYPE_CHECKING:
    from ..store import SearchHit

EXIT_NOTHING_FOUND = 1


@click.command()
@click.argument("pattern", metavar="PATTERN")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many originals to list, the latest first.",
)
@click.option(
    "--conversation",
    metavar="NAME",
    help="Only in one, by its name or how that begins.",
)
@team_option
@json_option
@store_option
@remote_option
def search(
    *,
    pattern: str,
    limit: int,
    conversation: str | None,
    team_name: str | None,
    as_json: bool,
    store_file: str | None,
    url: str | None,
) -> None:
    """List the originals that have all words of PATTERN, with their references.

    Blanks separate words, except between double quotes. A word is found as it is written, with its
    punctuation, where a word begins; case does not matter. Exit status 1 if nothing is found.
    """
    from ..store import resolve_name  # lazily: most commands need no store

    with open_reader(store_file, team_name, url) as reader:
        if conversation is not None:
            conversation = resolve_name(reader, "conversation", conversation)
        result = reader.search(pattern, conversation=conversation, limit=limit)
    if result.note:
        click.echo(f"respool: {result.note}.", err=True)
    if as_json:
        click.echo(to_json([_to_dict(hit) for hit in result.hits]))
    elif result.hits:
        click.echo("\n\n".join(_describe(hit) for hit in result.hits))
    else:
        click.echo("No original has this.", err=True)
    if result.has_more:
        click.echo(f"There are more than {limit:,}; --limit lists more of them.", err=True)
    if not result.hits:
        click.get_current_context().exit(EXIT_NOTHING_FOUND)


def _describe(hit: SearchHit) -> str:
    """Lines of a hit, of which none can control the terminal."""
    call = f"{hit.tool} {hit.target}".strip()
    edit = f"{hit.reason} at {hit.place}" if hit.reason else ""
    source = ": ".join(part for part in (call, edit) if part)
    lines = (
        f"{hit.ref}  {_iso_time(hit.time)}  conversation {hit.conversation}",
        f"  {source}" if source else "",
        f"  line {hit.line}: {hit.snippet}",
    )
    return "\n".join(escape_unprintable(" ".join(line.split("\n"))) for line in lines if line)


def _to_dict(hit: SearchHit) -> dict[str, object]:
    return {
        "ref": hit.ref,
        "conversation": hit.conversation,
        "time": _iso_time(hit.time),
        "tool": hit.tool,
        "target": hit.target,
        "reason": hit.reason,
        "place": hit.place,
        "line": hit.line,
        "snippet": hit.snippet,
    }


def _iso_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
