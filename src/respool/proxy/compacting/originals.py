"""Requests that go up as they came, and what that leaves behind for those after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...engine import edits_in_force, restore_original
from ...facts import Facts
from ...pricing import terms_for
from .conversations import Conversation
from .decision import Decision
from .preceding import Preceding
from .reading import Read, parent_of

_FEWEST_BYTES: Final = 2  # a token has in any history: what fits a window by these does fit


class Originals:
    """Decides what goes up where no projection may; safe to share by threads."""

    def __init__(
        self,
        preceding: Preceding,
        note: Callable[[Conversation, Facts], None],
        *,
        shared: bool,
    ) -> None:
        self._preceding = preceding
        self._note = note
        self._shared = shared  # other processes decide on the same conversations

    def decide(self, read: Read, why: str, *, unsigned: bool = False) -> Decision:
        """The request as it came; on models that bind it, without reasoning that does not fit.

        Where it is to be unsigned, without any.
        """
        body, known, edits = None, read.conversation, ()
        facts, boundaries = known.facts, read.boundaries()
        last = self._preceding.last(read, boundaries)
        before = self._preceding.before(read, boundaries)
        # Another process may have sent edits just now, whose record is not written yet.
        doubted = known.edited or self._shared or last.is_lost or unsigned
        if doubted and read.is_bound():
            sent = Facts(left_alone=self._signed_until(read, facts, unsigned))
            fallen = restore_original(
                read.asked.body, format=read.format, sent=sent, model=read.asked.model
            )
            changed = fallen.compaction.request
            body = None if changed is read.asked.body else changed
            edits = edits_in_force(fallen.folded.state)
        about = int(len(read.asked.body if body is None else body) / known.bytes_a_token)
        return Decision(
            kind="original",
            body=body,
            conversation=known.id,
            session=read.session(),
            why=why,
            facts=facts,
            prefix=read.here(),
            before=about,
            after=about,
            model=read.model,
            terms=read.terms(),
            last=before,
            epochs=before.epochs,
            parent=parent_of(boundaries),
            edits=edits,
        )

    def note(self, read: Read) -> None:
        """This boundary is passed over; what is signed behind it is signed for the original."""
        if not read.asked.counting:
            here = frozenset({read.here()})
            new = Facts(skipped=here, changed=here if read.is_bound() else frozenset())
            self._note(read.conversation, new)

    def _signed_until(self, read: Read, facts: Facts, unsigned: bool) -> frozenset[str]:
        """The histories up to which reasoning was signed for projections, or may have been."""
        here, known = frozenset({read.here()}), read.conversation
        if unsigned or not read.is_left_alone(facts):
            return here
        passed = [prefix.hex() for prefix in read.boundaries()]
        since = max(at for at, prefix in enumerate(passed) if prefix in facts.left_alone)
        if not any(known.was_answered(prefix) for prefix in passed[since:-1]):
            return facts.left_alone
        # This branch had gone on from a projection before another one was refused.
        if not read.asked.counting:
            self._note(known, Facts(left_alone=here))
        return facts.left_alone | here


def surely_fits(read: Read) -> bool:
    """Whether the request as it came surely fits its window."""
    listed = terms_for(read.format, read.model).window
    windows = [tokens for _, tokens in read.conversation.facts.windows]
    if listed is not None:
        windows.append(listed)
    return not windows or len(read.asked.body) <= _FEWEST_BYTES * min(windows)
