"""The accelerator gives the results of the Python code, which is its definition."""

from __future__ import annotations

import ctypes.util
import json
import re
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import tokens
from respool.accelerator import AcceleratorError, find_accelerator, library_name
from respool.forecast.features import RESULT_FEATURES, ResultFeatures, result_features
from respool.forecast.line_selection import SelectedLines, select_lines
from respool.forecast.model import Forecast, base_rates, expected_misses, forecast_lines
from respool.forecast.native_mentions import NativeMentions
from respool.history.line_index import LineIndex, LineRun
from respool.history.native_line_index import NativeLineIndex
from respool.native_library import NativeIndex, find_known_tokens
from respool.transcript import Part, Ref
from tests.effort import examples
from tests.forecast.support import IndexedHistory, Turn, add
from tests.laws.sessions import long_session
from tests.strategies import FORMATS, growing
from tests.support.native_library import accelerated, cargo, native_library

# What the patterns of the forecast look at, alone and in combination.
WORDS = (  # noqa: SIM905 - reads better
    "def class func fn function interface type struct enum impl module const let var describe it"
    " test export default pub pub(crate) public private static abstract async override unsafe"
    " import from use using require #include package if else elif for while switch match return"
    " case default: case(x): do done fi end catch finally lock error Error ERROR FAIL FAILED"
    " failed Failure panic fatal Exception Traceback undefined names io.go:12 src/loom/weave.py"
    " text.ReadAllLines 0x9d3f5c69 deadbeef01 drwxr-xr-x 12.5s 2026-11-18 a_b warp_count WEAVE"
    " user@host ../x/y_z.toml a/b c:d:e_f weave() </output> <output> RUN === --- +++ @@ diff"
    " --git index Binary Index: *** Update File *** # ## ### ####### //"
    " /* * -- <!-- \"\"\" ''' ;; %% @x.y(z) #[a] #![b] | || && ?. .x ` ``` ~~~ ^^ --> = note -"
    " + • classes cases: ends elsewhere tests ifs errors"
    " 1. 12) |---|:-| ✗ × ✘ → 12→ 007→ 8| 9: 12: [… 2 lines] [names only there: a_b]"
    ' \\n \\\\n \\t \\" , {"a": ["b", }; ;} . ! ? ; ( [ { < ) ] } > => : '
).split(" ")
SIGNS = (
    *(" ", "  ", "    ", "\t", "\r", "\0", "\x1b[31m", "\x1b[0K", "\x1f", "\x85", "\xa0", "\u2003"),
    *("\u3000", "é", "ß", "λ", "名前", "٣", "²", "Ⅷ", "_", "\ud800", "\udfff", "😀", "\u200b", "."),
    *("/", "//", "/.", "./", ":", "=", "-", "#", "\\", '"', "'", "aB", "x" * 20, "0", "12345678"),
)
SEPARATORS = ("", " ", "  ", "/", ".", ":", ", ")
INDENTS = ("", "", "", "  ", "    ", "    ", "        ", "\t", "            ")
LONG = (601, 650, 1_300, 4_001, 4_100)

