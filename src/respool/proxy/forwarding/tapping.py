"""A tap on a response, which can neither delay nor break it."""

from __future__ import annotations

from .asgi import Headers
from .handling import How, Tap
from .record import Record


class Listening:
    """Tells a tap what happens; one that raises is not told any more."""

    def __init__(self, tap: Tap | None, record: Record) -> None:
        self.tap = tap
        self._record = record

    def began(self, status: int, headers: Headers) -> None:
        """The response begins."""
        if self.tap is not None:
            try:
                self.tap.began(status, headers)
            except Exception as error:  # noqa: BLE001 - law 9: who listens breaks nothing
                self._drop(error)

    def seen(self, chunk: bytes) -> None:
        """The client was given this."""
        if self.tap is not None:
            try:
                self.tap.seen(chunk)
            except Exception as error:  # noqa: BLE001 - law 9: who listens breaks nothing
                self._drop(error)

    def ended(self, how: How) -> None:
        """It is over; told once."""
        tap, self.tap = self.tap, None
        if tap is not None:
            try:
                tap.ended(how)
            except Exception as error:  # noqa: BLE001 - law 9: who listens breaks nothing
                self._drop(error)

    def _drop(self, error: Exception) -> None:
        self.tap = None
        self._record.note = f"tap failed: {type(error).__name__}"
