"""Loops in the replay: count, cost, and the request of the first advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from respool.cli import main
from respool.cli.replay_screen import show_replay
from respool.replay.cost_breakdown import block_charges, session_loops, total_loops
from respool.replay.page import render_page
from respool.replay.result import LoopCost, LoopTotals
from tests.cli.test_loops_command import transcript
from tests.loops.support import FAILED, LOOM, Step, edit, read, request_of, run
from tests.replay.results import sample
from tests.replay.support import recording_of
from tests.support.formats import FIELD, FORMATS

STEPS: list[Step] = [read(), edit("weft"), *[read(result=LOOM * 9)] * 4, run("make", FAILED)]


def recorded(format: str, steps: list[Step]) -> Any:
    return recording_of(format, request_of(format, steps)[FIELD[format]], head=500)


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_circle_cost(format: str) -> None:
    recording = recorded(format, STEPS)
    sent, paid = block_charges(recording)
    (one,) = session_loops(recording, paid)
    assert (one.kind, one.what, one.calls, one.again) == ("repeat", "Read (loom.py)", 4, 3)
    assert (one.advised_after, one.level) == (3, "advise")
    blocks = [(row, block) for row in recording.rows for block in row.blocks]
    wasted = [
        at
        for at, (_, block) in enumerate(blocks)
        if block.call_id in {"call_3_0", "call_4_0", "call_5_0"}
    ]
    assert len(wasted) == 6
    assert one.tokens == sum(blocks[at][1].tokens for at in wasted)
    expected = sum(blocks[at][1].tokens * paid[at + 1] for at in wasted)
    assert one.cost == pytest.approx(expected, abs=0.06)
    assert one.request == 5  # the fifth result is the third that is the same
    assert sent[wasted[0] + 1] > 1


def test_a_session_without_circles_has_none() -> None:
    recording = recorded("anthropic", [read(), edit("weft"), read()])
    assert session_loops(recording, block_charges(recording)[1]) == ()


LOOP = LoopCost(
    kind="repeat",
    what="Read (a.py)",
    calls=5,
    again=4,
    tokens=1_200,
    cost=450.0,
    advised_after=3,
    request=7,
    level="insist",
    message="Read (a.py) was called 5 times.",
)


def test_all_together() -> None:
    replay = sample(4)
    some = [replace(replay.sessions[0], loops=(LOOP, LOOP)), *replay.sessions[1:]]
    assert total_loops(some) == LoopTotals(
        count=2, sessions=1, calls=10, again=8, tokens=2_400, cost=900.0, advised_after=6
    )
    assert total_loops(replay.sessions) == LoopTotals()


def test_the_screen_says_it_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    replay = sample(4)
    show_replay(replay)
    assert "circle" not in capsys.readouterr().out
    bill = replay.totals[0].bill.cost
    found = LoopTotals(
        count=2, sessions=1, calls=10, again=8, tokens=2_400, cost=bill / 50, advised_after=6
    )
    show_replay(replace(replay, loops=found))
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "Agents ran 2 loops in 1 session: 8 calls brought nothing new, 2,400 tokens, "
        "2.00 % of the bill. The detector would have spoken after 3.0 of 5.0 calls on average."
    ) in said


def test_the_page_holds_them() -> None:
    replay = sample(4)
    sessions = tuple(replace(one, loops=(LOOP,) * 30) for one in replay.sessions)
    whole = render_page(replace(replay, sessions=sessions, loops=total_loops(sessions)))
    text = whole.partition('type="application/json" id="data">')[2].partition("</script>")[0]
    data = json.loads(text)
    assert data["loops"]["count"] == 120
    assert {len(one["loops"]) for one in data["sessions"]} == {12}
    assert {one["loop_count"] for one in data["sessions"]} == {30}


def test_from_a_transcript_to_json(tmp_path: Path) -> None:
    file = transcript(tmp_path / "session.jsonl", STEPS)
    result = CliRunner().invoke(main, ["replay", "--json", "--policy", "none", str(file)])
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["loops"]["count"] == 1
    assert told["sessions"][0]["loops"][0]["what"] == "Read (loom.py)"
    assert told["loops"]["cost"] == told["sessions"][0]["loops"][0]["cost"] > 0
