"""Protections: parts that no pass may touch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import Facts, Policy, Tool, Tools
from respool.compaction.state import State
from respool.edits import DropExchange, Offer, Replace, exchange_closure
from respool.engine import fold_request
from respool.errors import BudgetError
from respool.history.failures import MAX_OPEN_ERROR_CHARS
from respool.history.ledger import Ledger
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes import PASSES, protections
from respool.passes.base import View
from respool.passes.protections import (
    Protections,
    compile_path_pattern,
    find_fetched_back,
    first_kept_part,
    start_of_calls,
    start_of_messages,
)
from respool.transcript import Part, Ref, TranscriptIndex
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.support.coding_sessions import bash, edit, lines, read, write
from tests.support.formats import FORMATS, Exchange, request, results
from tests.support.timing import takes_at_most

formats = pytest.mark.parametrize("format", FORMATS)


def index(format: str, *steps: Any) -> TranscriptIndex:
    """The history that a request holds; its first message is the first part."""
    body = request(format, "go", *steps)
    policy = Policy(passes=(), repair=False)
    return fold_request(
        body, format=format, policy=policy, facts=Facts(), memo=None
    ).state.transcript


def rows(history: TranscriptIndex, first: int) -> int:
    """Number of wire entries from a part on."""
    return len({part.ref.row for part in history.parts[first:]})


@formats
@pytest.mark.parametrize("count", range(1, 8))
def test_messages_count_alike_in_every_format(format: str, count: int):
    history = index(format, [bash("a", "1", "a")], [bash("b", "2", "b")], "and now?")
    # user, call, result, call, result, user: six
    assert rows(history, start_of_messages(history, count)) == min(count, 6)


@formats
def test_what_the_model_says_at_once_is_one_message(format: str):
    together = [bash("a", "1", "a"), bash("b", "2", "b")]
    history = index(format, together, [bash("c", "3", "c")])
    first = start_of_messages(history, 3 + (2 if entries(format) else 1))
    assert first == history.units[1].parts[0]


def entries(format: str) -> bool:
    """Return whether results of one turn are separate entries."""
    return format.startswith("openai")


@formats
def test_no_messages_are_none_and_not_all(format: str):
    history = index(format, [bash("a", "1", "a")])
    assert start_of_messages(history, 0) == len(history.parts)
    assert start_of_calls(history, 0) == len(history.parts)


@formats
@pytest.mark.parametrize(("count", "unit"), [(1, 3), (2, 2), (3, 2), (4, 1), (5, 0), (99, 0)])
def test_calls_made_together_are_not_parted(format: str, count: int, unit: int):
    together = [bash("b", "2", "b"), bash("c", "3", "c")]
    history = index(format, [bash("a", "1", "a")], together, [bash("d", "4", "d")])
    expected = 0 if unit == 0 else history.units[unit].parts[0]
    assert start_of_calls(history, count) == expected


@formats
def test_the_larger_of_both_counts(format: str):
    history = index(format, *([bash("a", "1", f"c{n}")] for n in range(4)))
    both = Policy(keep_messages=2, keep_calls=3)
    assert first_kept_part(history, both) == first_kept_part(history, Policy(keep_calls=3))
    assert first_kept_part(history, Policy()) is None


def test_an_empty_history_has_nothing_to_keep():
    assert start_of_messages(TranscriptIndex(), 8) == 0
    assert start_of_calls(TranscriptIndex(), 8) == 0


@formats
def test_what_is_kept_may_stand_in_the_way_of_a_budget_and_is_named(format: str):
    text = "\n".join(f"line {n} of what was printed here" for n in range(600))
    body = request(format, "go", *([bash(f"make {n}", text, f"c{n}")] for n in range(4)))
    policy = Policy(budget=8_000, keep_calls=4, eager=True)
    with pytest.raises(BudgetError, match="the latest messages and calls"):
        respool.compact(body, format=format, policy=policy, memo=None)
    met = respool.compact(body, format=format, policy=policy.replace(keep_calls=0), memo=None)
    assert met.report.tokens_after <= 8_000


LONG = "\n".join(f"line {number} of what the tool printed" for number in range(60))
TOOLS = Tools(
    [
        Tool("read", kind="read", reads="path", lines="first..last"),
        Tool("edit", kind="write", writes="path"),
        Tool("write", kind="write", writes="path", replaces=True),
        Tool("run", kind="run", key="arguments", barrier=False),
        Tool("note", kind="other"),
        Tool("sh", command="cmd"),
    ]
)


def stub_all(view: View, policy: Policy) -> Iterator[Offer]:
    """Stub every seen result that may be touched, again and again."""
    for position in view.transcript.results:
        part = view.transcript.parts[position]
        if position in view.in_force or not view.can_rewrite(position) or find_marker(part.text):
            continue
        ref = reference(part.text)
        text = str(OmissionMarker(part.text.count("\n") + 1, "lines", ref))
        saved = view.saved_by(position, text)
        if saved > 0:
            yield Offer("stub", Replace(position, part.ref, text, ref, "stubbed", "seen", saved))


def drop_all(view: View, policy: Policy) -> Iterator[Offer]:
    """Drop every seen exchange that may be touched."""
    for exchange in view.transcript.exchanges:
        parts = exchange_closure(view.transcript, exchange.ordinal)
        if any(view.is_protected(part) or not view.is_whole(part) for part in parts):
            continue
        saved = sum(view.tokens_of(part) for part in parts)
        ref = view.transcript.parts[exchange.call].ref
        yield Offer("drop", DropExchange(exchange.ordinal, ref, "stubbed", "seen", saved))


def call(
    tool: str, id: str, text: str | None = None, error: bool = False, **args: Any
) -> list[Exchange]:
    """An exchange whose text, unless given, is like no other one's."""
    text = f"{LONG}\nof {id}" if text is None else text
    return [Exchange(text, tool=tool, id=id, error=error, args=args or {"x": id})]


