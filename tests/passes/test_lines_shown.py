"""The pass lines_shown."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool.compaction.memo import Memo
from respool.edits import Offer, Replace
from respool.engine import Compaction, FoldedRequest, build_compaction, fold_request
from respool.facts import Facts
from respool.history.line_index import NO_NUMBER, NumberedLine, parse_line, part_text
from respool.markers import OmissionMarker, find_marker, gap_line, parse_gap, reference
from respool.passes.base import View, acts
from respool.passes.lines_shown import lines_shown
from respool.policy import Policy
from tests.effort import examples
from tests.support.formats import FIELD, FORMATS, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
EAGER = Policy(
    cap_chars=None,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    keep_exchanges=0,
    strip_decoration=True,
    line_number_interval=5,
)
PRICED = Policy(
    cap_chars=None, reevaluate_tokens=1, reevaluate_ratio=0.0, miss_penalty=0.0, keep_exchanges=0
)
FILE = [f"def weave_{number}(thread): return loom[{number}]" for number in range(1, 201)]
OTHER = [f"class Spindle_{number}: turns = {number} * 3" for number in range(1, 201)]
NOTE = "\n\n<system-reminder>\nConsider whether this file is what it seems.\n</system-reminder>\n"
HEAD = "Chunk ID: {}\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
DONE = [Exchange("done", id="last")]
AGAIN = [Exchange("done again", id="again")]


def bare(*ranges: tuple[int, int], of: Sequence[str] = FILE) -> str:
    return "".join(f"{line}\n" for first, last in ranges for line in of[first - 1 : last])


def numbered(first: int, last: int, start: int | None = None, spelled: str = "{:6}→{}") -> str:
    lines = enumerate(FILE[first - 1 : last], first if start is None else start)
    return "\n".join(spelled.format(number, line) for number, line in lines)


def told(line: int, number: int) -> str:
    """One line of it as it is told: without the blanks before its number."""
    return numbered(line, line, number, "{}→{}")


def read(id: str, text: str, path: str = "/r/loom.py", **more: Any) -> list[Exchange]:
    args = {"file_path": path, "offset": 1, "limit": len(id) + ord(id[0])}  # no two the same call
    return [Exchange(text, id=id, tool="Read", args=args, **more)]


def shell(id: str, text: str, command: str = "cat /r/loom.py", **more: Any) -> list[Exchange]:
    return [Exchange(text, id=id, tool="Bash", args={"command": command}, **more)]


def write(id: str, text: str, path: str = "/r/loom.py") -> list[Exchange]:
    return [Exchange("ok", id=id, tool="Write", args={"file_path": path, "content": text})]


def folds(
    format: str, *steps: Any, policy: Policy = EAGER, passes: Any = (lines_shown,)
) -> FoldedRequest:
    return fold_request(
        request(format, *steps),
        format=format,
        policy=policy,
        facts=Facts(),
        memo=None,
        passes=passes,
    )


def compacts(format: str, *steps: Any, policy: Policy = EAGER) -> tuple[Compaction[Any], list[str]]:
    before = request(format, *steps)
    folded = fold_request(
        before, format=format, policy=policy, facts=Facts(), memo=None, passes=(lines_shown,)
    )
    out = build_compaction(folded, before)
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out, results(format, out.request)


READS = "the same as in {} reads of {} above"
READ = "the same as in the read of lines 1-98 of /r/loom.py above"
WROTE = "the same as in the write of /r/loom.py above"


def shown(text: str, gone: int, *kept: str, why: str = READ) -> str:
    """Expected text: these lines, then the marker."""
    all = len(text.removesuffix("\n").split("\n"))
    return "\n".join((*kept, str(OmissionMarker(gone, "lines", reference(text), all, why))))


def lines(first: int, last: int, of: Sequence[str] = FILE) -> list[str]:
    return list(of[first - 1 : last])


LONG = "/r/heddles_and_reeds/cloth.py"
WHOLE = bare((1, 200))
PART = bare((40, 64))
NEW = [f"a line that was never seen, no. {number}" for number in range(1, 9)]
MIDDLE = bare((40, 64)) + bare((1, 8), of=NEW) + bare((90, 120))
# What came before, the new result, and what remains of it.
CASES: dict[str, tuple[list[Any], list[Exchange], str]] = {
    "all but the first and the last line": (
        [read("a", WHOLE)], read("b", PART),
        shown(PART, 23, FILE[39], gap_line(23, "lines"), FILE[63]),
    ),
    "no break behind the last line": (
        [read("a", WHOLE)], read("b", PART.removesuffix("\n")),
        shown(PART.removesuffix("\n"), 23, FILE[39], gap_line(23, "lines"), FILE[63]),
    ),
    "two holes": (
        [read("a", WHOLE)], read("b", MIDDLE),
        shown(
            MIDDLE, 54, FILE[39], gap_line(24, "lines"), *NEW, gap_line(30, "lines"), FILE[119],
        ),
    ),
    "runs that touch make one hole": (
        [read("a", bare((40, 50))), read("c", bare((51, 64)))], read("b", PART),
        shown(
            PART, 23, FILE[39], gap_line(23, "lines"), FILE[63],
            why=(
                "the same as in the reads of lines 1-98 of /r/loom.py and "
                "lines 1-100 of /r/loom.py above"
            ),
        ),
    ),
    "what a call wrote": (
        [write("a", WHOLE)], read("b", numbered(40, 64)),
        shown(
            numbered(40, 64), 23, told(40, 40), gap_line(23, "lines"), told(64, 64), why=WROTE,
        ),
    ),
    "numbers that tools put before lines": (
        [read("a", numbered(1, 200, spelled="{:6}\t{}"))], read("b", numbered(40, 64)),
        shown(numbered(40, 64), 23, told(40, 40), gap_line(23, "lines"), told(64, 64)),
    ),
    "numbers that moved, and can be told": (
        [read("a", numbered(1, 200))], read("b", numbered(40, 64, start=43)),
        shown(
            numbered(40, 64, start=43), 23,
            told(40, 43), gap_line(23, "lines"), told(64, 67),
        ),
    ),
    "lines that end in CR LF": (
        [read("a", WHOLE.replace("\n", "\r\n"))], read("b", PART.replace("\n", "\r\n")),
        shown(
            PART.replace("\n", "\r\n"), 23, f"{FILE[39]}\r", gap_line(23, "lines"), f"{FILE[63]}\r",
        ),
    ),
    "a shell's frame stays, but for ids and idle times": (
        [shell("a", HEAD.format("aa11") + WHOLE)], shell("b", HEAD.format("bb22") + WHOLE),
        shown(
            HEAD.format("bb22") + WHOLE, 198,
            *HEAD.splitlines()[2:], FILE[0], gap_line(198, "lines"), FILE[199],
            why="the same as in the read of /r/loom.py above",
        ),
    ),
    "a note stays": (
        [read("a", WHOLE + NOTE)], read("b", WHOLE + NOTE),
        shown(WHOLE + NOTE, 198, FILE[0], gap_line(198, "lines"), FILE[199], *NOTE.splitlines()),
    ),
    "fifteen lines of another file": (
        [read("a", WHOLE, "/r/x.py")], read("b", PART),
        shown(
            PART, 23, FILE[39], gap_line(23, "lines"), FILE[63],
            why="the same as in the read of lines 1-98 of /r/x.py above",
        ),
    ),
    "three calls are counted": (
        [read("a", bare((40, 48))), read("c", bare((49, 56))), read("d", bare((57, 64)))],
        read("b", PART),
        shown(
            PART, 23, FILE[39], gap_line(23, "lines"), FILE[63], why=READS.format(3, "/r/loom.py"),
        ),
    ),
    "names that a marker has no room for are counted": (
        [read("a", bare((40, 50)), LONG), read("c", bare((51, 64)), LONG)], read("b", PART, LONG),
        shown(
            PART, 23, FILE[39], gap_line(23, "lines"), FILE[63], why=READS.format(2, LONG),
        ),
    ),
    "a call and its own result are named once": (
        [[Exchange(
            bare((50, 64)), id="a", tool="Write",
            args={"file_path": "/r/loom.py", "content": bare((40, 49))},
        )]],
        read("b", PART),
        shown(PART, 23, FILE[39], gap_line(23, "lines"), FILE[63], why=WROTE),
    ),
}  # fmt: skip


@formats
def test_line_numbers_that_stand_nowhere_else_stay(format: str) -> None:
    """With all line numbers wanted, lines whose numbers moved are no duplicates."""
    policy = EAGER.replace(line_number_interval=1)
    for start, gone in ((40, True), (43, False)):
        again = numbered(40, 64, start=start)
        steps = read("a", numbered(1, 200)), read("b", again)
        _, texts = compacts(format, "go", *steps, policy=policy)
        assert ("23 of 25 lines" in texts[-1]) is gone


@formats
@pytest.mark.parametrize("case", CASES)
def test_what_remains(format: str, case: str) -> None:
    before, new, remains = CASES[case]
    out, texts = compacts(format, "go", *before, new)
    assert texts[-1] == remains
    assert texts[:-1] == results(format, request(format, *before)), "what it leans on stays"
    (edit,) = out.report.edits
    assert edit.reason == "shown_before"
    assert respool.expand(find_marker(remains).ref, out) == new[0].result  # type: ignore[union-attr]


SOME = bare((40, 44)) + bare((1, 12), of=OTHER)
ODD = "".join(f"{number * 7}: {line}\n" for number, line in enumerate(lines(40, 64)))
HOURS = "".join(f"{{}}:{line % 60:02}:07 the loom turned once more\n" for line in range(30))
FOREIGN = bare((40, 50)) + "[… 3 lines]\n" + bare((54, 64))
BLANKS = PART.replace(")", ")  ").replace("]\n", "]  \n")
KEPT: dict[str, tuple[list[Any], list[Exchange]]] = {
    "nothing alike": ([read("a", WHOLE)], read("b", bare((1, 30), of=OTHER))),
    "a short result": ([read("a", WHOLE)], read("b", bare((40, 49)))),
    "few lines alike": ([read("a", WHOLE)], read("b", SOME)),
    "fewer lines of another file": (
        [read("a", WHOLE, "/r/x.py")], read("b", bare((40, 54)) + bare((1, 9), of=OTHER)),
    ),
    "the same lines in another order": (
        [read("a", WHOLE)], read("b", "".join(f"{line}\n" for line in lines(40, 64)[::-1])),
    ),
    "numbers that nothing tells": ([read("a", numbered(1, 200))], read("b", ODD)),
    "times of another hour": (
        [shell("a", HOURS.replace("{}", "12"))], shell("b", HOURS.replace("{}", "13"), "log"),
    ),
    "other blanks at the ends of lines": ([read("a", WHOLE)], read("b", BLANKS)),
    "other ends of lines": ([read("a", WHOLE)], read("b", PART.replace("\n", "\r\n"))),
    "an error": ([read("a", WHOLE)], shell("b", "Error: no\n" + PART, error=True)),
    "an error whose exit code a pipe hides": (
        [read("a", WHOLE)], shell("b", f"{PART}1 failed, 3 passed in 0.2s\n", "pytest | tail -90"),
    ),
    "one that has a hole of its own": ([read("a", WHOLE)], read("b", FOREIGN)),
    "one that has a marker": (
        [read("a", WHOLE)], read("b", PART + str(OmissionMarker(2, "lines", "a" * 20))),
    ),
    "what has a marker is not leaned on": (
        [read("a", WHOLE + str(OmissionMarker(2, "lines", "a" * 20)))], read("b", PART),
    ),
    "the arguments of a call that writes nothing": (
        [[Exchange("ok", id="a", tool="TodoWrite", args={"todos": WHOLE})]], read("b", PART),
    ),
}  # fmt: skip


@formats
@pytest.mark.parametrize("case", KEPT)
def test_what_stays(format: str, case: str) -> None:
    before, new = KEPT[case]
    out, texts = compacts(format, "go", *before, new)
    assert out.report.edits == ()
    assert texts[-1] == new[0].result


@formats
def test_what_the_model_has_seen_is_left_alone(format: str) -> None:
    _, (first, second, _) = compacts(format, "go", read("a", PART), read("b", WHOLE), DONE)
    assert first == PART
    assert second == shown(WHOLE, 25, *lines(1, 39), gap_line(25, "lines"), *lines(65, 200))


@formats
def test_results_that_came_together(format: str) -> None:
    parallel = [*read("a", WHOLE), *read("b", PART), *read("c", bare((30, 80)))]
    _, (first, second, third) = compacts(format, "go", parallel)
    assert first == WHOLE
    assert second == shown(PART, 23, FILE[39], gap_line(23, "lines"), FILE[63])
    assert third == shown(bare((30, 80)), 49, FILE[29], gap_line(49, "lines"), FILE[79])


@formats
def test_none_leans_on_one_that_came_with_it_and_is_cut_itself(format: str) -> None:
    second = bare((40, 64)) + bare((1, 30), of=OTHER)
    third = bare((1, 30), of=OTHER) + bare((40, 60))
    parallel = [*read("b", second), *read("c", third)]
    once, (_, cut, left) = compacts(format, "go", read("a", WHOLE), parallel)
    tail = lines(1, 30, OTHER)
    assert cut == shown(second, 24, FILE[39], gap_line(24, "lines"), *tail)
    assert left == shown(third, 20, *tail, gap_line(20, "lines"), FILE[59])
    assert again(format, once) == ()


def again(format: str, out: Compaction[Any], policy: Policy = EAGER) -> tuple[Any, ...]:
    """Edits of a projection that comes back as a request."""
    folded = fold_request(
        out.request, format=format, policy=policy, facts=Facts(), memo=None, passes=(lines_shown,)
    )
    return build_compaction(folded, out.request).report.edits


@formats
def test_who_asks_again_gets_it_all(format: str) -> None:
    ask = shell("b", PART, "sed -n 40,64p /r/loom.py")
    more = [shell(id, PART, "sed -n 40,64p /r/loom.py") for id in ("c", "d")]
    once, texts = compacts(format, "go", read("a", WHOLE), ask, *more)
    assert find_marker(texts[1]) is not None
    assert texts[2:] == [PART, PART]
    assert again(format, once) == (), "nor when the projection itself comes back"


@formats
def test_of_many_sources_four_are_used(format: str) -> None:
    pieces = [bare((first, first + 19)) for first in range(1, 120, 20)]
    before = [read(id, piece) for id, piece in zip("acdefg", pieces, strict=True)]
    folded = folds(format, "go", *before, read("b", "".join(pieces)))
    (leans,) = folded.state.edits.dependencies.values()
    assert len(leans) == 4
    (edit,) = folded.state.edits.by_part.values()
    assert isinstance(edit, Replace)
    kept = edit.text.split("\n")
    assert kept == [FILE[0], gap_line(79, "lines"), *lines(81, 120), kept[-1]]


@pytest.mark.parametrize("format", [one for one in FORMATS if one != "openai-chat"])
def test_an_image_beside_the_text_stays(format: str) -> None:
    steps = ("go", read("a", WHOLE), read("b", PART, image=True))
    out, texts = compacts(format, *steps)
    assert texts[-1] == shown(PART, 23, FILE[39], gap_line(23, "lines"), FILE[63])
    images = re.compile(r"iVBORw0KGgo")
    assert len(images.findall(str(out.request))) == len(
        images.findall(str(request(format, *steps)))
    )


def test_a_result_of_several_texts() -> None:
    before = request("anthropic", "go", read("a", WHOLE), read("b", ""))
    blocks = [{"type": "text", "text": bare((40, 64))}, {"type": "text", "text": bare((70, 90))}]
    before["messages"][-1]["content"][0]["content"] = blocks
    folded = fold_request(
        before, format="anthropic", policy=EAGER, facts=Facts(), memo=None, passes=(lines_shown,)
    )
    out = build_compaction(folded, before)
    assert respool.check(out.request, format="anthropic") == []
    (edit,) = folded.state.edits.by_part.values()
    assert isinstance(edit, Replace)
    original = folded.state.transcript.parts[edit.part].text
    assert _restored(folded, edit) == original
    assert results("anthropic", out.request)[-1] == edit.text


def test_a_result_that_comes_late() -> None:
    """In Responses an output may follow after other calls; then it may lean on what they showed."""
    slow = {"type": "function_call", "call_id": "s", "name": "Bash", "arguments": '{"command":"x"}'}
    before = request("openai-responses", "go", read("a", WHOLE), DONE)
    before["input"].insert(1, slow)
    before["input"].append({"type": "function_call_output", "call_id": "s", "output": PART})
    folded = fold_request(
        before,
        format="openai-responses",
        policy=EAGER,
        facts=Facts(),
        memo=None,
        passes=(lines_shown,),
    )
    out = build_compaction(folded, before)
    remains = shown(PART, 23, FILE[39], gap_line(23, "lines"), FILE[63])
    assert results("openai-responses", out.request) == [WHOLE, "done", remains]
    assert respool.check(out.request, format="openai-responses") == []


# Epochs: where a text goes that others lean on, they say all again.


@acts(at_arrival=False, at_epochs=True)
def cut_the_first(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut the first result once there are three."""
    position = view.transcript.results[0]
    if len(view.transcript.results) > 2 and view.can_rewrite(position):
        part = view.transcript.parts[position]
        ref = reference(part.text)
        text = str(OmissionMarker(200, "lines", ref))
        saved = view.saved_by(position, text)
        yield Offer("trim", Replace(position, part.ref, text, ref, "trimmed", "", saved))


