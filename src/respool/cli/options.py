"""Arguments that commands share: input, format, policy, store, proxy, points in time."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import click

import respool

from ..config import PREFIX, TOKEN, apply_preset
from ..errors import PassedThrough, PolicyError, UnreadableRequest, reject_unknown_keys
from ..policy import NAMES, PRESETS
from ..regex import lazy_compile
from ..wire.base import known_formats
from .console import CommandError, missing_package

if TYPE_CHECKING:
    from ..store import SQLStore, StoreLocation
    from ..store.owned import OwnedStore
    from ..store.reader import StoreReader

STANDARD_STREAM = "-"  # stands for standard input or output
_TRANSCRIPT_HINT = "If this is an agent's transcript: respool replay and respool loops read those."
SLOW_AFTER_SECONDS = 3.0  # seconds of silence
MAX_INPUT_BYTES = 2**30  # far above any request: a larger input is a device or a mistake

file_argument = click.argument("file", metavar="FILE")
format_option = click.option(
    "--format",
    "format",
    type=click.Choice(known_formats()),
    help="The wire format; detected by default.",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Processes of this machine, or Ray: its cores, or the cluster that RAY_ADDRESS names.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_preset_option = click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    help="A named set of settings; --set takes precedence over it.",
)
_policy_option = click.option(
    "--policy",
    "policy_file",
    metavar="PATH",
    help="Take settings from this TOML file only: not from respool.toml or the environment.",
)
_set_option = click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change one setting: --set cap_chars=20000. May be repeated.",
)
_text_option = click.option(
    "--text",
    is_flag=True,
    help="Write calls and results as plain messages: the same as --set rendering=text.",
)


def policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the policy options to a command, and pass it the resulting policy."""

    @functools.wraps(command)
    def with_policy(
        policy_file: str | None,
        preset: str | None,
        changes: Sequence[str],
        text: bool,
        **given: Any,
    ) -> None:
        policy = load_policy(policy_file, preset, changes)
        if text:
            policy = policy.with_values({"rendering": "text"}, "option --text")
        command(policy=policy, **given)

    return _preset_option(_policy_option(_set_option(_text_option(with_policy))))


def tools_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for declared tools to a command."""

    @functools.wraps(command)
    def with_tools(policy_file: str | None, **given: Any) -> None:
        command(tools=_base_policy(policy_file).tools, **given)

    return _policy_option(with_tools)


def load_policy(
    policy_file: str | None, preset: str | None, changes: Sequence[str]
) -> respool.Policy:
    """Load a command's policy: from one file or the usual places, then its options."""
    policy = _base_policy(policy_file)
    if preset is not None:
        policy = apply_preset(policy, preset, "option --preset")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise CommandError(f"--set {change}: write it as KEY=VALUE.")
        policy = policy.with_values({key: _parse_setting(key, text)}, f"option --set {key}")
    return policy


def _base_policy(policy_file: str | None) -> respool.Policy:
    """Load the policy of one file, or of the usual places."""
    if policy_file is None:
        return respool.Policy.load()
    if policy_file in PRESETS and not Path(policy_file).exists():
        raise CommandError(
            f"--policy: There is no file {policy_file}; the preset is --preset {policy_file}."
        )
    return respool.Policy.from_toml(policy_file)


def _parse_setting(key: str, text: str) -> object:
    """Parse a setting's value as in the environment."""
    in_line = tuple(name for name in NAMES if name != "tools")
    reject_unknown_keys("--set: ", [(key, text)], in_line)
    variable = f"{PREFIX}{key.upper()}"
    try:
        return getattr(respool.Policy.from_env({variable: text}), key)
    except PolicyError as error:
        reason = str(error).removeprefix(f"environment {variable}: ")
        raise PolicyError(f"--set: {reason}") from None


def read_input(file: str) -> bytes:
    """Read a file, or standard input."""
    name = display_name(file)
    try:
        data = _read_bytes(file)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}.") from None
    except ValueError:
        raise CommandError(f"{name}: This is no name that a file can have.") from None
    if len(data) > MAX_INPUT_BYTES:
        raise CommandError(f"{name}: This is larger than 1 GB; no request is.")
    if not data or data.isspace():
        raise CommandError(f"{name}: This is empty.")
    return data


