"""Selection of the lines of a result to keep, and of names from the removed ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, get_args

from msgspec import Struct

from ..markers import gap_line
from ..regex import lazy_compile
from .features import DEFINITION, RESULT_FEATURES, ResultFeatures
from .line_codes import FORMS, HAS_NAMES, LINE_FORMATS, decode_form
from .line_parts import SplitText
from .mentions import Mentions
from .model import Forecast
from .native_mentions import NativeMentions
from .text_blocks import Layout, TextBlock, keep_blocks, text_blocks

_TOKEN: Final = 4  # approximate characters
_SHORT_RUN: Final = 80  # characters; a hole in place of fewer would save almost nothing
_MIN_SIZE: Final = 7  # minimum characters of a listed name
_MAX_NAMES: Final = 12  # names listed per hole
_MAX_LOOKUPS: Final = 200  # names per result that are looked up in the text that stays
_CODE: Final = RESULT_FEATURES["kind"].index("read code")  # outermost definitions of these stay
_COMPOUND: Final = lazy_compile(r"[A-Z]?[a-z]+(?:-[a-z]+)+")
_PAGES: Final = frozenset(
    RESULT_FEATURES["kind"].index(kind) for kind in ("read page", "run page", "other")
)
_CLOSING_TAG: Final = lazy_compile(r"</(\w+)>$")
_HASH: Final = lazy_compile(r"[0-9a-f]{7,}")
# No letters, addresses, rights of files, numbered words, drawings' paths
_MEANINGLESS: Final = lazy_compile(
    r"[\W\d_]*|0x[0-9a-fA-F]+|[dl-](?:[r-][w-][xsStT-]){3}"
    r"|\d+:[a-zA-Z-]+|[\d.,-]*(?:[a-zA-Z][\d.,-]+){2,}"
)
_ESCAPED_ENDS: Final = ("\\", "\\n")  # of escaped text
_OUTLINE: Final = bytes(
    at for at, (form, _, set_in) in enumerate(LINE_FORMATS) if form == DEFINITION and set_in == 0
)
_FAILURE: Final = FORMS.index("failure")
_RUNS: Final = frozenset(
    n for n, kind in enumerate(RESULT_FEATURES["kind"]) if kind.startswith("run")
)
_ENDING: Final = 2  # lines at the end of a run that report its outcome

_KEPT, _REMOVED_BEFORE = 1, 2
# What a needed line counts against the lines of its block that nobody needs. Fitted by replay.
_NEED_FACTOR: Final = 3.0
_ROUNDING: Final = 1e-9  # a worth that no rounding hides
_HEADINGS: Final = ("# ", "## ", "### ", "#### ")
_LAYOUTS: Final[dict[str, Layout]] = {  # by kind of result; else as code
    "read page": "prose",
    "run page": "prose",
    "read diff": "diff",
    "search hits": "hits",
    "search other": "hits",
    "run test": "rows",
    "run log": "rows",
    "run other": "rows",
    "other": "prose",
}
# By layout: its number in native/src/lib.rs.
_LAYOUT_NUMBERS: Final = {layout: number for number, layout in enumerate(get_args(Layout))}


class SelectedLines(Struct, frozen=True):
    """The remaining text, the removed lines, and their risk."""

    text: str
    lines: Sequence[int]
    total: int
    risk: float
    unit: str = "lines"  # or parts of long ones

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return len(self.lines)


def select_lines(
    text: str,
    found: ResultFeatures,
    expected: Forecast,
    mentions: Mentions,
    *,
    rate: float,
    named: bool = True,
    gone_before: Collection[int] = (),
) -> SelectedLines | None:
    """Select the lines whose risk per token exceeds a rate; None if all stay.

    Lines removed by an earlier cut stay removed, and carry no more risk.
    """
    if isinstance(mentions, NativeMentions):
        return _select_natively(
            text, found, expected, mentions, rate=rate, named=named, gone_before=gone_before
        )
    split = mentions.split(text)
    lines = split.lines
    stays = _fixed_lines(split, found, gone_before)
    names = LineNames(
        split.plain,
        stays if named else b"",
        found=found,
        expected=expected,
        mentions=mentions,
        rate=rate,
    )
    _keep_needed(split, stays, found=found, expected=expected, names=names, rate=rate)
    for line in gone_before:
        stays[line] = False
    if not lines[-1]:
        stays[-1] = True  # the text ends there
    _fill_short_runs(lines, stays, gone_before)
    holes = list(_holes(stays))
    if not holes:
        return None
    pieces = _kept_pieces(split, holes)
    missing = _MissingNames(names, expected, "\n".join(one for piece in pieces for one in piece))
    found_pieces, removed, risk = pieces[0], list[int](), 0.0
    for (start, end), after in zip(holes, pieces[1:], strict=True):
        listed = missing.listed(start, end)
        listed_names = [name for line in sorted(listed) for name in listed[line]]
        found_pieces += _render_hole(end - start, split.unit, listed_names)
        found_pieces += after
        removed += range(start, end)
        risk += _range_risk(expected, start=start, end=end, listed=listed, gone_before=gone_before)
    all = len(lines) - (not lines[-1])
    return SelectedLines("\n".join(found_pieces), removed, all, risk, split.unit)


def _holes(stays: bytearray) -> Iterator[tuple[int, int]]:
    """The runs of lines that go."""
    at = 0
    while (start := stays.find(0, at)) >= 0:
        end = stays.find(1, start)
        at = len(stays) if end < 0 else end
        yield start, at


def _kept_pieces(split: SplitText, holes: Sequence[tuple[int, int]]) -> list[list[str]]:
    """The text before, between and behind the holes."""
    starts = [0, *(end for _, end in holes)]
    ends = [*(start for start, _ in holes), len(split.lines)]
    return [split.slice(start, end) for start, end in zip(starts, ends, strict=True)]


def _select_natively(
    text: str,
    found: ResultFeatures,
    expected: Forecast,
    mentions: NativeMentions,
    *,
    rate: float,
    named: bool,
    gone_before: Collection[int],
) -> SelectedLines | None:
    (head, note), kind = mentions.split(text).frame, found.bins[0]
    flags = bytearray(found.words.lines if gone_before else 0)
    for line in gone_before:
        flags[line] = 1
    cut = mentions.select_lines(
        found.words,
        text,
        whole=expected.whole,
        names=expected.names,
        gone_before=bytes(flags),
        rate=rate,
        head_lines=head,
        note_lines=note,
        layout=_LAYOUT_NUMBERS[_LAYOUTS.get(RESULT_FEATURES["kind"][kind], "code")],
        lists_names=named,
        keeps_outline=kind == _CODE,
        is_run=kind in _RUNS,
        in_prose=kind in _PAGES,
    )
    if cut is None:
        return None
    unit = "parts" if cut.are_parts else "lines"
    return SelectedLines(cut.text, cut.removed, cut.total, cut.risk, unit)


def _range_risk(
    expected: Forecast,
    *,
    start: int,
    end: int,
    listed: Collection[int],
    gone_before: Collection[int],
) -> float:
    """The risk of removing these lines when some of their names are listed."""
    risk = sum(expected.whole[start:end]) + sum(expected.names[start:end])
    risk -= sum(expected.names[line] for line in sorted(listed))  # floats: their order counts
    for line in range(start, end) if gone_before else ():
        if line in gone_before:
            risk -= expected.whole[line] + (0 if line in listed else expected.names[line])
    return risk


def _render_hole(removed: int, unit: str, names: Sequence[str]) -> list[str]:
    names_line = [f"[names left out: {', '.join(names)}]"] if names else []
    return [gap_line(removed, unit), *names_line]


class LineNames:
    """The unique names of lines that may be worth listing, computed lazily.

    `stays` flags the lines that stay in any case; if it is empty, no names are listed.
    """

    def __init__(
        self,
        lines: Sequence[str],
        stays: bytes | bytearray,
        *,
        found: ResultFeatures,
        expected: Forecast,
        mentions: Mentions,
        rate: float,
    ) -> None:
        min_need, owned = rate * _MIN_SIZE / _TOKEN, found.line_bins.unique
        needs = zip(expected.names, stays, strict=False)
        worthy = [
            line for line, (need, fixed) in enumerate(needs) if need > min_need and fixed != 1
        ]
        self.lines = [line for line in worthy if HAS_NAMES[owned[line]]]
        self._lines, self._words, self._mentions = lines, found.words, mentions
        self._needs, self._rate = expected.names, rate
        self._in_prose = found.bins[0] in _PAGES
        self._own: dict[int, dict[int, int]] = {}  # length of each
        self._found: dict[int, list[str]] = {}

    def of(self, line: int) -> list[str]:
        """The names listed if the line is removed."""
        known = self._found.get(line)
        if known is None:
            own = self._own_of(line)
            spelled = self._mentions.spelled(own, self._lines[line])
            known = [name for name in spelled if is_readable_name(name, in_prose=self._in_prose)]
            if known and not self._is_worth(line, _size(known)):
                known = []
            self._found[line] = known
        return known

    def listed_chars(self, line: int) -> int:
        """The characters of its listed names; 0 if none are."""
        longest = max(self._own_of(line).values(), default=0)
        return _size(self.of(line)) if self._is_worth(line, longest) else 0

    def listed_range(self, line: int) -> tuple[int, int]:
        """The fewest and the most characters of its listed names, where any are; (0, 0): none are.

        A name inside another is left out, so that only a look at the line says how many.
        """
        sizes = self._own_of(line).values()
        if not sizes or not self._is_worth(line, max(sizes)):
            return 0, 0
        return min(sizes), sum(sizes)

    def _own_of(self, line: int) -> dict[int, int]:
        own = self._own.get(line)
        if own is None:
            own = self._own[line] = self._mentions.own_names(self._words, line)
        return own

    def _is_worth(self, line: int, size: int) -> bool:
        """Check whether the expected need for these names exceeds their cost."""
        return self._needs[line] * _TOKEN > self._rate * size


def _risk_without_names(expected: Forecast, line: int) -> float:
    """The risk of a removed line whose names are listed."""
    return expected.whole[line] + 0.1 * expected.names[line]


def is_readable_name(name: str, *, in_prose: bool = False) -> bool:
    """Return whether a name says something without its line; a compound word of prose does not.

    >>> [is_readable_name(name) for name in ("loom.weave", "0x9d3f5c69", "______", "drwxr-xr-x")]
    [True, False, False, False]
    >>> [is_readable_name(name, in_prose=True) for name in ("open-source", "loom-2")]
    [False, True]
    >>> [is_readable_name(name) for name in ("329:func", "9d53b9c", "E0277")]
    [False, True, True]
    """
    if _HASH.fullmatch(name) is not None:
        return True
    if name.endswith(_ESCAPED_ENDS) or _MEANINGLESS.fullmatch(name) is not None:
        return False
    return not (in_prose and _COMPOUND.fullmatch(name))


def _size(names: Sequence[str]) -> int:
    return sum(map(len, names)) + 2 * len(names)


def _fixed_lines(
    split: SplitText, found: ResultFeatures, gone_before: Collection[int]
) -> bytearray:
    """The lines that always stay (frame and outline), and those removed before."""
    stays = bytearray(len(split.lines))
    if found.bins[0] == _CODE:
        for line, line_format in enumerate(found.words.formats):
            if line_format in _OUTLINE:
                stays[line] = _KEPT
    first, last = _frame_lines(split, is_run=_is_log(found, split.lines))
    if first < last and decode_form(found.words.formats[first]) == _FAILURE:
        stays[first] = _KEPT  # it says that all failed
    stays[:first] = b"\1" * len(stays[:first])
    stays[last:] = b"\1" * len(stays[last:])
    for line in gone_before:
        stays[line] = _REMOVED_BEFORE
    return stays


def _keep_needed(
    split: SplitText,
    stays: bytearray,
    *,
    found: ResultFeatures,
    expected: Forecast,
    names: LineNames,
    rate: float,
) -> None:
    """Keep the blocks of lines whose expected need exceeds their cost."""
    text, lines = split.text, split.lines
    limit = rate / _TOKEN
    needs = zip(expected.whole, expected.names, map(len, lines), strict=True)
    worth = [whole + name - limit * (size + 1) for whole, name, size in needs]
    worth = [_NEED_FACTOR * one if one > 0 else one for one in worth]
    first, last = _frame_lines(split, is_run=_is_log(found, lines))
    for line in range(first, last):
        if stays[line]:
            worth[line] = 0.0  # it stays or went in any case
    open_lines = _OpenLines(names, expected, lines, worth, stays=stays, limit=limit)
    if first < last and not open_lines.keep_all(stays, first, last):
        layout = _layout(RESULT_FEATURES["kind"][found.bins[0]], split.plain)
        if split.is_json:
            layout = "code"  # members below their keys
        if split.has_parts:
            open_lines.settle_lines(names.lines)
            _keep_units(split, layout, worth, stays, (first, last))
        else:
            blocks = text_blocks(text, layout, first, last)
            open_lines.settle(blocks)
            keep_blocks(blocks, worth, stays)
    _drop_blank_ends(lines, stays, first, last)


class _OpenLines:
    """Lines whose worth depends on the names that are listed without them.

    Their names are spelled only where the least and the most worth leave open what stays.
    """

    def __init__(
        self,
        names: LineNames,
        expected: Forecast,
        lines: Sequence[str],
        worth: list[float],
        *,
        stays: bytearray,
        limit: float,
    ) -> None:
        self._names, self._expected, self._lines, self._limit = names, expected, lines, limit
        self._worth = worth  # by line, of an open one without listed names
        self._open = {line for line in names.lines if not stays[line]}

    def keep_all(self, stays: bytearray, first: int, last: int) -> bool:
        """Mark all lines of a range if each is worth something by itself; else return False."""
        if not self._are_kept([line for line in range(first, last) if stays[line] != _KEPT]):
            return False
        stays[first:last] = b"\1" * (last - first)
        return True

    def settle(self, blocks: Sequence[TextBlock]) -> None:
        """Find the worth of open lines, exactly where the outcome of their block depends on it."""
        for block in blocks if self._open else ():
            if not block.inner and not block.tail:
                self._settle_leaf(block.own)
                continue
            lines: list[int] = []
            _add_lines(block, lines)
            if self._are_kept(lines):
                self._set(lines, map(self._least, lines))
            else:
                self.settle_lines(lines)

    def _are_kept(self, lines: Sequence[int]) -> bool:
        """Return whether each line is worth something, whatever is listed."""
        worth = self._worth
        return min(map(worth.__getitem__, lines), default=1.0) > _ROUNDING and all(
            self._least(line) > _ROUNDING for line in lines
        )

    def _settle_leaf(self, lines: Sequence[int]) -> None:
        if self._open.isdisjoint(lines):
            return
        if sum([self._worth[line] for line in lines]) > 0:
            known = list(map(self._least, lines))
            is_known = sum(known) > _ROUNDING  # it stays
        else:
            known = list(map(self._most, lines))
            is_known = sum(known) < -_ROUNDING  # it goes
        if is_known:
            self._set(lines, known)
        else:
            self.settle_lines(lines)

    def _set(self, lines: Sequence[int], values: Iterable[float]) -> None:
        for line, value in zip(lines, values, strict=True):
            self._worth[line] = value

    def settle_lines(self, lines: Iterable[int]) -> None:
        """Find the worth of these lines exactly."""
        for line in self._open.intersection(lines):
            listed = self._names.listed_chars(line)
            if listed:
                self._worth[line] = self._worth_without(line, listed)

    def _least(self, line: int) -> float:
        """The least that keeping a line may be worth."""
        unlisted = self._worth[line]
        fewest, _ = self._names.listed_range(line) if line in self._open else (0, 0)
        return min(unlisted, self._worth_without(line, fewest)) if fewest else unlisted

    def _most(self, line: int) -> float:
        """The most that keeping a line may be worth."""
        unlisted = self._worth[line]
        _, most = self._names.listed_range(line) if line in self._open else (0, 0)
        return max(unlisted, self._worth_without(line, most)) if most else unlisted

    def _worth_without(self, line: int, listed: int) -> float:
        """The worth of a line if names of so many characters are listed without it."""
        rest = max(1, len(self._lines[line]) + 1 - listed)
        return _weigh(_risk_without_names(self._expected, line) - self._limit * rest)


def _add_lines(block: TextBlock, lines: list[int]) -> None:
    """Add all lines of a block."""
    lines += block.own
    lines += block.tail
    for one in block.inner:
        _add_lines(one, lines)


def _weigh(worth: float) -> float:
    """The worth of a line, in which a need counts more than a cost."""
    return _NEED_FACTOR * worth if worth > 0 else worth


def _keep_units(
    split: SplitText,
    layout: Layout,
    worth: Sequence[float],
    stays: bytearray,
    between: tuple[int, int],
) -> None:
    """Keep the blocks of a text with long lines; parts of one unit stay or go together."""
    units, plain = split.units, split.plain
    spans = list(pairwise(units))
    first, last = bisect_left(units, between[0]), bisect_left(units, between[1])
    depths = [part.depth if part is not None else 0 for part in split.json]
    spelled = "\n".join("  " * depths[start] + "".join(plain[start:end]) for start, end in spans)
    values = [sum(worth[start:end]) for start, end in spans]
    kept = bytearray(len(spans))
    keep_blocks(text_blocks(spelled, layout, first, last), values, kept)
    for unit, (start, end) in enumerate(spans):
        if kept[unit]:
            stays[start:end] = b"\1" * (end - start)


def _is_log(found: ResultFeatures, lines: Sequence[str]) -> bool:
    """Return whether the last lines of a result report the outcome of a run; a page's do not."""
    kind = found.bins[0]
    return kind in _RUNS and _layout(RESULT_FEATURES["kind"][kind], lines) != "prose"


