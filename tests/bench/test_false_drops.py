"""False drops: which needs count, what selections keep, and how wide intervals are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bench.false_drops import (
    SELECTIONS,
    Line,
    Moment,
    best_lines,
    bootstrap_ratio,
    moments_of,
    newest_lines,
    smallest_lines,
)
from bench.peers import PEERS, Peer, PeerUnavailable, chat_of
from respool.replay.policies import MaskingSender
from tests.replay.support import recording_of
from tests.support.formats import FIELD, Exchange, request

FILLER = "".join(f"    nothing_of_use_{n} = compute_{n}(left, right)\n" for n in range(40))


def step(n: int, text: str, command: str) -> list[Exchange]:
    return [Exchange(text, id=f"c{n}", args={"command": command})]


def session(format: str = "anthropic") -> Any:
    """An old result defines a name that a late call needs; another name stands in a call too."""
    steps = [
        step(0, f"{FILLER}def needed_function_42(): ...\n{FILLER}", "cat one.py"),
        step(1, FILLER.replace("nothing", "also_nothing"), "cat two.py repeated_name_7"),
        step(2, f"repeated_name_7 = 1\n{FILLER}", "cat three.py"),
        *(step(n, "ok", f"true {n}") for n in range(3, 12)),
        step(12, "ok", "grep needed_function_42 repeated_name_7"),
        *(step(n, "ok", f"true {n}") for n in range(13, 16)),
    ]
    return recording_of(format, request(format, "go", *steps)[FIELD[format]])


def moment(format: str = "anthropic") -> Moment:
    recording = session(format)
    return next(iter(moments_of(recording, MaskingSender(recording, 0).results)))


@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
def test_needs_that_only_old_results_hold_count(format: str):
    found = moment(format)
    needs = [found.recording.finder.needs[need] for need in found.needs]
    assert "needed_function_42" in needs
    assert "repeated_name_7" not in needs  # a call says it too
    assert set(found.old) == {0, 1, 2}  # the others are short
    assert found.size == sum(map(len, found.old.values()))


def test_a_need_is_dropped_unless_a_kept_text_has_it():
    found = moment()
    assert found.dropped([]) == found.total > 0
    assert found.dropped(found.old.values()) == 0
    assert found.dropped([FILLER]) == found.total
    assert found.dropped(["so: needed_function_42"]) < found.total


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_every_selection_keeps_to_its_size(name: str, share: float):
    found = moment()
    size = round(share * found.size)
    texts = SELECTIONS[name](found, size)
    assert 0 < sum(map(len, texts)) <= size
    lines = {line for text in found.old.values() for line in text.split("\n")}
    assert {line for text in texts for line in text.split("\n")} <= lines


def test_the_oracle_drops_nothing_that_fits():
    found = moment()
    size = round(0.1 * found.size)
    assert found.dropped(SELECTIONS["oracle"](found, size)) == 0
    assert found.dropped(SELECTIONS["newest kept"](found, size)) == found.total


def test_placebos_choose_by_age_and_by_size():
    new, old = [Line(1, n, "new " * 9) for n in range(5)], [Line(0, 0, "old")]
    size = sum(line.size for line in new)
    assert "old" not in "".join(newest_lines([*new, *old], size))
    assert "old" in "".join(smallest_lines([*new, *old], size))
    assert best_lines([Line(0, 0, "much", 5.0), Line(0, 1, "more", 9.0)], 5) == ["more"]


def test_intervals_hold_the_truth_as_often_as_they_say():
    covered = 0
    for seed in range(150):
        chance = random.Random(seed)
        parts = [(chance.gauss(10, 3), 100.0) for _ in range(25)]
        _, low, high = bootstrap_ratio(parts, resamples=400)
        covered += low <= 0.1 <= high
    assert 0.88 <= covered / 150 <= 0.99


def test_intervals_are_the_same_every_time_and_wider_for_fewer():
    parts = [(float(n % 7), 10.0) for n in range(60)]
    assert bootstrap_ratio(parts) == bootstrap_ratio(parts)
    (_, low, high), (_, few_low, few_high) = bootstrap_ratio(parts), bootstrap_ratio(parts[:9])
    assert few_high - few_low > high - low
    assert bootstrap_ratio([]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
def test_peers_see_calls_and_results_in_pairs(format: str):
    found = moment(format)
    chat = chat_of(found, MaskingSender(found.recording, 0).results)
    asked: list[str] = []
    for message in chat:
        if message["role"] == "assistant":
            assert asked == []  # all were answered
            asked = [one["id"] for one in message["tool_calls"]]
        elif message["role"] == "tool":
            asked.remove(message["tool_call_id"])
    texts = {one["tool_call_id"]: one["content"] for one in chat if one["role"] == "tool"}
    assert texts["call_0"] == found.old[0]


def test_a_peer_that_is_not_installed_says_so(tmp_path: Any):
    with pytest.raises(PeerUnavailable, match=r"not installed in \.venv/peers/headroom"):
        Peer(PEERS[0], tmp_path)
