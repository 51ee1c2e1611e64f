"""Protections: parts that no pass may touch at an evaluation, and why.

Each is computed on first access. So an evaluation costs only what its passes ask for, however long
the history is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import lru_cache

from ..history.failures import MAX_OPEN_ERROR_CHARS
from ..history.ledger import Ledger
from ..line_search import whole_matcher
from ..markers import reference
from ..policy import Policy
from ..regex import lazy_compile
from ..tools.identity import is_expand_tool
from ..tools.use import Span, Use
from ..transcript import Exchange, Part, ReadOnlyTranscript, Unit


def first_kept_part(history: ReadOnlyTranscript, policy: Policy) -> int | None:
    """The first part that no pass may touch, seen or not; None: the policy keeps none."""
    starts = [
        start(history, count)
        for start, count in (
            (start_of_messages, policy.keep_messages),
            (start_of_calls, policy.keep_calls),
        )
        if count > 0
    ]
    return min(starts, default=None)


def start_of_messages(history: ReadOnlyTranscript, count: int) -> int:
    """The first part of the last so many messages.

    What the model said at once is one message, and so is each entry that came after it: the same
    history counts the same in every format, independent of what its wire calls a message.
    """
    for unit in reversed(history.units):
        firsts = _message_starts(history, unit)
        if count <= len(firsts):
            return firsts[len(firsts) - count] if count > 0 else unit.parts[1]
        count -= len(firsts)
    return 0


def start_of_calls(history: ReadOnlyTranscript, count: int) -> int:
    """The first part of the turn that made the last so many calls; no batch of calls is parted."""
    if count <= 0:
        return len(history.parts)
    if count > len(history.exchanges):
        return 0
    return history.units[history.exchanges[-count].unit].parts[0]


def _message_starts(history: ReadOnlyTranscript, unit: Unit) -> list[int]:
    """The first part of each message of a unit."""
    first, end = unit.parts
    firsts = [first] if first < unit.answers_from else []
    row = -1
    for position in range(unit.answers_from, end):
        if history.parts[position].ref.row != row:
            row = history.parts[position].ref.row
            firsts.append(position)
    return firsts


_MAX_FILE_EVENTS = 256  # events of one file that are checked after a read
_MAX_ARGUMENT_CHARS = 4_000  # characters of arguments that are searched for references
_REFERENCE_PATTERN = lazy_compile(r"(?<![a-zA-Z0-9])[a-z2-7]{20}(?![a-zA-Z0-9])")
_LATEST_READ = "latest read"  # of a file that was edited since
FETCHED_AGAIN = "fetched again"  # why a copy stays that brought what had been taken out
# How reasons start, and what their parts are called together.
_LABELS = (
    ("recent", "the latest messages and calls"),
    ("fetched back", "what was fetched back"),
    (FETCHED_AGAIN, "what was fetched again after a cut"),
    ("pinned", "what is pinned"),
    ("open error", "errors still open"),
    (_LATEST_READ, "latest reads of files edited since"),
)


class Protections:
    """The parts that must stay as they are at one evaluation, and why; `in` asks for one."""

    def __init__(
        self,
        history: ReadOnlyTranscript,
        ledger: Ledger,
        policy: Policy,
        fetched: Collection[int],
        *,
        again: Collection[int] = (),
        arrival: bool = False,
        kept_from: int | None = None,
    ) -> None:
        self._history = history
        self._ledger = ledger
        self._policy = policy
        self._fetched = fetched
        self._again = again
        self._arrival = arrival  # what just came is only tidied: an open error may be, too
        self._kept_from = len(history.parts) if kept_from is None else kept_from
        self._until = min(len(ledger.uses), len(history.exchanges))
        self._known: dict[int, str | None] = {}

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and self.reason_for(position) is not None

    def reason_for(self, position: int) -> str | None:
        """The reason that a part must stay, None if there is none. An exchange stays as a whole."""
        ordinal = _exchange_of_part(self._history, position)
        if ordinal < 0:
            return None
        if ordinal not in self._known:
            self._known[ordinal] = self._judge(ordinal)
        return self._known[ordinal]

    def label_for(self, position: int) -> str | None:
        """The label of the reason that a part must stay, for totals; None: it need not."""
        why = self.reason_for(position)
        return None if why is None else next(k for start, k in _LABELS if why.startswith(start))

    @property
    def partial(self) -> Container[int]:
        """The parts that must stay of which single lines may go all the same."""
        return _PartialProtections(self)

    def can_lose_lines(self, position: int) -> bool:
        """Return whether a part is protected only as the base of later edits.

        The edits quote the lines that they were made on. Of the others those may go that will
        hardly be needed; the part as a whole does not.
        """
        why = self.reason_for(position)
        return why is not None and why.startswith(_LATEST_READ)

    def judged(self) -> Mapping[int, str]:
        """Of the exchanges that passes asked about, those that must stay, and why."""
        return {ordinal: why for ordinal, why in self._known.items() if why is not None}

    def _judge(self, ordinal: int) -> str | None:
        exchange = self._history.exchanges[ordinal]
        call = self._history.parts[exchange.call]
        if max(exchange.call, exchange.result or 0) >= self._kept_from:
            return "recent, kept as it is"
        if ordinal in self._fetched:
            return "fetched back"
        if ordinal in self._again:
            return FETCHED_AGAIN
        if call.id and call.id in self._policy.pin_calls:
            return f"pinned call {call.id}"
        if ordinal >= self._until:
            return None
        use = self._ledger.uses[ordinal]
        return (
            self._pinned(call, use)
            or self._open_error(exchange, use)
            or self._base_of_edits(ordinal, use)
        )

    def _pinned(self, call: Part, use: Use) -> str | None:
        tools = self._policy.pin_tools
        for one in (call.name, use.kind):
            if one in tools:
                return f"pinned tool {one}"
        for pattern in self._policy.pin_paths:
            fits = compile_path_pattern(pattern)
            if any(fits(span.path) for span in (*use.reads, *use.writes)):
                return f"pinned path {pattern}"
        return None

    def _open_error(self, exchange: Exchange, use: Use) -> str | None:
        """Return the protection of the last outcome of an operation, if it failed."""
        if self._arrival or not self._policy.errors_verbatim or exchange.result is None:
            return None
        result = self._history.parts[exchange.result]
        if len(result.text) > MAX_OPEN_ERROR_CHARS:
            return None
        last = self._ledger.last_outcome(use, self._until)
        is_open = last is not None and last.failed and last.ordinal == exchange.ordinal
        return "open error" if is_open else None

    def _base_of_edits(self, ordinal: int, use: Use) -> str | None:
        """Return the protection of a read that later edits build on, if nothing showed it again."""
        for span in use.reads:
            if not span.part and self._is_base(ordinal, span):
                return f"{_LATEST_READ} of {span.path}, edited since"
        return None

    def _is_base(self, ordinal: int, span: Span) -> bool:
        ledger, until = self._ledger, self._until
        return (
            ledger.last_write_of(span.path, until) > ordinal
            and ledger.count_events(span.path, ordinal, until) <= _MAX_FILE_EVENTS
            and not ledger.is_rewritten(span.path, ordinal, until)
            and not ledger.is_read_again(ordinal, span, until)
        )


class _PartialProtections:
    """The parts that a protection keeps only in part; `in` asks for one."""

    def __init__(self, protections: Protections) -> None:
        self._protections = protections

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and self._protections.can_lose_lines(position)


def _exchange_of_part(history: ReadOnlyTranscript, position: int) -> int:
    """The exchange of a call, a result, or what stands inside a result; -1 for other parts."""
    ordinal = history.exchange_of[position]
    part = history.parts[position]
    if ordinal >= 0 or part.kind != "media":
        return ordinal
    before = bisect_left(history.results, position) - 1
    if before < 0:
        return -1
    result = history.results[before]
    holder = history.parts[result].ref
    is_inside = holder.row == part.ref.row and holder.path == part.ref.path[: len(holder.path)]
    return history.exchange_of[result] if is_inside else -1


def find_fetched_back(
    history: ReadOnlyTranscript, results: Sequence[int], *originals: Collection[str]
) -> dict[str, int]:
    """The new results that bring back originals, by the reference of their text.

    A result does if its call is the tool that gives originals back, or names the reference of one
    (in a shell, say), also of a marker that came with the history. Of several that say the same,
    the latest one counts. One that merely repeats the text of an original does not
    count: `history/refetches.py` finds those.
    """
    found: dict[str, int] = {}
    for position in results:
        call = history.call_of(position)
        if call is not None and (is_expand_tool(call.name) or _has_reference(call.text, originals)):
            found[reference(history.parts[position].text)] = history.exchange_of[position]
    return found


def _has_reference(arguments: str, originals: Sequence[Collection[str]]) -> bool:
    if not any(originals) or len(arguments) > _MAX_ARGUMENT_CHARS:
        return False
    return any(ref in known for ref in _REFERENCE_PATTERN.findall(arguments) for known in originals)


@lru_cache(maxsize=256)
def compile_path_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for paths that match a pattern.

    `*` and `?` match within one step of a path, `**` across any number. A pattern that does
    not start at a root matches at the end of any path; one that ends in `/` matches all below.
    Brackets are literal: some folders have them in their names.

    >>> fits = compile_path_pattern("docs/**/*.md")
    >>> fits("docs/a.md"), fits("/repo/docs/x/y/a.md"), fits("docs/a.py")
    (True, True, False)
    """
    on_drive = pattern[1:2] == ":"
    pattern = pattern.replace("\\", "/") if on_drive else pattern  # as paths on drives are written
    rooted = on_drive or pattern.startswith(("/", "~")) or "://" in pattern
    body = pattern.removeprefix("./") + ("**" if pattern.endswith("/") else "")
    steps = [_pattern_step(step) for step in re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", body)]
    fits = whole_matcher(f"{'' if rooted else '(?:.*/)?'}{''.join(steps)}")
    return lambda path: fits(path.removeprefix("./"))


def _pattern_step(step: str) -> str:
    match step:
        case "**/":
            return "(?:.*/)?"
        case "/**":
            return "(?:/.*)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _:
            return re.escape(step)
