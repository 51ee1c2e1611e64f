"""Mimicry: respool's own markers in model output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.forecast import line_selection
from respool.markers import (
    ClipMarker,
    OmissionMarker,
    advice_line,
    find_mimicry,
    gap_line,
    reference,
)
from respool.providers.registry import PROVIDERS
from respool.transcript import Part, Ref
from tests.support.formats import FIELD, FORMATS, Exchange, request

formats = pytest.mark.parametrize("format", FORMATS)
REF = reference("what was there")
SHORT = str(OmissionMarker(12, "lines", REF))
CAPPED = str(ClipMarker("Bash", 48_213, 32_000, 590, 1_024, "lines", 0, "npm test", False, REF))
ADVICE = advice_line("Bash (make) was called 3 times with the same result.")
NAMES = "[names left out: one_thread, src/cloth.py]"
PLACE = Ref(0, ())


def found(part: Part) -> list[tuple[str, str, str]]:
    return [(one.kind, one.tool, one.said) for one in find_mimicry([part])]


def text(said: str) -> Part:
    return Part(PLACE, "text", "model", said)


def call(arguments: object) -> Part:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Part(PLACE, "call", "model", said, name="Write")


MIMICKED: dict[str, tuple[Part, list[tuple[str, str, str]]]] = {
    "a marker in words": (text(f"Here:\n{SHORT}\nDone."), [("marker", "", SHORT)]),
    "the marker of a cap": (text(CAPPED), [("marker", "", CAPPED[:120])]),
    "a hole": (text(f"a\n{gap_line(37, 'lines')}\nb"), [("hole", "", "[… 37 lines]")]),
    "a hole in a long line": (
        text(f'{{"a": 1,\n{gap_line(1_037, "parts")}\n}}'), [("hole", "", "[… 1,037 parts]")]
    ),
    "names that stood in a hole": (text(f"a\n{NAMES}\nb"), [("names", "", NAMES)]),
    "names in arguments": (call({"content": f"import os\n{NAMES}"}), [("names", "Write", NAMES)]),
    "a hole and its names, which is one place": (
        text(f"{gap_line(37, 'lines')}\n{NAMES}"), [("hole", "", "[… 37 lines]")]
    ),
    "a hole and the marker of all, which is one place": (
        text(f"{gap_line(37, 'lines')}\n{SHORT}"), [("marker", "", SHORT)]
    ),
    "a marker in arguments": (
        call({"path": "a.py", "content": f"import os\n{SHORT}\n"}), [("marker", "Write", SHORT)]
    ),
    "deep in arguments": (
        call({"edits": [{"new": [f"x\n{SHORT}"]}]}), [("marker", "Write", SHORT)]
    ),
    "a hole in arguments": (
        call({"content": "a\n[… 1,204 rows]\nb"}), [("hole", "Write", "[… 1,204 rows]")]
    ),
    "a reference as arguments": (
        call({"repeat_of": "call_1", "bytes": 212}),
        [("repeat", "Write", '{"repeat_of":"call_1","bytes":212}')],
    ),
    "a reference that names its original": (
        call({"repeat_of": "call_1", "bytes": 212, "ref": REF}),
        [("repeat", "Write", f'{{"repeat_of":"call_1","bytes":212,"ref":"{REF}"}}')],
    ),
    "arguments of a call without a name": (
        Part(PLACE, "call", "model", SHORT), [("marker", "a tool", SHORT)]
    ),
    "a reference within arguments": (
        call({"content": {"repeat_of": "call_1"}}), [("repeat", "Write", '{"repeat_of":"call_1"}')]
    ),
    "a call told in place of made": (
        text('Now:\nThe assistant called Read (id c1) with {"file_path":"a"}\nRead returned'),
        [("call", "", 'The assistant called Read (id c1) with {"file_path":"a"}')],
    ),
    "the same without an id": (
        text("The assistant called Read (call 2 of this turn) without arguments."),
        [("call", "", "The assistant called Read (call 2 of this turn) without arguments.")],
    ),
    "a call as RFC 013 has it": (
        text("[Tool Call: Read({}) -> call_id: c1]"),
        [("call", "", "[Tool Call: Read({}) -> call_id: c1]")],
    ),
    "arguments that are a text": (
        call(f"*** Begin Patch\n{SHORT}\n*** End Patch"), [("marker", "Write", SHORT)]
    ),
    "a marker that a patch adds to a file": (
        call(f"*** Begin Patch\n*** Add File: a.py\n+import os\n+{SHORT}\n*** End Patch"),
        [("marker", "Write", SHORT)],
    ),
    "a hole that a patch in arguments adds": (
        call({"input": "*** Update File: a.py\n@@\n-x\n+    [… 37 lines]\n"}),
        [("hole", "Write", "[… 37 lines]")],
    ),
    "a marker that a diff in a shell command adds": (
        call({"command": f"apply_patch <<'EOF'\n+{CAPPED}\nEOF"}),
        [("marker", "Write", CAPPED[:120])],
    ),
    "names that a patch adds": (call(f"+{NAMES}"), [("names", "Write", NAMES)]),
    "a hole set in like the code around it": (
        call({"content": "def load():\n    [… 12 lines]\n    return rows"}),
        [("hole", "Write", "[… 12 lines]")],
    ),
    "a marker in a file with other line ends": (
        call({"content": f"import os\r\n{SHORT}\r\n"}), [("marker", "Write", SHORT)]
    ),
    "a hole before the marker of all": (
        call({"content": f"[… 12 lines]\r\n{SHORT}\r\n"}), [("marker", "Write", SHORT)]
    ),
    "advice": (text(f"I see:\n{ADVICE}"), [("advice", "", ADVICE)]),
    "advice in arguments": (call({"content": f"ok\n{ADVICE}"}), [("advice", "Write", ADVICE)]),
}  # fmt: skip

SOUND: dict[str, Part] = {
    "words about calls": text("The assistant called Read with care.\nSee [Tool Call: it is one]."),
    "a told call in arguments": call({"content": "[Tool Call: Read({}) -> call_id: c1]"}),
    "words about markers": text(
        "A line like [respool: 12 lines left out; ref …] means it was cut."
    ),
    "a marker within a line": text(f"It says {SHORT} there."),
    "a marker cut short": text(SHORT[:-1]),
    "a made-up unit": text(SHORT.replace("lines", "stanzas")),
    "names within a line": text(f"It says {NAMES} there."),
    "no names": text("[names left out: ]\n[names left out: of it]"),
    "more names than are ever told": text(f"{NAMES[:-1]}{', warp_7' * 11}]"),
    "an ellipsis": text("[… and so on]\n[…]"),
    "the words alone": text('{"repeat_of": "call_1"}'),
    "a tool that has such an argument": call({"repeat_of": "event 7", "every": "week"}),
    "no text under it": call({"repeat_of": 7}),
    "a quoted marker in code": call({"content": f'MARKER = "{SHORT}"'}),
    "what the user wrote": Part(PLACE, "opaque", "model", SHORT),
    "a line that a patch takes out, and one within a line": call(
        f"*** Update File: a.py\n-{SHORT}\n+x = '{SHORT}'\n"
    ),
    "words about advice": text("It begins with [respool noticed: and so on."),
    "nothing": text(""),
    "very deep": call('{"a":' * 500 + "1" + "}" * 500),
}


@pytest.mark.parametrize("case", MIMICKED)
def test_it_is_found(case: str) -> None:
    part, expected = MIMICKED[case]
    assert found(part) == expected


@pytest.mark.parametrize("case", SOUND)
def test_what_only_looks_like_it_is_not(case: str) -> None:
    assert found(SOUND[case]) == []


@given(st.text(), st.text())
def test_a_whole_line_is_found_in_any_text(before: str, after: str) -> None:
    (one,) = find_mimicry([call({"content": f"{before}\n{SHORT}\n{after}"})])
    assert one.kind == "marker"


ATOMS = st.from_regex(r"[A-Za-z0-9_./:@\\-]{5,30}", fullmatch=True)


@given(st.integers(1, 10**6), st.sampled_from(["lines", "parts"]), st.lists(ATOMS, max_size=12))
def test_whatever_is_told_of_a_hole_is_known_again(gone: int, unit: str, names: list[str]) -> None:
    hole, *told = line_selection._render_hole(gone, unit, names)
    assert found(text(hole)) == [("hole", "", hole)]
    assert len(told) == bool(names)
    for line in told:
        assert found(text(line)) == [("names", "", line[:120])]


def session(format: str, written: str, answer: str = "ok") -> dict[str, Any]:
    write = Exchange(answer, tool="write", id="w", args={"path": "a.py", "content": written})
    return request(format, "go", [write], "and now?", [Exchange("done", id="x")])


@formats
def test_the_report_names_the_place(format: str) -> None:
    whole = session(format, f"import os\n{SHORT}\n")
    memo = respool.Memo()
    respool.compact(whole, format=format, memo=memo)
    report = respool.compact(whole, format=format, memo=memo).report
    (one,) = report.mimicry
    assert (one.kind, one.tool, one.said) == ("marker", "write", SHORT)
    codec = PROVIDERS[format].codec  # type: ignore[index]
    parts = [p for row, m in enumerate(whole[FIELD[format]]) for p in codec.decode(row, m)]
    assert [part.kind for part in parts if part.ref == one.ref] == ["call"]
    assert f"marker mimicked at {one.ref}, in arguments of write" in report.to_text()
    assert report.to_dict()["mimicry"][0]["said"] == SHORT
    assert respool.compact(whole, format=format).request is whole, "it is reported, and not touched"


@formats
def test_only_what_the_model_wrote_counts(format: str) -> None:
    whole = session(format, "import os\n", answer=f"a\n{SHORT}\nb")
    assert respool.compact(whole, format=format).report.mimicry == ()
    said = request(format, f"what is this?\n{SHORT}", [Exchange("ok", id="a")])
    assert respool.compact(said, format=format).report.mimicry == ()
