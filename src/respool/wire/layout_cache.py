"""LRU caches of request layouts: a request that extends a known one is parsed from there on."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

import xxhash

from .layout import Layout, RequestFrame, extend_layout, frame_of, layout_in_frame, parse_layout

_FRAME_KEY_BYTES: Final = 32  # leading bytes that are the key of a frame
_MAX_FRAMES_PER_KEY: Final = 4  # frames with the same key
_MIN_BYTES: Final = 8_192  # a shorter body is parsed whole
_SAMPLE_BYTES: Final = 512  # bytes of each sample
_MAX_LAYOUTS_PER_KEY: Final = 4  # layouts with the same samples
_FRAME_SHARE: Final = 8  # frames may take this fraction of the bytes, in addition


class FrameCache:
    """LRU cache of the frames of recent requests; thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_start: OrderedDict[bytes, tuple[RequestFrame, ...]] = OrderedDict()
        self._lock = Lock()

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body; equal fields are the same object as in an earlier request."""
        start = body[:_FRAME_KEY_BYTES]
        for frame in self._by_start.get(start, ()):
            layout = layout_in_frame(frame, body)
            if layout is not None:
                return layout
        layout = parse_layout(body)
        frame = frame_of(layout)
        if frame is not None:
            self._insert(start, frame)
        return layout

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._by_start.clear()
            self._bytes = 0

    def _insert(self, start: bytes, frame: RequestFrame) -> None:
        with self._lock:
            before = self._by_start.pop(start, ())
            now = (frame, *before[: _MAX_FRAMES_PER_KEY - 1])
            self._by_start[start] = now
            self._bytes += _frame_bytes(now) - _frame_bytes(before)
            while self._bytes > self._max_bytes and self._by_start:
                self._bytes -= _frame_bytes(self._by_start.popitem(last=False)[1])


def _frame_bytes(frames: tuple[RequestFrame, ...]) -> int:
    """Approximate size: decoded fields are not counted."""
    return sum(len(one.before) + len(one.after) for one in frames)


class LayoutCache:
    """LRU cache of the layouts of recent requests; thread-safe."""

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_sample: OrderedDict[bytes, tuple[Layout, ...]] = OrderedDict()
        self._frames = FrameCache(max_bytes // _FRAME_SHARE)
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of the bodies, and of what was sent for them."""
        return self._bytes

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body; a prefix shared with a recent one is not parsed again."""
        if len(body) < _MIN_BYTES:
            return self._frames.parse_layout(body)
        sample = _sample_hash(body)
        found = [(extend_layout(known, body), known) for known in self._by_sample.get(sample, ())]
        known = [(one, of) for one, of in found if one is not None]
        layout, instead_of = max(known, key=_shared_count, default=(None, None))
        if layout is None:
            layout = self._frames.parse_layout(body)
        self._insert(sample, layout, instead_of)
        return layout

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._by_sample.clear()
            self._bytes = 0
        self._frames.clear()

    def _insert(self, sample: bytes, layout: Layout, instead_of: Layout | None) -> None:
        with self._lock:
            before = self._by_sample.pop(sample, ())
            others = [one for one in before if one is not instead_of][-(_MAX_LAYOUTS_PER_KEY - 1) :]
            now = (*others, layout)
            self._by_sample[sample] = now
            self._bytes += _layout_bytes(now) - _layout_bytes(before)
            while self._bytes > self._max_bytes and len(self._by_sample) > 1:
                self._bytes -= _layout_bytes(self._by_sample.popitem(last=False)[1])


def _sample_hash(body: bytes) -> bytes:
    """A hash of samples at offsets that a longer history leaves unchanged.

    Their distances grow, so the hash of a growing body seldom changes.
    """
    link, at = xxhash.xxh3_128(body[:_SAMPLE_BYTES]), _MIN_BYTES - _SAMPLE_BYTES
    while at + _SAMPLE_BYTES <= len(body):
        link.update(body[at : at + _SAMPLE_BYTES])
        at *= 4
    return link.digest()


def _shared_count(one: tuple[Layout, Layout]) -> int:
    return one[0].shared_count


def _layout_bytes(layouts: tuple[Layout, ...]) -> int:
    """Approximate size, with the body as it was sent: it is hardly ever longer."""
    return sum(2 * len(one.body) for one in layouts)