BOTH = (lines_shown, cut_the_first)


@formats
def test_an_epoch_that_cuts_the_source_gives_the_lines_back(format: str) -> None:
    long = bare((1, 1500), of=[*FILE, *(f"and then thread {number}" for number in range(1300))])
    steps = ("go", read("a", long), read("b", PART))
    state = folds(format, *steps, policy=PRICED, passes=BOTH).state
    leaner, source = state.transcript.results[1], state.transcript.results[0]
    assert state.edits.dependencies == {leaner: (source,)}
    before = request(format, *steps, DONE, AGAIN)  # with which the cut takes force
    folded = fold_request(
        before, format=format, policy=PRICED, facts=Facts(), memo=None, passes=BOTH
    )
    out = build_compaction(folded, before)
    first, second, *_ = results(format, out.request)
    assert find_marker(first) is not None
    assert second == PART
    assert (set(folded.state.edits.by_part), folded.state.edits.dependencies) == ({source}, {})
    assert folded.state.edits.claimed == {source}
    assert folded.state.edits.saved == folded.state.edits.by_part[source].saved
    assert (
        out.report.tokens_before - out.report.tokens_after
        == folded.state.edits.by_part[source].saved
    )
    memo = Memo()
    for one in (request(format, *steps), request(format, *steps, DONE), before):
        warm = build_compaction(
            fold_request(one, format=format, policy=PRICED, facts=Facts(), memo=memo, passes=BOTH),
            one,
        )
    assert warm.request == out.request
    lean = out.request[FIELD[format]]
    assert lean[-3:] == before[FIELD[format]][-3:]


