"""HTTP transports of SDK clients that send projections in place of requests.

`wrap` replaces the transports inside a client's HTTP client, which is httpx's or httpx2's. The two
share no class, so everything is built on the flavour that the client is made of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..engine import FormatName
from ..errors import RespoolError, quote_value
from ..policy import Policy
from ..proxy.auth import is_signed
from ..proxy.middleware import NO_FACTS
from ..proxy.usage import FRAMED_TYPE, ResponseReader, ThreadedReader, reader_for
from ..regex import lazy_compile
from ..store import DecisionStore
from .request_compactor import Outgoing, RequestCompactor, check_policy

_Client = TypeVar("_Client")
_FLAVOURS: Final = ("httpx", "httpx2")
_SDKS: Final = ("anthropic", "openai")
_ALLOWED: Final = (
    "allowed: a client of anthropic, openai or google-genai, or a Client or AsyncClient of httpx "
    "or httpx2"
)
_IS_SENT: Final = "respool"  # extension of a request that a transport has decided on
_DIGESTS: Final = ("content-md5", "content-digest", "digest", "x-amz-content-sha256")
_SUFFIXES: Final[Mapping[str, tuple[FormatName, bool]]] = {  # format; True: only counts tokens
    "/messages": ("anthropic", False),
    "/messages/count_tokens": ("anthropic", True),
    "/chat/completions": ("openai-chat", False),
    "/responses": ("openai-responses", False),
    "/responses/input_tokens": ("openai-responses", True),
}
_SUFFIX = lazy_compile(rf"(?:/deployments/([^/]+))?({'|'.join(map(re.escape, _SUFFIXES))})\Z")
_GEMINI = lazy_compile(r"/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)\Z")
_VERTEX = lazy_compile(r"/publishers/anthropic/models/([^/:]+):(?:raw|streamRaw)Predict\Z")
_BEDROCK = lazy_compile(r"/model/(.+)/invoke(?:-with-response-stream)?\Z")
_WRAPPER: Final = "generateContentRequest"  # in Gemini's countTokens, around a whole request
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lock = Lock()
_log = logging.getLogger(__name__)


class UnknownClient(RespoolError, TypeError):
    """The object is no client whose requests can be compacted; the message says what to pass."""


class AlreadyWrapped(RespoolError, ValueError):
    """The client's HTTP client is wrapped with other settings; unwrap it first."""


# --- requests ----------------------------------------------------------------------------------


class _Endpoint(Struct, frozen=True):
    """The format of the requests to a path."""

    format: FormatName
    is_count: bool = False
    model: str | None = None  # if the path names it


def _endpoint_of(path: str) -> _Endpoint | None:
    """The endpoint of a path, behind any base URL; None: its requests are not read."""
    if found := _SUFFIX.search(path):
        format, is_count = _SUFFIXES[found[2]]
        is_thread = "/threads/" in path  # of OpenAI's assistants, whose history the server holds
        return None if is_thread else _Endpoint(format, is_count, found[1])
    if found := _GEMINI.search(path):
        return _Endpoint("gemini", found[2] == "countTokens", unquote(found[1]))
    if found := _VERTEX.search(path):
        is_count = found[1] == "count-tokens"  # the body names the model
        return _Endpoint("anthropic", is_count, None if is_count else unquote(found[1]))
    if found := _BEDROCK.search(path):
        return _Endpoint("anthropic", model=unquote(found[1]))
    return None


class _Message(Struct, frozen=True):
    """A request that may be compacted."""

    request: Any
    endpoint: _Endpoint
    body: bytes
    is_wrapped: bool = False  # the body came inside another (Gemini's countTokens)

    def replaced(self, sent: Outgoing, module: Any) -> Any:
        """The request with the bytes to send; all headers but the length are the caller's."""
        if not sent.is_changed:
            return self.request
        body = sent.body
        if self.is_wrapped:
            body = b'{"%s":%s}' % (_WRAPPER.encode(), body)
        length = str(len(body)).encode()
        given: list[tuple[bytes, bytes]] = self.request.headers.raw
        return module.Request(
            self.request.method,
            self.request.url,
            headers=[
                (name, length if name.lower() == b"content-length" else value)
                for name, value in given
            ],
            stream=module.ByteStream(body),
            extensions={**self.request.extensions, _IS_SENT: True},
        )


