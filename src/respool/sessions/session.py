"""A recorded session as the requests that were really sent."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..codecs.codec import FormatName
from ..codecs.json_tree import JSON

NO_REQUEST = "no answer of a model is recorded in it"  # why a file that is read gives no session


class Usage(Struct, frozen=True, gc=False):
    """The tokens that the provider reported for one request."""

    input: int = 0  # not read from the cache, and not written to it
    cache_read: int = 0
    cache_write: int = 0  # all that was written, whatever its lifetime
    cache_write_1h: int = 0  # of it, what was written for an hour
    output: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, however they were billed."""
        return self.input + self.cache_read + self.cache_write


class Sent(Struct, frozen=True, gc=False):
    """One request: the history up to `cut`; what the model answered starts there."""

    cut: int
    time: float | None = None  # seconds since the epoch, as recorded
    usage: Usage | None = None
    model: str | None = None
    answer: str | None = None  # what names its answer in every file that tells it


class Session(Struct, frozen=True):
    """One conversation in its wire format, from its start or the agent's own compaction on."""

    id: str
    agent: str  # "claude-code", "codex", …
    format: FormatName
    messages: Sequence[JSON]
    requests: tuple[Sent, ...]
    source: str = ""  # the file it was read from
    segment: int = 0  # how many compactions of the agent's own came before
    parent: str | None = None  # the conversation that started this one, for a sub-agent
    notes: tuple[str, ...] = ()  # what of the record could not be used, for a person
    head: str = ""  # system prompt and tools, where they are recorded beside the messages


class Skipped(Struct, frozen=True, gc=False):
    """Something that could not be read, and why."""

    source: str
    reason: str
