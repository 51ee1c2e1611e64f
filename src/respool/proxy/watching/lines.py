"""All else that is logged, as lines of JSON beside those of the requests."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import msgspec

from ..forwarding.printing import Printer


class Lines(logging.Formatter):
    """A warning or an error as one line of JSON.

    Of an exception its type and where it was raised: what it says may quote a request.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["where"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
        return msgspec.json.encode(line).decode()


class _Printing(logging.Handler):
    """Hands lines to a printer."""

    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer
        self.setFormatter(Lines())

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        self._printer.print(self.format(record))


def log_as_lines(printer: Printer) -> None:
    """Have this process print all that is logged, as lines."""
    root = logging.getLogger()
    root.handlers[:] = [_Printing(printer)]
    root.setLevel(logging.WARNING)
