"""A cap for each result: the source's own cases by name, under its preset."""

from __future__ import annotations

import json
from typing import Any

import pytest

import respool
from respool import UNLIMITED, Policy, Tool, Tools
from respool.marker import MOST, find_marker
from tests.formats import FIELD, FORMATS, Exchange, request, results
from tests.source_sessions import compact, compact_body, then

formats = pytest.mark.parametrize("format", FORMATS)
BIG = "\n".join(f"{number:4} of what the shell printed, and more of it" for number in range(40))


def ending_in_words(format: str, *steps: Any) -> dict[str, Any]:
    """A session in which the model has answered, and the user goes on."""
    body = request(format, "Mend the loom.", *steps)
    answer: Any = {"role": "assistant", "content": "Done."}
    if format == "gemini":
        answer = {"role": "model", "parts": [{"text": "Done."}]}
    elif format == "openai-responses":
        spoken = [{"type": "output_text", "text": "Done.", "annotations": []}]
        answer = {"type": "message", "role": "assistant", "content": spoken}
    (user,) = request(format, "And now?")[FIELD[format]]
    return {**body, FIELD[format]: [*body[FIELD[format]], answer, user]}


def left(format: str, *steps: Any, **changes: Any) -> list[str]:
    return results(format, compact("clark", format, *steps, **changes).request)


def test_the_default_cap_is_respools_own():
    assert Policy.preset("clark").cap_chars == Policy().cap_chars == 32_000


@formats
def test_clips_oversize_tool_results_above_default_cap(format: str):
    steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
    older, newer = left(format, *steps, cap=1_000)
    assert find_marker(older) is not None
    assert len(older) <= 1_000
    assert newer == BIG


@formats
@pytest.mark.parametrize(("size", "clipped"), [(32_000, False), (32_001, True)])
def test_only_what_exceeds_the_cap_is_clipped(format: str, size: int, clipped: bool):
    text = "".join(f"{n:6} words of a log\n" for n in range(2_000))[:size]
    first, _ = left(format, [Exchange(text, id="a")], [Exchange("ok", id="b")])
    assert (first != text) is clipped


@formats
def test_preserves_tool_results_within_cap(format: str):
    steps = [[Exchange("x" * 50, id="a")], "again", [Exchange("x" * 50, id="b")]]
    assert compact("clark", format, *steps, cap=1_000).report.edits == ()


@formats
def test_per_tool_override_unlimited_keeps_verbatim(format: str):
    tools = Tools([Tool("publish", cap_chars=UNLIMITED)])
    steps = [[Exchange(BIG, id="a", tool="publish")], "more", *then(4)]
    assert left(format, *steps, cap=400, tools=tools)[0] == BIG


@formats
def test_per_tool_override_smaller_clips_below_default(format: str):
    tools = Tools([Tool("verbose", cap_chars=500)])
    steps = [[Exchange(BIG, id="a", tool="verbose")], [Exchange(BIG, id="b", tool="verbose")]]
    older, newer = left(format, *steps, cap=1_000_000, tools=tools)
    assert len(older) <= 500
    assert newer == BIG


@formats
def test_idempotent_across_repeated_apply(format: str):
    steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
    once = compact("clark", format, *steps, cap=1_000)
    twice = compact_body("clark", format, once.request, cap=1_000)
    assert twice.request == once.request
    assert twice.report.edits == ()


@formats
def test_unknown_tool_falls_back_to_default_cap(format: str):
    tools = Tools([Tool("shell", cap_chars=UNLIMITED)])
    steps = [[Exchange(BIG, id=id, tool="synthetic")] for id in ("a", "b")]
    older, newer = left(format, *steps, cap=1_000, tools=tools)
    assert (len(older) <= 1_000, newer == BIG) == (True, True)


@formats
def test_the_last_result_stays_verbatim_when_it_was_seen(format: str):
    """In the source it is the newest result that stays, whoever spoke after it."""
    body = ending_in_words(format, [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
    older, newer = results(format, compact_body("clark", format, body, cap=1_000).request)
    assert find_marker(older) is not None
    assert newer == BIG
    usual = Policy(cap_chars=1_000, passes=("cap_results",), eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0)
    _, seen = results(format, respool.compact(body, format=format, policy=usual).request)
    assert seen != BIG, "respool's own rule: what was seen may be clipped"


@formats
def test_of_calls_made_together_all_results_stay(format: str):
    together = [Exchange(BIG, id=f"p{n}") for n in range(3)]
    first, *rest = left(format, [Exchange(BIG, id="a")], together, cap=1_000)
    assert first != BIG
    assert rest == [BIG] * 3


@formats
def test_the_marker_names_tool_size_cap_and_call(format: str):
    long = "a" * 40 + "_" + "b" * 22
    steps = [[Exchange(BIG, id=long, tool="shell")], [Exchange("ok", id="b")]]
    marker = str(find_marker(left(format, *steps, cap=1_000)[0]))
    assert len(marker) <= MOST == 256
    assert all(one in marker for one in ("shell", f"{len(BIG):,}", "1,000", "aaaa"))


@formats
def test_the_history_itself_stays_and_resuming_gives_the_same(format: str):
    body = request(format, "hi", [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
    before = json.dumps(body)
    first, again = (compact_body("clark", format, body, cap=1_000) for _ in range(2))
    assert json.dumps(body) == before
    assert first.request == again.request
    assert list(first.originals.values()) == [BIG]
