"""When a pass acts: on results that just arrived, on what was sent before, or on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_Pass = TypeVar("_Pass", bound=Callable[..., object])


def acts(*, at_arrival: bool, at_epochs: bool) -> Callable[[_Pass], _Pass]:
    """Say of a pass when it acts; one that says nothing acts at epochs only."""

    def said(offer_pass: _Pass) -> _Pass:
        offer_pass.__dict__.update(at_arrival=at_arrival, at_epochs=at_epochs)
        return offer_pass

    return said


def acts_at_arrival(offer_pass: Callable[..., object]) -> bool:
    """Whether a pass has something to say on results that the model has not seen yet."""
    return getattr(offer_pass, "at_arrival", False)


def acts_at_epochs(offer_pass: Callable[..., object]) -> bool:
    """Whether a pass has something to say on what was sent before."""
    return getattr(offer_pass, "at_epochs", True)


def doubled(last: int, now: int) -> Iterator[tuple[int, int]]:
    """The units, from one up to another, whose age came to a power of two after `last`.

    >>> list(doubled(8, 10))
    [(1, 3), (5, 7), (7, 9), (9, 10)]
    """
    done = 0  # the first unit that is not told yet
    for power in range(now.bit_length(), -1, -1):  # the oldest first
        age = 1 << power
        first, end = max(done, last - age + 1), now - age + 1
        if first < end:
            yield first, end
            done = end
