"""A request given as bytes, text, a dict or a list, taken apart."""

from __future__ import annotations

from typing import cast

from ..errors import UnreadableRequest
from .bodies import Bodies
from .body import Body
from .bytes_body import BytesBody, TextBody
from .json_tree import JSON, Object
from .object_body import ObjectBody


def read_body(request: object, layouts: Bodies | None = None) -> Body:
    """The request's history and fields, whatever type it comes in; read already, it stays so.

    Where bodies of late are at hand, one that extends them is read only where it is new.
    """
    if isinstance(request, BytesBody | TextBody | ObjectBody):
        return request
    if isinstance(request, str):
        return TextBody(request)
    if isinstance(request, bytes | bytearray):
        body = bytes(request)
        return BytesBody(body, None if layouts is None else layouts.parse_layout(body))
    if isinstance(request, dict | list):
        return ObjectBody(cast("Object | list[JSON]", request))
    kind = type(request).__name__
    raise UnreadableRequest(f"A request is bytes, text, a dict or a list of messages, not {kind}.")
