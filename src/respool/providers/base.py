"""Provider: its codec, rules, repairer and renderer, and the values they exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

from msgspec import Struct, field

from ..model_names import Version
from ..transcript import Part
from ..wire.base import Fields, FormatName, WireFormat
from ..wire.json import JSON, Object, get
from ..wire.message_identity import BREAKPOINT_FIELDS

Severity = Literal["error", "warning"]


class Problem(Struct, frozen=True, gc=False):
    """A rule of the provider that the request breaks."""

    code: str  # the rule's code in docs/reference/problems.md, e.g. "A1"
    place: str  # where, e.g. "messages[3].content[0]"
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
    repair: str = ""  # empty for warnings, which are never repaired


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
        """What follows them: results, user and system messages."""
        return self.messages[self.model_count :]


class RuleState(Struct):
    """What the steps so far leave behind for the rules that look back; each format uses its own."""

    call_counts: dict[str, int] = field(default_factory=dict[str, int])  # call id -> times seen
    item_rows: dict[str, int] = field(default_factory=dict[str, int])  # item id -> row
    open_calls: dict[str, int] = field(default_factory=dict[str, int])  # unanswered call id -> row
    pending_rows: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # to look at again: row -> place

    def copy(self) -> RuleState:
        """What was seen, free to grow apart."""
        return RuleState(
            self.call_counts.copy(),
            self.item_rows.copy(),
            self.open_calls.copy(),
            self.pending_rows.copy(),
        )


def count_call_id(id: str, state: RuleState) -> None:
    """Count a call id, and the id it is a repeat of, so that the next repeat is named at once."""
    state.call_counts[id] = state.call_counts.get(id, 0) + 1
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and base in state.call_counts:
        state.call_counts[base] += 1


class Codec(Protocol):
    """One wire format. Messages are decoded JSON and are never mutated: changes return new ones.

    Whatever a message holds (wrong types, missing fields, unknown blocks), reading it must not
    raise: what is not understood becomes an opaque part.
    """

    name: FormatName
    history_field: str  # the field that holds the history: "messages", "input" or "contents"
    head_fields: tuple[str, ...]  # the fields that read_head counts

    def is_model_made(self, message: JSON) -> bool:
        """Whether the model wrote this message or item."""
        ...

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one message, in order."""
        ...

    def decode_head(self, fields: Fields) -> list[Part]:
        """System prompt, instructions and tool definitions, as parts that are only counted."""
        ...

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """Whether the calls in this run of model output can only go together."""
        ...

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """Whether the reasoning among these must stay: something in them cannot be without it."""
        ...

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The message with `text` in place of what the part said; media in it and marks stay.

        For a call, `text` is its new arguments as a JSON object.
        """
        ...

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The message without these parts; None when nothing is left to send."""
        ...

    def unbind(self, message: JSON) -> JSON:
        """A model-made message whose unit lost its reasoning, without what ties it to it."""
        ...

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """What must stand in place of two messages that a removal made neighbours; None: both."""
        ...

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        """One message in place of a run of which `join` makes one; None: this wire has none."""
        ...

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The message with a cache mark on the block that holds this part."""
        ...


class ProviderRules(Protocol):
    """One provider's rules. `fields` is None for a bare list, which is not judged on them."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """What is wrong inside this step, given the steps before it; must not change `seen`."""
        ...

    def advance(self, step: Step, state: RuleState) -> None:
        """Note in `seen` what later steps have to know of this one."""
        ...

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """What is wrong only because the history ends here; looks at few messages."""
        ...

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """What is wrong with the other fields, or with counts over the whole request."""
        ...


def split_steps(codec: Codec, messages: Sequence[JSON], start: int = 0) -> Iterator[Step]:
    """The history in steps: each run of model-made messages with what follows it."""
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


class _ReadTrackingDict(dict[str, int]):
    """A dict that reads from another one and remembers which keys were asked for."""

    def __init__(self, source: dict[str, int]) -> None:
        super().__init__()
        self._source = source
        self._read_keys: set[str] = set()
        self._is_all_read = False  # whether it was gone through, in its order

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
        """The entries that were asked for and are there; all, in their order, where that counts."""
        if self._is_all_read:
            return self._source.copy()
        return {key: self._source[key] for key in self._read_keys if key in self._source}


def track_reads(state: RuleState) -> RuleState:
    """The same as `seen`, for reading once, remembering what is read."""
    return RuleState(
        _ReadTrackingDict(state.call_counts),
        _ReadTrackingDict(state.item_rows),
        _ReadTrackingDict(state.open_calls),
        state.pending_rows,
    )


