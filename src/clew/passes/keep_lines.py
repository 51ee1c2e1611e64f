"""Keep of a seen result the lines that will probably be needed, and the names in the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import compress
from typing import Final

from ..edits import KEPT_LINES, TIDIED, Offer, Replace
from ..forecast.features import Known, known, session_of
from ..forecast.keeping import kept_of
from ..forecast.mentions import Mentions
from ..forecast.model import forecast
from ..forecast.risks import KEPT_LINES_MISSED
from ..marker import Short, find_marker, reference
from ..policy import Policy
from ..transcript import Unit
from .view import View

LEAST: Final = 800  # characters; of shorter results nothing worth having can go
_LEAST_SAVED: Final = 20  # tokens


def keep_lines(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut each result, whenever it has come to twice its age, to what will be needed."""
    mentions = view.mentions
    session = session_of(view.transcript, view.ledger, mentions)
    for position in _due(view, mentions):
        text = view.transcript.parts[position].text
        if len(text) < LEAST or not view.may_rewrite(position) or find_marker(text) is not None:
            continue
        found = known(position, view.transcript, view.ledger, mentions, session)
        offer = None if found is None else _offer(view, position, found, mentions)
        if offer is not None:
            yield offer


def _due(view: View, mentions: Mentions) -> Iterator[int]:
    """The seen results whose age has come to a power of two since the last evaluation."""
    units = view.transcript.units
    now = len(units) - 1
    last = bisect_right(units, view.fresh_from, key=_answers) - 1
    for position in view.transcript.results:
        if position >= view.unseen_from:
            return
        words = mentions.results.get(position)
        if words is None or now <= words.unit:
            continue
        if (now - words.unit).bit_length() != max(0, last - words.unit).bit_length():
            yield position


def _answers(unit: Unit) -> int:
    return unit.answers


def _offer(view: View, position: int, found: Known, mentions: Mentions) -> Offer | None:
    """A result without the lines that cost more to carry than missing them would."""
    part = view.transcript.parts[position]
    rate = view.fair_risk / KEPT_LINES_MISSED
    gone = _gone(view, position, found)
    kept = kept_of(part.text, found, forecast(found), mentions, rate, gone_before=gone)
    if kept is None:
        return None
    ref, rerun = reference(part.text), view.use(view.transcript.exchange_of[position]).rerun
    marker = Short(kept.gone, "lines", ref, kept.all, rerun=rerun, fetch=view.fetch)
    text = f"{kept.text}\n{marker}"
    saved = view.saved_by(position, text) if len(text) <= len(part.text) - _LEAST_SAVED else 0
    if saved < _LEAST_SAVED:
        return None
    evidence = f"{kept.gone:,} of {kept.all:,} lines, {kept.risk:.3f} turns may miss one"
    return Offer("trim", Replace(position, part.ref, text, ref, KEPT_LINES, evidence, saved))


def _gone(view: View, position: int, found: Known) -> frozenset[int]:
    """The lines that an edit in force has taken out of a result."""
    edit = view.in_force.get(position)
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return frozenset()
    original = view.transcript.parts[position].text
    missing = view.mentions.missing(found.words, original, edit.text).lines
    return frozenset(compress(range(len(missing)), missing))
