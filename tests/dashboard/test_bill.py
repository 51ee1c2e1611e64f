"""The rest of the bill, from requests through a real proxy to the dashboard and `stats`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.pricing import CacheTerms, Usage
from respool.proxy.billing import CacheLoss, Sizes, cache_loss
from respool.store import KeepAliveEvent, KeepAliveTotal, RecordedBill, RequestRecord
from respool.store.bill_statement import state_bill
from tests.dashboard.support import KEY, MODEL, Dashboarded, dashboarded
from tests.proxy.sockets import post
from tests.store.support import OWNER
from tests.support.formats import Exchange, request

TERMS = CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0, minimum=1_024, dollars=3.0)
BROWSE = {
    "name": "Browse",
    "description": "Opens a page and reads it aloud, word by word.",
    "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}},
}


def send(one: Dashboarded, steps: int) -> None:
    """A request of Claude Code that defines a tool which it never calls."""
    made = [[Exchange(f"{n} done", id=f"call_{n}", args={"n": n})] for n in range(steps)]
    said = request("anthropic", "go on", *made)
    named = {call["name"] for one in said["messages"] for call in one["content"] if "input" in call}
    tools = [BROWSE, *({"name": name, "input_schema": {"type": "object"}} for name in named)]
    body = json.dumps({**said, "model": MODEL, "tools": tools}).encode()
    headers = (f"x-api-key: {KEY}", "user-agent: claude-cli/2.0")
    assert one.raw(post("/v1/messages", body, *headers)).status == 200
    one.sent += 1
    one.recorded()


def test_tools_that_were_never_called_with_the_line_that_switches_them_off(tmp_path: Path) -> None:
    with dashboarded(tmp_path) as one:
        for steps in (1, 2, 3):
            send(one, steps)
        found = one.data("bill?range=day")
        (tool,) = found["bill"]["tools"]
        assert (tool["name"], tool["agent"], tool["requests"]) == ("Browse", "Claude Code", 3)
        assert tool["tokens"] > 20
        assert tool["off"] == 'in .claude/settings.json: {"permissions": {"deny": ["Browse"]}}'
        assert found["bill"]["tools_known"] == 2
        assert found["bill"]["head_money"] > 0
        said = " ".join(found["sentences"])
        assert "1 of 2 defined tools was never called" in said
        path = str(one.store.path)
    shown = json.loads(CliRunner().invoke(main, ["stats", "--json", "--store", path]).stdout)
    assert shown["bill"]["tools"] == [tool]
    words = CliRunner().invoke(main, ["stats", "--store", path]).stdout
    assert "1 of 2 defined tools was never called" in words
    assert "Browse" in words


def test_nothing_recorded_is_nothing_told(tmp_path: Path) -> None:
    with dashboarded(tmp_path) as one:
        found = one.data("bill?range=hour")
        assert found["sentences"] == []
        assert found["bill"]["requests"] == 0


def test_pings_are_shown_and_forgotten_with_their_conversation(tmp_path: Path) -> None:
    with dashboarded(tmp_path) as one:
        one.talk(1)
        (known,) = one.store.conversations(None)
        event = KeepAliveEvent(
            time=time.time(),
            owner=known.owner,
            conversation=known.name,
            model=MODEL,
            kind="ping",
            money=0.02,
        )
        one.store.add_keep_alive(event)
        one.store.add_keep_alive(
            KeepAliveEvent(
                time=time.time(),
                owner=OWNER,
                conversation="other",
                model=MODEL,
                kind="hit",
                money=0.25,
            )
        )
        found = one.data("bill?range=hour")
        assert found["bill"]["keep_alive"] == {"pings": 1, "paid": 0.02, "hits": 1, "saved": 0.25}
        assert "1 keep-alive ping cost $0.0200; 1 request found" in found["sentences"][-1]
        assert found["bill"]["requests"] == 1
        one.store.forget(conversation=known.name)
        left = one.store.keep_alive_total(None, since=0.0, until=4e9)
        assert (left.pings, left.hits) == (0, 1)


def test_what_remedies_of_pauses_would_have_done(tmp_path: Path) -> None:
    """The same sentences on both faces; the dollars are computed in tests/store."""
    with dashboarded(tmp_path) as one:
        start = time.time() - 3_600
        for at, lost in ((0, 0), (400, 90_000)):
            paid = (100_000 * 1.25 + 500) * 3e-6
            one.store.record(
                RequestRecord(
                    id=f"p{at}",
                    parent=f"p{at - 400}" if at else "",
                    prefix=f"p{at}",
                    time=start + at,
                    owner=OWNER,
                    conversation="paused",
                    format="anthropic",
                    model=MODEL,
                    status=200,
                    usage=Usage(cache_write=100_000, output=100),
                    cost_before=paid,
                    cost_after=paid,
                    cost_uncached=100_500 * 3e-6,
                    expired=lost,
                    expired_cost=lost * 1.15 * 3e-6 if lost else None,
                )
            )
        assert one.store.flush()
        found = one.data("bill?range=day")
        path = str(one.store.path)
    paused, compacted, one_hour, _pings = found["sentences"][-4:]
    assert "writing 90,000 tokens again cost $0.3105 (41 % of the bill)" in paused
    assert "respool compacts after such pauses by itself" in compacted
    assert "$0.3105 less for 1 prefix found, $0.2475 more for all other writes." in one_hour
    assert "cost $0.0630 less (8 % of the bill)" in one_hour
    assert found["bill"]["remedies"]["hour_found"] == 1
    words = CliRunner().invoke(main, ["stats", "--store", path]).stdout
    assert [line for line in found["sentences"] if line not in " ".join(words.split())] == []


SIZES = Sizes(10_000, 10_000, parent=9_000, is_warm=True)


@pytest.mark.parametrize(
    ("usage", "sizes", "moment", "expected"),
    [
        # All of the parent was read.
        (Usage(cache_read=9_000, cache_write=1_000), SIZES, "", (0, 0)),
        # It had expired, but for the head.
        (Usage(cache_read=2_000, cache_write=8_000), SIZES, "cold", (7_000, 0)),
        # It should have been there.
        (Usage(cache_read=2_000, cache_write=8_000), SIZES, "", (0, 7_000)),
        # The provider counts twice as many tokens.
        (Usage(cache_write=20_000), SIZES, "cold", (18_000, 0)),
        # Other tools, or edits of respool's own: no loss of the client's.
        (Usage(cache_write=10_000), SIZES, "changed", (0, 0)),
        (
            Usage(cache_write=10_000),
            Sizes(10_000, 10_000, parent=9_000, is_warm=True, is_epoch=True),
            "",
            (0, 0),
        ),
        # Nobody knows if the cache works.
        (Usage(cache_write=10_000), Sizes(10_000, 10_000, parent=9_000), "", (0, 0)),
        # The first request, and one too short to be cached.
        (Usage(cache_write=10_000), Sizes(10_000, 10_000), "cold", (0, 0)),
        (Usage(input=900), Sizes(900, 900, parent=800, is_warm=True), "", (0, 0)),
    ],
)
def test_what_a_request_lost(
    usage: Usage, sizes: Sizes, moment: str, expected: tuple[int, int]
) -> None:
    loss = cache_loss(usage, sizes, TERMS, head=1_500, moment=moment)
    assert (loss.expired, loss.missed) == expected
    cost = 3e-6 * sum(expected) * (1.25 - 0.1)
    assert (loss.expired_cost or 0) + (loss.missed_cost or 0) == pytest.approx(cost)


def test_the_head_is_priced_as_it_was_read_or_written() -> None:
    read = cache_loss(
        Usage(cache_read=9_000, cache_write=1_000), SIZES, TERMS, head=1_500, moment=""
    )
    assert read.head_cost == pytest.approx(3e-6 * 150)
    written = cache_loss(Usage(cache_write=10_000), SIZES, TERMS, head=1_500, moment="cold")
    assert written.head_cost == pytest.approx(3e-6 * 1_500 * 1.25)
    assert cache_loss(Usage(), SIZES, TERMS, head=1_500, moment="") == CacheLoss()


def test_every_figure_has_its_sentence() -> None:
    bill = RecordedBill(
        requests=9,
        money=10.0,
        head_money=4.0,
        pauses=2,
        expired=70_000,
        expired_money=1.4,
        misses=1,
        missed=5_000,
        missed_money=0.1,
        keep_alive=KeepAliveTotal(pings=3, paid=0.06, hits=2, saved=0.5),
    )
    said = " ".join(state_bill(bill))
    for part in (
        "cost $4.00 (40 % of the bill)",
        "2 requests came after a pause",
        "writing 70,000 tokens again cost $1.40 (14 % of the bill)",
        "1 request did not find a prefix",
        "5,000 tokens, $0.1000 (1 % of the bill)",
        "3 keep-alive pings cost $0.0600; 2 requests found what they had kept, which saved $0.5000",
    ):
        assert part in said
    assert state_bill(RecordedBill()) == []
