"""Loop detector, for a whole history and for a host's own calls, and its messages."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..errors import invalid_value
from ..history.failures import clip_error_line
from ..history.ledger import Ledger
from ..markers import advice_line
from ..providers.base import Codec, split_steps
from ..tools import Tools
from ..transcript import Exchange, Part, ReadOnlyTranscript, TranscriptIndex
from ..wire.json import JSON
from .observations import REFUSAL_PREFIX, PendingCall, observe_call, pending_call
from .patterns import LoopCall, LoopKind, LoopLevel, LoopLimits, LoopTracker

_LEDGER_KEY: Final = "loops"  # key in the ledger's extensions

Action = Literal["allow", "advise", "refuse"]
_ALLOWED_TOOLS = "a respool.Tools, or None"
_ENCODE_ERRORS = (TypeError, ValueError, RecursionError, OverflowError, UnicodeError)


class HistoryScan:
    """Append-only scan of a history, kept with its ledger; its findings never change."""

    def __init__(self, limits: LoopLimits) -> None:
        self.loop_calls: dict[int, LoopCall] = {}  # by exchange, if it is part of a loop
        self._tracker = LoopTracker(limits)
        self._done = 0  # exchanges scanned
        self._next_part = 0  # the first part after the last of them
        self._lock = Lock()

    def extend(self, history: ReadOnlyTranscript, ledger: Ledger) -> None:
        """Scan the exchanges of the ledger that were not scanned yet.

        The ledger may hold more of the same conversation than this history.
        """
        known = min(len(ledger.uses), len(history.exchanges))
        with self._lock:
            for ordinal in range(self._done, known):
                exchange = history.exchanges[ordinal]
                if has_user_input(history, self._next_part, exchange.call):
                    self._tracker.reset()
                self._next_part = exchange.call + 1
                self._note(history, ledger, exchange)
            self._done = max(self._done, known)

    def _note(self, history: ReadOnlyTranscript, ledger: Ledger, exchange: Exchange) -> None:
        result = _timely_result(history, exchange)
        if result is None or exchange.server:
            return
        call = history.parts[exchange.call]
        observed = observe_call(
            pending_call(call.name, call.text, ledger.uses[exchange.ordinal]),
            result.text,
            result.error,
        )
        if observed is not None:
            found = self._tracker.note(observed, exchange.ordinal, exchange.unit)
            if found is not None:
                self.loop_calls[exchange.ordinal] = found


def loop_calls(history: ReadOnlyTranscript, ledger: Ledger) -> Mapping[int, LoopCall]:
    """The loop calls by exchange, for all exchanges of the ledger."""
    if _LEDGER_KEY not in ledger.extensions:
        # One of two concurrent scans is kept.
        ledger.extensions.setdefault(_LEDGER_KEY, HistoryScan(LoopLimits()))
    scan: HistoryScan = ledger.extensions[_LEDGER_KEY]
    scan.extend(history, ledger)
    return scan.loop_calls


def advice(history: ReadOnlyTranscript, ledger: Ledger, unseen_from: int) -> Mapping[int, str]:
    """The advice to append to new results, by position; usually empty.

    It depends only on the history before each exchange, so it is reproducible.
    """
    rounds = loop_calls(history, ledger)
    fresh = history.results[bisect_left(history.results, unseen_from) :]
    found = ((at, rounds.get(history.exchange_of[at])) for at in fresh)
    return {at: describe_loop(one) for at, one in found if one is not None and one.should_speak}


def _timely_result(history: ReadOnlyTranscript, exchange: Exchange) -> Part | None:
    """The result, if it came before the next model output; a later one was not visible."""
    at = exchange.result
    if at is None or at >= history.units[exchange.unit].parts[1]:
        return None
    return history.parts[at]


def has_user_input(history: ReadOnlyTranscript, start: int, end: int) -> bool:
    """Check whether these parts contain user input: text in a message without results."""
    parts = history.parts
    answering = {parts[at].ref.row for at in range(start, end) if parts[at].kind == "result"}
    return any(
        parts[at].speaker == "user"
        and parts[at].kind in ("text", "media")
        and parts[at].ref.row not in answering
        for at in range(start, end)
    )


class Loop(Struct, frozen=True, kw_only=True):
    """A loop that the detector would have advised on."""

    kind: LoopKind
    tool: str
    operation: str
    target: str | None
    calls: tuple[int, ...]  # exchanges, in order
    repeated: tuple[int, ...]  # exchanges after the first lap: the wasted ones
    advised: tuple[int, ...]  # exchanges whose results would have carried advice
    level: LoopLevel  # highest level reached
    count: int  # calls, or laps of a cycle, at the last advice
    message: str  # the last advice

    @property
    def advised_after(self) -> int:
        """The number of calls before the first advice."""
        return sum(one <= self.advised[0] for one in self.calls)


def find_loops(
    history: ReadOnlyTranscript, ledger: Ledger, limits: LoopLimits | None = None
) -> list[Loop]:
    """The loops of a history that its ledger covers, in order of their start."""
    scan = HistoryScan(limits or LoopLimits())
    scan.extend(history, ledger)
    return group_loops(scan.loop_calls)


def group_loops(rounds: Mapping[int, LoopCall]) -> list[Loop]:
    """Group loop calls into loops; loops without advice are left out."""
    by_loop: dict[tuple[str, int], dict[int, LoopCall]] = {}
    for ordinal, one in sorted(rounds.items()):
        by_loop.setdefault((one.kind, one.loop), {})[ordinal] = one
    loops = [
        _build_loop(of) for of in by_loop.values() if any(one.should_speak for one in of.values())
    ]
    return sorted(loops, key=lambda one: one.calls)


def _build_loop(rounds: Mapping[int, LoopCall]) -> Loop:
    spoke = [ordinal for ordinal, one in rounds.items() if one.should_speak]
    last = rounds[spoke[-1]]
    calls = sorted({ordinal for one in rounds.values() for ordinal in one.members})
    return Loop(
        kind=last.kind,
        tool=last.tool,
        operation=last.operation,
        target=last.target,
        calls=tuple(calls),
        repeated=tuple(calls[max(1, len(last.lap)) :]),
        advised=tuple(spoke),
        level=last.level or "advise",
        count=last.count,
        message=describe_loop(last),
    )


def index_history(
    codec: Codec, messages: Sequence[JSON], tools: Tools, definitions: Mapping[str, Any]
) -> tuple[TranscriptIndex, Ledger]:
    """Index messages as they were sent, without repairs."""
    index, ledger = TranscriptIndex(), Ledger()
    for step in split_steps(codec, messages):
        model: list[Part] = []
        answers: list[Part] = []
        for row, message in enumerate(step.messages, step.at):
            made = codec.is_model_made(message)
            (model if made else answers).extend(codec.decode(row, message))
        index.add_unit((step.at, step.at + len(step.messages)), model, answers, locked=False)
    ledger.extend(
        0, exchanges=index.exchanges, parts=index.parts, tools=tools, definitions=definitions
    )
    return index, ledger


class Verdict(Struct, frozen=True):
    """The detector's decision about a call before it is made.

    `advise`: make the call and append the message to its result. `refuse`: do not make the call,
    and give the model the message in place of a result.
    """

    action: Action = "allow"
    message: str = ""
    kind: LoopKind | None = None  # kind of the loop the call belongs to, even without a message
    level: LoopLevel | None = None  # severity
    operation: str = ""
    target: str | None = None
    count: int = 0  # repetitions including this call; for errors, without it


ALLOWED: Final = Verdict()


class LoopDetector:
    """Loop detector for the calls of one conversation.

    >>> detector = LoopDetector()
    >>> for _ in range(2):
    ...     detector.tell("Read", {"file_path": "a.py"}, "print(1)")
    >>> verdict = detector.ask("Read", {"file_path": "a.py"})
    >>> verdict.action, verdict.message[:49]
    ('advise', '[respool noticed: Read (a.py) was called twice wi')
    """

    def __init__(
        self,
        *,
        tools: Tools | None = None,
        advise: int = 3,
        insist: int = 5,
        stop: int = 8,
        leeway: int = 2,
        patience: int = 4,
    ) -> None:
        _validate_tools(tools)
        self.limits: Final = LoopLimits(
            advise=advise, insist=insist, stop=stop, leeway=leeway, patience=patience
        )
        self._tools = tools or Tools()
        self._tracker = LoopTracker(self.limits)
        self._calls = 0
        self._batch = 0  # of the last call
        self._host_batch: object = None  # the host's name of that batch

    def ask(
        self, name: str, arguments: Mapping[str, Any] | str, *, batch: object = None
    ) -> Verdict:
        """Decide whether to make a call; asking changes no state.

        `batch` is the same for calls that the model requested together, even if they run one by
        one: a number, or the id of the response. Without it, each call counts as made after the
        result of the last.
        """
        found = self._tracker.predict(self._pending_call(name, arguments), self._batch_of(batch))
        return ALLOWED if found is None else _verdict(found)

    def tell(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        result: object,
        error: bool = False,
        *,
        batch: object = None,
    ) -> None:
        """Record the result of a call that was made; refused calls are not recorded."""
        observed = observe_call(self._pending_call(name, arguments), _text(result), bool(error))
        if observed is not None:
            self._calls += 1
            self._batch, self._host_batch = self._batch_of(batch), batch
            self._tracker.note(observed, self._calls, self._batch, ahead=True)

    def heard(self) -> None:
        """Record user input, after which repeated calls have a new reason."""
        self._tracker.reset()

    def _batch_of(self, host_batch: object) -> int:
        """The number of a batch: that of the last call, or the next one."""
        return self._batch + (host_batch is None or host_batch != self._host_batch)

    def _pending_call(self, name: str, arguments: Mapping[str, Any] | str) -> PendingCall:
        text = _text(arguments)
        return pending_call(str(name), text, self._tools.use_of(str(name), text))


def _validate_tools(tools: object) -> None:
    if tools is not None and not isinstance(tools, Tools):
        raise invalid_value("LoopDetector: ", "tools", tools, _ALLOWED_TOOLS)


def _verdict(found: LoopCall) -> Verdict:
    refused = found.level == "stop" and found.is_exact and not found.is_waiting
    action: Action = "refuse" if refused else "advise" if found.should_speak else "allow"
    message = "" if action == "allow" else warning_text(found, refused=refused)
    return Verdict(
        action=action,
        message=message,
        kind=found.kind,
        level=found.level,
        operation=found.operation,
        target=found.target,
        count=found.count,
    )


def _text(value: object) -> str:
    """Arguments or a result as text: unchanged, as JSON, or as `str`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except _ENCODE_ERRORS:
        pass
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except Exception:  # noqa: BLE001 - what a host's object does when it is shown is its own
        return ascii(type(value))


