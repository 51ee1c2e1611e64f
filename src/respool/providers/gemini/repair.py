"""Repairs of Gemini generateContent histories: the smallest change that the API accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, cast

from ...wire.base import Fields
from ...wire.json import JSON, Object, compact_json, put, without
from ..base import (
    BLANK_TEXT,
    CONTINUE_TEXT,
    EARLIER_TEXT,
    NO_RESULT_TEXT,
    EndRepair,
    Repair,
    RepairedRow,
    RuleState,
    Step,
    StepRepair,
    arguments_object,
    unpaired_result_text,
)
from .check import (
    GeminiRules,
    Mention,
    Pairs,
    TurnParts,
    is_empty,
    known_data,
    pair_faults,
    pair_up,
    unanswered_calls,
)
from .codec import (
    KINDS,
    MEDIA_KINDS,
    data_key,
    data_of,
    has_data_type,
    kind_of,
    lone_part,
    parts_of,
    response_text,
    signature_of,
    skip_signature_check,
    spell_like,
    spelling_of,
    string_of,
)

_RULES = GeminiRules()
UNNAMED_FUNCTION = "unknown"  # the function of a call without a name
Role = Literal["user", "model"]
_REPAIR_NOTES = {
    "G0": "gave it the shape of a content that the API knows",
    "G1": "put the responses right behind their calls, with a stand-in for each that is missing",
    "G2": "joined the turns of the model, or put a user turn in front",
    "G3": "set the value that skips the check of the signature",
    "G3a": "set the value that skips the check of the signature",
    "G5": "moved the signature to the part",
    "G6": "gave it the role that fits what it holds",
    "G7": "put a user turn behind it",
    "G8": "took out the empty part, or said that it is blank",
    "G9": "made arguments and response objects, and name and id those of the call",
}


class GeminiRepairer:
    """Gemini's repairs."""

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The repaired step, or None if nothing is broken."""
        problems = [p for p in _RULES.check_step(step, state, fields) if p.severity == "error"]
        if not problems:
            return None
        run = [_valid_parts(content, "model") for content in step.model]
        answers = [_valid_parts(content, "user") for content in step.answers]
        pairs = pair_up(run, answers, state.call_counts)
        rows = [*_run_rows(step, run, pairs), *_answer_rows(step, run, answers, pairs)]
        if step.at == 0 and pairs.calls:
            rows.insert(0, RepairedRow(_user_content(EARLIER_TEXT), None))
        return StepRepair(rows, [Repair(p.code, p.place, _REPAIR_NOTES[p.code]) for p in problems])

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """Add a user turn after final model text, or signatures to calls that lack them."""
        problems = _RULES.check_end(state, count, message_at, fields)
        if not problems or not count:
            return None
        repairs = [Repair(p.code, p.place, _REPAIR_NOTES[p.code]) for p in problems]
        if any(p.code == "G7" for p in problems):
            # The new user message opens a turn without unsigned calls.
            return EndRepair({}, {count - 1: [_user_content(CONTINUE_TEXT)]}, repairs)
        return EndRepair(
            repairs=repairs, recurring_changes=_SignedRows(state.pending_rows, message_at)
        )

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """Unchanged: Gemini has no cache breakpoints."""
        return None


def _user_content(text: str) -> Object:
    return {"role": "user", "parts": [{"text": text}]}


class _SignedRows(Mapping[int, JSON]):
    """Rows with the placeholder signature on their first call, each built at first access."""

    def __init__(self, rows: Mapping[int, int], message_at: Callable[[int], JSON]) -> None:
        self._rows = dict(rows)  # each with the position of that call
        self._message_at = message_at

    def __getitem__(self, row: int) -> JSON:
        return _sign_call(self._message_at(row), self._rows[row])

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _sign_call(content: JSON, at: int) -> JSON:
    """The content with the placeholder signature on the call at this position."""
    parts = list(parts_of(content))
    parts[at] = skip_signature_check(parts[at])
    return put(content, ("parts",), parts)


def _content(content: JSON, parts: Sequence[JSON], role: Role) -> JSON:
    """The content with these parts and a valid role; the same object if it had them."""
    held = parts or [{"text": BLANK_TEXT}]
    if not isinstance(content, dict) or lone_part(content) is not None:
        return {"role": role, "parts": list(held)}
    changed = cast(Object, content)
    old_role = changed.get("role")
    if old_role != role and (role == "model" or old_role not in (None, "")):
        changed = {**changed, "role": role}
    old = parts_of(changed)
    if len(old) == len(held) and all(a is b for a, b in zip(old, held, strict=True)):
        return changed
    return {**changed, "parts": list(held)}


# --- one part ------------------------------------------------------------------------------------


def _valid_parts(content: JSON, role: Role) -> list[JSON]:
    """The content's parts, each in a valid form."""
    lone = lone_part(content)
    parts = parts_of(content) if lone is None else [lone]
    return [sound for part in parts for sound in _valid_part(part, role)]


