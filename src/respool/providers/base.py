"""Provider: its codec, rules, repairer and renderer, and the values they exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..model_names import Version
from ..transcript import Part
from ..wire.base import Fields, FormatName, RequestBody, WireFormat
from ..wire.json import JSON, Object, compact_json, decode_container, get
from ..wire.message_identity import BREAKPOINT_FIELDS, strip_breakpoints, with_string_content

Severity = Literal["error", "warning"]


class Problem(Struct, frozen=True, gc=False):
    """A rule of the provider that the request breaks."""

    code: str  # the rule's code in docs/reference/problems.md, e.g. "A1"
    place: str  # e.g. "messages[3].content[0]"
    message: str  # a sentence for a person
    severity: Severity = "error"  # a warning rests on conflicting evidence and is never repaired

    def __str__(self) -> str:
        warning = ", warning" if self.severity == "warning" else ""
        return f"{self.place}: {self.message} [{self.code}{warning}]"


class RuleSpec(Struct, frozen=True):
    """A rule of a provider in the words of the reference."""

    code: str
    requirement: str
    severity: str  # "error", "warning", or when it is which
    repair: str = ""  # empty for what is only reported


class Step(Struct, frozen=True):
    """One run of model-made messages and all that follows it up to the next run.

    Only the first step can lack a run, and only the last one can lack what follows it: its calls
    are then still pending, which is no problem.
    """

    messages: Sequence[JSON]
    at: int  # index of the first message
    model_count: int  # how many of the messages are the model's

    @property
    def model(self) -> Sequence[JSON]:
        """The model's messages."""
        return self.messages[: self.model_count]

    @property
    def answers(self) -> Sequence[JSON]:
        """The messages after them: results, user and system messages."""
        return self.messages[self.model_count :]


class RuleState(Struct):
    """State of earlier steps that later rules need; each format uses its own fields."""

    call_counts: dict[str, int] = field(default_factory=dict[str, int])  # call id -> times seen
    item_rows: dict[str, int] = field(default_factory=dict[str, int])  # item id -> row
    open_calls: dict[str, int] = field(default_factory=dict[str, int])  # unanswered call id -> row
    pending_rows: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # to check again: row -> place

    def copy(self) -> RuleState:
        """An independent copy."""
        return RuleState(
            self.call_counts.copy(),
            self.item_rows.copy(),
            self.open_calls.copy(),
            self.pending_rows.copy(),
        )


def count_call_id(id: str, state: RuleState) -> None:
    """Count a call id, and the id it repeats, so that the next repeat gets a new number."""
    state.call_counts[id] = state.call_counts.get(id, 0) + 1
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and base in state.call_counts:
        state.call_counts[base] += 1


class Codec(Protocol):
    """Decoder and editor of one wire format; messages are decoded JSON and never mutated.

    For any content of a message (wrong types, missing fields, unknown blocks), reading it must not
    raise: what is not understood becomes an opaque part.
    """

    name: FormatName
    history_field: str  # the field that holds the history: "messages", "input" or "contents"
    head_fields: tuple[str, ...]  # the fields that decode_head counts

    def is_model_made(self, message: JSON) -> bool:
        """Return whether the model wrote this message or item."""
        ...

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one message, in order."""
        ...

    def decode_head(self, fields: Fields) -> list[Part]:
        """System prompt, instructions and tool definitions, as parts that are only counted."""
        ...

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """Return whether the calls in this run of model output can only be removed together."""
        ...

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """Return whether the reasoning among these must stay because something depends on it."""
        ...

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The message with `text` in place of the part's text; media and cache breakpoints stay.

        For a call, `text` is its new arguments as a JSON object.
        """
        ...

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The message without these parts; None when nothing is left to send."""
        ...

    def unbind(self, message: JSON) -> JSON:
        """A model-made message without its references to reasoning that was removed."""
        ...

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """The replacement of two messages that a removal made neighbours; None: both stay."""
        ...

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        """One message in place of a run that `join` makes one; None if there are no such runs."""
        ...

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The message with a cache breakpoint on the block that holds this part."""
        ...


class ProviderRules(Protocol):
    """One provider's rules; `fields` is None for a bare list, and rules on fields do not apply."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """Problems inside this step, given the steps before it; must not change `state`."""
        ...

    def advance(self, step: Step, state: RuleState) -> None:
        """Record in `state` what later steps need of this one."""
        ...

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """Problems that exist only because the history ends here; reads few messages."""
        ...

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Problems of the other fields, or of counts over the whole request."""
        ...


