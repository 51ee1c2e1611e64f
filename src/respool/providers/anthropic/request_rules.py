"""Anthropic's rules for a request's fields, images, sizes and cache breakpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from ...media import image_size
from ...model_names import ModelName, is_always_thinking, parse_model_name
from ...transcript import BlockPath, Ref
from ...wire.base import Fields
from ...wire.json import JSON, Object
from ...wire.message_identity import count_breakpoints
from ..base import MediaLimits, Problem

MAX_BREAKPOINTS = 4
MAX_MESSAGES = 100_000
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_BEDROCK_BYTES = 20 * 1000 * 1000
MAX_IMAGES = 600
MAX_IMAGES_SMALL_WINDOW = 100  # models with a window of 200,000 tokens
LARGER_WINDOW_SINCE = (4, 6)
MANY_IMAGES = 20
MAX_IMAGE_SIDE = 8000
MAX_IMAGE_SIDE_OF_MANY = 2000
SERVER_TOOLS = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_execution",
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "advisor": "advisor",
}
BETA_FIELDS = {
    "context_management": ("context-management", "compact"),
    "block_binding": ("thinking-binding-controls",),
}


def check_whole_request(messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
    """Problems of the request as a whole."""
    model = parse_model_name(fields.get("model")) if fields else None
    found = [*_size_problems(messages), *_image_problems(messages, model)]
    found += _breakpoint_problems(messages, fields or {})
    if fields is None:
        return found
    found += _tools_problems(messages, fields)
    found += _thinking_config_problems(model, fields)
    found += _system_support_problems(messages, model)
    found += _beta_problems(messages, fields)
    return found + _edit_order_problems(fields)


def _blocks_of(message: JSON) -> Iterator[tuple[BlockPath, Object]]:
    """Every block of a message with its path, blocks inside results included."""
    content = cast(Object, message).get("content") if isinstance(message, dict) else None
    for position, item in enumerate(cast(list[JSON], content) if isinstance(content, list) else []):
        if not isinstance(item, dict):
            continue
        block = cast(Object, item)
        yield ("content", position), block
        inner = block.get("content")
        if block.get("type") == "tool_result" and isinstance(inner, list):
            for k, nested in enumerate(cast(list[JSON], inner)):
                if isinstance(nested, dict):
                    yield ("content", position, "content", k), cast(Object, nested)


def _place(ref: Ref) -> str:
    return f"messages{ref}"


def blocks_in(messages: Sequence[JSON]) -> Iterator[tuple[Ref, Object]]:
    """Every block of the history with its path, blocks inside results included."""
    for at, message in enumerate(messages):
        for path, block in _blocks_of(message):
            yield Ref(at, path), block


def check_size(size: int) -> list[Problem]:
    """The problem of a body with this many bytes, if it has too many."""
    if size <= MAX_BODY_BYTES:
        return []
    return [Problem("A22", "body", f"{size:,} bytes; at most {MAX_BODY_BYTES:,} are allowed.")]


def media_limits(fields: Fields | None) -> MediaLimits:
    """The limits of a request beside tokens (A22)."""
    version = (fields or {}).get("anthropic_version")
    is_bedrock = isinstance(version, str) and version.startswith("bedrock-")
    return MediaLimits(
        bytes=MAX_BEDROCK_BYTES if is_bedrock else MAX_BODY_BYTES,
        images=_max_images(parse_model_name((fields or {}).get("model"))),
        side=MAX_IMAGE_SIDE,
        many=MANY_IMAGES,
        side_of_many=MAX_IMAGE_SIDE_OF_MANY,
    )


def _size_problems(messages: Sequence[JSON]) -> list[Problem]:
    if len(messages) <= MAX_MESSAGES:
        return []
    return [Problem("A22", "messages", f"At most {MAX_MESSAGES:,} messages are allowed.")]


def _max_images(model: ModelName | None) -> int:
    """The maximum of images in a request; an unknown model counts as a new one."""
    if model is None or model.maker != "anthropic" or model.version >= LARGER_WINDOW_SINCE:
        return MAX_IMAGES
    return MAX_IMAGES_SMALL_WINDOW


def _image_problems(messages: Sequence[JSON], model: ModelName | None) -> list[Problem]:
    """Problems of the number and size of images, old results included."""
    images = [(ref, block) for ref, block in blocks_in(messages) if block.get("type") == "image"]
    found: list[Problem] = []
    max_images = _max_images(model)
    if len(images) > max_images:
        why = f"{len(images)} images; at most {max_images} are allowed."
        found.append(Problem("A22", "messages", why))
    limit = MAX_IMAGE_SIDE_OF_MANY if len(images) > MANY_IMAGES else MAX_IMAGE_SIDE
    for ref, block in images:
        source = block.get("source")
        data = cast(Object, source).get("data") if isinstance(source, dict) else None
        size = image_size(data) if isinstance(data, str) else None
        if size and max(size) > limit:
            why = f"Image of {size[0]}x{size[1]} px; at most {limit} a side."
            found.append(Problem("A22", _place(ref), why))
    return found


def _tools_problems(messages: Sequence[JSON], fields: Fields) -> list[Problem]:
    """Problems of missing tool definitions; server-side calls need their own."""
    blocks = list(blocks_in(messages))
    tools = fields.get("tools")
    declared = cast(list[JSON], tools) if isinstance(tools, list) else []
    client = next((r for r, b in blocks if b.get("type") in ("tool_use", "tool_result")), None)
    if client and not declared:
        why = "A history with tool calls needs the request's tools."
        return [Problem("A5", _place(client), why)]
    kinds = [str(cast(Object, t).get("type")) for t in declared if isinstance(t, dict)]
    names = {str(cast(Object, t).get("name")) for t in declared if isinstance(t, dict)}
    found = [
        Problem("A8", _place(ref), f"Server-side tool {block['name']!r} is not among the tools.")
        for ref, block in blocks
        if block.get("type") == "server_tool_use"
        and (need := SERVER_TOOLS.get(str(block.get("name"))))
        and not any(kind.startswith(need) for kind in kinds)
    ]
    return found + _change_problems(blocks, names)


def _change_problems(blocks: list[tuple[Ref, Object]], names: set[str]) -> list[Problem]:
    """Problems of undeclared tools that are added or removed within the history."""
    found: list[Problem] = []
    known = set(names)
    for ref, block in blocks:
        tool = block.get("tool")
        if block.get("type") not in ("tool_addition", "tool_removal") or not isinstance(tool, dict):
            continue
        change = cast(Object, tool)
        definition = change.get("definition")
        if isinstance(definition, dict):
            known.add(str(cast(Object, definition).get("name")))
        elif change.get("type") == "tool_reference" and str(change.get("name")) not in known:
            why = f"Tool {change.get('name')!r} is not declared in tools."
            found.append(Problem("A17", _place(ref), why))
    return found


def _thinking_config_problems(model: ModelName | None, fields: Fields) -> list[Problem]:
    """Problems of thinking modes that the model does not have."""
    mode = fields.get("thinking")
    kind = cast(Object, mode).get("type") if isinstance(mode, dict) else None
    if model is None or model.maker != "anthropic":
        return []
    found: list[Problem] = []
    if kind == "enabled" and model.version >= (4, 7):
        found.append(Problem("A14", "thinking.type", "This model has no manual thinking mode."))
    if kind == "disabled" and is_always_thinking(model):
        found.append(Problem("A14", "thinking.type", "This model's thinking cannot be disabled."))
    if kind == "adaptive" and model.version <= (4, 5):
        found.append(Problem("A14", "thinking.type", "This model has no adaptive thinking."))
    choice = fields.get("tool_choice")
    forced = cast(Object, choice).get("type") if isinstance(choice, dict) else None
    if forced in ("any", "tool") and (is_always_thinking(model) or kind == "enabled"):
        why = f"Tool choice {forced!r} is not for thinking models."
        found.append(Problem("A14", "tool_choice.type", why))
    return found


def _system_support_problems(messages: Sequence[JSON], model: ModelName | None) -> list[Problem]:
    """Problems of system messages inside the history, which older models do not support."""
    if model is None or model.maker != "anthropic" or model.version >= (4, 8):
        return []
    at = next(
        (
            i
            for i, m in enumerate(messages)
            if isinstance(m, dict) and cast(Object, m).get("role") == "system"
        ),
        None,
    )
    if at is None:
        return []
    place = f"messages[{at}]"
    text = "System messages inside the history may not be supported on this model."
    return [Problem("A16", place, text, "warning")]


def _beta_problems(messages: Sequence[JSON], fields: Fields) -> list[Problem]:
    """Problems of beta fields without their beta, if the request lists its betas."""
    betas = fields.get("betas", fields.get("anthropic_beta"))
    if not isinstance(betas, list):
        return []
    named = [str(beta) for beta in cast(list[JSON], betas)]
    thinking = fields.get("thinking")
    used = {
        "context_management": fields.get("context_management") is not None,
        "block_binding": isinstance(thinking, dict) and "block_binding" in cast(Object, thinking),
    }
    found = [
        Problem("A15", name, f"Field {name!r} needs its beta ({betas[0]}-…) to be named.")
        for name, betas in BETA_FIELDS.items()
        if used[name] and not any(beta.startswith(betas) for beta in named)
    ]
    return found if named else found + _cleared_problems(messages)


def _cleared_problems(messages: Sequence[JSON]) -> list[Problem]:
    """Problems of system messages to be cleared if no beta is listed."""
    return [
        Problem("A15", f"messages[{at}].clear_at", "Field 'clear_at' needs its beta to be named.")
        for at, message in enumerate(messages)
        if isinstance(message, dict)
        and cast(Object, message).get("role") == "system"
        and cast(Object, message).get("clear_at") is not None
    ]


def _edit_order_problems(fields: Fields) -> list[Problem]:
    """Problems of the order of edits: clearing of thinking comes first."""
    config = fields.get("context_management")
    edits = cast(Object, config).get("edits") if isinstance(config, dict) else None
    kinds = [
        str(cast(Object, edit).get("type"))
        for edit in (cast(list[JSON], edits) if isinstance(edits, list) else [])
        if isinstance(edit, dict)
    ]
    late = [k for k, kind in enumerate(kinds) if kind.startswith("clear_thinking_") and k > 0]
    return [
        Problem("A20", f"context_management.edits[{k}]", "Clearing of thinking must come first.")
        for k in late
    ]


def head_breakpoints(fields: Fields) -> list[tuple[str, Object]]:
    """The cache breakpoints on tools and system blocks, in the provider's order."""
    found: list[tuple[str, Object]] = []
    for name in ("tools", "system"):
        items = fields.get(name)
        for k, item in enumerate(cast(list[JSON], items) if isinstance(items, list) else []):
            control = cast(Object, item).get("cache_control") if isinstance(item, dict) else None
            if isinstance(control, dict):
                found.append((f"{name}[{k}]", cast(Object, control)))
    return found


