"""Sizes and tokens of images and documents made byte by byte."""

from __future__ import annotations

import base64
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool import media
from respool.media import document_tokens, image_size, image_tokens
from respool.providers.anthropic.codec import AnthropicCodec
from respool.providers.base import Codec
from respool.providers.gemini.codec import GeminiCodec
from respool.providers.openai_chat.codec import OpenAIChatCodec
from respool.providers.openai_responses.codec import OpenAIResponsesCodec
from respool.tokens import EstimateCounter, part_tokens

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int, tail: bytes = b"") -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + tail


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, -height) + bytes(28)


def old_bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<IHHHH", 12, width, height, 1, 24)


def jpeg(width: int, height: int, before: int = 0, frame: int = 0xC0) -> bytes:
    """A JPEG whose frame stands behind so many bytes of application segments."""
    segments = b""
    while before > 0:
        body = bytes(min(before, 65_533))
        segments += b"\xff\xe2" + struct.pack(">H", len(body) + 2) + body
        before -= len(body)
    tables = b"\xff\xff\xc4" + struct.pack(">H", 4) + b"\0\0"  # fill byte; C4 starts no frame
    start = struct.pack(">BBHBHHB", 0xFF, frame, 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + segments + tables + start + b"\xff\xda"


def riff(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body + bytes(16)
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def webp_lossy(width: int, height: int) -> bytes:
    return riff(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height | 0x4000))


def webp_lossless(width: int, height: int) -> bytes:
    return riff(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14 | 1 << 28))


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff(b"VP8X", b"\x10\0\0\0" + sides)


MADE = [png, gif, bmp, old_bmp, jpeg, webp_lossy, webp_lossless, webp_extended]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (3, 9000), (16_383, 2)])
def test_sizes_are_read(made: Callable[[int, int], bytes], size: tuple[int, int]) -> None:
    encoded = text(made(*size))
    assert image_size(encoded) == size
    assert image_size("data:image/png;base64," + encoded) == size
    assert image_size("DATA:image/x;charset=utf-8;base64," + encoded.rstrip("=")) == size
    assert image_size("\n".join(encoded[at : at + 7] for at in range(0, len(encoded), 7))) == size
    assert image_size(encoded.replace("+", "-").replace("/", "_")) == size


def test_a_gif_may_be_wider_than_a_signed_number_holds() -> None:
    assert image_size(text(gif(40_000, 65_535))) == (40_000, 65_535)


@pytest.mark.parametrize(
    ("before", "frame", "size"),
    [
        (60_000, 0xC2, (800, 600)),  # progressive, behind a thumbnail
        (200_000, 0xC0, (800, 600)),  # behind a colour profile in several segments
        (300_000, 0xC0, None),  # farther than is looked
    ],
)
def test_jpeg_frames_behind_other_segments(
    before: int, frame: int, size: tuple[int, int] | None
) -> None:
    assert image_size(text(jpeg(800, 600, before, frame))) == size


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "data:",
        "data:image/png;base64",
        "https://example.org/cat.png",
        "é" * 100,
        "====",
        text(b"\x89PNG\r\n\x1a\n"),
        text(png(0, 5)),
        text(png(640, 480)[:21]),
        text(gif(640, 480)[:9]),
        text(webp_lossless(640, 480)[:24]),
        text(riff(b"XXXX", bytes(40))),
        text(b"\xff\xd8" + b"\xff" * 5000),
        text(b"\xff\xd8\xff\xe0\0\0" * 900),
        text(jpeg(10, 10)[:12]),
    ],
)
def test_what_cannot_be_read_has_no_size(broken: str) -> None:
    assert image_size(broken) is None


@pytest.mark.parametrize(
    ("format", "size", "tokens"),
    [
        ("anthropic", (200, 200), 54),
        ("anthropic", (1000, 1000), 1334),
        ("anthropic", (1, 1), 1),
        ("anthropic", (3136, 200), 210),  # scaled down to 1568 by 100 first: 156,800 / 750
        ("anthropic", (8000, 8000), 1600),
        ("openai-chat", (512, 512), 85 + 170),
        ("openai-chat", (1024, 1024), 765),
        ("openai-responses", (2048, 4096), 1105),
        ("openai-chat", (100_000, 1), 85 + 4 * 170),
        ("gemini", (384, 384), 258),
        ("gemini", (385, 100), 258),
        ("gemini", (769, 700), 2 * 258),
        ("gemini", (3072, 3072), 16 * 258),
        ("gemini", (2**31, 2**31), 16 * 258),
        ("some other wire", (1024, 1024), 765),
    ],
)
def test_image_rules(format: str, size: tuple[int, int], tokens: int) -> None:
    encoded = text(png(*size))
    assert image_tokens(format, data_base64=encoded, url=None) == tokens
    url = "data:image/png;base64," + encoded
    assert image_tokens(format, data_base64=None, url=url) == tokens


def test_low_detail_is_openais() -> None:
    encoded = text(png(2000, 2000))
    for format in FORMATS:
        low = image_tokens(format, data_base64=encoded, url=None, detail="low")
        high = image_tokens(format, data_base64=encoded, url=None, detail="high")
        assert (low == 85) == format.startswith("openai")
        assert high == image_tokens(format, data_base64=encoded, url=None)


DEFAULTS = list(zip(FORMATS, (1399, 765, 765, 1032), strict=True))


@pytest.mark.parametrize(("format", "tokens"), DEFAULTS)
def test_an_image_of_unknown_size_counts_as_the_default(format: str, tokens: int) -> None:
    for url in (None, "", "https://example.org/cat.png", "data:image/png;base64,AAAA"):
        assert image_tokens(format, data_base64=None, url=url) == tokens


