"""What a request's own tool definitions say: the hints of the Model Context Protocol.

The schema of a tool's parameters says nothing with certainty, so nothing is read from it.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from .use import Use

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_PLACES = ("annotations", "_meta")


class Hints(Struct, frozen=True, gc=False):
    """A definition's hints; None where it does not say."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def use(self) -> Use:
        """What a call of such a tool does. What it writes is never said, so it may be anything."""
        if self.read_only:
            return Use("read", rerun=True)
        return Use("write", barrier=True, rerun=bool(self.idempotent))


def hints_of(definition: Any) -> Hints | None:
    """The hints in a tool definition, wherever its wire puts them; None if it has none."""
    for holder in _holders(definition):
        found = {hint: holder[hint] for hint in _HINTS if isinstance(holder.get(hint), bool)}
        if "readOnlyHint" in found or "destructiveHint" in found:
            return Hints(*(found.get(hint) for hint in _HINTS))
    return None


def _holders(definition: Any) -> list[dict[str, Any]]:
    """The objects that may hold hints: beside the name, and in what wraps it."""
    if not isinstance(definition, dict):
        return []
    outer = cast(dict[str, Any], definition)
    inner = outer.get("function")
    found: list[dict[str, Any]] = []
    for one in (outer, inner):
        if isinstance(one, dict):
            found += _within(cast(dict[str, Any], one))
    return found


def _within(holder: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place in _PLACES:
        value = holder.get(place)
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value)
            found.append(inner)
            nested = inner.get("annotations")
            if isinstance(nested, dict):
                found.append(cast(dict[str, Any], nested))
    return found
