"""Leave out lines of a new result that an earlier result shows word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from ..edits import Offer, Replace
from ..history.failures import MAX_OPEN_ERROR_CHARS, is_failed_call
from ..history.line_index import LineIndex, NumberedLine, match_end, parse_line
from ..markers import OmissionMarker, find_marker, gap_line, has_gaps, reference
from ..policy import Policy
from ..shapes.frame import split_frame
from ..transcript import Exchange
from .base import View, acts
from .exchanges import call_label, is_intact

REASON: Final = "shown_before"
_MIN_CHARS: Final = 600  # characters; a shorter result stays as it is
_MIN_RUN_LINES: Final = 6  # lines that must stand one after another in what shows the same thing
_MIN_DISTANT_RUN_LINES: Final = (
    15  # and in what shows something else: a few lines alike are common there
)
_MIN_RUN_CHARS: Final = 160
_MIN_SAVED_TOKENS: Final = 40  # tokens
_MAX_SOURCES: Final = 4
_MAX_REASON_CHARS: Final = 90  # characters of a marker's reason; names that do not fit are counted
_MAX_REPEATS: Final = 3  # so many of the latest calls that are the same are looked at


class _RepeatedRun(Struct, frozen=True, gc=False):
    """Lines of a text that stand in another part."""

    first: int
    end: int
    source: int


class _RunSearch(Struct, frozen=True):
    """One new result, and what is known of the parts that its lines may stand in."""

    view: View
    policy: Policy
    position: int
    lines: list[NumberedLine]
    intact: dict[int, bool]  # shared by all results that came together
    min_lines: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # lines of a run, by its source

    @property
    def known(self) -> LineIndex:
        return self.view.ledger.lines

    def is_intact(self, source: int) -> bool:
        """Whether a part says all that it said, and will go on doing so."""
        if source not in self.intact:
            self.intact[source] = is_intact(self.view, self.policy, source)
        return self.intact[source]

    def min_run_lines(self, source: int) -> int:
        """How many lines must stand in a part one after another."""
        if source not in self.min_lines:
            same = _has_same_target(self.view, source, self.position)
            self.min_lines[source] = _MIN_RUN_LINES if same else _MIN_DISTANT_RUN_LINES
        return self.min_lines[source]


@acts(at_arrival=True, at_epochs=False)
def lines_shown(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to leave out lines of new results that the model can see further up."""
    standing: dict[int, bool] = {}
    for exchange in view.fresh_exchanges():
        position = exchange.result
        if position is None or not _can_cut(view, policy, exchange, position):
            continue
        lines = [parse_line(whole) for whole in view.transcript.parts[position].text.split("\n")]
        runs = _find_runs(_RunSearch(view, policy, position, lines, standing))
        offer = _shorten_offer(view, exchange, position, lines, runs) if runs else None
        if offer is not None:
            standing[position] = False  # what came beside it may not lean on it
            yield offer


def _can_cut(view: View, policy: Policy, exchange: Exchange, position: int) -> bool:
    part = view.transcript.parts[position]
    if len(part.text) < _MIN_CHARS or not view.ledger.lines.can_occur_before(position, part):
        return False  # most results
    if not view.can_rewrite(position) or has_gaps(part.text):
        return False
    ends_as = view.use(exchange.ordinal).outcome_kind
    short = policy.errors_verbatim and len(part.text) <= MAX_OPEN_ERROR_CHARS
    if short and is_failed_call(part.text, part.error, ends_as):
        return False
    return not _is_repeated_request(view, exchange)


def _is_repeated_request(view: View, exchange: Exchange) -> bool:
    """Whether the same call had lines left out before: who asks again wants to see them."""
    call = view.transcript.parts[exchange.call]
    use = view.use(exchange.ordinal)
    for ordinal in view.ledger.repeats(call.name, use, exchange.ordinal)[-_MAX_REPEATS:]:
        result = view.transcript.exchanges[ordinal].result
        edit = None if result is None else view.in_force.get(result)
        if edit is not None and edit.reason == REASON:
            return True
        if result is not None and find_marker(view.transcript.parts[result].text) is not None:
            return True  # they were left out before the history came here
    return False


