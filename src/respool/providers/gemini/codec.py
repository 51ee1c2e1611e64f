"""Gemini generateContent: decoding messages into parts, and editing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from ...media import document_tokens, image_tokens
from ...transcript import BlockPath, Part, PartKind, Ref, Speaker
from ...wire.base import HEAD_ROW, Fields, FormatName
from ...wire.json import JSON, Object, compact_json, put
from ..attachments import text_and_media_tokens

_MODEL = ("model", "assistant")  # the roles of the model
DataKind = Literal[
    "functionCall",
    "functionResponse",
    "text",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
]
MEDIA_KINDS = frozenset({"inlineData", "fileData"})
_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "executableCode": "executable_code",
    "codeExecutionResult": "code_execution_result",
    "toolCall": "tool_call",
    "toolResponse": "tool_response",
    "toolType": "tool_type",
    "thoughtSignature": "thought_signature",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "systemInstruction": "system_instruction",
}
_CAMEL_KINDS: tuple[DataKind, ...] = (
    "functionCall",
    "functionResponse",
    "text",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
KINDS: dict[str, DataKind] = {
    key: kind for kind in _CAMEL_KINDS for key in (kind, _SNAKE.get(kind, kind))
}
_KIND_RANKS = {"functionCall": 0, "functionResponse": 1}
# For each data key its rank if a part holds several, and the type of its value.
_DATA: dict[str, tuple[int, type]] = {
    key: (_KIND_RANKS.get(kind, len(_KIND_RANKS)), str if kind == "text" else dict)
    for key, kind in KINDS.items()
}
# By data key: written by the model, or an answer to it.
_BY_MODEL = {key: kind == "functionCall" for key, kind in KINDS.items() if kind in _KIND_RANKS}
_METADATA_SPELLINGS = (
    ("thought", "thought"),
    ("thoughtSignature", "thought_signature"),
    ("videoMetadata", "video_metadata"),
    ("mediaResolution", "media_resolution"),
    ("mediaProcessing", "media_processing"),
    ("partMetadata", "part_metadata"),
    ("speechMetadata", "speech_metadata"),
    ("audioTranscription", "audio_transcription"),
)
# Keys of a part that describe its data.
METADATA_KEYS = frozenset(key for both in _METADATA_SPELLINGS for key in both)
SKIP_SIGNATURE = "skip_thought_signature_validator"  # Google's own value for a call it did not sign
_TEXT_KEYS = ("output", "result", "error", "content")  # the usual keys of a response's text
_MAX_SIDE_CHARS = 100  # maximum characters of the other values
# A minute of sound (32 tokens a second) or film (263), when only its address is in the request.
AUDIO_TOKENS = 60 * 32
VIDEO_TOKENS = 60 * 263


def spelling_of(holder: Mapping[str, Any], name: str) -> str | None:
    """The spelling of this field in the object, or None; null counts as absent."""
    if holder.get(name) is not None:
        return name
    snake = _SNAKE.get(name, name)
    return snake if holder.get(snake) is not None else None


def value_of(holder: Mapping[str, Any], name: str) -> JSON:
    """The field's value in either spelling, or None."""
    value = holder.get(name)
    return holder.get(_SNAKE.get(name, name)) if value is None else value


def spell_like(key: str, name: str) -> str:
    """The field's name in the spelling of a neighbouring key."""
    return _SNAKE.get(name, name) if "_" in key else name


def skip_signature_check(part: JSON) -> Object:
    """A call with the value that skips the signature check."""
    call = cast(Object, part)
    key = spelling_of(call, "thoughtSignature") or spell_like(
        data_key(part) or "", "thoughtSignature"
    )
    return {**call, key: SKIP_SIGNATURE}


def parts_of(content: JSON) -> list[JSON]:
    """The parts of a content; a single part counts as a list of one."""
    holder: Object = content
    parts: list[JSON] | None = holder.get("parts") if isinstance(content, dict) else content
    if isinstance(parts, list):
        return parts
    return [] if parts is None and isinstance(content, dict) else [parts]


