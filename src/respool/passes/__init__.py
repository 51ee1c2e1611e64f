"""All passes, one a file, in the order in which they run; and the names for passes of your own.

The names in `__all__` are stable. docs/operate/extending.md has a line on each of them, and says
which attributes of a View are stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..edits import (
    DropExchange,
    DropReasoning,
    Edit,
    Level,
    Offer,
    PlaceBreakpoint,
    Replace,
    exchange_closure,
)
from ..markers import ClipMarker, OmissionMarker, find_marker, gap_line, reference
from ..policy import Policy
from ..tools.use import Content, Span, ToolKind, Use
from ..transcript import Exchange, Part, PartKind, ReadOnlyTranscript, Ref, Speaker, Unit
from .base import View, acts
from .cap_results import cap_results
from .contained_results import contained_results
from .covered_reads import covered_reads
from .fold_exchanges import fold_exchanges
from .identical_results import identical_results
from .keep_lines import keep_lines
from .lines_shown import lines_shown
from .old_reasoning import old_reasoning
from .repeated_calls import repeated_calls
from .resolved_errors import resolved_errors
from .shed_images import shed_images
from .squeeze_prose import squeeze_prose
from .stale_reads import stale_reads
from .stub_results import stub_results
from .superseded_edits import superseded_edits
from .superseded_writes import superseded_writes
from .tidy_results import tidy_results
from .trim_results import trim_results

Pass = Callable[[View, Policy], Iterator[Offer]]

PASSES: tuple[Pass, ...] = (
    tidy_results,
    identical_results,
    contained_results,
    lines_shown,
    cap_results,
    shed_images,
    covered_reads,
    stale_reads,
    superseded_writes,
    superseded_edits,
    resolved_errors,
    old_reasoning,
    keep_lines,
    trim_results,
    stub_results,
    fold_exchanges,
    repeated_calls,
    squeeze_prose,
)

# Passes that run only if a policy names them: their edits are seldom worth the risk, or change
# prose. bench/RESULTS.md has figures.
OPT_IN: frozenset[str] = frozenset({"repeated_calls", "squeeze_prose"})

__all__ = [
    "ClipMarker",
    "Content",
    "DropExchange",
    "DropReasoning",
    "Edit",
    "Exchange",
    "Level",
    "OPT_IN",
    "Offer",
    "OmissionMarker",
    "PASSES",
    "Part",
    "PartKind",
    "Pass",
    "PlaceBreakpoint",
    "Policy",
    "ReadOnlyTranscript",
    "Ref",
    "Replace",
    "Span",
    "Speaker",
    "ToolKind",
    "Unit",
    "Use",
    "View",
    "acts",
    "exchange_closure",
    "find_marker",
    "gap_line",
    "reference",
]
