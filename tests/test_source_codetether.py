"""Repeated calls, and what stands beside them: the source's own cases by name, and others."""

from __future__ import annotations

import json
from typing import Any

import pytest

import respool
from respool import Policy
from respool.edits import DropReasoning, Replace
from respool.marker import find_marker
from respool.passes import OPT_IN
from tests.busy_sessions import bash, write
from tests.formats import FIELD, FORMATS, Exchange, request, results
from tests.source_sessions import LONG, TEXT, A, compact, compact_body, reasons, then
from tests.test_old_reasoning import thinking_session, thoughts
from tests.test_repeated_calls import arguments

formats = pytest.mark.parametrize("format", FORMATS)
# How each wire spells arguments: as an object, or as a text that the sender wrote.
SEPARATORS = {format: (", ", ": ") if "openai" in format else (",", ":") for format in FORMATS}


def repeated(format: str, *steps: Any) -> list[bool]:
    out = compact("codetether", format, *steps)
    return ["repeat_of" in one for one in arguments(format, out.request)]


def speaking(format: str, words: str, first: list[Exchange], *steps: Any) -> dict[str, Any]:
    """A session in which the model says something before its first call."""
    body = request(format, "Mend the loom.", first, *steps)
    user, call, *rest = body[FIELD[format]]
    if format == "anthropic":
        said = [{**call, "content": [{"type": "text", "text": words}, *call["content"]]}]
    elif format == "openai-chat":
        said = [{**call, "content": words}]
    elif format == "gemini":
        said = [{**call, "parts": [{"text": words}, *call["parts"]]}]
    else:
        spoken = [{"type": "output_text", "text": words, "annotations": []}]
        said = [{"type": "message", "role": "assistant", "content": spoken}, call]
    return {**body, FIELD[format]: [user, *said, *rest]}


@formats
def test_second_calls_arguments_reference_the_first(format: str):
    steps = [[bash(LONG, "a", "first")], [bash(LONG, "b", "second")], *then(10)]
    out = compact("codetether", format, *steps)
    first, second, *_ = arguments(format, out.request)
    assert first == {"command": LONG}
    assert second["repeat_of"] == "first"
    assert json.loads(respool.expand(second["ref"], out)) == {"command": LONG}
    assert results(format, out.request)[:2] == ["a", "b"], "results stay"


@formats
def test_hits_and_bytes_saved_are_counted(format: str):
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(3)]
    out = compact("codetether", format, *steps, *then(10))
    assert reasons(out) == ["repeated_call", "repeated_call"]
    size = len(json.dumps({"command": LONG}, separators=SEPARATORS[format]))
    for edit in out.report.edits:
        assert isinstance(edit, Replace)
        saved = size - len(edit.text)
        assert edit.evidence == f"same as c0, {saved:,} of {size:,} bytes saved"


@formats
def test_different_names_not_merged(format: str):
    one = Exchange("a", tool="Bash", id="1", args={"command": LONG})
    other = Exchange("b", tool="Grep", id="2", args={"command": LONG})
    assert not any(repeated(format, [one], [other], *then(10)))


@formats
def test_small_args_preserved(format: str):
    short = "ls " + "x" * 40  # under 64 bytes with its braces
    steps = [[bash(short, "a", f"c{n}")] for n in range(3)]
    assert not any(repeated(format, *steps, *then(10)))


@formats
@pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True), (9, True)])
def test_recent_calls_preserved(format: str, after: int, taken: bool):
    """A call is among the last 8 messages as long as its result is."""
    found = repeated(format, [bash(LONG, "a", "1")], [bash(LONG, "b", "2")], *then(after))
    assert found[:2] == [False, taken]


@formats
def test_a_write_in_between_makes_it_another_call(format: str):
    steps = [[bash(LONG, "a", "1")], [write(A, TEXT, "w")], [bash(LONG, "b", "2")]]
    assert not any(repeated(format, *steps, *then(10)))


