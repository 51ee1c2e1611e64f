"""Detection of a request's wire format, and of requests that are passed through unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ..errors import PassedThrough, UnknownFormat, UnreadableRequest
from .base import Fields, FormatName, RequestBody, known_formats, wire_format
from .json import JSON, Object

_MAX_SAMPLED = 200  # messages inspected at each end of a history without tool calls


def detect_format(
    body: RequestBody, format_name: str | None, *, allow_server_held: bool = False
) -> FormatName:
    """Return the request's format; raise if it is unknown or the request must not be changed.

    With `allow_server_held`, a request whose history the provider holds is let through.
    """
    if format_name is not None and format_name not in known_formats():
        raise UnknownFormat(
            f"Unknown format {format_name!r}; allowed: {', '.join(known_formats())}."
        )
    if body.fields is not None:
        _refuse_cloud_bodies(body.fields, body.history_field)
    format = format_name if format_name is not None else _detect_by_shape(body)
    expected = wire_format(format).history_field
    if body.history_field is not None and body.history_field != expected:
        raise UnreadableRequest(
            f"A request in format {format!r} has its history in {expected!r}, "
            f"this one in {body.history_field!r}."
        )
    if body.fields is not None and not allow_server_held:
        refuse_server_held(format, body.fields)
    return format


def refuse_server_held(format: FormatName, fields: Fields) -> None:
    """Raise for a request that only refers to history the provider holds."""
    name = wire_format(format).server_held_field(fields)
    if name is not None:
        raise PassedThrough(f"The provider holds the history ({name}).")


def _refuse_cloud_bodies(fields: Fields, history: str | None) -> None:
    """Raise for bodies of clouds that have a format of their own."""
    if "inferenceConfig" in fields or ("toolConfig" in fields and history == "messages"):
        raise PassedThrough("A Bedrock Converse body: passed through unchanged for now.")
    if "data_sources" in fields:
        raise PassedThrough("An Azure body with data sources: passed through unchanged for now.")


def _detect_by_shape(body: RequestBody) -> FormatName:
    if body.history_field is not None:
        owners = [
            name for name, one in known_formats().items() if one.history_field == body.history_field
        ]
        if len(owners) == 1:
            return owners[0]
    for name, one in known_formats().items():
        if any(field in (body.fields or {}) for field in one.only_fields):
            return name
    for message in _sample(body):
        format = _format_of_message(message)
        if format is not None:
            return format
    if len(body) and _is_system_message(body.message(0)):
        format = next(
            (name for name, one in known_formats().items() if one.has_system_message), None
        )
        if format is not None:
            return format
    format = _format_of_fields(body.fields) if body.fields is not None else None
    if format is not None:
        return format
    raise PassedThrough("The format cannot be detected, and there are no tool calls in it.")


def _sample(body: RequestBody) -> Iterator[JSON]:
    count = len(body)
    for at in range(min(count, _MAX_SAMPLED)):
        yield body.message(at)
    for at in range(max(count - _MAX_SAMPLED, _MAX_SAMPLED), count):
        yield body.message(at)


def _is_system_message(message: JSON) -> bool:
    """Return whether this is a system message with content."""
    holder = cast(Object, message) if isinstance(message, dict) else {}
    return holder.get("role") == "system" and bool(holder.get("content"))


def _format_of_message(message: JSON) -> FormatName | None:
    """Return the only format that has messages of this shape; the last registered wins."""
    if not isinstance(message, dict):
        return None
    holder = cast(Object, message)
    for name, format in reversed(known_formats().items()):
        if format.owns_message(holder):
            return name
    content = holder.get("content")
    for block in cast(list[JSON], content) if isinstance(content, list) else []:
        found = _format_of_block(block)
        if found is not None:
            return found
    return None


def _format_of_block(block: JSON) -> FormatName | None:
    if not isinstance(block, dict):
        return None
    holder = cast(Object, block)
    # Converse names the type of a block by its key.
    if ("text" in holder and "type" not in holder) or "toolUse" in holder or "toolResult" in holder:
        raise PassedThrough("A Bedrock Converse history: passed through unchanged for now.")
    kind = holder.get("type")
    if not isinstance(kind, str):
        return None
    return next(
        (name for name, one in known_formats().items() if kind in one.own_block_types), None
    )


def _format_of_fields(fields: Fields) -> FormatName | None:
    """Return the format that has these tools, or else these fields.

    The model's name is no evidence: gateways serve any model on any wire.
    """
    tools = fields.get("tools")
    for tool in cast(list[JSON], tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            for name, format in known_formats().items():
                if format.owns_tool(cast(Object, tool)):
                    return name
    for name, format in known_formats().items():
        if any(field in fields for field in format.own_fields):
            return name
    return None
