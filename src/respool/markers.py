"""Markers: grammar, rendering and parsing of references to originals; mimicry of them by models.

    [respool: clipped Bash result of 48,213 chars to 32,000; 590 of 1,024 lines left out here;
    from npm test; ref 5kq7…]                                                    (on one line)
    [respool: 590 of 1,024 lines left out; ref 5kq7…]
    [respool: 412 lines left out, shown again in the read of src/cloth.py further down; ref 5kq7…]

A text that is cut in several places has `[… 37 lines]` in each, and one marker at its end.
docs/reference/markers.md has the grammar. A text is recognised as cut only if a whole line parses.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from .media import MEDIA_UNITS
from .regex import lazy_compile
from .transcript import Part, Ref

MAX_MARKER_CHARS = 256
RESERVED_MARKER_CHARS = 259  # of a clipped text, for its marker and the line breaks around it
_MARKER_START = "[respool: "
_MAX_NAME_CHARS = 48  # of a tool's name
_MAX_SUBJECT_CHARS = 60  # of the file or command that a clipped result is from
_MIN_SUBJECT_CHARS = 16  # with less room it is left out
_INVALID_NAME_CHAR = lazy_compile(r"[^A-Za-z0-9_.:/@-]")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_BASE32_PAIRS = [one + other for one in _BASE32 for other in _BASE32]  # ten bits each

# Any character but brackets, semicolons, control characters and lone surrogates.
_NOT_SAID = r"\[\];\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"

_CLIP_PATTERN = lazy_compile(
    r"\[respool: clipped (?P<tool>[A-Za-z0-9_.:/@-]{1,48}) result of (?P<size>[\d,]{1,15}) chars"
    r" to (?P<cap>[\d,]{1,15}); (?P<gone>[\d,]{1,15}) of (?P<all>[\d,]{1,15})"
    r" (?P<unit>lines|chars) left out here"
    r"(?:, (?P<errors>[\d,]{1,15}) error lines of them kept below)?"
    r"(?:; from (?P<subject>[^" + _NOT_SAID + r"]{1,60}))?"
    r"(?P<rerun>; safe to run again)?"
    r"(?:; (?P<fetch>[A-Za-z0-9_.:/@-]{1,48}) gets it back)?"
    r"; ref (?P<ref>[a-z2-7]{20})\]",
    re.ASCII,
)


UNITS = (
    "lines",
    "parts",  # of long lines
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
    *MEDIA_UNITS,  # one marker each
)
_UNIT = "|".join(UNITS)
_MAX_REASON_CHARS = 120
_NOT_SAID_CHARS = lazy_compile(f"[{_NOT_SAID}]+")

_OMISSION_PATTERN = lazy_compile(
    r"\[respool: (?P<gone>[\d,]{1,15})(?: of (?P<all>[\d,]{1,15}))? (?P<unit>"
    + _UNIT
    + r") left out"
    r"(?:, (?P<why>[^" + _NOT_SAID + r"]{1,120}))?"
    r"(?P<rerun>; safe to run again)?"
    r"(?:; (?P<fetch>[A-Za-z0-9_.:/@-]{1,48}) gets it back)?"
    r"; ref (?P<ref>[a-z2-7]{20})\]",
    re.ASCII,
)
ADVICE_START: Final = "[respool noticed: "
_MAX_ADVICE_CHARS = 1_000
_ADVICE_PATTERN = lazy_compile(r"\[respool noticed: [^\[\]\r\n]{1,1000}\]")
_BRACKETS_TO_PARENTHESES = str.maketrans("[]", "()")
_GAP_PATTERN = lazy_compile(r"\[… (?P<gone>[\d,]{1,15}) (?P<unit>" + _UNIT + r")\]", re.ASCII)
_NAME_PATTERN = r"[A-Za-z0-9_./:@\\-]{5,}"
_NAMES_PATTERN = lazy_compile(
    rf"\[names left out: {_NAME_PATTERN}(?:, {_NAME_PATTERN}){{0,11}}\]", re.ASCII
)


class OmissionMarker(Struct, frozen=True, gc=False):
    """A marker without a cap: the omitted amount, and the reason if it helps a reader."""

    omitted: int
    unit: str
    ref: str
    total: int | None = None  # None: the same as omitted
    reason: str = ""  # follows "left out, "
    is_rerun_safe: bool = False
    fetch_tool: str | None = None  # the tool by which the model can get it back

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        start = f"{_MARKER_START}{self.omitted:,}{of} {self.unit} left out"
        rerun = "; safe to run again" if self.is_rerun_safe else ""
        fetch = f"; {_clean_name(self.fetch_tool)} gets it back" if self.fetch_tool else ""
        end = f"{rerun}{fetch}; ref {self.ref}]"
        left = MAX_MARKER_CHARS - len(start) - len(end) - 2
        reason = _clean_words(self.reason, min(_MAX_REASON_CHARS, left)) if self.reason else ""
        return f"{start}{f', {reason}' if reason else ''}{end}"


def gap_line(omitted: int, unit: str) -> str:
    """The line in each place of a text that is cut in several places."""
    return f"[… {omitted:,} {unit}]"


def parse_gap(line: str) -> tuple[int, str] | None:
    """The omitted amount of a gap line and its unit; None: not a gap line."""
    found = _GAP_PATTERN.fullmatch(line)
    return None if found is None else (_parse_number(found["gone"]), found["unit"])


def is_gap_line(line: str) -> bool:
    """Return whether a line is a gap line."""
    return _GAP_PATTERN.fullmatch(line) is not None


def is_names_line(line: str) -> bool:
    """Return whether a line lists names of a gap that do not stand in the text that stays.

    >>> is_names_line("[names left out: one_thread, src/cloth.py]")
    True
    """
    return _NAMES_PATTERN.fullmatch(line) is not None


class ClipMarker(Struct, frozen=True, gc=False):
    """The marker of a result over its cap."""

    tool: str
    size: int
    cap: int
    omitted: int
    total: int
    unit: str
    errors: int
    subject: str  # the file or command that it is from; empty if not known
    is_rerun_safe: bool
    ref: str
    fetch_tool: str | None = None  # the tool by which the model can get it back

    def __str__(self) -> str:
        fetch = f"; {_clean_name(self.fetch_tool)} gets it back" if self.fetch_tool else ""
        short = _MAX_NAME_CHARS // 3
        start, end = self._start(_MAX_NAME_CHARS), self._end(fetch)
        if len(start) + len(end) > MAX_MARKER_CHARS:
            start = self._start(short)
        if len(start) + len(end) > MAX_MARKER_CHARS:
            end = self._end("")
        return f"{start}{self._from(MAX_MARKER_CHARS - len(start) - len(end))}{end}"

    def _start(self, max_name_chars: int) -> str:
        """The marker up to its counts, with a name of at most `max_name_chars` characters."""
        errors = f", {self.errors:,} error lines of them kept below" if self.errors else ""
        return (
            f"{_MARKER_START}clipped {_clean_name(self.tool, max_name_chars)} result of "
            f"{self.size:,} chars to {self.cap:,}; "
            f"{self.omitted:,} of {self.total:,} {self.unit} left out here{errors}"
        )

    def _from(self, max_chars: int) -> str:
        """The file or command, as far as it fits."""
        left = min(_MAX_SUBJECT_CHARS, max_chars - len("; from "))
        subject = _clean_words(self.subject, max(left, _MIN_SUBJECT_CHARS))
        return f"; from {subject}" if subject and len(subject) <= left else ""

    def _end(self, fetch: str) -> str:
        rerun = "; safe to run again" if self.is_rerun_safe else ""
        return f"{rerun}{fetch}; ref {self.ref}]"


def reference(text: str) -> str:
    """The reference of an original: a hash of its text.

    >>> reference("hello")
    'ftze3os7wcrq4jxihmvm'
    """
    return reference_of_pieces((text,))


class ReferenceCache:
    """References of texts, each computed once."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}  # by hash of the text

    def of(self, text: str) -> str:
        """The reference of an original."""
        known = self._known.get(hash(text))
        if known is None:
            known = self._known[hash(text)] = reference(text)
        return known