@formats
@pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True)])
def test_identical_results_collapse_behind_the_last_8_messages(
    format: str, after: int, taken: bool
):
    steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
    first, second, *_ = results(format, compact("codetether", format, *steps).request)
    assert first == TEXT
    assert (find_marker(second) is not None) is taken
    assert ("call 1" in second) is taken


@formats
@pytest.mark.parametrize(("size", "taken"), [(255, False), (256, True)])
def test_identical_results_have_at_least_256_bytes(format: str, size: int, taken: bool):
    text = TEXT[: size - 1] + "."
    steps = [[bash("ls a", text, "1")], [bash("ls b", text, "2")], *then(8)]
    assert ("identical" in reasons(compact("codetether", format, *steps))) is taken


@formats
@pytest.mark.parametrize(
    ("size", "after", "taken"), [(4_096, 8, False), (4_097, 8, True), (4_097, 7, False)]
)
def test_long_old_results_keep_head_and_tail(format: str, size: int, after: int, taken: bool):
    text = "".join(f"{n:5}: a line that is printed\n" for n in range(200))[:size]
    out = compact("codetether", format, [bash("make", text, "1")], *then(after))
    left = results(format, out.request)[0]
    assert (left != text) is taken
    assert left.startswith(text[:1_024])
    assert left.endswith(text[-1_024:])
    assert len(left) <= 4_096 or not taken


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_reasoning_stays_in_the_last_4_messages(format: str):
    """Of 10 turns of two messages each the last two keep theirs; the latest one always."""
    out = compact_body("codetether", format, thinking_session(format, 10))
    assert thoughts(out.request) == [8, 9]
    assert all(isinstance(one, DropReasoning) for one in out.report.edits)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_reasoning_is_message_by_message(format: str):
    """A word of the user's is a message, too: one more turn is out of the last 4."""
    body = thinking_session(format, 6, users=(5,))
    assert thoughts(compact_body("codetether", format, body).request) == [5]


def test_reasoning_that_the_provider_demands_back_stays():
    body = thinking_session("openai-chat", 10)
    assert thoughts(compact_body("codetether", "openai-chat", body).request) == list(range(10))


@formats
def test_white_space_in_old_prose_goes_but_in_code(format: str):
    words = "I looked  at  it.   \n\n\n\nThen:\n```\na  b\n```\n" + "One.  Two.  " * 20
    body = speaking(format, words, [bash("make", "ok", "1")], *then(8))
    sent = json.dumps(compact_body("codetether", format, body).request)
    assert "I looked at it." in sent
    assert "a  b" in sent
    recent = speaking(format, words, [bash("make", "ok", "1")], *then(4))
    assert compact_body("codetether", format, recent).report.edits == ()


@formats
def test_the_last_8_messages_are_touched_by_no_pass(format: str):
    steps = [[bash(LONG, TEXT * 9, f"c{n}")] for n in range(8)]
    body = request(format, "Mend the loom.", *steps)
    out = compact_body("codetether", format, body)
    assert out.request[FIELD[format]][-8:] == body[FIELD[format]][-8:]
    assert out.request[FIELD[format]][:-8] != body[FIELD[format]][:-8]


def test_what_is_opt_in_is_not_among_the_defaults():
    assert {"repeated_calls", "squeeze_prose"} == OPT_IN
    assert set(Policy.preset("codetether").passes or ()) >= OPT_IN


@formats
def test_attention_sinks_and_a_recent_window(format: str):
    """The first words and the last 16 messages stay, and what is between them folds."""
    body = request(format, "Mend the loom.", *([bash("ls", TEXT, f"c{n}")] for n in range(20)))
    out = compact_body(
        "codetether", format, body, passes=("fold_exchanges",), fold_over=0, keep_messages=16
    )
    before, after = body[FIELD[format]], out.request[FIELD[format]]
    assert (after[0], after[-16:]) == (before[0], before[-16:])
    assert len(after) < len(before)
