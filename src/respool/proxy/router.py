"""The route of a request, by its path and headers: provider, format, operation and upstream."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import unquote

import msgspec

from ..engine import FormatName
from .asgi import Request
from .server_options import PROVIDERS, Provider, Upstream, Upstreams

Operation = Literal["generate", "count"]

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
# Keys whose prefix names their provider, and the headers that carry keys.
_KEYS: tuple[tuple[bytes, Provider], ...] = (
    (b"sk-ant-", "anthropic"),
    (b"AIza", "gemini"),
    (b"AQ.", "gemini"),
    (b"ya29.", "gemini"),  # of a login
    (b"sk-proj-", "openai"),
    (b"sk-svcacct-", "openai"),
    (b"sk-admin-", "openai"),
)
_PREFLIGHT = b"access-control-request-headers"
_CARRIERS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")


class Route(msgspec.Struct, frozen=True):
    """The provider of a request, and what it asks for; with a format, it may be compacted."""

    provider: Provider
    format: FormatName | None = None
    operation: Operation = "generate"
    model: str | None = None
    stream: bool | None = None


def route_of(request: Request) -> Route:
    """The route of a request."""
    compactable = _compactable(request) if request.method == "POST" else None
    return Route(provider_by_key(request)) if compactable is None else compactable


def provider_by_key(request: Request) -> Provider:
    """The provider whose key a request brings; no other provider may receive it."""
    owners = key_owners(request)
    return owners[0] if owners else provider_by_header(request) or "openai"


def key_owners(request: Request) -> list[Provider]:
    """The providers of its keys, where the keys themselves name them."""
    values = [value for name in _CARRIERS for value in _values(request, name)]
    return [
        owner
        for value in values
        for start, owner in _KEYS
        if value.startswith(start) or value.partition(b" ")[2].lstrip().startswith(start)
    ]


def provider_by_header(request: Request) -> Provider | None:
    """The provider of its key by the header that carries it; None: all providers use that one."""
    named = request.named.keys() | _preflight_headers(request)
    if b"anthropic-version" in named or b"x-api-key" in named:
        return "anthropic"
    if b"x-goog-api-key" in named or has_key_parameter(request.query):
        return "gemini"
    return None


def _preflight_headers(request: Request) -> set[bytes]:
    """The headers that a browser announces in a preflight request."""
    asked = request.named.get(_PREFLIGHT, b"") if request.method == "OPTIONS" else b""
    return {name.strip().lower() for name in asked.split(b",")}


def _values(request: Request, wanted: bytes) -> list[bytes]:
    if wanted not in request.named:
        return []
    return [value for name, value in request.headers if name == wanted]


def has_key_parameter(query: str) -> bool:
    """True if a query carries an API key, as Gemini's may."""
    return any(pair.startswith("key=") for pair in query.split("&"))


def _compactable(request: Request) -> Route | None:
    found = _BY_PATH.get(request.path)
    if found is not None:
        format, operation = found
        return Route(PROVIDERS[format], format, operation)
    matched = _GEMINI.fullmatch(request.path)
    if matched is None:
        return None
    model, verb = matched.groups()
    operation = "count" if verb == "countTokens" else "generate"
    stream = verb == "streamGenerateContent"
    return Route("gemini", "gemini", operation, unquote(model), stream)


def route_for(request: Request, upstreams: Upstreams) -> tuple[Route, Upstream]:
    """The route of a request and its upstream.

    A format has its own upstream. If that is the provider's own host and the request brings another
    provider's key, the request goes to that other provider unread: no key reaches another's host.
    """
    route = route_of(request)
    if route.format is None:
        return route, upstreams.of_provider(route.provider)
    upstream = upstreams.of_format(route.format)
    owner = route.provider if upstream.is_custom else _owner(request, route.provider)
    if owner == route.provider:
        return route, upstream
    return Route(owner), upstreams.of_provider(owner)


def _owner(request: Request, provider: Provider) -> Provider:
    """The provider of the key in a request that has the format of `provider`."""
    owners = key_owners(request)
    if owners:
        return provider if provider in owners else owners[0]
    if b"authorization" in request.named:
        return provider  # every provider accepts a key there
    return provider_by_header(request) or provider
