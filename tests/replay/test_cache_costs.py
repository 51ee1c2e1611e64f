"""What pauses, misses and unused tools cost in a session, and what remedies would have done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from respool.cli import main
from respool.pauses import GOES_ON, MAX_PINGS, ping_value
from respool.pricing import CacheTerms
from respool.replay.bill_sentences import bill_sentences, cost_rows
from respool.replay.cache_costs import (
    READ_PRICES,
    CacheReplay,
    add_costs,
    cache_costs,
    merge_unused,
    unused_tools,
)
from respool.replay.policies import NONE, UnchangedSender
from respool.replay.prompt_cache import HOUR, MINUTES, CharacterMeasure
from respool.replay.recording import BillingConditions, Recording
from respool.replay.result import CacheCosts, CacheTotals, HeadTools, UnusedTool
from respool.replay.score import score_policy
from respool.sessions.session import RecordedRequest, RecordedSession
from tests.replay.support import EXPLICIT, PREFIX, call, cuts_in, result, text, user

WORDS = "one line of a result that is long enough to count\n" * 40  # 500 tokens
HEAD = 1_000


def history(turns: int) -> list[Any]:
    messages: list[Any] = [user(text("go on"))]
    for turn in range(turns):
        messages += [call(f"c{turn}", n=turn), user(result(f"c{turn}", f"{turn} {WORDS}"))]
    return messages


def recorded(
    times: list[float],
    *,
    lifetime: float = MINUTES,
    terms: CacheTerms = EXPLICIT,
    format: Any = "anthropic",
    messages: list[Any] | None = None,
    **fields: Any,
) -> Recording:
    said = history(len(times) - 1) if messages is None else messages
    cuts = cuts_in(format, said)
    assert len(cuts) == len(times)
    sent = tuple(RecordedRequest(cut, time) for cut, time in zip(cuts, times, strict=True))
    session = RecordedSession(
        id="s", agent="claude-code", format=format, messages=said, requests=sent, **fields
    )
    return Recording(session, CharacterMeasure(), BillingConditions(terms, HEAD, lifetime))


def costs_of(recording: Recording) -> tuple[CacheCosts, tuple[CacheCosts, ...]]:
    base = score_policy(recording, UnchangedSender(recording), NONE)
    costs, prices = cache_costs(recording, base, 0.0)
    assert costs.bill == pytest.approx(base.bill.cost)  # the same bill as everywhere
    return costs, prices


def test_a_pause_costs_writing_the_prefix_less_reading_it() -> None:
    recording = recorded([0.0, 60.0, 60.0 + 400.0, 520.0])
    costs, _ = costs_of(recording)
    prefix = HEAD + sum(row.tokens for row in recording.rows[: recording.cuts[1]])
    assert (costs.pauses, costs.expired) == (1, prefix)
    assert costs.expired_cost == pytest.approx(prefix * (1.25 - 0.1))
    assert costs.missed == 0


def test_without_a_pause_nothing_expires() -> None:
    costs, _ = costs_of(recorded([0.0, 60.0, 120.0]))
    assert (costs.pauses, costs.expired, costs.expired_cost) == (0, 0, 0.0)
    assert costs.cold == costs.bill  # there was no cold moment to compact at


def test_one_hour_is_billed_at_its_own_price() -> None:
    times = [0.0, 60.0, 460.0, 520.0]
    costs, _ = costs_of(recorded(times))
    lasting, _ = costs_of(recorded(times, lifetime=HOUR))
    assert costs.one_hour == pytest.approx(lasting.bill)
    assert lasting.one_hour == lasting.bill
    assert lasting.pauses == 0


def test_pings_are_billed_until_they_do_not_pay() -> None:
    """A call's result is out for 400 seconds: one ping at 270 keeps the prefix."""
    recording = recorded([0.0, 60.0, 460.0])
    costs, prices = costs_of(recording)
    prefix = HEAD + sum(row.tokens for row in recording.rows[: recording.cuts[1]])
    whole = HEAD + sum(row.tokens for row in recording.rows[: recording.cuts[2]])
    # After the last request, whose answer is not recorded, the user is waited for: two pings pay.
    assert costs.pings == 1 + 2
    paid = 0.1 * (prefix + 2 * whole) + 3 * EXPLICIT.output
    assert costs.ping_cost == pytest.approx(paid)
    assert costs.keep_alive == pytest.approx(costs.bill - prefix * 1.15 + paid)
    assert [one.read_price for one in prices] == list(READ_PRICES)
    assert prices[0].keep_alive == pytest.approx(costs.keep_alive)
    assert prices[2].pings > costs.pings  # cheaper reads: more of them pay


def test_providers_without_breakpoints_have_no_pings_and_no_hour() -> None:
    steps = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "yes"}]
    messages = [*steps, *steps, {"role": "user", "content": "and then?"}]
    recording = recorded([0.0, 9e3, 18e3], terms=PREFIX, format="openai-chat", messages=messages)
    costs, prices = costs_of(recording)
    assert (costs.keep_alive, costs.one_hour, costs.pings) == (costs.bill, costs.bill, 0)
    assert prices == ()


