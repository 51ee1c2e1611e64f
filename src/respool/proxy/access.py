"""Who may come in: the token, and which pages may look at respool's own."""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Final

import msgspec

from .forwarding.asgi import Request
from .forwarding.config import Config
from .forwarding.refusals import Refusal

IN_PATH: Final = "/respool-token/"  # then the token, then the path: all that a base URL can carry
IN_HEADER: Final = b"x-respool-token"
# A name or an address, and perhaps a port; nothing that one reader takes for another name.
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


class Admission(msgspec.Struct, frozen=True):
    """A request without the token in its path, and what was taken off."""

    request: Request
    given: str  # the token that came
    prefix: str  # what stood before the path


def admission_of(request: Request) -> Admission:
    """What a request brings to be let in; nothing behind this sees a token in a path."""
    if not request.path.startswith(IN_PATH):
        return Admission(request, request.named.get(IN_HEADER, b"").decode("latin-1"), "")
    given = request.path[len(IN_PATH) :].partition("/")[0]
    prefix = f"{IN_PATH}{given}"
    path = request.path[len(prefix) :] or "/"
    return Admission(msgspec.structs.replace(request, path=path), given, prefix)


def is_stranger(admission: Admission, token: str | None) -> bool:
    """Whether a request does not bring the token, where there is one."""
    return token is not None and not hmac.compare_digest(admission.given.encode(), token.encode())


def refuse_strangers(admission: Admission, token: str | None) -> None:
    """Refuse who does not bring the token, where there is one."""
    if is_stranger(admission, token):
        raise Refusal(
            401,
            "token",
            "this proxy asks for its token. Put it into the base URL, as "
            "/respool-token/TOKEN before "
            "the rest of the path, or send it as the header x-respool-token.",
        )


def refuse_foreign(request: Request, config: Config) -> None:
    """Refuse pages of other sites: by the name they used for respool, or by where they are from.

    With a token nothing is refused by name: a page that knows the token may look.
    """
    host = _host(request)
    if config.token is None and _name(host) not in _names(config.host):
        raise Refusal(403, "host", "respool's own pages are only for this machine.")
    origin = request.named.get(b"origin")
    if origin is not None and origin.decode("latin-1") not in (f"http://{host}", f"https://{host}"):
        raise Refusal(403, "origin", "respool's own pages are not for other sites.")


def _names(host: str) -> set[str]:
    """The names that a machine has for itself."""
    return {"localhost", "127.0.0.1", "::1", _spelled(host)}


def _host(request: Request) -> str:
    """The one host that a request names; empty when there is none, or several."""
    found = [value for name, value in request.headers if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _name(host: str) -> str:
    """A host without its port; empty when it is none."""
    found = _HOST.fullmatch(host)
    return _spelled(found[1].strip("[]")) if found else ""


def _spelled(host: str) -> str:
    """An address in its one spelling; a name in lower case."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()
