"""The docs page on extending respool: its code runs and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import respool

PAGE = (Path(__file__).parents[1] / "docs" / "operate" / "extending.md").read_text("utf-8")
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_code_on_the_page_prints_what_it_shows() -> None:
    names: dict[str, Any] = {"__name__": "extending"}
    printed = ""
    shown = 0
    for kind, text in BLOCK.findall(PAGE):
        if kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(text, names)
            printed = said.getvalue()
        else:
            shown += 1
            assert printed == text
    assert shown == 2
    out = names["out"]
    assert out.report.failures == {}
    assert respool.check(out.request) == []
    assert respool.compact(out.request, policy=names["alone"]).report.edits == ()


def test_the_pass_on_the_page_has_twenty_lines() -> None:
    first = BLOCK.findall(PAGE)[0][1]
    body = first[first.index("def stub_listings") :].strip().split("\n")
    assert len(body) <= 20
