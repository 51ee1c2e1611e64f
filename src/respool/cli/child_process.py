"""Foreground child process of `respool run`: signals forwarded, exit status returned."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

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
            told = signal.sigtimedwait(held, _POLL_INTERVAL)
            if told is not None and told.si_signo != signal.SIGCHLD and _is_from_process(told):
                _send(process, told.si_signo)
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
