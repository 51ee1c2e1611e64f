"""MCP server with tools that read a store, here or behind a proxy, or a transcript."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from msgspec import Struct

from ..errors import RespoolError
from ..hooks.conversation_brief import describe_transcript, find_current_transcript
from ..line_search import Unsearchable, searcher
from ..regex import lazy_compile
from ..store import (
    ConversationSummary,
    RecordedEdit,
    RequestRecord,
    SearchHit,
    UnclearName,
    UnsearchablePattern,
    resolve_name,
)
from ..store.reader import StoreReader
from ..store.savings import state_record

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
else:
    try:
        from mcp_types import (
            CallToolRequestParams,
            CallToolResult,
            ListToolsResult,
            TextContent,
            Tool,
        )
    except ImportError:  # mcp 1, which frameworks still ask for
        from mcp.types import (
            CallToolRequestParams,
            CallToolResult,
            ListToolsResult,
            TextContent,
            Tool,
        )

MAX_ANSWER_CHARS: Final = (
    40_000  # characters, about 10,000 tokens; agents truncate longer answers themselves
)


class ToolCallError(RespoolError):
    """Error of a tool call; the message is a sentence for the model."""


class ToolAnswer(Struct, frozen=True):
    """Requested text, and a separate note about it."""

    text: str
    remark: str = ""


def paginate(text: str, skip: int, remark: str = "", narrow_hint: str = "") -> ToolAnswer:
    """Page of a text from an offset; the note says how to get the rest."""
    if skip and skip >= len(text):
        raise ToolCallError(f"skip={skip} is not allowed: there are {len(text):,} characters.")
    page = (
        text[skip:]
        if len(text) - skip <= MAX_ANSWER_CHARS
        else _whole_lines(text[skip : skip + MAX_ANSWER_CHARS])
    )
    end = skip + len(page)
    if end == len(text):
        return ToolAnswer(page, remark)
    more = (
        f"These are the characters {skip + 1:,} to {end:,} of {len(text):,}. "
        f"For the next ones call again with skip={end}. {narrow_hint}"
    )
    return ToolAnswer(page, f"{remark} {more}".strip())


def _whole_lines(text: str) -> str:
    """Cut at the last line break, unless the first line is longer."""
    return text[: text.rfind("\n") + 1] or text


_REF: Final = lazy_compile(r"(?:^|\bref )([a-z2-7]{20})(?![a-z0-9])", re.ASCII)
_RANGE: Final = lazy_compile(r"(\d{1,9})(?:\s*[-:–]\s*(\d{1,9})?)?", re.ASCII)
_FIRST_OR_LAST: Final = lazy_compile(r"(first|last)\s+(\d{1,9})(?:\s+lines)?", re.ASCII)
_LAST_LINE: Final = 10**9
_MAX_QUOTED_CHARS: Final = 60


def parse_reference(arguments: Mapping[str, Any]) -> str:
    """Parse a reference, alone or inside its marker."""
    given = arguments.get("ref")
    found = _REF.search(given.strip()) if isinstance(given, str) else None
    if found is None:
        raise ToolCallError(
            f"ref={_quote(given)} is no reference. It stands in the marker, behind the word "
            '"ref": twenty characters, of a-z and 2-7.'
        )
    return found[1]


def parse_lines(arguments: Mapping[str, Any], count: int) -> tuple[int, int] | None:
    """Parse a range of lines; None: all lines."""
    given = arguments.get("lines")
    text = str(given).strip().lower() if type(given) in (str, int) else ""
    if given is None or given == "":
        return None
    if end := _FIRST_OR_LAST.fullmatch(text):
        number = int(end[2])
        return (1, number) if end[1] == "first" else (max(1, count - number + 1), _LAST_LINE)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ToolCallError(
            f'lines={_quote(given)} is not allowed; write "120-180", "120-" for all from there '
            'on, "first 40" or "last 40".'
        )
    first = int(found[1])
    return first, int(found[2] or (first if text.isdigit() else _LAST_LINE))


def parse_text(arguments: Mapping[str, Any], name: str) -> str | None:
    """Parse an optional text; an empty one counts as missing."""
    given = arguments.get(name)
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise ToolCallError(f"{name}={_quote(given)} is not allowed; allowed is a text.")
    return given


def parse_number(arguments: Mapping[str, Any], name: str, default: int, minimum: int) -> int:
    """Parse an optional whole number."""
    given = arguments.get(name)
    number = default if given is None else given
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 10:
        number = int(number)
    if type(number) is not int or number < minimum:
        raise ToolCallError(
            f"{name}={_quote(given)} is not allowed; allowed is a whole number from {minimum} on."
        )
    return number


def _quote(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"


_MAX_LISTED_LINES: Final = 40  # max line numbers listed in a note
_NARROW_HINT: Final = "For less of it, give lines or a pattern."


def answer_expand(store: StoreReader, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer `respool_expand`: the original behind a marker."""
    ref = parse_reference(arguments)
    text = store.original(ref)
    if text is None:
        raise ToolCallError(
            f"No original is kept under {ref}: it was never there, is too old, or was forgotten. "
            "What it said may be had where it came from: run the tool again."
        )
    skip = parse_number(arguments, "skip", 0, 0)
    pattern = parse_text(arguments, "pattern")
    chosen = parse_lines(arguments, len(_split_lines(text)))
    if chosen is None and pattern is None:
        return paginate(text, skip, narrow_hint=_NARROW_HINT)
    return _select_lines(_split_lines(text), chosen, pattern, skip)


