"""Queue of request records and the thread that writes them in batches.

Recording never blocks: a full queue drops the record and counts it. While the store is
unavailable, the thread retries its batch every second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from .base import RequestRecord, StoreUnavailable

MAX_WAITING = 5_000
_BATCH_RECORDS = 500
_GATHER_SECONDS = 0.25  # time to gather a batch
_RETRY_SECONDS = 1.0
_TRANSIENT_REASONS = (
    "busy",
    "full",
    "read-only",
    "missing",
    "broken",
    "unreachable",
    "refused",
)  # worth a retry
_WRITE_FAILED = "The record of a request cannot be written"
_SWEEP_FAILED = "The store could not be tidied"

_log = logging.getLogger(__name__)


class RecordQueue:
    """A queue of records and its writer thread, started with the first record."""

    def __init__(
        self, write: Callable[[Sequence[RequestRecord]], None], maintain: Callable[[], float]
    ) -> None:
        self._write = write
        self._maintain = maintain  # idle work; returns the seconds until its next run
        self._maintain_at = 0.0
        self._waiting: deque[RequestRecord] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._in_progress = 0  # records taken by the thread and not written yet
        self._warned: set[str] = set()  # warnings logged since the last success
        self.dropped = 0

    def record(self, record: RequestRecord) -> bool:
        """Queue a record; False: the queue is full and the record is lost."""
        with self._changed:
            if self._stopping or len(self._waiting) >= MAX_WAITING:
                self.dropped += 1
                return False
            self._waiting.append(record)
            if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
                self._thread = threading.Thread(target=self._run, name="respool-store", daemon=True)
                self._thread.start()
            if len(self._waiting) >= _BATCH_RECORDS:
                self._changed.notify_all()
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until all records are written; False on timeout."""
        until = time.monotonic() + timeout
        with self._changed:
            while self._waiting or self._in_progress:
                left = until - time.monotonic()
                if left <= 0 or self._thread is None:
                    return False
                self._changed.notify_all()
                self._changed.wait(min(left, 0.05))
        return True

    def close(self, timeout: float) -> None:
        """Write the queued records within the timeout and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while batch := self._next_batch():
            while batch:
                batch = self._write_batch(batch)
                if batch and self._stopping:
                    self._drop_batch(batch)
                    return
                if batch:
                    self._wait(_RETRY_SECONDS)

    def _next_batch(self) -> list[RequestRecord]:
        """Wait for records and take a batch; empty when the queue is closed."""
        while True:
            self._wait(_GATHER_SECONDS)
            with self._changed:
                batch = [
                    self._waiting.popleft() for _ in range(min(_BATCH_RECORDS, len(self._waiting)))
                ]
                self._in_progress = len(batch)
                if batch or self._stopping:
                    return batch
            self._maintain_if_due()

    def _write_batch(self, batch: list[RequestRecord]) -> list[RequestRecord]:
        """Write a batch; return what could not be written and is worth a retry."""
        try:
            self._write(batch)
        except StoreUnavailable as error:
            if error.reason in _TRANSIENT_REASONS:
                return batch
            self._write_singly(batch)
        except Exception:  # noqa: BLE001 - one bad record must not stop the others
            self._write_singly(batch)
        else:
            self._warned.discard(_WRITE_FAILED)
        self._finish_batch()
        return []

    def _write_singly(self, batch: Sequence[RequestRecord]) -> None:
        for record in batch:
            try:
                self._write([record])
            except Exception as error:  # noqa: BLE001 - counted; the next one is tried
                self.dropped += 1
                self._warn(_WRITE_FAILED, error)
            else:
                self._warned.discard(_WRITE_FAILED)

    def _warn(self, what: str, error: Exception) -> None:
        """Log a failure once until the next success: it may last for weeks."""
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("%s: %s", what, error)

    def _drop_batch(self, batch: Sequence[RequestRecord]) -> None:
        with self._changed:
            self.dropped += len(batch) + len(self._waiting)
            self._waiting.clear()
        self._finish_batch()

    def _finish_batch(self) -> None:
        with self._changed:
            self._in_progress = 0
            self._changed.notify_all()

    def _wait(self, seconds: float) -> None:
        """Wait for a time, a full batch or the end."""
        with self._changed:
            if not self._stopping and len(self._waiting) < _BATCH_RECORDS:
                self._changed.wait(seconds)

    def _maintain_if_due(self) -> None:
        if time.monotonic() < self._maintain_at:
            return
        try:
            pause = self._maintain()
        except Exception as error:  # noqa: BLE001 - retried later; records continue
            self._warn(_SWEEP_FAILED, error)
            pause = 60.0
        else:
            self._warned.discard(_SWEEP_FAILED)
        self._maintain_at = time.monotonic() + pause
