"""What `respool replay` does: transcripts found and replayed, and the answer written."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from ..replay.calibration import calibrations
from ..replay.one import Options
from ..replay.policies import NONE, USUAL, policy_named
from ..replay.result import Replay
from ..replay.run import Found, Wanted, replay_files
from ..replay.totals import summed
from ..sessions.readers import READERS
from ..sessions.reading import files_below, find, looked_in
from .ending import UNUSABLE, Failure
from .reading import STANDARD, shown_name, write_bytes
from .replay_progress import progress_bar
from .replay_screen import left_lines, show_replay
from .replay_since import moment
from .showing import counted, printable

AGENTS = tuple(sorted(reader.agent for reader in READERS))

_COUNTED = "exactly with o200k for OpenAI's models, by an estimate for others"
_PLAIN = "as characters / 4"
_DOCTYPE = b"<!doctype html>"


class Asked(Struct, frozen=True, kw_only=True):
    """The options of the command, as they were given."""

    paths: tuple[str, ...]
    since: str | None
    agents: tuple[str, ...]
    policies: tuple[str, ...]
    window: int | None
    plain: bool
    as_json: bool
    html: str | None
    jobs: int | None
    quiet: bool


def answer(arguments: Asked) -> None:
    """Replay what was asked for and say what came out; what cannot be used is refused first."""
    wanted = _wanted(arguments)
    _refuse_output(arguments)
    files = _named_files(arguments.paths) if arguments.paths else _own_files(wanted)
    found = _replayed(files, wanted, arguments)
    result = _summed(found, wanted.options)
    _write(result, arguments)
    _say_left(found, arguments, wanted)
    if _is_unusable(arguments.paths, found):
        click.get_current_context().exit(UNUSABLE)


def _wanted(arguments: Asked) -> Wanted:
    """Which sessions are replayed, and how."""
    for agent in arguments.agents:
        if agent not in AGENTS:
            raise Failure(f"--agent: There is no {agent!r}. Known are {', '.join(AGENTS)}.")
    since = None if arguments.since is None else moment(arguments.since.strip())
    options = Options(_chosen(arguments.policies), arguments.plain, arguments.window)
    whole = arguments.as_json or arguments.html is not None
    return Wanted(options, arguments.agents, since, whole)


def _chosen(policies: Sequence[str]) -> tuple[str, ...]:
    """The policies to try, each once, "none" first; a name of no policy's is refused here."""
    chosen = tuple(dict.fromkeys((NONE, *(policies or USUAL))))
    for name in chosen:
        policy_named(name)
    return chosen


def _replayed(files: Sequence[Path], wanted: Wanted, arguments: Asked) -> Found:
    if not files:
        return Found((), ())
    with progress_bar(files, quiet=arguments.quiet) as note:
        return replay_files(files, wanted, arguments.jobs or _cores(), note)


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_unusable(paths: Sequence[str], found: Found) -> bool:
    """Whether a path that was named does not exist, or none of them holds a session."""
    missing = any(not os.path.lexists(path) for path in paths)
    return missing or (bool(paths) and not found.sessions and not found.unselected)


# --- what is read ------------------------------------------------------------------------------


def _named_files(paths: Sequence[str]) -> list[Path]:
    """The files that paths stand for, each once; one that does not exist stays, to be named."""
    files = {file.absolute(): file for path in paths for file in files_below(Path(path))}
    return list(files.values())


def _own_files(wanted: Wanted) -> list[Path]:
    """This machine's transcripts; one that was last written before `since` need not be read."""
    files = dict.fromkeys(find(_home(), wanted.agents or None, os.environ))
    return [file for file in files if wanted.since is None or _written(file) > wanted.since]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise Failure("There is no home folder to look for transcripts in; name a PATH.") from None


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return float("inf")  # it is named when it is read


# --- what is written ---------------------------------------------------------------------------


def _refuse_output(arguments: Asked) -> None:
    """Find out before the work whether the page can be written after it."""
    html = arguments.html
    if html == STANDARD and arguments.as_json:
        raise Failure("Only one of --json and --html can go to standard output.")
    if html is None or html == STANDARD:
        return
    page = Path(html)
    if page.is_dir():
        raise Failure(f"{shown_name(html)}: This is a folder; name a file in it.")
    existed = page.exists()
    try:
        page.open("ab").close()
        if not existed:
            page.unlink()
        elif page.is_file() and not _is_page(page):
            raise Failure(f"{shown_name(html)}: This is no page, and would be lost; name another.")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise Failure(f"{shown_name(html)}: {why or error}.") from None


def _is_page(file: Path) -> bool:
    """Whether a file may be written over: an earlier page, or nothing at all."""
    with file.open("rb") as opened:
        return opened.read(len(_DOCTYPE)).lower() in (b"", _DOCTYPE)


def _summed(found: Found, options: Options) -> Replay:
    return summed(
        found.sessions,
        found.skipped,
        calibrations(growth for session in found.sessions for growth in session.samples),
        counter=_PLAIN if options.plain else _COUNTED,
        policies=options.policies,
        version=_version(),
        duplicates=found.duplicates,
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("respool")
    except PackageNotFoundError:
        return "unknown"


def _write(result: Replay, arguments: Asked) -> None:
    """The page, the JSON or the screen, as asked for."""
    html = arguments.html
    if html is not None:
        from ..replay.page import page  # late: only for those who want it

        write_bytes(html, page(result).encode("utf-8", "backslashreplace"))
        if html != STANDARD:
            click.echo(f"The page is in {shown_name(html)}.", err=True)
    if arguments.as_json:
        click.echo(json.dumps(msgspec.to_builtins(result)))  # with escapes: safe in any encoding
    elif result.sessions and html != STANDARD:
        show_replay(result)


def _say_left(found: Found, arguments: Asked, wanted: Wanted) -> None:
    """Where no screen does: that there was nothing, and what was left out."""
    lines = [] if found.sessions else [_nothing(found, arguments.paths, wanted)]
    shown = found.sessions and not arguments.as_json and arguments.html != STANDARD
    lines += [] if shown or arguments.quiet else left_lines(found.skipped)
    for line in lines:
        click.echo(f"respool: {line}", err=True)


def _nothing(found: Found, paths: Sequence[str], wanted: Wanted) -> str:
    """Why there is no answer."""
    if found.unselected:
        return _unwanted(found.unselected, wanted)
    if paths:
        return "There is no session to replay."
    places = ", ".join(_looked(wanted.agents))
    since = "" if wanted.since is None else " from that time"
    told = f"There is no transcript{since} on this machine. Looked in {places}; name a PATH to"
    return printable(f"{told} read others.")


def _unwanted(count: int, wanted: Wanted) -> str:
    """That sessions are there, but none that was asked for."""
    agents = f"is of {' or '.join(wanted.agents)}" if wanted.agents else ""
    since = "" if wanted.since is None else "ended after that time"
    which = " and ".join(told for told in (agents, since) if told)
    return f"Of {counted(count, 'session')}, none {which}."


def _looked(agents: Sequence[str]) -> list[str]:
    """Where transcripts were looked for, with `~` for the home folder."""
    home = _home()
    looked = [
        "/".join(
            ("~" if base == home else str(base), *([] if place.folder == "." else [place.folder]))
        )
        for base, place in looked_in(home, agents or None, os.environ)
    ]
    return looked or ["no place, for such transcripts have none of their own"]
