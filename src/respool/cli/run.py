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
    observe_option,
    policy_options,
    require_server,
    upstream_option,
)

if TYPE_CHECKING:
    from ..agents.launch import LaunchSetup
    from ..policy import Policy
    from ..proxy.billing import RunTotals
    from ..proxy.server_options import CompactionOptions

EXIT_NOT_FOUND: Final = 127  # as shells report a missing command
EXIT_NOT_RUNNABLE: Final = 126  # as shells report a command that cannot be run
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
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
@upstream_option(", as for serve")
@observe_option
@deadline_option
@click.option(
    "--no-mcp",
    is_flag=True,
    help="Do not register respool's MCP server with Claude Code or Codex for the run.",
)
@click.argument("command", metavar="-- CMD…", nargs=-1, required=True, type=click.UNPROCESSED)
@policy_options
@click.pass_context
def run(
    ctx: click.Context,
    *,
    upstreams: tuple[str, ...],
    observe: bool,
    deadline: float,
    no_mcp: bool,
    command: tuple[str, ...],
    policy: Policy,
) -> None:
    """Run a command with a proxy of its own in front of its provider.

    Claude Code, Codex, opencode, pi, Gemini CLI, Qwen Code, Copilot, aider and mini-swe-agent are
    known by their names; any other command gets the usual variables. Requests go on to the base
    URL that was set before. The exit status is the command's.
    """
    with require_server():
        # lazily: no other command needs the server
        from ..proxy.server import bind
        from ..proxy.server_options import CompactionOptions, ServerOptions
    _refuse_command(command[0])
    options = CompactionOptions(policy=policy, observe=observe, deadline=deadline)
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
    from ..store import store_path  # lazily: as all that this command needs

    if find_spec("mcp") is None:
        return ()
    server = (sys.executable, "-m", "respool", "mcp", "--expand-only")
    return (*server, "--store", str(store_path()))


def _run(
    launch: _Launch,
    options: CompactionOptions,
    scratch_folder: Path,
    listening: socket.socket,
) -> int:
    """Serve, run the command, print the summary."""
    from ..agents.launch import launch_environment, plan_launch
    from ..proxy.app import build_app
    from ..proxy.billing import RunTotals
    from ..proxy.log import log_nothing
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
    going = upstreams_of(launch.upstreams, setup.upstreams)
    limits = TransferLimits(drain_seconds=_DRAIN_SECONDS)
    server = validated(ServerOptions(port=0, upstreams=going, token=token, limits=limits))
    totals, warnings = RunTotals(), _WarningCollector()
    logging.getLogger().addHandler(warnings)
    options = replace(options, agent=setup.agent or "", project=str(Path.cwd()))
    make = partial(build_app, server, options, log_nothing, listener=totals.add)
    with serving_in_thread(make, listening):
        _print_note(_start_line(launch.command[0], setup, address, observe=options.observe))
        overrides = launch_environment(setup, going)
        status = _start(words, child_environment(os.environ, overrides))
    logging.getLogger().removeHandler(warnings)
    _print_note(_end_line(setup, totals, warnings, address, observe=options.observe))
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
        "open that to look on"
    )


def _end_line(
    setup: LaunchSetup,
    totals: RunTotals,
    warnings: _WarningCollector,
    address: str,
    *,
    observe: bool,
) -> str:
    """Line after the end: requests, savings, dashboard."""
    sentences = totals.sentences(observed=observe)
    if warnings.count:
        sentences.append(
            f"{pluralize(warnings.count, 'warning')}, the last: {warnings.last.rstrip('.')}"
        )
    if not totals.requests and setup.applied:
        sentences.append("it may be told elsewhere where to go: docs/start/run.md")
        if setup.agent:
            sentences[0] = (
                f"warning: {setup.agent} was asked to go through respool, but {sentences[0]}"
            )
    if totals.requests:
        sentences.append(f"the dashboard was at {address}, and respool serve shows it again")
    return "; ".join(sentences)


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
