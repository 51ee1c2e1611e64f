"""`respool expand`: print the original behind a marker, from the store or a file of originals."""

from __future__ import annotations

import json
import re
from typing import cast

import click

import respool

from ..markers import find_marker
from ..regex import lazy_compile
from .console import CommandError, escape_unprintable, is_terminal
from .options import (
    STANDARD_STREAM,
    display_name,
    open_reader,
    read_input,
    remote_option,
    resolve_store_location,
    store_option,
    write_bytes,
)

_REF = lazy_compile(r"[a-z2-7]{4,20}", re.ASCII)
_RANGE = lazy_compile(r"(\d{1,9})(?:[:-](\d{1,9})?)?", re.ASCII)
_LAST_LINE = 10**9


@click.command()
@click.argument("ref", metavar="REF")
@click.option(
    "--lines", metavar="A:B", help="Only these lines, counted from 1; A: means up to the end."
)
@click.option("--pattern", metavar="REGEX", help="Only lines that match this regular expression.")
@click.option(
    "--originals",
    metavar="PATH",
    help="Look in the file that respool compact --originals wrote, in place of the store.",
)
@store_option
@remote_option
def expand(
    ref: str,
    *,
    lines: str | None,
    pattern: str | None,
    originals: str | None,
    store_file: str | None,
    url: str | None,
) -> None:
    """Write the original behind a marker's REF, exactly as it was.

    REF is the reference in the marker, its first characters (four or more) if no other reference
    begins so, or the whole marker in quotes.
    """
    marker = find_marker(ref.strip())
    ref = ref.strip() if marker is None else marker.ref
    if not _REF.fullmatch(ref):
        raise CommandError(
            f"{ref!r} is no reference; one has twenty characters, of a-z and 2-7. The first four "
            "are enough if no other begins so."
        )
    wanted = None if lines is None else _parse_lines(lines)
    if url is not None and originals is not None:
        raise CommandError("--url asks a proxy and --originals reads a file: give one of them.")
    if originals is None:
        text = _load_from_store(ref, store_file, url)
    else:
        text = _load_from_file(ref, originals)
    text = _select(ref, text, wanted, pattern)
    if is_terminal():  # a tool's output must not control the terminal
        click.echo(escape_unprintable(text), nl=not text.endswith("\n"))
    else:
        write_bytes(STANDARD_STREAM, text.encode("utf-8", "surrogatepass"))


def _load_from_store(ref: str, store_file: str | None, url: str | None) -> str:
    """Load an original from the store, or through a proxy."""
    from ..store import resolve_name  # lazily: most commands need no store

    with open_reader(store_file, None, url) as reader:
        ref = resolve_name(reader, "reference", ref)
        text = reader.original(ref)
    if text is None:
        where = f"in {resolve_store_location(store_file)}" if url is None else "there"
        raise CommandError(
            f"No original is kept under {ref} {where}. "
            "It was never there, is too old, or was forgotten."
        )
    return text


def _load_from_file(ref: str, file: str) -> str:
    """Load an original from a file of originals."""
    try:
        found: object = json.loads(read_input(file))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CommandError(
            f"{display_name(file)}: This is no file that respool compact --originals wrote."
        )
    from ..store import choose_name  # lazily: most commands need no store

    kept = cast(dict[str, object], found)
    ref = choose_name("reference", ref, kept)
    text = kept.get(ref)
    if not isinstance(text, str):
        raise CommandError(f"{display_name(file)}: No original is kept under {ref} in it.")
    return text


def _select(ref: str, text: str, lines: tuple[int, int] | None, pattern: str | None) -> str:
    try:
        return respool.expand(ref, {ref: text}, lines=lines, pattern=pattern)
    except ValueError as error:
        raise CommandError(str(error).replace(f"lines={lines!r}", "--lines")) from None


def _parse_lines(text: str) -> tuple[int, int]:
    """Parse `3:7`, `3:` or `3` into the first and the last line."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise CommandError(
            f"--lines: {text!r} is not allowed; write 3:7, or 3: for all from there on."
        )
    first = int(found[1])
    last = int(found[2] or (first if text.isdigit() else _LAST_LINE))
    if not 1 <= first <= last:
        raise CommandError(
            f"--lines: {text!r} is not allowed; lines count from 1, the first one first."
        )
    return first, last
