"""Messages about loops: calls, results and suggestions."""

from __future__ import annotations

from typing import Final

from ..history.failures import clip_error_line
from ..markers import advice_line
from .observations import REFUSAL_PREFIX
from .patterns import LoopCall, LoopKind, LoopLevel

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
