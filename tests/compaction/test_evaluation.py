"""Evaluation: offers wait, go together, give way and return, as facts say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

import respool
import respool.compaction.fold
from bench.growth import SHAPES, compact_cold
from respool import Facts, Memo, Policy
from respool.compaction import window
from respool.compaction.state import State, UnmetLimits
from respool.edits import UNLIKELY_NEEDED, DropExchange, DropReasoning, Offer, Replace
from respool.engine import FoldedRequest, fold_request
from respool.limits import HeldMedia, RequestLimits
from respool.markers import OmissionMarker, reference
from respool.passes import Pass
from respool.passes.base import View, acts
from respool.providers.anthropic.request_rules import MAX_BREAKPOINTS, blocks_in, head_breakpoints
from tests.judges import judge
from tests.providers.anthropic.support import EPHEMERAL, NEW, OLD, m, res, text, u, use
from tests.support.formats import FORMATS, Exchange, request, results
from tests.support.states import context_with, state_with

formats = pytest.mark.parametrize("format", FORMATS)
SMALL, LARGE = 60, 900  # lines
BOUND_WITHOUT_A_MODEL = ("anthropic", "openai-chat")  # the strictest rule counts then


def lines(name: str, count: int) -> str:
    return "\n".join(f"{name} {number} of what the tool printed" for number in range(count))


def step(number: int, count: int = SMALL) -> list[Exchange]:
    return [Exchange(lines(f"r{number}", count), id=f"c{number}")]


def grown(format: str, count: int, *large: int) -> dict[str, Any]:
    """A session of so many calls; these have large results."""
    steps = [step(at, LARGE if at in large else SMALL) for at in range(count)]
    return request(format, "go", *steps)


def short(view: View, position: int, reason: str = "trial") -> Offer:
    """An offer to cut a part to a marker."""
    part = view.transcript.parts[position]
    ref = reference(part.text)
    cut = str(OmissionMarker(part.text.count("\n") + 1, "lines", ref))
    saved = view.saved_by(position, cut)
    return Offer("trim", Replace(position, part.ref, cut, ref, reason, "", saved))


@acts(at_arrival=False, at_epochs=True)
def cut_once(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer each result once, at the first look after it was seen."""
    for position in view.fresh_results():
        if view.can_rewrite(position):
            yield short(view, position)


