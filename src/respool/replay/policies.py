"""Replay policies by name, and the senders that produce each policy's requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ..compaction.projection import project
from ..compaction.state import State
from ..edits import TIDIED, Advise
from ..engine import FoldedRequest, edits_in_force, extend_fold, prefix_hash
from ..errors import MAX_VALUE, PolicyError, closest_match, join_names
from ..facts import MAX_LOOKBACK_REQUESTS, Facts
from ..history.repeat_rates import RepeatCell, add_cells
from ..policy import PRESETS, Policy
from ..providers.bound_reasoning import binding_of
from ..regex import lazy_compile
from ..transcript import Part
from ..wire.base import SourceRun, wire_format
from ..wire.body import ObjectBody
from ..wire.json import JSON
from .prompt_cache import with_breakpoint
from .recording import Recording
from .result import RefetchCounts

_NO_FACTS = Facts()
NONE, ORACLE, FLOOR, COLD = "none", "oracle", "floor", "cold"
DEFAULT_POLICIES = (NONE, "safe", "mask-10", "clear-100k", FLOOR)
POLICY_NAMES_HELP = (
    f"none, a preset of respool's ({join_names(PRESETS)}), mask-N (all results but the last N are "
    "placeholders), clear-Nk or clear-Nk-K (above N thousand tokens all but the last K results are "
    "cleared; K is 3), cold, oracle, floor, or a TOML file of settings"
)
_DESCRIPTIONS = {
    NONE: "as it was sent",
    "safe": "respool itself",
    "lean": "respool, which also cuts what just came",
    "tight": "the same, under a budget",
    COLD: "respool, only when a pause has emptied the cache",
    "codetether": "as the agent codetether does it",
    "clark": "as the agent clark does it",
    "rfc013": "as RFC 013 does it",
    "pi-dcp": "as the extension pi-dcp does it",
    ORACLE: "keeps what is used later",
    FLOOR: "the limit, which knows what is used later",
}
_MASK = lazy_compile(r"mask-(\d{1,6})")
_CLEAR = lazy_compile(r"clear-(\d{1,6})k(?:-(\d{1,6}))?")
_DEFAULT_KEEP = 3
# Nothing is due but at a free moment, and nothing is shaped on arrival.
_COLD_SETTINGS: Mapping[str, object] = {"reevaluate_tokens": MAX_VALUE, "keep_messages": 1}


class ActiveEdit(Struct, frozen=True, gc=False):
    """One edit in force in a request: its reason, its tool and the tokens it saved."""

    reason: str
    tool: str
    saved: int


class Sender(Protocol):
    """A policy applied to one session, request by request, in order."""

    def send(self, request: int) -> Sequence[JSON]:
        """The messages that go out; one that is as it was before is the same object."""
        ...

    def change_reason(self, row: int) -> str:
        """The reason for which a row of the last request is not the client's own."""
        ...

    def active_edits(self) -> Iterator[ActiveEdit]:
        """Yield the edits in the last request."""
        ...

    def failures(self) -> Sequence[str]:
        """Return the failures in the policy itself."""
        ...

    def refetch_counts(self) -> RefetchCounts | None:
        """Return counts of refetches; None: not measured."""
        ...


SenderFactory = Callable[[Recording], Sender]  # named where policies are listed


class UnchangedSender:
    """No compaction: the client's requests, unchanged."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def send(self, request: int) -> Sequence[JSON]:
        """The messages as they were."""
        return self._recording.request(request)

    def change_reason(self, row: int) -> str:
        """The client's own doing."""
        return "the client"

    def active_edits(self) -> Iterator[ActiveEdit]:
        """Nothing."""
        return iter(())

    def failures(self) -> Sequence[str]:
        """Nothing can fail."""
        return ()

    def refetch_counts(self) -> RefetchCounts | None:
        """Not measured."""
        return None


class ResultLocation(Struct, frozen=True, gc=False):
    """A result in the history."""

    row: int
    block: int
    part: Part


