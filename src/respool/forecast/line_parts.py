"""Lines of a text; long ones (JSON, escaped text, minified code) are split into parts.

A line that is longer than a screen says many things, and a turn needs a few of them. It is split at
escaped line breaks, between JSON members, and behind clauses, so that each part is indexed,
forecast and kept by itself. An unchanged line always has the same parts.

JSON is split as if it were printed with a member a line: a short member stays whole with its key,
of a long one each member is a part, and text in a string is split by its own lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
_IS_JSON: Final = lazy_compile(r"\s*(?:\{\s*\"|\[\s*[\[{\"])")
_JSON_TOKEN: Final = lazy_compile(r"\"(?:[^\"\\]+|\\.)*(?P<close>\"?)|[\[\]{},]", re.DOTALL)
_TEXT_CHARS: Final = 200  # of a string with line breaks that is split
_MAX_JSON_DEPTH: Final = 40  # deeper members stay in one part
_WRAPPED: Final = 0.7  # share of a text that is one string of JSON
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
    if _IS_JSON.match(line):
        starts = [part.start for part in json_parts(line)]
    else:
        starts = [0, *_text_breaks(line, 0, len(line))]
    return [line[start:end] for start, end in pairwise((*starts, len(line)))]


def _text_breaks(line: str, first: int, last: int) -> Iterator[int]:
    """The starts of the parts of a range of a line, without the first."""
    start = first
    for found in _BREAK.finditer(line, first, last):
        end = found.end()
        is_end = found["line"] is not None or end - start >= _MIN_PART_CHARS
        if is_end and end < last:
            yield end
            start = end


class JsonPart(Struct, frozen=True, gc=False):
    """The start of a part of a line of JSON."""

    start: int
    depth: int
    in_string: bool = False


def json_parts(line: str) -> list[JsonPart]:
    """The parts of a long line of JSON: a member each, or a line of text in a string.

    >>> found = json_parts('{"rows": [' + '{"id": 1, "name": "thread"}, ' * 40 + '1], "n": 1}')
    >>> [part.depth for part in found][:3], [part.depth for part in found][-3:]
    ([0, 1, 2], [1, 1, 0])
    """
    return list(_JsonSplit(line).parts())


class _JsonSplit:
    """The tokens of a line of JSON, and the containers that are too long for one part."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._tokens = list(_JSON_TOKEN.finditer(line))
        self._is_long = self._long_containers()
        self._last = 0  # start of the part
        self._depth = self._inner = 0  # containers around it, and those that it holds
        self._is_closed = False  # the last token closed a long container or string

    def _long_containers(self) -> set[int]:
        """The brackets of containers that are too long for one part, by offset."""
        found: set[int] = set()
        opened: list[int] = []
        for token in self._tokens:
            sign = token[0][0]
            if sign in "[{":
                opened.append(token.start())
            elif sign in "]}" and opened:
                start = opened.pop()
                if token.end() - start > LONG_LINE_CHARS and len(opened) < _MAX_JSON_DEPTH:
                    found.update((start, token.start()))
        for depth, start in enumerate(opened[:_MAX_JSON_DEPTH]):  # the line ends inside them
            if len(self._line) - start > LONG_LINE_CHARS or depth == 0:
                found.add(start)
        return found

    def parts(self) -> Iterator[JsonPart]:
        """The parts in order."""
        yield JsonPart(0, 0)
        for token in self._tokens:
            if token[0][0] == '"':
                if not self._inner and _is_text(token[0]):
                    yield from self._string_parts(token.start() + 1, token.start("close"))
                    self._last, self._is_closed = token.start("close"), True
                else:
                    self._is_closed = False
                continue
            cut = self._cut_at(token[0], token.start())
            if self._last < cut < len(self._line):
                yield JsonPart(cut, self._depth)
                self._last = cut

    def _cut_at(self, sign: str, at: int) -> int:
        """Where a bracket or a comma begins a part; -1 if it does not."""
        was_closed, self._is_closed = self._is_closed, False
        if sign in "[{":
            if self._inner or at not in self._is_long:
                self._inner += 1
                return -1
            self._depth += 1
            return at + 1
        if sign == ",":
            is_cut = was_closed or at + 1 - self._last >= _MIN_PART_CHARS
            return at + 1 if is_cut and not self._inner else -1
        if self._inner:
            self._inner -= 1
        elif at in self._is_long:
            self._depth, self._is_closed = self._depth - 1, True
            return -1 if was_closed else at
        return -1

    def _string_parts(self, first: int, close: int) -> Iterator[JsonPart]:
        """The parts of a long string, and the one that its end begins."""
        yield JsonPart(first, self._depth + 1, in_string=True)
        for start in _text_breaks(self._line, first, close):
            yield JsonPart(start, self._depth + 1, in_string=True)
        if close < len(self._line):
            yield JsonPart(close, self._depth)


def _is_text(string: str) -> bool:
    """Return whether a string of JSON is split: a long one, or lines of text."""
    return len(string) > (_TEXT_CHARS if _LINE_BREAK in string else LONG_LINE_CHARS)


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


def _ends_json_unit(before: JsonPart, after: JsonPart, text: str) -> bool:
    """The same of parts of JSON; sentences of a line of text belong together."""
    return not (before.in_string and after.in_string) or text.endswith(_LINE_BREAK)


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
    def json(self) -> Sequence[JsonPart | None]:
        """For each line its place in a long line of JSON; None if it is of none."""
        if not self.has_parts:
            return [None] * len(self.lines)
        found: list[JsonPart | None] = []
        for line in self.text.split("\n"):
            if len(line) <= LONG_LINE_CHARS:
                found.append(None)
            elif _IS_JSON.match(line):
                found += json_parts(line)
            else:
                found += [None] * len(_split_line(line))
        return found

    @cached_property
    def wrapping(self) -> tuple[int, int]:
        """The parts before and behind the one string that is most of a text of JSON; (0, 0): none.

        Many tools return what they print like that.
        """
        inside = [at for at, part in enumerate(self.json) if part is not None and part.in_string]
        if not inside or "\n" in self.text or inside[-1] - inside[0] >= len(inside):
            return 0, 0
        first, end = inside[0], inside[-1] + 1
        chars = sum(map(len, self.lines[first:end]))
        is_most = chars >= _WRAPPED * len(self.text)
        return (first, len(self.lines) - end) if is_most else (0, 0)

    @property
    def is_json(self) -> bool:
        """Return whether the output begins with a long line of JSON of more than one string."""
        first = max(0, self.frame[0] - 1)
        return self.json[first] is not None and self.wrapping == (0, 0)

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
            if is_new_line or self._ends_unit(at, escaped=escaped):
                found.append(at)
                size, escaped = 0, escaped and not is_new_line
            elif size + len(after) > LONG_LINE_CHARS:
                found.append(at)
                size = 0
        return [*found, len(self.lines)]

    def _ends_unit(self, at: int, *, escaped: bool) -> bool:
        """Return whether a unit ends before a part of the line of the part before it."""
        before, after = self.json[at - 1], self.json[at]
        if before is not None and after is not None:
            return _ends_json_unit(before, after, self.lines[at - 1])
        return _ends_unit(self.lines[at - 1], self.lines[at], escaped=escaped)

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
