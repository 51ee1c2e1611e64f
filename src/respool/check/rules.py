"""How a provider's rules are judged: unit by unit, so that one more turn costs one more turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct, field

from ..codecs.codec import Codec, Fields
from ..codecs.json_tree import JSON
from .problem import Problem


class Step(Struct, frozen=True):
    """One run of model-made messages and all that follows it up to the next run.

    Only the first step can lack a run, and only the last one can lack what follows it: its calls
    are then still pending, which is no problem.
    """

    messages: Sequence[JSON]
    at: int  # index of the first message
    split: int  # how many of the messages are the model's

    @property
    def model(self) -> Sequence[JSON]:
        """The model's messages."""
        return self.messages[: self.split]

    @property
    def answers(self) -> Sequence[JSON]:
        """What follows them: results, user and system messages."""
        return self.messages[self.split :]


class Seen(Struct):
    """What the steps so far leave behind for the rules that look back; each format uses its own."""

    calls: dict[str, int] = field(default_factory=dict[str, int])  # call id -> times seen
    items: dict[str, int] = field(default_factory=dict[str, int])  # item id -> row
    open: dict[str, int] = field(default_factory=dict[str, int])  # unanswered call id -> row
    rows: dict[int, int] = field(default_factory=dict[int, int])  # to look at again: row -> place

    def copy(self) -> Seen:
        """What was seen, free to grow apart."""
        return Seen(self.calls.copy(), self.items.copy(), self.open.copy(), self.rows.copy())


def note_id(id: str, seen: Seen) -> None:
    """Count a call id, and the id it is a repeat of, so that the next repeat is named at once."""
    seen.calls[id] = seen.calls.get(id, 0) + 1
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and base in seen.calls:
        seen.calls[base] += 1


class Rules(Protocol):
    """One provider's rules. `fields` is None for a bare list, which is not judged on them."""

    def step(self, step: Step, seen: Seen, fields: Fields | None) -> list[Problem]:
        """What is wrong inside this step, given the steps before it; must not change `seen`."""
        ...

    def advance(self, step: Step, seen: Seen) -> None:
        """Note in `seen` what later steps have to know of this one."""
        ...

    def end(
        self, seen: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """What is wrong only because the history ends here; looks at few messages."""
        ...

    def whole(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """What is wrong with the other fields, or with counts over the whole request."""
        ...


def steps_of(codec: Codec, messages: Sequence[JSON], start: int = 0) -> Iterator[Step]:
    """The history in steps: each run of model-made messages with what follows it."""
    made = [codec.model_made(message) for message in messages]
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
