"""What a model asks for, read forgivingly: it writes these arguments by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .answer import Unanswerable

_REF: Final = re.compile(r"(?:^|\bref )([a-z2-7]{20})(?![a-z0-9])", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:\s*[-:–]\s*(\d{1,9})?)?", re.ASCII)
_END: Final = re.compile(r"(first|last)\s+(\d{1,9})(?:\s+lines)?", re.ASCII)
_BEHIND: Final = 10**9
_SHOWN: Final = 60


def reference_in(arguments: Mapping[str, Any]) -> str:
    """The reference that is asked for: alone, or in the marker that it stands in."""
    given = arguments.get("ref")
    found = _REF.search(given.strip()) if isinstance(given, str) else None
    if found is None:
        raise Unanswerable(
            f"ref={_shown(given)} is no reference. It stands in the marker, behind the word "
            '"ref": twenty characters, of a-z and 2-7.'
        )
    return found[1]


def lines_in(arguments: Mapping[str, Any], count: int) -> tuple[int, int] | None:
    """The first and the last line that are asked for; None: all of them."""
    given = arguments.get("lines")
    text = str(given).strip().lower() if type(given) in (str, int) else ""
    if given is None or given == "":
        return None
    if end := _END.fullmatch(text):
        number = int(end[2])
        return (1, number) if end[1] == "first" else (max(1, count - number + 1), _BEHIND)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise Unanswerable(
            f'lines={_shown(given)} is not allowed; write "120-180", "120-" for all from there '
            'on, "first 40" or "last 40".'
        )
    first = int(found[1])
    return first, int(found[2] or (first if text.isdigit() else _BEHIND))


def text_in(arguments: Mapping[str, Any], name: str) -> str | None:
    """A text that may be asked for; an empty one counts as none."""
    given = arguments.get(name)
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise Unanswerable(f"{name}={_shown(given)} is not allowed; allowed is a text.")
    return given


def number_in(arguments: Mapping[str, Any], name: str, default: int, minimum: int) -> int:
    """A whole number that may be asked for."""
    given = arguments.get(name)
    number = default if given is None else given
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 10:
        number = int(number)
    if type(number) is not int or number < minimum:
        raise Unanswerable(
            f"{name}={_shown(given)} is not allowed; allowed is a whole number from {minimum} on."
        )
    return number


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