def _find_runs(search: _RunSearch) -> list[_RepeatedRun]:
    """The lines of a result that stand elsewhere, in as few and long runs as one look finds."""
    found: list[_RepeatedRun] = []
    sources: set[int] = set()
    at, end = _inner_lines(search.view.transcript.parts[search.position].text)
    while at < end:
        run = _longest_run(search, at, end, sources) if search.lines[at].is_indexed else None
        if run is None:
            at += 1
            continue
        found.append(run)
        sources.add(run.source)
        at = run.end
    return found


def _inner_lines(text: str) -> tuple[int, int]:
    """The lines that may go, from one to before another.

    An agent's frame stays, and so do the first and the last line in it: they tell a reader where
    in a file he is.
    """
    frame = split_frame(text)
    head = frame.head.count("\n")
    return head + 1, head + frame.body.rstrip().count("\n")


def _longest_run(search: _RunSearch, at: int, end: int, sources: set[int]) -> _RepeatedRun | None:
    """The longest run of lines from here on that stands in one earlier part."""
    best: _RepeatedRun | None = None
    full = len(sources) == _MAX_SOURCES
    for source, start in search.known.places(search.lines[at], search.position):
        if (full and source not in sources) or not search.is_intact(source):
            continue
        text = search.known.text(source)
        until = match_end(search.lines, at=at, end=end, text=text, start=start)
        longer = best is None or until > best.end
        if longer and until - at >= search.min_run_lines(source):
            best = _RepeatedRun(at, until, source)
    if best is None or sum(len(line.bare) for line in search.lines[at : best.end]) < _MIN_RUN_CHARS:
        return None
    return best


def _has_same_target(view: View, source: int, position: int) -> bool:
    """Whether two exchanges deal with the same file, or are the same operation on one target."""
    ordinals = (view.transcript.exchange_of[at] for at in (source, position))
    one, other = (view.use(ordinal) for ordinal in ordinals)
    files = {span.path for span in (*one.reads, *one.writes)}
    if files or other.reads or other.writes:
        return any(span.path in files for span in (*other.reads, *other.writes))
    return one.target is not None and (one.operation, one.target) == (other.operation, other.target)


def _shorten_offer(
    view: View,
    exchange: Exchange,
    position: int,
    lines: Sequence[NumberedLine],
    runs: Sequence[_RepeatedRun],
) -> Offer | None:
    part = view.transcript.parts[position]
    gone = sum(run.end - run.first for run in runs)
    sources = sorted({run.source for run in runs})
    ref, where = reference(part.text), _describe_sources(view, exchange, sources)
    all = len(lines) - (not lines[-1].whole)
    marker = OmissionMarker(gone, "lines", ref, all, where, fetch_tool=view.fetch_tool)
    text = "\n".join((*_kept_lines([line.whole for line in lines[:all]], runs), str(marker)))
    if len(text) >= len(part.text):
        return None
    saved = view.saved_by(position, text)
    if saved < _MIN_SAVED_TOKENS:
        return None
    edit = Replace(position, part.ref, text, ref, REASON, f"{gone:,} lines {where}", saved)
    return Offer("trim", edit, depends_on=tuple(sources))


def _kept_lines(lines: Sequence[str], runs: Sequence[_RepeatedRun]) -> Iterator[str]:
    """The lines that stay, with a hole for each stretch of lines that go."""
    at = 0
    for first, end in _gaps(runs):
        yield from lines[at:first]
        yield gap_line(end - first, "lines")
        at = end
    yield from lines[at:]


def _gaps(runs: Sequence[_RepeatedRun]) -> list[tuple[int, int]]:
    """The first and the end of each stretch of lines that go; runs that touch are one."""
    found: list[tuple[int, int]] = []
    for run in runs:
        if found and found[-1][1] == run.first:
            found[-1] = (found[-1][0], run.end)
        else:
            found.append((run.first, run.end))
    return found


def _describe_sources(view: View, exchange: Exchange, sources: Sequence[int]) -> str:
    """Which calls a reader finds the lines in: in what they said, or in their results."""
    ordinals = dict.fromkeys(view.transcript.exchange_of[source] for source in sources)
    names = [call_label(view, one, exchange.ordinal) for one in ordinals]
    where = f"the same as in {' and '.join(names)}"
    if len(names) > 2 or len(where) > _MAX_REASON_CHARS:
        return f"the same as in {len(names)} calls above" if len(names) > 1 else where
    return where
