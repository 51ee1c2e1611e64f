"""Cache marks: they move from request to request, so they never count as a change."""

from __future__ import annotations

import re
from typing import cast

import msgspec
from msgspec import Struct

from ..transcript import Path
from .json_tree import JSON, Object, get

MARKS = ("cache_control", "prompt_cache_breakpoint")
_HOLDERS = ("content", "output")  # the fields of a message whose items can be marked


def marks_in(message: JSON) -> int:
    """How many marks a message carries."""
    if not isinstance(message, dict):
        return 0
    holder = cast(Object, message)
    count = _own_marks(holder)
    for field in _HOLDERS:
        items = holder.get(field)
        for item in cast(list[JSON], items) if isinstance(items, list) else ():
            if isinstance(item, dict):
                count += _own_marks(cast(Object, item))
                count += sum(_own_marks(one) for one in _inner_blocks(cast(Object, item)))
    return count


def strip_marks(message: JSON) -> JSON:
    """The message without its marks; the same object when it has none."""
    if not isinstance(message, dict):
        return message
    bare = _bare(cast(Object, message))
    for field in _HOLDERS:
        items = bare.get(field)
        if isinstance(items, list):
            blocks = [_strip_block(item) for item in cast(list[JSON], items)]
            if any(
                new is not old for new, old in zip(blocks, cast(list[JSON], items), strict=True)
            ):
                bare = {**bare, field: blocks}
    return bare


def identity_bytes(raw: bytes, message: JSON) -> bytes:
    """Bytes that stand for a message whatever marks it carries, in the client's own spelling.

    >>> identity_bytes(b'{"a": 1, "cache_control": {}}', {"a": 1, "cache_control": {}})
    b'{"a": 1}'
    """
    bare = strip_marks(message)
    if bare is message:
        return raw
    for cut in (_cut_lookalikes, _cut_marks):
        spelled = cut(raw, message)
        try:
            if msgspec.json.decode(spelled) == bare:
                return spelled
        except (msgspec.DecodeError, RecursionError):
            continue
    return msgspec.json.encode(bare)


def _own_marks(block: Object) -> int:
    return sum(1 for mark in MARKS if block.get(mark) is not None)


def _inner_blocks(block: Object) -> list[Object]:
    """The blocks inside a result."""
    inner = block.get("content") if block.get("type") == "tool_result" else None
    items = cast(list[JSON], inner) if isinstance(inner, list) else []
    return [cast(Object, item) for item in items if isinstance(item, dict)]


def _bare(block: Object) -> Object:
    if not any(mark in block for mark in MARKS):
        return block
    return {key: item for key, item in block.items() if key not in MARKS}


def _strip_block(block: JSON) -> JSON:
    """A block without its own marks and those of the blocks inside it (a result's content)."""
    if not isinstance(block, dict):
        return block
    bare = _bare(cast(Object, block))
    if bare.get("type") != "tool_result" or not isinstance(bare.get("content"), list):
        return bare
    inner = cast(list[JSON], bare["content"])
    stripped = [_bare(cast(Object, item)) if isinstance(item, dict) else item for item in inner]
    if any(new is not old for new, old in zip(stripped, inner, strict=True)):
        return {**bare, "content": stripped}
    return bare


# How marks are cut out of bytes.

_NAMES = "|".join(MARKS).encode()
_SPACE = rb"[ \t\r\n]*"
# A member of the usual shape: a flat object, or null.
_MEMBER = re.compile(rb'"(?:' + _NAMES + rb')"' + _SPACE + rb":" + _SPACE + rb"(?:\{[^{}]*\}|null)")
_BLANKS = b" \t\r\n"
_AFTER = re.compile(_SPACE + rb"," + _SPACE)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)


def _cut_lookalikes(raw: bytes, message: JSON) -> bytes:
    """The bytes without any member that looks like a mark: quick, and right unless data do too."""
    return _without_spans(raw, [found.span() for found in _MEMBER.finditer(raw)])


def _cut_marks(raw: bytes, message: JSON) -> bytes:
    """The bytes without the members that are marks by where they stand."""
    return _without_spans(raw, _mark_spans(raw, message))


def _without_spans(raw: bytes, spans: list[tuple[int, int]]) -> bytes:
    """The bytes without these members, each with the comma that parts it from its neighbour."""
    out: list[bytes] = []
    done = 0
    for start, end in spans:
        before = _skipped_back(raw, start, done)
        if before > done and raw[before - 1 : before] == b",":
            out.append(raw[done : _skipped_back(raw, before - 1, done)])
            done = end
        else:
            behind = _AFTER.match(raw, end)
            out.append(raw[done:start])
            done = behind.end() if behind else end
    return b"".join([*out, raw[done:]])


def _skipped_back(raw: bytes, at: int, lower_bound: int) -> int:
    """Where the white space before this place begins."""
    while at > lower_bound and raw[at - 1] in _BLANKS:
        at -= 1
    return at


class _Frame(Struct):
    """An object or array that is open while bytes are walked through."""

    is_object: bool
    step: str | int  # the key or index that the walk is at
    mark: int = -1  # where the member that is a mark starts, if the walk is in one


def _mark_spans(raw: bytes, message: JSON) -> list[tuple[int, int]]:
    """Where the members stand that are marks, from the key to the end of the value."""
    spans: list[tuple[int, int]] = []
    stack = [_Frame(False, 0)]
    expects_key = False
    for token in _TOKEN.finditer(raw):
        sign, frame = token[0][:1], stack[-1]
        if sign in (b"{", b"["):
            expects_key = sign == b"{"
            stack.append(_Frame(expects_key, 0))
        elif sign == b'"':
            if expects_key:
                frame.step = token[0][1:-1].decode()
                path = tuple(one.step for one in stack[1:-1])
                if frame.step in MARKS and _can_be_marked(message, path):
                    frame.mark = token.start()
            expects_key = False
        elif sign != b":":
            if frame.mark >= 0:
                spans.append(
                    (frame.mark, frame.mark + len(raw[frame.mark : token.start()].rstrip()))
                )
                frame.mark = -1
            expects_key = sign == b"," and frame.is_object
            if sign != b",":
                stack.pop()
            elif isinstance(frame.step, int):
                frame.step += 1
    return sorted(spans)


def _can_be_marked(message: JSON, path: Path) -> bool:
    """Whether a mark at this path is one: on the message, a block, or a block inside a result."""
    if not path:
        return True
    if path[0] not in _HOLDERS or len(path) not in (2, 4):
        return False
    return len(path) == 2 or (
        path[2] == "content" and get(message, (*path[:2], "type")) == "tool_result"
    )
