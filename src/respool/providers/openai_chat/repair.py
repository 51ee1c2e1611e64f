"""Repairs of OpenAI Chat Completions histories: the smallest change that the API accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from msgspec import Struct

from ...wire.base import Fields
from ...wire.json import JSON, Object, compact_json
from ...wire.message_identity import BREAKPOINT_FIELDS
from ..base import (
    BLANK_TEXT,
    NO_RESULT_TEXT,
    EndRepair,
    Repair,
    RepairedRow,
    RuleState,
    Step,
    StepRepair,
    unpaired_result_text,
)
from ..openai_string_limit import MAX_STRING_CHARS, arguments_from_text, truncate
from .check import (
    ROLES,
    OpenAIChatRules,
    call_id,
    calls_of,
    can_lack_content,
    is_id,
    is_json,
    is_text_result_required,
    result_id,
    role_of,
)
from .codec import MEDIA_TYPES, call_body, is_assistant, is_text_item

_RULES = OpenAIChatRules()
UNNAMED_TOOL = "unknown"  # the tool of a call or result without a name
MOVED_TEXT = "[not text: see the message after the results]"
_REPAIR_NOTES = {
    "C0": "gave it the shape of a message that the API knows",
    "C1": "put its results right behind it, with a stand-in for each that is missing",
    "C2": "made it a user message, or dropped a repeated result",
    "C4": "gave it content that may stand there",
    "C5": "made its arguments JSON text, with what they said inside",
    "C6": "cut the text to the allowed length",
}


class OpenAIChatRepairer:
    """OpenAI's repairs for Chat Completions."""

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The repaired step, or None if nothing is broken."""
        problems = [p for p in _RULES.check_step(step, state, fields) if p.severity == "error"]
        if not problems:
            return None
        repairs = [Repair(p.code, p.place, _REPAIR_NOTES[p.code]) for p in problems]
        sound = [
            RepairedRow(_valid_message(message, step.at + offset), step.at + offset)
            for offset, message in enumerate(step.messages)
        ]
        rows = _paired_rows(step, sound)
        return StepRepair(
            _with_text_results(rows) if is_text_result_required(fields) else rows, repairs
        )

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """None: a history may end on any message."""
        return None

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """None: the number of breakpoints is not limited."""
        return None


# Each message on its own.


def _valid_message(message: JSON, at: int) -> Object:
    """The message in a valid shape; the same object if it is valid."""
    if not isinstance(message, dict):
        said = "" if message is None else truncate(compact_json(message))
        return {"role": "user", "content": said or BLANK_TEXT}
    sound = cast(Object, message)
    if sound.get("role") not in ROLES:
        sound = _with_role(sound)
    if sound["role"] == "assistant":
        sound = _valid_calls(sound, at)
    elif sound.get("tool_calls"):
        sound = _without_field(sound, "tool_calls")
    if sound["role"] == "function" and not is_id(sound.get("name")):
        sound = {**sound, "name": UNNAMED_TOOL}
    content = _valid_content(sound)
    return sound if content is sound.get("content") else {**sound, "content": content}


def _with_role(message: Object) -> Object:
    """A message of an unknown role as a call or result if it holds one, else as the user's."""
    if is_assistant(message):
        return {**message, "role": "assistant"}
    if is_id(message.get("tool_call_id")):
        return {**message, "role": "tool"}
    kept = {key: message[key] for key in ("content", *BREAKPOINT_FIELDS) if key in message}
    if kept.get("content") is None:
        kept["content"] = compact_json(message)
    return {"role": "user", **kept}


def _without_field(message: Object, name: str) -> Object:
    return {key: value for key, value in message.items() if key != name}


def _valid_content(message: Object) -> JSON:
    """Valid content for the message's role; the same object if it is valid."""
    content = message.get("content")
    if content is None:
        return None if can_lack_content(message) else ""
    if isinstance(content, str):
        return truncate(content)
    if not isinstance(content, list):
        return truncate(compact_json(content))
    items = cast(list[JSON], content)
    if message.get("role") == "function":
        texts = [i["text"] if is_text_item(i) else compact_json(i) for i in items]
        return truncate("\n".join(texts))
    return _same_list(items, [_valid_item(item) for item in items])


def _same_list(old: list[JSON], new: list[JSON]) -> list[JSON]:
    """The old list if the new one holds the same objects."""
    same = len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old if same else new


