"""Job of `respool replay`: find transcripts, replay them, write the result."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from msgspec import Struct, structs

from ..batch.addresses import EngineName, absolute, is_remote
from ..errors import RespoolError
from ..plugins import installed_version
from ..pricing import calibrations
from ..replay.checkpoint import Checkpoint
from ..replay.input_file import parquet_below, remote_transcripts
from ..replay.policies import DEFAULT_POLICIES, NONE, sender_factory
from ..replay.result import ProxiedTotal, Replay
from ..replay.runner import (
    Execution,
    InputFile,
    Progress,
    ProgressCallback,
    ReplayOptions,
    RunRequest,
    RunResult,
    client_session_id,
    estimate_bytes,
    replay_files,
)
from ..replay.totals import conversation_count, sum_up
from ..sessions.readers import READERS, find_transcripts, search_locations, transcripts_below
from ..store.savings import Saving, add_savings, describe_saving
from .console import EXIT_UNUSABLE, CommandError, escape_unprintable, pluralize
from .options import (
    STANDARD_STREAM,
    core_count,
    display_name,
    is_stderr_terminal,
    open_recorded_store,
    parse_date_or_age,
    write_bytes,
)
from .replay_screen import left_out_lines, show_replay
from .stats import every_conversation, saving_of_conversation


@contextmanager
def progress_bar(files: Sequence[InputFile], *, quiet: bool) -> Generator[ProgressCallback]:
    """Show progress, if standard error is a terminal."""
    if quiet or not files or not is_stderr_terminal():
        yield lambda _: None
        return
    from rich.console import Console  # lazily: only for a terminal
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn())
    total = max(1, sum(map(estimate_bytes, files)))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(_describe_progress(Progress(), len(files)), total=total)
        yield lambda done: bar.update(
            task, completed=done.size, description=_describe_progress(done, len(files))
        )


def _describe_progress(done: Progress, files: int) -> str:
    counted = f"{done.files:,} of {files:,} files"
    return f"{counted}, {done.sessions:,} sessions, {done.requests:,} requests"


AGENTS = tuple(sorted(reader.agent for reader in READERS))

_COUNTER_NOTE = "exactly with o200k for OpenAI's models, by an estimate for others"
_PLAIN_COUNTER_NOTE = "as characters / 4"
_DOCTYPE = b"<!doctype html>"


class ReplayArguments(Struct, frozen=True, kw_only=True):
    """Options of the command as given."""

    paths: tuple[str, ...]
    since: str | None
    agents: tuple[str, ...]
    policies: tuple[str, ...]
    window: int | None
    detail: bool
    plain: bool
    as_json: bool
    html: str | None
    jobs: int | None
    engine: EngineName
    checkpoint: str | None
    quiet: bool


def run_replay(arguments: ReplayArguments) -> None:
    """Validate the options, replay the sessions, write the result."""
    wanted = _selection(arguments)
    _refuse_unwritable_output(arguments)
    files: Sequence[InputFile] = (
        _named_files(arguments.paths) if arguments.paths else _local_files(wanted)
    )
    proxied = read_proxied_sessions()
    wanted = structs.replace(wanted, is_proxied=proxied)
    found = _replay_files(files, wanted, arguments)
    result = _total_result(found, wanted.options)
    if proxied is not None:
        result = structs.replace(result, proxied=_proxied_total(result, proxied))
    _write_result(result, arguments)
    _print_left_out(found, arguments, wanted)
    if _is_unusable(arguments.paths, found):
        click.get_current_context().exit(EXIT_UNUSABLE)


class ProxiedSessions(Struct, frozen=True):
    """Sessions of which the store has records, by the hashes of their ids."""

    owners: tuple[str, ...]
    savings: dict[str, Saving]  # by the hash

    def __call__(self, session: str) -> bool:
        """Report whether a session with this id went through respool."""
        return bool(self.hashes_of(session))

    def hashes_of(self, session: str) -> set[str]:
        """The hashes that a session has in the store."""
        from ..proxy.auth import keyed_hash  # lazily: nothing else of the proxy is needed

        id = session.encode("utf-8", "surrogatepass")
        found = (keyed_hash(owner.encode(), "session", id) for owner in self.owners)
        return {one for one in found if one in self.savings}


def read_proxied_sessions() -> ProxiedSessions | None:
    """Read which sessions went through respool; None: none did, or the store cannot be read."""
    savings: dict[str, Saving] = {}
    owners: set[str] = set()
    try:
        with open_recorded_store(None) as store:
            for one in every_conversation(store) if store is not None else ():
                if one.session and store is not None:
                    held = savings.get(one.session, Saving())
                    savings[one.session] = add_savings((held, saving_of_conversation(store, one)))
                    owners.add(one.owner)
    except (RespoolError, OSError):
        return None
    return ProxiedSessions(tuple(sorted(owners)), savings) if savings else None


def _proxied_total(result: Replay, proxied: ProxiedSessions) -> ProxiedTotal | None:
    """Saving of the replayed sessions that went through respool, by the store's records."""
    sessions = [one for one in result.sessions if one.proxied]
    if not sessions:
        return None
    ids = {client_session_id(one.id) for one in sessions}
    hashes = {each for id in ids for each in proxied.hashes_of(id)}
    saving = add_savings(proxied.savings[one] for one in sorted(hashes))
    return ProxiedTotal(
        conversations=conversation_count(sessions),
        saving=saving.to_dict(),
        stated=describe_saving(saving),
    )


