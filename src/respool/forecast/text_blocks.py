"""Blocks of a text that a reader takes in as a whole: they stay or go together.

A cheap scan by indentation, blank lines and line starts, without a parser: definitions with their
body, paragraphs, doc comments, hunks, members of JSON, rows. A block may hold inner blocks; its own
lines (a definition, a heading, a hunk's `@@`) stay with any of these that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from threading import Lock
from typing import Final, Literal

from msgspec import Struct

from ..cache_scope import current_scope
from ..history.line_index import unnumbered_lines
from ..regex import lazy_compile

Layout = Literal["code", "prose", "diff", "hits", "rows"]

_SMALL: Final = 4  # lines that stay or go together, if nothing divides them
_MAX_CACHED_LINES: Final = 12_000  # of texts whose blocks are kept, some fifty bytes each
_MAX_DEPTH: Final = 8  # of blocks inside blocks
_MAX_GLUED: Final = 40  # lines of one doc comment
_MAX_SIGNATURE: Final = 12  # lines of a definition before its body
_BLANK: Final = -1  # in place of an indentation

_COMMENT: Final = lazy_compile(
    r"//|#(?!\[|!\[|include|define|if|else|end)|\*(?:\s|/|$)|/\*|--\s|;;|%%"
)
_QUOTES: Final = lazy_compile(r'"""|\'\'\'')
_ATTRIBUTE: Final = lazy_compile(r"@[\w.]+(?:\(.*\))?\s*$|#!?\[.*\]\s*$")
_CONTINUATION: Final = lazy_compile(
    r"[)\]}>]|(?:end|else|elif|elsif|except|finally|catch|rescue|ensure|fi|done|esac|then|do)\b"
    r"|</|\|\s|&&|\|\||\.\w|\?\.|`"
)
_CONTROL: Final = lazy_compile(
    r"(?:\}\s*)?(?:if|for|while|switch|match|select|try|with|when|until|do|loop|case|default|return"
    r"|else|elif|except|catch|finally|go|defer|await|unless|foreach|using|lock)\b"
)
_DEFINITION: Final = lazy_compile(
    r"(?:(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|static|abstract|final|async"
    r"|override|unsafe|internal|inline|declare|virtual)\s+)*"
    r"(?:def|class|func|fn|function|interface|type|struct|enum|trait|impl|module|mod|namespace"
    r"|const|let|var|val|describe|it|test|record|object|protocol|extension)\b"
)
_VALUE: Final = lazy_compile(r"(?:(?:export|declare)\s+)*(?:const|let|var|val)\b")
_LABEL: Final = lazy_compile(r"(?:case\b[^()]*(?:\([^()]*\)[^()]*)*|default\s*):")  # of a switch
_CLOSER: Final = lazy_compile(r"[)\]}]+[,;)\]}]*\s*$")
_HEADING: Final = lazy_compile(r"(#{1,6})\s+\S|={3,}\s*\S.*=|-{3,}\s*\S.*-$")
_ITEM: Final = lazy_compile(r"(?:[-*+•]|\d{1,3}[.)])\s+\S|\|")
_TABLE_RULE: Final = lazy_compile(r"\|?[\s:|-]*-{3}[\s:|-]*$")
_FENCE: Final = lazy_compile(r"(?:```|~~~)")
_DIFF_FILE: Final = lazy_compile(r"diff --git |diff -|Index: |\*\*\* (?:Update|Add|Delete) File")
_DIFF_HEAD: Final = lazy_compile(
    r"index |--- |\+\+\+ |new file|deleted file|old mode|new mode|similarity|rename |copy |Binary "
)
_HIT_ROW: Final = lazy_compile(r"\s{0,8}(?:L|Line )?\d+[:\-]|[^\s:]{1,300}[:\-]\d+[:\-]")
_EXCERPT: Final = lazy_compile(r"\d* *\|(?: |$)|-->|= (?:note|help)|[~^]{2,}")  # below an error
_FAILURE: Final = lazy_compile(
    r"\b(?:[Ee]rror|ERROR|FAIL(?:ED|URE)?|[Ff]ail(?:ed|ure)|panic|fatal|Exception|Traceback)\b|[✗×✘✖]"
)