class ReplacingSender(ABC):
    """The history with some results replaced; the rest is unchanged.

    Shared by all policies that decide per result: `due_count` is the number of
    results, from the first on, that are replaced in a request, `replacement` their new text.
    """

    reason = ""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.results = list(_result_locations(recording))
        self._messages = list(recording.session.messages)
        self._replaced_count = 0
        self._active: dict[int, ActiveEdit] = {}
        self._names = {
            block.call_id: block.name
            for row in recording.rows
            for block in row.blocks
            if block.kind == "call"
        }

    @abstractmethod
    def due_count(self, request: int) -> int:
        """Return the number of results replaced by now; it never decreases."""

    @abstractmethod
    def replacement(self, result: int) -> str | None:
        """Return the replacement of a result; None: it stays."""

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
        if wire_format(self.recording.session.format).has_client_breakpoints and lifetime:
            last = with_breakpoint(last, lifetime)
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
        self._active[result] = ActiveEdit(self.reason, tool, before.tokens - after.tokens)

    def change_reason(self, row: int) -> str:
        """The policy's one reason."""
        return self.reason

    def active_edits(self) -> Iterator[ActiveEdit]:
        """Yield one edit per replaced result."""
        return iter(self._active.values())

    def failures(self) -> Sequence[str]:
        """Nothing can fail."""
        return ()

    def refetch_counts(self) -> RefetchCounts | None:
        """Not measured."""
        return None


def _result_locations(recording: Recording) -> Iterator[ResultLocation]:
    for at, row in enumerate(recording.rows):
        if not any(block.kind == "result" for block in row.blocks):
            continue
        parts = recording.codec.decode(at, row.message)
        found = [part for part in parts if part.kind == "result" and not part.server]
        numbers = [n for n, block in enumerate(row.blocks) if block.kind == "result"]
        yield from (ResultLocation(at, n, part) for n, part in zip(numbers, found, strict=False))


def result_count_before(sender: ReplacingSender, cut: int) -> int:
    """Return the number of a session's results before a row."""
    low, high = 0, len(sender.results)
    while low < high:
        middle = (low + high) // 2
        if sender.results[middle].row < cut:
            low = middle + 1
        else:
            high = middle
    return low


class MaskingSender(ReplacingSender):
    """Observation masking: all results but the last few are a placeholder."""

    reason = "masked"

    def __init__(self, recording: Recording, window: int) -> None:
        super().__init__(recording)
        self._window = window

    def due_count(self, request: int) -> int:
        """All but the last few."""
        return result_count_before(self, self.recording.cuts[request]) - self._window

    def replacement(self, result: int) -> str | None:
        """The placeholder of the method's authors."""
        return "Previous output omitted."


class ClearingSender(ReplacingSender):
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
        return result_count_before(self, cut) - self._keep

    def replacement(self, result: int) -> str | None:
        """The placeholder of the method's authors."""
        return "[cleared]"


class OracleSender(ReplacingSender):
    """Of each result only the lines that some later action used.

    For each need the newest line that carries it is kept, so nothing is ever lost. The oracle cuts
    a result once the model has answered to it; the floor cuts it as it arrives, so that no edit
    ever breaks the cache.
    """

    reason = "not used later"

    def __init__(self, recording: Recording, *, on_arrival: bool) -> None:
        super().__init__(recording)
        self._on_arrival = on_arrival
        self.needed_lines = _needed_lines(self)
        self._texts = [
            _selected_lines(place.part.text, kept)
            for place, kept in zip(self.results, self.needed_lines, strict=True)
        ]

    def due_count(self, request: int) -> int:
        """All results, or all but those since the model's last answer."""
        cuts = self.recording.cuts
        if self._on_arrival:
            return result_count_before(self, cuts[request])
        return result_count_before(self, cuts[request - 1]) if request else 0

    def replacement(self, result: int) -> str | None:
        """The lines that are used later."""
        return self._texts[result]

    def unused_tokens(self) -> Iterator[tuple[ResultLocation, int]]:
        """Each result that can be cut, and the tokens that no later action uses of it."""
        for result, place in enumerate(self.results):
            text = self.replacement(result)
            if text is not None:
                yield place, self.recording.tokens_saved(place.part, text)


