"""What a search found: one hit of each file, and in place of its others their number."""

from __future__ import annotations

import re

from msgspec import Struct, field

from .cutting import Span, cut, head_of, lines_in, pick, tail_of
from .shaped import Shaped

_HIT = re.compile(r"((?:[A-Za-z]:)?[^:\s]{1,300}):\d+:")
_CONTEXT = re.compile(r"[^:\s]{1,300}?-\d+-")
_UNNUMBERED = re.compile(r"((?:[A-Za-z]:)?[^:\s]{1,300}):(?=[^\n])")
_HERE = re.compile(r"(\d+)[:-]")  # a hit below its file's name, or in the one file


class _Found(Struct):
    """The lines of a result, by what they are."""

    first: list[Span] = field(default_factory=list[Span])  # of each file, and names of files
    second: list[Span] = field(default_factory=list[Span])
    rest: list[Span] = field(default_factory=list[Span])
    others: list[int] = field(default_factory=list[int])  # no hits: context, names, blank


def shape_hits(text: str, room: int) -> Shaped | None:
    """The first hit of each file, then further ones as far as they fit; context last."""
    found = _sorted_out(text)
    if len(found.first) < 2:
        return _of_one_file(text, found, room)
    chosen, _ = pick([found.first, found.second, found.rest], room)
    return cut(text, chosen, room, "hits", found.others)


def _of_one_file(text: str, found: _Found, room: int) -> Shaped | None:
    ends = [head_of(text, room * 3 // 5), tail_of(text, room * 2 // 5)]
    return cut(text, ends, room, "hits", found.others)


def _sorted_out(text: str) -> _Found:
    found = _Found()
    file, begins, count = "", "\n", 0
    for line in lines_in(text, [(0, len(text))]):
        path = file if text.startswith(begins, line[0]) and file else _path(text, line)
        if path is None:
            found.others.append(line[0])
            if _names_a_file(text, line):
                found.first.append(line)
                file, begins, count = "", "\n", 0
            continue
        if path != file:
            file, begins, count = path, f"{path}:", 0
        count += 1
        (found.first if count == 1 else found.second if count == 2 else found.rest).append(line)
    return found


def _path(text: str, line: Span) -> str | None:
    """The file that a hit is in, "" for the one named above it; None when it is no hit."""
    start, end = line
    if here := _HERE.match(text, start, end):
        return "" if text[here.end() - 1] == ":" else None
    if hit := _HIT.match(text, start, end):
        return hit[1]
    if _CONTEXT.match(text, start, end):
        return None
    unnumbered = _UNNUMBERED.match(text, start, end)
    return unnumbered[1] if unnumbered is not None else None


def _names_a_file(text: str, line: Span) -> bool:
    name = text[line[0] : line[1]].strip()
    return (
        0 < len(name) < 300
        and ("/" in name or "." in name)
        and " " not in name
        and not _is_context(name)
    )


def _is_context(name: str) -> bool:
    return name == "--" or _CONTEXT.match(name) is not None