@formats
def test_a_source_whose_leaners_save_more_stays(format: str) -> None:
    steps = ("go", read("a", WHOLE), read("b", WHOLE), read("c", WHOLE), DONE)
    state = folds(format, *steps, policy=PRICED, passes=BOTH).state
    first, *others = state.transcript.results[:3]
    assert set(state.edits.by_part) == set(others)
    assert state.edits.dependencies == dict.fromkeys(others, (first,))


@formats
def test_taken_at_once_no_cut_hits_what_is_leaned_on(format: str) -> None:
    state = folds(format, "go", read("a", WHOLE), read("b", PART), DONE, passes=BOTH).state
    assert set(state.edits.by_part) == {state.transcript.results[1]}


# Laws.

LINES = [*FILE[:30], *OTHER[:6], "", "}", "    pass", "\tindented", "x = 1  ", "[… 3 lines]"]
CHUNKS = st.tuples(st.integers(0, 30), st.integers(1, 30)).map(
    lambda at: LINES[at[0] : at[0] + at[1]]
)
TEXTS = st.builds(
    lambda chunks, ends, cr: ("\r\n" if cr else "\n").join(chain(*chunks)) + "\n" * ends,
    st.lists(CHUNKS, min_size=1, max_size=5),
    st.integers(0, 2),
    st.booleans(),
)
TOOLS = st.sampled_from(["Read", "Bash", "Write"])
COUNTED = st.sampled_from([None, 1, 7])  # the number of the first line, where they have numbers


