"""Put a reference in place of a new read whose lines all stand in an earlier one of the file."""

from __future__ import annotations

from collections.abc import Iterator

from ..edits import Offer
from ..policy import Policy
from .containing import offers_in
from .moments import acts
from .view import View


@acts(at_arrival=True, at_epochs=False)
def contained_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the earlier read that shows it all, before the new one is ever sent."""
    return offers_in(view, policy, new=True)
