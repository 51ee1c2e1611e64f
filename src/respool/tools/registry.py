"""The registry of tools: what is known of each call, from the strongest source that says it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from msgspec import UnsetType
from msgspec.structs import replace

from ..errors import PolicyError
from ..ranges import TOOL_NAME, refusal, shown
from .annotations import Hints, hints_of
from .catalog import catalogued
from .declaration import Arguments, Tool
from .identity import arguments_of, key_of, operation_of, target_of
from .paths import normal
from .reading import folder_of, use_by
from .use import Identity, Use

_DECLARED = 'a list of Tool, as in Tools([Tool("Bash", cap_chars=10_000)])'
_MOST_REMEMBERED: Final = 8_192  # calls
_LONGEST_REMEMBERED: Final = 4_096  # characters of arguments; longer ones are remembered by hash
_UNDECLARED: Final = Use("other", barrier=True, known=False)


@dataclass(frozen=True, init=False, repr=False)
class Tools:
    """The registry: what is declared of each tool, by the exact name that the request carries.

    Names are compared as they are, case included. MCP tools travel under the name their client
    gives them (`mcp__github__get_issue`, not `get_issue`): declare that one. A declaration never
    reaches a tool that merely ends like it, for two servers may each have a `search` of their own.

    >>> tools = Tools([Tool("Bash", cap_chars=10_000), Tool("Read", cap_chars=None)])
    >>> tools.cap_for("Bash", 32_000), tools.cap_for("Read", 32_000), tools.cap_for("Grep", 32_000)
    (10000, None, 32000)
    >>> tools.use_of("Bash", '{"command": "sed -n 5,9p a.py"}').reads
    (Span(path='a.py', lines=(5, 9), part=False),)
    """

    _declared: tuple[Tool, ...]  # sorted by name, so that equality is of content
    _by_name: dict[str, Tool] = field(compare=False)
    _remembered: dict[object, Use] = field(compare=False)

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        by_name: dict[str, Tool] = {}
        for tool in _declarable(tools):
            if tool.name in by_name:
                raise PolicyError(f"tool {shown(tool.name)} is declared twice; allowed: once")
            by_name[tool.name] = tool
        object.__setattr__(self, "_declared", tuple(by_name[name] for name in sorted(by_name)))
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_remembered", {})

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"Tools({list(self._declared)!r})"

    def __reduce__(self) -> tuple[type[Tools], tuple[list[Tool]]]:
        return Tools, (list(self._declared),)

    def get(self, name: str) -> Tool:
        """What is declared of this tool; for an undeclared one, the defaults."""
        return self._by_name.get(name) or Tool(name)

    def cap_for(self, name: str, default: int | None) -> int | None:
        """The cap of this tool's results: its own, or else `default`; None is unlimited."""
        tool = self._by_name.get(name)
        return default if tool is None or isinstance(tool.cap_chars, UnsetType) else tool.cap_chars

    def declare(self, *tools: Tool) -> Tools:
        """A registry that also holds these; an earlier declaration of the same name is replaced."""
        new = Tools(tools)
        return Tools([*(tool for tool in self if tool.name not in new), *new])

    def use_of(self, name: str, arguments: str, definition: Any = None) -> Use:
        """What this call does: by what was declared, its definition, the catalog; else anything."""
        hints = hints_of(definition) if definition else None
        known = (name, hints, _short(arguments))
        use = self._remembered.get(known)
        if use is None:
            use = self._resolve(name, arguments_of(arguments), hints)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._evict()
            self._remembered[known] = use
        return use

    def identity(self, name: str, arguments: str, definition: Any = None) -> Identity:
        """The three keys of this call: operation, target, and what repeats are told by."""
        use = self.use_of(name, arguments, definition)
        return Identity(use.operation, use.target, use.key)

    def _evict(self) -> None:
        """Drop the older half."""
        for known in list(self._remembered)[: _MOST_REMEMBERED // 2]:
            self._remembered.pop(known, None)

    def _resolve(self, name: str, arguments: dict[str, Any], hints: Hints | None) -> Use:
        own = self._by_name.get(name)
        row = catalogued(name, arguments)
        if own is not None and own.has_effects:
            use = use_by(own, arguments)
        elif hints is not None:
            use = hints.use()
        else:
            use = _UNDECLARED if row is None else use_by(row, arguments)
        if own is not None:
            use = replace(use, content=own.content or use.content, rerun=own.rerun or use.rerun)
        told = own if own is not None and (own.has_identity or row is None) else row
        return _identified(use, told, name, arguments)


def _identified(use: Use, tool: Tool | None, name: str, arguments: Arguments) -> Use:
    """The use with its three keys."""
    target, failed = target_of(tool, arguments)
    if tool is None or tool.target is None or failed:
        target = use.target
    elif target is not None and tool.target in (*tool.reads, *tool.writes):
        target = normal(target, folder_of(tool, arguments))
    key, failed_too = key_of(tool, name, arguments, target)
    return replace(
        use,
        operation=operation_of(tool, arguments),
        target=target,
        key=key,
        problem=failed or failed_too,
    )


def _short(arguments: str) -> object:
    """Arguments as a key that keeps little alive."""
    if len(arguments) <= _LONGEST_REMEMBERED:
        return arguments
    data = arguments.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


def _declarable(tools: object) -> Iterator[Tool]:
    """Each of them, once it is sure to be a tool with a name."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise refusal("", "Tools", tools, _DECLARED)
    for tool in cast(Iterable[object], tools):
        if not isinstance(tool, Tool):
            raise refusal("", "Tools", tool, _DECLARED)
        if not tool.name.strip():
            raise refusal("Tools: ", "name", tool.name, TOOL_NAME)
        yield tool
