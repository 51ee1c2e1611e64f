"""One request on its way up, and its response on the way down, byte for byte."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp
import msgspec

from .asgi import Request, Send
from .caller import LEAST, NOTHING, Body, Caller, Gone, Hold, Room, body_of
from .client import TROUBLE, Client
from .config import Limits
from .encodings import TooLarge, Undecodable, decoded
from .handling import UNCHANGED, Answer, Handling, How, Incoming, Outgoing
from .headers import going_down, going_up
from .passing import Broke, pass_down
from .record import Record
from .refusals import Refusal
from .routes import Route
from .tapping import Listening
from .upstreams import Upstream

_IN_A_THREAD: Final = 128 * 1024  # bytes from which on a body is decoded outside the event loop
_STATUSES: Final = range(200, 600)  # that can end an exchange: no upgrade was asked for
_TRIES: Final = 3  # the first, one under the limit that an error names, one with the original


class Exchange(msgspec.Struct, frozen=True):
    """One request, where it goes, and who waits for the answer."""

    request: Request
    route: Route
    upstream: Upstream
    caller: Caller
    send: Send
    record: Record


class _Sending:
    """What goes up, for as long as it may have to go up again."""

    def __init__(self, body: Body, hold: Hold) -> None:
        self.body = body
        self.incoming: Incoming | None = None  # only where a refusal may be followed by another try
        self.outgoing = UNCHANGED
        self._hold = hold

    def let_go(self) -> None:
        """Forget it: the answer may take minutes, and nobody needs it any more."""
        self.body, self.incoming, self.outgoing = NOTHING, None, UNCHANGED
        self._hold.release()


class Forwarding:
    """Takes requests up and responses down."""

    def __init__(self, client: Client, handling: Handling, limits: Limits) -> None:
        self._client = client
        self._handling = handling
        self._limits = limits
        self._room = Room(limits.held)

    async def forward(self, exchange: Exchange) -> None:
        """See one exchange through."""
        reads = self._handling.reads and exchange.route.format is not None
        most = max(self._limits.body, LEAST) if reads else LEAST
        hold = Hold(self._room)
        try:
            body = await body_of(exchange.request, exchange.caller, most, hold)
            sending = _Sending(body, hold)
            del body
            exchange.caller.watch()
            if reads:
                await self._look(exchange, sending)
            tries = _TRIES
            while not await self._is_answered(exchange, sending, tries):
                tries -= 1
        finally:
            hold.release()
            exchange.caller.unwatch()

    async def _look(self, exchange: Exchange, sending: _Sending) -> None:
        """Let the handling look at a request, if it can be shown."""
        incoming = await self._incoming(exchange, sending.body)
        if incoming is not None:
            sending.outgoing = await self._handled(exchange, incoming)
            exchange.record.respool = sending.outgoing.about
            sending.incoming = incoming if _may_be_followed(sending.outgoing) else None

    async def _incoming(self, exchange: Exchange, body: Body) -> Incoming | None:
        """What the handling is shown; None, with a note, when it cannot be shown."""
        request, route = exchange.request, exchange.route
        if body.held is None or route.format is None:
            exchange.record.note = "not looked at: the body is too large"
            return None
        try:
            plain = await self._decoded(body.held, request.named.get(b"content-encoding", b""))
        except (TooLarge, Undecodable) as error:
            why = "too large once decoded" if isinstance(error, TooLarge) else "not decodable"
            exchange.record.note = f"not looked at: the body is {why}"
            return None
        return Incoming(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            format=route.format,
            operation=route.operation,
            model=route.model,
            stream=route.stream,
            body=plain,
        )

    async def _decoded(self, body: bytes, encoding: bytes) -> bytes:
        """A body without its content-encoding."""
        names, most = encoding.decode("latin-1"), self._limits.body
        if not names or len(body) < _IN_A_THREAD:
            return decoded(body, names, most)
        return await asyncio.to_thread(decoded, body, names, most)

    async def _handled(self, exchange: Exchange, incoming: Incoming) -> Outgoing:
        try:
            return await self._handling.outgoing(incoming)
        except Exception as error:  # noqa: BLE001 - law 9: the request goes up as it came
            exchange.record.note = f"handling failed: {type(error).__name__}"
            return UNCHANGED

    async def _is_answered(self, exchange: Exchange, sending: _Sending, tries: int) -> bool:
        """Ask upstream once. False: there is something else to try, and the client has nothing."""
        listening = Listening(sending.outgoing.tap, exchange.record)
        how: How = "gone"  # for that is what cancels it
        try:
            response = await self._ask(exchange, sending.body, sending.outgoing)
            try:
                following, ahead = await self._judged(exchange, sending, response, tries)
                if following is None:
                    added = sending.outgoing.headers
                    sending.let_go()
                    await pass_down(
                        exchange.send, response, ahead, added, listening, exchange.record
                    )
                else:
                    sending.outgoing = following
                    exchange.record.respool = following.about
            finally:
                response.close()
            how = "whole" if following is None else "replaced"
        except Broke:
            how = "broke"
            raise
        except Refusal:
            how = "unreachable"
            raise
        finally:
            exchange.record.how = how
            listening.ended(how)
        return following is None

    async def _ask(
        self, exchange: Exchange, body: Body, outgoing: Outgoing
    ) -> aiohttp.ClientResponse:
        """The head of the response."""
        request, upstream = exchange.request, exchange.upstream
        sent = body if outgoing.body is None else Body(outgoing.body)
        headers = going_up(request.headers, changed=outgoing.body is not None)
        exchange.record.up = sent.length or len(sent.held or b"")
        target = upstream.url(request.path, request.query)
        try:
            response = await self._client.send(request.method, upstream, target, headers, sent)
        except TROUBLE as error:
            if exchange.caller.gone:
                raise Gone from None
            if isinstance(error.__cause__, Refusal):  # of the client's own body, on its way up
                raise error.__cause__ from None
            raise _unreachable(upstream, error) from None
        if response.status not in _STATUSES:
            response.close()
            raise Refusal(502, "unreachable", _odd(upstream, f"status {response.status}"))
        return response

    async def _judged(
        self,
        exchange: Exchange,
        sending: _Sending,
        response: aiohttp.ClientResponse,
        tries: int,
    ) -> tuple[Outgoing | None, bytes]:
        """What to try in place of a refused request, and what was read of the refusal."""
        incoming, outgoing = sending.incoming, sending.outgoing
        if incoming is None or not _may_be_followed(outgoing) or tries == 1:
            return None, b""
        if not 400 <= response.status < 500:
            return None, b""
        read = await _read_ahead(response, self._limits.error, self._limits.judging)
        if len(read) > self._limits.error:
            return None, read
        try:
            headers = tuple(going_down(response.raw_headers, ()))
            plain = await self._decoded(read, dict(headers).get(b"content-encoding", b""))
            answer = Answer(response.status, headers, plain)
            return await self._handling.again(incoming, outgoing, answer), read
        except Exception as error:  # noqa: BLE001 - law 9: the answer goes down as it came
            exchange.record.note = f"handling failed: {type(error).__name__}"
            return None, read


def _may_be_followed(outgoing: Outgoing) -> bool:
    """Whether a refusal of it may be followed by another try."""
    return outgoing.body is not None or outgoing.judged


async def _read_ahead(response: aiohttp.ClientResponse, most: int, seconds: float) -> bytes:
    """The body of a response, or more than `most` bytes of it, or what came in so many seconds."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while size <= most and (piece := await response.content.readany()):
                pieces.append(piece)
                size += len(piece)
    except TROUBLE:
        pass  # it breaks again, or goes on, when it is passed down behind what was read
    return b"".join(pieces)


def _unreachable(upstream: Upstream, error: BaseException) -> Refusal:
    """What the client is told when there is no answer."""
    if isinstance(error, asyncio.TimeoutError):
        return Refusal(504, "unreachable", f"{upstream.origin} did not accept the connection.")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
        said = f"cannot be reached: its certificate is not trusted ({why})"
    elif isinstance(error, aiohttp.ClientConnectorError):
        said = f"cannot be reached: {error.strerror or type(error).__name__}"
    elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        said = "closed the connection without an answer"
    else:
        return Refusal(502, "unreachable", _odd(upstream, type(error).__name__))
    return Refusal(502, "unreachable", f"{upstream.origin} {said}.")


def _odd(upstream: Upstream, what: str) -> str:
    return f"{upstream.origin} gave an answer that is not HTTP ({what})."