def test_a_prefix_beyond_the_lookback_is_missed() -> None:
    """Twenty-five blocks of text come between two breakpoints: the entry is too far back."""
    first = user(text(WORDS))
    many = user(*(text(f"{n} {WORDS}") for n in range(25)))
    said = {"role": "assistant", "content": [text("yes")]}
    recording = recorded([0.0, 60.0], messages=[first, said, many])
    replay = CacheReplay(recording)
    replay.run()
    tokens = recording.rows[0].tokens
    assert (replay.missed.tokens, replay.missed.beyond_lookback) == (tokens, tokens)
    costs, _ = costs_of(recording)
    assert costs.missed_cost == pytest.approx(tokens * 1.15)


def test_a_ping_is_worth_what_the_chances_say() -> None:
    for lifetime, table in GOES_ON.items():
        write = 2.0 if lifetime == HOUR else 1.25
        for kind, chances in table.items():
            assert list(chances) == sorted(chances, reverse=True)
            last = len(chances)
            worth = ping_value(last, lifetime=lifetime, waits_for=kind, read=0.1, write=write)
            assert worth == pytest.approx(chances[-1] * (write - 0.1) - 0.1)
            given = {"lifetime": lifetime, "waits_for": kind, "read": 0.1, "write": write}
            assert ping_value(MAX_PINGS + 1, **given) == 0.0
    assert ping_value(1, lifetime=60.0, waits_for="tool", read=0.0, write=9.0) == 0.0


TOOLS = (("Read", '{"name": "Read"}'), ("WebSearch", '{"name": "WebSearch", "description": "a b"}'))


def test_tools_that_were_never_called() -> None:
    assert unused_tools(recorded([0.0, 60.0])) is None
    found = unused_tools(recorded([0.0, 60.0], tools=TOOLS))
    assert found is not None
    (one,) = found
    assert (one.name, one.requests) == ("WebSearch", 2)
    assert one.tokens > 5
    assert "deny" in one.off
    assert merge_unused([found, found], ["Bash"])[0].requests == 4
    assert merge_unused([found], ["WebSearch"]) == ()


COSTS = CacheCosts(
    requests=9,
    bill=1_000.0,
    head=250.0,
    pauses=2,
    expired=90_000,
    expired_cost=143.0,
    expired_money=1.5,
    missed=3_000,
    beyond_lookback=1_000,
    missed_cost=10.0,
    one_hour=950.0,
    keep_alive=1_020.0,
    pings=4,
    cold=900.0,
    cold_lost=1,
)


def test_sentences_say_every_figure() -> None:
    known = HeadTools(sessions=1, unused=(UnusedTool(name="Web", tokens=700, requests=9),))
    said = " ".join(bill_sentences(CacheTotals(whole=COSTS, tools=known)))
    for part in (
        "2 requests came after the cached prefix had expired",
        "$1.50, 14.3 % of the bill",
        "one hour 5.0 % lower",
        "pings (4) 2.0 % higher",
        "emptied the cache 10.0 % lower, with 1 lost step",
        "cost 25.0 % of the bill",
        "1 tool of 700 tokens in all was defined and never called: Web (700)",
        "3k tokens were cached and not found, 1.0 % of the bill",
    ):
        assert part in said
    unknown = " ".join(bill_sentences(CacheTotals(whole=COSTS)))
    assert "hold no tool definitions, so it is not known" in unknown
    assert bill_sentences(CacheTotals()) == []


def test_rows_and_sums() -> None:
    both = add_costs([COSTS, replace(COSTS, expired_money=None)])
    assert (both.sessions, both.bill, both.expired_money) == (2, 2_000.0, 1.5)
    totals = CacheTotals(whole=both, kinds={"long": COSTS}, prices=(COSTS,))
    rows = list(cost_rows(totals))
    assert [row[0] for row in rows] == ["all", "long", "cache reads at 0"]
    assert rows[0][1:4] == ("2", "25.0 %", "14.3 %")


def request_log(folder: Path) -> Path:
    """A log of requests with tool definitions, of which one is used."""
    messages = history(3)
    tools = [
        {"name": name, "description": f"{name} something", "input_schema": {"type": "object"}}
        for name in ("Read", "Browse")
    ]
    given = {"model": "claude-sonnet-4-6", "max_tokens": 9, "system": "be brief", "tools": tools}
    lines = [
        json.dumps({**given, "messages": messages[:cut]}) for cut in cuts_in("anthropic", messages)
    ]
    file = folder / "requests.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    return file


def test_the_command_tells_it_in_words_and_in_json(tmp_path: Path) -> None:
    file = str(request_log(tmp_path))
    shown = CliRunner().invoke(main, ["replay", file, "--policy", "none", "--detail", "--quiet"])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "The rest of the bill" in words
    assert "defined and never called: Browse" in words
    assert "cache reads at 0.025" in words
    found = CliRunner().invoke(main, ["replay", file, "--policy", "cold", "--json", "--quiet"])
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["cache"]["whole"]["requests"] == 4
    assert [one["name"] for one in data["cache"]["tools"]["unused"]] == ["Browse"]
    assert data["policies"] == ["none", "cold"]


def test_the_page_tells_it_too(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    file = str(request_log(tmp_path))
    made = CliRunner().invoke(main, ["replay", file, "--policy", "none", "--html", str(page)])
    assert made.exit_code == 0, made.output
    assert "defined and never called: Browse" in page.read_text("utf-8")
