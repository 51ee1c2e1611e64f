"""Keep the lines of a result that will probably be needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool.edits import UNLIKELY_NEEDED, Edit, Offer, Replace
from respool.forecast.features import result_features
from respool.forecast.line_selection import select_lines
from respool.forecast.mentions import Mentions
from respool.forecast.model import Forecast
from respool.markers import (
    OmissionMarker,
    find_marker,
    is_gap_line,
    is_names_line,
    parse_gap,
    reference,
)
from respool.passes.base import View, units_at_doubled_age
from respool.passes.keep_lines import keep_lines, lines_in_gaps
from respool.policy import Policy
from tests.effort import examples
from tests.forecast.support import IndexedHistory, Turn, history_of, numbered, reads, result, runs
from tests.laws.sessions import prose
from tests.support.coding_sessions import bash, done, read
from tests.support.formats import FORMATS, Exchange, request, results
from tests.support.states import context_with, state_with, view_with

RATE = 1e-3
OTHER = Turn("Bash", {"command": "true"}, "ok")
CODE = [
    "import threading",
    "",
    "def weave_all(threads, warp_count):",
    "    for one_thread in threads: pull(one_thread, warp_count)",
    "    return finished_cloth_of(threads, warp_count)",
    "",
    "def unweave(cloth):",
    "    while cloth.has_rows(): cloth.take_row(from_end=True)",
    "    return [thread for thread in cloth.threads_left()]",
]


NAMES = [
    *("weave_all", "warp_count", "src/loom.py", "loom.py", "loom.weave", "weave", "is_loom.py:12"),
    *("loom.py:12", "Warp.count", "warp_counts", "E0277", "a/src/loom.py", "thread-end", "9d53b9c"),
]


def names_in(line: str) -> list[str]:
    """The names that a line lists."""
    return line[line.index(": ") + 2 : -1].split(", ") if is_names_line(line) else []


def cut(
    turn: Turn, whole: Sequence[int] = (), names: Sequence[int] = (), gone: Sequence[int] = ()
) -> str | None:
    """Text of a result after the cut, if these lines are needed as such or for their names."""
    history = history_of(turn, OTHER)
    one = result_features(result(history), history.transcript, history.ledger, history.mentions)
    assert one is not None
    total = len(one.lines)
    expected = Forecast(
        [float(line in whole) for line in range(total)],
        [0.02 * (line in names) for line in range(total)],
    )
    kept = select_lines(turn.result, one, expected, history.mentions, rate=RATE, gone_before=gone)
    return None if kept is None else kept.text


class TestText:
    def test_code_keeps_its_outline_and_its_numbers(self):
        assert cut(reads("/loom.py", numbered(CODE))) == "\n".join(
            [
                "     1→import threading",
                "     2→",
                "     3→def weave_all(threads, warp_count):",
                "[… 3 lines]",
                "     7→def unweave(cloth):",
                "[… 2 lines]",
            ]
        )

    def test_lines_that_are_needed_stay_with_what_they_belong_to(self):
        assert cut(reads("/loom.py", numbered(CODE)), whole=[4]) == "\n".join(
            [
                "     1→import threading",
                "     2→",
                "     3→def weave_all(threads, warp_count):",
                "     4→    for one_thread in threads: pull(one_thread, warp_count)",
                "     5→    return finished_cloth_of(threads, warp_count)",
                "     6→",
                "     7→def unweave(cloth):",
                "[… 2 lines]",
            ]
        )

    def test_names_are_told_in_place_of_their_lines(self):
        assert cut(reads("/loom.py", numbered(CODE)), names=[3, 4, 7]) == "\n".join(
            [
                "     1→import threading",
                "     2→",
                "     3→def weave_all(threads, warp_count):",
                "[… 3 lines]",
                "[names left out: one_thread, finished_cloth_of]",
                "     7→def unweave(cloth):",
                "[… 2 lines]",
                "[names left out: cloth.has_rows, cloth.take_row, from_end]",
            ]
        )

    def test_what_an_agent_puts_around_an_output_stays(self):
        lines = [f"compiling part_{n} of the whole loom" for n in range(9)]
        said = "\n".join(["Exit code: 0", "Wall time: 1 second", "Output:", *lines])
        assert cut(runs("make", said)) == "\n".join(
            ["Exit code: 0", "Wall time: 1 second", "Output:", "[… 7 lines]", *lines[7:]]
        )

    def test_code_in_a_string_of_json_is_cut_as_code(self):
        one = ["def weave_{n}(threads):", *["    pull(threads, 'the one behind it')"] * 8, ""]
        code = "\n".join(line.format(n=n) for n in range(3) for line in one)
        text = json.dumps({"output": code, "metadata": {"exit_code": 0}}, separators=(",", ":"))
        left = cut(reads("/loom.py", text), whole=[2 + len(one)])
        assert left == "\n".join(
            [
                '{"output":"',
                "[… 10 parts]",
                r"def weave_1(threads):\n",
                "[… 18 parts]",
                '","metadata":{"exit_code":0}}',
            ]
        )

    def test_of_a_list_in_json_whole_records_stay(self):
        records = [
            {"id": n, "name": f"loom {n}", "colours": ["red", "blue", "yellow", "white"]}
            for n in range(20)
        ]
        text = json.dumps({"looms": records}, separators=(",", ":"))
        left = cut(runs("ask looms", text), whole=[9])
        assert left is not None
        assert left.split("\n") == [
            '{"looms":[',
            "[… 7 parts]",
            json.dumps(records[7], separators=(",", ":")) + ",",
            "[… 12 parts]",
            "]}",
        ]

    def test_of_which_nothing_is_kept_only_the_marker_is_left(self):
        text = "\n".join(["    return cloth", *[f"    pull(thread, {n})" for n in range(90)]])
        history = history_of(reads("/loom.py", text), *[OTHER] * 16)
        made = [offer.edit for offer in offers(history, fair_risk=9.0)]
        assert [
            str(edit.text).partition("; ref")[0] for edit in made if isinstance(edit, Replace)
        ] == ["[respool: 91 lines left out; safe to run again"]

    def test_the_line_that_says_what_failed_stays(self):
        text = "\n".join(["error: no such thread", *[f"tried the thread {n}" for n in range(30)]])
        assert cut(reads("/loom.py", text)) == "error: no such thread\n[… 30 lines]"

    def test_how_a_run_ended_stays(self):
        lines = [f"--- PASS: TestWeaving_{n} (0.0{n}s)" for n in range(9)]
        said = "\n".join(["=== RUN", *lines, "PASS", "ok  \tloom\t0.715s", ""])
        left = ["=== RUN", "[… 9 lines]", "PASS", "ok  \tloom\t0.715s", ""]
        assert cut(runs("go test ./...", said)) == "\n".join(left)

    def test_figures_are_not_told_as_names(self):
        lines = [f"{n}.2345s weaving_{n} " + "- " * 40 for n in range(3)]
        left = cut(reads("/log", "\n".join(["begun", *lines])), names=[1, 2, 3])
        assert left == "[… 4 lines]\n[names left out: weaving_0, weaving_1, weaving_2]"

    def test_what_is_gone_does_not_come_back(self):
        text = "\n".join(f"row {n}: {'thread ' * 12}" for n in range(6))
        assert cut(runs("cat rows", text), whole=range(6)) is None
        left = cut(runs("cat rows", text), whole=range(6), gone=[2, 3])
        lines = text.split("\n")
        assert left == "\n".join([*lines[:2], "[… 2 lines]", *lines[4:]])

    @pytest.mark.parametrize(
        "name",
        [
            "0x7f3a9c0de1",
            "drwxr-xr-x",
            "_________",
            "thread\\",
            "thread\\n",
            "6H6a2m0",
            "_9_12_7",
        ],
    )
    def test_what_says_nothing_alone_is_not_told_as_a_name(self, name: str):
        lines = [f"{name} weave_{n} {'- ' * 40}" for n in range(3)]
        left = cut(reads("/log", "\n".join(["begun", *lines])), names=[1, 2, 3])
        assert left == "[… 4 lines]\n[names left out: weave_0, weave_1, weave_2]"

    def test_a_page_that_a_run_printed_is_cut_by_paragraphs(self):
        page = "\n".join(
            [
                "# The loom",
                *[
                    "It weaves the threads that are wound",
                    "onto its long and heavy warp, which is wool of old sheep.",
                ],
                "",
                "## Threads",
                *["A thread has a colour, and of each", "colour there are many."],
                "",
                *["They are cut when the cloth is done,", "and then they are wound again."],
                "",
                *["## Cloth", "Cloth is sold.", "It is worn."],
            ]
        )
        assert cut(runs("print-page loom", page), whole=[6]) == "\n".join(
            [
                *["# The loom", "[… 3 lines]", "## Threads"],
                *["A thread has a colour, and of each", "colour there are many."],
                "[… 7 lines]",
            ]
        )

    def test_hashes_and_codes_are_told_as_names(self):
        lines = [f"E0{n}277 9d53b9c{n} src\\loom{n}.py {'- ' * 40}" for n in range(3)]
        left = cut(reads("/log", "\n".join(["begun", *lines])), names=[1, 2, 3])
        assert left is not None
        assert all(f"E0{n}277, 9d53b9c{n}, src\\loom{n}.py" in left for n in range(3))

    def test_compound_words_of_prose_are_not_told_as_names(self):
        lines = [
            f"An open-source loom is long-lived, see --wind-{n}x {'- ' * 40}" for n in range(3)
        ]
        page = "\n".join(["# Looms", "", "## Old ones", *lines, "## New ones", "## None"])
        left = cut(reads("/looms.md", page), names=[3, 4, 5])
        assert left is not None
        assert "open-source" not in left
        assert "long-lived" not in left
        assert "[names left out: wind-0x, wind-1x, wind-2x]" in left

    def test_a_tag_at_the_end_of_a_run_stays_whole(self):
        lines = [f"The loom was looked at, part {n} of it too." for n in range(9)]
        usage = ["agent: 4", "<usage>tokens: 12", "calls: 3", "millis: 88</usage>"]
        left = cut(runs("ask-agent", "\n".join([*lines, *usage])))
        assert left == "\n".join([lines[0], "[… 9 lines]", *usage[1:]])

    def test_too_many_names_are_not_told(self):
        text = "\n".join(["rows:", *(f"name_{n}_a name_{n}_b " + "- " * 60 for n in range(20))])
        left = cut(runs("cat rows", text), names=range(1, 21))
        assert left is not None
        assert left.split("\n")[1].count("name_") == 12

    def test_a_name_that_also_stands_in_what_stays_is_not_listed(self):
        lines = [f"pull_{n}(warp_count) in src/loom_{n}.py {'- ' * 40}" for n in range(3)]
        ends = ["weave(src/loom_1.py, other_pull_2)", "done", "done"]
        left = cut(runs("make", "\n".join(["begun", *lines, *ends])), whole=[4], names=[1, 2, 3])
        assert left is not None
        assert left.split("\n")[1:3] == [
            "[… 3 lines]",
            "[names left out: pull_0, warp_count, src/loom_0.py, pull_1, src/loom_2.py]",
        ]

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.lists(st.lists(st.sampled_from(NAMES), max_size=6).map(" ".join), max_size=40),
        st.sets(st.integers(0, 39)),
        st.booleans(),
    )
    def test_no_listed_name_stands_in_what_stays(
        self, lines: list[str], needed: set[int], is_run: bool
    ):
        text = "\n".join(f"{line} {'- ' * 40}" for line in ("first", *lines))
        turn = runs("cat it", text) if is_run else reads("/loom.py", text)
        left = cut(turn, whole=sorted(needed), names=range(len(lines) + 1))
        if left is None:
            return
        kept = "\n".join(x for x in left.split("\n") if not is_names_line(x))
        listed = [name for line in left.split("\n") for name in names_in(line)]
        assert not [name for name in listed if name in kept]
        assert len(set(listed)) == len(listed)

    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.lists(st.text(st.characters(blacklist_characters="\n\r"), max_size=90), max_size=30),
        st.sets(st.integers(0, 29)),
    )
    def test_needed_lines_stay_in_order_and_holes_count_the_rest(
        self, lines: list[str], needed: set[int]
    ):
        lines = ["first", *lines]
        left = cut(runs("cat it", "\n".join(lines)), whole=sorted(needed))
        if left is None:
            return
        at, spoken_for = 0, 0
        for said in left.split("\n"):
            gap = parse_gap(said)
            if gap is not None and (at >= len(lines) or lines[at] != said):
                assert not needed & set(range(at, at + gap[0]))
                at += gap[0]
                spoken_for += gap[0]
            else:
                assert said == lines[at]
                at += 1
        assert at == len(lines)
        assert spoken_for > 0


GAPS = f"loom\n{'warp' * 200}\nend"  # no parts: nothing divides the long line
PARTS = "loom\n" + r"one\nin\nthree\n" * 60 + "\nend"


@pytest.mark.parametrize(
    ("original", "text", "lines"),
    [
        ("a\nb\nc\nb\nd", "a\n[… 2 lines]\nb\nd", [1, 2]),
        ("a\nb\nc", "a\n[… 1 lines]\n[names left out: one_thread]\nc", [1]),
        ("a\nb\nc", f"a\n[… 2 lines]\n{OmissionMarker(2, 'lines', reference('x'))}", [1, 2]),
        ("  1→a\n  2→b\n  3→c", "a\n[… 1 lines]\nc", [1]),  # numbers were taken out
        ("Wall time: 1\nExit code: 0\nOutput:\na\nb", "Exit code: 0\nOutput:\n[… 2 lines]", [3, 4]),
        (GAPS, "loom\n[… 1 lines]\nend", [1]),
        (PARTS, "loom\none\\nin\\n\n[… 176 parts]\nthree\\n\none\\n\n[… 1 parts]", None),
        (PARTS, "loom\none\\nin\\n\n[… 177 parts]\nthree\\n\nend", [*range(3, 180)]),
        ("a\nb\nc", "a\n[… 1 lines]", None),  # another pass cut it too
        ("a\nb\nc", "a", None),
        ("a\nb\nc\n", f"a\n[… 1 lines]\nc\n{OmissionMarker(1, 'lines', reference('x'))}", [1]),
        ("a\nb\nc", "a\n[… 1 lines]\nx", None),
        ("a\nb\nc", "a\n[… 9 lines]\nc\nd", None),
    ],
)
def test_lines_in_gaps(original: str, text: str, lines: list[int] | None):
    found = lines_in_gaps(original, text)
    assert (None if found is None else sorted(found)) == lines


def test_what_is_gone_stays_so_where_its_words_stand_again():
    """Of two equal members one was cut; the next cut may not show a piece of it."""
    first, second = [f"    colour: red_{n}, of: thread," for n in range(2)], "    count: 7,"
    member = ["loom.weave({", *first, second, "})"]
    steps = [f"step {n}: pulled a thread of the loom" for n in range(30)]
    text = "\n".join([*member, *steps, *member])
    history = history_of(runs("make", text), *[OTHER] * 16)
    at = result(history)
    lines = text.split("\n")
    cut_text = "\n".join([*lines[:6], "[… 28 lines]", lines[34], "[… 5 lines]"])
    edit = Replace(at, history.transcript.parts[at].ref, cut_text, "r", "unlikely_needed", "", 9)
    made = [offer.edit for offer in offers(history, in_force={at: edit}, fair_risk=1e-9)]
    assert made
    assert all(isinstance(one, Replace) and "[… 5 lines]" in one.text for one in made)
    assert lines_in_gaps(text, cut_text) == {*range(6, 34), *range(35, 40)}


def view(
    history: IndexedHistory, fresh_from: int = 0, in_force: dict[int, Edit] | None = None
) -> View:
    index = history.transcript
    state = state_with(
        analysis__ledger=history.ledger,
        analysis__mentions=history.mentions,
        evaluation__fresh_from=fresh_from,
        evaluation__due_from=fresh_from,
        edits__by_part=in_force or {},
        tokens__exact=[-1] * len(index.parts),
    )
    seen = View(state, context_with(), "epoch", index.units[-1].answers_from)
    # Nothing of it is protected.
    return view_with(
        seen, transcript=index, first_user=(-1, -1), pinned=(), kept_from=None, fair_risk=1e-4
    )


def offers(
    history: IndexedHistory,
    fresh_from: int = 0,
    in_force: dict[int, Edit] | None = None,
    fair_risk: float = 1e-4,
) -> list[Offer]:
    seen = view_with(view(history, fresh_from, in_force), fair_risk=fair_risk)
    return list(keep_lines(seen, Policy()))


LOG = "\n".join(
    f"step {n}: pulled the thread, all is well so far and nothing to say" for n in range(80)
)


class TestPass:
    def test_an_old_log_is_cut_and_told(self):
        history = history_of(runs("make", LOG), *[OTHER] * 16)
        made = offers(history)
        assert made
        edit = made[-1].edit
        assert isinstance(edit, Replace)
        marker = find_marker(edit.text)
        assert isinstance(marker, OmissionMarker)
        assert marker.ref == reference(LOG) == edit.original
        assert (marker.total, marker.unit) == (80, "lines")
        assert edit.reason == "unlikely_needed"
        assert edit.text.startswith("step 0:")
        assert len(edit.text) < len(LOG) / 4

    @pytest.mark.parametrize(("less", "more"), [(1e-6, 1e-4), (1e-4, 1e-2)])
    def test_the_more_a_token_is_worth_the_more_goes(self, less: float, more: float):
        history = history_of(reads("/loom.py", numbered(CODE * 9)), *[OTHER] * 16)
        saved = [sum(one.saved for one in offers(history, fair_risk=risk)) for risk in (less, more)]
        assert saved[0] < saved[1]

    def test_what_nobody_has_seen_yet_stays(self):
        assert offers(history_of(OTHER, runs("make", LOG))) == []

    @pytest.mark.parametrize(
        ("age", "looked_at", "offered"), [(1, 0, True), (3, 2, False), (4, 3, True), (7, 4, False)]
    )
    def test_offers_come_when_an_age_has_doubled(self, age: int, looked_at: int, offered: bool):
        history = history_of(runs("make", LOG), *[OTHER] * age)
        fresh_from = history.transcript.units[looked_at].answers_from
        assert bool(offers(history, fresh_from)) is offered

    def test_short_and_marked_ones_stay(self):
        marked = f"{LOG}\n{OmissionMarker(3, 'lines', reference('x'))}"
        with_a_hole = LOG.replace("\nstep 9:", "\n[… 3 lines]\nstep 9:")
        history = history_of(runs("a", "short"), runs("b", marked), runs("c", with_a_hole), OTHER)
        assert offers(history) == []

    def test_a_second_cut_goes_on_from_the_first(self):
        history = history_of(runs("make", LOG), *[OTHER] * 16)
        at = result(history)
        first = Replace(at, history.transcript.parts[at].ref, "step 0", "r", "trimmed", "", 9)
        again = [offer.edit for offer in offers(history, in_force={at: first})]
        assert all(isinstance(edit, Replace) and "step 5:" not in edit.text for edit in again)

    def test_what_a_tool_notes_for_itself_is_not_told_as_left_out(self):
        frame = "Chunk ID: 1f2e3d\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
        history = history_of(runs("make", f"{frame}{LOG}"), *[OTHER] * 16)
        at = result(history)
        some = "\n".join(LOG.split("\n")[:20])
        tidied = f"Process exited with code 0\nOutput:\n{some}"
        first = Replace(at, history.transcript.parts[at].ref, tidied, "r", "unlikely_needed", "", 9)
        again = [offer.edit for offer in offers(history, in_force={at: first})]
        assert again
        assert all(isinstance(edit, Replace) and edit.text.startswith(frame) for edit in again)

    def test_of_a_diff_more_stays(self):
        changed = [f"{'+-'[n % 2]}{line}" for n, line in enumerate(LOG.split("\n"))]
        text = "\n".join(["diff --git a/loom b/loom", "@@ -1,80 +1,80 @@", *changed])
        as_diff, as_log = (
            history_of(runs(command, text), *[OTHER] * 16) for command in ("git diff", "make")
        )
        saved = [sum(one.saved for one in offers(each)) for each in (as_diff, as_log)]
        assert saved[0] < saved[1] / 2

    def test_what_must_stay_may_lose_lines_only_where_that_is_allowed(self):
        history = history_of(runs("make", LOG), *[OTHER] * 16)
        at = result(history)
        kept = view_with(view(history), pinned={at})
        assert list(keep_lines(kept, Policy())) == []
        partly = list(keep_lines(view_with(kept, in_part={at}), Policy()))
        assert [offer.edit.part for offer in partly if isinstance(offer.edit, Replace)] == [at]

    def test_what_was_not_noted_is_left_alone(self):
        history = history_of(runs("make", LOG), OTHER)
        history.mentions = Mentions()
        assert offers(history) == []


@pytest.mark.parametrize("now", range(70))
def test_every_unit_is_due_once_for_each_doubling_of_its_age(now: int) -> None:
    for last in range(-1, now + 1):
        history_of = [
            unit for first, end in units_at_doubled_age(last, now) for unit in range(first, end)
        ]
        assert history_of == [
            unit
            for unit in range(now)
            if (now - unit).bit_length() != max(0, last - unit).bit_length()
        ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_stub_is_not_made_a_mere_hole(format: str) -> None:
    """The name of what was read is not given up for a few tokens."""
    code = "\n".join(f"def weave_{n}(thread):\n    return thread.turn({n})\n" for n in range(60))
    steps = [
        [read("/w/loom.py", code, "r")],
        *([bash(f"echo {n}", "ok", f"e{n}")] for n in range(9)),
    ]
    policy = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=1)
    first = ""
    for count in range(2, len(steps) + 1):
        body = request(format, "go", *steps[:count], done())
        out = respool.compact(body, format=format, policy=policy, memo=None)
        first = results(format, out.request)[0]
        assert first == code or not is_gap_line(first.split("\n")[0]), first
    assert first.startswith("read /w/loom.py, 179 lines\n[respool: 179 lines left out; ")


formats = pytest.mark.parametrize("format", FORMATS)
LEAN = Policy(trim_on_arrival=True)
BOLD = LEAN.replace(miss_penalty=0.5)


def code(functions: int) -> str:
    """Repetitive code, as a model hardly ever needs it line by line."""
    return "".join(
        f"{at * 10 + 1:6}→def weave_{at}(thread):\n"
        + "".join(f"{at * 10 + n:6}→    thread = turn(thread, {n})\n" for n in range(2, 11))
        for at in range(functions)
    )


FILE, LONG = code(30), code(40)
DIFF = "diff --git a/loom.py b/loom.py\n@@ -1,99 +1,99 @@\n" + "".join(
    f"-    thread = turn(thread, {n})\n+    thread = spin(thread, {n})\n" for n in range(99)
)
SEARCH: dict[str, Any] = {"tool": "Bash", "args": {"command": "rg -n thread src"}}


def arrived(format: str, *steps: Any, policy: Policy = LEAN) -> tuple[Any, list[str]]:
    """A session compacted, and its results."""
    out = respool.compact(request(format, "go", *steps), format=format, policy=policy)
    assert respool.check(out.request, format=format) == []
    return out, results(format, out.request)


def is_cut(text: str) -> bool:
    return isinstance(find_marker(text.rpartition("\n")[2]), OmissionMarker)


@formats
def test_only_where_the_policy_asks(format: str) -> None:
    steps = [[Exchange(FILE.replace("turn", "spin"), **SEARCH), bash("cat src/loom.py", FILE, "b")]]
    _, texts = arrived(format, *steps, policy=Policy())
    assert not any(map(is_cut, texts))
    out, texts = arrived(format, *steps)
    assert all(map(is_cut, texts))
    assert {edit.reason for edit in out.report.edits} == {UNLIKELY_NEEDED}
    assert out.report.epochs == 0, "what was never sent breaks no prefix"


@formats
def test_what_was_left_out_can_be_had(format: str) -> None:
    out, (text,) = arrived(format, [bash("cat src/loom.py", FILE, "b")])
    marker = find_marker(text.rpartition("\n")[2])
    assert isinstance(marker, OmissionMarker)
    assert out.originals[marker.ref] == FILE
    assert (marker.total, marker.unit) == (300, "lines")
    assert f"[… {marker.omitted} lines]" in text or text.count("[… ") > 1


@formats
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("sed -n '1,300p' src/loom.py", FILE),
        ("head -300 src/loom.py", FILE),
        ("git diff", DIFF),
    ],
)
def test_a_part_that_was_asked_for_comes_as_asked(format: str, command: str, text: str) -> None:
    _, (said,) = arrived(format, [bash(command, text, "a")], policy=BOLD)
    assert not is_cut(said)


@formats
def test_a_very_long_part_may_be_cut(format: str) -> None:
    _, (said,) = arrived(format, [bash("sed -n '1,400p' src/loom.py", LONG, "a")], policy=BOLD)
    assert len(LONG) > 12_000
    assert is_cut(said)


@formats
def test_most_of_a_new_document_stays_and_little_of_a_file_of_the_same_text(format: str) -> None:
    text = code(75)
    _, (document,) = arrived(format, [bash("cat weave.md", text, "a")])
    _, (file,) = arrived(format, [bash("cat weave.py", text, "a")])
    assert len(document) > len(text) / 2
    assert len(file) < len(text) / 5


@formats
def test_what_was_read_again_for_a_cut_comes_whole(format: str) -> None:
    """Whoever asks again after a cut gets it all: nobody is sent in circles."""
    printed = prose(Random(1), 30_000)
    out, (first, again) = arrived(
        format,
        [bash("make release", printed, "a")],
        [bash("make release", printed, "b")],
    )
    assert is_cut(first)
    assert not is_cut(again)
    assert len(out.report.refetched) == 1


@formats
def test_short_results_and_what_writes_say_stays(format: str) -> None:
    short = FILE[:700].replace("turn", "spin")
    write = Exchange(FILE, tool="Edit", args={"file_path": "/w/a.py", "new_string": "x"}, id="w")
    _, texts = arrived(format, [bash("make", short, "a"), write])
    assert not any(map(is_cut, texts))


@formats
def test_each_request_extends_the_last(format: str) -> None:
    """A cut made on arrival stays as it was sent; nothing later restores it."""
    steps: list[Any] = []
    before: list[str] = []
    for n in range(4):
        steps.append([bash(f"cat src/loom_{n}.py", FILE.replace("weave", f"w{n}"), f"c{n}")])
        # With dearer reads, so that it pays to have less than a provider would cache.
        policy = LEAN.replace(reevaluate_tokens=10**9, reevaluate_ratio=0.0, cache_read_price=0.5)
        _, said = arrived(format, *steps, policy=policy)
        assert said[: len(before)] == before
        assert is_cut(said[-1])
        before = said


@formats
def test_a_file_that_is_short_comes_whole(format: str) -> None:
    whole = FILE[:1_900]
    _, (said,) = arrived(format, [read("/w/loom.py", whole, "a")])
    assert not is_cut(said)


FAILED = FILE.replace("turn(thread, 7)", "spin(thread, 7)", 1) + "\n".join(
    ["src/loom.c:57:5: error: expected ';' before 'return'", "make: *** [loom.o] Error 1"]
)


@formats
def test_what_failed_comes_whole(format: str) -> None:
    short = f"Exit code 2\n{FAILED[-3_800:]}"
    _, (said,) = arrived(format, [bash("make release", short, "a", error=True)], policy=BOLD)
    assert not is_cut(said)


@formats
def test_a_long_failure_still_says_why(format: str) -> None:
    _, (said,) = arrived(format, [bash("make release", FAILED, "a", error=True)], policy=BOLD)
    assert is_cut(said)
    assert "error: expected ';' before 'return'" in said
