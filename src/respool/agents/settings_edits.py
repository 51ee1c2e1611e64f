"""Edits of single values in settings texts: JSON with comments, TOML, `.env` and flat YAML.

Only the value's own characters change: comments, order, indentation and line ends stay. A text is
parsed before and after, and an edit that would change anything else is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ..errors import RespoolError
from ..regex import lazy_compile
from .settings_files import as_object, parse_object

Format = Literal["json", "toml", "env", "yaml"]
MISSING: Final = None  # no value; none of these settings can be null

Keys = Sequence[str]


class UneditableSettings(RespoolError, ValueError):
    """The settings text cannot be edited without a risk; the message says why."""


def get_value(text: str, format: Format, keys: Keys) -> Any:
    """Value under a path of keys; None if missing."""
    value: Any = _parse(text, format)
    for key in keys:
        value = as_object(value).get(key)
    return value


def set_value(text: str, format: Format, keys: Keys, value: Any) -> str:
    """Set one value, and change nothing else."""
    before = _parse(text, format)
    for end in range(1, len(keys)):
        if not isinstance(get_value(text, format, keys[:end]), dict | None):
            raise UneditableSettings(f"{'.'.join(keys[:end])} is there, and has no values in it")
    made = _SETTERS[format](text, tuple(keys), value)
    _verify(made, format, _with_value(before, keys, value), keys)
    return made


def remove_value(text: str, format: Format, keys: Keys, *, kept_depth: int | None = None) -> str:
    """Remove one value, and those of its parents below `kept_depth` that become empty."""
    before = _parse(text, format)
    keys, kept = tuple(keys), len(keys) - 1 if kept_depth is None else kept_depth
    while True:
        text = _REMOVERS[format](text, keys)
        before = _without(before, keys, prune=format == "toml")  # a table has no parents of its own
        _verify(text, format, before, keys)
        keys = keys[:-1]
        if len(keys) <= kept or get_value(text, format, keys) != {}:
            return text


def append_item(text: str, keys: Keys, item: Any) -> str:
    """Append an item to an array in JSON, which is made if it is missing."""
    found = get_value(text, "json", keys)
    if found is MISSING:
        return set_value(text, "json", keys, [item])
    if not isinstance(found, list):
        raise UneditableSettings(f"{'.'.join(keys)} is no list")
    items = cast(list[Any], found)
    made = _append_json(text, tuple(keys), item) if items else set_value(text, "json", keys, [item])
    _verify(made, "json", _with_value(_parse(text, "json"), keys, [*items, item]), keys)
    return made


def remove_item(text: str, keys: Keys, item: Any, *, kept_depth: int) -> str:
    """Remove an item from an array in JSON, and the array if that made it and it is empty now."""
    items = cast(list[Any], get_value(text, "json", keys) or [])
    if items == [item] and kept_depth < len(keys):
        return remove_value(text, "json", keys, kept_depth=kept_depth)
    node = _node_at(text, tuple(keys))
    at = items.index(item)
    spans = [(one.start, one.end) for one in node.items]
    made = _cut(text, spans, at, node)
    rest = [*items[:at], *items[at + 1 :]]
    _verify(made, "json", _with_value(_parse(text, "json"), keys, rest), keys)
    return made


# --- parsed values -----------------------------------------------------------------------------


def _parse(text: str, format: Format) -> dict[str, Any]:
    if format == "json":
        found = parse_object(text.removeprefix("\ufeff")) if text.strip() else {}
        if found is None:
            raise UneditableSettings("it is no JSON object")
        return found
    if format == "toml":
        try:
            return tomllib.loads(text.removeprefix("\ufeff"))
        except ValueError as error:
            raise UneditableSettings(f"it is not valid TOML: {error}") from None
    return _parse_lines(text, format)


def _parse_lines(text: str, format: Format) -> dict[str, Any]:
    """Top-level values of a text with a value per line."""
    found: dict[str, Any] = {}
    for line in text.removeprefix("\ufeff").splitlines():
        if matched := _LINES[format].match(line):
            found[matched["key"]] = _unquoted(matched["value"])
        elif format == "yaml" and _NOT_FLAT.match(line):
            raise UneditableSettings(f"it has a line that respool does not read: {line.strip()}")
    return found


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _with_value(before: Mapping[str, Any], keys: Keys, value: Any) -> dict[str, Any]:
    first, *rest = keys
    below = _with_value(as_object(before.get(first)), rest, value) if rest else value
    return {**before, first: below}


def _without(before: Mapping[str, Any], keys: Keys, *, prune: bool) -> dict[str, Any]:
    first, *rest = keys
    below = _without(as_object(before.get(first)), rest, prune=prune) if rest else {}
    if not rest or (prune and not below):
        return {key: value for key, value in before.items() if key != first}
    return {**before, first: below}


def _verify(text: str, format: Format, expected: Mapping[str, Any], keys: Keys) -> None:
    try:
        made = _parse(text, format)
    except UneditableSettings:
        made = None
    if made != expected:
        raise UneditableSettings(f"{'.'.join(keys)} cannot be edited there without a risk")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# --- JSON with comments ------------------------------------------------------------------------

_GAP: Final = lazy_compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = lazy_compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR: Final = lazy_compile(r"[^\s,\]}/]+")


class JsonNode(Struct):
    """Span of a JSON value; of an object its members, of an array its items."""

    start: int
    end: int = 0
    members: dict[str, tuple[int, JsonNode]] = {}  # where the key begins, and the value
    items: list[JsonNode] = []


def _skip(text: str, at: int) -> int:
    matched = _GAP.match(text, at)
    return matched.end() if matched else at


def _scan(text: str, at: int) -> JsonNode:
    """Scan the value that begins here; the text has been parsed before."""
    node = JsonNode(at, members={}, items=[])
    if text[at] not in "{[":
        matched = (_STRING if text[at] == '"' else _SCALAR).match(text, at)
        node.end = matched.end() if matched else at
        return node
    close, at = ("}" if text[at] == "{" else "]"), _skip(text, at + 1)
    while text[at] != close:
        if close == "}":
            key = _STRING.match(text, at)
            assert key is not None, "an object's member begins with a string"
            value = _scan(text, _skip(text, _skip(text, key.end()) + 1))
            node.members[json.loads(key[0], strict=False)] = (at, value)
        else:
            value = _scan(text, at)
            node.items.append(value)
        at = _skip(text, value.end)
        at = _skip(text, at + 1) if text[at] == "," else at
    node.end = at + 1
    return node


def _node_at(text: str, keys: Keys) -> JsonNode:
    node = _scan(text, _skip(text, 1 if text.startswith("\ufeff") else 0))
    for key in keys:
        node = node.members[key][1]
    return node


def _set_json(text: str, keys: tuple[str, ...], value: Any) -> str:
    if not text.strip("\ufeff \t\r\n"):
        text = f"{text.rstrip()}{{}}{_newline(text)}"
    node = _node_at(text, ())
    for depth, key in enumerate(keys):
        if key not in node.members:
            for outer in reversed(keys[depth + 1 :]):
                value = {outer: value}
            return _add_member(text, node, key, value)
        node = node.members[key][1]
    written = _dumps(text, value, _line_indent(text, node.start) if "\n" in text else None)
    return f"{text[: node.start]}{written}{text[node.end :]}"


def _add_member(text: str, node: JsonNode, key: str, value: Any) -> str:
    """Write a new member behind the last one, in the style of the object."""
    name = f"{json.dumps(key, ensure_ascii=False)}: "
    if not node.members:
        outer = _line_indent(text, node.start)
        inner, end = outer + _indent_unit(text), _newline(text)
        written = f"{{{end}{inner}{name}{_dumps(text, value, inner)}{end}{outer}}}"
        return f"{text[: node.start]}{written}{text[node.end :]}"
    starts = [start for start, _ in node.members.values()]
    last = max(value.end for _, value in node.members.values())
    between = _separator(text, node, starts[0])
    return f"{text[:last]},{between}{name}{_dumps(text, value, _outer(between))}{text[last:]}"


def _separator(text: str, node: JsonNode, first: int) -> str:
    """White space before each of a value's parts; a single blank if they share a line."""
    line = text.rfind("\n", node.start, first)
    if line < 0:
        return " "
    indent = text[line + 1 : first]
    return _newline(text) + (indent if not indent.strip() else _line_indent(text, first))


