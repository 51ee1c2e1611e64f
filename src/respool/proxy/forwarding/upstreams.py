"""Where requests go: the providers' own hosts, or what the configuration names. Nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast, get_args
from urllib.parse import urlsplit

import msgspec

from ...errors import RespoolError
from ...wire.base import FormatName

Provider = Literal["anthropic", "openai", "gemini"]
Name = Literal["anthropic", "openai", "openai-chat", "openai-responses", "gemini"]

_NAMES: tuple[Name, ...] = get_args(Name)
NOTHING: Final[Mapping[Name, Upstream]] = {}
_VERSION = re.compile(r"/v\d{1,2}(?:alpha|beta)?\d{0,2}")


class Unservable(RespoolError, ValueError):
    """The proxy cannot be started as it was asked to; the sentence says why."""


class Upstream(msgspec.Struct, frozen=True):
    """One place that requests go to."""

    origin: str  # scheme, host and port: https://api.openai.com
    prefix: str = ""  # a path that stands before every request's: /api/v1, with no slash at its end
    chosen: bool = False  # by the user; else it is the provider's own
    whole: bool = False  # the prefix is all that stands before a request's path, version included

    def url(self, path: str, query: str) -> str:
        """Where a request goes: host and prefix of ours, path and query as they came.

        A version at the end of the prefix stands in place of the one that the path begins with; so
        does the whole of a prefix that is said to be whole.

        >>> Upstream("https://host", "/api/v1").url("/v1/chat/completions", "beta=true")
        'https://host/api/v1/chat/completions?beta=true'
        """
        versioned = self.prefix and _VERSION.fullmatch(self.prefix, self.prefix.rfind("/"))
        if self.whole or versioned:
            version = _VERSION.match(path)
            if version is not None and path[version.end() : version.end() + 1] in ("", "/"):
                path = path[version.end() :]
        return f"{self.origin}{self.prefix}{path}{f'?{query}' if query else ''}"


class Upstreams(msgspec.Struct, frozen=True):
    """Where each format goes, and all that is of no format, by provider."""

    anthropic: Upstream = Upstream("https://api.anthropic.com")
    openai: Upstream = Upstream("https://api.openai.com")
    openai_chat: Upstream = Upstream("https://api.openai.com")
    openai_responses: Upstream = Upstream("https://api.openai.com")
    gemini: Upstream = Upstream("https://generativelanguage.googleapis.com")

    def of_format(self, format: FormatName) -> Upstream:
        """Where requests in this format go."""
        return cast(Upstream, getattr(self, format.replace("-", "_")))

    def of_provider(self, provider: Provider) -> Upstream:
        """Where all else goes that this provider's key is in."""
        return cast(Upstream, getattr(self, provider))


OWNERS: Final[dict[FormatName, Provider]] = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gemini",
}


def upstreams_of(chosen: Iterable[str], found: Mapping[Name, Upstream] = NOTHING) -> Upstreams:
    """The providers' own, but for what is chosen: texts like openai-chat=https://host/v1.

    What was found elsewhere, in a client's own settings, holds where nothing is chosen.
    """
    given: dict[str, Upstream] = {}
    for text in chosen:
        name, equals, url = text.partition("=")
        if not equals or name not in _NAMES:
            raise Unservable(
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
    whole = given.get("openai")
    if whole is None:  # a key for one of OpenAI's formats is not OpenAI's own key any more
        whole = given.get("openai-chat", given.get("openai-responses"))
    else:
        given = {"openai-chat": whole, "openai-responses": whole, **given}
    if whole is not None:
        given["openai"] = whole
    return Upstreams(**{name.replace("-", "_"): one for name, one in given.items()})


def upstream_at(url: str, *, whole: bool = False, said: str = "An upstream") -> Upstream:
    """An upstream as a user writes it; `said` is what it is called where it is refused."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise Unservable(f"{said} is a URL, and {url!r} is none: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unservable(f"{said} is a URL that begins with https:// or http://; not {url!r}.")
    if parts.username is not None or parts.query or parts.fragment:
        raise Unservable(f"{said} is a host and a path, nothing else; not {url!r}.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme}://{host}" if port is None else f"{parts.scheme}://{host}:{port}"
    return Upstream(origin, parts.path.rstrip("/"), chosen=True, whole=whole)
