"""Compressed bodies are decode_body whole, or refused; never beyond the limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import brotli  # pyright: ignore[reportMissingTypeStubs]
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.proxy.decoders import BodyTooLarge, UndecodableBody, decode_body
from tests.effort import examples


def bare_deflate(body: bytes) -> bytes:
    compressing = zlib.compressobj(wbits=-15)
    return compressing.compress(body) + compressing.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "br": brotli.compress,
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
