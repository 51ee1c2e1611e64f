"""The proxy as an ASGI app: who is let in, what is respool's own, what goes up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from .access import Admission, admission_of, is_stranger, refuse_foreign, refuse_strangers
from .forwarding.asgi import Receive, Request, Scope, Send, request_of, until_closed
from .forwarding.caller import Caller, Gone
from .forwarding.client import Client
from .forwarding.config import Config, checked
from .forwarding.forwarding import Exchange, Forwarding
from .forwarding.handling import Handling, PassThrough
from .forwarding.headers import wants_websocket
from .forwarding.passing import Broke
from .forwarding.record import Log, Record, end, record_of, to_nowhere
from .forwarding.refusals import Refusal, refuse
from .forwarding.routes import destination, route_of
from .own import HEALTH, Own, healthy, is_own, own_of

_CODING = b"transfer-encoding"
_log = logging.getLogger(__name__)


class App:
    """The proxy. `own` maps respool's paths to what answers there; "/respool/" is a folder."""

    def __init__(
        self,
        config: Config,
        handling: Handling | None = None,
        own: Mapping[str, Own] | None = None,
        log: Log = to_nowhere,
        closing: Callable[[], None] | None = None,
    ) -> None:
        self.config = checked(config)
        self._handling = PassThrough() if handling is None else handling
        self._own = {HEALTH: healthy, **(own or {})}
        self._log = log
        self._closing = closing  # the last to be called
        ups = config.upstreams
        every = (ups.anthropic, ups.openai, ups.openai_chat, ups.openai_responses, ups.gemini)
        self._client = Client(every, config.limits)
        self._forwarding = Forwarding(self._client, self._handling, config.limits)
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def start(self) -> None:
        """Make ready, in the event loop that serves. A second time does nothing."""
        if not self._started:
            self._started = True
            await self._client.open()
            await self._handling.start()

    async def stop(self) -> None:
        """Close everything; no request is open any more."""
        await self._handling.stop()
        await self._client.close()
        if self._closing is not None:
            await asyncio.to_thread(self._closing)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server."""
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever comes of it."""
        send = until_closed(send) if scope["http_version"] == "1.0" else send
        admission = admission_of(request_of(scope))
        record = record_of(admission.request)
        try:
            await self._settled(scope, admission, receive, send, record)
        except Broke:
            raise  # the server breaks the connection off, as upstream did
        except Exception as error:
            record.note = f"failed: {type(error).__name__}"
            _log.exception("A request failed by a fault of respool's own")
            raise
        finally:
            end(record)
            self._log(record)

    async def _settled(
        self, scope: Scope, admission: Admission, receive: Receive, send: Send, record: Record
    ) -> None:
        """Answer, or say in the provider's words what is wrong; break off where upstream did."""
        caller = Caller(receive, self.config.limits.silence)
        request = admission.request
        try:
            if is_own(request):
                await self._show(scope, admission, receive, send)
            else:
                await self._forward(admission, caller, send, record)
        except Refusal as refusal:
            record.status, record.note = refusal.status, refusal.code
            record.how = "refused" if record.how == "own" else record.how
            await refuse(send, None if is_own(request) else route_of(request).provider, refusal)
        except Gone:
            record.how = "gone"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not caller.gone or task is None:
                raise
            task.uncancel()
            record.how = "gone"

    async def _show(self, scope: Scope, admission: Admission, receive: Receive, send: Send) -> None:
        """Show what is respool's own, to who may see it."""
        request, token = admission.request, self.config.token
        if request.path == HEALTH and is_stranger(admission, token):
            await healthy(scope, receive, send)  # that tells nothing, and who asks has no token
            return
        refuse_strangers(admission, token)
        refuse_foreign(request, self.config)
        page = own_of(self._own, request.path)
        path = unquote(request.path)
        inside = {**scope, "path": path, "raw_path": request.path.encode("ascii")}
        await page({**inside, "root_path": admission.prefix}, receive, send)

    async def _forward(
        self, admission: Admission, caller: Caller, send: Send, record: Record
    ) -> None:
        """Pass a request on to the upstream it is for."""
        request = admission.request
        refuse_strangers(admission, self.config.token)
        _refuse_odd(request)
        route, upstream = destination(request, self.config.upstreams)
        record.format, record.upstream = route.format, upstream.origin
        await self._forwarding.forward(Exchange(request, route, upstream, caller, send, record))


def _refuse_odd(request: Request) -> None:
    """Refuse what is no request to a provider: tunnels, WebSockets, paths that climb."""
    if wants_websocket(request.named):
        raise Refusal(426, "websocket", "WebSockets are not passed on; the same works over HTTP.")
    codings = {value.strip().lower() for name, value in request.headers if name == _CODING}
    if codings - {b"chunked"}:
        raise Refusal(501, "coding", "a transfer coding other than chunked is not understood.")
    if request.method == "CONNECT" or not request.path.startswith("/"):
        raise Refusal(400, "target", "this proxy is no tunnel to other hosts.")
    if ".." in unquote(request.path).replace("\\", "/").split("/"):
        raise Refusal(400, "target", "a path that leads upwards is not passed on.")
