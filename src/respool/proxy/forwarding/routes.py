"""Which provider a request is for, and whether respool may look at it: by its path and headers."""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

from ...wire.base import FormatName
from .asgi import Request
from .handling import Operation
from .upstreams import OWNERS, Provider, Upstream, Upstreams

_BY_PATH: dict[str, tuple[FormatName, Operation]] = {
    "/v1/messages": ("anthropic", "generate"),
    "/v1/messages/count_tokens": ("anthropic", "count"),
    "/v1/chat/completions": ("openai-chat", "generate"),
    "/v1/responses": ("openai-responses", "generate"),
    "/v1/responses/input_tokens": ("openai-responses", "count"),
}
_GEMINI = re.compile(
    r"/v1(?:alpha|beta)?/models/([^/:]{1,200}):(generateContent|streamGenerateContent|countTokens)"
)
# Keys that say whose they are, and the headers that they come in.
_KEYS: tuple[tuple[bytes, Provider], ...] = (
    (b"sk-ant-", "anthropic"),
    (b"AIza", "gemini"),
    (b"AQ.", "gemini"),
    (b"ya29.", "gemini"),  # of a login
    (b"sk-proj-", "openai"),
    (b"sk-svcacct-", "openai"),
    (b"sk-admin-", "openai"),
)
_ANNOUNCED = b"access-control-request-headers"
_CARRIERS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")


class Route(msgspec.Struct, frozen=True):
    """Whose a request is; with a format, it is one that may be compacted."""

    provider: Provider
    format: FormatName | None = None
    operation: Operation = "generate"
    model: str | None = None
    stream: bool | None = None


def route_of(request: Request) -> Route:
    """Whose a request is, and what it asks for."""
    compactable = _compactable(request) if request.method == "POST" else None
    return Route(provider_named(request)) if compactable is None else compactable


def provider_named(request: Request) -> Provider:
    """The provider whose key a request brings: no other may see it."""
    owners = key_owners(request)
    return owners[0] if owners else header_owner(request) or "openai"


def key_owners(request: Request) -> list[Provider]:
    """Whose keys it brings, where the keys themselves say so."""
    values = [value for name in _CARRIERS for value in _values(request, name)]
    return [
        owner
        for value in values
        for start, owner in _KEYS
        if value.startswith(start) or value.partition(b" ")[2].lstrip().startswith(start)
    ]


def header_owner(request: Request) -> Provider | None:
    """Whose key it is, by the header that it comes in; None: any provider's may come so."""
    named = request.named.keys() | _announced(request)
    if b"anthropic-version" in named or b"x-api-key" in named:
        return "anthropic"
    if b"x-goog-api-key" in named or has_key(request.query):
        return "gemini"
    return None


def _announced(request: Request) -> set[bytes]:
    """The headers that a page's request will have: its browser asks whether it may, before."""
    asked = request.named.get(_ANNOUNCED, b"") if request.method == "OPTIONS" else b""
    return {name.strip().lower() for name in asked.split(b",")}


def _values(request: Request, wanted: bytes) -> list[bytes]:
    if wanted not in request.named:
        return []
    return [value for name, value in request.headers if name == wanted]


def has_key(query: str) -> bool:
    """Whether a query brings a key along, as Gemini's may."""
    return any(pair.startswith("key=") for pair in query.split("&"))


def _compactable(request: Request) -> Route | None:
    found = _BY_PATH.get(request.path)
    if found is not None:
        format, operation = found
        return Route(OWNERS[format], format, operation)
    matched = _GEMINI.fullmatch(request.path)
    if matched is None:
        return None
    model, verb = matched.groups()
    operation = "count" if verb == "countTokens" else "generate"
    stream = verb == "streamGenerateContent"
    return Route("gemini", "gemini", operation, unquote(model), stream)


def destination(request: Request, upstreams: Upstreams) -> tuple[Route, Upstream]:
    """What a request is, and where it goes.

    A format goes to its own upstream. Where that is the provider's own and what the request brings
    is another provider's key, it goes to that other one, unread: no key reaches another's host.
    """
    route = route_of(request)
    if route.format is None:
        return route, upstreams.of_provider(route.provider)
    upstream = upstreams.of_format(route.format)
    owner = route.provider if upstream.chosen else _owner(request, route.provider)
    if owner == route.provider:
        return route, upstream
    return Route(owner), upstreams.of_provider(owner)


def _owner(request: Request, provider: Provider) -> Provider:
    """Whose key a request brings that is in the format of this provider's."""
    owners = key_owners(request)
    if owners:
        return provider if provider in owners else owners[0]
    if b"authorization" in request.named:
        return provider  # every provider takes a key there
    return header_owner(request) or provider
