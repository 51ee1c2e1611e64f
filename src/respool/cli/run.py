"""`respool run -- CMD`: run one command with a proxy of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from msgspec.structs import replace

from .console import CommandError, pluralize
from .options import (
    deadline_option,
    holdout_options,
    keep_alive_option,
    observe_option,
    policy_options,
    require_server,
    upstream_option,
)

if TYPE_CHECKING:
    from ..agents.installation import Record
    from ..agents.launch import LaunchSetup
    from ..policy import Policy
    from ..proxy.billing import RunTotals
    from ..proxy.log import CompactionSummary, LogEntry
    from ..proxy.server_options import CompactionOptions, HoldoutOptions

EXIT_NOT_FOUND: Final = 127  # as shells report a missing command
EXIT_NOT_RUNNABLE: Final = 126  # as shells report a command that cannot be run
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LITTLE: Final = 0.05  # share of the tokens: below it the last lines say why no more was saved
SHORT: Final = (
    "the conversations were short, or their tool results hold nothing that may go: "
    "respool explain says more of one request"
)
_DRAIN_SECONDS: Final = 3.0  # seconds: the client has ended


class _CommandNotFound(CommandError):
    exit_code = EXIT_NOT_FOUND


class _CommandNotRunnable(CommandError):
    exit_code = EXIT_NOT_RUNNABLE


class _WarningCollector(logging.Handler):
    """Log handler that holds warnings until the command has ended."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Collect one record."""
        self.count += 1
        self.last = record.getMessage()[:200]


@click.command(context_settings={"allow_interspersed_args": False})
@upstream_option("as for serve")
@observe_option
@holdout_options
@deadline_option
@keep_alive_option
@click.option(
    "--no-mcp",
    is_flag=True,
    help="Do not register respool's MCP server with the agent for the run.",
)
@click.argument("command", metavar="-- CMD…", nargs=-1, required=True, type=click.UNPROCESSED)
@policy_options
@click.pass_context
def run(  # noqa: PLR0913 - each is an option
    ctx: click.Context,
    *,
    upstreams: tuple[str, ...],
    observe: bool,
    holdout: HoldoutOptions,
    deadline: float,
    keep_alive: float,
    no_mcp: bool,
    command: tuple[str, ...],
    policy: Policy,
) -> None:
    """Run an agent so that its requests go through respool.

    This starts a proxy, runs the command, and stops the proxy when the command ends. Claude Code,
    Codex, opencode, pi, Gemini CLI, Qwen Code, Copilot, Continue, aider and mini-swe-agent are
    known by the names of their commands. Any other command gets the variables that most clients
    read, such as ANTHROPIC_BASE_URL. Requests go on to where they went before. The exit status is
    the command's.
    """
    with require_server():
        # lazily: no other command needs the server
        from ..proxy.server import bind
        from ..proxy.server_options import CompactionOptions, ServerOptions
    _refuse_command(command[0])
    options = CompactionOptions(
        policy=policy,
        observe=observe,
        deadline=deadline,
        keep_alive=keep_alive,
        holdout=holdout,
    )
    with tempfile.TemporaryDirectory(prefix="respool-run-") as folder, hold_signals():
        with bind(ServerOptions(port=0)) as listening:
            launch = _Launch(command, upstreams, () if no_mcp or observe else _mcp_command())
            status = _run(launch, options, Path(folder), listening)
        ctx.exit(status)


def _refuse_command(name: str) -> None:
    """Refuse a missing command before anything starts."""
    shown, path = click.format_filename(name), Path(name)
    if shutil.which(name) is not None:
        return
    if os.sep in name and path.exists():
        raise _CommandNotRunnable(
            f"{shown} cannot be run: it is {'a folder' if path.is_dir() else 'no program'}."
        )
    raise _CommandNotFound(f"There is no command {shown} to run.")


class _Launch(NamedTuple):
    """The command to run, the upstreams chosen for it, and the MCP server's command."""

    command: tuple[str, ...]
    upstreams: tuple[str, ...]
    mcp_command: tuple[str, ...]


