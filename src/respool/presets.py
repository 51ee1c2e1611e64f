"""Policies by name: what each sets, where it differs from the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Methods that look at every request anew and do what they do, whatever a broken cache costs.
_EVERY_REQUEST: Final[Mapping[str, object]] = {
    "eager": True, "reevaluate_tokens": 1, "reevaluate_ratio": 0.0, "line_number_interval": 1,
}  # fmt: skip
# What differs from the defaults. The first three are points on the frontier in docs/presets.md, the
# others reproduce what respool comes from: docs/sources.md has each with its figures.
PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "safe": {},
    "lean": {"trim_on_arrival": True},
    "tight": {"trim_on_arrival": True, "budget": 120_000},
    "codetether": {
        "passes": (
            "old_reasoning", "identical_results", "cap_results", "repeated_calls", "squeeze_prose",
        ),
        "cap_chars": 4_096,
        "keep_messages": 8,
        "keep_reasoning_messages": 4,
        **_EVERY_REQUEST,
    },
    "clark": {"passes": ("cap_results",), "cap_chars": 32_000, "keep_calls": 1, **_EVERY_REQUEST},
    "rfc013": {
        "passes": ("fold_exchanges",), "keep_calls": 6, "fold_over_chars": 10_000, **_EVERY_REQUEST,
    },
    "pi-dcp": {
        "passes": ("identical_results", "superseded_writes", "resolved_errors"),
        "keep_messages": 10,
        "min_chars": 0,
        **_EVERY_REQUEST,
    },
}  # fmt: skip
