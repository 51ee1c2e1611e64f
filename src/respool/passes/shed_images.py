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
    """Offer to replace the oldest images and files, as many as the limits require.

    One that has no more tokens than its marker stays, and others go instead.
    """
    whole = view.standing_media
    if not whole.parts:
        return
    size = BYTES_PER_TOKEN * view.projected_tokens + whole.bytes
    images, side = whole.images, whole.sides[-1]
    if not measure_overflow(view.limits, bytes=size, images=images, side=side):
        return
    known: dict[int, Offer | None] = {}
    over = view.over_limit()

    def offer_for(part: int) -> Offer | None:
        if part not in known:
            known[part] = None if over.is_protected(part) else _offer(view, part)
        return known[part]

    present = [view.media[part] for part in whole.parts]
    for position in media_to_remove(present, view.limits, size, lambda p: offer_for(p) is not None):
        offer = offer_for(position)
        if offer is not None:
            yield offer


def _offer(view: View, position: int) -> Offer | None:
    """Offer the first marker that is shorter than the part; None: none is."""
    held, part = view.media[position], view.transcript.parts[position]
    evidence = f"{held.unit} of {held.bytes:,} bytes"
    for text in (held.marker(view.fetch_tool), held.shortest_marker()):
        saved = view.tokens_of(position) - view.counter.count(text)
        if saved > 0:
            edit = Replace(
                part=position,
                ref=part.ref,
                text=text,
                original=held.ref,
                reason=REASON,
                evidence=evidence,
                saved=saved,
            )
            return Offer("stub", edit)
    return None
