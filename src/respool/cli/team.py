"""`respool team`: teams that share a proxy, their tokens, settings, quotas and retention."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from ..policy import PRESETS
from .console import CommandError, Table, pluralize, show
from .options import (
    json_option,
    open_existing_store,
    open_or_create_store,
    parse_duration,
    store_option,
    to_json,
)

if TYPE_CHECKING:
    from ..store.teams import Team, TeamToken, TeamUsage

_NO_LIMIT = "-"  # in place of a quota or of days

name_argument = click.argument("name", metavar="NAME")


class _Limit(click.ParamType[Any]):
    """A number from 0 on, or `-` for no limit."""

    name = "number"

    def __init__(self, kind: type[int | float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> int | float | str:
        """The number, or `-`."""
        if value == _NO_LIMIT:
            return value
        try:
            return self._kind(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither a number nor -, which stands for no limit.", param, ctx
            )


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for settings, quota and retention of a team."""
    options = (
        click.option(
            "--policy",
            "policy_file",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="TOML file with the team's settings; what it leaves out is the server's.",
        ),
        click.option(
            "--preset", type=click.Choice(tuple(PRESETS)), help="Preset of the team's settings."
        ),
        click.option(
            "--quota-dollars", type=_Limit(float), metavar="D", help="Maximum dollars in a period."
        ),
        click.option(
            "--quota-requests", type=_Limit(int), metavar="N", help="Maximum requests in a period."
        ),
        click.option(
            "--per",
            type=click.Choice(("day", "month")),
            help="Period of the quota, in UTC; of a new team: month.",
        ),
        click.option(
            "--over-quota",
            type=click.Choice(("refuse", "pass")),
            help="Refuse requests over the quota with 429, or send them as they came; of a new "
            "team: refuse.",
        ),
        click.option(
            "--days",
            type=_Limit(float),
            metavar="N",
            help="Days after which conversations are deleted, if fewer than the store's.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def team() -> None:
    """Manage the teams that share a proxy.

    Each team has tokens of its own, sees only its own data, and may have its own settings, quota
    and retention. Once there is a team, the proxy answers no request without a valid token.
    Replicas with the same store see every change within a few seconds.
    """


@team.command("add")
@name_argument
@_settings_options
@store_option
def add(name: str, store_file: str | None, **given: Any) -> None:
    """Add a team; `respool team token` makes its first token."""
    from ..store.teams import new_team  # lazily: most commands need no store

    with open_or_create_store(store_file) as store:
        store.teams.add(new_team(name, time.time(), **_changes(given, None)))
    click.echo(f"Added team {name}. respool team token {name} makes a token for it.")


@team.command("set")
@name_argument
@_settings_options
@store_option
def change(name: str, store_file: str | None, **given: Any) -> None:
    """Change a team; `-` removes a limit."""
    with open_existing_store(store_file) as store:
        changes = _changes(given, store.teams.get(name))
        if not changes:
            raise CommandError("Say what to change: respool team set --help lists it.")
        store.teams.change(name, **changes)
    click.echo(f"Changed team {name}.")


def _changes(given: dict[str, Any], before: Team | None) -> dict[str, Any]:
    """The fields of a team that the options name."""
    from ..store.teams import Quota  # lazily: most commands need no store

    found: dict[str, Any] = {}
    quota = {
        field: _value(given[option])
        for field, option in (
            ("dollars", "quota_dollars"),
            ("requests", "quota_requests"),
            ("period", "per"),
            ("when_over", "over_quota"),
        )
        if given[option] is not None
    }
    if quota:
        old = Quota() if before is None else before.quota
        found["quota"] = Quota(**{**to_builtins(old), **quota})
    if given["days"] is not None:
        found["days"] = _value(given["days"])
    if given["policy_file"] is not None or given["preset"] is not None:
        found["settings"] = _settings(given["policy_file"], given["preset"])
    return found


def _value(given: Any) -> Any:
    return None if given == _NO_LIMIT else given


def _settings(file: Path | None, preset: str | None) -> str:
    """The team's settings as TOML."""
    head = "" if preset is None else f'preset = "{preset}"\n'
    if file is None:
        return head
    try:
        return head + file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CommandError(f"{click.format_filename(file)}: {why}.") from None


@team.command("token")
@name_argument
@click.option("--expires", metavar="TIME", help="Valid for so long: 12h, 90d, 2w or 3m.")
@store_option
def token(name: str, expires: str | None, store_file: str | None) -> None:
    """Make a token of a team and print it, once.

    The store holds only a keyed hash of it. To rotate tokens, make a new one, give it to the
    clients, and revoke the old one: both are valid until then.
    """
    now = time.time()
    until = None if expires is None else now + parse_duration(expires, "--expires")
    with open_existing_store(store_file) as store:
        made, secret = store.teams.issue(name, now, until)
    click.echo(secret)
    valid = "" if until is None else f", valid until {_format_time(until)}"
    click.echo(f"Token {made.id} of team {name}{valid}. It is not shown again.", err=True)


@team.command("revoke")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@store_option
def revoke(ids: tuple[str, ...], store_file: str | None) -> None:
    """Revoke tokens by their ids, which `respool team list` shows."""
    with open_existing_store(store_file) as store:
        for id in ids:
            if not store.teams.revoke(id, time.time()):
                raise CommandError(
                    f"There is no token {id!r:.60}, or it was revoked already; respool team list "
                    "shows all."
                )
            click.echo(f"Revoked token {id}. Running proxies refuse it within a few seconds.")


@team.command("remove")
@name_argument
@click.option("--forget", is_flag=True, help="Delete all that the team has in the store, too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def remove(name: str, *, forget: bool, yes: bool, store_file: str | None) -> None:
    """Remove a team and its tokens.

    Without --forget its data stays under its owner name until the store's retention ends. A new
    team of the same name does not see it.
    """
    from .forget import confirm  # lazily: with the store

    with open_existing_store(store_file) as store:
        owner = store.teams.get(name).owner
        confirm(store, yes, [f"team {name}{' and its data' if forget else ''}"])
        store.teams.remove(name)
        click.echo(f"Removed team {name} and its tokens.")
        if not store.teams.all():
            click.echo(
                "No team is left: without RESPOOL_TOKEN, proxies that start from now on ask "
                "for no token."
            )
        if forget:
            gone = store.forget(owner=owner)
            click.echo(f"Deleted: {pluralize(gone.conversations, 'conversation')}.")
        else:
            click.echo(f"Its data stays: respool forget --owner {owner} deletes it.")


@team.command("list")
@json_option
@store_option
def list_teams(store_file: str | None, *, as_json: bool) -> None:
    """List teams, their use of the quota, and their tokens."""
    with open_existing_store(store_file) as store:
        directory = store.teams.directory(time.time())
        tokens = store.teams.tokens()
    teams = directory.teams
    if as_json:
        rows = [
            {
                **to_builtins(one),
                "used": to_builtins(directory.usage_of(one)),
                "tokens": [_public(token) for token in tokens if token.owner == one.owner],
            }
            for one in teams
        ]
        click.echo(to_json(rows))
        return
    if not teams:
        click.echo("There is no team; respool team add NAME adds one.")
        return
    names = {one.owner: one.name for one in teams}
    show(
        pluralize(len(teams), "team"),
        _team_table(teams, directory.usage_of),
        _token_table([(names[one.owner], one) for one in tokens if one.owner in names]),
    )


def _public(token: TeamToken) -> dict[str, Any]:
    """The fields of a token that may be shown: neither hash nor owner."""
    fields: dict[str, Any] = to_builtins(token)
    return {name: value for name, value in fields.items() if name not in ("hash", "owner")}


def _team_table(teams: tuple[Team, ...], usage_of: Callable[[Team], TeamUsage]) -> Table:
    columns = ("Team", "Used", "Quota", "Per", "Over it", "Days", "Settings")
    rows = [
        (
            one.name,
            f"{pluralize(usage_of(one).requests, 'request')}, ${usage_of(one).dollars:,.2f}",
            _quota(one),
            one.quota.period,
            one.quota.when_over,
            "the store's" if one.days is None else f"{one.days:g}",
            "own" if one.settings else "the server's",
        )
        for one in teams
    ]
    return Table("Teams", columns, rows, no_wrap=frozenset({"Team"}))


def _quota(team: Team) -> str:
    limits: list[str] = []
    if team.quota.requests is not None:
        limits.append(pluralize(team.quota.requests, "request"))
    if team.quota.dollars is not None:
        limits.append(f"${team.quota.dollars:,.2f}")
    return ", ".join(limits) or "none"


def _token_table(tokens: list[tuple[str, TeamToken]]) -> Table:
    columns = ("Token", "Team", "Made", "Last used", "State")
    rows = [
        (one.id, name, _format_time(one.created), _format_time(one.used), _state(one))
        for name, one in tokens
    ]
    return Table("Tokens", columns, rows, no_wrap=frozenset({"Token", "Team"}))


def _state(token: TeamToken) -> str:
    if token.revoked is not None:
        return f"revoked {_format_time(token.revoked)}"
    if token.expires is None:
        return "valid"
    state = "valid until" if token.is_valid(time.time()) else "expired"
    return f"{state} {_format_time(token.expires)}"


def _format_time(time: float | None) -> str:
    if time is None:
        return "never"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")