def reference_of_pieces(pieces: Iterable[str]) -> str:
    """The reference of a text that is given in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode("utf-8", "surrogatepass"))
    bits = int.from_bytes(digest.digest()[:13]) >> 4  # 100 bits: twenty characters
    return "".join([_BASE32_PAIRS[bits >> shift & 1023] for shift in range(90, -1, -10)])


def parse_marker(line: str) -> ClipMarker | OmissionMarker | None:
    """Parse a line as a marker; None if it is none."""
    if short := _OMISSION_PATTERN.fullmatch(line):
        return _parse_omission(short)
    found = _CLIP_PATTERN.fullmatch(line)
    if found is None:
        return None
    return ClipMarker(
        tool=found["tool"],
        size=_parse_number(found["size"]),
        cap=_parse_number(found["cap"]),
        omitted=_parse_number(found["gone"]),
        total=_parse_number(found["all"]),
        unit=found["unit"],
        errors=_parse_number(found["errors"] or "0"),
        subject=found["subject"] or "",
        is_rerun_safe=found["rerun"] is not None,
        ref=found["ref"],
        fetch_tool=found["fetch"],
    )


def _parse_omission(found: re.Match[str]) -> OmissionMarker:
    total = found["all"]
    return OmissionMarker(
        omitted=_parse_number(found["gone"]),
        unit=found["unit"],
        ref=found["ref"],
        total=None if total is None else _parse_number(total),
        reason=found["why"] or "",
        is_rerun_safe=found["rerun"] is not None,
        fetch_tool=found["fetch"],
    )


def find_marker(text: str) -> ClipMarker | OmissionMarker | None:
    """The first marker of a text that has a line of its own."""
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
    """Return whether a text was cut before, by respool or by another tool.

    >>> has_gaps("weave()\\n[… 3 lines]\\nrest()"), has_gaps("weave()  # [… 3 lines]")
    (True, False)
    """
    return find_marker(text) is not None or (
        "[… " in text and any(is_gap_line(line.rstrip("\r")) for line in text.split("\n"))
    )


def advice_line(text: str) -> str:
    """Format advice as one line of a result, which the grammar recognises.

    >>> advice_line("The same again.\\nTry [something] else.")
    '[respool noticed: The same again. Try (something) else.]'
    """
    fit = " ".join(text.split()).translate(_BRACKETS_TO_PARENTHESES)
    fit = fit if len(fit) <= _MAX_ADVICE_CHARS else f"{fit[: _MAX_ADVICE_CHARS - 2].rstrip()}.."
    return f"{ADVICE_START}{fit}]"


def is_advice_line(line: str) -> bool:
    """Return whether a line is advice.

    >>> is_advice_line(advice_line("The same again.")), is_advice_line("[respool noticed: ]")
    (True, False)
    """
    return _ADVICE_PATTERN.fullmatch(line) is not None


def append_advice(text: str, line: str) -> str:
    """The text of a result with advice at its end."""
    return f"{text}\n{line}" if text else line


def strip_advice(text: str) -> str:
    """The text of a result without advice at its end; the same object if it has none."""
    if not text.endswith("]"):
        return text  # the common case
    at = text.rfind(ADVICE_START, max(0, len(text) - _MAX_ADVICE_CHARS - len(ADVICE_START) - 1))
    if at < 0 or (at and text[at - 1] != "\n") or _ADVICE_PATTERN.fullmatch(text, at) is None:
        return text
    return text[: max(0, at - 1)]


def _parse_number(digits: str) -> int:
    return int(digits.replace(",", "") or "0")


def _clean_words(words: str, max_chars: int) -> str:
    """Words as a marker may contain them: on one line, without reserved characters."""
    fit = " ".join(_NOT_SAID_CHARS.sub(" ", words).split())
    return fit if len(fit) <= max_chars else f"{fit[: max_chars - 2].rstrip()}.."


def _clean_name(name: str, max_chars: int = _MAX_NAME_CHARS) -> str:
    """A name as a marker may contain it: no spaces or brackets, and not too long."""
    fit = _INVALID_NAME_CHAR.sub("_", name) or "unknown"
    return fit if len(fit) <= max_chars else f"{fit[: max_chars - 2]}.."


# --- mimicry: markers and placeholders that a model writes itself ------------------------------


MimicryKind = Literal["marker", "hole", "names", "advice", "repeat", "call"]

# The starts of markers, gaps, lists of names, and advice.
_LINE_STARTS = ("[respool: ", "[… ", "[names left out: ", ADVICE_START)
_SIGNS = (*_LINE_STARTS, "[\\u2026 ", "repeat_of")  # every marker contains one of them
_REPEAT = "repeat_of"
# A line that describes a call as rendered histories do, in either style.
_CALL_SIGNS = ("The assistant called ", "[Tool Call: ")
_CALL_DESCRIPTION = lazy_compile(
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
