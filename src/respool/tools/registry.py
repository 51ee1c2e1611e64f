"""Registry of tools: the use of each call, from its strongest source.

Parameter schemas are ignored: they say nothing certain about what a tool does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from ..cache_scope import current_scope
from ..errors import TOOL_NAME_ALLOWED, PolicyError, invalid_value, quote_value
from ..regex import lazy_compile
from .declaration import Arguments, Tool
from .identity import key_of, operation_of, parse_arguments, target_of
from .paths import content_by_suffix, glob_root, normalize, patched_files
from .shell.effects import UNKNOWN_EFFECT, Effect
from .shell.parser import MAX_COMMAND_BYTES, UnreadableCommand
from .use import END_OF_FILE, CallIdentity, Content, Span, Use

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_HINT_KEYS = ("annotations", "_meta")

_LINES_PATTERN = lazy_compile(r"([^\s.+]+)(?:(\.\.|\+)([^\s.+]+))?( from 0)?")
_SHELLS: Final = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash")
_MAX_SPANS: Final = 200
_DECLARED = 'a list of Tool, as in Tools([Tool("Bash", cap_chars=10_000)])'
_MAX_CACHED_USES: Final = 8_192  # calls
_MAX_CACHED_CHARS: Final = 4_096  # characters of arguments; longer ones are cached by hash
_UNDECLARED: Final = Use("other", barrier=True, known=False)


@dataclass(frozen=True, init=False, repr=False)
class Tools:
    """Registry of declared tools, by the exact name in the request.

    Names are case-sensitive. MCP tools appear under the name their client gives them
    (`mcp__github__get_issue`, not `get_issue`): declare that one. A declaration never matches a
    suffix, because two servers may each have a `search`.

    >>> tools = Tools([Tool("Bash", cap_chars=10_000), Tool("Read", cap_chars=None)])
    >>> tools.cap_for("Bash", 32_000), tools.cap_for("Read", 32_000), tools.cap_for("Grep", 32_000)
    (10000, None, 32000)
    >>> tools.use_of("Bash", '{"command": "sed -n 5,9p a.py"}').reads
    (Span(path='a.py', lines=(5, 9), part=False),)
    """

    _declared: tuple[Tool, ...]  # sorted by name, so equality compares content
    _by_name: dict[str, Tool] = field(compare=False)
    _remembered: dict[object, Use] = field(compare=False)

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        by_name: dict[str, Tool] = {}
        for tool in _validate_tools(tools):
            if tool.name in by_name:
                raise PolicyError(f"tool {quote_value(tool.name)} is declared twice; allowed: once")
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
        """The declaration of this tool; the defaults if it has none."""
        return self._by_name.get(name) or Tool(name)

    def cap_for(self, name: str, default: int | None) -> int | None:
        """The cap of this tool's results: its own or `default`; None is unlimited."""
        tool = self._by_name.get(name)
        return default if tool is None or isinstance(tool.cap_chars, UnsetType) else tool.cap_chars

    def declare(self, *tools: Tool) -> Tools:
        """A registry with these tools added; a declaration of the same name is replaced."""
        new = Tools(tools)
        return Tools([*(tool for tool in self if tool.name not in new), *new])

    def use_of(self, name: str, arguments: str, definition: Any = None) -> Use:
        """The use of a call, from the first source that knows it:
        declaration, definition, catalog; otherwise it may write anything.
        """
        hints = find_hints(definition) if definition else None
        cache_key = (name, hints, _cache_key(arguments), current_scope())
        use = self._remembered.get(cache_key)
        if use is None:
            use = self._resolve(name, parse_arguments(arguments), hints)
            if len(self._remembered) >= _MAX_CACHED_USES:
                self._evict()
            self._remembered[cache_key] = use
        return use

    def identity(self, name: str, arguments: str, definition: Any = None) -> CallIdentity:
        """The three keys of a call: operation, target and repeat key."""
        use = self.use_of(name, arguments, definition)
        return CallIdentity(use.operation, use.target, use.key)

    def _evict(self) -> None:
        """Drop the older half of the cache."""
        for cache_key in list(self._remembered)[: _MAX_CACHED_USES // 2]:
            self._remembered.pop(cache_key, None)

    def _resolve(self, name: str, arguments: dict[str, Any], hints: Hints | None) -> Use:
        from .catalog import find_tool  # late: the tables are built with the first call

        own = self._by_name.get(name)
        row = find_tool(name, arguments)
        if own is not None and own.has_effects:
            use = declared_use(own, arguments)
        elif hints is not None:
            use = hints.use()
        else:
            use = _UNDECLARED if row is None else declared_use(row, arguments)
        if own is not None:
            use = replace(use, content=own.content or use.content, rerun=own.rerun or use.rerun)
        identified_by = own if own is not None and (own.has_identity or row is None) else row
        return _with_identity(use, identified_by, name, arguments)


def _validate_tools(tools: object) -> Iterator[Tool]:
    """Yield each tool after checking its type and name."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise invalid_value("", "Tools", tools, _DECLARED)
    for tool in cast(Iterable[object], tools):
        if not isinstance(tool, Tool):
            raise invalid_value("", "Tools", tool, _DECLARED)
        if not tool.name.strip():
            raise invalid_value("Tools: ", "name", tool.name, TOOL_NAME_ALLOWED)
        yield tool


def _cache_key(arguments: str) -> object:
    """A small cache key for arguments."""
    if len(arguments) <= _MAX_CACHED_CHARS:
        return arguments
    data = arguments.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


def _with_identity(use: Use, tool: Tool | None, name: str, arguments: Arguments) -> Use:
    """The use with its three keys set."""
    target, failed = target_of(tool, arguments)
    if tool is None or tool.target is None or failed:
        target = use.target
    elif target is not None and tool.target in (*tool.reads, *tool.writes):
        target = normalize(target, workdir_of(tool, arguments))
    key, failed_too = key_of(tool, name, arguments, target)
    return replace(
        use,
        operation=operation_of(tool, arguments),
        target=target,
        key=key,
        problem=failed or failed_too,
    )


class Hints(Struct, frozen=True, gc=False):
    """A definition's hints; None where it does not say."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def use(self) -> Use:
        """The use of a call of such a tool; annotations do not name what it writes."""
        if self.read_only:
            return Use("read", rerun=True)
        return Use("write", barrier=True, rerun=bool(self.idempotent))


def find_hints(definition: Any) -> Hints | None:
    """The hints of a tool definition in any wire format; None if it has none."""
    for holder in _hint_holders(definition):
        found = {hint: holder[hint] for hint in _HINTS if isinstance(holder.get(hint), bool)}
        if "readOnlyHint" in found or "destructiveHint" in found:
            return Hints(*(found.get(hint) for hint in _HINTS))
    return None


def _hint_holders(definition: Any) -> list[dict[str, Any]]:
    """The objects that may hold hints: beside the name, and in the wrapper around it."""
    if not isinstance(definition, dict):
        return []
    outer = cast(dict[str, Any], definition)
    inner = outer.get("function")
    found: list[dict[str, Any]] = []
    for one in (outer, inner):
        if isinstance(one, dict):
            found += _nested_hints(cast(dict[str, Any], one))
    return found


def _nested_hints(holder: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key in _HINT_KEYS:
        value = holder.get(key)
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value)
            found.append(inner)
            nested = inner.get("annotations")
            if isinstance(nested, dict):
                found.append(cast(dict[str, Any], nested))
    return found


class _LineArguments(Struct, frozen=True, gc=False):
    """The arguments that select the lines to read."""

    first: str
    joint: str  # "..": second is the last line; "+": second is a count; "": one argument holds both
    second: str
    base: int


@lru_cache(maxsize=256)
def _parse_lines(text: str) -> _LineArguments | None:
    found = _LINES_PATTERN.fullmatch(text.strip())
    if found is None:
        return None
    return _LineArguments(found[1], found[2] or "", found[3] or "", 0 if found[4] else 1)


def declared_use(tool: Tool, arguments: Arguments) -> Use:
    """The use of a call by its tool's declaration, without its identity."""
    base = workdir_of(tool, arguments)
    if tool.command is not None:
        return _command_use(tool, arguments, base)
    if tool.patch is not None:
        return _patch_use(tool, arguments, base)
    writes = _named_spans(tool.writes, arguments, base)
    reads = _read_spans(tool, arguments, base)
    kind = tool.kind or ("write" if tool.writes else "read" if tool.reads else "other")
    barrier = kind == "write" and not writes if tool.barrier is None else tool.barrier
    content = _declared_content(tool, reads)
    rerun = tool.rerun or (kind in ("read", "search") and not barrier)
    return Use(
        kind,
        operation="default",
        target=_first_path(writes) or _first_path(reads),
        key="",
        reads=reads,
        writes=writes,
        replaces=tool.replaces and bool(writes),
        barrier=barrier,
        content=content,
        rerun=rerun,
        numbers=tool.numbers,
    )


def _first_path(spans: tuple[Span, ...]) -> str | None:
    return spans[0].path if spans else None


def workdir_of(tool: Tool, arguments: Arguments) -> str | None:
    """The working folder that a call names."""
    value = arguments.get(tool.workdir) if tool.workdir else None
    return normalize(value) if isinstance(value, str) and value.strip() else None


def _declared_content(tool: Tool, reads: tuple[Span, ...]) -> Content | None:
    """The declared content kind; a file's suffix overrides "code"."""
    if tool.content == "code" and reads:
        return content_by_suffix(reads[0].path)
    return tool.content


def _named_spans(names: Sequence[str], arguments: Arguments, base: str | None) -> tuple[Span, ...]:
    """The distinct paths, URLs or names in these arguments."""
    found: dict[str, Span] = {}
    for name in names:
        for text in _texts(arguments.get(name)):
            if len(found) < _MAX_SPANS:
                one = _argument_span(text, base)
                found.setdefault(one.path, one)
    return tuple(found.values())


def _texts(value: object) -> list[str]:
    """The text of an argument, or of each of its items."""
    items = cast(list[object], value) if isinstance(value, list) else [value]
    return [item.strip() for item in items if isinstance(item, str) and item.strip()]


def _argument_span(text: str, base: str | None) -> Span:
    if "*" in text and "://" not in text:
        return Span(normalize(glob_root(text), base), part=True)
    return Span(normalize(text, base))


def _read_spans(tool: Tool, arguments: Arguments, base: str | None) -> tuple[Span, ...]:
    """The spans read, with their lines; for a search, an unknown part of each."""
    spans = _named_spans(tool.reads, arguments, base)
    if tool.kind == "search":
        if not spans and tool.reads:
            spans = (Span(base or "."),)
        return tuple(Span(one.path, part=True) for one in spans)
    declared = _parse_lines(tool.lines) if tool.lines else None
    if declared and _is_unreadable_range(declared, arguments):
        return tuple(Span(one.path, part=True) for one in spans)
    lines = _line_range(declared, arguments, tool.page) if declared else _page_range(tool.page)
    if lines is None:
        return spans
    return tuple(one if one.part or "://" in one.path else Span(one.path, lines) for one in spans)


def _is_unreadable_range(declared: _LineArguments, arguments: Arguments) -> bool:
    """Check whether the only line argument has a value that names no lines, like `1-5`."""
    value = arguments.get(declared.first)
    return not declared.joint and value not in (None, "", []) and _line_pair(value) is None


def _page_range(page: int | None, first: int = 1) -> tuple[int, int] | None:
    return None if page is None else (first, first + page - 1)


def _line_range(
    declared: _LineArguments, arguments: Arguments, page: int | None
) -> tuple[int, int] | None:
    """The requested lines; None means all."""
    value = arguments.get(declared.first)
    if not declared.joint:
        return _line_pair(value) or _page_range(page)
    first, second = _line_number(value), _line_number(arguments.get(declared.second))
    if first is None and second is None:
        return _page_range(page)
    start = max(1, (declared.base if first is None else first) + 1 - declared.base)
    if second is None or second < 0:
        return _page_range(page, start) or (start, END_OF_FILE)
    if declared.joint == "+":
        return start, max(start, start + second - 1)
    return start, max(start, second + 1 - declared.base)


def _line_pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list):
        return None
    numbers = [_line_number(item) for item in cast(list[object], value)]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    first = max(1, numbers[0])
    return first, END_OF_FILE if numbers[1] < 0 else max(first, numbers[1])