def pdf(pages: int, padding: int = 0) -> bytes:
    body = b"2 0 obj << /Type /Pages /Count 1 >> endobj\n"
    page = b"3 0 obj << /Type /Page /Parent 2 0 R >> endobj\n" + b"%" * padding + b"\n"
    return b"%PDF-1.7\n" + body + page * pages + b"%%EOF"


@pytest.mark.parametrize(
    ("data", "media_type", "pages"),
    [
        (pdf(1), "application/pdf", 1),
        (pdf(7), None, 7),
        (pdf(3).replace(b"/Type /Page ", b"/Type/Page/"), "application/pdf", 3),
        (pdf(2000, 2000), "application/pdf", 2000),  # read in several chunks
        (b"%PDF-1.7" + bytes(500_000), "application/pdf", 10),  # pages compressed: by size
        (b"", "application/pdf", 10),  # not in the request
    ],
)
def test_pdf_pages(data: bytes, media_type: str | None, pages: int) -> None:
    for format, page in zip(FORMATS, (3000, 1465, 1465, 258), strict=True):
        tokens = document_tokens(format, data_base64=text(data), media_type=media_type)
        assert tokens == pages * page


@pytest.mark.parametrize("shift", range(60))
def test_page_objects_across_chunks(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_CHUNK", 64)
    data = b"%PDF-1.7" + b" " * shift + pdf(5)
    assert document_tokens("gemini", data_base64=text(data), media_type=None) == 5 * 258


def test_a_pdf_longer_than_is_read_is_scaled() -> None:
    data = pdf(400, 50_000)  # 20 MB
    tokens = document_tokens("gemini", data_base64=text(data), media_type="application/pdf")
    assert tokens / 258 == pytest.approx(400, rel=0.01)


@pytest.mark.parametrize(
    ("data", "media_type", "tokens"),
    [
        (b"x" * 4000, "text/plain", 1000),
        (b"{}" * 200, "application/json", 100),
        (b"x" * 50_000, "audio/mpeg", 100),
        (b"x", "text/plain", 1),
        (b"x" * 50_000, None, 100),
    ],
)
def test_other_documents_count_by_length(data: bytes, media_type: str | None, tokens: int) -> None:
    found = document_tokens("gemini", data_base64=text(data), media_type=media_type)
    assert found == pytest.approx(tokens, abs=1)
    if media_type:
        url = f"data:{media_type};base64,{text(data)}"
        assert document_tokens("gemini", data_base64=url, media_type=None) == found


@given(
    st.text() | st.binary().map(text) | st.binary().map(lambda tail: text(jpeg(9, 9)[:20] + tail))
)
def test_nothing_raises(data: str) -> None:
    for format in (*FORMATS, ""):
        assert image_tokens(format, data_base64=data, url=data) >= 1
        assert document_tokens(format, data_base64=data, media_type=data) >= 1
    size = image_size(data)
    assert size is None or min(size) > 0


def test_a_large_image_is_neither_decoded_nor_copied() -> None:
    large = "data:image/png;base64," + text(png(4000, 3000, bytes(20_000_000)))
    broken = text(b"\xff\xd8" + bytes(20_000_000))
    started = time.perf_counter()
    tracemalloc.start()
    try:
        assert image_size(large) == (4000, 3000)
        assert image_tokens("anthropic", data_base64=broken, url=None) == 1399
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000
    assert time.perf_counter() - started < 1


BLOB = text(bytes(range(256)) * 1200)  # 300 KB of no known kind
PDF = text(b"%PDF-1.7 /Type /Page " + bytes(range(256)) * 1200)
FETCHED = {
    "type": "web_fetch_result",
    "content": {"type": "document", "source": {"type": "base64", "data": PDF}},
}


def said(block: Any) -> Any:
    return {"role": "user", "content": [block]}


CARRIED: list[tuple[str, Codec, Any, range]] = [
    (
        "a film, as compatible servers take one",
        OpenAIChatCodec(),
        said({"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{BLOB}"}}),
        range(500, 1_000),
    ),
    (
        "a picture of a kind that is not known",
        OpenAIChatCodec(),
        said({"type": "image", "image": f"data:image/png;base64,{text(png(512, 512))}"}),
        range(200, 400),
    ),
    (
        "a recording",
        OpenAIResponsesCodec(),
        said({"type": "input_audio", "input_audio": {"data": BLOB, "format": "mp3"}}),
        range(500, 1_000),
    ),
    (
        "a block of a later day",
        AnthropicCodec(),
        said({"type": "video", "source": {"type": "base64", "data": BLOB}}),
        range(500, 1_000),
    ),
    (
        "a document that the provider fetched",
        AnthropicCodec(),
        {"role": "assistant", "content": [{"type": "web_fetch_tool_result", "content": FETCHED}]},
        range(3_000, 30_000),
    ),
    (
        "a part that is no part",
        GeminiCodec(),
        {"role": "user", "parts": [{"futureData": {"data": BLOB}}]},
        range(500, 1_000),
    ),
    (
        "what is encrypted weighs what it is long",
        AnthropicCodec(),
        {"role": "assistant", "content": [{"type": "compaction", "encrypted_content": BLOB}]},
        range(100_000, 1_000_000),
    ),
    (
        "words that begin like a film",
        OpenAIChatCodec(),
        said({"type": "note", "note": "data: " + "a word, and another; " * 500}),
        range(2_000, 6_000),
    ),
]


@pytest.mark.parametrize(
    ("codec", "message", "tokens"), [row[1:] for row in CARRIED], ids=[row[0] for row in CARRIED]
)
def test_what_is_carried_along_weighs_as_what_it_holds(
    codec: Codec, message: Any, tokens: range
) -> None:
    counter = EstimateCounter()
    assert sum(part_tokens(part, counter) for part in codec.decode(0, message)) in tokens
