"""Loop patterns: repeats, variations, cycles, errors, and their levels."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Literal, TypeVar

from msgspec import Struct

from ..errors import invalid_value, whole_number
from .observations import ObservedCall, PendingCall, differing_word, line_hashes

LoopKind = Literal["repeat", "variation", "cycle", "error"]
LoopLevel = Literal["advise", "insist", "stop"]

LOOP_KINDS: Final[tuple[LoopKind, ...]] = ("repeat", "variation", "cycle", "error")
_COUNT = "a whole number of calls from 2"
_LATER = "a whole number of calls, each larger than the one before: advise < insist < stop"
_MORE = "a whole number of calls from 0"
_TIMES = "a whole number from 1"

MAX_MEMBERS: Final = 200  # exchanges reported per loop
MAX_GAP_CALLS: Final = 30  # calls; a later return is a new occasion
_MAX_OPEN: Final = 256  # open streaks; the oldest is dropped
_MIN_VARIATIONS: Final = 2  # variations needed to differ from a plain repeat
_MIN_RESULT_CHARS: Final = 40  # characters; a shorter result may report that nothing was found
_MAX_COMPARED_LINES: Final = 2_000  # lines stored per group of variations
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_MAX_ERRORS_PER_TARGET: Final = 8  # distinct errors of one target
_MAX_ERROR_GAP_CALLS: Final = 60  # calls; a later return is a new occasion
MAX_LAP_CALLS: Final = 8  # calls in a lap
_LAPS: Final = 2
_RANK: Final = {None: 0, "advise": 1, "insist": 2, "stop": 3}


class LoopLimits(Struct, frozen=True):
    """The call counts after which the detector advises, insists and stops.

    Two equal calls are normal: a check, a flaky test. A loop begins with the third that shows
    nothing new (docs/loops.md has the measurements).
    """

    advise: int = 3
    insist: int = 5
    stop: int = 8
    leeway: int = 2  # extra calls for variations and errors: each may be a new attempt
    patience: int = 4  # factor for calls that wait, where no change is expected

    def __post_init__(self) -> None:
        last = 1
        for name in ("advise", "insist", "stop"):
            last = self._validate(name, max(2, last + 1), _COUNT if last == 1 else _LATER)
        self._validate("leeway", 0, _MORE)
        self._validate("patience", 1, _TIMES)

    def _validate(self, name: str, min_value: int, allowed: str) -> int:
        value: object = getattr(self, name)
        try:
            return whole_number(value, min_value, allowed)
        except ValueError as error:
            raise invalid_value("LoopDetector: ", name, value, str(error)) from None

    def weigh(self, count: int, *, loose: bool = False, waits: bool = False) -> int:
        """Convert a count of calls to that of plain repeats."""
        tight = count - self.leeway if loose else count
        return tight // self.patience if waits else tight

    def level(self, weight: int) -> LoopLevel | None:
        """The severity of a weight."""
        if weight >= self.stop:
            return "stop"
        if weight >= self.insist:
            return "insist"
        return "advise" if weight >= self.advise else None

    def should_speak(self, weight: int, before: int) -> bool:
        """Check whether to give advice now: at each new level, and at intervals after the last."""
        return self._advice_count(weight) > self._advice_count(before)

    def _advice_count(self, weight: int) -> int:
        """The number of messages up to this weight."""
        if weight < self.stop:
            return (weight >= self.advise) + (weight >= self.insist)
        return 3 + (weight - self.stop) // (self.stop - self.insist)


class CallTime(Struct, frozen=True, gc=False):
    """The time of a call."""

    now: int  # calls so far
    ordinal: int  # of its exchange
    batch: int  # equal for calls made together
    changes_before: int  # calls so far that may have changed something
    changes_after: int


class LoopCall(Struct, frozen=True, kw_only=True):
    """One call that is part of a loop."""

    kind: LoopKind
    loop: int  # equal for the calls of one loop of a kind
    call: PendingCall
    count: int  # calls so far, or laps of a cycle
    level: LoopLevel | None
    should_speak: bool  # advice is due at this call
    members: tuple[int, ...] = ()  # its exchange; with advice, the earlier ones too
    error: str = ""  # the error returned
    is_waiting: bool = False  # it waits for something
    is_exact: bool = False  # same call, same result: refusing it loses nothing
    lap: tuple[PendingCall, ...] = ()  # the calls of one lap of a cycle

    @property
    def tool(self) -> str:
        """The tool of the call."""
        return self.call.name

    @property
    def operation(self) -> str:
        """The operation of the call."""
        return self.call.use.operation

    @property
    def target(self) -> str | None:
        """The target of the call."""
        return self.call.use.target


class _Streak(Struct):
    """Similar calls since the last change."""

    first: CallTime
    last: CallTime
    seen: ObservedCall  # the latest
    ordinals: list[int]  # of their exchanges
    count: int = 1
    lines: frozenset[int] = frozenset()  # the lines all of them showed
    varied: int = 0

    def loop_call(
        self, limits: LoopLimits, kind: LoopKind, count: int, call: PendingCall
    ) -> LoopCall:
        """The loop call with this number."""
        exact, waits = kind == "repeat", self.seen.is_waiting
        is_certain = exact and self.seen.is_rejected  # then one call less is enough
        weight, before = (
            limits.weigh(number + is_certain, loose=not exact, waits=waits)
            for number in (count, count - 1)
        )
        speaks = limits.should_speak(weight, before)
        return LoopCall(
            kind=kind,
            loop=self.first.now,
            call=call,
            count=count,
            level=limits.level(weight),
            should_speak=speaks,
            members=tuple(self.ordinals if speaks else self.ordinals[-1:]),
            error=self.seen.error,
            is_waiting=waits,
            is_exact=exact,
        )

    def add(self, observed: ObservedCall, at: CallTime) -> None:
        """Add a call."""
        self.count += 1
        self.last, self.seen = at, observed
        if len(self.ordinals) < MAX_MEMBERS:
            self.ordinals.append(at.ordinal)

    def can_continue(self, now: int, changes: int) -> bool:
        """Check whether a call made now can extend the streak: nothing else changed since."""
        return now - self.last.now <= MAX_GAP_CALLS and changes == self.last.changes_after


def store_newest(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Store a value as the newest of its table; drop the oldest if it is full."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _MAX_OPEN:
        del table[next(iter(table))]


class Repeats:
    """Detector of repeated calls with equal results."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, str], _Streak] = {}

    def predict(self, call: PendingCall, now: int, changes: int, batch: int) -> LoopCall | None:
        """The loop call if the result is the same again."""
        streak = self._open.get(call.repeat_key)
        if streak is None or streak.last.batch == batch or not streak.can_continue(now, changes):
            return None
        return streak.loop_call(self._limits, "repeat", streak.count + 1, call)

    def note(self, observed: ObservedCall, at: CallTime) -> LoopCall | None:
        """Record a call with its result."""
        call = observed.call.repeat_key
        streak = self._open.get(call)
        if streak is None or not self._is_repeat(streak, observed, at):
            if observed.is_informative:
                store_newest(self._open, call, _Streak(at, at, observed, [at.ordinal]))
            else:
                self._open.pop(call, None)
            return None
        store_newest(self._open, call, streak)
        if streak.last.batch == at.batch:  # the model had not seen the other result
            streak.last, streak.seen = at, observed
            return None
        streak.add(observed, at)
        return streak.loop_call(self._limits, "repeat", streak.count, observed.call)

    def _is_repeat(self, streak: _Streak, observed: ObservedCall, at: CallTime) -> bool:
        same = streak.seen.has_same_result(observed)
        return same and observed.is_informative and streak.can_continue(at.now, at.changes_before)


