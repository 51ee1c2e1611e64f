"""A response passed down: each chunk when it comes, and no end that upstream did not send."""

from __future__ import annotations

from typing import Final

import aiohttp

from .asgi import Headers, Send
from .client import TROUBLE
from .headers import going_down, without_length
from .record import Record, ms_since
from .tapping import Listening

_BODY: Final = "http.response.body"
_BODILESS: Final = (204, 304)


class Broke(Exception):
    """Upstream broke off in the middle of its answer; the client's connection must break too."""


async def pass_down(
    send: Send,
    response: aiohttp.ClientResponse,
    ahead: bytes,
    added: Headers,
    listening: Listening,
    record: Record,
) -> None:
    """Pass a response to the client; `ahead`: what was read of its body already."""
    headers = going_down(response.raw_headers, added)
    if response.status in _BODILESS:
        headers = without_length(headers)
    record.status = response.status
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    listening.began(response.status, tuple(headers))
    content = response.content
    try:
        chunk = ahead or await content.readany()
        record.first_ms = ms_since(record)
        while chunk and not content.at_eof():
            await _give(send, chunk, listening, record)
            chunk = await content.readany()
    except TROUBLE as error:
        left = content._read_nowait(-1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # what came before it broke has no other door
        await _give(send, left, listening, record)
        raise Broke from error
    await send({"type": _BODY, "body": chunk, "more_body": False})
    record.down += len(chunk)
    listening.seen(chunk)


async def _give(send: Send, chunk: bytes, listening: Listening, record: Record) -> None:
    """Give the client a chunk, then tell who listens."""
    await send({"type": _BODY, "body": chunk, "more_body": True})
    record.down += len(chunk)
    listening.seen(chunk)
