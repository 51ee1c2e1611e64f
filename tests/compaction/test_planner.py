"""The planner: value of offers, price of a prefix break, and the cut that pays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from respool.compaction.context import BoundaryTerms, break_even_risk, refetch_cost
from respool.compaction.planner import (
    EpochCut,
    PricedOffer,
    best_cut,
    cumulative_tokens,
    cut_start,
    lost_reasoning_value,
    price_offers,
)
from respool.compaction.state import Account
from respool.edits import DropExchange, DropReasoning, Edit, Offer, Replace
from respool.policy import Policy
from respool.pricing import LONG_TTL_SECONDS, NO_CACHE, BreakpointUsage, Rates, rates_for
from respool.transcript import Part, PartKind, Ref, Transcript, TranscriptIndex


@pytest.fixture(autouse=True)
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prices below are worked out by hand for these; what is fitted may change."""
    monkeypatch.setattr("respool.compaction.planner._MIN_RETURN", 1.1)
    monkeypatch.setattr("respool.compaction.context._MIN_HORIZON", 30.0)


MINUTES = 300.0
FOR_MINUTES = Rates(
    0.1, 1.25, matches_any_prefix=False, lookback_positions=20, has_spare_breakpoint=True
)
FOR_AN_HOUR = Rates(
    0.1, 2.0, matches_any_prefix=False, lookback_positions=20, has_spare_breakpoint=True
)
NO_ROOM = Rates(
    0.1, 1.25, matches_any_prefix=False, lookback_positions=20, has_spare_breakpoint=False
)
PREFIX = Rates(0.1, 1.0)
BREAKPOINTS = Rates(0.1, 1.25, matches_any_prefix=False, lookback_requests=80)
MARGIN = 1.1


def history(units: int, texts: int = 0) -> Transcript:
    """So many units of a call and its result, each with so many texts before its call."""
    index = TranscriptIndex()
    for row in range(0, 2 * units, 2):
        said = [part(row, "text", place) for place in range(texts)]
        call = part(row, "call", texts, id=str(row))
        index.add_unit(
            (row, row + 2), [*said, call], [part(row + 1, "result", id=str(row))], locked=False
        )
    return index.freeze()


def part(row: int, kind: PartKind, place: int = 0, id: str = "") -> Part:
    speaker = "tool" if kind == "result" else "model"
    return Part(Ref(row, ("content", place)), kind, speaker, "words", id=id)


def cutting(position: int, saved: int, reason: str = "trial") -> Offer:
    edit = Replace(position, Ref(0, ()), "less", "ref", reason, "", saved)
    return Offer("trim", edit)


def worth(start: int, value: float) -> PricedOffer:
    return PricedOffer(cutting(start, 1), value, start)


# The price list: what a request costs by its model and its marks.

RATES: dict[str, tuple[dict[str, Any], str, str | None, BreakpointUsage, Rates]] = {
    "marks for five minutes": (
        {},
        "anthropic",
        "claude-opus-4-7",
        BreakpointUsage(MINUTES, has_spare=True),
        FOR_MINUTES,
    ),
    "marks for an hour": (
        {},
        "anthropic",
        "claude-opus-4-7",
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
        FOR_AN_HOUR,
    ),
    "four marks leave no room": (
        {},
        "anthropic",
        "claude-opus-4-7",
        BreakpointUsage(MINUTES),
        NO_ROOM,
    ),
    "cheaper reads of a newer model": (
        {},
        "anthropic",
        "claude-opus-5-5",
        BreakpointUsage(MINUTES, has_spare=True),
        Rates(
            0.05, 1.25, matches_any_prefix=False, lookback_positions=20, has_spare_breakpoint=True
        ),
    ),
    "no marks, nothing is cached": (
        {},
        "anthropic",
        "claude-opus-4-7",
        BreakpointUsage(),
        NO_CACHE,
    ),
    "Anthropic's wire with no model": (
        {},
        "anthropic",
        None,
        BreakpointUsage(MINUTES, has_spare=True),
        FOR_MINUTES,
    ),
    "Claude through a gateway, which marks what it passes on": (
        {},
        "openai-chat",
        "anthropic/claude-opus-4.7",
        BreakpointUsage(),
        NO_ROOM,
    ),
    "and on the other wire of OpenAI's": (
        {},
        "openai-responses",
        "anthropic/claude-opus-4.7",
        BreakpointUsage(),
        NO_ROOM,
    ),
    "a prefix found wherever it ends": (
        {},
        "openai-responses",
        "gpt-5.1",
        BreakpointUsage(),
        PREFIX,
    ),
    "marks say nothing on other wires": (
        {},
        "openai-chat",
        "gpt-5.1",
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
        PREFIX,
    ),
    "reads at a half": ({}, "openai-chat", "gpt-4o", BreakpointUsage(), Rates(0.5, 1.0)),
    "reads at full price": ({}, "openai-chat", "o3-pro", BreakpointUsage(), Rates(1.0, 1.0)),
    "breakpoints": ({}, "openai-responses", "gpt-5.6", BreakpointUsage(), BREAKPOINTS),
    "an implicit cache": ({}, "gemini", "gemini-2.5-pro", BreakpointUsage(), PREFIX),
    "no cache at all": ({}, "gemini", "gemini-1.5-pro", BreakpointUsage(), NO_CACHE),
    "a maker nobody knows": ({}, "openai-chat", "qwen3-coder", BreakpointUsage(), Rates(0.2, 1.0)),
    "the policy's own price of a read": (
        {"cache_read_price": 0.4},
        "openai-chat",
        "gpt-5.1",
        BreakpointUsage(),
        Rates(0.4, 1.0),
    ),
    "the policy's own price of a write": (
        {"cache_write_price": 1.6},
        "anthropic",
        "claude-opus-4-7",
        BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
        Rates(0.1, 1.6, matches_any_prefix=False, lookback_positions=20, has_spare_breakpoint=True),
    ),
    "nothing for nothing": (
        {"cache_read_price": 0, "cache_write_price": 0},
        "openai-chat",
        "gpt-5.1",
        BreakpointUsage(),
        Rates(0.0, 0.0),
    ),
}


