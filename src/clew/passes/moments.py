"""When a pass acts: on results that just arrived, on what was sent before, or on both."""

from __future__ import annotations

from collections.abc import Callable
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
