"""OpenAI Chat Completions: decoding messages into parts, and editing them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import cast

from ...media import document_tokens, image_tokens, is_media_marker
from ...transcript import BlockPath, Part, Ref, Speaker
from ...wire.base import HEAD_ROW, Fields, FormatName
from ...wire.json import JSON, Object, compact_json, put
from ...wire.message_identity import BREAKPOINT_FIELDS, relocate_text
from ..attachments import countable_text, replace_media

MEDIA_TYPES = ("image_url", "input_audio", "file")
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
RESULT_ROLES = ("tool", "function")
AUDIO_BYTES_PER_TOKEN = {"wav": 4800, "mp3": 1600}  # a tenth of a second, at usual rates

_SPEAKERS: dict[str, Speaker] = {
    "assistant": "model",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}


def is_text_item(item: JSON) -> bool:
    """Return whether this is a plain text content part."""
    holder: Object = item
    if not isinstance(item, dict):
        return False
    return holder.get("type") == "text" and isinstance(holder.get("text"), str)


def call_body(call: Object) -> tuple[str, str]:
    """The field of a call's body, and the field of its arguments."""
    kind = call.get("type")
    if kind == "custom" or (not isinstance(kind, str) and isinstance(call.get("custom"), dict)):
        return "custom", "input"
    if kind == "function" or not isinstance(kind, str):
        return "function", "arguments"
    body = call.get(kind)
    return kind, "input" if isinstance(body, dict) and "input" in body else "arguments"


def is_assistant(message: JSON) -> bool:
    """Return whether this is an assistant's message; without a role, calls decide it."""
    holder: Object = message
    if not isinstance(message, dict):
        return False
    role = holder.get("role")
    if role is None:
        calls: JSON = holder.get("tool_calls")
        return isinstance(calls, list) and len(cast(list[JSON], calls)) > 0
    return role == "assistant"


class OpenAIChatCodec:
    """OpenAI Chat Completions."""

    name: FormatName = "openai-chat"
    history_field = "messages"
    head_fields: tuple[str, ...] = ("tools", "functions")

    def is_model_made(self, message: JSON) -> bool:
        """Return whether the model wrote this message."""
        return is_assistant(message)

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one message: reasoning, content, calls."""
        holder: Object = message
        if not isinstance(message, dict):
            return [_opaque(Ref(row, ()), "user", message)]
        role = holder.get("role")
        speaker = _SPEAKERS.get(role, "user") if isinstance(role, str) else "user"
        if speaker == "tool":
            return _decode_result(row, holder)
        if speaker != "model":
            return _decode_content(row, speaker, holder.get("content"))
        parts = _decode_reasoning(row, holder)
        parts += _decode_content(row, speaker, holder.get("content"))
        _decode_model_fields(parts, row, holder)
        return parts

    def decode_head(self, fields: Fields) -> list[Part]:
        """Tool definitions; the system prompt is a message."""
        return [
            Part(Ref(HEAD_ROW, (name,)), "opaque", "system", compact_json(tool))
            for name in ("tools", "functions")
            for tool in _items(fields.get(name))
        ]

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """False: calls of one turn may be removed one by one."""
        return False

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """False: nothing outside reasoning refers to it."""
        return False

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The message with `text` in place of the part's text."""
        part = relocate_text(message, part)
        path = part.ref.path
        if part.kind == "media":
            return replace_media(message, part, text, "text")
        if part.kind == "call":
            return _replace_call(cast(Object, message), path, text)
        if part.kind == "result":
            content = cast(Object, message).get("content")
            if isinstance(content, list):
                return put(message, path, _replace_texts(cast(list[JSON], content), text))
            return put(message, path, text)
        if path == ("reasoning_details",):
            return put(message, path, [{"type": "reasoning.text", "text": text}])
        if len(path) == 1:
            return put(message, path, text)
        item = cast(Object, cast(Object, message)["content"][path[1]])
        return put(message, (*path, "refusal" if item.get("type") == "refusal" else "text"), text)

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The message without these parts; None if neither text nor calls are left.

        Reasoning stays with a message that keeps text or calls, as some servers require it,
        and never stands alone.
        """
        parts = [relocate_text(message, part) for part in parts]
        gone = {part.ref.path for part in parts}
        if not isinstance(message, dict) or () in gone:
            return None
        holder = cast(Object, message)
        if holder.get("role") in RESULT_ROLES and ("content",) in gone:
            return None
        left = _without(holder, gone)
        if holder.get("role") in RESULT_ROLES:
            return left if left.get("content") is not None else {**left, "content": ""}
        return left if _has_content(left) else None

    def unbind(self, message: JSON) -> JSON:
        """The message unchanged: nothing outside the reasoning fields refers to them."""
        return message

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """Merge two model turns: OpenAI accepts both, strict chat templates do not."""
        if not (self.is_model_made(before) and self.is_model_made(after)) or "tool_calls" in before:
            return None
        return [self.merge((before, after))]

    def merge(self, messages: Sequence[JSON]) -> JSON:
        """One turn with the content of all; of other fields the last one counts."""
        turns = [cast(Object, message) for message in messages]
        whole: Object = {**turns[0], **turns[1]}
        whole.setdefault("content", None)
        for turn in turns[2:]:
            whole |= turn
        return {**whole, "content": _join_contents([turn.get("content") for turn in turns])}

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The message with a cache breakpoint on the content part that holds this part.

        A control with a `mode` is OpenAI's own breakpoint, allowed on content parts only, and not
        on the model's; any other is the `cache_control` of routers, allowed on messages too.
        Where no breakpoint is allowed, the message is unchanged.
        """
        part = relocate_text(message, part)
        holder = _object(message)
        own = "mode" in _object(control)
        if not holder or (own and part.speaker == "model"):
            return message
        name = "prompt_cache_breakpoint" if own else "cache_control"
        path = part.ref.path
        content = holder.get("content")
        if path[:1] != ("content",):
            return holder if own else put(holder, (name,), control)
        if isinstance(content, str):
            said: Object = {"type": "text", "text": content, name: control}
            return put(holder, ("content",), [said]) if content else holder
        items = _items(content)
        at = path[1] if len(path) > 1 else len(items) - 1
        if not isinstance(at, int) or not 0 <= at < len(items) or not _object(items[at]):
            return holder
        return put(holder, ("content", at, name), control)


