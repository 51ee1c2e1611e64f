"""Mimicry: respool's own markers and placeholders in model output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from ..markers import ADVICE_START, is_advice_line, is_gap_line, is_names_line, parse_marker
from ..transcript import Part, Ref

MimicryKind = Literal["marker", "hole", "names", "advice", "repeat", "call"]

# The starts of markers, gaps, lists of names, and advice.
_LINE_STARTS = ("[respool: ", "[… ", "[names only there: ", ADVICE_START)
_SIGNS = (*_LINE_STARTS, "[\\u2026 ", "repeat_of")  # one of them is in whatever counts
_REPEAT = "repeat_of"
# A line that describes a call as rendered histories do, in either style.
_CALL_SIGNS = ("The assistant called ", "[Tool Call: ")
_CALL_DESCRIPTION = re.compile(
    r"The assistant called \S{1,80}(?: \((?:id \S{1,80}|call \d{1,6} of this turn)\))?"
    r"(?:, run by the provider,)? with(?:out arguments\.$| \{|$)"
    r"|\[Tool Call: [^\s(]{1,80}\("
)
_REPEAT_KEYS = {_REPEAT, "bytes", "ref"}  # all that stands in an object of ours
_MAX_QUOTED_CHARS = 120  # characters of what was written that a report quotes
_MAX_DEPTH = 40  # levels of arguments that are searched


def _is_marker(line: str) -> bool:
    return parse_marker(line) is not None


# Our lines; where a text has several, the first kind is reported.
_LINE_KINDS: tuple[tuple[MimicryKind, Callable[[str], bool]], ...] = (
    ("marker", _is_marker),
    ("hole", is_gap_line),
    ("names", is_names_line),
    ("advice", is_advice_line),
)


class Mimicry(Struct, frozen=True, gc=False):
    """One place where a model wrote what only respool writes."""

    ref: Ref
    kind: MimicryKind
    tool: str  # the tool that was called with it; "" in plain text
    said: str  # the line, or the start of the object

    @property
    def where(self) -> str:
        """Place of the text, for a sentence."""
        return f"arguments of {self.tool}" if self.tool else "text"


def find_mimicry(parts: Sequence[Part]) -> list[Mimicry]:
    """All text of ours in these parts of model output."""
    found: list[Mimicry] = []
    for part in parts:
        if part.kind == "text" and (line := _described_call(part.text)):
            found.append(Mimicry(part.ref, "call", "", line[:_MAX_QUOTED_CHARS]))
        if part.kind in ("text", "call") and any(sign in part.text for sign in _SIGNS):
            tool = (part.name or "a tool") if part.kind == "call" else ""
            said = _mimicry_in_part(part)
            found += (
                Mimicry(part.ref, kind, tool, text[:_MAX_QUOTED_CHARS]) for kind, text in said
            )
    return found


def _described_call(text: str) -> str | None:
    """The first line in which a model describes a call instead of making it."""
    if not any(sign in text for sign in _CALL_SIGNS):
        return None
    return next((line for line in text.split("\n") if _CALL_DESCRIPTION.match(line)), None)


def _mimicry_in_part(part: Part) -> Iterator[tuple[MimicryKind, str]]:
    if part.kind == "text":
        return _mimicry_in_text(part.text)
    try:
        arguments: Any = msgspec.json.decode(part.text)
    except (ValueError, RecursionError):
        return _mimicry_in_text(part.text)  # a tool that takes text: a patch, a script
    return _mimicry_in_value(arguments, _MAX_DEPTH)


def _mimicry_in_text(text: str) -> Iterator[tuple[MimicryKind, str]]:
    """The first marker in a text, or else the first other line of ours."""
    lines = [
        _strip_line(line) for line in text.split("\n") if any(sign in line for sign in _LINE_STARTS)
    ]
    for kind, is_one in _LINE_KINDS:
        for line in lines:
            if is_one(line):
                yield kind, line
                return


def _strip_line(line: str) -> str:
    """A line without its indent, and without the sign by which a patch adds it to a file."""
    return line.strip().removeprefix("+").strip()


def _mimicry_in_value(value: Any, depth: int) -> Iterator[tuple[MimicryKind, str]]:
    if isinstance(value, str):
        yield from _mimicry_in_text(value)
    elif depth and isinstance(value, list):
        for one in cast(list[Any], value):
            yield from _mimicry_in_value(one, depth - 1)
    elif depth and isinstance(value, dict):
        table = cast(dict[str, Any], value)
        if isinstance(table.get(_REPEAT), str) and table.keys() <= _REPEAT_KEYS:
            yield "repeat", msgspec.json.encode(table).decode()
        for one in table.values():
            yield from _mimicry_in_value(one, depth - 1)