class TextBlock(Struct, frozen=True, gc=False):
    """Lines that belong together, and the blocks inside them."""

    own: tuple[int, ...]
    inner: tuple[TextBlock, ...] = ()
    tail: tuple[int, ...] = ()  # lines that close it; they stay with an inner block
    can_stand_alone: bool = True  # its own lines say something without an inner block


_CacheKey = tuple[int, Layout, int, int, bytes]  # hash of the text, the question, the scope


class _BlockCache:
    """LRU cache of blocks, bounded by their lines; it holds no text."""

    def __init__(self) -> None:
        self._found: dict[_CacheKey, tuple[TextBlock, ...]] = {}
        self._lines = 0
        self._lock = Lock()

    def get(self, key: _CacheKey) -> tuple[TextBlock, ...] | None:
        """The known blocks of a text."""
        with self._lock:
            known = self._found.pop(key, None)
            if known is not None:
                self._found[key] = known
            return known

    def store(self, key: _CacheKey, blocks: tuple[TextBlock, ...]) -> None:
        """Store the blocks of a text; drop those that were used least recently."""
        with self._lock:
            if self._found.pop(key, None) is None:
                self._lines += _lines_in(key)
            self._found[key] = blocks
            while self._lines > _MAX_CACHED_LINES:
                oldest = next(iter(self._found))
                del self._found[oldest]
                self._lines -= _lines_in(oldest)


def _lines_in(key: _CacheKey) -> int:
    return max(1, key[3] - key[2])


_BLOCKS: Final = _BlockCache()


def text_blocks(text: str, layout: Layout, first: int, end: int) -> tuple[TextBlock, ...]:
    """The blocks of the lines from `first` up to `end` of a text."""
    key = hash(text), layout, first, end, current_scope()
    known = _BLOCKS.get(key)
    if known is None:
        known = _divide(text, layout, first, end)
        _BLOCKS.store(key, known)
    return known


def _divide(text: str, layout: Layout, first: int, end: int) -> tuple[TextBlock, ...]:
    # The numbers of hits and rows are their own.
    bare = text.split("\n") if layout in ("hits", "rows") else unnumbered_lines(text)
    return tuple(_Scan(bare, layout).blocks(first, min(end, len(bare))))


