"""One session, replayed under each policy."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..sessions.session import Session
from ..tokens import counter_for, family_of
from .calibration import Evidence, calibrated, evidence_of
from .circling import circled
from .conditions import conditions_of, model_of_session
from .policies import policy_named
from .reading import Counted, Measure, Plain
from .reconcile import recorded
from .recording import Conditions, Recording
from .result import SessionResult
from .score import score
from .spending import spent_on, times_of


class Options(Struct, frozen=True):
    """How sessions are replayed."""

    policies: tuple[str, ...]  # the first is "none"
    plain: bool = False  # count characters / 4
    window: int | None = None  # in place of the model's own


def replay_session(session: Session, options: Options) -> SessionResult:
    """What a session cost, and what each policy would have done."""
    evidence = None if options.plain else evidence_of(session)
    measure = measure_for(session, options, evidence)
    conditions = conditions_of(session, measure, options.window)
    return replayed(session, measure, conditions, options.policies, evidence)


def measure_for(session: Session, options: Options, evidence: Evidence | None = None) -> Measure:
    """How a session's tokens are counted: as its usage shows, where it has any."""
    if options.plain:
        return Plain()
    model = model_of_session(session)
    if evidence is not None:
        return calibrated(evidence, family_of(session.format, model))
    return Counted(counter_for(session.format, model))


def replayed(
    session: Session,
    measure: Measure,
    conditions: Conditions,
    policies: Sequence[str],
    evidence: Evidence | None = None,
) -> SessionResult:
    """A session under these conditions, whatever they were really."""
    recording = Recording(session, measure, conditions)
    scores = [score(recording, policy_named(name)(recording), name) for name in policies]
    charged = times_of(recording)
    times = [sent.time for sent in session.requests if sent.time is not None]
    return SessionResult(
        id=session.id,
        agent=session.agent,
        format=session.format,
        model=model_of_session(session),
        source=session.source,
        segment=session.segment,
        parent=session.parent,
        started=min(times, default=None),
        ended=max(times, default=None),
        requests=len(session.requests),
        window=conditions.window,
        scores=tuple(scores),
        spent=spent_on(recording, charged),
        recorded=recorded(recording, scores[0], evidence) if scores else None,
        notes=session.notes,
        samples=evidence.growths if evidence is not None else (),
        circles=circled(recording, charged[1]),
    )
