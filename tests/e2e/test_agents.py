"""Real agents through `respool run`, in sessions long enough to be compacted.

What the upstream got is judged: valid, stable between epochs, never too many marks.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.markers import find_marker
from tests.e2e.agents import AT_MAKER, DRIVEN, TURNS, Came, drive, missing, shown
from tests.support.client_requests import breakpoints, leaves, without_breakpoints
from tests.support.formats import FIELD
from tests.transcripts.agent import write_settings
from tests.transcripts.upstream import Received

pytestmark = pytest.mark.e2e

EARLY = ("--set", "eager=on", "--set", "reevaluate_tokens=8000", "--set", "reevaluate_ratio=0")
LONGER = 60  # calls, in which some 200,000 tokens are read
BUDGET = 60_000
clients = pytest.mark.parametrize("name", [name for name in DRIVEN if DRIVEN[name].shell])
talkers = pytest.mark.parametrize("name", [name for name in DRIVEN if not DRIVEN[name].shell])


def driven(name: str, folder: Path, *options: str, turns: int = TURNS) -> Came:
    if reason := missing(name):
        pytest.skip(reason)
    came = drive(name, folder, *options, turns=turns)
    assert came.status == 0, came.said
    assert len(came.main) == turns + 1, came.said
    assert "Gauge 7 is the highest." in came.out
    print(f"\n{name}: {shown(came)}\n{came.said}")
    return came


def holds(came: Came, format: Any) -> None:
    """Every request is valid, and has four marks at the most."""
    for taken in (*came.main, *came.others):
        assert respool.check(taken.body, format=format) == []
        assert len([path for path in breakpoints(taken.body) if path[-1] == "type"]) <= 4
    assert {record.fallback for record in came.records} == {""}
    assert {record.status for record in came.records} == {200}


def extends(came: Came, format: str) -> int:
    """Between epochs each history begins with all of the one before; how often that was so."""
    field, steady = FIELD[format], 0
    histories = [_spelled(without_breakpoints(taken.body[field])) for taken in came.main]
    for at in range(1, len(histories)):
        if came.records[at].epochs == came.records[at - 1].epochs:
            assert histories[at][: len(histories[at - 1])] == histories[at - 1]
            steady += 1
    return steady


def _spelled(history: list[Any]) -> list[str]:
    """Each message as the bytes it came with would read, its order of keys included."""
    return [json.dumps(message, ensure_ascii=False) for message in history]


def markers(body: dict[str, Any]) -> int:
    """Number of respool's markers in a request."""
    return sum(isinstance(leaf, str) and find_marker(leaf) is not None for _, leaf in leaves(body))


@clients
def test_a_long_session_is_compacted_and_ends_well(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path, *EARLY)
    holds(came, format)
    assert came.records[-1].epochs >= 3
    assert markers(came.main[-1].body) >= 5
    assert came.records[-1].tokens_after < 0.7 * came.records[-1].tokens_before
    assert extends(came, format) >= 5
    assert f"respool: {len(came.main) + len(came.others)} requests" in came.said
    assert re.search(r"saved .* of [\d,]+ tokens \(\d+ %", came.said)


@clients
def test_by_default_a_session_ends_well_and_is_stable(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path)
    holds(came, format)
    assert extends(came, format) >= TURNS - came.records[-1].epochs


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_longer_session_stays_within_a_budget(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path, "--set", f"budget={BUDGET}", turns=LONGER)
    holds(came, format)
    assert came.records[-1].tokens_before > 2 * BUDGET
    assert all(record.tokens_after <= BUDGET for record in came.records)
    assert extends(came, format) >= LONGER - 15
    assert sum(record.cost_after or 0 for record in came.records) < sum(
        record.cost_before or 0 for record in came.records
    )


def test_to_observe_is_to_change_nothing(tmp_path: Path):
    came = driven("qwen", tmp_path, "--observe", *EARLY)
    assert markers(came.main[-1].body) == 0
    assert {record.mode for record in came.records} == {"observed"}
    assert came.records[-1].tokens_after < came.records[-1].tokens_before
    assert re.search(r"would have saved .* tokens \(\d+ %", came.said)


