"""What recorded pauses would have cost with other cache lifetimes or pings, computed by hand.

Every price is Claude Sonnet 4.5's: $3 a million tokens, reads at 0.1, writes at 1.25 for five
minutes and 2 for an hour, output at 5.
"""

from __future__ import annotations

from typing import Any

import pytest

from respool.pricing import Usage
from respool.store import KeepAliveEvent, RecordedBill, RequestRecord, SQLStore, StoreLocation
from respool.store.base import Remedies
from respool.store.bill_statement import state_bill
from tests.store.support import NOW, OTHER, OWNER, open_at, record

TOKEN = 3e-6
LATER = NOW + 10_000
HOUR = 2.0  # the price of a write
END = NOW + 4_760  # 200 seconds after the last request: its ping is not due


def sent(
    id: str, at: float, *, read: int = 0, write: int, lost: int = 0, rate: float = 1.25, **more: Any
) -> RequestRecord:
    """A request with all costs that a proxy records."""
    usage = Usage(input=0, cache_read=read, cache_write=write, output=100)
    paid = (read * 0.1 + write * rate + 500) * TOKEN
    fields = {
        "model": "claude-sonnet-4-5",
        "usage": usage,
        "cost_before": paid,
        "cost_after": paid,
        "cost_uncached": (read + write + 500) * TOKEN,
        "prefix": id,
        "expired": lost,
        "expired_cost": lost * (rate - 0.1) * TOKEN if lost else None,
        "saved": 0,
        "edits": (),
    }
    return record(id, time=NOW + at, **{**fields, **more})


def session(*, rate: float = 1.25, **third: Any) -> list[RequestRecord]:
    """Requests after 60, 500 and 4,000 seconds; the prefix had expired in the last two pauses."""
    return [
        sent("p1", 0, write=100_000, rate=rate),
        sent("p2", 60, read=100_000, write=10_000, rate=rate, parent="p1"),
        sent("p3", 560, write=120_000, rate=rate, **{"parent": "p2", "lost": 110_000, **third}),
        sent("p4", 4_560, write=130_000, lost=120_000, rate=rate, parent="p3"),
    ]


def bill_of(
    location: StoreLocation, records: list[RequestRecord], *, now: float = END, **span: float
) -> RecordedBill:
    """The bill of these requests, at a time."""
    store = open_at(location, clock=lambda: now)
    for one in records:
        store.record(one)
    assert store.flush()
    found = store.bill(None, **{"since": 0.0, "until": 4e11, **span})
    store.close()
    return found


def is_near(found: float, *factors: float) -> bool:
    """True if an amount is the sum of these tokens of plain input."""
    return found == pytest.approx(sum(factors) * TOKEN)


def test_one_hour_saves_the_pause_within_it_and_makes_all_other_writes_dearer(
    location: StoreLocation,
) -> None:
    found = bill_of(location, session())
    assert (found.pauses, found.remedies.pauses, found.remedies.short_writes) == (2, 2, 360_000)
    assert found.remedies.hour_found == 1  # not the one after 4,000 seconds
    assert is_near(found.remedies.hour_saved, 110_000 * 1.15)  # $0.3795
    assert is_near(found.remedies.hour_money, (360_000 - 110_000) * 0.75)  # $0.5625
    said = " ".join(state_bill(found))
    assert "cost $0.1830 more (13 % of the bill): $0.3795 less for 1 prefix found" in said
    assert "$0.5625 more for all other writes." in said


def test_pings_are_decided_as_by_the_proxy_and_paid_in_every_pause(location: StoreLocation) -> None:
    """One is due in 500 seconds, and two pay in a longer pause; the first keeps its prefix."""
    found = bill_of(location, session()).remedies
    assert (found.pings, found.pings_found) == (3, 1)
    assert is_near(found.ping_money, 11_000 + 5, 2 * (12_000 + 5))  # $0.1050
    assert is_near(found.pings_saved, 110_000 * 1.15)
    said = " ".join(state_bill(RecordedBill(requests=4, money=10.0, pauses=2, remedies=found)))
    assert (
        "With keep-alive pings, the same requests would have cost $0.2745 less (3 % of the bill): "
        "$0.3795 less for 1 prefix found, $0.1050 for 3 pings."
    ) in said


def test_pings_after_the_last_request_are_paid_too(location: StoreLocation) -> None:
    ended = bill_of(location, session(), now=LATER).remedies
    assert (ended.pings, ended.pings_found) == (5, 1)
    assert is_near(ended.ping_money, 11_005, 2 * 12_005, 2 * 13_005)


def test_requests_that_the_proxy_does_not_ping(location: StoreLocation) -> None:
    """The only one of a conversation, one that failed, and one too short to be cached."""
    others = [
        sent("q1", 0, write=100_000, conversation="c2"),
        sent("r1", 0, write=100_000, conversation="c3"),
        sent("r2", 9, write=100_000, conversation="c3", parent="r1", status=529),
        sent("s1", 0, write=1_000, conversation="c4"),
        sent("s2", 9, write=1_000, conversation="c4", parent="s1"),
    ]
    found = bill_of(location, [*session(), *others]).remedies
    assert (found.pings, found.short_writes) == (3, 360_000 + 302_000)