@pytest.mark.parametrize("case", RATES)
def test_rates(case: str) -> None:
    settings, format, model, usage, rates = RATES[case]
    fields = {"messages": []} if model is None else {"model": model}
    found = rates_for(Policy(**settings), format, fields, usage)
    assert replace(found, minimum=0) == rates


@pytest.mark.parametrize(
    ("format", "model", "usage", "minimum"),
    [
        ("anthropic", "claude-opus-4-7", BreakpointUsage(MINUTES), 2_048),
        ("anthropic", "claude-opus-4-7", BreakpointUsage(), 0),  # nothing is cached
        ("openai-chat", "anthropic/claude-opus-4.7", BreakpointUsage(), 2_048),
        ("openai-responses", "gpt-5.6", BreakpointUsage(), 1_024),
        ("openai-chat", "o3-pro", BreakpointUsage(), 0),  # reading is no cheaper
        ("gemini", "gemini-2.5-pro", BreakpointUsage(), 4_096),
        ("gemini", None, BreakpointUsage(), 0),  # who serves it is not known
    ],
)
def test_the_shortest_prompt_that_is_cached(
    format: str, model: str | None, usage: BreakpointUsage, minimum: int
) -> None:
    fields = {"messages": []} if model is None else {"model": model}
    assert rates_for(Policy(), format, fields, usage).minimum == minimum


def test_a_bare_list_of_messages_has_the_rates_of_its_wire() -> None:
    assert rates_for(Policy(), "gemini", None, BreakpointUsage()) == PREFIX
    assert rates_for(Policy(), "anthropic", None, BreakpointUsage()) == NO_CACHE


@pytest.mark.parametrize(
    ("rates", "caches"),
    [
        (FOR_MINUTES, True), (FOR_AN_HOUR, True), (PREFIX, True), (BREAKPOINTS, True),
        (NO_CACHE, False), (Rates(0.0, 0.0), False), (Rates(1.0, 0.5), False),
    ],
)  # fmt: skip
def test_a_cache_is_one_where_reading_is_cheaper(rates: Rates, caches: bool) -> None:
    assert rates.caches is caches


# How long the rest will be, and what a lost turn costs.


@pytest.mark.parametrize(
    ("requests", "horizon"), [(0, 30.0), (1, 30.0), (60, 30.0), (61, 30.5), (200, 100.0)]
)
def test_half_as_many_requests_are_still_to_come_and_never_less_than_thirty(
    requests: int, horizon: float
) -> None:
    assert BoundaryTerms(requests, 0).horizon == horizon


# Reading all of the prompt once more, 150 tokens of output at five times the price, and an answer
# of 1,500 tokens that is written once and read in every request that is still to come.
REFETCHES: dict[str, tuple[Rates, BoundaryTerms, float]] = {
    "five minutes": (FOR_MINUTES, BoundaryTerms(10, 20_000), 2_000 + 750 + 1_875 + 4_500),
    "an hour": (FOR_AN_HOUR, BoundaryTerms(10, 20_000), 2_000 + 750 + 3_000 + 4_500),
    "a prefix": (PREFIX, BoundaryTerms(10, 20_000), 2_000 + 750 + 1_500 + 4_500),
    "a long session": (PREFIX, BoundaryTerms(100, 20_000), 2_000 + 750 + 1_500 + 7_500),
    "no cache": (NO_CACHE, BoundaryTerms(10, 20_000), 20_000 + 750 + 1_500 + 45_000),
    "nothing sent yet": (FOR_MINUTES, BoundaryTerms(1, 0), 750 + 1_875 + 4_500),
    "caution is not in it": (PREFIX, BoundaryTerms(10, 20_000, caution=9.0), 8_750),
}


