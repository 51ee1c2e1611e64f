"""What remains of a result when only the lines stay that will probably be needed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import respool
from respool.edits import Edit, Offer, Replace
from respool.forecast.features import known
from respool.forecast.keeping import kept_of
from respool.forecast.mentions import Mentions
from respool.forecast.model import Forecast
from respool.marker import Short, find_marker, hole_in, is_hole, reference
from respool.passes.keep_lines import keep_lines
from respool.passes.moments import doubled
from respool.passes.view import View
from respool.policy import Policy
from respool.tokens import counter_for
from tests.busy_sessions import bash, done, read
from tests.forecasting import Told, Turn, numbered, reads, result, runs, told
from tests.formats import FORMATS, request, results

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


def cut(
    turn: Turn, whole: Sequence[int] = (), names: Sequence[int] = (), gone: Sequence[int] = ()
) -> str | None:
    """What remains of a result, if these lines are needed as such, or for their names."""
    history = told(turn, OTHER)
    one = known(result(history), history.transcript, history.ledger, history.mentions)
    assert one is not None
    total = len(one.lines)
    expected = Forecast(
        [float(line in whole) for line in range(total)],
        [0.02 * (line in names) for line in range(total)],
    )
    kept = kept_of(turn.result, one, expected, history.mentions, RATE, gone_before=gone)
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

    def test_lines_that_are_needed_stay(self):
        assert cut(reads("/loom.py", numbered(CODE)), whole=[4, 7]) == "\n".join(
            [
                "     1→import threading",
                "     2→",
                "     3→def weave_all(threads, warp_count):",
                "[… 1 lines]",
                "     5→    return finished_cloth_of(threads, warp_count)",
                "     6→",
                "     7→def unweave(cloth):",
                "     8→    while cloth.has_rows(): cloth.take_row(from_end=True)",
                "[… 1 lines]",
            ]
        )

    def test_names_are_told_in_place_of_their_lines(self):
        assert cut(reads("/loom.py", numbered(CODE)), names=[3, 4, 7]) == "\n".join(
            [
                "     1→import threading",
                "     2→",
                "     3→def weave_all(threads, warp_count):",
                "[… 3 lines]",
                "[names only there: one_thread, finished_cloth_of]",
                "     7→def unweave(cloth):",
                "[… 2 lines]",
                "[names only there: cloth.has_rows, cloth.take_row, from_end]",
            ]
        )

    def test_what_an_agent_puts_around_an_output_stays(self):
        lines = [f"compiling part_{n} of the whole loom" for n in range(9)]
        said = "\n".join(["Exit code: 0", "Wall time: 1 second", "Output:", *lines])
        assert cut(runs("make", said)) == "\n".join(
            ["Exit code: 0", "Wall time: 1 second", "Output:", "[… 7 lines]", *lines[7:]]
        )

    def test_how_a_run_ended_stays(self):
        lines = [f"--- PASS: TestWeaving_{n} (0.0{n}s)" for n in range(9)]
        said = "\n".join(["=== RUN", *lines, "PASS", "ok  \tloom\t0.715s", ""])
        left = ["=== RUN", "[… 9 lines]", "PASS", "ok  \tloom\t0.715s", ""]
        assert cut(runs("go test ./...", said)) == "\n".join(left)

    def test_figures_are_not_told_as_names(self):
        lines = [f"{n}.2345s weaving_{n} " + "- " * 40 for n in range(3)]
        left = cut(reads("/log", "\n".join(["begun", *lines])), names=[1, 2, 3])
        assert left == "begun\n[… 3 lines]\n[names only there: weaving_0, weaving_1, weaving_2]"

    def test_what_is_gone_does_not_come_back(self):
        text = "\n".join(f"row {n}: {'thread ' * 12}" for n in range(6))
        assert cut(runs("cat rows", text), whole=range(6)) is None
        left = cut(runs("cat rows", text), whole=range(6), gone=[2, 3])
        lines = text.split("\n")
        assert left == "\n".join([*lines[:2], "[… 2 lines]", *lines[4:]])

    def test_too_many_names_are_not_told(self):
        text = "\n".join(["rows:", *(f"name_{n}_a name_{n}_b " + "- " * 60 for n in range(20))])
        left = cut(runs("cat rows", text), names=range(1, 21))
        assert left is not None
        assert left.split("\n")[2].count("name_") == 12

    @settings(max_examples=60, deadline=None)
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
            gap = hole_in(said)
            if gap is not None and (at >= len(lines) or lines[at] != said):
                assert not needed & set(range(at, at + gap[0]))
                at += gap[0]
                spoken_for += gap[0]
            else:
                assert said == lines[at]
                at += 1
        assert at == len(lines)
        assert spoken_for > 0


def view(history: Told, fresh_from: int = 0, in_force: dict[int, Edit] | None = None) -> View:
    index = history.transcript
    counter = counter_for("anthropic", None)
    return View(
        index, [-1] * len(index.parts), fresh_from, index.units[-1].answers_from, (-1, -1), counter,
        in_force or {}, ledger=history.ledger, mentions=history.mentions,
    )  # fmt: skip


def offers(
    history: Told, fresh_from: int = 0, in_force: dict[int, Edit] | None = None,
    fair_risk: float = 1e-4,
) -> list[Offer]:  # fmt: skip
    seen = replace(view(history, fresh_from, in_force), fair_risk=fair_risk)
    return list(keep_lines(seen, Policy()))


LOG = "\n".join(
    f"step {n}: pulled the thread, all is well so far and nothing to say" for n in range(80)
)


class TestPass:
    def test_an_old_log_is_cut_and_told(self):
        history = told(runs("make", LOG), *[OTHER] * 16)
        made = offers(history)
        assert made
        edit = made[-1].edit
        assert isinstance(edit, Replace)
        marker = find_marker(edit.text)
        assert isinstance(marker, Short)
        assert marker.ref == reference(LOG) == edit.original
        assert (marker.total, marker.unit) == (80, "lines")
        assert edit.reason == "unlikely_needed"
        assert edit.text.startswith("step 0:")
        assert len(edit.text) < len(LOG) / 4

    @pytest.mark.parametrize(("less", "more"), [(1e-6, 1e-4), (1e-4, 1e-2)])
    def test_the_more_a_token_is_worth_the_more_goes(self, less: float, more: float):
        history = told(reads("/loom.py", numbered(CODE * 9)), *[OTHER] * 16)
        saved = [sum(one.saved for one in offers(history, fair_risk=risk)) for risk in (less, more)]
        assert saved[0] < saved[1]

    def test_what_nobody_has_seen_yet_stays(self):
        assert offers(told(OTHER, runs("make", LOG))) == []

    @pytest.mark.parametrize(
        ("age", "looked_at", "offered"), [(1, 0, True), (3, 2, False), (4, 3, True), (7, 4, False)]
    )
    def test_offers_come_when_an_age_has_doubled(self, age: int, looked_at: int, offered: bool):
        history = told(runs("make", LOG), *[OTHER] * age)
        fresh_from = history.transcript.units[looked_at].answers_from
        assert bool(offers(history, fresh_from)) is offered

    def test_short_and_marked_ones_stay(self):
        marked = f"{LOG}\n{Short(3, 'lines', reference('x'))}"
        with_a_hole = LOG.replace("\nstep 9:", "\n[… 3 lines]\nstep 9:")
        history = told(runs("a", "short"), runs("b", marked), runs("c", with_a_hole), OTHER)
        assert offers(history) == []

    def test_a_second_cut_goes_on_from_the_first(self):
        history = told(runs("make", LOG), *[OTHER] * 16)
        at = result(history)
        first = Replace(at, history.transcript.parts[at].ref, "step 0", "r", "trimmed", "", 9)
        again = [offer.edit for offer in offers(history, in_force={at: first})]
        assert all(isinstance(edit, Replace) and "step 5:" not in edit.text for edit in again)

    def test_what_a_tool_notes_for_itself_is_not_told_as_left_out(self):
        frame = "Chunk ID: 1f2e3d\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
        history = told(runs("make", f"{frame}{LOG}"), *[OTHER] * 16)
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
            told(runs(command, text), *[OTHER] * 16) for command in ("git diff", "make")
        )
        saved = [sum(one.saved for one in offers(each)) for each in (as_diff, as_log)]
        assert saved[0] < saved[1] / 2

    def test_what_must_stay_may_lose_lines_only_where_that_is_allowed(self):
        history = told(runs("make", LOG), *[OTHER] * 16)
        at = result(history)
        kept = replace(view(history), pinned={at})
        assert list(keep_lines(kept, Policy())) == []
        partly = list(keep_lines(replace(kept, in_part={at}), Policy()))
        assert [offer.edit.part for offer in partly if isinstance(offer.edit, Replace)] == [at]

    def test_what_was_not_noted_is_left_alone(self):
        history = told(runs("make", LOG), OTHER)
        history.mentions = Mentions()
        assert offers(history) == []


@pytest.mark.parametrize("now", range(70))
def test_every_unit_is_due_once_for_each_doubling_of_its_age(now: int) -> None:
    for last in range(-1, now + 1):
        told = [unit for first, end in doubled(last, now) for unit in range(first, end)]
        assert told == [
            unit
            for unit in range(now)
            if (now - unit).bit_length() != max(0, last - unit).bit_length()
        ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_stub_is_not_made_a_mere_hole(format: str) -> None:
    """What told what was read is not given up for a few tokens less."""
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
        assert first == code or not is_hole(first.split("\n")[0]), first
    assert first.startswith("read /w/loom.py, 179 lines\n[respool: 179 lines left out; ")