def _valid_part(part: JSON, role: Role) -> list[JSON]:
    """A part in a valid form, split if it holds several kinds of data."""
    if not isinstance(part, dict):
        text = "" if part is None else compact_json(part)
        return [{"text": text}] if text else []
    holder = cast(Object, part)
    known = known_data(holder)
    if len(known) > 1 or any(not has_data_type(KINDS[key], holder[key]) for key in known):
        return [sound for piece in _split(holder, known) for sound in _valid_part(piece, role)]
    if is_empty(holder):
        return [{**holder, "text": ""}] if signature_of(holder) else []
    kind = kind_of(holder)
    if kind == "functionCall":
        return [_valid_call(holder, known[0])]
    if kind == "functionResponse":
        return [_valid_response(holder, known[0]) if role == "user" else _response_as_text(holder)]
    return [part]


def _split(part: Object, known: list[str]) -> list[Object]:
    """A part for each kind of data; metadata stays with the first."""
    main = data_key(part)
    pieces: list[Object] = []
    for key in known:
        if key == main:
            pieces.append({k: v for k, v in part.items() if k == key or k not in known})
        elif has_data_type(KINDS[key], part[key]):
            pieces.append({key: part[key]})
        else:
            pieces.append({"text": compact_json(part[key])})
    return pieces


def _valid_call(part: Object, key: str) -> Object:
    """A call with valid arguments, name and id, and its signature on the part."""
    old = call = cast(Object, part[key])
    inner = spelling_of(call, "thoughtSignature")
    if inner:
        part = _with_signature(part, key, call[inner])
        call = cast(Object, without(call, (inner,)))
    if not isinstance(call.get("args", {}), dict | None):
        call = {**call, "args": arguments_object(call["args"])}
    if not string_of(call, "name"):
        call = {**call, "name": UNNAMED_FUNCTION}
    call = _with_id(call, string_of(call, "id"))
    return part if call is old else {**part, key: call}


def _with_signature(part: Object, key: str, signature: JSON) -> Object:
    """The part with a signature it lacks."""
    if signature_of(part) or not isinstance(signature, str | bytes):
        return part
    name = spelling_of(part, "thoughtSignature") or spell_like(key, "thoughtSignature")
    return {**part, name: signature}


def _with_id(data: Object, id: str) -> Object:
    """A call or response with this id; without one if it is empty."""
    if string_of(data, "id") == id and isinstance(data.get("id"), str | None):
        return data
    return {**data, "id": id} if id else cast(Object, without(data, ("id",)))


def _valid_response(part: Object, key: str) -> Object:
    """A response whose `response` is an object."""
    data = cast(Object, part[key])
    response = data.get("response")
    if isinstance(response, dict):
        return part
    return {**part, key: {**data, "response": {} if response is None else {"output": response}}}


def _response_as_text(part: JSON) -> Object:
    """A response without its call, as text."""
    data = data_of(part, "functionResponse") or {}
    label = string_of(data, "id") or string_of(data, "name")
    return {"text": unpaired_result_text(label, response_text(data))}


# --- a step --------------------------------------------------------------------------------------


def _run_rows(step: Step, run: TurnParts, pairs: Pairs) -> list[RepairedRow]:
    """The model's contents; one content if there are calls."""
    contents = step.model
    if pairs.calls and len(run) > 1:
        parts = [part for held in run for part in held]
        return [RepairedRow(_content(contents[0], parts, "model"), step.at)]
    return [
        RepairedRow(_content(content, parts, "model"), step.at + offset)
        for offset, (content, parts) in enumerate(zip(contents, run, strict=True))
    ]


def _answer_rows(step: Step, run: TurnParts, answers: TurnParts, pairs: Pairs) -> list[RepairedRow]:
    """The answers with valid parts, in place where they may stay."""
    if not answers:
        return []
    gathered = _SortedAnswers(answers, pairs)
    moved = any(fault.code == "G1" for _, fault in pair_faults(pairs, answers))
    if not (moved or unanswered_calls(pairs)):
        return [
            RepairedRow(_content(content, held, "user"), step.at + step.model_count + offset)
            for offset, (content, held) in enumerate(
                zip(step.answers, gathered.in_place, strict=True)
            )
        ]
    return _regroup(step, gathered, _responses(run, pairs, gathered))