@pytest.mark.parametrize("case", REFETCHES)
def test_asking_again(case: str) -> None:
    rates, moment, cost = REFETCHES[case]
    assert refetch_cost(rates, moment) == pytest.approx(cost)


# How many turns may miss something for each token: what a token costs, by what asking again does.
FAIR: dict[str, tuple[Rates, BoundaryTerms, float]] = {
    "five minutes": (FOR_MINUTES, BoundaryTerms(10, 20_000), (0.1 * 30 + 1.25) / 9_125),
    "a prefix": (PREFIX, BoundaryTerms(10, 20_000), (0.1 * 30 + 1) / 8_750),
    "with caution": (
        PREFIX,
        BoundaryTerms(10, 20_000, caution=2.5),
        (0.1 * 30 + 1) / (2.5 * 8_750),
    ),
    "whatever may go goes": (PREFIX, BoundaryTerms(10, 20_000, caution=0.0), 0.01),
}


@pytest.mark.parametrize("case", FAIR)
def test_the_risk_that_is_fair(case: str) -> None:
    rates, moment, risk = FAIR[case]
    assert break_even_risk(rates, moment) == pytest.approx(risk)


# What an offer is worth: 1,000 tokens less, in ten requests of 20,000 tokens so far.

TEN = BoundaryTerms(10, 20_000)
# case: rates, moment, risk, what it saves, what an edit in force on the part saves, its worth
WORTHS: dict[str, tuple[Rates, BoundaryTerms, float, int, int, float]] = {
    "five minutes: one write, thirty reads": (FOR_MINUTES, TEN, 0.0, 1_000, 0, 1_250 + 3_000),
    "an hour": (FOR_AN_HOUR, TEN, 0.0, 1_000, 0, 2_000 + 3_000),
    "a prefix": (PREFIX, TEN, 0.0, 1_000, 0, 1_000 + 3_000),
    "breakpoints": (BREAKPOINTS, TEN, 0.0, 1_000, 0, 1_250 + 3_000),
    "no cache: the full price each time": (NO_CACHE, TEN, 0.0, 1_000, 0, 31_000),
    "a long session": (PREFIX, BoundaryTerms(100, 20_000), 0.0, 1_000, 0, 1_000 + 5_000),
    "a tenth of asking again": (PREFIX, TEN, 0.1, 1_000, 0, 4_000 - 875),
    "caution makes that more": (
        PREFIX,
        BoundaryTerms(10, 20_000, caution=2.0),
        0.1,
        1_000,
        0,
        2_250,
    ),
    "no caution": (PREFIX, BoundaryTerms(10, 20_000, caution=0.0), 1.0, 1_000, 0, 4_000),
    "needed too often": (PREFIX, TEN, 0.6, 1_000, 0, 0.0),
    "just not worth it": (PREFIX, TEN, 0.46, 1_000, 0, 0.0),
    "just worth it": (PREFIX, TEN, 0.4571, 1_000, 0, 4_000 - 0.4571 * 8_750),
    "one token": (PREFIX, TEN, 0.0, 1, 0, 4.0),
    "only what it saves more": (PREFIX, TEN, 0.0, 1_000, 400, 2_400),
    "no more than is saved already": (PREFIX, TEN, 0.0, 1_000, 1_000, 0.0),
    "less than is saved already": (PREFIX, TEN, 0.0, 1_000, 1_200, 0.0),
    "free and pressed change no worth": (
        PREFIX,
        BoundaryTerms(10, 20_000, is_rewrite_free=True, is_over_budget=True),
        0.1,
        1_000,
        0,
        3_125,
    ),
}


@pytest.mark.parametrize("case", WORTHS)
def test_worth(case: str) -> None:
    rates, moment, risk, saved, before, value = WORTHS[case]
    offer = cutting(3, saved)
    edits: dict[int, Edit] = {3: cutting(3, before).edit} if before else {}
    found = price_offers(
        [offer],
        history=history(3),
        edits=edits,
        dependents={},
        risk=lambda _: risk,
        rates=rates,
        terms=moment,
    )
    assert [(one.offer, one.start) for one in found] == ([(offer, 3)] if value else [])
    assert [one.value for one in found] == pytest.approx([value] if value else [])


# case: what the offer risks, what the edit in force in its place risks already, its worth
RISKED: dict[str, tuple[float, float, float]] = {
    "only what it risks more": (0.3, 0.2, 600 * 4 - 875),
    "as much": (0.2, 0.2, 600 * 4),
    "less is no gain": (0.1, 0.2, 600 * 4),
}