@acts(at_arrival=False, at_epochs=True)
def cut_old(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer each result once, as soon as it is old."""
    for exchange in view.aged_exchanges():
        if exchange.result is not None and view.can_rewrite(exchange.result):
            yield short(view, exchange.result)


PRICED = Policy(
    cap_chars=None,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    miss_penalty=0.0,
    passes=(cut_once,),
    keep_exchanges=0,
)
# Four results stay; what a cut saves pays for all that is written again only behind a large one.
KEEP = 4
WAITING = PRICED.replace(
    passes=(cut_old,), keep_exchanges=KEEP, cache_read_price=0.04, cache_write_price=1.0
)
DEAR = WAITING.replace(cache_read_price=0.001)  # it never does


def folded(
    format: str,
    body: Any,
    policy: Policy = PRICED,
    facts: Facts | None = None,
    passes: tuple[Pass, ...] | None = None,
) -> FoldedRequest:
    return fold_request(
        body, format=format, policy=policy, facts=facts or Facts(), memo=None, passes=passes
    )


def decided(format: str, body: Any, policy: Policy) -> State:
    """The state with what takes force at the next boundary."""
    done = folded(format, body, policy)
    return respool.compaction.fold.decided_state(done.state, done.context)


def cut_results(format: str, body: Any, out: Any) -> list[int]:
    """Numbers of the results that were changed."""
    came, left = results(format, body), results(format, out)
    return [at for at, (one, other) in enumerate(zip(came, left, strict=True)) if one != other]


def compact(format: str, body: Any, policy: Policy = PRICED, facts: Facts | None = None) -> Any:
    return respool.compact(body, format=format, policy=policy, facts=facts, memo=None)


def prefix(format: str, body: Any) -> str:
    found = compact(format, body).report.prefix
    assert found is not None
    return found


# Offers wait until they pay, and are then taken together.


@formats
def test_offers_wait_and_are_taken_later(format: str) -> None:
    """Small results are not worth writing all behind them again; with a large one, all go."""
    counts = range(2, 16)
    bodies = [grown(format, count, 6) for count in counts]
    states = [folded(format, body, WAITING).state for body in bodies]
    outs = [compact(format, body, WAITING) for body in bodies]
    sent = [out.request for out in outs]
    taken = [cut_results(format, *pair) for pair in zip(bodies, sent, strict=True)]
    for count, state, gone in zip(counts, states, taken, strict=True):
        # The latest result is not seen yet, and what was decided with it takes force next time.
        old = max(0, count - 2 - KEEP)
        assert gone == ([] if old <= 6 else list(range(7))), count
        cut = {state.transcript.results[at] for at in gone}
        offered = {state.transcript.results[at] for at in range(old)}
        assert {part for _, part in state.evaluation.waiting} == offered - cut
    assert [out.report.epochs for out in outs] == [0] * 11 + [1] * 3


def cut_first(reason: str) -> Pass:
    """Offer the first result once, by this reason."""

    @acts(at_arrival=False, at_epochs=True)
    def first(view: View, policy: Policy) -> Iterator[Offer]:
        if view.transcript.results[0] in view.fresh_results():
            yield short(view, view.transcript.results[0], reason)

    return first


@formats
@pytest.mark.parametrize(
    ("asked", "reason", "cut"),
    [
        ({"offset": 1, "limit": SMALL}, UNLIKELY_NEEDED, [0]),
        ({"offset": 1, "limit": SMALL}, "trial", []),
        ({}, UNLIKELY_NEEDED, [0]),
        ({}, "trial", []),
    ],
)
def test_only_single_lines_wait_on_once_they_were_edited(
    format: str, asked: Any, reason: str, cut: list[int]
) -> None:
    file = {"file_path": "/w/loom.py"}
    read = [Exchange(lines("base", SMALL), tool="Read", id="a", args=file | asked)]
    changed = file | {"old_string": "base", "new_string": "warp"}
    edit = [Exchange("Done.", tool="Edit", id="b", args=changed)]
    body = request(format, "go", read, step(0), edit, *map(step, range(1, 6)))
    facts = Facts(cold=frozenset({prefix(format, body)}))
    policy = DEAR.replace(passes=(cut_first(reason),), keep_exchanges=0)
    out = compact(format, body, policy, facts)
    assert cut_results(format, body, out.request) == cut
    before = request(format, "go", read, step(0))
    assert decided(format, before, policy).evaluation.waiting


@formats
def test_what_never_pays_waits_for_good(format: str) -> None:
    body = grown(format, 12)
    done = decided(format, body, DEAR)
    assert done.edits.by_part == {}
    assert len(done.evaluation.waiting) == 7
    assert compact(format, body, DEAR).request is body


# Facts.


@formats
@pytest.mark.parametrize("kind", ["cold", "changed"])
def test_a_cold_or_changed_cache_takes_all_that_is_worth_it_at_once(format: str, kind: str) -> None:
    body = grown(format, 12)
    here = frozenset({prefix(format, body)})
    facts = Facts(cold=here) if kind == "cold" else Facts(changed=here)
    out = compact(format, body, DEAR, facts)
    assert cut_results(format, body, out.request) == list(range(7)), "all that waited"
    assert out.report.epochs == 1
    assert folded(format, body, DEAR, facts).state.evaluation.waiting == {}


@formats
def test_a_cold_cache_takes_nothing_that_is_worth_nothing(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that will be asked for again costs more than it saves, with any cache."""
    body = grown(format, 12)
    facts = Facts(cold=frozenset({prefix(format, body)}))
    monkeypatch.setattr(
        "respool.passes.base.RiskEstimator", forecasting(lambda result, results: result < 5)
    )
    out = compact(format, body, DEAR.replace(miss_penalty=1.0), facts)
    assert cut_results(format, body, out.request) == [5, 6]


@formats
def test_a_cold_prefix_counts_in_every_later_request(format: str) -> None:
    facts = Facts(cold=frozenset({prefix(format, grown(format, 12))}))
    memo = Memo()
    for count in range(9, 16):
        body = grown(format, count)
        warm = respool.compact(body, format=format, policy=DEAR, facts=facts, memo=memo)
        assert warm.request == compact(format, body, DEAR, facts).request
        expected = list(range(7)) if count >= 12 else []
        assert cut_results(format, body, warm.request) == expected


def forecasting(is_needed: Callable[[int, int], bool]) -> type:
    """A forecast that is sure: which result will be needed, at how many results so far."""

    class Sure:
        def __init__(self, view: View, *_: object) -> None:
            self.results = view.transcript.results

        def risk_of(self, offer: Offer) -> float:
            assert isinstance(offer.edit, Replace)
            at = self.results.index(offer.edit.part)
            return 100.0 if is_needed(at, len(self.results)) else 0.0

    return Sure


@formats
def test_a_window_lowers_the_limit_from_its_prefix_on(format: str) -> None:
    # OpenAI's models have their own, larger ones.
    policy = Policy(
        passes=("fold_exchanges",), reevaluate_tokens=1, reevaluate_ratio=0.0, keep_exchanges=0
    )
    window = 8_000
    at = prefix(format, grown(format, 20))
    facts = Facts(windows=((at, window),))
    for count, limit in ((19, None), (20, window), (24, window)):
        body = grown(format, count)
        done = folded(format, body, policy, facts)
        assert done.state.window.size == limit
        out = compact(format, body, policy, facts)
        if limit is None:
            assert out.request is body
            assert out.report.tokens_after > window
        else:
            assert out.report.tokens_after <= window
            assert compact(format, body, policy).request is body, "without it nothing is over"


@formats
def test_of_two_windows_the_smaller_one_counts_wherever_it_was_named(format: str) -> None:
    first, later = (prefix(format, grown(format, count)) for count in (10, 14))
    policy = Policy(passes=())
    for windows in (((first, 9_000), (later, 12_000)), ((first, 12_000), (later, 9_000))):
        facts = Facts(windows=windows)
        assert folded(format, grown(format, 16), policy, facts).state.window.size == 9_000
        assert folded(format, grown(format, 9), policy, facts).state.window.size is None


# Edits that lean on a text that goes, and cuts that are regretted.


@acts(at_arrival=True, at_epochs=False)
def lean_on_the_first(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer the second result in the words of the first, on which it leans."""
    found = view.transcript.results
    if len(found) == 2 and view.can_rewrite(found[1]):
        offer = short(view, found[1], "shown_before")
        yield Offer("trim", offer.edit, depends_on=(found[0],))


@acts(at_arrival=False, at_epochs=True)
def cut_the_first(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut the first result once there are three."""
    found = view.transcript.results
    if len(found) > 2 and view.can_rewrite(found[0]):
        yield short(view, found[0])


@formats
def test_edits_that_lean_are_withdrawn_and_the_text_is_exactly_back(format: str) -> None:
    both = PRICED.replace(
        passes=(lean_on_the_first, cut_the_first), cache_read_price=1.0, cache_write_price=1.0
    )
    two, three = grown(format, 2, 0), grown(format, 3, 0)
    assert cut_results(format, two, compact(format, two, both).request) == [1]
    out = compact(format, three, both)
    assert cut_results(format, three, out.request) == [0]
    assert results(format, out.request)[1] == lines("r1", SMALL)
    state = folded(format, three, both).state
    assert state.edits.dependencies == {}
    assert state.edits.claimed == {state.transcript.results[0]}
    assert (
        state.edits.saved
        == state.edits.by_part[state.transcript.results[0]].saved
        == out.report.tokens_saved
    )
    memo = Memo()
    warm = [respool.compact(b, format=format, policy=both, memo=memo) for b in (two, three)]
    assert warm[1].request == out.request


@acts(at_arrival=False, at_epochs=True)
def guess(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer some results when they were just seen, for a reason that is a guess."""
    for position in view.fresh_results():
        if view.can_rewrite(position) and position in view.transcript.results[1:4]:
            yield short(view, position, "unlikely_needed")


@formats
@pytest.mark.parametrize(("late", "left"), [(0, [0]), (4, [1, 4])], ids=["before it", "behind it"])
def test_a_regretted_cut_comes_back_only_with_a_cut_before_it(
    format: str, late: int, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Result 1 is cut; later all that it says is needed, and the next cut before it brings it."""
    policy = PRICED.replace(passes=(guess, cut_late(late)), miss_penalty=1.0, cache_read_price=0.1)
    sure = forecasting(lambda result, results: result in (2, 3) or (result == 1 and results > 5))
    monkeypatch.setattr("respool.passes.base.RiskEstimator", sure)
    told, epochs = list[list[int]](), list[int]()
    out = compact(format, grown(format, 3, late), policy)
    for count in range(4, 14):
        body = grown(format, count, late)
        body.pop("model", None)  # so that no prompt is too short to be cached
        out = compact(format, body, policy)
        told.append(cut_results(format, body, out.request))
        epochs.append(out.report.epochs)
    # The other one is offered when there are nine: until then nothing can change before result 1.
    # It goes with the tenth, but at once where bound reasoning forbids to wait.
    first = 5 if format in BOUND_WITHOUT_A_MODEL else 6
    assert told == [[1]] * first + [left] * (10 - first)
    assert epochs == [1] * first + [2] * (10 - first)
    assert (results(format, out.request)[1] == lines("r1", SMALL)) is (late == 0)


def cut_late(which: int) -> Pass:
    """A pass that offers to cut this result once there are nine."""

    @acts(at_arrival=False, at_epochs=True)
    def cut_one_late(view: View, policy: Policy) -> Iterator[Offer]:
        found = view.transcript.results
        if len(found) > 8 and view.can_rewrite(found[which]):
            yield short(view, found[which])

    return cut_one_late


# The mark of our own.


def with_breakpoint(count: int, *large: int, **fields: Any) -> dict[str, Any]:
    """The Anthropic session with the client's one mark on its newest block."""
    body = copy.deepcopy(grown("anthropic", count, *large))
    body["messages"][-1]["content"][-1]["cache_control"] = EPHEMERAL
    return {**body, **fields}


def breakpoints(body: Any) -> set[tuple[int, int]]:
    found = (
        (ref.row, int(ref.path[1]))
        for ref, block in blocks_in(body["messages"])
        if "cache_control" in block
    )
    return set(found)


HEADS: list[tuple[int, dict[str, Any]]] = [
    (0, {}),
    (1, {"system": [text("Be careful.", cache_control=EPHEMERAL)]}),
    (
        3,
        {
            "system": [
                text("Be careful.", cache_control=EPHEMERAL),
                text("Go.", cache_control=EPHEMERAL),
            ],
            "tools": [
                {
                    "name": "shell",
                    "input_schema": {"type": "object"},
                    "cache_control": EPHEMERAL,
                }
            ],
        },
    ),
]


@acts(at_arrival=False, at_epochs=True)
def cut_large(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut large results when they were just seen."""
    for position in view.fresh_results():
        if view.tokens_of(position) > 2_000 and view.can_rewrite(position):
            yield short(view, position)


@pytest.mark.parametrize("far", [1, 6])
def test_a_cut_among_what_an_epoch_wrote_begins_where_that_did(far: int) -> None:
    """All behind the first cut was written in one go: between its ends nothing can be found."""

    @acts(at_arrival=False, at_epochs=True)
    def cut_two(view: View, policy: Policy) -> Iterator[Offer]:
        found = view.transcript.results
        for at, since in ((2, 9), (4 + far, 12)):
            if len(found) == since and view.can_rewrite(found[at]):
                yield short(view, found[at])

    policy = PRICED.replace(passes=(cut_two,), cache_read_price=0.9, cache_write_price=1.0)
    rows = [
        row
        for calls in range(10, 15)
        for row, _ in breakpoints(
            compact("anthropic", with_breakpoint(calls, 2, 4 + far), policy).request
        )
        if row < 2 * calls
    ]
    assert rows == [4] * 3 + [4 if far == 1 else 20] * 2, "one request after each decision"


@pytest.mark.parametrize(("count", "head"), HEADS, ids=["none", "one", "three"])
def test_own_mark_moves_with_the_epoch_and_never_makes_a_fifth(
    count: int, head: dict[str, Any]
) -> None:
    own: list[tuple[int, set[tuple[int, int]]]] = []
    for calls in range(3, 24):
        body = with_breakpoint(calls, 1, 12, 16, **head)
        out = compact("anthropic", body, PRICED.replace(passes=(cut_large,)))
        added = breakpoints(out.request) - breakpoints(body)
        assert len(added) <= 1
        assert len(breakpoints(out.request)) + len(head_breakpoints(body)) <= MAX_BREAKPOINTS
        assert judge("anthropic", out.request) == []
        own.append((out.report.epochs, added))
    if count == 3:
        assert all(not added for _, added in own), "there is no room for one"
        return
    by_epoch: dict[int, set[tuple[int, int]]] = {}
    for epochs, added in own:
        if epochs and added:
            by_epoch.setdefault(epochs, added)
            assert by_epoch[epochs] == added, "it moved between epochs"
    places = [next(iter(place)) for _, place in sorted(by_epoch.items())]
    assert [row for row, _ in places] == [2, 24, 32], "before the call of each large result"


# Reasoning that is bound to what stands before it.


def thought(number: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"thought {number}", "signature": f"c2ln{number:04}"}


def thinking(count: int, model: str, *large: int, **fields: Any) -> dict[str, Any]:
    """A session in which the model thinks before every call; the user speaks up after five."""
    messages: list[Any] = [u(text("go"))]
    for number in range(count):
        said = lines(f"r{number}", LARGE if number in large else 3)
        messages += [m(thought(number), use(f"t{number}")), u(res(f"t{number}", said))]
        if number == 4:
            messages += [m(text("Done.")), u(text("And now the rest."))]
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    return {"model": model, "max_tokens": 9_000, "tools": tools, "messages": messages} | fields


def thoughts(body: Any) -> list[int]:
    """Numbers of the thoughts that are still there."""
    blocks = (block for _, block in blocks_in(body["messages"]))
    return [int(b["thinking"].split()[1]) for b in blocks if b["type"] == "thinking"]


def rows_changed(body: Any, out: Any) -> list[int]:
    """The results that changed, by number."""
    return cut_results("anthropic", body, out)


BOUND = PRICED.replace(cache_read_price=0.1, cache_write_price=1.25)


@pytest.mark.parametrize("large", [0, 2, 6])
def test_on_bound_models_no_signed_reasoning_stands_behind_a_cut(large: int) -> None:
    for count in range(large + 2, 12):
        body = thinking(count, NEW, large)
        out = compact("anthropic", body, BOUND)
        gone = rows_changed(body, out.request)
        assert large in gone, "nothing was cut, so this shows nothing"
        assert judge("anthropic", out.request) == []
        first = min(gone)
        # Thought 0 stands before call 0: what is signed before the first cut result stays.
        behind = [one for one in thoughts(out.request) if one > first]
        since = _thoughts_since_last_epoch(count, large)
        assert set(behind) <= since, "signed for words that are gone"
        assert set(range(first + 1)) >= set(thoughts(out.request)) - since


def _thoughts_since_last_epoch(count: int, large: int) -> set[int]:
    """Thoughts that came when the last epoch's projection had been sent: those are sound."""
    epochs, last = 0, 0
    for calls in range(1, count + 1):
        now = _epochs(calls, large)
        if now > epochs:
            epochs, last = now, calls
    return set(range(last, count))


@cache
def _epochs(calls: int, large: int) -> int:
    return compact("anthropic", thinking(calls, NEW, large), BOUND).report.epochs


@acts(at_arrival=True, at_epochs=False)
def shape_new(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut what just came."""
    for position in view.fresh_results():
        if view.can_rewrite(position):
            yield short(view, position)


@pytest.mark.parametrize("model", [OLD, NEW])
def test_shaping_at_arrival_leaves_all_reasoning(model: str) -> None:
    policy = BOUND.replace(passes=(shape_new,))
    body = thinking(9, model, 0, 2, 6)
    out = compact("anthropic", body, policy)
    assert rows_changed(body, out.request) == list(range(9))
    assert thoughts(out.request) == list(range(9))


@pytest.mark.parametrize("large", [0, 2, 6])
def test_on_other_models_reasoning_stays(large: int) -> None:
    body = thinking(9, OLD, large)
    out = compact("anthropic", body, BOUND)
    assert large in rows_changed(body, out.request)
    assert thoughts(out.request) == list(range(9))
    assert not any(isinstance(edit, DropReasoning) for edit in out.report.edits)


MANUAL = {"type": "enabled", "budget_tokens": 1_024}


def test_in_manual_mode_no_cut_stands_in_front_of_a_running_turns_thinking() -> None:
    """The turn that runs began with call 5; only what stands behind its last thought may go."""
    for count in range(7, 12):
        body = thinking(count, NEW, 0, 2, thinking=MANUAL)
        out = compact("anthropic", body, BOUND)
        running = [one for one in thoughts(out.request) if one >= 5]
        assert running == list(range(5, count)), "a running turn lost its thinking"
        assert judge("anthropic", out.request) == []
    ended = thinking(5, NEW, 0, 2, thinking=MANUAL)
    out = compact("anthropic", ended, BOUND)
    assert {0, 2} <= set(rows_changed(ended, out.request)), "no turn runs, so all may go"


def test_a_changed_model_takes_all_reasoning_that_was_signed() -> None:
    body = thinking(9, NEW)
    facts = Facts(changed=frozenset({prefix("anthropic", body)}))
    out = compact("anthropic", body, BOUND, facts)
    assert thoughts(out.request) == []
    assert judge("anthropic", out.request) == []
    assert thoughts(compact("anthropic", thinking(9, OLD), BOUND, facts).request) == list(range(9))


def test_what_is_done_to_objects_is_done_to_bytes() -> None:
    for body in (thinking(9, NEW, 0, 6), with_breakpoint(12, 1, 8)):
        out = compact("anthropic", body, BOUND)
        assert json.loads(compact("anthropic", json.dumps(body).encode(), BOUND).request) == (
            out.request
        )


# When an evaluation is due: enough is new, or a limit is exceeded. All of 1,000 tokens so far.

LISTED = RequestLimits(tokens=900, low=630, source="window")
BUDGET = RequestLimits(tokens=900, low=630, source="budget")
IMAGES = RequestLimits(images=1)
STANDS, GONE = (
    HeldMedia(0, "tool", "image", 9, 9, "ref"),
    HeldMedia(1, "tool", "image", 9, 9, "ref"),
)
UNMET: dict[str, Any] = {  # an evaluation took all that it could, but for 10 protected tokens
    "evaluation__projected_tokens": 1_000,
    "evaluation__unmet": UnmetLimits(frozenset({"tokens", "images"}), 10, 0, 2),
}
FAR_OVER: dict[str, Any] = {
    **UNMET,
    "tokens__estimated_total": 2_000,
    "evaluation__projected_tokens": 970,
}
DUE: dict[str, tuple[dict[str, Any], RequestLimits, bool]] = {
    "one token too few": ({"evaluation__new_tokens": 99}, RequestLimits(), False),
    "as many as a step": ({"evaluation__new_tokens": 100}, RequestLimits(), True),
    "less than the growth that is waited for": (
        {"tokens__estimated_total": 4_000, "evaluation__new_tokens": 399},
        RequestLimits(),
        False,
    ),
    "as much": (
        {"tokens__estimated_total": 4_000, "evaluation__new_tokens": 400},
        RequestLimits(),
        True,
    ),
    "as much of what is left": (
        {"tokens__estimated_total": 4_000, "edits__saved": 2_000, "evaluation__new_tokens": 200},
        RequestLimits(),
        True,
    ),
    "within the budget": ({"edits__saved": 100}, BUDGET, False),
    "over the budget": ({"edits__saved": 99}, BUDGET, True),
    "over it, though all has gone that may": (
        {"evaluation__projected_tokens": 1_000},
        BUDGET,
        True,
    ),
    "within the budget but for what joins the rest": (
        {"edits__saved": 100, "edits__claimed": {4, 5}, "edits__by_part": {4: None}},
        BUDGET,
        True,
    ),
    "over a window": ({"evaluation__projected_tokens": 900}, LISTED, True),
    "over it, though all has gone that may, and little is new": (
        {"evaluation__projected_tokens": 971},
        LISTED,
        False,
    ),
    "and a little more is new": ({"evaluation__projected_tokens": 970}, LISTED, True),
    "over a window and another limit": (
        {"evaluation__projected_tokens": 1_000, "window__media": {0: STANDS, 1: GONE}},
        RequestLimits(tokens=900, low=630, source="window", images=1),
        True,
    ),
    "as many images as may be": ({"window__media": {0: STANDS}}, IMAGES, False),
    "more": ({"window__media": {0: STANDS, 1: GONE}}, IMAGES, True),
    "not those that are gone": (
        {"window__media": {0: STANDS, 1: GONE}, "edits__claimed": {1}, "edits__by_part": {1: None}},
        IMAGES,
        False,
    ),
    "an image as large as may be": ({"window__media": {0: STANDS}}, RequestLimits(side=9), False),
    "a larger one": ({"window__media": {0: STANDS}}, RequestLimits(side=8), True),
    "as many bytes as may be": ({"window__media": {0: STANDS}}, RequestLimits(bytes=5_009), False),
    "more bytes": ({"window__media": {0: STANDS}}, RequestLimits(bytes=5_008), True),
    "as many bytes of words": ({}, RequestLimits(bytes=5_000), False),
    "more bytes of words": ({}, RequestLimits(bytes=4_999), True),
    "a budget left exceeded, and too little has changed to meet it": (
        {**UNMET, "evaluation__new_tokens": 69},
        BUDGET,
        False,
    ),
    "enough has changed": ({**UNMET, "evaluation__new_tokens": 70}, BUDGET, True),
    "or the projection has grown": ({**UNMET, "evaluation__projected_tokens": 970}, BUDGET, True),
    "a budget left far exceeded, and little has come beside all that stands": (
        {**FAR_OVER, "edits__saved": 1_000},
        BUDGET,
        False,
    ),
    "a tenth of the projection is enough": (
        {**FAR_OVER, "tokens__estimated_total": 10_000, "edits__saved": 8_932},
        BUDGET,
        True,
    ),
    "and less is not": (
        {**FAR_OVER, "tokens__estimated_total": 10_000, "edits__saved": 8_934},
        BUDGET,
        False,
    ),
    "a part of all that stands has come": (
        {**FAR_OVER, "edits__saved": 969},
        BUDGET,
        True,
    ),
    "what edits took out is not looked at again": (
        {**FAR_OVER, "edits__saved": 1_000, "edits__removed": 1_000},
        BUDGET,
        True,
    ),
    "a window that is left exceeded can wait less": (
        {**FAR_OVER, "edits__saved": 1_000},
        LISTED,
        True,
    ),
    "a limit that was met is exceeded now": (UNMET, RequestLimits(bytes=4_999), True),
    "too many images were left": (
        {**UNMET, "window__media": {0: STANDS, 1: GONE}},
        IMAGES,
        False,
    ),
    "and one of them came since": (
        {
            **UNMET,
            "window__media": {0: STANDS, 1: GONE},
            "evaluation__unmet": UnmetLimits(frozenset({"images"}), 0, 0, 1),
        },
        IMAGES,
        True,
    ),
}


@pytest.mark.parametrize("case", DUE)
def test_when_an_evaluation_is_due(case: str) -> None:
    known, limits, due = DUE[case]
    policy = Policy(reevaluate_tokens=100, reevaluate_ratio=0.1, keep_exchanges=0)
    context = context_with(policy, limits=limits, head=0)
    about: dict[str, Any] = {"tokens__estimated_total": 1_000} | known
    assert window.is_due(state_with(**about), context) is due


@pytest.mark.parametrize("shape", ["failures over budget", "images over budget", "same images"])
def test_a_limit_that_cannot_be_met_is_not_tried_at_each_request(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluation reads all there is: there are few more of them in a history twice as long."""
    evaluated: list[int] = []
    real = respool.compaction.fold.evaluate

    def counted(state: State, context: Any, *, free: bool = False) -> None:
        evaluated[-1] += 1
        real(state, context, free=free)

    monkeypatch.setattr(respool.compaction.fold, "evaluate", counted)
    for count in (150, 300):
        evaluated.append(0)
        compact_cold(SHAPES[shape].make("anthropic", count), "anthropic", SHAPES[shape].policy)
    assert 0 < evaluated[1] - evaluated[0] <= 60


@formats
def test_the_exchanges_that_stand_are_those_no_edit_took_out(format: str) -> None:
    folded = fold_request(
        SHAPES["edits over budget"].make(format, 80),
        format=format,
        policy=SHAPES["edits over budget"].policy,
        facts=Facts(),
        memo=None,
    )
    state = folded.state

    def left() -> tuple[int, ...]:
        edits, claimed = state.edits.by_part, state.edits.claimed
        return tuple(
            one.ordinal
            for one in state.transcript.exchanges
            if one.call not in claimed or isinstance(edits.get(one.call), Replace)
        )

    before = state.standing_exchanges()
    assert before == left()
    assert 0 < len(before) < len(state.transcript.exchanges)
    gone = {part for part, edit in state.edits.by_part.items() if isinstance(edit, DropExchange)}
    state.withdraw(min(gone))
    assert set(before) < set(state.standing_exchanges())
    assert state.standing_exchanges() == left()
    removed = (one for one in state.edits.by_part.values() if isinstance(one, DropExchange))
    assert state.edits.removed == sum(one.saved for one in removed)


@pytest.mark.parametrize("format", SHAPES["images in one"].formats)
@pytest.mark.parametrize("shape", ["images", "images over budget", "images in one"])
def test_the_count_of_media_is_that_of_the_parts_no_edit_touches(shape: str, format: str) -> None:
    folded = fold_request(
        SHAPES[shape].make(format, 130),
        format=format,
        policy=SHAPES[shape].policy,
        facts=Facts(),
        memo=None,
    )
    state = folded.state
    tally = state.window.present_media(state.edits.claimed)
    stand = [one for at, one in state.window.media.items() if at not in state.edits.claimed]
    assert tally.parts == {one.part for one in stand}
    assert tally.images == sum(one.unit == "image" for one in stand)
    assert tally.bytes == sum(one.bytes for one in stand)
    assert tally.sides == sorted(one.side for one in stand)
    assert format != "anthropic" or len(stand) < len(state.window.media)


def test_the_system_prompt_and_the_tools_count_too() -> None:
    context = context_with(limits=BUDGET, head=400)
    states = [state_with(tokens__estimated_total=size) for size in (500, 501)]
    assert [window.is_over_window(state, context) for state in states] == [False, True]


def test_a_window_that_an_overflow_named_counts() -> None:
    context = context_with(fields={}, limits=LISTED)
    assert State().limits(context) is LISTED
    named = state_with(window__size=1_000).limits(context)
    assert (named.tokens, named.low, named.source) == (950, 665, "window")


def test_a_bound_on_regret_puts_an_epoch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that a session which ends here would not win back is not taken yet."""
    format = "anthropic"
    body = grown(format, 15, 6)
    monkeypatch.setattr("respool.compaction.planner._MAX_REGRET", 1.0)
    state = folded(format, body, WAITING).state
    assert state.evaluation.epochs == 1
    account = state.evaluation.account
    assert account.saved > 0
    assert account.net < 0
    assert account.billed > -account.net
    monkeypatch.setattr("respool.compaction.planner._MAX_REGRET", 0.0)
    assert folded(format, body, WAITING).state.evaluation.epochs == 0


@formats
def test_the_lines_of_results_are_let_go_after_an_evaluation(format: str) -> None:
    folded = fold_request(
        grown(format, 30), format=format, policy=Policy(budget=20_000), facts=Facts(), memo=None
    )
    mentions = folded.state.analysis.mentions
    assert mentions.results  # an evaluation has read them
    assert not mentions._split
    assert not mentions._split_chars
