"""Figures on owners held out: kinds of sessions, prices of cached tokens, weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.held_out import (
    AGENTED,
    LONG,
    LONG_REQUESTS,
    PAUSED,
    PLAIN,
    Task,
    kind_summary,
    kinds_of,
    measure,
    weights_for,
)
from bench.passes import recording_of
from respool.replay.totals import count_sub_agents
from respool.sessions.session import RecordedRequest, RecordedSession
from tests.replay.support import call, cuts_in, result, text, user

HOUR = 3_600.0
TEXT = "a line of a result that no later call will ever name again\n" * 60


def session(turns: int, *, pauses: int = 0, tools: Sequence[str] = ()) -> RecordedSession:
    """A session with so many pauses of more than an hour, whose first calls are of these tools."""
    messages: list[Any] = [user(text("go on"))]
    for turn in range(turns - 1):
        tool = tools[turn] if turn < len(tools) else "Read"
        messages += [call(f"c{turn}", tool, n=turn), user(result(f"c{turn}", f"{turn} {TEXT}"))]
    times = [10.0 * at + 2 * HOUR * min(at, pauses) for at in range(turns)]
    cuts = zip(cuts_in("anthropic", messages), times, strict=True)
    sent = tuple(RecordedRequest(cut, time) for cut, time in cuts)
    return RecordedSession(
        id="s", agent="claude-code", format="anthropic", messages=messages, requests=sent
    )


@pytest.mark.parametrize(
    ("made", "recorded_agents", "kinds"),
    [
        (session(LONG_REQUESTS - 1, pauses=2, tools=["Task"] * 2), 2, (PLAIN,)),
        (session(LONG_REQUESTS), 0, (LONG,)),
        (session(9, tools=["Task", "Agent", "Task"]), 0, (AGENTED,)),
        (session(9), 3, (AGENTED,)),
        (session(9, pauses=3), 0, (PAUSED,)),
        (session(LONG_REQUESTS, pauses=3, tools=["Task"] * 3), 0, (LONG, AGENTED, PAUSED)),
    ],
)
def test_a_session_is_of_every_kind_that_it_reaches(
    made: RecordedSession, recorded_agents: int, kinds: tuple[str, ...]
):
    assert kinds_of(recording_of(made, real=False), recorded_agents) == kinds


def test_sub_agents_count_for_their_whole_conversation():
    main = session(2)
    others = [replace(main, id=f"a{n}", parent="s") for n in range(2)]
    nested = replace(main, id="b", parent="a1")
    alone = replace(main, id="t")
    assert count_sub_agents([main, *others, nested, alone]) == [3, 3, 3, 3, 0]


def test_prices_and_policies_are_rows_of_their_own():
    policies: dict[str, dict[str, Any] | None] = {"safe": {}, "floor": None}
    path = Path("claude-code__someone+thing.jsonl.gz")
    task = Task(path, session(12, pauses=3), policies, None, reads=(0.1, 0.025))
    rows = measure(task)
    named = {row.policy: row for row in rows}
    assert list(named) == ["safe read 0.1", "floor read 0.1", "safe read 0.025", "floor read 0.025"]
    assert named["safe read 0.025"].base < named["safe read 0.1"].base
    floor = named["floor read 0.1"]
    assert floor.all_in == floor.bill < named["safe read 0.1"].bill  # nothing is needed again
    assert {row.kinds for row in rows} == {(PAUSED,)}
    alone = measure(replace(task, reads=()))
    assert [row.policy for row in alone] == ["safe", "floor"]
    assert alone[0].base == named["safe read 0.1"].base
    first, *others = kind_summary(alone)
    assert (first, len(others)) == (f"{PAUSED}:", 2)


def test_one_file_of_weights_is_for_all(tmp_path: Path):
    file = tmp_path / "weights.toml"
    file.write_text("", "utf-8")
    assert weights_for("someone", file) == file
    (tmp_path / "owners.json").write_text('{"someone": "fold-1.toml"}', "utf-8")
    assert weights_for("someone", tmp_path) == tmp_path / "fold-1.toml"
    assert weights_for("another", tmp_path) == tmp_path / "fit.toml"
    assert weights_for("someone", None) is None