@pytest.mark.parametrize("case", RISKED)
def test_what_an_edit_in_force_risks_already(case: str) -> None:
    risk, before, value = RISKED[case]
    edits: dict[int, Edit] = {3: cutting(3, 400).edit}
    risks = {1_000: risk, 400: before}
    found = price_offers(
        [cutting(3, 1_000)],
        history=history(3),
        edits=edits,
        dependents={},
        risk=lambda one: risks[one.saved],
        rates=PREFIX,
        terms=TEN,
    )
    assert [one.value for one in found] == pytest.approx([value])


# What a limit demands is worth something as long as it saves something.
# case: risk, what it saves, what an edit in force on the part saves, its worth
DEMANDED: dict[str, tuple[float, int, int, list[float]]] = {
    "what it is worth": (0.0, 1_000, 0, [4_000.0]),
    "however often it is needed": (0.6, 1_000, 0, [1.0]),
    "only what it saves more": (0.0, 1_000, 400, [2_400.0]),
    "no more than is saved already": (0.0, 1_000, 1_000, []),
    "less than is saved already": (0.0, 1_000, 1_200, []),
}


@pytest.mark.parametrize("reason", ["folded", "over_limit"])
@pytest.mark.parametrize("case", DEMANDED)
def test_what_a_limit_demands(case: str, reason: str) -> None:
    risk, saved, before, worths = DEMANDED[case]
    edits: dict[int, Edit] = {3: cutting(3, before).edit} if before else {}
    risks = {saved: risk}
    offer = cutting(3, saved, reason)
    found = price_offers(
        [offer],
        history=history(3),
        edits=edits,
        dependents={},
        risk=lambda one: risks.get(one.saved, 0.0),
        rates=PREFIX,
        terms=TEN,
    )
    assert [one.value for one in found] == pytest.approx(worths)


def test_what_a_limit_demands_is_worth_something_where_tokens_cost_nothing() -> None:
    offers = [cutting(3, 1_000, reason) for reason in ("trial", "folded")]
    found = price_offers(
        offers,
        history=history(3),
        edits={},
        dependents={},
        risk=lambda _: 0.0,
        rates=Rates(0.0, 0.0),
        terms=TEN,
    )
    assert [(one.offer, one.value) for one in found] == [(offers[1], 1.0)]


def test_an_offer_starts_at_the_first_part_it_changes_and_saves_with_all_its_edits() -> None:
    dropped = DropExchange(0, Ref(0, ()), "trial", "", 200)
    later = Replace(5, Ref(0, ()), "less", "ref", "trial", "", 300)
    offer = Offer("drop", later, also=(dropped,))
    (one,) = price_offers(
        [offer],
        history=history(3),
        edits={},
        dependents={},
        risk=lambda _: 0.0,
        rates=PREFIX,
        terms=TEN,
    )
    assert (one.start, one.value) == (0, pytest.approx(500 * 4))


# case: the reason of the edit in force, that of the offer and the copies on which it depends, its
# first part, its worth, the parts it restores
NEEDED: dict[str, tuple[str, str, tuple[int, ...], int, float, tuple[int, ...]]] = {
    "what depends on it is restored": ("trial", "trial", (), 1, 600 * 4, (1,)),
    "also if it stands in another copy": ("contained", "contained", (5,), 1, 600 * 4, (1,)),
    "also if that one is shown again": ("contained", "stale", (5,), 1, 600 * 4, (1,)),
    "a read shown again is shown again once more": ("stale", "stale", (5,), 3, 1_000 * 4, ()),
    "the later one was written over": ("stale", "stale", (), 1, 600 * 4, (1,)),
}


@pytest.mark.parametrize("case", NEEDED)
def test_an_offer_on_a_part_that_an_edit_in_force_needs(case: str) -> None:
    before, reason, depends_on, start, value, freed = NEEDED[case]
    (one,) = price_offers(
        [replace(cutting(3, 1_000, reason), depends_on=depends_on)],
        history=history(3),
        edits={1: cutting(1, 400, before).edit},
        dependents={3: {1}},
        risk=lambda _: 0.0,
        rates=PREFIX,
        terms=TEN,
    )
    assert (one.start, one.value, one.freed) == (start, pytest.approx(value), freed)


def test_what_touches_nothing_is_worth_nothing() -> None:
    nothing = Offer("drop", DropReasoning(0, Ref(0, ()), "trial", "", 500))
    assert (
        price_offers(
            [nothing],
            history=history(2),
            edits={},
            dependents={},
            risk=lambda _: 0.0,
            rates=PREFIX,
            terms=TEN,
        )
        == []
    )


