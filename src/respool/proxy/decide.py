"""The decision on a request: its projection, the edits in force, or the original.

Decisions run outside the event loop. Originals are durable before the first projection without them
is returned; if they cannot be stored, no new edit is made.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Event
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..edits import DropExchange, DropReasoning, Edit, PlaceBreakpoint, Replace
from ..engine import FoldedRequest, FormatName, Refetch, Repair, Session
from ..errors import RespoolError
from ..facts import MAX_LOOKBACK_REQUESTS, Facts
from ..lru_map import LruMap
from ..markers import reference
from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore, RefetchedResult, SentRequest, StoreUnavailable
from .cache_state import (
    first_breakpoints,
    is_cached_by_gateway,
    is_cold,
    is_warm_on_these_terms,
    new_breakpoints,
    window_fact,
)
from .conversation import Conversation, Conversations, StoreGuard, Turn, conversation_id, edit_key
from .holdout import inherited_unit
from .lineage import ParentRequest, parent_prefix
from .middleware import NO_FACTS, Decision, Findings, ParsedRequest, RequestIdentity
from .provenance import Launch
from .team_policies import TeamPolicies

LEFT_ALONE: Final = "left alone"
BYPASSED: Final = "bypassed"
SIGNED: Final = "signed"
PAUSED: Final = "paused"
PINNED: Final = "pinned"
OVER_QUOTA: Final = "over quota"
OBSERVED: Final = "observed"
# Requests that somebody asked to keep.
AS_THEY_CAME: Final = frozenset({BYPASSED, PAUSED, PINNED, OVER_QUOTA})
SENT_BEFORE: Final = "sent unchanged before"
_MIN_BYTES_PER_TOKEN: Final = 2  # in any history: what fits a window by these surely fits
_MAX_NAME_CHARS: Final = 200  # of a tool or a target in a record
_MAX_DOUBLINGS: Final = 5  # of the failures after which an original is tried
_MAX_TEAM_SESSIONS: Final = 256
_MAX_OBSERVED: Final = 50  # of each kind, at one request
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class _Known(Struct, frozen=True):
    """The facts for a request, and those of them that it is the first to show."""

    facts: Facts
    new: Facts = NO_FACTS
    moment: str = ""


class Decider:
    """Decides on requests of many conversations; threads may share it."""

    def __init__(  # noqa: PLR0913 - all that decisions depend on
        self,
        policy: Policy,
        store: DecisionStore,
        *,
        observe: bool = False,
        shared_store: bool = False,
        text_formats: Collection[FormatName] = (),
        launch: Launch | None = None,
        adapt: Callable[[Policy], Policy] | None = None,
        memory: float = 512.0,
    ) -> None:
        self.policy = policy
        self._team_policies = TeamPolicies(policy, adapt)
        self._launch = launch or Launch()
        self._text_formats = frozenset(text_formats)  # for upstreams that refuse calls
        self._as_text = policy.replace(rendering="text")
        self._guard = StoreGuard(store)
        self._observe = observe
        self._shared_store = shared_store  # other servers decide on the same conversations
        self._name = secrets.token_hex(8)  # of this server, in claims
        self._session = Session(megabytes=memory)
        self._team_sessions = LruMap[str, Session](_MAX_TEAM_SESSIONS)  # by owner
        self._conversations = Conversations()

    # --- decisions -------------------------------------------------------------------------

    def decide(self, request: ParsedRequest, late: Event | None = None) -> Decision:
        """Decide for the projection of a request; raises if it cannot be read.

        Once `late` is set, something else was sent: then this only fills the memo.
        """
        turn = self._turn(request)
        known = turn.conversation
        if turn.is_left_alone():
            return self._original(turn, LEFT_ALONE)
        if known.is_pinned:
            # It may have been pinned while this was decided, and edits in force were sent.
            is_late = _is_set(late)
            return self._original(turn, PINNED) if is_late else self._fall_back(turn, PINNED)
        folded, seen = self._fold_with_new_facts(turn)
        if _was_sent_unchanged(folded, seen):
            return self._fall_back(turn, SENT_BEFORE)
        body, repairs = self._session_of(request).project(folded, request.body)
        if not self._observe:
            try:
                edits = folded.edits
                self._guard.keep(
                    known, folded.originals, folded.edition, lambda: _replacements(edits)
                )
            except RespoolError as error:
                if _is_set(late):
                    raise  # what was sent instead has left its facts already
                skipped = Facts(skipped=frozenset({folded.prefix}))
                reason = f"not kept: {_why(error)}"
                held = self._known_edits(turn, seen.facts, reason, skipped, late)
                return held or self._fall_back(turn, reason)
        if not request.is_count and not _is_set(late):
            if not self._claim(turn, folded, seen.facts, late):
                return self.decide(request, late)
            if not self._claim_for_all(turn, folded, seen.new):
                return self.decide(request, late)
        return self._projection(turn, folded, body, repairs, seen)

    def decide_immediately(self, request: ParsedRequest) -> Decision | None:
        """Decide for the projection if that needs no access to the store; None: it does."""
        if self._shared_store:
            return None
        turn = self._known_turn(request)
        if turn is None or not _is_in_memory(turn):
            return None
        plain = self._plain(turn)
        if plain is not None:
            return plain
        folded = self._fold(turn, turn.conversation.facts)
        if not turn.conversation.lineage.is_known(folded.boundaries):
            return None
        folded, seen = self._fold_with_new_facts(turn, folded)
        body, repairs = self._session_of(request).project(folded, request.body)
        originals = folded.originals
        stored = self._observe or self._guard.has_surely(
            turn.conversation, originals, folded.edition
        )
        if seen.new != NO_FACTS or not stored or _was_sent_unchanged(folded, seen):
            return None
        if not request.is_count and not self._claim(turn, folded, seen.facts, None):
            return None
        return self._projection(turn, folded, body, repairs, seen)

    def decide_without_new_edits(
        self,
        request: ParsedRequest,
        reason: str,
        *,
        must_fit: bool = False,
        late: Event | None = None,
    ) -> Decision | None:
        """Decide for the edits in force, or else for the original.

        None, if it must fit: that would be the original, and perhaps is too long. `late` is the
        event of the decision in whose place this one is sent.
        """
        turn = self._turn(request)
        if turn.is_left_alone():
            return self._original(turn, LEFT_ALONE)
        if turn.conversation.is_pinned:
            return self._fall_back(turn, PINNED)
        known = self._known_edits(turn, turn.conversation.facts, reason, NO_FACTS, late)
        if known is None and must_fit and not _surely_fits(turn):
            return None
        return known or self._fall_back(turn, reason)

    def decide_original(self, request: ParsedRequest, reason: str) -> Decision:
        """Decide for the original, without reasoning that was signed for projections of it."""
        turn = self._turn(request)
        is_asked_for = reason == OBSERVED or reason in AS_THEY_CAME
        is_doubted = self._shared_store and reason != SIGNED  # it may be claimed for a projection
        if (is_asked_for or is_doubted) and not turn.is_left_alone():
            self._note_original(turn)
        return self._original(turn, reason)

    def decide_without_reasoning(self, request: ParsedRequest, reason: str) -> Decision:
        """Decide for the original without any reasoning: the provider refuses the signatures."""
        turn = self._turn(request)
        self._note_original(turn)
        return self._original(turn, reason, without_reasoning=True)

    def unit_of(self, request: ParsedRequest) -> str:
        """The unit of a holdout that a request belongs to; empty: none.

        Sub-agents name the same session. Forks and resumed sessions share ancestors, whose unit
        they inherit. The first request is no such ancestor: sessions may open with the same words.
        """
        turn = self._turn(request)
        known, boundaries = turn.conversation, turn.history.boundaries()
        self._parent(turn, boundaries)  # loads the recorded requests
        earlier = boundaries[1:][-1 - MAX_LOOKBACK_REQUESTS :]
        sent = (known.lineage.accepted.get(prefix) for prefix in earlier)
        units = [None if one is None else one.unit for one in sent]
        return inherited_unit(units, turn.session() or known.id)

    # --- what becomes of them --------------------------------------------------------------

    def note_accepted(self, request: ParsedRequest, decision: Decision) -> None:
        """The provider accepted a request; the next decision depends on that."""
        known = self._conversations.get(decision.identity.conversation)
        if known is None or request.is_count:
            return
        # An observed projection counts as sent, so that the savings show as if it were.
        known.failed = known.failed_originals = 0
        known.is_edited |= _changes_content(decision.edits) and not self._observe
        latest = SentRequest(
            time=request.time,
            terms=decision.identity.terms,
            sent_as="original" if decision.kind == "original" else "projection",
            size=decision.tokens_before,
            epochs=decision.epochs,
            output=decision.identity.output,
            unit=request.unit,
        )
        if decision.identity.prefix:
            known.lineage.note_accepted(decision.identity.prefix, latest, decision.identity.parent)

    def evaluate_ahead(self, folded: FoldedRequest, request: ParsedRequest) -> None:
        """Evaluate what takes force at the next request of a conversation, before it comes."""
        self._session_of(request).evaluate_ahead(folded)

    def note_failed(self, decision: Decision, status: int) -> bool:
        """A projection failed by an unclear status. True: try the original.

        A server error is more often a passing fault than a refusal, so it takes one failure more.
        Each original that failed as well doubles the number.
        """
        known = self._conversations.get(decision.identity.conversation)
        if known is None or decision.body is None or decision.kind == "original":
            return False
        known.failed += 1
        enough = (2 if status < 500 else 3) << min(known.failed_originals, _MAX_DOUBLINGS)
        return known.failed >= enough

    def note_original_failed(self, decision: Decision) -> None:
        """The original was refused as well: the projection is not the cause."""
        known = self._conversations.get(decision.identity.conversation)
        if known is not None:
            known.failed, known.failed_originals = 0, known.failed_originals + 1

    def note_usage(self, decision: Decision, usage: Usage | None) -> None:
        """The usage of a response may show a cache that the client did not ask for."""
        known = self._conversations.get(decision.identity.conversation)
        if known is not None and is_cached_by_gateway(decision, usage):
            known.is_cached_by_gateway = True

    def note_window(self, request: ParsedRequest, tokens: int, *, beside_output: bool) -> None:
        """The provider accepts no more than so many tokens, or no more beside the output."""
        turn = self._turn(request)
        self._note(turn.conversation, window_fact(turn, tokens, beside_output=beside_output))

    def take_new_edits(self, decision: Decision) -> tuple[Edit, ...]:
        """The edits of a decision that no earlier one had; they count as recorded from now on."""
        known = self._conversations.get(decision.identity.conversation)
        if known is None:
            return decision.edits
        new = known.new_edits(decision.edits, decision.edition)
        known.note_recorded(map(edit_key, new))
        known.recorded_edition = decision.edition
        return new

    def pending_facts(self, decision: Decision) -> Facts:
        """The facts of a decision's conversation that are not written yet.

        A reader of a record assumes that all its facts are written: they are written with it.
        """
        id = decision.identity.conversation
        known = self._conversations.get(id) or self._guard.pending(id)
        return NO_FACTS if known is None else known.pending_facts

    def leave_alone(self, decision: Decision, owner: str) -> Callable[[], None]:
        """Compact no request of this conversation from here on.

        That holds at once. The function that is returned writes it to the store.
        """
        known = self._conversations.add(Conversation(decision.identity.conversation, owner))
        here = Facts(left_alone=frozenset({decision.identity.prefix}))
        self._guard.learn(known, here, pending=not self._observe)
        return lambda: self._guard.write_facts(known)

    def note_pinned(self, id: str, pinned: bool) -> None:
        """A conversation was pinned or unpinned; the store knows it already."""
        known = self._conversations.get(id)
        if known is not None:
            known.is_pinned = pinned

    def policy_for(self, request: ParsedRequest) -> Policy:
        """The policy for a request: its team's, as its format needs it."""
        is_text = request.format in self._text_formats
        if request.team is None or not request.team.settings:
            return self._as_text if is_text else self.policy
        return self._team_policies.of(request.team, is_text=is_text)

    def _session_of(self, request: ParsedRequest) -> Session:
        """The session for a request. A team has its own.

        So the time that a request takes says nothing about what other teams have sent.
        """
        if request.team is None:
            return self._session
        owner = request.team.owner
        return self._team_sessions.get_or_make(owner, lambda: self._session.scoped(owner.encode()))

    def close(self) -> None:
        """Write all facts that the store can take."""
        self._guard.close()

    # --- the turn --------------------------------------------------------------------------

    def _turn(self, request: ParsedRequest) -> Turn:
        history = self._session_of(request).parse(request.body, request.format, request.model)
        id = conversation_id(history, request.account or request.owner)
        known = self._conversations.get(id)
        if known is None:  # it is new, or has left the cache
            known = self._guard.pending(id) or Conversation(id, request.owner)
            known = self._conversations.add(known)
        self._guard.load_facts(known)  # another server may have written some
        turn = Turn(request, history, known, f"{self._name}{request.number}")
        if not known.facts.breakpoints:
            self._guard.learn(known, first_breakpoints(turn), pending=not self._observe)
        return turn

    def _known_turn(self, request: ParsedRequest) -> Turn | None:
        """The turn of a conversation that is in the cache, without access to the store."""
        history = self._session_of(request).parse(request.body, request.format, request.model)
        known = self._conversations.get(conversation_id(history, request.account or request.owner))
        return None if known is None else Turn(request, history, known)

    def _parent(self, turn: Turn, boundaries: list[bytes]) -> ParentRequest:
        """The parent of a request, looked up by its history and once for each turn."""
        if turn.parent is None:
            known, earlier = turn.conversation, boundaries[-1 - MAX_LOOKBACK_REQUESTS : -1]
            was_looked_up = True
            if self._shared_store or not known.lineage.is_known(boundaries):
                prefixes = [prefix.hex() for prefix in (*earlier, *boundaries[-1:])]
                was_looked_up = self._guard.load_requests(known, prefixes)
            parent = known.lineage.parent(earlier, turn.history.terms())
            turn.parent = replace(parent, was_looked_up=was_looked_up)
        return turn.parent

    def _previous(self, turn: Turn, boundaries: list[bytes]) -> SentRequest:
        """The request that this one repeats, or else its parent."""
        same = turn.conversation.lineage.parent(boundaries[-1:], turn.history.terms())
        return same.latest if same.is_exact else self._parent(turn, boundaries).latest

    # --- projections -----------------------------------------------------------------------

    def _fold(self, turn: Turn, facts: Facts) -> FoldedRequest:
        policy = self.policy_for(turn.request)
        return self._session_of(turn.request).fold(
            turn.history, policy, facts, output=self._output(turn)
        )

    def _output(self, turn: Turn) -> int:
        """The output to assume for a request that only counts tokens: that of the one before it.

        Near the context window decisions depend on it, and what is counted must be what is sent.
        """
        if not turn.request.is_count:
            return 0
        return self._previous(turn, turn.history.boundaries()).output

    def _fold_with_new_facts(
        self, turn: Turn, folded: FoldedRequest | None = None
    ) -> tuple[FoldedRequest, _Known]:
        """Fold a request with the facts that it shows itself.

        If its reasoning was signed for something else, that is such a fact, and it is dropped.
        """
        folded = folded or self._fold(turn, turn.conversation.facts)
        seen = self._new_facts(turn, folded)
        if seen.new != NO_FACTS:
            folded = self._fold(turn, seen.facts)
        if not self._contradicts_signatures(turn, folded, seen.facts):
            return folded, seen
        here = frozenset({folded.prefix})
        # An answer to the same history has reasoning that was signed for something else again.
        doubted = here if turn.was_answered(folded.prefix) else frozenset[str]()
        new = Facts(changed=here, skipped=doubted)
        seen = _Known(seen.facts.merge(new), seen.new.merge(new), "changed")
        return self._fold(turn, seen.facts), seen

    def _new_facts(self, turn: Turn, folded: FoldedRequest) -> _Known:
        """The facts that only this request can show: a free moment, the client's breakpoints."""
        known, here = turn.conversation, frozenset({folded.prefix})
        moment = self._moment(turn, folded)
        new = new_breakpoints(turn, folded)
        if moment:
            new = new.merge(Facts(cold=here) if moment == "cold" else Facts(changed=here))
        return _Known(known.facts if new == NO_FACTS else known.facts.merge(new), new, moment)

    def _moment(self, turn: Turn, folded: FoldedRequest) -> str:
        """`cold` or `changed` if the provider's cache is lost; empty for a retry."""
        parent = self._parent(turn, folded.boundaries)
        if turn.request.is_count or not parent.is_exact:
            return ""
        latest = parent.latest
        moment = "cold" if is_cold(turn, latest.time, folded.breakpoints) else ""
        if latest.terms and latest.terms != turn.history.terms():
            moment = "changed"
            if not folded.is_bound and is_warm_on_these_terms(turn, folded.boundaries):
                moment = ""  # if it is bound, another model's reasoning goes, and all behind it
        if folded.is_bound and latest.output > 0 and folded.depends_on_output(latest.output):
            moment = "changed"
        return "" if turn.was_answered(folded.prefix) else moment

    def _contradicts_signatures(self, turn: Turn, folded: FoldedRequest, facts: Facts) -> bool:
        """True if a projection differs from what its reasoning was signed for.

        That is so if an original was sent last, or something that is not known. Both leave a
        boundary that is skipped and changed; one that is only changed had its reasoning dropped.
        """
        if not folded.is_bound or folded.prefix in facts.changed - facts.skipped:
            return False
        if not folded.has_reasoning():
            return False
        parent = self._parent(turn, folded.boundaries)
        is_changed = _changes_content(folded.edits)
        passed = (prefix.hex() for prefix in reversed(folded.boundaries))
        reset = next((prefix for prefix in passed if prefix in facts.changed), "")
        if reset in facts.skipped:  # an original, which may have lost its reasoning
            return is_changed or turn.conversation.is_edited or self._shared_store
        if self._shared_store and parent.is_lost:
            return True  # another server could not write down what it sent
        return is_changed and (not parent.is_exact or parent.latest.sent_as != "projection")

    def _projection(
        self,
        turn: Turn,
        folded: FoldedRequest,
        body: bytes,
        repairs: tuple[Repair, ...],
        seen: _Known,
    ) -> Decision:
        request = turn.request
        turn.conversation.bytes_per_token = len(request.body) / max(1, folded.tokens_before)
        new = turn.conversation.new_edits(folded.edits, folded.edition)
        return Decision(
            kind="projection",
            body=None if body is request.body else body,
            identity=self._identity(turn, folded.prefix, folded.boundaries, folded.output),
            facts=seen.facts,
            breakpoints=folded.breakpoints,
            moment=seen.moment,
            tokens_before=folded.tokens_before,
            tokens_after=folded.tokens_after,
            client_cached=folded.client_cached_tokens(),
            epochs=folded.epochs,
            results=folded.results,
            waiting=_waiting(turn.conversation, folded),
            pending=folded if folded.is_pending else None,
            edits=folded.edits,
            edition=folded.edition,
            dropped=_dropped(folded, new),
            calls=_calls(folded, new),
            head=folded.head_tokens,
            tools=_new_tools(turn, folded),
            called=_new_calls(turn.conversation, folded),
            findings=Findings(
                repairs=repairs,
                failures=folded.failures,
                refetched=_observed(lambda: tuple(map(_refetched, folded.last_refetched()))),
                loops=_observed(lambda: tuple(folded.last_loops())),
                repeats=_observed(folded.repeat_cells),
            ),
        )

    def _plain(self, turn: Turn) -> Decision | None:
        """The decision on a request in which nothing can be compacted; None: something may be."""
        request, known, history = turn.request, turn.conversation, turn.history
        if request.is_count or known.facts != NO_FACTS or known.defined_on != history.terms():
            return None
        plain = history.plain(self.policy_for(request))
        if plain is None:
            return None
        here = plain.prefix.hex()
        if plain.is_bound and not self._observe:
            known.lineage.note_in_flight(here)
            if known.facts != NO_FACTS:  # as of just now: this boundary may be skipped
                return None
        known.bytes_per_token = len(request.body) / max(1, plain.tokens)
        return Decision(
            kind="projection",
            identity=self._identity(turn, here, [plain.prefix], plain.output),
            tokens_before=plain.tokens,
            tokens_after=plain.tokens,
            client_cached=plain.head,
            head=plain.head,
        )

    def _identity(
        self, turn: Turn, prefix: str, boundaries: list[bytes], output: int = 0
    ) -> RequestIdentity:
        provenance = turn.provenance(self._launch)
        return RequestIdentity(
            agent=provenance.agent,
            project=provenance.project,
            prompt=provenance.prompt,
            conversation=turn.conversation.id,
            session=turn.session(),
            prefix=prefix,
            parent=parent_prefix(boundaries),
            parent_request=self._previous(turn, boundaries),
            model=turn.history.model,
            terms=turn.history.terms(),
            output=output,
        )

    # --- what is sent besides --------------------------------------------------------------

    def _claim(
        self, turn: Turn, folded: FoldedRequest, facts: Facts, request: Event | None
    ) -> bool:
        """Note that a projection is sent; False: a request beside it skips this boundary.

        If reasoning is bound, a later request could not know for which of both it was signed. Each
        is noted before the other is looked for, so one of two sees the other.
        """
        known, here = turn.conversation, folded.prefix
        if self._observe or not folded.is_bound or here in facts.skipped:
            return True
        known.lineage.note_in_flight(here, request)
        return here not in known.facts.skipped

    def _claim_for_all(self, turn: Turn, folded: FoldedRequest, new: Facts) -> bool:
        """Write the new facts; with other servers, claim this history before it is sent.

        False: another server has just claimed it, perhaps with other facts. The next request may
        reach any server before this one is recorded, and needs to know its parent.
        """
        known, here, by = turn.conversation, folded.prefix, turn.claimant
        if self._observe or not self._shared_store or known.lineage.is_claimed(here, by):
            self._note(known, new)
            return True
        sent = SentRequest(
            time=turn.request.time,
            terms=turn.history.terms(),
            sent_as="projection",
            size=folded.tokens_before,
            epochs=folded.epochs,
            output=folded.output,
            unit=turn.request.unit,
        )
        is_first = self._guard.claim(known, here, by, sent=sent, new=new)
        if not is_first:
            turn.parent = None
        return is_first

    def _is_alone(
        self, turn: Turn, folded: FoldedRequest, seen: _Known, request: Event | None
    ) -> bool:
        """True if no request in flight contradicts the boundaries that this one skips."""
        skipped = seen.new.skipped
        if not skipped:
            return self._claim(turn, folded, seen.facts, request)
        if self._observe or not folded.is_bound:
            return True
        lineage = turn.conversation.lineage
        return not any(lineage.is_in_flight(prefix, request) for prefix in skipped)

    # --- the edits in force ----------------------------------------------------------------

    def _known_edits(
        self, turn: Turn, facts: Facts, reason: str, new: Facts, late: Event | None
    ) -> Decision | None:
        """The edits in force, if they are known and agree with what was sent before."""
        request = turn.request
        held = facts if new == NO_FACTS else facts.merge(new)
        found = self._session_of(request).fold_known(
            turn.history, self.policy_for(request), held, output=self._output(turn)
        )
        if found is None:
            return None
        folded, skipped = found
        if not self._may_send(turn, folded, skipped, held):
            return None
        new = new.merge(skipped)
        seen = _Known(facts.merge(new), new)
        if not request.is_count and not (
            self._claim_for_all(turn, folded, new) and self._is_alone(turn, folded, seen, late)
        ):
            self._note_original(turn)
            return None
        body, repairs = self._session_of(request).project(folded, request.body)
        made = self._projection(turn, folded, body, repairs, seen)
        return replace(made, kind="known-edits", reason=reason)

    def _may_send(self, turn: Turn, folded: FoldedRequest, skipped: Facts, facts: Facts) -> bool:
        """True if known edits are reversible and contradict no signature."""
        known = turn.conversation
        if not self._observe and not self._guard.has(known, folded.originals):
            return False
        if not folded.is_bound:
            return True
        if self._moment(turn, folded) == "changed":
            return False  # the signatures belong to another model or other tools
        if any(map(turn.was_answered, skipped.skipped)):
            return False
        if self._shared_store and len(skipped.skipped) > 1:
            return False  # another server may have answered one of them
        return not self._contradicts_signatures(turn, folded, facts.merge(skipped))

    # --- originals -------------------------------------------------------------------------

    def _fall_back(self, turn: Turn, reason: str) -> Decision:
        """The original, and the fact that it was sent."""
        self._note_original(turn)
        return self._original(turn, reason)

    def _original(self, turn: Turn, reason: str, *, without_reasoning: bool = False) -> Decision:
        """The original; if the model binds reasoning, without what no longer matches."""
        body, edits = None, ()
        known, history, request = turn.conversation, turn.history, turn.request
        facts, boundaries = known.facts, history.boundaries()
        parent = self._parent(turn, boundaries)
        identity = self._identity(turn, history.prefix, boundaries)
        # Another server may have sent edits whose record is not written yet.
        is_doubted = known.is_edited or self._shared_store or parent.is_lost or without_reasoning
        was_unchanged = not without_reasoning and _was_always_unchanged(boundaries, facts)
        if is_doubted and history.is_bound and not was_unchanged:
            until = self._signed_until(turn, without_reasoning)
            folded = self._session_of(request).fold_original(history, until)
            changed, _ = self._session_of(request).project(folded, request.body)
            body = None if changed is request.body else changed
            edits = folded.edits
        tokens = int(len(request.body if body is None else body) / known.bytes_per_token)
        return Decision(
            kind="original",
            body=body,
            reason=reason,
            identity=identity,
            facts=facts,
            tokens_before=tokens,
            tokens_after=tokens,
            epochs=identity.parent_request.epochs,
            edits=edits,
        )

    def _note_original(self, turn: Turn) -> None:
        """This boundary is skipped; reasoning behind it is signed for the original."""
        if not turn.request.is_count:
            here = frozenset({turn.history.prefix})
            changed = here if turn.history.is_bound else frozenset[str]()
            self._note(turn.conversation, Facts(skipped=here, changed=changed))

    def _signed_until(self, turn: Turn, without_reasoning: bool) -> frozenset[str]:
        """The prefixes up to which reasoning was, or may have been, signed for projections."""
        here, known = frozenset({turn.history.prefix}), turn.conversation
        if without_reasoning or not turn.is_left_alone():
            return here
        left_alone = known.facts.left_alone
        passed = [prefix.hex() for prefix in turn.history.boundaries()]
        since = max(at for at, prefix in enumerate(passed) if prefix in left_alone)
        if not any(known.lineage.was_answered(prefix) for prefix in passed[since:-1]):
            return left_alone
        # This branch had extended a projection before another branch was refused.
        if not turn.request.is_count:
            self._note(known, Facts(left_alone=here))
        return left_alone | here

    def _note(self, known: Conversation, new: Facts) -> None:
        if self._observe:
            self._guard.learn(known, new)
        else:
            self._guard.note(known, new)


