"""What is known of tools: what each one declares, in a registry that is itself a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Self, cast

from msgspec import UNSET, UnsetType

from ..errors import PolicyError
from ..ranges import (
    TOOL_NAME,
    characters,
    name_on_wire,
    refusal,
    refuse_unknown,
    shown,
    switch,
)

UNLIMITED: Final = None  # the cap of a tool whose results stay verbatim

TOOL_KEYS: Final = ("cap", "rerun")  # what can be declared of a tool, in code and in TOML

_DECLARED = 'a list of Tool, as in Tools([Tool("Bash", cap=10_000)])'


@dataclass(frozen=True)
class Tool:
    """What is declared of one tool.

    `cap` is the number of characters its results may have once they have been seen. It wins over
    the policy's cap, larger or smaller; `UNLIMITED` leaves them verbatim; unset means the policy's.
    `rerun=True` says that running it again is safe, so that a marker may advise it.

    >>> Tool("Read", cap=60_000, rerun=True)
    Tool(name='Read', cap=60000, rerun=True)
    """

    name: str
    _: KW_ONLY
    cap: int | UnsetType | None = UNSET
    rerun: bool = False

    def __new__(cls, *_args: Any, **given: Any) -> Self:
        """Refuse a key that cannot be declared, with a hint."""
        refuse_unknown("Tool: ", given.items(), ("name", *TOOL_KEYS))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        self._settle("name", name_on_wire)
        if self.cap is not UNSET:
            self._settle("cap", characters)
        self._settle("rerun", switch)

    def _settle(self, key: str, check: Callable[[object], object]) -> None:
        value = getattr(self, key)
        try:
            object.__setattr__(self, key, check(value))
        except ValueError as error:
            raise refusal(f"tool {shown(self.name)}: ", key, value, str(error)) from None


@dataclass(frozen=True, init=False, repr=False)
class Tools:
    """The registry: what is declared of each tool, by the exact name that the request carries.

    Names are compared as they are, case included. MCP tools travel under the name their client
    gives them (`mcp__github__get_issue`, not `get_issue`): declare that one. A declaration never
    reaches a tool that merely ends like it, for two servers may each have a `search` of their own.

    >>> tools = Tools([Tool("Bash", cap=10_000), Tool("Read", cap=UNLIMITED)])
    >>> tools.cap_for("Bash", 32_000), tools.cap_for("Read", 32_000), tools.cap_for("Grep", 32_000)
    (10000, None, 32000)
    """

    _declared: tuple[Tool, ...]  # sorted by name, so that equality is of content
    _by_name: dict[str, Tool] = field(compare=False)

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        by_name: dict[str, Tool] = {}
        for tool in _declarable(tools):
            if tool.name in by_name:
                raise PolicyError(f"tool {shown(tool.name)} is declared twice; allowed: once")
            by_name[tool.name] = tool
        object.__setattr__(self, "_declared", tuple(by_name[name] for name in sorted(by_name)))
        object.__setattr__(self, "_by_name", by_name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"Tools({list(self._declared)!r})"

    def get(self, name: str) -> Tool:
        """What is declared of this tool; for an undeclared one, the defaults."""
        return self._by_name.get(name) or Tool(name)

    def cap_for(self, name: str, default: int | None) -> int | None:
        """The cap of this tool's results: its own, or else `default`; None is unlimited."""
        tool = self._by_name.get(name)
        return default if tool is None or isinstance(tool.cap, UnsetType) else tool.cap

    def declare(self, *tools: Tool) -> Tools:
        """A registry that also holds these; an earlier declaration of the same name is replaced."""
        new = Tools(tools)
        return Tools([*(tool for tool in self if tool.name not in new), *new])


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
