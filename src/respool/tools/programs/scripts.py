"""Sed scripts and awk programs: whether they may write a file or run something.

Both are followed as their languages read them, so that a separator inside a pattern or a string
ends nothing. What cannot be followed to its end counts as writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..effects import STREAMS

_BETWEEN: Final = re.compile(r"[\s;{}]*")
_PLACE: Final = re.compile(r"[\d,$~+!\s]*")
_AFTER_PATTERN: Final = re.compile(r"[IM]*")
_IN_BRACKETS = r"\[\^?\]?(?:\[[:.=][^\]\n]{0,30}\]|[^\]\n]){0,200}\]"
_BRACKET: Final = re.compile(_IN_BRACKETS)
_FLAGS: Final = re.compile(r"[gpiImM\d]*(?=[\s;}#]|$)")
_LINE: Final = re.compile(r"(?:[^\\\n]|\\.|\\\n)*", re.DOTALL)
_LABEL: Final = re.compile(r"[^\n;}]*")
_COUNT: Final = re.compile(r"\s*\d*")

_AWK_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*', re.DOTALL)
_AWK_PATTERN: Final = re.compile(rf"/(?:[^/\\\n\[]|\\.|{_IN_BRACKETS})*/")
_AWK_RUNS: Final = re.compile(r"\bsystem\s*\(|(?<!\|)\|(?!\|)|@")
_AWK_WORDS: Final = re.compile(r"\bprintf?\b|[()\[\];}>]")
_TO_STREAM: Final = re.compile(r'>>?\s*"-"')


def sed_writes(script: str) -> bool:
    """Whether a script may write: `w`, `W`, `e`, or an `s` with one of them."""
    at = _match(_BETWEEN, script, 0)
    while at < len(script):
        found = _sed_command(script, at)
        if found is None:
            return True
        at = _match(_BETWEEN, script, found)
    return False


def _match(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern ends that matches here; where it does not, here."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _sed_command(script: str, at: int) -> int | None:
    """Where one command ends; None if it writes, or is none."""
    start = _address(script, at)
    if start is None or start >= len(script):
        return start
    ends = _SED.get(script[start])
    return ends(script, start + 1) if ends else None


def _address(script: str, at: int) -> int | None:
    """Where the lines end that a command is for."""
    at = _match(_PLACE, script, at)
    while script[at : at + 1] in ("/", "\\"):
        opens = at + (script[at] == "\\")
        ends = _delimited(script, opens + 1, script[opens : opens + 1])
        if ends is None:
            return None
        at = _match(_PLACE, script, _match(_AFTER_PATTERN, script, ends))
    return at


def _delimited(script: str, at: int, mark: str, brackets: bool = True) -> int | None:
    """Where a text ends behind its closing mark; in brackets, a mark closes nothing."""
    while mark and at < len(script):
        if script[at] == mark:
            return at + 1
        if brackets and script[at] == "[":
            bracket = _BRACKET.match(script, at)
            if bracket is None:
                return None
            at = bracket.end()
        else:
            at += 2 if script[at] == "\\" else 1
    return None


def _substitutes(script: str, at: int) -> int | None:
    mark = script[at : at + 1]
    middle = _delimited(script, at + 1, mark)
    ends = None if middle is None else _delimited(script, middle, mark, brackets=False)
    flags = None if ends is None else _FLAGS.match(script, ends)
    return flags.end() if flags else None


def _replaces_letters(script: str, at: int) -> int | None:
    mark = script[at : at + 1]
    middle = _delimited(script, at + 1, mark, brackets=False)
    return None if middle is None else _delimited(script, middle, mark, brackets=False)


_SED: Final[dict[str, Callable[[str, int], int | None]]] = {
    **dict.fromkeys("dDgGhHnNpPxzF={}", lambda script, at: at),
    **dict.fromkeys("lLqQ", lambda script, at: _match(_COUNT, script, at)),
    **dict.fromkeys("aicrR#", lambda script, at: _match(_LINE, script, at)),
    **dict.fromkeys(":btTv", lambda script, at: _match(_LABEL, script, at)),
    "s": _substitutes,
    "y": _replaces_letters,
}


def awk_writes(program: str) -> bool:
    """Whether a program may write: a `print` into a file, a pipe, `system`, what it includes."""
    code = _awk_code(program)
    return code is None or _AWK_RUNS.search(code) is not None or _redirects(code)


def _awk_code(program: str) -> str | None:
    """A program without its texts, patterns and comments; None if one of them has no end."""
    code: list[str] = []
    at, last = 0, ""
    while at < len(program):
        letter = program[at]
        if letter not in '"#/' or (letter == "/" and _divides(last)):
            code.append(letter)
            last = letter if letter.strip() else last
            at += 1
            continue
        found = (_AWK_PATTERN if letter == "/" else _AWK_TEXT).match(program, at)
        if found is None:
            return None
        code.append('"-"' if found[0][1:-1] in STREAMS else "" if letter == "#" else " 0 ")
        last, at = ("" if letter == "#" else "0"), found.end()
    return _TO_STREAM.sub(" ", "".join(code))


def _divides(last: str) -> bool:
    """Whether a slash after this letter divides; elsewhere it opens a pattern."""
    return last.isalnum() or last in ("_", ")", "]", "$")


def _redirects(code: str) -> bool:
    """Whether a `print` goes into a file: a `>` in no parentheses, before its statement ends."""
    prints, depth = False, 0
    for word in _AWK_WORDS.findall(code):
        if word[0] == "p":
            prints, depth = True, 0
        elif word in "([":
            depth += 1
        elif word in ")]":
            depth -= 1
        elif depth <= 0 and prints:
            if word == ">":
                return True
            prints = False
    return False
