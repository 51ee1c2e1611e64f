"""What shows with a request for the first time: what came again, and where an agent circles."""

from __future__ import annotations

import logging
from typing import Final

from msgspec import Struct

from ...compaction.advice import TranscriptWithoutAdvice
from ...compaction.state import State
from ...history.refetches import Refetch
from ...loops import advice
from ...store import RefetchedResult

_LONGEST: Final = 200  # characters of a name, or of what was read again
_MOST: Final = 50  # of each, at one request
_log = logging.getLogger(__name__)


class Noticed(Struct, frozen=True):
    """What the results show that just came."""

    refetched: tuple[RefetchedResult, ...] = ()
    loops: tuple[str, ...] = ()  # a sentence or two each


_NOTHING: Final = Noticed()


def noticed(state: State) -> Noticed:
    """What the latest results of a history show; where that fails, nothing: it is only told."""
    try:
        return _noticed(state)
    except Exception:  # noqa: BLE001 - law 9: what is only told must not cost a projection
        _log.exception("What a request shows could not be worked out")
        return Noticed()


def _noticed(state: State) -> Noticed:
    """The same for the same history, whoever asks and how often."""
    units, results = state.transcript.units, state.transcript.results
    if not units:
        return _NOTHING
    came = bool(results) and results[-1] >= units[-1].answers_from
    if not came and not units[-1].exchanges:
        return _NOTHING
    last = frozenset(units[-1].exchanges)
    again = [_told(one) for one in state.refetches.found if one.exchange in last]
    said = advice(
        TranscriptWithoutAdvice(state.transcript), state.analysis.ledger, units[-1].answers_from
    )
    return Noticed(tuple(again[:_MOST]), tuple(said[at] for at in sorted(said))[:_MOST])


def _told(one: Refetch) -> RefetchedResult:
    tool, target = one.tool[:_LONGEST], one.target[:_LONGEST]
    return RefetchedResult(tool, target, one.reason, str(one.ref), str(one.earlier), one.tokens)