def _why(error: RespoolError) -> str:
    """The reason why originals could not be stored, as a team may read it in its records."""
    return error.why() if isinstance(error, StoreUnavailable) else str(error)


def _is_set(event: Event | None) -> bool:
    return event is not None and event.is_set()


def _is_in_memory(turn: Turn) -> bool:
    """True if all that a decision needs of the conversation is in memory."""
    known = turn.conversation
    if not known.is_loaded or known.pending_facts != NO_FACTS:
        return False
    if known.facts.left_alone or known.is_pinned:
        return False
    return not turn.request.is_count or known.lineage.is_known(turn.history.boundaries())


def _was_sent_unchanged(folded: FoldedRequest, seen: _Known) -> bool:
    """True if the original of exactly this history was sent, and fitted: it is sent again."""
    return folded.is_bound and _fitted_unchanged(folded.prefix, seen.facts)


def _was_always_unchanged(boundaries: Sequence[bytes], facts: Facts) -> bool:
    """True if the originals of all earlier requests of a bound history were sent, and fitted."""
    return all(_fitted_unchanged(prefix.hex(), facts) for prefix in boundaries[:-1])


def _fitted_unchanged(prefix: str, facts: Facts) -> bool:
    """True if the original of exactly this history was sent, and not cut after an overflow."""
    return prefix in facts.skipped & facts.changed and facts.window_at(prefix) is None