def _line_number(value: object) -> int | None:
    """A line number, which models also send as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and abs(value) < END_OF_FILE
    return cast(int, value) if usable else None


def _patch_use(tool: Tool, arguments: Arguments, base: str | None) -> Use:
    """The use of a patch call: it writes the files that the patch names."""
    value = arguments.get(tool.patch or "")
    found = patched_files(value, base) if isinstance(value, str) else None
    if found is None:
        return Use("write", barrier=True, content="edit")
    writes, replaces = found
    return Use(
        "write",
        operation="default",
        target=_first_path(writes),
        key="",
        reads=(),
        writes=writes,
        replaces=replaces,
        content="edit",
    )


def _command_use(tool: Tool, arguments: Arguments, base: str | None) -> Use:
    """The use of a call that runs a shell command."""
    effect = _command_effect(_command_argument(tool, arguments), base)
    rerun = effect.kind in ("read", "search") and not effect.barrier
    return Use(
        effect.kind,
        operation="default",
        target=effect.target or None,
        key="",
        reads=_unique(effect.reads)[:_MAX_SPANS],
        writes=_unique(effect.writes),
        replaces=effect.replaces and bool(effect.writes),
        barrier=effect.barrier or len(effect.writes) > _MAX_SPANS,
        content=effect.content or tool.content,
        known=effect.known,
        rerun=rerun,
        in_shell=True,
    )


def _unique(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(dict.fromkeys(spans))


def _command_argument(tool: Tool, arguments: Arguments) -> Any:
    """The command in the arguments; `commands[]` is a list of commands."""
    name = tool.command or ""
    value = arguments.get(name.removesuffix("[]"))
    if name.endswith("[]") and isinstance(value, list):
        items = cast(list[object], value)
        return "\n".join(cast(list[str], items)) if _is_all_text(items) else None
    return value


def _is_all_text(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, str) for item in items)


def _command_effect(command: Any, base: str | None) -> Effect:
    """The effect of a command given as text or as a list of words."""
    from .shell.programs import effect_of  # late: only shell commands need table and parser

    try:
        if isinstance(command, str):
            return (
                effect_of(command, base)
                if len(command) <= MAX_COMMAND_BYTES
                else _long_command_effect(command)
            )
        if isinstance(command, list) and _is_all_text(cast(list[object], command)):
            return _words_effect(tuple(cast(list[str], command)), base)
    except UnreadableCommand:
        pass
    return UNKNOWN_EFFECT


def _words_effect(words: tuple[str, ...], base: str | None) -> Effect:
    """The effect of a list of words: one program like `["bash", "-lc", "…"]`, or one shell line."""
    from .shell.programs import effect_of, effect_of_words

    if len(words) == 1 and words[0] not in _SHELLS:
        return effect_of(words[0], base)
    return effect_of_words(words, base)


def _long_command_effect(command: str) -> Effect:
    """The effect of an unparsed long command, which is nearly always a here-document."""
    return replace(UNKNOWN_EFFECT, kind="write" if "<<" in command[:1_000] else "run")
