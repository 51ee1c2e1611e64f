"""The client's end of an exchange: the body it sends, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from .asgi import Receive, Request
from .refusals import Refusal


class Gone(Exception):
    """The client went away."""


class Caller:
    """A client that sends a body and waits for its answer."""

    def __init__(self, receive: Receive, silence: float) -> None:
        self.gone = False
        self._receive = receive
        self._silence = silence
        self._whole = False
        self._whom: asyncio.Task[None] | None = None  # who is cancelled when the client leaves
        self._watching: asyncio.Task[None] | None = None

    async def piece(self) -> bytes | None:
        """The next bytes of the body; None at its end."""
        if self._whole:
            return None
        try:
            async with asyncio.timeout(self._silence):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, "silence", "the rest of the request did not come.") from None
        if message["type"] == "http.disconnect":
            self.gone = True
            raise Gone
        self._whole = not message.get("more_body", False)
        self._begin_watching()
        return message.get("body", b"")

    def watch(self) -> None:
        """From now on, cancel the task that calls this when the client goes away.

        Only once the body is whole: before that, who reads the body notices.
        """
        self._whom = asyncio.current_task()
        self._begin_watching()

    def _begin_watching(self) -> None:
        if self._whole and self._watching is None and self._whom is not None:
            self._watching = asyncio.create_task(self._await_its_leaving(self._whom))

    def unwatch(self) -> None:
        """Let it go."""
        self._whom = None
        if self._watching is not None:
            self._watching.cancel()

    async def _await_its_leaving(self, task: asyncio.Task[None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        task.cancel()


class Body(msgspec.Struct, frozen=True):
    """A request's body as it came: held whole, or flowing."""

    held: bytes | None  # None: there is more than may be held, or no body at all
    flowing: AsyncIterator[bytes] | None = None
    length: int | None = None  # of what flows, where the client said so


NOTHING = Body(None)
LEAST: Final = 1024 * 1024  # bytes of a body that are always held


class Room:
    """The room for bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size


class Hold:
    """The share of the room that one request takes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken = 0

    def covers(self, size: int) -> bool:
        """Whether there is room for so many bytes; if so, it is taken."""
        more = size - self._taken
        if more > self._room.left:
            return False
        self._room.left -= more
        self._taken = size
        return True

    def release(self) -> None:
        """Give it back."""
        self._room.left += self._taken
        self._taken = 0


async def body_of(request: Request, caller: Caller, most: int, hold: Hold) -> Body:
    """The body of a request, held if it has no more than so many bytes and there is room."""
    named = request.named
    length = _length(named)
    if length is None and b"transfer-encoding" not in named:
        await caller.piece()  # the empty end, so that the client can be watched
        return NOTHING
    if length is not None and length > most:
        return Body(None, _flow([], caller), length)
    pieces: list[bytes] = []
    size = 0
    while (piece := await caller.piece()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LEAST and (size > most or not hold.covers(size)):
            return Body(None, _flow(pieces, caller))
    return Body(b"".join(pieces) if len(pieces) != 1 else pieces[0])


def _length(named: dict[bytes, bytes]) -> int | None:
    text = named.get(b"content-length", b"")
    return int(text) if text.isdigit() else None


async def _flow(first: list[bytes], caller: Caller) -> AsyncIterator[bytes]:
    """What was read already, then the rest as it comes: no faster than it can be passed on."""
    while first:
        yield first.pop(0)
    while (piece := await caller.piece()) is not None:
        yield piece
