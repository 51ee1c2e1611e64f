"""The options that `respool serve` and `respool run` share, and the packages both need."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import click

from .ending import missing

observe_option = click.option("--observe", is_flag=True, help="Measure, and change nothing.")
deadline_option = click.option(
    "--deadline",
    type=click.FloatRange(0.01, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may wait for its compaction; then it goes with the edits in force.",
)


def upstream_option(hint: str) -> Callable[[Any], Any]:
    """Where requests go in place of the provider; `of` says how that is written."""
    return click.option(
        "--upstream",
        "upstreams",
        metavar="NAME=URL",
        multiple=True,
        help=f"Where requests go in place of the provider{hint}. May be repeated.",
    )


@contextmanager
def needing_server() -> Generator[None]:
    """Say how the server is installed, if what is imported inside is not there."""
    try:
        yield
    except ImportError as error:
        raise missing("The proxy", error, "serve") from None
