"""The pass trim_results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, is_gap_line, reference
from respool.passes.trim_results import DEFAULT_KINDS, trim_results
from respool.policy import Policy
from tests.effort import examples
from tests.support.coding_sessions import bash, done, hold_the_laws, read
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
AGE = DEFAULT_KINDS["page"].min_age

BUILD = "\n".join(
    [
        "$ make release",
        *(f"cc -O2 -Wall -Iinclude -c src/part_{n}.c -o build/part_{n}.o" for n in range(60)),
        "src/part_60.c:57:5: error: expected ';' before 'return'",
        *(f"cc -O2 -Wall -Iinclude -c src/more_{n}.c -o build/more_{n}.o" for n in range(60)),
        "make: *** [Makefile:12: release] Error 1",
    ]
)
HITS = "".join(
    f"src/{file}.py:{line}:    weave(thread, {line})\n"
    for file in ("loom", "heddle", "warp")
    for line in range(1, 60)
)
FILE = "".join(
    f"{at * 10 + 1:6}→def weave_{at}(thread):\n"
    + "".join(f"{at * 10 + n:6}→    thread = turn(thread, {n})\n" for n in range(2, 11))
    for at in range(30)
)
ROWS = json.dumps([{"id": n, "name": f"thread {n}", "length": n * 7} for n in range(200)])
SEARCH: dict[str, Any] = {"tool": "Bash", "args": {"command": "rg -n weave src"}}


def trimmed(
    format: str, *steps: Any, keep: int = 0, trim_kinds: list[str] | None = None
) -> tuple[Compaction[Any], list[str]]:
    """A session compacted at every boundary, and its results."""
    body = request(format, "go", *steps)
    policy = Policy(
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=keep,
        trim_on_arrival=True,
        trim_kinds=trim_kinds,
    )
    out = build_compaction(
        fold_request(
            body, format=format, policy=policy, facts=Facts(), memo=None, passes=(trim_results,)
        ),
        body,
    )
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out, results(format, out.request)


def old(text: str, command: str = "make release", **about: Any) -> list[list[Exchange]]:
    """A session in which the model has seen what this command printed."""
    return [[bash(command, text, "call_1", **about)], done()]


@formats
def test_a_failed_build_keeps_its_error_and_its_ends(format: str) -> None:
    out, (first, _) = trimmed(format, *old(BUILD))
    lines = first.split("\n")
    assert lines[0] == "$ make release"
    assert "src/part_60.c:57:5: error: expected ';' before 'return'" in lines
    assert lines[-2] == "make: *** [Makefile:12: release] Error 1"
    marker = find_marker(lines[-1])
    assert isinstance(marker, OmissionMarker)
    assert (marker.total, marker.unit) == (123, "lines")
    assert marker.total is not None
    stay = [line for line in lines[:-1] if not is_gap_line(line)]
    assert len(stay) == marker.total - marker.omitted
    assert len(first) < len(BUILD) // 3
    (edit,) = out.report.edits
    assert (edit.reason, edit.evidence) == ("trimmed", f"log: {marker.omitted} of 123 lines")
    assert respool.expand(reference(BUILD), out) == BUILD


def test_exactly_this_stays_of_a_search() -> None:
    many = "".join(f"src/{file}.py:{line}:    weave(thread, {line})\n" for file, line in _HITS)
    _, (first, _) = trimmed("anthropic", [Exchange(many, **SEARCH)], done())
    ref = reference(many)
    assert first == (
        "src/heddle.py:1:    weave(thread, 1)\n"
        "src/heddle.py:2:    weave(thread, 2)\n"
        "src/heddle.py:3:    weave(thread, 3)\n"
        "src/heddle.py:4:    weave(thread, 4)\n"
        "src/heddle.py:5:    weave(thread, 5)\n"
        "src/heddle.py:6:    weave(thread, 6)\n"
        "src/heddle.py:7:    weave(thread, 7)\n"
        "src/heddle.py:8:    weave(thread, 8)\n"
        "[… 32 hits]\n"
        "src/loom.py:1:    weave(thread, 1)\n"
        "src/loom.py:2:    weave(thread, 2)\n"
        "[… 35 hits]\n"
        "src/loom.py:38:    weave(thread, 38)\n"
        "src/loom.py:39:    weave(thread, 39)\n"
        "src/loom.py:40:    weave(thread, 40)\n"
        "src/warp.py:9:    weave(thread, 9)\n"
        f"[respool: 67 of 81 hits left out; safe to run again; ref {ref}]"
    )


_HITS = [(file, line) for file in ("heddle", "loom") for line in range(1, 41)] + [("warp", 9)]


@formats
def test_what_is_recent_or_unseen_stays(format: str) -> None:
    _, (first, _) = trimmed(format, *old(BUILD), keep=1)
    assert first == BUILD
    _, (only,) = trimmed(format, [bash("make release", BUILD, "call_1")])
    assert only == BUILD


def later(count: int) -> list[list[Exchange]]:
    """So many exchanges that matter to nobody."""
    return [[bash("true", "ok", f"later_{n}")] for n in range(count)]


@formats
def test_pages_stay_until_they_are_very_old(format: str) -> None:
    page = "".join(f"## Part {n}\n\nThread no. {n} goes over. Then under.\n\n" for n in range(60))
    reading = [read("/w/loom.md", page, "call_1")]
    _, texts = trimmed(format, reading, *later(AGE))
    assert texts[0] == page
    _, texts = trimmed(format, reading, *later(AGE + 1))
    assert texts[0].startswith("## Part 0\n")
    assert find_marker(texts[0]) is not None


@formats
def test_code_stays_unless_its_kind_is_switched_on(format: str) -> None:
    reading = [read("/w/loom.py", FILE, "call_1")]
    _, texts = trimmed(format, reading, *later(AGE + 1))
    assert texts[0] == FILE
    _, texts = trimmed(format, reading, done(), trim_kinds=["default", "code"])
    kept = texts[0].split("\n")
    assert kept[0] == "     1→def weave_0(thread):"
    assert kept[-2] == "[… 9 lines]"
    assert sum("def weave_" in line for line in kept) == 30
    gone = 300 - sum(not is_gap_line(line) for line in kept[:-1])
    marker = f"[respool: {gone} of 300 lines left out; safe to run again; ref {reference(FILE)}]"
    assert kept[-1] == marker


PATHS = "\n".join(f"src/part_{n}/module.py" for n in range(200))


@formats
def test_a_listing_stays_unless_its_kind_is_switched_on(format: str) -> None:
    steps = old(PATHS, "find src -name '*.py'")
    _, (first, _) = trimmed(format, *steps)
    assert first == PATHS
    _, (first, _) = trimmed(format, *steps, trim_kinds=["listing"])
    *kept, marker = first.split("\n")
    assert kept[0] == "src/part_0/module.py"
    assert kept[-1] == "src/part_199/module.py"
    (hole,) = [line for line in kept if is_gap_line(line)]
    gone = 200 - (len(kept) - 1)
    assert hole == f"[… {gone} entries]"
    ref = reference(PATHS)
    assert marker == f"[respool: {gone} of 200 entries left out; safe to run again; ref {ref}]"


@pytest.mark.parametrize(
    ("kinds", "cut"),
    [
        (None, {"log", "hits"}),
        (["default"], {"log", "hits"}),
        (["log"], {"log"}),
        (["default", "code"], {"log", "hits", "code"}),
        (["code", "listing"], {"code", "listing"}),
        ([], set[str]()),
    ],
)
def test_the_kinds_that_are_cut_are_the_users(kinds: list[str] | None, cut: set[str]) -> None:
    shown = {
        "log": bash("make release", BUILD, "log"),
        "hits": Exchange(HITS, id="hits", **SEARCH),
        "code": read("/w/loom.py", FILE, "code"),
        "listing": bash("find src", PATHS, "listing"),
    }
    _, texts = trimmed("anthropic", *([one] for one in shown.values()), done(), trim_kinds=kinds)
    found = [find_marker(text) is not None for text in texts]
    assert {kind for kind, is_cut in zip(shown, found, strict=False) if is_cut} == cut


@formats
def test_an_epoch_that_comes_late_finds_all_that_grew_old(format: str) -> None:
    steps = [[bash(f"make part{n}", BUILD + f"\n{n}", f"call_{n}")] for n in range(12)]
    body = request(format, "go", *steps, done())
    policy = Policy(reevaluate_tokens=4_000, reevaluate_ratio=0.0, eager=True, keep_exchanges=2)
    out = build_compaction(
        fold_request(
            body, format=format, policy=policy, facts=Facts(), memo=None, passes=(trim_results,)
        ),
        body,
    )
    cut = [find_marker(text) is not None for text in results(format, out.request)]
    assert cut[:6] == [True] * 6
    assert cut[-2:] == [False] * 2


def test_short_results_stay() -> None:
    short = BUILD[: DEFAULT_KINDS["log"].min_chars - 1]
    _, (first, _) = trimmed("anthropic", *old(short))
    assert first == short


@formats
def test_what_was_never_seen_is_not_cut_to_its_shape(format: str) -> None:
    steps = [[Exchange(HITS, **SEARCH), bash("make release", BUILD, "b")]]
    _, texts = trimmed(format, *steps)
    assert texts == [HITS, BUILD]


def test_kinds_that_are_needed_too_often_are_not_among_those_cut() -> None:
    assert not {"code", "listing"} & set(DEFAULT_KINDS)


@formats
def test_a_result_that_was_marked_as_failed_keeps_its_error_whatever_it_shows(format: str) -> None:
    text = f"{HITS}rg: src/secret: Permission denied (os error 13)\n{HITS}"
    _, (first, _) = trimmed(format, [Exchange(text, error=True, **SEARCH)], done())
    assert "rg: src/secret: Permission denied (os error 13)" in first
    assert len(first) < len(text)


def test_json_that_lost_records_does_not_look_whole() -> None:
    # headroom#3673: a record deleted, valid JSON left behind
    _, (first, _) = trimmed("anthropic", *old(ROWS, "curl -s localhost/threads"))
    body, _, last = first.rpartition("\n")
    marker = find_marker(last)
    assert isinstance(marker, OmissionMarker)
    assert (marker.total, marker.unit) == (200, "items")
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert f"[… {marker.omitted} items]" in body


def test_a_missing_line_is_never_silently_missing() -> None:
    # headroom#2586: "line missing" was read as evidence that it did not exist
    _, (first, _) = trimmed("anthropic", *old(HITS, "rg -n weave src"))
    for before, after in zip(first.split("\n"), first.split("\n")[1:], strict=False):
        if ":" in before and ":" in after and not after.startswith("["):
            assert f"{before}\n{after}" in HITS, "two lines stand together that did not"


@formats
def test_what_was_shaped_is_not_shaped_again(format: str) -> None:
    once, _ = trimmed(format, *old(BUILD))
    policy = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0)
    folded = fold_request(
        once.request, format=format, policy=policy, facts=Facts(), memo=None, passes=(trim_results,)
    )
    twice = build_compaction(folded, once.request)
    assert twice.report.edits == ()
    assert twice.request is once.request


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_in_a_mixed_result_stay(format: str) -> None:
    out, _ = trimmed(format, *old(BUILD, image=True))
    assert out.report.edits
    assert PIXEL in json.dumps(out.request[FIELD[format]])


TEXTS = st.sampled_from([BUILD, HITS, FILE, ROWS, "ok", "x" * 5_000, "\n" * 3_000, "é" * 4_000])
COMMANDS = st.sampled_from(["make release", "rg -n weave src", "cat a.py", "pytest -q", "git diff"])


@st.composite
def sessions(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Sessions in which commands print long texts, some of them at once."""
    format = draw(st.sampled_from(FORMATS))
    steps: list[Any] = ["Mend the loom."]
    for step in range(draw(st.integers(1, 6))):
        wide = draw(st.integers(1, 3))
        steps.append(
            [
                bash(
                    draw(COMMANDS),
                    f"{draw(TEXTS)}\n(no. {step}.{n})",
                    f"c{step}_{n}",
                    error=draw(st.booleans()),
                )
                for n in range(wide)
            ]
        )
    return format, request(format, *steps, done())


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(sessions())
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    format, body = session
    hold_the_laws(trim_results, format, body, FIELD[format])
