"""Replace an old read whose lines are all in a later read of the file."""

from __future__ import annotations

from collections.abc import Iterator

from ..edits import Offer
from ..policy import Policy
from .base import View
from .contained_results import containment_offers


def covered_reads(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the later read that has all its lines."""
    return containment_offers(view, policy, new=False)
