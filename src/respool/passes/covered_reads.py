"""Replace an old read whose lines all stand in a later read of the file."""

from __future__ import annotations

from collections.abc import Iterator

from ..edits import Offer
from ..policy import Policy
from .base import View
from .contained_results import containment_offers


def covered_reads(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the later read that shows it all."""
    return containment_offers(view, policy, new=False)
