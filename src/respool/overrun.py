"""A budget that cannot be met: the error, and what stands in the way."""

from __future__ import annotations

from .engine import Folded
from .folding.evaluating import view_of
from .folding.room import limits_of
from .folding.state import count_all
from .limits import in_the_way, pressure, why_it_stays
from .passes.view import View
from .protections import Protections
from .report import Report

_SURELY = 0.97  # of the budget: joining messages takes a token or two


def refuse_over_budget(folded: Folded, report: Report) -> None:
    """Raise when a budget that the policy sets is not met, and say what stands in the way.

    A window that is only listed is no reason: the provider may accept what was estimated. What
    the rendering adds does not count: no edit could have made room for it.
    """
    state, setting = folded.state, folded.context
    limits = limits_of(state, setting)
    if limits.source != "budget" or limits.tokens is None or _is_passed_over(folded):
        return
    if setting.head + count_all(state, setting.counter) - state.saved <= _SURELY * limits.tokens:
        return  # what goes out is counted anew only where it may matter
    sent = report.tokens_after - report.tokens_rendered
    over = pressure(limits, tokens=sent).of("tokens")
    if over is not None:
        raise over.error(_all_of(sent, _in_the_way(folded)))


def _is_passed_over(folded: Folded) -> bool:
    """Whether facts say that nothing more is taken out here."""
    state, facts = folded.state, folded.context.facts
    return state.left_alone or state.prefix.hex() in facts.skipped


def _all_of(sent: int, found: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """What stands in the way, and the few tokens that joining messages adds or saves."""
    rest = sent - sum(size for _, size in found)
    return (*found, ("messages that were joined", rest)) if rest else found


def _in_the_way(folded: Folded) -> tuple[tuple[str, int], ...]:
    state, setting = folded.state, folded.context
    sizes = list(state.tokens)  # exact by now, for the report has counted them
    for position in state.claimed:
        edit = state.edits.get(position)
        sizes[position] = 0 if edit is None else max(0, sizes[position] - edit.saved)
    for position, advice in state.advice.items():
        sizes[position] -= advice.saved
    unseen_from = state.index.units[-1].answers_from if state.index.units else 0
    view = view_of(state, setting, unseen_from, arrival=False)
    return in_the_way(state.index.parts, sizes, lambda at: _why(view, at), setting.head)


def _why(view: View, position: int) -> str | None:
    pins = view.pinned
    assert isinstance(pins, Protections)
    return why_it_stays(view.transcript, position, view.unseen_from, view.first_user, pins.label_for)
