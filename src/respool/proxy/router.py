"""The route of a request, by its path and headers: provider, format, operation and upstream.

The paths of clouds name the cloud. Its host depends on region or resource, so it is configured; on
Vertex the path names the location, and that the host.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import unquote

import msgspec

from ..engine import FormatName
from ..regex import lazy_compile
from .asgi import ProxyError, Request
from .auth import Key, keys_of
from .server_options import PROVIDERS, Cloud, Provider, Upstream, Upstreams

Operation = Literal["generate", "count"]

_BY_PATH: dict[str, tuple[FormatName, Operation]] = {
    "/v1/messages": ("anthropic", "generate"),
    "/v1/messages/count_tokens": ("anthropic", "count"),
    "/v1/chat/completions": ("openai-chat", "generate"),
    "/v1/responses": ("openai-responses", "generate"),
    "/v1/responses/input_tokens": ("openai-responses", "count"),
}
_GEMINI = lazy_compile(
    r"/v1(?:alpha|beta)?/models/([^/:]{1,200}):(generateContent|streamGenerateContent|countTokens)"
)
UPSTREAM_PREFIX = "/respool-upstream/"  # followed by the name of an upstream, in a base URL
_PREFLIGHT = b"access-control-request-headers"
_BEDROCK = lazy_compile(r"/model/([^/]{1,2048})/(invoke|invoke-with-response-stream)")
_BEDROCK_OTHER = lazy_compile(r"/model/[^/]+/.*|/(?:inference-profiles|foundation-models)(?:/.*)?")
_BEDROCK_RUNTIME = lazy_compile(r"https://bedrock-runtime(\.[a-z0-9-]+\.amazonaws\.com)")
_VERTEX = lazy_compile(
    r"(/v1(?:beta1)?)?/(?:projects/[^/]+/locations/([^/]+)/)?"
    r"publishers/(anthropic|google)/models/([^/:]{1,200}):([A-Za-z]+)"
)
_VERTEX_OTHER = lazy_compile(r"(/v1(?:beta1)?)?/projects/[^/]+/locations/([^/]+)/.*")
_VERTEX_REGION = lazy_compile(r"[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}")
_AZURE = lazy_compile(
    r"/openai/(?:deployments/([^/]{1,200})/(chat/completions)|(?:v1/)?(chat/completions|responses))"
)
_FOUNDRY = lazy_compile(r"/anthropic/v1/messages(/count_tokens)?")
_GEMINI_VERBS: dict[str, Operation] = {
    "generateContent": "generate",
    "streamGenerateContent": "generate",
    "countTokens": "count",
}
_SHARED = ("/openai/", "/anthropic/")  # Azure, Bedrock and gateways have these paths
CLOUD_PATHS = (*_SHARED, "/model/")  # whose names of models are the users' own
_OPTIONS: dict[Cloud, tuple[str, str]] = {
    "bedrock": ("Amazon Bedrock", "bedrock=https://bedrock-runtime.REGION.amazonaws.com"),
    "vertex": ("Vertex AI", "vertex=https://REGION-aiplatform.googleapis.com"),
    "azure": ("Azure", "azure=https://RESOURCE.openai.azure.com"),
}


class Route(msgspec.Struct, frozen=True):
    """The provider of a request, and what it asks for; with a format, it may be compacted."""

    provider: Provider
    format: FormatName | None = None
    operation: Operation = "generate"
    model: str | None = None
    stream: bool | None = None


def route_of(request: Request) -> Route:
    """The route of a request by its path, or else by its keys."""
    compactable = _cloud_route(request) or _compactable(request)
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
    stream = verb == "streamGenerateContent"
    return Route("gemini", "gemini", _GEMINI_VERBS[verb], unquote(model), stream)


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
    cloud = _cloud_route(request)
    if cloud is not None:
        found = _at_cloud(request, cloud, keys, upstreams)
        if found is not None:
            return found
    default: Provider = "openai"
    compactable = _compactable(request)
    if compactable is not None and compactable.format is not None:
        upstream, default = upstreams.of_format(compactable.format), compactable.provider
        owners = {key.owner for key in keys} or {_provider_by_header(request, keys)}
        if upstream.is_custom or default in owners or None in owners:
            return compactable, upstream
    _refuse_ambiguous({key.owner for key in keys if key.is_certain and key.owner}, upstreams)
    provider = _provider_of(request, keys, default)
    upstream = upstreams.of_provider(provider)
    if upstream is None:
        raise _not_configured(provider)
    return Route(provider), upstream


def _refuse_ambiguous(owners: set[Provider], upstreams: Upstreams) -> None:
    """Refuse a request with keys of several providers, unless all go to one custom upstream."""
    places = {upstreams.of_provider(owner) for owner in owners}
    is_custom = all(place is not None and place.is_custom for place in places)
    if len(places) > 1 or (len(owners) > 1 and not is_custom):
        names = ", ".join(sorted(owners))
        raise ProxyError(
            400,
            "keys",
            f"the request brings keys of several providers ({names}), and its path does not say "
            "which of them it is for. Send one key.",
        )


# --- clouds ------------------------------------------------------------------------------------


def _cloud_route(request: Request) -> Route | None:
    """The route of a path that only clouds have, or that they share with gateways."""
    path = request.path
    if path.startswith("/model/") or _BEDROCK_OTHER.fullmatch(path):
        return _bedrock_route(request)
    if _VERTEX.fullmatch(path) or _VERTEX_OTHER.fullmatch(path):
        return _vertex_route(request)
    if path.startswith(_SHARED):
        return _azure_route(request)
    return None


def _bedrock_route(request: Request) -> Route:
    """Bodies of Anthropic's models are read; those of Converse have another format."""
    found = _BEDROCK.fullmatch(request.path) if request.method == "POST" else None
    if found is None:
        return Route("bedrock")
    model, verb = found.groups()
    return Route("bedrock", "anthropic", "generate", unquote(model), verb != "invoke")