# What no two sessions have in common.
OWN = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # sessions, turns, messages
    r"|\b[0-9a-f]{64}\b"  # the device
    r"|\bcch=[0-9a-f]{5}\b"
    r"|\bBash=\d+|Chunk ID: \w+|Wall time: [\d.]+|\b\d{13}\b"
)
HOP = {"connection", "content-length"}
# Only its maker's own host, and no setting, brings this one.
MAKERS_OWN = "mid-conversation-system-clear-at-2026-08-21,"


def alike(value: Any) -> Any:
    """A JSON value without what no two sessions have in common."""
    if isinstance(value, dict):
        return {key: alike(inner) for key, inner in value.items() if key != "create_time"}
    if isinstance(value, list):
        return [alike(inner) for inner in value]
    return OWN.sub("…", value) if isinstance(value, str) else value


def headers(taken: Received) -> dict[str, str]:
    sent = {name: text for name, text in taken.headers.items() if name not in HOP}
    return alike({name: text.replace(MAKERS_OWN, "") for name, text in sent.items()})


def result_texts(path: tuple[Any, ...], field: str) -> bool:
    """Whether a leaf of a request is, or is in, what a tool said."""
    return path[0] == field and ("output" in path[2:3] or path[-1] in ("content", "text"))


@pytest.mark.parametrize("options", [("--observe",), ("--no-mcp",)], ids=["observed", "compacted"])
@pytest.mark.parametrize("name", AT_MAKER)
def test_before_its_makers_host_an_agent_does_as_without_respool(
    name: str, options: tuple[str, ...], tmp_path: Path
):
    """Both sessions believe that they reach the maker: by TLS, through a proxy of a company's."""
    if reason := missing(name):
        pytest.skip(reason)
    one, folder = AT_MAKER[name], tmp_path / "session"
    alone = drive(one, folder, through=False)
    shutil.rmtree(folder)  # paths are in what is sent
    came = drive(one, folder, *options)
    assert (alone.status, came.status) == (0, 0), came.said
    assert len(alone.main) == len(came.main) == TURNS + 1
    field, changed = FIELD[one.format], 0
    for before, after in zip(alone.main, came.main, strict=True):
        assert before.path == after.path
        assert headers(before) == headers(after)
        assert breakpoints(before.body) == breakpoints(after.body)
        assert list(before.body) == list(after.body)
        left, right = dict(leaves(alike(before.body))), dict(leaves(alike(after.body)))
        assert left.keys() == right.keys()
        differing = [path for path in left if left[path] != right[path]]
        assert all(result_texts(path, field) for path in differing), differing
        changed += len(differing)
    assert bool(changed) == ("--observe" not in options)


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_agent_has_the_tool_that_gets_originals_back(name: str, tmp_path: Path):
    came = driven(name, tmp_path)
    assert any("respool_expand" in json.dumps(taken.body) for taken in came.main)
    assert not any("respool_history" in json.dumps(taken.body) for taken in came.main)


@pytest.mark.parametrize("place", ["home/.claude/settings.json", "work/.claude/settings.json"])
def test_claude_codes_own_settings_are_overridden_or_said_to_hold(place: str, tmp_path: Path):
    """In either file it goes where that says; from the user's own it can be moved."""
    if reason := missing("claude"):
        pytest.skip(reason)

    def set_up(home: Path, url: str) -> None:
        write_settings(home.parent / place, {"env": {"ANTHROPIC_BASE_URL": url}})

    kept = DRIVEN["claude"].variables("")
    kept.pop("ANTHROPIC_BASE_URL")
    one = replace(DRIVEN["claude"], variables=lambda _: kept, set_up=set_up)
    came = drive(one, tmp_path, through=True)
    assert (came.status, len(came.main)) == (0, TURNS + 1), came.said
    if place.startswith("home"):
        assert len(came.records) == TURNS + 1
        assert "is asked to go through" in came.said
    else:
        assert came.records == []
        assert f"is started as it is ({tmp_path / place} sets ANTHROPIC_BASE_URL" in came.said


@talkers
def test_an_agent_without_tools_comes_through_as_it_is(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path / "through", *EARLY)
    holds(came, format)
    alone = drive(name, tmp_path / "alone", through=False)
    assert [taken.body for taken in came.main] == [taken.body for taken in alone.main]
    assert "Gauge 7 is the highest." in alone.out
    assert {record.edited for record in came.records} == {0}
    assert all(record.cost_before == record.cost_after for record in came.records)
    assert "(0 % less)" in came.said
