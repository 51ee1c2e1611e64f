"""Replace old images and files by markers where a request exceeds its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..edits import Offer, Replace
from ..limits import BYTES_PER_TOKEN, measure_overflow, media_to_remove
from ..policy import Policy
from .base import View

REASON: Final = "over_limit"


def shed_images(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to leave out the oldest images and files, as many as the limits demand.

    One that takes no more tokens than its marker would stays: others go in its place.
    """
    standing = [one for one in view.media.values() if view.is_whole(one.part)]
    if not standing:
        return
    size = BYTES_PER_TOKEN * view.projected_tokens + sum(one.bytes for one in standing)
    images = sum(one.unit == "image" for one in standing)
    side = max(one.side for one in standing)
    if not measure_overflow(view.limits, bytes=size, images=images, side=side):
        return
    known: dict[int, Offer | None] = {}

    def offer_for(part: int) -> Offer | None:
        if part not in known:
            known[part] = None if view.is_protected(part) else _offer(view, part)
        return known[part]

    for position in media_to_remove(
        standing, view.limits, size, lambda p: offer_for(p) is not None
    ):
        offer = offer_for(position)
        if offer is not None:
            yield offer


def _offer(view: View, position: int) -> Offer | None:
    """The first marker that is shorter than what it stands for; None: none is."""
    held, part = view.media[position], view.transcript.parts[position]
    evidence = f"{held.unit} of {held.bytes:,} bytes"
    for text in (held.marker(view.fetch_tool), held.shortest_marker()):
        saved = view.tokens_of(position) - view.counter.count(text)
        if saved > 0:
            edit = Replace(position, part.ref, text, held.ref, REASON, evidence, saved)
            return Offer("stub", edit)
    return None