def left(format: str, *steps: Any, **settings: Any) -> list[bool]:
    """Of each result but the last, whether it stayed whole."""
    given = {
        "passes": (stub_all,),
        "reevaluate_tokens": 1,
        "reevaluate_ratio": 0.0,
        "eager": True,
        "keep_exchanges": 0,
        "tools": TOOLS,
    } | settings
    policy = Policy(**given)
    whole = request(format, "go", *steps, call("note", "end", "done"))
    memo = respool.Memo()
    field = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    for count in range(1, len(whole[field])):
        part = {**whole, field: whole[field][:count]}
        respool.compact(part, format=format, policy=policy, memo=memo)
    warm = respool.compact(whole, format=format, policy=policy, memo=memo)
    cold = respool.compact(whole, format=format, policy=policy, memo=None)
    assert cold.request == warm.request
    assert cold.report.failures == {}
    assert respool.check(cold.request, format=format) == []
    return [find_marker(text) is None for text in results(format, cold.request)][:-1]


# Pins.


@formats
@pytest.mark.parametrize(
    ("pins", "stay"),
    [
        ({}, [False, False, False]),
        ({"pin_tools": ("note",)}, [False, False, True]),
        ({"pin_tools": ("read", "run")}, [True, True, False]),
        ({"pin_tools": ("other",)}, [False, False, True]),
        ({"pin_tools": ("Note", "no", "not")}, [False, False, False]),
        ({"pin_paths": ("docs/**",)}, [True, False, False]),
        ({"pin_paths": ("*.py",)}, [False, False, False]),
        ({"pin_calls": ("b",)}, [False, True, False]),
        ({"pin_calls": ("zzz", "a", "c")}, [True, False, True]),
    ],
)
def test_pins_by_tool_kind_path_and_call(format: str, pins: Any, stay: list[bool]) -> None:
    steps = (
        call("read", "a", path="/w/docs/plan/one.md"),
        call("run", "b", cmd="make"),
        call("note", "c", about="this"),
    )
    assert left(format, *steps, **pins) == stay


