"""Reader of a store through a proxy, over HTTP, with a team's or the administrator's token."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

import msgspec

from ..errors import RespoolError
from .base import ConversationSummary, SearchResult
from .reader import RecentRequests
from .search_index import UnsearchablePattern
from .short_names import NameKind

T = TypeVar("T")

ORIGINALS: Final = "/respool/originals/"  # followed by a reference
SEARCH: Final = "/respool/search"
CONVERSATIONS: Final = "/respool/conversations"
REQUESTS: Final = "/respool/requests"
NAMES: Final = "/respool/names"
ERROR_HEADER: Final = "x-respool-error"  # of an answer: one word for programs
UNKNOWN_ORIGINAL: Final = "unknown"
UNSEARCHABLE: Final = "pattern"
_HEALTH: Final = "/healthz"
_TOKEN_HEADER: Final = "x-respool-token"  # noqa: S105 - its name
_TIMEOUT: Final = 30.0  # seconds: a first search builds the index
_MAX_BYTES: Final = 256 * 1024 * 1024  # of an answer
_MAX_MESSAGE_CHARS: Final = 500
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EXAMPLE: Final = "http://host:7733"


class RemoteStoreError(RespoolError):
    """The proxy cannot be reached, or refuses; the message says why and what to do."""


class _NoRedirects(HTTPRedirectHandler):
    """A redirect is an error: the token is for the address that was named."""

    def redirect_request(self, *_given: Any, **_named: Any) -> None:
        """Follow no redirect."""


class RemoteReader:
    """Reader of a store through the proxy at a URL.

    The token is sent only to a server that has answered as respool does. No message contains it.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._base, self.shown, host = _parse_url(url)
        self._token = _checked_token(token)
        self._opener = _opener(host)
        self._is_known = False  # it has answered as respool does

    def original(self, ref: str) -> str | None:
        """Return the text of a reference; None if there is none for this token."""
        found = self._get(f"{ORIGINALS}{quote(ref, safe='')}", is_missing=UNKNOWN_ORIGINAL)
        return None if found is None else found.decode("utf-8", "surrogatepass")

    def names(self, kind: NameKind, beginning: str, limit: int) -> list[str]:
        """Return the first references or conversations that begin so."""
        return self._ask(NAMES, list[str], kind=kind, beginning=beginning, limit=limit)

    def search(self, pattern: str, *, conversation: str | None, limit: int) -> SearchResult:
        """Return the latest originals that have all terms of a pattern."""
        only = {} if conversation is None else {"conversation": conversation}
        return self._ask(SEARCH, SearchResult, pattern=pattern, limit=limit, **only)

    def conversations(self, limit: int) -> list[ConversationSummary]:
        """Return the latest conversations."""
        return self._ask(CONVERSATIONS, list[ConversationSummary], limit=limit)

    def recent_requests(self, conversation: str, limit: int) -> RecentRequests:
        """Return the last requests of a conversation."""
        return self._ask(REQUESTS, RecentRequests, conversation=conversation, limit=limit)

    def _ask(self, path: str, answer: type[T], **query: str | int) -> T:
        """Get a value in JSON; its texts may have lone surrogates."""
        found = self._get(f"{path}?{urlencode(query, errors='replace')}")
        try:
            return msgspec.convert(json.loads(found or b""), answer)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            raise RemoteStoreError(
                f"The answer of the proxy at {self.shown} is not understood: its version differs "
                "from this respool's."
            ) from None

    def _get(self, target: str, *, is_missing: str = "") -> bytes | None:
        """Get a body; None for the error of this code."""
        self._require_respool()
        try:
            return self._open(target, self._token)
        except HTTPError as error:
            code = error.headers.get(ERROR_HEADER, "")
            if error.code == 404 and code and code == is_missing:
                return None
            raise self._refusal(error, code) from None

    def _require_respool(self) -> None:
        """Refuse a server that does not answer as respool does; it is asked once."""
        if self._is_known:
            return
        try:
            found: object = json.loads(self._open(_HEALTH, None))
        except (HTTPError, ValueError, RecursionError):
            found = None
        if found != {"status": "ok"} and not (
            isinstance(found, dict) and "circuit_breaker" in found
        ):
            raise RemoteStoreError(f"The server at {self.shown} is not respool.")
        self._is_known = True

    def _open(self, target: str, token: str | None) -> bytes:
        """Get a body; raises HTTPError for any status but 200."""
        request = Request(f"{self._base}{target}")  # noqa: S310 - the scheme was checked
        if token is not None:
            request.add_unredirected_header(_TOKEN_HEADER, token)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                body: bytes = answer.read(_MAX_BYTES + 1)
        except HTTPError:
            raise
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise RemoteStoreError(
                f"The proxy at {self.shown} cannot be reached: {_reason(error)}."
            ) from None
        if len(body) > _MAX_BYTES:
            raise RemoteStoreError(f"The answer of the proxy at {self.shown} is too long.")
        return body

    def _refusal(self, error: HTTPError, code: str) -> RespoolError:
        """The error for a status that is not 200."""
        said = _message_in(error)
        if error.code == 401:
            return RemoteStoreError(self._missing_token())
        if code == UNSEARCHABLE:
            return UnsearchablePattern(said)
        if not code:
            return RemoteStoreError(
                f"The proxy at {self.shown} does not answer this (status {error.code}): it is an "
                "older respool, or another server is in front of it."
            )
        return RemoteStoreError(f"The proxy at {self.shown} refuses: {said}")

    def _missing_token(self) -> str:
        if self._token is None:
            return (
                f"The proxy at {self.shown} asks for a token: set RESPOOL_TOKEN to the team's "
                "token, or to the administrator's."
            )
        return (
            f"The proxy at {self.shown} does not accept the token in RESPOOL_TOKEN: it is wrong, "
            "has expired or was revoked."
        )


def _parse_url(url: str) -> tuple[str, str, str]:
    """Base URL, the same as it may be shown, and the host."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    is_allowed = parts.scheme in ("http", "https") and host and "@" not in parts.netloc
    if (
        not is_allowed
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
    ):
        raise RemoteStoreError(f"The URL of the proxy is not allowed; write it as {_EXAMPLE}.")
    shown = f"{parts.scheme}://{parts.netloc}"  # the path may hold a token
    return f"{shown}{parts.path.rstrip('/')}", shown, host or ""


def _checked_token(token: str | None) -> str | None:
    if token and not (token.isascii() and token.isprintable()):
        raise RemoteStoreError("RESPOOL_TOKEN holds characters that no token has.")
    return token or None


def _opener(host: str) -> OpenerDirector:
    """An opener that uses the environment's HTTP proxies, but not for this machine."""
    handlers = [ProxyHandler({})] if host in _LOOPBACK else []
    return build_opener(_NoRedirects(), *handlers)


def _reason(error: Exception) -> str:
    """The reason of a failed connection, in a few words."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {_TIMEOUT:.0f} seconds"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def _message_in(error: HTTPError) -> str:
    """The message of an error that the proxy answered with."""
    try:
        found: Any = json.loads(error.read(100_000))
        message = found["error"]["message"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError, http.client.HTTPException):
        return f"status {error.code}"
    said = str(message).removeprefix("respool: ")[:_MAX_MESSAGE_CHARS]
    return "".join(one if one.isprintable() else " " for one in said)