class _Scan:
    """The lines of a text with what divides and joins them."""

    def __init__(self, lines: Sequence[str], layout: Layout) -> None:
        self.lines = lines
        self.layout: Layout = layout
        body = [line[1:] for line in lines] if layout == "diff" else lines
        self.starts = [line.lstrip() for line in body]
        self.indents = [
            _BLANK if not start else _indent(line, start)
            for line, start in zip(body, self.starts, strict=True)
        ]
        self.glued = bytearray(len(lines))  # lines that belong to the one before
        if layout in ("code", "diff"):
            self._glue_code()

    def blocks(self, first: int, end: int) -> list[TextBlock]:
        """The blocks of a range of lines."""
        divide: dict[Layout, Callable[[int, int], list[TextBlock]]] = {
            "code": lambda start, stop: self._paragraphs(start, stop, 0),
            "prose": self._sections,
            "diff": self._files,
            "hits": self._hits,
            "rows": self._rows,
        }
        return divide[self.layout](first, end)

    # --- code, settings, JSON: by blank lines and indentation ---------------------------------

    def _glue_code(self) -> None:
        """Join the lines of doc comments and docstrings, and an attribute with what it is on."""
        starts, glued = self.starts, self.glued
        quote, count = "", 0
        in_comment = in_attribute = False
        for at, start in enumerate(starts):
            if quote:
                count += 1
                glued[at] = count < _MAX_GLUED
                if quote in start:
                    quote = ""
                continue
            found = _QUOTES.search(start)
            if found is not None and start.count(found[0]) % 2:
                quote, count = found[0], 0
            is_comment = _COMMENT.match(start) is not None
            if is_comment and in_comment and self.indents[at] - self.indents[at - 1] in (0, 1, -1):
                count += 1
                glued[at] = count < _MAX_GLUED
            elif is_comment:
                count = 0
            glued[at] |= in_attribute and start != ""
            in_comment, in_attribute = is_comment, _ATTRIBUTE.match(start) is not None

    def _paragraphs(self, first: int, end: int, depth: int) -> list[TextBlock]:
        """The blocks between blank lines at the outermost level of a range."""
        while first < end and self.indents[first] == _BLANK:
            first += 1
        if first >= end:
            return []
        if end - first <= _SMALL or depth >= _MAX_DEPTH:
            return [self._leaf(first, end)]
        outer = min(one for one in self.indents[first:end] if one != _BLANK)
        labels = self._is_label(first)
        begins = [
            at
            for at in range(first + 1, end)
            if self.indents[at - 1] == _BLANK and self._is_head(at, outer, labels=labels)
        ]
        found: list[TextBlock] = []
        for start, stop in pairwise([*self._merged(first, begins), end]):
            found += self._paragraph(start, stop, depth)
        return found

    def _merged(self, first: int, begins: Sequence[int]) -> Iterator[int]:
        """The starts of paragraphs; a lone line that defines nothing joins the one before."""
        yield first
        for at, after in pairwise([*begins, len(self.lines)]):
            is_lone = after - at <= 2 and not self._is_definition(at)
            if not is_lone or at == first:
                yield at

    def _is_head(self, at: int, outer: int, *, labels: bool) -> bool:
        """Return whether a block may begin at this line; at a label only among labels.

        Elsewhere a label belongs to the switch that stands no deeper above it.
        """
        return (
            self.indents[at] == outer
            and not self.glued[at]
            and _CONTINUATION.match(self.starts[at]) is None
            and (labels or not self._is_label(at))
        )

    def _is_label(self, at: int) -> bool:
        return self.starts[at][:1] in ("c", "d") and _LABEL.match(self.starts[at]) is not None

    def _paragraph(self, first: int, end: int, depth: int) -> list[TextBlock]:
        """One paragraph as a block, or as several if it is long."""
        if end - first <= _SMALL:
            return [self._leaf(first, end)]
        outer = min(one for one in self.indents[first:end] if one != _BLANK)
        labels = self._is_label(first)
        heads = [at for at in range(first + 1, end) if self._is_head(at, outer, labels=labels)]
        statements = list(pairwise([first, *heads, end]))
        if len(statements) == 1:
            return [self._definition(first, end, outer, depth)]
        found: list[TextBlock] = []
        open_from = first
        for start, stop in statements:
            is_large = stop - start > _SMALL
            if start > open_from and (
                is_large or self._is_opening(start, stop) or stop - open_from > _SMALL
            ):
                found.append(self._leaf(open_from, start))
                open_from = start
            if is_large:
                found.append(self._definition(start, stop, outer, depth))
                open_from = stop
        if open_from < end:
            found.append(self._leaf(open_from, end))
        return found

    def _is_opening(self, start: int, stop: int) -> bool:
        return stop - start > 1 and self._is_definition(start)

    def _definition(self, first: int, end: int, outer: int, depth: int) -> TextBlock:
        """A line with what stands deeper below it, and the lines that divide and close it."""
        signature = self._signature_end(first, end, outer)
        divides = [at for at in range(first, end) if self.indents[at] == outer]
        joined = [at for at in range(first, end) if self._joins(at, first)]
        own = sorted({*divides, *joined, *range(first, signature)})
        last = end
        while last > first and self.indents[last - 1] == _BLANK:
            last -= 1
        tail = [at for at in own if at >= last - 1 and at > first] + list(range(last, end))
        own = [at for at in own if at < last - 1 or at == first]
        inner: list[TextBlock] = []
        heads: list[int] = []  # the lines of `own` outside of inner blocks
        for before, after in pairwise([*own, last if not tail else tail[0]]):
            body = self._paragraphs(before + 1, after, depth + 1) if after - before > 1 else []
            if before == first or not self._is_label(before):
                heads.append(before)
                inner += body
            else:
                inner.append(TextBlock((before,), tuple(body)))
        if not inner:
            return TextBlock(tuple(range(first, end)))
        covered = {*heads, *tail, *(at for one in inner for at in lines_of(one))}
        rest = [at for at in range(first, end) if at not in covered]  # blank lines
        alone = _CONTROL.match(self.starts[first]) is None
        is_value = _VALUE.match(self.starts[first]) is not None
        if alone and (is_value or not self._is_definition(first)):
            # Its end belongs to its beginning.
            heads += [at for at in tail if self.indents[at] != _BLANK]
        rest += [at for at in tail if at not in heads]
        return TextBlock(tuple(heads), tuple(inner), tuple(rest), alone)

    def _joins(self, at: int, first: int) -> bool:
        """Return whether a line is glued to the first of a block."""
        return bool(self.glued[at]) and all(self.glued[first + 1 : at + 1])

    def _signature_end(self, first: int, end: int, outer: int) -> int:
        """The end of the lines that define, where they go on over several."""
        if not self.lines[first].rstrip().endswith(("(", "[", "<", ",")):
            return first + 1
        for at in range(first + 1, min(end, first + _MAX_SIGNATURE)):
            if self.indents[at] == outer:
                closes = self.lines[at].rstrip().endswith((":", "{", "=>", "("))
                return at + 1 if closes else first + 1
        return first + 1

    def _leaf(self, first: int, end: int) -> TextBlock:
        return TextBlock(tuple(range(first, end)))

    def _is_definition(self, at: int) -> bool:
        """Return whether a line defines, fails or heads something, so that it may stand alone."""
        start = self.starts[at]
        return bool(
            _DEFINITION.match(start) or _HEADING.match(start) or _FAILURE.search(start[:120])
        )

    # --- prose: by headings, paragraphs, list items and table rows -----------------------------

    def _sections(self, first: int, end: int) -> list[TextBlock]:
        """The paragraphs before the first heading, then a block for each heading of its level."""
        headings = self._headings(first, end)
        if not headings:
            return self._prose(first, end)
        level = min(headings.values())
        tops = [at for at, one in headings.items() if one == level]
        found = self._sections(first, tops[0]) if tops[0] > first else []
        for start, stop in pairwise([*tops, end]):
            found.append(TextBlock((start,), tuple(self._sections(start + 1, stop))))
        return found

    def _headings(self, first: int, end: int) -> dict[int, int]:
        """The level of each heading, by line; none inside a fence."""
        found: dict[int, int] = {}
        fenced = False
        for at in range(first, end):
            start = self.starts[at]
            if _FENCE.match(start):
                fenced = not fenced
            elif not fenced and start[:1] == "#" and (heading := _HEADING.match(start)):
                found[at] = len(heading[1] or "#")
        return found

    def _prose(self, first: int, end: int) -> list[TextBlock]:
        """Paragraphs, lists and tables; fenced code as a whole."""
        return self._below_leads(self._prose_pieces(first, end))

    def _below_leads(self, pieces: Sequence[TextBlock]) -> list[TextBlock]:
        """Put items below the line that announces them, and rows below the head of their table."""
        found: list[TextBlock] = []
        at = 0
        while at < len(pieces):
            lead, at = pieces[at], at + 1
            items: list[TextBlock] = []
            if self._is_lead(lead):
                while at < len(pieces) and self._is_below_lead(pieces[at]):
                    items.append(pieces[at])
                    at += 1
            found.append(TextBlock(lead.own, tuple(items)) if items else lead)
        return found

    def _is_lead(self, piece: TextBlock) -> bool:
        """Return whether a piece announces the items, or heads the rows, that follow it."""
        if piece.inner or len(piece.own) > _SMALL:
            return False
        last = next((self.starts[at] for at in reversed(piece.own) if self.starts[at]), "")
        return last.rstrip().endswith((":", ":**")) or self._has_rule(piece)

    def _is_below_lead(self, piece: TextBlock) -> bool:
        return _ITEM.match(self.starts[piece.own[0]]) is not None and not self._has_rule(piece)

    def _has_rule(self, piece: TextBlock) -> bool:
        """Return whether a piece is the head of a table."""
        second = self.starts[piece.own[1]] if len(piece.own) > 1 else ""
        return second[:1] in ("|", ":", "-") and _TABLE_RULE.match(second) is not None

    def _prose_pieces(self, first: int, end: int) -> list[TextBlock]:
        """Paragraphs; items of lists and rows of tables one by one."""
        found: list[TextBlock] = []
        at = start = first
        while at < end:
            text = self.starts[at]
            if _FENCE.match(text):
                at = self._fence_end(at, end)
                continue
            begins = at > start and (
                (self.indents[at - 1] == _BLANK and text != "")
                or (self.indents[at] <= self.indents[start] and _ITEM.match(text) is not None)
            )
            if begins and not _TABLE_RULE.match(text):
                found += self._prose_piece(start, at)
                start = at
            at += 1
        return found + self._prose_piece(start, end) if start < end else found

    def _prose_piece(self, first: int, end: int) -> list[TextBlock]:
        """A paragraph or an item; a long one with code in it by its parts."""
        if all(one == _BLANK for one in self.indents[first:end]):
            return [self._leaf(first, end)]
        fence = next((at for at in range(first, end) if _FENCE.match(self.starts[at])), None)
        if fence is None or end - first <= 3 * _SMALL:
            return [self._leaf(first, end)]
        close = self._fence_end(fence, end)
        own = tuple(range(first, fence + 1))
        inner = self._paragraphs(fence + 1, close - 1, 1)
        covered = {*own, *(at for one in inner for at in lines_of(one))}
        tail = tuple(at for at in range(first, end) if at not in covered)
        return [TextBlock(own, tuple(inner), tail, can_stand_alone=False)]

    def _fence_end(self, at: int, end: int) -> int:
        for close in range(at + 1, end):
            if _FENCE.match(self.starts[close]):
                return close + 1
        return end

    # --- diffs: by file and hunk -----------------------------------------------------------------

    def _files(self, first: int, end: int) -> list[TextBlock]:
        heads = [at for at in range(first, end) if _DIFF_FILE.match(self.lines[at])]
        if not heads:
            return self._hunks(first, end)
        found = self._hunks(first, heads[0]) if heads[0] > first else []
        for start, stop in pairwise([*heads, end]):
            body = start + 1
            while body < stop and _DIFF_HEAD.match(self.lines[body]):
                body += 1
            found.append(TextBlock(tuple(range(start, body)), tuple(self._hunks(body, stop))))
        return found

    def _hunks(self, first: int, end: int) -> list[TextBlock]:
        heads = [at for at in range(first, end) if self.lines[at].startswith("@@")]
        if not heads:
            return self._paragraphs(first, end, 1)
        found = [self._leaf(first, heads[0])] if heads[0] > first else []
        for start, stop in pairwise([*heads, end]):
            inner = [] if stop - start <= 3 * _SMALL else self._paragraphs(start + 1, stop, 1)
            if len(inner) < 2:
                found.append(self._leaf(start, stop))
                continue
            covered = {start, *(at for one in inner for at in lines_of(one))}
            rest = tuple(at for at in range(start, stop) if at not in covered)
            found.append(TextBlock((start,), tuple(inner), rest, can_stand_alone=False))
        return found

    # --- hits, logs, tables: by row -------------------------------------------------------------

    def _hits(self, first: int, end: int) -> list[TextBlock]:
        """Groups between `--`; else rows, below the name of their file if that heads them."""
        if any(self.lines[at] == "--" for at in range(first, end)):
            marks = [at for at in range(first, end) if self.lines[at] == "--"]
            starts = [first, *(at + 1 for at in marks if at + 1 < end)]
            return [self._leaf(start, stop) for start, stop in pairwise([*starts, end])]
        found: list[TextBlock] = []
        at = first
        while at < end:
            stop = at + 1
            is_file = self.starts[at] != "" and _HIT_ROW.match(self.lines[at]) is None
            while is_file and stop < end and _HIT_ROW.match(self.lines[stop]):
                stop += 1
            rows = tuple(self._leaf(row, row + 1) for row in range(at + 1, stop))
            found.append(TextBlock((at,), rows))
            at = stop
        return found

    def _rows(self, first: int, end: int) -> list[TextBlock]:
        """Rows with the deeper lines below them; the lines of a failure up to a blank one."""
        found: list[TextBlock] = []
        at = first
        while at < end:
            stop = at + 1
            indent = self.indents[at]
            while stop < end and indent != _BLANK and self._continues_row(at, stop):
                stop += 1
            if _FAILURE.search(self.starts[at][:120]):
                limit = min(end, at + 2 * _SMALL)
                while stop < limit and self.indents[stop] != _BLANK:
                    stop += 1
            found += self._row(at, stop)
            at = stop
        return found

    def _continues_row(self, row: int, at: int) -> bool:
        """Return whether a line stands deeper than its row, closes it, or is of its excerpt."""
        start, indent = self.starts[at], self.indents[row]
        if not start:
            after = self.starts[at + 1] if at + 1 < len(self.starts) else ""
            return after != "" and self._continues_row(row, at + 1)
        if self.indents[at] > indent or _EXCERPT.match(start) is not None:
            return True
        if at == row + 1:  # a test, then its outcome
            return start.startswith("--- ") and self.starts[row].startswith("=== RUN")
        return self.indents[at] == indent and _CLOSER.match(start) is not None

    def _row(self, first: int, end: int) -> list[TextBlock]:
        """A row; the lines of a long one by their own blocks."""
        if end - first <= 2 * _SMALL:
            return [self._leaf(first, end)]
        return [self._definition(first, end, self.indents[first], 0)]