class _SortedAnswers:
    """The parts of the answers, sorted: each call's response, and the rest of every content."""

    def __init__(self, answers: TurnParts, pairs: Pairs) -> None:
        self.by_call: dict[int, list[JSON]] = {}  # the response and the media right behind it
        self.left: list[list[JSON]] = [[] for _ in answers]
        self.in_place: list[list[JSON]] = [[] for _ in answers]
        self.holders: set[int] = set()  # contents that hold a response to one of the calls
        self._ids = {call.id for call in pairs.calls if call.id}
        self._said: dict[str, str] = {}  # function -> the text of its last response
        call_at = {
            (response.offset, response.position): call
            for response, call in zip(pairs.responses, pairs.answered, strict=True)
        }
        for offset, parts in enumerate(answers):
            bundle = self.left[offset]
            for position, part in enumerate(parts):
                kind = kind_of(part)
                if kind == "functionResponse":
                    call = call_at[offset, position]
                    asked = None if call is None else pairs.calls[call]
                    bundle = self._respond(offset, part, call, asked)
                elif kind in MEDIA_KINDS:
                    bundle.append(part)
                    self.in_place[offset].append(part)
                else:
                    bundle = self.left[offset]
                    bundle.append(part)
                    self.in_place[offset].append(part)

    def _respond(
        self, offset: int, part: JSON, call: int | None, asked: Mention | None
    ) -> list[JSON]:
        """Sort in a response; return the list for the media right after it."""
        data = data_of(part, "functionResponse") or {}
        if call is not None and asked is not None:
            echoed = _with_call_identity(cast(Object, part), asked)
            self._said[asked.name] = response_text(data)
            self.holders.add(offset)
            self.in_place[offset].append(echoed)
            self.by_call[call] = [echoed]
            return self.by_call[call]
        if not self._is_repeat(data):
            self.left[offset].append(_response_as_text(part))
        return self.left[offset]

    def _is_repeat(self, data: Object) -> bool:
        """Return whether a response repeats one that answers a call of this step."""
        id, text = string_of(data, "id"), response_text(data)
        return (
            id in self._ids
            if id
            else bool(text) and self._said.get(string_of(data, "name")) == text
        )


def _with_call_identity(part: Object, call: Mention) -> Object:
    """The response with the id and name of its call; an id on one side only is valid."""
    key = data_key(part) or ""
    old = cast(Object, part[key])
    id, named = old.get("id"), old.get("name") == call.name
    if named and (id is None or (isinstance(id, str) and not (id and call.id))):
        return part
    data = _with_id(old, call.id)
    if not named:
        data = {**data, "name": call.name}
    return part if data is old else {**part, key: data}


def _responses(run: TurnParts, pairs: Pairs, gathered: _SortedAnswers) -> list[JSON]:
    """A response for every call, in the order of the calls."""
    responses: list[JSON] = []
    for at, call in enumerate(pairs.calls):
        found = gathered.by_call.get(at)
        responses += found or [_placeholder_response(run[call.offset][call.position], call)]
    return responses


def _placeholder_response(part: JSON, call: Mention) -> Object:
    """A placeholder for a missing response."""
    id = {"id": call.id} if call.id else {}
    key = spell_like(data_key(part) or "", "functionResponse")
    return {key: {"name": call.name, **id, "response": {"output": NO_RESULT_TEXT}}}


def _regroup(step: Step, gathered: _SortedAnswers, responses: list[JSON]) -> list[RepairedRow]:
    """All responses in one content right after the model, then the other contents in order.

    Text stays out of that content unless it was beside a response in the first content already:
    there it would no longer open a turn.
    """
    behind = step.at + step.model_count
    host = _host(gathered) if responses else None
    rows: list[RepairedRow] = []
    if host is not None:
        held = [*responses, *gathered.left[host]]
        rows.append(RepairedRow(_content(step.answers[host], held, "user"), behind + host))
    elif responses:
        rows.append(RepairedRow({"role": "user", "parts": responses}, None))
    for offset, content in enumerate(step.answers):
        emptied = not gathered.left[offset] and bool(parts_of(content))
        if offset != host and not (responses and emptied):
            rows.append(
                RepairedRow(_content(content, gathered.left[offset], "user"), behind + offset)
            )
    return rows


def _host(gathered: _SortedAnswers) -> int | None:
    """The content that takes all responses: the first with any, unless its text must stay."""
    first = min(gathered.holders, default=None)
    return first if first == 0 or (first is not None and not gathered.left[first]) else None
