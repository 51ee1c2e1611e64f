"""Scopes of the caches of texts: an entry is found in the scope that made it, and in no other.

These caches make known texts faster. A server gives each team a scope, so that the time of a
request does not reveal texts of other teams.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SCOPE: Final[ContextVar[bytes]] = ContextVar("respool.cache_scope", default=b"")

current_scope: Final[Callable[[], bytes]] = _SCOPE.get


def enter_scope(scope: bytes) -> None:
    """Use this scope from now on, in this thread or task."""
    _SCOPE.set(scope)


def scoped_cache(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """An LRU cache of results by scope and arguments.

    >>> @scoped_cache(8)
    ... def length(text: str) -> int:
    ...     return len(text)
    >>> length("abc")
    3
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.lru_cache(maxsize)
        def cached(_scope: bytes, *args: P.args, **kwargs: P.kwargs) -> T:
            return function(*args, **kwargs)

        @functools.wraps(function)
        def scoped(*args: P.args, **kwargs: P.kwargs) -> T:
            return cached(_SCOPE.get(), *args, **kwargs)

        return scoped

    return decorate