def lines_of(block: TextBlock) -> Iterator[int]:
    """All lines of a block, in no order."""
    yield from block.own
    yield from block.tail
    for one in block.inner:
        yield from lines_of(one)


def _indent(line: str, start: str) -> int:
    """The blanks before a line's words; a tab counts four."""
    blanks = line[: len(line) - len(start)]
    return len(blanks) + 3 * blanks.count("\t")


def keep_blocks(blocks: Sequence[TextBlock], worth: Sequence[float], stays: bytearray) -> None:
    """Mark the lines of the blocks that are worth more than they cost.

    `worth` is the value of keeping each line, less its cost.
    """
    for block in blocks:
        _mark(block, worth, stays)


def _mark(block: TextBlock, worth: Sequence[float], stays: bytearray) -> None:
    value, choice = _choose(block, worth)
    if value <= 0:
        return
    for line in lines_of(block) if choice == "all" else block.own:
        stays[line] = 1
    if choice == "inner":
        for line in block.tail:
            stays[line] = 1
        keep_blocks(block.inner, worth, stays)


def _choose(block: TextBlock, worth: Sequence[float]) -> tuple[float, str]:
    """The best value of a block, and what of it stays for that."""
    own = sum([worth[line] for line in block.own])
    if not block.inner:
        return own + sum([worth[line] for line in block.tail]), "all"
    inside = sum([max(0.0, _choose(one, worth)[0]) for one in block.inner])
    if inside > 0:
        value = own + inside + sum([worth[line] for line in block.tail])
        if not block.can_stand_alone or value > own:
            return value, "inner"
    if block.can_stand_alone:
        return own, "own"
    return sum([worth[line] for line in lines_of(block)]), "all"