def test_one_hour_changes_no_write_that_lasts_an_hour_already(location: StoreLocation) -> None:
    other = sent("q1", 0, write=77_000, conversation="c2", rate=HOUR)
    found = bill_of(location, [*session(), other]).remedies
    assert found.short_writes == 360_000
    assert is_near(found.hour_money, 250_000 * 0.75)


def test_a_period_ends_its_pauses(location: StoreLocation) -> None:
    first = bill_of(location, session(), now=LATER, until=NOW + 561).remedies
    assert (first.pings, first.hour_found, first.short_writes) == (1, 1, 230_000)


def test_the_parent_may_be_before_the_period(location: StoreLocation) -> None:
    rest = bill_of(location, session(), since=NOW + 500).remedies
    assert (rest.pauses, rest.hour_found, rest.short_writes) == (2, 1, 250_000)


def test_what_respool_compacted_is_told_and_no_remedy_is_credited(location: StoreLocation) -> None:
    found = bill_of(location, session(epochs=1, saved=30_000))
    kept = found.remedies
    assert (kept.compacted, kept.removed) == (1, 30_000)
    assert (kept.hour_found, kept.hour_saved, kept.pings_found, kept.pings_saved) == (0, 0, 0, 0)
    assert is_near(kept.hour_money, 360_000 * 0.75)
    said = " ".join(state_bill(found))
    assert "by itself, as all is written again anyway: at 1 of these, where it took out 30,000" in (
        said
    )
    assert "see respool replay." in said
    assert said.count("nothing less, as no expired prefix would have been found, $") == 2
    observed = bill_of(location, [], now=END)
    assert observed == found  # nothing was added, and a read changes nothing


def test_observed_requests_compact_nothing_and_are_priced_as_they_came(
    location: StoreLocation,
) -> None:
    records = [
        sent("p1", 0, write=100_000, mode="observed", cost_after=0.001),
        sent(
            "p2",
            400,
            write=110_000,
            lost=100_000,
            mode="observed",
            cost_after=0.001,
            parent="p1",
            epochs=1,
            saved=30_000,
        ),
    ]
    found = bill_of(location, records)
    assert is_near(found.money, 210_000 * 1.25, 2 * 500)
    assert (found.remedies.compacted, found.remedies.short_writes) == (0, 210_000)
    assert "at none of these." in " ".join(state_bill(found))


def test_writes_of_an_hour_are_known_by_their_cost(location: StoreLocation) -> None:
    """No other lifetime is left to try; a ping after 3,240 seconds keeps the prefix of the last."""
    records = session(rate=HOUR, lost=0)
    found = bill_of(location, records)
    assert (found.remedies.short_writes, found.remedies.hour_found) == (0, 0)
    assert (found.remedies.pings, found.remedies.pings_found) == (1, 1)
    assert is_near(found.remedies.ping_money, 12_005)
    assert is_near(found.remedies.pings_saved, 120_000 * 1.9)
    assert "A cache lifetime of one hour was in use already." in state_bill(found)


def test_a_ping_keeps_the_last_request_only(location: StoreLocation) -> None:
    """A request on another branch does not find what a ping of the latest one has kept."""
    branch = bill_of(location, session(parent="p1")).remedies
    assert (branch.pings, branch.pings_found, branch.hour_found) == (3, 0, 1)
    unknown = bill_of(location, []).remedies
    assert unknown == branch


def test_an_unknown_parent_is_no_saving(location: StoreLocation) -> None:
    found = bill_of(location, session(parent="gone")).remedies
    assert (found.pauses, found.hour_found, found.pings_found, found.compacted) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "openai-responses", "model": "gpt-5.2"},
        {"cost_before": None, "cost_after": None, "cost_uncached": None},
    ],
    ids=["a provider without lifetimes", "no price"],
)
def test_where_no_remedy_applies_it_is_said(location: StoreLocation, fields: Any) -> None:
    records = [
        sent("p1", 0, write=100_000, **fields),
        sent("p2", 1_000, write=100_000, lost=90_000, parent="p1", epochs=1, saved=9, **fields),
    ]
    found = bill_of(location, records)
    assert found.remedies == Remedies(compacted=1, removed=9)
    said = state_bill(found)
    assert "need cache breakpoints of the client and known prices." in said[-1]
    assert "where it took out 9 tokens." in said[-2]


def test_pings_that_were_sent_are_not_imagined(location: StoreLocation) -> None:
    store = open_at(location, clock=lambda: END)
    event = KeepAliveEvent(
        time=NOW, owner=OWNER, conversation="c1", model="m", kind="ping", money=0.5
    )
    store.add_keep_alive(event)
    store.close()
    found = bill_of(location, session())
    assert (found.remedies.pings, found.remedies.hour_found) == (0, 1)
    said = " ".join(state_bill(found))
    assert "With keep-alive pings" not in said
    assert "1 keep-alive ping cost $0.5000" in said


def test_an_owner_has_the_remedies_of_its_own_requests(store: SQLStore) -> None:
    for one in session():
        store.record(one)
    assert store.flush()
    assert store.bill(OWNER, since=0.0, until=4e11).remedies.hour_found == 1
    assert store.bill(OTHER, since=0.0, until=4e11).remedies == Remedies()


def test_no_pause_is_no_remedy(location: StoreLocation) -> None:
    found = bill_of(location, session()[:2], now=LATER)
    assert found.remedies == Remedies()
    assert state_bill(found)[-1] == "No cached prefix expired in a pause."