def _message_of(request: Any, module: Any) -> _Message | None:
    """The message in a request; None: it is sent untouched."""
    if request.method != "POST" or request.extensions.get(_IS_SENT):
        return None
    endpoint = _endpoint_of(request.url.path)
    if endpoint is None:
        return None
    headers = request.headers
    raw = [(name.lower(), value) for name, value in headers.raw]
    encoding = headers.get("content-encoding", "identity").strip().lower()
    is_fixed = encoding not in ("", "identity") or any(name in headers for name in _DIGESTS)
    if is_fixed or is_signed(tuple(raw), request.url.query.decode("latin-1")):
        return None
    try:
        body: bytes = request.content
    except module.RequestNotRead:  # a stream that is not in memory
        return None
    inner = _unwrapped(body) if endpoint.format == "gemini" and endpoint.is_count else None
    if inner is not None:
        return _Message(request, endpoint, inner, is_wrapped=True)
    return _Message(request, endpoint, body)


def _unwrapped(body: bytes) -> bytes | None:
    """The request inside Gemini's `countTokens`, if that holds nothing else."""
    try:
        found = _members.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return bytes(found[_WRAPPER]) if found.keys() == {_WRAPPER} else None


class Decided(NamedTuple):
    """A request that may be compacted, and what is sent in its place."""

    message: _Message
    sent: Outgoing

    def request(self, module: Any) -> Any:
        """The request to send."""
        return self.message.replaced(self.sent, module)


# --- responses ---------------------------------------------------------------------------------


class _Observer:
    """Reads the usage of a response as its chunks pass; never raises."""

    def __init__(
        self, wrapping: Wrapping, sent: Outgoing, reader: ResponseReader | ThreadedReader
    ) -> None:
        self._wrapping = wrapping
        # Without the bodies: the response may take minutes.
        self._sent = replace(
            sent,
            request=replace(sent.request, body=b""),
            decision=replace(sent.decision, body=None, facts=NO_FACTS),
        )
        self._reader: ResponseReader | ThreadedReader | None = reader

    def feed(self, chunk: bytes) -> None:
        """Read the next chunk."""
        if self._reader is not None:
            try:
                self._reader.feed(chunk)
            except Exception:  # noqa: BLE001 - law 9: the response goes on
                self._reader = None
                _log.exception("A response could not be read")

    async def settle(self) -> None:
        """Wait until a thread has read all chunks, but not for long."""
        if self._reader is not None:
            try:
                await self._reader.settle()
            except Exception:  # noqa: BLE001 - law 9: the response goes on
                self._reader = None

    def finish(self) -> None:
        """Note the usage, once."""
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                self._wrapping.compactor.used(self._sent, reader.finish().usage)
            except Exception:  # noqa: BLE001 - law 9: the response goes on
                _log.exception("The usage of a response could not be noted")


class _Stream:
    """A response stream that is observed."""

    def __init__(self, inner: Any, observer: _Observer) -> None:
        self._inner = inner
        self._observer = observer

    def __iter__(self) -> Iterator[bytes]:
        for chunk in cast("Iterable[bytes]", self._inner):
            self._observer.feed(chunk)
            yield chunk
        self._observer.finish()

    def close(self) -> None:
        """Close the stream; the response ends here, or is cut off."""
        self._observer.finish()
        self._inner.close()


class _AsyncStream:
    """The same for an event loop."""

    def __init__(self, inner: Any, observer: _Observer) -> None:
        self._inner = inner
        self._observer = observer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._observer.feed(chunk)
            yield chunk
        await self._observer.settle()
        self._observer.finish()

    async def aclose(self) -> None:
        """Close the stream; the response ends here, or is cut off."""
        self._observer.finish()
        await self._inner.aclose()


# --- transports --------------------------------------------------------------------------------


class Wrapping:
    """The settings and the compactor that the transports of one `wrap` share."""

    def __init__(self, compactor: RequestCompactor, settings: object, *, is_own: bool) -> None:
        self.compactor = compactor
        self.settings = settings
        self.is_own = is_own  # made by `wrap`, and closed with the last transport
        self.transports = 0


