"""Tool history rendered as plain text messages.

Calls and results go into the user's side of the conversation, as a record that the client keeps. A
turn of the model that was calls alone leaves no message behind: whatever stood in its place, the
model would learn to write. So roles alternate, and the record grows at the end of one message.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, cast

import msgspec
from msgspec import Struct

from ..markers import reference
from ..regex import lazy_compile
from ..transcript import Part, TranscriptIndex, Unit
from ..wire.base import NewMessage, Piece, RequestBody, SourceRun
from ..wire.json import JSON, Object, get
from ..wire.message_identity import count_breakpoints
from .base import Binding, Codec, OutputMessage, Renderer, Role, breakpoints_on, split_steps
from .registry import PROVIDERS

StyleName = Literal["text", "text-only", "rfc013"]

OPENING = (
    "Record of tool use, kept by the client; "
    "calls are made through the tool interface, never written as text."
)
OPENING_WITHOUT_TOOLS = "Record of tool use, kept by the client; no tool can be called now."
CLOSING = "End of the record."
NO_TEXT = "(no words here)"  # a model turn that must exist and had no text
_PLAIN_NAME = lazy_compile(r"[A-Za-z0-9_.:/@-]+", re.ASCII)
_RUNS = lazy_compile(r"`{3,}")
_MAX_FENCE = 16  # backticks; a text that would need more is closed by its hash
_MAX_INLINE_CHARS = 2_000  # maximum characters of inline arguments


class RenderedCall(Struct, frozen=True, gc=False):
    """A call to be rendered."""

    name: str
    id: str
    number: int  # its place among the calls of its turn, from 1 on
    is_only_call: bool  # whether it is the only call of its turn
    arguments: str
    extra_json: tuple[str, ...] = ()  # other inputs, as JSON
    server: bool = False  # run by the provider itself


class RenderedResult(Struct, frozen=True, gc=False):
    """A result to be rendered."""

    name: str
    id: str
    number: int
    is_only_call: bool
    text: str
    error: bool = False
    extra_json: tuple[str, ...] = ()  # other content than text and media, as JSON
    media: tuple[str, ...] = ()  # "image" or "file", for each attachment that follows


class TextStyle(Struct, frozen=True):
    """A style of rendering calls and results.

    Whatever a tool printed stands between fences that it cannot close: they are longer than any run
    of backticks in it, or carry its hash. A result cannot imitate the frame around it.
    """

    calls_by_model: bool  # whether calls stand in the model's own turn
    keep_definitions: bool  # whether tool definitions go along
    opening: str  # before the first entry of a message
    closing: str  # before what the user says behind entries
    call: Callable[[RenderedCall], str]
    result: Callable[[RenderedResult], str]
    thought: Callable[[str], str]


def fence_text(text: str) -> str:
    """A text between fences that its content cannot close.

    >>> print(fence_text("a\\n```\\nb"))
    ````
    a
    ```
    b
    ````
    """
    longest = max(map(len, _RUNS.findall(text)), default=2)
    fence = "`" * (longest + 1) if longest < _MAX_FENCE else f"~~~ {reference(text)}"
    return f"{fence}\n{text}\n{fence}"


def _quote_name(name: str) -> str:
    """A tool's name or an id, quoted for use in a sentence."""
    if not name:
        return "a tool without a name"
    if _PLAIN_NAME.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())  # other line breaks, too


def _can_be_inline(text: str) -> bool:
    """Return whether a text can be inline: short and without line breaks."""
    return len(text) <= _MAX_INLINE_CHARS and text.isprintable() and text.strip() == text


def _label(one: RenderedCall | RenderedResult) -> str:
    """The label that distinguishes a call."""
    if one.id:
        return f" (id {_quote_name(one.id)})"
    return "" if one.is_only_call else f" (call {one.number} of this turn)"


# --- in plain sentences ----------------------------------------------------------------------


def _render_call(call: RenderedCall) -> str:
    by = ", run by the provider," if call.server else ""
    opening = f"The assistant called {_quote_name(call.name)}{_label(call)}{by}"
    with_what = (
        _inline_or_fenced(call.arguments, "with") if call.arguments else "without arguments."
    )
    return "\n".join(
        [f"{opening} {with_what}", *(_inline_or_fenced(x, "It was given") for x in call.extra_json)]
    )


def _inline_or_fenced(text: str, how: str) -> str:
    """A text inline, or fenced below."""
    return f"{how} {text}" if _can_be_inline(text) else f"{how}\n{fence_text(text)}"


