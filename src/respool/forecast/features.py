"""Features of a result and of its lines, in bins."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Final, TypeVar

from msgspec import Struct

from ..cache_scope import scoped_cache
from ..history.ledger import Ledger
from ..regex import lazy_compile
from ..shapes import classify
from ..tools.use import Content, Use
from ..transcript import Part, ReadOnlyTranscript
from .line_codes import (
    FORMS,
    INDENTS,
    LENGTHS,
    UNIQUE_BINS,
    WAS_MENTIONED,
    ResultState,
    ResultWords,
    decode_form,
    decode_indent,
    decode_length,
)
from .mentions import Mentions

_T = TypeVar("_T")
Bins = tuple[int, ...]

AGES: Final = ("0", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65+")  # in requests
_SINCE: Final = ("never", "0-2", "3-6", "7-15", "16+")
_NEARS: Final = ("none", "0", "1-2", "3-5", "6-12", "13-30", "31+")  # in lines
RESULT_FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("read code", "read page", "read diff", "read other", "run test", "run log",
             "run page", "run other", "search hits", "search other", "write", "other"),
    "age": AGES,
    "lines": ("1-5", "6-20", "21-60", "61-200", "201-600", "601+"),
    "taken up": ("0", "1", "2", "3-4", "5+"),  # calls that used something from it
    "taken up last": ("never", "0-1", "2-4", "5-9", "10-20", "21+"),
    "file": ("none", "several", "in part", "untouched", "edited before", "edited since",
             "edited before and since"),
    "edited last": _SINCE,
    "named last": _SINCE,
    "range": ("none", "whole file", "lines of it"),
    "recent edits": ("0", "1-2", "3-4", "5+"),
    "read again": ("no", "in part", "whole"),
    "asked since": ("no", "once", "more"),
    "requests": ("1-8", "9-16", "17-32", "33-64", "65-128", "129+"),
    "edits": ("none", "as text", "as patches", "as patches, a diff"),  # the way edits are made
    "any edit": ("never", "0-3", "4-10", "11-30", "31+"),
    "path": ("none", "source", "test", "prose", "settings"),
    "own lines": ("0-.1", ".1-.3", ".3-.6", ".6-.9", ".9-1"),
    "own names": ("0", "1-3", "4-12", "13-40", "41+"),
    "failed": ("no", "yes"),
    "reuse": ("0", "0-.05", ".05-.1", ".1-.2", ".2-.4", ".4+"),  # late mentions per request
}  # fmt: skip
LINE_FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "own": ("short", "newer copy", "said", "only here"),
    "names": ("0", "1", "2", "3+"),
    "paths": ("0", "1", "2+"),
    "figures": ("0", "1", "2+"),
    "repeated": ("0", "1", "2", "3-5", "6+"),
    "said": ("0", "1", "2+"),
    "shown before": ("0", "1", "2+"),  # results that showed it before
    "near use": _NEARS,
    "near said": _NEARS,
    "near talk": _NEARS,
    "place": ("first 3", "first 15", "last 5", "middle"),
    "form": FORMS,
    "length": LENGTHS,
    "indent": INDENTS,
}
# The features of a result that may change what a feature of its lines says. They change seldom, so
# that the factors of its lines can be cached.
MIXED_FEATURES: Final = (
    *("kind", "age", "lines", "taken up", "file", "range", "read again", "edits", "path"),
    *("own lines", "own names", "failed"),
)
_mixed_bins: Final = itemgetter(*map(list(RESULT_FEATURES).index, MIXED_FEATURES))
_DIFF: Final = RESULT_FEATURES["kind"].index("read diff")
_PATCHED: Final = 2  # a value of "edits"
DEFINITION: Final = FORMS.index("definition")

_AGES, _LINES, _TAKEN = (0, 1, 2, 4, 8, 16, 32, 64), (5, 20, 60, 200, 600), (0, 1, 2, 4)
_LAST, _EDITED, _REQUESTS = (1, 4, 9, 20), (2, 6, 15), (8, 16, 32, 64, 128)
_ANY = (3, 10, 30)
_REUSE = (0, 0.05, 0.1, 0.2, 0.4)
_RECENT, _LATEST = (0, 2, 4), 10  # edits among the latest calls
_NEAR = (0, 2, 5, 12, 30)
# Bin by distance.
_STEPS: Final = bytes(1 + bisect_left(_NEAR, far) for far in range(_NEAR[-1] + 2))
_TEST = lazy_compile(r"(?:^|[/_.-])(?:tests?|specs?|e2e|fixtures?)(?:[/_.-]|$)", re.IGNORECASE)
_PROSE = lazy_compile(r"\.(?:md|mdx|txt|rst|adoc|html?)$", re.IGNORECASE)
_SETTINGS = lazy_compile(
    r"\.(?:json|ya?ml|toml|ini|cfg|conf|lock|mod|sum|xml|env|mk)$|(?:^|/)(?:Makefile|Dockerfile)",
    re.IGNORECASE,
)


class LineBins(Struct, frozen=True):
    """The bins of a result's lines: unique content, format, and neighbourhood."""

    unique: array[int]
    formats: bytes
    used: bytes
    mentioned: bytes
    discussed: bytes

    @property
    def bins(self) -> Sequence[Bins]:
        """All bins of each line."""
        near = zip(self.used, self.mentioned, self.discussed, strict=True)
        return [
            (
                *UNIQUE_BINS[owned],
                *near,
                place,
                decode_form(line_format),
                decode_length(line_format),
                decode_indent(line_format),
            )
            for owned, near, place, line_format in zip(
                self.unique, near, self.places, self.formats, strict=True
            )
        ]

    @property
    def places(self) -> bytes:
        """The place of each line: beginning, end, or between."""
        return _places(len(self.formats))


