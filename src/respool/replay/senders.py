"""What a policy sends for each request of a session, and the fixed policies that people use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from ..codecs.json_tree import JSON
from ..transcript import Part
from .reading import with_mark
from .recording import Recording
from .result import ReadAgain


class InForce(Struct, frozen=True, gc=False):
    """One edit that stands in a request: what it did, where, and the tokens it saved."""

    reason: str
    tool: str
    saved: int


class Sender(Protocol):
    """A policy at work on one session, asked request by request, in order."""

    def send(self, request: int) -> Sequence[JSON]:
        """The messages that go out; one that is as it was before is the same object."""
        ...

    def change_reason(self, row: int) -> str:
        """The reason for which a row of the last request is not the client's own."""
        ...

    def active_edits(self) -> Iterator[InForce]:
        """The edits in the last request."""
        ...

    def failures(self) -> Sequence[str]:
        """What went wrong in the policy itself."""
        ...

    def refetch_counts(self) -> ReadAgain | None:
        """What was asked for again, after a cut or while it stood; None: nobody looked."""
        ...


Policy = Callable[[Recording], Sender]  # named where policies are listed


class AsSent:
    """No compaction: what the client sent."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def send(self, request: int) -> Sequence[JSON]:
        """The messages as they were."""
        return self._recording.request(request)

    def change_reason(self, row: int) -> str:
        """The client's own doing."""
        return "the client"

    def active_edits(self) -> Iterator[InForce]:
        """Nothing."""
        return iter(())

    def failures(self) -> Sequence[str]:
        """Nothing can fail."""
        return ()

    def refetch_counts(self) -> ReadAgain | None:
        """Nobody looks."""
        return None


class Place(Struct, frozen=True, gc=False):
    """A result in the history."""

    row: int
    block: int
    part: Part


class Replaced(ABC):
    """Results of the history with other texts in their place; the rest is as it was sent.

    Shared by all policies that decide per result: `due` tells how many of the results, from the
    first on, are replaced in a request, and `text` what by (None: it stays).
    """

    reason = ""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.results = list(_results(recording))
        self._messages = list(recording.session.messages)
        self._replaced_count = 0
        self._active: dict[int, InForce] = {}
        self._names = {
            block.call_id: block.name
            for row in recording.rows
            for block in row.blocks
            if block.kind == "call"
        }

    @abstractmethod
    def due_count(self, request: int) -> int:
        """How many results are replaced by now; never fewer than before."""

    @abstractmethod
    def replacement(self, result: int) -> str | None:
        """What stands in place of a result; None: itself."""

    def send(self, request: int) -> Sequence[JSON]:
        """The messages with the results that are due replaced."""
        due = self.due_count(request)
        for result in range(self._replaced_count, due):
            self._replace(result)
        self._replaced_count = max(self._replaced_count, due)
        cut = self.recording.cuts[request]
        last = self._messages[cut - 1]
        if last is self.recording.session.messages[cut - 1]:
            return [*self._messages[: cut - 1], self.recording.last_messages[request]]
        lifetime = self.recording.conditions.lifetime
        if self.recording.session.format == "anthropic" and lifetime:
            last = with_mark(last, lifetime)
        return [*self._messages[: cut - 1], last]

    def _replace(self, result: int) -> None:
        place, text = self.results[result], self.replacement(result)
        if text is None:
            return
        recording = self.recording
        message = self._messages[place.row]
        changed = recording.codec.replace(message, place.part, text)
        before, after = recording.row(message), recording.row(changed)
        self._messages[place.row] = changed
        tool = self._names.get(before.blocks[place.block].call_id, "")
        self._active[result] = InForce(self.reason, tool, before.tokens - after.tokens)

    def change_reason(self, row: int) -> str:
        """The policy's one reason."""
        return self.reason

    def active_edits(self) -> Iterator[InForce]:
        """All that was replaced."""
        return iter(self._active.values())

    def failures(self) -> Sequence[str]:
        """Nothing can fail."""
        return ()

    def refetch_counts(self) -> ReadAgain | None:
        """Nobody looks."""
        return None


def _results(recording: Recording) -> Iterator[Place]:
    for at, row in enumerate(recording.rows):
        if not any(block.kind == "result" for block in row.blocks):
            continue
        parts = recording.codec.decode(at, row.message)
        found = [part for part in parts if part.kind == "result" and not part.server]
        numbers = [n for n, block in enumerate(row.blocks) if block.kind == "result"]
        yield from (Place(at, n, part) for n, part in zip(numbers, found, strict=False))


def results_before(sender: Replaced, cut: int) -> int:
    """How many of a session's results stand before a row."""
    low, high = 0, len(sender.results)
    while low < high:
        middle = (low + high) // 2
        if sender.results[middle].row < cut:
            low = middle + 1
        else:
            high = middle
    return low


class Masked(Replaced):
    """Observation masking: all results but the last few are a placeholder."""

    reason = "masked"

    def __init__(self, recording: Recording, window: int) -> None:
        super().__init__(recording)
        self._window = window

    def due_count(self, request: int) -> int:
        """All but the last few."""
        return results_before(self, self.recording.cuts[request]) - self._window

    def replacement(self, result: int) -> str | None:
        """The placeholder of the method's authors."""
        return "Previous output omitted."


class Cleared(Replaced):
    """Context editing: above a threshold all results but the last few are cleared."""

    reason = "cleared"

    def __init__(self, recording: Recording, trigger: int, keep: int) -> None:
        super().__init__(recording)
        self._trigger, self._keep = trigger, keep
        self._sums = [0]
        for row in recording.rows:
            self._sums.append(self._sums[-1] + row.tokens)

    def due_count(self, request: int) -> int:
        """Nothing below the threshold, all but the last few above it."""
        cut = self.recording.cuts[request]
        if self._sums[cut] <= self._trigger:
            return 0
        return results_before(self, cut) - self._keep

    def replacement(self, result: int) -> str | None:
        """The placeholder of the method's authors."""
        return "[cleared]"