def message_breakpoints(message: JSON) -> list[tuple[BlockPath, Object]]:
    """The cache breakpoints of one message with the paths of their blocks, in order."""
    if not count_breakpoints(message):
        return []
    found: list[tuple[BlockPath, Object]] = []
    for path, block in _blocks_of(message):
        control = block.get("cache_control")
        if isinstance(control, dict):
            found.append((path, cast(Object, control)))
    return found


def has_useless_breakpoint(message: JSON) -> bool:
    """Return whether a system message to be cleared carries a breakpoint."""
    if not isinstance(message, dict) or cast(Object, message).get("role") != "system":
        return False
    cleared = cast(Object, message).get("clear_at") not in (None, "never")
    return cleared and bool(message_breakpoints(message))


def empty_texts_with_breakpoint(message: JSON) -> list[BlockPath]:
    """Paths of empty texts inside results that carry a breakpoint; others are invalid anyway."""
    if not count_breakpoints(message):
        return []
    return [
        path
        for path, block in _blocks_of(message)
        if len(path) > 2 and _is_empty_with_breakpoint(block)
    ]


def _is_empty_with_breakpoint(block: JSON) -> bool:
    """Return whether a block is an empty text with a breakpoint."""
    holder = cast(Object, block) if isinstance(block, dict) else {}
    empty = holder.get("type") == "text" and holder.get("text") == ""
    return empty and isinstance(holder.get("cache_control"), dict)


