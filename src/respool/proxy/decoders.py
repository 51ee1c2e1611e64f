"""Decoders of content-encodings: whole bodies, and responses as their chunks pass."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol

MAX_DECODED: Final = 256 * 1024 * 1024  # bytes of one decoded response
PIECE: Final = 64 * 1024  # bytes of input or output at a time: a bomb is seen after one of them
_ZSTD_PIECE: Final = 64  # four bytes can stand for 128 KB, which come out at once
_ZSTD_WINDOW: Final = 8 * 1024 * 1024  # bytes of memory that a frame may ask for, by RFC 9659
_MAX_LAYERS: Final = 4  # a header could name thousands


class UndecodableBody(Exception):
    """A body that does not match its content-encoding, or an encoding that is not known."""


class BodyTooLarge(Exception):
    """A body over the limit once it is decoded."""


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes, in pieces."""
        ...

    def is_complete(self) -> bool:
        """True if the body may end here."""
        ...


class ContentDecoder:
    """Decodes a body chunk by chunk, within a limit; raises for what it cannot decode."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        names = [name.strip().lower() for name in encoding.split(",")]
        chosen = [name for name in reversed(names) if name not in ("", "identity")]
        if len(chosen) > _MAX_LAYERS or any(name not in _DECODERS for name in chosen):
            raise UndecodableBody(encoding[:100])
        try:
            self._layers = [_Layer(_DECODERS[name](), max_bytes) for name in chosen]
        except ImportError as error:
            raise UndecodableBody(encoding[:100]) from error

    @property
    def is_identity(self) -> bool:
        """True if there is nothing to decode."""
        return not self._layers

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decode the next bytes, in pieces."""
        pieces: Iterable[bytes] = (chunk[at : at + PIECE] for at in range(0, len(chunk), PIECE))
        for layer in self._layers:
            pieces = layer.decode(pieces)
        yield from pieces

    def finish(self) -> None:
        """Raise if the body is cut off here."""
        if not all(layer.decoder.is_complete() for layer in self._layers):
            raise UndecodableBody("cut off")


class _Layer:
    """One encoding of several, with a limit of its own."""

    def __init__(self, decoder: _Decoder, max_bytes: int) -> None:
        self.decoder = decoder
        self._left = max_bytes

    def decode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            for made in self.decoder.feed(piece):
                self._left -= len(made)
                if self._left < 0:
                    raise BodyTooLarge
                yield made


def decode_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decode a whole body; `encoding` is the header's value, empty for none."""
    decoder = ContentDecoder(encoding, max_bytes)
    if not decoder.is_identity:
        body = b"".join(decoder.feed(body))
        decoder.finish()
    if len(body) > max_bytes:
        raise BodyTooLarge
    return body


class LenientDecoder:
    """Decodes a body chunk by chunk; returns nothing more once it is broken or too large."""

    def __init__(self, encoding: str, max_bytes: int = MAX_DECODED) -> None:
        self._decoder: ContentDecoder | None = None
        self._is_broken = False
        if encoding:
            try:
                self._decoder = ContentDecoder(encoding, max_bytes)
            except UndecodableBody:
                self._is_broken = True

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """Decode the next bytes, in pieces; plain bytes are returned as they are."""
        if self._is_broken:
            return ()
        if self._decoder is None or self._decoder.is_identity:
            return (chunk,)
        return self._decoded(self._decoder, chunk)

    def _decoded(self, decoder: ContentDecoder, chunk: bytes) -> Iterator[bytes]:
        try:
            yield from decoder.feed(chunk)
        except (UndecodableBody, BodyTooLarge):
            self._is_broken = True


# --- the encodings -----------------------------------------------------------------------------


class _Gzip:
    """Gzip; members may follow one another."""

    def __init__(self) -> None:
        self._member: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None or self._member.eof:
                self._member = zlib.decompressobj(31)
            yield from _inflate(self._member, data)
            data = self._member.unused_data

    def is_complete(self) -> bool:
        return self._member is None or self._member.eof


class _Deflate:
    """Deflate, with the zlib header that the standard asks for, or bare, as some send it."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._start = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            data = self._start = self._start + data
            if len(data) < 2:
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(15 if wrapped else -15)
        yield from _inflate(self._stream, data)
        if self._stream.unused_data:
            raise UndecodableBody("deflate")

    def is_complete(self) -> bool:
        return self._stream is not None and self._stream.eof


def _inflate(stream: Any, data: bytes) -> Iterator[bytes]:
    try:
        while piece := stream.decompress(data, PIECE):
            yield piece
            if stream.eof:
                return
            data = stream.unconsumed_tail
    except zlib.error:
        raise UndecodableBody("zlib") from None


class _Brotli:
    """Brotli."""

    def __init__(self) -> None:
        self._module: Any = import_module("brotli")  # late: few bodies need it; it has no types
        self._stream: Any = self._module.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream.is_finished():
            return
        try:
            piece = self._stream.process(data, output_buffer_limit=PIECE)
            while piece:
                yield piece
                piece = self._stream.process(b"", output_buffer_limit=PIECE)
        except self._module.error:
            raise UndecodableBody("br") from None

    def is_complete(self) -> bool:
        return bool(self._stream.is_finished())


class _Zstd:
    """Zstandard; frames may follow one another."""

    def __init__(self) -> None:
        self._module: Any = import_module("zstandard")  # late: few bodies need it
        self._made: Any = self._module.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for at in range(0, len(data), _ZSTD_PIECE):
                yield from self._feed(data[at : at + _ZSTD_PIECE])
        except self._module.ZstdError:
            raise UndecodableBody("zstd") from None

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None or self._frame.eof:
                self._frame = self._made.decompressobj()
            if piece := self._frame.decompress(data):
                yield piece
            data = self._frame.unused_data

    def is_complete(self) -> bool:
        return self._frame is None or self._frame.eof


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
