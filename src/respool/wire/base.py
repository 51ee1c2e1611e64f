"""Wire format names, and the interfaces of a codec and of a request body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import xxhash
from msgspec import Struct

from ..transcript import Part
from .json import JSON

FormatName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "gemini")

CONTINUE_TEXT = "[continue]"  # what a user turn says that only has to be there

Fields = Mapping[str, Any]  # the request beside its history: model, system, tools, …


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


HISTORY_FIELDS = ("messages", "input", "contents")
NO_HISTORY_MESSAGE = "This is no chat request: it has none of the fields messages, input, contents."
PLAIN_TEXT_MESSAGE = "The input is plain text: there is no tool history in it."


class SourceRun(Struct, frozen=True, gc=False):
    """A run of source messages that go out as they came."""

    start: int
    stop: int


class NewMessage(Struct, frozen=True, gc=False):
    """A new message, in the place of a source message or beside them."""

    source: int | None  # the source message it replaces; None: it is put in
    message: JSON
    encoded: bytes | None = None  # its bytes, where they are already known


Piece = SourceRun | NewMessage


def chain_hashes(known: Sequence[bytes], identities: Iterable[Any], seed: int) -> list[bytes]:
    """Hashes of ever longer prefixes: those that are known, and one more for each message."""
    keys = list(known)
    key = keys[-1]
    for identity in identities:
        link = xxhash.xxh3_128(key, seed=seed)
        link.update(identity)
        key = link.digest()
        keys.append(key)
    return keys


def split_run(piece: Piece, single: set[int]) -> list[Piece]:
    """A run of kept messages with these ones on their own."""
    if not isinstance(piece, SourceRun):
        return [piece]
    within = sorted(one for one in single if piece.start <= one < piece.stop)
    if not within:
        return [piece]
    found: list[Piece] = []
    start = piece.start
    for at in within:
        if start < at:
            found.append(SourceRun(start, at))
        found.append(SourceRun(at, at + 1))
        start = at + 1
    if start < piece.stop:
        found.append(SourceRun(start, piece.stop))
    return found


class RequestBody(Protocol):
    """A request: its fields, its messages, and the way back."""

    @property
    def history_field(self) -> str | None:
        """Where the history stands; None for a bare list."""
        ...

    @property
    def fields(self) -> Fields | None:
        """The request beside its history; None for a bare list."""
        ...

    @property
    def can_share(self) -> bool:
        """Whether objects that went out may go out again, since nobody changes them."""
        ...

    def __len__(self) -> int: ...

    def message(self, at: int) -> JSON:
        """One message, decoded."""
        ...

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message whatever cache marks it carries."""
        ...

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        ...

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history; `first` is that of the empty one."""
        ...

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that may carry cache marks."""
        ...

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        ...

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of a message that replaces this one, or none; None where objects are wanted."""
        ...

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The request with these messages, in the type it came in."""
        ...
