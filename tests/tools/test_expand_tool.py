"""Expand tool: recognised by name; its results are never compacted again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import respool
from respool import Policy
from respool.edits import Offer, Replace
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.base import View
from respool.tools.identity import find_expand_tool, is_expand_tool
from tests.support.formats import FIELD, FORMATS, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))
EAGER = Policy(
    cap_chars=1_000, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)
REF = reference(LINES)


@pytest.mark.parametrize(
    "name",
    ["respool_expand", "mcp__respool__expand", "respool__expand", "respool.expand",
     "respool-expand",
     "mcp_respool_expand", "respool/expand", "mcp__respool__respool_expand",
     "mcp__plugin_respool_respool__expand"],
)  # fmt: skip
def test_it_is_known_by_every_clients_spelling(name: str) -> None:
    assert is_expand_tool(name)
    assert find_expand_tool(["Bash", name, "Read"]) == name


@pytest.mark.parametrize(
    "name",
    ["expand", "mcp__other__expand", "expand_respool", "respoolexpand", "respool_expand_all",
     "rerespool_expand", "my_respool_expand", "", "respool_expand\n"],
)  # fmt: skip
def test_other_tools_are_not_taken_for_it(name: str) -> None:
    assert not is_expand_tool(name)
    assert find_expand_tool([name]) is None


def offering(format: str, whole: dict[str, Any], *names: str) -> dict[str, Any]:
    """The request with these tools beside its own."""
    tools: Any = {
        "anthropic": [{"name": name, "input_schema": {"type": "object"}} for name in names],
        "openai-chat": [
            {"type": "function", "function": {"name": name, "parameters": {}}} for name in names
        ],
        "openai-responses": [
            {"type": "function", "name": name, "parameters": {}, "strict": False} for name in names
        ],
        "gemini": [{"functionDeclarations": [{"name": name} for name in names]}],
    }[format]
    return {**whole, "tools": [*whole["tools"], *tools]}


def stub_seen(view: View, policy: Policy) -> Iterator[Offer]:
    """A user's pass: a marker, and nothing else, for every long result that was seen."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        if not view.can_rewrite(position) or find_marker(part.text):
            continue
        ref = reference(part.text)
        text = str(
            OmissionMarker(part.text.count("\n") + 1, "lines", ref, fetch_tool=view.fetch_tool)
        )
        saved = view.saved_by(position, text)
        if saved > 0:
            yield Offer("stub", Replace(position, part.ref, text, ref, "stubbed", "seen", saved))


STUB = Policy(
    passes=(stub_seen,), reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)


@formats
@pytest.mark.parametrize("tool", ["mcp__respool__expand", "respool_expand"])
def test_a_marker_names_the_tool_only_if_the_request_offers_it(format: str, tool: str) -> None:
    steps = ("go", [Exchange(LINES, id="a")], [Exchange("done", id="b")])
    without = respool.compact(request(format, *steps), format=format, policy=STUB, memo=None)
    whole = offering(format, request(format, *steps), tool)
    offered = respool.compact(whole, format=format, policy=STUB, memo=None)
    assert results(format, without.request)[0] == f"[respool: 200 lines left out; ref {REF}]"
    expected = f"[respool: 200 lines left out; {tool} gets it back; ref {REF}]"
    assert results(format, offered.request)[0] == expected
    other = offering(format, request(format, *steps), "mcp__other__expand")
    told = respool.compact(other, format=format, policy=STUB, memo=None)
    assert results(format, told.request)[0] == results(format, without.request)[0]


@formats
def test_so_does_the_marker_of_a_cap(format: str) -> None:
    """And a request that goes on from one has its markers as they were, byte for byte."""
    capped = Policy(
        cap_chars=600,
        passes=("cap_results",),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=0,
    )
    steps = ("go", [Exchange(LINES, id="a")], [Exchange("done", id="b")], [Exchange("c", id="c")])
    said: dict[str, list[str]] = {}
    for tool in ("mcp__other__expand", "mcp__respool__respool_expand"):
        memo = respool.Memo()
        for count in (3, 4):
            whole = offering(format, request(format, *steps[:count]), tool)
            out = respool.compact(whole, format=format, policy=capped, memo=memo)
            said.setdefault(tool, []).append(results(format, out.request)[0])
    before, after = said["mcp__other__expand"]
    assert before == after
    assert "gets it back" not in before
    named, still = said["mcp__respool__respool_expand"]
    assert named == still
    assert named == before.replace("; ref ", "; mcp__respool__respool_expand gets it back; ref ")


