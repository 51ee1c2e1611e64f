"""Deferred tools: definitions that a model asks for first, and the expand tool among them.

Claude Code lists deferred tools by name in a text, and adds a definition with `defer_loading` once
its tool `ToolSearch` was asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from ..regex import lazy_compile
from ..tools.identity import find_expand_tool, is_expand_tool
from ..transcript import Part

SEARCH_TOOL: Final = "ToolSearch"  # loads definitions into later requests
_LIST_TAG: Final = "<available-deferred-tools>"
_LIST_WORDS: Final = ("deferred tools are", f"{SEARCH_TOOL} with query")  # of the line before it
_REMOVAL_WORDS: Final = "no longer available"
_ITEM = lazy_compile(r"(?:- )?([^\s:]+)")
_REFERENCE_START: Final = '{"type":"tool_reference",'


def is_deferred(definition: object) -> bool:
    """Check whether a definition is no part of the prompt until a model asks for it."""
    return isinstance(definition, dict) and cast(Any, definition).get("defer_loading") is True


def find_defined_expand_tool(definitions: Mapping[str, Any]) -> str | None:
    """The expand tool among the definitions.

    One that the agent loaded on request does not count: the history names it, from there on.
    """
    is_loaded = is_deferred if SEARCH_TOOL in definitions else _never
    return find_expand_tool(name for name, one in definitions.items() if not is_loaded(one))


def _never(_definition: object) -> bool:
    return False


def find_listed_expand_tool(parts: Iterable[Part], known: str | None) -> str | None:
    """The expand tool that a model may ask for after these parts; `known` before them.

    Only texts of the agent or the user can list tools: those of a model or of other tools cannot.
    """
    for part in parts:
        if part.kind == "text" and part.speaker != "model":
            known = _listed_in(part.text, known)
        elif part.kind == "opaque" and part.text.startswith(_REFERENCE_START):
            known = _referenced_by(part.text) or known
    return known


def _listed_in(text: str, known: str | None) -> str | None:
    if "respool" not in text or "tools" not in text:
        return known  # the common case
    for name, is_available in _listed_tools(text):
        if is_expand_tool(name):
            known = name if is_available else None
    return known


def _listed_tools(text: str) -> Iterator[tuple[str, bool]]:
    """The names in lists of deferred tools, one a line; False: no longer available."""
    is_available: bool | None = None
    for line in text.split("\n"):
        if line.endswith(":") and _REMOVAL_WORDS in line:
            is_available = False
        elif line == _LIST_TAG or (
            line.endswith(":") and any(words in line for words in _LIST_WORDS)
        ):
            is_available = True
        elif not line.strip() or line.startswith("<"):
            is_available = None  # the end of a list
        elif is_available is not None and (item := _ITEM.match(line)):
            yield item[1], is_available


def _referenced_by(text: str) -> str | None:
    try:
        block: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    name = cast(dict[str, object], block).get("tool_name") if isinstance(block, dict) else None
    return name if isinstance(name, str) and is_expand_tool(name) else None
