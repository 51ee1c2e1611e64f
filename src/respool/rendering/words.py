"""What a call and a result say as text, in each style, and the fences that hold them.

Whatever a tool printed stands between fences that it cannot close: they are longer than any run of
backticks in it, or carry its hash. So a result cannot pass itself off as the frame around it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..marker import reference

StyleName = Literal["text", "text-only", "rfc013"]

OPENING = (
    "Record of tool use, kept by the client; "
    "calls are made through the tool interface, never written as text."
)
OPENING_WITHOUT_TOOLS = "Record of tool use, kept by the client; no tool can be called now."
CLOSING = "End of the record."
NO_WORDS = "(no words here)"  # a turn of the model that has to be there, and said nothing
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/@-]+", re.ASCII)
_RUNS = re.compile(r"`{3,}")
_LONGEST_FENCE = 16  # backticks; where a text would need more, its hash closes it
_MOST_IN_LINE = 2_000  # characters of arguments that stand on the line that tells of the call


class Called(Struct, frozen=True, gc=False):
    """A call, as it is told."""

    name: str
    id: str
    number: int  # its place among the calls of its turn, from 1 on
    is_only_call: bool  # whether it is the only call of its turn
    arguments: str
    extra_json: tuple[str, ...] = ()  # what else it was given, as JSON
    server: bool = False  # run by the provider itself


class Answered(Struct, frozen=True, gc=False):
    """A result, as it is told."""

    name: str
    id: str
    number: int
    is_only_call: bool
    text: str
    error: bool = False
    extra_json: tuple[str, ...] = ()  # what it holds that is neither its text nor media, as JSON
    media: tuple[str, ...] = ()  # "image" or "file", for each of those that follow it


class Style(Struct, frozen=True):
    """How calls and results are told."""

    calls_by_model: bool  # whether calls stand in the model's own turn
    keep_definitions: bool  # whether tool definitions go along
    opening: str  # before the first entry of a message
    closing: str  # before what the user says behind entries
    call: Callable[[Called], str]
    result: Callable[[Answered], str]
    thought: Callable[[str], str]


def fenced(text: str) -> str:
    """A text between fences that nothing in it can close.

    >>> print(fenced("a\\n```\\nb"))
    ````
    a
    ```
    b
    ````
    """
    longest = max(map(len, _RUNS.findall(text)), default=2)
    fence = "`" * (longest + 1) if longest < _LONGEST_FENCE else f"~~~ {reference(text)}"
    return f"{fence}\n{text}\n{fence}"


def _name(name: str) -> str:
    """A tool's name or an id as it may stand in a sentence."""
    if not name:
        return "a tool without a name"
    if _PLAIN_NAME.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())  # other ends of lines, too


def _is_line(text: str) -> bool:
    """Whether a text can stand on a line of other words: short, and without a line's end."""
    return len(text) <= _MOST_IN_LINE and text.isprintable() and text.strip() == text


def _which(one: Called | Answered) -> str:
    """What tells a call from the others."""
    if one.id:
        return f" (id {_name(one.id)})"
    return "" if one.is_only_call else f" (call {one.number} of this turn)"


# --- in plain sentences ----------------------------------------------------------------------


def _call_told(call: Called) -> str:
    by = ", run by the provider," if call.server else ""
    opening = f"The assistant called {_name(call.name)}{_which(call)}{by}"
    with_what = _given(call.arguments, "with") if call.arguments else "without arguments."
    return "\n".join([f"{opening} {with_what}", *(_given(x, "It was given") for x in call.extra_json)])


def _given(text: str, how: str) -> str:
    """A text on the line that leads up to it, or fenced below."""
    return f"{how} {text}" if _is_line(text) else f"{how}\n{fenced(text)}"


def _result_told(result: Answered) -> str:
    tool = _name(result.name) if result.name else "A tool"
    who = tool if result.is_only_call and result.name else f"{tool}{_which(result)}"
    told: list[str] = []
    if result.text:
        how = "failed with" if result.error else "returned"
        told.append(f"{who} {how}\n{fenced(result.text)}")
    elif result.error:
        told.append(f"{who} failed and said nothing.")
    elif not result.extra_json and not result.media:
        told.append(f"{who} returned nothing.")
    for one in result.extra_json:
        told.append(_given(one, "It also returned" if told else f"{who} returned"))
    if result.media:
        subject = "It also" if told else who
        told.append(f"{subject} returned {_listed(result.media)}, shown next.")
    return "\n".join(told)


def _listed(media: Sequence[str]) -> str:
    """How many images and files, for a sentence."""
    counts = Counter(media)
    told = [f"{count} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()]
    return " and ".join(told)


def _thought_told(text: str) -> str:
    return f"The assistant thought\n{fenced(text)}"


# --- as RFC 013 has it -----------------------------------------------------------------------


def _rfc_id(one: Called | Answered) -> str:
    return one.id or f"{one.name or 'tool'}_{one.number}"


def _rfc_call(call: Called) -> str:
    told = f"[Tool Call: {call.name}({call.arguments}) -> call_id: {_rfc_id(call)}]"
    return "\n".join([told, *call.extra_json])


def _rfc_result(result: Answered) -> str:
    """A result; RFC 013 says nothing of failures and of what is not text, so that is added."""
    failed = " (failed)" if result.error else ""
    said = result.text or "(empty)"
    lines = [f"[Tool Result for {_rfc_id(result)}{failed}]: {said}", *result.extra_json]
    if result.media:
        lines.append(f"({_listed(result.media)} next)")
    return "\n".join(lines)


def _rfc_thought(text: str) -> str:
    return f"[Reasoning: {text}]"


_TOLD = (_call_told, _result_told, _thought_told)
STYLES: Mapping[StyleName, Style] = {
    "text": Style(False, True, OPENING, CLOSING, *_TOLD),
    "text-only": Style(False, False, OPENING_WITHOUT_TOOLS, CLOSING, *_TOLD),
    "rfc013": Style(True, True, "", "", _rfc_call, _rfc_result, _rfc_thought),
}
