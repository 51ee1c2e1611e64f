"""Savings: one definition in SQL and in Python, and one figure on every face."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.cli import main
from respool.dashboard.queries import DashboardQueries, ProxyStatus
from respool.pricing import Usage
from respool.proxy.billing import RunTotals
from respool.store import RequestRecord, SQLiteStore, SQLStore
from respool.store.savings import (
    Saving,
    add_savings,
    describe_saving,
    saving_of_record,
    saving_of_total,
    state_record,
    state_saving,
    state_tokens,
)
from tests.effort import examples
from tests.store.support import record

counts = st.integers(0, 300_000)
usages = st.none() | st.builds(Usage, input=counts, cache_read=counts, cache_write=counts)
money = st.none() | st.floats(0, 5)


@st.composite
def records(draw: st.DrawFn) -> list[RequestRecord]:
    made: list[RequestRecord] = []
    for at in range(draw(st.integers(1, 8))):
        before = draw(counts)
        saved = draw(st.integers(-200, before))
        cost = draw(money)
        made.append(
            record(
                f"r{at}",
                time=1_000.0 + at,
                format=draw(st.sampled_from(["anthropic", "openai-chat", "gemini"])),
                model=draw(st.sampled_from(["claude-opus-4-8", "gpt-5", "qwen3", ""])),
                mode=draw(st.sampled_from(["compacted", "observed"])),
                status=draw(st.sampled_from([0, 200, 500])),
                tokens_before=before,
                tokens_after=before - saved,
                saved=saved,
                usage=draw(usages),
                cost_before=cost,
                cost_after=None if cost is None else draw(st.floats(0, 5)),
            )
        )
    return made


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(made=records())
def test_sums_of_the_store_are_those_of_the_records(
    store: SQLStore, made: list[RequestRecord]
) -> None:
    store.forget()
    store._write_records(made)
    (total,) = store.totals(None, since=0.0, until=1e6, step=1e6)
    (conversation,) = store.conversations(None)
    listed = store.requests(conversation.name, None)
    expected = add_savings(map(saving_of_record, made))
    for name in Saving.__struct_fields__:
        assert getattr(saving_of_total(total), name) == pytest.approx(getattr(expected, name)), name
    stated = [state_record(one) for one in listed]
    for name in ("tokens_before", "tokens_after", "saved"):
        assert getattr(conversation, name) == sum(getattr(one, name) for one in stated)
        assert getattr(total, name) == sum(getattr(one, name) for one in stated)


@given(
    counts, st.integers(-200, 300_000), usages, st.booleans(), st.sampled_from([1000, 1100, 1250])
)
def test_what_was_sent_is_what_was_reported(
    before: int, saved: int, usage: Usage | None, is_observed: bool, limit: int
) -> None:
    saved = min(saved, before)
    stated = state_tokens(before, saved, usage, is_observed=is_observed, limit=limit)
    assert stated.saved == stated.before - stated.after
    assert abs(stated.saved) <= abs(saved) * limit / 1000
    if stated.is_measured:
        assert usage is not None
        assert usage.prompt == (stated.before if is_observed else stated.after)
    else:
        assert (stated.before, stated.saved) == (before, saved)


def scripted(now: float) -> list[RequestRecord]:
    """A run of today: estimated one and a half times too high, and reported."""
    sizes = [(12_000, 0), (30_000, 9_000), (45_000, 21_000)]
    return [
        record(
            f"r{at}",
            time=now - 10 + at,
            model="claude-opus-4-8",
            tokens_before=before,
            tokens_after=before - saved,
            saved=saved,
            usage=Usage(input=100, cache_read=(before - saved) * 2 // 3 - 100),
            cost_before=0.02 + at / 100,
            cost_after=0.02,
        )
        for at, (before, saved) in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("money", "tokens", "said"),
    [
        (1.5, 100, "saved $1.50, 25 % of a bill of $6.00; 100 of 500 tokens (20 %)"),
        (-1.5, 100, "cost $1.50 more, 25 % of a bill of $6.00, and saved 100 of 500 tokens (20 %)"),
        (1.5, -100, "saved $1.50, 25 % of a bill of $6.00, and added 100 to 500 tokens (20 %)"),
        (
            -1.5,
            -100,
            "cost $1.50 more, 25 % of a bill of $6.00, and added 100 to 500 tokens (20 %)",
        ),
    ],
)
def test_money_and_tokens_may_go_apart(money: float, tokens: int, said: str) -> None:
    saving = Saving(requests=1, money=money, bill=6.0, tokens=tokens, tokens_before=500)
    assert state_saving(saving) == said


def test_every_face_states_the_same_saving(tmp_path: Path) -> None:
    """End of a run, stats, status, status line, dashboard: its overview and its requests."""
    path, now = tmp_path / "respool.db", time.time()
    made, run = scripted(now), RunTotals()
    store = SQLiteStore(path)
    for one in made:
        run.add(one)
        assert store.record(one)
    assert store.flush()
    page = DashboardQueries(store, ProxyStatus())
    overview = page.overview({"range": "month"})
    listed = page.requests({"conversation": "c1"})["requests"]
    (conversation,) = page.conversations({})["conversations"]
    store.close()
    full, brief = state_saving(run.saving), describe_saving(run.saving)
    assert full == "saved $0.0300, 33 % of a bill of $0.0900; 20,000 of 58,000 tokens (34 %)"
    assert brief == "saved $0.0300 (33 %)"
    assert full in run.sentences()
    assert f"In the last 7 days, respool {full} in 3 requests." in told("stats", path)
    assert f"In all     {brief}\n" in told("status", path)
    assert told("statusline", path).startswith(f"respool {brief} ")
    assert overview.stated == brief
    figures = overview.saving
    assert figures == pytest.approx(json.loads(told("stats", path, "--json"))["total"])
    assert figures == pytest.approx(json.loads(told("status", path, "--json"))["saved"]["all"])
    assert figures["tokens_saved"] == sum(one["saved"] for one in listed) == conversation["saved"]
    assert figures["saved_usd"] == pytest.approx(
        conversation["cost_before"] - conversation["cost_after"]
    )


def told(command: str, path: Path, *options: str) -> str:
    given: tuple[Any, ...] = (command, "--store", str(path), *options)
    if command == "status":
        given = (*given, "--url", "http://127.0.0.1:9")
    result = CliRunner().invoke(main, given, input="{}")
    assert result.exit_code == 0, result.output
    return result.output
