"""Needs of an action: names, paths, numbers and lines, found in one scan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.replay.recording import NeedFinder, extract_needs
from tests.replay.support import call, recording_of, result, text, user

CASES = [
    ("Read\nsrc/app.py", {"src/app.py"}, set()),
    ("Read\nplain words only here", set(), {"plain words only here"}),
    ("Read\ncamelCase snake_case v1.2.3 word", {"camelCase", "snake_case", "v1.2.3"},
     {"camelCase snake_case v1.2.3 word"}),
    ("Read\na.b", set(), set()),  # too short
    ("Read\n./src/app.py:", {"src/app.py"}, set()),
    ("Edit\n  indented line of code\nshort", set(), {"indented line of code"}),
    ("name only", set(), set()),
    ("", set(), set()),
    ("Run\n12345", {"12345"}, set()),
]  # fmt: skip


@pytest.mark.parametrize(("found", "atoms", "lines"), CASES)
def test_needs_are_identifiers_and_lines(found: str, atoms: set[str], lines: set[str]) -> None:
    assert extract_needs(found) == (atoms, lines)


short = st.text(st.sampled_from("ab./_é"), min_size=1, max_size=6)


@given(st.lists(short, max_size=8), st.text(st.sampled_from("ab./_é\n"), max_size=80))
def test_a_finder_finds_what_a_search_for_each_would(needs: list[str], words: str) -> None:
    finder = NeedFinder(set(needs))
    found = {finder.needs[number] for number in finder.find(words)}
    assert found == {need for need in needs if need in words}


def test_needs_are_found_across_the_pieces_of_a_long_text() -> None:
    finder = NeedFinder({"needle-in-a-haystack", "never"})
    for at in (0, 65_520, 65_530, 65_536, 131_060, 199_980):
        words = "x" * at + "needle-in-a-haystack" + "x" * (200_000 - at)
        assert finder.find(words) == {finder.numbers["needle-in-a-haystack"]}


def test_lone_surrogates_do_no_harm() -> None:
    finder = NeedFinder({"bad\ud800name", "good_name"})
    assert finder.find("good_name \ud800") == {finder.numbers["good_name"]}
    assert finder.find("") == set()
    assert NeedFinder(()).find("anything") == set()


def test_a_turn_needs_only_what_its_history_held() -> None:
    messages = [
        user(text("look at src/first.py")),
        call("c1", path="src/first.py"),
        user(result("c1", "calls other_module.run_all()\n")),
        call("c2", command="grep other_module unheard_of.py"),
        user(result("c2", "nothing")),
    ]
    recording = recording_of("anthropic", messages)
    needs = recording.finder.needs
    told = [[needs[number] for number in one.atoms] for one in recording.turn_needs]
    assert told == [["src/first.py"], ["other_module"], []]
    place = recording.newest_source(recording.need_numbers["other_module"], 3)
    assert place is not None
    assert recording.sources[place].row == 2
    assert recording.describe_source(place) == "Read src/first.py (result, message 2)"
