"""What goes up in place of a request: its projection, or what must do where that cannot be had.

All of it runs off the event loop. Originals are durable before the first projection without them
is given away; where they cannot be made so, no new edit is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import xxhash
from msgspec import Struct

from ..binding import binding_of
from ..codecs.body import Body
from ..codecs.codec import FormatName
from ..codecs.detect import detect
from ..codecs.reading import read_body
from ..edits import DropExchange, DropReasoning, Edit, Replace
from ..engine import Compaction, compacted, edits_of, fields_with, fold_request, prefix_of
from ..errors import ClewError
from ..facts import Facts
from ..fallback import as_it_came, with_known_edits
from ..marker import reference
from ..marking import marking_of
from ..memo import Memo
from ..policy import Policy
from ..prices import terms_for
from ..repair.mending import Repair
from ..state import State
from ..store import Latest, SentAs, Store
from ..touching import touched
from .conversations import Conversation, Conversations
from .noticing import Noticed, noticed
from .owners import conversation_of, group_of

Kind = Literal["projection", "known edits", "original", "untouched"]
_NO_FACTS: Final = Facts()
_TOOLS: Final = ("tools", "functions")


class Asked(Struct, frozen=True):
    """A request to be decided on."""

    body: bytes
    format: FormatName
    model: str | None  # where the body does not name it
    owner: str
    time: float
    counting: bool = False  # the client only asks how many tokens it would be
    session: str | None = None  # the client's own name for what it belongs to, hashed


class Decision(Struct, frozen=True, kw_only=True):
    """What goes up, and what is to be told of it."""

    kind: Kind
    body: bytes | None  # None: the bytes that came
    conversation: str = ""
    session: str = ""
    prefix: str = ""
    why: str = ""  # it is no projection
    facts: Facts = _NO_FACTS  # all that held
    model: str = ""
    before: int = 0  # tokens, about
    after: int = 0
    epochs: int = 0
    moment: str = ""  # a free moment: "cold", "changed"
    last: Latest = Latest()  # the request before it
    edits: tuple[Edit, ...] = ()
    repairs: tuple[Repair, ...] = ()
    failures: Mapping[str, str] = {}
    originals: Mapping[str, str] = {}  # those that were kept for it just now
    terms: str = ""  # the model and the tools that it names
    noticed: Noticed = Noticed()  # what it shows that none before it did
    dropped: Mapping[str, str] = {}  # by place: references of what new edits took out whole


class _Read(Struct, frozen=True):
    """A request taken apart, and the conversation it belongs to."""

    asked: Asked
    body: Body
    format: FormatName
    model: str
    conversation: Conversation
    here: list[str] = []  # the hash of its whole history, once somebody asked


class Deciding:
    """Decides on requests one after another, for many conversations; safe to share by threads."""

    def __init__(
        self, policy: Policy, store: Store, *, observe: bool = False, shared: bool = False
    ) -> None:
        self.policy = policy
        self._store = store
        self._observe = observe
        self._shared = shared  # other processes decide on the same conversations
        self._memo = Memo()
        self._conversations = Conversations()

    def decide(self, asked: Asked) -> Decision:
        """The projection of a request; raises what cannot be read."""
        read = self._read(asked)
        new, moment = self._seen_now(read)
        facts = read.conversation.facts.merge(new)
        if facts.left_alone:
            return self._original(read, facts, "left alone")
        folded = fold_request(
            read.body, read.format, self.policy, facts, self._memo, model=asked.model
        )
        done = compacted(folded, asked.body)
        state, head = folded.state, folded.setting.head
        try:
            kept = self._keep(read, done)
        except ClewError as error:
            here = Facts(skipped=frozenset({state.prefix.hex()}))
            return self._without_new_edits(read, facts.merge(here), f"not kept: {error}")
        self._note(read, new)
        before = head + state.size
        return Decision(
            kind="projection", body=None if done.request is asked.body else done.request,
            conversation=read.conversation.id, session=_session(read),
            prefix=state.prefix.hex(), facts=facts,
            model=read.model, before=before, after=before - state.saved, epochs=state.epochs,
            moment=moment, last=read.conversation.last, edits=edits_of(state),
            repairs=done.report.repairs, failures=state.failures, originals=kept,
            terms=_terms(read), noticed=noticed(state),
            dropped=self._dropped(read, state),
        )  # fmt: skip

    def decide_without_new_edits(self, asked: Asked, why: str) -> Decision:
        """What goes up where there is no time, or no trust, for new edits."""
        read = self._read(asked)
        facts = read.conversation.facts
        if facts.left_alone:
            return self._original(read, facts, "left alone")
        decision = self._without_new_edits(read, facts, why)
        if decision.kind == "original" and not asked.counting:
            self._note(read, Facts(skipped=frozenset({_here(read)})))
        return decision

    def decide_as_it_came(self, asked: Asked, why: str, *, for_good: bool = False) -> Decision:
        """The request itself, without reasoning that was signed for projections of it."""
        read = self._read(asked)
        facts = read.conversation.facts
        if for_good and not facts.left_alone:
            new = Facts(left_alone=frozenset({_here(read)}))
            facts = facts.merge(new)
        return self._original(read, facts, why)

    def model_of(self, asked: Asked) -> str:
        """The model that a request names."""
        return self._read(asked).model

    def sent(self, asked: Asked, decision: Decision) -> None:
        """This went up: the next request of the conversation is decided accordingly."""
        known = self._conversations.get(decision.conversation)
        if known is None or asked.counting:
            return
        original = decision.kind == "original" or self._observe
        edited = known.last.edited or (bool(decision.edits) and not original)
        sent_as: SentAs = "original" if original else "projection"
        known.last = Latest(
            asked.time, decision.terms, sent_as, edited, decision.before, decision.epochs
        )

    def untold(self, decision: Decision) -> tuple[Edit, ...]:
        """The edits of a decision that none before it had."""
        known = self._conversations.get(decision.conversation)
        if known is None:
            return decision.edits
        new = tuple(edit for edit in decision.edits if hash(_named(edit)) not in known.told)
        known.told.update(hash(_named(edit)) for edit in new)
        return new

    def leave_alone(self, asked: Asked) -> None:
        """From here on, no request of this conversation is compacted."""
        read = self._read(asked)
        self._note(read, Facts(left_alone=frozenset({_here(read)})))

    def fits(self, asked: Asked, tokens: int) -> None:
        """No more than so many tokens fit, as the provider has just said."""
        read = self._read(asked)
        self._note(read, Facts(windows=((_here(read), tokens),)))

    def _read(self, asked: Asked) -> _Read:
        body = read_body(asked.body)
        format = detect(body, asked.format)
        named = (fields_with(body.fields, asked.model) or {}).get("model")
        model = named if isinstance(named, str) else ""
        return _Read(asked, body, format, model, self._conversation(asked, body, format))

    def _conversation(self, asked: Asked, body: Body, format: FormatName) -> Conversation:
        id = conversation_of(body, format, asked.owner).opening
        known = self._conversations.get(id)
        if known is None:
            known = self._conversations.add(Conversation(id, asked.owner))
            self._read_up(known)
        elif self._shared:
            self._read_up(known)
        return known

    def _read_up(self, known: Conversation) -> None:
        """What the store knows of a conversation, and this process does not, or no longer."""
        known.facts = known.facts.merge(self._noted(known.id))
        try:
            last = self._store.latest(known.id)
        except ClewError:
            last = Latest(edited=True, sent_as="projection")  # then no reasoning is trusted
        if last is not None and (last.time > known.last.time or not known.last.time):
            known.last = last

    def _noted(self, id: str) -> Facts:
        try:
            return self._store.facts(id)
        except ClewError:
            return _NO_FACTS

    def _seen_now(self, read: _Read) -> tuple[Facts, str]:
        """What this request shows that no later one can: a cold cache, another model or tools."""
        asked, last = read.asked, read.conversation.last
        if asked.counting or not last.time:
            return _NO_FACTS, ""
        if last.sent_as == "original" and last.edited and self._is_bound(read):
            return Facts(changed=frozenset({_here(read)})), "changed"
        if last.terms and last.terms != _terms(read):
            return Facts(changed=frozenset({_here(read)})), "changed"
        if asked.time - last.time > lifetime(read.body, read.format, read.model):
            return Facts(cold=frozenset({_here(read)})), "cold"
        return _NO_FACTS, ""

    def _keep(self, read: _Read, done: Compaction[Any]) -> dict[str, str]:
        """Have all originals of a projection kept; those that are new here."""
        known = read.conversation
        new = {ref: done.originals[ref] for ref in done.originals if ref not in known.durable}
        if new and not self._observe:
            self._store.keep(known.owner, known.id, new | shown_instead(done.report.edits))
            known.durable.update(new)
        return new

    def _dropped(self, read: _Read, state: State) -> dict[str, str]:
        """Where a new edit puts nothing in place of what it takes out: what that was."""
        told, parts = read.conversation.told, state.index.parts
        found: dict[str, str] = {}
        for edit in edits_of(state):
            if not isinstance(edit, DropExchange | DropReasoning) or hash(_named(edit)) in told:
                continue
            texts = [parts[part].text for part in touched(edit, state.index)]
            found[str(edit.ref)] = reference(max(texts, key=len, default=""))
        return found

    def _without_new_edits(self, read: _Read, facts: Facts, why: str) -> Decision:
        known = with_known_edits(
            read.asked.body, format=read.format, policy=self.policy, facts=facts, memo=self._memo,
            model=read.asked.model,
        )  # fmt: skip
        if known is None or not known.compaction.originals.keys() <= read.conversation.durable:
            return self._original(read, facts, why)
        held = facts.merge(known.facts)
        self._note(read, held)
        done, report = known.compaction, known.compaction.report
        return Decision(
            kind="known edits", body=None if done.request is read.asked.body else done.request,
            conversation=read.conversation.id, session=_session(read),
            prefix=report.prefix or "", why=why, facts=held,
            model=read.model, epochs=report.epochs, edits=report.edits, repairs=report.repairs,
            terms=_terms(read), last=read.conversation.last,
        )  # fmt: skip

    def _original(self, read: _Read, facts: Facts, why: str) -> Decision:
        """The request as it came; on models that bind it, without reasoning that does not fit."""
        body, known = None, read.conversation
        if known.last.edited and self._is_bound(read):
            sent = Facts(left_alone=facts.left_alone or frozenset({_here(read)}))
            fallen = as_it_came(
                read.asked.body, format=read.format, sent=sent, model=read.asked.model
            )
            changed = fallen.compaction.request
            body = None if changed is read.asked.body else changed
        return Decision(
            kind="original", body=body, conversation=known.id, session=_session(read), why=why,
            facts=facts,
            model=read.model, terms=_terms(read), last=known.last,
        )  # fmt: skip

    def _is_bound(self, read: _Read) -> bool:
        return binding_of(read.format, fields_with(read.body.fields, read.asked.model)).bound

    def _note(self, read: _Read, new: Facts) -> None:
        """Hold facts from now on; where they cannot be kept, this process alone knows them."""
        known = read.conversation
        if new == _NO_FACTS:
            return
        known.facts = known.facts.merge(new)
        if self._observe:
            return
        try:
            self._store.note(known.id, new)
        except ClewError:
            return  # a missing fact costs a prefix break at most


def shown_instead(edits: Iterable[Edit]) -> dict[str, str]:
    """What stands in place of texts now, by reference, so that it can be shown beside them."""
    return {reference(one.text): one.text for one in edits if isinstance(one, Replace)}


def lifetime(body: Body, format: FormatName, model: str) -> float:
    """How many seconds a cached prefix of this request lives."""
    return marking_of(body, format).lifetime or terms_for(format, model).lifetime


def _terms(read: _Read) -> str:
    """The model and the tools of a request, in few characters."""
    tools = xxhash.xxh3_64_hexdigest(read.body.head(_TOOLS))
    return f"{read.model} {tools}"


def _session(read: _Read) -> str:
    asked = read.asked
    return asked.session or group_of((), read.body.fields, asked.owner) or ""


def _named(edit: Edit) -> tuple[str, str, str]:
    return str(edit.ref), edit.reason, edit.evidence


def _here(read: _Read) -> str:
    """The hash of the whole history of a request, worked out once."""
    if not read.here:
        read.here.append(prefix_of(read.body, read.format, None))
    return read.here[0]
