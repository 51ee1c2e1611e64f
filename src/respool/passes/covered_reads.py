"""Put a reference in place of an old read whose lines all stand in a later one of the file."""

from __future__ import annotations

from collections.abc import Iterator

from ..edits import Offer
from ..policy import Policy
from .containing import offers_in
from .view import View


def covered_reads(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the later read that shows it all."""
    return offers_in(view, policy, new=False)