def _valid_item(item: JSON) -> JSON:
    """A content part with a type, whose text is a string."""
    holder = cast(Object, item) if isinstance(item, dict) else {}
    kind = holder.get("type")
    if not isinstance(kind, str):
        if isinstance(holder.get("text"), str):
            return {**holder, "type": "text", "text": truncate(holder["text"])}
        return {"type": "text", "text": truncate(compact_json(item))}
    if kind not in ("text", "refusal"):
        return holder
    said = holder.get(kind)
    sound = truncate("" if said is None else compact_json(said))
    return holder if sound is said else {**holder, kind: sound}


def _valid_calls(message: Object, at: int) -> Object:
    """An assistant message whose calls each have an id, a type, a name and arguments."""
    sound = message
    if "tool_calls" in message:
        old = calls_of(message)
        new = [_valid_call(c, at, k) for k, c in enumerate(old) if isinstance(c, dict)]
        if not new:
            sound = _without_field(message, "tool_calls")
        elif _same_list(old, new) is not old:
            sound = {**message, "tool_calls": new}
    legacy = message.get("function_call")
    if legacy is None:
        return sound
    if not isinstance(legacy, dict):
        return _without_field(sound, "function_call")
    body = _valid_body(legacy, "arguments")
    return sound if body is legacy else {**sound, "function_call": body}


def _valid_call(call: JSON, at: int, position: int) -> JSON:
    """The call, with an id made from its place in the history if it has none."""
    holder = _with_body(cast(Object, call))
    field, arguments = call_body(holder)
    changes: Object = {}
    if not call_id(holder):
        changes["id"] = f"call_{at}_{position}"
    if not isinstance(holder.get("type"), str):
        changes["type"] = field
    if field in ("function", "custom"):
        body = _valid_body(holder.get(field), arguments)
        if body is not holder.get(field):
            changes[field] = body
    return {**holder, **changes} if changes or holder is not call else call


def _with_body(call: Object) -> Object:
    """The call with name and arguments in its body, where they stand beside it."""
    field, arguments = call_body(call)
    if call.get(field) is not None or not is_id(call.get("name")) or arguments not in call:
        return call
    rest = {key: value for key, value in call.items() if key not in ("name", arguments)}
    return {**rest, field: {"name": call["name"], arguments: call[arguments]}}


def _valid_body(body: JSON, field: str) -> JSON:
    """The body of a call, with a name and arguments that are a string."""
    holder = cast(Object, body) if isinstance(body, dict) else {}
    said = holder.get(field)
    sound = _valid_arguments(said) if field == "arguments" else _valid_input(said)
    named = is_id(holder.get("name"))
    if named and sound is said:
        return holder
    return {**holder, "name": holder["name"] if named else UNNAMED_TOOL, field: sound}


def _valid_input(value: JSON) -> str:
    """The free text input of a custom tool."""
    return truncate("" if value is None else compact_json(value))


def _valid_arguments(value: JSON) -> str:
    """Arguments as JSON text; other text is put inside an object."""
    text = "" if value is None else compact_json(value)
    if not text.strip():
        return "{}"
    if len(text) <= MAX_STRING_CHARS and is_json(text):
        return text
    return arguments_from_text(text)


# Calls and results together.


class _Call(Struct, frozen=True):
    """A call of the step: its message and its id."""

    speaker: int
    id: str
    nameless: bool  # its id was generated


def _paired_rows(step: Step, sound: list[RepairedRow]) -> list[RepairedRow]:
    """The model's messages, each followed by its results, then all other messages."""
    model, answers = sound[: step.model_count], sound[step.model_count :]
    calls = [
        _Call(speaker, call_id(call), not call_id(old))
        for speaker, row in enumerate(model)
        for call, old in zip(
            calls_of(row.message), _dicts(calls_of(step.model[speaker])), strict=True
        )
    ]
    results = [row for row in answers if role_of(row.message) == "tool"]
    answered = _pair(calls, [result_id(row.message) for row in results])
    behind: list[list[RepairedRow]] = [[] for _ in model]
    for at, call in sorted((result, call) for call, result in answered.items()):
        behind[calls[call].speaker].append(_with_call_id(results[at], calls[call].id))
    for position, call in enumerate(calls):
        pending = not answers and call.speaker == len(model) - 1
        if position not in answered and not pending:
            behind[call.speaker].append(RepairedRow(_placeholder_result(call.id), None))
    paired = {results[at].source for at in answered.values()}
    rows = [row for speaker, head in enumerate(model) for row in (head, *behind[speaker])]
    return [*rows, *_other_rows(answers, paired, _texts_by_call(behind))]


