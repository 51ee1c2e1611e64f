"""MCP server with two tools that read the store and change nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from ..errors import RespoolError
from ..store import Store
from .handlers import ToolAnswer, ToolCallError, answer_expand, answer_history

SERVER_NAME: Final = "respool"
EXPAND_TOOL: Final = "respool_expand"  # respool.tools.identity recognizes it with any prefix
HISTORY_TOOL: Final = "respool_history"

_log = logging.getLogger(__name__)
_INSTRUCTIONS: Final = (
    "Old tool results in this conversation may have been shortened. Where one says [respool: … ref "
    "REF], respool_expand gives the original back, exactly, by that REF. Fetch only what is needed."
)
_SKIP_INPUT: Final = {
    "type": "integer",
    "minimum": 0,
    "description": "Characters to leave out first, as the last answer said; for long answers.",
}
_EXPAND_INPUT: Final = {
    "type": "object",
    "properties": {
        "ref": {"type": "string", "description": "The reference in the marker, behind `ref`."},
        "lines": {
            "type": "string",
            "description": 'Only these lines: "120-180", "120-", "first 40" or "last 40".',
        },
        "pattern": {
            "type": "string",
            "description": "Only lines in which this regular expression is found.",
        },
        "skip": _SKIP_INPUT,
    },
    "required": ["ref"],
}
_HISTORY_INPUT: Final = {
    "type": "object",
    "properties": {
        "conversation": {
            "type": "string",
            "description": 'The name of one, or "latest"; without it, all are listed.',
        },
        "limit": {"type": "integer", "minimum": 1, "description": "How many to list."},
        "skip": _SKIP_INPUT,
    },
}
_HANDLERS: Final = {EXPAND_TOOL: answer_expand, HISTORY_TOOL: answer_history}


def _read_only(title: str) -> ToolAnnotations:
    """Annotations of a read-only tool of the local store."""
    return ToolAnnotations(
        title=title,
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )


TOOL_DEFINITIONS: Final = (
    Tool(
        name=EXPAND_TOOL,
        description="Get back what respool took out of this conversation: the original behind a "
        "marker [respool: … ref REF], whole, by lines, or by a pattern.",
        input_schema=_EXPAND_INPUT,
        annotations=_read_only("Get an original back"),
    ),
    Tool(
        name=HISTORY_TOOL,
        description="See which conversations respool has recorded, or what it did in one of them: "
        "each request with its tokens and its edits, and the reference of each original.",
        input_schema=_HISTORY_INPUT,
        annotations=_read_only("See what was compacted"),
    ),
)


def serve_stdio(store: Store, version: str) -> None:
    """Serve over standard input and output until it closes."""
    asyncio.run(_serve(build_server(store, version)))


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def build_server(store: Store, version: str) -> Server[Any]:
    """Build a server whose tools read this store as its owner."""

    async def listed(_context: object, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(TOOL_DEFINITIONS))

    async def called(_context: object, params: CallToolRequestParams) -> CallToolResult:
        tool, asked = _HANDLERS.get(params.name), params.arguments or {}
        if tool is None:
            return _error_result(
                f"There is no tool {params.name!r:.60}; there are {', '.join(_HANDLERS)}."
            )
        return await asyncio.to_thread(_call_tool, tool, store, asked)

    return Server(
        SERVER_NAME,
        version=version,
        title="respool",
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _call_tool(
    handler: Callable[[Store, Mapping[str, Any]], ToolAnswer],
    store: Store,
    arguments: Mapping[str, Any],
) -> CallToolResult:
    """Call a tool; an error becomes a sentence for the model."""
    try:
        answer = handler(store, arguments)
    except ToolCallError as error:
        return _error_result(str(error))
    except RespoolError as error:
        return _error_result(f"{error} Run the tool again whose result is needed.")
    except Exception:  # noqa: BLE001 - the model is told, and the server goes on
        _log.exception("A tool failed")
        return _error_result("respool failed at this, and wrote down why on its standard error.")
    said = [text for text in (answer.text, answer.remark) if text]
    return CallToolResult(content=[_text_block(text) for text in said or ["(It is empty.)"]])


def _error_result(sentence: str) -> CallToolResult:
    return CallToolResult(content=[_text_block(sentence)], is_error=True)


def _text_block(text: str) -> TextContent:
    """Text block; a lone surrogate, which JSON cannot carry, is replaced."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return TextContent(type="text", text=whole)
