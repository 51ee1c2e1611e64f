"""Frames of `application/vnd.amazon.eventstream`, as Bedrock sends a model's events."""

from __future__ import annotations

import base64
import json
import struct
import zlib

TYPE = "application/vnd.amazon.eventstream"
CHUNK = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}


def frame(payload: bytes, headers: dict[str, str]) -> bytes:
    """One frame whose headers are texts."""
    pairs = ((name.encode(), value.encode()) for name, value in headers.items())
    head = b"".join(
        struct.pack(">B", len(name)) + name + b"\x07" + struct.pack(">H", len(value)) + value
        for name, value in pairs
    )
    return framed(head, payload)


def framed(head: bytes, payload: bytes = b"") -> bytes:
    """One frame with these headers, with its sizes and sums."""
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return start + struct.pack(">I", zlib.crc32(start))


def event(value: object) -> bytes:
    """An event of the model; `p` is padding, which hides its length."""
    said = base64.b64encode(json.dumps(value).encode()).decode()
    return frame(json.dumps({"bytes": said, "p": "abcdefgh"}).encode(), CHUNK)
