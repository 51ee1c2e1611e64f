"""The store as commands use it: found, opened, closed."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .ending import Failure

if TYPE_CHECKING:
    from ..store import SQLiteStore

store_option = click.option(
    "--store",
    "store_file",
    metavar="PATH",
    help="The store's file; by default that of RESPOOL_STORE, or the usual one.",
)


@contextlib.contextmanager
def open_store(store_file: str | None) -> Generator[SQLiteStore]:
    """The store that is there; a command never makes one."""
    path = _path(store_file)
    if not path.exists():
        raise Failure(
            f"There is no store at {click.format_filename(path)}. It is made when a proxy first "
            "keeps something; if yours is elsewhere, name it with --store or RESPOOL_STORE."
        )
    with any_store(store_file) as store:
        yield store


@contextlib.contextmanager
def any_store(store_file: str | None) -> Generator[SQLiteStore]:
    """The store, which may be made later by another process; a command never makes one."""
    from ..store import SQLiteStore  # late: most commands need none

    store = SQLiteStore(_path(store_file), create=False)
    try:
        yield store
    finally:
        store.close()


def _path(store_file: str | None) -> Path:
    from ..store import store_path  # late: most commands need none

    return store_path() if store_file is None else Path(store_file).expanduser().absolute()
