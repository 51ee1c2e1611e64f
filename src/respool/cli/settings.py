"""`respool settings`: list every setting, its value and its origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import click
from msgspec import UnsetType

import respool

from ..config import word_for_none
from ..plugins import pass_name
from ..policy import ADVANCED, NAMES
from .console import Table, show
from .options import json_option, policy_options, to_json


@click.command()
@policy_options
@json_option
def settings(policy: respool.Policy, as_json: bool) -> None:
    """Show every setting, its value and its origin."""
    origins = policy.origins()
    values = {name: _format_value(policy, name) for name in NAMES}
    values |= {f"tools.{tool.name}": _format_tool(tool) for tool in policy.tools}
    if as_json:
        found = {name: {"value": value, "origin": origins[name]} for name, value in values.items()}
        click.echo(to_json(found))
        return
    rows = [(name, value, origins[name]) for name, value in values.items()]
    columns = ("setting", "value", "from")
    show(
        Table("Settings", columns, [row for row in rows if row[0] not in ADVANCED]),
        Table("Advanced", columns, [row for row in rows if row[0] in ADVANCED]),
    )


def _format_value(policy: respool.Policy, name: str) -> str:
    """Format a value as TOML and the environment spell it."""
    found: object = getattr(policy, name)
    match found:
        case None:
            return word_for_none(name)
        case respool.Tools() as tools:
            return f"{len(tools)} declared"
        case bool(value):
            return str(value).lower()
        case tuple():
            return _format_list(cast(tuple[object, ...], found))
        case _:
            return str(found)


def _format_list(values: Sequence[object]) -> str:
    """Format a list as the environment spells it; a user's pass by its name."""
    return ",".join(pass_name(one) if callable(one) else str(one) for one in values) or "none"


def _format_tool(tool: respool.Tool) -> str:
    cap = "the policy's" if isinstance(tool.cap_chars, UnsetType) else tool.cap_chars
    cap = word_for_none("cap_chars") if cap is None else cap
    return f"cap {cap}, rerun {str(tool.rerun).lower()}"
