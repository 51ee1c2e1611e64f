"""What a line looks like, in one byte: its form, its length, how far it is set in."""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import product
from typing import Final

FORMS: Final = (
    "blank", "definition", "import", "comment", "failure", "path", "closing", "block", "other",
)  # fmt: skip
LENGTHS: Final = ("0-15", "16-39", "40-79", "80-159", "160+")
INDENTS: Final = ("0", "1-4", "5-8", "9+")
LOOKS: Final = tuple(product(range(len(FORMS)), range(len(LENGTHS)), range(len(INDENTS))))
_LENGTHS, _INDENTS = (15, 39, 79, 159), (0, 4, 8)
_LOOK = 120  # characters of a line that are looked at

_FAILURE = (
    r"(?P<failure>.{0,100}\b(?:[Ee]rror|ERROR|FAIL(?:ED)?|[Ff]ail(?:ed|ure)|panic|fatal"
    r"|Exception|undefined)\b|[✗×✘✖])"
)
_MAY_FAIL = re.compile(r"[✗×✘✖]|rror|RROR|FAIL|ail[eu]|panic|fatal|xception|undefined")
_OTHERS = (
    r"(?P<definition>(?:(?:export|default|pub|public|private|protected|static|abstract|async"
    r"|override)\s)*(?:def|class|func|fn|function|interface|type|struct|enum|trait|impl|module"
    r"|const|let|var|describe|it|test|#{1,4})\b)"
    r"|(?P<import>(?:import|from|use|using|require|#include|package)\b)"
    r"|(?P<comment>//|#|/\*|\*|--|<!--|\"\"\")"
    r"|(?P<closing>[)\]}>;,]+$|end$|else\b)"
    r"|(?P<path>(?:\S*/)?[\w.-]+\.\w{1,5}(?::\d+)?(?=\s|$)|\S+/\S+)"
)
_FORM: Final = re.compile(f"{_FAILURE}|{_OTHERS}")
_OTHER_FORM: Final = re.compile(_OTHERS)  # where nothing tells of a failure: most lines
_NUMBER_OF: Final = {form: number for number, form in enumerate(FORMS)}
_OPENS: Final = ("{", ":", "(", "[")


def look_of(line: str, whole: str) -> int:
    """A line's form, length and indentation; `whole` is the line without what frames it."""
    length = bisect_left(_LENGTHS, len(whole))
    set_in = bisect_left(_INDENTS, _indent(line, whole))
    return (_form(whole) * len(LENGTHS) + length) * len(INDENTS) + set_in


def form_of(look: int) -> int:
    """The form in a look."""
    return look // (len(LENGTHS) * len(INDENTS))


def length_of(look: int) -> int:
    """The length in a look."""
    return look // len(INDENTS) % len(LENGTHS)


def indent_of(look: int) -> int:
    """The indentation in a look."""
    return look % len(INDENTS)


def _form(whole: str) -> int:
    if not whole:
        return 0
    seen = whole[:_LOOK]
    found = (_FORM if _MAY_FAIL.search(seen) else _OTHER_FORM).match(seen)
    if found is not None:
        assert found.lastgroup is not None
        return _NUMBER_OF[found.lastgroup]
    return _NUMBER_OF["block" if whole.endswith(_OPENS) else "other"]


def _indent(line: str, whole: str) -> int:
    """The blanks before a line's words; a tab counts four."""
    before = line[: line.find(whole[:8])] if whole else ""
    blanks = before[len(before.rstrip(" \t")) :]
    return len(blanks) + 3 * blanks.count("\t")
