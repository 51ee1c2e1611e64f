"""Tool definitions of a request: listed by name, counted or removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from ..tokens import TokenCounter, part_tokens
from ..wire.base import Fields, FormatName
from ..wire.json import JSON, Object
from .base import Codec
from .registry import PROVIDERS

_WRAPPERS = ("function", "custom")  # where a definition may wrap its name
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNTED_PATHS = (("tools",), ("functions",))


def tool_definitions(fields: Fields | None) -> dict[str, Any]:
    """Each tool's definition by its name in calls.

    If two namespaces have a tool of one name, neither definition is used.
    """
    found: dict[str, Any] = {}
    tools = (fields or {}).get("tools")
    for tool in cast(list[JSON], tools) if isinstance(tools, list) else []:
        for name, definition in _named_definitions(tool):
            same = found.setdefault(name, definition) == definition
            found[name] = definition if same else {"name": name}
    return found


def _named_definitions(tool: JSON) -> Iterator[tuple[str, Object]]:
    """The definitions in one entry: Gemini's holds several."""
    holder: Object = tool
    if not isinstance(tool, dict):
        return
    for key in ("functionDeclarations", "function_declarations", "tools"):
        inner = holder.get(key)
        for one in cast(list[JSON], inner) if isinstance(inner, list) else []:
            yield from _named_definitions(one)
    for key in _WRAPPERS:
        if isinstance(holder.get(key), dict):
            yield from _named_definitions(holder[key])
    name = holder.get("name")
    if isinstance(name, str) and not isinstance(holder.get("tools"), list):  # no namespace
        yield name, holder


def without_definitions(request: Any, format: FormatName) -> Any:
    """The request without the fields that offer tools; the same object if it has none.

    The rest keeps its bytes, or is the same object.

    >>> without_definitions(b'{"tools": [], "messages": [ 1 ]}', "openai-chat")
    b'{"messages":[ 1 ]}'
    """
    if isinstance(request, str):
        data = request.encode()
        left = _strip_bytes(data, format)
        return request if left is data else left.decode()
    if isinstance(request, bytes):
        return _strip_bytes(request, format)
    return _strip_object(cast(Object, request), format) if isinstance(request, dict) else request


def definition_tokens(fields: Fields | None, codec: Codec, counter: TokenCounter) -> int:
    """Tokens of the tool definitions."""
    if fields is None:
        return 0
    parts = [part for part in codec.decode_head(fields) if part.ref.path[:1] in _COUNTED_PATHS]
    return sum(part_tokens(part, counter) for part in parts)


def _strip_object(request: Object, format: FormatName) -> Object:
    provider = PROVIDERS[format]
    names, holder = provider.definition_fields, provider.definition_holder
    left = {key: one for key, one in request.items() if key not in names}
    nested = left.get(holder) if holder else None
    if isinstance(nested, dict):
        kept = {key: one for key, one in cast(Object, nested).items() if key not in names}
        if len(kept) < len(cast(Object, nested)):
            left[holder] = kept
    changed = len(left) < len(request) or (bool(holder) and left.get(holder) is not nested)
    return left if changed else request


def _strip_bytes(request: bytes, format: FormatName) -> bytes:
    if request.lstrip(b" \t\r\n")[:1] != b"{":
        return request
    provider = PROVIDERS[format]
    names, holder = provider.definition_fields, provider.definition_holder
    raws: dict[str, JSON] = _RAW_FIELDS.decode(request)
    held = raws.get(holder) if holder else None
    if held is not None and bytes(held)[:1] == b"{":
        nested: Object = msgspec.json.decode(held)
        if not nested.keys().isdisjoint(names):
            raws = {**raws, holder: {k: v for k, v in nested.items() if k not in names}}
    left = {key: one for key, one in raws.items() if key not in names}
    same = len(left) == len(raws) and (not holder or left.get(holder) is held)
    return request if same else msgspec.json.encode(left)