def _layout(kind: str, lines: Sequence[str]) -> Layout:
    """The layout of a kind of result; rows that are those of a page or a diff count as such."""
    layout = _LAYOUTS.get(kind, "code")
    if layout != "rows":
        return layout
    starts = [line[:6] for line in lines]
    if any(line.startswith("@@ -") for line in starts):
        return "diff"
    headings = sum(line.startswith(_HEADINGS) for line in starts)
    return "prose" if headings > 1 and not any(line[:2] == "#!" for line in starts) else layout


def _drop_blank_ends(lines: Sequence[str], stays: bytearray, first: int, last: int) -> None:
    """Remove blank lines beside a gap: there they divide nothing."""
    for line in range(last - 1, first - 1, -1):
        if stays[line] and not lines[line].strip() and line + 1 < last and not stays[line + 1]:
            stays[line] = 0


def _frame_lines(split: SplitText, *, is_run: bool) -> tuple[int, int]:
    """The end of the lines before an output, and the start of those after it."""
    head, note = split.frame
    before, behind = split.wrapping
    first, last = max(head - 1, before), len(split.lines) - max(note, behind)
    if is_run and not split.is_json:
        first = max(first, before + 1)  # it says what ran
        last = _start_of_ending(split.lines, last - (not split.lines[last - 1]))
    return first, max(0, last)