def _read_bytes(file: str) -> bytes:
    if file != STANDARD_STREAM:
        with Path(file).open("rb") as source:
            return source.read(MAX_INPUT_BYTES + 1)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise CommandError("Standard input is closed.")
    return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)


def display_name(file: str) -> str:
    """Printable name of a file."""
    return "standard input" if file == STANDARD_STREAM else click.format_filename(file)


def compact_input(
    file: str, data: bytes, format: str | None, policy: respool.Policy
) -> respool.Compaction[bytes]:
    """Compact an input; an unreadable input is an error."""
    with notice_if_slow(file, data):
        out = respool.compact(data, format=format, policy=policy, memo=None)
    if out.report.untouched is not None:
        check_input(file, data, format)
    return out


@contextmanager
def notice_if_slow(file: str, data: bytes) -> Generator[None]:
    """Print a notice on a terminal when the work takes long."""
    line = f"respool: {display_name(file)} has {len(data) / 1e6:.1f} MB; that takes a while"
    waiting = Timer(SLOW_AFTER_SECONDS, click.echo, (line,), {"err": True})
    waiting.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


def check_input(
    file: str, data: bytes, format: str | None
) -> tuple[list[respool.Problem], str | None]:
    """Check an input: its problems, or why it is passed through."""
    try:
        return respool.check(data, format=format), None
    except PassedThrough as why:
        return [], str(why)
    except UnreadableRequest as error:
        hint = f" {_TRANSCRIPT_HINT}" if "trailing characters" in str(error) else ""
        raise CommandError(f"{display_name(file)}: {error}{hint}") from None


def to_json(value: object) -> str:
    """Encode a value as indented ASCII JSON."""
    return json.dumps(value, indent=2)


def write_bytes(path: str, data: bytes) -> None:
    """Write bytes to a file or to standard output."""
    if path != STANDARD_STREAM:
        try:
            Path(path).write_bytes(data)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise CommandError(f"{display_name(path)}: {why or error}.") from None
        return
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise CommandError("Standard output is closed.")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


store_option = click.option(
    "--store",
    "store_file",
    metavar="PATH|URL",
    help="The store's file, or postgresql://…, in place of RESPOOL_STORE or the usual file.",
)


@contextlib.contextmanager
def open_existing_store(store_file: str | None) -> Generator[SQLStore]:
    """Open the existing store; a command never creates one."""
    location = resolve_store_location(store_file)
    if isinstance(location, Path) and not location.exists():
        raise CommandError(
            f"There is no store at {click.format_filename(location)}. It is made when a proxy "
            "first keeps something; if yours is elsewhere, name it with --store or RESPOOL_STORE."
        )
    with open_store_lazily(store_file) as store:
        yield store


@contextlib.contextmanager
def open_or_create_store(store_file: str | None) -> Generator[SQLStore]:
    """Open the store, which is created if need be."""
    from ..store import open_store  # lazily: most commands need no store

    store = open_store(resolve_store_location(store_file))
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def open_recorded_store(store_file: str | None) -> Generator[SQLStore | None]:
    """Open the store to show its records; None if the default one does not exist yet."""
    location = resolve_store_location(store_file)
    if store_file is None and isinstance(location, Path) and not location.exists():
        yield None
        return
    with open_existing_store(store_file) as store:
        yield store


@contextlib.contextmanager
def open_store_lazily(store_file: str | None) -> Generator[SQLStore]:
    """Open the store on first use; another process may create it later."""
    from ..store import open_store  # lazily: most commands need no store

    store = open_store(resolve_store_location(store_file), create=False)
    try:
        yield store
    finally:
        store.close()


def resolve_store_location(store_file: str | None) -> StoreLocation:
    """The store that an option names, or the usual one."""
    from ..store import parse_location, store_location  # lazily: most commands need no store

    named = store_location() if store_file is None else parse_location(store_file)
    return named.expanduser().absolute() if isinstance(named, Path) else named


team_option = click.option(
    "--team", "team_name", metavar="NAME", help="Only what this team has in the store."
)


def as_team(store: SQLStore, name: str | None) -> SQLStore | OwnedStore:
    """The store as a team sees it; the whole store without a name."""
    if name is None:
        return store
    from ..store.owned import OwnedStore  # lazily: few commands are asked for one team

    return OwnedStore(store, store.teams.get(name).owner)


