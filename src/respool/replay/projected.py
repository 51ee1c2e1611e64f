"""respool as a policy of the replay: one fold over the session, projected at each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..binding import binding_of
from ..codecs.body import Kept
from ..codecs.json_tree import JSON
from ..codecs.object_body import ObjectBody
from ..edits import TIDIED, Advise
from ..engine import Folded, edits_of, fold_on, prefix_of
from ..facts import FAR_BACK, Facts
from ..folding.state import State
from ..policy import Policy
from ..projection import project
from .recording import Recording
from .result import ReadAgain
from .senders import InForce

_NO_FACTS = Facts()


class Projected:
    """What respool would have sent."""

    def __init__(self, recording: Recording, policy: Policy) -> None:
        self._recording = recording
        self._policy = policy
        self._folded: Folded | None = None
        self.facts = _NO_FACTS  # all that was seen so far
        self._changed: dict[int, JSON] = {}  # source message -> what stands for it
        self._rows: list[int | None] = []  # the source of each message of the last request

    def send(self, request: int) -> Sequence[JSON]:
        """The projection of one request."""
        messages = self._recording.request(request)
        self._fold(request, messages)
        assert self._folded is not None
        pieces, _ = project(self._folded.body, self._folded.state, self._folded.context)
        sent: list[JSON] = []
        self._rows = []
        for piece in pieces:
            if isinstance(piece, Kept):
                sent += messages[piece.start : piece.stop]
                self._rows += range(piece.start, piece.stop)
            else:
                sent.append(self._reuse_message(piece.source, piece.message))
                self._rows.append(piece.source)
        return sent

    def _fold(self, request: int, messages: list[JSON]) -> None:
        session = self._recording.session
        codec = self._recording.codec
        last = len(messages) - 1
        marked = [last] if messages[last] is not session.messages[last] else []
        asked: dict[str, JSON] = {
            "model": session.requests[request].model, codec.history_field: messages
        }  # fmt: skip
        body = ObjectBody(asked, marked, shares=True)
        head = self._recording.conditions.head
        self.facts = self.facts.merge(self._facts_at(request, body))
        self._folded = fold_on(body, codec.name, self._policy, self.facts, self._folded, head)

    def _facts_at(self, request: int, body: ObjectBody) -> Facts:
        """What a proxy would have noted at this request: a cold cache, or another model."""
        requests = self._recording.session.requests
        if request == 0:
            return _NO_FACTS
        now, before = requests[request], requests[request - 1]
        lifetime = self._recording.conditions.cold_after
        cold = _passed(before.time, now.time) > lifetime
        changed = now.model != before.model and not self._is_model_warm(request, lifetime)
        if not (cold or changed):
            return _NO_FACTS
        at = frozenset({prefix_of(body, self._recording.codec.name, self._folded)})
        return Facts(cold=at if cold else frozenset(), changed=at if changed else frozenset())

    def _is_model_warm(self, request: int, lifetime: float) -> bool:
        """Whether the model was asked not long ago, and still has that; as a proxy looks at it."""
        requests, codec = self._recording.session.requests, self._recording.codec
        now = requests[request]
        if binding_of(codec.name, {"model": now.model}).is_bound:
            return False
        earlier = requests[max(0, request - FAR_BACK) : request]
        times = [one.time for one in earlier if one.model == now.model]
        return bool(times) and _passed(times[-1], now.time) <= lifetime

    def _reuse_message(self, source: int | None, message: JSON) -> JSON:
        """A changed message, as the object that it was before if it says the same."""
        if source is None:
            return message
        known = self._changed.get(source)
        if known is not None and known == message:
            return known
        self._changed[source] = message
        return message

    def change_reason(self, row: int) -> str:
        """The reasons of the edits on a row of the last request."""
        assert self._folded is not None
        source = self._rows[row] if row < len(self._rows) else None
        state = self._folded.state
        rows = [at for at, one in enumerate(state.sources) if one == source]
        reasons = {edit.reason for edit in state.edits.values() if edit.ref.row in rows}
        return ", ".join(sorted(reasons)) or "repair"

    def active_edits(self) -> Iterator[InForce]:
        """The edits in the last request."""
        if self._folded is None:
            return
        index = self._folded.state.index
        transcript = index.freeze()
        by_place = {part.ref: at for at, part in enumerate(index.parts)}
        for edit in edits_of(self._folded.state):
            if isinstance(edit, Advise):
                continue  # it took out nothing
            at = by_place.get(edit.ref)
            call = transcript.call_of(at) if at is not None else None
            yield InForce(edit.reason, call.name if call is not None else "", edit.saved)

    def failures(self) -> Sequence[str]:
        """The passes that failed."""
        failed = self._folded.state.failures if self._folded is not None else {}
        return [f"{name}: {why}" for name, why in failed.items()]

    def refetch_counts(self) -> ReadAgain:
        """What was asked for again, after a cut or while it stood."""
        if self._folded is None:
            return ReadAgain()
        state = self._folded.state
        cut = sum(not _stands(state, position) for position in state.index.results)
        return ReadAgain(
            after_cut=len(state.refetched),
            tokens=sum(one.tokens for one in state.refetched),
            standing=state.repeated_requests,
            cut=cut,
            whole=len(state.index.results) - cut,
        )


def _stands(state: State, position: int) -> bool:
    """Whether a result says all that it said, here or in a copy that it points to."""
    edit = state.edits.get(position)
    tidied = edit is not None and edit.reason == TIDIED
    return position not in state.claimed or tidied or position in state.leans


def _passed(before: float | None, now: float | None) -> float:
    """The seconds between two times; none where one is not known."""
    return 0.0 if before is None or now is None else now - before
