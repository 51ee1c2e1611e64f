"""OpenAI Responses: decoding messages into parts, and editing them.

Every item is a row. A compaction item counts as made by the model: the server puts it
among a response's output. An item_reference does not: its item is not in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from ...media import document_tokens, image_tokens
from ...regex import lazy_compile
from ...transcript import BlockPath, Part, Ref, Speaker
from ...wire.base import HEAD_ROW, Fields, FormatName
from ...wire.json import JSON, Object, compact_json, digest, put, without
from ...wire.message_identity import BREAKPOINT_FIELDS
from ..attachments import has_text, replace_media, replace_text_items, text_and_media_tokens

_FORMAT: FormatName = "openai-responses"
_IMAGE_URL_PREFIX = "data:image/"
# A whole JSON string: inside one, every quote is escaped.
_IMAGE_DATA_URL = lazy_compile(r'(?<=[:,\[])"(data:image/[^",\\]*;base64,[^"\\]*)"')


def image_part(ref: Ref, speaker: Speaker, block: Object) -> Part:
    """An image or a screenshot."""
    url, data = _split_data_url(block.get("image_url"))
    said = block.get("detail")
    detail = said if isinstance(said, str) and said else None
    weight = image_tokens(_FORMAT, data_base64=data, url=url, detail=detail)
    return Part(ref, "media", speaker, weight=weight)


def file_part(ref: Ref, speaker: Speaker, block: Object) -> Part:
    """A file, by its pages or its length."""
    _, data = _split_data_url(block.get("file_data"))
    name = block.get("filename")
    kind = "application/pdf" if not isinstance(name, str) or name.endswith(".pdf") else None
    weight = document_tokens(_FORMAT, data_base64=data, media_type=kind)
    return Part(ref, "media", speaker, weight=weight)


def generated_image_tokens(data_base64: str) -> int:
    """The tokens of a generated image."""
    return image_tokens(_FORMAT, data_base64=data_base64, url=None)


def split_images(value: JSON) -> tuple[str, list[str]]:
    """A value as text without its data URL images, and those images."""
    text = compact_json(value)
    if _IMAGE_URL_PREFIX not in text or isinstance(value, str):
        return text, []
    return _IMAGE_DATA_URL.sub('""', text), [found[1] for found in _IMAGE_DATA_URL.finditer(text)]


def _split_data_url(value: object) -> tuple[str | None, str | None]:
    """A link, or the base64 data of a data URL (or of a bare string that is no link)."""
    if not isinstance(value, str):
        return None, None
    if value.startswith(("http:", "https:")):
        return value, None
    return None, value.partition(",")[2] if value.startswith("data:") else value


BREAKPOINT_FIELD = "prompt_cache_breakpoint"
# Calls answered by an output item: type -> (field of the arguments, tool's name).
CALLS: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", ""),
    "custom_tool_call": ("input", ""),
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
    "tool_search_call": ("arguments", "tool_search"),
    "program": ("code", "program"),
}
# Outputs: type -> (type of their call, field of the result).
OUTPUTS: Mapping[str, tuple[str, str]] = {
    "function_call_output": ("function_call", "output"),
    "custom_tool_call_output": ("custom_tool_call", "output"),
    "local_shell_call_output": ("local_shell_call", "output"),
    "shell_call_output": ("shell_call", "output"),
    "apply_patch_call_output": ("apply_patch_call", "output"),
    "computer_call_output": ("computer_call", "output"),
    "tool_search_output": ("tool_search_call", "tools"),
    "program_output": ("program", "result"),
}
# Outputs without the call's own id are paired by the tool's name.
_TOOL_OF_OUTPUT = {"local_shell_call_output": "local_shell"}
# Hosted calls that hold their own output: type -> tool's name.
HOSTED: Mapping[str, str] = {
    "mcp_call": "",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}
MODEL_MADE = frozenset(
    {*CALLS, *HOSTED, "reasoning", "mcp_approval_request", "mcp_list_tools", "compaction"}
)
KNOWN = MODEL_MADE | {
    *OUTPUTS,
    "message",
    "mcp_approval_response",
    "additional_tools",
    "configuration_update",
    "compaction_trigger",
    "item_reference",
}
# Calls of a fixed schema: their action cannot be edited, only removed with the whole call.
_FIXED_SCHEMA_CALLS = frozenset(
    {"local_shell_call", "shell_call", "apply_patch_call", "computer_call"}
)
# Code that the provider checks against a fingerprint, and tools that it loaded: never edited.
_NEVER_EDITED = frozenset({"tool_search_call", "program"})
_BOUND_BY_ID = frozenset({"reasoning", "compaction", "mcp_approval_request"})
# Items that require an id of their own.
ID_REQUIRED = frozenset(
    {
        "reasoning",
        "computer_call",
        "program",
        "program_output",
        "mcp_approval_request",
        "mcp_list_tools",
        *(HOSTED.keys() - {"web_search_call"}),
    }
)
# Outputs that are a text or a list of blocks.
TEXT_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_LOCAL_SHELL = ("local_shell_call", "local_shell_call_output")  # whatever type a type has
_SETTINGS = frozenset({"additional_tools", "configuration_update"})
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_BOOKKEEPING = frozenset({"type", "id", "status", *BREAKPOINT_FIELDS})
ROLES = ("user", "assistant", "system", "developer")


def kind_of(item: JSON) -> str:
    """The item's type, or the type inferred from its fields; "" if its shape is unknown."""
    holder: Object = item  # checked in the next line; a cast costs time on every item
    if not isinstance(item, dict):
        return ""
    kind = holder.get("type")
    if isinstance(kind, str) and kind:
        return kind
    if isinstance(holder.get("role"), str) and ("content" in holder or "call_id" not in holder):
        return "message"
    if kind is None and isinstance(holder.get("id"), str) and holder.keys() <= {"id", "type"}:
        return "item_reference"
    return next((kind for kind, fields in _FIELDS_BY_TYPE.items() if holder.keys() >= fields), "")