def split_steps(codec: Codec, messages: Sequence[JSON], start: int = 0) -> Iterator[Step]:
    """Split a history into steps: each run of model-made messages with what follows it."""
    made = [codec.is_model_made(message) for message in messages]
    at, count = start, len(messages)
    while at < count:
        split = at
        while split < count and made[split]:
            split += 1
        end = split
        while end < count and not made[end]:
            end += 1
        yield Step(messages[at:end], at, split - at)
        at = end


def read_steps(codec: Codec, body: RequestBody, start: int) -> Iterator[Step]:
    """The steps of a body from this message on, each without what was decoded for those before."""
    first, model_count = start, 0
    messages: list[JSON] = []
    for at in range(start, len(body)):
        message = body.message(at)
        is_made = codec.is_model_made(message)
        if is_made and model_count < len(messages):
            yield Step(messages, first, model_count)
            body.forget(first, at)
            messages, first, model_count = [], at, 0
        messages.append(message)
        model_count += is_made
    if messages:
        yield Step(messages, first, model_count)


class _ReadTrackingDict(dict[str, int]):
    """A dict that reads from another one and records the keys that were read."""

    def __init__(self, source: dict[str, int]) -> None:
        super().__init__()
        self._source = source
        self._read_keys: set[str] = set()
        self._is_all_read = False  # iterated over, so the order was read

    def __contains__(self, key: object) -> bool:
        self._read_keys.add(str(key))
        return key in self._source

    def __getitem__(self, key: str) -> int:
        self._read_keys.add(key)
        return self._source[key]

    def get(self, key: str, default: Any = None) -> Any:
        self._read_keys.add(key)
        return self._source.get(key, default)

    def __iter__(self) -> Iterator[str]:
        self._is_all_read = True
        return iter(self._source)

    def __len__(self) -> int:
        self._is_all_read = True
        return len(self._source)

    def keys(self) -> Any:
        self._is_all_read = True
        return self._source.keys()

    def values(self) -> Any:
        self._is_all_read = True
        return self._source.values()

    def items(self) -> Any:
        self._is_all_read = True
        return self._source.items()

    def copy(self) -> dict[str, int]:
        self._is_all_read = True
        return self._source.copy()

    def read_entries(self) -> dict[str, int]:
        """The existing entries that were read; all of them if the order was read."""
        if self._is_all_read:
            return self._source.copy()
        return {key: self._source[key] for key in self._read_keys if key in self._source}


def track_reads(state: RuleState) -> RuleState:
    """A copy of the state that records what is read from it."""
    return RuleState(
        _ReadTrackingDict(state.call_counts),
        _ReadTrackingDict(state.item_rows),
        _ReadTrackingDict(state.open_calls),
        state.pending_rows,
    )


def tracked_reads(state: RuleState) -> RuleState:
    """The entries that were read; rows matter only at the end of a history."""
    found = [
        one.read_entries() if isinstance(one, _ReadTrackingDict) else one.copy()
        for one in (state.call_counts, state.item_rows, state.open_calls)
    ]
    return RuleState(found[0], found[1], found[2], {})


class Repair(Struct, frozen=True, gc=False, omit_defaults=True):
    """One change made by repair: the rule, the place in the source, the change."""

    code: str
    place: str
    done: str
    originals: tuple[str, ...] = ()  # references of the messages of which something was left out

    @property
    def row(self) -> int:
        """The row that the place names."""
        return int(self.place.partition("[")[2].partition("]")[0])

    def with_source_place(self, sources: Sequence[int | None]) -> Repair:
        """The repair with its row's place in the source.

        An inserted row has the place of the row before it.
        """
        history, _, rest = self.place.partition("[")
        number, _, inside = rest.partition("]")
        row = int(number)
        while row and sources[row] is None:
            row -= 1
        return replace(self, place=f"{history}[{sources[row] or 0}]{inside}")


class RepairedRow(Struct, frozen=True):
    """A message of the repaired history and the source message it comes from (None: inserted)."""

    message: JSON
    source: int | None


class StepRepair(Struct, frozen=True):
    """A step after repair; a row with the source's own object is unchanged."""

    rows: list[RepairedRow]
    repairs: list[Repair]


class EndRepair(Struct, frozen=True):
    """Repairs at the end of the history: changed rows, and messages inserted after a row."""

    changes: dict[int, JSON] = field(default_factory=dict[int, JSON])
    inserts: dict[int, list[JSON]] = field(default_factory=dict[int, list[JSON]])
    repairs: list[Repair] = field(default_factory=list[Repair])
    # Rows that every request changes in the same way as long as it changes the first; in order,
    # each built at first access.
    recurring_changes: Mapping[int, JSON] = field(default_factory=dict[int, JSON])

    def changed_rows(self) -> set[int]:
        """All rows that are changed."""
        return self.changes.keys() | self.recurring_changes.keys()

    def message(self, row: int) -> JSON:
        """The new message of a changed row."""
        return self.changes[row] if row in self.changes else self.recurring_changes[row]