def _needed_lines(sender: ReplacingSender) -> list[set[int]]:
    """For each result the numbers of the lines that some later action needed from it."""
    recording = sender.recording
    number_of = {(place.row, place.block): n for n, place in enumerate(sender.results)}
    homes: dict[int, list[int]] = {}  # need -> the results that contain it
    for source in recording.sources:
        result = number_of.get((source.row, source.block))
        if result is not None:
            for need in source.needs:
                homes.setdefault(need, []).append(result)
    kept: list[set[int]] = [set() for _ in sender.results]
    starts: dict[int, list[int]] = {}
    for request, needed in enumerate(recording.turn_needs):
        before = result_count_before(sender, recording.cuts[request])
        for need in {*needed.atoms, *needed.lines}:
            at = bisect_right(homes.get(need, ()), before - 1)
            if at:
                result = homes[need][at - 1]
                text = sender.results[result].part.text
                lines = starts.setdefault(result, _line_starts(text))
                found = text.find(recording.finder.needs[need])
                kept[result].add(bisect_right(lines, found) - 1)
    return kept


def _line_starts(text: str) -> list[int]:
    """Return the offset of each line of a text."""
    lengths = [len(line) for line in text.splitlines(keepends=True)]
    return [0, *accumulate(lengths)][: len(lengths)] or [0]


def _selected_lines(text: str, kept: set[int]) -> str | None:
    """The lines that are kept, or None when that is no shorter."""
    lines: Sequence[str] = text.splitlines()
    short = "\n".join(lines[number] for number in sorted(kept)) or "-"
    return short if len(short) < len(text) else None


class ProjectionSender:
    """respool's own projections."""

    def __init__(self, recording: Recording, policy: Policy) -> None:
        self._recording = recording
        self._policy = policy
        self._folded: FoldedRequest | None = None
        self.facts = _NO_FACTS  # all facts until now
        self._changed: dict[int, JSON] = {}  # source message -> its replacement
        self._rows: list[int | None] = []  # the source of each message of the last request
        self._rows_before: list[int | None] = []  # and of the one before it
        self._cells: tuple[RepeatCell, ...] = ()  # of all requests until now

    def send(self, request: int) -> Sequence[JSON]:
        """Return the projection of one request."""
        messages = self._recording.request(request)
        self._fold(request, messages)
        assert self._folded is not None
        self._cells = add_cells((*self._cells, *self._folded.repeat_cells()))
        pieces, _ = project(self._folded.body, self._folded.state, self._folded.context)
        sent: list[JSON] = []
        self._rows_before, self._rows = self._rows, []
        for piece in pieces:
            if isinstance(piece, SourceRun):
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
        breakpoint_rows = [last] if messages[last] is not session.messages[last] else []
        asked: dict[str, JSON] = {
            "model": session.requests[request].model,
            codec.history_field: messages,
        }
        body = ObjectBody(asked, breakpoint_rows, shares=True)
        head = self._recording.conditions.head
        self.facts = self.facts.merge(self._facts_at(request, body))
        self._folded = extend_fold(
            body,
            format=codec.name,
            policy=self._policy,
            facts=self.facts,
            before=self._folded,
            head=head,
        )

    def _facts_at(self, request: int, body: ObjectBody) -> Facts:
        """Return the facts a proxy would record at this request: a cold cache, another model."""
        requests = self._recording.session.requests
        if request == 0:
            return _NO_FACTS
        now, before = requests[request], requests[request - 1]
        lifetime = self._recording.conditions.cold_after
        cold = _elapsed(before.time, now.time) > lifetime
        changed = now.model != before.model and not self._is_model_warm(request, lifetime)
        if not (cold or changed):
            return _NO_FACTS
        at = frozenset({prefix_hash(body, self._recording.codec.name, self._folded)})
        return Facts(cold=at if cold else frozenset(), changed=at if changed else frozenset())

    def _is_model_warm(self, request: int, lifetime: float) -> bool:
        """Check if the model's cache is still warm, by the same rule as the proxy."""
        requests, codec = self._recording.session.requests, self._recording.codec
        now = requests[request]
        if binding_of(codec.name, {"model": now.model}).is_bound:
            return False
        earlier = requests[max(0, request - MAX_LOOKBACK_REQUESTS) : request]
        times = [one.time for one in earlier if one.model == now.model]
        return bool(times) and _elapsed(times[-1], now.time) <= lifetime

    def _reuse_message(self, source: int | None, message: JSON) -> JSON:
        """Return the previous object of a changed message if it is equal."""
        if source is None:
            return message
        known = self._changed.get(source)
        if known is not None and known == message:
            return known
        self._changed[source] = message
        return message

    def change_reason(self, row: int) -> str:
        """Return the reasons of the edits on a row of the last request."""
        assert self._folded is not None
        state = self._folded.state
        first, end = self._changed_sources(row)
        rows = {
            at
            for at, one in enumerate(state.repairs.sources)
            if one is not None and first <= one < end
        }
        reasons = {edit.reason for edit in edits_in_force(state) if edit.ref.row in rows}
        return ", ".join(sorted(reasons)) or "repair"

    def _changed_sources(self, row: int) -> tuple[int, int]:
        """The first source message that changed, and the end of those that went or changed here."""
        now = self._rows[row] if row < len(self._rows) else len(self._recording.rows)
        before = self._rows_before[row] if row < len(self._rows_before) else None
        if now is None:
            return 0, 0  # repair made it
        if before is not None and before < now:
            return before, now  # these were dropped
        return now, now + 1

    def active_edits(self) -> Iterator[ActiveEdit]:
        """Yield the edits in the last request."""
        if self._folded is None:
            return
        index = self._folded.state.transcript
        transcript = index.freeze()
        by_place = {part.ref: at for at, part in enumerate(index.parts)}
        for edit in edits_in_force(self._folded.state):
            if isinstance(edit, Advise):
                continue  # it elides nothing
            at = by_place.get(edit.ref)
            call = transcript.call_of(at) if at is not None else None
            yield ActiveEdit(edit.reason, call.name if call is not None else "", edit.saved)

    def failures(self) -> Sequence[str]:
        """Return the passes that failed."""
        failed = self._folded.state.evaluation.failures if self._folded is not None else {}
        return [f"{name}: {why}" for name, why in failed.items()]

    def refetch_counts(self) -> RefetchCounts:
        """Return counts of refetches, after a cut or with an intact copy."""
        if self._folded is None:
            return RefetchCounts()
        state = self._folded.state
        cut = sum(not _is_intact(state, position) for position in state.transcript.results)
        return RefetchCounts(
            after_cut=len(state.refetches.found),
            tokens=sum(one.tokens for one in state.refetches.found),
            standing=len(state.refetches.repeats),
            cut=cut,
            whole=len(state.transcript.results) - cut,
            cells=self._cells,
        )


