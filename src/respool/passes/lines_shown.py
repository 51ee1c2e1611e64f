"""Leave out of a new result the lines that already stand, word for word, further up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from ..edits import Offer, Replace
from ..ledger.failures import VERBATIM, went_wrong
from ..ledger.lines import Line, Lines, line_of, same_until
from ..marker import Short, find_marker, has_gaps, hole, reference
from ..policy import Policy
from ..shapes.frame import framed
from ..transcript import Exchange
from .leaning import name_of_call, stands
from .moments import acts
from .view import View

REASON: Final = "shown_before"
_LEAST: Final = 600  # characters; a shorter result stays as it is
_RUN: Final = 6  # lines that must stand one after another in what shows the same thing
_FAR_RUN: Final = 15  # and in what shows something else: a few lines alike are common there
_RUN_CHARS: Final = 160
_LEAST_SAVED: Final = 40  # tokens
_MOST_SOURCES: Final = 4
_WHERE: Final = 90  # characters of a marker's reason; names that do not fit are counted
_REPEATS: Final = 3  # so many of the latest calls that are the same are looked at


class _Run(Struct, frozen=True, gc=False):
    """Lines of a text that stand in another part."""

    first: int
    end: int
    source: int


class _Search(Struct, frozen=True):
    """One new result, and what is known of the parts that its lines may stand in."""

    view: View
    policy: Policy
    position: int
    lines: list[Line]
    intact: dict[int, bool]  # shared by all results that came together
    min_lines: dict[int, int] = field(default_factory=dict[int, int])  # lines of a run, by its source

    @property
    def known(self) -> Lines:
        return self.view.ledger.lines

    def is_intact(self, source: int) -> bool:
        """Whether a part says all that it said, and will go on doing so."""
        if source not in self.intact:
            self.intact[source] = stands(self.view, self.policy, source)
        return self.intact[source]

    def min_run_lines(self, source: int) -> int:
        """How many lines must stand in a part one after another."""
        if source not in self.min_lines:
            same = _show_the_same(self.view, source, self.position)
            self.min_lines[source] = _RUN if same else _FAR_RUN
        return self.min_lines[source]


@acts(at_arrival=True, at_epochs=False)
def lines_shown(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to leave out lines of new results that the model can see further up."""
    standing: dict[int, bool] = {}
    for exchange in view.fresh_exchanges():
        position = exchange.result
        if position is None or not _may_be_cut(view, policy, exchange, position):
            continue
        lines = [line_of(whole) for whole in view.transcript.parts[position].text.split("\n")]
        runs = _runs(_Search(view, policy, position, lines, standing))
        offer = _shortened(view, exchange, position, lines, runs) if runs else None
        if offer is not None:
            standing[position] = False  # what came beside it may not lean on it
            yield offer


def _may_be_cut(view: View, policy: Policy, exchange: Exchange, position: int) -> bool:
    part = view.transcript.parts[position]
    if len(part.text) < _LEAST or not view.ledger.lines.can_occur_before(position, part):
        return False  # most results
    if not view.can_rewrite(position) or has_gaps(part.text):
        return False
    ends_as = view.use(exchange.ordinal).outcome_kind
    short = policy.errors_verbatim and len(part.text) <= VERBATIM
    if short and went_wrong(part.text, part.error, ends_as):
        return False
    return not _was_asked_again(view, exchange)


def _was_asked_again(view: View, exchange: Exchange) -> bool:
    """Whether the same call had lines left out before: who asks again wants to see them."""
    call = view.transcript.parts[exchange.call]
    use = view.use(exchange.ordinal)
    for ordinal in view.ledger.repeats(call.name, use, exchange.ordinal)[-_REPEATS:]:
        result = view.transcript.exchanges[ordinal].result
        edit = None if result is None else view.in_force.get(result)
        if edit is not None and edit.reason == REASON:
            return True
        if result is not None and find_marker(view.transcript.parts[result].text) is not None:
            return True  # they were left out before the history came here
    return False


