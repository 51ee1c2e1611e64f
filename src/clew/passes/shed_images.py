"""Put markers in place of old images and files where a request would hold too many, or too much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..edits import Offer, Replace
from ..limits import BYTES_A_TOKEN, to_leave_out
from ..policy import Policy
from .view import View

REASON: Final = "over_limit"


def shed_images(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to leave out the oldest images and files, as many as the limits demand."""
    standing = [one for one in view.held.values() if view.is_whole(one.part)]
    if not standing:
        return
    size = BYTES_A_TOKEN * view.projected + sum(one.bytes for one in standing)
    gone = to_leave_out(standing, view.limits, size, lambda part: not view.is_protected(part))
    for position in gone:
        offer = _offer(view, position)
        if offer is not None:
            yield offer


def _offer(view: View, position: int) -> Offer | None:
    held, part = view.held[position], view.transcript.parts[position]
    text = held.marker(view.fetch)
    saved = view.tokens_of(position) - view.counter.count(text)
    if saved <= 0:
        return None
    evidence = f"{held.unit} of {held.bytes:,} bytes"
    return Offer("stub", Replace(position, part.ref, text, held.ref, REASON, evidence, saved))
