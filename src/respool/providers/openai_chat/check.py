"""Chat Completions rules for a request, checked step by step."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, cast

import msgspec

from ...model_names import parse_model_name
from ...wire.base import Fields
from ...wire.json import JSON, Object
from ..base import Problem, RuleSpec, RuleState, Severity, Step
from ..openai_string_limit import MAX_STRING_CHARS
from .codec import MEDIA_TYPES, call_body, is_assistant

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_ID_CHARS = 40
MAX_MODEL_NAME_CHARS = 200  # maximum length of a model name that is parsed
NO_EFFORT_WITH_TOOLS = (5, 4)  # since this version, function tools and reasoning exclude each other
EFFORT_BY_DEFAULT = (5, 6)  # since this version, reasoning is on by default

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


def role_of(message: JSON) -> object:
    """The message's role, or None."""
    return cast(Object, message).get("role") if isinstance(message, dict) else None


def is_id(value: object) -> bool:
    """Return whether the value is a valid call id."""
    return isinstance(value, str) and value != ""


def is_json(text: str) -> bool:
    """Return whether this text is JSON for most servers."""
    try:
        _SYNTAX.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _is_lenient_json(text)
    return True


def _is_lenient_json(text: str) -> bool:
    """Return whether this is JSON with NaN or lone surrogates, which most servers parse."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def calls_of(message: JSON) -> list[JSON]:
    """The entries of an assistant message's tool_calls."""
    calls = cast(Object, message).get("tool_calls") if is_assistant(message) else None
    return cast(list[JSON], calls) if isinstance(calls, list) else []


def call_id(call: JSON) -> str:
    """A call's id, "" if it has no valid one."""
    id = cast(Object, call).get("id") if isinstance(call, dict) else None
    return id if isinstance(id, str) else ""


def result_id(message: Object) -> str:
    """The id of the call that a tool message answers, "" if it has no valid one."""
    id = message.get("tool_call_id")
    return id if isinstance(id, str) else ""


def can_lack_content(message: Object) -> bool:
    """Return whether a message's content may be null."""
    if message.get("role") == "function":
        return True
    if message.get("role") != "assistant":
        return False
    legacy, audio = message.get("function_call"), message.get("audio")
    spoken = isinstance(message.get("refusal"), str)
    return bool(calls_of(message)) or isinstance(legacy, dict) or isinstance(audio, dict) or spoken


def is_text_result_required(fields: Fields | None) -> bool:
    """Return whether the model is OpenAI's, which accepts only text in results."""
    name = fields.get("model") if fields else None
    return isinstance(name, str) and len(name) <= MAX_MODEL_NAME_CHARS and _is_openai_model(name)


@lru_cache(64)
def _is_openai_model(name: str) -> bool:
    model = parse_model_name(name)
    return model is not None and model.maker == "openai"


# The plain step.


def is_plain(step: Step) -> bool:
    """Return whether a step has the usual shape, which breaks no rule; False proves nothing.

    A fast pre-check: a step that passes it passes every rule.
    """
    waiting: set[str] = set()  # pending calls of the message before
    for message in step.messages:
        holder: Object = message
        if not isinstance(message, dict):
            return False
        role = holder.get("role")
        if role == "assistant":
            asked = None if waiting else _plain_calls(holder)
            if asked is None:
                return False
            waiting = asked
        elif not _is_plain_answer(holder, role, waiting):
            return False
        if not _is_plain_content(holder.get("content"), role, len(waiting) > 0):
            return False
    return not waiting or len(step.messages) == step.model_count


def _is_plain_answer(message: Object, role: object, waiting: set[str]) -> bool:
    """Return whether an answer is plain; a result settles its pending call."""
    if message.get("tool_calls"):
        return False
    if role != "tool":
        return not waiting and role in ("user", "system", "developer")
    id = message.get("tool_call_id")
    if not isinstance(id, str) or id not in waiting:
        return False
    waiting.remove(id)
    return True


