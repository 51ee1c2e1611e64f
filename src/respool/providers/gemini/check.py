"""Gemini's rules for contents, pairs and signatures, checked step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from ...model_names import parse_model_name
from ...wire.base import Fields
from ...wire.json import JSON, Object
from ..base import Problem, RuleSpec, RuleState, Step
from .codec import (
    KINDS,
    METADATA_KEYS,
    DataKind,
    data_key,
    data_of,
    has_data_type,
    is_model_made,
    kind_of,
    lone_part,
    parts_of,
    signature_of,
    spelling_of,
    string_of,
)

SIGNATURES_SINCE = (3, 0)  # Gemini 3 and later require the signatures of the current turn
MIXED_ROW_KEY = (
    "text beside functionResponse"  # key in `RuleState.item_rows`: the last row that holds both
)


class Fault(NamedTuple):
    """A problem of a content or part, relative to its place."""

    code: str
    where: str  # inside its content: "", ".role", ".parts[2]"
    message: str


class Mention(Struct, frozen=True, gc=False):
    """A functionCall or functionResponse: its place in the turn, its id and name."""

    offset: int
    position: int
    id: str
    name: str


class Pairs(Struct, frozen=True):
    """A step's calls and responses, and for each response the call it answers."""

    calls: Sequence[Mention]
    responses: Sequence[Mention]
    answered: Sequence[int | None]


TurnParts = Sequence[Sequence[JSON]]  # the parts of each content of a turn


def mentions_of(turn: TurnParts, kind: DataKind) -> list[Mention]:
    """All parts of one kind, in order."""
    found: list[Mention] = []
    for offset, parts in enumerate(turn):
        for position, part in enumerate(parts):
            data = data_of(part, kind)
            if data is not None:
                found.append(
                    Mention(offset, position, string_of(data, "id"), string_of(data, "name"))
                )
    return found


def pair_up(run: TurnParts, answers: TurnParts, earlier: Mapping[str, int]) -> Pairs:
    """Pair by id and name, then by id, then by name in order, then by position.

    A response with the id of an `earlier` step's call is not paired in this step.
    """
    calls, responses = mentions_of(run, "functionCall"), mentions_of(answers, "functionResponse")
    waiting = _PendingCalls(calls)
    answered = [waiting.take_next(waiting.by_both.get((r.id, r.name))) for r in responses]
    for at, response in enumerate(responses):
        if answered[at] is None and response.id:
            answered[at] = waiting.take_next(waiting.by_id.get(response.id))
    for at, response in enumerate(responses):
        known = response.id in waiting.by_id or response.id in earlier
        if answered[at] is None and not known:
            nameless = None if response.id else waiting.all
            queue = waiting.by_name.get(response.name) if response.name else nameless
            answered[at] = waiting.take_next(queue)
    return Pairs(calls, responses, answered)


class _PendingCalls:
    """Calls without a response, in order; a call is in several queues and taken once."""

    def __init__(self, calls: Sequence[Mention]) -> None:
        self.all = deque(range(len(calls)))
        self.by_both: dict[tuple[str, str], deque[int]] = {}  # by id and name
        self.by_id: dict[str, deque[int]] = {}
        self.by_name: dict[str, deque[int]] = {}
        self._taken = [False] * len(calls)
        for at, call in enumerate(calls):
            if call.id:
                self.by_both.setdefault((call.id, call.name), deque()).append(at)
                self.by_id.setdefault(call.id, deque()).append(at)
            self.by_name.setdefault(call.name, deque()).append(at)

    def take_next(self, queue: deque[int] | None) -> int | None:
        """The next call of the queue without a response."""
        while queue:
            call = queue.popleft()
            if not self._taken[call]:
                self._taken[call] = True
                return call
        return None