def _join_contents(contents: Sequence[JSON]) -> JSON:
    """The joined contents of several messages; leading strings become one text."""
    said = [content for content in contents if content]
    if len(said) < 2:
        return said[0] if said else contents[-1]
    words = list(takewhile(lambda content: isinstance(content, str), said))
    if len(words) == len(said):
        return "\n\n".join(words)
    items: list[JSON] = [{"type": "text", "text": "\n\n".join(words)}] if words else []
    for content in said[len(words) :]:
        items += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return items


def _items(value: object) -> list[JSON]:
    return cast(list[JSON], value) if isinstance(value, list) else []


def _object(value: object) -> Object:
    return cast(Object, value) if isinstance(value, dict) else {}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: JSON) -> str:
    return "" if value is None else compact_json(value)


def _opaque(ref: Ref, speaker: Speaker, value: JSON) -> Part:
    """An opaque part; its text is only counted."""
    text, weight = countable_text("openai-chat", value)
    return Part(ref, "opaque", speaker, text, weight=weight)


def _decode_content(row: int, speaker: Speaker, content: JSON) -> list[Part]:
    if isinstance(content, str):
        return [Part(Ref(row, ("content",)), "text", speaker, content)] if content else []
    if content is None:
        return []
    if not isinstance(content, list):
        return [_opaque(Ref(row, ("content",)), speaker, content)]
    return [
        _decode_item(Ref(row, ("content", position)), speaker, item)
        for position, item in enumerate(cast(list[JSON], content))
    ]


def _decode_item(ref: Ref, speaker: Speaker, item: JSON) -> Part:
    """One content part."""
    holder: Object = item
    if not isinstance(item, dict):
        return _opaque(ref, speaker, item)
    kind = holder.get("type")
    if kind in ("text", "refusal"):
        said = holder.get(kind)
        if isinstance(said, str):
            return Part(ref, "text", speaker, said)
    elif kind in MEDIA_TYPES:
        return Part(ref, "media", speaker, weight=_media_tokens(holder))
    return _opaque(ref, speaker, holder)


def _media_tokens(item: Object) -> int:
    """The tokens of an image, a file or a recording."""
    body = item.get(str(item["type"]))
    source = _object(body)
    if item["type"] == "image_url":
        url = _string(source.get("url") if source else body)
        data = url if url.startswith("data:") else None
        detail = _string(source.get("detail")) or None
        return image_tokens(
            "openai-chat", data_base64=data, url=None if data else url or None, detail=detail
        )
    if item["type"] == "file":
        data = _string(source.get("file_data")) or None
        return document_tokens("openai-chat", data_base64=data, media_type=None)
    rate = AUDIO_BYTES_PER_TOKEN.get(_string(source.get("format")), AUDIO_BYTES_PER_TOKEN["mp3"])
    return len(_string(source.get("data"))) * 3 // 4 // rate


def _decode_result(row: int, message: Object) -> list[Part]:
    """A result's text as one part, and its other items as parts of their own."""
    text, others = _result_texts(row, message.get("content"))
    name = _string(message.get("name"))
    id = _string(message.get("tool_call_id")) if message["role"] == "tool" else ""
    error = message.get("is_error") is True
    return [
        Part(Ref(row, ("content",)), "result", "tool", text, name=name, id=id, error=error),
        *others,
    ]


def _result_texts(row: int, content: JSON) -> tuple[str, list[Part]]:
    """All text of a result, and its other parts."""
    if not isinstance(content, list):
        return "" if content is None else compact_json(content), []
    texts: list[str] = []
    others: list[Part] = []
    for position, item in enumerate(cast(list[JSON], content)):
        ref = Ref(row, ("content", position))
        if _is_own_text(item):
            texts.append(item["text"])
        else:
            others.append(
                _opaque(ref, "tool", item)
                if is_text_item(item)
                else _decode_item(ref, "tool", item)
            )
    return "\n".join(texts), others