def _mcp_command() -> tuple[str, ...]:
    """Command of the MCP server on this store; empty if the extra is not installed."""
    from ..store import ServerAddress, store_location  # lazily: as all that this command needs

    if find_spec("mcp") is None:
        return ()
    server = (sys.executable, "-m", "respool", "mcp", "--expand-only")
    location = store_location()
    if isinstance(location, ServerAddress):  # in RESPOOL_STORE: a command line is seen by others
        return server
    return (*server, "--store", str(location))


def _installed() -> Record:
    """What is installed; a damaged record must not keep an agent from running."""
    from ..agents.installation import DamagedRecord, Record, install_folder, read_record

    try:
        return read_record(install_folder(os.environ))
    except DamagedRecord:
        return Record()


def _run(
    launch: _Launch,
    options: CompactionOptions,
    scratch_folder: Path,
    listening: socket.socket,
) -> int:
    """Serve, run the command, print the summary."""
    from ..agents.installation import skip_installed_proxies
    from ..agents.launch import launch_environment, plan_launch
    from ..proxy.app import build_app
    from ..proxy.billing import RunTotals
    from ..proxy.server import serving_in_thread
    from ..proxy.server_options import ServerOptions, TransferLimits, upstreams_of, validated

    token = os.environ.get("RESPOOL_TOKEN") or None
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    url = f"{address}/respool-token/{token}" if token else address
    words, setup = plan_launch(
        launch.command,
        url,
        os.environ,
        scratch_folder,
        Path.cwd(),
        mcp_command=launch.mcp_command,
    )
    going = upstreams_of(launch.upstreams, setup.upstreams, setup.named)
    going = skip_installed_proxies(going, _installed())
    limits = TransferLimits(drain_seconds=_DRAIN_SECONDS)
    server = validated(ServerOptions(port=0, upstreams=going, token=token, limits=limits))
    totals, log, warnings = RunTotals(), RunLog(), _WarningCollector()
    logging.getLogger().addHandler(warnings)
    options = replace(options, agent=setup.agent or "", project=str(Path.cwd()))
    make = partial(build_app, server, options, log.add, listener=totals.add)
    with serving_in_thread(make, listening):
        _print_note(_start_line(launch.command[0], setup, address, observe=options.observe))
        overrides = launch_environment(setup, going)
        status = _start(words, child_environment(os.environ, overrides))
    logging.getLogger().removeHandler(warnings)
    for line in _end_lines(setup, totals, log, warnings, observe=options.observe):
        _print_note(line)
    return status


def _start(arguments: tuple[str, ...], environment: Mapping[str, str]) -> int:
    try:
        return run_in_foreground(_resolve_executable(arguments), environment)
    except FileNotFoundError:
        raise _CommandNotFound(
            f"There is no command {click.format_filename(arguments[0])} to run."
        ) from None
    except OSError as error:
        why = error.strerror or error
        raise _CommandNotRunnable(
            f"{click.format_filename(arguments[0])} cannot be run: {why}."
        ) from None


