"""Markers: grammar, rendering and parsing of references to originals.

    [respool: clipped Bash result of 48,213 chars to 32,000; 590 of 1,024 lines left out here;
    call toolu_01; ref 5kq7…]                                                    (on one line)
    [respool: 590 of 1,024 lines left out; ref 5kq7…]
    [respool: 412 lines left out, read again by call toolu_09; safe to run again; ref 5kq7…]

Where a text is cut in several places, `[… 37 lines]` stands in each, and one marker at its end.
docs/reference/markers.md has the grammar. A text counts as shaped only if a whole line of it
parses.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .media import MEDIA_UNITS

MAX_MARKER_CHARS = 259  # characters in a marker
_MARKER_START = "[respool: "
_MAX_NAME_CHARS = 48  # characters of a tool's name or a call's id that are worth showing
_INVALID_NAME_CHAR = re.compile(r"[^A-Za-z0-9_.:/@-]")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_BASE32_PAIRS = [one + other for one in _BASE32 for other in _BASE32]  # ten bits each

_CLIP_PATTERN = re.compile(
    r"\[respool: clipped (?P<tool>[A-Za-z0-9_.:/@-]{1,48}) result of (?P<size>[\d,]{1,15}) chars"
    r" to (?P<cap>[\d,]{1,15}); (?P<gone>[\d,]{1,15}) of (?P<all>[\d,]{1,15})"
    r" (?P<unit>lines|chars) left out here"
    r"(?:, (?P<errors>[\d,]{1,15}) error lines of them kept below)?"
    r"; call (?P<call>[A-Za-z0-9_.:/@-]{1,48})"
    r"(?P<rerun>; safe to run again)?"
    r"(?:; (?P<fetch>[A-Za-z0-9_.:/@-]{1,48}) gets it back)?"
    r"; ref (?P<ref>[a-z2-7]{20})\]",
    re.ASCII,
)


UNITS = (
    "lines",
    "chars",
    "rows",
    "keys",
    "items",
    "hits",
    "entries",
    "hunks",
    "calls",
    "paragraphs",
    "repeats",
    *MEDIA_UNITS,  # one marker for each of them, so they are named one by one
)
_UNIT = "|".join(UNITS)
_MAX_REASON_CHARS = 90  # characters of a reason that are worth showing
_INVALID_REASON_CHAR = re.compile(r"[^A-Za-z0-9 ,._/:@'()+*=-]")

_OMISSION_PATTERN = re.compile(
    r"\[respool: (?P<gone>[\d,]{1,15})(?: of (?P<all>[\d,]{1,15}))? (?P<unit>"
    + _UNIT
    + r") left out"
    r"(?:, (?P<why>[A-Za-z0-9 ,._/:@'()+*=-]{1,90}))?"
    r"(?P<rerun>; safe to run again)?"
    r"(?:; (?P<fetch>[A-Za-z0-9_.:/@-]{1,48}) gets it back)?"
    r"; ref (?P<ref>[a-z2-7]{20})\]",
    re.ASCII,
)
ADVICE_START: Final = "[respool noticed: "
_MAX_ADVICE_CHARS = 1_000  # characters of advice
_ADVICE_PATTERN = re.compile(r"\[respool noticed: [^\[\]\r\n]{1,1000}\]")
_BRACKETS_TO_PARENTHESES = str.maketrans("[]", "()")
_GAP_PATTERN = re.compile(r"\[… (?P<gone>[\d,]{1,15}) (?P<unit>" + _UNIT + r")\]", re.ASCII)
_NAME_PATTERN = r"[A-Za-z0-9_./:@\\-]{5,}"
_NAMES_PATTERN = re.compile(
    rf"\[names only there: {_NAME_PATTERN}(?:, {_NAME_PATTERN}){{0,11}}\]", re.ASCII
)


class OmissionMarker(Struct, frozen=True, gc=False):
    """A marker that names no cap: how much is left out, and why where that helps a reader."""

    omitted: int
    unit: str
    ref: str
    total: int | None = None  # of how much; None: of as much
    reason: str = ""  # follows "left out, "
    is_rerun_safe: bool = False
    fetch_tool: str | None = None  # the tool by which the model can get it back

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        said = _clean_reason(self.reason) if self.reason else ""
        why = f", {said}" if said else ""
        rerun = "; safe to run again" if self.is_rerun_safe else ""
        fetch = f"; {_clean_name(self.fetch_tool)} gets it back" if self.fetch_tool else ""
        omitted = f"{self.omitted:,}{of} {self.unit} left out"
        return f"{_MARKER_START}{omitted}{why}{rerun}{fetch}; ref {self.ref}]"


def gap_line(omitted: int, unit: str) -> str:
    """What stands in each place of a text that is cut in several, beside the one marker."""
    return f"[… {omitted:,} {unit}]"


def parse_gap(line: str) -> tuple[int, str] | None:
    """How much was taken out where a line stands, and in which unit; None: nothing."""
    found = _GAP_PATTERN.fullmatch(line)
    return None if found is None else (_parse_number(found["gone"]), found["unit"])


def is_gap_line(line: str) -> bool:
    """Whether a line stands for what was taken out in its place."""
    return _GAP_PATTERN.fullmatch(line) is not None


def is_names_line(line: str) -> bool:
    """Whether a line tells the names that stood only where a hole is.

    >>> is_names("[names only there: one_thread, src/cloth.py]")
    True
    """
    return _NAMES_PATTERN.fullmatch(line) is not None


class ClipMarker(Struct, frozen=True, gc=False):
    """What the marker of a result over its cap says, in its own fields."""

    tool: str
    size: int
    cap: int
    omitted: int
    total: int
    unit: str
    errors: int
    call: str
    is_rerun_safe: bool
    ref: str
    fetch_tool: str | None = None  # the tool by which the model can get it back

    def __str__(self) -> str:
        short = _MAX_NAME_CHARS // 3
        fetch = f"; {_clean_name(self.fetch_tool)} gets it back" if self.fetch_tool else ""
        told = (self._format(_MAX_NAME_CHARS, fetch), self._format(short, fetch))
        return next((text for text in told if len(text) <= MAX_MARKER_CHARS), None) or self._format(
            short, ""
        )

    def _format(self, max_name_chars: int, fetch: str) -> str:
        """The marker with names of at most so many characters."""
        tool, call = _clean_name(self.tool, max_name_chars), _clean_name(self.call, max_name_chars)
        errors = f", {self.errors:,} error lines of them kept below" if self.errors else ""
        rerun = "; safe to run again" if self.is_rerun_safe else ""
        return (
            f"{_MARKER_START}clipped {tool} result of {self.size:,} chars to {self.cap:,}; "
            f"{self.omitted:,} of {self.total:,} {self.unit} left out here{errors}; "
            f"call {call}{rerun}{fetch}; ref {self.ref}]"
        )


def reference(text: str) -> str:
    """The reference of an original: a hash of what it says.

    >>> reference("hello")
    'ftze3os7wcrq4jxihmvm'
    """
    return reference_of_pieces((text,))


def reference_of_pieces(pieces: Iterable[str]) -> str:
    """The reference of a text that is given in pieces, and need not be put together for it."""
    told = hashlib.sha256()
    for piece in pieces:
        told.update(piece.encode("utf-8", "surrogatepass"))
    bits = int.from_bytes(told.digest()[:13]) >> 4  # the hundred that twenty characters hold
    return "".join([_BASE32_PAIRS[bits >> shift & 1023] for shift in range(90, -1, -10)])


def parse_marker(line: str) -> ClipMarker | OmissionMarker | None:
    """The marker that this line is, or None."""
    if short := _OMISSION_PATTERN.fullmatch(line):
        return _parse_omission(short)
    found = _CLIP_PATTERN.fullmatch(line)
    if found is None:
        return None
    return ClipMarker(
        found["tool"],
        _parse_number(found["size"]),
        _parse_number(found["cap"]),
        _parse_number(found["gone"]),
        _parse_number(found["all"]),
        found["unit"],
        _parse_number(found["errors"] or "0"),
        found["call"],
        found["rerun"] is not None,
        found["ref"],
        found["fetch"],
    )


def _parse_omission(found: re.Match[str]) -> OmissionMarker:
    all = found["all"]
    return OmissionMarker(
        _parse_number(found["gone"]),
        found["unit"],
        found["ref"],
        None if all is None else _parse_number(all),
        found["why"] or "",
        found["rerun"] is not None,
        found["fetch"],
    )


def find_marker(text: str) -> ClipMarker | OmissionMarker | None:
    """The first whole marker that stands on a line of its own in this text."""
    at = text.find(_MARKER_START)
    while at >= 0:
        if at == 0 or text[at - 1] == "\n":
            line, _, _ = text[at : at + MAX_MARKER_CHARS + 1].partition("\n")
            marker = parse_marker(line) if len(line) <= MAX_MARKER_CHARS else None
            if marker is not None:
                return marker
        at = text.find(_MARKER_START, at + 1)
    return None


def has_gaps(text: str) -> bool:
    """Whether something was taken out of a text before: it would not be clear who did.

    >>> has_gaps("weave()\\n[… 3 lines]\\nrest()"), has_gaps("weave()  # [… 3 lines]")
    (True, False)
    """
    return find_marker(text) is not None or (
        "[… " in text and any(is_gap_line(line.rstrip("\r")) for line in text.split("\n"))
    )


def advice_line(text: str) -> str:
    """Advice as it may stand in a result: on one line, which is recognised by its grammar.

    >>> advice_line("The same again.\\nTry [something] else.")
    '[respool noticed: The same again. Try (something) else.]'
    """
    fit = " ".join(text.split()).translate(_BRACKETS_TO_PARENTHESES)
    fit = fit if len(fit) <= _MAX_ADVICE_CHARS else f"{fit[: _MAX_ADVICE_CHARS - 2].rstrip()}.."
    return f"{ADVICE_START}{fit}]"


def is_advice_line(line: str) -> bool:
    """Whether a line is advice.

    >>> is_advice(advice_line("The same again.")), is_advice("[respool noticed: ]")
    (True, False)
    """
    return _ADVICE_PATTERN.fullmatch(line) is not None


def append_advice(text: str, line: str) -> str:
    """What a result says with advice at its end."""
    return f"{text}\n{line}" if text else line


def strip_advice(text: str) -> str:
    """What a result says without the advice at its end; the same object where there is none."""
    if not text.endswith("]"):
        return text  # nearly all
    at = text.rfind(ADVICE_START, max(0, len(text) - _MAX_ADVICE_CHARS - len(ADVICE_START) - 1))
    if at < 0 or (at and text[at - 1] != "\n") or _ADVICE_PATTERN.fullmatch(text, at) is None:
        return text
    return text[: max(0, at - 1)]


def _parse_number(digits: str) -> int:
    return int(digits.replace(",", "") or "0")


def _clean_reason(reason: str) -> str:
    """A reason as it may stand in a marker: on one line, without what ends one."""
    fit = " ".join(_INVALID_REASON_CHAR.sub(" ", reason).split())
    return fit if len(fit) <= _MAX_REASON_CHARS else f"{fit[: _MAX_REASON_CHARS - 2].rstrip()}.."


def _clean_name(name: str, max_chars: int = _MAX_NAME_CHARS) -> str:
    """A name as it may stand in a marker: no spaces or brackets, and not too long."""
    fit = _INVALID_NAME_CHAR.sub("_", name) or "unknown"
    return fit if len(fit) <= max_chars else f"{fit[: max_chars - 2]}.."
