"""Forecast: words and their sources, bins, rates, risks of offers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.edits import DropExchange, DropReasoning, Offer, Replace
from respool.forecast.features import (
    AGES,
    LINE_FEATURES,
    MIXED_FEATURES,
    RESULT_FEATURES,
    bin_of,
    result_features,
)
from respool.forecast.line_codes import (
    FORMS,
    INDENTS,
    LENGTHS,
    ResultWords,
    decode_form,
    decode_indent,
    decode_length,
    encode_format,
)
from respool.forecast.line_parts import LONG_LINE_CHARS, SplitText, json_parts, split_lines
from respool.forecast.mentions import Mentions, identifiers_in, strip_prefix
from respool.forecast.model import call_rate, estimate_risk, forecast_lines, line_risks, load_model
from respool.history.line_index import argument_text
from respool.transcript import Ref
from tests.effort import examples
from tests.forecast.support import (
    IndexedHistory,
    Turn,
    add,
    edits,
    history_of,
    numbered,
    reads,
    result,
    runs,
)
from tests.support.timing import seconds

LOOM = [
    "import threading",
    "",
    "def weave_all(threads, warp_count):",
    "    for one_thread in threads:",
    "        pull(one_thread, warp_count)",
    "    return finished_cloth",
]
HERE = Ref(0, ())
OTHER = Turn("Bash", {"command": "true"}, "ok")
CALIBRATED = 0.3  # turns that really missed a kept text's lines, for each one expected


class TestWords:
    @pytest.mark.parametrize(
        ("line", "atoms"),
        [
            ("plain words only", []),
            ("weave_all(threads)", ["weave_all"]),
            ("src/loom.py:12: error", ["src/loom.py:12", "src/loom.py"]),
            ("cloth.WeaveAll()", ["cloth.WeaveAll", "WeaveAll"]),
            ("see ./docs/a.md.", ["docs/a.md"]),
            ("x = 1234", []),
            ("took 12345 ms", ["12345"]),
        ],
    )
    def test_identifiers(self, line: str, atoms: list[str]):
        assert list(identifiers_in(line)) == atoms

    @pytest.mark.parametrize(
        ("line", "whole"),
        [
            ("    12→  return x  ", "return x"),
            ("7\tfoo", "foo"),
            ("src/a.py:7:import os", "import os"),
            ("no number: here", "no number: here"),
            ("", ""),
        ],
    )
    def test_a_line_without_its_place(self, line: str, whole: str):
        assert strip_prefix(line) == whole

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ('{"a": "x", "b": ["y", {"c": "z"}], "n": 3}', "x\ny\nz"),
            ("not json", "not json"),
            ("[" * 5_000, "[" * 5_000),
        ],
    )
    def test_arguments_are_read_as_their_strings(self, arguments: str, said: str):
        assert argument_text(arguments) == said

    @pytest.mark.parametrize("text", ["a" * 50_000, "/" * 50_000, "a:" * 25_000, " 1" * 25_000])
    def test_no_line_takes_long(self, text: str):
        assert (
            seconds(lambda: (list(identifiers_in(text)), encode_format(text, strip_prefix(text))))
            < 5
        )


class TestLooks:
    @pytest.mark.parametrize(
        ("line", "form"),
        [
            ("", "blank"),
            ("def weave(x):", "definition"),
            ("export async function weave() {", "definition"),
            ("import os", "import"),
            ("// why", "comment"),
            ("FAIL src/loom.py", "failure"),
            ("loom.py", "path"),
            ("});", "closing"),
            ("while (true) {", "block"),
            ("x = 1", "other"),
        ],
    )
    def test_form(self, line: str, form: str):
        assert FORMS[decode_form(encode_format(line, line))] == form

    @given(st.text(max_size=300))
    def test_one_byte_holds_all_three(self, line: str):
        look = encode_format(line, strip_prefix(line))
        assert 0 <= look < 256
        assert decode_form(look) < len(FORMS)
        assert decode_length(look) < len(LENGTHS)
        assert decode_indent(look) < len(INDENTS)


class TestMentions:
    def test_a_word_is_at_home_in_its_newest_result(self):
        history = history_of(
            reads("/a.py", "old weave_all"), reads("/b.py", "new weave_all"), OTHER
        )
        first, second = (history.mentions.results[result(history, n)] for n in (0, 1))
        assert own_names(history.mentions, first, 0, "old weave_all") == []
        assert own_names(history.mentions, second, 0, "new weave_all") == ["weave_all"]

    def test_what_was_said_is_nobodys_own(self):
        history = history_of(reads("/a.py", "weave_all"), Turn(said="I call weave_all next"))
        words = history.mentions.results[result(history)]
        assert own_names(history.mentions, words, 0, "weave_all") == []

    def test_calls_take_lines_up(self):
        text = numbered(LOOM)
        history = history_of(reads("/loom.py", text), edits("/loom.py", LOOM[4], "        rest()"))
        taken = history.mentions.used[0]
        assert 4 in taken.calls
        assert taken.units == [1]

    def test_a_file_is_named_by_its_name_too(self):
        history = history_of(reads("/w/loom.py", "x"), Turn(said="now src/loom.py"))
        assert history.mentions.last_mention("/w/loom.py") == 1
        assert history.mentions.last_mention("/w/other.py") == -1

    @settings(max_examples=examples(100), deadline=None)
    @given(st.lists(st.integers(0, 8), max_size=9), st.lists(st.integers(0, 8), max_size=6))
    def test_what_a_shorter_text_lacks(self, had: list[int], has: list[int]):
        original, text = ("\n".join(f" {WORDS[n]}" for n in one) for one in (had, has))
        history = history_of(runs("ls", original), OTHER)
        words = history.mentions.results[result(history)]
        found = history.mentions.missing(words, original, text)
        stays = {line.strip() for line in text.split("\n")}
        gone = [line.strip() not in stays for line in original.split("\n")]
        named = set(identifiers_in(text.replace("\n", " ")))
        own = [set(identifiers_in(line)) for line in original.split("\n")]
        lost = [
            one and not (names and names <= named) for one, names in zip(gone, own, strict=True)
        ]
        assert [bool(one) for one in found.lines] == gone
        assert [bool(one) for one in found.names] == lost
        assert history.mentions.missing(words, original, text) is found

    def test_a_line_without_its_number_is_not_gone(self):
        text = numbered(LOOM)
        history = history_of(reads("/loom.py", text), OTHER)
        words = history.mentions.results[result(history)]
        found = history.mentions.missing(words, text, "\n".join(LOOM[:3]))
        bare = [line.strip() for line in LOOM]
        assert [bool(one) for one in found.lines] == [line not in bare[:3] for line in bare]

    @pytest.mark.parametrize("start", ["loom.py:7:", "12: ", "3|", "localhost:8080: "])
    def test_nor_is_one_that_then_begins_like_a_place(self, start: str):
        lines = [f"{start}{line.strip() or 'rest()'}" for line in LOOM]
        text = numbered(lines)
        history = history_of(reads("/loom.py", text), OTHER)
        words = history.mentions.results[result(history)]
        assert not any(history.mentions.missing(words, text, "\n".join(lines)).lines)

    def test_few_texts_in_place_of_one_result_are_remembered(self):
        history = history_of(runs("ls", "\n".join(LOOM)), OTHER)
        words = history.mentions.results[result(history)]
        found = [history.mentions.missing(words, "\n".join(LOOM), str(n)) for n in range(30)]
        again = [
            history.mentions.missing(words, "\n".join(LOOM), str(n)) for n in range(29, -1, -1)
        ]
        kept = sum(one is two for one, two in zip(found, reversed(again), strict=True))
        assert 2 <= kept <= 8

    def test_a_word_takes_few_bytes(self):
        lines = [f"the line with number_{n} in it" for n in range(20_000)]
        history = history_of(runs("ls", "\n".join(lines)), OTHER)
        assert history.mentions.size_bytes < 150 * len(
            lines
        )  # with two words each: a name, the line

    def test_a_fork_is_refused(self):
        history = history_of(reads("/a.py", "one"), OTHER)
        index = history.transcript
        assert not history.mentions.extend(index.units, index.parts, 1)
        fresh = Mentions()
        assert fresh.extend(index.units, index.parts, 0)
        assert vars(fresh.word_index) == vars(history.mentions.word_index)

    @settings(max_examples=examples(50), deadline=None)
    @given(st.lists(st.sampled_from([*LOOM, "weave_all", "/w/a.py", ""]), min_size=1, max_size=8))
    def test_noted_at_once_or_one_by_one_is_the_same(self, lines: list[str]):
        turns = [reads("/a.py", "\n".join(lines[:n])) for n in range(1, len(lines) + 1)]
        history = history_of(*turns, Turn(said=lines[-1]))
        at_once = Mentions()
        assert at_once.extend(history.transcript.units, history.transcript.parts, 0)
        assert vars(at_once.word_index) == vars(history.mentions.word_index)
        assert at_once.results == history.mentions.results


DIFF = f"diff --git a/a.py b/a.py\n@@ -1,2 +1,2 @@\n-{LOOM[0]}\n+{LOOM[2]}"
PATCH = Turn(
    "apply_patch",
    {"input": "*** Begin Patch\n*** Update File: /a.py\n@@\n-x\n+y\n*** End Patch"},
    "Done!",
)


class TestFeatures:
    @pytest.mark.parametrize(
        ("turns", "feature", "bin"),
        [
            ([reads("/a.py", "x")], "file", "untouched"),
            ([edits("/a.py", "x", "y"), reads("/a.py", "x")], "file", "edited before"),
            ([reads("/a.py", "x"), edits("/a.py", "x", "y")], "file", "edited since"),
            ([reads("/a.py", "x"), reads("/a.py", "x")], "read again", "whole"),
            ([reads("/a.py", "x", asked="and now?")], "asked since", "no"),
            ([reads("/a.py", "x"), Turn(said="so", asked="go on")], "asked since", "once"),
            ([reads("/tests/a_test.py", "x")], "path", "test"),
            ([reads("/notes.md", "x")], "path", "prose"),
            ([runs("pytest", "3 passed in 1s")], "kind", "run test"),
            ([runs("pytest", "3 passed in 1s"), OTHER], "age", "2"),
            ([runs("git diff", DIFF)], "edits", "none"),
            ([runs("git diff", DIFF), edits("/a.py", "x", "y")], "edits", "as text"),
            ([runs("git diff", DIFF), PATCH], "edits", "as patches, a diff"),
            ([reads("/a.py", "x"), PATCH], "edits", "as patches"),
        ],
    )
    def test_of_a_result(self, turns: list[Turn], feature: str, bin: str):
        history = history_of(*turns, OTHER)
        at = next(n for n, turn in enumerate(turns) if turn.tool in ("Read", "Bash"))
        one = result_features(
            result(history, at), history.transcript, history.ledger, history.mentions
        )
        assert one is not None
        assert RESULT_FEATURES[feature][one.bins[list(RESULT_FEATURES).index(feature)]] == bin

    @pytest.mark.parametrize(
        ("line", "feature", "bin"),
        [
            (0, "own", "only here"),
            (1, "own", "short"),
            (4, "own", "said"),
            (4, "near use", "0"),
            (0, "near use", "1-2"),
            (2, "names", "1"),
            (2, "form", "definition"),
            (4, "indent", "5-8"),
        ],
    )
    def test_of_a_line(self, line: int, feature: str, bin: str):
        called = edits("/loom.py", LOOM[4], "        rest()")
        history = history_of(reads("/loom.py", numbered(LOOM)), called, OTHER)
        one = result_features(result(history), history.transcript, history.ledger, history.mentions)
        assert one is not None
        assert LINE_FEATURES[feature][one.lines[line][list(LINE_FEATURES).index(feature)]] == bin

    @pytest.mark.parametrize(("times", "bin"), [(0, "0"), (1, "1"), (2, "2+"), (9, "2+")])
    def test_how_often_a_line_was_shown_before(self, times: int, bin: str):
        shown = [reads("/loom.py", f"{LOOM[0]}\n\n{LOOM[0]}")] * times
        history = history_of(*shown, reads("/again.py", f"{LOOM[0]}\n{LOOM[0]}"), *shown, OTHER)
        at = result(history, times)
        one = result_features(at, history.transcript, history.ledger, history.mentions)
        assert one is not None
        place = list(LINE_FEATURES).index("shown before")
        assert [LINE_FEATURES["shown before"][bins[place]] for bins in one.lines] == [bin, bin]

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
    def test_every_bin_is_one_that_has_a_weight(self, texts: list[str]):
        history = history_of(*(runs("ls", text) for text in texts), OTHER)
        for position in history.transcript.results:
            one = result_features(position, history.transcript, history.ledger, history.mentions)
            assert one is not None
            assert len(one.lines) == history.transcript.parts[position].text.count("\n") + 1
            assert all(
                at < len(b) for at, b in zip(one.bins, RESULT_FEATURES.values(), strict=True)
            )
            for bins in one.lines:
                assert all(at < len(b) for at, b in zip(bins, LINE_FEATURES.values(), strict=True))

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 8))), max_size=9))
    def test_looked_at_after_each_turn_or_once_is_the_same(self, turns: list[tuple[int, set[int]]]):
        history = history_of()
        for number, (sort, chosen) in enumerate(turns):
            text = "\n".join(WORDS[n] for n in sorted(chosen))
            turn = [reads("/w/loom.py", text), Turn(said=text), runs(text, "ok")][sort]
            add(history, number, turn)
            assert all_known(history, history.mentions) == all_known(history, reindex(history))

    @pytest.mark.parametrize(
        ("age", "bin"), [(0, "0"), (1, "1"), (3, "3-4"), (64, "33-64"), (999, "65+")]
    )
    def test_ages(self, age: int, bin: str):
        assert AGES[bin_of(AGES, age)] == bin


WORDS = [*LOOM, "now /w/loom.py and", "loom.py", "weave_all of 12345 loom_parts"]


def reindex(history: IndexedHistory) -> Mentions:
    mentions = Mentions()
    assert mentions.extend(history.transcript.units, history.transcript.parts, 0)
    return mentions


def own_names(mentions: Mentions, words: ResultWords, line: int, said: str) -> list[str]:
    """The names of a line, which says this, that nobody has said and no newer result says."""
    return mentions.spelled(mentions.own_names(words, line), said)


def all_known(history: IndexedHistory, mentions: Mentions) -> list[object]:
    """All that is looked at of each result: its bins, those of its lines, their names, risks."""
    found: list[object] = []
    for position in history.transcript.results:
        one = result_features(position, history.transcript, history.ledger, mentions)
        assert one is not None
        said = enumerate(history.transcript.parts[position].text.split("\n"))
        names = [own_names(mentions, one.words, line, text) for line, text in said]
        offer = Offer("trim", Replace(position, HERE, WORDS[2], "r", "unlikely_needed", "", 1))
        found += [one.bins, one.lines, names, estimate_risk(offer, history, mentions)]
    return found


class TestModel:
    def test_the_weights_say_where_they_come_from(self):
        text = files("respool.forecast").joinpath("weights.toml").read_text("utf-8")
        document = tomllib.loads(text)
        assert document["date"]
        assert document["data"]
        assert len(text) < 300_000

    def test_pairs_of_features_can_be_evaluated(self):
        for name in ("whole", "names"):
            for first, second in (pair["of"] for pair in DOCUMENT[name]["pairs"]):
                is_line = first.startswith("line: "), second.startswith("line: ")
                assert is_line != (True, False)
                assert is_line != (False, True) or first in MIXED_FEATURES
                unique = list(LINE_FEATURES)[:7]
                assert is_line != (True, True) or {first[6:], second[6:]} <= {*unique}

    @settings(max_examples=examples(30), deadline=None)
    @given(st.lists(st.lists(st.integers(0, 8), max_size=9), min_size=1, max_size=5))
    def test_rates_are_the_product_of_all_factors(self, turns: list[list[int]]):
        texts = ("\n".join(WORDS[n] for n in turn) for turn in turns)
        history = history_of(*(reads(f"/{n}.py", text) for n, text in enumerate(texts)), OTHER)
        for position in history.transcript.results[:-1]:
            known = result_features(position, history.transcript, history.ledger, history.mentions)
            assert known is not None
            found = forecast_lines(known)
            for line, bins in enumerate(known.lines):
                assert found.whole[line] == pytest.approx(2.0 * rate_of("whole", known.bins, bins))
                assert found.names[line] == pytest.approx(1.5 * rate_of("names", known.bins, bins))

    def test_a_copy_elsewhere_makes_a_line_worth_less(self):
        text = numbered(LOOM)
        alone = history_of(reads("/loom.py", text), OTHER, OTHER)
        twice = history_of(reads("/loom.py", text), reads("/loom.py", text), OTHER)
        assert rates(twice)[2] < rates(alone)[2] / 10

    def test_what_cannot_be_needed_has_no_rate(self):
        assert rates(history_of(reads("/loom.py", numbered(LOOM)), OTHER))[1] == 0

    def test_older_is_less(self):
        text = numbered(LOOM)
        new, old = (history_of(reads("/loom.py", text), *[OTHER] * n) for n in (1, 40))
        assert sum(rates(old)) < sum(rates(new))

    @pytest.mark.parametrize("kind", ["write", "read", "other"])
    def test_calls(self, kind: str):
        assert all(0 <= call_rate(kind, age) < 1 for age in (0, 1, 5, 500))

    def test_read_once(self):
        assert load_model() is load_model()


DOCUMENT = tomllib.loads(files("respool.forecast").joinpath("weights.toml").read_text("utf-8"))


def rate_of(name: str, result_bins: Sequence[int], line_bins: Sequence[int]) -> float:
    """The rate of a line as the file says it, factor by factor."""
    if not any(line_bins[:4]):
        return 0.0
    document = DOCUMENT[name]
    at = dict(zip(RESULT_FEATURES, result_bins, strict=True))
    at |= {f"line: {of}": bin for of, bin in zip(LINE_FEATURES, line_bins, strict=True)}
    rate = document["rate"]
    for of, bins in RESULT_FEATURES.items():
        rate *= document["result"][of][bins[at[of]]]
    for of, bins in LINE_FEATURES.items():
        rate *= document["line"][of][bins[at[f"line: {of}"]]]
    for pair in document["pairs"]:
        first, second = pair["of"]
        rate *= pair["table"][at[first]][at[second]]
    return min(1.0, rate)


def rates(history: IndexedHistory) -> list[float]:
    one = result_features(result(history), history.transcript, history.ledger, history.mentions)
    assert one is not None
    found = forecast_lines(one)
    return [found.of(line) for line in range(len(one.lines))]


def replaced(text: str, reason: str = "unlikely_needed") -> Replace:
    return Replace(1, HERE, text, "r", reason, "", 1)


class TestRisk:
    history = history_of(reads("/loom.py", "\n".join(LOOM)), OTHER, OTHER)

    def of(self, *edits: Replace | DropExchange | DropReasoning, leans: bool = False) -> float:
        offer = Offer("trim", edits[0], (0,) if leans else (), edits[1:])
        return estimate_risk(offer, self.history, self.history.mentions)

    def test_all_lines_together_are_the_whole(self):
        lines = line_risks(1, self.history, self.history.mentions)
        assert self.of(replaced("")) == pytest.approx(CALIBRATED * sum(lines))
        assert sum(lines) > 0

    @pytest.mark.parametrize(
        ("offered", "leans"),
        [
            (replaced("\n".join(LOOM)), False),
            (replaced("", "tidied"), False),
            (replaced(""), True),
        ],
    )
    def test_nothing_is_at_risk(self, offered: Replace, leans: bool):
        assert self.of(offered, leans=leans) == 0

    def test_reasoning_is_seldom_missed(self):
        assert 0 < self.of(DropReasoning(0, HERE, "old_reasoning", "", 1)) < 0.05

    def test_names_that_are_told_are_not_lost(self):
        told_names = "\n".join(list(identifiers_in(LOOM[2])))
        assert self.of(replaced(told_names)) < self.of(replaced(""))

    def test_a_dropped_exchange_risks_its_call_too(self):
        dropped = DropExchange(0, HERE, "folded", "", 1)
        assert self.of(dropped) > self.of(replaced(""))
        assert self.of(dropped, replaced("")) > self.of(dropped)

    @given(st.sets(st.integers(0, len(LOOM) - 1)), st.sets(st.integers(0, len(LOOM) - 1)))
    def test_taking_more_never_risks_less(self, some: set[int], more: set[int]):
        def left(gone: set[int]) -> Replace:
            return replaced("\n".join(x for n, x in enumerate(LOOM) if n not in gone))

        assert self.of(left(some)) <= self.of(left(some | more)) + 1e-12

    @pytest.mark.parametrize(
        ("lines", "is_capped"), [(1, False), (2, False), (60, True), (400, True)]
    )
    def test_a_file_written_again_is_seldom_missed(self, lines: int, is_capped: bool):
        text = "\n".join(f"    value_{n} = weave_{n}(thread)" for n in range(lines))
        written = Turn("Write", {"file_path": "/loom.py", "content": text}, "written")
        history = history_of(written, OTHER, OTHER)
        superseded, other = (
            estimate_risk(
                Offer("drop", DropExchange(0, HERE, reason, "", 1)), history, history.mentions
            )
            for reason in ("superseded", "resolved_error")
        )
        assert superseded == (0.1 if is_capped else other)
        assert 0 < superseded <= other

    def test_what_is_not_known_is_no_risk(self):
        assert line_risks(1, self.history, Mentions()) == []
        assert estimate_risk(Offer("trim", replaced("")), self.history, Mentions()) == 0


class TestLongLines:
    """Lines in parts: escaped text, JSON, minified code."""

    text = "\n".join(f"    value_{n} = weave_{n}(thread, shuttle_{n % 7})" for n in range(200))
    wrapped = json.dumps({"returncode": 0, "output": text})
    members = json.dumps([{"name": f"loom_{n}", "threads": n} for n in range(90)])
    minified = ";".join(f"let value_{n}=weave(thread_{n})" for n in range(90))

    def risk_of(self, text: str) -> float:
        history = history_of(runs("cat loom.py", text), OTHER, OTHER)
        gone = Offer("trim", replaced(""))
        return estimate_risk(gone, history, history.mentions)

    def test_they_are_at_risk_like_lines(self):
        assert self.risk_of(self.wrapped) > 0.2 * self.risk_of(self.text)

    def test_what_is_taken_up_far_behind_is_seen(self):
        assert self.wrapped.index("weave_190") > 4_000
        history = history_of(runs("cat loom.py", self.wrapped), runs("rg weave_190", "none"))
        words = history.mentions.results[1]
        part = next(n for n, one in enumerate(split_lines(self.wrapped)) if "weave_190" in one)
        assert history.mentions.mentions_of(words).calls == {part}

    def test_an_escaped_line_is_the_line_it_says(self):
        line = '    say("one", shuttle_count)'
        text = json.dumps({"output": "\n".join([line, *["a quiet line"] * 90])})
        history = history_of(runs("cat loom.py", text), edits("/loom.py", line, "rest()"))
        assert 2 in history.mentions.used[0].calls  # behind its key

    @pytest.mark.parametrize("text", [wrapped, members, minified])
    def test_parts_are_short_and_spell_the_text(self, text: str):
        split = SplitText(f"head\n{text}\n\nend")
        assert split.has_parts
        assert split.unit == "parts"
        assert max(map(len, split.lines)) < 120
        assert split.slice(0, len(split.lines)) == [split.text]

    def test_json_is_split_by_members_and_by_the_lines_of_its_strings(self):
        short = {"id": 1, "names": ["loom", "warp"], "of": {"colour": "red", "a": 1}}
        code = "\n".join(f"def weave_{n}(thread):" for n in range(12))
        text = json.dumps({"rows": [short] * 12, "code": code, "n": 1}, separators=(",", ":"))
        split = SplitText(text)
        record = json.dumps(short, separators=(",", ":"))
        lines = code.split("\n")
        depths = [part.depth for part in split.json if part is not None]
        assert list(zip(depths, split.plain, strict=True)) == [
            (0, "{"),
            (1, '"rows":['),
            *[(2, record + ",")] * 11,
            (2, record),
            (1, "],"),
            (1, '"code":"'),
            *[(2, line) for line in lines],
            (1, '",'),
            (1, '"n":1'),
            (0, "}"),
        ]
        assert split.wrapping == (0, 0)

    @pytest.mark.parametrize(("head", "tail"), [('{"output":"', '","exit":0}'), ('["', '"]')])
    def test_what_wraps_one_string_is_told_from_it(self, head: str, tail: str):
        text = head + r"A row of the loom.\n" * 40 + tail
        split = SplitText(text)
        before, behind = split.wrapping
        assert "".join(split.lines[:before]) == head
        assert "".join(split.lines[len(split.lines) - behind :]) == tail
        assert SplitText(f"{text}\n{text}").wrapping == (0, 0)

    @given(st.text(alphabet='[]{}",:\\na ', max_size=80), st.integers(1, 40))
    def test_broken_json_is_spelled_as_it_was(self, text: str, times: int):
        line = '{"' + text.replace("\n", " ") * times + "[" * times
        parts = json_parts(line)
        starts = [part.start for part in parts]
        assert starts == sorted(set(starts))
        assert starts[0] == 0
        assert starts[-1] < len(line)
        assert all(part.depth >= 0 for part in parts)

    @given(st.text(alphabet='ab\n\\",{}; .', max_size=60), st.integers(0, 40))
    def test_offsets(self, text: str, times: int):
        split = SplitText(text * times)
        assert "\n".join(split.slice(0, len(split.lines))) == split.text
        for start, line in zip(split.starts, split.lines, strict=True):
            assert split.text.startswith(line, start)

    @pytest.mark.parametrize(
        ("text", "unit"),
        [
            (r"threads = [[0, 1],\n" * 40, r"threads = [[0, 1],\n"),
            (
                r"say(\"A thread of the loom is broken, and so is the cloth. It stands still.\")\n"
                * 9,
                r"say(\"A thread of the loom is broken, and so is the cloth. It stands still.\")\n",
            ),
            (
                "The thread is pulled through; the warp follows it as far as it can. " * 12,
                "The thread is pulled through; the warp follows it as far as it can. ",
            ),
        ],
    )
    def test_units_are_lines_and_sentences(self, text: str, unit: str):
        split = SplitText(f"{text}\nend")
        whole = ["".join(split.lines[at:end]) for at, end in pairwise(split.units)]
        assert whole[1:-2] == [unit] * (len(whole) - 3)
        assert whole[-1] == "end"

    @given(st.text(alphabet='ab\n\\",{}; .', max_size=60), st.integers(0, 40))
    def test_units_hold_every_part_once(self, text: str, times: int):
        split = SplitText(f"{text * times}\nend")
        units = split.units
        assert (units[0], units[-1]) == (0, len(split.lines))
        assert all(at < end for at, end in pairwise(units))
        spelled = ["\n".join(split.slice(at, end)) for at, end in pairwise(units)]
        assert not any("\n" in one for one in spelled)

    @given(st.text(alphabet='ab\n\\",{}; .', max_size=60), st.integers(0, 40), st.data())
    def test_a_kept_piece_ends_where_the_next_begins(
        self, text: str, times: int, data: st.DataObject
    ):
        split = SplitText(text * times)
        at = data.draw(st.integers(0, len(split.lines) - 1))
        end = data.draw(st.integers(at + 1, len(split.lines)))
        for line in "\n".join(split.slice(at, end)).split("\n"):
            following = split.following(line, at)
            assert following is not None
            at = following
        assert at == end

    @pytest.mark.parametrize("text", ["", "a\nb", "word " * (LONG_LINE_CHARS // 5)])
    def test_others_are_lines(self, text: str):
        assert split_lines(text) == text.split("\n")

    def test_kept_parts_of_a_line_stay_on_it(self):
        split = SplitText(self.members)
        assert "\n" not in "".join(split.slice(2, 9))


def test_what_is_released_is_computed_again() -> None:
    text = "\n".join(f"def weave_{at}(warp_{at}):" for at in range(30))
    history = history_of(reads("a.py", text), runs("grep weave_3 a.py", "weave_3"))
    mentions = history.mentions
    (first, words), *_ = mentions.results.items()
    owned, _ = mentions.owned(words)
    before = mentions.codes_of(words), mentions.missing(words, text, "weave_1").lines
    mentions.recent.store(words.number, owned.version, "of the first state", words.lines)
    mentions.release([first, 10_000])
    assert not mentions._owned.keys() & {words.number}
    again, changed = mentions.owned(words)
    assert changed
    assert again is not owned
    assert mentions.recent.get(words.number, again.version) is None
    assert (mentions.codes_of(words), mentions.missing(words, text, "weave_1").lines) == before