class _Transport:
    """A transport around another one; what it does not define is the other's."""

    def __init__(self, inner: Any, wrapping: Wrapping, module: Any) -> None:
        self.inner = inner
        self.wrapping = wrapping
        self.module = module
        self.client_args: object = None  # of google-genai's options, before they were changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _message(self, request: Any) -> _Message | None:
        try:
            return _message_of(request, self.module)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be read; it is sent as it came")
            return None

    def _error_in(self, response: Any, raw: bytes) -> bytes:
        """The decoded body of an error response, which stays readable."""
        response.stream = self.module.ByteStream(raw)
        try:
            copy = self.module.Response(response.status_code, headers=response.headers, content=raw)
            return bytes(copy.content)
        except Exception:  # noqa: BLE001 - an encoding that is wrong, or not known
            return raw

    def _observe(self, response: Any, sent: Outgoing, message: _Message) -> None:
        """Read the response as it passes; the status says what became of the request."""
        compactor = self.wrapping.compactor
        if response.status_code >= 400:
            compactor.failed(sent)
            return
        compactor.accepted(sent)
        if message.endpoint.is_count:
            return
        format, encoding = message.endpoint.format, response.headers.get("content-encoding", "")
        kind = response.headers.get("content-type", "").lower()
        is_framed = kind.startswith(FRAMED_TYPE.decode())
        held = getattr(response, "_content", None)
        if isinstance(held, bytes):  # decoded, and the stream will not be read any more
            observer = _Observer(self.wrapping, sent, ResponseReader(format))
            observer.feed(held)
            observer.finish()
            return
        _, _, stream, async_stream = _classes_of(self.module.__name__)
        if isinstance(self, SyncTransport):
            reader = ResponseReader(format, encoding, is_framed=is_framed)
            response.stream = stream(response.stream, _Observer(self.wrapping, sent, reader))
        else:
            found = reader_for(format, encoding, is_framed=is_framed)
            response.stream = async_stream(response.stream, _Observer(self.wrapping, sent, found))

    def _note(self, response: Any, sent: Outgoing, message: _Message) -> None:
        try:
            self._observe(response, sent, message)
        except Exception:  # noqa: BLE001 - law 9: the response goes on
            _log.exception("A response could not be noted")


class SyncTransport(_Transport):
    """A transport around one of httpx's."""

    def handle_request(self, request: Any) -> Any:
        """Send the projection of a request; if that is refused, what else there is to send."""
        decided = self.decide(request)
        if decided is None:
            return self.inner.handle_request(request)
        return self.receive(self.inner.handle_request(decided.request(self.module)), decided)

    def decide(self, request: Any) -> Decided | None:
        """Decide on a request; None: it is sent untouched."""
        message = self._message(request)
        sent = None if message is None else self._decide(message)
        return None if message is None or sent is None else Decided(message, sent)

    def receive(self, response: Any, decided: Decided) -> Any:
        """Read the response to a request as it passes, or send the request again."""
        message, sent = decided
        if response.status_code >= 400 and sent.decision.kind != "untouched":
            raw = b"".join(response.stream)
            response.stream.close()
            error = self._error_in(response, raw)
            again = self.wrapping.compactor.retry(sent, response.status_code, error)
            if again is not None:
                sent = again
                response = self.inner.handle_request(message.replaced(sent, self.module))
        self._note(response, sent, message)
        return response

    def _decide(self, message: _Message) -> Outgoing | None:
        at = message.endpoint
        try:
            decide = self.wrapping.compactor.decide
            return decide(message.body, at.format, model=at.model, count=at.is_count)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be decided on; it is sent as it came")
            return None

    def close(self) -> None:
        """Close the transport inside."""
        self.inner.close()

    def __enter__(self) -> SyncTransport:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.inner.__exit__(kind, error, trace)


class AsyncTransport(_Transport):
    """The same for an event loop."""

    async def handle_async_request(self, request: Any) -> Any:
        """Send the projection of a request; if that is refused, what else there is to send."""
        decided = await self.decide(request)
        if decided is None:
            return await self.inner.handle_async_request(request)
        response = await self.inner.handle_async_request(decided.request(self.module))
        return await self.receive(response, decided)

    async def decide(self, request: Any) -> Decided | None:
        """Decide on a request; None: it is sent untouched."""
        message = self._message(request)
        sent = None if message is None else await self._decide(message)
        return None if message is None or sent is None else Decided(message, sent)

    async def receive(self, response: Any, decided: Decided) -> Any:
        """Read the response to a request as it passes, or send the request again."""
        message, sent = decided
        if response.status_code >= 400 and sent.decision.kind != "untouched":
            raw = b"".join([chunk async for chunk in response.stream])
            await response.stream.aclose()
            error = self._error_in(response, raw)
            retry = self.wrapping.compactor.retry
            again = await _in_thread(retry, sent, response.status_code, error)
            if again is not None:
                sent = again
                response = await self.inner.handle_async_request(
                    message.replaced(sent, self.module)
                )
        if sent.retried:  # that is written to the store
            await _in_thread(self._note, response, sent, message)
        else:
            self._note(response, sent, message)
        return response

    async def _decide(self, message: _Message) -> Outgoing | None:
        at, compactor = message.endpoint, self.wrapping.compactor
        try:
            decide = compactor.decide_async if _has_loop() else None
            if decide is None:
                return compactor.decide(message.body, at.format, model=at.model, count=at.is_count)
            return await decide(message.body, at.format, model=at.model, count=at.is_count)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be decided on; it is sent as it came")
            return None

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self.inner.aclose()

    async def __aenter__(self) -> AsyncTransport:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)


