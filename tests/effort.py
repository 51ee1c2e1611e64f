"""Number of examples: all of them with `make laws`, else enough to find most faults."""

from __future__ import annotations

import os

THOROUGH = "THOROUGH" in os.environ


def examples(full: int) -> int:
    """So many with `make laws`; a third of them, from ten to fifty, in every run."""
    return full if THOROUGH else min(50, max(10, full // 3))
