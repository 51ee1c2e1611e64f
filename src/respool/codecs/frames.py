"""What stood around the histories of late: fields that come again are not read again."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from .layout import Frame, Layout, frame_of, framed, laid_out

_START: Final = 32  # bytes by which those are found that may fit
_TWINS: Final = 4  # that start alike, and are kept apart all the same


class Frames:
    """What stood around the last histories, as much as fits; safe to share by threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_start: OrderedDict[bytes, tuple[Frame, ...]] = OrderedDict()
        self._lock = Lock()

    def parse_layout(self, body: bytes) -> Layout:
        """The layout of a body; its fields are the very ones of another where they are the same."""
        start = body[:_START]
        for frame in self._by_start.get(start, ()):
            layout = framed(frame, body)
            if layout is not None:
                return layout
        layout = laid_out(body)
        frame = frame_of(layout)
        if frame is not None:
            self._insert(start, frame)
        return layout

    def clear(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._by_start.clear()
            self._bytes = 0

    def _insert(self, start: bytes, frame: Frame) -> None:
        with self._lock:
            before = self._by_start.pop(start, ())
            now = (frame, *before[: _TWINS - 1])
            self._by_start[start] = now
            self._bytes += _size(now) - _size(before)
            while self._bytes > self._max_bytes and self._by_start:
                self._bytes -= _size(self._by_start.popitem(last=False)[1])


def _size(frames: tuple[Frame, ...]) -> int:
    """About: what is decoded of fields takes more, and not all of them are."""
    return sum(len(one.before) + len(one.after) for one in frames)
