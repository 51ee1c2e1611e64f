"""What goes up in place of a request: its projection, or what must do where that cannot be had.

All of it runs off the event loop. Originals are durable before the first projection without them
is given away; where they cannot be made so, no new edit is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Event
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...compaction.memo import Memo
from ...compaction.state import State
from ...edits import DropExchange, DropReasoning, Edit, touched_parts
from ...engine import (
    Fallback,
    FoldedRequest,
    all_repairs,
    apply_known_edits,
    collect_originals,
    edits_in_force,
    fold_request,
    project_request,
)
from ...errors import RespoolError
from ...facts import Facts
from ...markers import reference
from ...policy import Policy
from ...providers.base import Repair
from ...store import ParentRequest, Store
from ...wire.base import FormatName
from ...wire.body import read_body
from ...wire.detect import detect_format
from ..answers.usage import Told
from .board import Board
from .conversations import Conversation, Conversations, told_as
from .decision import BYPASSED, LEFT_ALONE, Decision, alters, shown_instead
from .journal import Journal
from .keeping import NO_FACTS, Keeping
from .noticing import noticed
from .originals import Originals, surely_fits
from .owners import opening_of
from .preceding import Preceding, is_at_hand
from .reading import Asked, Read, parent_of, taken_apart
from .telling import (
    asks_otherwise,
    comes_back,
    first_marks,
    has_reasoning,
    is_cached_behind,
    is_cold,
    marks_seen,
    own_cache,
    window_seen,
)


class _Seen(Struct, frozen=True):
    """What holds for a request, and what of that it is the first to show."""

    facts: Facts
    new: Facts = NO_FACTS
    moment: str = ""


class Deciding:
    """Decides on requests one after another, for many conversations; safe to share by threads."""

    def __init__(
        self,
        policy: Policy,
        store: Store,
        *,
        observe: bool = False,
        shared: bool = False,
        board: Board | None = None,
        journal: Journal | None = None,
        texts: Collection[FormatName] = (),
    ) -> None:
        self.policy = policy
        told = policy.replace(rendering="text")
        self._policies = dict.fromkeys(texts, told)  # of upstreams that refuse calls
        self._keeping = Keeping(store, board=board, journal=journal)
        self._observe = observe
        self._shared = shared  # other processes decide on the same conversations
        self._memo = Memo()
        self._conversations = Conversations()
        self._preceding = Preceding(self._keeping, shared=shared)
        self._originals = Originals(self._preceding, self._note, shared=shared)

    def decide(self, asked: Asked, late: Event | None = None) -> Decision:
        """The projection of a request; raises what cannot be read.

        Once `late` is set, something else went up: then it only fills what is remembered.
        """
        read = self._read(asked)
        known = read.conversation
        if read.is_left_alone(known.facts):
            return self._originals.decide(read, LEFT_ALONE)
        folded, seen = self._folded(read)
        if _is_settled(folded, seen):
            return self._fallen_back(read, "sent as it came before")
        made = project_request(folded, asked.body)
        if not self._observe:
            try:
                edits, edition = edits_in_force(folded.state), folded.state.rendered.edition
                originals = collect_originals(folded)
                self._keeping.keep(known, originals, edition, lambda: shown_instead(edits))
            except RespoolError as error:
                if late is not None and late.is_set():
                    raise  # what did go up has left its facts already
                here = Facts(skipped=frozenset({folded.state.prefix.hex()}))
                why = f"not kept: {error}"
                held = self._known(read, seen.facts, why, here, late)
                return held or self._fallen_back(read, why)
        if not asked.counting and not (late is not None and late.is_set()):
            if not self._goes_first(read, folded, seen.facts, late):
                return self.decide(asked, late)
            self._note(known, seen.new)
        return self._projection(read, folded, made.request, all_repairs(folded, made), seen)

    def decide_at_once(self, asked: Asked) -> Decision | None:
        """The projection, where that takes no look at the store; None: it would."""
        if self._shared:
            return None
        read = self._read_known(asked)
        if read is None or not read.conversation.read_up or read.conversation.owed != NO_FACTS:
            return None
        if read.conversation.facts.left_alone:
            return None
        if asked.counting and not is_at_hand(read.conversation, read.boundaries()):
            return None
        folded, seen = self._folded(read, at_once=True)
        if not read.found:
            return None
        made = project_request(folded, asked.body)
        sure = self._observe or self._is_sure(read, folded, collect_originals(folded))
        if seen.new != NO_FACTS or not sure or _is_settled(folded, seen):
            return None
        if not asked.counting and not self._goes_first(read, folded, seen.facts, None):
            return None
        return self._projection(read, folded, made.request, all_repairs(folded, made), seen)

    def decide_without_new_edits(
        self, asked: Asked, why: str, *, must_fit: bool = False, late: Event | None = None
    ) -> Decision | None:
        """What goes up where there is no time, or no trust, for new edits.

        None, where it must fit: that would be the original, and perhaps is too long. `late` is
        that of the decision in whose place it goes.
        """
        read = self._read(asked)
        facts = read.conversation.facts
        if read.is_left_alone(facts):
            return self._originals.decide(read, LEFT_ALONE)
        known = self._known(read, facts, why, NO_FACTS, late)
        if known is None and must_fit and not surely_fits(read):
            return None
        return known or self._fallen_back(read, why)

    def decide_as_it_came(self, asked: Asked, why: str) -> Decision:
        """The request itself, without reasoning that was signed for projections of it."""
        read = self._read(asked)
        if why == BYPASSED and not read.is_left_alone(read.conversation.facts):
            self._originals.note(read)
        return self._originals.decide(read, why)

    def decide_without_reasoning(self, asked: Asked, why: str) -> Decision:
        """The request itself without all that is signed: the provider says that it does not fit."""
        read = self._read(asked)
        self._originals.note(read)
        return self._originals.decide(read, why, unsigned=True)

    def sent(self, asked: Asked, decision: Decision) -> None:
        """The provider took this: the next request of the conversation is decided accordingly."""
        known = self._conversations.get(decision.conversation)
        if known is None or asked.counting:
            return
        # What is only observed counts as sent: so it shows what would be saved if it were.
        known.edited |= alters(decision.edits) and not self._observe
        latest = ParentRequest(
            asked.time,
            decision.terms,
            "original" if decision.kind == "original" else "projection",
            decision.before,
            decision.epochs,
            decision.output,
        )
        if decision.prefix:
            self._keeping.took(known, decision.prefix, latest, decision.parent)

    def heard(self, decision: Decision, told: Told) -> None:
        """What the provider charged for this may show a cache of which the client knows nothing."""
        known = self._conversations.get(decision.conversation)
        if known is not None and is_cached_behind(decision, told.usage):
            known.cached_behind = True

    def untold(self, decision: Decision) -> tuple[Edit, ...]:
        """The edits of a decision that none before it had."""
        known = self._conversations.get(decision.conversation)
        if known is None:
            return decision.edits
        new = known.untold(decision.edits, decision.edition)
        known.note_told(map(told_as, new))
        known.told_edition = decision.edition
        return new

    def owed(self, decision: Decision) -> Facts:
        """What a decision rests on and the store could not be told yet.

        Whoever finds a request written down takes all its facts to be: they are written with it.
        """
        id = decision.conversation
        known = self._conversations.get(id) or self._keeping.owing(id)
        return NO_FACTS if known is None else known.owed

    def leave_alone(self, decision: Decision, owner: str) -> Callable[[], None]:
        """From this original on, no request of its conversation is compacted.

        That holds at once; what is returned tells the store, and may take its time.
        """
        known = self._conversations.add(Conversation(decision.conversation, owner))
        here = Facts(left_alone=frozenset({decision.prefix}))
        if self._observe:
            self._keeping.learn(known, here)
        else:
            self._keeping.hold(known, here)
        return lambda: self._keeping.settle(known)

    def fits(self, asked: Asked, tokens: int, *, beside_output: bool) -> None:
        """No more than so many tokens fit, as the provider has just said; or beside the output."""
        read = self._read(asked)
        new = window_seen(read, tokens, beside_output=beside_output, bound=read.is_bound())
        self._note(read.conversation, new)

    def close(self) -> None:
        """Leave nothing untold that the store can still be told."""
        self._keeping.close()

    def _read(self, asked: Asked) -> Read:
        body = read_body(asked.body, self._memo.bodies)
        format = detect_format(body, asked.format)
        id = opening_of(body, format, asked.owner)
        known = self._conversations.get(id)
        if known is None:  # it is new, or there were many others since
            known = self._keeping.owing(id) or Conversation(id, asked.owner)
            known = self._conversations.add(known)
        self._keeping.read_up(known)  # another server with the same store may have been asked
        read = taken_apart(asked, body, format, known)
        if not known.facts.marks:
            self._keeping.learn(known, first_marks(read), owed=not self._observe)
        return read

    def _read_known(self, asked: Asked) -> Read | None:
        """The same, if this process knows the conversation."""
        body = read_body(asked.body, self._memo.bodies)
        format = detect_format(body, asked.format)
        known = self._conversations.get(opening_of(body, format, asked.owner))
        return None if known is None else taken_apart(asked, body, format, known)

    def _folded(self, read: Read, *, at_once: bool = False) -> tuple[FoldedRequest, _Seen]:
        """The request folded; where its reasoning was signed for something else, without that."""
        facts = read.conversation.facts
        folded = self._fold(read, facts)
        boundaries = folded.state.prefix.boundaries
        if at_once and not is_at_hand(read.conversation, boundaries):
            return folded, _Seen(facts)
        seen = self._seen_now(read, folded)
        if seen.new != NO_FACTS:
            folded = self._fold(read, seen.facts)
        if not self._contradicts(read, folded, seen.facts):
            return folded, seen
        new = Facts(changed=frozenset({folded.state.prefix.hex()}))
        seen = _Seen(seen.facts.merge(new), seen.new.merge(new), "changed")
        return self._fold(read, seen.facts), seen

    def _seen_now(self, read: Read, folded: FoldedRequest) -> _Seen:
        """What this request shows that no later one can: a free moment, how the client marks."""
        known, here = read.conversation, frozenset({folded.state.prefix.hex()})
        moment = self._moment(read, folded)
        new = marks_seen(read, folded.state)
        if moment:
            new = new.merge(Facts(cold=here) if moment == "cold" else Facts(changed=here))
        return _Seen(known.facts if new == NO_FACTS else known.facts.merge(new), new, moment)

    def _moment(self, read: Read, folded: FoldedRequest) -> str:
        """Whether the provider's cache has gone cold, or is another model's; a retry tells none."""
        last = self._preceding.last(read, folded.state.prefix.boundaries)
        if read.asked.counting or not last.exact:
            return ""
        moment = (
            "cold"
            if is_cold(read, last.latest.time, folded.state.evaluation.breakpoint_mode)
            else ""
        )
        if last.latest.terms and last.latest.terms != read.terms():
            moment = "changed"
            if not folded.context.binding.is_bound and comes_back(
                read, folded.state.prefix.boundaries
            ):
                moment = ""  # where it is bound, what another thought goes, and all behind it
        if asks_otherwise(folded, last.latest.output):
            moment = "changed"
        return "" if read.conversation.was_answered(folded.state.prefix.hex()) else moment

    def _is_sure(self, read: Read, folded: FoldedRequest, originals: Mapping[str, str]) -> bool:
        """Whether there is nothing to keep, without a look at the store."""
        edits_in_force(folded.state)  # numbers them
        edition = folded.state.rendered.edition
        return self._keeping.is_sure(read.conversation, originals, edition)

    def _fold(self, read: Read, facts: Facts) -> FoldedRequest:
        policy, output = self.policy_for(read.format), self._output(read)
        return fold_request(
            read.body,
            format=read.format,
            policy=policy,
            facts=facts,
            memo=self._memo,
            model=read.asked.model,
            output=output,
        )

    def _output(self, read: Read) -> int:
        """For how much output who only counts is answered: as much as the request before it.

        Near a window all is decided by that, and what is counted must be what would be sent.
        """
        if not read.asked.counting:
            return 0
        return self._preceding.before(read, read.boundaries()).output

    def _contradicts(self, read: Read, folded: FoldedRequest, facts: Facts) -> bool:
        """Whether a projection says something else than what its reasoning was signed for.

        An original went up last, or what did is not known; both leave a boundary that is skipped
        and changed. Where the reasoning was dropped since, one that is only changed.
        """
        state = folded.state
        if (
            not folded.context.binding.is_bound
            or state.prefix.hex() in facts.changed - facts.skipped
        ):
            return False
        if not has_reasoning(folded):
            return False
        last, altered = (
            self._preceding.last(read, state.prefix.boundaries),
            alters(edits_in_force(state)),
        )
        passed = (prefix.hex() for prefix in reversed(state.prefix.boundaries))
        reset = next((prefix for prefix in passed if prefix in facts.changed), "")
        if reset in facts.skipped:  # an original, which may have lost its reasoning
            return altered or read.conversation.edited or self._shared
        if not last.exact and last.latest.time and self._shared:
            return False  # another process sent it just now; of an original there would be facts
        return altered and (not last.exact or last.latest.sent_as != "projection")

    def _projection(
        self,
        read: Read,
        folded: FoldedRequest,
        request: bytes,
        repairs: tuple[Repair, ...],
        seen: _Seen,
    ) -> Decision:
        state = folded.state
        before = folded.context.head + state.tokens.estimated_total
        read.conversation.bytes_a_token = len(read.asked.body) / max(1, before)
        return Decision(
            kind="projection",
            body=None if request is read.asked.body else request,
            conversation=read.conversation.id,
            session=read.session(),
            prefix=state.prefix.hex(),
            facts=seen.facts,
            model=read.model,
            before=before,
            after=before - state.edits.saved,
            own=own_cache(read, folded),
            epochs=state.evaluation.epochs,
            moment=seen.moment,
            marks=state.evaluation.breakpoint_mode,
            last=self._preceding.before(read, state.prefix.boundaries),
            parent=parent_of(state.prefix.boundaries),
            edits=edits_in_force(state),
            edition=state.rendered.edition,
            repairs=repairs,
            failures=state.evaluation.failures,
            terms=read.terms(),
            output=folded.context.output_tokens,
            noticed=noticed(state),
            dropped=self._dropped(read, state),
        )

    def _dropped(self, read: Read, state: State) -> dict[str, str]:
        """Where a new edit puts nothing in place of what it takes out: what that was."""
        parts = state.transcript.parts
        found: dict[str, str] = {}
        edits = edits_in_force(state)
        for edit in read.conversation.untold(edits, state.rendered.edition):
            if isinstance(edit, DropExchange | DropReasoning):
                texts = [parts[part].text for part in touched_parts(edit, state.transcript)]
                found[str(edit.ref)] = reference(max(texts, key=len, default=""))
        return found

    def _known(
        self, read: Read, facts: Facts, why: str, new: Facts, late: Event | None
    ) -> Decision | None:
        """The edits in force, if they are known and go with what went up before."""
        asked, known = read.asked, read.conversation
        held = facts if new == NO_FACTS else facts.merge(new)
        found = apply_known_edits(
            asked.body,
            format=read.format,
            policy=self.policy_for(read.format),
            facts=held,
            memo=self._memo,
            model=asked.model,
            output=self._output(read),
        )
        if found is None or not self._goes_on(read, found, held):
            return None
        new = new.merge(found.facts)
        self._note(known, NO_FACTS if asked.counting else new)
        seen = _Seen(facts.merge(new), new)
        if not asked.counting and not self._goes_alone(read, found.folded, seen, late):
            self._originals.note(read)
            return None
        done = found.compaction
        made = self._projection(read, found.folded, done.request, done.report.repairs, seen)
        return replace(made, kind="known edits", why=why)

    def _goes_first(
        self, read: Read, folded: FoldedRequest, facts: Facts, request: Event | None
    ) -> bool:
        """Let all know what goes up; False: what goes up beside it passes this history over.

        Where reasoning is bound, whoever goes on from either could not know for which it is signed.
        Each is told before the other is looked for: so one of two sees the other.
        """
        known, here = read.conversation, folded.state.prefix.hex()
        if self._observe or not folded.context.binding.is_bound or here in facts.skipped:
            return True
        self._keeping.goes_up(known, here, request)
        if self._shared:
            self._keeping.read_up(known)
        return here not in known.facts.skipped

    def _goes_alone(
        self, read: Read, folded: FoldedRequest, seen: _Seen, request: Event | None
    ) -> bool:
        """Whether nothing goes up beside this with what it passes over, or the other way round."""
        known, passed_over = read.conversation, seen.new.skipped
        if not passed_over:
            return self._goes_first(read, folded, seen.facts, request)
        if self._observe or not folded.context.binding.is_bound:
            return True
        self._keeping.hear(known)
        return not any(known.is_going_up(prefix, request) for prefix in passed_over)

    def _fallen_back(self, read: Read, why: str) -> Decision:
        """The original, and the fact that it was."""
        self._originals.note(read)
        return self._originals.decide(read, why)

    def _goes_on(self, read: Read, found: Fallback[Any], facts: Facts) -> bool:
        """Whether known edits may go up: they lead back, and contradict nothing that is signed."""
        known, folded = read.conversation, found.folded
        if not self._observe and not self._keeping.has(known, found.compaction.originals):
            return False
        if not folded.context.binding.is_bound:
            return True
        if self._moment(read, folded) == "changed":
            return False  # known for this model and these tools; what is signed went to others
        skipped = found.facts.skipped
        if any(known.was_answered(prefix) for prefix in skipped):
            return False
        if self._shared and len(skipped) > 1:  # another process may have answered one of them
            return False
        return not self._contradicts(read, folded, facts.merge(found.facts))

    def policy_for(self, format: FormatName) -> Policy:
        """The policy for requests in this format."""
        return self._policies.get(format, self.policy)

    def _note(self, known: Conversation, new: Facts) -> None:
        if self._observe:
            self._keeping.learn(known, new)
        else:
            self._keeping.note(known, new)


def _is_settled(folded: FoldedRequest, seen: _Seen) -> bool:
    """Whether the original went up at this very boundary, and fitted: nothing can be changed."""
    here, facts = folded.state.prefix.hex(), seen.facts
    passed = here in facts.skipped & facts.changed and facts.window_at(here) is None
    return folded.context.binding.is_bound and passed
