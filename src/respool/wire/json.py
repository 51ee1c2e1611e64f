"""JSON values: decoding with readable errors, edits that share branches, re-encoding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ..errors import UnreadableRequest
from ..regex import lazy_compile
from ..transcript import BlockPath

JSON = Any  # a decoded JSON value
Object = dict[str, Any]

_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


def put(value: JSON, path: BlockPath, new: JSON) -> JSON:
    """The value with `new` at `path`; everything beside the path is shared."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        branch = cast(Object, value)
        return {**branch, str(step): put(branch.get(str(step)), rest, new)}
    items = list(cast(Sequence[JSON], value))
    index = int(step)
    items[index] = put(items[index], rest, new)
    return items


def without(value: JSON, path: BlockPath) -> JSON:
    """The value without its item at `path`."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        branch = cast(Object, value)
        if rest:
            return {**branch, str(step): without(branch[str(step)], rest)}
        return {key: item for key, item in branch.items() if key != step}
    items = list(cast(Sequence[JSON], value))
    index = int(step)
    if rest:
        items[index] = without(items[index], rest)
    else:
        del items[index]
    return items


def get(value: JSON, path: BlockPath) -> JSON:
    """The item at `path`, or None."""
    for step in path:
        if isinstance(value, dict):
            value = cast(Object, value).get(str(step))
        elif (
            isinstance(value, list)
            and isinstance(step, int)
            and step < len(cast(list[JSON], value))
        ):
            value = cast(list[JSON], value)[step]
        else:
            return None
    return value


def encode_like(raw: bytes | memoryview | msgspec.Raw, old: JSON, new: JSON) -> bytes:
    """JSON bytes of `new`, with the bytes in `raw` of every branch it shares with `old`."""
    return bytes(raw) if new is old else msgspec.json.encode(_splice(raw, old, new))


def _splice(raw: bytes | memoryview | msgspec.Raw, old: JSON, new: JSON) -> JSON:
    if new is old:
        return raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw)
    if isinstance(old, dict) and isinstance(new, dict):
        return _splice_object(_RAW_OBJECT.decode(raw), cast(Object, old), cast(Object, new))
    if isinstance(old, list) and isinstance(new, list):
        return _splice_array(_RAW_ARRAY.decode(raw), cast(list[JSON], old), cast(list[JSON], new))
    return new


def _splice_object(raws: Mapping[str, msgspec.Raw], old: Object, new: Object) -> Object:
    return {
        key: _splice(raws[key], old[key], item) if key in old else item for key, item in new.items()
    }


def _splice_array(raws: list[msgspec.Raw], old: list[JSON], new: list[JSON]) -> list[JSON]:
    source = {id(item): position for position, item in enumerate(old)}
    aligned = len(old) == len(new)
    out: list[JSON] = []
    for position, item in enumerate(new):
        here = position < len(old) and item is old[position]
        found = position if here else source.get(id(item))
        if found is not None:
            out.append(raws[found])
        elif aligned:
            out.append(_splice(raws[position], old[position], item))
        else:
            out.append(item)
    return out


def compact_json(value: JSON) -> str:
    """The value as JSON text, for counting and reading; never raises."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError, OverflowError):
        return _lenient_json(value)


def decode_container(text: str) -> JSON:
    """The object or array that a text is, as JSON; None if it is neither."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def digest(value: JSON) -> str:
    """A short, stable name for a value."""
    text = compact_json(value).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:24]


def _lenient_json(value: JSON) -> str:
    """JSON text of a value that strict encoding refuses: lone surrogates, odd types."""
    try:
        return json.dumps(value, default=str)
    except (RecursionError, TypeError, ValueError):
        return ""


def decode_json(raw: Any, what: str) -> JSON:
    """The JSON value in these bytes, or an error that names them."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError as error:
        raise UnreadableRequest(f"The JSON of {what} is nested too deeply.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(
            f"The JSON of {what} cannot be read: {describe_json_error(error, raw)}."
        ) from error


def describe_json_error(error: Exception, raw: Any) -> str:
    """A readable description of a JSON error."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    text = bytes(raw)
    if _LONE_SURROGATE.search(text):
        return "it holds a lone surrogate, half of a character"
    if text.startswith(b"\xef\xbb\xbf"):
        return "it starts with a byte order mark"
    return str(error).removeprefix("JSON is malformed: ")


# An escape of the first half of a character without the second, or of the second alone.
_LONE_SURROGATE = lazy_compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)