def _numbers(text: str, first: int | None) -> str:
    if first is None:
        return text
    return "\n".join(f"{n}\t{line}" for n, line in enumerate(text.split("\n"), first))


def _step(calls: list[tuple[str, str, int | None, int]], number: int) -> list[Exchange]:
    made: list[Exchange] = []
    for at, (tool, text, first, file) in enumerate(calls):
        id, path = f"c{number}x{at}", f"/r/{file}.py"
        args = {
            "Read": {"file_path": path, "limit": file},
            "Bash": {"command": f"cat {path}"},
            "Write": {"file_path": path, "content": text},
        }[tool]
        result = "ok" if tool == "Write" else _numbers(text, first)
        made.append(Exchange(result, id=id, tool=tool, args=args))
    return made


def _session(steps: list[Any]) -> list[Any]:
    return ["go", *(_step(calls, number) for number, calls in enumerate(steps))]


CALLS = st.tuples(TOOLS, TEXTS, COUNTED, st.integers(1, 2))
SESSIONS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=2, max_size=5).map(_session)


def _restored(folded: FoldedRequest, edit: Replace) -> str:
    """The text again, from what remains: every line of a hole must stand in what it leans on."""
    state = folded.state
    original = state.transcript.parts[edit.part].text.split("\n")
    texts = [
        part_text(state.transcript.parts[source]) for source in state.edits.dependencies[edit.part]
    ]
    there = {parse_line(one) for text in texts for one in text.split("\n")}
    *kept, marker = edit.text.split("\n")
    found: list[str] = []
    gone = 0
    for line in kept:
        count, _ = parse_gap(line) or (0, "")
        hidden = original[len(found) : len(found) + count]
        before = [parse_line(one).number for one in (*found[-1:], *hidden)]
        assert all(map(partial(_is_told, there), map(parse_line, hidden), before))
        found += hidden or [line]
        gone += count
    said_of_it = find_marker(marker)
    assert isinstance(said_of_it, OmissionMarker)
    assert said_of_it.omitted == gone
    assert said_of_it.total == len(found) == len(original) - (not original[-1])
    return "\n".join(found) + ("" if original[-1] else "\n")


