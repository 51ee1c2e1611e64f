"""Events of agents: where a result's text is, and what an answer changes."""

from __future__ import annotations

from typing import Any

import pytest

from respool.hooks.events import MIN_DENIED_CHARS, parse_event
from respool.hooks.hook_command import AgentName

LONG = "x" * (2 * MIN_DENIED_CHARS)


def claude(tool: str, response: Any, **more: Any) -> dict[str, Any]:
    event = {"hook_event_name": "PostToolUse", "session_id": "s", "transcript_path": "/t/s.jsonl"}
    return {**event, "tool_name": tool, "tool_input": {}, "tool_response": response, **more}


def bash(**more: Any) -> dict[str, Any]:
    return {"stdout": "a\nb", "stderr": "", "interrupted": False, "isImage": False, **more}


def read(content: str, first: int = 1) -> dict[str, Any]:
    size = len(content.split("\n"))
    file = {"filePath": "/f", "content": content, "startLine": first, "totalLines": 90}
    return {"type": "text", "file": {**file, "numLines": size}}


GREP = {"mode": "content", "numFiles": 0, "filenames": [], "content": "f:1:a", "numLines": 1}
MCP = [{"type": "text", "text": "of a server"}]

# By agent and event: the text that the model would read, and the output with "NEW" in its place.
CLAUDE: list[tuple[dict[str, Any], str, Any]] = [
    (claude("Bash", bash()), "a\nb", bash(stdout="NEW")),
    (claude("Grep", GREP), "f:1:a", {**GREP, "content": "NEW"}),
    (claude("WebFetch", {"result": "page", "code": 200}), "page", {"result": "NEW", "code": 200}),
    (claude("mcp__a__b", "of a server"), "of a server", "NEW"),
    (claude("mcp__a__b", MCP), "of a server", [{"type": "text", "text": "NEW"}]),
    (claude("Read", read("a\nb", 7)), "7\ta\n8\tb", {**read("NEW")}),
]
UNTOUCHED: list[tuple[AgentName, dict[str, Any]]] = [
    ("claude", claude("Bash", bash(stderr="warning"))),
    ("claude", claude("Bash", bash(isImage=True))),
    ("claude", claude("Bash", bash(backgroundTaskId="b1"))),
    ("claude", claude("Bash", bash(persistedOutputPath="/p"))),
    ("claude", claude("Bash", bash(stdout=""))),
    ("claude", claude("Bash", {})),
    ("claude", claude("Grep", {"mode": "files_with_matches", "filenames": ["a"]})),
    ("claude", claude("Edit", {"filePath": "/f", "oldString": "a", "newString": "b"})),
    ("claude", claude("Read", {"type": "image", "file": {"base64": "aa"}})),
    ("claude", claude("mcp__a__b", [*MCP, *MCP])),
    ("claude", claude("mcp__a__b", [{"type": "image"}])),
    ("claude", {**claude("Bash", bash()), "hook_event_name": "PostToolUseFailure"}),
    ("gemini", {"hook_event_name": "AfterTool", "tool_response": {"llmContent": "", "a": 1}}),
    (
        "gemini",
        {"hook_event_name": "AfterTool", "tool_response": {"llmContent": LONG, "error": {}}},
    ),
    ("pi", {"tool": "bash", "text": ""}),
    ("opencode", {}),
]


@pytest.mark.parametrize(("event", "text", "output"), CLAUDE)
def test_the_text_of_an_output_of_claude_code_is_replaced_and_nothing_else(
    event: dict[str, Any], text: str, output: Any
) -> None:
    found = parse_event("claude", event)
    assert found is not None
    assert found.result.text == text
    made = found.replace("NEW")
    assert made is not None
    specific = {"hookEventName": "PostToolUse", "updatedToolOutput": output}
    assert made.answer == {"hookSpecificOutput": specific}


@pytest.mark.parametrize(("agent", "event"), UNTOUCHED)
def test_what_has_no_one_text_is_left_alone(agent: AgentName, event: dict[str, Any]) -> None:
    assert parse_event(agent, event) is None


GAP, MARKER = "[… 2 lines]", "[respool: 2 of 5 lines left out; ref aaaaaaaaaaaaaaaaaaaa]"
# What is left of lines 4 to 8, and the first number and the content that show it; None: none can.
RENUMBERED: list[tuple[list[str], tuple[int, list[str]] | None]] = [
    (["4\ta", "5\tb", GAP, MARKER], (4, ["a", "b", GAP, MARKER])),
    ([GAP, "6\tc", "7\td", MARKER], (5, [GAP, "c", "d", MARKER])),
    ([MARKER], (1, [MARKER])),
    (["4\ta", GAP, "7\td", MARKER], None),
    (["4\ta", "6\tc"], None),
    ([GAP, GAP, "2\tb"], None),
]


@pytest.mark.parametrize(("left", "shown"), RENUMBERED)
def test_a_line_of_a_file_keeps_its_number_or_the_file_stays(
    left: list[str], shown: tuple[int, list[str]] | None
) -> None:
    found = parse_event("claude", claude("Read", read("a\nb\nc\nd\ne", 4)))
    assert found is not None
    made = found.replace("\n".join(left))
    if shown is None:
        assert made is None
        return
    assert made is not None
    file = made.answer["hookSpecificOutput"]["updatedToolOutput"]["file"]
    assert (file["startLine"], file["content"].split("\n")) == shown
    # As Claude Code numbers them, every line that stayed is what it was.
    sent = made.sent.split("\n")
    assert [line for line in left if "\t" in line] == [line for line in sent if line in left]


def test_gemini_is_told_where_that_saves_enough_and_that_it_is_no_error():
    event = {"hook_event_name": "AfterTool", "tool_response": {"llmContent": LONG}}
    found = parse_event("gemini", event)
    assert found is not None
    assert found.replace(LONG[:-9]) is None
    made = found.replace("short")
    assert made is not None
    assert made.answer["decision"] == "deny"
    assert made.answer["reason"].endswith("no error of the tool.)\nshort")


def test_a_sub_agent_has_a_transcript_of_its_own():
    paths = {}
    for agent in ("", "a1b2", "../up"):
        found = parse_event("claude", claude("Bash", bash(), agent_id=agent))
        assert found is not None
        paths[agent] = None if found.transcript is None else found.transcript.as_posix()
    assert paths == {"": "/t/s.jsonl", "a1b2": "/t/s/subagents/agent-a1b2.jsonl", "../up": None}