class ResultFeatures(Struct, frozen=True, dict=True):
    """The features of a result at one moment: its words, its bins, and those of its lines."""

    words: ResultWords
    bins: Bins
    owned: ResultState
    mentions: Mentions

    @cached_property
    def line_bins(self) -> LineBins:
        """The bins of its lines, computed on first use, before the index grows."""
        return _line_bins(self.words, self.mentions)

    @property
    def lines(self) -> Sequence[Bins]:
        """The bins of each line."""
        return self.line_bins.bins


def bin_of(names: Sequence[str], age: int) -> int:
    """The bin of an age in requests."""
    return min(bisect_left(_AGES, age), len(names) - 1)


class SessionFeatures(Struct, frozen=True, gc=False):
    """The features shared by all results at one moment."""

    recent: int  # edits among the latest calls
    requests: int
    edits: int  # the way edits are made
    edited: int  # age of the last edit
    reuse: int


def session_features(
    history: ReadOnlyTranscript, ledger: Ledger, mentions: Mentions
) -> SessionFeatures:
    """The features of a session at its end."""
    now, noted = len(history.units) - 1, _known_exchanges(history, ledger)
    last, latest = ledger.last_write(noted), ledger.uses[max(0, noted - _LATEST) : noted]
    edited = 0 if last is None else 1 + bisect_left(_ANY, now - history.exchanges[last].unit)
    return SessionFeatures(
        recent=bisect_left(_RECENT, sum(bool(one.writes) for one in latest)),
        requests=bisect_left(_REQUESTS, now + 1),
        edits=0 if last is None else 2 if mentions.patched else 1,
        edited=edited,
        reuse=bisect_left(_REUSE, mentions.late_uses / max(1, now + 1)),
    )


def _known_exchanges(history: ReadOnlyTranscript, ledger: Ledger) -> int:
    """The number of a history's exchanges in the ledger, which may hold others on a fork."""
    return min(len(ledger.uses), len(history.exchanges))


def result_features(
    position: int,
    history: ReadOnlyTranscript,
    ledger: Ledger,
    mentions: Mentions,
    *,
    session: SessionFeatures | None = None,
) -> ResultFeatures | None:
    """The features of a result at the end of a history; None if it is not indexed."""
    words = mentions.results.get(position)
    ordinal = history.exchange_of[position]
    if words is None or not 0 <= ordinal < len(ledger.uses):
        return None
    now = len(history.units) - 1
    part, use = history.parts[position], ledger.uses[ordinal]
    owned = _current_state(words, mentions)
    session = session or session_features(history, ledger, mentions)
    state, edited, again = _file_bins(ordinal, use, history, ledger)
    kind = _kind_bin(part, use, owned)
    bins = (
        kind,
        bisect_left(_AGES, now - words.unit),
        bisect_left(_LINES, words.lines),
        *_mention_bins(words, mentions, now),
        state,
        edited,
        _last_named_bin(use, words, mentions, now),
        _range_bin(use),
        session.recent,
        again,
        min(2, len(mentions.user_units) - bisect_right(mentions.user_units, words.unit)),
        session.requests,
        session.edits + (session.edits == _PATCHED and kind == _DIFF),
        session.edited,
        _path(use),
        *owned.unique_bins,
        int(part.error),
        session.reuse,
    )
    mixed = _mixed_bins(bins)
    if owned.mixed != mixed:
        owned.mixed = _shared(mixed)
        owned.version += 1
    return ResultFeatures(words, bins, owned, mentions)


def _mention_bins(words: ResultWords, mentions: Mentions, now: int) -> tuple[int, int]:
    """The number and age of the calls that used something from it."""
    count, last_use = mentions.uses_of(words)
    last = 1 + bisect_left(_LAST, now - last_use) if count else 0
    return bisect_left(_TAKEN, count), last


