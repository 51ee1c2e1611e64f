"""Classification of a text by kind of content."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final, Literal

from ..regex import lazy_compile
from ..tools.use import Content
from .decoration import split_frame
from .excerpt import is_numbered
from .outline import has_outline
from .structured_data import is_rule

ShapeKind = Content | Literal["other"]

_SAMPLE_CHARS = 2_048  # characters that are checked
_SAMPLE_LINES = 24
_EDITED = lazy_compile(
    r"(?:The file |File |Successfully |Success\b|Wrote |Updated |Created |Edited |Applied )"
)
_TEST_WORDS: Final = (
    "=== RUN ", "--- PASS", "--- FAIL", "test session starts", "test result:", "Test Suites:",
    "Test Files ", "\nok  \t", "FAIL\t", "✓ ", "(pass)", "Tests:",
)  # fmt: skip
_COUNTED = lazy_compile(r"\d (?:pass|fail)(?:ed|ing)?\b")
_HIT = lazy_compile(
    r"(?!\d)(?:[A-Za-z]:)?(?:[^:\s]{1,300}:\d{1,7}:|[^:\s]{1,300}?-\d{1,7}-|[^:\s]{1,300}/[^:\s]*:)"
    r"|--$|\d{1,7}:"
)
_ENTRY = lazy_compile(
    r"[dlcbps-][rwxsStT-]{9}|[│├└|` ]{1,40}[─-]{2}|\S{1,400}/?$|(?:[ MADRCU?!]{2}|[a-f0-9]{7,40}) "
    r"\S|\d{6} (?:blob|tree) "
)
_HEADINGS: Final = ("\n# ", "\n## ", "\n### ", "→# ", "→## ", "→### ", "\t# ", "\t## ", "\t### ")
_HTML = lazy_compile(r"\s{0,20}<(?:!doctype|html|head|body|article|main|div)\b", re.IGNORECASE)

_BY_HINT: Final[Mapping[Content | None, frozenset[ShapeKind]]] = {
    "code": frozenset(("json", "diff", "code", "page")),
    "page": frozenset(("json", "diff", "page")),
    "test": frozenset(("json", "diff", "test", "table", "log")),
    "log": frozenset(("json", "diff", "test", "table", "log")),
    "hits": frozenset(("json", "hits")),
    "listing": frozenset(("json", "diff", "listing")),
}


def can_be(kinds: Container[ShapeKind], hint: Content | None) -> bool:
    """Check whether a text with this hint may be of one of these kinds."""
    known = _BY_HINT.get(hint)
    return known is None or any(kind in kinds for kind in known)


def classify(text: str, hint: Content | None) -> ShapeKind:
    """The kind of a text; the hint of its call counts if the text agrees with it."""
    text = split_frame(text).body
    if _is_json(text):
        return "json"
    sample = f"\n{text[:_SAMPLE_CHARS]}"
    if hint != "hits" and _is_diff(sample):
        return "diff"
    match hint:
        case "code" | "page":
            paged = hint == "code" and _heading_count(sample) > 2 and not has_outline(sample[1:])
            return "page" if paged else hint
        case "test" | "log":
            return "test" if _is_test(text, sample) else "table" if _is_table(sample) else "log"
        case "hits" | "listing":
            return hint
        case "edit" if _is_edit(text):
            return "edit"
        case "table" if _is_table(sample):
            return "table"
        case _:
            return _classify_text(text, sample)


def _classify_text(text: str, sample: str) -> ShapeKind:
    """The kind of a text, by its beginning."""
    if _is_edit(text):
        return "edit"
    if is_numbered(text):
        return "page" if _heading_count(sample) > 2 and not has_outline(sample[1:]) else "code"
    if _is_table(sample):
        return "table"
    if _is_test(text, sample):
        return "test"
    lines = _first_lines(sample)
    if len(lines) > 3 and _match_ratio(_HIT, lines) > 0.7:
        return "hits"
    if len(lines) > 3 and _match_ratio(_ENTRY, lines) > 0.8:
        return "listing"
    if _HTML.match(sample) or _heading_count(sample) > 2:
        return "page"
    return "code" if has_outline(sample[1:]) else "other"


def _is_json(text: str) -> bool:
    opened = text[:64].lstrip()
    closed = text[-64:].rstrip()[-1:]
    if opened[:1] == "{":
        return closed == "}"
    return opened[:1] == "[" and closed == "]" and opened[1:].lstrip()[:1] in '{["-0123456789tfn'


def _is_diff(sample: str) -> bool:
    return "\ndiff --" in sample or ("\n@@ -" in sample and "\n+" in sample)


def _is_edit(text: str) -> bool:
    """Check whether a text reports that a file was written, perhaps with its content."""
    if _EDITED.match(text) is None:
        return False
    first, _, rest = text.partition("\n")
    return "cat -n" in first or rest.count("\n", 0, 2_000) < 4


def _is_test(text: str, sample: str) -> bool:
    ends = f"{sample}\n{text[-1_000:]}"
    if any(word in ends for word in _TEST_WORDS):
        return True
    end = text[-400:]
    return (" pass" in end or " fail" in end) and _COUNTED.search(end) is not None


def _heading_count(sample: str) -> int:
    if "# " not in sample:
        return 0
    return sum(sample.count(heading) for heading in _HEADINGS)


def _first_lines(sample: str) -> list[str]:
    lines = sample.split("\n", _SAMPLE_LINES + 1)[1 : _SAMPLE_LINES + 1]
    return [line.rstrip("\r") for line in lines if line.strip()]


def _match_ratio(pattern: re.Pattern[str], lines: list[str]) -> float:
    return sum(1 for line in lines if pattern.match(line)) / max(1, len(lines))


def _is_table(sample: str) -> bool:
    """Check for a rule under column names, or an equal number of separators in each line."""
    lines = _first_lines(sample)
    if len(lines) > 2 and any(is_rule(line) for line in lines[:3]):
        return True
    rows = lines[:-1] if len(lines) > 4 else lines  # the last one may be cut
    for separator in ("\t", ",", ";", "|"):
        each = lines[0].count(separator) if len(rows) > 3 else 0
        if each > 1 and all(line.count(separator) == each for line in rows):
            return separator != "," or ", " not in rows[0]
    return False
