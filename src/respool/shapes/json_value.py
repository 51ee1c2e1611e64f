"""JSON: its shape with samples. Keys stay, the first items of arrays, the beginning of strings."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct, field

from ..marker import hole
from .cutting import clip
from .shaped import Shaped

_DEEPEST = 8  # levels that are opened
_SMALL = 100  # characters of a value that is shown on one line
_LEAST_STRING = 60  # characters of a string that stay in any case
_DECODER = msgspec.json.Decoder(Raw)
_TORN = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\u[0-9a-fA-F]{0,3})?\Z")
_LONGEST_TORN = 16  # characters; of two escapes that make one sign, all but one


class _Shape(Struct):
    """What has been said so far, and what was left out."""

    budget: int
    string: int  # characters of a string that stay
    lines: list[str] = field(default_factory=list[str])
    items: int = 0  # of arrays, left out
    keys: int = 0  # of objects, left out
    all_items: int = 0  # of all arrays that were opened
    all_keys: int = 0  # of all objects that were opened
    chars: int = 0  # of strings, left out

    def add(self, line: str) -> None:
        """One more line."""
        self.lines.append(line)
        self.budget -= len(line) + 1


def shape_json(text: str, budget: int) -> Shaped | None:
    """The value, opened level by level while there is room; holes for the rest."""
    try:
        raw = bytes(_DECODER.decode(text.encode()))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    shape = _opened(raw, budget)
    said = "\n".join(shape.lines)
    if shape.items and shape.keys:
        all = shape.all_items + shape.all_keys
        return Shaped(said, shape.items + shape.keys, all, "entries")
    if shape.items:
        return Shaped(said, shape.items, shape.all_items, "items")
    if shape.keys:
        return Shaped(said, shape.keys, shape.all_keys, "keys")
    return Shaped(said, shape.chars, len(text), "chars") if shape.chars else None


def _opened(raw: bytes, budget: int) -> _Shape:
    """The value with as much of its strings as fits."""
    for string in (budget // 2, budget // 8, _LEAST_STRING):
        shape = _Shape(budget, max(string, _LEAST_STRING))
        _open(shape, "", raw, "", 0, budget)
        if shape.budget >= 0:
            return shape
    return shape


def _open(shape: _Shape, name: str, raw: bytes, comma: str, depth: int, share: int) -> None:
    """Say one value after its name: on one line if it is small, opened if it is not."""
    pad = " " * depth
    first = raw[:1]
    if first not in b"{[":
        shape.add(f"{pad}{name}{_clipped(shape, raw.decode())}{comma}")
    elif (line := _small(raw)) is not None:
        shape.add(f"{pad}{name}{line}{comma}")
    elif depth >= _DEEPEST:
        _close_unopened(shape, name, raw, comma, pad)
    elif first == b"{":
        _open_object(shape, name, raw, comma, depth, share)
    else:
        _open_array(shape, name, raw, comma, depth, share)


def _small(raw: bytes) -> str | None:
    """An array or an object that fits on one line; else None."""
    if len(raw) > 2 * _SMALL:
        return None
    line = msgspec.json.format(raw, indent=0).decode()
    return line if len(line) <= _SMALL else None


def _clipped(shape: _Shape, written: str) -> str:
    """A string or another scalar as it is written, cut before its end if it is long."""
    short, gone = clip(written, shape.string)
    if not gone:
        return written
    short = _without_torn(short)
    unsaid = len(written) - len(short)
    shape.chars += unsaid
    return f"{short}{hole(unsaid, 'chars')}"


def _without_torn(short: str) -> str:
    """The beginning of a string, ending neither in an escape nor between two for one sign."""
    short = short.rstrip("\\")
    torn = _TORN.search(short, max(0, len(short) - _LONGEST_TORN))
    return short[: torn.start()].rstrip("\\") if torn else short


def _members(raw: bytes) -> int:
    if raw[:1] == b"{":
        return len(msgspec.json.decode(raw, type=dict[str, Raw]))
    return len(msgspec.json.decode(raw, type=list[Raw]))


def _close_unopened(shape: _Shape, name: str, raw: bytes, comma: str, pad: str) -> None:
    count, brackets = _members(raw), ("{}" if raw[:1] == b"{" else "[]")
    unit = "keys" if raw[:1] == b"{" else "items"
    if unit == "keys":
        shape.all_keys += count
        shape.keys += count
    else:
        shape.all_items += count
        shape.items += count
    shape.add(f"{pad}{name}{brackets[0]}")
    shape.add(hole(count, unit))
    shape.add(f"{pad}{brackets[1]}{comma}")


def _open_object(shape: _Shape, name: str, raw: bytes, comma: str, depth: int, share: int) -> None:
    """All keys while there is room, each value with its part of it."""
    pad = " " * depth
    members = list(msgspec.json.decode(raw, type=dict[str, Raw]).items())
    shape.all_keys += len(members)
    shape.add(f"{pad}{name}{{")
    floor = shape.budget - share
    for at, (key, value) in enumerate(members):
        left = shape.budget - floor
        if shape.budget <= 0 or left <= 0:
            shape.keys += len(members) - at
            shape.add(hole(len(members) - at, "keys"))
            break
        label = f"{_clipped(shape, msgspec.json.encode(key).decode())}: "
        after = "," if at + 1 < len(members) else ""
        part = max(left // (len(members) - at), min(left, 120))
        _open(shape, label, bytes(value), after, depth + 1, part)
    shape.add(f"{pad}}}{comma}")


def _open_array(shape: _Shape, name: str, raw: bytes, comma: str, depth: int, share: int) -> None:
    """The first items while there is room, at least one, and how many there are more."""
    pad = " " * depth
    members = msgspec.json.decode(raw, type=list[Raw])
    shape.all_items += len(members)
    shape.add(f"{pad}{name}[")
    floor = shape.budget - share
    for at, value in enumerate(members):
        left = shape.budget - floor
        if at and (shape.budget <= 0 or left <= share // 4):
            shape.items += len(members) - at
            shape.add(hole(len(members) - at, "items"))
            break
        after = "," if at + 1 < len(members) else ""
        _open(shape, "", bytes(value), after, depth + 1, max(left // 2, 60))
    shape.add(f"{pad}]{comma}")
