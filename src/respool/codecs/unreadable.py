"""Decoding that says what is wrong, for a person."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..errors import UnreadableRequest
from .json_tree import JSON


def decode(raw: Any, what: str) -> JSON:
    """The JSON value in these bytes, or an error that names them."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError as error:
        raise UnreadableRequest(f"The JSON of {what} is nested too deeply.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(f"The JSON of {what} cannot be read: {why(error, raw)}.") from error


def why(error: Exception, raw: Any) -> str:
    """What is wrong with JSON, for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    text = bytes(raw)
    if _SURROGATE.search(text):
        return "it holds a lone surrogate, half of a character"
    if text.startswith(b"\xef\xbb\xbf"):
        return "it starts with a byte order mark"
    return str(error).removeprefix("JSON is malformed: ")


# An escape of the first half of a character without the second, or of the second alone.
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)
