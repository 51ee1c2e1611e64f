"""Tools that Anthropic runs itself: which result fits which call, and where it has to stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ..codecs.anthropic import SERVER_CALLS, is_server_result
from ..codecs.json_tree import JSON, Object
from .problem import Problem
from .rules import Seen

_SEARCHES = "tool_search_tool"  # several tools, one type of result
# Which type of result a tool gives; one that is not listed is not judged by it.
RESULT_TYPES: Mapping[str, str] = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "advisor": "advisor_tool_result",
    "mcp": "mcp_tool_result",
    _SEARCHES: "tool_search_tool_result",
}


def is_server_side(kind: str | None) -> bool:
    """Whether a block is a call or a result of a tool that the provider runs."""
    return kind in SERVER_CALLS or is_server_result(kind)


def server_tool(call: Object) -> str:
    """The tool of a server-side call; those that give the same type of result have one name."""
    if call.get("type") == "mcp_tool_use":
        return "mcp"
    name = str(call.get("name"))
    return _SEARCHES if name.startswith(_SEARCHES) else name


def fits(result: Object, tool: str) -> bool:
    """Whether a result is of the type that this tool gives."""
    return RESULT_TYPES.get(tool, result.get("type")) == result.get("type")


def fits_open(result: Object, state: Seen) -> bool:
    """Whether a result is the one that a call of an earlier step waits for."""
    id = str(result.get("tool_use_id"))
    if id not in state.open_calls:
        return False
    number = state.open_calls[id]
    return all(fits(result, tool) for tool in RESULT_TYPES if state.item_rows.get(tool) == number)


def note_server_block(block: JSON, state: Seen) -> None:
    """Note that a server-side call waits, with its tool by number; or that it waits no more."""
    holder = cast(Object, block)
    if holder.get("type") in SERVER_CALLS:
        number = state.item_rows.setdefault(server_tool(holder), len(state.item_rows))
        state.open_calls[str(holder.get("id"))] = number
    elif fits_open(holder, state):
        del state.open_calls[str(holder.get("tool_use_id"))]


def server_problems(
    blocks: Iterable[tuple[str, Object]], at: int, talked: bool, state: Seen
) -> list[Problem]:
    """Results follow their calls, before the user speaks again; each block comes with its place.

    While the user only answers calls of the same turn, a call may wait over several steps.
    """
    found: list[Problem] = []
    here: dict[str, tuple[str, str]] = {}  # calls of this step that wait: their tools and places
    closed: set[str] = set()  # calls of earlier steps that got their result
    for place, block in blocks:
        if block.get("type") in SERVER_CALLS:
            here[str(block.get("id"))] = server_tool(block), place
            continue
        id = str(block.get("tool_use_id"))
        if id in here and fits(block, here[id][0]):
            del here[id]
        elif id not in closed and fits_open(block, state):
            closed.add(id)
        else:
            why = f"Result for {id!r} without its call."
            if id in here:
                why = f"A {block.get('type')} does not answer {here[id][0]!r}, which {id!r} called."
            found.append(Problem("A8", place, why))
    if talked:
        late = {id: f"messages[{at}]" for id in state.open_calls if id not in closed}
        late |= {id: place for id, (_, place) in here.items()}
        found += [
            Problem("A8", place, f"Server-side call {id!r} has no result.")
            for id, place in late.items()
        ]
    return found
