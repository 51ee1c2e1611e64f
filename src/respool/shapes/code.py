"""Source code: its outline, with the numbers that its lines came with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cutting import Span, cut, head_of, line_end, line_start, pick, tail_of
from .numbered import NUMBER, both, is_numbered
from .shaped import Shaped

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
_DEFINITION = both(rf"([ \t]{{0,8}})(?=[{_FIRST}])({_WORDS})(?=[ \t(<{{:*.])")
_METHOD = both(
    r"[ \t]{1,4}(?P<name>[A-Za-z_$][\w$]{0,80})\([^\n;]{0,200}\)[^\n;,=]{0,80}\{[ \t\r]*(?=\n)"
)
_TOP = both(
    r"(?:(?:const|let|var|val)[ \t(]|#define[ \t]|(?P<name>[A-Za-z_$][\w$]{0,80})"
    r"(?:[ \t]*(?::[^=\n]{1,80})?:?=(?!=)|(?:\(|[ \t*&][\w \t*&<>:]{0,120}\()[^;\n]{0,300}(?=\n)))"
)
_KEY = both(
    r"([ \t]{0,8})(?:\[{1,2}[^\]\n]{1,120}\]{1,2}"
    r"|[\"']?[\w./@$-]{1,80}[\"']?[ \t]*[:=](?=[ \t\r\n]))"
)
_DEFINING = re.compile(rf"\b(?:{'|'.join(_DEFINES.split())}|const|let|var)\b|\(")
_COMMENT = re.compile(rf"(?:{NUMBER})?[ \t]*(?://[/!]?|#(?!!|define|if|include)|/\*\*?|\*|--|;;)")
_SAYS = re.compile(r"\w")
_DOCSTRING = re.compile(rf"(?:{NUMBER})?[ \t]*[rR]?(?:\"\"\"|''')[ \t]*\w")
_COMMENT_LINES, _SIGNATURE_LINES = 12, 6


def shape_code(text: str, budget: int) -> Shaped | None:
    """Definitions, outermost first, with the first line of what is said of them; else keys."""
    padded, numbered = f"\n{text}", is_numbered(text)
    defined = _definitions(text, padded, numbered)
    if len(defined) < 2:
        return shape_keys(text, budget)
    chosen, left = pick(_ranks(text, padded, numbered, defined), budget)
    return cut(text, [*chosen, head_of(text, left // 2)], budget)


def _ranks(
    text: str, padded: str, numbered: bool, defined: list[tuple[Span, int]]
) -> Iterator[list[Span]]:
    """What belongs to an outline, the most telling first; looked for when there is room for it."""
    outer = [line for line, depth in defined if depth == 0]
    yield outer
    yield _named(text, padded, _TOP[numbered])
    yield [line for line, depth in defined if depth > 0]
    yield _named(text, padded, _METHOD[numbered])
    yield [doc for line in outer for doc in _docs(text, line)]


def shape_keys(text: str, budget: int) -> Shaped | None:
    """Settings: sections and keys, outermost first; a text without them keeps its ends."""
    found = [
        (one.start(), _width(one[1])) for one in _KEY[is_numbered(text)].finditer(f"\n{text}\n")
    ]
    if len(found) < 4:
        return cut(text, [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)], budget)
    ranks = [
        [(at, line_end(text, at)) for at, width in found if low <= width < high]
        for low, high in ((0, 1), (1, 3), (3, 5), (5, 99))
    ]
    chosen, left = pick([[head_of(text, 40)], *ranks], budget)
    return cut(text, [*chosen, tail_of(text, left // 3)], budget)


def has_outline(text: str) -> bool:
    """Whether a few definitions stand in a text."""
    return len(_definitions(text, f"\n{text}", is_numbered(text))) >= 2


def _definitions(text: str, padded: str, numbered: bool) -> list[tuple[Span, int]]:
    """The lines that define something, each with its signature's further lines, and their depth."""
    found: list[tuple[Span, int]] = []
    for one in _DEFINITION[numbered].finditer(padded):
        line = (one.start(), line_end(text, one.start()))
        if _defines(text, one, line[1]):
            found.append((_signature(text, line), _width(one[1])))
    return found


def _defines(text: str, found: re.Match[str], end: int) -> bool:
    """Whether the word that a line begins with makes it a definition."""
    word, behind = found[2], found.end() - 1
    if word in _TESTING:
        return text[behind : behind + 1] in ("(", ".")
    if word in _MODIFYING:
        return _DEFINING.search(text, behind, end) is not None
    return text[behind : behind + 3] not in (" = ", " : ", " in")


def _named(text: str, padded: str, pattern: re.Pattern[str]) -> list[Span]:
    """The lines that define something without a word that says so."""
    return [
        (one.start(), line_end(text, one.start()))
        for one in pattern.finditer(padded)
        if one["name"] not in _CONTROL
    ]


def _width(indent: str) -> int:
    return len(indent) + 3 * indent.count("\t")


def _signature(text: str, line: Span) -> Span:
    """A definition's line, with those that follow while its parentheses are open.

    One that ends in a brace opens a body: in `it("works", () => {` it closes the parentheses.
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


def _docs(text: str, line: Span) -> list[Span]:
    """The first line of the comment above a definition, or of the docstring below it."""
    start, end = line
    if end < len(text) and _DOCSTRING.match(text, end):
        return [(end, line_end(text, end))]
    first: list[Span] = []
    at = start
    for _ in range(_COMMENT_LINES):
        above = line_start(text, at - 1) if at else 0
        comment = _COMMENT.match(text, above, at)
        if comment is None or at == 0:
            break
        if _SAYS.search(text, comment.end(), at):
            first = [(above, at)]
        at = above
    return first
