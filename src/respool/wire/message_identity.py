"""Message identity: cache breakpoints and spellings of plain text are no change.

A text message is the same as a string or as one block: only a block can carry a breakpoint.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec
from msgspec import Struct

from ..regex import lazy_compile
from ..transcript import BlockPath, Part, Ref
from .json import JSON, Object, get

BREAKPOINT_FIELDS = ("cache_control", "prompt_cache_breakpoint")
_BLOCK_FIELDS = ("content", "output")  # the fields of a message whose items can carry a breakpoint


def count_breakpoints(message: JSON) -> int:
    """The number of cache breakpoints on a message."""
    if not isinstance(message, dict):
        return 0
    holder = cast(Object, message)
    count = _own_breakpoints(holder)
    for field in _BLOCK_FIELDS:
        items = holder.get(field)
        for item in cast(list[JSON], items) if isinstance(items, list) else ():
            if isinstance(item, dict):
                count += _own_breakpoints(cast(Object, item))
                count += sum(_own_breakpoints(one) for one in _inner_blocks(cast(Object, item)))
    return count


def strip_breakpoints(message: JSON) -> JSON:
    """The message without its cache breakpoints; the same object if it has none."""
    if not isinstance(message, dict):
        return message
    bare = _strip_own(cast(Object, message))
    for field in _BLOCK_FIELDS:
        items = bare.get(field)
        if isinstance(items, list):
            blocks = [_strip_block(item) for item in cast(list[JSON], items)]
            if any(
                new is not old for new, old in zip(blocks, cast(list[JSON], items), strict=True)
            ):
                bare = {**bare, field: blocks}
    return bare


def identity_bytes(raw: bytes, message: JSON) -> bytes:
    """Bytes that identify a message without its cache breakpoints, in the client's spelling.

    >>> identity_bytes(b'{"a": 1, "cache_control": {}}', {"a": 1, "cache_control": {}})
    b'{"a": 1}'
    """
    bare = strip_breakpoints(message)
    if bare is message:
        return raw
    for cut in (_cut_by_pattern, _cut_by_position):
        spelled = cut(raw, message)
        try:
            if msgspec.json.decode(spelled) == bare:
                return spelled
        except (msgspec.DecodeError, RecursionError):
            continue
    return msgspec.json.encode(bare)


def _own_breakpoints(block: Object) -> int:
    return sum(1 for field in BREAKPOINT_FIELDS if block.get(field) is not None)


def _inner_blocks(block: Object) -> list[Object]:
    """The blocks inside a result."""
    inner = block.get("content") if block.get("type") == "tool_result" else None
    items = cast(list[JSON], inner) if isinstance(inner, list) else []
    return [cast(Object, item) for item in items if isinstance(item, dict)]


def _strip_own(block: Object) -> Object:
    if not any(field in block for field in BREAKPOINT_FIELDS):
        return block
    return {key: item for key, item in block.items() if key not in BREAKPOINT_FIELDS}


def _strip_block(block: JSON) -> JSON:
    """A block without its cache breakpoints and those of the blocks inside it."""
    if not isinstance(block, dict):
        return block
    bare = _strip_own(cast(Object, block))
    if bare.get("type") != "tool_result" or not isinstance(bare.get("content"), list):
        return bare
    inner = cast(list[JSON], bare["content"])
    stripped = [
        _strip_own(cast(Object, item)) if isinstance(item, dict) else item for item in inner
    ]
    if any(new is not old for new, old in zip(stripped, inner, strict=True)):
        return {**bare, "content": stripped}
    return bare


# Removal of cache breakpoints from bytes.

_NAMES = "|".join(BREAKPOINT_FIELDS).encode()
_SPACE = rb"[ \t\r\n]*"
# A member of the usual shape: a flat object, or null.
_MEMBER = lazy_compile(
    rb'"(?:' + _NAMES + rb')"' + _SPACE + rb":" + _SPACE + rb"(?:\{[^{}]*\}|null)"
)
_WHITESPACE = b" \t\r\n"
_TRAILING_COMMA = lazy_compile(_SPACE + rb"," + _SPACE)
_TOKEN = lazy_compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)


def _cut_by_pattern(raw: bytes, message: JSON) -> bytes:
    """The bytes without any member that looks like a cache breakpoint; fast, but data may match."""
    return _without_spans(raw, [found.span() for found in _MEMBER.finditer(raw)])


def _cut_by_position(raw: bytes, message: JSON) -> bytes:
    """The bytes without the members that are cache breakpoints by their position."""
    return _without_spans(raw, _breakpoint_spans(raw, message))


def _without_spans(raw: bytes, spans: list[tuple[int, int]]) -> bytes:
    """The bytes without these members, each with its comma."""
    out: list[bytes] = []
    done = 0
    for start, end in spans:
        before = _rstrip_index(raw, start, done)
        if before > done and raw[before - 1 : before] == b",":
            out.append(raw[done : _rstrip_index(raw, before - 1, done)])
            done = end
        else:
            behind = _TRAILING_COMMA.match(raw, end)
            out.append(raw[done:start])
            done = behind.end() if behind else end
    return b"".join([*out, raw[done:]])


def _rstrip_index(raw: bytes, at: int, lower_bound: int) -> int:
    """The start of the white space before an offset."""
    while at > lower_bound and raw[at - 1] in _WHITESPACE:
        at -= 1
    return at


class _OpenContainer(Struct):
    """An object or array that is open during the walk over the bytes."""

    is_object: bool
    step: str | int  # the current key or index
    breakpoint_start: int = -1  # the start of the breakpoint that the walk is in, if any


def _breakpoint_spans(raw: bytes, message: JSON) -> list[tuple[int, int]]:
    """The spans of the members that are cache breakpoints, from key to end of value."""
    spans: list[tuple[int, int]] = []
    stack = [_OpenContainer(False, 0)]
    expects_key = False
    for token in _TOKEN.finditer(raw):
        sign, frame = token[0][:1], stack[-1]
        if sign in (b"{", b"["):
            expects_key = sign == b"{"
            stack.append(_OpenContainer(expects_key, 0))
        elif sign == b'"':
            if expects_key:
                frame.step = token[0][1:-1].decode()
                path = tuple(one.step for one in stack[1:-1])
                if frame.step in BREAKPOINT_FIELDS and _can_hold_breakpoint(message, path):
                    frame.breakpoint_start = token.start()
            expects_key = False
        elif sign != b":":
            if frame.breakpoint_start >= 0:
                spans.append(
                    (
                        frame.breakpoint_start,
                        frame.breakpoint_start
                        + len(raw[frame.breakpoint_start : token.start()].rstrip()),
                    )
                )
                frame.breakpoint_start = -1
            expects_key = sign == b"," and frame.is_object
            if sign != b",":
                stack.pop()
            elif isinstance(frame.step, int):
                frame.step += 1
    return sorted(spans)


def _can_hold_breakpoint(message: JSON, path: BlockPath) -> bool:
    """Return whether this path is of the message, a block, or a block inside a result."""
    if not path:
        return True
    if path[0] not in _BLOCK_FIELDS or len(path) not in (2, 4):
        return False
    return len(path) == 2 or (
        path[2] == "content" and get(message, (*path[:2], "type")) == "tool_result"
    )


_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT_MESSAGE = lazy_compile(
    rb'\s*\{\s*"role"\s*:\s*"(?:user|system|developer)"\s*,\s*"content"\s*:\s*'
    rb'(?:"|\[\s*\{\s*"type"\s*:\s*"text")'
)
_TEXT_BLOCK_KEYS = {"type", "text", *BREAKPOINT_FIELDS}


def text_identity(raw: memoryview) -> bytes | None:
    """Bytes that identify a text message in either spelling; None if it is not one."""
    if _TEXT_MESSAGE.match(raw) is None:
        return None
    try:
        fields = _RAW_OBJECT.decode(raw)
        content = bytes(fields.pop("content"))
        said = content if content[:1] == b'"' else _only_text(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if said is None:
        return None
    rest = sorted(
        (name, bytes(one)) for name, one in fields.items() if name not in BREAKPOINT_FIELDS
    )
    return b"".join([said, *(name.encode() + value for name, value in rest)])


def _only_text(content: bytes) -> bytes | None:
    """The raw text of the content's only block."""
    blocks = _RAW_ARRAY.decode(content)
    if len(blocks) != 1:
        return None
    block = _RAW_OBJECT.decode(blocks[0])
    return bytes(block["text"]) if block.keys() <= _TEXT_BLOCK_KEYS and "text" in block else None


def with_string_content(message: JSON) -> JSON:
    """The message with one plain text block spelled as a string; else the same object."""
    holder: Object = message
    content: JSON = holder.get("content") if isinstance(message, dict) else None
    blocks: list[JSON] = content
    if not isinstance(content, list) or len(blocks) != 1 or not isinstance(blocks[0], dict):
        return holder
    block = cast(Object, blocks[0])
    if block.keys() != {"type", "text"} or block["type"] != "text":
        return holder
    return {**holder, "content": block["text"]}


def relocate_text(message: JSON, part: Part) -> Part:
    """A text part with its path in the message's current spelling."""
    content = cast(Object, message).get("content") if isinstance(message, dict) else None
    path = part.ref.path
    if part.kind != "text":
        return part
    if path == ("content", 0) and isinstance(content, str):
        path = ("content",)
    elif path == ("content",) and isinstance(content, list):
        path = ("content", 0)
    if path == part.ref.path:
        return part
    return Part(Ref(part.ref.row, path), part.kind, part.speaker, part.text)