def _dicts(items: Iterable[JSON]) -> list[JSON]:
    return [item for item in items if isinstance(item, dict)]


def _pair(calls: list[_Call], ids: list[str]) -> dict[int, int]:
    """Pair results with calls by id, then by order if an id is missing."""
    asked: dict[str, list[int]] = {}
    given: dict[str, list[int]] = {}
    for position, call in enumerate(calls):
        asked.setdefault(call.id, []).append(position)
    for position, id in enumerate(ids):
        given.setdefault(id, []).append(position)
    answered: dict[int, int] = {}
    for id, callers in asked.items():
        found = given.get(id, [])
        # With too few results for a repeated id, the calls nearest to the results are answered.
        answered |= zip(callers[max(len(callers) - len(found), 0) :], found, strict=False)
    open_calls = [c for c in range(len(calls)) if c not in answered]
    answered |= zip(open_calls, given.get("", []), strict=False)
    nameless = [c for c in open_calls if c not in answered and calls[c].nameless]
    strangers = [r for r, id in enumerate(ids) if id and id not in asked]
    answered |= zip(nameless, strangers, strict=False)
    return answered


def _with_call_id(row: RepairedRow, id: str) -> RepairedRow:
    """The result with this call's id."""
    message = cast(Object, row.message)
    if message.get("tool_call_id") == id:
        return row
    return RepairedRow({**message, "tool_call_id": id}, row.source)


def _placeholder_result(id: str) -> Object:
    return {"role": "tool", "tool_call_id": id, "content": NO_RESULT_TEXT}


def _texts_by_call(behind: list[list[RepairedRow]]) -> dict[str, set[str]]:
    """The texts of each call's results."""
    said: dict[str, set[str]] = {}
    for row in (row for rows in behind for row in rows):
        message = cast(Object, row.message)
        texts = said.setdefault(result_id(message), set())
        texts.add(compact_json(message.get("content")))
    return said


def _other_rows(
    answers: list[RepairedRow], paired: set[int | None], text: dict[str, set[str]]
) -> list[RepairedRow]:
    """All other messages; a result without a call becomes text, unless it is a repeat."""
    rows: list[RepairedRow] = []
    for row in answers:
        if role_of(row.message) != "tool":
            rows.append(row)
        elif row.source not in paired:
            message = cast(Object, row.message)
            known = text.get(result_id(message))
            content = compact_json(message.get("content"))
            if known is None or (content.strip() and content not in known):
                rows.append(RepairedRow(_as_user_message(message), row.source))
    return rows


def _as_user_message(result: Object) -> Object:
    """A result without a call as a user message; media and breakpoints stay."""
    id, content = result_id(result), result.get("content")
    breakpoints = {field: result[field] for field in BREAKPOINT_FIELDS if field in result}
    if isinstance(content, list):
        head: Object = {"type": "text", "text": truncate(unpaired_result_text(id, ""))}
        return {"role": "user", "content": [head, *cast(list[JSON], content)], **breakpoints}
    text = truncate(unpaired_result_text(id, str(content)))
    return {"role": "user", "content": text, **breakpoints}


# Media in results, for models that accept only text there.


def _with_text_results(rows: list[RepairedRow]) -> list[RepairedRow]:
    """The rows with media of results moved to a user message after all results of their turn."""
    out: list[RepairedRow] = []
    moved: list[JSON] = []
    for row in rows:
        if role_of(row.message) != "tool":
            out += _moved_row(moved)
            moved = []
            out.append(row)
            continue
        media = [i for i in _content_items(row.message) if _is_media(i)]
        out.append(RepairedRow(_text_only(row.message), row.source) if media else row)
        moved += media
    return [*out, *_moved_row(moved)]


def _content_items(message: Object) -> list[JSON]:
    content = message.get("content")
    return cast(list[JSON], content) if isinstance(content, list) else []


def _is_media(item: JSON) -> bool:
    return isinstance(item, dict) and cast(Object, item).get("type") in MEDIA_TYPES


def _text_only(message: Object) -> Object:
    items = [item for item in _content_items(message) if not _is_media(item)]
    return {**message, "content": [*items, {"type": "text", "text": MOVED_TEXT}]}


def _moved_row(media: list[JSON]) -> list[RepairedRow]:
    if not media:
        return []
    head: Object = {"type": "text", "text": "[from the tool results above]"}
    return [RepairedRow({"role": "user", "content": [head, *media]}, None)]
