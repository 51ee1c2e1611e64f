"""Installed packages: users' own passes with their identity, and the version of respool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

ENTRY_POINT_GROUP: Final = "respool.passes"  # the entry points that packages offer passes under

_Callable = Callable[..., Any]
_PASS_COUNTER = count(1)
_PASS_NUMBERS: WeakKeyDictionary[_Callable, int] = WeakKeyDictionary()


def pass_name(offer_pass: _Callable) -> str:
    """The name of a pass: its function's, or else its type's."""
    name: object = getattr(offer_pass, "__name__", None)
    return name if isinstance(name, str) else type(offer_pass).__name__


def pass_token(offer_pass: _Callable) -> str:
    """A token that identifies a pass.

    A function that its module holds under its own name is known by that name, in every process.
    Anything else (a closure, a lambda, an object) is numbered, for two of them may be called alike.
    """
    module, name = _qualified_name(offer_pass)
    if _lookup(module, name) is offer_pass:
        return f"{module}:{name}"
    return f"{module}:{name}#{_pass_number(offer_pass)}"


def _qualified_name(offer_pass: _Callable) -> tuple[str, str]:
    module: object = getattr(offer_pass, "__module__", "")
    name: object = getattr(offer_pass, "__qualname__", type(offer_pass).__qualname__)
    return str(module), str(name)


def _lookup(module: str, name: str) -> object:
    """The object of a module under this dotted name."""
    found: object = sys.modules.get(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    return found


def _pass_number(offer_pass: _Callable) -> int:
    """A number that no other pass of this process ever has; a new one if it cannot be kept."""
    try:
        known = _PASS_NUMBERS.get(offer_pass)
        if known is None:
            known = _PASS_NUMBERS[offer_pass] = next(_PASS_COUNTER)
    except TypeError:  # no weak reference, or no hash
        return next(_PASS_COUNTER)
    return known


def plugin_names() -> tuple[str, ...]:
    """The passes that installed packages offer."""
    return tuple(sorted({point.name for point in _entry_points()}))


def load_plugin(name: str) -> _Callable | None:
    """The pass that an installed package offers under this name; None if there is no such one.

    Raises ValueError, with what is wrong, for one that cannot be loaded.
    """
    for point in _entry_points():
        if point.name == name:
            return _load_entry_point(point)
    return None


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # late: few policies name a pass of a package

    return entry_points(group=ENTRY_POINT_GROUP)


def _load_entry_point(point: EntryPoint) -> _Callable:
    try:
        found: object = point.load()
    except Exception as error:
        raise ValueError(
            f"{point.name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise ValueError(f"{point.name} ({point.value}) is no function")
    return found


def installed_version() -> str:
    """The installed version of respool."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("respool")
    except PackageNotFoundError:
        return "not installed"
