"""Under the default policy a result arrives as it is, but for three things that no reader misses.

These are colour codes, lines redrawn by carriage returns, and text that stands whole further up.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool.markers import OmissionMarker, find_marker, is_gap_line, parse_gap
from respool.policy import PRESETS, Policy
from tests.effort import examples
from tests.support.formats import FORMATS, Exchange, request, results

ESC = "\x1b"
_CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # what these texts hold
_NUMBER = re.compile(r"\s*\d+[→\t]")

FILE = [f"def weave_{n}(thread): return loom[{n}]" for n in range(1, 60)]
COMMANDS = (
    "make",
    "pytest -q",
    "git log",
    "cat src/loom.py",
    "rg -n weave src",
    "ls -la",
    "docker ps",
)


def _numbered(first: int, last: int, shift: int = 0) -> str:
    lines = enumerate(FILE[first - 1 : last], first + shift)
    return "\n".join(f"{number:6}→{line}" for number, line in lines)


_PIECES = st.sampled_from(
    [
        "weaving   ",
        f"{ESC}[32mok{ESC}[0m  src/loom.py\t",
        "10%\r 50%\r100% done",
        "row row row",
        "row row row",
        "src/loom.py:3:import warp",
        "src/loom.py:9:warp(threads)",
        "",
        "",
        "Chunk ID: ab12",
        "Wall time: 0.1 seconds",
        "Process exited with code 0",
        "Original token count: 90",
        "Output:",
        "Error: the thread broke",
    ]
)
_PRINTED = st.lists(_PIECES, min_size=1, max_size=60).map("\n".join)
_FRAMED = _PRINTED.map(lambda text: f"Chunk ID: ab12\nWall time: 0.1 seconds\nOutput:\n{text}")
_READ = st.tuples(st.integers(1, 20), st.integers(30, 58), st.sampled_from((0, 0, 3))).map(
    lambda one: _numbered(*one)
)


@st.composite
def _exchanges(draw: st.DrawFn) -> list[list[Exchange]]:
    found: list[list[Exchange]] = []
    for number in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            args: dict[str, Any] = {"file_path": "/r/loom.py", "offset": number + 1, "limit": 60}
            step = Exchange(draw(_READ), id=f"c{number}", tool="Read", args=args)
        else:
            text = draw(st.one_of(_PRINTED, _FRAMED))
            command = {"command": draw(st.sampled_from(COMMANDS))}
            step = Exchange(text, id=f"c{number}", tool="Bash", args=command)
        found.append([step])
    return found


def _plain(text: str) -> str:
    """A text as a terminal shows it: every line in its last state, without colours."""
    return "\n".join(_CODE.sub("", line).split("\r")[-1] for line in text.split("\n"))


def _stands(lines: list[str], earlier: list[str]) -> bool:
    """Check that these lines stand in a row in an earlier text; that one may number them."""
    block = "\n".join(lines)
    bare = ["\n".join(_NUMBER.sub("", line) for line in text.split("\n")) for text in earlier]
    return any(f"\n{block}\n" in f"\n{text}\n" for text in (*earlier, *bare))


def _is_verbatim(arrived: str, original: str, earlier: list[str]) -> bool:
    """Check a new result against its original, without respool's own rules for either."""
    marker = find_marker(arrived)
    if marker is None:
        return arrived in (original, _plain(original), _CODE.sub("", original))
    assert isinstance(marker, OmissionMarker)
    lines, at = _CODE.sub("", original).removesuffix("\n").split("\n"), 0
    earlier = [one for text in earlier for one in (text, _CODE.sub("", text))]
    for line in arrived.split("\n"):
        if line == str(marker) and not any(map(is_gap_line, arrived.split("\n"))):
            gone = marker.omitted if marker.unit == "lines" else 1
        elif gap := parse_gap(line):
            gone = gap[0]
        elif line == str(marker):
            continue
        else:
            assert at < len(lines)
            assert line == lines[at]
            at += 1
            continue
        assert _stands(lines[at : at + gone], earlier)
        at += gone
    return at == len(lines)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(80), deadline=None)
@given(_exchanges())
def test_a_new_result_arrives_as_it_is(format: str, steps: list[list[Exchange]]) -> None:
    for policy in (Policy(), Policy(reevaluate_tokens=1, reevaluate_ratio=0.0)):
        body = request(format, "go", *steps)
        before = results(format, body)
        sent = results(
            format, respool.compact(body, format=format, policy=policy, memo=None).request
        )
        assert _is_verbatim(sent[-1], before[-1], sent[:-1])


def test_the_check_sees_what_lean_does() -> None:
    """Thinned numbers, notes that went, and counted lines are not the result as it came."""
    lean = Policy.preset("lean").replace(trim_on_arrival=False)
    step = Exchange(_numbered(1, 40), id="a", tool="Read", args={"file_path": "/r/loom.py"})
    body = request("anthropic", "go", [step])
    before, policies = results("anthropic", body), (Policy(), lean)
    sent = [results("anthropic", respool.compact(body, policy=one).request) for one in policies]
    assert [_is_verbatim(one[-1], before[-1], []) for one in sent] == [True, False]


def test_safe_is_the_default_and_keeps_the_latest_exchanges() -> None:
    assert PRESETS["safe"] == {}
    assert (Policy().keep_exchanges, Policy().line_number_interval) == (6, 1)
    assert not Policy().strip_decoration
    assert not Policy().trim_on_arrival


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("keep", [0, 2, 6])
def test_so_many_exchanges_stay_whole(format: str, keep: int) -> None:
    """At an epoch that costs nothing, all that may go goes, but for the latest exchanges."""
    rows = ["\n".join(f"row {n} of {k}: {'thread ' * 9}" for n in range(40)) for k in range(12)]
    steps = [
        [Exchange(text, id=f"c{k}", tool="Bash", args={"command": f"make part_{k}"})]
        for k, text in enumerate(rows)
    ]
    policy = Policy(keep_exchanges=keep, eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0)
    body = request(format, "go", *steps)
    sent = results(format, respool.compact(body, format=format, policy=policy, memo=None).request)
    whole = [text == row for text, row in zip(sent, rows, strict=True)]
    assert whole == [False] * (11 - keep) + [True] * (keep + 1)


def test_a_limit_counts_more_than_what_is_recent() -> None:
    rows = ["\n".join(f"row {n} of {k}: {'thread ' * 30}" for n in range(200)) for k in range(4)]
    steps = [
        [Exchange(text, id=f"c{k}", tool="Bash", args={"command": f"make part_{k}"})]
        for k, text in enumerate(rows)
    ]
    body = request("anthropic", "go", *steps, [Exchange("done", id="last")])
    out = respool.compact(body, policy=Policy(budget=12_000), memo=None)
    assert out.report.tokens_after <= 12_000