remote_option = click.option(
    "--url",
    metavar="URL",
    help="Ask the proxy at this address, in place of a store here. The team's token, or the "
    "administrator's, is taken from RESPOOL_TOKEN.",
)


@contextlib.contextmanager
def open_reader(
    store_file: str | None, team_name: str | None, url: str | None, *, may_be_missing: bool = False
) -> Generator[StoreReader]:
    """Open the store to read it, as a team sees it, or reach it through a proxy."""
    if url is not None:
        yield _remote_reader(store_file, team_name, url)
        return
    from ..store.reader import LocalReader  # lazily: most commands need no store

    opened = open_store_lazily if may_be_missing else open_existing_store
    with opened(store_file) as store:
        yield LocalReader(as_team(store, team_name))


def _remote_reader(store_file: str | None, team_name: str | None, url: str) -> StoreReader:
    if store_file is not None:
        raise CommandError("--url asks a proxy and --store opens a store: give one of them.")
    if team_name is not None:
        raise CommandError("--team is not for --url: there the token says which team asks.")
    from ..store.remote import RemoteReader  # lazily: few commands ask a proxy

    return RemoteReader(url, os.environ.get(TOKEN))


keep_alive_option = click.option(
    "--keep-alive",
    type=click.FloatRange(0, 1_000),
    default=0.0,
    metavar="DOLLARS",
    help="Spend up to this many dollars a day on requests that keep the cached prompts of paused "
    "conversations alive, where that pays: Anthropic with an API key, never with a login. Off by "
    "default.",
)
observe_option = click.option("--observe", is_flag=True, help="Measure, and change nothing.")
_holdout_share_option = click.option(
    "--holdout",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Send this share of conversations as they came, to compare the others with.",
)
_holdout_aa_option = click.option(
    "--holdout-aa",
    is_flag=True,
    help="Draw the groups of --holdout and compact both: their difference is noise.",
)


def holdout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a holdout; the command gets them as one value."""

    @functools.wraps(command)
    def with_holdout(*, holdout: float, holdout_aa: bool, **given: Any) -> None:
        if holdout_aa and not holdout:
            raise CommandError("--holdout-aa needs the share of the first group: --holdout 0.5.")
        with require_server():
            from ..proxy.server_options import HoldoutOptions  # lazily: it needs the server

        command(holdout=HoldoutOptions(holdout, holdout_aa), **given)

    return _holdout_share_option(_holdout_aa_option(with_holdout))


deadline_option = click.option(
    "--deadline",
    type=click.FloatRange(0.01, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Send a request with the edits made so far if compacting it takes longer.",
)


def upstream_option(names: str) -> Callable[[Any], Any]:
    """Option for the upstream of a provider; `names` are those it may have."""
    return click.option(
        "--upstream",
        "upstreams",
        metavar="NAME=URL",
        multiple=True,
        help=f"Send requests to this URL in place of the provider's own. NAME: {names}. May be "
        "repeated.",
    )


@contextmanager
def require_server() -> Generator[None]:
    """Explain how to install the server if its packages are missing."""
    try:
        yield
    except ImportError as error:
        raise missing_package("The proxy", error, "serve") from None


_AGE = lazy_compile(r"(\d{1,5})([hdwm])")
_UNIT_SECONDS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400}


def parse_duration(text: str, option: str) -> float:
    """Parse `12h`, `90d`, `2w` or `3m` into seconds. A month has 30 days."""
    found = _AGE.fullmatch(text)
    if not found or not int(found[1]):
        raise CommandError(f"{option}: {text!r} is no time such as 12h, 90d, 2w or 3m.")
    return int(found[1]) * _UNIT_SECONDS[found[2]]


def parse_date_or_age(text: str, option: str = "--since") -> float:
    """Parse `2026-11-01` (local midnight), `7d`, `2w`, `3m` or `12h` into seconds since 1970.

    A month has 30 days.
    """
    if ago := _AGE.fullmatch(text):
        return time.time() - int(ago[1]) * _UNIT_SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise CommandError(
            f"{option}: {text!r} is neither a date such as 2026-11-01 nor a time ago such as 7d, "
            "2w or 3m."
        ) from None


def core_count() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_stderr_terminal() -> bool:
    """Report whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]
