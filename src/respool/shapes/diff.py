"""A diff: heads of files and hunks with their counts, and changed lines where they fit."""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

from .cutting import Span, cut, head_of, line_end, lines_in, pick
from .shaped import Shaped

_HEAD = re.compile(r"\n(?:diff --(?:git|cc|combined) |@@ -|--- (?=[^\n]*\n\+\+\+ ))")


class _Head(Struct, gc=False):
    """The head of a file or of a hunk, how far it reaches, and what changed below it."""

    line: Span
    end: int
    of_hunk: bool
    plus: int = 0
    minus: int = 0
    alone: bool = False  # the only hunk of its file, whose counts stand at the file's head


def shape_diff(text: str, budget: int) -> Shaped | None:
    """Heads of files, heads of hunks, then the changed lines of one hunk after the other."""
    heads = _heads(text)
    if not heads:
        return None
    before = [head_of(text, min(budget // 4, heads[0].line[0]))] if heads[0].line[0] else []
    files = [head.line for head in heads if not head.of_hunk]
    hunks = [head for head in heads if head.of_hunk]
    chosen, left = pick([before, files, [head.line for head in hunks]], budget)
    for hunk in hunks:
        if hunk.end - hunk.line[1] < 4 * left:
            changed = _changed(text, hunk)
            more, less = pick([changed], left)
            if len(more) == len(changed):
                chosen, left = [*chosen, *more], less
    counted = [head for head in heads if not (head.of_hunk and head.alone)]
    notes = [(head.line[0], f" [+{head.plus} -{head.minus}]") for head in counted]
    return cut(text, chosen, budget, notes=notes)


def _heads(text: str) -> list[_Head]:
    """All heads, of those of one file the first, with their counts."""
    places = [found.start() for found in _HEAD.finditer(f"\n{text}")]
    heads: list[_Head] = []
    file = _Head((0, 0), 0, False)
    for at, end in pairwise((*places, len(text))):
        head = _Head((at, line_end(text, at)), end, text.startswith("@@", at))
        if head.of_hunk:
            _count(text, head, file)
            head.alone = bool(heads) and heads[-1] is file
            if heads and heads[-1].of_hunk:
                heads[-1].alone = False
        elif heads and not heads[-1].of_hunk and text.startswith("---", at):
            continue
        else:
            file = head
        heads.append(head)
    return heads


def _count(text: str, hunk: _Head, file: _Head) -> None:
    """Count the lines that a hunk adds and takes away, for it and for its file."""
    start = hunk.line[1] - 1
    hunk.plus, hunk.minus = text.count("\n+", start, hunk.end), text.count("\n-", start, hunk.end)
    file.plus += hunk.plus
    file.minus += hunk.minus


def _changed(text: str, hunk: _Head) -> list[Span]:
    """The lines of a hunk that were added or taken away."""
    lines = lines_in(text, [(hunk.line[1], hunk.end)])
    return [line for line in lines if text[line[0]] in "+-"]
