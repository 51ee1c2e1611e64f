"""Keep of a result the lines that will probably be needed, and the names in the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import compress
from typing import Final

from ..edits import KEPT_LINES, TIDIED, Offer, Replace
from ..forecast.features import Known
from ..forecast.keeping import Kept, kept_of
from ..forecast.model import forecast
from ..forecast.owned import Owned
from ..forecast.risks import missed_of_lines
from ..ledger.failures import VERBATIM, telling_line, uncoloured
from ..marker import Short, has_gaps, reference
from ..policy import Policy
from ..shapes.frame import framed
from ..summaries.outcomes import ending_of
from ..tools.use import Use
from ..transcript import Part, Unit
from .moments import acts, doubled
from .view import View

LEAST: Final = 800  # characters; of shorter results nothing worth having can go
_LEAST_SAVED: Final = 20  # tokens
# Of what arrives: by replay of recorded sessions (docs/presets.md).
_LEAST_FILE: Final = 2_000  # characters of a file that was read whole
_LEAST_PART: Final = 12_000  # of some lines of one, or a diff: shorter, it comes as asked for
_UNSEEN: Final = 1.5  # times as much is feared for what the model has never seen


@acts(at_arrival=True, at_epochs=True)
def keep_lines(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut each result, whenever it has come to twice its age, to what will be needed.

    Where the policy asks for that, also what runs, searches and long reads bring, at arrival.
    """
    if view.arrival and not policy.trim_on_arrival:
        return
    fair = view.fair_risk / (_UNSEEN if view.arrival else 1.0)
    for position in _arriving(view) if view.arrival else _due(view):
        text = view.transcript.parts[position].text
        if len(text) < LEAST or not view.can_lose_lines(position) or has_gaps(text):
            continue
        known = view.risks.result_features(position)
        offer = None if known is None else _offer(view, position, known[0], fair)
        if offer is not None:
            yield offer


def _arriving(view: View) -> Iterator[int]:
    """The results that just came of which lines may go before the model has seen them."""
    for exchange in view.fresh_exchanges():
        use = view.use(exchange.ordinal)
        least = _least_of(use)
        if exchange.result is None or least is None:
            continue
        part = view.transcript.parts[exchange.result]
        if len(part.text) < least:
            continue
        failed = ending_of(part.text, part.error, use.outcome_kind).failed
        if not failed or len(part.text) > VERBATIM:
            yield exchange.result


def _least_of(use: Use) -> int | None:
    """From how many characters on what a call brings may be cut at arrival; None: it stays."""
    if use.kind in ("run", "search"):
        return LEAST
    if use.kind != "read":
        return None
    is_part = use.content == "diff" or any(span.lines is not None for span in use.reads)
    return _LEAST_PART if is_part else _LEAST_FILE


def _due(view: View) -> Iterator[int]:
    """The seen results whose age has come to a power of two since the last evaluation."""
    units, results = view.transcript.units, view.transcript.results
    last = bisect_right(units, view.fresh_from, key=_answers) - 1
    for first, end in doubled(last, len(units) - 1):
        start, stop = units[first].parts[0], min(units[end - 1].parts[1], view.unseen_from)
        due = results[bisect_left(results, start) : bisect_left(results, stop)]
        yield from (at for at in due if at in view.mentions.results and not view.is_gone(at))


def _answers(unit: Unit) -> int:
    return unit.answers_from


def _offer(view: View, position: int, found: Known, max_risk: float) -> Offer | None:
    """A result without the lines that cost more to carry than missing them would."""
    part = view.transcript.parts[position]
    use = view.use(view.transcript.exchange_of[position])
    gone, rate = _gone(view, position, found), max_risk / missed_of_lines(use.content)
    inner = gone and gone.difference(_framing(part.text))
    kept = kept_of(part.text, found, forecast(found), view.mentions, rate, gone_before=inner)
    if kept is None or len(gone) >= kept.total or not _tells_why(part, use, found, kept):
        return None  # where all lines went before, what stands there says more than a hole
    ref, rerun = reference(part.text), use.rerun
    marker = Short(kept.removed, "lines", ref, kept.total, is_rerun_safe=rerun, fetch_tool=view.fetch_tool)
    text = f"{kept.text}\n{marker}"
    saved = view.saved_by(position, text) if len(text) <= len(part.text) - _LEAST_SAVED else 0
    if saved < _LEAST_SAVED:
        return None
    evidence = f"{kept.removed:,} of {kept.total:,} lines, {max(kept.risk, 0.0):.3f} turns may miss one"
    return Offer("trim", Replace(position, part.ref, text, ref, KEPT_LINES, evidence, saved))


def _framing(text: str) -> range:
    """The lines before an output: of these tidying took some out, no cut did."""
    return range(framed(text).head.count("\n"))


def _tells_why(part: Part, use: Use, found: Known, kept: Kept) -> bool:
    """Whether what remains of a failure still says what went wrong."""
    return _telling(part, use, found.owned) in uncoloured(kept.text)


def _telling(part: Part, use: Use, owned: Owned) -> str:
    """The line that says what went wrong, looked for once; empty where nothing did."""
    known = owned.failure
    if known is None or known[0] != use.outcome_kind:
        ending = ending_of(part.text, part.error, use.outcome_kind)
        line = telling_line(ending.body) if ending.failed else ""
        known = owned.failure = use.outcome_kind, line
    return known[1]


def _gone(view: View, position: int, found: Known) -> frozenset[int]:
    """The lines that an edit in force has taken out of a result."""
    edit = view.in_force.get(position)
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return frozenset()
    original = view.transcript.parts[position].text
    missing = view.mentions.missing(found.words, original, edit.text).lines
    return frozenset(compress(range(len(missing)), missing))