def _resolve_executable(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Resolve the executable on Windows, where only an .exe is found by its name.

    Agents that npm installs are .cmd files there.
    """
    if sys.platform != "win32":
        return arguments
    return shutil.which(arguments[0]) or arguments[0], *arguments[1:]


def child_environment(environ: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Environment of the command: the given variables, and no HTTP proxy for this machine."""
    made = {**environ, **overrides}
    if any(made.get(name) or made.get(name.lower()) for name in _PROXY_VARIABLES):
        known = {name: made.get(name, "") for name in ("NO_PROXY", "no_proxy")}
        for name, own in known.items():  # clients differ in which spelling they read first
            others = own or "".join(known.values())
            made[name] = f"{others},127.0.0.1" if others else "127.0.0.1"
    return made


def _start_line(name: str, setup: LaunchSetup, address: str, *, observe: bool) -> str:
    """Line before the start: what was set, and the dashboard's address."""
    who = setup.agent or f"{click.format_filename(name)}, which respool does not know,"
    note = f" ({setup.note})" if setup.note else ""
    if not setup.applied:
        return f"{who} is started as it is{note}"
    only = ", watched and not changed," if observe else ""
    return (
        f"{who} is asked to go through {address}{only} by {', '.join(setup.applied)}{note}; "
        f"the dashboard is at {address}"
    )


class RunLog:
    """Requests of one run by what became of them, for the lines at its end."""

    def __init__(self) -> None:
        self.requests = 0  # with a history
        self.others: Counter[str] = Counter()  # by method and path: requests without one
        self.failures: Counter[str] = Counter()  # by cause: requests without a good answer
        self.passed: Counter[str] = Counter()  # by cause: requests that are not compacted
        self.waiting: dict[str, tuple[int, int]] = {}  # by conversation: offers and their tokens
        self.results = 0  # the most tool results in a conversation

    def add(self, entry: LogEntry) -> None:
        """Add one request; those to respool itself do not count."""
        if entry.upstream is None:
            return
        is_cut = entry.outcome in ("unreachable", "upstream_closed")
        if is_cut:
            self.failures[entry.note or entry.outcome] += 1
        if entry.format is None:
            self.others[f"{entry.method} {entry.path}"] += 1
            return
        self.requests += 1
        done = entry.compaction
        if done is None:
            self.passed[entry.note or "not read"] += not is_cut
        elif done.operation == "generate":  # some gateways do not count tokens
            if not is_cut and (entry.status or 0) >= 400:
                self.failures[f"{entry.upstream} answered {entry.status}"] += 1
            self._add_compacted(done)

    def _add_compacted(self, done: CompactionSummary) -> None:
        if done.sent == "untouched" or done.fallback in ("passed-through", "unreadable"):
            self.passed[done.why or done.fallback] += 1
        elif done.sent != "original":  # of an original nothing is known
            self.waiting[done.conversation] = done.waiting_offers, done.waiting_tokens
            self.results = max(self.results, done.results)

    def sentences(self, *, is_little: bool) -> list[str]:
        """What failed, what was passed through and, where little was saved, why."""
        found = [_most("failed", self.failures)] if self.failures else []
        if self.passed.total():
            it = "it came" if self.passed.total() == 1 else "they came"
            found.append(_most(f"went on as {it}", self.passed))
        if self.others and not self.requests:
            found.append(_most("had no history that could be compacted", self.others))
        return found + (self._why_little() if is_little else [])

    def _why_little(self) -> list[str]:
        from ..report import describe_waiting  # lazily: as all that this command needs

        if not self.waiting or self.failures.total() >= self.requests:
            return []
        offers, tokens = map(sum, zip(*self.waiting.values(), strict=True))
        if offers:
            return [f"{describe_waiting(offers, tokens)} (--set eager=on)"]
        if not self.results:
            return ["there were no tool results, and those are what respool takes out"]
        return [SHORT]


def _most(what: str, causes: Counter[str]) -> str:
    """The number of requests, and their most frequent cause."""
    (cause, _), count = causes.most_common(1)[0], causes.total()
    others = f" (and {len(causes) - 1:,} more)" if len(causes) > 1 else ""
    return f"{pluralize(count, 'request')} {what}: {cause.rstrip('.')}{others}"


def _end_lines(
    setup: LaunchSetup,
    totals: RunTotals,
    log: RunLog,
    warnings: _WarningCollector,
    *,
    observe: bool,
) -> list[str]:
    """Lines after the end: what stood in the way; last, requests, savings and where to look."""
    figures, saving = totals.sentences(), totals.saving
    saved = saving.would_tokens if observe else saving.tokens
    lines = log.sentences(is_little=saved < LITTLE * saving.tokens_before)
    if warnings.count:
        lines.append(
            f"{pluralize(warnings.count, 'warning')}, the last: {warnings.last.rstrip('.')}"
        )
    if not log.requests and not log.others and setup.applied:
        if setup.agent:
            figures[0] = f"warning: {setup.agent} was asked to go through respool, but {figures[0]}"
        figures.append("its own settings may send it elsewhere: see respool docs run")
    if totals.requests:
        figures.append("respool serve shows the dashboard again")
    return [*lines, "; ".join(figures)]


def _print_note(line: str) -> None:
    click.echo(f"respool: {line}", err=True)


# --- the child process -------------------------------------------------------------------------


_FORWARDED_NAMES: Final = (
    "SIGINT",
    "SIGTERM",
    "SIGBREAK",
    "SIGHUP",
    "SIGQUIT",
    "SIGUSR1",
    "SIGUSR2",
)
_FROM_KEYBOARD: Final = [signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)]
_SIGNAL_EXIT_BASE: Final = (
    128  # plus the signal's number, as shells report a program that a signal ended
)
_POLL_INTERVAL: Final = 1.0  # seconds between two checks for the end