class Variations:
    """Detector of calls that differ in one word and show nothing new."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], _Streak] = {}

    def predict(self, call: PendingCall, now: int, changes: int, batch: int) -> LoopCall | None:
        """The loop call if the result shows nothing new."""
        streak = self._open.get(call.variation_key)
        if streak is None or streak.count < 2 or not streak.can_continue(now, changes):
            return None
        if streak.last.batch == batch:
            return None
        if differing_word(streak.seen.call.words, call.words) is None:
            return None
        return streak.loop_call(self._limits, "variation", streak.count + 1, call)

    def note(self, observed: ObservedCall, at: CallTime) -> LoopCall | None:
        """Record a call with its result."""
        group = observed.call.variation_key
        streak = self._open.get(group)
        if not _can_vary(observed):
            self._open.pop(group, None)
            return None
        if streak is not None and streak.last.batch == at.batch:
            return None
        lines = None if streak is None else self._shown_lines(streak, observed, at)
        if streak is None or lines is None:
            store_newest(self._open, group, _Streak(at, at, observed, [at.ordinal]))
            return None
        streak.varied += streak.seen.call.words != observed.call.words
        streak.lines = lines
        streak.add(observed, at)
        store_newest(self._open, group, streak)
        if streak.varied < _MIN_VARIATIONS:
            return None
        return streak.loop_call(self._limits, "variation", streak.count, observed.call)

    def _shown_lines(
        self, streak: _Streak, observed: ObservedCall, at: CallTime
    ) -> frozenset[int] | None:
        """The lines shown so far, if this call added none; otherwise None."""
        before = streak.seen
        ended = before.failed == observed.failed and before.is_waiting == observed.is_waiting
        if not ended or not streak.can_continue(at.now, at.changes_before):
            return None
        varied = differing_word(before.call.words, observed.call.words)
        if varied is None:
            return streak.lines if before.has_same_result(observed) else None
        if not observed.failed and before.call.use.reads != observed.call.use.reads:
            return None  # it continues a read
        known = streak.lines | line_hashes(before.text, varied[0])
        if len(known) > _MAX_COMPARED_LINES or not line_hashes(observed.text, varied[1]) <= known:
            return None
        return known


def _can_vary(observed: ObservedCall) -> bool:
    """Check whether a call with one word changed may be the same attempt.

    Not after a write, which did something else. Not without a target, which may differ. Not for a
    search or a very short result: finding nothing is news for each word. Not if the result is too
    long to be compared line by line.
    """
    use = observed.call.use
    found = observed.failed or (use.kind != "search" and len(observed.text) >= _MIN_RESULT_CHARS)
    has_target = use.target is not None and bool(observed.call.words)
    return has_target and found and not observed.has_written and not observed.is_long


class _ErrorCount(Struct):
    """Counter of one error of one target."""

    first: CallTime
    last: CallTime
    error: str
    ordinals: list[int]
    count: int = 1
    unchanged: int = 1  # those with no change since the previous one
    advised_weight: int = 0  # the weight at the last advice


class ErrorCounters:
    """Counters of failures by target; each success decrements them by one."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], dict[str, _ErrorCount]] = {}

    def predict(self, call: PendingCall, now: int, batch: int) -> LoopCall | None:
        """The most frequent error of the target, before it is tried again."""
        error = self._worst(call, now)
        if error is None or error.last.batch == batch:
            return None
        return self._loop_call(error, call)

    def note_advice(self, call: PendingCall, now: int, fault: str | None = None) -> None:
        """Record that advice was given about one error, or the most frequent one."""
        lines = self._open.get(call.failure_key, {})
        error = self._worst(call, now) if fault is None else lines.get(fault)
        if error is not None:
            error.advised_weight = max(error.advised_weight, self._weigh(error))

    def note(self, observed: ObservedCall, at: CallTime) -> LoopCall | None:
        """Record a call with its result."""
        key = observed.call.failure_key
        if not observed.failed:
            self._decrement(key)
            return None
        lines = self._open.get(key, {})
        store_newest(self._open, key, lines)
        error = lines.get(observed.failure_key)
        if error is None or at.now - error.last.now > _MAX_ERROR_GAP_CALLS:
            lines.pop(observed.failure_key, None)
            lines[observed.failure_key] = _ErrorCount(at, at, observed.error, [at.ordinal])
            if len(lines) > _MAX_ERRORS_PER_TARGET:
                del lines[next(iter(lines))]
            return None
        if error.last.batch == at.batch:
            return None
        error.count += 1
        error.unchanged = (
            error.unchanged + 1 if at.changes_before == error.last.changes_after else 1
        )
        error.last = at
        if len(error.ordinals) < MAX_MEMBERS:
            error.ordinals.append(at.ordinal)
        return self._loop_call(error, observed.call)

    def _decrement(self, key: tuple[str, ...]) -> None:
        """Decrement every error of a target."""
        lines = self._open.get(key)
        if lines is None:
            return
        for fault, error in [*lines.items()]:
            error.count -= 1
            error.unchanged = min(error.unchanged, error.count)
            if error.count <= 0:
                del lines[fault]
        if not lines:
            del self._open[key]

    def _worst(self, call: PendingCall, now: int) -> _ErrorCount | None:
        lines = self._open.get(call.failure_key, {})
        recent = [one for one in lines.values() if now - one.last.now <= _MAX_ERROR_GAP_CALLS]
        return max(recent, key=lambda one: one.count, default=None)

    def _weigh(self, error: _ErrorCount) -> int:
        """The weight of an error: a change in between makes each try a new attempt."""
        return max(self._limits.weigh(error.count, loose=True), error.unchanged)

    def _loop_call(self, error: _ErrorCount, call: PendingCall) -> LoopCall:
        weight = self._weigh(error)
        speaks = self._limits.should_speak(weight, error.advised_weight)
        return LoopCall(
            kind="error",
            loop=error.first.now,
            call=call,
            count=error.count,
            level=self._limits.level(weight),
            should_speak=speaks,
            members=tuple(error.ordinals if speaks else error.ordinals[-1:]),
            error=error.error,
        )