# --- messages ----------------------------------------------------------------------------------


_MAX_NAMED: Final = 4  # calls of a lap that are named
_MAX_TARGET_CHARS: Final = 80  # characters of a target

_SUGGESTIONS: Final[dict[LoopKind, str]] = {
    "repeat": "Use what it returned, or change something before calling it again.",
    "variation": "The change makes no difference: look for the cause elsewhere.",
    "cycle": "Leave this order: decide by what is known by now, or try something else.",
    "error": "Look at what the error names, or take another way to the same end.",
}
_FAILING: Final = "Look at what the error names before trying again, or take another way."
_WAITING: Final = "Wait longer between two looks, or go on with something else."
_ESCALATIONS: Final[dict[LoopLevel, str]] = {
    "advise": "",
    "insist": " This was said before, and it goes on.",
    "stop": " Stop this now; if there is no other way, say so and ask.",
}


def warning_text(loop_call: LoopCall, *, refused: bool) -> str:
    """The message of a verdict, before the call is made."""
    description = describe_loop(loop_call, ahead=True)
    return f"{REFUSAL_PREFIX}{description}]" if refused else advice_line(description)


def describe_loop(loop_call: LoopCall, *, ahead: bool = False) -> str:
    """Describe a loop in two or three sentences; with `ahead`, its last call is still to come."""
    count = loop_call.count - (ahead and loop_call.kind != "error")
    error = clip_error_line(loop_call.error).rstrip(".:")
    ended = f" The error is: {error}." if error and loop_call.kind != "error" else ""
    happened = _describe_calls(loop_call, _times(count), error)
    return f"{happened}{ended} {_suggestion(loop_call)}{_ESCALATIONS[loop_call.level or 'advise']}"