def lone_part(content: JSON) -> Object | None:
    """The part in the place of a content: Google's SDK accepts one, the API does not."""
    holder: Object = content
    if not isinstance(content, dict) or holder.get("parts") is not None:
        return None
    if not any(key in KINDS and value is not None for key, value in holder.items()):
        return None
    return {key: value for key, value in holder.items() if key not in ("role", "parts")}


def has_data_type(kind: DataKind, value: JSON) -> bool:
    """Return whether a part's data has the type that the API requires."""
    return isinstance(value, str if kind == "text" else dict)


def data_key(part: JSON) -> str | None:
    """The key of a part's data; a call, then a response, wins if there are several."""
    holder: Object = part
    if not isinstance(part, dict):
        return None
    found: str | None = None
    best = len(_KIND_RANKS) + 1
    for key in holder:
        known = _DATA.get(key)
        if known is not None and known[0] < best and isinstance(holder[key], known[1]):
            found, best = key, known[0]
    return found


def kind_of(part: JSON) -> DataKind | None:
    """The kind of a part's data, or None if it is unknown."""
    key = data_key(part)
    return None if key is None else KINDS[key]


def data_of(part: JSON, kind: DataKind) -> Object | None:
    """The data of a part that holds this kind."""
    key = data_key(part)
    return cast(Object, part)[key] if key is not None and KINDS[key] == kind else None


def signature_of(part: Mapping[str, Any]) -> str | bytes:
    """The part's thought signature, if any."""
    value = value_of(part, "thoughtSignature")
    return value if isinstance(value, str | bytes) else ""


def string_of(holder: Mapping[str, Any], name: str) -> str:
    """The value of a string field, or ""."""
    value = value_of(holder, name)
    return value if isinstance(value, str) else ""


def is_model_made(content: JSON) -> bool:
    """Return whether the model wrote this content; its parts count more than its role."""
    answers = False
    for part in parts_of(content) or (content,):
        held: Object = part
        if not isinstance(part, dict):
            continue
        for key in held:
            by_model = _BY_MODEL.get(key)
            if by_model is not None and isinstance(held[key], dict):
                if by_model:
                    return True
                answers = True
    holder: Object = content
    return not answers and isinstance(content, dict) and holder.get("role") in _MODEL