def _is_told(there: set[NumberedLine], line: NumberedLine, before: int) -> bool:
    """Return whether a reader finds the content of a line and can infer its number."""
    numbers = {one.number for one in there if one.bare == line.bare}
    if not numbers or line.number in (NO_NUMBER, *numbers):
        return bool(numbers)
    return before != NO_NUMBER and line.number == before + 1


@pytest.mark.parametrize("format", FORMATS)
def test_laws(format: str) -> None:
    @settings(max_examples=examples(60), deadline=None)
    @given(SESSIONS)
    def holds(steps: list[Any]) -> None:
        before = request(format, *steps)
        every = EAGER.replace(
            line_number_interval=1, strip_decoration=False
        )  # so that what is left out can be put back
        folded = fold_request(
            before, format=format, policy=every, facts=Facts(), memo=None, passes=(lines_shown,)
        )
        state, out = folded.state, build_compaction(folded, before)
        assert respool.check(out.request, format=format) == []
        for part, edit in state.edits.by_part.items():
            assert isinstance(edit, Replace)
            original = state.transcript.parts[part].text
            assert _restored(folded, edit) == original
            assert respool.expand(edit.original, out) == original
            assert len(edit.text) < len(original)
            assert edit.saved >= 40
            assert all(
                one not in state.edits.claimed and one < part
                for one in state.edits.dependencies[part]
            )
        assert again(format, out, every) == ()

    holds()


SALTED = """
import sys
from tests.passes.test_lines_shown import MIDDLE, WHOLE, compacts, read
out, texts = compacts("anthropic", "go", read("a", WHOLE), read("b", MIDDLE))
sys.stdout.write(texts[-1])
"""


def test_every_process_says_the_same() -> None:
    other = subprocess.run(
        [sys.executable, "-c", SALTED],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    _, texts = compacts("anthropic", "go", read("a", WHOLE), read("b", MIDDLE))
    assert other == texts[-1]
