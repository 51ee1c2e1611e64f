"""What a search found: one hit of each file, and in place of its others their number."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct, field

from .cutting import Span, cut, head_of, pick, tail_of
from .shaped import Shaped

_CONTEXT = re.compile(r"[^:\s]{1,300}?-\d+-")
_LINE = re.compile(
    # below its file's name, or in the one file: a hit, or what is near
    r"[ \t]{0,8}(?:L|Line )?\d+(?:(?P<here>:)|-)"
    r"|(?P<file>(?:[A-Za-z]:)?[^:\s]{1,300}):\d+:"
    rf"|{_CONTEXT.pattern}"
    r"|(?P<unnumbered>(?!File: )(?:[A-Za-z]:)?[^:\s]{1,300}):(?=[^\n])"
)
_NAME = re.compile(r"(?=.{0,300}\w)[^\s<>{};\"'=,|*]{1,299}(?<![)!])")  # code is none
_COUNT = re.compile(r"Found \d")  # what a tool says above its hits
_NOTE = re.compile(r"[(\[]|Found \d|No \w+ found|Binary file |-{2,}$")  # said beside hits


class _Found(Struct):
    """The lines of a result, by what they are."""

    first: list[Span] = field(default_factory=list[Span])  # of each file, their names, the count
    second: list[Span] = field(default_factory=list[Span])
    rest: list[Span] = field(default_factory=list[Span])
    others: list[int] = field(default_factory=list[int])  # no hits: context, names, blank


def shape_hits(text: str, budget: int) -> Shaped | None:
    """The first hit of each file, then further ones as far as they fit; context last."""
    found = _sorted_out(text)
    if len(found.first) < 2:
        return _of_one_file(text, found, budget)
    chosen, _ = pick([found.first, found.second, found.rest], budget)
    return cut(text, chosen, budget, "hits", found.others)


def count_hits(text: str) -> tuple[int, int] | None:
    """How many hits a search shows, and in how many files it says they are.

    None where lines stand among them of which nobody knows whether they are hits.

    >>> count_hits("a.py-1-import os\\na.py:2:weave()\\n--\\nb.py:7:weave()")
    (2, 2)
    """
    hits, files, heading = 0, set[str](), ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        match _role(line):
            case ("hit", path):
                hits += 1
                files.add(path or heading)
            case ("file", path):
                heading = path
            case ("beside", _):
                pass
            case None:
                return None
    return (hits, len(files - {""})) if hits else None


def _role(line: str) -> tuple[Literal["hit", "file", "beside"], str] | None:
    """What a line of a search's result is, and the file that it names; None: nobody knows."""
    found = _LINE.match(line)
    if found is None:
        if _names_a_file(line):
            return "file", line
        return ("beside", "") if _NOTE.match(line) else None
    if found.lastgroup is None:
        return "beside", ""  # a line near a hit
    path = "" if found.lastgroup == "here" else found[found.lastgroup]
    is_hit = found.lastgroup != "unnumbered" or _names_a_file(path)
    return ("hit", path) if is_hit else None


def _of_one_file(text: str, found: _Found, budget: int) -> Shaped | None:
    ends = [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)]
    return cut(text, ends, budget, "hits", found.others)


def _sorted_out(text: str) -> _Found:
    found = _Found()
    file, begins, count = "", "", 0
    end = 0
    for line in text.removesuffix("\n").split("\n") if text else ():
        start, end = end, end + len(line) + 1
        path = file if file and line.startswith(begins) else _path(line)
        if path is None:
            found.others.append(start)
            if _names_a_file(line):
                file, begins, count = "", "", 0
            elif not _COUNT.match(line):
                continue
            found.first.append((start, min(end, len(text))))
            continue
        if path != file:
            file, begins, count = path, f"{path}:", 0
        count += 1
        rank = found.first if count == 1 else found.second if count == 2 else found.rest
        rank.append((start, min(end, len(text))))
    return found


def _path(line: str) -> str | None:
    """The file that a hit is in, "" for the one named above it; None when it is no hit."""
    if ":" not in line:
        return None
    found = _LINE.match(line)
    if found is None or found.lastgroup is None:
        return None
    return "" if found.lastgroup == "here" else found[found.lastgroup]


def _names_a_file(line: str) -> bool:
    name = line.strip().removeprefix("File: ")
    return (
        ("/" in name or "." in name) and _NAME.fullmatch(name) is not None and not _is_context(name)
    )


def _is_context(name: str) -> bool:
    return name == "--" or _CONTEXT.match(name) is not None
