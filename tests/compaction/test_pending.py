"""Edits decided at one boundary take force at the next; who computes them changes no byte."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import respool
import respool.compaction.fold as fold_module
from respool import Facts, Memo, Policy
from respool.engine import FoldedRequest, Session, edits_in_force
from tests.compaction.test_evaluation import PRICED, cut_results, grown, thinking
from tests.support.formats import FORMATS

formats = pytest.mark.parametrize("format", FORMATS)
LAST = 9
BODIES = {format: [grown(format, count) for count in range(1, LAST + 1)] for format in FORMATS}
# Every result may go once it was seen, at prices by which that pays.
POLICY = PRICED.replace(cache_read_price=0.9, cache_write_price=1.0)


def fold(
    session: Session, format: Any, body: Any, facts: Facts | None = None, policy: Policy = POLICY
) -> FoldedRequest:
    return session.fold(session.parse(body, format), policy, facts or Facts())


def cuts(folded: FoldedRequest, format: str, body: Any) -> list[int]:
    return cut_results(format, body, Session().project(folded, body)[0])


def prefix(format: str, body: Any) -> str:
    found = respool.compact(body, format=format, memo=None).report.prefix
    assert found is not None
    return found


@formats
def test_what_is_decided_with_one_request_goes_with_the_next(format: str) -> None:
    """At the boundary of request n, results up to n - 1 were seen: they go with request n + 1."""
    for count, body in enumerate(BODIES[format], 1):
        folded = fold(Session(), format, body)
        assert cuts(folded, format, body) == list(range(max(0, count - 2)))
        assert folded.is_pending == (count > 0)


@formats
@pytest.mark.parametrize("way", ["nobody", "ahead", "memo alone", "threads"])
def test_who_computes_it_changes_no_byte(format: str, way: str) -> None:
    session = Session(Memo())
    for body in BODIES[format]:
        cold = respool.compact(body, format=format, policy=POLICY, memo=None)
        this = Session() if way == "nobody" else session
        folded = fold(this, format, body)
        assert this.project(folded, body)[0] == cold.request
        assert dict(folded.originals) == dict(cold.originals)
        if way == "ahead":
            this.evaluate_ahead(folded)
        elif way == "threads":
            threading.Thread(target=this.evaluate_ahead, args=(folded,)).start()


def test_an_evaluation_is_computed_once_for_all_who_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    real = fold_module.evaluate

    def counting(state: Any, *args: Any, **named: Any) -> None:
        counted.append(len(state.transcript.units))
        real(state, *args, **named)

    monkeypatch.setattr(fold_module, "evaluate", counting)
    session, bodies = Session(Memo()), BODIES["anthropic"]
    for body in bodies[:-1]:
        session.evaluate_ahead(fold(session, "anthropic", body))
    last = fold(session, "anthropic", bodies[-2])
    counted.clear()
    ways = [threading.Thread(target=session.evaluate_ahead, args=(last,)) for _ in range(3)]
    ways += [
        threading.Thread(target=fold, args=(session, "anthropic", bodies[-1])) for _ in range(3)
    ]
    for one in ways:
        one.start()
    for one in ways:
        one.join()
    assert counted == []  # it was there
    for body in bodies:  # a retry, and a fork at every request
        fold(session, "anthropic", body)
    assert counted.count(LAST) == 0, "nothing extends the last request"


@formats
@pytest.mark.parametrize("kind", ["skipped", "cold", "changed", "left_alone"])
def test_a_fact_at_the_next_boundary_comes_first(format: str, kind: str) -> None:
    body, before = BODIES[format][-1], BODIES[format][-2]
    facts = Facts(**{kind: frozenset({prefix(format, body)})})  # type: ignore[arg-type]
    earlier = cuts(fold(Session(), format, before), format, before)
    session = Session(Memo())
    session.evaluate_ahead(fold(session, format, before))
    for one in (session, Session()):
        folded = fold(one, format, body, facts)
        is_free = kind in ("cold", "changed")
        # A free moment decides itself, and takes all that was seen; at the others nothing changes.
        seen = list(range(LAST - 1)) if is_free else earlier
        assert cuts(folded, format, body) == seen
        assert not folded.is_pending


@formats
def test_a_retry_is_sent_the_same_after_its_evaluation(format: str) -> None:
    session, body = Session(Memo()), BODIES[format][-1]
    first = fold(session, format, body)
    sent = session.project(first, body)[0]
    session.evaluate_ahead(first)
    again = fold(session, format, body)
    assert session.project(again, body)[0] == sent
    assert edits_in_force(again.state) == edits_in_force(first.state)


@pytest.mark.parametrize(
    "settings",
    [{"eager": True}, {"cache_read_price": 1.0}, {"budget": 2_000}],
    ids=["eager", "nothing is cached", "over the budget"],
)
def test_where_it_cannot_wait_it_takes_force_at_once(settings: dict[str, Any]) -> None:
    body = grown("openai-chat", LAST, LAST - 2)  # the last one that was seen is large
    folded = fold(Session(), "openai-chat", body, policy=POLICY.replace(**settings))
    assert cuts(folded, "openai-chat", body)[-1] == LAST - 2
    assert not folded.is_pending


@pytest.mark.parametrize(
    ("model", "is_bound"), [("claude-opus-4-8", False), ("claude-opus-5-5", True)]
)
def test_bound_reasoning_is_signed_for_what_was_sent_with_it(model: str, is_bound: bool) -> None:
    """The answer to a request would have to go if the next one changed what stood before it."""
    body = thinking(8, model, 3)
    assert fold(Session(), "anthropic", body).is_pending != is_bound
