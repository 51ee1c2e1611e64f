"""Lines printed by a thread of its own: where nobody reads them, no request waits for that.

A pipe that is not emptied, or a terminal that was stopped with Ctrl-S, takes no more lines at some
point, and whoever writes the next one waits until it does.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from threading import Event, Lock, Thread
from typing import Final

import msgspec

_MOST_WAITING: Final = 10_000  # lines
_GATHER: Final = 0.05  # seconds
_ENDING: Final = 1.0  # seconds that what waits has at the end


class Printer:
    """Prints lines in their order, whichever threads they come from; never waits, never raises."""

    def __init__(self, descriptor: int | None, most: int = _MOST_WAITING) -> None:
        self._descriptor = descriptor
        self._most = most
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._stopping = Event()
        self._lock = Lock()
        self._thread: Thread | None = None

    def print(self, line: str) -> None:
        """Have a line printed soon; where too many wait already, it is left out and counted."""
        if self._descriptor is None:
            return
        if len(self._waiting) >= self._most:
            self._left_out += 1
            return
        self._waiting.append(line)
        if self._thread is None:
            self._start()

    def close(self, timeout: float = _ENDING) -> None:
        """Print what waits, if somebody takes it in time."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="respool-lines", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        while not self._stopping.wait(_GATHER):
            self._print_all()
        self._print_all()

    def _print_all(self) -> None:
        while self._waiting:
            self._write(self._waiting.popleft())
            if self._left_out and not self._waiting:
                count, self._left_out = self._left_out, 0
                self._write(_told(count))

    def _write(self, line: str) -> None:
        """One line at a time, so that those of several processes do not run into one another."""
        assert self._descriptor is not None, "else no line is taken"
        left = memoryview(line.encode("utf-8", "backslashreplace") + b"\n")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # whoever shares it wants no one to wait in a write
                time.sleep(_GATHER)
            except OSError:
                return  # nobody is there any more


def standard_error() -> int | None:
    """The descriptor of standard error; None where it is closed, for another file may have its."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _told(count: int) -> str:
    said = f"{count:,} lines are left out here, for nobody took those before them."
    line = {"at": round(time.time(), 3), "level": "warning", "from": __name__, "message": said}
    return msgspec.json.encode(line).decode()