class _Step(Struct, frozen=True):
    """One call of a lap."""

    seen: ObservedCall
    at: CallTime

    def equals(self, other: _Step) -> bool:
        """Check whether call and result are the same."""
        one, two = self.seen, other.seen
        return one.has_same_result(two) and one.call.repeat_key == two.call.repeat_key


class Cycles:
    """Detector of cycles: for each lap length, the run of calls that equal those one lap before."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._steps: deque[_Step] = deque(maxlen=_LAPS * MAX_LAP_CALLS)
        self._matches = [0] * (MAX_LAP_CALLS + 1)

    def predict(self, call: PendingCall) -> LoopCall | None:
        """The loop call if the lap continues."""
        lap = self._lap()
        if lap is None or self._steps[-lap].seen.call.repeat_key != call.repeat_key:
            return None
        return self._loop_call(lap, self._matches[lap] + 1, call, ())

    def note(self, observed: ObservedCall, at: CallTime) -> LoopCall | None:
        """Record a call with its result."""
        step = _Step(observed, at)
        for lap in range(1, MAX_LAP_CALLS + 1):
            again = len(self._steps) >= lap and step.equals(self._steps[-lap])
            self._matches[lap] = self._matches[lap] + 1 if again else 0
        self._steps.append(step)
        lap = self._lap()
        if lap is None:
            return None
        same = self._matches[lap]
        steps = list(self._steps)[-_LAPS * lap :] if same == lap else [step]
        return self._loop_call(lap, same, observed.call, tuple(one.at.ordinal for one in steps))

    def _lap(self) -> int | None:
        """The shortest lap that ran twice, with several calls that would show a change."""
        if self._matches[1] >= _LAPS:
            return None  # one call after itself is a repeat
        for lap in range(2, MAX_LAP_CALLS + 1):
            if self._matches[lap] >= lap:
                steps = list(self._steps)[-lap:]
                return lap if any(one.seen.is_informative for one in steps) else None
        return None

    def _loop_call(
        self, lap: int, same: int, call: PendingCall, members: tuple[int, ...]
    ) -> LoopCall:
        """The loop after this many calls that equal those one lap before."""
        steps = [one.seen for one in list(self._steps)[-lap:]]
        laps, waits = same // lap + 1, any(one.is_waiting for one in steps)
        weight, before = (self._limits.weigh(count, waits=waits) for count in (laps, laps - 1))
        return LoopCall(
            kind="cycle",
            loop=self._steps[-1].at.now - self._matches[lap],
            call=call,
            count=laps,
            level=self._limits.level(weight),
            should_speak=same % lap == 0 and self._limits.should_speak(weight, before),
            members=members,
            is_waiting=waits,
            is_exact=True,
            lap=tuple(one.call for one in steps),
        )


class LoopTracker:
    """Detector of all loop patterns; linear in time and bounded in memory."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._now = 0
        self._changes = 0
        self._start()

    def _start(self) -> None:
        self._repeats = Repeats(self._limits)
        self._variations = Variations(self._limits)
        self._cycles = Cycles(self._limits)
        self._errors = ErrorCounters(self._limits)

    def reset(self) -> None:
        """Forget everything after user input: later calls have a new reason."""
        self._start()

    def predict(self, call: PendingCall, batch: int) -> LoopCall | None:
        """The loop that this call would be part of if it brought nothing new.

        A call made together with the last one is not a reaction to its result.
        """
        now, changes = self._now + 1, self._changes
        return self._cycles.predict(call) or _worst_loop(
            self._repeats.predict(call, now, changes, batch),
            self._variations.predict(call, now, changes, batch),
            self._errors.predict(call, now, batch),
        )

    def note(
        self, observed: ObservedCall, ordinal: int, batch: int, *, ahead: bool = False
    ) -> LoopCall | None:
        """Record a call with its result, and return the loop call if it is part of a loop.

        With `ahead`, advice is given before a call, not after it.
        """
        if ahead:
            self._note_advised(observed.call, batch)
        self._now += 1
        before = self._changes
        self._changes += observed.has_written
        at = CallTime(
            now=self._now,
            ordinal=ordinal,
            batch=batch,
            changes_before=before,
            changes_after=self._changes,
        )
        cycle = self._cycles.note(observed, at)
        alone = _worst_loop(
            self._repeats.note(observed, at),
            self._variations.note(observed, at),
            self._errors.note(observed, at),
        )
        found = cycle or alone  # each call of a cycle is also a repeat, which says less
        if not ahead and found is not None and found.level is not None:
            self._errors.note_advice(observed.call, self._now, observed.failure_key)
        return found

    def _note_advised(self, call: PendingCall, batch: int) -> None:
        """Record the advice already due when this call was asked about, to avoid a repeat."""
        predicted = self.predict(call, batch)
        if predicted is not None and predicted.level is not None:
            self._errors.note_advice(call, self._now + 1)


def _worst_loop(*found: LoopCall | None) -> LoopCall | None:
    """The worst of these loops; of equals the first, which says more."""
    loops = [one for one in found if one is not None]
    return max(loops, key=lambda one: _RANK[one.level], default=None)