def _render_result(result: RenderedResult) -> str:
    tool = _quote_name(result.name) if result.name else "A tool"
    who = tool if result.is_only_call and result.name else f"{tool}{_label(result)}"
    lines: list[str] = []
    if result.text:
        how = "failed with" if result.error else "returned"
        lines.append(f"{who} {how}\n{fence_text(result.text)}")
    elif result.error:
        lines.append(f"{who} failed and said nothing.")
    elif not result.extra_json and not result.media:
        lines.append(f"{who} returned nothing.")
    for one in result.extra_json:
        lines.append(_inline_or_fenced(one, "It also returned" if lines else f"{who} returned"))
    if result.media:
        subject = "It also" if lines else who
        lines.append(f"{subject} returned {_count_media(result.media)}, shown next.")
    return "\n".join(lines)


def _count_media(media: Sequence[str]) -> str:
    """The number of images and files, as words of a sentence."""
    counts = Counter(media)
    counted = [f"{count} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()]
    return " and ".join(counted)


def _render_thought(text: str) -> str:
    return f"The assistant thought\n{fence_text(text)}"


# --- as RFC 013 has it -----------------------------------------------------------------------


def _rfc_id(one: RenderedCall | RenderedResult) -> str:
    return one.id or f"{one.name or 'tool'}_{one.number}"


def _render_rfc_call(call: RenderedCall) -> str:
    line = f"[Tool Call: {call.name}({call.arguments}) -> call_id: {_rfc_id(call)}]"
    return "\n".join([line, *call.extra_json])


def _render_rfc_result(result: RenderedResult) -> str:
    """A result; failures and non-text content are added to RFC 013."""
    failed = " (failed)" if result.error else ""
    said = result.text or "(empty)"
    lines = [f"[Tool Result for {_rfc_id(result)}{failed}]: {said}", *result.extra_json]
    if result.media:
        lines.append(f"({_count_media(result.media)} next)")
    return "\n".join(lines)


def _render_rfc_thought(text: str) -> str:
    return f"[Reasoning: {text}]"


STYLES: Mapping[StyleName, TextStyle] = {
    "text": TextStyle(
        calls_by_model=False,
        keep_definitions=True,
        opening=OPENING,
        closing=CLOSING,
        call=_render_call,
        result=_render_result,
        thought=_render_thought,
    ),
    "text-only": TextStyle(
        calls_by_model=False,
        keep_definitions=False,
        opening=OPENING_WITHOUT_TOOLS,
        closing=CLOSING,
        call=_render_call,
        result=_render_result,
        thought=_render_thought,
    ),
    "rfc013": TextStyle(
        calls_by_model=True,
        keep_definitions=True,
        opening="",
        closing="",
        call=_render_rfc_call,
        result=_render_rfc_result,
        thought=_render_rfc_thought,
    ),
}


_TOOLS = ("call", "result")


class PartGroup(Struct, frozen=True, gc=False):
    """One part of a message, with the parts inside it: images and files of a result."""

    position: int  # among all parts
    part: Part
    inner: tuple[Part, ...] = ()


class TurnRules(Struct, frozen=True):
    """Constraints on model turns."""

    calls_by_model: bool  # calls stay in them
    requires_leading_thinking: bool  # a turn with reasoning must begin with it


class ParsedHistory(Struct, frozen=True):
    """A whole history, by rows."""

    index: TranscriptIndex
    rows: list[list[PartGroup]]
    unit_of: list[int]  # of each row
    dropped: frozenset[int]  # the reasoning that cannot stay, by position
    call_numbers: dict[int, int]  # of each exchange, its place among the calls of its turn

    def has_tools(self) -> bool:
        """Return whether there are calls or results to render."""
        return any(is_tool(group.part) for row in self.rows for group in row)


def is_tool(part: Part) -> bool:
    """Return whether a part is a call or a result, malformed calls included."""
    return part.kind in _TOOLS or (part.kind == "opaque" and part.ref.path[:1] == ("tool_calls",))


def is_content(part: Part) -> bool:
    """Return whether a part stays in its message and is not blank."""
    if is_tool(part) or part.kind == "reasoning":
        return False
    return part.kind != "text" or bool(part.text.strip())


def parse_history(
    codec: Codec, messages: Sequence[JSON], binding: Binding, turns: TurnRules
) -> ParsedHistory:
    """Decode all rows."""
    index = TranscriptIndex()
    rows: list[list[PartGroup]] = []
    unit_of: list[int] = []
    for step in split_steps(codec, messages):
        parts = [codec.decode(step.at + k, message) for k, message in enumerate(step.messages)]
        model = [part for row in parts[: step.model_count] for part in row]
        answers = [part for row in parts[step.model_count :] for part in row]
        position = len(index.parts)
        index.add_unit((step.at, step.at + len(parts)), model, answers, locked=False)
        for row in parts:
            rows.append(list(_group_parts(position, row)))
            unit_of.append(len(index.units) - 1)
            position += len(row)
    gone = frozenset(_dropped_reasoning(index, rows, binding, turns))
    numbers = {
        ordinal: place for unit in index.units for place, ordinal in enumerate(unit.exchanges, 1)
    }
    return ParsedHistory(
        index=index, rows=rows, unit_of=unit_of, dropped=gone, call_numbers=numbers
    )


def _group_parts(position: int, parts: Sequence[Part]) -> Iterator[PartGroup]:
    at = 0
    while at < len(parts):
        part, end = parts[at], at + 1
        if part.kind == "result":
            while end < len(parts) and _is_inside(parts[end], part):
                end += 1
        yield PartGroup(position + at, part, tuple(parts[at + 1 : end]))
        at = end


def _is_inside(part: Part, result: Part) -> bool:
    path = result.ref.path
    return len(part.ref.path) > len(path) and part.ref.path[: len(path)] == path


def _dropped_reasoning(
    index: TranscriptIndex, rows: list[list[PartGroup]], binding: Binding, turns: TurnRules
) -> Iterator[int]:
    """The reasoning that loses its place or its signed prefix."""
    rendered = False  # a call was rendered before
    for unit in index.units:
        own = [rows[row] for row in range(*unit.rows)]
        here = any(is_tool(group.part) for row in own for group in row)
        rendered = rendered or here
        signed = [at for at in unit.reasoning if index.parts[at].signed]
        lost = [
            at
            for at in unit.reasoning
            if (here and not _has_place(index, unit, at=at, own=own, by_model=turns.calls_by_model))
            or (
                turns.requires_leading_thinking
                and not _is_led_by_thought(at, own, turns.calls_by_model)
            )
        ]
        if not (rendered or lost):
            continue
        # One signed block that cannot stay drops the others, too: the reasoning of one turn stays
        # unchanged, or goes as a whole.
        if binding.is_bound or any(at in lost for at in signed):
            yield from signed
        yield from (at for at in lost if at not in signed)


def _has_place(
    index: TranscriptIndex,
    unit: Unit,
    *,
    at: int,
    own: Sequence[Sequence[PartGroup]],
    by_model: bool,
) -> bool:
    """Return whether model text follows reasoning, with no call or result in between.

    Signed reasoning never precedes a call that became text.
    """
    part = index.parts[at]
    row = own[part.ref.row - unit.rows[0]]
    behind = [group.part for group in row if group.position > at]
    if not any(is_content(one) or is_tool(one) for one in behind):  # an item or message of its own
        following = own[part.ref.row - unit.rows[0] + 1 :]
        behind = [group.part for after in following for group in after]
    content = [
        one for one in behind if one.kind != "reasoning" and (is_tool(one) or is_content(one))
    ]
    if not content or content[0].speaker != "model":
        return False
    if is_tool(content[0]):
        return by_model and content[0].kind == "call" and not part.signed
    return not part.signed or _is_text_before_calls(row)


def _is_led_by_thought(at: int, own: Sequence[Sequence[PartGroup]], by_model: bool) -> bool:
    """Return whether the joined turn around this reasoning begins with reasoning."""
    leads: Part | None = None
    for part in reversed([group.part for row in own for group in row if group.position < at]):
        stays = part.kind == "call" and by_model if is_tool(part) else part.speaker == "model"
        if not stays:
            break
        if is_tool(part) or is_content(part) or part.kind == "reasoning":
            leads = part
    return leads is None or leads.kind == "reasoning"


def _is_text_before_calls(row: Sequence[PartGroup]) -> bool:
    """Return whether no model text follows the first call of a message."""
    kinds = [is_tool(group.part) for group in row]
    first = kinds.index(True) if True in kinds else len(kinds)
    return all(kinds[first:])


class RenderedHistory(Struct, frozen=True):
    """A projection as plain messages, and the messages that differ, before and after."""

    pieces: list[Piece]
    before: list[JSON]
    after: list[JSON]


def render_as_text(
    pieces: Sequence[Piece], body: RequestBody, *, codec: Codec, style: StyleName, binding: Binding
) -> RenderedHistory:
    """The pieces with all tool history rendered as text; unchanged if there is none.

    >>> from respool.providers.registry import PROVIDERS
    >>> from respool.wire.body import read_body
    >>> call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    >>> body = read_body([
    ...     {"role": "user", "content": "What is here?"},
    ...     {"role": "assistant", "content": "I look.", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ... ])
    >>> codec, binding = PROVIDERS["openai-chat"].codec, Binding("nothing", "all")
    >>> pieces = [SourceRun(0, 3)]
    >>> out = render_as_text(pieces, body, codec=codec, style="text", binding=binding)
    >>> print(body.splice(out.pieces)[2]["content"])  # doctest: +ELLIPSIS
    Record of tool use, kept by the client; calls are made through ... as text.
    The assistant called ls (id c1) with {}
    <BLANKLINE>
    ls returned
    ```
    a.py
    ```
    """
    sources, messages = _split_pieces(pieces, body)
    how = STYLES[style]
    wire = PROVIDERS[codec.name].renderer(any(map(count_breakpoints, messages)))
    turns = TurnRules(
        calls_by_model=how.calls_by_model, requires_leading_thinking=wire.requires_leading_thinking
    )
    read = parse_history(codec, messages, binding, turns)
    if not read.has_tools():
        return RenderedHistory(list(pieces), [], [])
    writer = _HistoryWriter(codec=codec, renderer=wire, style=how, read=read, messages=messages)
    for row in range(len(messages)):
        writer.add(row)
    return _as_pieces(
        writer.turns, writer.changed, sources=sources, messages=messages, renderer=wire
    )


def _split_pieces(pieces: Sequence[Piece], body: RequestBody) -> tuple[list[Piece], list[JSON]]:
    """The messages of a projection, each with its own piece."""
    singles: list[Piece] = []
    messages: list[JSON] = []
    for piece in pieces:
        if isinstance(piece, SourceRun):
            for at in range(piece.start, piece.stop):
                singles.append(SourceRun(at, at + 1))
                messages.append(body.message(at))
        else:
            singles.append(piece)
            only_bytes = piece.encoded if piece.message is None else None
            decoded = None if only_bytes is None else msgspec.json.decode(only_bytes)
            messages.append(piece.message if only_bytes is None else decoded)
    return singles, messages


class _HistoryWriter:
    """Builder of turns, row by row."""

    def __init__(
        self,
        *,
        codec: Codec,
        renderer: Renderer,
        style: TextStyle,
        read: ParsedHistory,
        messages: Sequence[JSON],
    ) -> None:
        self.turns: list[OutputMessage] = []
        self.changed: dict[int, JSON] = {}  # rows that only lost their reasoning
        self._codec, self._wire, self._style, self._read = codec, renderer, style, read
        self._messages = messages

    def add(self, row: int) -> None:
        """Add a message, unchanged or rendered."""
        groups = self._read.rows[row]
        message = self._messages[row]
        if any(is_tool(group.part) for group in groups):
            self._add_rendered(row, message, groups)
        elif any(group.position in self._read.dropped for group in groups):
            self._add_without_reasoning(row, message, groups)
        else:
            self._add_whole(row, self._unbind(row, message))

    def _unbind(self, row: int, message: JSON) -> JSON:
        """A message without its references to reasoning that was removed."""
        unit = self._read.index.units[self._read.unit_of[row]]
        if self._read.dropped.isdisjoint(unit.reasoning):
            return message
        return self._codec.unbind(message)

    def _add_without_reasoning(self, row: int, message: JSON, groups: Sequence[PartGroup]) -> None:
        gone = [group.part for group in groups if group.position in self._read.dropped]
        for part in gone:
            if part.text.strip() and not part.signed:
                self.add_entry(row, self._style.thought(part.text), {}, "user")
        left = self._codec.remove(message, gone)
        if left is not None and any(is_content(group.part) for group in groups):
            self._add_whole(row, self._unbind(row, left))

    def _add_whole(self, row: int, message: JSON) -> None:
        """Add a message without tool history; it changes only if its neighbour has its role."""
        role = self._wire.role(message)
        if message is not self._messages[row]:
            self.changed[row] = message
        last = self.turns[-1] if self.turns else None
        if role == "other" or last is None or last.role != role:
            self._insert_model_turn(role)
            self.turns.append(OutputMessage(role, [row]))
            return
        blocks, fields = self._blocks_and_fields(row, message)
        self._add_blocks(row, role, blocks, fields)

    def _blocks_and_fields(self, row: int, message: JSON) -> tuple[list[JSON], Object]:
        groups = self._codec.decode(row, message)
        blocks = [self._wire.block(message, part) for part in groups]
        return [one for one in blocks if one is not None], self._wire.fields(message, ())

    def _add_rendered(self, row: int, message: JSON, groups: Sequence[PartGroup]) -> None:
        """Add a message with calls or results: text unchanged, the rest rendered in order."""
        entries = _EntryBuffer(self, row)
        gone = [group.part for group in groups if group.position in self._read.dropped]
        fields = self._wire.fields(message, gone)
        for group in groups:
            part = group.part
            if is_tool(part):
                entries.add(
                    self._entry(message, group),
                    self._breakpoints(message, group),
                    self._role_of_entry(part),
                )
                for block in self._media(message, group):
                    entries.add_media(block)
            elif group.position in self._read.dropped:
                if part.text.strip() and not part.signed:
                    entries.add(self._style.thought(part.text), {}, "user")
            elif is_content(part) or part.kind == "reasoning":
                entries.flush()
                role: Role = "model" if part.speaker == "model" else "user"
                block = self._wire.block(message, part)
                self._add_blocks(row, role, [] if block is None else [block], fields)
                fields = {}
        entries.flush()

    def _role_of_entry(self, part: Part) -> Role:
        return "model" if self._style.calls_by_model and part.kind != "result" else "user"

    def _entry(self, message: JSON, group: PartGroup) -> str:
        part = group.part
        text, beside = self._wire.extract_text(message, part)
        ordinal = self._read.index.exchange_of[group.position]
        call = self._call_of(part, ordinal)
        name, id = call.name or part.name, call.id or part.id
        number, alone = self._place(ordinal)
        if part.kind != "result":
            entry = self._style.call(
                RenderedCall(
                    name,
                    id,
                    number=number,
                    is_only_call=alone,
                    arguments=text,
                    extra_json=beside,
                    server=part.server,
                )
            )
            drawn = ("image",) * len(self._media(message, group))
            held = RenderedResult(name, id, number=number, is_only_call=alone, text="", media=drawn)
            return f"{entry}\n{self._style.result(held)}" if drawn else entry
        blocks = [(one, get(message, one.ref.path)) for one in group.inner]
        others = [_inner_text(one, block) for one, block in blocks if one.kind != "media"]
        media = tuple(_media_unit(block) for one, block in blocks if one.kind == "media")
        return self._style.result(
            RenderedResult(
                name,
                id,
                number=number,
                is_only_call=alone,
                text=text,
                error=part.error,
                extra_json=(*beside, *others),
                media=media,
            )
        )

    def _call_of(self, part: Part, ordinal: int) -> Part:
        """The call that a part is, or answers; the part itself if there is none."""
        if ordinal < 0:
            return part
        return self._read.index.parts[self._read.index.exchanges[ordinal].call]

    def _place(self, ordinal: int) -> tuple[int, bool]:
        """A call's place among those of its turn, and whether it is the only one."""
        if ordinal < 0:
            return 1, False
        unit = self._read.index.units[self._read.index.exchanges[ordinal].unit]
        return self._read.call_numbers[ordinal], len(unit.exchanges) == 1

    def _media(self, message: JSON, group: PartGroup) -> list[JSON]:
        """The images and files of a result, or of a call that holds its own result."""
        if group.part.kind == "call":
            return self._wire.media_blocks(message, group.part) if group.part.weight else []
        media = [one for one in group.inner if one.kind == "media"]
        return [block for one in media for block in self._wire.media_blocks(message, one)]

    def _breakpoints(self, message: JSON, group: PartGroup) -> Object:
        path = group.part.ref.path[:2]
        return breakpoints_on(message) if len(path) < 2 else breakpoints_on(get(message, path))

    def _insert_model_turn(self, role: Role) -> None:
        """Insert a model turn where the provider requires one before the user's."""
        last = self.turns[-1] if self.turns else None
        if role != "user" or last is None or last.role != "other":
            return
        if self._wire.is_model_turn_required(self._messages[last.rows[0]]):
            words = self._wire.text_block(NO_TEXT, "model", {})
            self.turns.append(OutputMessage("model", [], is_source=False, blocks=[words]))

    def add_entry(self, row: int, text: str, breakpoints: Object, role: Role) -> None:
        """Add an entry of the record, with the opening if it is the first in its message."""
        last = self.turns[-1] if self.turns else None
        opened = role == "model" or (
            last is not None and last.role == role and last.ends_with_entry
        )
        opening = "" if opened or not self._style.opening else f"{self._style.opening}\n"
        block = self._wire.text_block(opening + text, role, breakpoints)
        self._add_blocks(row, role, [block], {}, is_entry=role == "user")

    def _add_blocks(
        self, row: int, role: Role, blocks: list[JSON], fields: Object, *, is_entry: bool = False
    ) -> None:
        """Add blocks to the open turn of this role, or open one."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.role != role:
            self._insert_model_turn(role)
            self.turns.append(
                OutputMessage(
                    role,
                    [row],
                    is_source=False,
                    blocks=blocks,
                    fields=fields,
                    ends_with_entry=is_entry,
                )
            )
            return
        if last.is_source:
            first = last.rows[0]
            message = self.changed.get(first, self._messages[first])
            last.blocks, last.fields = self._blocks_and_fields(first, message)
            last.is_source = False
        if last.ends_with_entry and not is_entry and self._style.closing:
            last.blocks.append(self._wire.text_block(self._style.closing, role, {}))
        last.blocks += blocks
        last.fields = self._wire.join_fields(last.fields, fields)
        last.ends_with_entry = is_entry
        last.rows.append(row)

    def add_media(self, row: int, block: JSON) -> None:
        """Add an image or a file of a tool after its entry."""
        self._add_blocks(row, "user", [block], {}, is_entry=True)


class _EntryBuffer:
    """Consecutive entries of one message, joined to one text to save blocks."""

    def __init__(self, writer: _HistoryWriter, row: int) -> None:
        self._writer, self._row = writer, row
        self._texts: list[str] = []
        self._breakpoints: Object = {}
        self._role: Role = "user"

    def add(self, text: str, breakpoints: Object, role: Role) -> None:
        """Add an entry."""
        if role != self._role:
            self.flush()
        self._role = role
        self._texts.append(text)
        self._breakpoints |= breakpoints

    def add_media(self, block: JSON) -> None:
        """Add an image or a file to the last entry."""
        self.flush()
        self._writer.add_media(self._row, block)

    def flush(self) -> None:
        """Write the collected entries."""
        if self._texts:
            self._writer.add_entry(self._row, "\n".join(self._texts), self._breakpoints, self._role)
        self._texts, self._breakpoints = [], {}


def _inner_text(part: Part, block: JSON) -> str:
    """The text for a part inside a result that is not its text: a marker, or JSON."""
    said = get(block, ("text",))
    return said if isinstance(said, str) and get(block, ("type",)) == "text" else part.text


def _media_unit(block: JSON) -> str:
    """The unit of a part: an image or a file."""
    kind = get(block, ("type",))
    if isinstance(kind, str):
        return "image" if "image" in kind or "screenshot" in kind else "file"
    for name in ("inlineData", "inline_data", "fileData", "file_data"):
        held = get(block, (name,))
        if isinstance(held, dict):
            media_type = cast(Object, held).get("mimeType") or cast(Object, held).get("mime_type")
            return "image" if str(media_type).startswith("image/") else "file"
    return "file"


def _as_pieces(
    turns: Sequence[OutputMessage],
    changed: dict[int, JSON],
    *,
    sources: Sequence[Piece],
    messages: Sequence[JSON],
    renderer: Renderer,
) -> RenderedHistory:
    """The turns as pieces; a built message is encoded the same way every time."""
    pieces: list[Piece] = []
    kept: set[int] = set()
    after: list[JSON] = []
    for turn in turns:
        if turn.is_source and turn.rows[0] not in changed:
            _append_source(pieces, sources[turn.rows[0]])
            kept.add(turn.rows[0])
            continue
        message = changed[turn.rows[0]] if turn.is_source else renderer.build(turn)
        after.append(message)
        pieces.append(NewMessage(None, message))
    before = [message for row, message in enumerate(messages) if row not in kept]
    return RenderedHistory(pieces, before, after)


def _append_source(pieces: list[Piece], piece: Piece) -> None:
    last = pieces[-1] if pieces else None
    if isinstance(piece, SourceRun) and isinstance(last, SourceRun) and last.stop == piece.start:
        pieces[-1] = SourceRun(last.start, piece.stop)
    else:
        pieces.append(piece)
