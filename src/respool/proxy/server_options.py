"""Options of the proxy: where it listens and sends, its limits, and how it compacts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, cast, get_args
from urllib.parse import urlsplit

import msgspec

from ..engine import FormatName
from ..errors import RespoolError
from ..policy import Policy
from ..regex import lazy_compile

Cloud = Literal["bedrock", "vertex", "azure"]
Provider = Literal["anthropic", "openai", "gemini", "bedrock", "vertex", "azure"]
UpstreamName = Literal[
    "anthropic",
    "openai",
    "openai-chat",
    "openai-responses",
    "gemini",
    "bedrock",
    "vertex",
    "azure",
]

_NAMES: tuple[UpstreamName, ...] = get_args(UpstreamName)
_NONE: Final[Mapping[UpstreamName, Upstream]] = {}
_NONE_NAMED: Final[Mapping[str, Upstream | UpstreamName]] = {}
_VERSION = lazy_compile(r"/v\d{1,2}(?:alpha|beta)?\d{0,2}")


class StartupError(RespoolError, ValueError):
    """The proxy cannot be started with these options; the message says why."""


class Upstream(msgspec.Struct, frozen=True):
    """A host that requests are sent to, and the path before every request's own."""

    origin: str  # scheme, host and port: https://api.openai.com
    prefix: str = ""  # such as /api/v1, without a trailing slash
    is_custom: bool = False  # named by the user; else it is the provider's own
    replaces_version: bool = False  # the prefix stands in place of the version in every path

    def url(self, path: str, query: str) -> str:
        """The URL of a request: this host and prefix, with the request's path and query.

        A version at the end of the prefix replaces the version at the start of the path.

        >>> Upstream("https://host", "/api/v1").url("/v1/chat/completions", "beta=true")
        'https://host/api/v1/chat/completions?beta=true'
        """
        versioned = self.prefix and _VERSION.fullmatch(self.prefix, self.prefix.rfind("/"))
        if self.replaces_version or versioned:
            version = _VERSION.match(path)
            if version is not None and path[version.end() : version.end() + 1] in ("", "/"):
                path = path[version.end() :]
        return f"{self.origin}{self.prefix}{path}{f'?{query}' if query else ''}"


class Upstreams(msgspec.Struct, frozen=True):
    """The upstream of each format, and of each provider for all other requests.

    More of them are reached by name: a base URL ends with /respool-upstream/NAME.
    """

    anthropic: Upstream = Upstream("https://api.anthropic.com")
    openai: Upstream = Upstream("https://api.openai.com")
    openai_chat: Upstream = Upstream("https://api.openai.com")
    openai_responses: Upstream = Upstream("https://api.openai.com")
    gemini: Upstream = Upstream("https://generativelanguage.googleapis.com")
    # The hosts of clouds depend on region and resource; None: it is not configured.
    bedrock: Upstream | None = None
    vertex: Upstream | None = None  # else each request's own location names its host
    azure: Upstream | None = None
    named: dict[str, Upstream] = {}

    def configured(self) -> tuple[Upstream, ...]:
        """All upstreams that are known at the start, those with a name included."""
        found = (self.of_name(name) for name in _NAMES)
        return (*(one for one in found if one is not None), *self.named.values())

    def of_name(self, name: UpstreamName) -> Upstream | None:
        """The upstream of a format, a provider or a cloud; None: it is not configured."""
        return cast("Upstream | None", getattr(self, name.replace("-", "_")))

    def of_format(self, format: FormatName) -> Upstream:
        """The upstream of requests in this format."""
        return cast(Upstream, getattr(self, format.replace("-", "_")))

    def of_provider(self, provider: Provider) -> Upstream | None:
        """The upstream of other requests that bring this provider's key; None: there is none."""
        return self.of_name(provider)


PROVIDERS: Final[dict[FormatName, Provider]] = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gemini",
}


def upstreams_of(
    chosen: Iterable[str],
    found: Mapping[UpstreamName, Upstream] = _NONE,
    named: Mapping[str, Upstream | UpstreamName] = _NONE_NAMED,
) -> Upstreams:
    """Upstreams by options such as openai-chat=https://host/v1; the rest are the providers' own.

    `found` are those in a client's own settings. They count where no option names another. `named`
    are those with a path of their own: an upstream, or the one of a format.
    """
    given: dict[str, Upstream] = {}
    for text in chosen:
        name, equals, url = text.partition("=")
        if not equals or name not in _NAMES:
            raise StartupError(
                f"An upstream is written NAME=URL, where NAME is one of {', '.join(_NAMES)}; "
                f"not {text!r}."
            )
        given[name] = upstream_at(url)
    replaced = "openai" in given
    given = {
        **{
            name: one for name, one in found.items() if not (replaced and name.startswith("openai"))
        },
        **given,
    }
    openai = given.get("openai")
    if openai is None:  # a key for one of OpenAI's formats is not OpenAI's own key any more
        openai = given.get("openai-chat", given.get("openai-responses"))
    else:
        given = {"openai-chat": openai, "openai-responses": openai, **given}
    if openai is not None:
        given["openai"] = openai
    made: Upstreams = msgspec.structs.replace(
        Upstreams(), **{name.replace("-", "_"): one for name, one in given.items()}
    )
    reached = {
        name: one if isinstance(one, Upstream) else made.of_name(one) for name, one in named.items()
    }
    return msgspec.structs.replace(
        made, named={name: one for name, one in reached.items() if one is not None}
    )