def run_faults(run: TurnParts, first: bool) -> Iterator[tuple[int, Fault]]:
    """Faults of calls that do not follow a user turn, or are followed by model content."""
    calling = [any(kind_of(part) == "functionCall" for part in parts) for parts in run]
    for offset, calls in enumerate(calling):
        if calls and offset > 0:
            yield offset, Fault("G2", "", "Calls must not follow another turn of the model.")
        elif calls and first:
            yield offset, Fault("G2", "", "Calls must follow a user turn; nothing comes before.")
        if calls and offset + 1 < len(run) and not calling[offset + 1]:
            yield offset, Fault("G1", "", "Calls must be answered in the turn right after them.")


def pair_faults(pairs: Pairs, answers: TurnParts) -> Iterator[tuple[int, Fault]]:
    """Faults of responses: each answers a call, in the next content, before any text."""
    opening = answers[0] if answers else ()
    text_at = next((k for k, part in enumerate(opening) if kind_of(part) == "text"), len(opening))
    ids = {call.id for call in pairs.calls if call.id}
    for response, call in zip(pairs.responses, pairs.answered, strict=True):
        where = f".parts[{response.position}]"
        label = response.id or response.name
        if call is None:
            why = "A second response to" if response.id in ids else "No call right before asks for"
            yield response.offset, Fault("G1", where, f"{why} {_shorten(label)}.")
            continue
        if response.offset > 0 or response.position > text_at:
            text = "A response must stand right behind its call's turn, before any text."
            yield response.offset, Fault("G1", where, text)
        asked = pairs.calls[call]
        other_id = response.id and asked.id and response.id != asked.id
        if other_id or response.name != asked.name:  # an id on one side only is accepted
            wanted = f"{_shorten(asked.id)}, {_shorten(asked.name)}"
            text = f"A response must repeat its call's id and name: {wanted}."
            yield response.offset, Fault("G9", where, text)


def unanswered_calls(pairs: Pairs) -> list[Mention]:
    """The calls without a response."""
    done = {call for call in pairs.answered if call is not None}
    return [call for at, call in enumerate(pairs.calls) if at not in done]


# --- the plain step ------------------------------------------------------------------------------

Named = tuple[str | None, str]  # a call's or response's id and name


def is_plain(step: Step) -> bool:
    """Return whether a step has the usual shape, which breaks no rule; False proves nothing.

    A fast pre-check: a step that passes it passes every rule.
    """
    messages, split = step.messages, step.model_count
    calls = _plain_calls(messages[0]) if split else []
    if calls is None or split > 1 or (calls and not step.at):
        return False
    if len(messages) == split:
        return True
    responses = _plain_responses(messages[split:])
    return responses is not None and (responses == calls or _are_named_alike(responses, calls))


def _are_named_alike(responses: list[Named], calls: list[Named]) -> bool:
    """Return whether responses without ids name the calls' functions in order."""
    names = [name for id, name in responses if not id]
    return len(names) == len(responses) and names == [name for _, name in calls]


def _plain_calls(content: JSON) -> list[Named] | None:
    """The calls of a plain model turn; None if it is not plain."""
    parts = _plain_parts(content, "model")
    asked: list[Named] = []
    for part in parts:
        key = _plain_key(part)
        if not key:
            return None
        kind = KINDS[key]
        if kind == "functionCall":
            call: Object = part[key]
            if not _is_plain_call(call):
                return None
            asked.append((call.get("id"), call["name"]))
        elif kind == "functionResponse":
            return None
    return asked if parts else None


def _plain_responses(contents: Sequence[JSON]) -> list[Named] | None:
    """The responses in plain user turns, before any text; None if not plain."""
    found: list[Named] = []
    closed = False
    for content in contents:
        parts = _plain_parts(content, "user")
        for part in parts:
            key = _plain_key(part)
            kind = KINDS[key] if key else "functionCall"
            if kind == "functionCall" or (closed and kind == "functionResponse"):
                return None
            if kind == "functionResponse":
                response: Object = part[key]
                if not _is_plain_response(response):
                    return None
                found.append((response.get("id"), response.get("name", "")))
            closed = closed or kind == "text"
        if not parts:
            return None
        closed = True
    return found


