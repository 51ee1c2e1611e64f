"""Scripts and judgement of agent runs that several frameworks' tests share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from respool import Policy, Tool, Tools
from respool.integrations.shadow import EXPAND_TOOL
from respool.loops import LoopDetector
from respool.loops.observations import REFUSAL_PREFIX
from respool.markers import ADVICE_START
from tests.integrations.upstream import MARKER, Ask, Upstream, history_of, read_text

TOOLS = Tools(
    [
        Tool("read_file", kind="read", reads="path"),
        Tool("write_file", kind="write", writes="path", replaces=True),
    ]
)
EAGER = Policy(eager=True, keep_exchanges=2, reevaluate_tokens=1, tools=TOOLS)
FOLDING = EAGER.replace(budget=30_000, passes=("fold_exchanges",))
WIRES = ("anthropic", "chat", "responses", "gemini")
MISSING = "/w/missing.py"
SIGNATURES = {"anthropic": b"c2ln", "responses": b"Z0FB", "gemini": b"c2lnbmF0dXJl"}
CALLS = ('"type": "tool_use"', '"type": "function_call"', '"functionCall"', '"function_call": {')


class Expanding(list[Any]):
    """A script that asks for the original behind the first marker at the provider."""

    server: Upstream

    def __init__(self, script: Sequence[Sequence[Ask]]) -> None:
        super().__init__([*script, [(EXPAND_TOOL, {})]])

    def __getitem__(self, turn: Any) -> Any:
        if turn < len(self) - 1:
            return super().__getitem__(turn)
        return [(EXPAND_TOOL, {"ref": self.server.refs()[0]})]


def marks(server: Upstream) -> list[int]:
    """The number of markers in the history of each request; the expand tool names one itself."""
    return ["".join(history_of(body)).count(MARKER) for body in server.bodies]


def calls_of(body: dict[str, Any]) -> int:
    """The number of calls in a request."""
    text = json.dumps(history_of(body)).replace("\\", "")
    inside = sum(len(one.get("tool_calls") or ()) for one in body.get("messages", ()))
    return inside + sum(text.count(name) for name in CALLS)


def judge(server: Upstream, plain: Upstream, *, most: float = 0.7) -> None:
    """Check that every request is valid, and that all of them are much smaller."""
    assert server.problems() == []
    assert any(marks(server))
    assert not any(marks(plain))
    assert len(server.raw) == len(plain.raw)
    print(f"{plain.size} bytes without, {server.size} with; markers {marks(server)}")
    assert server.size < most * plain.size


def epochs(server: Upstream) -> int:
    """How often the number of markers in the history changed."""
    found = marks(server)
    return sum(after != before for before, after in pairwise(found))


def judge_reasoning(server: Upstream, wire: str, *, kept: int = 2) -> None:
    """Check that reasoning stays where it must, and that what led to a call goes whole or not."""
    key = SIGNATURES[wire]
    for turn, (raw, body) in enumerate(zip(server.raw, server.bodies, strict=True)):
        calls = calls_of(body)
        if wire != "responses":
            # All calls are of the running turn: the provider wants their signatures.
            assert (raw.count(key) > 0) == (calls > 0)
            continue
        items = body["input"]
        ids = [item.get("id", "") for item in items]
        reasons = [at for at, id in enumerate(ids) if id.startswith("rs_")]
        assert len(reasons) >= min(turn, kept)
        for at in reasons:
            assert ids[at + 1].startswith(ids[at].replace("rs_", "fc_") + "_")
            assert items[at]["encrypted_content"].encode().startswith(key)
        for id in ids:
            if id.startswith("fc_"):  # names the server's copy, which asks for its reasoning (R4)
                assert f"rs_{id.split('_')[1]}" in ids


def repeats(turns: int) -> list[list[Ask]]:
    """A script that reads one file again and again, to no end."""
    return [[("read_file", {"path": "/w/file_0.py"})] for _ in range(turns)]


def actions(turns: int) -> list[str]:
    """The detector's verdicts on such a script."""
    detector, found = LoopDetector(tools=TOOLS), list[str]()
    for [(name, arguments)] in repeats(turns):
        found.append(detector.ask(name, arguments).action)
        if found[-1] != "refuse":
            detector.tell(name, arguments, read_text(arguments["path"]))
    return found


def judge_loops(results: Sequence[str], turns: int) -> None:
    """Check that results of repeated calls carry advice, and that the last ones are refusals."""
    expected = actions(turns)
    assert set(expected) == {"allow", "advise", "refuse"}
    whole = read_text("/w/file_0.py")
    for result, action in zip(results, expected, strict=True):
        assert result.startswith(whole) == (action != "refuse")
        assert (ADVICE_START in result) == (action == "advise")
        assert result.startswith(REFUSAL_PREFIX) == (action == "refuse")
