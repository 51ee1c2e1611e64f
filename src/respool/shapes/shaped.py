"""What remains of a text that was cut to its shape."""

from __future__ import annotations

from msgspec import Struct


class Shaped(Struct, frozen=True, gc=False):
    """A text with holes in place of what was cut, and how much that was, in its own unit."""

    text: str
    removed: int
    total: int
    unit: str
