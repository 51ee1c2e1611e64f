"""`clew expand`: the original behind a marker, out of the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

import clew

from .ending import Failure
from .reading import STANDARD, write_bytes
from .showing import is_terminal, printable
from .stored import open_store, store_option

if TYPE_CHECKING:
    from ..store import SQLiteStore

_REF = re.compile(r"[a-z2-7]{20}", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})?)?", re.ASCII)
_LAST = 10**9


@click.command()
@click.argument("ref", metavar="REF")
@click.option("--lines", metavar="A:B", help="Only these lines, from 1 on; A: means up to the end.")
@click.option("--pattern", metavar="REGEX", help="Only lines in which this is found.")
@store_option
def expand(ref: str, lines: str | None, pattern: str | None, store_file: str | None) -> None:
    """Write the original that a marker's REF leads to, exactly as it was."""
    if not _REF.fullmatch(ref):
        raise Failure(f"{ref!r} is no reference; one has twenty characters, of a-z and 2-7.")
    wanted = None if lines is None else _lines(lines)
    with open_store(store_file) as store:
        text = _expanded(store, ref, wanted, pattern)
    if is_terminal():  # which must not be steered by what a tool printed
        click.echo(printable(text), nl=not text.endswith("\n"))
    else:
        write_bytes(STANDARD, text.encode("utf-8", "surrogatepass"))


def _expanded(
    store: SQLiteStore, ref: str, lines: tuple[int, int] | None, pattern: str | None
) -> str:
    text = store.original(ref, None)
    if text is None:
        raise Failure(
            f"No original is kept under {ref} in {store.path}. "
            "It was never there, is too old, or was forgotten."
        )
    try:
        return clew.expand(ref, {ref: text}, lines=lines, pattern=pattern)
    except ValueError as error:
        raise Failure(str(error)) from None


def _lines(text: str) -> tuple[int, int]:
    """`3:7`, `3:` or `3`, as the first and the last line."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise Failure(f"--lines: {text!r} is not allowed; write 3:7, or 3: for all from there on.")
    first = int(found[1])
    return first, int(found[2] or (_LAST if ":" in text else first))
