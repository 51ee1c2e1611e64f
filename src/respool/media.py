"""Token counts and pixel sizes of images and documents, from their headers alone.

Providers charge by size in pixels or by page. The rules are their published ones; media that
cannot be parsed count as a default (docs/reference/prices.md).
"""

from __future__ import annotations

import base64
import re
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from math import ceil
from typing import NamedTuple

from .regex import lazy_compile
from .wire.base import wire_format

Size = tuple[int, int]

MEDIA_UNITS = ("image", "file")  # the units that a marker names
_MEDIA_MARKER = lazy_compile(
    rf"\[respool: 1 (?:{'|'.join(MEDIA_UNITS)}) left out[^\n\[\]]{{0,200}}; ref [a-z2-7]{{20}}\]",
    re.ASCII,
)

DEFAULT_SIZE: Size = (1024, 1024)  # an image whose size cannot be read: behind a URL, or broken
DEFAULT_PAGES = 10  # a document that is not in the request: behind a URL or a file id

HEADER_BYTES = 4096  # enough for every format but JPEG
JPEG_BYTES = 256 * 1024  # a thumbnail and a colour profile may come before a JPEG's size
PDF_BYTES = 8 * 1024 * 1024  # the pages of a longer PDF are extrapolated
_CHUNK = 1024 * 1024  # base64 characters decoded together

ANTHROPIC_MAX_EDGE = 1568  # pixels; a larger image is scaled down
ANTHROPIC_MAX_TOKENS = 1600  # tokens; likewise
ANTHROPIC_PIXELS_PER_TOKEN = 750
OPENAI_BASE, OPENAI_TILE = 85, 170  # tokens for any image, and for each tile of 512 pixels
GEMINI_TILE = 258  # tokens for each tile of 768 pixels
GEMINI_MAX_EDGE = 3072  # pixels; a larger image is scaled down

# Anthropic says 1,500 to 3,000 a page for the text, and adds the page's picture; OpenAI adds text
# and picture (here 700 + 765); Gemini charges a page as one tile.
ANTHROPIC_PAGE_TOKENS = 3000
OPENAI_PAGE_TOKENS = 1465
GEMINI_PAGE_TOKENS = GEMINI_TILE
PDF_BYTES_PER_PAGE = 50_000  # a PDF whose page objects are compressed
BYTES_PER_TEXT_TOKEN = 4
BYTES_PER_BINARY_TOKEN = 500  # sound, video, archives: 32 tokens a second at 128 kbit/s


def image_tokens(
    format: str, *, data_base64: str | None, url: str | None, detail: str | None = None
) -> int:
    """The tokens of an image in a request of this wire format.

    >>> image_tokens("openai-chat", data_base64=None, url="https://example.org/cat.png")
    765
    """
    own_rule = wire_format(format).image_tokens
    if detail == "low" and own_rule is None:
        return OPENAI_BASE
    data = data_base64 or url
    width, height = (image_size(data) if data else None) or DEFAULT_SIZE
    return (own_rule or _openai_image)(width, height)


