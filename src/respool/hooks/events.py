"""Hook events of agents: the result in an event, and the answer that replaces its text.

An answer is only ever the agent's own output with another text in it. The command, its arguments
and its exit status are not in an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

from msgspec import Struct

from ..regex import lazy_compile
from ..sessions.session import objects_in, text_at
from ..wire.json import JSON, Object, get, put
from .hook_command import AgentName
from .timeline import ToolResult

MIN_DENIED_CHARS = 1_000  # saved by an answer of Gemini CLI's, which marks the result as an error
_NUMBERED = lazy_compile(r"(\d+)\t(.*)", re.DOTALL)
_SAFE_NAME = lazy_compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


class Replacement(Struct, frozen=True):
    """An agent's answer, and the text that the agent will send for it."""

    answer: Object
    sent: str


Replace = Callable[[str], Replacement | None]


class ResultEvent(Struct, frozen=True, kw_only=True):
    """A result that has just come, the transcript of its conversation, and how to answer."""

    agent: AgentName
    session: str
    transcript: Path | None
    result: ToolResult
    replace: Replace
    numbers_lines: bool = False  # the agent itself numbers the lines of the files that it reads


def parse_event(agent: AgentName, event: Object) -> ResultEvent | None:
    """The result in an event; None: there is none whose text can be replaced."""
    return _PARSERS[agent](event)


# --- Claude Code ---------------------------------------------------------------------------------


def _claude_event(event: Object) -> ResultEvent | None:
    response, tool = event.get("tool_response"), text_at(event, "tool_name")
    found = _claude_text(tool, response)
    if text_at(event, "hook_event_name") != "PostToolUse" or found is None:
        return None
    text, write = found

    def replace(new: str) -> Replacement | None:
        written = write(new)
        if written is None:
            return None
        output, sent = written
        specific = {"hookEventName": "PostToolUse", "updatedToolOutput": output}
        return Replacement({"hookSpecificOutput": specific}, sent)

    return ResultEvent(
        agent="claude",
        session=text_at(event, "session_id"),
        transcript=_claude_transcript(event),
        result=_tool_result(event, "tool_use_id", tool, event.get("tool_input"), text),
        replace=replace,
        numbers_lines=True,
    )


_Written = tuple[JSON, str]  # the output with a new text, and what the agent makes of it


def _claude_text(tool: str, response: JSON) -> tuple[str, Callable[[str], _Written | None]] | None:
    """The text of an output as the model would read it, and a function that puts another there."""
    if isinstance(response, str):
        return response, lambda new: (new, new)
    if isinstance(response, list):
        blocks = objects_in(response)
        if len(blocks) == 1 and blocks[0].get("type") == "text":
            return text_at(blocks[0], "text"), lambda new: (put(response, (0, "text"), new), new)
        return None
    if tool == "Read" and get(response, ("type",)) == "text":
        return _numbered_file(response)
    field = _claude_field(tool, response)
    if field is None:
        return None
    return text_at(response, field), lambda new: (put(response, (field,), new), new)


def _claude_field(tool: str, response: JSON) -> str | None:
    """The field of an output that holds all that the model will read, if there is one."""
    if tool == "Bash":
        other = ("stderr", "isImage", "backgroundTaskId", "persistedOutputPath", "interrupted")
        whole = not any(get(response, (name,)) for name in other)
        return "stdout" if whole and text_at(response, "stdout") else None
    if tool == "Grep":
        return "content" if get(response, ("mode",)) == "content" else None
    if tool == "WebFetch":
        return "result" if text_at(response, "result") else None
    return None


def _numbered_file(response: JSON) -> tuple[str, Callable[[str], _Written | None]] | None:
    """A file with the numbers that Claude Code puts before its lines."""
    content, first = get(response, ("file", "content")), get(response, ("file", "startLine"))
    if not isinstance(content, str) or not isinstance(first, int) or not content:
        return None
    return _number_lines(content.split("\n"), first), lambda new: _renumbered(response, new)


def _number_lines(lines: list[str], first: int) -> str:
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


