"""How many examples are drawn: all of them with `make laws`, else enough to see most faults."""

from __future__ import annotations

import os

THOROUGH = "THOROUGH" in os.environ


def examples(full: int) -> int:
    """So many with `make laws`; half of them, and at most a hundred, in every run."""
    return full if THOROUGH else min(100, full // 2)