def fetched(format: str, back: Exchange, policy: Policy = STUB) -> list[str]:
    """Texts of results after a long one was cut, brought back, and seen again long ago."""
    steps = [
        "go", [Exchange(LINES, id="a")], [Exchange("one", id="b")], [back],
        [Exchange("two", id="d")], "well?", [Exchange("three", id="e")],
    ]  # fmt: skip
    memo = respool.Memo()
    said: list[str] = []
    for count in range(1, len(steps) + 1):
        whole = request(format, *steps[:count])
        out = respool.compact(whole, format=format, policy=policy, memo=memo)
        cold = respool.compact(whole, format=format, policy=policy, memo=None)
        assert cold.request == out.request
        said = results(format, out.request)
    return said


EXPANDED = {"ref": REF}
BACK = {
    "by the tool": Exchange(LINES, id="c", tool="mcp__respool__expand", args=EXPANDED),
    "some lines by the tool": Exchange(
        LINES[:2_000], id="c", tool="respool_expand", args={**EXPANDED, "lines": [1, 50]}
    ),
    "by a command that names it": Exchange(
        f"Exit code: 0\nOutput:\n{LINES}", id="c", args={"command": f"respool expand {REF}"}
    ),
}


@formats
@pytest.mark.parametrize("how", BACK)
@pytest.mark.parametrize("policy", [STUB, EAGER], ids=["stub", "cap_chars"])
def test_what_was_fetched_back_is_never_compacted_again(
    format: str, how: str, policy: Policy
) -> None:
    first, _, back, *_ = fetched(format, BACK[how], policy)
    assert find_marker(first) is not None
    assert back == BACK[how].result


@formats
def test_so_it_is_where_a_client_keeps_projections_as_its_history(format: str) -> None:
    """A marker that came with the history leads back, too: whoever asks by it wants to see it."""
    steps = ("go", [Exchange(LINES, id="a")], [Exchange("one", id="b")])
    kept = respool.compact(request(format, *steps), format=format, policy=STUB, memo=None).request
    assert find_marker(results(format, kept)[0]) is not None
    back, field = BACK["by a command that names it"], FIELD[format]
    before: list[Any] = kept[field]
    after: list[Any] = request(format, [back], [Exchange("two", id="d")], "so?")[field]
    said = list[str]()
    for count in range(1, len(after) + 1):
        whole = {**kept, field: [*before, *after[:count]]}
        out = respool.compact(whole, format=format, policy=STUB, memo=None)
        said = results(format, out.request)
    assert said[2] == back.result


OTHERS = {
    "another text": Exchange(LINES + "!", id="c"),
    "a command with another name": Exchange(
        LINES + "!", id="c", args={"command": f"respool expand {REF[::-1]}"}
    ),
    "a longer word with the name in it": Exchange(
        LINES + "!", id="c", args={"command": f"cat x{REF}y"}
    ),
}


@formats
@pytest.mark.parametrize("how", OTHERS)
def test_what_was_not_fetched_back_is_compacted(format: str, how: str) -> None:
    assert find_marker(fetched(format, OTHERS[how])[2]) is not None


@formats
def test_a_result_that_merely_says_the_same_was_not_fetched_back(format: str) -> None:
    steps = ["go", *([Exchange(LINES, id=f"c{n}")] for n in range(5)), [Exchange("end", id="e")]]
    out = respool.compact(request(format, *steps), format=format, policy=STUB, memo=None)
    assert LINES not in results(format, out.request)[:-1]
    twice = respool.compact(out.request, format=format, policy=STUB, memo=None)
    assert twice.report.edits == ()
