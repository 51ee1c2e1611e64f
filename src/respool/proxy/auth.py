"""Access: the proxy's token, requests of web pages, API keys and their owners.

Hashes of keys are keyed: a reader of the store cannot try keys against them without its salt.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, unquote_plus

import msgspec

from ..regex import lazy_compile
from ..store.teams import TOKEN_PREFIX
from .asgi import Headers, ProxyError, Request
from .server_options import Provider, ServerOptions

PATH_PREFIX: Final = "/respool-token/"  # followed by the token: a base URL carries nothing else
HEADER: Final = b"x-respool-token"
HIDDEN: Final = "***"  # in place of a secret
# A token of a team, wherever it stands.
_TEAM_TOKEN: Final = lazy_compile(rf"{TOKEN_PREFIX}[0-9a-f]{{40}}", re.IGNORECASE)
_BEARER: Final = b"bearer "
# A name or an address, with or without a port.
_HOST: Final = lazy_compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


class Admission(msgspec.Struct, frozen=True):
    """A request without the token in its path, and the token."""

    request: Request
    token: str  # that the request brings; empty: none
    prefix: str  # that was removed from the path


def admission_of(request: Request) -> Admission:
    """Take the token out of a request."""
    behind = request.path.removeprefix(PATH_PREFIX)
    token = behind.partition("/")[0]
    if behind == request.path or not token:
        return Admission(request, request.named.get(HEADER, b"").decode("latin-1"), "")
    prefix = f"{PATH_PREFIX}{token}"
    path = request.path[len(prefix) :] or "/"
    return Admission(msgspec.structs.replace(request, path=path), token, prefix)


def is_team_token(token: str) -> bool:
    """True for a token in the form of a team's."""
    return _TEAM_TOKEN.fullmatch(token) is not None


def with_bearer(admission: Admission) -> Admission:
    """The admission of a request for respool's own pages, which may have a bearer token.

    For other requests that header is the provider's. A team's token is removed: it is no API key.
    """
    request = admission.request
    value = request.named.get(b"authorization", b"").strip()
    if value[: len(_BEARER)].lower() != _BEARER:
        return admission
    token = value[len(_BEARER) :].strip().decode("latin-1")
    if is_team_token(token):
        headers = tuple(pair for pair in request.headers if pair[0] != b"authorization")
        request = _replaced(request, headers, request.query)
    return Admission(request, admission.token or token, admission.prefix)


def missing_token() -> ProxyError:
    """The refusal of a request without a valid token, the same for each invalid one."""
    return ProxyError(
        401,
        "token",
        "this proxy asks for its token. Put it into the base URL, as "
        "/respool-token/TOKEN before "
        "the rest of the path, or send it as the header x-respool-token.",
    )


# The place of a token in a path, however it is spelled.
_MISPLACED: Final = lazy_compile(r"(respool-token[/\\]+)[^/\\]*", re.IGNORECASE)
_MAX_DECODINGS: Final = 5  # of a path that is percent-encoded several times


def decoded(text: str) -> str:
    """A path or query without its percent-encoding, of which there may be several layers."""
    for _ in range(_MAX_DECODINGS):
        plain = unquote(text, errors="replace")
        if plain == text:
            break
        text = plain
    return text


def hide_secrets(path: str, token: str | None) -> str:
    """A path as it may be logged: without tokens, also misspelled ones, and without API keys."""
    plain = decoded(path)
    hidden = _MISPLACED.sub(rf"\1{HIDDEN}", plain)
    if token is not None:
        hidden = re.sub(re.escape(token), HIDDEN, hidden, flags=re.IGNORECASE)
    hidden = _TEAM_TOKEN.sub(HIDDEN, _KEY_IN_TEXT.sub(HIDDEN, hidden))
    return path if hidden == plain else hidden


def without_team_tokens(text: str) -> str:
    """A line of the log without tokens of teams."""
    return _TEAM_TOKEN.sub(HIDDEN, text) if TOKEN_PREFIX in text else text


