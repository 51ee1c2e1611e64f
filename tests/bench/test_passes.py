"""Pass benchmark: cuts by kind and age, and which of them were needed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bench.cut_recall import (
    ALL,
    REST,
    Cut,
    Watched,
    age_name,
    merged,
    needed_markdown,
    needed_row,
    needed_rows,
    tally_of,
    total,
)
from bench.passes import Figures, figures
from respool.policy import Policy
from respool.replay.policies import ProjectionSender
from respool.replay.recording import Recording
from tests.replay.support import call, recording_of, result, text, user

EAGER = {"reevaluate_tokens": 1, "reevaluate_ratio": 0.0, "keep_exchanges": 1, "eager": True}
STUBS = Policy(passes=("stub_results",), **EAGER)
NEEDLE = "shuttle_77 = weave(warp=539)"


def code(word: str, extra: str = "") -> str:
    """A file as a read shows it."""
    lines = [f"def {word}_{n}(): return weave({n})" for n in range(1, 40)] + [extra]
    return "\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines, 1))


def session(*, kept: str = "") -> list[dict[str, Any]]:
    """Two files are read; much later a line of the first is edited. `kept` is said at the start."""
    ran = [
        one
        for n in range(4)
        for one in (call(f"r{n}", "Bash", command="true"), user(result(f"r{n}", "ok")))
    ]
    edited = {"file_path": "/w/loom.py", "old_string": NEEDLE, "new_string": "x"}
    return [
        user(text(f"Please mend the loom. {kept}")),
        call("a", file_path="/w/loom.py"),
        user(result("a", code("thread", NEEDLE))),
        call("b", file_path="/w/reed.py"),
        user(result("b", code("dent"))),
        *ran,
        call("e", "Edit", **edited),
        user(result("e", "Edited.")),
    ]


def watched(recording: Recording, policy: Policy) -> Watched:
    run = Watched(recording, ProjectionSender(recording, policy))
    for request in range(len(recording.cuts)):
        run.send(request)
    return run


def test_a_cut_is_needed_when_a_later_turn_uses_what_only_stood_there():
    run = watched(recording_of("anthropic", session()), STUBS)
    told = [(cut.kind, cut.age, cut.needed) for cut in run.cuts]
    # Each is cut when it has left the one recent exchange; the edit is made in answer to the
    # request in which the first file would have been sent for the sixth time.
    assert told == [("read code", 2, 5), ("read code", 2, None)]
    assert run.unplaced == 0


def test_what_stands_elsewhere_is_not_needed():
    run = watched(recording_of("anthropic", session(kept=f"It has {NEEDLE} and /w/loom.py")), STUBS)
    assert [cut.needed for cut in run.cuts] == [None, None]


def test_what_is_cut_before_it_is_sent_has_age_0():
    again = [call("again", file_path="/w/loom.py"), user(result("again", code("thread", NEEDLE)))]
    messages = [*session()[:3], *again, *session()[3:]]
    policy = Policy(passes=("identical_results",))
    run = watched(recording_of("anthropic", messages), policy)
    assert [(cut.kind, cut.age, cut.needed) for cut in run.cuts] == [("read code", 0, None)]


@pytest.mark.parametrize("name", ["stub_results", "cap_results", "trim_results", "stale_reads"])
def test_the_tokens_of_all_cuts_are_what_the_last_request_lacks(name: str):
    messages = [*session(), call("c", file_path="/w/loom.py"), user(result("c", code("heddle")))]
    for id in ("d", "f"):  # so that the second read has left the one recent exchange
        messages += [call(id, "Bash", command="true"), user(result(id, "ok"))]
    got = figures(recording_of("anthropic", messages), Policy(passes=(name,), **EAGER))
    assert got.cut_tokens == got.saved
    assert got.fired == (got.cuts > 0)
    assert got.fired == (name in ("stub_results", "stale_reads"))


def test_an_edit_in_place_of_another_of_its_reason_is_the_same_cut():
    """A history that is folded again and again counts every exchange once as dropped."""
    big = [
        one
        for n in range(12)
        for one in (
            call(f"c{n}", file_path=f"/w/{n}.py"),
            user(result(f"c{n}", code(f"warp{n}"))),
        )
    ]
    policy = Policy(passes=("fold_exchanges",), budget=2_000, **EAGER)
    recording = recording_of("anthropic", [user(text("Read all.")), *big])
    run, plain = watched(recording, policy), figures(recording, policy)
    assert plain.cut_tokens == plain.saved > 0
    dropped = [cut for cut in run.cuts if cut.kind.startswith("exchange: ")]
    assert 0 < len(dropped) <= 12


AGED = [(0, "0"), (1, "1–2"), (2, "1–2"), (3, "3–5"), (10, "6–10"), (11, "11–20"), (21, ">20")]


@pytest.mark.parametrize(("age", "name"), AGED)
def test_ages_have_columns(age: int, name: str):
    assert age_name(age) == name


CUTS = [
    Cut("stubbed", "read code", 4, 100, 100, needed=30),
    Cut("stubbed", "read code", 5, 50, 50),
    Cut("stubbed", "read code", 0, 7, 7, needed=0),
    Cut("folded", "run log", 12, -8, -8),
]


def test_a_tally_counts_needs_by_the_age_at_the_cut_and_at_the_need():
    tally = tally_of(CUTS)
    assert needed_row(tally, "read code") == [
        "read code",
        "3",
        "157",
        "2",
        "67 %",
        "1/1",
        "",
        "1/2",
        "",
        "",
        "",
        "1",
        "",
        "",
        "",
        "",
        "1",
    ]
    assert needed_row(tally, ALL)[:5] == ["all", "4", "149", "2", "50 %"]
    assert total(tally, "tokens", ALL, "11–20") == -8


def test_json_says_what_the_table_says():
    code, log, both = needed_rows(tally_of(CUTS))
    assert (code["kind"], code["cuts"], code["needed"], code["tokens"]) == ("read code", 3, 2, 157)
    assert code["needed by age"]["3–5"] == 1
    assert code["missed by age"][">20"] == 1
    assert (log["kind"], log["tokens"]) == ("run log", -8)
    assert both["cuts"] == code["cuts"] + log["cuts"]


def test_figures_are_added_below_zero_too():
    sum_of = Figures()
    for cut in (CUTS[3], CUTS[3], CUTS[0]):
        sum_of.add(Figures(sessions=1, tally=tally_of([cut])))
    assert (sum_of.sessions, sum_of.cuts, sum_of.cut_tokens) == (3, 3, 84)


def test_in_the_docs_rare_kinds_share_a_row():
    cuts = [Cut("stubbed", f"kind {n}", 3) for n in range(12) for _ in range(20 - n)]
    tally = tally_of(cuts)
    assert total(merged(tally), "cuts", REST) == sum(20 - n for n in range(7, 12))
    assert merged(tally).total() == tally.total()
    table = needed_markdown({"stub_results, taken": tally, "repeated_calls": Counter()})
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[1] for row in rows] == [*(f"kind {n}" for n in range(7)), REST, ALL]
    assert rows[0][0] == "| `stub_results`"
    assert rows[-1][7] == "0/174"
