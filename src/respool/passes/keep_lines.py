"""Keep the lines of a result that are likely to be needed, and the names in the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import compress
from typing import Final

from ..edits import TIDIED, UNLIKELY_NEEDED, Offer, Replace
from ..forecast.features import ResultFeatures
from ..forecast.line_codes import ResultState
from ..forecast.line_parts import SplitText
from ..forecast.line_selection import SelectedLines, select_lines
from ..forecast.model import forecast_lines, line_calibration
from ..history.failures import MAX_OPEN_ERROR_CHARS, error_line, strip_color
from ..markers import OmissionMarker, has_gaps, is_gap_line, is_names_line, parse_gap, parse_marker
from ..policy import Policy
from ..shapes.decoration import split_frame
from ..summaries.outcome import parse_outcome
from ..tools.use import Use
from ..transcript import Part, Unit
from .base import View, acts, trim_offer, units_at_doubled_age

MIN_CHARS: Final = 800  # cutting shorter results saves too little
_MIN_SAVED_TOKENS: Final = 20
# On arrival; fitted by replay of recorded sessions (bench/RESULTS.md).
_MIN_FILE_CHARS: Final = 2_000  # of a file that was read whole
_MIN_RANGE_CHARS: Final = 12_000  # of a range of lines or a diff: shorter ones stay as requested
_UNSEEN_RISK_FACTOR: Final = 1.5  # risk of lines that the model has never seen
_UNSEEN_PAGE_RISK_FACTOR: Final = 5.0  # the same of documents: agents work from what they say


@acts(at_arrival=True, at_epochs=True)
def keep_lines(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut each result to the lines likely to be needed, each time its age has doubled.

    With `trim_on_arrival` also new results of runs, searches and long reads.
    """
    if view.arrival and not policy.trim_on_arrival:
        return
    for position in _arriving_results(view) if view.arrival else _due_results(view):
        text = view.transcript.parts[position].text
        if len(text) < MIN_CHARS or not view.can_lose_lines(position) or has_gaps(text):
            continue
        known = view.risks.result_features(position)
        offer = None if known is None else _offer(view, position, known[0])
        if offer is not None:
            yield offer


def _arriving_results(view: View) -> Iterator[int]:
    """New results of which lines may go before the model has seen them."""
    for exchange in view.fresh_exchanges():
        use = view.use(exchange.ordinal)
        min_chars = _min_chars_for(use)
        if exchange.result is None or min_chars is None:
            continue
        part = view.transcript.parts[exchange.result]
        if len(part.text) < min_chars:
            continue
        failed = parse_outcome(part.text, part.error, use.outcome_kind).failed
        if not failed or len(part.text) > MAX_OPEN_ERROR_CHARS:
            yield exchange.result


def _min_chars_for(use: Use) -> int | None:
    """Minimum length of a result that may be cut on arrival; None: it stays."""
    if use.kind in ("run", "search"):
        return MIN_CHARS
    if use.kind != "read":
        return None
    is_part = use.content == "diff" or any(span.lines is not None for span in use.reads)
    return _MIN_RANGE_CHARS if is_part else _MIN_FILE_CHARS


def _due_results(view: View) -> Iterator[int]:
    """Results whose age reached a power of two since the last evaluation.

    The age is counted from when a result could first be touched: after the recent ones. Over a
    limit all that stand.
    """
    units, results = view.transcript.units, view.transcript.results
    kept = view.unseen_from if view.kept_from is None else min(view.kept_from, view.unseen_from)
    last, now = (bisect_right(units, at, key=_first_part) - 1 for at in (view.due_from, kept))
    if view.phase == "full":
        all_of = [one.result for one in view.standing_exchanges if one.result is not None]
        yield from sorted(at for at in all_of if at < units[now].parts[0])
        return
    for first, end in units_at_doubled_age(last, now):
        start, stop = units[first].parts[0], min(units[end - 1].parts[1], kept)
        due = results[bisect_left(results, start) : bisect_left(results, stop)]
        yield from (at for at in due if at in view.mentions.results and not view.is_gone(at))


def _first_part(unit: Unit) -> int:
    return unit.parts[0]