def test_what_leans_on_a_text_that_goes_says_it_again() -> None:
    edits: dict[int, Edit] = {5: cutting(5, 300).edit}
    (one,) = price_offers(
        [cutting(1, 1_000)],
        history=history(3),
        edits=edits,
        dependents={1: {5}},
        risk=lambda _: 0.0,
        rates=PREFIX,
        terms=TEN,
    )
    assert (one.start, one.freed) == (1, (5,))
    assert one.value == pytest.approx((1_000 - 300) * 4)
    assert (
        price_offers(
            [cutting(1, 300)],
            history=history(3),
            edits=edits,
            dependents={1: {5}},
            risk=lambda _: 0.0,
            rates=PREFIX,
            terms=TEN,
        )
        == []
    )


def test_a_text_that_is_said_again_further_ahead_starts_the_change_there() -> None:
    edits: dict[int, Edit] = {1: cutting(1, 300).edit}
    (one,) = price_offers(
        [cutting(5, 1_000)],
        history=history(3),
        edits=edits,
        dependents={5: {1}},
        risk=lambda _: 0.0,
        rates=PREFIX,
        terms=TEN,
    )
    assert (one.start, one.freed) == (1, (1,))


# The tokens that were sent.

SENT: dict[str, tuple[list[int], dict[int, int], int, list[int]]] = {
    "nothing": ([], {}, 0, [0]),
    "all of it": ([10, 20, 30], {}, 3, [0, 10, 30, 60]),
    "not what came since": ([10, 20, 30], {}, 2, [0, 10, 30]),
    "less what edits save": ([10, 20, 30], {1: 15}, 3, [0, 10, 15, 45]),
    "edits of what came since": ([10, 20, 30], {2: 25}, 2, [0, 10, 30]),
    "a drop counts where its call stood": ([10, 20, 30], {0: 30}, 3, [0, -20, 0, 30]),
}


@pytest.mark.parametrize("case", SENT)
def test_sent_tokens(case: str) -> None:
    sizes, saved, end, sent = SENT[case]
    edits = [(at, cutting(at, tokens).edit) for at, tokens in saved.items()]
    assert cumulative_tokens(sizes, edits, end) == sent


# The cut: six units of a call and its result, 1,000 tokens a part; the last unit is new.

SIX = history(6)
THOUSANDS = list(range(0, 11_000, 1_000))  # ten parts were sent
# case: rates, the offers as (part, worth), the cut as (start, worth, price before the margin)
CUTS: dict[
    str, tuple[Rates, BoundaryTerms, list[tuple[int, float]], tuple[int, float, float] | None]
] = {
    "nothing is offered": (PREFIX, TEN, [], None),
    "five minutes: from its unit on, 4,000 tokens": (
        FOR_MINUTES,
        TEN,
        [(7, 6_000.0)],
        (6, 6_000.0, 1.15 * 4_000),
    ),
    "five minutes: just not worth it": (FOR_MINUTES, TEN, [(7, 5_000.0)], None),
    "an hour: the same costs more": (FOR_AN_HOUR, TEN, [(7, 6_000.0)], None),
    "an hour": (FOR_AN_HOUR, TEN, [(7, 8_500.0)], (6, 8_500.0, 1.9 * 4_000)),
    "a prefix: from the part itself on, 3,000 tokens": (
        PREFIX,
        TEN,
        [(7, 3_000.0)],
        (7, 3_000.0, 0.9 * 3_000),
    ),
    "a prefix: exactly its price is not enough": (PREFIX, TEN, [(7, 1.1 * 0.9 * 3_000)], None),
    "breakpoints: from its unit on": (
        BREAKPOINTS,
        TEN,
        [(7, 6_000.0)],
        (6, 6_000.0, 1.15 * 4_000),
    ),
    "no cache: whatever is worth something": (NO_CACHE, TEN, [(1, 0.5), (7, 9.0)], (1, 9.5, 0.0)),
    "nothing was sent from there on": (FOR_MINUTES, TEN, [(11, 0.5)], (10, 0.5, 0.0)),
    "the new unit waits for no one": (
        PREFIX,
        TEN,
        [(1, 100.0), (11, 0.5)],
        (11, 0.5, 0.0),
    ),
    "together they pay": (
        PREFIX,
        TEN,
        [(3, 4_100.0), (7, 2_900.0)],
        (3, 7_000.0, 0.9 * 7_000),
    ),
    "alone the later one does not": (PREFIX, TEN, [(7, 2_900.0)], None),
    "the cut that is worth most, not the first that pays": (
        PREFIX,
        TEN,
        [(1, 8_000.0), (5, 100.0), (9, 2_000.0)],
        (1, 10_100.0, 0.9 * 9_000),
    ),
    "and not the last one": (
        PREFIX,
        TEN,
        [(1, 4_000.0), (9, 2_000.0)],
        (9, 2_000.0, 0.9 * 1_000),
    ),
    "two offers of one unit share its price": (
        FOR_MINUTES,
        TEN,
        [(6, 3_000.0), (7, 3_000.0)],
        (6, 6_000.0, 1.15 * 4_000),
    ),
    "a free moment": (
        FOR_MINUTES,
        BoundaryTerms(10, 20_000, is_rewrite_free=True),
        [(3, 1.0), (7, 1.0)],
        (2, 2.0, 0.0),
    ),
    "under pressure": (
        FOR_MINUTES,
        BoundaryTerms(10, 20_000, is_over_budget=True),
        [(3, 1.0), (7, 1.0)],
        (3, 2.0, 0.0),
    ),
    "under pressure, from the very first part on": (
        FOR_MINUTES,
        BoundaryTerms(10, 20_000, is_over_budget=True),
        [(0, 1.0)],
        (0, 1.0, 0.0),
    ),
    "writing is cheaper than reading: no price is below none": (
        Rates(1.0, 0.5),
        TEN,
        [(7, 1.0)],
        (7, 1.0, 0.0),
    ),
    "under pressure with nothing to offer": (
        FOR_MINUTES,
        BoundaryTerms(10, 20_000, is_over_budget=True),
        [],
        None,
    ),
}


