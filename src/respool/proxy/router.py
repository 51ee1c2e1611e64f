"""The route of a request, by its path and headers: provider, format, operation and upstream."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import unquote

import msgspec

from ..engine import FormatName
from .asgi import ProxyError, Request
from .auth import Key, keys_of
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
UPSTREAM_PREFIX = "/respool-upstream/"  # followed by the name of an upstream, in a base URL
_PREFLIGHT = b"access-control-request-headers"


class Route(msgspec.Struct, frozen=True):
    """The provider of a request, and what it asks for; with a format, it may be compacted."""

    provider: Provider
    format: FormatName | None = None
    operation: Operation = "generate"
    model: str | None = None
    stream: bool | None = None


def route_of(request: Request) -> Route:
    """The route of a request by its path, or else by its keys."""
    compactable = _compactable(request)
    return Route(_provider_of(request, keys_of(request))) if compactable is None else compactable


def _provider_of(request: Request, keys: list[Key], default: Provider = "openai") -> Provider:
    """The provider that keys name by themselves, else by the headers that carry them."""
    for key in keys:
        if key.is_certain and key.owner is not None:
            return key.owner
    return _provider_by_header(request, keys) or default


def _provider_by_header(request: Request, keys: list[Key]) -> Provider | None:
    """The provider by the names of headers and parameters; None: all providers use these."""
    named = request.named.keys() | _preflight_headers(request)
    if b"anthropic-version" in named or b"x-api-key" in named:
        return "anthropic"
    if b"x-goog-api-key" in named or any(key.owner == "gemini" for key in keys):
        return "gemini"
    return None


def _preflight_headers(request: Request) -> set[bytes]:
    """The headers that a browser announces in a preflight request."""
    asked = request.named.get(_PREFLIGHT, b"") if request.method == "OPTIONS" else b""
    return {name.strip().lower() for name in asked.split(b",")}


def _compactable(request: Request) -> Route | None:
    if request.method != "POST":
        return None
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


def select_upstream(request: Request, upstreams: Upstreams) -> tuple[Request, Route, Upstream]:
    """A request without the name of an upstream in its path, its route and its upstream."""
    behind = request.path.removeprefix(UPSTREAM_PREFIX)
    if behind == request.path:
        return request, *route_for(request, upstreams)
    name, _, path = behind.partition("/")
    upstream = upstreams.named.get(name)
    if upstream is None:
        raise ProxyError(404, "upstream", f"this proxy has no upstream with the name {name[:60]}.")
    request = msgspec.structs.replace(request, path=f"/{path}")
    return request, route_of(request), upstream


def route_for(request: Request, upstreams: Upstreams) -> tuple[Route, Upstream]:
    """The route of a request and its upstream.

    A format has its own upstream. If that is the provider's own host and the request only brings
    another provider's key, the request goes to that other provider unread.
    """
    keys = keys_of(request)
    default: Provider = "openai"
    compactable = _compactable(request)
    if compactable is not None and compactable.format is not None:
        upstream, default = upstreams.of_format(compactable.format), compactable.provider
        owners = {key.owner for key in keys} or {_provider_by_header(request, keys)}
        if upstream.is_custom or default in owners or None in owners:
            return compactable, upstream
    _refuse_ambiguous({key.owner for key in keys if key.is_certain and key.owner}, upstreams)
    provider = _provider_of(request, keys, default)
    return Route(provider), upstreams.of_provider(provider)


def _refuse_ambiguous(owners: set[Provider], upstreams: Upstreams) -> None:
    """Refuse a request with keys of several providers, unless all go to one custom upstream."""
    places = {upstreams.of_provider(owner) for owner in owners}
    if len(places) > 1 or (len(owners) > 1 and not all(place.is_custom for place in places)):
        names = ", ".join(sorted(owners))
        raise ProxyError(
            400,
            "keys",
            f"the request brings keys of several providers ({names}), and its path does not say "
            "which of them it is for. Send one key.",
        )
