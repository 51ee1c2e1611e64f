"""Shapes of search hits and listings; hits grouped by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

from msgspec import Struct, field

from ..regex import lazy_compile
from .excerpt import (
    LineSpan,
    ShapedText,
    cut_to_spans,
    head_of,
    line_at,
    line_end,
    select_spans,
    split_lines,
    tail_of,
)

# A path without colons and blanks, a line number, and the line.
_HIT: Final = lazy_compile(r"((?!\d+[:\n])[^\s:]{1,240}):(?=\d{1,7}:)")
_CONTEXT_LINE: Final = lazy_compile(r"-\d{1,7}-")  # between a path and a context line
_MIN_HITS: Final = 2  # consecutive lines of a file
_NONE: Final = ""

_CONTEXT = lazy_compile(r"[^:\s]{1,300}?-\d+-")
_LINE = lazy_compile(
    # below its file's name, or in the only file: a hit or a context line
    r"[ \t]{0,8}(?:L|Line )?\d+(?:(?P<here>:)|-)"
    r"|(?P<file>(?:[A-Za-z]:)?[^:\s]{1,300}):\d+:"
    rf"|{_CONTEXT.pattern}"
    r"|(?P<unnumbered>(?!File: )(?:[A-Za-z]:)?[^:\s]{1,300}):(?=[^\n])"
)
_NAME = lazy_compile(r"(?=.{0,300}\w)[^\s<>{};\"'=,|*]{1,299}(?<![)!])")  # excludes code
_COUNT = lazy_compile(r"Found \d")  # the count above the hits
_NOTE = lazy_compile(r"[(\[]|Found \d|No \w+ found|Binary file |-{2,}$")  # a note beside hits
_FOLDER = lazy_compile(r"\nd[rwxsStT-]{9}|/\n|\n040000 tree|:\n")
_COLUMNS = lazy_compile(r"\S{1,255}(?: {2,40}\S{1,255}){1,60}")
_NON_ENTRY = lazy_compile(
    r"\n(?:[ \t\r]*(?=\n|$)|total \d|Found \d|No \w+ found|Directory listing for |\(Results are"
    r"|\d+ director"
    r"|\.{0,2}[\w/.-]*:\r?(?=\n|$))"
)


def group_by_file(text: str) -> str:
    """The text with the path of neighbouring hits once above them.

    >>> group_by_file("lib/loom.py:3:import warp\\nlib/loom.py:9:warp()")
    'lib/loom.py\\n3:import warp\\n9:warp()'
    """
    lines = text.split("\n")
    paths = [_path_of(line) for line in lines]
    if not any(paths):
        return text
    _assign_context_paths(lines, paths)
    grouped = "\n".join(_with_headings(lines, paths))
    return grouped if len(grouped) < len(text) else text


def _path_of(line: str) -> str:
    found = _HIT.match(line)
    return found[1] if found is not None else _NONE


def _assign_context_paths(lines: Sequence[str], paths: list[str]) -> None:
    """Assign context lines the path of the hit before or after them."""
    for order in (range(1, len(lines)), range(len(lines) - 2, -1, -1)):
        beside = -1 if order.step > 0 else 1
        for at in order:
            path = paths[at + beside]
            if paths[at] == _NONE != path and _is_context_of(lines[at], path):
                paths[at] = path


def _is_context_of(line: str, path: str) -> bool:
    return line.startswith(path) and _CONTEXT_LINE.match(line, len(path)) is not None


def _with_headings(lines: Sequence[str], paths: Sequence[str]) -> Iterator[str]:
    """The lines with headings; a blank line separates a file from what is before it."""
    at, headed = 0, False
    for path, run in groupby(paths):
        count = len(list(run))
        heads = path != _NONE and count >= _MIN_HITS
        if at and (heads or headed) and lines[at - 1] and lines[at]:
            yield ""
        if heads:
            yield path
        for line in lines[at : at + count]:
            yield line[len(path) + 1 :] if heads else line
        at, headed = at + count, heads


class _SearchLines(Struct):
    """The lines of a result, by role."""

    first: list[LineSpan] = field(default_factory=list[LineSpan])  # by file: hits; names; the count
    second: list[LineSpan] = field(default_factory=list[LineSpan])
    rest: list[LineSpan] = field(default_factory=list[LineSpan])
    others: list[int] = field(default_factory=list[int])  # not hits: context, names, blank lines


def shape_hits(text: str, budget: int) -> ShapedText | None:
    """Keep the first hit of each file, then further ones that fit; context last."""
    found = _sort_lines(text)
    if len(found.first) < 2:
        return _shape_one_file(text, found, budget)
    chosen, _ = select_spans([found.first, found.second, found.rest], budget)
    return cut_to_spans(text, chosen, budget, unit="hits", others=found.others)


def count_hits(text: str) -> tuple[int, int] | None:
    """The number of hits that a search shows, and of the files they are in.

    None if some lines may or may not be hits.

    >>> count_hits("a.py-1-import os\\na.py:2:weave()\\n--\\nb.py:7:weave()")
    (2, 2)
    """
    hits, files, heading = 0, set[str](), ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        match _line_role(line):
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


def _line_role(line: str) -> tuple[Literal["hit", "file", "beside"], str] | None:
    """The role of a line in a search result, and the file it names; None if unknown."""
    found = _LINE.match(line)
    if found is None:
        if _is_file_name(line):
            return "file", line
        return ("beside", "") if _NOTE.match(line) else None
    if found.lastgroup is None:
        return "beside", ""  # a context line
    path = "" if found.lastgroup == "here" else found[found.lastgroup]
    is_hit = found.lastgroup != "unnumbered" or _is_file_name(path)
    return ("hit", path) if is_hit else None


def _shape_one_file(text: str, found: _SearchLines, budget: int) -> ShapedText | None:
    ends = [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)]
    return cut_to_spans(text, ends, budget, unit="hits", others=found.others)


def _sort_lines(text: str) -> _SearchLines:
    found = _SearchLines()
    file, begins, count = "", "", 0
    end = 0
    for line in text.removesuffix("\n").split("\n") if text else ():
        start, end = end, end + len(line) + 1
        path = file if file and line.startswith(begins) else _path(line)
        if path is None:
            found.others.append(start)
            if _is_file_name(line):
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
    """The file of a hit, "" for the one named above it; None if it is not a hit."""
    if ":" not in line:
        return None
    found = _LINE.match(line)
    if found is None or found.lastgroup is None:
        return None
    return "" if found.lastgroup == "here" else found[found.lastgroup]


def _is_file_name(line: str) -> bool:
    name = line.strip().removeprefix("File: ")
    return (
        ("/" in name or "." in name) and _NAME.fullmatch(name) is not None and not _is_context(name)
    )


def _is_context(name: str) -> bool:
    return name == "--" or _CONTEXT.match(name) is not None


def shape_listing(text: str, budget: int) -> ShapedText | None:
    """Keep the first and last entries, folders, then others that fit."""
    padded = f"\n{text}"
    others = [found.start() for found in _NON_ENTRY.finditer(padded) if found.start() < len(text)]
    ranks = [
        split_lines(text, [head_of(text, budget // 4), tail_of(text, budget // 6)]),
        [(at, line_end(text, at)) for at in others if not _is_blank(text, at)],
        _folder_lines(text),
    ]
    chosen, left = select_spans(ranks, budget)
    return cut_to_spans(
        text, [*chosen, head_of(text, budget // 4 + left)], budget, unit="entries", others=others
    )


def count_entries(text: str) -> int | None:
    """The number of entries in a listing, without counts and folder headings.

    None if a line may hold several.

    >>> count_entries("total 8\\na.py\\nb.py\\n"), count_entries("a.py  b.py  lib")
    (2, None)
    """
    if any(_COLUMNS.fullmatch(line.strip()) for line in text.split("\n")):
        return None
    lines = text.count("\n") + (text[-1:] not in ("", "\n"))
    return lines - sum(found.start() < len(text) for found in _NON_ENTRY.finditer(f"\n{text}"))


def _is_blank(text: str, at: int) -> bool:
    return not text[at : line_end(text, at)].strip()


def _folder_lines(text: str) -> list[LineSpan]:
    places = (found.start() + 1 for found in _FOLDER.finditer(f"\n{text}"))
    found = [line_at(text, min(at - 1, len(text) - 1)) for at in places]
    return sorted(set(found))