def _is_plain_content(content: JSON, role: object, calling: bool) -> bool:
    """Return whether content is plain: text of allowed length, no media from a tool."""
    if isinstance(content, str):
        return len(content) <= MAX_STRING_CHARS
    if not isinstance(content, list):
        return content is None and calling and role == "assistant"
    for item in cast(list[JSON], content):
        holder: Object = item
        kind = holder.get("type") if isinstance(item, dict) else None
        if kind == "text":
            text = holder.get("text")
            if not isinstance(text, str) or len(text) > MAX_STRING_CHARS:
                return False
        elif kind not in MEDIA_TYPES or role == "tool":
            return False
    return True


def _plain_calls(message: Object) -> set[str] | None:
    """The distinct ids of an assistant message's calls; None if they are not plain."""
    asked: set[str] = set()
    if message.get("function_call") is not None:
        return None
    if "tool_calls" not in message:
        return asked
    calls: list[JSON] | None = message["tool_calls"]
    for call in calls if isinstance(calls, list) else ():
        id = _plain_id(call)
        if not id or id in asked:
            return None
        asked.add(id)
    return asked or None


def _plain_id(call: JSON) -> str:
    """The id of a complete function call; "" if it is not plain."""
    holder: Object = call
    if not isinstance(call, dict) or holder.get("type") != "function":
        return ""
    id, body = holder.get("id"), holder.get("function")
    if not isinstance(id, str) or len(id) > MAX_ID_CHARS or not isinstance(body, dict):
        return ""
    function: Object = holder["function"]
    name, said = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name or not isinstance(said, str):
        return ""
    return id if len(said) <= MAX_STRING_CHARS and is_json(said) else ""


# Every rule.


class OpenAIChatRules:
    """OpenAI's rules for Chat Completions."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """Problems inside this step."""
        return [] if is_plain(step) else check_every_rule(step, fields)

    def advance(self, step: Step, state: RuleState) -> None:
        """Record nothing: pairs end with the step, and ids may repeat."""

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """The problem of an empty history; it may end on any message."""
        if count:
            return []
        return [Problem("C0", "messages", "The history is empty: it needs a message.")]

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Problems of the other fields."""
        return _effort_problems(fields) if fields is not None else []


def check_every_rule(step: Step, fields: Fields | None) -> list[Problem]:
    """Problems inside a step, by every rule."""
    media: Severity = "error" if is_text_result_required(fields) else "warning"
    found: list[Problem] = []
    for offset, message in enumerate(step.messages):
        found += _message_problems(f"messages[{step.at + offset}]", message, media)
    found += _pairing_problems(step)
    return found


def _message_problems(place: str, message: JSON, media: Severity) -> Iterator[Problem]:
    if not isinstance(message, dict):
        yield Problem("C0", place, "A message must be an object with role and content.")
        return
    holder = cast(Object, message)
    role = holder.get("role")
    if role not in ROLES:
        yield Problem("C0", place, f"Role {_shorten(role)} is not one of {', '.join(ROLES)}.")
        return
    if role == "assistant":
        yield from _calls_problems(place, holder)
    elif holder.get("tool_calls"):
        yield Problem("C0", f"{place}.tool_calls", "Only an assistant message can hold calls.")
    if role == "tool" and not is_id(holder.get("tool_call_id")):
        yield Problem("C0", f"{place}.tool_call_id", "A tool message must name its call's id.")
    if role == "function" and not is_id(holder.get("name")):
        yield Problem("C0", f"{place}.name", "A function message must name its function.")
    yield from _content_problems(f"{place}.content", holder, media)


def _shorten(value: object) -> str:
    """A value, shortened for a message."""
    if not isinstance(value, str):
        return "missing" if value is None else f"of type {type(value).__name__}"
    return repr(value if len(value) <= MAX_ID_CHARS else value[:MAX_ID_CHARS] + "...")


