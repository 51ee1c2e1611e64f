"""Content-encodings undone as the bytes of a body pass."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol

MOST_DECODED: Final = 256 * 1024 * 1024  # bytes that one compressed body may come to

_PIECE = 64 * 1024  # bytes asked for at a time
_ZSTD_PIECE = 64  # bytes put in: four can stand for 128 KB, and all of that comes at once
_ZSTD_WINDOW = 8 * 1024 * 1024  # bytes a frame may ask for: what RFC 9659 lets it


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces."""
        ...


class Unpacking:
    """A content-encoding undone as bytes pass; gives nothing more of a body that is broken."""

    def __init__(self, encoding: str, most: int = MOST_DECODED) -> None:
        self._left = most
        self._decoders: list[_Decoder] = []
        if not encoding:
            return
        names = [name.strip().lower() for name in encoding.split(",")]
        chosen = [name for name in reversed(names) if name not in ("", "identity")]
        try:
            self._decoders = [_DECODERS[name]() for name in chosen]
        except (ImportError, KeyError):  # not installed, or not known: nothing can be read
            self._left = -1

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """The bytes that the next ones stand for, in pieces; bare ones as they are."""
        if self._left < 0:
            return ()
        return self._unpacked(chunk) if self._decoders else (chunk,)

    def _unpacked(self, chunk: bytes) -> Iterator[bytes]:
        try:
            yield from self._bounded(chunk)
        except Exception:  # noqa: BLE001 - each library has an error of its own
            self._left = -1

    def _bounded(self, chunk: bytes) -> Iterator[bytes]:
        pieces: Iterator[bytes] = iter((chunk,))
        for decoder in self._decoders:
            pieces = _all_of(decoder, pieces)
        for piece in pieces:
            self._left -= len(piece)
            if self._left < 0:
                return
            yield piece


def _all_of(decoder: _Decoder, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from decoder.feed(piece)


class _Gzip:
    """Members one after another, as gzip allows."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces."""
        while data:
            if self._member.eof:
                self._member = zlib.decompressobj(31)
            yield from _inflated(self._member, data)
            data = self._member.unused_data


class _Deflate:
    """With the zlib header that the standard asks for, or bare, as some servers send it."""

    def __init__(self) -> None:
        self._stream: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces."""
        if self._stream is None and data:  # no encoder starts a bare stream with such a byte
            self._stream = zlib.decompressobj(15 if data[0] & 0x0F == 8 else -15)
        if self._stream is not None and not self._stream.eof:
            yield from _inflated(self._stream, data)


def _inflated(stream: Any, data: bytes) -> Iterator[bytes]:
    while piece := stream.decompress(data, _PIECE):
        yield piece
        if stream.eof:
            return
        data = stream.unconsumed_tail


class _Brotli:
    """Brotli, where its package is installed."""

    def __init__(self) -> None:
        self._stream: Any = import_module("brotli").Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces."""
        piece = self._stream.process(data, output_buffer_limit=_PIECE)
        while piece:
            yield piece
            piece = self._stream.process(b"", output_buffer_limit=_PIECE)


class _Zstd:
    """Zstandard, where its package is installed; frames one after another, as it allows."""

    def __init__(self) -> None:
        made = import_module("zstandard").ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._stream: Any = made.decompressobj(read_across_frames=True)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces."""
        for at in range(0, len(data), _ZSTD_PIECE):
            if piece := self._stream.decompress(data[at : at + _ZSTD_PIECE]):
                yield piece


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