def _start_of_ending(lines: Sequence[str], end: int) -> int:
    """The start of the lines that report the outcome of a run; a tag that ends there is whole."""
    start = end - _ENDING
    if any(line[:1] in (" ", "\t") for line in lines[max(0, start) : max(0, end)]):
        return end  # it is inside of something
    closed = _CLOSING_TAG.search(lines[end - 1]) if end > 0 else None
    if closed is not None:
        opening = f"<{closed[1]}>"
        tags = (at for at in range(start, start - 3, -1) if at > 0 and opening in lines[at])
        return next(tags, start)
    return start


def _fill_short_runs(lines: Sequence[str], stays: bytearray, gone_before: Collection[int]) -> None:
    """Keep short gaps between kept lines, which are not worth a hole."""
    for start, end in _holes(stays):
        budget = _SHORT_RUN - (end - start)
        is_short = budget > 0 and sum(map(len, lines[start:end])) < budget
        if is_short and not _has_any_in(gone_before, start, end):
            stays[start:end] = b"\1" * (end - start)


def _has_any_in(lines: Collection[int], start: int, end: int) -> bool:
    return bool(lines) and any(line in lines for line in range(start, end))


class _MissingNames:
    """The names of removed lines that stand nowhere in the text that stays."""

    def __init__(self, names: LineNames, expected: Forecast, kept: str) -> None:
        self._names, self._needs, self._kept = names, expected.names, kept
        self._lookups = _MAX_LOOKUPS

    def listed(self, start: int, end: int) -> dict[int, list[str]]:
        """The names listed for one hole, by line; of too many, the most needed.

        A line whose names all stand in the text that stays has none to list.
        """
        lines = self._names.lines
        lines = lines[bisect_left(lines, start) : bisect_left(lines, end)]
        listed: dict[int, list[str]] = {}
        count = 0
        for line in sorted(lines, key=lambda line: -self._needs[line]):
            of_line = self._names.of(line)
            self._lookups -= len(of_line)
            if self._lookups < 0:
                break
            found = [name for name in of_line if name not in self._kept]
            count += len(found)
            if count > _MAX_NAMES:
                break
            if of_line:
                listed[line] = found
        return listed