words = st.sampled_from([*WORDS, *SIGNS])
line = st.builds(
    lambda found, between: between.join(found),
    st.lists(words, max_size=9),
    st.sampled_from(SEPARATORS),
)
long_line = st.builds(
    lambda one, size: (one * (size // max(1, len(one)) + 1))[:size], line, st.sampled_from(LONG)
)
block = st.lists(line, max_size=5).flatmap(
    lambda some: st.builds(lambda times: (some * 12)[:times], st.integers(0, 40))
)
text = st.lists(
    st.one_of(st.lists(line, max_size=8), block, st.lists(long_line, max_size=1)), max_size=5
).map(lambda blocks: "\n".join(line for one in blocks for line in one))


def page(seed: int, lines: int) -> str:
    """A page of code, prose or output, with all that divides its blocks, often."""
    random = Random(seed)
    numbers = random.random() < 0.2
    found: list[str] = []
    for number in range(1, lines + 1):
        some = random.choices(WORDS if random.random() < 0.8 else SIGNS, k=random.randint(1, 6))
        line = random.choice(INDENTS) + random.choice(SEPARATORS[:3]).join(some)
        if random.random() < 0.2:
            line = ""
        elif random.random() < 0.15 and found:
            line = random.choice(found)
        elif random.random() < 0.01:
            line = (line + " ") * 90
        found.append(f"{number:6}→{line}" if numbers else line)
    return "\n".join(found)


text = st.one_of(text, st.builds(page, st.integers(0, 2**32), st.integers(1, 150)))
turn = st.builds(
    Turn,
    tool=st.sampled_from(["Read", "Bash", "Grep", "Edit", "Other"]),
    args=st.fixed_dictionaries({"file_path": st.sampled_from(["a/b.py", "c.md"]), "x": text}),
    result=text,
    said=st.one_of(st.just(""), text),
    asked=st.one_of(st.just(""), text),
)
turns = st.lists(turn, min_size=1, max_size=6)
KINDS = RESULT_FEATURES["kind"]


@pytest.fixture(scope="module")
def library() -> Any:
    """The library, built from this repository."""
    return native_library()


def both(library: Any) -> tuple[IndexedHistory, IndexedHistory]:
    """The same empty history with the index in Python, and in native code."""
    return IndexedHistory(), IndexedHistory(mentions=NativeMentions(library))


def features(history: IndexedHistory, position: int) -> ResultFeatures:
    """What is known of a result."""
    found = result_features(position, history.transcript, history.ledger, history.mentions)
    assert found is not None
    return found


def compare_results(one: IndexedHistory, other: IndexedHistory, draw: st.DataObject) -> None:
    """Compare all that is known of the results, and what shorter texts would lack."""
    assert one.mentions.late_uses == other.mentions.late_uses
    for path in ("a/b.py", "weave.py", "x/io.go", "é.md"):
        assert one.mentions.last_mention(path) == other.mentions.last_mention(path)
    for position in one.transcript.results:
        here, there = features(one, position), features(other, position)
        assert here.words == there.words
        assert here.bins == there.bins
        assert (here.owned.version, here.owned.stamp) == (there.owned.version, there.owned.stamp)
        assert here.line_bins == there.line_bins
        rates = base_rates(here)
        expected, found = forecast_lines(here), forecast_lines(there)
        assert list(expected.whole) == list(found.whole)
        assert list(expected.names) == list(found.names)
        original = one.transcript.parts[position].text
        shorter = draw.draw(st.one_of(text, shortened(original)), label="shorter")
        lacks = [
            x.mentions.missing(f.words, original, shorter) for x, f in ((one, here), (other, there))
        ]
        assert lacks[0].lines == lacks[1].lines
        assert expected_misses(here, rates, lacks[0]) == expected_misses(there, rates, lacks[1])


def shortened(original: str) -> st.SearchStrategy[str]:
    """A text without some of its lines."""
    lines = original.split("\n")
    keep = st.lists(st.booleans(), min_size=len(lines), max_size=len(lines))
    return keep.map(lambda flags: "\n".join(x for x, y in zip(lines, flags, strict=True) if y))


@settings(max_examples=examples(200), deadline=None)
@given(turns, st.data())
def test_the_index_and_the_forecast_are_the_same(
    library: Any, said: Sequence[Turn], draw: st.DataObject
) -> None:
    one, other = both(library)
    for number, turn in enumerate(said):
        add(one, number, turn)
        add(other, number, turn)
        if draw.draw(st.booleans(), label="evaluated"):
            compare_results(one, other, draw)
    compare_results(one, other, draw)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(turn, min_size=1, max_size=3), st.data())
def test_the_same_lines_are_kept(library: Any, said: Sequence[Turn], draw: st.DataObject) -> None:
    one, other = both(library)
    for number, turn in enumerate(said):
        add(one, number, turn)
        add(other, number, turn)
    position = one.transcript.results[0]
    original = one.transcript.parts[position].text
    rate = draw.draw(st.sampled_from([1e-5, 1e-4, 1e-3, 4e-3, 2e-2]), label="rate")
    named = draw.draw(st.booleans(), label="named")
    random = Random(draw.draw(st.integers(0, 2**32), label="needs"))
    lines = original.split("\n")
    total = features(one, position).words.lines
    # Needs about as large as the cost of keeping a line.
    share = random.choice((0.02, 0.1, 0.3))
    costs = [
        rate / 4 * (1 + (len(lines[at]) if total == len(lines) else 60)) for at in range(total)
    ]
    needs = [random.random() * 2 * cost * (random.random() < share) for cost in costs]
    needed = Forecast(needs, [random.random() * cost for cost in costs])
    gone: frozenset[int] = frozenset()
    if draw.draw(st.booleans(), label="again"):
        gone = frozenset(at for at in range(total) if random.random() < 0.3)
    forecast = draw.draw(st.booleans(), label="forecast")

    def cut(history: IndexedHistory, kind: int) -> SelectedLines | None:
        found = features(history, position)
        found = ResultFeatures(found.words, (kind, *found.bins[1:]), found.owned, found.mentions)
        expected, mentions = forecast_lines(found) if forecast else needed, history.mentions
        return select_lines(
            original, found, expected, mentions, rate=rate, named=named, gone_before=gone
        )

    for kind, name in enumerate(KINDS):
        here, there = cut(one, kind), cut(other, kind)
        assert (here is None) == (there is None), name
        if here is not None and there is not None:
            assert here.text == there.text, name
            assert list(here.lines) == list(there.lines), name
            assert (here.total, here.risk, here.unit) == (there.total, there.risk, there.unit)


@settings(max_examples=examples(300), deadline=None)
@given(text, text, st.data())
def test_the_same_lines_of_a_cut_text_are_known(
    library: Any, original: str, other: str, draw: st.DataObject
) -> None:
    lines = tokens._TOKEN_END.split(original)
    numbers = {
        line: number for number, line in enumerate(lines[:-1])
    }  # equal lines have equal ones
    known = array("I", [numbers.get(line, 0) for line in lines])
    for whole in (original, f"{other}\n{original}\n{other}"):
        cut = draw.draw(shortened(whole))
        expected = tokens._find_lines(original, known, cut)
        assert find_known_tokens(library, original, known, cut) == expected


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(text, min_size=2, max_size=6), st.booleans(), st.data())
def test_the_same_runs_are_found(
    library: Any, texts: Sequence[str], exact: bool, draw: st.DataObject
) -> None:
    texts = [one + "\n" + draw.draw(shortened("\n".join(texts))) for one in texts]
    parts = [Part(Ref(at, (0,)), "result", "tool", one) for at, one in enumerate(texts)]
    min_lines = {at: draw.draw(st.sampled_from([0, 1, 2, 6])) for at in range(len(parts))}
    one, other = LineIndex(), NativeLineIndex(library)
    for at, part in enumerate(parts):
        one.extend([(at, part)])
        other.extend([(at, part)])
        assert one.can_occur_before(at, part) == other.can_occur_before(at, part)
        assert runs(one, part.text, at, exact, min_lines) == runs(
            other, part.text, at, exact, min_lines
        )
    middle = len(parts) // 2  # a state that lags behind
    for index in (one, other):
        assert runs(index, texts[-1], middle, exact, min_lines) == runs(
            one, texts[-1], middle, exact, min_lines
        )