def _append_json(text: str, keys: tuple[str, ...], item: Any) -> str:
    node = _node_at(text, keys)
    between = _separator(text, node, node.items[0].start)
    last = node.items[-1].end
    return f"{text[:last]},{between}{_dumps(text, item, _outer(between))}{text[last:]}"


def _remove_json(text: str, keys: tuple[str, ...]) -> str:
    node = _node_at(text, keys[:-1])
    spans = [(start, value.end) for start, value in node.members.values()]
    return _cut(text, spans, list(node.members).index(keys[-1]), node)


def _cut(text: str, spans: Sequence[tuple[int, int]], at: int, node: JsonNode) -> str:
    """Take out one of the parts of an object or array, with its comma."""
    if len(spans) == 1:
        return f"{text[: node.start]}{text[node.start]}{text[node.end - 1]}{text[node.end :]}"
    if at:
        return text[: spans[at - 1][1]] + text[spans[at][1] :]
    return text[: spans[0][0]] + text[spans[1][0] :]


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent_unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _outer(between: str) -> str | None:
    """Indentation that a separator leads to; None: it stays in the line."""
    _, newline, indent = between.rpartition("\n")
    return indent if newline else None


def _dumps(text: str, value: Any, outer: str | None) -> str:
    """Write a value; with an indentation, an object or array has a line for each part."""
    if outer is None or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_indent_unit(text)).split("\n")
    return f"{_newline(text)}{outer}".join(lines)


