"""What a proxy is started with."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from .upstreams import Unservable, Upstreams

PORT: Final = 8787
_LEAST_TOKEN: Final = 16  # characters: shorter ones can be guessed over the network


class Limits(msgspec.Struct, frozen=True):
    """How much is held, and how long anything is waited for. Over a limit, respool stands aside."""

    body: int = 64 * 1024 * 1024  # bytes of one body, as it came or decoded; beyond: not looked at
    held: int = 512 * 1024 * 1024  # bytes of all large bodies at one time; beyond: not looked at
    error: int = 1024 * 1024  # bytes of an error answer that are read before it is passed on
    judging: float = 10.0  # seconds that such an answer may take; then it is passed on as it comes
    connect: float = 20.0  # seconds for a connection upstream, TLS included
    silence: float = 120.0  # seconds without a byte of a request that has begun
    drain: float = 30.0  # seconds that open responses have at shutdown


class Config(msgspec.Struct, frozen=True):
    """What a proxy is started with."""

    host: str = "127.0.0.1"
    port: int = PORT  # 0: any that is free
    upstreams: Upstreams = Upstreams()
    token: str | None = None
    limits: Limits = Limits()


def checked(config: Config) -> Config:
    """The same, or a sentence about what is wrong with it."""
    if config.token is None and not is_loopback(config.host):
        raise Unservable(
            f"Without a token respool listens on this machine only, not on {config.host}: whoever "
            "reaches it could use it. Set RESPOOL_TOKEN, or leave --host out."
        )
    if config.token is not None and not _is_token(config.token):
        raise Unservable(
            f"A token has {_LEAST_TOKEN} characters or more, all of them letters, digits, - or _."
        )
    return config


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, reached from nowhere else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_token(token: str) -> bool:
    plain = token.replace("-", "").replace("_", "")
    return len(token) >= _LEAST_TOKEN and plain.isascii() and plain.isalnum()