@formats
def test_a_pinned_exchange_is_not_dropped_either(format: str) -> None:
    steps = (call("note", "a"), call("run", "b"))
    policy = Policy(
        passes=(drop_all,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        tools=TOOLS,
        pin_tools=("note",),
        keep_exchanges=0,
    )
    whole = request(format, "go", *steps, call("run", "end", "done"))
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    assert results(format, out.request) == [f"{LONG}\nof a", "done"]


FAILURE = f"Error: the text to replace was not found.\n{lines(1, 12)}"
SEARCH = f"grep -rnE '{'|'.join(f'thread_{n}' for n in range(3, 60))}' /w"
BUSY = (
    [read("/w/loom.py", lines(1, 60), "read")],
    [read("/w/loom.py", lines(1, 60), "read again")],
    [bash(SEARCH, "/w/loom.py:3: thread_3", "searched")],
    [bash(SEARCH, "/w/loom.py:3: thread_3", "searched again")],
    [read("/w/loom.py", lines(11, 30), "lines", offset=11, limit=20)],
    [bash("cat /w/loom.py", f"\x1b[32mloom\x1b[0m\n{lines(1, 60)}\n(the end)", "coloured")],
    [edit("/w/loom.py", "thread_3", "x", "failed", result=FAILURE, error=True)],
    [edit("/w/loom.py", "thread_3", "x", "edited")],
    [write("/w/heddle.py", lines(1, 60, "weft"), "written")],
    [write("/w/heddle.py", lines(1, 60, "weft"), "written again")],
    [bash("make", lines(1, 90, "built"), "built")],
    [bash("true", "ok", "last")],
)
# The reasons that passes give for what they cut of exchanges; of the others each has its own test.
GIVEN = {
    "tidy_results": "tidied",
    "identical_results": "identical",
    "contained_results": "contained",
    "lines_shown": "shown_before",
    "cap_results": "over_cap",
    "covered_reads": "contained",
    "stale_reads": "stale",
    "superseded_writes": "superseded",
    "superseded_edits": "overwritten",
    "resolved_errors": "resolved",
    "keep_lines": "unlikely_needed",
    "trim_results": "trimmed",
    "stub_results": "stubbed",
    "fold_exchanges": "folded",
    "repeated_calls": "repeated_call",
}
OTHERS = {"old_reasoning", "shed_images", "squeeze_prose"}
CUTTING = [one.__name__ for one in PASSES if one.__name__ not in OTHERS]


def alone(name: str, pins: Collection[str], steps: Sequence[list[Exchange]]) -> State:
    """A session after one pass has taken at once whatever it could."""
    policy = Policy(
        passes=(name,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=0,
        strip_decoration=True,
        miss_penalty=0.0,
        pin_calls=tuple(pins),
        cap_chars=1_500 if name == "cap_results" else None,
        budget=2_500 if name == "fold_exchanges" else None,
    )
    body = request("anthropic", "go", *steps)
    state = fold_request(body, format="anthropic", policy=policy, facts=Facts(), memo=None).state
    assert state.evaluation.failures == {}
    return state


def cut_by(name: str, pins: Collection[str], steps: Sequence[list[Exchange]] = BUSY) -> set[str]:
    """The calls of a busy session that a pass touches."""
    state = alone(name, pins, steps)
    return {state.transcript.parts[part].id for part in state.edits.claimed}


@pytest.mark.parametrize("name", CUTTING)
def test_every_pass_gives_its_own_reason(name: str) -> None:
    given = {edit.reason for edit in alone(name, (), BUSY).edits.by_part.values()}
    assert given == {GIVEN[name]}


@pytest.mark.parametrize("name", CUTTING)
def test_no_pass_touches_what_is_pinned(name: str) -> None:
    free = cut_by(name, ())
    assert free
    for one in free:
        assert one not in cut_by(name, {one})
    assert cut_by(name, free).isdisjoint(free)


@pytest.mark.parametrize("name", CUTTING)
def test_what_a_pass_leaves_alone_hides_nothing_behind_it(name: str) -> None:
    """Every call has a short one and a pinned one before it, made in the same turn."""
    kept = [bash(f"git log -{n}", lines(1, 60, f"seen_{n}"), f"kept {n}") for n in range(len(BUSY))]
    beside = [
        [bash("true", "ok", f"short {one.id}"), one, *step]
        for one, step in zip(kept, BUSY, strict=True)
    ]
    assert cut_by(name, ()) <= cut_by(name, {one.id for one in kept}, beside)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_an_image_in_a_pinned_result_is_pinned(format: str) -> None:
    seen: list[tuple[str, bool]] = []

    def look(view: View, policy: Policy) -> Iterator[Offer]:
        seen[:] = [
            (part.kind, view.is_protected(at))
            for at, part in enumerate(view.transcript.parts[: view.unseen_from])
            if part.kind == "media"
        ]
        return iter(())

    image = [Exchange("text", id="a", image=True)]
    policy = Policy(
        passes=(look,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        pin_calls=("a",),
        keep_exchanges=0,
    )
    whole = request(format, "go", image, call("note", "end", "done"))
    respool.compact(whole, format=format, policy=policy, memo=None)
    assert seen == [("media", True)]


def test_an_image_that_the_user_sent_is_no_part_of_a_result_before_it() -> None:
    index = fetch(("note", "{}", "text"))
    index.add_unit((2, 3), [], [Part(Ref(2, ("content", 0)), "media", "user", "")], locked=False)
    pins = Protections(index, Ledger(), Policy(pin_calls=("0",)), ())
    assert [pins.reason_for(at) for at in range(3)] == ["pinned call 0", "pinned call 0", None]


@pytest.mark.parametrize(
    ("pattern", "fit", "unfit"),
    [
        ("*.md", ["a.md", "/w/x/a.md"], ["a.md.py", "md"]),
        ("docs/*.md", ["docs/a.md", "/w/docs/a.md"], ["docs/x/a.md", "mydocs/a.md"]),
        ("docs/**/*.md", ["docs/a.md", "docs/x/y/a.md"], ["docs/a.py", "x.md"]),
        ("docs/**", ["docs/a", "docs/x/y", "docs"], ["docsx/a", "a/docsx"]),
        ("docs/", ["docs/a", "/w/docs/x/y"], ["docsx/a"]),
        ("/etc/*", ["/etc/hosts"], ["/w/etc/hosts", "etc/hosts", "/etc/x/y"]),
        ("**/secret?.txt", ["secret1.txt", "a/b/secret2.txt"], ["secret.txt", "secret12.txt"]),
        ("./PLAN.md", ["PLAN.md", "./PLAN.md", "/w/PLAN.md"], ["PLAN_md", "xPLAN.md"]),
        ("app/[slug]/page.tsx", ["app/[slug]/page.tsx"], ["app/s/page.tsx"]),
        (
            "https://docs.rs/**",
            ["https://docs.rs/serde/latest"],
            ["https://crates.io/docs.rs/x", "https://archive.example/https://docs.rs/serde"],
        ),
        ("~/notes.md", ["~/notes.md"], ["/w/~/notes.md"]),
        ("C:/w/*", ["C:/w/a"], ["/mnt/C:/w/a"]),
        ("C:\\w\\docs\\**", ["C:/w/docs/a/b.md"], ["C:/w/a", "/mnt/C:/w/docs/a"]),
        ("docs**.md", ["docs.md", "docs/x/a.md", "/w/docs-2/a.md"], ["docs/x/a.mdx", "do.md"]),
    ],
)
def test_patterns_of_paths(pattern: str, fit: list[str], unfit: list[str]) -> None:
    fits = compile_path_pattern(pattern)
    assert [path for path in fit if not fits(path)] == []
    assert [path for path in unfit if fits(path)] == []


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_any_pattern_can_be_asked_about_any_path(pattern: str, path: str) -> None:
    assert compile_path_pattern(pattern)(path) in (True, False)
    assert compile_path_pattern("**")(path)


PATTERN_PIECES = st.sampled_from(
    [
        "a",
        "b",
        ".md",
        "/",
        "*",
        "**",
        "**/",
        "/**",
        "?",
        "[a]",
        "{",
        " ",
        "./",
        "~",
        "C:",
        "\n",
        "é",
    ]
)
PATH_PIECES = st.sampled_from(
    ["a", "b", ".md", "/", "[a]", "{", " ", "./", "~", "C:", "\n", "é", "/a/b", "aa", "\ud800"]
)


@given(
    st.lists(PATTERN_PIECES, min_size=1, max_size=8).map("".join),
    st.lists(st.lists(PATH_PIECES, max_size=8).map("".join), min_size=1, max_size=6),
)
@settings(max_examples=examples(300), deadline=None)
def test_patterns_of_paths_fit_what_python_fits(pattern: str, paths: list[str]) -> None:
    """A regular expression of Python's says the same; but with several stars it may take ages."""
    with patch.object(protections, "whole_matcher", fullmatch):
        expected = compile_path_pattern.__wrapped__(pattern)
    fits = compile_path_pattern(pattern)
    assert [fits(path) for path in paths] == [expected(path) for path in paths]


def fullmatch(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.DOTALL)
    return lambda path: compiled.fullmatch(path) is not None


def test_many_stars_take_no_longer_on_a_long_path() -> None:
    fits = compile_path_pattern("*a*a*a*a*a*x")
    takes_at_most(30, lambda: fits("a" * 20_000), lambda: fits("a" * 2_000))
    assert fits("a" * 20_000 + "x")


# Open errors: only these wires flag a failed result.

flagged = pytest.mark.parametrize("format", ["anthropic", "gemini"])
ERROR = "error: " + "it does not work, and here is why; " * 20
FAILED = {
    "still open": ([("a", True)], [True]),
    "resolved by a success": ([("a", True), ("a", False)], [False, False]),
    "a success of another one resolves nothing": ([("a", True), ("b", False)], [True, False]),
    "the latest failure counts": ([("a", True), ("a", True)], [False, True]),
    "failed again after a success": (
        [("a", True), ("a", False), ("a", True)],
        [False, False, True],
    ),
}


@flagged
@pytest.mark.parametrize("case", FAILED)
def test_open_errors_stay_word_for_word(format: str, case: str) -> None:
    ran, stay = FAILED[case]
    steps = [
        call("run", f"c{number}", f"{ERROR}{number}" if error else None, error, cmd=command)
        for number, (command, error) in enumerate(ran)
    ]
    assert judged(format, *steps) == stay
    assert left(format, *steps) == stay  # for each was open until its last boundary, or cut there


def judged(format: str, *steps: Any, **settings: Any) -> list[bool]:
    """Of each result but the last, whether it is protected when all of them have come."""
    found: list[bool] = []

    def look(view: View, policy: Policy) -> Iterator[Offer]:
        found[:] = [view.is_protected(at) for at in view.transcript.results[:-1]]
        return iter(())

    policy = Policy(
        passes=(look,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=0,
        tools=TOOLS,
        **settings,
    )
    whole = request(format, "go", *steps, call("note", "end", "done"))
    respool.compact(whole, format=format, policy=policy, memo=None)
    return found


@flagged
def test_errors_are_protected_only_where_that_is_wanted_and_bearable(format: str) -> None:
    failed = call("run", "a", ERROR, True, cmd="make")
    assert judged(format, failed) == [True]
    assert judged(format, failed, errors_verbatim=False) == [False]
    assert judged(format, call("run", "a", "x" * MAX_OPEN_ERROR_CHARS, True)) == [True]
    assert judged(format, call("run", "a", "x" * (MAX_OPEN_ERROR_CHARS + 1), True)) == [False]


# The latest read of a file that was edited since.

BASES: dict[str, tuple[list[tuple[str, dict[str, Any]]], list[bool]]] = {
    "read only": ([("read", {"path": "a"})], [False]),
    "edited since": ([("read", {"path": "a"}), ("edit", {"path": "a"})], [True, False]),
    "another file edited": ([("read", {"path": "a"}), ("edit", {"path": "b"})], [False, False]),
    "edited before": ([("edit", {"path": "a"}), ("read", {"path": "a"})], [False, False]),
    "written anew since": ([("read", {"path": "a"}), ("write", {"path": "a"})], [False, False]),
    "edited, then written anew": (
        [("read", {"path": "a"}), ("edit", {"path": "a"}), ("write", {"path": "a"})],
        [False, False, False],
    ),
    "read again after the edit": (
        [("read", {"path": "a"}), ("edit", {"path": "a"}), ("read", {"path": "a"})],
        [False, False, False],
    ),
    "only the latest of two reads": (
        [("read", {"path": "a"}), ("read", {"path": "a"}), ("edit", {"path": "a"})],
        [False, True, False],
    ),
    "other lines do not replace it": (
        [
            ("read", {"path": "a", "first": 1, "last": 50}),
            ("read", {"path": "a", "first": 51, "last": 99}),
            ("edit", {"path": "a"}),
        ],
        [True, True, False],
    ),
    "more lines do": (
        [
            ("read", {"path": "a", "first": 10, "last": 50}),
            ("read", {"path": "a", "first": 1, "last": 99}),
            ("edit", {"path": "a"}),
        ],
        [False, True, False],
    ),
}  # fmt: skip


@formats
@pytest.mark.parametrize("case", BASES)
def test_the_base_of_edits_stays(format: str, case: str) -> None:
    did, stay = BASES[case]
    steps = [call(tool, f"c{number}", **args) for number, (tool, args) in enumerate(did)]
    assert judged(format, *steps) == stay


LINES = {"path": "a", "first": 1, "last": 61}


@formats
@pytest.mark.parametrize(
    ("read", "others", "settings", "stays"),
    [
        (LINES, [], {}, False),
        ({"path": "a"}, [], {}, False),
        (LINES, [], {"pin_paths": ("a",)}, True),
        (LINES, [("read", LINES | {"last": 99})], {}, False),
    ],
)
def test_single_lines_of_the_base_may_go_but_of_what_is_pinned(
    format: str, read: Any, others: list[tuple[str, Any]], settings: Any, stays: bool
) -> None:
    after = [("edit", {"path": "a"}), *others, *[("note", {})] * 9]
    steps = [call(tool, f"c{at}", **args) for at, (tool, args) in enumerate(after)]
    bold = {"passes": ("keep_lines",), "miss_penalty": 0.01} | settings
    assert left(format, call("read", "base", **read), *steps, **bold)[0] is stays


# Cost, and what is told.


def test_nothing_is_computed_before_it_is_asked() -> None:
    pins = Protections(TranscriptIndex(), Ledger(), Policy(), ())
    assert pins.judged() == {}
    assert "not a position" not in pins


READ, EDITED = ("read", {"path": "a"}, False), ("edit", {"path": "a"}, False)
NOTED = ("note", {"x": 1}, False)
# case: the calls, settings, why the first one stays, and how many of those are summed up
TOLD: dict[str, tuple[list[tuple[str, dict[str, Any], bool]], dict[str, Any], Any, Any]] = {
    "nothing": ([NOTED], {}, None, None),
    "a tool": ([NOTED], {"pin_tools": ("note",)}, "pinned tool note", "what is pinned"),
    "a kind": ([READ], {"pin_tools": ("read",)}, "pinned tool read", "what is pinned"),
    "a call": ([NOTED], {"pin_calls": ("c0",)}, "pinned call c0", "what is pinned"),
    "a path": ([READ], {"pin_paths": ("b", "a")}, "pinned path a", "what is pinned"),
    "a path that is written": (
        [EDITED], {"pin_paths": ("a",)}, "pinned path a", "what is pinned",
    ),
    "an error": ([("run", {"cmd": "make"}, True)], {}, "open error", "errors still open"),
    "a base": (
        [READ, EDITED], {}, "latest read of a, edited since", "latest reads of files edited since",
    ),
    "edited, and shown in part since": (
        [READ, EDITED, ("read", {"path": "a", "first": 5, "last": 9}, False)], {},
        "latest read of a, edited since", "latest reads of files edited since",
    ),
    "a part of a file, nobody knows which": (
        [("sh", {"cmd": "grep -n word a"}, False), EDITED], {}, None, None,
    ),
    "fetched back": (
        [("respool_expand", {"ref": "x"}, False)], {}, "fetched back", "what was fetched back",
    ),
    "the last two calls": (
        [NOTED], {"keep_calls": 2}, "recent, kept as it is", "the latest messages and calls",
    ),
    "the last call": ([NOTED], {"keep_calls": 1}, None, None),
    "the result is among the last messages": (
        [NOTED], {"keep_messages": 3}, "recent, kept as it is", "the latest messages and calls",
    ),
    "the last messages": ([NOTED], {"keep_messages": 2}, None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_why_it_stays_and_how_such_reasons_are_summed_up(case: str) -> None:
    steps, settings, why, kind = TOLD[case]
    found: list[tuple[str | None, str | None]] = []

    def look(view: View, policy: Policy) -> Iterator[Offer]:
        pins = view.pinned
        assert isinstance(pins, Protections)
        found[:] = [(pins.reason_for(at), pins.label_for(at)) for at in view.transcript.results]
        return iter(())

    calls = [
        call(tool, f"c{n}", error=error, **args) for n, (tool, args, error) in enumerate(steps)
    ]
    policy = Policy(
        passes=(look,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=0,
        tools=TOOLS,
        **settings,
    )
    whole = request("anthropic", "go", *calls, call("run", "end", "done"))
    respool.compact(whole, policy=policy, memo=None)
    assert found[0] == (why, kind)


# What brings back what was taken out: its tool, or a call that names its reference.

KNOWN = reference("what was taken out")
FETCHING: dict[str, tuple[str, str, bool]] = {
    "the tool for it": ("respool_expand", "{}", True),
    "a command that names the reference": ("run", f"respool expand {KNOWN}", True),
    "at the end of a path": ("run", f"cat /tmp/{KNOWN}.txt", True),
    "the reference of nothing": ("run", f"respool expand {reference('nothing')}", False),
    "as a part of a word": ("run", f"respool expand {KNOWN}x", False),
    "a command without one": ("run", "make", False),
    "as long as is searched": ("run", f"{KNOWN} ".ljust(4_000, "-"), True),
    "longer than is searched": ("run", f"{KNOWN} ".ljust(4_001, "-"), False),
}


def fetch(*calls: tuple[str, str, str]) -> TranscriptIndex:
    """A history of calls: their tools, arguments and what they answered."""
    index = TranscriptIndex()
    for at, (tool, args, said) in enumerate(calls):
        asked = Part(Ref(2 * at, ()), "call", "model", args, id=str(at), name=tool)
        answer = Part(Ref(2 * at + 1, ()), "result", "tool", said, id=str(at))
        index.add_unit((2 * at, 2 * at + 2), [asked], [answer], locked=False)
    return index


@pytest.mark.parametrize("case", FETCHING)
def test_what_brings_back_what_was_taken_out(case: str) -> None:
    tool, args, fetches = FETCHING[case]
    history = fetch((tool, args, "the text"))
    expected = {reference("the text"): 0} if fetches else {}
    assert find_fetched_back(history, list(history.results), {KNOWN}) == expected
    assert find_fetched_back(history, list(history.results), {}, {KNOWN}) == expected


def test_of_several_that_bring_the_same_the_latest_counts() -> None:
    history = fetch(*[("respool_expand", "{}", said) for said in ("one", "two", "one")])
    found = find_fetched_back(history, list(history.results), ())
    assert found == {reference("one"): 2, reference("two"): 1}


@pytest.mark.slow
def test_asking_about_every_part_stays_linear() -> None:
    def look(view: View, policy: Policy) -> Iterator[Offer]:
        for position in view.fresh_results():
            view.is_protected(position)
        return iter(())

    policy = Policy(
        passes=(look,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        pin_paths=("docs/**",),
        keep_exchanges=0,
    )
    short, long = long_session("anthropic", 100), long_session("anthropic", 800)
    takes_at_most(
        2.5 * 8,
        lambda: respool.compact(long, policy=policy, memo=None),
        lambda: respool.compact(short, policy=policy, memo=None),
    )


def test_the_trace_tells_what_was_kept_and_why() -> None:
    steps = (call("read", "a", path="docs/plan.md"), call("run", "b", cmd="make"))
    whole = request("anthropic", "go", *steps, call("note", "end", "done"))
    policy = Policy(
        passes=(stub_all,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        tools=TOOLS,
        pin_paths=("docs/",),
        pin_calls=("zz",),
        keep_exchanges=0,
    )
    trace = respool.plan(whole, policy=policy, trace=True).trace
    assert trace is not None
    last = max(one.boundary for one in trace)
    told = [
        (str(one.ref), one.reason, one.outcome, one.by) for one in trace if one.boundary == last
    ]
    assert ("[1].content[0]", "pinned path docs/", "protected", "") in told
    assert ("[4].content[0]", "stubbed", "taken", "stub_all") in told
    assert respool.plan(whole, policy=policy).trace is None
