"""Number of examples: all of them with `make laws`, else enough to find most faults."""

from __future__ import annotations

import os

THOROUGH = "THOROUGH" in os.environ


def examples(full: int) -> int:
    """So many with `make laws`; a quarter of them, from eight to thirty, in every run."""
    return full if THOROUGH else min(30, max(8, full // 4))