def _plain_parts(content: JSON, role: str) -> list[JSON]:
    """The parts of a content of this role; empty if it is not plain."""
    holder: Object = content
    if not isinstance(content, dict) or holder.get("role") != role:
        return []
    parts: list[JSON] | None = holder.get("parts")
    return parts if isinstance(parts, list) else []


def _plain_key(part: JSON) -> str:
    """The key of a part's only data of a known type; "" if it is not plain."""
    holder: Object = part
    found = ""
    if not isinstance(part, dict):
        return found
    for key in holder:
        if key in KINDS:
            value = holder[key]
            if found or not value or not isinstance(value, str if key == "text" else dict):
                return ""
            found = key
    return found


def _is_plain_call(call: Object) -> bool:
    name, id = call.get("name"), call.get("id")
    return (
        isinstance(name, str)
        and name != ""
        and (id is None or isinstance(id, str))
        and isinstance(call.get("args"), dict)
        and "thoughtSignature" not in call
        and "thought_signature" not in call
    )


def _is_plain_response(response: Object) -> bool:
    id = response.get("id")
    return (id is None or isinstance(id, str)) and isinstance(response.get("response"), dict)


# --- every rule ----------------------------------------------------------------------------------


class GeminiRules:
    """Gemini's rules."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """Problems inside this step."""
        return [] if is_plain(step) else check_every_rule(step, state)

    def advance(self, step: Step, state: RuleState) -> None:
        """Record call ids, and rows with an unsigned first call since the last user text."""
        for row, content in enumerate(step.messages, step.at):
            if row < step.at + step.model_count:
                _track_calls(row, content, state)
            else:
                _track_answer(row, content, state)

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """Problems of the end of the history; a bare list may end on model text."""
        if not count:
            return [Problem("G8", "contents", "The history is empty: it needs a user content.")]
        if fields is None:
            return []
        found = _signature_problems(state) if has_signature_check(fields) else []
        last = message_at(count - 1)
        if is_model_made(last) and first_call(last) is None:
            place = f"contents[{count - 1}]"
            found.append(Problem("G7", place, "The history must not end on a turn of the model."))
        return found

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Empty: no rule concerns the request as a whole."""
        return []


def check_every_rule(step: Step, state: RuleState) -> list[Problem]:
    """Problems inside a step, by every rule."""
    found: list[Problem] = []
    for offset, content in enumerate(step.messages):
        made = offset < step.model_count
        found += [_problem(step.at + offset, f) for f in _content_faults(content, made)]
        found += _role_warnings(step.at + offset, content, made)
    run = [parts_of(content) for content in step.model]
    answers = [parts_of(content) for content in step.answers]
    found += [_problem(step.at + at, f) for at, f in run_faults(run, step.at == 0)]
    pairs = pair_up(run, answers, state.call_counts)
    behind = step.at + step.model_count
    found += [_problem(behind + at, fault) for at, fault in pair_faults(pairs, answers)]
    if answers:
        found += [_missing_response(step.at, call) for call in unanswered_calls(pairs)]
    return found


def _track_calls(row: int, content: JSON, state: RuleState) -> None:
    """Record the ids of a content's calls, and its row if the first of them is unsigned."""
    first = True
    for position, part in enumerate(parts_of(content)):
        key = data_key(part)
        if key is None or KINDS[key] != "functionCall":
            continue
        if first and not signature_of(part):
            state.pending_rows[row] = position
        first = False
        id = string_of(part[key], "id")
        if id:
            state.call_counts[id] = state.call_counts.get(id, 0) + 1


def _track_answer(row: int, content: JSON, state: RuleState) -> None:
    """Record a new turn: text without a response opens one, and older calls need no signature."""
    says = responds = False
    for part in parts_of(content):
        kind = kind_of(part)
        says = says or kind == "text"
        responds = responds or kind == "functionResponse"
    if says and responds:
        state.item_rows[MIXED_ROW_KEY] = row
    elif says:
        state.pending_rows.clear()
        state.item_rows.pop(MIXED_ROW_KEY, None)