class GeminiCodec:
    """Gemini generateContent."""

    name: FormatName = "gemini"
    history_field = "contents"
    head_fields: tuple[str, ...] = ("systemInstruction", "system_instruction", "tools", "config")

    def is_model_made(self, message: JSON) -> bool:
        """Return whether the model wrote this content."""
        return is_model_made(message)

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one content, in order."""
        holder: Object = message
        if not isinstance(message, dict):
            return [_opaque(Ref(row, ()), "user", message)]
        speaker = _speaker(holder.get("role"))
        single = not isinstance(holder.get("parts"), list)
        found: list[Part] = []
        for position, part in enumerate(parts_of(message)):
            ref = Ref(row, ("parts",) if single else ("parts", position))
            _decode_part(found, ref, speaker, part)
        return found

    def decode_head(self, fields: Fields) -> list[Part]:
        """System instruction and tool definitions; SDK calls have them inside `config`."""
        parts: list[Part] = []
        config = fields.get("config")
        for holder in (fields, cast(Object, config) if isinstance(config, dict) else {}):
            parts += [
                Part(Ref(HEAD_ROW, ("systemInstruction",)), "text", "system", text)
                for text in _instruction_texts(value_of(holder, "systemInstruction"))
            ]
            tools = holder.get("tools")
            parts += [
                Part(Ref(HEAD_ROW, ("tools",)), "opaque", "system", compact_json(tool))
                for tool in (cast(list[JSON], tools) if isinstance(tools, list) else [])
            ]
        return parts

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """True: only the first call of a step is signed, so all must be removed together."""
        return any(part.kind == "call" and part.signed for part in model)

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """False: nothing outside reasoning refers to it."""
        return False

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The content with `text` in place of the part's text."""
        path = part.ref.path[:2]
        held = _part_at(message, path)
        key = data_key(held)
        if key is None or part.kind == "opaque":
            return message
        if part.kind == "media":
            said = len(part.ref.path) <= 2 and not signature_of(cast(Object, held))
            return put(message, path, {"text": text}) if said else message
        return put(message, path, _replace_in(cast(Object, held), key, text))

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The content without these parts; None if nothing is left."""
        held = cast(Object, message).get("parts") if isinstance(message, dict) else None
        if not isinstance(held, list):
            return None
        gone = {part.ref.path[1] for part in parts if len(part.ref.path) > 1}
        went, left = list[JSON](), list[JSON]()
        for at, one in enumerate(cast(list[JSON], held)):
            (went if at in gone else left).append(one)
        if any(signature_of(one) == SKIP_SIGNATURE for one in went if kind_of(one)):
            left = _skip_first_signature_check(left)
        return put(message, ("parts",), left) if left else None

    def unbind(self, message: JSON) -> JSON:
        """The content unchanged: nothing outside a thought refers to it."""
        return message

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """Merge two model turns: a call must not follow a model turn.

        Two user contents stay apart: text that joins a functionResponse would no longer open a
        turn, and older calls would need signatures again.
        """
        if not (isinstance(before, dict) and is_model_made(before) and is_model_made(after)):
            return None
        return [self.merge((cast(Object, before), after))]

    def merge(self, messages: Sequence[JSON]) -> JSON:
        """The parts of all of these turns in the first one."""
        parts = [part for message in messages for part in parts_of(message)]
        return {**cast(Object, messages[0]), "parts": parts}

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """Unchanged: Gemini has no cache breakpoints."""
        return message


def _speaker(role: object) -> Speaker:
    if role in _MODEL:
        return "model"
    return "system" if role == "system" else "user"


def _part_at(message: JSON, path: BlockPath) -> JSON:
    parts = parts_of(message)
    position = path[1] if len(path) > 1 else 0
    return parts[position] if isinstance(position, int) and position < len(parts) else None


def _decode_part(found: list[Part], ref: Ref, speaker: Speaker, part: JSON) -> None:
    """Decode one part; a response with media gives several."""
    key = data_key(part)
    if key is None:
        found.append(_opaque(ref, speaker, part))
        return
    holder: Object = part
    kind, data = KINDS[key], holder[key]
    signed = len(holder) > 1 and bool(signature_of(holder))
    if kind == "text":
        said: PartKind = "reasoning" if holder.get("thought") is True else "text"
        found.append(Part(ref, said, speaker, data, signed=signed))
    elif kind == "functionCall":
        found.append(_call(ref, data, signed))
    elif kind == "functionResponse":
        _decode_response(found, ref, key, data)
    elif kind in MEDIA_KINDS:
        found.append(Part(ref, "media", speaker, weight=_media_tokens(data)))
    elif kind in ("toolCall", "executableCode"):
        found.append(_server_call(ref, kind, data, signed))
    else:
        found.append(_server_result(ref, kind, data, signed))


def _skip_first_signature_check(parts: list[JSON]) -> list[JSON]:
    """The parts with the signature check skipped on their first call, if any."""
    for at, part in enumerate(parts):
        if kind_of(part) == "functionCall":
            return [*parts[:at], skip_signature_check(part), *parts[at + 1 :]]
    return parts


def _call(ref: Ref, data: Object, signed: bool) -> Part:
    text = compact_json(data.get("args") or {})
    name, id = string_of(data, "name"), string_of(data, "id")
    return Part(ref, "call", "model", text, name=name, id=id, signed=signed)


def _server_call(ref: Ref, kind: DataKind, data: Object, signed: bool) -> Part:
    code = kind == "executableCode"
    text = string_of(data, "code") if code else compact_json(data.get("args") or {})
    name, id = _server_name(kind, data), string_of(data, "id")
    return Part(ref, "call", "model", text, name=name, id=id, signed=signed, server=True)


def _server_result(ref: Ref, kind: DataKind, data: Object, signed: bool) -> Part:
    text = data.get("output") if kind == "codeExecutionResult" else data.get("response")
    name, id = _server_name(kind, data), string_of(data, "id")
    said = "" if text is None else compact_json(text)
    return Part(ref, "result", "model", said, name=name, id=id, signed=signed, server=True)


def _server_name(kind: DataKind, data: Object) -> str:
    """The shared name of a server-side call and its result, which pairs them without ids."""
    if kind in ("executableCode", "codeExecutionResult"):
        return "code_execution"
    return string_of(data, "toolType") or "server_tool"


def _decode_response(found: list[Part], ref: Ref, key: str, data: Object) -> None:
    """Decode a response: its text as one part, each image or document as another."""
    text, name, id = response_text(data), string_of(data, "name"), string_of(data, "id")
    response = data.get("response")
    error = isinstance(response, dict) and bool(cast(Object, response).get("error"))
    found.append(Part(ref, "result", "tool", text, name=name, id=id, error=error))
    inner = data.get("parts")
    if not isinstance(inner, list):
        return
    for position, item in enumerate(cast(list[JSON], inner)):
        nested = Ref(ref.row, (*ref.path, key, "parts", position))
        held = data_key(item)
        if held is not None and KINDS[held] in MEDIA_KINDS:
            weight = _media_tokens(cast(Object, item)[held])
            found.append(Part(nested, "media", "tool", weight=weight))
        else:
            found.append(_opaque(nested, "tool", item))


def response_text(data: Object) -> str:
    """The text of a functionResponse: its main text, or all of it as JSON."""
    response: JSON = data.get("response")
    if not isinstance(response, dict):
        return "" if response is None else compact_json(response)
    holder: Object = data["response"]
    key = _text_key(holder)
    return compact_json(holder) if key is None else holder[key]


def _text_key(response: Object) -> str | None:
    """The key of the main text in a response; the other values are short."""
    if len(response) == 1:
        (only,) = response
        return only if only in _TEXT_KEYS and isinstance(response[only], str) else None
    texts = [key for key in _TEXT_KEYS if isinstance(response.get(key), str)]
    if not texts:
        return None
    main = next((key for key in texts if response[key]), texts[0])
    beside = (value for key, value in response.items() if key != main)
    return main if all(_is_short(value) for value in beside) else None


def _is_short(value: JSON) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_SIDE_CHARS
    return not isinstance(value, dict | list)


def _media_tokens(data: Object) -> int:
    """The tokens of an image, document, sound or video."""
    kind = string_of(data, "mimeType")
    inline = data.get("data")
    encoded = inline if isinstance(inline, str) else None
    if encoded is None and kind.startswith(("audio/", "video/")):
        return AUDIO_TOKENS if kind.startswith("audio/") else VIDEO_TOKENS
    if kind.startswith("image/") or not kind:
        url = string_of(data, "fileUri") or None
        return image_tokens("gemini", data_base64=encoded, url=url)
    return document_tokens("gemini", data_base64=encoded, media_type=kind)


def _instruction_texts(instruction: JSON) -> Iterator[str]:
    """The texts of a system instruction: a content, a string, or a list of parts."""
    for part in parts_of(instruction):
        text = cast(Object, part).get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and text:
            yield text


def _opaque(ref: Ref, speaker: Speaker, part: JSON) -> Part:
    """A part that is never edited; its text is only counted."""
    text, weight = text_and_media_tokens("gemini", part)
    return Part(ref, "opaque", speaker, text, weight=weight)


def _replace_in(held: Object, key: str, text: str) -> Object:
    """The part with new text, its signature and media."""
    kind = KINDS[key]
    if kind == "text":
        return {**held, key: text}
    data = cast(Object, held[key])
    if kind == "functionCall":
        return {**held, key: {**data, "args": msgspec.json.decode(text)}}
    if kind == "functionResponse":
        return {**held, key: {**data, "response": response_with_text(data.get("response"), text)}}
    return held


def response_with_text(old: JSON, text: str) -> Object:
    """A response with new text under the key of the old."""
    if not isinstance(old, dict):
        return {"output": text}
    response = cast(Object, old)
    key = _text_key(response)
    if key is not None:
        return {**response, key: text}
    return {"error" if response.get("error") else "output": text}