def _is_own_text(item: JSON) -> bool:
    """Return whether an item is a result's own text, and not the marker of an image."""
    return is_text_item(item) and not is_media_marker(item["text"])


def _decode_reasoning(row: int, message: Object) -> list[Part]:
    """Reasoning in each of its fields; equal texts count once."""
    parts: list[Part] = []
    for name in REASONING_FIELDS:
        value = message.get(name)
        if not value:
            continue
        part = _reasoning_part(Ref(row, (name,)), value)
        if any(part.text == other.text for other in parts):
            part = Part(part.ref, part.kind, part.speaker, signed=part.signed, weight=part.weight)
        parts.append(part)
    return parts


def _reasoning_part(ref: Ref, value: JSON) -> Part:
    if not isinstance(value, list):
        return Part(ref, "reasoning", "model", compact_json(value))
    details = [_object(item) for item in cast(list[JSON], value)]
    text = "\n".join(
        said for d in details if (said := _string(d.get("text")) or _string(d.get("summary")))
    )
    hidden = sum(len(_string(d.get("data"))) for d in details)
    signed = any(d.get("data") or d.get("signature") for d in details)
    return Part(ref, "reasoning", "model", text, signed=signed, weight=hidden // 8)


def _decode_model_fields(parts: list[Part], row: int, message: Object) -> None:
    """Decode an assistant message's other fields: refusal, audio, calls."""
    if refusal := _string(message.get("refusal")):
        parts.append(Part(Ref(row, ("refusal",)), "text", "model", refusal))
    if audio := _object(message.get("audio")):
        said = _string(audio.get("transcript"))
        parts.append(Part(Ref(row, ("audio",)), "media", "model", said))
    if legacy := _object(message.get("function_call")):
        arguments = _arguments(legacy.get("arguments"))
        name = _string(legacy.get("name"))
        parts.append(Part(Ref(row, ("function_call",)), "call", "model", arguments, name=name))
    for position, call in enumerate(_items(message.get("tool_calls"))):
        parts.append(_decode_call(Ref(row, ("tool_calls", position)), call))


def _decode_call(ref: Ref, call: JSON) -> Part:
    holder: Object = call
    if not isinstance(call, dict):
        return _opaque(ref, "model", call)
    field, arguments = call_body(holder)
    body = _object(holder.get(field))
    said, name, id = _arguments(body.get(arguments)), body.get("name"), holder.get("id")
    signed = "extra_content" in holder and _is_signed(holder["extra_content"])
    return Part(ref, "call", "model", said, name=_string(name), id=_string(id), signed=signed)


def _is_signed(extra: JSON) -> bool:
    """Return whether a call's extra content has Google's signature."""
    google = _object(_object(extra).get("google"))
    return bool(google.get("thought_signature"))


def _replace_call(message: Object, path: BlockPath, text: str) -> JSON:
    """The message with new arguments for one call; a call without a body is unchanged."""
    if path == ("function_call",):
        return put(message, (*path, "arguments"), text)
    call = cast(Object, message["tool_calls"][path[1]])
    field, arguments = call_body(call)
    if not isinstance(call.get(field), dict):
        return message
    return put(message, (*path, field, arguments), text)


def _replace_texts(items: list[JSON], text: str) -> list[JSON]:
    """The items with one text part, at the place of the first, for all texts; the rest stays.

    The cache breakpoints of all text parts move to the one that is left.
    """
    spoken = [cast(Object, item) for item in items if _is_own_text(item)]
    if not spoken:
        return [{"type": "text", "text": text}, *items]
    breakpoints = {
        field: item[field] for item in spoken for field in BREAKPOINT_FIELDS if field in item
    }
    said: Object = {**spoken[0], "text": text, **breakpoints}
    first = next(at for at, item in enumerate(items) if _is_own_text(item))
    behind = [item for item in items[first:] if not _is_own_text(item)]
    return [*items[:first], said, *behind]


def _without(message: Object, gone: set[BlockPath]) -> Object:
    """The message without the items at these paths; emptied lists are removed."""
    left = {key: value for key, value in message.items() if (key,) not in gone}
    for name in ("content", "tool_calls"):
        items = left.get(name)
        if not isinstance(items, list):
            continue
        kept = [x for i, x in enumerate(cast(list[JSON], items)) if (name, i) not in gone]
        if not kept and items:
            del left[name]
        elif len(kept) != len(cast(list[JSON], items)):
            left[name] = kept
    if "content" in message and "content" not in left:
        # A null in place of the content is valid beside calls.
        left = {key: left.get(key) for key in message if key in left or key == "content"}
    return left


def _has_content(message: Object) -> bool:
    """Return whether a message still has text, media or calls."""
    return any(
        message.get(name) for name in ("content", "tool_calls", "function_call", "refusal", "audio")
    )