@pytest.mark.parametrize("case", CUTS)
def test_cut(case: str) -> None:
    rates, moment, offers, expected = CUTS[case]
    same(
        best_cut(
            [worth(*one) for one in offers], history=SIX, sent=THOUSANDS, rates=rates, terms=moment
        ),
        expected,
    )


@pytest.mark.parametrize("case", CUTS)
def test_the_order_of_offers_changes_nothing(case: str) -> None:
    rates, moment, offers, expected = CUTS[case]
    found = best_cut(
        [worth(*one) for one in reversed(offers)],
        history=SIX,
        sent=THOUSANDS,
        rates=rates,
        terms=moment,
    )
    same(found, expected)


def test_what_a_limit_demands_is_cut_at_any_price_and_all_of_it() -> None:
    demanded = [PricedOffer(cutting(at, 1, "over_limit"), 1.0, at) for at in (3, 7)]
    same(
        best_cut([*demanded, worth(1, 1.0)], history=SIX, sent=THOUSANDS, rates=PREFIX, terms=TEN),
        (3, 2.0, 0.9 * 7_000),
    )


def same(cut: EpochCut | None, expected: tuple[int, float, float] | None) -> None:
    if expected is None:
        assert cut is None
        return
    assert cut is not None
    start, value, price = expected
    assert (cut.start, cut.value, cut.price) == (start, value, pytest.approx(MARGIN * price))


# Where the prefix before a cut is found. A mark looks at its own place and the 19 before it.

# case: rates, units, texts in each, the part that is offered, tokens that are written again
FOUND: dict[str, tuple[Rates, int, int, int, int]] = {
    "9 units of two places are near": (NO_ROOM, 12, 0, 6, 16_000),
    "10 units are not, so all is written": (NO_ROOM, 12, 0, 4, 22_000),
    "unless a mark of our own holds it": (FOR_MINUTES, 12, 0, 4, 18_000),
    "texts are places too: 6 units of three": (NO_ROOM, 8, 1, 6, 15_000),
    "7 units of three": (NO_ROOM, 8, 1, 3, 21_000),
    "80 requests back": (BREAKPOINTS, 82, 0, 4, 158_000),
    "81 requests back": (BREAKPOINTS, 82, 0, 2, 162_000),
    "a new unit of many places: nothing of it was sent": (NO_ROOM, 2, 20, 22, 0),
    "a prefix is found wherever it ends": (PREFIX, 82, 0, 2, 160_000),
}


@pytest.mark.parametrize("case", FOUND)
def test_where_the_prefix_is_found(case: str) -> None:
    rates, units, texts, position, again = FOUND[case]
    seen = history(units, texts)
    end = seen.units[-1].parts[0]
    sent = list(accumulate([1_000] * end, initial=0))
    cut = best_cut([worth(position, 1e9)], history=seen, sent=sent, rates=rates, terms=TEN)
    assert cut is not None
    assert cut.price == pytest.approx(MARGIN * (rates.write - rates.read) * again)


