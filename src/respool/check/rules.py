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
    model_count: int  # how many of the messages are the model's

    @property
    def model(self) -> Sequence[JSON]:
        """The model's messages."""
        return self.messages[: self.model_count]

    @property
    def answers(self) -> Sequence[JSON]:
        """What follows them: results, user and system messages."""
        return self.messages[self.model_count :]


class Seen(Struct):
    """What the steps so far leave behind for the rules that look back; each format uses its own."""

    call_counts: dict[str, int] = field(default_factory=dict[str, int])  # call id -> times seen
    item_rows: dict[str, int] = field(default_factory=dict[str, int])  # item id -> row
    open_calls: dict[str, int] = field(default_factory=dict[str, int])  # unanswered call id -> row
    pending_rows: dict[int, int] = field(default_factory=dict[int, int])  # to look at again: row -> place

    def copy(self) -> Seen:
        """What was seen, free to grow apart."""
        return Seen(self.call_counts.copy(), self.item_rows.copy(), self.open_calls.copy(), self.pending_rows.copy())


def note_id(id: str, state: Seen) -> None:
    """Count a call id, and the id it is a repeat of, so that the next repeat is named at once."""
    state.call_counts[id] = state.call_counts.get(id, 0) + 1
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and base in state.call_counts:
        state.call_counts[base] += 1


class Rules(Protocol):
    """One provider's rules. `fields` is None for a bare list, which is not judged on them."""

    def check_step(self, step: Step, state: Seen, fields: Fields | None) -> list[Problem]:
        """What is wrong inside this step, given the steps before it; must not change `seen`."""
        ...

    def advance(self, step: Step, state: Seen) -> None:
        """Note in `seen` what later steps have to know of this one."""
        ...

    def check_end(
        self, state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """What is wrong only because the history ends here; looks at few messages."""
        ...

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """What is wrong with the other fields, or with counts over the whole request."""
        ...


def steps_of(codec: Codec, messages: Sequence[JSON], start: int = 0) -> Iterator[Step]:
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
