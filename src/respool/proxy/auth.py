"""Access: the proxy's token, requests from other sites, and the owner of an API key.

Hashes of keys are keyed: whoever has the store cannot try keys against them without its salt.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from .asgi import ProxyError, Request
from .server_options import ServerOptions

PATH_PREFIX: Final = "/respool-token/"  # followed by the token: a base URL carries nothing else
HEADER: Final = b"x-respool-token"
# A name or an address, with or without a port.
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


class Admission(msgspec.Struct, frozen=True):
    """A request without the token in its path, and the token."""

    request: Request
    token: str  # that the request brings; empty: none
    prefix: str  # that was removed from the path


def admission_of(request: Request) -> Admission:
    """Take the token out of a request."""
    if not request.path.startswith(PATH_PREFIX):
        return Admission(request, request.named.get(HEADER, b"").decode("latin-1"), "")
    token = request.path[len(PATH_PREFIX) :].partition("/")[0]
    prefix = f"{PATH_PREFIX}{token}"
    path = request.path[len(prefix) :] or "/"
    return Admission(msgspec.structs.replace(request, path=path), token, prefix)


def has_token(admission: Admission, token: str | None) -> bool:
    """True if a request brings the token, or if none is required."""
    return token is None or hmac.compare_digest(admission.token.encode(), token.encode())


def require_token(admission: Admission, token: str | None) -> None:
    """Refuse a request without the token, if one is required."""
    if not has_token(admission, token):
        raise ProxyError(
            401,
            "token",
            "this proxy asks for its token. Put it into the base URL, as "
            "/respool-token/TOKEN before "
            "the rest of the path, or send it as the header x-respool-token.",
        )


def require_same_site(request: Request, options: ServerOptions) -> None:
    """Refuse pages of other sites, by the host that they name or by their origin.

    With a token the host does not matter: a page that knows the token may read.
    """
    host = _host(request)
    if options.token is None and _hostname(host) not in _own_names(options.host):
        raise ProxyError(403, "host", "respool's own pages are only for this machine.")
    origin = request.named.get(b"origin")
    if origin is not None and origin.decode("latin-1") not in (f"http://{host}", f"https://{host}"):
        raise ProxyError(403, "origin", "respool's own pages are not for other sites.")


def _own_names(host: str) -> set[str]:
    """The names by which this machine reaches itself."""
    return {"localhost", "127.0.0.1", "::1", _normalized(host)}


def _host(request: Request) -> str:
    """The host that a request names; empty if it names none, or several."""
    found = [value for name, value in request.headers if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _hostname(host: str) -> str:
    """A host without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return _normalized(found[1].strip("[]")) if found else ""


def _normalized(host: str) -> str:
    """An address in its canonical spelling; a name in lower case."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


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
    for name, value in parse_qsl(query.decode("latin-1"), errors="surrogateescape"):
        if name == "key":
            yield value.encode("utf-8", "surrogateescape")


def header_values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> Iterator[bytes]:
    """The values of all headers with this name that are not blank."""
    for name, value in headers:
        if name.lower() == wanted and (stripped := value.strip()):
            yield stripped


_AWS = re.compile(rb"Credential=([^/,\s]{1,200})")


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