def first_call(content: JSON) -> int | None:
    """The position of a content's first functionCall."""
    parts = enumerate(parts_of(content))
    return next((at for at, part in parts if kind_of(part) == "functionCall"), None)


def has_signature_check(fields: Fields) -> bool:
    """Return whether the request's model checks the signatures of the current turn."""
    model = parse_model_name(fields.get("model"))
    return model is not None and model.family == "gemini" and model.version >= SIGNATURES_SINCE


def is_empty(part: Object) -> bool:
    """Return whether a part has no data, or an empty text without a signature."""
    data = [key for key, value in part.items() if value is not None and key not in METADATA_KEYS]
    return not data or (data == ["text"] and part["text"] == "" and not signature_of(part))


def known_data(part: Object) -> list[str]:
    """The keys of a part with data of a known kind; at most one is valid."""
    return [key for key, value in part.items() if value is not None and key in KINDS]


def _shorten(value: object) -> str:
    """A value, shortened for a message."""
    return repr(value[:40]) if isinstance(value, str) else f"of type {type(value).__name__}"


def _problem(at: int, fault: Fault) -> Problem:
    return Problem(fault.code, f"contents[{at}]{fault.where}", fault.message)


def _missing_response(at: int, call: Mention) -> Problem:
    place = f"contents[{at + call.offset}].parts[{call.position}]"
    return Problem(
        "G1", place, f"Call {_shorten(call.id or call.name)} has no response right after it."
    )


def _content_faults(content: JSON, made: bool) -> Iterator[Fault]:
    if not isinstance(content, dict) or lone_part(content) is not None:
        yield Fault("G0", "", "A content must be an object with role and parts.")
        return
    holder = cast(Object, content)
    fault = _role_fault(holder.get("role"), made)
    if fault:
        yield fault
    parts = holder.get("parts")
    if parts is not None and not isinstance(parts, list | dict):
        yield Fault("G0", ".parts", "Parts must be a list.")
        return
    held = parts_of(holder)
    if not held:
        yield Fault("G8", "", "A content must include at least one part.")
    for position, part in enumerate(held):
        for code, where, message in _part_faults(part, made):
            yield Fault(code, f".parts[{position}]{where}", message)


def _role_fault(role: object, made: bool) -> Fault | None:
    """The fault of an unknown role, or of one that does not fit calls and responses."""
    if role in (None, ""):
        text = "A functionCall must stand in a content of role model."
        return Fault("G6", ".role", text) if made else None
    if role not in ("user", "model"):
        return Fault("G6", ".role", f"Role {_shorten(role)} is not one of user, model.")
    if made and role == "user":
        return Fault("G6", ".role", "A functionCall must stand in a content of role model.")
    if not made and role == "model":
        return Fault("G6", ".role", "A functionResponse must stand in a content of role user.")
    return None


def _role_warnings(at: int, content: JSON, made: bool) -> list[Problem]:
    """Warnings for a missing role: the Gemini API assumes the user, Vertex AI requires one."""
    role = cast(Object, content).get("role") if isinstance(content, dict) else "user"
    if made or role not in (None, ""):
        return []
    text = "Vertex AI requires a role; the Gemini API takes a content without one as the user's."
    return [Problem("G6", f"contents[{at}].role", text, "warning")]


def _part_faults(part: JSON, made: bool) -> Iterator[Fault]:
    if not isinstance(part, dict):
        yield Fault("G0", "", "A part must be an object.")
        return
    holder = cast(Object, part)
    known = known_data(holder)
    for key in known:
        if not has_data_type(KINDS[key], holder[key]):
            kind = "a string" if KINDS[key] == "text" else "an object"
            yield Fault("G0", f".{key}", f"{key} must be {kind}.")
    if len(known) > 1:
        yield Fault("G0", "", f"A part holds one kind of data, not {' and '.join(known)}.")
    if is_empty(holder):
        yield Fault("G8", "", "A part must hold data, and a text must not be empty.")
    key = data_key(part)
    if key is not None and KINDS[key] == "functionCall":
        yield from _call_faults(f".{key}", cast(Object, holder[key]))
    elif key is not None and KINDS[key] == "functionResponse":
        yield from _response_faults(f".{key}", cast(Object, holder[key]), made)


