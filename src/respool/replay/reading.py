"""A message as a provider's cache and a reader of it see it: blocks, their tokens, their words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol, cast

import msgspec
from msgspec import Struct

from ..codecs.codec import Codec
from ..codecs.json_tree import JSON, Object, compact_text, get
from ..codecs.marks import strip_marks
from ..tokens import Counter, part_tokens
from ..transcript import Part

HOUR = 3600.0
MINUTES = 300.0


class Measure(Protocol):
    """How many tokens a part is."""

    name: str

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        ...


class Plain:
    """Characters / 4 for each part, rounded up; what no text shows counts nothing."""

    name = "characters / 4"

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return (len(spelled(codec, part)) + 3) // 4


class Counted:
    """A counter's tokens, with images and whatever else has no text."""

    def __init__(self, counter: Counter, name: str | None = None) -> None:
        self._counter = counter
        self.name = name or counter.name

    def __call__(self, codec: Codec, part: Part) -> int:
        """The part's tokens."""
        return part_tokens(part, self._counter)


def spelled(codec: Codec, part: Part) -> str:
    """A part's text as people count it: a call is its name and its arguments."""
    if part.kind in ("opaque", "media"):
        return ""
    if part.kind != "call":
        return part.text
    objects = codec.name in ("anthropic", "gemini")  # elsewhere arguments are text on the wire
    return f"{part.name} {_respelled(part.text) if objects else part.text}"


def _respelled(arguments: str) -> str:
    """A JSON object as json.dumps spells it, which is how the published baselines count it."""
    try:
        return json.dumps(msgspec.json.decode(arguments), ensure_ascii=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


def found_in(part: Part) -> str:
    """What a reader finds in a part: a call's arguments as the strings they are."""
    if part.kind != "call":
        return "" if part.kind in ("opaque", "media") else part.text
    try:
        return part.name + "\n" + "\n".join(_strings(msgspec.json.decode(part.text)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return f"{part.name} {part.text}"


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast(Object, value).values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in cast(list[JSON], value):
            yield from _strings(inner)


class Block(Struct, frozen=True, gc=False):
    """One block of a message: what the cache compares, and what a reader finds in it."""

    key: int  # of what it says, its mark left out
    tokens: int
    kind: str  # of its first part
    call_id: str  # the id it is called or answered by
    name: str
    text: str
    cache_lifetime: float  # seconds that a cache mark on it asks for; 0: it has none


class Row(Struct, frozen=True):
    """One message, read once."""

    message: JSON
    blocks: tuple[Block, ...]
    key: int
    tokens: int
    shape: int  # what later messages can refer to: roles, kinds and ids
    breakpoints: tuple[int, ...]  # the blocks that have one
    is_model_made: bool  # by the model
    has_media: bool  # whether it holds images or documents

    def with_breakpoint(self, message: JSON, lifetime: float) -> Row:
        """The row of the same message with a mark on its last block."""
        last = self.blocks[-1]
        marked = msgspec.structs.replace(last, cache_lifetime=lifetime)
        at = len(self.blocks) - 1
        blocks = (*self.blocks[:-1], marked)
        marks = (*self.breakpoints, at)
        return msgspec.structs.replace(self, message=message, blocks=blocks, breakpoints=marks)


def read_row(codec: Codec, message: JSON, measure: Measure) -> Row:
    """A message in blocks."""
    parts = codec.decode(0, message)
    blocks = tuple(_block(codec, message, group, measure) for group in _grouped(codec, parts))
    role = _role(message)
    return Row(
        message,
        blocks,
        hash((role, tuple(block.key for block in blocks))),
        sum(block.tokens for block in blocks),
        hash((role, tuple((block.kind, block.call_id, block.name) for block in blocks))),
        tuple(at for at, block in enumerate(blocks) if block.cache_lifetime),
        codec.is_model_made(message),
        any(part.kind == "media" for part in parts),
    )


def _grouped(codec: Codec, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts by the block they stand in; other wires than Anthropic's have no blocks to mark."""
    if codec.name != "anthropic":
        yield from ([part] for part in parts)
        return
    for _, group in groupby(parts, lambda part: part.ref.path[:2]):
        yield list(group)


def _block(codec: Codec, message: JSON, parts: list[Part], measure: Measure) -> Block:
    first = parts[0]
    said = get(message, first.ref.path[:2]) if codec.name == "anthropic" else None
    return Block(
        _key(codec, message, parts, said),
        sum(measure(codec, part) for part in parts),
        first.kind,
        first.id,
        first.name,
        "\n".join(found_in(part) for part in parts),
        _lifetime(said),
    )


def _key(codec: Codec, message: JSON, parts: list[Part], said: JSON) -> int:
    """What the cache compares; on Anthropic the block itself, in its message's role."""
    first = parts[0]
    if codec.name != "anthropic":
        return hash((_role(message), first.kind, first.id, first.name, first.text, first.weight))
    bare = said if isinstance(said, str) else compact_text(strip_marks(said))
    return hash((_role(message), bare))


def _lifetime(block: JSON) -> float:
    mark = get(block, ("cache_control",)) if isinstance(block, dict) else None
    if not isinstance(mark, dict):
        return 0
    return HOUR if cast(Object, mark).get("ttl") == "1h" else MINUTES


def _role(message: JSON) -> str:
    holder = cast(Object, message) if isinstance(message, dict) else {}
    return str(holder.get("role") or holder.get("type") or "")


def with_mark(message: JSON, lifetime: float) -> JSON:
    """A message of Anthropic's with a cache mark on its last block, as clients set it."""
    content = get(message, ("content",))
    if not isinstance(content, list) or not content or not isinstance(content[-1], dict):
        return message
    mark = {"type": "ephemeral", "ttl": "1h"} if lifetime == HOUR else {"type": "ephemeral"}
    blocks = cast(list[Object], content)
    return {
        **cast(Object, message),
        "content": [*blocks[:-1], {**blocks[-1], "cache_control": mark}],
    }
