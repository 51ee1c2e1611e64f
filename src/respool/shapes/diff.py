"""Shape of a diff: file and hunk heads with counts, changed lines within the budget."""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from ..regex import lazy_compile
from .excerpt import (
    LineSpan,
    ShapedText,
    cut_to_spans,
    head_of,
    line_end,
    select_spans,
    split_lines,
)

_HEAD = lazy_compile(r"\n(?:diff --(?:git|cc|combined) |@@ -|--- (?=[^\n]*\n\+\+\+ ))")


class _Head(Struct, gc=False):
    """The head of a file or hunk, its extent, and its change counts."""

    line: LineSpan
    end: int
    of_hunk: bool
    plus: int = 0
    minus: int = 0
    alone: bool = False  # the only hunk of its file, whose head has the counts


def shape_diff(text: str, budget: int) -> ShapedText | None:
    """Keep heads of files, heads of hunks, then the changed lines, hunk by hunk."""
    heads = _heads(text)
    if not heads:
        return None
    before = [head_of(text, min(budget // 4, heads[0].line[0]))] if heads[0].line[0] else []
    files = [head.line for head in heads if not head.of_hunk]
    hunks = [head for head in heads if head.of_hunk]
    chosen, left = select_spans([before, files, [head.line for head in hunks]], budget)
    for hunk in hunks:
        if hunk.end - hunk.line[1] < 4 * left:
            changed = _changed(text, hunk)
            more, less = select_spans([changed], left)
            if len(more) == len(changed):
                chosen, left = [*chosen, *more], less
    counted = [head for head in heads if not (head.of_hunk and head.alone)]
    notes = [(head.line[0], f" [+{head.plus} -{head.minus}]") for head in counted]
    return cut_to_spans(text, chosen, budget, notes=notes)


def _heads(text: str) -> list[_Head]:
    """All heads with their counts; of several for one file, the first."""
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
    """Count the added and removed lines of a hunk, for it and for its file."""
    start = hunk.line[1] - 1
    hunk.plus, hunk.minus = text.count("\n+", start, hunk.end), text.count("\n-", start, hunk.end)
    file.plus += hunk.plus
    file.minus += hunk.minus


def _changed(text: str, hunk: _Head) -> list[LineSpan]:
    """The added and removed lines of a hunk."""
    lines = split_lines(text, [(hunk.line[1], hunk.end)])
    return [line for line in lines if text[line[0]] in "+-"]