# --- TOML --------------------------------------------------------------------------------------

_HEADER: Final = lazy_compile(r"\s*\[[^\[\]]+\]\s*(?:#.*)?$")
_TOML_STRING: Final = lazy_compile(r"""=\s*("(?:[^"\\]|\\.)*"|'[^']*')""")


def _set_toml(text: str, keys: tuple[str, ...], value: Any) -> str:
    end = _newline(text)
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        lines = [f"{key} = {json.dumps(one, ensure_ascii=False)}" for key, one in items]
        gap = "" if not text or text.endswith("\n") else end
        blank = end if text.strip() else ""
        return f"{text}{gap}{blank}{end.join([f'[{_toml_name(keys)}]', *lines, ''])}"
    written = json.dumps(value, ensure_ascii=False)
    lines = text.splitlines(keepends=True)
    at = _toml_line(lines, keys)
    if at is not None:
        lines[at] = _TOML_STRING.sub(lambda found: f"= {written}", lines[at], count=1)
    elif len(keys) == 1:  # the top is outside of every table
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        lines = [f"{mark}{_toml_name(keys)} = {written}{end}", text.removeprefix(mark)]
    return "".join(lines)


def _toml_line(lines: Sequence[str], keys: tuple[str, ...]) -> int | None:
    """Line of a key in its table."""
    table: tuple[str, ...] = ()
    for at, line in enumerate(lines):
        if _HEADER.match(line.rstrip("\r\n")):
            table = _toml_path(line) or table
        elif table == keys[:-1] and _toml_path(line) == keys[-1:]:
            return at
    return None


def _toml_path(line: str) -> tuple[str, ...] | None:
    """Keys that a line of TOML names by itself; None: it is no such line."""
    try:
        value: Any = tomllib.loads(line.removeprefix("\ufeff"))
    except ValueError:
        return None
    path: list[str] = []
    while isinstance(value, dict) and value:
        key, value = next(iter(cast(dict[str, Any], value).items()))
        path.append(key)
    return tuple(path)


def _toml_name(keys: tuple[str, ...]) -> str:
    return ".".join(key if re.fullmatch(r"[\w-]+", key) else json.dumps(key) for key in keys)


def _remove_toml(text: str, keys: tuple[str, ...]) -> str:
    lines = text.splitlines(keepends=True)
    at = _toml_line(lines, keys)
    if at is not None:
        return "".join([*lines[:at], *lines[at + 1 :]])
    heads = [at for at, line in enumerate(lines) if _HEADER.match(line.rstrip("\r\n"))]
    first = next((at for at in heads if _toml_path(lines[at]) == keys), None)
    if first is None:
        return text
    last = next((at for at in heads if at > first), len(lines))
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].startswith("#")):
        last -= 1  # what stands behind it is not its own
    if first and not lines[first - 1].strip():
        first -= 1  # the blank line that was written before it
    return "".join([*lines[:first], *lines[last:]])


# --- a value per line --------------------------------------------------------------------------

_LINES: Final[dict[str, re.Pattern[str]]] = {
    "env": lazy_compile(r"\s*(?:export\s+)?(?P<key>[A-Za-z_]\w*)\s*=(?P<value>.*)$"),
    "yaml": lazy_compile(
        r"(?P<key>[A-Za-z][\w-]*):(?P<value>(?:[ \t]+[^#\s].*?)?)[ \t]*(?:[ \t]#.*)?$"
    ),
}
_NOT_FLAT: Final = lazy_compile(r"(?!#)\S|\.\.\.$")  # neither indented, nor empty, nor a comment


def _set_line(text: str, keys: tuple[str, ...], value: Any, *, format: Format) -> str:
    (key,) = keys
    end, glue = _newline(text), "=" if format == "env" else ": "
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        body = line.rstrip("\r\n")
        matched = _LINES[format].match(body)
        if matched and matched["key"] == key:
            before = body[: matched.start("value")].rstrip() + glue[1:]
            lines[at] = f"{before}{value}{line[len(body) :]}"
            return "".join(lines)
    gap = "" if not text or text.endswith("\n") else end
    return f"{text}{gap}{key}{glue}{value}{end}"


def _remove_line(text: str, keys: tuple[str, ...], *, format: Format) -> str:
    kept = (
        line
        for line in text.splitlines(keepends=True)
        if not ((found := _LINES[format].match(line.rstrip("\r\n"))) and found["key"] == keys[0])
    )
    return "".join(kept)


_SETTERS: Final[dict[Format, Callable[[str, tuple[str, ...], Any], str]]] = {
    "json": _set_json,
    "toml": _set_toml,
    "env": partial(_set_line, format="env"),
    "yaml": partial(_set_line, format="yaml"),
}
_REMOVERS: Final[dict[Format, Callable[[str, tuple[str, ...]], str]]] = {
    "json": _remove_json,
    "toml": _remove_toml,
    "env": partial(_remove_line, format="env"),
    "yaml": partial(_remove_line, format="yaml"),
}