def _selection(arguments: ReplayArguments) -> RunRequest:
    """Sessions to replay and how."""
    for agent in arguments.agents:
        if agent not in AGENTS:
            raise CommandError(f"--agent: There is no {agent!r}. Known are {', '.join(AGENTS)}.")
    since = None if arguments.since is None else parse_date_or_age(arguments.since.strip())
    options = ReplayOptions(_policy_names(arguments.policies), arguments.plain, arguments.window)
    whole = arguments.as_json or arguments.html is not None
    return RunRequest(options, arguments.agents, since, whole)


def _policy_names(policies: Sequence[str]) -> tuple[str, ...]:
    """Policies to try, each once, "none" first; an unknown name is an error."""
    chosen = tuple(dict.fromkeys((NONE, *(policies or DEFAULT_POLICIES))))
    for name in chosen:
        sender_factory(name)
    return chosen


def _replay_files(
    files: Sequence[InputFile], wanted: RunRequest, arguments: ReplayArguments
) -> RunResult:
    if not files:
        return RunResult((), ())
    with progress_bar(files, quiet=arguments.quiet) as note:
        return replay_files(files, wanted, _execution_of(arguments), note)


def _execution_of(arguments: ReplayArguments) -> Execution:
    folder = arguments.checkpoint
    checkpoint = None if folder is None else Checkpoint(absolute(folder))
    return Execution(arguments.jobs or core_count(), arguments.engine, checkpoint)


def _is_unusable(paths: Sequence[str], found: RunResult) -> bool:
    """Report whether a named path is missing, or no path holds a session."""
    skipped = {one.source for one in found.skipped}
    missing = any(
        path in skipped if is_remote(path) else not os.path.lexists(path) for path in paths
    )
    return missing or (bool(paths) and not found.sessions and not found.unselected)


def _named_files(paths: Sequence[str]) -> list[InputFile]:
    """Files of the given paths and addresses, each once; a missing one stays, to be reported."""
    found = (file for path in paths for file in _files_of(path))
    return list({absolute(str(file)): file for file in found}.values())


def _files_of(path: str) -> Iterator[InputFile]:
    if is_remote(path):
        yield from remote_transcripts(path)
        return
    tables = [*parquet_below(Path(path))]
    others = transcripts_below(Path(path))
    yield from (file for file in others if not (tables and file == Path(path)))
    yield from tables


def _local_files(wanted: RunRequest) -> list[Path]:
    """This machine's transcripts that were written after `since`."""
    files = dict.fromkeys(find_transcripts(_home_folder(), wanted.agents or None, os.environ))
    return [file for file in files if wanted.since is None or _modified_at(file) > wanted.since]


