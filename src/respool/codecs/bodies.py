"""The bodies of late: a request that extends one of them is read only where it is new."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

import xxhash

from .frames import Frames
from .layout import Layout, grown

_LEAST: Final = 8_192  # bytes: a shorter body is read whole in no time
_SAMPLE: Final = 512  # bytes at each of the places by which bodies are told apart
_TWINS: Final = 4  # bodies that look alike there, and are kept apart all the same
_FRAMES: Final = 8  # the part of its bytes, one in so many, that what stands around may take beside


class Bodies:
    """The last bodies of conversations, as many as fit; safe to share by threads."""

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_sample: OrderedDict[bytes, tuple[Layout, ...]] = OrderedDict()
        self._frames = Frames(max_bytes // _FRAMES)
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """How many bytes the bodies have, and what they went out as, about."""
        return self._bytes

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body: what one of late has in common with it is not read again."""
        if len(body) < _LEAST:
            return self._frames.parse_layout(body)
        look = _look_of(body)
        found = [(grown(known, body), known) for known in self._by_sample.get(look, ())]
        known = [(one, of) for one, of in found if one is not None]
        layout, instead_of = max(known, key=_shared, default=(None, None))
        if layout is None:
            layout = self._frames.parse_layout(body)
        self._insert(look, layout, instead_of)
        return layout

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._by_sample.clear()
            self._bytes = 0
        self._frames.clear()

    def _insert(self, look: bytes, layout: Layout, instead_of: Layout | None) -> None:
        with self._lock:
            before = self._by_sample.pop(look, ())
            others = [one for one in before if one is not instead_of][-(_TWINS - 1) :]
            now = (*others, layout)
            self._by_sample[look] = now
            self._bytes += _size(now) - _size(before)
            while self._bytes > self._max_bytes and len(self._by_sample) > 1:
                self._bytes -= _size(self._by_sample.popitem(last=False)[1])


def _look_of(body: bytes) -> bytes:
    """A hash of samples from places that a longer history leaves as they are.

    They lie ever further apart, so that a body that grows seldom gets another one.
    """
    link, at = xxhash.xxh3_128(body[:_SAMPLE]), _LEAST - _SAMPLE
    while at + _SAMPLE <= len(body):
        link.update(body[at : at + _SAMPLE])
        at *= 4
    return link.digest()


def _shared(one: tuple[Layout, Layout]) -> int:
    return one[0].shared_count


def _size(layouts: tuple[Layout, ...]) -> int:
    """About: what a body goes out as is hardly ever longer."""
    return sum(2 * len(one.body) for one in layouts)