# Fields from which the type of an item without a type is inferred.
_FIELDS_BY_TYPE: Mapping[str, frozenset[str]] = {
    "function_call_output": frozenset({"call_id", "output"}),
    "function_call": frozenset({"name", "arguments"}),
    "custom_tool_call": frozenset({"call_id", "name", "input"}),
    "reasoning": frozenset({"id", "summary"}),
}


def lacks_type(item: JSON, kind: str) -> bool:
    """Return whether an item has no type and it was inferred; the API rejects such an item."""
    return kind in _FIELDS_BY_TYPE and cast(Object, item).get("type") != kind


def is_model_made(item: JSON) -> bool:
    """Return whether the model, or the provider on its behalf, wrote this item."""
    kind = kind_of(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return kind in MODEL_MADE or (kind not in KNOWN and kind.endswith("_call"))


def call_id_field(item: Object) -> JSON:
    """The call id of a call or an output; a local shell's may be its `id`."""
    id = item.get("call_id")
    return item.get("id") if id is None and item.get("type") in _LOCAL_SHELL else id


def answered_call_id(item: Object) -> str:
    """The id of the call that an output names; "" if it names none."""
    return _string(call_id_field(item))


class OpenAIResponsesCodec:
    """OpenAI Responses."""

    name: FormatName = _FORMAT
    history_field = "input"
    head_fields: tuple[str, ...] = ("instructions", "tools")

    def is_model_made(self, message: JSON) -> bool:
        """Return whether the model wrote this item."""
        return is_model_made(message)

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one item, in order."""
        kind = kind_of(message)
        if kind == "message":
            return _decode_message(row, message)
        ref = Ref(row, ())
        if kind in OUTPUTS:
            return _decode_output(ref, message, kind)
        if read := _DECODERS.get(kind):
            return [read(ref, message, kind)]
        if is_model_made(message):
            return [_opaque(ref, "model", without(message, ("id",)))]  # which `unbind` rewrites
        return [_opaque(ref, "system" if kind in _SETTINGS else "user", message)]

    def decode_head(self, fields: Fields) -> list[Part]:
        """Instructions and tool definitions."""
        parts: list[Part] = []
        instructions = fields.get("instructions")
        if isinstance(instructions, str) and instructions:
            parts.append(Part(Ref(HEAD_ROW, ("instructions",)), "text", "system", instructions))
        tools = fields.get("tools")
        parts += [
            Part(Ref(HEAD_ROW, ("tools",)), "opaque", "system", compact_json(tool))
            for tool in (cast(list[JSON], tools) if isinstance(tools, list) else [])
        ]
        return parts

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """True if reasoning or a program binds the calls: all are removed, or none."""
        return any(part.kind == "reasoning" or part.name == "program" for part in model)

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """Return whether there is an approval request: its answer refers to its id."""
        return any(kind_of(item) == "mcp_approval_request" for item in messages)

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The item with `text` in place of the part's text."""
        path = part.ref.path
        if path == ("content",):
            return put(message, path, text)
        if part.kind == "media":
            return replace_media(message, part, text, "input_text")
        if path:
            field = "refusal" if "refusal" in cast(Object, message)["content"][path[1]] else "text"
            return put(message, (*path, field), text)
        item = cast(Object, message)
        if part.kind == "call":
            return _replace_call(item, text)
        if part.kind == "reasoning":
            return _replace_reasoning(item, text)
        return _replace_output(item, text)

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """A message without these content parts; any other item is removed as a whole."""
        paths = [part.ref.path for part in parts]
        if any(len(path) < 2 for path in paths):
            return None
        field = str(paths[0][0])
        items = cast(list[JSON], cast(Object, message)[field])
        gone = {path[1] for path in paths}
        left = [item for position, item in enumerate(items) if position not in gone]
        return put(message, (field,), left) if left else None

    def unbind(self, message: JSON) -> JSON:
        """The item without the id that the provider uses to find its reasoning.

        An item that needs an id gets one that was never bound to anything.
        """
        kind = kind_of(message)
        if not is_model_made(message) or kind in _BOUND_BY_ID:
            return message
        id = cast(Object, message).get("id")
        if id is None:
            return message
        if kind in ID_REQUIRED:
            prefix = compact_json(id).partition("_")[0][:8]
            return put(message, ("id",), f"{prefix}_{digest(id)}")
        if call_id_field(message) is id:
            message = {**message, "call_id": id}  # its output refers to it
        return without(message, ("id",))

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """None: neighbours stay, every item is independent."""
        return None

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        """None: neighbours stay separate."""
        return None

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The item with a cache breakpoint on the part's block; unchanged if none is allowed."""
        kind = kind_of(message)
        field = "content" if kind == "message" else "output"
        can_hold = kind in ("message", "function_call_output", "custom_tool_call_output")
        if not can_hold or is_model_made(message):
            return message
        held = cast(Object, message).get(field)
        if isinstance(held, str):
            return put(
                message, (field,), [{"type": "input_text", "text": held, BREAKPOINT_FIELD: control}]
            )
        if not isinstance(held, list) or not held:
            return message
        path = part.ref.path
        position = path[1] if len(path) > 1 else len(cast(list[JSON], held)) - 1
        if not isinstance(cast(list[JSON], held)[int(position)], dict):
            return message
        return put(message, (field, position, BREAKPOINT_FIELD), control)


def _decode_message(row: int, item: Object) -> list[Part]:
    role = item.get("role")
    speaker: Speaker = "model" if role == "assistant" else "user"
    if role in ("system", "developer"):
        speaker = "system"
    content = item.get("content")
    if isinstance(content, str):
        return [Part(Ref(row, ("content",)), "text", speaker, content)] if content else []
    if not isinstance(content, list):
        return []
    return [
        _content_part(Ref(row, ("content", position)), speaker, block)
        for position, block in enumerate(cast(list[JSON], content))
    ]


def _content_part(ref: Ref, speaker: Speaker, block: JSON) -> Part:
    """One block of a message or of an output."""
    holder = cast(Object, block) if isinstance(block, dict) else {}
    kind = holder.get("type")
    if not isinstance(kind, str):
        return _opaque(ref, speaker, block)
    if kind in _TEXTS and isinstance(text := holder.get("text"), str):
        return Part(ref, "opaque" if speaker == "tool" else "text", speaker, text)
    if kind == "refusal" and isinstance(holder.get("refusal"), str):
        return Part(ref, "text", speaker, holder["refusal"])
    if kind in ("input_image", "computer_screenshot"):
        return image_part(ref, speaker, holder)
    if kind == "input_file":
        return file_part(ref, speaker, holder)
    return _opaque(ref, speaker, holder)


def _call(ref: Ref, item: Object, kind: str) -> Part:
    field, name = CALLS[kind]
    asked = item.get(field)
    if kind == "computer_call" and asked is None:
        asked = item.get("actions")
    return Part(
        ref,
        "call",
        "model",
        "" if asked is None else compact_json(asked),
        name=name or _string(item.get("name")),
        id=answered_call_id(item) if kind in _LOCAL_SHELL else _string(item.get("call_id")),
        signed=kind in _FIXED_SCHEMA_CALLS,
        server=kind in _NEVER_EDITED or ("environment" in item and _is_in_container(item)),
    )


def _is_in_container(item: Object) -> bool:
    """Return whether a shell call ran in a container of the provider."""
    place = item.get("environment")
    return isinstance(place, dict) and cast(Object, place).get("type") == "container_reference"


def _hosted_call(ref: Ref, item: Object, kind: str) -> Part:
    """A call with its own output: all of it as text, and the tokens of its image."""
    picture = item.get("result") if kind == "image_generation_call" else None
    said = {key: value for key, value in item.items() if key not in _BOOKKEEPING}
    weight = 0
    if isinstance(picture, str):
        del said["result"]
        weight = generated_image_tokens(picture)
    text, held = text_and_media_tokens(_FORMAT, said)
    name = HOSTED[kind] or _string(item.get("name"))
    id = _string(item.get("id"))
    return Part(ref, "call", "model", text, name=name, id=id, server=True, weight=weight + held)


def _decode_output(ref: Ref, item: Object, kind: str) -> list[Part]:
    """An output's text as one part, and each image or file in it as a part of its own."""
    held = item.get("output")
    if isinstance(held, str) and kind in TEXT_OUTPUTS:
        name, id = _string(item.get("name")), _string(item.get("call_id"))
        return [Part(ref, "result", "tool", held, name=name, id=id)]
    result = Part(
        ref,
        "result",
        "tool",
        output_text(item, kind),
        name=_string(item.get("name")) or _TOOL_OF_OUTPUT.get(kind, ""),
        id=answered_call_id(item),
        error=_is_failed(item, kind),
        signed=kind == "shell_call_output" and _is_mixed(item.get("output")),
        server=OUTPUTS[kind][0] in _NEVER_EDITED,
    )
    return [result, *_output_media(ref, item, kind)]


def _output_media(ref: Ref, item: Object, kind: str) -> list[Part]:
    if kind in ("shell_call_output", "tool_search_output"):
        return []
    held = item.get("output")
    if isinstance(held, dict):
        return [_content_part(Ref(ref.row, ("output",)), "tool", held)]
    if not isinstance(held, list):
        return []
    return [
        _content_part(Ref(ref.row, ("output", position)), "tool", block)
        for position, block in enumerate(cast(list[JSON], held))
        if not has_text(block)
    ]


def output_text(item: Object, kind: str) -> str:
    """All text of an output, without images and files."""
    held = item.get(OUTPUTS[kind][1])
    if held is None or (isinstance(held, dict) and kind != "tool_search_output"):
        return ""
    if not isinstance(held, list) or kind == "tool_search_output":
        return compact_json(held)
    blocks = cast(list[JSON], held)
    if kind == "shell_call_output":
        return "\n".join(text for block in blocks for text in _streams(block) if text)
    return "\n".join(cast(Object, block)["text"] for block in blocks if has_text(block))


def _streams(chunk: JSON) -> list[str]:
    """The streams of one chunk of shell output."""
    holder = cast(Object, chunk) if isinstance(chunk, dict) else {}
    return [_string(holder.get("stdout")), _string(holder.get("stderr"))]


def _is_mixed(chunks: JSON) -> bool:
    """Return whether one text cannot replace these chunks without mixing streams."""
    if not isinstance(chunks, list):
        return False
    held = cast(list[JSON], chunks)
    return len(held) != 1 or any(all(_streams(chunk)) for chunk in held)


def _is_failed(item: Object, kind: str) -> bool:
    if kind == "apply_patch_call_output":
        return item.get("status") == "failed"
    chunks = item.get("output")
    if kind != "shell_call_output" or not isinstance(chunks, list):
        return False
    return any(_has_failed(chunk) for chunk in cast(list[JSON], chunks))


def _has_failed(chunk: JSON) -> bool:
    outcome = cast(Object, chunk).get("outcome") if isinstance(chunk, dict) else None
    if not isinstance(outcome, dict):
        return False
    end = cast(Object, outcome)
    return end.get("type") == "timeout" or end.get("exit_code", 0) != 0


def _reasoning(ref: Ref, item: Object, kind: str) -> Part:
    hidden = _string(item.get("encrypted_content"))
    texts: list[str] = []
    for field in ("summary", "content"):
        held = item.get(field)
        if isinstance(held, str):
            texts.append(held)
        elif held and isinstance(held, list):
            texts += [
                compact_json(
                    cast(Object, block).get("text", "") if isinstance(block, dict) else block
                )
                for block in cast(list[JSON], held)
            ]
    return Part(
        ref, "reasoning", "model", "\n".join(texts), signed=bool(hidden), weight=len(hidden) // 8
    )


def _compaction(ref: Ref, item: Object, kind: str) -> Part:
    hidden = item.get("encrypted_content")
    if not isinstance(hidden, str):
        return _opaque(ref, "model", item)
    return Part(ref, "opaque", "model", signed=True, weight=len(hidden) // 8)


def _approval_request(ref: Ref, item: Object, kind: str) -> Part:
    asked = compact_json(item.get("arguments", ""))
    name, id = _string(item.get("name")), _string(item.get("id"))
    return Part(ref, "call", "model", asked, name=name, id=id, server=True)


def _approval_response(ref: Ref, item: Object, kind: str) -> Part:
    said = compact_json({key: item[key] for key in ("approve", "reason") if key in item})
    id = _string(item.get("approval_request_id"))
    return Part(ref, "result", "user", said, id=id, server=True)


_DECODERS: Mapping[str, Callable[[Ref, Object, str], Part]] = {
    **dict.fromkeys(CALLS, _call),
    **dict.fromkeys(HOSTED, _hosted_call),
    "reasoning": _reasoning,
    "compaction": _compaction,
    "mcp_approval_request": _approval_request,
    "mcp_approval_response": _approval_response,
}


def _opaque(ref: Ref, speaker: Speaker, item: JSON) -> Part:
    """An item that is never edited; its text is only counted."""
    text, weight = text_and_media_tokens(_FORMAT, item)
    return Part(ref, "opaque", speaker, text, weight=weight)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _replace_call(item: Object, text: str) -> Object:
    kind = kind_of(item)
    field = CALLS[kind][0]
    if kind in ("function_call", "custom_tool_call"):
        return {**item, field: text}
    if kind == "computer_call" and item.get(field) is None:
        field = "actions"
    return {**item, field: msgspec.json.decode(text)}


def _replace_reasoning(item: Object, text: str) -> Object:
    """Reasoning with new text in its content, or in its summary."""
    content = item.get("content")
    if isinstance(content, list) and content:
        said = replace_text_items(cast(list[JSON], content), text, "reasoning_text")
        return {**item, "summary": [], "content": said}
    return {**item, "summary": [{"type": "summary_text", "text": text}]}


def _replace_output(item: Object, text: str) -> Object:
    """The output with new text, its media, breakpoints and outcomes."""
    kind = kind_of(item)
    held = item.get("output")
    if isinstance(held, dict) or kind not in OUTPUTS or OUTPUTS[kind][0] in _NEVER_EDITED:
        return item  # a screenshot or a list of tools has no text to replace
    if not isinstance(held, list):
        return {**item, "output": text}
    blocks = cast(list[JSON], held)
    if kind == "shell_call_output":
        return item if _is_mixed(blocks) else {**item, "output": _replace_chunk(blocks, text)}
    return {**item, "output": replace_text_items(blocks, text, "input_text")}


def _replace_chunk(chunks: list[JSON], text: str) -> list[JSON]:
    """Shell output of one chunk, with the text in the stream that was written to."""
    out: list[JSON] = []
    for chunk in chunks:
        holder = cast(Object, chunk) if isinstance(chunk, dict) else {}
        stream = "stderr" if _streams(chunk)[1] else "stdout"
        out.append({**holder, "stdout": "", "stderr": "", stream: text})
    return out


def call_id_path(item: Object) -> BlockPath:
    """The path of an output's call id."""
    by_id = item.get("type") == "local_shell_call_output" and item.get("call_id") is None
    return ("id",) if by_id else ("call_id",)