def _offer(view: View, position: int, found: ResultFeatures) -> Offer | None:
    """Offer a result without the lines that cost more to keep than to miss."""
    part = view.transcript.parts[position]
    use = view.use(view.transcript.exchange_of[position])
    gone, rate = _removed_lines(view, position, found), _max_risk(view, use)
    inner = gone and gone.difference(_frame_lines(view, part.text))
    kept = select_lines(
        part.text, found, forecast_lines(found), view.mentions, rate=rate, gone_before=inner
    )
    if kept is None or len(gone) >= kept.total or not _has_cause(part, use, found, kept):
        return None  # all lines went before: their replacement says more than a gap
    ref, rerun = view.reference_of(position), use.rerun
    is_all = is_gap_line(kept.text)
    marker = OmissionMarker(
        kept.removed,
        kept.unit,
        ref,
        None if is_all else kept.total,
        is_rerun_safe=rerun,
        fetch_tool=view.fetch_tool,
    )
    text = str(marker) if is_all else f"{kept.text}\n{marker}"
    saved = view.saved_by(position, text) if len(text) <= len(part.text) - _MIN_SAVED_TOKENS else 0
    if saved < _MIN_SAVED_TOKENS:
        return None
    gone_of_all = f"{kept.removed:,} of {kept.total:,} {kept.unit}"
    evidence = f"{gone_of_all}, {max(kept.risk, 0.0):.3f} turns may miss one"
    return trim_offer(
        view, position, text, original=ref, reason=UNLIKELY_NEEDED, evidence=evidence, saved=saved
    )


def _max_risk(view: View, use: Use) -> float:
    """Turns that may miss something for each token removed, as the forecast counts them."""
    factor = line_calibration(use.content)
    if view.arrival:
        factor *= _UNSEEN_PAGE_RISK_FACTOR if use.content == "page" else _UNSEEN_RISK_FACTOR
    return view.fair_risk / factor


def _frame_lines(view: View, text: str) -> range:
    """The lines before an output; tidying removes some of these, cuts do not."""
    return range(view.mentions.split(text).frame[0] - 1)


def _has_cause(part: Part, use: Use, found: ResultFeatures, kept: SelectedLines) -> bool:
    """Return whether the kept lines of a failure still have its cause."""
    return _cause_line(part, use, found.owned) in strip_color(kept.text)


def _cause_line(part: Part, use: Use, owned: ResultState) -> str:
    """The line that names the cause of a failure, found once; empty if there was none."""
    known = owned.failure
    if known is None or known[0] != use.outcome_kind:
        ending = parse_outcome(part.text, part.error, use.outcome_kind)
        line = error_line(ending.body) if ending.failed else ""
        known = owned.failure = use.outcome_kind, line
    return known[1]


def _removed_lines(view: View, position: int, found: ResultFeatures) -> frozenset[int]:
    """The lines of a result that an edit in force has removed."""
    edit = view.in_force.get(position)
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return frozenset()
    original = view.transcript.parts[position].text
    lines = lines_in_gaps(strip_color(original), edit.text)
    if lines is not None:
        return lines
    missing = view.mentions.missing(found.words, original, edit.text).lines
    return frozenset(compress(range(len(missing)), missing))


def lines_in_gaps(original: str, text: str) -> frozenset[int] | None:
    """The lines of a result in the gaps of its cut text, by place; None if these do not add up.

    A removed line whose words stand in a kept one too is still removed.

    >>> sorted(lines_in_gaps("a\\nb\\nc\\nb", "a\\n[… 2 lines]\\nb") or ())
    [1, 2]
    """
    split = SplitText(original)
    at = split.frame[0] - 1  # tidying shortens the frame
    cut = text[len(split_frame(text).head) :].split("\n")
    found: list[int] = []
    for line in cut[:-1] if parse_marker(cut[-1]) is not None else cut:
        gap = parse_gap(line)
        if gap is not None:
            found += range(at, at + gap[0])
            at += gap[0]
        elif not is_names_line(line):
            following = split.following(line, at)
            if following is None:
                return None
            at = following
    end = len(split.lines)
    ends = at == end or (at == end - 1 and not split.lines[at])
    return frozenset(found) if ends else None
