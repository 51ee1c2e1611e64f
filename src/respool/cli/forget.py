"""`respool forget`: deletes what the store has kept, for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .ending import Failure
from .replay_since import moment
from .showing import counted
from .stored import open_store, store_option

if TYPE_CHECKING:
    from ..store import Forgotten, SQLiteStore

LEFT = 1  # the exit status when bytes of what was deleted are still in the file


@click.command()
@click.option("--all", "everything", is_flag=True, help="Everything there is.")
@click.option("--conversation", metavar="NAME", help="One conversation, as the dashboard names it.")
@click.option("--owner", metavar="HASH", help="All that one API key has left, by its salted hash.")
@click.option("--before", metavar="WHEN", help="What is older: 2026-11-01, 12h, 7d, 2w or 3m.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def forget(
    everything: bool,
    conversation: str | None,
    owner: str | None,
    before: str | None,
    yes: bool,
    store_file: str | None,
) -> None:
    """Delete what was kept: originals, records of requests, facts.

    What is deleted is overwritten in the file and cannot be had again; markers that lead to it
    then lead nowhere. Exit status 1 if another process still holds on to the old bytes.
    """
    named = [one for one in (conversation, owner, before) if one is not None]
    if everything and named:
        raise Failure("Say what to forget: --all, or only what the other options name; not both.")
    if not everything and not named:
        raise Failure("Say what to forget: --all, or --conversation, --owner, --before.")
    until = None if before is None else moment(before, "--before")
    with open_store(store_file) as store:
        _ask(store, yes)
        gone = store.forget(owner=owner, conversation=conversation, before=until)
        _tell(store, gone)
    if not gone.erased:
        click.get_current_context().exit(LEFT)


def _ask(store: SQLiteStore, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        raise Failure("This cannot be undone; say --yes where nobody can be asked.")
    click.confirm(f"Delete this from {store.path}? It cannot be undone", abort=True)


def _tell(store: SQLiteStore, forgotten: Forgotten) -> None:
    click.echo(
        f"Deleted: {counted(forgotten.conversations, 'conversation')}, "
        f"{counted(forgotten.originals, 'original')}, {counted(forgotten.requests, 'record')} of requests."
    )
    if not forgotten.erased:
        click.echo(
            "Their bytes are still in the file, for another process is using it; "
            "they are out once this is run again without one.",
            err=True,
        )
    for file in store.quarantined_files():
        click.echo(f"Not looked into: {click.format_filename(file)}, which is damaged.", err=True)