@pytest.mark.parametrize(("texts", "near"), [(1, True), (2, False)])
def test_the_twentieth_place_is_too_far(texts: int, near: bool) -> None:
    index = TranscriptIndex()
    index.add_unit((0, 1), [part(0, "text")], [], locked=False)
    index.add_unit((1, 2), [part(1, "text", at) for at in range(texts)], [], locked=False)
    for row in range(2, 20, 2):
        call, answer = part(row, "call", id=str(row)), part(row + 1, "result", id=str(row))
        index.add_unit((row, row + 2), [call], [answer], locked=False)
    seen = index.freeze()
    sent = list(accumulate([100] * seen.units[-1].parts[0], initial=0))
    cut = best_cut([worth(1, 1e9)], history=seen, sent=sent, rates=NO_ROOM, terms=TEN)
    assert cut is not None
    assert cut.price == pytest.approx(MARGIN * 1.15 * (sent[-1] - 100 * near))


def test_calls_made_side_by_side_are_one_place_and_so_are_their_results() -> None:
    index = TranscriptIndex()
    index.add_unit((0, 1), [part(0, "text")], [], locked=False)
    for row in range(1, 18, 2):
        calls = [part(row, "call", at, id=f"{row} {at}") for at in range(5)]
        answers = [part(row + 1, "result", at, id=f"{row} {at}") for at in range(5)]
        index.add_unit((row, row + 2), calls, answers, locked=False)
    seen = index.freeze()
    sent = list(accumulate([100] * seen.units[-1].parts[0], initial=0))
    cut = best_cut(
        [worth(1, 1e9)], history=seen, sent=sent, rates=NO_ROOM, terms=TEN
    )  # nine units of two places each
    assert cut is not None
    assert cut.price == pytest.approx(MARGIN * 1.15 * (sent[-1] - 100))


@pytest.mark.parametrize(
    ("rates", "starts"),
    [(PREFIX, [0, 1, 2, 3, 4, 5]), (FOR_MINUTES, [0, 0, 2, 2, 4, 4]), (BREAKPOINTS, [0, 0, 2, 2])],
)
def test_where_a_change_starts(rates: Rates, starts: Sequence[int]) -> None:
    assert [cut_start(at, history(3), rates) for at in range(len(starts))] == starts


# An epoch wrote parts 4 to 9 in one go: no prefix that ends between them is in any cache.

ENDS = [0, 2, 4, 10]