def _surely_fits(turn: Turn) -> bool:
    """True if the original surely fits the context window."""
    listed = turn.history.pricing.window
    windows = [tokens for _, tokens in turn.conversation.facts.windows]
    if listed is not None:
        windows.append(listed)
    return not windows or len(turn.request.body) <= _MIN_BYTES_PER_TOKEN * min(windows)


def _replacements(edits: Iterable[Edit]) -> dict[str, str]:
    """The texts that replace others, by reference, to be shown beside the originals."""
    return {reference(one.text): one.text for one in edits if isinstance(one, Replace)}


def _dropped(folded: FoldedRequest, new: Iterable[Edit]) -> dict[str, str]:
    """References of the texts that edits remove without a replacement, by place."""
    return {
        str(edit.ref): reference(folded.dropped_text(edit))
        for edit in new
        if isinstance(edit, DropExchange | DropReasoning)
    }


def _calls(folded: FoldedRequest, new: Iterable[Edit]) -> dict[str, tuple[str, str]]:
    """Tool and target of the calls that edits change, by place."""
    calls = ((str(edit.ref), *folded.edited_call(edit)) for edit in new)
    return {
        place: (tool[:_MAX_NAME_CHARS], target[:_MAX_NAME_CHARS])
        for place, tool, target in calls
        if tool
    }


