"""What holds for all presets that reproduce what respool comes from; each has a file of its own."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool import Facts, Policy
from respool.cli import main
from respool.engine import Compaction, compacted, fold_request
from respool.folding.evaluating import chosen_passes
from respool.folding.memo import Memo
from respool.marker import reference
from respool.policy import PRESETS
from respool.replay.policies import told
from tests.busy_sessions import bash, done, lines, read, requests_of, sessions, write
from tests.formats import FIELD, FORMATS, request
from tests.laws import laws
from tests.laws.sessions import long_session
from tests.laws.subject import IDLE, SMALL_SOURCES, Compact
from tests.replay_files import claude_code
from tests.source_sessions import LONG, TEXT, A

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "sources.md").read_text("utf-8")
SOURCES = ("codetether", "clark", "rfc013", "pi-dcp")
formats = pytest.mark.parametrize("format", FORMATS)
EVERYTHING = Policy(
    passes=("default", "repeated_calls", "squeeze_prose"),
    cap_chars=500, eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0,
)  # fmt: skip
sources = pytest.mark.parametrize("preset", SOURCES)


def under(usual: Policy, format: str) -> Compact:
    """What the laws take for a compactor."""

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        chosen = chosen_passes(policy or usual)
        folded = fold_request(request, format, policy or usual, Facts(), memo, passes=chosen)
        return compacted(folded, request)

    return run


CASES: dict[str, Policy] = {
    **SMALL_SOURCES,
    # What they are made of, with all that respool can do beside it.
    "messages": EVERYTHING.replace(keep_messages=3, keep_reasoning_messages=1, min_chars=0),
    "calls": EVERYTHING.replace(keep_calls=2, fold_over_chars=1_000),
}


# Busy sessions, and ones in which calls are made again and say the same again.
again = st.builds(
    lambda format, kinds: (format, request(format, "Mend the loom.", *_steps(kinds))),
    st.sampled_from(FORMATS),
    st.lists(st.sampled_from(("run", "run", "same", "long", "write", "word")), min_size=4),
)


def _steps(kinds: list[str]) -> Iterator[Any]:
    for number, kind in enumerate((*kinds, "end")):
        made = {
            "run": [bash(LONG, TEXT, f"c{number}")],
            "same": [bash(f"ls {number}", TEXT, f"c{number}")],
            "long": [bash(f"make {number}", TEXT * 2, f"c{number}")],
            "write": [write(A, TEXT, f"c{number}")],
            "word": "Go on.",
        }
        yield made.get(kind, done())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("histories", [sessions, again], ids=["busy", "again"])
def test_every_law_holds(case: str, histories: st.SearchStrategy[tuple[str, dict[str, Any]]]):
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories)
    def run(session: tuple[str, dict[str, Any]]) -> None:
        hold_the_laws(case, *session)

    run()


def hold_the_laws(case: str, format: str, body: dict[str, Any]) -> None:
    compact = under(CASES[case], format)
    laws.valid(compact, format, body, whole=True)
    laws.small(compact, format, body)
    laws.reversible(compact, format, body)
    laws.honest(compact, format, body)
    laws.faithful(compact, format, body)
    for one in CASES[case].passes or ():  # of each: what one has cut, another may find to do
        if case in SOURCES:
            laws.idempotent(under(CASES[case].replace(passes=(one,)), format), format, body)
    laws.shapes_nothing_twice(compact, format, body)
    sent = requests_of(body, FIELD[format])
    laws.stable(compact, format, sent)
    laws.reproducible(compact, format, sent)


@sources
@formats
def test_one_more_turn_costs_one_more_turn(preset: str, format: str):
    compact = under(Policy.preset(preset), format)
    laws.linear(
        compact, lambda count: long_session(format, count, 600), policy=Policy.preset(preset)
    )


@sources
@formats
def test_with_nothing_to_do_the_output_is_the_input(preset: str, format: str):
    body = request(format, "go", [bash("ls", "a", "1")], done())
    assert respool.compact(body, format=format, policy=Policy.preset(preset)).request is body
    assert respool.compact(body, format=format, policy=IDLE).request is body


@sources
def test_presets_say_where_their_values_come_from(preset: str):
    origins = Policy.preset(preset).origins()
    assert {origins[name] for name in PRESETS[preset]} == {f"preset {preset}"}


@pytest.mark.parametrize(
    ("preset", "cuts"),
    [("codetether", {"over_cap"}), ("clark", set()), ("rfc013", {"folded"}), ("pi-dcp", set())],
)
def test_the_replay_knows_them_by_name(preset: str, cuts: set[str], tmp_path: Path):
    file = claude_code(tmp_path / "one.jsonl", 30, result=5_000)
    asked = ["replay", str(file), "--policy", preset, "--json", "--quiet", "--jobs", "1"]
    answer = CliRunner().invoke(main, asked)
    assert answer.exit_code == 0
    (row,) = [one for one in json.loads(answer.stdout)["totals"] if one["policy"] == preset]
    assert {cut["reason"] for cut in row["cuts"]} == cuts
    assert row["invalid"] == 0
    assert told(preset) != told("lean"), "it is told apart from settings without a name"


@sources
def test_the_page_says_what_a_preset_sets(preset: str):
    (said,) = re.findall(r"Sets: (.*)", section_of(preset))
    sets = tomllib.loads("\n".join(re.findall(r"`(\w+ = [^`]+)`", said)))
    sets["passes"] = tuple(sets["passes"])
    assert sets | {"eager": True, "reevaluate_tokens": 1, "reevaluate_ratio": 0.0, "line_number_interval": 1} == PRESETS[preset]


@sources
def test_the_page_names_tests_that_there_are(preset: str):
    own = f"test_source_{preset.replace('-', '_')}.py"
    named = re.findall(r"`(test_\w+)`(?: in `(test_\w+\.py)`)?", section_of(preset))
    assert len(named) >= 10
    for name, file in named:
        assert f"def {name}(" in (HERE / (file or own)).read_text("utf-8"), name


def section_of(preset: str) -> str:
    return PAGE.partition(f"\n## {preset}:")[2].partition("\n## ")[0]


SHORT = "one line, and\nanother that says\n" * 5  # 155 characters
FAILED = "Exit code 1\n" + SHORT + "E   AssertionError: weave(3) is not 4\n1 failed"
# By pass: a session in which it does something, and one that is too short for its own limit.
LIMITS: dict[str, tuple[list[Any], list[Any] | None]] = {
    "repeated_calls": ([[bash(LONG, "a", "1")], [bash(LONG, "b", "2")]], None),
    "identical_results": (
        [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")]],
        [[bash("ls a", SHORT, "1")], [bash("ls b", SHORT, "2")]],
    ),
    "covered_reads": (
        [[read(A, lines(3, 14), "1", offset=3, limit=12)], [read(A, lines(1, 40), "2")]],
        [[read(A, lines(3, 6), "1", offset=3, limit=4)], [read(A, lines(1, 40), "2")]],
    ),
    "superseded_writes": (
        [[write(A, TEXT, "1")], [write(A, TEXT, "2")]],
        [[write(A, "a", "1")], [write(A, "b", "2")]],
    ),
    "resolved_errors": (
        [[bash("pytest", FAILED + TEXT, "1", error=True)], [bash("pytest", "3 passed", "2")]],
        [[bash("pytest", FAILED, "1", error=True)], [bash("pytest", "3 passed", "2")]],
    ),
    "stub_results": ([[read(A, TEXT, "1")]], [[read(A, lines(1, 8), "1")]]),
}


@formats
@pytest.mark.parametrize("name", LIMITS)
def test_least_stands_in_place_of_each_passs_own_limit(format: str, name: str):
    def cuts(steps: list[Any], least: int | None) -> bool:
        policy = EVERYTHING.replace(passes=(name,), min_chars=least, cap_chars=None)
        body = request(format, "go", *steps, done())
        return bool(respool.compact(body, format=format, policy=policy, memo=None).report.edits)

    long, short = LIMITS[name]
    assert (cuts(long, None), cuts(long, 100_000)) == (True, False)
    if short is not None:
        assert (cuts(short, None), cuts(short, 0)) == (False, True)


@formats
@pytest.mark.parametrize("keep", ["keep_messages", "keep_calls"])
def test_what_is_kept_is_kept_from_every_pass(format: str, keep: str):
    """With all that respool can do: what passes would do at arrival, they do when it leaves."""
    steps = [[bash(LONG, TEXT * 2 + "   \n" * 9, f"c{n}")] for n in range(6)]
    body = request(format, "go", *steps)
    policy = EVERYTHING.replace(**{keep: 6 if keep == "keep_messages" else 3})
    out = respool.compact(body, format=format, policy=policy, memo=None)
    assert out.request[FIELD[format]][-6:] == body[FIELD[format]][-6:]
    assert out.request[FIELD[format]][:-6] != body[FIELD[format]][:-6]
    assert all(reference(text) == ref for ref, text in out.originals.items())
