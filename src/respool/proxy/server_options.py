"""Options of the proxy: where it listens, its limits, and how it compacts."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from ..engine import FormatName
from ..policy import Policy
from .upstreams import StartupError, Upstreams

PORT: Final = 8787
_MIN_TOKEN_CHARS: Final = 16  # shorter ones can be guessed over the network


class TransferLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times. A body over a limit is forwarded without being read."""

    body_bytes: int = 64 * 1024 * 1024  # of one body, as it came or decoded
    total_bytes: int = 512 * 1024 * 1024  # of all large bodies that are held at one time
    error_bytes: int = 1024 * 1024  # of an error response that are read before it is forwarded
    error_seconds: float = 10.0  # for reading it; then it is forwarded as it comes
    connect_seconds: float = 20.0  # for a connection upstream, TLS included
    idle_seconds: float = 120.0  # without a byte of a request that has begun
    drain_seconds: float = 30.0  # for open responses at shutdown


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
            "whoever reaches it could use it. Set RESPOOL_TOKEN, or leave --host out."
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


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy, and the time that compaction may take."""

    policy: Policy = Policy()
    observe: bool = False  # measure, and change nothing
    # Seconds for one request. The first request of a long conversation takes about one second for
    # each megabyte, later requests some milliseconds.
    deadline: float = 3.0
    threads: int = 4  # that compact in parallel
    text_formats: tuple[FormatName, ...] = ()  # whose upstreams refuse calls: rendered as text
    shared_store: bool = False  # other servers with the same store serve the same conversations