def _home_folder() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise CommandError(
            "There is no home folder to look for transcripts in; name a PATH."
        ) from None


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return float("inf")  # reading it reports the error


def _refuse_unwritable_output(arguments: ReplayArguments) -> None:
    """Refuse an unwritable output before the work starts."""
    html = arguments.html
    if html == STANDARD_STREAM and arguments.as_json:
        raise CommandError("Only one of --json and --html can go to standard output.")
    if html is None or html == STANDARD_STREAM:
        return
    page = Path(html)
    if page.is_dir():
        raise CommandError(f"{display_name(html)}: This is a folder; name a file in it.")
    existed = page.exists()
    try:
        page.open("ab").close()
        if not existed:
            page.unlink()
        elif page.is_file() and not _is_page(page):
            raise CommandError(
                f"{display_name(html)}: This is no page, and would be lost; name another."
            )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise CommandError(f"{display_name(html)}: {why or error}.") from None


def _is_page(file: Path) -> bool:
    """Report whether a file may be overwritten: an earlier page, or an empty file."""
    with file.open("rb") as opened:
        return opened.read(len(_DOCTYPE)).lower() in (b"", _DOCTYPE)


def _total_result(found: RunResult, options: ReplayOptions) -> Replay:
    return sum_up(
        found.sessions,
        found.skipped,
        calibrations(growth for session in found.sessions for growth in session.samples),
        counter=_PLAIN_COUNTER_NOTE if options.plain else _COUNTER_NOTE,
        policies=options.policies,
        version=installed_version(),
        duplicates=found.duplicates,
    )


def _write_result(result: Replay, arguments: ReplayArguments) -> None:
    """Write the page, the JSON or the screen."""
    html = arguments.html
    if html is not None:
        from ..replay.page import render_page  # lazily: only for --html

        write_bytes(html, render_page(result).encode("utf-8", "backslashreplace"))
        if html != STANDARD_STREAM:
            click.echo(f"The page is in {display_name(html)}.", err=True)
    if arguments.as_json:
        click.echo(json.dumps(msgspec.to_builtins(result)))  # ASCII: safe in any encoding
    elif result.sessions and html != STANDARD_STREAM:
        show_replay(result, detail=arguments.detail)


def _print_left_out(found: RunResult, arguments: ReplayArguments, wanted: RunRequest) -> None:
    """Print what was left out, where no screen shows it."""
    lines = [] if found.sessions else [_describe_empty(found, arguments.paths, wanted)]
    shown = found.sessions and not arguments.as_json and arguments.html != STANDARD_STREAM
    lines += [] if shown or arguments.quiet else left_out_lines(found.skipped)
    for line in lines:
        click.echo(f"respool: {line}", err=True)


def _describe_empty(found: RunResult, paths: Sequence[str], wanted: RunRequest) -> str:
    """Explain why there is no result."""
    if found.unselected:
        return _describe_unwanted(found.unselected, wanted)
    if paths:
        return "There is no session to replay."
    places = ", ".join(_searched_folders(wanted.agents))
    since = "" if wanted.since is None else " from that time"
    message = f"There is no transcript{since} on this machine. Looked in {places}; name a PATH to"
    return escape_unprintable(f"{message} read others.")


def _describe_unwanted(count: int, wanted: RunRequest) -> str:
    """Explain that no session matches the options."""
    agents = f"is of {' or '.join(wanted.agents)}" if wanted.agents else ""
    since = "" if wanted.since is None else "ended after that time"
    which = " and ".join(condition for condition in (agents, since) if condition)
    return f"Of {pluralize(count, 'session')}, none {which}."


def _searched_folders(agents: Sequence[str]) -> list[str]:
    """Folders that were searched, with `~` for the home folder."""
    home = _home_folder()
    looked = [
        "/".join(
            ("~" if base == home else str(base), *([] if place.folder == "." else [place.folder]))
        )
        for base, place in search_locations(home, agents or None, os.environ)
    ]
    return looked or ["no place, for such transcripts have none of their own"]