# Fields of names and bookkeeping, which repair may renew.
_NAMING_FIELDS = frozenset(
    {
        "id",
        "call_id",
        "tool_call_id",
        "tool_use_id",
        "type",
        "role",
        "status",
        "signature",
        "encrypted_content",
        "thoughtSignature",
        "thought_signature",
        *BREAKPOINT_FIELDS,
    }
)


def shortened_messages(sources: Mapping[int, JSON], repaired: Sequence[JSON]) -> dict[int, str]:
    """The source messages of which a repair left something out, as JSON, by row.

    A message is whole if each line of its texts stands somewhere among the repaired ones.
    """
    kept = set(_text_lines(repaired))
    return {
        row: compact_json(with_string_content(strip_breakpoints(message)))
        for row, message in sources.items()
        if not kept.issuperset(_text_lines(message))
    }


def _text_lines(value: JSON) -> Iterator[str]:
    """Each line of all strings in a value, of those in strings of JSON too; and its numbers."""
    waiting: list[JSON] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            holder = cast(Object, one)
            waiting += [held for key, held in holder.items() if key not in _NAMING_FIELDS]
        elif isinstance(one, list | tuple):
            waiting += cast(list[JSON], one)
        elif isinstance(one, str):
            inner = decode_container(one)
            if inner is None:
                yield from filter(None, map(str.strip, one.splitlines()))
            else:
                waiting.append(inner)
        elif one is not None and not isinstance(one, bool):
            yield str(one)


def name_originals(repairs: Sequence[Repair], references: Mapping[int, str]) -> list[Repair]:
    """The repairs, each with the references of the messages of its row; the first has the rest."""
    rows = {one.row: at for at, one in reversed([*enumerate(repairs)])}
    found: dict[int, list[str]] = {}
    for row, reference in references.items():
        found.setdefault(rows.get(row, 0), []).append(reference)
    return [
        replace(one, originals=tuple(found[at])) if at in found else one
        for at, one in enumerate(repairs)
    ]


class Repairer(Protocol):
    """The smallest change that makes one provider accept a history.

    Generated ids and placeholder results depend only on the history before them, so the same
    history is repaired the same way every time.
    """

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The repaired step, or None if the provider would accept it unchanged."""
        ...

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """Repairs that only the end of the history needs; `count` is the number of rows."""
        ...

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """Repairs of the number and order of cache breakpoints."""
        ...


# other: a system message, or an item that is no message; it keeps its place.
Role = Literal["user", "model", "other"]


class OutputMessage(Struct):
    """One message of the output while it is built: unchanged, or made of blocks."""

    role: Role
    rows: list[int]  # the rows that it is made of
    is_source: bool = True  # one unchanged row
    blocks: list[JSON] = field(default_factory=list[JSON])
    fields: Object = field(default_factory=dict[str, JSON])  # beside the blocks
    ends_with_entry: bool = False  # ends with an entry of the record


class Renderer(Protocol):
    """Builder of plain messages in one wire format."""

    @property
    def requires_leading_thinking(self) -> bool:
        """Return whether a model message that holds reasoning must begin with it."""
        ...

    def role(self, message: JSON) -> Role:
        """The sender of a message."""
        ...

    def block(self, message: JSON, part: Part) -> JSON:
        """The block that holds a part; None if it is a field of the message."""
        ...

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """The fields of a message beside its blocks, calls and these parts."""
        ...

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of two messages that become one."""
        ...

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A block with this text."""
        ...

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """The text of a call or result, and its other values as JSON."""
        ...

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """A tool's image or file as blocks of a user message; empty if it cannot be one."""
        ...

    def is_model_turn_required(self, before: JSON) -> bool:
        """Return whether a model turn must stand between this message and a user message."""
        ...

    def build(self, turn: OutputMessage) -> JSON:
        """The message of a turn."""
        ...


def breakpoints_on(block: JSON) -> Object:
    """The cache breakpoints on a block or inside it; the last of a kind wins."""
    found: Object = {}
    for one in (*_inner_blocks(block), block):
        if isinstance(one, dict):
            holder = cast(Object, one)
            found |= {
                name: holder[name] for name in BREAKPOINT_FIELDS if holder.get(name) is not None
            }
    return found


def _inner_blocks(block: JSON) -> list[JSON]:
    held: list[JSON] = []
    for name in ("content", "output"):
        items = get(block, (name,))
        held += cast(list[JSON], items) if isinstance(items, list) else []
    return held


