"""Points in time as people give them: a date, or how long ago."""

from __future__ import annotations

import re
import time
from datetime import datetime

from .ending import Failure

_AGO = re.compile(r"(\d{1,5})([hdwm])")
_SECONDS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400}


def moment(text: str, option: str = "--since") -> float:
    """Seconds since the epoch for `2026-11-01` (where it begins here), `7d`, `2w`, `3m` or `12h`.

    A month has 30 days.
    """
    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Failure(
            f"{option}: {text!r} is neither a date such as 2026-11-01 nor a time ago such as 7d, "
            "2w or 3m."
        ) from None