def _content_problems(place: str, message: Object, media: Severity) -> Iterator[Problem]:
    content = message.get("content")
    role = message.get("role")
    if content is None:
        if not can_lack_content(message):
            yield Problem("C4", place, f"Content must not be null here (role {role}).")
    elif isinstance(content, str):
        yield from _length_problems(place, content)
    elif not isinstance(content, list) or role == "function":
        yield Problem(
            "C0", place, f"Content of role {role} must be a string{_allowed_parts(role)}."
        )
    else:
        for position, item in enumerate(cast(list[JSON], content)):
            yield from _item_problems(f"{place}[{position}]", item, role, media)


def _allowed_parts(role: object) -> str:
    return "" if role == "function" else " or a list of parts"


def _item_problems(place: str, item: JSON, role: object, media: Severity) -> Iterator[Problem]:
    """Problems of one content part; unknown types are not checked."""
    holder = cast(Object, item) if isinstance(item, dict) else {}
    kind = holder.get("type")
    if not isinstance(kind, str):
        yield Problem("C0", place, "A content part must be an object with a type.")
    elif kind in ("text", "refusal"):
        if isinstance(holder.get(kind), str):
            yield from _length_problems(f"{place}.{kind}", holder[kind])
        else:
            yield Problem("C0", f"{place}.{kind}", f"The {kind} of a part must be a string.")
    elif kind in MEDIA_TYPES and role == "tool":
        yield Problem("C4", place, f"The content of a result must be text, not {kind}.", media)


def _length_problems(place: str, text: str) -> Iterator[Problem]:
    if len(text) > MAX_STRING_CHARS:
        yield Problem(
            "C6",
            place,
            f"A string of {len(text):,} characters; at most {MAX_STRING_CHARS:,} are allowed.",
        )


def _calls_problems(place: str, message: Object) -> Iterator[Problem]:
    """Problems of an assistant message's calls, each on its own."""
    if "tool_calls" in message:
        calls = message["tool_calls"]
        where = f"{place}.tool_calls"
        if not isinstance(calls, list) or not calls:
            yield Problem("C0", where, "Calls must be a list with a call in it, or left out.")
        for position, call in enumerate(calls_of(message)):
            yield from _call_problems(f"{where}[{position}]", call)
    legacy = message.get("function_call")
    if legacy is not None:
        yield from _body_problems(f"{place}.function_call", legacy, "arguments")


def _call_problems(place: str, call: JSON) -> Iterator[Problem]:
    if not isinstance(call, dict):
        yield Problem("C0", place, "A call must be an object.")
        return
    holder = cast(Object, call)
    id = holder.get("id")
    if not is_id(id):
        yield Problem("C0", f"{place}.id", "A call must have an id.")
    elif len(cast(str, id)) > MAX_ID_CHARS:
        text = f"An id of {len(cast(str, id))} characters; more than {MAX_ID_CHARS} may be refused."
        yield Problem("C3", f"{place}.id", text, "warning")
    if not isinstance(holder.get("type"), str):
        yield Problem("C0", f"{place}.type", "A call must have a type.")
    field, arguments = call_body(holder)
    if field in ("function", "custom"):  # other types are not checked
        yield from _body_problems(f"{place}.{field}", holder.get(field), arguments)


def _body_problems(place: str, body: JSON, field: str) -> Iterator[Problem]:
    """Problems of a call's name and arguments; a custom tool's input is free text."""
    if not isinstance(body, dict):
        yield Problem("C0", place, "A call must say what it calls.")
        return
    holder = cast(Object, body)
    if not is_id(holder.get("name")):
        yield Problem("C0", f"{place}.name", "A call must name its tool.")
    said = holder.get(field)
    where = f"{place}.{field}"
    if not isinstance(said, str):
        yield Problem("C5", where, f"The {field} of a call must be a string.")
        return
    yield from _length_problems(where, said)
    if field == "arguments" and not is_json(said):
        yield Problem("C5", where, "The arguments of a call must be valid JSON.")


