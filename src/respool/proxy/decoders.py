"""Decoders of transfer and content codings: whole bodies, and bodies as their chunks pass."""

from __future__ import annotations

import contextlib
import logging
import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from importlib import import_module
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, NamedTuple, Protocol

from ..regex import lazy_compile

MAX_DECODED: Final = 64 * 1024 * 1024  # bytes of one decoded response
SLICE: Final = 256 * 1024  # decoded bytes of one body before it is the next one's turn
PIECE: Final = 64 * 1024  # bytes of input or output at a time: a bomb is seen after one of them
_ZSTD_PIECE: Final = 64  # four bytes can stand for 128 KB, which come out at once
_ZSTD_WINDOW: Final = 8 * 1024 * 1024  # bytes of memory that a frame may ask for, by RFC 9659
_MAX_LAYERS: Final = 4  # a header could name thousands
_MAX_MEMBERS: Final = 10_000  # gzip members or zstd frames of one body; each may be empty
# A body that grows beyond this is a bomb. Histories and events shrink to a tenth or a fiftieth.
_MAX_RATIO: Final = 100
_ANY_RATIO: Final = 4 * 1024 * 1024  # decoded bytes up to which the ratio does not matter


_log = logging.getLogger(__name__)


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
        if encoding.count(",") > 2 * _MAX_LAYERS:
            raise UndecodableBody(encoding[:100])
        names = [name.strip().lower() for name in encoding.split(",")]
        chosen = [name for name in reversed(names) if name not in ("", "identity")]
        if len(chosen) > _MAX_LAYERS or any(name not in _DECODERS for name in chosen):
            raise UndecodableBody(encoding[:100])
        self._fed = 0  # bytes
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
        self._fed += len(chunk)
        for layer in self._layers:
            pieces = layer.decode(pieces, self._fed)
        yield from pieces

    def finish(self) -> None:
        """Raise if the body is cut off here."""
        if not all(layer.decoder.is_complete() for layer in self._layers):
            raise UndecodableBody("cut off")


class _Layer:
    """One encoding of several, with a limit of its own."""

    def __init__(self, decoder: _Decoder, max_bytes: int) -> None:
        self.decoder = decoder
        self._max_bytes = max_bytes
        self._made = 0

    def decode(self, pieces: Iterable[bytes], fed: int) -> Iterator[bytes]:
        """Decode the next pieces of a body that had so many bytes until now."""
        max_bytes = min(self._max_bytes, max(_ANY_RATIO, _MAX_RATIO * fed))
        for piece in pieces:
            for made in self.decoder.feed(piece):
                self._made += len(made)
                if self._made > max_bytes:
                    raise BodyTooLarge
                yield made


def decode_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decode a whole body; `encoding` is the header's value, empty for none."""
    if not encoding:
        if len(body) > max_bytes:
            raise BodyTooLarge
        return body
    decoding = _decoding(body, encoding, max_bytes)
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value


def _decoding(body: bytes, encoding: str, max_bytes: int) -> Generator[None, None, bytes]:
    """Decode a whole body, and pause after each slice."""
    decoder = ContentDecoder(encoding, max_bytes)
    if not decoder.is_identity:
        pieces: list[bytes] = []
        size = 0
        for piece in decoder.feed(body):
            pieces.append(piece)
            size += len(piece)
            if size >= SLICE:
                size = 0
                yield
        decoder.finish()
        body = b"".join(pieces)
    if len(body) > max_bytes:
        raise BodyTooLarge
    return body


def decode_in_thread(body: bytes, encoding: str, max_bytes: int) -> Future[bytes]:
    """Decode a whole body outside the event loop, together with others."""
    decoding = _decoding(body, encoding, max_bytes)
    future: Future[bytes] = Future()

    def step() -> bool:
        if future.cancelled():
            return False
        with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
            try:
                next(decoding)
            except StopIteration as end:
                future.set_result(end.value)
            except Exception as error:  # noqa: BLE001 - raised by the future
                # Its traceback would keep what is decoded, in a cycle with the future.
                future.set_exception(error.with_traceback(None))
            else:
                return True
        return False

    THREAD.add(step)
    return future