def runs(
    index: LineIndex, text: str, before: int, exact: bool, min_lines: dict[int, int]
) -> list[LineRun]:
    """The runs that an index finds in a text."""
    found = index.runs(
        text,
        0,
        text.count("\n") + 1,
        before=before,
        exact=exact,
        min_lines_of=min_lines.__getitem__,
        max_sources=2,
    )
    return list(found)


@pytest.mark.parametrize("format", FORMATS)
def test_projections_are_the_same(library: Any, format: str) -> None:
    """Of whole sessions, cut by all that the forecast decides."""
    body = json.dumps(long_session(format, 60, result=2_400, seed=3)).encode()
    edits = 0
    for policy in (
        respool.Policy(eager=True),
        respool.Policy.preset("lean"),
        respool.Policy(budget=20_000, eager=True, counter="o200k"),
    ):
        outs: list[Any] = []
        for yes in (False, True):
            with accelerated(yes):
                outs.append(respool.compact(body, format=format, policy=policy, memo=None))
        one, other = outs
        assert one.request == other.request
        assert one.originals == other.originals
        assert one.report.edits == other.report.edits
        edits += len(one.report.edits)
    assert edits


@pytest.mark.parametrize("format", FORMATS)
def test_projections_of_small_histories_are_the_same(library: Any, format: str) -> None:
    policy = respool.Policy.preset("lean").replace(
        reevaluate_tokens=1, reevaluate_ratio=0.0, miss_penalty=0.0, cap_chars=200
    )

    @settings(max_examples=examples(15), deadline=None)
    @given(growing(format))
    def check(requests: list[Any]) -> None:
        outs: list[list[Any]] = []
        for yes in (False, True):
            with accelerated(yes):
                memo = respool.Memo()
                found = [respool.compact(one, policy=policy, memo=memo) for one in requests]
            outs.append([(one.request, one.originals, one.report.edits) for one in found])
        assert outs[0] == outs[1]

    check()


