"""Shapes of JSON values and tables."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct, field

from ..markers import gap_line
from ..regex import lazy_compile
from .excerpt import ShapedText, clip_line, cut_to_spans, head_of, line_end, split_lines, tail_of

_MAX_DEPTH = 8  # levels opened
_MAX_INLINE_CHARS = 100  # characters of a value on one line
_MIN_STRING_CHARS = 60  # characters of a string that always stay
_DECODER = msgspec.json.Decoder(Raw)
_TORN = lazy_compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\u[0-9a-fA-F]{0,3})?\Z")
_MAX_TORN_CHARS = 16  # characters; all but one of a surrogate pair of escapes

_ROW_COUNT = lazy_compile(r"\(\d[\d,]* rows?\)|\d+ rows? in set|\[\d+ rows x ")


class _JsonOutline(Struct):
    """The lines written so far, and the counts of what was left out."""

    budget: int
    string: int  # characters of a string that stay
    lines: list[str] = field(default_factory=list[str])
    items: int = 0  # left out of arrays
    keys: int = 0  # left out of objects
    all_items: int = 0  # in all opened arrays
    all_keys: int = 0  # in all opened objects
    chars: int = 0  # left out of strings

    def add(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)
        self.budget -= len(line) + 1


def shape_json(text: str, budget: int) -> ShapedText | None:
    """Open the value level by level within the budget, with holes for the rest."""
    try:
        raw = bytes(_DECODER.decode(text.encode()))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    shape = _open_value(raw, budget)
    outline = "\n".join(shape.lines)
    if shape.items and shape.keys:
        all = shape.all_items + shape.all_keys
        return ShapedText(outline, shape.items + shape.keys, all, "entries")
    if shape.items:
        return ShapedText(outline, shape.items, shape.all_items, "items")
    if shape.keys:
        return ShapedText(outline, shape.keys, shape.all_keys, "keys")
    return ShapedText(outline, shape.chars, len(text), "chars") if shape.chars else None


def _open_value(raw: bytes, budget: int) -> _JsonOutline:
    """The value with as much of its strings as fits."""
    for string in (budget // 2, budget // 8, _MIN_STRING_CHARS):
        shape = _JsonOutline(budget, max(string, _MIN_STRING_CHARS))
        _open(shape, "", raw, comma="", depth=0, share=budget)
        if shape.budget >= 0:
            return shape
    return shape


def _open(
    shape: _JsonOutline, name: str, raw: bytes, *, comma: str, depth: int, share: int
) -> None:
    """Write one named value: on one line if small, opened otherwise."""
    pad = " " * depth
    first = raw[:1]
    if first not in b"{[":
        shape.add(f"{pad}{name}{_clip_scalar(shape, raw.decode())}{comma}")
    elif (line := _inline_value(raw)) is not None:
        shape.add(f"{pad}{name}{line}{comma}")
    elif depth >= _MAX_DEPTH:
        _close_unopened(shape, name, raw, comma=comma, pad=pad)
    elif first == b"{":
        _open_object(shape, name, raw, comma=comma, depth=depth, share=share)
    else:
        _open_array(shape, name, raw, comma=comma, depth=depth, share=share)


def _inline_value(raw: bytes) -> str | None:
    """An array or object that fits on one line; otherwise None."""
    if len(raw) > 2 * _MAX_INLINE_CHARS:
        return None
    line = msgspec.json.format(raw, indent=0).decode()
    return line if len(line) <= _MAX_INLINE_CHARS else None


def _clip_scalar(shape: _JsonOutline, written: str) -> str:
    """A scalar as written, clipped if it is a long string."""
    short, gone = clip_line(written, shape.string)
    if not gone:
        return written
    short = _strip_torn_escape(short)
    unsaid = len(written) - len(short)
    shape.chars += unsaid
    return f"{short}{gap_line(unsaid, 'chars')}"


def _strip_torn_escape(short: str) -> str:
    """The beginning of a string without a partial escape or surrogate pair at its end."""
    short = short.rstrip("\\")
    torn = _TORN.search(short, max(0, len(short) - _MAX_TORN_CHARS))
    return short[: torn.start()].rstrip("\\") if torn else short


def _members(raw: bytes) -> int:
    if raw[:1] == b"{":
        return len(msgspec.json.decode(raw, type=dict[str, Raw]))
    return len(msgspec.json.decode(raw, type=list[Raw]))


def _close_unopened(shape: _JsonOutline, name: str, raw: bytes, *, comma: str, pad: str) -> None:
    count, brackets = _members(raw), ("{}" if raw[:1] == b"{" else "[]")
    unit = "keys" if raw[:1] == b"{" else "items"
    if unit == "keys":
        shape.all_keys += count
        shape.keys += count
    else:
        shape.all_items += count
        shape.items += count
    shape.add(f"{pad}{name}{brackets[0]}")
    shape.add(gap_line(count, unit))
    shape.add(f"{pad}{brackets[1]}{comma}")


def _open_object(
    shape: _JsonOutline, name: str, raw: bytes, *, comma: str, depth: int, share: int
) -> None:
    """Write all keys that fit, each value with its share of the budget."""
    pad = " " * depth
    members = list(msgspec.json.decode(raw, type=dict[str, Raw]).items())
    shape.all_keys += len(members)
    shape.add(f"{pad}{name}{{")
    floor = shape.budget - share
    for at, (key, value) in enumerate(members):
        left = shape.budget - floor
        if shape.budget <= 0 or left <= 0:
            shape.keys += len(members) - at
            shape.add(gap_line(len(members) - at, "keys"))
            break
        label = f"{_clip_scalar(shape, msgspec.json.encode(key).decode())}: "
        after = "," if at + 1 < len(members) else ""
        part = max(left // (len(members) - at), min(left, 120))
        _open(shape, label, bytes(value), comma=after, depth=depth + 1, share=part)
    shape.add(f"{pad}}}{comma}")


def _open_array(
    shape: _JsonOutline, name: str, raw: bytes, *, comma: str, depth: int, share: int
) -> None:
    """Write the first items that fit, at least one, and the count of the rest."""
    pad = " " * depth
    members = msgspec.json.decode(raw, type=list[Raw])
    shape.all_items += len(members)
    shape.add(f"{pad}{name}[")
    floor = shape.budget - share
    for at, value in enumerate(members):
        left = shape.budget - floor
        if at and (shape.budget <= 0 or left <= share // 4):
            shape.items += len(members) - at
            shape.add(gap_line(len(members) - at, "items"))
            break
        after = "," if at + 1 < len(members) else ""
        _open(shape, "", bytes(value), comma=after, depth=depth + 1, share=max(left // 2, 60))
    shape.add(f"{pad}]{comma}")


def shape_table(text: str, budget: int) -> ShapedText | None:
    """Keep the head with its rule, then first and last rows that fit."""
    head = _head_end(text)
    others = sorted(
        {*(start for start, _ in split_lines(text, [(0, head)])), *_non_row_lines(text, head)}
    )
    left = max(0, budget - head)
    first, last = head_of(text, head + left * 2 // 3), tail_of(text, left // 3)
    return cut_to_spans(text, [(0, head), first, last], budget, unit="rows", others=others)


def is_rule(line: str) -> bool:
    """Check whether a line is the rule between a table's head and its rows."""
    return "--" in line and ("|" in line or "+" in line) and not line.strip(" \t\r\n|+:=-")


def _head_end(text: str) -> int:
    """The start of the first row, after the names and the rules around them."""
    at = line_end(text, 0)
    if is_rule(text[:at]):  # one above the names too
        at = line_end(text, at)
    after = line_end(text, at)
    return after if is_rule(text[at:after]) else at


def _non_row_lines(text: str, head: int) -> list[int]:
    """The lines at the end of a table that are not rows: blank, a rule, the count."""
    found: list[int] = []
    end = len(text)
    while end > head and len(found) < 6:
        start = text.rfind("\n", 0, max(0, end - 1)) + 1
        line = text[start:end].strip()
        if line and not is_rule(line) and not _ROW_COUNT.match(line):
            break
        found.append(start)
        end = start
    return found