def _pairing_problems(step: Step) -> Iterator[Problem]:
    """Problems of pairs: results follow their calls, and each result has a call."""
    waiting: dict[str, deque[int]] = {}
    caller = step.at
    for offset, message in enumerate(step.messages):
        at = step.at + offset
        if role_of(message) == "tool":
            id = result_id(cast(Object, message))
            if id not in waiting:
                text = f"Result for {_shorten(id)}, which the message before did not call."
                yield Problem("C2", f"messages[{at}]", text)
            else:
                _remove_answered(waiting, id)
            continue
        yield from _unanswered_problems(caller, waiting)
        waiting, caller = _positions_by_id(message), at
    if step.answers:  # else the last message's calls are pending
        yield from _unanswered_problems(caller, waiting)


def _positions_by_id(message: JSON) -> dict[str, deque[int]]:
    """The positions of a message's calls by their id."""
    asked: dict[str, deque[int]] = {}
    for position, call in enumerate(calls_of(message)):
        if isinstance(call, dict):
            asked.setdefault(call_id(call), deque()).append(position)
    return asked


def _remove_answered(waiting: dict[str, deque[int]], id: str) -> None:
    waiting[id].popleft()
    if not waiting[id]:
        del waiting[id]


def _unanswered_problems(caller: int, waiting: dict[str, deque[int]]) -> Iterator[Problem]:
    for id, positions in waiting.items():
        for position in positions:
            place = f"messages[{caller}].tool_calls[{position}]"
            yield Problem(
                "C1", place, f"Call {_shorten(id)} has no result right after its message."
            )


def _effort_problems(fields: Fields) -> list[Problem]:
    """Problems of reasoning with function tools, which newer models exclude on this API."""
    model = parse_model_name(fields.get("model"))
    if model is None or model.maker != "openai" or model.version < NO_EFFORT_WITH_TOOLS:
        return []
    if not _has_function_tools(fields):
        return []
    effort = fields.get("reasoning_effort")
    if effort is not None and effort != "none":
        text = "This model takes function tools here only with reasoning_effort 'none'."
        return [Problem("C7", "reasoning_effort", text)]
    if effort is None and model.version >= EFFORT_BY_DEFAULT:
        text = "This model may refuse function tools here unless reasoning_effort is 'none'."
        return [Problem("C7", "reasoning_effort", text, "warning")]
    return []


def _has_function_tools(fields: Fields) -> bool:
    if fields.get("functions"):
        return True
    tools = fields.get("tools")
    declared = cast(list[JSON], tools) if isinstance(tools, list) else []
    return any(isinstance(t, dict) and cast(Object, t).get("type") == "function" for t in declared)


# Rules in the words of the reference, which is generated from this table.
RULE_SPECS: Final[tuple[RuleSpec, ...]] = (
    RuleSpec(
        "C0",
        "A message has a known role and content of the right type; a call has id, type and name; "
        "a tool message names its call.",
        "error",
        "The shape is corrected; a missing id is derived from the call's place.",
    ),
    RuleSpec(
        "C1",
        "Every call is answered by a `tool` message directly after its message.",
        "error",
        "Results move there; a missing one is added.",
    ),
    RuleSpec(
        "C2",
        "A `tool` message answers a call of the assistant message before it.",
        "error",
        "It becomes a user message; a repeat is removed.",
    ),
    RuleSpec(
        "C3",
        "An id has at most 40 characters (not always enforced).",
        "warning",
    ),
    RuleSpec(
        "C4",
        "Content is null only on an assistant message with calls.",
        "error",
        "It becomes empty text.",
    ),
    RuleSpec(
        "C4",
        "The content of a `tool` message is text.",
        "error for OpenAI's models, else warning",
        "Images and files move to a user message behind the results.",
    ),
    RuleSpec(
        "C5",
        "A call's arguments are a string of valid JSON.",
        "error",
        'Other text goes into `{"input": …}`.',
    ),
    RuleSpec(
        "C6",
        "A string has at most 10,485,760 characters (Responses too).",
        "error",
        "It is cut and says so.",
    ),
    RuleSpec(
        "C7",
        "From GPT-5.4 on, function tools on this API need `reasoning_effort` `none`.",
        "error; warning if the request does not set it",
    ),
)
