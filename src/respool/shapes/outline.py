"""Outlines of source code, settings and pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..regex import lazy_compile
from .excerpt import (
    LINE_NUMBER,
    MIN_LINE_CHARS,
    LineSpan,
    ShapedText,
    cut_to_spans,
    head_of,
    is_numbered,
    line_end,
    line_patterns,
    line_start,
    select_spans,
    tail_of,
)

_DEFINES = (
    "def class func fn function interface type struct enum trait impl mod module namespace package "
    "object protocol extension record union typedef defmodule defp sub macro_rules! template"
)
_MODIFIES = (
    "export default pub public private protected internal static abstract final async override "
    "unsafe extern inline virtual sealed declare suspend partial local constexpr"
)
_TESTS = "describe it test context"
_TESTING, _MODIFYING = frozenset(_TESTS.split()), frozenset(_MODIFIES.split())
_SQL = "CREATE create ALTER alter"
_WORDS = "|".join(f"{_DEFINES} {_MODIFIES} {_TESTS} {_SQL}".split())
_FLOWS = "if for while switch catch return else elif match with when until do try select new await"
_CONTROL = frozenset(_FLOWS.split())
_FIRST = "".join(sorted({word[0] for word in _WORDS.split("|")}))
_DEFINITION = line_patterns(rf"([ \t]{{0,8}})(?=[{_FIRST}])({_WORDS})(?=[ \t(<{{:*.])")
_METHOD = line_patterns(
    r"[ \t]{1,4}(?P<name>[A-Za-z_$][\w$]{0,80})\([^\n;]{0,200}\)[^\n;,=]{0,80}\{[ \t\r]*(?=\n)"
)
_TOP = line_patterns(
    r"(?:(?:const|let|var|val)[ \t(]|#define[ \t]|(?P<name>[A-Za-z_$][\w$]{0,80})"
    r"(?:[ \t]*(?::[^=\n]{1,80})?:?=(?!=)|(?:\(|[ \t*&][\w \t*&<>:]{0,120}\()[^;\n]{0,300}(?=\n)))"
)
_KEY = line_patterns(
    r"([ \t]{0,8})(?:\[{1,2}[^\]\n]{1,120}\]{1,2}"
    r"|[\"']?[\w./@$-]{1,80}[\"']?[ \t]*[:=](?=[ \t\r\n]))"
)
_DEFINING = lazy_compile(rf"\b(?:{'|'.join(_DEFINES.split())}|const|let|var)\b|\(")
_COMMENT = lazy_compile(
    rf"(?:{LINE_NUMBER})?[ \t]*(?://[/!]?|#(?!!|define|if|include)|/\*\*?|\*|--|;;)"
)
_WORD_CHARACTER = lazy_compile(r"\w")
_DOCSTRING = lazy_compile(rf"(?:{LINE_NUMBER})?[ \t]*[rR]?(?:\"\"\"|''')[ \t]*\w")
_COMMENT_LINES, _SIGNATURE_LINES = 12, 6

_HEADING = line_patterns(r"(?:(#{1,6})[ \t]+\S|[ \t]{0,8}<(?:[hH]([1-6])|title)\b)")
_PROSE = lazy_compile(rf"(?:{LINE_NUMBER})?[ \t>*-]{{0,6}}[^\W\d_`]")


def shape_code(text: str, budget: int) -> ShapedText | None:
    """Keep definitions, outermost first, with the first line of their documentation; else keys."""
    padded, numbered = f"\n{text}", is_numbered(text)
    defined = _definitions(text, padded, numbered)
    if len(defined) < 2:
        return shape_keys(text, budget)
    chosen, left = select_spans(_outline_ranks(text, padded, numbered, defined), budget)
    return cut_to_spans(text, [*chosen, head_of(text, left // 2)], budget)


def _outline_ranks(
    text: str, padded: str, numbered: bool, defined: list[tuple[LineSpan, int]]
) -> Iterator[list[LineSpan]]:
    """The lines of an outline, most informative first; computed lazily."""
    outer = [line for line, depth in defined if depth == 0]
    yield outer
    yield _named_definitions(text, padded, _TOP[numbered])
    yield [line for line, depth in defined if depth > 0]
    yield _named_definitions(text, padded, _METHOD[numbered])
    yield [doc for line in outer for doc in _doc_lines(text, line)]


def shape_keys(text: str, budget: int) -> ShapedText | None:
    """Keep sections and keys of settings, outermost first; without them, both ends."""
    found = [
        (one.start(), _indent_width(one[1]))
        for one in _KEY[is_numbered(text)].finditer(f"\n{text}\n")
    ]
    if len(found) < 4:
        return cut_to_spans(
            text, [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)], budget
        )
    ranks = [
        [(at, line_end(text, at)) for at, width in found if low <= width < high]
        for low, high in ((0, 1), (1, 3), (3, 5), (5, 99))
    ]
    chosen, left = select_spans([[head_of(text, 40)], *ranks], budget)
    return cut_to_spans(text, [*chosen, tail_of(text, left // 3)], budget)


def has_outline(text: str) -> bool:
    """Check whether a text contains a few definitions."""
    return len(_definitions(text, f"\n{text}", is_numbered(text))) >= 2


def _definitions(text: str, padded: str, numbered: bool) -> list[tuple[LineSpan, int]]:
    """The lines of definitions, with the rest of their signatures, and their depth."""
    found: list[tuple[LineSpan, int]] = []
    for one in _DEFINITION[numbered].finditer(padded):
        line = (one.start(), line_end(text, one.start()))
        if _is_definition(text, one, line[1]):
            found.append((_signature(text, line), _indent_width(one[1])))
    return found


def _is_definition(text: str, found: re.Match[str], end: int) -> bool:
    """Check whether the first word of a line makes it a definition."""
    word, behind = found[2], found.end() - 1
    if word in _TESTING:
        return text[behind : behind + 1] in ("(", ".")
    if word in _MODIFYING:
        return _DEFINING.search(text, behind, end) is not None
    return text[behind : behind + 3] not in (" = ", " : ", " in")


def _named_definitions(text: str, padded: str, pattern: re.Pattern[str]) -> list[LineSpan]:
    """The definitions without a keyword."""
    return [
        (one.start(), line_end(text, one.start()))
        for one in pattern.finditer(padded)
        if one["name"] not in _CONTROL
    ]


def _indent_width(indent: str) -> int:
    return len(indent) + 3 * indent.count("\t")


def _signature(text: str, line: LineSpan) -> LineSpan:
    """A definition's line, with the next ones while its parentheses are open.

    A line that ends in a brace opens a body: `it("works", () => {` ends there.
    """
    start, end = line
    opened = text.count("(", start, end) - text.count(")", start, end)
    if opened <= 0 or text[start:end].rstrip().endswith("{"):
        return line
    for _ in range(_SIGNATURE_LINES):
        if end >= len(text):
            break
        after = line_end(text, end)
        opened += text.count("(", end, after) - text.count(")", end, after)
        end = after
        if opened <= 0:
            return start, end
    return line


def _doc_lines(text: str, line: LineSpan) -> list[LineSpan]:
    """The first line of the comment above a definition, or of the docstring below it."""
    start, end = line
    if end < len(text) and _DOCSTRING.match(text, end):
        return [(end, line_end(text, end))]
    first: list[LineSpan] = []
    at = start
    for _ in range(_COMMENT_LINES):
        above = line_start(text, at - 1) if at else 0
        comment = _COMMENT.match(text, above, at)
        if comment is None or at == 0:
            break
        if _WORD_CHARACTER.search(text, comment.end(), at):
            first = [(above, at)]
        at = above
    return first


def shape_page(text: str, budget: int) -> ShapedText | None:
    """Keep headings, then the beginning of each section; without headings, both ends."""
    found = [*_HEADING[is_numbered(text)].finditer(f"\n{text}")]
    if len(found) < 2:
        return cut_to_spans(
            text, [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)], budget
        )
    headings = [(one.start(), line_end(text, one.start())) for one in found]
    upper = [line for one, line in zip(found, headings, strict=True) if _depth(one) <= 2]
    opening = [line for _, end in headings if (line := _opening(text, end)) is not None]
    ranks = [[head_of(text, 80)], upper, headings, opening]
    chosen, left = select_spans(ranks, budget)
    return cut_to_spans(text, [*chosen, head_of(text, left // 2)], budget, limit=MIN_LINE_CHARS)


def _depth(heading: re.Match[str]) -> int:
    return len(heading[1] or "") or int(heading[2] or 1)


def _opening(text: str, at: int) -> LineSpan | None:
    """The first line of prose in the section that begins here."""
    for _ in range(4):
        if at >= len(text):
            return None
        end = line_end(text, at)
        if _PROSE.match(text, at, end):
            return at, end
        at = end
    return None
