"""Hostile compressed bodies: others are answered as soon as ever, and memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import brotli  # pyright: ignore[reportMissingTypeStubs]
import pytest
import zstandard

from respool.proxy import decoders
from tests.proxy.compaction import PATHS, Compacted, drive, request_body
from tests.proxy.sockets import OK, SOON, ReceivedRequest, ask, post, run, upstream
from tests.proxy.test_server import served

KEY = "x-api-key: one"
MB = 1_000_000


# --- where bodies are decoded ------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which bodies of the encoding `gzip` were decoded."""
    found: list[str] = []

    class Watched(decoders._Gzip):
        def feed(self, data: bytes) -> Iterator[bytes]:
            found.append(threading.current_thread().name)
            return super().feed(data)

    monkeypatch.setitem(decoders._DECODERS, "gzip", Watched)
    return found


def packed(status: int, value: object) -> bytes:
    body = gzip.compress(json.dumps(value).encode())
    head = b"HTTP/1.1 %d .\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


USAGE = {"usage": {"input_tokens": 7, "output_tokens": 2}}
WRONG = {"error": {"type": "invalid_request_error", "message": "messages.1: wrong"}}


@pytest.mark.parametrize("answer", [packed(200, USAGE), packed(400, WRONG), OK])
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "plain"])
def test_no_body_is_decoded_in_the_event_loop(
    tmp_path: Path, threads: list[str], answer: bytes, is_packed: bool
):
    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async def act(one: Compacted) -> None:
        body = request_body("anthropic", 3)
        extra = (KEY, "content-encoding: gzip") if is_packed else (KEY,)
        raw = post(PATHS["anthropic"], gzip.compress(body) if is_packed else body, *extra)
        reply = await ask(one.standing.port, raw)
        assert reply.raw.partition(b"\r\n\r\n")[2] == answer.partition(b"\r\n\r\n")[2]
        (record,) = await one.records(1)
        assert (record.usage is not None and record.usage.output == 2) == (b" 200 ." in answer)

    drive(tmp_path, act, script=script)
    assert bool(threads) == (is_packed or answer is not OK)
    assert set(threads) <= {"respool-decoder"}


# --- hostile bodies at a server of its own -----------------------------------------------------


def stream(compressor: Any, piece: bytes, count: int) -> bytes:
    """A long body of one piece, compressed without being held."""
    feed = getattr(compressor, "process", None) or compressor.compress
    end = getattr(compressor, "finish", None) or compressor.flush
    return b"".join([*(feed(piece) for _ in range(count)), end()])


def bomb(encoding: str, piece: bytes = bytes(MB), count: int = 300) -> bytes:
    made: dict[str, Callable[[], Any]] = {
        "br": partial(brotli.Compressor, quality=4),
        "gzip": lambda: zlib.compressobj(6, wbits=31),
        "zstd": lambda: zstandard.ZstdCompressor(level=1).compressobj(),
    }
    return stream(made[encoding](), piece, count)


def hostile() -> dict[str, tuple[str, bytes]]:
    """By name: a content-encoding, and a body that is small and becomes large."""
    twice = gzip.compress(bomb("gzip"))
    events = b'data: {"usage": {"input_tokens": 1}}\n\n' * 25_000
    return {
        "br": ("br", bomb("br")),
        "gzip": ("gzip", bomb("gzip")),
        "zstd": ("zstd", bomb("zstd")),
        "gzip twice": ("gzip, gzip", twice),
        "four layers": ("gzip, gzip, br, br", brotli.compress(brotli.compress(twice))),
        "many layers": (", ".join(["br", "gzip", "zstd"] * 10_000), bomb("br")),
        "events": ("br", bomb("br", events, 100)),
        "nested": ("br", bomb("br", b"[" * MB, 100)),
        "one string": ("zstd", b"".join([bomb("zstd", b'{"usage": "' + b"\\\\" * MB, 60)])),
        "empty members": ("gzip", gzip.compress(b"") * 100_000),
        "grows by the permitted ratio": (
            "gzip",
            bomb("gzip", bytes(range(256)) * 4_000 + bytes(150_000), 60),
        ),
    }


def latencies(port: int, seconds: float) -> list[float]:
    """The times that the health endpoint took, the longest last."""
    found: list[float] = []
    over = time.monotonic() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    with contextlib.closing(connection):
        while time.monotonic() < over:
            start = time.monotonic()
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            found.append(time.monotonic() - start)
            time.sleep(0.01)
    return sorted(found)


def resident(pid: int) -> float:
    """The most resident megabytes that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


MAX_MEGABYTES = {"answers": 250, "requests": 250}


@pytest.mark.slow
@pytest.mark.parametrize("side", MAX_MEGABYTES)
def test_hostile_bodies_delay_nobody_and_take_little_memory(side: str):
    """Before bodies were decoded in slices beside the event loop, this took 4 s and 450 MB."""
    bodies = hostile()
    assert max(len(body) for _, body in bodies.values()) < 5 * MB

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        name = received.target.partition("=")[2].replace("%20", " ")
        if name not in bodies:
            writer.write(OK)
            return
        encoding, body = bodies[name]
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)

    async def attack(port: int, name: str, until: float) -> int:
        count = 0
        while time.monotonic() < until:
            encoding, body = bodies[name]
            if side == "answers":
                target = f"/v1/messages?name={name.replace(' ', '%20')}"
                raw = post(target, request_body("anthropic", 1), KEY)
            else:
                raw = post("/v1/messages", body, KEY, f"content-encoding: {encoding[:60_000]}")
            reply = await ask(port, raw)
            assert reply.status == 200, (name, reply.raw[:300])
            expected = body if side == "answers" else b"ok"
            assert reply.body == expected, name
            count += 1
        return count

    async def case() -> None:
        async with upstream(script) as behind:
            options = ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}")
            with contextlib.ExitStack() as stack:
                process, port = await asyncio.to_thread(stack.enter_context, served(*options))
                await asyncio.to_thread(latencies, port, 0.5)  # warm
                calm = await asyncio.to_thread(latencies, port, 2.0)
                before = resident(process.pid)
                until = time.monotonic() + 10.0
                attacks = [asyncio.create_task(attack(port, name, until)) for name in bodies]
                under = await asyncio.to_thread(latencies, port, 10.0)
                counts = await asyncio.gather(*attacks)
                grown = resident(process.pid) - before
                process.kill()
        worst, most = under[-1], under[len(under) * 98 // 100]
        print(f"{side}: calm {calm[-1]:.3f} s, 98 % within {most:.3f} s, worst {worst:.3f} s,")
        print(f"{grown:.0f} MB more, {sum(counts)} bodies")
        assert min(counts) > 0
        assert most < 0.25 + 5 * calm[-1]
        assert worst < max(1.0, 4 * calm[-1])  # the machine may be busy
        assert grown < MAX_MEGABYTES[side]

    run(case)
