"""Objects of an SDK among plain data, read as what that SDK would send of them."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ..errors import UnreadableRequest
from .json_tree import JSON, Object

_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(at: int, message: object) -> JSON:
    """A message as plain data; the same object where it is that already."""
    try:
        return message if _is_plain(message) else _told(at, message)
    except RecursionError:
        return message  # whoever reads it says what is wrong


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, cast(Object, value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[Any], value)))
    return type(value) in _SCALARS


def _told(at: int, value: object) -> JSON:
    if isinstance(value, dict):
        return {key: _told(at, one) for key, one in cast(Object, value).items()}
    if isinstance(value, list | tuple):
        return [_told(at, one) for one in cast(list[Any], value)]
    if type(value) in _SCALARS:
        return value
    try:
        told = _sent(value)
    except Exception as error:
        raise _refused(at, value) from error
    if not _is_plain(told):
        raise _refused(at, value)
    return told


def _sent(value: object) -> object:
    """What the SDKs of Anthropic, OpenAI and Google put into a request for a value."""
    if isinstance(value, str):  # of a type of its own: a role as an enumeration, say
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if not hasattr(value, "model_dump"):
        return msgspec.to_builtins(value)  # bytes in base64, dates, enumerations
    return cast(Any, value).model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude=getattr(value, "__api_exclude__", None),
        warnings=False,
    )


def _refused(at: int, value: object) -> UnreadableRequest:
    kind = type(value).__name__
    return UnreadableRequest(
        f"Message {at} holds a {kind} object, which is no JSON; pass plain data."
    )