def _useless_breakpoint_problems(
    messages: Sequence[JSON], rows: Sequence[int], fields: Fields
) -> list[Problem]:
    """Problems of breakpoints on empty texts and on messages to be cleared."""
    why = "An empty text cannot carry a cache breakpoint."
    system = fields.get("system")
    blocks = cast(list[JSON], system) if isinstance(system, list) else []
    places = [f"system[{k}]" for k, block in enumerate(blocks) if _is_empty_with_breakpoint(block)]
    places += [
        _place(Ref(at, path)) for at in rows for path in empty_texts_with_breakpoint(messages[at])
    ]
    cleared = "A message with clear_at cannot carry a cache breakpoint."
    return [Problem("A6", place, why) for place in places] + [
        Problem("A16", f"messages[{at}]", cleared)
        for at in rows
        if has_useless_breakpoint(messages[at])
    ]


def _breakpoint_problems(messages: Sequence[JSON], fields: Fields) -> list[Problem]:
    """Problems of the number of breakpoints, and of one hour after five minutes."""
    rows = [at for at, message in enumerate(messages) if count_breakpoints(message)]
    found = _useless_breakpoint_problems(messages, rows, fields)
    breakpoints = head_breakpoints(fields) + [
        (_place(Ref(at, path)), control)
        for at in rows
        for path, control in message_breakpoints(messages[at])
    ]
    count = len(breakpoints) + has_automatic_breakpoint(fields)
    if count > MAX_BREAKPOINTS:
        place = breakpoints[MAX_BREAKPOINTS - has_automatic_breakpoint(fields)][0]
        found.append(
            Problem(
                "A21", place, f"{count} cache breakpoints; at most {MAX_BREAKPOINTS} are allowed."
            )
        )
    if has_automatic_breakpoint(fields):
        breakpoints.append(
            ("cache_control", cast(Object, fields["cache_control"]))
        )  # the last of all
    lives = [is_one_hour(control) for _, control in breakpoints]
    first_short = lives.index(False) if False in lives else len(lives)
    found += [
        Problem("A21", place, "A breakpoint of 1h must not come after one of 5m.")
        for (place, control) in breakpoints[first_short:]
        if is_one_hour(control)
    ]
    return found


def has_automatic_breakpoint(fields: Fields) -> bool:
    """Return whether the provider is asked to place a breakpoint, which counts as one."""
    return isinstance(fields.get("cache_control"), dict)


def is_one_hour(control: Object) -> bool:
    """Return whether a breakpoint has a lifetime of one hour."""
    return control.get("ttl") == "1h"
