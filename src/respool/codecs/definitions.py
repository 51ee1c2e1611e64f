"""The tools that a request itself defines, by name, in whichever wire format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from .codec import Fields
from .json_tree import JSON, Object

_INNER = ("function", "custom")  # where a definition may wrap its name


def definitions_in(fields: Fields | None) -> dict[str, Any]:
    """Each tool's definition under the name that calls carry.

    Two namespaces may each have a tool of one name: then nothing is said of either.
    """
    found: dict[str, Any] = {}
    tools = (fields or {}).get("tools")
    for tool in cast(list[JSON], tools) if isinstance(tools, list) else []:
        for name, definition in _named(tool):
            same = found.setdefault(name, definition) == definition
            found[name] = definition if same else {"name": name}
    return found


def _named(tool: JSON) -> Iterator[tuple[str, Object]]:
    """The definitions in one entry: Gemini's holds several."""
    holder: Object = tool
    if not isinstance(tool, dict):
        return
    for key in ("functionDeclarations", "function_declarations", "tools"):
        inner = holder.get(key)
        for one in cast(list[JSON], inner) if isinstance(inner, list) else []:
            yield from _named(one)
    for key in _INNER:
        if isinstance(holder.get(key), dict):
            yield from _named(holder[key])
    name = holder.get("name")
    if isinstance(name, str):
        yield name, holder
