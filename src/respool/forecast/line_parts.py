"""Lines of a text; long ones (JSON, escaped text, minified code) are split into parts.

A line that is longer than a screen says many things, and a turn needs a few of them. It is split at
escaped line breaks, between JSON members, and behind clauses, so that each part is indexed,
forecast and kept by itself. The rule is local: an unchanged line always has the same parts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from msgspec import Struct

from ..regex import lazy_compile
from ..shapes.decoration import split_frame

LONG_LINE_CHARS: Final = 600  # a longer line is split
_MIN_PART_CHARS: Final = 60  # of a JSON member or a clause; an escaped line may be shorter
# An escaped line break; a comma before a JSON member; the end of a clause or a statement, but not
# a semicolon inside a colour code.
_BREAK: Final = lazy_compile(
    r"(?P<line>(?<!\\)(?:\\\\)*\\n)|,(?=\s?[\"{\[])|[.!?;] |[;}](?=[A-Za-z_$}])"
)
_ESCAPES: Final = lazy_compile(r"\\([\"\\/t])")
_ESCAPED: Final = {"t": "\t"}
_LINE_BREAK: Final = "\\n"


def split_lines(text: str) -> list[str]:
    """The lines of a text, long ones in parts.

    >>> split_lines("a\\nb")
    ['a', 'b']
    >>> split_lines('{"out": "' + 200 * r"one\\n" + '"}')[-2:]
    ['one\\\\n', '"}']
    """
    lines = text.split("\n")
    if len(text) <= LONG_LINE_CHARS or len(max(lines, key=len)) <= LONG_LINE_CHARS:
        return lines
    return [
        part
        for line in lines
        for part in (_split_line(line) if len(line) > LONG_LINE_CHARS else (line,))
    ]


def _split_line(line: str) -> list[str]:
    starts = [0]
    for found in _BREAK.finditer(line):
        end = found.end()
        is_end = found["line"] is not None or end - starts[-1] >= _MIN_PART_CHARS
        if is_end and end < len(line):
            starts.append(end)
    return [line[start:end] for start, end in pairwise((*starts, len(line)))]


def has_parts(text: str, lines: Sequence[str]) -> bool:
    """Return whether some of these lines are parts of a longer one."""
    return len(text) > LONG_LINE_CHARS and len(lines) != text.count("\n") + 1


def unescape(part: str) -> str:
    """A part of escaped text as it reads, without its line break.

    >>> unescape(r'say(\\"hi\\")\\n')
    'say("hi")'
    """
    plain = part.removesuffix(_LINE_BREAK)
    return _ESCAPES.sub(_unescaped, plain) if "\\" in plain else plain


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])


def _ends_unit(before: str, after: str, *, escaped: bool) -> bool:
    """Return whether a reader takes in a part and the next one of its line separately."""
    if before.endswith(_LINE_BREAK) or after.lstrip().startswith(('"', '{"')):
        return True
    return not escaped and not before.endswith("; ")


class SplitText(Struct, frozen=True, dict=True):
    """A text with its lines and parts, and the way back to its spelling."""

    text: str

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, long ones in parts."""
        return split_lines(self.text)

    @cached_property
    def has_parts(self) -> bool:
        """Return whether a line is split."""
        return has_parts(self.text, self.lines)

    @property
    def unit(self) -> str:
        """The unit that a marker names."""
        return "parts" if self.has_parts else "lines"

    @cached_property
    def frame(self) -> tuple[int, int]:
        """The lines before an output, the one that it begins on included, and those after it."""
        frame = split_frame(self.text)
        return len(split_lines(frame.head)), len(split_lines(frame.note)) if frame.note else 0

    @cached_property
    def plain(self) -> Sequence[str]:
        """Its lines without escapes."""
        return list(map(unescape, self.lines)) if self.has_parts else self.lines

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line or part."""
        starts: list[int] = []
        at, text = 0, self.text
        for line in self.lines:
            starts.append(at)
            at += len(line)
            at += text[at : at + 1] == "\n"
        return starts

    @cached_property
    def units(self) -> list[int]:
        """The first part of each unit that a reader takes in as a whole, and the number of parts.

        An escaped line is one, unless it is long itself; so are a sentence and a JSON member.
        """
        found, size, escaped = [0], 0, False
        for at, (before, after) in enumerate(pairwise(self.lines), 1):
            size += len(before)
            escaped = escaped or before.endswith(_LINE_BREAK)
            is_new_line = self.starts[at] > self.starts[at - 1] + len(before)
            if is_new_line or _ends_unit(before, after, escaped=escaped):
                found.append(at)
                size, escaped = 0, escaped and not is_new_line
            elif size + len(after) > LONG_LINE_CHARS:
                found.append(at)
                size = 0
        return [*found, len(self.lines)]

    def slice(self, start: int, end: int) -> list[str]:
        """These lines as the text spells them: parts of one line stay on one line."""
        if not self.has_parts or start >= end:
            return self.lines[start:end]
        last = end - 1
        return [self.text[self.starts[start] : self.starts[last] + len(self.lines[last])]]

    def following(self, line: str, at: int) -> int | None:
        """The place behind a kept line that begins at a place; None if the text differs there.

        Its number may have been taken out.
        """
        if at >= len(self.lines):
            return None
        if not self.has_parts:
            return at + 1 if line.strip() in self.lines[at] else None
        start = self.starts[at]
        if not self.text.startswith(line, start):
            return None
        end = start + len(line)
        return bisect_right(self.starts, end - 1, lo=at) if line else at + 1
