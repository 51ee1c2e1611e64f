"""What the commands share: the input, its format, the policy, and where output goes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import click

import respool

from ..codecs.codec import FORMATS
from ..errors import PassedThrough, PolicyError, UnreadableRequest
from ..policy import NAMES
from ..presets import PRESETS
from ..ranges import refuse_unknown
from ..settings import PREFIX, with_preset
from .ending import Failure

STANDARD = "-"  # stands for standard input or output
_TRANSCRIPT = "If this is an agent's transcript: respool replay and respool loops read those."
PATIENCE = 3.0  # seconds without a word
MOST_BYTES = 2**30  # far above any request: more is a device or a mistake

file_argument = click.argument("file", metavar="FILE")
format_option = click.option(
    "--format", "format", type=click.Choice(FORMATS), help="The wire format; told apart by default."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_preset_option = click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    help="A policy by its name; the settings that --set gives hold before it.",
)
_policy_option = click.option(
    "--policy",
    "policy_file",
    metavar="PATH",
    help="Take the settings in this TOML file, and none found in folders or the environment.",
)
_set_option = click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting, spelled as in the environment: --set cap_chars=20000. May be repeated.",
)
_text_option = click.option(
    "--text",
    is_flag=True,
    help="Tell calls and results in plain messages: the same as --set rendering=text.",
)


def takes_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that make up a policy, and the policy they make."""

    @functools.wraps(command)
    def with_policy(
        policy_file: str | None,
        preset: str | None,
        changes: Sequence[str],
        text: bool,
        **given: Any,
    ) -> None:
        policy = chosen_policy(policy_file, preset, changes)
        if text:
            policy = policy.with_values({"rendering": "text"}, "option --text")
        command(policy=policy, **given)

    return _preset_option(_policy_option(_set_option(_text_option(with_policy))))


def takes_tools(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the tools that are declared, and nothing else of a policy."""

    @functools.wraps(command)
    def with_tools(policy_file: str | None, **given: Any) -> None:
        command(tools=_said_by(policy_file).tools, **given)

    return _policy_option(with_tools)


def chosen_policy(
    policy_file: str | None, preset: str | None, changes: Sequence[str]
) -> respool.Policy:
    """The policy of a command: from one file or from all usual places, then its options."""
    policy = _said_by(policy_file)
    if preset is not None:
        policy = with_preset(policy, preset, "option --preset")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise Failure(f"--set {change}: write it as KEY=VALUE.")
        policy = policy.with_values({key: _setting(key, text)}, f"option --set {key}")
    return policy


def _said_by(policy_file: str | None) -> respool.Policy:
    """The policy of one file, or of all usual places."""
    if policy_file is None:
        return respool.Policy.load()
    if policy_file in PRESETS and not Path(policy_file).exists():
        raise Failure(
            f"--policy: There is no file {policy_file}; the preset is --preset {policy_file}."
        )
    return respool.Policy.from_toml(policy_file)


def _setting(key: str, text: str) -> object:
    """What a line of text says for a setting, read as in the environment."""
    in_line = tuple(name for name in NAMES if name != "tools")
    refuse_unknown("--set: ", [(key, text)], in_line)
    variable = f"{PREFIX}{key.upper()}"
    try:
        return getattr(respool.Policy.from_env({variable: text}), key)
    except PolicyError as error:
        told = str(error).removeprefix(f"environment {variable}: ")
        raise PolicyError(f"--set: {told}") from None


def read_input(file: str) -> bytes:
    """The bytes of a file, or of standard input."""
    name = shown_name(file)
    try:
        data = _read(file)
    except OSError as error:
        raise Failure(f"{name}: {error.strerror or error}.") from None
    except ValueError:
        raise Failure(f"{name}: This is no name that a file can have.") from None
    if len(data) > MOST_BYTES:
        raise Failure(f"{name}: This is larger than 1 GB; no request is.")
    if not data or data.isspace():
        raise Failure(f"{name}: This is empty.")
    return data


def _read(file: str) -> bytes:
    if file != STANDARD:
        with Path(file).open("rb") as source:
            return source.read(MOST_BYTES + 1)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise Failure("Standard input is closed.")
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def shown_name(file: str) -> str:
    """A file's name as it can be printed."""
    return "standard input" if file == STANDARD else click.format_filename(file)


def compacted(
    file: str, data: bytes, format: str | None, policy: respool.Policy
) -> respool.Compaction[bytes]:
    """The compaction of an input; what cannot be read at all is an error here."""
    with told_if_long(file, data):
        out = respool.compact(data, format=format, policy=policy, memo=None)
    if out.report.untouched is not None:
        problems_of(file, data, format)
    return out


@contextmanager
def told_if_long(file: str, data: bytes) -> Generator[None]:
    """Say to who waits at a terminal, after a while, that nothing is stuck."""
    line = f"respool: {shown_name(file)} has {len(data) / 1e6:.1f} MB; that takes a while"
    waiting = Timer(PATIENCE, click.echo, (line,), {"err": True})
    waiting.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


def problems_of(
    file: str, data: bytes, format: str | None
) -> tuple[list[respool.Problem], str | None]:
    """The problems of an input, or why it is not judged; what cannot be read is an error."""
    try:
        return respool.check(data, format=format), None
    except PassedThrough as why:
        return [], str(why)
    except UnreadableRequest as error:
        hint = f" {_TRANSCRIPT}" if "trailing characters" in str(error) else ""
        raise Failure(f"{shown_name(file)}: {error}{hint}") from None


def to_json(value: object) -> str:
    """A value as JSON for people and programs; escapes keep it safe in any encoding."""
    return json.dumps(value, indent=2)


def write_bytes(path: str, data: bytes) -> None:
    """Write bytes to a file, or to standard output, and nothing beside them."""
    if path != STANDARD:
        try:
            Path(path).write_bytes(data)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise Failure(f"{shown_name(path)}: {why or error}.") from None
        return
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise Failure("Standard output is closed.")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
