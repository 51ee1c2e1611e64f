"""Requests without their tool definitions, for models that take none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ..codecs.codec import Codec, Fields, FormatName
from ..codecs.json_tree import JSON, Object
from ..tokens import Counter, part_tokens

DEFINING: Mapping[FormatName, tuple[str, ...]] = {
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
        left = _from_bytes(data, format)
        return request if left is data else left.decode()
    if isinstance(request, bytes):
        return _from_bytes(request, format)
    return _from_object(cast(Object, request), format) if isinstance(request, dict) else request


def definition_tokens(fields: Fields | None, codec: Codec, counter: Counter) -> int:
    """Tokens of the definitions, as they count before and after."""
    if fields is None:
        return 0
    parts = [part for part in codec.decode_head(fields) if part.ref.path[:1] in _COUNTED]
    return sum(part_tokens(part, counter) for part in parts)


_COUNTED = (("tools",), ("functions",))


def _from_object(request: Object, format: FormatName) -> Object:
    names = DEFINING[format]
    left = {key: one for key, one in request.items() if key not in names}
    config = left.get(_CONFIG)
    if format == "gemini" and isinstance(config, dict):
        kept = {key: one for key, one in cast(Object, config).items() if key not in names}
        if len(kept) < len(cast(Object, config)):
            left[_CONFIG] = kept
    changed = len(left) < len(request) or left.get(_CONFIG) is not config
    return left if changed else request


def _from_bytes(request: bytes, format: FormatName) -> bytes:
    if request.lstrip(b" \t\r\n")[:1] != b"{":
        return request
    raws: dict[str, JSON] = _RAW_FIELDS.decode(request)
    held = raws.get(_CONFIG)
    if format == "gemini" and held is not None and bytes(held)[:1] == b"{":
        config: Object = msgspec.json.decode(held)
        if not config.keys().isdisjoint(DEFINING[format]):
            raws = {**raws, _CONFIG: {k: v for k, v in config.items() if k not in DEFINING[format]}}
    left = {key: one for key, one in raws.items() if key not in DEFINING[format]}
    same = len(left) == len(raws) and left.get(_CONFIG) is held
    return request if same else msgspec.json.encode(left)