def test_threads_share_a_conversation(library: Any) -> None:
    """A library's call lets other threads run: they find the index as it was or as it will be."""
    whole = long_session("anthropic", 40, result=2_400, seed=5)
    cuts = [*range(20, len(whole["messages"]), 2), len(whole["messages"])]
    bodies = [json.dumps({**whole, "messages": whole["messages"][:cut]}).encode() for cut in cuts]
    policy = respool.Policy(eager=True)
    alone = [respool.compact(one, policy=policy, memo=None).request for one in bodies]
    with accelerated(True), ThreadPoolExecutor(4) as pool:
        memo = respool.Memo()
        found = pool.map(lambda one: respool.compact(one, policy=policy, memo=memo).request, bodies)
        assert list(found) == alone


def test_classes_of_characters(library: Any) -> None:
    r"""\w, \d and \s are those of this interpreter, for every character."""
    word, digit, space = (re.compile(one) for one in (r"\w", r"\d", r"\s"))
    for point in (*range(0x40000), *range(0x40000, 0x110000, 97), 0x10FFFF):
        one = chr(point)
        expected = (
            (word.match(one) is not None)
            + 2 * (digit.match(one) is not None)
            + 4 * (space.match(one) is not None)
        )
        assert library.respool_classes_of(point) == expected, hex(point)
        assert bool(expected & 4) == one.isspace()


def test_calls_that_do_not_fit_are_refused(library: Any) -> None:
    index = NativeIndex(library)
    assert index.note_result("a\nb", 0)[0] == 0
    for call in (
        lambda: index.refresh(9),
        lambda: index.codes(2**40),
        lambda: index.missing(9, "", ""),
        lambda: library_call(library.respool_take_up, None, b"", 0, 0, False),
    ):
        with pytest.raises(AcceleratorError):
            call()


def library_call(function: Any, *arguments: Any) -> None:
    """Call the library; an error is one here too."""
    if function(*arguments) < 0:
        raise AcceleratorError


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    cases = {
        "off": "switched off by RESPOOL_NATIVE",
        str(tmp_path / "none.so"): f"there is no library at {tmp_path / 'none.so'}",
    }
    for choice, detail in cases.items():
        assert find_accelerator(choice) == respool.accelerator.AcceleratorStatus(None, detail)


def test_a_foreign_library_is_refused(tmp_path: Path) -> None:
    garbage = tmp_path / library_name()
    garbage.write_bytes(b"no library")
    assert "cannot be used" in find_accelerator(str(garbage)).detail
    other = ctypes.util.find_library("c")
    found = next(
        (
            Path(at) / str(other)
            for at in ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib")
            if (Path(at) / str(other)).is_file()
        ),
        None,
    )
    if found is not None:
        status = find_accelerator(str(found))
        assert status.library is None
        assert "is not respool's library" in status.detail


def test_the_tests_of_the_crate() -> None:
    ran = cargo("test", "--lib")
    assert ran.returncode == 0, ran.stdout + ran.stderr