def refuse_misplaced_token(request: Request, token: str | None, *, has_teams: bool = False) -> None:
    """Refuse a request that would take a token to the provider."""
    path = decoded(request.path)
    is_misplaced = _MISPLACED.search(path) is not None
    if (token is not None or has_teams) and not is_misplaced:
        sent = [value for name, value in request.headers if name not in (HEADER, b"referer")]
        rest = b"\n".join([request.query.encode(), *sent]).decode("latin-1")
        whole = f"{path}\n{decoded(rest)}".lower()
        is_misplaced = token is not None and token.lower() in whole
        is_misplaced = is_misplaced or (has_teams and _TEAM_TOKEN.search(whole) is not None)
    if is_misplaced:
        raise ProxyError(
            400,
            "token",
            "the token of this proxy stands where the provider would see it. It belongs into the "
            "base URL once, as /respool-token/TOKEN before the rest of the path, or into the "
            "header x-respool-token.",
        )


# --- web pages ---------------------------------------------------------------------------------

# The names by which containers and virtual machines reach this machine. Nobody can register them.
_CONTAINER_NAMES: Final = frozenset(
    {
        "host.docker.internal",
        "gateway.docker.internal",
        "host.containers.internal",
        "host.lima.internal",
        "host.orb.internal",
        "host.minikube.internal",
    }
)
# Origins of desktop apps (vscode-file://…, tauri://localhost); no page of the web has one.
_APP_ORIGIN: Final = lazy_compile(
    r"(?!https?:|wss?:|data:|blob:)[a-z][a-z0-9+.-]*://.*|https?://tauri\.localhost", re.IGNORECASE
)
# Browsers send these schemes by themselves, without any script.
_BROWSER_SCHEMES: Final = frozenset({b"basic", b"digest", b"negotiate", b"ntlm"})


def require_same_site(request: Request, options: ServerOptions, *, by_token: bool) -> None:
    """Refuse pages of other sites, by the host that they name or by their origin.

    With a token the host does not matter: a page that knows the token may read.
    """
    host = _host(request)
    if not by_token and _hostname(host) not in _own_names(options.host):
        raise ProxyError(403, "host", "respool's own pages are only for this machine.")
    origin = request.named.get(b"origin")
    if origin is not None and origin.decode("latin-1") not in (f"http://{host}", f"https://{host}"):
        raise ProxyError(403, "origin", "respool's own pages are not for other sites.")


def refuse_web_page(request: Request, options: ServerOptions, *, by_token: bool) -> None:
    """Refuse to forward what a web page in the user's browser may have sent.

    A page can forge neither Host nor Origin nor Sec-Fetch-Site. It can send a key in a header only
    after a preflight request, which is refused. With a token none of this matters: a page that
    knows the token may use the proxy.
    """
    if by_token:
        return
    name = _hostname(_host(request))
    is_container = name in _CONTAINER_NAMES and not is_from_browser(request)
    is_named = b"host" in request.named  # by HTTP/1.0 it need not be; browsers always name it
    if is_named and not is_container and name not in _own_names(options.host):
        raise ProxyError(
            403,
            "host",
            "without a token, requests are forwarded only if they name this machine as 127.0.0.1 "
            "or localhost. Use such a base URL, or set RESPOOL_TOKEN.",
        )
    if may_be_from_page(request):
        raise ProxyError(
            403,
            "browser",
            "requests of web pages are not forwarded. For a web app of your own, set RESPOOL_TOKEN "
            "and put the token into its base URL.",
        )


def may_be_from_page(request: Request) -> bool:
    """True if a web page, or the address bar of a browser, may have sent a request."""
    if not _is_preflight(request) and _has_key_header(request.headers):
        return False
    origins = [value.decode("latin-1") for name, value in request.headers if name == b"origin"]
    if origins:
        return not all(_APP_ORIGIN.fullmatch(origin) for origin in origins)
    # Node's fetch sends Sec-Fetch-Mode, but not the site, which only browsers know. Electron's own
    # client sends `none`, as an address bar does.
    if request.named.get(b"sec-fetch-site", b"none") != b"none":
        return True
    return _is_mozilla(request) and b"text/html" in request.named.get(b"accept", b"")


def is_from_browser(request: Request) -> bool:
    """True if a browser, or an app that is built on one, sent a request."""
    return b"origin" in request.named or b"sec-fetch-site" in request.named or _is_mozilla(request)


def _is_mozilla(request: Request) -> bool:
    return request.named.get(b"user-agent", b"").lower().startswith(b"mozilla/")


