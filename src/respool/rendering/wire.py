"""What the rendering needs to know of a wire: whose a message is, and how plain ones are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, cast

from msgspec import Struct, field

from ..codecs.json_tree import JSON, Object, get
from ..codecs.marks import MARKS
from ..transcript import Part

# other: a system message, or an item that is no message; it stands where it stood.
Role = Literal["user", "model", "other"]


class Turn(Struct):
    """One message of the output on its way: as it came, or put together from blocks."""

    role: Role
    rows: list[int]  # the rows that it is made of
    is_source: bool = True  # one row as it came
    blocks: list[JSON] = field(default_factory=list[JSON])
    fields: Object = field(default_factory=dict[str, JSON])  # beside the blocks
    ends_with_entry: bool = False  # ends with an entry of the record


class Wire(Protocol):
    """One wire format, as far as plain messages go."""

    @property
    def requires_leading_thinking(self) -> bool:
        """Whether a message of the model that holds a thought must begin with one."""
        ...

    def role(self, message: JSON) -> Role:
        """Whose message it is."""
        ...

    def block(self, message: JSON, part: Part) -> JSON:
        """The block that a part stands in; None: it is a field of the message."""
        ...

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """What the message has beside its blocks, without calls and without these parts."""
        ...

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of two messages that become one."""
        ...

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A block that says this."""
        ...

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """What a call asks or a result says, and what else it holds that only JSON can tell."""
        ...

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """An image or a file of a tool's as the user's message can hold it; nothing: it cannot."""
        ...

    def is_model_turn_required(self, before: JSON) -> bool:
        """Whether the model must have spoken between this message and one of the user's."""
        ...

    def build(self, turn: Turn) -> JSON:
        """The message of a turn."""
        ...


def marks_on(block: JSON) -> Object:
    """The cache marks on a block or on what it holds; the last of a kind wins."""
    found: Object = {}
    for one in (*_inner(block), block):
        if isinstance(one, dict):
            holder = cast(Object, one)
            found |= {mark: holder[mark] for mark in MARKS if holder.get(mark) is not None}
    return found


def _inner(block: JSON) -> list[JSON]:
    held: list[JSON] = []
    for name in ("content", "output"):
        items = get(block, (name,))
        held += cast(list[JSON], items) if isinstance(items, list) else []
    return held


def without_marks(block: JSON) -> JSON:
    """A block of a tool's result that moves into a message: its mark stays with the text."""
    if not isinstance(block, dict):
        return block
    return {key: one for key, one in cast(Object, block).items() if key not in MARKS}
