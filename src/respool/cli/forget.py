"""`respool forget`: delete stored originals, records and facts for good."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .console import CommandError, pluralize
from .options import open_existing_store, parse_date_or_age, store_option

if TYPE_CHECKING:
    from ..store import ForgetResult, SQLStore

EXIT_BYTES_LEFT = 1  # exit status when deleted bytes remain in the file


@click.command()
@click.option("--all", "everything", is_flag=True, help="Everything in the store.")
@click.option(
    "--conversation",
    metavar="NAME",
    help="One conversation, by its name or how that begins.",
)
@click.option(
    "--owner",
    metavar="HASH",
    help="Everything of one API key, by its salted hash.",
)
@click.option("--before", metavar="WHEN", help="Everything older: 2026-11-01, 12h, 7d, 2w or 3m.")
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
    """Delete stored originals, records of requests and facts.

    Deleted data is overwritten in the file and cannot be recovered; markers that refer to it can
    no longer be expanded. Exit status 1 if another process still holds the old bytes.
    """
    named = [one for one in (conversation, owner, before) if one is not None]
    if everything and named:
        raise CommandError(
            "Say what to forget: --all, or only what the other options name; not both."
        )
    if not everything and not named:
        raise CommandError("Say what to forget: --all, or --conversation, --owner, --before.")
    until = None if before is None else parse_date_or_age(before, "--before")
    from ..store import resolve_name  # lazily: most commands need no store

    with open_existing_store(store_file) as store:
        if conversation is not None:
            conversation = resolve_name(store, "conversation", conversation)
        if owner is not None:
            owner = resolve_name(store, "owner", owner)
        confirm(store, yes, [one for one in (conversation, owner, before) if one is not None])
        gone = store.forget(owner=owner, conversation=conversation, before=until)
        _print_result(store, gone)
    if not gone.erased:
        click.get_current_context().exit(EXIT_BYTES_LEFT)


def confirm(store: SQLStore, yes: bool, named: Sequence[str]) -> None:
    """Ask before a deletion."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        raise CommandError("This cannot be undone, and nobody can be asked here: give --yes.")
    what = ", ".join(named) or "everything"
    click.confirm(f"Delete {what} from {store.location}? It cannot be undone", abort=True)


def _print_result(store: SQLStore, forgotten: ForgetResult) -> None:
    click.echo(
        f"Deleted: {pluralize(forgotten.conversations, 'conversation')}, "
        f"{pluralize(forgotten.originals, 'original')}, "
        f"{pluralize(forgotten.requests, 'record')} of requests."
    )
    if not forgotten.erased:
        click.echo(
            "Their bytes are still in the store, for another process is using it; "
            "they are out once this is run again without one.",
            err=True,
        )
    for file in store.quarantined_files():
        click.echo(f"Not searched: {click.format_filename(file)}, which is damaged.", err=True)
