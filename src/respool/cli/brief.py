"""`respool brief`: say in short what the agent of a transcript or a request did."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec import Struct

from ..engine import fold_request
from ..errors import PassedThrough, RespoolError
from ..facts import Facts
from ..policy import Policy
from ..sessions.readers import UNKNOWN_AGENT
from ..sessions.session import Skipped
from ..tools import Tools
from .console import CommandError, show
from .loops import read_sessions
from .options import (
    STANDARD_STREAM,
    display_name,
    file_argument,
    format_option,
    read_input,
    tools_option,
)

_NO_CALLS = "There are no calls with results in this."


class _Brief(Struct, frozen=True):
    """The summary of one conversation."""

    session: str  # empty for a request
    text: str


@click.command()
@file_argument
@format_option
@click.option(
    "--tokens",
    type=click.IntRange(50, 100_000),
    default=2_000,
    show_default=True,
    metavar="N",
    help="How long it may be; changed files and open errors are never left out.",
)
@tools_option
def brief(file: str, format: str | None, tokens: int, tools: Tools) -> None:
    """Say what the agent in FILE did: files changed and why, open errors, commands, files read.

    FILE is an agent's transcript, or a request. Such a text replaces the oldest calls when a
    request would not fit its budget or the context window.
    """
    found = _read(file, format, tokens, Policy(tools=tools))
    if len(found) == 1:
        show(found[0].text or _NO_CALLS)
    else:
        show(*(f"{one.session}\n{one.text or _NO_CALLS}" for one in found))


def _read(file: str, format: str | None, tokens: int, policy: Policy) -> list[_Brief]:
    """Describe each conversation of a transcript, or a request."""
    why = ""
    if file != STANDARD_STREAM and format is None:
        found: list[_Brief] = []
        for one in _sessions(file, tokens, policy):
            if isinstance(one, _Brief):
                found.append(one)
            elif one.reason != UNKNOWN_AGENT:
                why = f" ({one.reason})"
        if found:
            return found
    try:
        return [_Brief("", _describe(read_input(file), format, tokens, policy))]
    except PassedThrough as error:
        raise CommandError(f"{display_name(file)}: {error}") from None
    except RespoolError as error:
        told = f"This is no transcript{why}, and no request: {error}"
        raise CommandError(f"{display_name(file)}: {told}") from None


def _sessions(file: str, tokens: int, policy: Policy) -> Iterator[_Brief | Skipped]:
    for one in read_sessions(file):
        if isinstance(one, Skipped):
            yield one
            continue
        name = f"{one.id} ({one.segment})" if one.segment else one.id
        yield _Brief(name, _describe(list(one.messages), one.format, tokens, policy))


def _describe(request: object, format: str | None, tokens: int, policy: Policy) -> str:
    folded = fold_request(
        request, format=format, policy=policy, facts=Facts(), memo=None, passes=()
    )
    return folded.describe_calls(tokens)