def _describe_calls(loop_call: LoopCall, times: str, error: str) -> str:
    what = call_label(loop_call.tool, loop_call.operation, loop_call.target)
    match loop_call.kind:
        case "repeat":
            same = "the same result, and nothing was changed in between"
            return f"{what} was called {times} with {same}."
        case "variation":
            return f"{what} was called {times} with one word changed, and brought nothing new."
        case "cycle":
            lap = len(loop_call.lap)
            same = f"The same {lap} calls in the same order had the same results {times}"
            return f"{same}: {_lap_names(loop_call)}."
        case "error":
            return f"{what} failed {times} with the same error: {error or 'it does not say which'}."


def _suggestion(loop_call: LoopCall) -> str:
    if loop_call.is_waiting:
        return _WAITING
    return (
        _FAILING if loop_call.error and loop_call.kind == "repeat" else _SUGGESTIONS[loop_call.kind]
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _lap_names(one: LoopCall) -> str:
    uses = [(call.name, call.use) for call in one.lap]
    names = list(dict.fromkeys(call_label(name, use.operation, use.target) for name, use in uses))
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def call_label(tool: str, operation: str, target: str | None) -> str:
    """A call by tool, operation and target."""
    what = " ".join((tool if operation == "default" else f"{tool} {operation}").split())
    line = " ".join((target or "").split())
    shown = line if len(line) <= _MAX_TARGET_CHARS else f"{line[: _MAX_TARGET_CHARS - 1]}…"
    return f"{what or 'A call'} ({shown})" if shown else what or "A call"