def _has_loop() -> bool:
    """True inside asyncio; trio has no loop of that kind, and decisions are made in place."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _in_thread(work: Any, *given: Any) -> Any:
    return await asyncio.to_thread(work, *given) if _has_loop() else work(*given)


@cache
def _classes_of(flavour: str) -> tuple[Any, Any, Any, Any]:
    """The transports and the streams as subclasses of a flavour's own."""
    module = sys.modules[flavour]
    bases: tuple[tuple[type, str, str], ...] = (
        (SyncTransport, "BaseTransport", "CompactingTransport"),
        (AsyncTransport, "AsyncBaseTransport", "AsyncCompactingTransport"),
        (_Stream, "SyncByteStream", "ObservedStream"),
        (_AsyncStream, "AsyncByteStream", "AsyncObservedStream"),
    )
    made = [type(name, (own, getattr(module, base)), {}) for own, base, name in bases]
    return made[0], made[1], made[2], made[3]


# --- clients -----------------------------------------------------------------------------------


def wrap(
    client: _Client,
    *,
    policy: Policy | str | None = None,
    store: DecisionStore | str | os.PathLike[str] | None = None,
    deadline: float | None = None,
    compactor: RequestCompactor | None = None,
) -> _Client:
    """Compact all requests of a client from here on; returns the same client.

    It is a client of anthropic, openai or google-genai, or an HTTP client of httpx or httpx2. Its
    transports are wrapped in place, so clients that share its HTTP client are wrapped with it.
    Without a `policy` it is the preset safe. Originals are kept in memory, or in the `store`. A
    decision that takes longer than `deadline` seconds is not waited for. A `compactor` stands for
    all three, and several clients may share it.
    """
    settings = _settings_of(policy, store, deadline, compactor)
    found = _http_clients(client)
    with _lock:
        _check_transports(found)
        wrapped = [one for http in found for one in _transports_of(http) if _is_wrapped(one)]
        wrapping: Wrapping | None = wrapped[0].wrapping if wrapped else None
        if any(one.wrapping.settings != settings for one in wrapped):
            raise AlreadyWrapped(
                f"The HTTP client of {_name_of(client)} is already wrapped with other settings, "
                "perhaps through another client that shares it. Call respool.unwrap(client) first."
            )
        if wrapping is None:
            made = compactor or RequestCompactor(policy, store=store, deadline=deadline)  # pyright: ignore[reportArgumentType]  # a preset's name is allowed, too
            wrapping = Wrapping(made, settings, is_own=compactor is None)
        for http in found:
            _replace_transports(http, wrapping)
        _use_httpx(client)
    return client


def unwrap(client: _Client) -> _Client:
    """Put a client's own transports back; returns the same client, wrapped or not."""
    found = _http_clients(client)
    with _lock:
        _use_httpx(client, undo=True)
        for http in found:
            _replace_transports(http, None)
    return client


def compaction(client: object) -> RequestCompactor:
    """The compactor of a wrapped client: its savings, and the originals behind markers."""
    for http in _http_clients(client):
        for one in _transports_of(http):
            if _is_wrapped(one):
                return one.wrapping.compactor
    raise UnknownClient(f"{_name_of(client)} is not wrapped. Call respool.wrap(client) first.")


def _settings_of(policy: object, store: object, deadline: object, compactor: object) -> object:
    """The settings of a wrapping, which a second one must have as well."""
    if compactor is None:
        kept = str(cast(object, store)) if isinstance(store, str | os.PathLike) else id(store)
        return check_policy(policy), kept, deadline
    if not isinstance(compactor, RequestCompactor):
        what = quote_value(compactor)
        raise UnknownClient(
            f"compactor={what} is not allowed; allowed: a RequestCompactor, or None"
        )
    if (policy, store, deadline) != (None, None, None):
        raise AlreadyWrapped("A compactor has its own policy, store and deadline; give only it.")
    return id(compactor)


def _http_clients(client: object) -> list[Any]:
    """The HTTP clients inside a client."""
    if isinstance(client, type):
        raise UnknownClient(f"{client.__name__} is a class; pass a client made of it.")
    if _flavour_of(client):
        return _checked(client, [client])
    roots = _roots_of(client)
    if any(sdk in roots for sdk in _SDKS):
        return _checked(client, [getattr(client, "_client", None)])
    api = getattr(client, "_api_client", None)
    if "google" in roots and api is not None:
        found = [getattr(api, "_httpx_client", None), getattr(api, "_async_httpx_client", None)]
        return _checked(client, [one for one in found if one is not None])
    raise _unknown(client, roots)