def _renumbered(response: JSON, new: str) -> _Written | None:
    """The output in which lines that stayed keep their numbers; None: they cannot.

    The lines are numbered on from one number, so those that stayed must be adjacent.
    """
    numbers: list[int] = []
    lines: list[str] = []
    before = 0  # lines of markers before the first that stayed
    for line in new.removesuffix("\n").split("\n"):
        found = _NUMBERED.fullmatch(line)
        if found is None:
            before += not numbers
        elif numbers and len(lines) != before + len(numbers):
            return None  # a marker stands between two that stayed
        else:
            numbers.append(int(found[1]))
        lines.append(line if found is None else found[2])
    first = numbers[0] - before if numbers else 1
    if first < 1 or numbers != list(range(first + before, first + before + len(numbers))):
        return None
    file = {**response["file"], "content": "\n".join(lines)}
    file |= {"startLine": first, "numLines": len(lines)}
    return {**response, "file": file}, _number_lines(lines, first)


def _claude_transcript(event: Object) -> Path | None:
    """The transcript of the conversation itself: a sub-agent has one of its own."""
    main = Path(text_at(event, "transcript_path"))
    agent = text_at(event, "agent_id")
    if not agent:
        return main if main.suffix == ".jsonl" else None
    if not _SAFE_NAME.fullmatch(agent):
        return None
    return main.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"


def _tool_result(
    event: Object, id: str, tool: str, arguments: JSON, text: str, *, failed: bool = False
) -> ToolResult:
    given = cast(Object, arguments) if isinstance(arguments, dict) else {}
    return ToolResult(
        call=text_at(event, id) or "respool-call",
        tool=tool,
        arguments=given,
        text=text,
        failed=failed,
    )


# --- Gemini CLI ----------------------------------------------------------------------------------


def _gemini_event(event: Object) -> ResultEvent | None:
    response, tool = event.get("tool_response"), text_at(event, "tool_name")
    text = _gemini_text(get(response, ("llmContent",)))
    failed = get(response, ("error",)) is not None or "original_request_name" in event
    if text_at(event, "hook_event_name") != "AfterTool" or not text or failed:
        return None
    size = len(text)

    def replace(new: str) -> Replacement | None:
        if size - len(new) < MIN_DENIED_CHARS:
            return None
        said = f"{_SUCCEEDED}\n{new}"
        return Replacement({"decision": "deny", "reason": said, "suppressOutput": True}, said)

    return ResultEvent(
        agent="gemini",
        session=text_at(event, "session_id"),
        transcript=Path(text_at(event, "transcript_path")),
        result=_tool_result(event, "tool_use_id", tool, event.get("tool_input"), text),
        replace=replace,
    )


# Gemini CLI sends a replaced result in the field for errors.
_SUCCEEDED = "(This is the result of the tool, shortened by respool; it is no error of the tool.)"


def _gemini_text(content: JSON) -> str:
    parts = objects_in(content if isinstance(content, list) else [content])
    if isinstance(content, str):
        return content
    return text_at(parts[0], "text") if len(parts) == 1 and set(parts[0]) == {"text"} else ""


# --- opencode and pi, whose plug-ins send their own events ----------------------------------------


def _plugin_event(agent: AgentName, event: Object) -> ResultEvent | None:
    text, path = text_at(event, "text"), text_at(event, "transcript")
    if not text:
        return None
    failed = event.get("failed") is True
    result = _tool_result(
        event, "call", text_at(event, "tool"), event.get("arguments"), text, failed=failed
    )
    return ResultEvent(
        agent=agent,
        session=text_at(event, "session"),
        transcript=Path(path) if path else None,
        result=result,
        replace=lambda new: Replacement({"text": new}, new),
    )


_PARSERS: dict[AgentName, Callable[[Object], ResultEvent | None]] = {
    "claude": _claude_event,
    "gemini": _gemini_event,
    "opencode": lambda event: _plugin_event("opencode", event),
    "pi": lambda event: _plugin_event("pi", event),
}
