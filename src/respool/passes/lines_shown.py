"""Remove lines of a new result that an earlier result has word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct, field

from ..edits import Offer, Replace
from ..history.failures import MAX_OPEN_ERROR_CHARS, is_failed_call
from ..history.line_index import NumberedLine, parse_line
from ..markers import OmissionMarker, find_marker, gap_line, has_gaps, reference
from ..policy import Policy
from ..shapes.decoration import split_frame
from ..transcript import Exchange
from .base import View, acts, describe_sources, is_intact

REASON: Final = "shown_before"
_MIN_CHARS: Final = 600  # shorter results are left unchanged
_MIN_RUN_LINES: Final = 6  # consecutive equal lines, in a result with the same target
_MIN_DISTANT_RUN_LINES: Final = 15  # in another result, where a few equal lines are common
_MIN_SAVED_TOKENS: Final = 40
_MAX_SOURCES: Final = 4
_MAX_REPEATS: Final = 3  # latest equal calls that are checked


class _RepeatedRun(Struct, frozen=True, gc=False):
    """A run of lines that is also in an earlier part."""

    first: int
    end: int
    source: int


class _RunSearch(Struct, frozen=True, dict=True):
    """The search for the lines of one new result in earlier parts."""

    view: View
    policy: Policy
    position: int
    intact: dict[int, bool]  # by part; shared by all results that arrived together
    min_lines: dict[int, int] = field(default_factory=dict[int, int])  # of a run, by source

    @cached_property
    def lines(self) -> list[NumberedLine]:
        text = self.view.transcript.parts[self.position].text
        return [parse_line(whole) for whole in text.split("\n")]

    def is_intact(self, source: int) -> bool:
        """Return whether a part has its whole text and will keep it."""
        if source not in self.intact:
            self.intact[source] = is_intact(self.view, self.policy, source)
        return self.intact[source]

    def min_run_lines(self, source: int) -> int:
        """Minimum length of a run in this source; 0 if nothing may depend on it."""
        if not self.is_intact(source):
            return 0
        if source not in self.min_lines:
            same = _has_same_target(self.view, source, self.position)
            self.min_lines[source] = _MIN_RUN_LINES if same else _MIN_DISTANT_RUN_LINES
        return self.min_lines[source]


@acts(at_arrival=True, at_epochs=False)
def lines_shown(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to remove lines of new results that the model can see in earlier ones."""
    intact: dict[int, bool] = {}
    for exchange in view.fresh_exchanges():
        position = exchange.result
        if position is None or not _can_cut(view, policy, exchange, position):
            continue
        search = _RunSearch(view=view, policy=policy, position=position, intact=intact)
        runs = _find_runs(search)
        offer = _shorten_offer(search, runs) if runs else None
        if offer is not None:
            intact[position] = False  # results that arrived with it must not depend on it
            yield offer


def _can_cut(view: View, policy: Policy, exchange: Exchange, position: int) -> bool:
    part = view.transcript.parts[position]
    if len(part.text) < _MIN_CHARS or not view.ledger.lines.can_occur_before(position, part):
        return False  # the common case
    if not view.can_rewrite(position) or has_gaps(part.text):
        return False
    outcome_kind = view.use(exchange.ordinal).outcome_kind
    is_short = policy.errors_verbatim and len(part.text) <= MAX_OPEN_ERROR_CHARS
    if is_short and is_failed_call(part.text, part.error, outcome_kind):
        return False
    return not _is_repeated_request(view, exchange)


def _is_repeated_request(view: View, exchange: Exchange) -> bool:
    """Return whether the same call lost lines before: a repeated request wants to see them."""
    call = view.transcript.parts[exchange.call]
    use = view.use(exchange.ordinal)
    for ordinal in view.ledger.repeats(call.name, use, exchange.ordinal)[-_MAX_REPEATS:]:
        result = view.transcript.exchanges[ordinal].result
        edit = None if result is None else view.in_force.get(result)
        if edit is not None and edit.reason == REASON:
            return True
        if result is not None and find_marker(view.transcript.parts[result].text) is not None:
            return True  # removed before the history arrived here
    return False


def _find_runs(search: _RunSearch) -> list[_RepeatedRun]:
    """Find the runs of lines of a result that earlier parts have, greedily."""
    text = search.view.transcript.parts[search.position].text
    at, end = _inner_lines(text)
    runs = search.view.ledger.lines.runs(
        text,
        at,
        end,
        before=search.position,
        exact=search.policy.line_number_interval == 1,
        min_lines_of=search.min_run_lines,
        max_sources=_MAX_SOURCES,
    )
    return [_RepeatedRun(*run) for run in runs]


def _inner_lines(text: str) -> tuple[int, int]:
    """The range of lines that may go.

    The agent's frame stays, and the first and last line inside it, which show the place in a file.
    """
    frame = split_frame(text)
    head = frame.head.count("\n")
    return head + 1, head + frame.body.rstrip().count("\n")


def _has_same_target(view: View, source: int, position: int) -> bool:
    """Return whether two exchanges use the same file, or are one operation on one target."""
    ordinals = (view.transcript.exchange_of[at] for at in (source, position))
    one, other = (view.use(ordinal) for ordinal in ordinals)
    files = {span.path for span in (*one.reads, *one.writes)}
    if files or other.reads or other.writes:
        return any(span.path in files for span in (*other.reads, *other.writes))
    return one.target is not None and (one.operation, one.target) == (other.operation, other.target)


def _shorten_offer(search: _RunSearch, runs: Sequence[_RepeatedRun]) -> Offer | None:
    view, position, lines = search.view, search.position, search.lines
    part = view.transcript.parts[position]
    gone = sum(run.end - run.first for run in runs)
    sources = sorted({run.source for run in runs})
    ordinals = {view.transcript.exchange_of[source] for source in sources}
    where = f"the same as in {describe_sources(view, ordinals)} above"
    ref = reference(part.text)
    total = len(lines) - (not lines[-1].whole)
    marker = OmissionMarker(gone, "lines", ref, total, reason=where, fetch_tool=view.fetch_tool)
    text = "\n".join((*_kept_lines([line.whole for line in lines[:total]], runs), str(marker)))
    if len(text) >= len(part.text):
        return None
    saved = view.saved_by(position, text)
    if saved < _MIN_SAVED_TOKENS:
        return None
    edit = Replace(
        part=position,
        ref=part.ref,
        text=text,
        original=ref,
        reason=REASON,
        evidence=f"{gone:,} lines {where}",
        saved=saved,
    )
    return Offer("trim", edit, depends_on=tuple(sources))


def _kept_lines(lines: Sequence[str], runs: Sequence[_RepeatedRun]) -> Iterator[str]:
    """The kept lines, with a gap line for each removed range."""
    at = 0
    for first, end in _gaps(runs):
        yield from lines[at:first]
        yield gap_line(end - first, "lines")
        at = end
    yield from lines[at:]


def _gaps(runs: Sequence[_RepeatedRun]) -> list[tuple[int, int]]:
    """The removed ranges; adjacent runs are one range."""
    found: list[tuple[int, int]] = []
    for run in runs:
        if found and found[-1][1] == run.first:
            found[-1] = (found[-1][0], run.end)
        else:
            found.append((run.first, run.end))
    return found