def _is_preflight(request: Request) -> bool:
    return request.method == "OPTIONS" and b"access-control-request-method" in request.named


def _has_key_header(headers: Headers) -> bool:
    """True if a header carries a key that only a program can have put there."""
    for name, value in headers:
        if name in KEY_HEADERS and value.strip():
            scheme = value.split(None, 1)[0].lower()
            if name != b"authorization" or scheme not in _BROWSER_SCHEMES:
                return True
    return False


@functools.lru_cache(maxsize=8)
def _own_names(host: str) -> frozenset[str]:
    """The names by which this machine reaches itself."""
    return frozenset({"localhost", "127.0.0.1", "::1", _normalized(host)})


def _host(request: Request) -> str:
    """The host that a request names; empty if it names none, or several."""
    found = [value for name, value in request.headers if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _hostname(host: str) -> str:
    """A host without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return _normalized(found[1].strip("[]")) if found else ""


@functools.lru_cache(64)
def _normalized(host: str) -> str:
    """An address in its canonical spelling; a name in lower case."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


# --- API keys ----------------------------------------------------------------------------------

# Keys whose prefix names their provider.
_PREFIXES: Final[tuple[tuple[bytes, Provider], ...]] = (
    (rb"sk-ant-", "anthropic"),
    (rb"AIza|AQ\.|ya29\.", "gemini"),  # the last one is of a login
    (rb"sk-proj-|sk-svcacct-|sk-admin-|sk-[0-9A-Za-z]{20}T3BlbkFJ", "openai"),
    (rb"bedrock-api-key-|ABSKQmVkcm9ja0FQSUtleS", "bedrock"),
)
# The starts of all of them.
_STARTS: Final = (b"sk-", b"AIza", b"AQ.", b"ya29.", b"bedrock-api-key-", b"ABSK")
_KEY: Final = lazy_compile(b"|".join(rb"(%s)" % start for start, _ in _PREFIXES))
_KEY_IN_TEXT: Final = lazy_compile(
    rf"(?<![0-9A-Za-z])(?:{'|'.join(start.decode() for start, _ in _PREFIXES)})[\w.~+=-]{{8,}}"
)
# Headers that carry keys, and whose: all providers accept a key in `authorization`.
KEY_HEADERS: Final[dict[bytes, Provider | None]] = {
    b"x-api-key": "anthropic",
    b"api-key": None,  # Azure's
    b"authorization": None,
    b"x-goog-api-key": "gemini",
}
_KEY_PARAMETERS: Final = frozenset({"key", "$key"})  # of a query, in any case
_SIGNATURE: Final = b"aws4-"  # the start of `authorization` if AWS's clients signed the request
_SIGNATURE_PARAMETER: Final = "x-amz-signature"
# Keys that a cloud of the same owner accepts.
_ACCEPTED: Final[dict[Provider, tuple[Provider | None, ...]]] = {"vertex": ("gemini", None)}


class Key(msgspec.Struct, frozen=True):
    """An API key of a request; None: it may be any provider's."""

    owner: Provider | None
    is_certain: bool  # the key itself names its owner; else its place does


def keys_of(request: Request) -> list[Key]:
    """The keys that a request carries, in headers and query."""
    found = [_key_in_header(name, value) for name, value in request.headers]
    if request.query:
        found += map(_key_in_parameter, request.query.split("&"))
    return [key for key in found if key is not None]


def _key_in_header(name: bytes, value: bytes) -> Key | None:
    """The key in a header: a value that begins as a key does, or any value of some headers."""
    if (owner := _owner_by_prefix(value)) is not None:
        return Key(owner, is_certain=True)
    if name == b"authorization" and _is_signature(value):
        return Key("bedrock", is_certain=True)
    is_key = name in KEY_HEADERS and value.strip()
    return Key(KEY_HEADERS[name], is_certain=False) if is_key else None


def _owner_by_prefix(value: bytes) -> Provider | None:
    """The provider that a key names by itself, behind a scheme such as Bearer or without one."""
    key = value.strip()
    if not key.startswith(_STARTS):
        key = key.partition(b" ")[2].lstrip()
        if not key.startswith(_STARTS):
            return None
    found = _KEY.match(key)
    return _PREFIXES[found.lastindex - 1][1] if found and found.lastindex else None


def _key_in_parameter(pair: str) -> Key | None:
    """The key in a parameter of a query."""
    name, value = _parameter(pair)
    if (owner := _owner_by_prefix(value)) is not None:
        return Key(owner, is_certain=True)
    return Key("gemini", is_certain=False) if name in _KEY_PARAMETERS and value else None


def _parameter(pair: str) -> tuple[str, bytes]:
    """Name and value of a parameter as a server reads them; the name in lower case."""
    name, _, value = pair.partition("=")
    plain = unquote_plus(value, errors="surrogateescape").strip()
    return unquote_plus(name).strip().lower(), plain.encode("utf-8", "surrogateescape")


def is_signed(headers: Headers, query: str) -> bool:
    """True if a signature of AWS covers a request: its body and host must not change."""
    if any(name == b"authorization" and _is_signature(value) for name, value in headers):
        return True
    return _SIGNATURE_PARAMETER in query.lower()


def _is_signature(value: bytes) -> bool:
    return value.lstrip()[: len(_SIGNATURE)].lower() == _SIGNATURE


def without_foreign_keys(request: Request, provider: Provider) -> Request:
    """A request without the keys of other providers."""
    owners = _ACCEPTED.get(provider, (provider, None))
    headers = tuple(
        pair
        for pair in request.headers
        if (key := _key_in_header(*pair)) is None or key.owner in owners
    )
    query = "&".join(
        pair
        for pair in request.query.split("&")
        if (key := _key_in_parameter(pair)) is None or key.owner in owners
    )
    return _replaced(request, headers, query)


def without_cookies(request: Request) -> Request:
    """A request without its cookies."""
    headers = tuple(pair for pair in request.headers if pair[0] != b"cookie")
    return _replaced(request, headers, request.query)


def may_send_cookies(request: Request) -> bool:
    """True if a request's cookies are its client's own, and not a browser's for this machine."""
    return _has_key_header(request.headers) and not is_from_browser(request)


def _replaced(request: Request, headers: Headers, query: str) -> Request:
    if len(headers) == len(request.headers) and query == request.query:
        return request
    return msgspec.structs.replace(request, headers=headers, named=dict(headers), query=query)


# --- the owner of a key ------------------------------------------------------------------------

ANONYMOUS: Final = "anonymous"


def owner_of(headers: Iterable[tuple[bytes, bytes]], query: bytes, salt: bytes) -> str:
    """The hash of the key that a request brings; a request without a key is anonymous.

    The salt is the store's own secret. A login token is another key after its renewal: the account
    that it names is not verified here, and must not open another's conversations.
    """
    if not salt:
        raise ValueError("The salt of the owners' hashes is empty; it must hold a secret.")
    key = next(_keys(list(headers), query), None)
    return ANONYMOUS if key is None else keyed_hash(salt, "owner", key)


def _keys(headers: list[tuple[bytes, bytes]], query: bytes) -> Iterator[bytes]:
    """The keys that a request carries, in order of precedence."""
    yield from header_values(headers, b"x-api-key")
    yield from header_values(headers, b"api-key")  # Azure's
    for value in header_values(headers, b"authorization"):
        yield _credential(value)
    yield from header_values(headers, b"x-goog-api-key")
    for pair in query.decode("latin-1").split("&") if query else ():
        name, value = _parameter(pair)
        if name in _KEY_PARAMETERS and value:
            yield value


def header_values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> Iterator[bytes]:
    """The values of all headers with this name that are not blank."""
    for name, value in headers:
        if name.lower() == wanted and (stripped := value.strip()):
            yield stripped


_AWS = lazy_compile(rb"Credential=([^/,\s]{1,200})")


def _credential(authorization: bytes) -> bytes:
    """The part of the header that all requests share; AWS signs each request."""
    scheme, _, rest = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip() or authorization
    found = _AWS.search(authorization) if scheme.lower().startswith(b"aws4-") else None
    return found[1] if found else authorization


def keyed_hash(salt: bytes, purpose: str, data: bytes) -> str:
    """A keyed hash; the same data has another hash for each purpose."""
    key = salt if len(salt) <= 64 else hashlib.blake2b(salt).digest()
    return hashlib.blake2b(data, digest_size=16, key=key, person=purpose.encode()).hexdigest()
