"""Hostile bodies, failing upstreams and many at once, with compaction on: nothing fails for it."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from tests.proxy.compaction import PATHS, Compacted, answer, drive, request_body, response_header
from tests.proxy.sockets import CHUNKED, SOON, ReceivedRequest, ask, post, until

KEY = "x-api-key: one"
OK = answer(200, {})
DEEP = b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BODIES = {
    "nothing": b"",
    "no JSON": b"\xff\xfe{]",
    "cut off": request_body("anthropic", 3)[:-40],
    "deeply nested": DEEP,
    "deep in a result": request_body("anthropic", 2).replace(
        b'"make 1"', b"[" * 100_000 + b"]" * 100_000
    ),
    "a number": b"7",
    "null": b"null",
    "no messages": b'{"model":"m","messages":null}',
    "a surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
    "not UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
    "the same key twice": b'{"model":"m","messages":[],"messages":[{"role":"user","content":"x"}]}',
    "a huge number": b'{"model":"m","max_tokens":' + b"9" * 5_000 + b',"messages":[]}',
    "a model that is no name": b'{"model":{"a":[1]},"messages":[{"role":"user","content":"x"}]}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_respool_cannot_read_goes_up_as_it_came(tmp_path: Path, body: bytes):
    async def act(one: Compacted) -> None:
        for sent, format in enumerate([*PATHS] * 2, 1):
            assert (await one.send(format, body)).status == 200
            assert one.bodies == [body] * sent

    drive(tmp_path, act)


def test_a_compressed_bomb_goes_up_as_it_came(tmp_path: Path):
    bomb = gzip.compress(b'{"messages":[' + b" " * 100_000_000 + b"]}")

    async def act(one: Compacted) -> None:
        raw = post(PATHS["anthropic"], bomb, KEY, "content-encoding: gzip")
        assert (await ask(one.standing.port, raw)).status == 200
        assert one.bodies == [bomb]

    drive(tmp_path, act)


def test_a_compressed_request_is_compacted_and_goes_up_plain(tmp_path: Path):
    async def act(one: Compacted) -> None:
        raw = post(
            PATHS["anthropic"],
            gzip.compress(request_body("anthropic", 3)),
            KEY,
            "content-encoding: gzip",
        )
        assert (await ask(one.standing.port, raw)).status == 200
        assert one.shortened("anthropic") == [True, True, False]

    drive(tmp_path, act)


class TestUpstream:
    """The provider's faults are passed down as they are, and cost the next request nothing."""

    @pytest.mark.parametrize(
        "reply",
        [
            CHUNKED + b"5\r\nhello\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot so much",
            b"\x00\x01garbage\r\n\r\n",
            b"",
        ],
        ids=["breaks off a stream", "breaks off", "garbage", "nothing"],
    )
    def test_it_breaks(self, tmp_path: Path, reply: bytes):
        broken: list[bool] = [True]

        async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(reply if broken[0] else OK)
            await writer.drain()
            if broken[0]:
                writer.close()

        async def act(one: Compacted) -> None:
            first = await one.ask("anthropic", 3)
            assert not first.raw or first.status in (200, 502)
            broken[0] = False
            again = await one.ask("anthropic", 3)
            assert again.status == 200
            assert one.bodies[-1] == one.bodies[0]
            assert one.compactor.breaker.state().phase == "closed"

        drive(tmp_path, act, script=script)

    def test_it_hangs_and_the_client_goes(self, tmp_path: Path):
        hangs: list[bool] = [True]

        async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if hangs[0]:
                await asyncio.sleep(60)
            writer.write(OK)

        async def act(one: Compacted) -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", one.standing.port)
            writer.write(post(PATHS["anthropic"], request_body("anthropic", 3), KEY))
            await until(lambda: one.bodies)
            writer.close()
            await asyncio.wait_for(one.standing.behind.lost.wait(), SOON)
            hangs[0] = False
            assert (await one.ask("anthropic", 4)).status == 200

        drive(tmp_path, act, script=script)


@pytest.mark.slow
def test_two_hundred_streams_at_once(tmp_path: Path):
    events = [b"event: ping\ndata: {}\n\n"] * 5
    whole = b"".join(events)

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for event in events:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")

    async def talk(one: Compacted, number: int) -> None:
        body = json.loads(request_body("anthropic", 4))
        body["messages"][0]["content"] = f"task {number}"
        reply = await one.send("anthropic", json.dumps(body).encode(), patience=50.0)
        assert reply.status == 200
        assert reply.joined == whole
        assert response_header(reply, "x-respool-sent") == "projection"

    async def act(one: Compacted) -> None:
        await asyncio.gather(*(talk(one, number) for number in range(200)))
        assert all(b"left out" in body for body in one.bodies)
        assert len(one.bodies) == 200

    drive(tmp_path, act, script=script, deadline=50.0, wait=20.0)  # the disk may be slow
