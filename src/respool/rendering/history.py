"""A projection as plain messages: what the assistant said stays its own, tools are told.

Calls and results go into the user's side of the conversation, as a record that the client keeps. A
turn of the model that was calls alone leaves no message behind: whatever stood in its place, the
model would learn to write. So roles alternate, and the record grows at the end of one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct

from ..binding import Binding
from ..codecs.body import Body, Changed, Kept, Piece
from ..codecs.codec import Codec
from ..codecs.json_tree import JSON, Object, get
from ..codecs.marks import marks_in
from ..transcript import Part
from .formats import wire_for
from .reading import Group, Read, Turns, is_tool, is_words, read_history
from .wire import Role, Turn, Wire, marks_on
from .words import NO_WORDS, STYLES, Answered, Called, Style, StyleName


class Rendered(Struct, frozen=True):
    """A projection as plain messages, and the messages that differ, before and after."""

    pieces: list[Piece]
    before: list[JSON]
    after: list[JSON]


def render(
    pieces: Sequence[Piece], body: Body, codec: Codec, style: StyleName, binding: Binding
) -> Rendered:
    """The pieces with all tool history told in words; those of a history without any as they are.

    >>> from respool.codecs.formats import CODECS
    >>> from respool.codecs.reading import read_body
    >>> call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    >>> body = read_body([
    ...     {"role": "user", "content": "What is here?"},
    ...     {"role": "assistant", "content": "I look.", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ... ])
    >>> out = render([Kept(0, 3)], body, CODECS["openai-chat"], "text", Binding("nothing", "all"))
    >>> print(body.splice(out.pieces)[2]["content"])  # doctest: +ELLIPSIS
    Record of tool use, kept by the client; calls are made through ... as text.
    The assistant called ls (id c1) with {}
    <BLANKLINE>
    ls returned
    ```
    a.py
    ```
    """
    sources, messages = _rows(pieces, body)
    how = STYLES[style]
    wire = wire_for(codec.name, has_breakpoints=any(map(marks_in, messages)))
    turns = Turns(calls_by_model=how.calls_by_model, requires_leading_thinking=wire.requires_leading_thinking)
    read = read_history(codec, messages, binding, turns)
    if not read.has_tools():
        return Rendered(list(pieces), [], [])
    writer = _Writer(codec, wire, how, read, messages)
    for row in range(len(messages)):
        writer.add(row)
    return _spliced(writer.turns, writer.changed, sources, messages, wire)


def _rows(pieces: Sequence[Piece], body: Body) -> tuple[list[Piece], list[JSON]]:
    """The messages of a projection, each with its own piece."""
    singles: list[Piece] = []
    messages: list[JSON] = []
    for piece in pieces:
        if isinstance(piece, Kept):
            for at in range(piece.start, piece.stop):
                singles.append(Kept(at, at + 1))
                messages.append(body.message(at))
        else:
            singles.append(piece)
            only_bytes = piece.encoded if piece.message is None else None
            decoded = None if only_bytes is None else msgspec.json.decode(only_bytes)
            messages.append(piece.message if only_bytes is None else decoded)
    return singles, messages


class _Writer:
    """Turns, put together row by row."""

    def __init__(
        self, codec: Codec, renderer: Wire, style: Style, read: Read, messages: Sequence[JSON]
    ) -> None:
        self.turns: list[Turn] = []
        self.changed: dict[int, JSON] = {}  # rows that only lost their reasoning
        self._codec, self._wire, self._style, self._read = codec, renderer, style, read
        self._messages = messages

    def add(self, row: int) -> None:
        """Add a message: as it came, or told."""
        groups = self._read.rows[row]
        message = self._messages[row]
        if any(is_tool(group.part) for group in groups):
            self._add_rendered(row, message, groups)
        elif any(group.position in self._read.dropped for group in groups):
            self._add_without_reasoning(row, message, groups)
        else:
            self._add_whole(row, self._unbind(row, message))

    def _unbind(self, row: int, message: JSON) -> JSON:
        """A message whose turn lost its reasoning, without what ties it to it."""
        unit = self._read.index.units[self._read.unit_of[row]]
        if self._read.dropped.isdisjoint(unit.reasoning):
            return message
        return self._codec.unbind(message)

    def _add_without_reasoning(self, row: int, message: JSON, groups: Sequence[Group]) -> None:
        gone = [group.part for group in groups if group.position in self._read.dropped]
        for part in gone:
            if part.text.strip() and not part.signed:
                self.add_entry(row, self._style.thought(part.text), {}, "user")
        left = self._codec.remove(message, gone)
        if left is not None and any(is_words(group.part) for group in groups):
            self._add_whole(row, self._unbind(row, left))

    def _add_whole(self, row: int, message: JSON) -> None:
        """Add a message that says nothing of tools; only a neighbour of its role changes it."""
        role = self._wire.role(message)
        if message is not self._messages[row]:
            self.changed[row] = message
        last = self.turns[-1] if self.turns else None
        if role == "other" or last is None or last.role != role:
            self._insert_model_turn(role)
            self.turns.append(Turn(role, [row]))
            return
        blocks, fields = self._blocks_and_fields(row, message)
        self._add_blocks(row, role, blocks, fields)

    def _blocks_and_fields(self, row: int, message: JSON) -> tuple[list[JSON], Object]:
        groups = self._codec.decode(row, message)
        blocks = [self._wire.block(message, part) for part in groups]
        return [one for one in blocks if one is not None], self._wire.fields(message, ())

    def _add_rendered(self, row: int, message: JSON, groups: Sequence[Group]) -> None:
        """Add a message with calls or results: its words as they are, the rest told in order."""
        entries = _Entries(self, row)
        gone = [group.part for group in groups if group.position in self._read.dropped]
        fields = self._wire.fields(message, gone)
        for group in groups:
            part = group.part
            if is_tool(part):
                entries.add(
                    self._entry(message, group), self._breakpoints(message, group), self._role_of_entry(part)
                )
                for block in self._media(message, group):
                    entries.add_media(block)
            elif group.position in self._read.dropped:
                if part.text.strip() and not part.signed:
                    entries.add(self._style.thought(part.text), {}, "user")
            elif is_words(part) or part.kind == "reasoning":
                entries.flush()
                role: Role = "model" if part.speaker == "model" else "user"
                block = self._wire.block(message, part)
                self._add_blocks(row, role, [] if block is None else [block], fields)
                fields = {}
        entries.flush()

    def _role_of_entry(self, part: Part) -> Role:
        return "model" if self._style.calls_by_model and part.kind != "result" else "user"

    def _entry(self, message: JSON, group: Group) -> str:
        part = group.part
        text, beside = self._wire.extract_text(message, part)
        ordinal = self._read.index.exchange_of[group.position]
        call = self._call_of(part, ordinal)
        name, id = call.name or part.name, call.id or part.id
        number, alone = self._place(ordinal)
        if part.kind != "result":
            told = self._style.call(Called(name, id, number, alone, text, beside, part.server))
            drawn = ("image",) * len(self._media(message, group))
            held = Answered(name, id, number, alone, "", media=drawn)
            return f"{told}\n{self._style.result(held)}" if drawn else told
        blocks = [(one, get(message, one.ref.path)) for one in group.inner]
        others = [_inner_text(one, block) for one, block in blocks if one.kind != "media"]
        media = tuple(_unit(block) for one, block in blocks if one.kind == "media")
        return self._style.result(
            Answered(name, id, number, alone, text, part.error, (*beside, *others), media)
        )

    def _call_of(self, part: Part, ordinal: int) -> Part:
        """The call that a part is, or answers; itself where there is none."""
        if ordinal < 0:
            return part
        return self._read.index.parts[self._read.index.exchanges[ordinal].call]

    def _place(self, ordinal: int) -> tuple[int, bool]:
        """A call's place among those of its turn, and whether it is the only one."""
        if ordinal < 0:
            return 1, False
        unit = self._read.index.units[self._read.index.exchanges[ordinal].unit]
        return self._read.call_numbers[ordinal], len(unit.exchanges) == 1

    def _media(self, message: JSON, group: Group) -> list[JSON]:
        """The images and files of a result, or of a call that holds its own result."""
        if group.part.kind == "call":
            return self._wire.media_blocks(message, group.part) if group.part.weight else []
        media = [one for one in group.inner if one.kind == "media"]
        return [block for one in media for block in self._wire.media_blocks(message, one)]

    def _breakpoints(self, message: JSON, group: Group) -> Object:
        path = group.part.ref.path[:2]
        return marks_on(message) if len(path) < 2 else marks_on(get(message, path))

    def _insert_model_turn(self, role: Role) -> None:
        """Let the model have spoken where the provider demands it before the user's words."""
        last = self.turns[-1] if self.turns else None
        if role != "user" or last is None or last.role != "other":
            return
        if self._wire.is_model_turn_required(self._messages[last.rows[0]]):
            words = self._wire.text_block(NO_WORDS, "model", {})
            self.turns.append(Turn("model", [], is_source=False, blocks=[words]))

    def add_entry(self, row: int, text: str, breakpoints: Object, role: Role) -> None:
        """Add an entry of the record, with its opening where it is the first in its message."""
        last = self.turns[-1] if self.turns else None
        opened = role == "model" or (last is not None and last.role == role and last.ends_with_entry)
        opening = "" if opened or not self._style.opening else f"{self._style.opening}\n"
        block = self._wire.text_block(opening + text, role, breakpoints)
        self._add_blocks(row, role, [block], {}, told=role == "user")

    def _add_blocks(
        self, row: int, role: Role, blocks: list[JSON], fields: Object, *, told: bool = False
    ) -> None:
        """Add blocks to the turn of this role that is open, or open one."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.role != role:
            self._insert_model_turn(role)
            self.turns.append(Turn(role, [row], False, blocks, fields, told))
            return
        if last.is_source:
            first = last.rows[0]
            message = self.changed.get(first, self._messages[first])
            last.blocks, last.fields = self._blocks_and_fields(first, message)
            last.is_source = False
        if last.ends_with_entry and not told and self._style.closing:
            last.blocks.append(self._wire.text_block(self._style.closing, role, {}))
        last.blocks += blocks
        last.fields = self._wire.join_fields(last.fields, fields)
        last.ends_with_entry = told
        last.rows.append(row)

    def add_media(self, row: int, block: JSON) -> None:
        """An image or a file of a tool's, behind its entry."""
        self._add_blocks(row, "user", [block], {}, told=True)


class _Entries:
    """Entries of one message that follow each other: one text, so that few blocks are needed."""

    def __init__(self, writer: _Writer, row: int) -> None:
        self._writer, self._row = writer, row
        self._texts: list[str] = []
        self._breakpoints: Object = {}
        self._role: Role = "user"

    def add(self, text: str, breakpoints: Object, role: Role) -> None:
        """One more entry."""
        if role != self._role:
            self.flush()
        self._role = role
        self._texts.append(text)
        self._breakpoints |= breakpoints

    def add_media(self, block: JSON) -> None:
        """An image or a file that belongs to the last entry."""
        self.flush()
        self._writer.add_media(self._row, block)

    def flush(self) -> None:
        """Write what is gathered."""
        if self._texts:
            self._writer.add_entry(self._row, "\n".join(self._texts), self._breakpoints, self._role)
        self._texts, self._breakpoints = [], {}


def _inner_text(part: Part, block: JSON) -> str:
    """What something in a result says that is no text of it: a marker, or a block as JSON."""
    said = get(block, ("text",))
    return said if isinstance(said, str) and get(block, ("type",)) == "text" else part.text


def _unit(block: JSON) -> str:
    """Whether a reader sees an image, or has a file."""
    kind = get(block, ("type",))
    if isinstance(kind, str):
        return "image" if "image" in kind or "screenshot" in kind else "file"
    for name in ("inlineData", "inline_data", "fileData", "file_data"):
        held = get(block, (name,))
        if isinstance(held, dict):
            told = cast(Object, held).get("mimeType") or cast(Object, held).get("mime_type")
            return "image" if str(told).startswith("image/") else "file"
    return "file"


def _spliced(
    turns: Sequence[Turn], changed: dict[int, JSON], sources: Sequence[Piece],
    messages: Sequence[JSON], renderer: Wire,
) -> Rendered:  # fmt: skip
    """The turns as pieces; what is put together is spelled anew, so the same every time."""
    pieces: list[Piece] = []
    kept: set[int] = set()
    after: list[JSON] = []
    for turn in turns:
        if turn.is_source and turn.rows[0] not in changed:
            _keep(pieces, sources[turn.rows[0]])
            kept.add(turn.rows[0])
            continue
        message = changed[turn.rows[0]] if turn.is_source else renderer.build(turn)
        after.append(message)
        pieces.append(Changed(None, message))
    before = [message for row, message in enumerate(messages) if row not in kept]
    return Rendered(pieces, before, after)


def _keep(pieces: list[Piece], piece: Piece) -> None:
    last = pieces[-1] if pieces else None
    if isinstance(piece, Kept) and isinstance(last, Kept) and last.stop == piece.start:
        pieces[-1] = Kept(last.start, piece.stop)
    else:
        pieces.append(piece)
