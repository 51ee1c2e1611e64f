"""Fold old exchanges into summaries when the history is over its budget."""

from __future__ import annotations

from collections.abc import Iterator

from ..edits import Offer
from ..policy import Policy
from .folding import fold, tiers_of
from .view import View


def fold_exchanges(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to fold old exchanges when the history is over its budget, or over its threshold."""
    return fold(view, tiers_of(policy, view.limits))
