"""What a pass may look at: the transcript up to a boundary, and what is protected there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from msgspec import Struct

from ..edits import Edit
from ..tokens import Counter, part_tokens
from ..transcript import Exchange, Part, Transcript


class View(Struct, frozen=True):
    """A history as it stood at one evaluation."""

    transcript: Transcript
    tokens: list[int]  # of each part by the request's one counter; -1: not counted yet
    fresh_from: int  # what stands before was already looked at by the last evaluation
    unseen_from: int  # the model has not seen the parts from here on
    first_user: tuple[int, int]  # the parts of the first user message
    counter: Counter
    in_force: Mapping[int, Edit]  # edits already sent, by part

    def is_protected(self, position: int) -> bool:
        """Whether no pass may touch this part at this evaluation."""
        part = self.transcript.parts[position]
        first, end = self.first_user
        return (
            position >= self.unseen_from
            or part.speaker == "system"
            or part.server
            or first <= position < end
        )

    def may_rewrite(self, position: int) -> bool:
        """Whether a pass may change what this part says: not what must stay intact, or go."""
        return not self.is_protected(position) and not self.transcript.parts[position].signed

    def saved_by(self, position: int, text: str) -> int:
        """The tokens that a part saves when it says `text`."""
        part = self.transcript.parts[position]
        named = self.counter.count(part.name) if part.kind == "call" and part.name else 0
        return self.tokens_of(position) - part.weight - named - self.counter.count(text)

    def tokens_of(self, position: int) -> int:
        """The tokens of a part, counted when first asked for."""
        known = self.tokens[position]
        if known < 0:
            known = part_tokens(self.transcript.parts[position], self.counter)
            self.tokens[position] = known
        return known

    def fresh_results(self) -> tuple[int, ...]:
        """The results that the model has seen and no evaluation has looked at yet."""
        results = self.transcript.results
        first = bisect_left(results, self.fresh_from)
        return results[first : bisect_left(results, self.unseen_from)]

    def fresh_exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of those results."""
        ordinals = [self.transcript.exchange_of[at] for at in self.fresh_results()]
        return tuple(self.transcript.exchanges[one] for one in ordinals if one >= 0)

    def tool_of(self, position: int) -> str:
        """The name of the tool behind a call or a result."""
        part: Part = self.transcript.parts[position]
        call = self.transcript.call_of(position)
        return part.name or (call.name if call else "")