def _select_lines(
    lines: list[str], chosen: tuple[int, int] | None, pattern: str | None, skip: int
) -> ToolAnswer:
    """Select lines by range and pattern, with their numbers."""
    count = len(lines)
    first, last = chosen or (1, count)
    if not 1 <= first <= last or first > max(count, 1):
        raise ToolCallError(
            f"There are no lines {first}-{last} here: this original has the lines 1-{count}."
        )
    last = min(last, count)
    if pattern is None:
        remark = f"These are the lines {first:,}-{last:,} of {count:,}."
        return paginate("".join(lines[first - 1 : last]), skip, remark, _NARROW_HINT)
    fits = _compile_pattern(pattern)
    found = [at for at in range(first, last + 1) if fits(lines[at - 1].removesuffix("\n"))]
    said = f"{len(found):,} of the lines {first:,}-{last:,} fit the pattern"
    if not found:
        return ToolAnswer("", f"{said}; this original has {count:,} lines.")
    return paginate(
        "".join(lines[at - 1] for at in found),
        skip,
        f"{said}: {_list_numbers(found)}.",
        _NARROW_HINT,
    )


def _compile_pattern(pattern: str) -> Callable[[str], bool]:
    try:
        return searcher(pattern)
    except Unsearchable as error:
        raise ToolCallError(f"This pattern is not allowed: {error}.") from None


def _split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends, counted as markers count."""
    *ended, rest = text.split("\n")
    return [f"{line}\n" for line in ended] + ([rest] if rest else [])


def _list_numbers(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_MAX_LISTED_LINES])
    left = len(numbers) - _MAX_LISTED_LINES
    return f"{shown} and {left:,} more" if left > 0 else shown


LATEST: Final = "latest"
_DEFAULT_CONVERSATIONS: Final = 20
_DEFAULT_REQUESTS: Final = 20
_MAX_ROWS: Final = 500  # max conversations or requests in one answer


def answer_history(store: StoreReader, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer `respool_history`: recent conversations, or the last requests of one."""
    name, skip = parse_text(arguments, "conversation"), parse_number(arguments, "skip", 0, 0)
    limit = min(
        _MAX_ROWS,
        parse_number(arguments, "limit", _DEFAULT_REQUESTS if name else _DEFAULT_CONVERSATIONS, 1),
    )
    if name is None:
        return _list_conversations(store, limit, skip)
    return _list_requests(store, _resolve_name(store, name), limit, skip)


def _list_conversations(store: StoreReader, limit: int, skip: int) -> ToolAnswer:
    found = store.conversations(limit)
    if not found:
        return ToolAnswer("", "No conversation is recorded yet.")
    text = "".join(f"{_conversation_line(one)}\n" for one in found)
    remark = "The latest first. Name one as `conversation` to see its requests and edits."
    return paginate(text, skip, remark)


def _resolve_name(store: StoreReader, name: str) -> str:
    """The conversation that a name means; a unique beginning is enough.

    A reference must be whole: a server that only expands must not let an agent find those of other
    conversations by guessing how they begin.
    """
    if name != LATEST:
        try:
            return resolve_name(store, "conversation", name)
        except UnclearName as error:
            raise ToolCallError(str(error)) from None
    found = store.conversations(1)
    if not found:
        raise ToolCallError("No conversation is recorded yet.")
    return found[0].name


def _list_requests(store: StoreReader, name: str, limit: int, skip: int) -> ToolAnswer:
    found = store.recent_requests(name, limit)
    if not found.latest:
        raise ToolCallError(
            f"No request of a conversation {name!r:.60} is recorded. Ask without `conversation` "
            "for those that are."
        )
    text = "".join(f"{line}\n" for one in found.latest for line in _request_lines(one))
    remark = (
        f"These are the last {len(found.latest):,} of {found.count:,} requests, in their order."
    )
    return paginate(text, skip, remark)


