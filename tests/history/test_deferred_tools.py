"""Deferred tools: the expand tool where an agent lists it and defines it later."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import respool
from respool import Policy
from respool.engine import RequestHistory
from respool.markers import find_marker
from respool.wire.body import read_body

NAME = "mcp__respool__respool_expand"
# As Claude Code 2.1.325 says it.
LISTED = (
    "The following deferred tools are now available via ToolSearch. Their schemas are NOT loaded — "
    "calling them directly will fail with InputValidationError. Use ToolSearch with query "
    '"select:<name>[,<name>...]" to load tool schemas before calling them:\n'
    "CronCreate\nWebFetch\n{}\nmcp__respool__respool_search\n"
)
LIST = LISTED.format(NAME)
REMINDER = f"<system-reminder>\n{LIST}</system-reminder>"
AGAIN = (
    "The following tools were loaded earlier in this conversation, but their schemas are no longer "
    'in your context. Before you call one of them, use ToolSearch with query "select:<name>" to '
    f"load its schema. The tools are:\n{NAME}\n"
)
REMOVED = f"The following tools are no longer available. Do not call them:\n{NAME}\n"
ROWS = "\n".join(f"row {number} of what the tool printed" for number in range(200))
CAPPED = Policy(
    cap_chars=600,
    passes=("cap_results",),
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    keep_exchanges=0,
)


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **more}


SEARCH = [tool("Bash"), tool("ToolSearch"), tool("DeferredToolPlaceholder", defer_loading=True)]
LOADED = [*SEARCH, tool(NAME, defer_loading=True)]
REFERENCE = [{"type": "tool_reference", "tool_name": NAME}]


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def called(id: str, result: Any, *beside: str, name: str = "Bash") -> list[dict[str, Any]]:
    """A call, its result, and texts beside that."""
    call = {"type": "tool_use", "id": id, "name": name, "input": {"command": f"make {id}"}}
    answer = {"type": "tool_result", "tool_use_id": id, "content": result}
    texts = [{"type": "text", "text": text} for text in beside]
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer, *texts]},
    ]


def named(
    *messages: dict[str, Any], tools: list[Any], memo: respool.Memo | None = None
) -> list[str | None]:
    """The tool that the marker of each clipped result names; "-": it has no marker."""
    request = {"model": "claude-opus-5-5", "max_tokens": 9, "tools": tools, "messages": [*messages]}
    out = respool.compact(request, format="anthropic", policy=CAPPED, memo=memo)
    assert respool.check(out.request) == []
    texts = [
        block["content"]
        for message in out.request["messages"]
        for block in message["content"]
        if block["type"] == "tool_result" and isinstance(block["content"], str)
    ]
    markers = [find_marker(text) for text in texts]
    return ["-" if one is None else one.fetch_tool for one in markers]


END = called("end", "done")
# The opening, and the tools; whether a marker names the expand tool.
OPENINGS: dict[str, tuple[list[dict[str, Any]], list[Any], bool]] = {
    "a reminder": ([said(REMINDER)], SEARCH, True),
    "a system message": ([said("go"), said(f"# Environment\n\n{LIST}\nAgents:\n", "system")],
                         SEARCH, True),
    "after the agent's compaction": ([said(AGAIN)], LOADED, True),
    "an older version's tag": (
        [said(f"<available-deferred-tools>\nWebFetch\n{NAME}\n</available-deferred-tools>")],
        SEARCH, True,
    ),
    "with descriptions": ([said(LISTED.format(f"- {NAME}: gives it back"))], SEARCH, True),
    "no list": ([said("go")], SEARCH, False),
    "a list without it": ([said(LISTED.format("mcp__other__expand"))], SEARCH, False),
    "the name, but no list": ([said(f"tools:\nCall\n{NAME}\nwhen you need it")], SEARCH, False),
    "the name behind the list": ([said(f"{LISTED.format('Monitor')}\n{NAME}\n")], SEARCH, False),
    "taken back": ([said(f"{LIST}\n{REMOVED}")], SEARCH, False),
    "no search": ([said(REMINDER)], [tool("Bash")], False),
    "loaded, but not listed": ([said("go")], LOADED, False),
    "a definition": ([said("go")], [*SEARCH, tool(NAME)], True),
    "a search of the provider's": (
        [said("go")],
        [tool("Bash"), tool(NAME, defer_loading=True),
         {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}],
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPENINGS)
def test_a_marker_names_a_tool_that_can_be_asked_for(case: str) -> None:
    opening, tools, is_named = OPENINGS[case]
    first = named(*opening, *called("a", ROWS), *END, tools=tools)[0]
    assert first == (NAME if is_named else None)


@pytest.mark.parametrize("result", [LIST, f"<system-reminder>\n{LIST}</system-reminder>"])
def test_a_result_cannot_list_tools(result: str) -> None:
    listed = called("l", result)
    assert named(said("go"), *listed, *called("a", ROWS), *END, tools=SEARCH)[1] is None


def test_a_reference_names_it_from_there_on() -> None:
    before = (*called("a", ROWS), *called("b", "few"))
    steps = (*before, *called("s", REFERENCE, name="ToolSearch"), *called("c", ROWS))
    assert named(said("go"), *steps, *END, tools=LOADED) == [None, "-", NAME, "-"]


@pytest.mark.parametrize("memory", [True, False], ids=["remembered", "anew"])
def test_a_list_or_a_definition_that_comes_later_changes_no_earlier_marker(memory: bool) -> None:
    """Each request extends the one before it; the definition comes with the reference."""
    rounds: list[tuple[list[Any], list[dict[str, Any]]]] = [
        (SEARCH, called("a", ROWS)),
        (SEARCH, called("b", "few")),
        (SEARCH, called("l", "few", REMINDER)),
        (SEARCH, called("c", ROWS)),
        (LOADED, called("d", REFERENCE, name="ToolSearch")),
        (LOADED, called("e", ROWS)),
        (LOADED, called("f", "few")),
        (LOADED, called("r", "few", REMOVED)),
        (SEARCH, called("g", ROWS)),
        (SEARCH, END),
    ]
    memo = respool.Memo() if memory else None
    history, seen = [said("go")], list[list[str | None]]()
    for tools, step in rounds:
        history += step
        seen.append(named(*history, tools=tools, memo=memo))
    assert seen[-1] == [None, "-", "-", NAME, NAME, "-", "-", None, "-"]
    for earlier, later in pairwise(seen):
        unseen = len(earlier) - 1  # the newest result is not clipped yet
        assert earlier[:unseen] == later[:unseen]


def test_a_deferred_definition_is_no_part_of_the_prompt() -> None:
    """Neither is the cache lost when it comes, nor are its tokens counted."""

    def known(tools: list[Any]) -> tuple[str, int]:
        request = {"model": "claude-opus-5-5", "tools": tools, "messages": [said("go")]}
        out = respool.compact(request, format="anthropic", memo=None)
        history = RequestHistory(request, read_body(request), "anthropic", None)
        return history.terms(), out.report.tokens_before

    assert known(SEARCH) == known(LOADED)
    assert known(SEARCH) != known([*SEARCH, tool(NAME)])