def _current_state(words: ResultWords, mentions: Mentions) -> ResultState:
    """The state of a result, brought up to date."""
    owned, changed = mentions.owned(words)
    stamp = mentions.stamp_of(words)
    if changed:
        owned.unique_bins = _shared(mentions.unique_bins_of(words))
    if changed or owned.stamp != stamp:
        owned.version += 1
        owned.stamp = _shared(stamp)
    return owned


def _line_bins(words: ResultWords, mentions: Mentions) -> LineBins:
    """The bins of a result's lines."""
    codes, (calls, talk) = mentions.codes_of(words), mentions.used_lines_of(words)
    mentioned_lines = [line for line, code in enumerate(codes) if WAS_MENTIONED[code]]
    used, mentioned, talked = (
        _distance_bins(one, words.lines) for one in (calls, mentioned_lines, talk)
    )
    return LineBins(
        unique=codes,
        formats=words.formats,
        used=used,
        mentioned=mentioned,
        discussed=talked,
    )


@lru_cache(maxsize=4_096)
def _shared(value: _T) -> _T:
    """One tuple for all results with these values: most have those of others."""
    return value


@lru_cache(maxsize=1_024)
def _places(total: int) -> bytes:
    last = max(0, min(5, total - 15))
    middle = max(0, total - 15 - last)
    return (bytes(3) + b"\1" * 12 + b"\3" * middle + b"\2" * last)[:total]


def _distance_bins(places: Collection[int], total: int) -> bytes:
    """The distance from each line to the nearest of these places, as a bin."""
    if not places:
        return _far(total)
    ordered = sorted(places)
    found = [_distance_steps(ordered[0] + 1)[:0:-1]]
    for here, there in pairwise(ordered):
        half = (there - here) // 2
        found += (_distance_steps(there - here - half), _distance_steps(half + 1)[:0:-1])
    found.append(_distance_steps(total - ordered[-1]))
    return b"".join(found)


@lru_cache(maxsize=1_024)
def _far(total: int) -> bytes:
    return bytes(total)


def _distance_steps(count: int) -> bytes:
    """The bins of the distances 0, 1, 2 and so on."""
    more = count - len(_STEPS)
    return _STEPS[:count] if more <= 0 else _STEPS + _STEPS[-1:] * more


def _content_bin(text: str, content: Content | None, owned: ResultState) -> str:
    """The content kind of a result, computed once."""
    known = owned.shape
    if known is None or known[0] != content:
        known = owned.shape = _shared((content, classify(text, content)))
    return known[1]


_READ_KINDS: Final = {"code": 0, "page": 1, "diff": 2}
_RUN_KINDS: Final = {"test": 4, "log": 5, "page": 6}


def _kind_bin(part: Part, use: Use, owned: ResultState) -> int:
    failed = part.error and use.content != "test"
    shape = "log" if failed else _content_bin(part.text, use.content, owned)
    match use.kind:
        case "read":
            return _READ_KINDS.get(shape, 3)
        case "run":
            return _RUN_KINDS.get(shape, 7)
        case "search":
            return 8 if shape == "hits" else 9
        case "write":
            return 10
        case _:
            return 11


def _file_bins(
    ordinal: int, use: Use, history: ReadOnlyTranscript, ledger: Ledger
) -> tuple[int, int, int]:
    """The state of the file read, the age of its last edit, and whether it was read again."""
    if len(use.reads) != 1:
        return int(len(use.reads) > 1), 0, 0
    span = use.reads[0]
    if span.part:
        return 2, 0, 0
    until = _known_exchanges(history, ledger)
    before = ledger.is_written_before(span.path, ordinal)
    write = ledger.last_write_of(span.path, until)
    is_written = write > ordinal
    last = 0
    if is_written:
        ago = len(history.units) - 1 - history.exchanges[write].unit
        last = 1 + bisect_left(_EDITED, ago)
    covered = ledger.is_read_again(ordinal, span, until)
    again = 2 if covered else int(ledger.is_read(span.path, ordinal, until))
    return 3 + before + 2 * is_written, last, again


def _last_named_bin(use: Use, words: ResultWords, mentions: Mentions, now: int) -> int:
    """The age of the last mention of the file that was read."""
    if len(use.reads) != 1:
        return 0
    last = mentions.last_mention(use.reads[0].path)
    return 0 if last <= words.unit else 1 + bisect_left(_EDITED, now - last)


def _range_bin(use: Use) -> int:
    """The bin for a whole file or a range of lines."""
    if len(use.reads) != 1 or use.reads[0].part:
        return 0
    return 1 if use.reads[0].lines is None else 2


def _path(use: Use) -> int:
    if not use.reads or use.reads[0].part:
        return 0
    return _path_bin(use.reads[0].path)


@scoped_cache(1_024)
def _path_bin(path: str) -> int:
    if _TEST.search(path):
        return 2
    return 3 if _PROSE.search(path) else 4 if _SETTINGS.search(path) else 1
