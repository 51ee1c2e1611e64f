"""Compressed bodies are decode_body whole, or refused; never beyond the limit."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import brotli  # pyright: ignore[reportMissingTypeStubs]
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.proxy.decoders import (
    BodyTooLarge,
    ChunkedDecoder,
    UndecodableBody,
    decode_body,
    decode_in_thread,
)
from tests.effort import examples


def bare_deflate(body: bytes) -> bytes:
    compressing = zlib.compressobj(wbits=-15)
    return compressing.compress(body) + compressing.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "br": lambda body: brotli.compress(body, quality=5),
    "zstd": zstandard.ZstdCompressor().compress,
    "x-gzip": lambda body: gzip.compress(body[:100]) + gzip.compress(body[100:]),
    "identity": bytes,
    "": bytes,
    "gzip, br": lambda body: brotli.compress(gzip.compress(body)),
}
PLENTY = 10_000_000
names = pytest.mark.parametrize("name", ENCODERS)


@names
@settings(max_examples=examples(30))
@given(body=st.binary(max_size=500) | st.binary(min_size=1, max_size=9).map(lambda b: b * 40_000))
def test_what_was_encoded_is_decoded(name: str, body: bytes):
    assert decode_body(ENCODERS[name](body), name, PLENTY) == body


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_what_is_cut_short_or_wrong_is_refused(name: str):
    whole = ENCODERS[name](bytes(range(256)) * 400)
    for wrong in (whole[:-1], whole[: len(whole) // 2], whole[:3], b"garbage" * 9, whole + b"junk"):
        with pytest.raises(UndecodableBody):
            decode_body(wrong, name, PLENTY)


def test_an_encoding_nobody_knows_is_refused():
    with pytest.raises(UndecodableBody):
        decode_body(b"x", "rot13", PLENTY)


def test_a_few_encodings_may_lie_over_one_another_and_not_thousands():
    body = b"x" * 100
    for layers in range(1, 9):
        body = ENCODERS["gzip"](body)
        named = ", ".join(["gzip"] * layers)
        if layers <= 4:
            assert decode_body(body, named, PLENTY) == b"x" * 100
        else:
            with pytest.raises(UndecodableBody):
                decode_body(body, named, PLENTY)


@names
def test_the_limit_holds_to_the_byte(name: str):
    body = b"x" * 70_000
    encoded = ENCODERS[name](body)
    assert decode_body(encoded, name, 70_000) == body
    with pytest.raises(BodyTooLarge):
        decode_body(encoded, name, 69_999)


ZEROS = bytes(80_000_000)
BOMBS = {
    "gzip": lambda: gzip.compress(ZEROS, 1),
    "deflate": lambda: zlib.compress(ZEROS, 1),
    "br": lambda: brotli.compress(ZEROS, quality=1),
    "zstd": lambda: zstandard.ZstdCompressor(level=1).compress(ZEROS),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_memory(name: str):
    bomb = BOMBS[name]()
    assert len(bomb) < 500_000
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            decode_body(bomb, name, 4_000_000)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BOMBS)
def test_a_body_that_grows_far_beyond_its_size_is_given_up(name: str):
    """Long before the limit; what a history or a stream of events shrinks to is far from that."""
    with pytest.raises(BodyTooLarge):
        decode_body(ENCODERS[name](bytes(6_000_000)), name, PLENTY)
    # 4 MB of any ratio, and more of one as events have
    assert len(decode_body(ENCODERS[name](bytes(4_000_000)), name, PLENTY)) == 4_000_000
    chance = random.Random(name)
    event = [
        b'data: {"delta": {"text": "%d"}}\n\n' % chance.randrange(1000) for _ in range(200_000)
    ]
    body = b"".join(event)
    assert len(body) > 6_000_000
    assert decode_body(ENCODERS[name](body), name, PLENTY) == body


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_without_end_are_given_up(name: str):
    empty = ENCODERS[name](b"")
    assert decode_body(empty * 1_000, name, PLENTY) == b""
    with pytest.raises(BodyTooLarge):
        decode_body(empty * 10_001, name, PLENTY)


def test_bodies_are_decoded_in_turn():
    """A small one does not wait for a large one before it, and one nobody wants any more ends."""
    large = gzip.compress(random.Random(1).randbytes(700_000) + bytes(60_000_000), 1)
    plenty = 100_000_000
    first = decode_in_thread(large, "gzip", plenty)
    unwanted = decode_in_thread(large, "gzip", plenty)
    unwanted.cancel()
    assert decode_in_thread(gzip.compress(b"small"), "gzip", plenty).result(20) == b"small"
    assert not first.done()
    assert len(first.result(60)) == 60_700_000
    with pytest.raises(UndecodableBody):
        decode_in_thread(b"x", "gzip", plenty).result(20)


CHUNKED = {
    b"2\r\nhi\r\n0\r\n\r\n": (b"hi", True),
    b"2;a=b \r\nhi\r\n1 \r\n!\r\n0\r\nX-A: b\r\n\r\n": (b"hi!", True),
    b"2\r\nhi\r\n0\r\n": (b"hi", None),
    b"2\r\nhi!\r\n0\r\n\r\n": (b"hi", False),
    b"x\r\nhi\r\n0\r\n\r\n": (b"", False),
    b"2\nhi\r\n0\r\n\r\n": (b"", False),
    b"0\r\nno header\r\n\r\n": (b"", False),
    b"2;" + b"a" * 70_000: (b"", False),
}


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_chunks_are_joined_wherever_they_are_cut(size: int):
    for raw, (body, end) in CHUNKED.items():
        decoder, got, ended = ChunkedDecoder(), b"", None
        data = raw + (b"behind" if end else b"")
        for at in range(0, len(data), size):
            parts, ended = decoder.feed(data[at : at + size])
            got += b"".join(parts)
            if decoder.is_broken or ended is not None:
                assert ended is None or at + ended == len(raw)
                break
        assert (got, ended is not None, decoder.is_broken) == (body, end is True, end is False), raw
