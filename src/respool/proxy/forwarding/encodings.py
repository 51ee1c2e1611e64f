"""Content-encodings of bodies, decoded piece by piece within a limit."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

PIECE: Final = 64 * 1024  # bytes put in, or asked for, at a time: a bomb is seen after one of them
_ZSTD_PIECE = 512  # four bytes can stand for 128 KB, and all that they stand for comes at once
_MOST_LAYERS = 4  # a header has room for thousands, each as much work as the first

Decode = Callable[[bytes], Iterator[bytes]]


class Undecodable(Exception):
    """A body that is not what its content-encoding says, or one that respool does not know."""


class TooLarge(Exception):
    """A body over the limit once it is decoded."""


def decoded(body: bytes, encoding: str, most: int) -> bytes:
    """The body without its content-encoding (a list, as in the header; empty: none)."""
    names = [part.strip().lower() for part in encoding.split(",")]
    chosen = [name for name in reversed(names) if name not in ("", "identity")]
    if len(chosen) > _MOST_LAYERS:
        raise Undecodable(encoding[:100])
    for name in chosen:
        body = _one(body, name, most)
    if len(body) > most:
        raise TooLarge
    return body


def _one(body: bytes, name: str, most: int) -> bytes:
    """The body without one encoding; never holds much more than `most` bytes."""
    made = _DECODERS.get(name)
    if made is None:
        raise Undecodable(name)
    pieces: list[bytes] = []
    room = most
    for piece in made(body):
        room -= len(piece)
        if room < 0:
            raise TooLarge
        pieces.append(piece)
    return b"".join(pieces)


def _gzip(body: bytes) -> Iterator[bytes]:
    """Members one after another, as gzip allows."""
    at = 0
    while at < len(body):
        at = yield from _inflated(body, at, wbits=31)


def _deflate(body: bytes) -> Iterator[bytes]:
    """With the zlib header that the standard asks for, or bare, as some clients send it."""
    wrapped = len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    end = yield from _inflated(body, 0, wbits=15 if wrapped else -15)
    if end < len(body):
        raise Undecodable("deflate")


def _inflated(body: bytes, at: int, wbits: int) -> Generator[bytes, None, int]:
    """What the one stream holds that begins here; returns where it ends."""
    inflating = zlib.decompressobj(wbits)
    while not inflating.eof:
        given, at = body[at : at + PIECE], at + PIECE
        if not given:
            raise Undecodable("zlib")
        try:
            while piece := inflating.decompress(given, PIECE):
                yield piece
                if inflating.eof:
                    break
                given = inflating.unconsumed_tail
        except zlib.error:
            raise Undecodable("zlib") from None
    return min(at, len(body)) - len(inflating.unused_data)


def _brotli(body: bytes) -> Iterator[bytes]:
    brotli: Any = importlib.import_module("brotli")  # late: few bodies need it; it has no types
    decoder = brotli.Decompressor()
    at = 0
    piece: bytes = b"any"
    try:
        while not decoder.is_finished():
            given = b""
            if decoder.can_accept_more_data():
                given, at = body[at : at + PIECE], at + PIECE
            if not given and not piece:
                raise Undecodable("br")
            piece = decoder.process(given, output_buffer_limit=PIECE)
            yield piece
    except brotli.error:
        raise Undecodable("br") from None


def _zstd(body: bytes) -> Iterator[bytes]:
    """Frames one after another, as zstd allows."""
    import zstandard  # late: few bodies need it

    # The window is memory that a frame asks for before its first byte: 8 MB is what RFC 9659 lets
    # a content-encoding ask.
    made = zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024)
    at = 0
    try:
        while at < len(body):
            decoder = made.decompressobj()
            while not decoder.eof:
                given, at = body[at : at + _ZSTD_PIECE], at + _ZSTD_PIECE
                if not given:
                    raise Undecodable("zstd")
                yield decoder.decompress(given)
            at = min(at, len(body)) - len(decoder.unused_data)
    except zstandard.ZstdError:
        raise Undecodable("zstd") from None


_DECODERS: dict[str, Decode] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