def _call_faults(where: str, call: Object) -> Iterator[Fault]:
    inner = spelling_of(call, "thoughtSignature")
    if inner:
        text = "A thought signature belongs on the part, not inside its functionCall."
        yield Fault("G5", f"{where}.{inner}", text)
    if not isinstance(call.get("args", {}), dict | None):
        yield Fault("G9", f"{where}.args", "The args of a call must be an object.")
    if not string_of(call, "name"):
        yield Fault("G9", f"{where}.name", "A call must name its function.")
    yield from _id_faults(where, call)


def _response_faults(where: str, response: Object, made: bool) -> Iterator[Fault]:
    if made:
        yield Fault("G1", where, "A response cannot stand in a turn of the model.")
    if not isinstance(response.get("response"), dict):
        yield Fault("G9", f"{where}.response", "The response of a call must be an object.")
    yield from _id_faults(where, response)


def _id_faults(where: str, holder: Mapping[str, Any]) -> Iterator[Fault]:
    if not isinstance(holder.get("id"), str | None):
        yield Fault("G9", f"{where}.id", "An id must be a string.")


def _signature_problems(state: RuleState) -> list[Problem]:
    """Problems of unsigned first calls of the current turn; warnings after a mixed content."""
    mixed = state.item_rows.get(MIXED_ROW_KEY, -1)
    return [
        _unsigned_problem(row, place, mixed if row < mixed else -1)
        for row, place in state.pending_rows.items()
    ]


@lru_cache(maxsize=4_096)  # for the next request, in which they are the same
def _unsigned_problem(row: int, position: int, mixed: int) -> Problem:
    place = f"contents[{row}].parts[{position}]"
    if mixed < 0:
        text = "The first call of a step in the current turn must carry a thought signature."
        return Problem("G3", place, text)
    text = (
        f"The text in contents[{mixed}] opens no turn, as it stands beside a response: "
        "this older call must carry a thought signature."
    )
    return Problem("G3a", place, text)


# Rules in the words of the reference, which is generated from this table.
RULE_SPECS: Final[tuple[RuleSpec, ...]] = (
    RuleSpec(
        "G0",
        "A content has `parts`; a part has one kind of data of the right type.",
        "error",
        "Parts are split or wrapped; other data becomes text.",
    ),
    RuleSpec(
        "G1",
        "The content after calls holds one `functionResponse` for each, before any text.",
        "error",
        "Responses are collected there; a missing one is added; one without a call becomes text.",
    ),
    RuleSpec(
        "G2",
        "Calls come right after a user turn or after responses.",
        "error",
        "The model's contents are joined, or a user content is added.",
    ),
    RuleSpec(
        "G3",
        "From Gemini 3 on, the first call of each step in the current turn carries its thought "
        "signature.",
        "error",
        "Google's placeholder `skip_thought_signature_validator` is set.",
    ),
    RuleSpec(
        "G3a",
        "So does an older call that counts as current only because user text is beside a response.",
        "error",
        "As for G3.",
    ),
    RuleSpec(
        "G5",
        "A thought signature is on the part, not inside the `functionCall`.",
        "error",
        "It is moved.",
    ),
    RuleSpec(
        "G6",
        "The role is `user` or `model`, and fits calls and responses.",
        "error",
        "It is corrected.",
    ),
    RuleSpec(
        "G6",
        "A content has a role, which Vertex AI demands.",
        "warning",
    ),
    RuleSpec(
        "G7",
        "The history does not end on a turn of the model.",
        "error",
        "A user content `[continue]` is added.",
    ),
    RuleSpec(
        "G8",
        "No content is without parts, and no part is empty.",
        "error",
        "It is removed; if nothing else is left, it says `[blank]`.",
    ),
    RuleSpec(
        "G9",
        "A response repeats its call's id and name; `args` and `response` are objects; a call has "
        "a name.",
        "error",
        "They are corrected.",
    ),
)
