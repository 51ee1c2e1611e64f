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
        return "the process at it was killed, as happens when memory runs out"
    return f"the process at it ended with status {status}"


def can_start_workers() -> bool:
    """Report whether a process can be kept from importing from the working directory."""
    return bool(sys.flags.safe_path) or not sys.flags.ignore_environment


@contextmanager
def safe_path() -> Generator[None]:
    """Let a Python process that starts here not import from the working directory."""
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
    """Let a process that starts here be deaf to Ctrl-C from its first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which lets interrupts through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
