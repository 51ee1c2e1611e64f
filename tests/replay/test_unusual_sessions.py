"""Unusual sessions: short ones, odd times, models or texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from respool.cli import main
from respool.pricing import Calibration, Usage
from respool.providers.registry import PROVIDERS
from respool.replay.policies import DEFAULT_POLICIES
from respool.replay.result import (
    CostBreakdown,
    CostShare,
    PolicyScore,
    PolicyTotal,
    Replay,
    ReplayBill,
    ReportedUsage,
    SessionResult,
    SkippedSource,
)
from respool.replay.runner import ReplayOptions, replay_session
from respool.replay.totals import sum_up
from respool.sessions.session import RecordedRequest, RecordedSession
from respool.wire.base import FORMATS
from tests.laws.sessions import long_session
from tests.replay.support import session_of
from tests.replay.transcripts import requests

EVERY = (*DEFAULT_POLICIES, "oracle", "mask-1", "clear-1k")


def played(session: RecordedSession) -> SessionResult:
    return replay_session(session, ReplayOptions(EVERY))


def long(format: Any, exchanges: int = 6, model: str | None = None) -> RecordedSession:
    return session_of(
        format, long_session(format, exchanges)[PROVIDERS[format].codec.history_field], model=model
    )


def of_all(*sessions: SessionResult) -> Any:
    return sum_up(sessions, (), (), counter="", policies=EVERY, version="")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [0, 1])
def test_a_session_of_hardly_any_requests(format: Any, count: int) -> None:
    session = long(format)
    result = played(replace(session, requests=session.requests[:count]))
    assert [len(score.points) for score in result.scores] == [count] * len(EVERY)
    assert all((score.bill.cost > 0) == (count > 0) for score in result.scores)
    totals = of_all(result).totals
    assert [total.bill_ratio for total in totals] == pytest.approx([1.0] * len(EVERY), abs=0.9)
    assert totals[0].lasts is None


def test_no_session_at_all_has_totals() -> None:
    nothing = of_all()
    assert [(one.bill_ratio, one.all_in_ratio, one.lost) for one in nothing.totals] == (
        [(1.0, 1.0, 0.0)] * len(EVERY)
    )


@pytest.mark.parametrize("format", FORMATS)
def test_times_that_run_backwards_expire_nothing(format: Any) -> None:
    session = long(format, model="claude-sonnet-4-5" if format == "anthropic" else None)
    back = tuple(replace(sent, time=-(sent.time or 0.0)) for sent in session.requests)
    forth, turned = played(session), played(replace(session, requests=back))
    assert [score.bill for score in forth.scores] == [score.bill for score in turned.scores]
    assert turned.started is not None
    assert turned.ended is not None
    assert turned.started < turned.ended


def test_a_model_that_changes_has_to_be_told_everything_anew() -> None:
    session = long("anthropic", 12, "claude-opus-4-8")
    session = replace(session, agent="claude-code")
    half = len(session.requests) // 2
    other = tuple(replace(sent, model="claude-sonnet-5") for sent in session.requests[half:])
    (same, switched) = (
        played(one).scores[0]
        for one in (session, replace(session, requests=(*session.requests[:half], *other)))
    )
    assert [point.read for point in switched.points[:half]] == [
        point.read for point in same.points[:half]
    ]
    assert (switched.points[half].read, same.points[half].read > 30_000) == (0, True)
    assert switched.points[half + 1].read > 30_000


def test_each_request_has_the_price_of_its_own_model() -> None:
    session = long("anthropic", 12, "claude-opus-4-5")
    usage = Usage(input=100, cache_read=900, output=50)
    requests = [replace(sent, usage=usage) for sent in session.requests]
    half = len(requests) // 2 - 1
    unlisted = 0.0  # and not another model's price
    prices = {"claude-opus-4-5": 5.0, "claude-haiku-4-5": 1.0, "some-model-of-ours": unlisted}
    for other, dollars in prices.items():
        mixed = [replace(sent, model=other) for sent in requests[:half]]
        result = played(replace(session, requests=(*mixed, *requests[half:])))
        costs = [point.cost for point in result.scores[0].points]
        money = (dollars * sum(costs[:half]) + 5.0 * sum(costs[half:])) / 1e6
        assert result.scores[0].bill.money == pytest.approx(money, rel=1e-3)
        assert result.recorded is not None
        assert result.recorded.replayed.money == pytest.approx(money, rel=1e-3)
        rest = len(requests) - half
        assert result.recorded.reported.money == pytest.approx(
            (100 + 0.1 * 900) * (dollars * half + 5.0 * rest) / 1e6
        )
        assert result.recorded.output_money == pytest.approx(
            5 * 50 * (dollars * half + 5.0 * rest) / 1e6
        )


def test_requests_until_the_window_is_full() -> None:
    session = long("anthropic", 20)
    sizes = [point.tokens for point in played(session).scores[0].points]
    window = sizes[9]
    result = replay_session(session, ReplayOptions(("none", "mask-1"), window=window))
    none, masked = result.scores
    assert none.full_at == 10  # the first that is larger, not the one that just fits
    assert masked.full_at is None or masked.full_at > 10
    totals = sum_up((result,), (), (), counter="", policies=("none", "mask-1"), version="").totals
    assert (totals[0].full, totals[0].lasts) == (1, 1.0)
    assert totals[1].lasts == pytest.approx((masked.full_at or 20) / 10, abs=0.11)


def test_captured_is_one_for_the_floor_and_nothing_without_it() -> None:
    result = played(long("openai-chat", 20))
    captured = {total.policy: total.captured for total in of_all(result).totals}
    assert (captured["none"], captured["floor"]) == (0.0, 1.0)
    alone = replay_session(long("openai-chat"), ReplayOptions(("none", "mask-1")))
    totals = sum_up((alone,), (), (), counter="", policies=("none", "mask-1"), version="").totals
    assert [total.captured for total in totals] == [None, None]


def test_lone_surrogates_are_written_as_json(tmp_path: Path) -> None:
    call = {
        "type": "tool_use",
        "id": "t1",
        "name": "Re\ud800ad",
        "input": {"path": "src/\udfff.py"},
    }
    messages: list[Any] = [
        {"role": "user", "content": "look at src/\ud800.py"},
        {"role": "assistant", "content": [call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "\udc00"}],
        },
    ]
    sent = (RecordedRequest(1, 0.0), RecordedRequest(3, 9.0, None, "claude-\ud800"))
    result = played(
        RecordedSession(
            id="s\ud800", agent="some-agent", format="anthropic", messages=messages, requests=sent
        )
    )
    assert len(result.scores[0].points) == 2
    bodies = [{"model": "claude-opus-4-8", "messages": messages[:cut]} for cut in (1, 3)]
    log = requests(tmp_path / "log.jsonl", bodies)
    got = CliRunner().invoke(
        main, ["replay", "--json", "--html", str(tmp_path / "p.html"), str(log)]
    )
    assert got.exit_code == 0
    assert json.loads(got.stdout)["requests"] == 2
    assert "</html>" in (tmp_path / "p.html").read_text("utf-8")


def test_every_field_of_the_json_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "replay-json.md").read_text("utf-8")
    listed = page.partition("## JSON")[2]
    values = (
        Replay,
        PolicyTotal,
        CostBreakdown,
        CostShare,
        Calibration,
        SessionResult,
        PolicyScore,
        ReportedUsage,
        ReplayBill,
        SkippedSource,
    )
    names = {name for value in values for name in value.__struct_fields__}
    names -= {"policy"}  # which each of a list of them has
    assert {
        name for name in names if f"`{name}`" not in listed and f"`sessions[].{name}`" not in listed
    } == set()
