"""Which provider a request is for, and whether clew may look at it: by its path and headers."""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

from ..codecs.codec import FormatName
from .asgi import Request
from .handling import Operation
from .upstreams import OWNERS, Provider, Upstream, Upstreams

_BY_PATH: dict[str, tuple[FormatName, Operation]] = {
    "/v1/messages": ("anthropic", "generate"),
    "/v1/messages/count_tokens": ("anthropic", "count"),
    "/v1/chat/completions": ("openai-chat", "generate"),
    "/v1/responses": ("openai-responses", "generate"),
}
_GEMINI = re.compile(
    r"/v1(?:alpha|beta)?/models/([^/:]{1,200}):(generateContent|streamGenerateContent|countTokens)"
)
# Keys that say whose they are.
_KEYS: tuple[tuple[bytes, Provider], ...] = ((b"sk-ant-", "anthropic"), (b"AIza", "gemini"))


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
    named = request.named
    if (owner := key_owner(request)) is not None:
        return owner
    if b"anthropic-version" in named or b"x-api-key" in named:
        return "anthropic"
    if b"x-goog-api-key" in named or has_key(request.query):
        return "gemini"
    return "openai"


def key_owner(request: Request) -> Provider | None:
    """Whose key it is, where the key itself says so."""
    named = request.named
    bearer = named.get(b"authorization", b"").partition(b" ")[2].lstrip()
    for key in (bearer, named.get(b"x-api-key", b"")):
        for start, provider in _KEYS:
            if key.startswith(start):
                return provider
    return None


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

    A format goes to its own upstream. Where that is the provider's own and the key says that it is
    another provider's, the request goes to that other one, unread: no key reaches another's host.
    """
    route = route_of(request)
    if route.format is None:
        return route, upstreams.of_provider(route.provider)
    upstream = upstreams.of_format(route.format)
    owner = None if upstream.chosen else key_owner(request)
    if owner is None or owner == route.provider:
        return route, upstream
    return Route(owner), upstreams.of_provider(owner)
