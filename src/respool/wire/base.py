"""Wire formats, the interface of a request body, and the pieces it is spliced from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import xxhash
from msgspec import Struct

from ..errors import UnreadableRequest
from .json import JSON

FormatName = str  # a key of FORMATS: "anthropic", "openai-chat", "openai-responses", "gemini"

Fields = Mapping[str, Any]  # the request beside its history: model, system, tools, …

HEAD_ROW = -1  # the row of parts that stand beside the history
PLAIN_TEXT_MESSAGE = "The input is plain text: there is no tool history in it."


ImageTokens = Callable[[int, int], int]  # by width and height in pixels


def _owns_nothing(_: Mapping[str, Any]) -> bool:
    return False


def _holds_nothing(_: Fields) -> str | None:
    return None


class WireFormat(Struct, frozen=True, kw_only=True):
    """Properties of one wire format that modules below the providers need."""

    name: FormatName
    history_field: str  # "messages", "input" or "contents"
    allows_text_history: bool = False  # the history may be one text instead of a list
    breakpoint_fields: tuple[str, ...] = ()  # fields of a block that set a cache breakpoint
    # The client's cache breakpoints decide what is cached, and one more may be added.
    has_client_breakpoints: bool = False
    has_object_arguments: bool = False  # the arguments of a call are an object, not JSON text
    has_model_in_url: bool = False  # a request body need not name its model

    # What a request without a known model name is taken for.
    maker: str = "other"  # the model's maker, as in pricing.Maker
    tokenizer: str = "openai"  # the model's tokenizer, as in tokens.TokenizerFamily

    image_tokens: ImageTokens | None = None  # None: as OpenAI counts them
    page_tokens: int | None = None  # tokens of a document's page; None: as OpenAI counts them

    # Detection. A history field of its own identifies a format; else these, or its messages.
    only_fields: tuple[str, ...] = ()  # fields that no other format has
    owns_message: Callable[[Mapping[str, Any]], bool] = _owns_nothing
    own_block_types: frozenset[str] = frozenset()
    has_system_message: bool = False  # a history may begin with a system message
    owns_tool: Callable[[Mapping[str, Any]], bool] = _owns_nothing
    own_fields: tuple[str, ...] = ()
    # The field by which a request refers to history that the provider holds.
    server_held_field: Callable[[Fields], str | None] = _holds_nothing


FORMATS: dict[FormatName, WireFormat] = {}  # filled by providers.registry; see known_formats
_UNKNOWN_FORMAT = WireFormat(name="", history_field="")


def known_formats() -> dict[FormatName, WireFormat]:
    """All wire formats by name, also where nothing has imported the providers yet."""
    if not FORMATS:
        from ..providers import registry  # lazily: providers know the wire, and fill the table

        assert registry.FORMATS is FORMATS
    return FORMATS


def wire_format(name: FormatName) -> WireFormat:
    """The wire format of this name; one with all defaults if it is not registered."""
    return known_formats().get(name, _UNKNOWN_FORMAT)


def history_fields() -> tuple[str, ...]:
    """The fields that may hold the history, in the order of the formats."""
    return tuple(dict.fromkeys(one.history_field for one in known_formats().values()))


def no_history_error() -> UnreadableRequest:
    """The error for a request without any of these fields."""
    fields = ", ".join(history_fields())
    return UnreadableRequest(f"This is no chat request: it has none of the fields {fields}.")


class SourceRun(Struct, frozen=True, gc=False):
    """A run of source messages that go out as they came."""

    start: int
    stop: int


class NewMessage(Struct, frozen=True, gc=False):
    """A new message, in the place of a source message or beside them."""

    source: int | None  # the source message it replaces; None: it is inserted
    message: JSON
    encoded: bytes | None = None  # its bytes, if they are known already


Piece = SourceRun | NewMessage


def chain_hashes(known: Sequence[bytes], identities: Iterable[Any], seed: int) -> list[bytes]:
    """Hashes of growing prefixes: the known ones, and one more for each message."""
    keys = list(known)
    key = keys[-1]
    for identity in identities:
        link = xxhash.xxh3_128(key, seed=seed)
        link.update(identity)
        key = link.digest()
        keys.append(key)
    return keys


def split_run(piece: Piece, single: set[int]) -> list[Piece]:
    """A run of kept messages, split so that each of these rows is a piece of its own."""
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
    """A parsed request: its fields, its messages, and how it is put together again."""

    @property
    def history_field(self) -> str | None:
        """The name of the history's field; None for a bare list."""
        ...

    @property
    def fields(self) -> Fields | None:
        """The request beside its history; None for a bare list."""
        ...

    @property
    def can_share(self) -> bool:
        """Return whether objects that went out may go out again: nobody changes them."""
        ...

    def __len__(self) -> int: ...

    def message(self, at: int) -> JSON:
        """One message, decoded."""
        ...

    def forget(self, start: int = 0, stop: int | None = None) -> None:
        """Let go of these decoded messages, or of all.

        Until it is encoded, an edited message shares branches with the decoded one: keep that.
        """
        ...

    def identity(self, at: int) -> Any:
        """Bytes that identify the message, independent of its cache breakpoints."""
        ...

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The identities of a run of messages, or of all."""
        ...

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history; `first` is the hash of the empty one."""
        ...

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that may carry cache breakpoints."""
        ...

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that identify these fields."""
        ...

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of a message that replaces this one, or is inserted; None for a body of objects."""
        ...

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The request with these messages, in the type it came in."""
        ...