def tracked_reads(state: RuleState) -> RuleState:
    """What was read of a watched value; rows serve only the end of a history."""
    found = [
        one.read_entries() if isinstance(one, _ReadTrackingDict) else one.copy()
        for one in (state.call_counts, state.item_rows, state.open_calls)
    ]
    return RuleState(found[0], found[1], found[2], {})


class Repair(Struct, frozen=True, gc=False):
    """One change that repair made: the rule it serves, the place in the source, what was done."""

    code: str
    place: str
    done: str

    def with_source_place(self, sources: Sequence[int | None]) -> Repair:
        """The repair of a row, with the place that this row has in the source.

        One that was put in has the place of the row before it.
        """
        history, _, rest = self.place.partition("[")
        number, _, inside = rest.partition("]")
        row = int(number)
        while row and sources[row] is None:
            row -= 1
        return Repair(self.code, f"{history}[{sources[row] or 0}]{inside}", self.done)


class RepairedRow(Struct, frozen=True):
    """A message of the repaired history and the source message it comes from (None: inserted)."""

    message: JSON
    source: int | None


class StepRepair(Struct, frozen=True):
    """A step after repair. A row whose message is the source's own object is untouched."""

    rows: list[RepairedRow]
    repairs: list[Repair]


class EndRepair(Struct, frozen=True):
    """What the end of the history needs: rows changed, and messages put behind a row."""

    changes: dict[int, JSON] = field(default_factory=dict[int, JSON])
    inserts: dict[int, list[JSON]] = field(default_factory=dict[int, list[JSON]])
    repairs: list[Repair] = field(default_factory=list[Repair])
    # Rows that every request changes in the same way, as long as it does the first of them; in
    # their order, each made when asked for.
    recurring_changes: Mapping[int, JSON] = field(default_factory=dict[int, JSON])

    def changed_rows(self) -> set[int]:
        """All rows that are changed."""
        return self.changes.keys() | self.recurring_changes.keys()

    def message(self, row: int) -> JSON:
        """A changed row as it goes out."""
        return self.changes[row] if row in self.changes else self.recurring_changes[row]


class Repairer(Protocol):
    """The smallest change that makes one provider accept a history.

    Whatever is made up (ids, stand-in results) depends only on the history before it, so the same
    history is mended the same way every time.
    """

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The mended step, or None when the provider would accept it as it is."""
        ...

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """What only the end of the history needs; `count` is the number of rows."""
        ...

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """What the number and order of cache marks need; `marked` are the rows that hold any."""
        ...


# other: a system message, or an item that is no message; it stands where it stood.
Role = Literal["user", "model", "other"]


class OutputMessage(Struct):
    """One message of the output on its way: as it came, or put together from blocks."""

    role: Role
    rows: list[int]  # the rows that it is made of
    is_source: bool = True  # one row as it came
    blocks: list[JSON] = field(default_factory=list[JSON])
    fields: Object = field(default_factory=dict[str, JSON])  # beside the blocks
    ends_with_entry: bool = False  # ends with an entry of the record


class Renderer(Protocol):
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

    def build(self, turn: OutputMessage) -> JSON:
        """The message of a turn."""
        ...


def breakpoints_on(block: JSON) -> Object:
    """The cache marks on a block or on what it holds; the last of a kind wins."""
    found: Object = {}
    for one in (*_inner_blocks(block), block):
        if isinstance(one, dict):
            holder = cast(Object, one)
            found |= {
                mark: holder[mark] for mark in BREAKPOINT_FIELDS if holder.get(mark) is not None
            }
    return found


def _inner_blocks(block: JSON) -> list[JSON]:
    held: list[JSON] = []
    for name in ("content", "output"):
        items = get(block, (name,))
        held += cast(list[JSON], items) if isinstance(items, list) else []
    return held


def without_breakpoints(block: JSON) -> JSON:
    """A block of a tool's result that moves into a message: its mark stays with the text."""
    if not isinstance(block, dict):
        return block
    return {key: one for key, one in cast(Object, block).items() if key not in BREAKPOINT_FIELDS}


# prefix: all that stands before the block; block: what it says itself; nothing: there is none.
SignedScope = Literal["prefix", "block", "nothing"]
# all: of any unit; turns: only of turns that are over; none: of none.
DroppableScope = Literal["all", "turns", "none"]


class Binding(Struct, frozen=True, gc=False):
    """The scope a model signs its reasoning for, and the reasoning that may be removed."""

    signed_scope: SignedScope
    droppable: DroppableScope
    oldest_first: bool = False  # none may go before an older one
    is_dropped_by_api: bool = False  # the API itself takes out what a change has made invalid

    @property
    def is_bound(self) -> bool:
        """A change of what was sent must also remove the reasoning behind it."""
        return self.is_prefix_signed and not self.is_dropped_by_api

    @property
    def is_prefix_signed(self) -> bool:
        """The model loses the reasoning behind a change, whoever removes it."""
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