@pytest.mark.parametrize(
    ("rates", "starts"),
    [
        (PREFIX, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (FOR_MINUTES, [0, 0, 2, 2, 4, 4, 4, 4, 4, 4, 10, 10]),
        (NO_ROOM, [0, 0, 2, 2, 4, 4, 4, 4, 4, 4, 10, 10]),
        (BREAKPOINTS, [0, 0, 2, 2, 4, 4, 4, 4, 4, 4, 10, 10]),
    ],
)
def test_where_a_change_starts_behind_an_epoch(rates: Rates, starts: Sequence[int]) -> None:
    assert [cut_start(at, SIX, rates, ENDS) for at in range(12)] == starts
    assert (
        rates.matches_any_prefix
        or cut_start(9, SIX, rates, []) == cut_start(9, SIX, rates, [10]) == 0
    )


def test_a_cut_among_what_was_written_in_one_go_writes_all_of_it_again() -> None:
    offers = [worth(7, 8_000.0), worth(5, 1.0), worth(3, 1.0)]
    for rates, expected in (
        (FOR_MINUTES, (4, 8_001.0, 1.15 * 6_000)),
        (BREAKPOINTS, (4, 8_001.0, 1.15 * 6_000)),
        (PREFIX, (7, 8_000.0, 0.9 * 3_000)),
    ):
        same(
            best_cut(
                offers, history=SIX, sent=THOUSANDS, rates=rates, terms=TEN, lost=(), ends=ENDS
            ),
            expected,
        )
    less = [worth(7, 6_000.0)]
    assert best_cut(less, history=SIX, sent=THOUSANDS, rates=FOR_MINUTES, terms=TEN) is not None
    assert (
        best_cut(
            less, history=SIX, sent=THOUSANDS, rates=FOR_MINUTES, terms=TEN, lost=(), ends=ENDS
        )
        is None
    )


@pytest.mark.parametrize(("rates", "start"), [(FOR_MINUTES, 4), (NO_ROOM, 4), (PREFIX, 7)])
def test_under_pressure_the_mark_stands_where_it_is_found(rates: Rates, start: int) -> None:
    moment = BoundaryTerms(10, 20_000, is_over_budget=True)
    same(
        best_cut(
            [worth(7, 1.0)],
            history=SIX,
            sent=THOUSANDS,
            rates=rates,
            terms=moment,
            lost=(),
            ends=ENDS,
        ),
        (start, 1.0, 0.0),
    )


# Reasoning that is bound to what stands before it goes with a cut.


def muted(unit: int, saved: int) -> DropReasoning:
    return DropReasoning(unit, Ref(0, ()), "bound_reasoning", "", saved)


def test_what_reasoning_behind_a_cut_is_worth_adds_up_from_the_end() -> None:
    lost = lost_reasoning_value(SIX, [muted(1, 100), muted(4, 100)], PREFIX, TEN)
    # asking again costs 8,750; a chance of .08 / (age + 3); carrying it costs 400 tokens
    older, newer = 0.08 / 8 * 9_250 - 400, 0.08 / 5 * 9_250 - 400
    assert lost == pytest.approx([older + newer, older + newer, newer, newer, newer, 0.0])


def test_a_cut_pays_for_the_reasoning_that_goes_with_it() -> None:
    lost = [900.0, 900.0, 500.0, 500.0, 500.0, 0.0]
    offers = [worth(7, 3_400.0)]
    assert best_cut(offers, history=SIX, sent=THOUSANDS, rates=PREFIX, terms=TEN) is not None
    assert best_cut(offers, history=SIX, sent=THOUSANDS, rates=PREFIX, terms=TEN, lost=lost) is None
    cut = best_cut(
        [worth(7, 3_500.0)], history=SIX, sent=THOUSANDS, rates=PREFIX, terms=TEN, lost=lost
    )
    assert cut is not None
    assert cut.price == pytest.approx(MARGIN * 0.9 * 3_000 + 500)


@pytest.mark.parametrize("moment", [BoundaryTerms(10, 20_000, is_rewrite_free=True), TEN])
def test_where_nothing_is_written_again_it_still_does(moment: BoundaryTerms) -> None:
    rates = FOR_MINUTES if moment.is_rewrite_free else NO_CACHE
    lost = [0.0, 0.0, 0.0, 500.0, 500.0, 0.0]
    assert (
        best_cut(
            [worth(7, 400.0)], history=SIX, sent=THOUSANDS, rates=rates, terms=moment, lost=lost
        )
        is None
    )
    assert (
        best_cut(
            [worth(7, 600.0)], history=SIX, sent=THOUSANDS, rates=rates, terms=moment, lost=lost
        )
        is not None
    )


# Against a plain search.


def searched(offers: Sequence[PricedOffer], sent: Sequence[int], rates: Rates) -> float:
    """The most that any cut gains, by trying them all."""
    gains = [0.0]
    for first in range(len(SIX.parts)):
        start = first if rates.matches_any_prefix else first - first % 2
        value = sum(one.value for one in offers if one.start >= start)
        behind = max(0, sent[-1] - sent[min(start, len(sent) - 1)])
        gains.append(value - MARGIN * (rates.write - rates.read) * behind)
    return max(gains)


@given(
    st.lists(st.tuples(st.integers(0, 11), st.floats(1, 20_000)), max_size=12),
    st.lists(st.integers(0, 5_000), min_size=10, max_size=10),
    st.sampled_from([PREFIX, FOR_MINUTES, FOR_AN_HOUR, BREAKPOINTS]),
)
def test_no_other_cut_gains_more(
    offered: list[tuple[int, float]], sizes: list[int], rates: Rates
) -> None:
    offers = [worth(*one) for one in offered]
    sent = list(accumulate(sizes, initial=0))
    cut = best_cut(offers, history=SIX, sent=sent, rates=rates, terms=TEN)
    gain = 0.0 if cut is None else cut.value - cut.price
    assert gain == pytest.approx(searched(offers, sent, rates))
    if cut is not None:
        behind = [one.value for one in offers if one.start >= cut.start]
        assert cut.value == pytest.approx(sum(behind))


# The bound on regret: what an epoch costs if the session ends at once.


def test_a_cut_that_costs_more_than_allowed_is_not_taken():
    terms = BoundaryTerms(10, 6_000)
    kept = 0.1 * terms.horizon + 1.0  # cost of a token from now on, on PREFIX
    offer = PricedOffer(cutting(3, 2_000), 2_000 * kept, 3, (), 2_000 * kept)
    behind = THOUSANDS[-1] - THOUSANDS[3]
    cost = 0.9 * behind - 1.0 * 2_000
    assert cost > 0

    def cut(max_cost: float) -> EpochCut | None:
        bound = replace(terms, max_cost=max_cost)
        return best_cut([offer], history=SIX, sent=THOUSANDS, rates=PREFIX, terms=bound)

    found = cut(cost + 1)
    assert found is not None
    assert found.cost == pytest.approx(cost)
    assert cut(cost - 1) is None


def test_the_account_wins_an_epoch_back_request_by_request():
    account = Account()
    for tokens in (10_000, 12_000):
        account = account.with_request(tokens, PREFIX)
    assert account.billed == pytest.approx(10_000 + 0.1 * 10_000 + 2_000)
    account = account.with_epoch(saved=5_000, cost=900.0)
    assert account.net == -900.0
    account = account.with_request(12_000, PREFIX)
    account = account.with_request(12_000, PREFIX)
    assert account.net == pytest.approx(-900 + 2 * 0.1 * 5_000)