def _checked(client: object, found: list[Any]) -> list[Any]:
    if not found or not all(_flavour_of(one) and hasattr(one, "_mounts") for one in found):
        raise _unknown(client, _roots_of(client))
    return found


def _unknown(client: object, roots: set[str]) -> UnknownClient:
    what = f"{_name_of(client)} is no client whose requests respool can compact"
    if {"boto3", "botocore"} & roots:
        hint = "Its requests are signed before they are sent; start respool serve for Bedrock. "
    elif "aiohttp" in roots:
        hint = (
            "aiohttp has no transport to wrap; give the SDK an httpx client, and wrap the SDK's. "
        )
    elif roots & {*_SDKS, "google", *_FLAVOURS}:
        hint = "Pass the client itself, not a part of it. "
    else:
        hint = "Pass the SDK client inside it, if it has one. "
    return UnknownClient(f"{what}. {hint}{_ALLOWED[0].upper()}{_ALLOWED[1:]}.")


def _roots_of(value: object) -> set[str]:
    """The packages of a value's classes."""
    return {one.__module__.partition(".")[0] for one in type(value).__mro__}


def _name_of(value: object) -> str:
    kind = type(value)
    is_plain = kind.__module__ == "builtins"
    return quote_value(value) if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def _flavour_of(client: object) -> str:
    """The package of an HTTP client; empty: it is none."""
    for one in type(client).__mro__:
        root = one.__module__.partition(".")[0]
        if root in _FLAVOURS and one.__name__ in ("Client", "AsyncClient"):
            return root
    return ""


def _is_wrapped(transport: object) -> bool:
    return isinstance(transport, _Transport)


def _transports_of(http: Any) -> list[Any]:
    return [one for one in (http._transport, *http._mounts.values()) if one is not None]  # noqa: SLF001 - httpx has no other way


def _check_transports(found: list[Any]) -> None:
    """Raise for a transport that its client cannot use."""
    for http in found:
        flavour = _flavour_of(http)
        for one in _transports_of(http):
            foreign = _roots_of(one) & {*_FLAVOURS} - {flavour}
            if foreign and flavour not in _roots_of(one):
                raise UnknownClient(
                    f"The {flavour} client has a transport of {foreign.pop()} ({_name_of(one)}), "
                    f"with which it cannot send. Give it one of {flavour}'s transports."
                )


def _replace_transports(http: Any, wrapping: Wrapping | None) -> None:
    """Wrap each transport that is not, or put those inside back."""
    http._transport = _replaced(http, http._transport, wrapping)  # noqa: SLF001 - as above
    for pattern, one in tuple(http._mounts.items()):  # noqa: SLF001
        http._mounts[pattern] = _replaced(http, one, wrapping)  # noqa: SLF001


def _replaced(http: Any, transport: Any, wrapping: Wrapping | None) -> Any:
    if wrapping is None:
        if not _is_wrapped(transport):
            return transport
        before: Wrapping = transport.wrapping
        before.transports -= 1
        if before.is_own and not before.transports:
            before.compactor.close()
        return transport.inner
    if transport is None or _is_wrapped(transport):
        return transport
    flavour = _flavour_of(http)
    sync, asynchronous, *_ = _classes_of(flavour)
    kind = asynchronous if hasattr(http, "aclose") else sync
    wrapping.transports += 1
    return kind(transport, wrapping, sys.modules[flavour])


def _use_httpx(client: object, *, undo: bool = False) -> None:
    """Let google-genai send async requests through httpx, also where aiohttp is installed.

    It does so for clients with a transport of their own. Unlike a client of their own it is
    closed with them.
    """
    api = getattr(client, "_api_client", None)
    http: Any = getattr(api, "_async_httpx_client", None)
    options: Any = getattr(api, "_http_options", None)
    if http is None or options is None:
        return
    args: dict[str, Any] = options.async_client_args or {}
    transport = http._transport  # noqa: SLF001 - as above
    is_ours = _is_wrapped(args.get("transport"))
    if undo and is_ours:
        options.async_client_args = args["transport"].client_args
    elif not undo and not is_ours and args.get("transport") is None:
        transport.client_args = options.async_client_args
        options.async_client_args = {**args, "transport": transport}


__all__ = ["AlreadyWrapped", "UnknownClient", "compaction", "unwrap", "wrap"]
