"""Identity of a call: operation, target, key; the name of the expand tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from ..regex import lazy_compile
from .declaration import ArgumentFunction, Arguments, Tool
from .paths import normalize

# `expand` of a server called respool, as clients spell it: respool_expand, mcp__respool__expand,
# respool.expand, mcp__plugin_respool_respool__expand; the tool itself may be called respool_expand.
_EXPAND_TOOL: Final = lazy_compile(
    r"(?:mcp(?:__?|[.:/-]))?(?:plugin_[A-Za-z0-9-]+_)?respool(?:__?|[.:/-])(?:respool[_-])?expand"
)

DEFAULT_OPERATION: Final = "default"  # of a tool without operations
RAW_ARGUMENT: Final = "input"  # holds arguments that are not a JSON object
MAX_KEY_CHARS: Final = 400  # characters; longer ones are hashed
_DECODER = msgspec.json.Decoder()
_DECODE_ERRORS = (ValueError, RecursionError, OverflowError, TypeError, UnicodeError)


def is_expand_tool(name: str) -> bool:
    """Check whether this is the name of the tool that returns originals.

    >>> [is_expand_tool(f"mcp__{server}__expand") for server in ("respool", "other")]
    [True, False]
    """
    return _EXPAND_TOOL.fullmatch(name) is not None


def find_expand_tool(names: Iterable[str]) -> str | None:
    """The first of these names that is the expand tool; None if none is."""
    return next((name for name in names if is_expand_tool(name)), None)


def parse_arguments(text: str) -> dict[str, Any]:
    """A call's arguments; anything but a JSON object becomes one argument, `input`.

    >>> parse_arguments('{"path": "a"}'), parse_arguments("*** Begin Patch")
    ({'path': 'a'}, {'input': '*** Begin Patch'})
    """
    try:
        value: Any = _DECODER.decode(text)
    except _DECODE_ERRORS:
        value = _decode_leniently(text)
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    return {RAW_ARGUMENT: text if value is None else value} if text.strip() else {}


def _decode_leniently(text: str) -> Any:
    """A value only the standard library parses: NaN, lone surrogates."""
    try:
        return json.loads(text)
    except _DECODE_ERRORS:
        return None


def canonical_text(arguments: Arguments) -> str:
    """The same text for equal arguments, independent of order and white space."""
    try:
        text = msgspec.json.encode(arguments, order="sorted").decode()
    except _DECODE_ERRORS:
        text = _encode_leniently(arguments)
    if len(text) <= MAX_KEY_CHARS:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"blake2b:{digest.hexdigest()}"


def _encode_leniently(arguments: Arguments) -> str:
    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    except _DECODE_ERRORS:
        return repr(arguments)


def operation_of(tool: Tool | None, arguments: Arguments) -> str:
    """The value of the operation argument if it is a string, else `default`."""
    if tool is None or tool.operation is None:
        return DEFAULT_OPERATION
    value = arguments.get(tool.operation)
    return value if isinstance(value, str) else DEFAULT_OPERATION


def target_of(tool: Tool | None, arguments: Arguments) -> tuple[str | None, str | None]:
    """The declared target, trimmed (None if empty), and the error of a declared function."""
    if tool is None or tool.target is None:
        return None, None
    if isinstance(tool.target, str):
        return trim(arguments.get(tool.target)), None
    return _call_function(tool.target, arguments, f"{tool.name}: target")


def trim(value: object) -> str | None:
    """Trimmed text, None if empty; URLs are normalized."""
    text = value.strip() if isinstance(value, str) else ""
    return (normalize(text) if "://" in text else text) or None


def key_of(
    tool: Tool | None, name: str, arguments: Arguments, target: str | None
) -> tuple[str, str | None]:
    """The key that repeated calls share, and the error of a declared function.

    If a declared function fails or returns nothing, the target decides, then the arguments.
    """
    if tool is None or tool.key in (None, "arguments"):
        return canonical_text(_identifying_arguments(tool, arguments)), None
    problem = None
    if callable(tool.key):
        key, problem = _call_function(tool.key, arguments, f"{name}: key")
        if key is not None:
            return key, None
    return (canonical_text(arguments) if target is None else f"target={name}:{target}"), problem


def _identifying_arguments(tool: Tool | None, arguments: Arguments) -> Arguments:
    """The arguments that identify a call; for a shell, its command and folder.

    A command with another description or timeout is the same command. A file in another spelling is
    the same file.
    """
    if tool is None or tool.key is not None:
        return arguments
    if tool.command is None:
        return _normalize_arguments(tool, arguments)
    command = tool.command.removesuffix("[]")
    if command not in arguments:
        return arguments
    identifying = (command, tool.workdir or command)
    return {name: arguments[name] for name in identifying if name in arguments}


def _normalize_arguments(tool: Tool, arguments: Arguments) -> Arguments:
    """The arguments with paths and URLs normalized."""
    names = [name for name in (*tool.reads, *tool.writes) if isinstance(arguments.get(name), str)]
    normalized = {
        name: normalize(arguments[name].strip()) for name in names if arguments[name].strip()
    }
    return {**arguments, **normalized} if normalized else arguments


def _call_function(
    function: ArgumentFunction, arguments: Arguments, label: str
) -> tuple[str | None, str | None]:
    """The value of a declared function, or the error it raised."""
    try:
        value = function(arguments)
    except Exception as error:  # noqa: BLE001 - law 9: a user's function must not stop a request
        return None, f"{label}: {type(error).__name__}: {error}"[:300]
    return (value, None) if isinstance(value, str) else (None, None)
