"""What no pass may touch at an evaluation beside what is unseen: pins, open errors, fresh bases.

Nothing is computed before a pass asks, and then once. So an evaluation costs what its passes look
at, however long the history is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import lru_cache

from .ledger.failures import VERBATIM
from .ledger.ledger import Event, Ledger
from .marker import reference
from .policy import Policy
from .searching import whole_matcher
from .tools.fetching import fetches
from .tools.use import Span, Use
from .transcript import Exchange, History, Part

_MOST_EVENTS = 256  # dealings with one file that are looked through after a read
_LONGEST_ASKED = 4_000  # characters of arguments that are searched for references
_REF = re.compile(r"(?<![a-zA-Z0-9])[a-z2-7]{20}(?![a-zA-Z0-9])")
_BASE = "latest read"  # of a file that was edited since
FETCHED_AGAIN = "fetched again"  # why a copy stays that brought what had been taken out
# How reasons start, and what their parts are called together.
_SUMMED = (
    ("recent", "the latest messages and calls"),
    ("fetched back", "what was fetched back"),
    (FETCHED_AGAIN, "what was fetched again after a cut"),
    ("pinned", "what is pinned"),
    ("open error", "errors still open"),
    (_BASE, "latest reads of files edited since"),
)


class Protections:
    """The parts that must stay as they are at one evaluation, and why; `in` asks for one."""

    def __init__(
        self,
        history: History,
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
        return isinstance(position, int) and self.why(position) is not None

    def why(self, position: int) -> str | None:
        """Why a part must stay; None if nothing says so. An exchange stays as a whole."""
        ordinal = _exchange_at(self._history, position)
        if ordinal < 0:
            return None
        if ordinal not in self._known:
            self._known[ordinal] = self._judge(ordinal)
        return self._known[ordinal]

    def kind(self, position: int) -> str | None:
        """Why a part must stay, in the words of a list that sums up many; None: it need not."""
        why = self.why(position)
        return None if why is None else next(k for start, k in _SUMMED if why.startswith(start))

    @property
    def in_part(self) -> Container[int]:
        """The parts that must stay of which single lines may go all the same."""
        return _InPart(self)

    def may_lose_lines(self, position: int) -> bool:
        """Whether a part stays for nothing but what was edited since.

        The edits quote the lines that they were made on. Of the others those may go that will
        hardly be needed; the part as a whole does not.
        """
        why = self.why(position)
        return why is not None and why.startswith(_BASE)

    def asked(self) -> Mapping[int, str]:
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
            fits = path_pattern(pattern)
            if any(fits(span.path) for span in (*use.reads, *use.writes)):
                return f"pinned path {pattern}"
        return None

    def _open_error(self, exchange: Exchange, use: Use) -> str | None:
        """Whether this is how its operation last ended on its target, and it failed."""
        if self._arrival or not self._policy.errors_verbatim or exchange.result is None:
            return None
        result = self._history.parts[exchange.result]
        if len(result.text) > VERBATIM:
            return None
        ended = self._ledger.outcomes(use, self._until)
        last = ended[-1] if ended else None
        is_open = last is not None and last.failed and last.ordinal == exchange.ordinal
        return "open error" if is_open else None

    def _base_of_edits(self, ordinal: int, use: Use) -> str | None:
        """Whether edits since build on what this call read, and nothing has shown it again."""
        for span in use.reads:
            if not span.part and self._is_base(ordinal, span):
                return f"{_BASE} of {span.path}, edited since"
        return None

    def _is_base(self, ordinal: int, span: Span) -> bool:
        events = self._ledger.events(span.path, self._until)
        after = bisect_right(events, ordinal, key=_ordinal)
        edited = False
        for event in events[after : after + _MOST_EVENTS]:
            if event.replaced or (not event.wrote and event.span.covers(span)):
                return False
            edited = edited or event.wrote
        return edited and len(events) - after <= _MOST_EVENTS


class _InPart:
    """The parts that a protection keeps only in part; `in` asks for one."""

    def __init__(self, protections: Protections) -> None:
        self._protections = protections

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and self._protections.may_lose_lines(position)


def _ordinal(event: Event) -> int:
    return event.ordinal


def _exchange_at(history: History, position: int) -> int:
    """The exchange of a call, a result, or what stands inside a result; -1 for other parts."""
    ordinal = history.exchange_of[position]
    part = history.parts[position]
    if ordinal >= 0 or part.kind != "media":
        return ordinal
    while position > 0:
        position -= 1
        holder = history.parts[position].ref
        if holder.row != part.ref.row:
            return -1
        if holder.path == part.ref.path[: len(holder.path)]:
            return history.exchange_of[position]
    return -1


def fetched_back(
    history: History, results: Sequence[int], *originals: Collection[str]
) -> dict[str, int]:
    """Which of these results, that just came, bring back what was taken out: by what they say.

    A result does if its call is the tool that gives originals back, or names the reference of one
    (in a shell, say), also of a marker that came with the history. Of several that say the same,
    the latest one counts. One that merely says what an original says is no such thing:
    `folding/refetching.py` is about what is read again.
    """
    found: dict[str, int] = {}
    for position in results:
        call = history.call_of(position)
        if call is not None and (fetches(call.name) or _names_one(call.text, originals)):
            found[reference(history.parts[position].text)] = history.exchange_of[position]
    return found


def _names_one(arguments: str, originals: Sequence[Collection[str]]) -> bool:
    if not any(originals) or len(arguments) > _LONGEST_ASKED:
        return False
    return any(ref in known for ref in _REF.findall(arguments) for known in originals)


@lru_cache(maxsize=256)
def path_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a path fits a pattern: `*` and `?` within one step of it, `**` across any number.

    A pattern that does not start at a root fits at the end of any path; one that ends in `/` fits
    all that is below. Brackets stand for themselves, for some folders have them in their names.

    >>> fits = path_pattern("docs/**/*.md")
    >>> fits("docs/a.md"), fits("/repo/docs/x/y/a.md"), fits("docs/a.py")
    (True, True, False)
    """
    on_drive = pattern[1:2] == ":"
    pattern = pattern.replace("\\", "/") if on_drive else pattern  # as paths on drives are spelled
    rooted = on_drive or pattern.startswith(("/", "~")) or "://" in pattern
    body = pattern.removeprefix("./") + ("**" if pattern.endswith("/") else "")
    steps = [_step(step) for step in re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", body)]
    fits = whole_matcher(f"{'' if rooted else '(?:.*/)?'}{''.join(steps)}")
    return lambda path: fits(path.removeprefix("./"))


def _step(step: str) -> str:
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
