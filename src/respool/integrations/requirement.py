"""The check that a framework is installed and new enough, and wrong use of an adapter."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from ..errors import RespoolError, quote_value
from ..policy import Policy
from ..store import DecisionStore
from .request_compactor import RequestCompactor
from .shadow import FrameworkCompactor

_Compactor = TypeVar("_Compactor", bound=RequestCompactor)


class MissingFramework(RespoolError, ImportError):
    """A framework is not installed, or too old for its adapter."""


class WrongUse(RespoolError, TypeError):
    """An adapter was given something that it cannot use; the message says what it takes."""


def require(package: str, oldest: str) -> None:
    """Raise MissingFramework unless a package is installed in this version or a later one."""
    command = f"pip install '{package}>={oldest}'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise MissingFramework(f"{package} is not installed: {command}") from None
    if _numbers(found) < _numbers(oldest):
        raise MissingFramework(
            f"{package} {found} is too old for respool, which needs {oldest} or later: {command}"
        )


def build_compactor(
    given: object,
    policy: Policy | str | None,
    store: DecisionStore | str | os.PathLike[str] | None,
    deadline: float | None,
    kind: type[_Compactor] = FrameworkCompactor,  # pyright: ignore[reportArgumentType]
) -> _Compactor:
    """The compactor that adapters share, or one of an adapter's own."""
    if given is None:
        return kind(policy, store=store, deadline=deadline)
    if not isinstance(given, kind):
        raise WrongUse(
            f"compactor={quote_value(given)} is not allowed; allowed: a "
            f"{kind.__module__}.{kind.__name__}, or None"
        )
    if not (policy is None and store is None and deadline is None):
        raise WrongUse(
            "compactor= has a policy, a store and a deadline of its own: leave out policy=, store= "
            "and deadline=."
        )
    return given


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version; what follows them (rc1, .dev0) does not count."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


__all__ = ["MissingFramework", "WrongUse", "build_compactor", "require"]