def _conversation_line(conversation: ConversationSummary) -> str:
    return (
        f"{conversation.name}  "
        f"{_format_time(conversation.started)} to {_format_time(conversation.last)}  "
        f"{conversation.format} {conversation.model}  "
        f"{conversation.requests:,} requests  "
        f"{conversation.tokens_before:,} tokens, {conversation.saved:,} saved"
    )


def _request_lines(record: RequestRecord) -> Iterator[str]:
    """Lines of a request: one for itself, one for each edit."""
    fallback = f"  not compacted: {record.fallback}" if record.fallback else ""
    broke = f"  prefix break: {record.prefix_break}" if record.prefix_break else ""
    error = f"  failed: {record.error}" if record.error else ""
    stated = state_record(record)
    yield (
        f"{_format_time(record.time)}  {record.model}  status {record.status}  "
        f"{stated.tokens_before:,} tokens, "
        f"{stated.saved:,} saved{broke}{fallback}{error}"
    )
    yield from (_edit_line(edit) for edit in record.edits)


def _edit_line(edit: RecordedEdit) -> str:
    ref = f"  ref {edit.ref}" if edit.ref else ""
    return f"  {edit.reason} at {edit.place}: {edit.evidence}  {edit.saved:,} tokens{ref}"


def _format_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


_DEFAULT_HITS: Final = 10


def answer_search(store: StoreReader, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer `respool_search`: originals that have all words of a pattern."""
    pattern, name = parse_text(arguments, "pattern"), parse_text(arguments, "conversation")
    if pattern is None:
        raise ToolCallError("Give a pattern: one or more words to search for.")
    skip = parse_number(arguments, "skip", 0, 0)
    limit = min(_MAX_ROWS, parse_number(arguments, "limit", _DEFAULT_HITS, 1))
    conversation = None if name is None else _resolve_name(store, name)
    try:
        found = store.search(pattern, conversation=conversation, limit=limit)
    except UnsearchablePattern as error:
        raise ToolCallError(str(error)) from None
    if not found.hits:
        return ToolAnswer("", "No original has all of these words; try fewer or shorter ones.")
    more = " There are more; raise limit, or give more words." if found.has_more else ""
    remark = f"The latest first. {EXPAND_TOOL} gives each back by its ref.{more}"
    return paginate(
        "".join(f"{line}\n" for hit in found.hits for line in _hit_lines(hit)), skip, remark
    )


def _hit_lines(hit: SearchHit) -> Iterator[str]:
    """Lines of a hit: its source, and what is around it."""
    call = f"  {hit.tool} {hit.target}".rstrip()
    edit = f"  {hit.reason} at {hit.place}" if hit.reason else ""
    yield f"ref {hit.ref}  {_format_time(hit.time)}  conversation {hit.conversation}{call}{edit}"
    yield f"  line {hit.line}: {hit.snippet}"


_DEFAULT_BRIEF_TOKENS: Final = 2_000
_MAX_BRIEF_TOKENS: Final = 10_000
_NO_TRANSCRIPT: Final = "No transcript of an agent that works in this folder is found"


def answer_brief(_store: StoreReader, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer `respool_brief`: what the agent of a conversation in this folder did."""
    session = parse_text(arguments, "session")
    tokens = parse_number(arguments, "tokens", _DEFAULT_BRIEF_TOKENS, 50)
    path = find_current_transcript(Path.cwd(), Path.home(), os.environ, session)
    if path is None:
        named = "" if session is None else f", with {_quote(session)} in its name"
        raise ToolCallError(f"{_NO_TRANSCRIPT}{named}.")
    text = describe_transcript(path, min(tokens, _MAX_BRIEF_TOKENS))
    remark = f"From {path.name}. These are facts from a record of the tool calls."
    return ToolAnswer(text, remark if text else "There are no calls with results in it yet.")


SERVER_NAME: Final = "respool"
EXPAND_TOOL: Final = "respool_expand"  # respool.tools.identity recognizes it with any prefix
HISTORY_TOOL: Final = "respool_history"
SEARCH_TOOL: Final = "respool_search"
BRIEF_TOOL: Final = "respool_brief"

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
            "description": 'The name of one, or the first characters of it, or "latest"; without '
            "it, all are listed.",
        },
        "limit": {"type": "integer", "minimum": 1, "description": "How many to list."},
        "skip": _SKIP_INPUT,
    },
}
_SEARCH_INPUT: Final = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "description": "Words that the original has, in any case and order, with their "
            'punctuation; "between double quotes" in this order.',
        },
        "conversation": {
            "type": "string",
            "description": 'Only in this one: its name, or "latest".',
        },
        "limit": {"type": "integer", "minimum": 1, "description": "How many to list."},
        "skip": _SKIP_INPUT,
    },
    "required": ["pattern"],
}
_BRIEF_INPUT: Final = {
    "type": "object",
    "properties": {
        "session": {
            "type": "string",
            "description": "The id of a session in this folder; without it, the current one.",
        },
        "tokens": {"type": "integer", "minimum": 50, "description": "How long it may be."},
    },
}
_HANDLERS: Final = {
    EXPAND_TOOL: answer_expand,
    HISTORY_TOOL: answer_history,
    SEARCH_TOOL: answer_search,
    BRIEF_TOOL: answer_brief,
}


