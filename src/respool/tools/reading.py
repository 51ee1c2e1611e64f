"""A declaration applied to the arguments of one call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from .declaration import Arguments, Tool
from .effects import IGNORANCE, Effect
from .patches import patched
from .paths import content_of, folder_before, normal
from .script import LONGEST, Unreadable
from .use import TO_THE_END, Content, Span, Use

_LINES = re.compile(r"([^\s.+]+)(?:(\.\.|\+)([^\s.+]+))?( from 0)?")
_SHELLS: Final = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash")
_MOST_SPANS: Final = 200


class _Lines(Struct, frozen=True, gc=False):
    """Which arguments say which lines are read."""

    first: str
    joint: str  # "..": the second names the last line; "+": how many; "": one argument has both
    second: str
    base: int


@lru_cache(maxsize=256)
def _lines_declared(text: str) -> _Lines | None:
    found = _LINES.fullmatch(text.strip())
    if found is None:
        return None
    return _Lines(found[1], found[2] or "", found[3] or "", 0 if found[4] else 1)


def use_by(tool: Tool, arguments: Arguments) -> Use:
    """What a call does by its tool's declaration; identity apart."""
    base = folder_of(tool, arguments)
    if tool.command is not None:
        return _by_command(tool, arguments, base)
    if tool.patch is not None:
        return _by_patch(tool, arguments, base)
    writes = _named(tool.writes, arguments, base)
    reads = _read(tool, arguments, base)
    kind = tool.kind or ("write" if tool.writes else "read" if tool.reads else "other")
    barrier = kind == "write" and not writes if tool.barrier is None else tool.barrier
    content = _content(tool, reads)
    rerun = tool.rerun or (kind in ("read", "search") and not barrier)
    return Use(
        kind, "default", _first(writes) or _first(reads), "", reads, writes,
        tool.replaces and bool(writes), barrier, content, rerun=rerun, numbers=tool.numbers,
    )  # fmt: skip


def _first(spans: tuple[Span, ...]) -> str | None:
    return spans[0].path if spans else None


def folder_of(tool: Tool, arguments: Arguments) -> str | None:
    """The folder that a call says it works in."""
    value = arguments.get(tool.workdir) if tool.workdir else None
    return normal(value) if isinstance(value, str) and value.strip() else None


def _content(tool: Tool, reads: tuple[Span, ...]) -> Content | None:
    """What is declared; of a file, its ending says more."""
    if tool.content == "code" and reads:
        return content_of(reads[0].path)
    return tool.content


def _named(names: Sequence[str], arguments: Arguments, base: str | None) -> tuple[Span, ...]:
    """The things that these arguments name, each of them once."""
    found: dict[str, Span] = {}
    for name in names:
        for text in _texts(arguments.get(name)):
            if len(found) < _MOST_SPANS:
                one = _span(text, base)
                found.setdefault(one.path, one)
    return tuple(found.values())


def _texts(value: object) -> list[str]:
    """The text of an argument, or of each item in it."""
    items = cast(list[object], value) if isinstance(value, list) else [value]
    return [item.strip() for item in items if isinstance(item, str) and item.strip()]


def _span(text: str, base: str | None) -> Span:
    if "*" in text and "://" not in text:
        return Span(normal(folder_before(text), base), part=True)
    return Span(normal(text, base))


def _read(tool: Tool, arguments: Arguments, base: str | None) -> tuple[Span, ...]:
    """What is read, with its lines; of a search, some part that is not known."""
    spans = _named(tool.reads, arguments, base)
    if tool.kind == "search":
        if not spans and tool.reads:
            spans = (Span(base or "."),)
        return tuple(Span(one.path, part=True) for one in spans)
    declared = _lines_declared(tool.lines) if tool.lines else None
    if declared and _unreadable(declared, arguments):
        return tuple(Span(one.path, part=True) for one in spans)
    lines = _lines(declared, arguments, tool.page) if declared else _page(tool.page)
    if lines is None:
        return spans
    return tuple(one if one.part or "://" in one.path else Span(one.path, lines) for one in spans)