def _vertex_route(request: Request) -> Route:
    found = _VERTEX.fullmatch(request.path) if request.method == "POST" else None
    if found is None:
        return Route("vertex")
    _, _, publisher, model, verb = found.groups()
    model = unquote(model)
    if publisher == "google" and (gemini := _GEMINI_VERBS.get(verb)):
        return Route("vertex", "gemini", gemini, model, verb == "streamGenerateContent")
    if publisher == "anthropic" and verb in ("rawPredict", "streamRawPredict"):
        if model == "count-tokens":  # the body names the model
            return Route("vertex", "anthropic", "count")
        return Route("vertex", "anthropic", "generate", model, verb == "streamRawPredict")
    return Route("vertex")


def _azure_route(request: Request) -> Route:
    """A deployment has any name; the body or the response may name the model."""
    if request.method != "POST":
        return Route("azure")
    if found := _FOUNDRY.fullmatch(request.path):
        return Route("azure", "anthropic", "count" if found[1] else "generate")
    found = _AZURE.fullmatch(request.path)
    if found is None:
        return Route("azure")
    deployment, chat, other = found.groups()
    is_chat = (chat or other) == "chat/completions"
    model = None if deployment is None else unquote(deployment)
    return Route("azure", "openai-chat" if is_chat else "openai-responses", "generate", model)


def _at_cloud(
    request: Request, route: Route, keys: list[Key], upstreams: Upstreams
) -> tuple[Route, Upstream] | None:
    """The route and upstream at a cloud; None: the path is not the cloud's."""
    if route.provider == "bedrock":
        return route, _bedrock_host(request, upstreams)
    if route.provider == "vertex":
        return route, upstreams.vertex or _vertex_host(request)
    if any(key.owner == "bedrock" for key in keys) and upstreams.bedrock is not None:
        return msgspec.structs.replace(route, provider="bedrock"), upstreams.bedrock
    if upstreams.azure is not None:
        return route, upstreams.azure
    return _at_gateway(request, route, upstreams)


def _at_gateway(
    request: Request, route: Route, upstreams: Upstreams
) -> tuple[Route, Upstream] | None:
    """A gateway with a path of Azure's, if the user configured one for the format."""
    if route.format is None:
        provider: Provider = "openai" if request.path.startswith("/openai/") else "anthropic"
        upstream = upstreams.of_provider(provider)
    else:
        provider, upstream = PROVIDERS[route.format], upstreams.of_format(route.format)
    if upstream is None or not upstream.is_custom:
        raise _not_configured("azure")
    return msgspec.structs.replace(route, provider=provider), upstream


def _bedrock_host(request: Request, upstreams: Upstreams) -> Upstream:
    """The runtime, or the control plane of the same region, which lists models."""
    upstream = upstreams.bedrock
    if upstream is None:
        raise _not_configured("bedrock")
    runtime = _BEDROCK_RUNTIME.fullmatch(upstream.origin)
    if runtime is None or request.path.startswith("/model/"):
        return upstream
    return msgspec.structs.replace(upstream, origin=f"https://bedrock{runtime[1]}")


def _vertex_host(request: Request) -> Upstream:
    """Google's host for the location that a path names."""
    found = _VERTEX.fullmatch(request.path) or _VERTEX_OTHER.fullmatch(request.path)
    version, location = (found[1], found[2] or "global") if found else (None, "")
    if location == "global":
        host = "aiplatform.googleapis.com"
    elif location in ("us", "eu"):
        host = f"aiplatform.{location}.rep.googleapis.com"
    elif _VERTEX_REGION.fullmatch(location):
        host = f"{location}-aiplatform.googleapis.com"
    else:
        raise _not_configured("vertex")
    return Upstream(f"https://{host}", "" if version else "/v1")


def _not_configured(provider: Provider) -> ProxyError:
    """The error for a request to a cloud whose host is not known."""
    cloud: Cloud = provider if provider in ("bedrock", "vertex") else "azure"
    name, option = _OPTIONS[cloud]
    why = f"the request is for {name}, and its host is not known. Start respool with --upstream"
    return ProxyError(400, "upstream", f"{why} {option}.")