def _tool(name: str, title: str, input: Mapping[str, Any], description: str) -> Tool:
    """A read-only tool of the store, in the names of the wire: both versions know them."""
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}
    annotations = {"title": title, **hints, "openWorldHint": False}
    return Tool.model_validate(
        {
            "name": name,
            "description": description,
            "inputSchema": input,
            "annotations": annotations,
        }
    )


TOOL_DEFINITIONS: Final = (
    _tool(
        EXPAND_TOOL,
        "Get an original back",
        _EXPAND_INPUT,
        "Get back what respool took out of this conversation: the original behind a "
        "marker [respool: … ref REF], whole, by lines, or by a pattern.",
    ),
    _tool(
        HISTORY_TOOL,
        "See what was compacted",
        _HISTORY_INPUT,
        "See which conversations respool has recorded, or what it did in one of them: "
        "each request with its tokens and its edits, and the reference of each original.",
    ),
    _tool(
        SEARCH_TOOL,
        "Search the originals",
        _SEARCH_INPUT,
        "Find what respool took out of this or an earlier conversation, by words in "
        "it: the reference of each original, where it came from, and the line of the hit.",
    ),
    _tool(
        BRIEF_TOOL,
        "Brief of a conversation",
        _BRIEF_INPUT,
        "Get a brief of what was done in this conversation, or in another of this "
        "folder: files changed and why, open errors, commands, files read. It also tells what a "
        "compaction took out.",
    ),
)


def serve_stdio(store: StoreReader, version: str, *, expand_only: bool = False) -> None:
    """Serve over standard input and output until it closes."""
    asyncio.run(_serve(build_server(store, version, expand_only=expand_only)))


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def build_server(store: StoreReader, version: str, *, expand_only: bool = False) -> Server[Any]:
    """Build a server whose tools read this store as its owner."""
    offered = [one for one in TOOL_DEFINITIONS if one.name == EXPAND_TOOL or not expand_only]
    handlers = {one.name: _HANDLERS[one.name] for one in offered}

    async def listed(*_asked: object) -> ListToolsResult:
        return ListToolsResult(tools=offered)

    async def called(_context: object, params: CallToolRequestParams) -> CallToolResult:
        tool, asked = handlers.get(params.name), params.arguments or {}
        if tool is None:
            return _error_result(
                f"There is no tool {params.name!r:.60}; there are {', '.join(handlers)}."
            )
        return await asyncio.to_thread(_call_tool, tool, store, asked)

    if hasattr(Server, "call_tool"):
        return _build_older_server(version, listed, called)
    return Server(
        SERVER_NAME,
        version=version,
        title="respool",
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _build_older_server(
    version: str,
    listed: Callable[[], Awaitable[ListToolsResult]],
    called: Callable[[object, CallToolRequestParams], Awaitable[CallToolResult]],
) -> Server[Any]:
    """The same server with mcp 1, whose handlers are registered by decorators."""
    server: Any = cast(Any, Server)(SERVER_NAME, version=version, instructions=_INSTRUCTIONS)

    async def called_by_name(name: str, arguments: dict[str, Any]) -> CallToolResult:
        return await called(None, CallToolRequestParams(name=name, arguments=arguments))

    server.list_tools()(listed)
    server.call_tool(validate_input=False)(called_by_name)
    return server


def _call_tool(
    handler: Callable[[StoreReader, Mapping[str, Any]], ToolAnswer],
    store: StoreReader,
    arguments: Mapping[str, Any],
) -> CallToolResult:
    """Call a tool; an error becomes a sentence for the model."""
    try:
        answer = handler(store, arguments)
    except ToolCallError as error:
        return _error_result(str(error))
    except RespoolError as error:
        return _error_result(f"{error} Run the tool again whose result is needed.")
    except Exception:  # noqa: BLE001 - the model gets an error, and the server goes on
        _log.exception("A tool failed")
        return _error_result("respool failed at this, and wrote down why on its standard error.")
    said = [text for text in (answer.text, answer.remark) if text]
    return CallToolResult(content=[_text_block(text) for text in said or ["(It is empty.)"]])


def _error_result(sentence: str) -> CallToolResult:
    return CallToolResult.model_validate({"content": [_text_block(sentence)], "isError": True})


def _text_block(text: str) -> TextContent:
    """Text block; a lone surrogate, which JSON cannot carry, is replaced."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return TextContent(type="text", text=whole)
