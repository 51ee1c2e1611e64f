"""Arguments of a call as the object they have to be."""

from __future__ import annotations

from typing import cast

import msgspec

from ..codecs.json_tree import JSON, Object


def as_object(value: JSON) -> Object:
    """Arguments of any type as an object; text that is one is read, nothing at all is none."""
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