def _unreadable(declared: _Lines, arguments: Arguments) -> bool:
    """Whether one argument says which part is read, in words that name no lines: `1-5`."""
    value = arguments.get(declared.first)
    return not declared.joint and value not in (None, "", []) and _pair(value) is None


def _page(page: int | None, first: int = 1) -> tuple[int, int] | None:
    return None if page is None else (first, first + page - 1)


def _lines(declared: _Lines, arguments: Arguments, page: int | None) -> tuple[int, int] | None:
    """The lines that are asked for; None: all."""
    value = arguments.get(declared.first)
    if not declared.joint:
        return _pair(value) or _page(page)
    first, second = _number(value), _number(arguments.get(declared.second))
    if first is None and second is None:
        return _page(page)
    start = max(1, (declared.base if first is None else first) + 1 - declared.base)
    if second is None or second < 0:
        return _page(page, start) or (start, TO_THE_END)
    if declared.joint == "+":
        return start, max(start, start + second - 1)
    return start, max(start, second + 1 - declared.base)


def _pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list):
        return None
    numbers = [_number(item) for item in cast(list[object], value)]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    first = max(1, numbers[0])
    return first, TO_THE_END if numbers[1] < 0 else max(first, numbers[1])


def _number(value: object) -> int | None:
    """A line number; models also send them as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and abs(value) < TO_THE_END
    return cast(int, value) if usable else None


def _by_patch(tool: Tool, arguments: Arguments, base: str | None) -> Use:
    """What a patch writes: the files it names."""
    value = arguments.get(tool.patch or "")
    found = patched(value, base) if isinstance(value, str) else None
    if found is None:
        return Use("write", barrier=True, content="edit")
    writes, replaces = found
    return Use("write", "default", _first(writes), "", (), writes, replaces, content="edit")


def _by_command(tool: Tool, arguments: Arguments, base: str | None) -> Use:
    """What a shell command does."""
    effect = _effect(_command(tool, arguments), base)
    rerun = effect.kind in ("read", "search") and not effect.barrier
    return Use(
        effect.kind, "default", effect.target or None, "", _once(effect.reads)[:_MOST_SPANS],
        _once(effect.writes), effect.replaces and bool(effect.writes),
        effect.barrier or len(effect.writes) > _MOST_SPANS, effect.content or tool.content,
        effect.known, rerun, in_shell=True,
    )  # fmt: skip


def _once(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(dict.fromkeys(spans))


def _command(tool: Tool, arguments: Arguments) -> Any:
    """The command in the arguments; `commands[]` is a list with a command in each item."""
    name = tool.command or ""
    value = arguments.get(name.removesuffix("[]"))
    if name.endswith("[]") and isinstance(value, list):
        items = cast(list[object], value)
        return "\n".join(cast(list[str], items)) if _all_text(items) else None
    return value


def _all_text(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, str) for item in items)


def _effect(command: Any, base: str | None) -> Effect:
    """The effect of a command as text, or as its words."""
    from .commands import effect_of  # late, for the table and the parser serve shell commands only

    try:
        if isinstance(command, str):
            return effect_of(command, base) if len(command) <= LONGEST else _too_long(command)
        if isinstance(command, list) and _all_text(cast(list[object], command)):
            return _of_words(tuple(cast(list[str], command)), base)
    except Unreadable:
        pass
    return IGNORANCE


def _of_words(words: tuple[str, ...], base: str | None) -> Effect:
    """A list is one program with its words, as `["bash", "-lc", "…"]`, or one line of shell."""
    from .commands import effect_of, effect_of_words

    if len(words) == 1 and words[0] not in _SHELLS:
        return effect_of(words[0], base)
    return effect_of_words(words, base)


def _too_long(command: str) -> Effect:
    """A long command is nearly always a file that is written; which one is not looked for."""
    return replace(IGNORANCE, kind="write" if "<<" in command[:1_000] else "run")
