"""Placeholders that repairs insert: fixed texts, call ids and argument objects."""

from __future__ import annotations

from typing import cast

import msgspec

from ..wire.json import JSON, Object

NO_RESULT_TEXT = "[no result was recorded for this call]"
EARLIER_TEXT = "[earlier conversation not shown]"
BLANK_TEXT = "[blank]"
CONTINUE_TEXT = "[continue]"  # the text of a user turn that must exist


def unpaired_result_text(id: str, text: str) -> str:
    """The text for a result without a call, worded as history and not as an instruction."""
    head = f"[tool result that answers no call at this point, id {id or 'unknown'}]"
    return f"{head}\n{text}" if text.strip() else head


def misplaced_call_text(name: str, arguments: str) -> str:
    """The text for a call not made by the model, worded as history and not as an instruction."""
    return f"[tool call that is not the assistant's: {name} {arguments}]"


def repeat_id(id: str, times: int) -> str:
    """A deterministic new id for a repeated call id."""
    return f"{id}_{times + 1}"


def arguments_object(value: JSON) -> Object:
    """Arguments of any type as an object; JSON text is decoded."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            parsed = None
        if isinstance(parsed, dict):
            return cast(Object, parsed)
    return {"input": value}