def document_tokens(format: str, *, data_base64: str | None, media_type: str | None) -> int:
    """The tokens of a document: by page for a PDF, by length for anything else."""
    page = wire_format(format).page_tokens or OPENAI_PAGE_TOKENS
    if not data_base64:
        return DEFAULT_PAGES * page
    body = _base64_data(data_base64)
    kind = (media_type or body.media_type).lower()
    if kind.startswith("text/") or kind in ("application/json", "application/xml"):
        return max(1, body.size // BYTES_PER_TEXT_TOKEN)
    if kind == "application/pdf" or b"%PDF-" in _prefix(body, 1024):
        return _pdf_pages(body) * page
    return max(1, body.size // BYTES_PER_BINARY_TOKEN)


def image_size(data_base64: str) -> Size | None:
    """Width and height of a PNG, JPEG, GIF, WebP or BMP in base64 or a data URL, if readable."""
    body = _base64_data(data_base64)
    head = _prefix(body, HEADER_BYTES)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head) or _jpeg_size(_prefix(body, JPEG_BYTES))
    for signature, min_bytes, read in _SIZES:
        if head.startswith(signature):
            return _positive(read(head)) if len(head) >= min_bytes else None
    return None


def is_media_marker(text: str) -> bool:
    """Return whether a text block is the marker of a removed image or file.

    Such a block is no text of its result: it stays when the result is cut.

    >>> is_media_marker("[respool: 1 image left out; ref bbidnwiqv5awc2eneyyx]")
    True
    """
    return text.startswith("[respool: 1 ") and _MEDIA_MARKER.fullmatch(text) is not None


# --- the providers' rules ----------------------------------------------------------------------


def anthropic_image_tokens(width: int, height: int) -> int:
    """Tokens of an image of this size on Anthropic."""
    width, height = _scaled(width, height, ANTHROPIC_MAX_EDGE / max(width, height))
    return min(ANTHROPIC_MAX_TOKENS, max(1, ceil(width * height / ANTHROPIC_PIXELS_PER_TOKEN)))


def _openai_image(width: int, height: int) -> int:
    width, height = _scaled(width, height, 2048 / max(width, height))
    width, height = _scaled(width, height, 768 / min(width, height))
    return OPENAI_BASE + OPENAI_TILE * ceil(width / 512) * ceil(height / 512)


def gemini_image_tokens(width: int, height: int) -> int:
    """Tokens of an image of this size on Gemini."""
    if max(width, height) <= 384:
        return GEMINI_TILE
    width, height = _scaled(width, height, GEMINI_MAX_EDGE / max(width, height))
    return GEMINI_TILE * ceil(width / 768) * ceil(height / 768)


def _scaled(width: int, height: int, factor: float) -> Size:
    """The size after scaling down; scaling up does not happen."""
    if factor >= 1:
        return width, height
    return max(1, round(width * factor)), max(1, round(height * factor))


# --- image headers -----------------------------------------------------------------------------


def _little(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "little")


def _big(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")


def _png_size(head: bytes) -> Size:
    return _big(head, 16, 4), _big(head, 20, 4)


def _gif_size(head: bytes) -> Size:
    return _little(head, 6, 2), _little(head, 8, 2)


def _bmp_size(head: bytes) -> Size:
    if _little(head, 14, 4) == 12:  # the header of OS/2
        return _little(head, 18, 2), _little(head, 20, 2)
    height = int.from_bytes(head[22:26], "little", signed=True)
    return _little(head, 18, 4), abs(height)  # negative: rows are top-down


def _webp_size(head: bytes) -> Size:
    form = head[8:16]
    if form == b"WEBPVP8 " and head[23:26] == b"\x9d\x01\x2a":
        return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
    if form == b"WEBPVP8L" and head[20:21] == b"\x2f":
        bits = _little(head, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"WEBPVP8X":
        return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
    return 0, 0


def _jpeg_size(head: bytes) -> Size | None:
    """Walk the segments to the one that starts a frame."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # fill bytes may stand before a marker
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _positive((_big(head, at + 7, 2), _big(head, at + 5, 2)))
        elif marker in (0xD9, 0xDA):  # image data without a frame
            return None
        else:
            at += 2 + max(2, _big(head, at + 2, 2))
    return None


def _positive(size: Size) -> Size | None:
    return size if min(size) > 0 else None


# By signature: the minimum of bytes needed, and the reader.
_SIZES: tuple[tuple[bytes, int, Callable[[bytes], Size]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 24, _png_size),
    (b"GIF87a", 10, _gif_size),
    (b"GIF89a", 10, _gif_size),
    (b"RIFF", 30, _webp_size),
    (b"BM", 26, _bmp_size),
)


# --- PDF ---------------------------------------------------------------------------------------

_PAGE = lazy_compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")


def _pdf_pages(body: _Base64Data) -> int:
    """Page objects in the first part of a PDF, scaled to its length; by size if there are none."""
    pages = total = 0
    tail = b""
    for chunk in _decoded(body, PDF_BYTES):
        total += len(chunk)
        pages += len(_PAGE.findall(tail + chunk)) - len(_PAGE.findall(tail))
        tail = chunk[-32:]  # longer than any match of the pattern
    if not pages:
        return max(1, body.size // PDF_BYTES_PER_PAGE)
    return pages * body.size // total if body.size > PDF_BYTES else pages


# --- base64 ------------------------------------------------------------------------------------


class _Base64Data(NamedTuple):
    """A string with base64 data: its offset, and the media type of a data URL."""

    text: str
    start: int
    media_type: str

    @property
    def size(self) -> int:
        """The approximate number of decoded bytes."""
        return (len(self.text) - self.start) * 3 // 4


_NOT_BASE64 = lazy_compile(rb"[^A-Za-z0-9+/]+")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def _base64_data(text: str) -> _Base64Data:
    """The base64 of a string that may be a data URL; the string itself is not copied."""
    if text[:5].lower() != "data:":
        return _Base64Data(text, 0, "")
    comma = text.find(",", 0, 1024)
    if comma < 0:
        return _Base64Data(text, len(text), "")
    return _Base64Data(text, comma + 1, text[5:comma].partition(";")[0])


def _prefix(body: _Base64Data, size: int) -> bytes:
    """The first bytes of the decoded data."""
    return b"".join(_decoded(body, size))[:size]


def _decoded(body: _Base64Data, limit: int) -> Iterator[bytes]:
    """Decode the data chunk by chunk, up to the limit."""
    end = min(len(body.text), body.start + limit * 4 // 3 + 4)
    rest = b""
    for at in range(body.start, end, _CHUNK):
        raw = body.text[at : min(end, at + _CHUNK)].encode("ascii", "ignore").translate(_URL_SAFE)
        rest += _NOT_BASE64.sub(b"", raw)
        whole = len(rest) // 4 * 4
        yield _decode(rest[:whole])
        rest = rest[whole:]
    if len(rest) > 1:
        yield _decode(rest + b"=" * (4 - len(rest)))


def _decode(quads: bytes) -> bytes:
    try:
        return base64.b64decode(quads)
    except Base64Error:
        return b""