def without_breakpoints(block: JSON) -> JSON:
    """A block without its cache breakpoints, which stay with the text."""
    if not isinstance(block, dict):
        return block
    return {key: one for key, one in cast(Object, block).items() if key not in BREAKPOINT_FIELDS}


# prefix: all that precedes the block; block: its own content; nothing: no signature.
SignedScope = Literal["prefix", "block", "nothing"]
# all: of any unit; turns: only of completed turns; none: of none.
DroppableScope = Literal["all", "turns", "none"]


class Binding(Struct, frozen=True, gc=False):
    """The scope a model signs its reasoning for, and the reasoning that may be removed."""

    signed_scope: SignedScope
    droppable: DroppableScope
    oldest_first: bool = False  # none may be removed before an older one
    is_dropped_by_api: bool = False  # the API removes what a change made invalid

    @property
    def is_bound(self) -> bool:
        """A change of what was sent must also remove the reasoning behind it."""
        return self.is_prefix_signed and not self.is_dropped_by_api

    @property
    def is_prefix_signed(self) -> bool:
        """The model loses the reasoning behind a change; who removes it does not matter."""
        return self.signed_scope == "prefix"


class BindingRule(Struct, frozen=True, gc=False):
    """The binding of the models of one maker from one version on."""

    maker: str  # ANY_MAKER, or "" for a name that shows none
    families: tuple[str, ...]  # empty: all
    since: Version
    binding: Binding


ANY_MAKER = "*"
LARGE_CLAUDES, OTHER_CLAUDES = ("fable", "mythos"), ("opus", "sonnet", "haiku")
# Claude on the wire of somebody else: a router, which may require more than Anthropic.
ROUTED_CLAUDE_RULES: tuple[BindingRule, ...] = (
    BindingRule("anthropic", LARGE_CLAUDES, (5, 1), Binding("prefix", "turns", oldest_first=True)),
    BindingRule("anthropic", OTHER_CLAUDES, (5, 5), Binding("prefix", "turns", oldest_first=True)),
)


class MediaLimits(Struct, frozen=True, kw_only=True):
    """Limits of a request beside tokens; None: not known."""

    bytes: int | None = None  # of the whole body
    images: int | None = None
    side: int | None = None  # pixels of an image's longer side
    many: int | None = None  # a request with more images than this
    side_of_many: int | None = None  # may have none with a longer side than this


def _no_problems(_: int) -> list[Problem]:
    return []


def _no_media_limits(_: Fields | None) -> MediaLimits:
    return MediaLimits()


def _same_binding(binding: Binding, _: Fields) -> Binding:
    return binding


class Provider(Struct, frozen=True, kw_only=True):
    """All that respool knows of one provider's wire format."""

    format: WireFormat
    codec: Codec
    rules: ProviderRules
    repairer: Repairer
    renderer: Callable[[bool], Renderer]  # takes whether the history has cache breakpoints
    checks_server_held: bool = False  # the rules apply to requests whose history it holds, too
    check_size: Callable[[int], list[Problem]] = _no_problems  # by the bytes of a body
    media_limits: Callable[[Fields | None], MediaLimits] = _no_media_limits
    binding_rules: tuple[BindingRule, ...] = ROUTED_CLAUDE_RULES  # the first match counts
    adjust_binding: Callable[[Binding, Fields], Binding] = _same_binding
    breakpoint_controls: tuple[Mapping[str, str], ...] = ()  # values of a cache breakpoint
    definition_fields: tuple[str, ...] = ("tools",)  # the fields that offer tools
    definition_holder: str = ""  # a field whose own fields may offer them too

    @property
    def name(self) -> FormatName:
        """The name of the wire format."""
        return self.format.name


# --- placeholders of repairs -------------------------------------------------------------------


NO_RESULT_TEXT = "[no result was recorded for this call]"
EARLIER_TEXT = "[earlier conversation not shown]"
BLANK_TEXT = "[blank]"
CONTINUE_TEXT = "[continue]"  # the text of a user turn that must exist


def unpaired_result_text(id: str, text: str) -> str:
    """The text for a result without a call, worded as history and not as an instruction."""
    head = f"[tool result that answers no call at this point, id {id or 'unknown'}]"
    return f"{head}\n{text}" if text.strip() else head


def misplaced_call_text(name: str, arguments: str) -> str:
    """The text for a call not made by the model, worded as history and not as an instruction."""
    return f"[tool call that is not the assistant's: {name} {arguments}]"


def repeat_id(id: str, times: int) -> str:
    """A deterministic new id for a repeated call id."""
    return f"{id}_{times + 1}"


def arguments_object(value: JSON) -> Object:
    """Arguments of any type as an object; JSON text is decoded."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            parsed = None
        if isinstance(parsed, dict):
            return cast(Object, parsed)
    return {"input": value}
