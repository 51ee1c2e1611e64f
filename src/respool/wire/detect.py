"""Detection of a request's wire format, and of requests that are passed through unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ..errors import PassedThrough, UnknownFormat, UnreadableRequest
from .base import FORMATS, Fields, FormatName, RequestBody
from .json import JSON, Object

_HISTORY_FIELD: dict[FormatName, str] = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
_MAX_SAMPLED = 200  # messages looked at before a plain-text history is given up on

_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
    | {"server_tool_use", "mcp_tool_use", "compaction", "search_result"}
)
_CHAT_BLOCKS = frozenset({"image_url", "input_audio", "file", "refusal"})
_RESPONSES_BLOCKS = frozenset({"input_text", "output_text", "input_image", "input_file"})
_ANTHROPIC_FIELDS = ("system", "context_management", "stop_sequences")  # other wires have top_k
_CHAT_FIELDS = ("stream_options", "max_completion_tokens", "reasoning_effort", "response_format")


def detect_format(
    body: RequestBody, format_name: str | None, *, allow_server_held: bool = False
) -> FormatName:
    """The request's format; raises when it is not respool's to change or cannot be told.

    With `held`, a request whose history the provider holds is let through, to be looked at.
    """
    if format_name is not None and format_name not in FORMATS:
        raise UnknownFormat(f"Unknown format {format_name!r}; allowed: {', '.join(FORMATS)}.")
    if body.fields is not None:
        _refuse_cloud_bodies(body.fields, body.history_field)
    format = format_name if format_name is not None else _detect_by_shape(body)
    if body.history_field is not None and body.history_field != _HISTORY_FIELD[format]:
        raise UnreadableRequest(
            f"A request in format {format!r} has its history in {_HISTORY_FIELD[format]!r}, "
            f"this one in {body.history_field!r}."
        )
    if body.fields is not None and not allow_server_held:
        refuse_server_held(format, body.fields)
    return format


def _refuse_cloud_bodies(fields: Fields, history: str | None) -> None:
    """Bodies for clouds that wrap a format: carried along unchanged for now."""
    if "anthropic_version" in fields:
        raise PassedThrough("A Bedrock or Vertex body: passed through unchanged for now.")
    if "inferenceConfig" in fields or ("toolConfig" in fields and history == "messages"):
        raise PassedThrough("A Bedrock Converse body: passed through unchanged for now.")
    if "data_sources" in fields:
        raise PassedThrough("An Azure body with data sources: passed through unchanged for now.")


def refuse_server_held(format: FormatName, fields: Fields) -> None:
    """History that the provider holds is not in the request."""
    held = {
        "openai-responses": ("previous_response_id", "conversation"),
        "gemini": ("cachedContent", "cached_content"),
    }.get(format, ())
    for name in held:
        if fields.get(name) is not None:
            raise PassedThrough(f"The provider holds the history ({name}).")
    thread = fields.get("thread") if format == "anthropic" else None
    if isinstance(thread, dict) and cast(Object, thread).get("type") == "continue":
        raise PassedThrough("The provider holds the history (thread).")


def _detect_by_shape(body: RequestBody) -> FormatName:
    if body.history_field == "input":
        return "openai-responses"
    if body.history_field == "contents":
        return "gemini"
    for message in _sample(body):
        format = _format_of_message(message)
        if format is not None:
            return format
    if len(body) and _is_system_message(body.message(0)):
        return "openai-chat"  # Anthropic has no system message in front
    format = _format_of_fields(body.fields) if body.fields is not None else None
    if format is not None:
        return format
    raise PassedThrough("The format cannot be told, and there are no tool calls in it.")


def _sample(body: RequestBody) -> Iterator[JSON]:
    count = len(body)
    for at in range(min(count, _MAX_SAMPLED)):
        yield body.message(at)
    for at in range(max(count - _MAX_SAMPLED, _MAX_SAMPLED), count):
        yield body.message(at)


def _is_system_message(message: JSON) -> bool:
    """Whether this is a system message with content."""
    holder = cast(Object, message) if isinstance(message, dict) else {}
    return holder.get("role") == "system" and bool(holder.get("content"))


def _format_of_message(message: JSON) -> FormatName | None:
    """The format that only this message's shape can be."""
    if not isinstance(message, dict):
        return None
    holder = cast(Object, message)
    if isinstance(holder.get("parts"), list):
        return "gemini"
    kind = holder.get("type")
    if isinstance(kind, str) and kind != "message" and "role" not in holder:
        return "openai-responses"
    if holder.get("role") in ("tool", "function", "developer") or "tool_calls" in holder:
        return "openai-chat"
    content = holder.get("content")
    for block in cast(list[JSON], content) if isinstance(content, list) else []:
        format = _format_of_block(block)
        if format is not None:
            return format
    return None


def _format_of_block(block: JSON) -> FormatName | None:
    if not isinstance(block, dict):
        return None
    holder = cast(Object, block)
    converse = "text" in holder and "type" not in holder  # its blocks are told by their key
    if converse or "toolUse" in holder or "toolResult" in holder:
        raise PassedThrough("A Bedrock Converse history: passed through unchanged for now.")
    kind = holder.get("type")
    if not isinstance(kind, str):
        return None
    if kind in _RESPONSES_BLOCKS:
        return "openai-responses"
    if kind in _CHAT_BLOCKS:
        return "openai-chat"
    return "anthropic" if kind in _ANTHROPIC_BLOCKS else None


def _format_of_fields(fields: Fields) -> FormatName | None:
    """What the fields beside `messages` tell."""
    tools = fields.get("tools")
    for tool in cast(list[JSON], tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            holder = cast(Object, tool)
            if "input_schema" in holder:
                return "anthropic"
            if "function" in holder or "custom" in holder:
                return "openai-chat"
    if any(name in fields for name in _ANTHROPIC_FIELDS):
        return "anthropic"
    if any(name in fields for name in _CHAT_FIELDS):
        return "openai-chat"
    return None  # a model's name alone does not tell: gateways serve any model on any wire
