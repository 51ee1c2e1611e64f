"""Declaration of one tool: its keys, their checks and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Final, Self, cast

from msgspec import UNSET, UnsetType

from ..errors import (
    boolean,
    character_limit,
    invalid_value,
    one_of,
    quote_value,
    reject_unknown_keys,
    tool_name,
    whole_number,
)
from .use import CONTENTS, TOOL_KINDS, Content, ToolKind

UNLIMITED: Final = None  # cap of a tool whose results stay verbatim

TOOL_KEYS: Final = (
    "cap_chars", "rerun", "kind", "operation", "target", "key", "reads", "writes", "lines", "page",
    "replaces", "barrier", "content", "numbers", "command", "patch", "workdir",
)  # fmt: skip

Arguments = Mapping[str, Any]
ArgumentFunction = Callable[[Arguments], str | None]

_NAME = "the name of an argument"
_NAMES = "the name of an argument, or a list of them"
_NAME_OR_FUNCTION = f"{_NAME}; in code also a function of the arguments"
_KEY = "arguments or target; in code also a function of the arguments"
_LINES = "one argument that holds a pair, FIRST..LAST, or FIRST+COUNT (' from 0' if zero-based)"
_PAGE = "a whole number of lines from 1"


def _optional(check: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else check(value)


def _argument(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(_NAME)
    return value


def _arguments(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise ValueError(_NAMES)
    given = tuple(cast(list[object], names))
    if not all(isinstance(name, str) and name for name in given):
        raise ValueError(_NAMES)
    return cast(tuple[str, ...], given)


def _argument_or_function(value: object) -> object:
    if callable(value):
        return value
    try:
        return _argument(value)
    except ValueError:
        raise ValueError(_NAME_OR_FUNCTION) from None


def _key_or_function(value: object) -> object:
    if callable(value) or value in ("arguments", "target"):
        return value
    raise ValueError(_KEY)


def _line_arguments(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(_LINES)
    return value


_CHECKS: Final[dict[str, Callable[[object], object]]] = {
    "name": tool_name,
    "cap_chars": lambda value: value if value is UNSET else character_limit(value),
    "rerun": boolean,
    "kind": _optional(lambda value: one_of(value, TOOL_KINDS)),
    "operation": _optional(_argument),
    "target": _optional(_argument_or_function),
    "key": _optional(_key_or_function),
    "reads": _arguments,
    "writes": _arguments,
    "lines": _optional(_line_arguments),
    "page": _optional(lambda value: whole_number(value, 1, _PAGE)),
    "replaces": boolean,
    "barrier": _optional(boolean),
    "content": _optional(lambda value: one_of(value, CONTENTS)),
    "numbers": boolean,
    "command": _optional(_argument),
    "patch": _optional(_argument),
    "workdir": _optional(_argument),
}


@dataclass(frozen=True, repr=False)
class Tool:
    """Declaration of one tool; keys left out use the catalog or the defaults.

    `cap_chars` limits the characters of its results once they have been seen. It overrides the
    policy's cap, larger or smaller; `UNLIMITED` leaves results verbatim; unset uses the policy's.
    `rerun=True` says that running it again is safe, so a marker may suggest it. The other keys
    describe the effect of a call, by the names of its arguments.

    >>> Tool("Read", cap_chars=60_000, rerun=True)
    Tool(name='Read', cap_chars=60000, rerun=True)
    >>> Tool("view", kind="read", reads="path", lines="view_range")
    Tool(name='view', kind='read', reads=('path',), lines='view_range')
    """

    name: str
    _: KW_ONLY
    cap_chars: int | UnsetType | None = UNSET
    rerun: bool = False
    kind: ToolKind | None = None  # its strongest effect
    operation: str | None = None  # the argument that names the operation
    # The argument that names the target, or a function
    target: str | ArgumentFunction | None = None
    # The identity of repeated calls: "arguments", "target", a function
    key: str | ArgumentFunction | None = None
    reads: str | Sequence[str] = ()  # the arguments that name what is read
    writes: str | Sequence[str] = ()  # the arguments that name what is written
    lines: str | None = None  # the arguments that select the lines to read
    page: int | None = None  # lines of a read that selects none
    replaces: bool = False  # a write replaces the whole file
    barrier: bool | None = None  # it may write anything, anywhere
    content: Content | None = None  # content kind of its result
    numbers: bool = False  # it always numbers the lines it shows
    command: str | None = None  # the argument that holds a shell command
    patch: str | None = None  # the argument that holds a patch
    workdir: str | None = None  # the argument that names its working folder

    def __new__(cls, *_args: Any, **given: Any) -> Self:
        """Reject unknown keys, with a suggestion."""
        reject_unknown_keys("Tool: ", given.items(), ("name", *TOOL_KEYS))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for key, check in _CHECKS.items():
            self._validate(key, check)

    def _validate(self, key: str, check: Callable[[object], object]) -> None:
        value = getattr(self, key)
        try:
            object.__setattr__(self, key, check(value))
        except ValueError as error:
            raise invalid_value(
                f"tool {quote_value(self.name)}: ", key, value, str(error)
            ) from None

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.declared().items())
        return f"Tool({given})"

    def declared(self) -> dict[str, object]:
        """The keys that differ from the defaults, the name first."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {key: value for key, (value, default) in values.items() if value != default}

    def plain(self) -> list[list[object]]:
        """The declaration as JSON values; a function becomes its qualified name."""
        return [[key, _plain(value)] for key, value in self.declared().items()]

    @property
    def has_effects(self) -> bool:
        """Check whether the declaration says what a call reads, writes or runs."""
        effects = self.kind or self.reads or self.writes or self.command or self.patch
        return bool(effects) or self.barrier is not None

    @property
    def has_identity(self) -> bool:
        """Check whether the declaration says which calls are the same."""
        return not (self.operation is None and self.target is None and self.key is None)


def _plain(value: object) -> object:
    if callable(value):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        return f"{module}:{name}"
    return value