def _runs(search: _Search) -> list[_Run]:
    """The lines of a result that stand elsewhere, in as few and long runs as one look finds."""
    found: list[_Run] = []
    sources: set[int] = set()
    at, end = _inner(search.view.transcript.parts[search.position].text)
    while at < end:
        run = _longest(search, at, end, sources) if search.lines[at].is_indexed else None
        if run is None:
            at += 1
            continue
        found.append(run)
        sources.add(run.source)
        at = run.end
    return found


def _inner(text: str) -> tuple[int, int]:
    """The lines that may go, from one to before another.

    An agent's frame stays, and so do the first and the last line in it: they tell a reader where
    in a file he is.
    """
    frame = framed(text)
    head = frame.head.count("\n")
    return head + 1, head + frame.body.rstrip().count("\n")


def _longest(search: _Search, at: int, end: int, sources: set[int]) -> _Run | None:
    """The longest run of lines from here on that stands in one earlier part."""
    best: _Run | None = None
    full = len(sources) == _MOST_SOURCES
    for source, start in search.known.places(search.lines[at], search.position):
        if (full and source not in sources) or not search.is_intact(source):
            continue
        text = search.known.text(source)
        until = same_until(search.lines, at, end, text, start)
        longer = best is None or until > best.end
        if longer and until - at >= search.min_run_lines(source):
            best = _Run(at, until, source)
    if best is None or sum(len(line.bare) for line in search.lines[at : best.end]) < _RUN_CHARS:
        return None
    return best


def _show_the_same(view: View, source: int, position: int) -> bool:
    """Whether two exchanges deal with the same file, or are the same operation on one target."""
    ordinals = (view.transcript.exchange_of[at] for at in (source, position))
    one, other = (view.use(ordinal) for ordinal in ordinals)
    files = {span.path for span in (*one.reads, *one.writes)}
    if files or other.reads or other.writes:
        return any(span.path in files for span in (*other.reads, *other.writes))
    return one.target is not None and (one.operation, one.target) == (other.operation, other.target)


def _shortened(
    view: View, exchange: Exchange, position: int, lines: Sequence[Line], runs: Sequence[_Run]
) -> Offer | None:
    part = view.transcript.parts[position]
    gone = sum(run.end - run.first for run in runs)
    sources = sorted({run.source for run in runs})
    ref, where = reference(part.text), _where(view, exchange, sources)
    all = len(lines) - (not lines[-1].whole)
    marker = Short(gone, "lines", ref, all, where, fetch_tool=view.fetch_tool)
    text = "\n".join((*_kept([line.whole for line in lines[:all]], runs), str(marker)))
    if len(text) >= len(part.text):
        return None
    saved = view.saved_by(position, text)
    if saved < _LEAST_SAVED:
        return None
    edit = Replace(position, part.ref, text, ref, REASON, f"{gone:,} lines {where}", saved)
    return Offer("trim", edit, depends_on=tuple(sources))


def _kept(lines: Sequence[str], runs: Sequence[_Run]) -> Iterator[str]:
    """The lines that stay, with a hole for each stretch of lines that go."""
    at = 0
    for first, end in _holes(runs):
        yield from lines[at:first]
        yield hole(end - first, "lines")
        at = end
    yield from lines[at:]


def _holes(runs: Sequence[_Run]) -> list[tuple[int, int]]:
    """The first and the end of each stretch of lines that go; runs that touch are one."""
    found: list[tuple[int, int]] = []
    for run in runs:
        if found and found[-1][1] == run.first:
            found[-1] = (found[-1][0], run.end)
        else:
            found.append((run.first, run.end))
    return found


def _where(view: View, exchange: Exchange, sources: Sequence[int]) -> str:
    """Which calls a reader finds the lines in: in what they said, or in their results."""
    ordinals = dict.fromkeys(view.transcript.exchange_of[source] for source in sources)
    names = [name_of_call(view, one, exchange.ordinal) for one in ordinals]
    where = f"the same as in {' and '.join(names)}"
    if len(names) > 2 or len(where) > _WHERE:
        return f"the same as in {len(names)} calls above" if len(names) > 1 else where
    return where