class DecoderThread:
    """A daemon thread that decodes for all requests and responses, a slice of each in turn."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[Callable[[], bool]] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None

    def add(self, step: Callable[[], bool]) -> None:
        """Call this function soon, and again for as long as it returns True."""
        self._steps.put(step)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="respool-decoder", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            step = self._steps.get()
            try:
                has_more = step()
            except Exception:  # noqa: BLE001 - the thread decodes for others too
                _log.exception("A body could not be decoded by a fault of respool")
                has_more = False
            if has_more:
                self._steps.put(step)
            del step  # a body may be in there, and the next one may be far away


THREAD: Final = DecoderThread()


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
            self.close()

    def close(self) -> None:
        """Decode nothing more, and drop the windows, which may take megabytes."""
        self._is_broken, self._decoder = True, None


# --- chunks ------------------------------------------------------------------------------------

_CHUNK_SIZE = lazy_compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\n]*)?[ \t]*\r\n")
_MAX_LINE: Final = 64 * 1024  # bytes of a chunk's first line, and of all trailers
_FIELD = (
    rb"([-!#$%&'*+.^_`|~0-9a-zA-Z]++):[ \t]*+((?:[^\x00\s]++|[ \t]++(?=[^\x00\s]))*+)[ \t]*+\r\n"
)
FIELD: Final = lazy_compile(_FIELD)  # one header
FIELDS: Final = lazy_compile(rb"(?:" + _FIELD + rb")*+")  # all of them


class ChunkedDecoder:
    """Decodes the transfer coding `chunked`, by the rules of h11."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the current chunk that are still to come
        self._awaits = "size"  # the line that comes next: `size`, `end` of a chunk, or `trailer`
        self._line = b""  # the part of it that has come
        self._trailers = b""
        self.is_broken = False  # what came last is no chunk

    def feed(self, data: bytes) -> tuple[list[bytes], int | None]:
        """The parts of the body in these bytes, and where its end is; None: in later ones."""
        parts: list[bytes] = []
        try:
            return parts, self._feed(data, parts)
        except UndecodableBody:
            self.is_broken = True
            return parts, None

    def _feed(self, data: bytes, parts: list[bytes]) -> int | None:
        at = 0
        while at < len(data):
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                continue
            end = data.find(b"\n", at) + 1
            self._line += data[at : end or len(data)]
            if len(self._line) + len(self._trailers) > _MAX_LINE:
                raise UndecodableBody("chunked")
            if not end:
                break
            at = end
            line, self._line = self._line, b""
            if self._take_line(line):
                return at
        return None

    def _take_line(self, line: bytes) -> bool:
        """Take a whole line; True if the body ends with it."""
        if self._awaits == "trailer":
            self._trailers += line
            if line not in (b"\r\n", b"\n"):
                return False
            _ = header_fields(self._trailers[: -len(line)])
            return True
        if self._awaits == "end":
            if line != b"\r\n":
                raise UndecodableBody("chunked")
            self._awaits = "size"
            return False
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise UndecodableBody("chunked")
        self._left = int(found[1], 16)
        self._awaits = "end" if self._left else "trailer"
        return False


_LOOSE_LINE = lazy_compile(rb"\r?\n")
_FOLD = lazy_compile(rb"\r\n[ \t]+")


def header_fields(block: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The headers in these lines, and whether all are written as the standard asks.

    Folded lines and bare line feeds are read too, as h11 does.
    """
    if FIELDS.fullmatch(block):
        return FIELD.findall(block), True
    loose = _FOLD.sub(b" ", _LOOSE_LINE.sub(b"\r\n", block))
    if not FIELDS.fullmatch(loose):
        raise UndecodableBody("header")
    return FIELD.findall(loose), False


# --- event streams of AWS ----------------------------------------------------------------------

_PRELUDE: Final = struct.Struct(">III")  # bytes of the frame and of its headers, and their CRC
_CRC: Final = struct.Struct(">I")
_MAX_FRAME: Final = 1024 * 1024  # bytes of a frame that is read; a longer one is skipped
_MAX_FRAME_HEADERS: Final = 128 * 1024
_FIXED_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # of values, by their type
_SIZED_TYPES: Final = (6, 7)  # bytes and text, behind their size


class EventFrame(NamedTuple):
    """One event of a stream: its headers with text, and its payload."""

    headers: dict[str, str]
    payload: bytes


class EventStreamDecoder:
    """Decodes `application/vnd.amazon.eventstream`; returns nothing more after a broken frame.

    All sums are checked, as botocore does.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipped = 0  # bytes of a long frame that are still to come
        self._is_broken = False

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        """The frames that end in these bytes."""
        passed = min(self._skipped, len(data))
        self._skipped -= passed
        self._held += data[passed:]
        while not self._is_broken and len(self._held) >= _PRELUDE.size:
            size, head, crc = _PRELUDE.unpack_from(self._held)
            rest = size - head - _PRELUDE.size - _CRC.size
            is_sound = crc == zlib.crc32(self._held[:8]) and head <= _MAX_FRAME_HEADERS
            if not is_sound or rest < 0:
                break
            if size > _MAX_FRAME:
                self._skipped = max(0, size - len(self._held))
                del self._held[:size]
                continue
            if len(self._held) < size:
                return
            frame = bytes(self._held[:size])
            del self._held[:size]
            if _CRC.unpack_from(frame, size - 4)[0] != zlib.crc32(frame[:-4]):
                break
            yield EventFrame(_frame_headers(frame[12 : 12 + head]), frame[12 + head : -4])
        else:
            return
        self._is_broken = True
        self._held.clear()


def _frame_headers(block: bytes) -> dict[str, str]:
    """The headers with text; those behind a malformed one are left out."""
    found: dict[str, str] = {}
    at = 0
    with contextlib.suppress(IndexError):
        while at < len(block):
            start = at + 1
            at = start + block[at]
            name, kind = block[start:at], block[at]
            at += 1
            if kind in _SIZED_TYPES:
                size = block[at] << 8 | block[at + 1]
                at += 2
            elif kind in _FIXED_SIZES:
                size = _FIXED_SIZES[kind]
            else:
                break
            if kind == 7 and at + size <= len(block):
                found[name.decode("latin-1")] = block[at : at + size].decode("utf-8", "replace")
            at += size
    return found


# --- the encodings -----------------------------------------------------------------------------


class _Gzip:
    """Gzip; members may follow one another."""

    def __init__(self) -> None:
        self._member: Any = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None or self._member.eof:
                self._members = _one_more(self._members)
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
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for at in range(0, len(data), _ZSTD_PIECE):
                yield from self._feed(data[at : at + _ZSTD_PIECE])
        except self._module.ZstdError:
            raise UndecodableBody("zstd") from None

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None or self._frame.eof:
                self._frames = _one_more(self._frames)
                self._frame = self._made.decompressobj()
            if piece := self._frame.decompress(data):
                yield piece
            data = self._frame.unused_data

    def is_complete(self) -> bool:
        return self._frame is None or self._frame.eof


def _one_more(members: int) -> int:
    """The number of members with this one; raises if there are too many."""
    if members >= _MAX_MEMBERS:
        raise BodyTooLarge
    return members + 1


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