def _forwarded_signals() -> list[signal.Signals]:
    return [getattr(signal, name) for name in _FORWARDED_NAMES if hasattr(signal, name)]


@contextlib.contextmanager
def hold_signals() -> Generator[None]:
    """Block signals in this thread and in every thread it starts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_forwarded_signals(), signal.SIGCHLD])
    try:
        yield
    finally:
        _discard_pending()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _discard_pending() -> None:
    """Discard blocked signals: they were for the command, which has ended."""
    while pending := signal.sigpending() & {*_forwarded_signals()}:
        signal.sigwait(pending)


def run_in_foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in the foreground and return its exit status.

    Signals of the terminal (Ctrl-C, Ctrl-\\, Ctrl-Z, hang-up) reach the command directly: it
    is in the same process group. Signals from another process are forwarded.
    """
    early: list[int] = []
    handled = {
        one: signal.signal(one, lambda got, _: early.append(got)) for one in _forwarded_signals()
    }
    try:
        with _unblock_signals():
            process = subprocess.Popen(command, env=dict(environment))  # noqa: S603 - as asked
        for number in early:
            if number not in _FROM_KEYBOARD or not _is_in_foreground():
                _send(process, number)
        early.clear()
        status = _wait(process, early)
    finally:
        for one, handler in handled.items():
            signal.signal(one, handler)
    return status if status >= 0 else _SIGNAL_EXIT_BASE - status


@contextlib.contextmanager
def _unblock_signals() -> Generator[None]:
    """Unblock signals in the child: a process inherits its parent's signal mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held = [*_forwarded_signals(), signal.SIGCHLD]
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(process: subprocess.Popen[bytes], pending: list[int]) -> int:
    """Wait for the end and forward signals by their sender, where the system reports it."""
    if not hasattr(signal, "sigtimedwait"):
        return _wait_without_sender(process, pending)
    held = [*_forwarded_signals(), signal.SIGCHLD]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        while (status := process.poll()) is None:
            received = signal.sigtimedwait(held, _POLL_INTERVAL)
            if (
                received is not None
                and received.si_signo != signal.SIGCHLD
                and _is_from_process(received)
            ):
                _send(process, received.si_signo)
        return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal. Windows cannot send most of them; its console reaches every process itself."""
    with contextlib.suppress(ValueError):
        process.send_signal(number)


def _is_from_process(siginfo: Any) -> bool:
    """Report whether a process sent the signal; the terminal's reach the whole group."""
    return siginfo.si_pid != 0


def _wait_without_sender(process: subprocess.Popen[bytes], pending: list[int]) -> int:
    """Wait where the sender is unknown: in the foreground it was the terminal."""
    with _unblock_signals():
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_INTERVAL / 10)
            while pending:
                number = pending.pop(0)
                if not _is_in_foreground():
                    _send(process, number)


def _is_in_foreground() -> bool:
    """Report whether this process is in the terminal's foreground group."""
    if not hasattr(os, "tcgetpgrp"):
        return True  # Windows: only the console sends signals, to every process that shares it
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