def _changes_content(edits: Iterable[Edit]) -> bool:
    """True if edits change what the model reads; cache breakpoints do not."""
    return any(not isinstance(edit, PlaceBreakpoint) for edit in edits)


def _observed(find: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...]:
    """Observations on the latest results; none if that fails, as they are only recorded."""
    try:
        return find()[:_MAX_OBSERVED]
    except Exception:  # noqa: BLE001 - law 9: an observation must not cost a projection
        _log.exception("The latest results could not be examined")
        return ()


def _waiting(known: Conversation, folded: FoldedRequest) -> tuple[int, int]:
    """The offers that wait, as of the last evaluation: only an evaluation adds some."""
    if known.evaluated != folded.evaluated:
        offers, tokens = _observed(lambda: folded.waiting) or (0, 0)
        known.evaluated, known.waiting = folded.evaluated, (offers, tokens)
    return known.waiting


def _new_tools(turn: Turn, folded: FoldedRequest) -> dict[str, int]:
    """The tokens of the tool definitions, once for each model and set of tools."""
    known, terms = turn.conversation, turn.history.terms()
    if known.defined_on == terms:
        return {}
    known.defined_on = terms
    found = _observed(lambda: tuple(folded.definition_sizes().items()))
    return {name[:_MAX_NAME_CHARS]: tokens for name, tokens in found}


def _new_calls(known: Conversation, folded: FoldedRequest) -> tuple[str, ...]:
    """The tools that no earlier request of the conversation had called."""
    since, known.calls_read = known.calls_read, folded.calls
    found = _observed(lambda: tuple(folded.called_tools(since)))
    new = {name[:_MAX_NAME_CHARS] for name in found} - known.called
    known.called |= new
    return tuple(sorted(new))


def _refetched(one: Refetch) -> RefetchedResult:
    return RefetchedResult(
        tool=one.tool[:_MAX_NAME_CHARS],
        target=one.target[:_MAX_NAME_CHARS],
        reason=one.reason,
        place=str(one.ref),
        earlier=str(one.earlier),
        tokens=one.tokens,
    )