def read_upstreams(file: Path) -> Upstreams:
    """Upstreams in a file of JSON, as `respool install` writes it."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Upstreams)
    except (OSError, msgspec.DecodeError) as error:
        raise StartupError(f"The upstreams in {file} cannot be read: {error}") from None


def upstream_at(
    url: str, *, replaces_version: bool = False, label: str = "An upstream"
) -> Upstream:
    """The upstream at a URL; `label` names it in errors."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise StartupError(f"{label} is a URL, and {url!r} is none: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StartupError(f"{label} is a URL that begins with https:// or http://; not {url!r}.")
    if parts.username is not None or parts.query or parts.fragment:
        raise StartupError(f"{label} is a host and a path, nothing else; not {url!r}.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme}://{host}" if port is None else f"{parts.scheme}://{host}:{port}"
    return Upstream(
        origin, parts.path.rstrip("/"), is_custom=True, replaces_version=replaces_version
    )


# --- the server --------------------------------------------------------------------------------

PORT: Final = 7733
_MIN_TOKEN_CHARS: Final = 16  # shorter ones can be guessed over the network


class TransferLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times. A body over a limit is forwarded without being read."""

    body_bytes: int = 64 * 1024 * 1024  # of one body, as it came or decoded
    total_bytes: int = 512 * 1024 * 1024  # of all large bodies that are held at one time
    error_bytes: int = 1024 * 1024  # of an error response that are read before it is forwarded
    error_seconds: float = 10.0  # for reading it; then it is forwarded as it comes
    connect_seconds: float = 20.0  # for a connection upstream, TLS included
    idle_seconds: float = 120.0  # without a byte of a request that has begun
    notice_seconds: float = 0.0  # after SIGTERM, until no connection is accepted any more
    drain_seconds: float = 30.0  # then, for open responses


class ServerOptions(msgspec.Struct, frozen=True):
    """Address, upstreams, token and limits of a proxy."""

    host: str = "127.0.0.1"
    port: int = PORT  # 0: any free one
    upstreams: Upstreams = Upstreams()
    token: str | None = None
    limits: TransferLimits = TransferLimits()


def validated(options: ServerOptions) -> ServerOptions:
    """The same options; raises StartupError if they cannot be served."""
    if options.token is None and not is_loopback(options.host):
        raise StartupError(
            f"Without a token respool listens on this machine only, not on {options.host}: "
            "anyone who reaches it could use it. Set RESPOOL_TOKEN, or leave --host out."
        )
    if options.token is not None and not _is_token(options.token):
        raise StartupError(
            f"A token has {_MIN_TOKEN_CHARS} characters or more, "
            "all of them letters, digits, - or _."
        )
    return options


def is_loopback(host: str) -> bool:
    """True if an address is a loopback address, which no other machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_token(token: str) -> bool:
    plain = token.replace("-", "").replace("_", "")
    return len(token) >= _MIN_TOKEN_CHARS and plain.isascii() and plain.isalnum()


class HoldoutOptions(msgspec.Struct, frozen=True):
    """The share of conversations that is sent as it came; 0: no experiment."""

    share: float = 0.0
    is_aa: bool = False  # both groups are compacted: the difference between them is noise

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise StartupError(f"A holdout is a share from 0 to below 1; not {self.share!r}.")


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy, and the time that compaction may take."""

    policy: Policy = Policy()
    observe: bool = False  # measure, and change nothing
    # Seconds for one request. The first request of a long conversation takes about one second for
    # each megabyte, later requests some milliseconds.
    deadline: float = 3.0
    threads: int = 4  # that compact in parallel
    text_formats: tuple[FormatName, ...] = ()  # whose upstreams refuse calls: rendered as text
    memory: float = 512.0  # megabytes, approximately, for what is remembered of conversations
    keep_alive: float = 0.0  # dollars a day for keep-alive pings; 0: none are sent
    shared_store: bool = False  # other servers with the same store serve the same conversations
    agent: str = ""  # that this proxy was started for; empty: any
    project: str = ""  # the folder in which that works
    holdout: HoldoutOptions = HoldoutOptions()
