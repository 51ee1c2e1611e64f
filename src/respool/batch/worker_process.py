"""Starts and ends of worker processes.

Python looks for modules in the working directory of a process that it starts, before its own. A
repository could run code there, or a file `select.py` end a worker at its first import. So workers
start with PYTHONSAFEPATH, and not at all where Python ignores it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from typing import Final

KILLED: Final = "its process was killed, as happens when memory runs out"
KILLED_EACH_TIME: Final = "each process that tried it was killed, as happens when memory runs out"
_SAFE_PATH: Final = "PYTHONSAFEPATH"


def exit_with_parent() -> None:
    """Exit when the parent process ends, however it ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def describe_exit(status: int | None) -> str:
    """Describe the exit of a process."""
    if status == -getattr(signal, "SIGKILL", 9):
        return KILLED
    return f"its process ended with status {status}"


def can_start_workers() -> bool:
    """Report whether a process can be kept from importing from the working directory."""
    return bool(sys.flags.safe_path) or not sys.flags.ignore_environment


@contextmanager
def safe_path() -> Generator[None]:
    """Keep a Python process that starts here from importing from the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextmanager
def ignoring_interrupts() -> Generator[None]:
    """Let a process that starts here ignore Ctrl-C from the start."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which lets interrupts through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
