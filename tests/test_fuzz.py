"""The fuzz catches a planted fault of each judged property; and it finds none itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import respool
from respool import Policy
from respool.engine import Compaction
from tests import fuzz
from tests.laws.sessions import long_session
from tests.laws.subject import EAGER

REQUEST = long_session("anthropic", 6)
CASE: fuzz.Case = ("anthropic", "eager", REQUEST)
GROWING: list[fuzz.Case] = [
    ("anthropic", "eager", {**REQUEST, "messages": REQUEST["messages"][:cut]})
    for cut in (len(REQUEST["messages"]) - 2, len(REQUEST["messages"]))
]

Change = Callable[[Compaction[Any]], Compaction[Any]]


def planted(change: Change, policy: Policy = EAGER) -> Any:
    """The real compactor with a fault."""

    def run(request: Any, **given: Any) -> Compaction[Any]:
        return change(respool.compact(request, **given))

    return fuzz.run("anthropic", policy, run)


def with_messages(out: Compaction[Any], messages: list[Any]) -> Compaction[Any]:
    return replace(out, request={**out.request, "messages": messages})


def without_originals(out: Compaction[Any]) -> Compaction[Any]:
    return replace(out, originals={})


def without_a_result(out: Compaction[Any]) -> Compaction[Any]:
    return with_messages(out, [*out.request["messages"][:2], *out.request["messages"][3:]])


def with_an_early_change(out: Compaction[Any]) -> Compaction[Any]:
    first = {"role": "user", "content": f"{len(out.request['messages'])} messages"}
    return with_messages(out, [first, *out.request["messages"]])


def with_a_longer_edit(out: Compaction[Any]) -> Compaction[Any]:
    edits = tuple(replace(edit, saved=-3) for edit in out.report.edits)
    return replace(out, report=replace(out.report, edits=edits))


def failing(out: Compaction[Any]) -> Compaction[Any]:
    raise KeyError("planted")


def kinds(change: Change, policy: Policy = EAGER) -> set[str]:
    return {kind for kind, _, _ in fuzz.judged(GROWING, True, planted(change, policy))}


def test_the_real_one_has_no_failure() -> None:
    assert kinds(lambda out: out) | kinds(lambda out: out, Policy()) == set()
    assert fuzz.digest(CASE) == fuzz.digest(CASE)


@pytest.mark.parametrize(
    ("change", "policy", "kind"),
    [
        (without_originals, EAGER, "vanished"),
        (without_a_result, EAGER, "invalid"),
        (with_an_early_change, Policy(), "unstable"),  # between epochs
        (with_a_longer_edit, EAGER, "longer"),
        (failing, EAGER, "error"),
    ],
)
def test_a_planted_fault_is_caught(change: Change, policy: Policy, kind: str) -> None:
    assert kind in kinds(change, policy)


SEEDED = """
import json, sys, respool
from msgspec.structs import replace
from tests import fuzz

def by_hash(body, **given):
    out = respool.compact(body, **given)
    return replace(out, request=out.request + b" " * (hash("a word") % 64))

case = tuple(json.loads(sys.stdin.read()))
print(fuzz.digest(case), fuzz.digest(case, by_hash))
"""


def test_bytes_that_depend_on_the_hash_seed_are_caught() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", SEEDED],
            input=json.dumps(CASE).encode(),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": one},
            cwd=fuzz.ROOT,
            check=True,
        ).stdout.split()
        for one in fuzz.HASH_SEEDS
    ]
    assert said[0][0] == said[1][0], "the real one says the same"
    assert said[0][1] != said[1][1], "the planted one does not"


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = fuzz.State(file)
    for number in (0, 1, 3):
        state.add(number, 10, [("vanished", f"{number} words", CASE)])
    again = fuzz.State(file)
    assert (again.ranges, again.cases) == ([[0, 1], [3, 3]], 30)
    assert [number for number in range(5) if not again.is_done(number)] == [2, 4]
    assert [kind[3] for kind in again.failures.values()] == [3], "one kind, three times"


@pytest.mark.slow
def test_a_few_thousand_cases(tmp_path: Path) -> None:
    state = fuzz.State(tmp_path / "state.json")
    fuzz.fuzz(3_000, state)
    assert state.cases >= 3_000
    assert state.failures == {}
