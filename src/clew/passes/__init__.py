"""One offer a file; the order is a tuple you can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..edits import Offer
from ..policy import Policy
from .cap_results import cap_results
from .view import View

Pass = Callable[[View, Policy], Iterator[Offer]]

PASSES: tuple[Pass, ...] = (cap_results,)
