"""Tool definitions of a request: listed by name, counted or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from ..tokens import TokenCounter, part_tokens
from ..wire.base import Codec, Fields, FormatName
from ..wire.json import JSON, Object

_WRAPPERS = ("function", "custom")  # where a definition may wrap its name


def tool_definitions(fields: Fields | None) -> dict[str, Any]:
    """Each tool's definition under the name that calls carry.

    Two namespaces may each have a tool of one name: then nothing is said of either.
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
    if isinstance(name, str):
        yield name, holder


DEFINITION_FIELDS: Mapping[FormatName, tuple[str, ...]] = {
    "anthropic": ("tools", "tool_choice", "mcp_servers"),
    "openai-chat": ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    "openai-responses": ("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"),
    "gemini": ("tools", "toolConfig", "tool_config"),
}
_CONFIG = "config"  # where calls of Gemini's SDK have them
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def without_definitions(request: Any, format: FormatName) -> Any:
    """The request without the fields by which tools are offered; itself where it has none.

    All that stays keeps its own bytes, or is the same object.

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
    """Tokens of the definitions, as they count before and after."""
    if fields is None:
        return 0
    parts = [part for part in codec.decode_head(fields) if part.ref.path[:1] in _COUNTED_PATHS]
    return sum(part_tokens(part, counter) for part in parts)


_COUNTED_PATHS = (("tools",), ("functions",))


def _strip_object(request: Object, format: FormatName) -> Object:
    names = DEFINITION_FIELDS[format]
    left = {key: one for key, one in request.items() if key not in names}
    config = left.get(_CONFIG)
    if format == "gemini" and isinstance(config, dict):
        kept = {key: one for key, one in cast(Object, config).items() if key not in names}
        if len(kept) < len(cast(Object, config)):
            left[_CONFIG] = kept
    changed = len(left) < len(request) or left.get(_CONFIG) is not config
    return left if changed else request


def _strip_bytes(request: bytes, format: FormatName) -> bytes:
    if request.lstrip(b" \t\r\n")[:1] != b"{":
        return request
    raws: dict[str, JSON] = _RAW_FIELDS.decode(request)
    held = raws.get(_CONFIG)
    if format == "gemini" and held is not None and bytes(held)[:1] == b"{":
        config: Object = msgspec.json.decode(held)
        if not config.keys().isdisjoint(DEFINITION_FIELDS[format]):
            raws = {
                **raws,
                _CONFIG: {k: v for k, v in config.items() if k not in DEFINITION_FIELDS[format]},
            }
    left = {key: one for key, one in raws.items() if key not in DEFINITION_FIELDS[format]}
    same = len(left) == len(raws) and left.get(_CONFIG) is held
    return request if same else msgspec.json.encode(left)