def _is_intact(state: State, position: int) -> bool:
    """Check if a result is complete, here or in the copy that it refers to."""
    edit = state.edits.by_part.get(position)
    tidied = edit is not None and edit.reason == TIDIED
    return position not in state.edits.claimed or tidied or position in state.edits.dependencies


def _elapsed(before: float | None, now: float | None) -> float:
    """The seconds between two times; none where one is not known."""
    return 0.0 if before is None or now is None else now - before


def sender_factory(name: str) -> SenderFactory:
    """Return the sender factory of a policy name."""
    if name == NONE:
        return UnchangedSender
    if name in (ORACLE, FLOOR):
        return lambda recording: OracleSender(recording, on_arrival=name == FLOOR)
    if found := _MASK.fullmatch(name):
        window = int(found[1])
        return lambda recording: MaskingSender(recording, window)
    if found := _CLEAR.fullmatch(name):
        trigger, kept = int(found[1]) * 1000, int(found[2] or _DEFAULT_KEEP)
        return lambda recording: ClearingSender(recording, trigger, kept)
    settings = _policy_settings(name)
    return lambda recording: ProjectionSender(recording, settings)


def describe_policy(name: str) -> str:
    """Describe a policy in a few words.

    >>> describe_policy("mask-10"), describe_policy("clear-100k")
    ('keeps the last 10 tool results', 'above 100k tokens keeps the last 3')
    """
    if found := _MASK.fullmatch(name):
        return f"keeps the last {int(found[1])} tool results"
    if found := _CLEAR.fullmatch(name):
        return f"above {int(found[1])}k tokens keeps the last {int(found[2] or _DEFAULT_KEEP)}"
    return _DESCRIPTIONS.get(name, "respool with these settings")


def _policy_settings(name: str) -> Policy:
    if name in PRESETS:
        return Policy.preset(name)
    if name == COLD:
        return Policy().with_values(_COLD_SETTINGS, "policy cold")
    if name.endswith(".toml"):
        return Policy.from_toml(Path(name))
    near = closest_match(name, (*PRESETS, *DEFAULT_POLICIES, ORACLE, COLD))
    hint = f" Did you mean {near}?" if near else ""
    raise PolicyError(f"There is no policy {name!r}.{hint} A policy is {POLICY_NAMES_HELP}.")
