"""Texts and bytes as they stand in the store: compressed where that helps.

zlib at its fastest. On tool output it packs 2.9 to 1 at about 90 microseconds for 4,000 bytes;
zstd takes a third of that time for 3.0 to 1, and both are nothing beside the disk's own time.
"""

from __future__ import annotations

import zlib

PLAIN = 0
ZLIB = 1

_LEVEL = 1
_TOO_SMALL = 128  # bytes that are not worth it


class Damaged(ValueError):
    """What stands in the store cannot be unpacked."""


def encoded(text: str) -> bytes:
    """A text's bytes; it may hold halves of characters, as agents cut them."""
    return text.encode("utf-8", "surrogatepass")


def packed(data: bytes) -> tuple[int, bytes]:
    """How these bytes are packed, and what that makes of them."""
    if len(data) < _TOO_SMALL:
        return PLAIN, data
    small = zlib.compress(data, _LEVEL)
    return (ZLIB, small) if len(small) < len(data) else (PLAIN, data)


def unpacked(packing: int, data: bytes, size: int) -> bytes:
    """The bytes that were packed: exactly so many, or they are damaged."""
    if packing == ZLIB:
        try:  # never more than was put in, whatever the file now says
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise Damaged(str(error)) from error
    if packing not in (PLAIN, ZLIB) or len(data) != size:
        raise Damaged(f"packed by {packing}, {len(data):,} of {size:,} bytes")
    return data


def unpacked_text(packing: int, data: bytes, size: int) -> str:
    """The text that was packed."""
    try:
        return unpacked(packing, data, size).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged(str(error)) from error
