"""Responses rules for a request: ids, pairs and item shapes, checked step by step.

Outputs name their calls by call_id, over the whole input.

Calls and outputs pair by call_id over the whole input, with anything in between, so a call without
an output (R1) is known only at the end. If the server holds a part of the history, pairs cannot be
checked (R1 to R4). R0 is the shape of one item, its arguments included.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Literal, cast

import msgspec

from ...transcript import BlockPath, Ref
from ...wire.base import Fields
from ...wire.json import JSON, Object, digest
from ..base import Problem, RuleSpec, RuleState, Step, count_call_id
from ..openai_string_limit import MAX_STRING_CHARS, has_long_candidate, overlong_paths
from .codec import (
    CALLS,
    KNOWN,
    OUTPUTS,
    ROLES,
    TEXT_OUTPUTS,
    OpenAIResponsesCodec,
    answered_call_id,
    call_id_field,
    call_id_path,
    is_model_made,
    kind_of,
    lacks_type,
)

PREFIXES = {"reasoning": "rs", "function_call": "fc", "message": "msg"}
_NO_OWN_ID = frozenset({"item_reference", "local_shell_call_output"})
# Items with rules of their own; of the others only ids and order are checked.
_PLAIN = KNOWN - {
    *_NO_OWN_ID,
    "local_shell_call",
    "tool_search_call",
    "tool_search_output",
    "mcp_approval_response",
    "compaction_trigger",
}
MAX_ID_CHARS = 64
_MAX_STEM_CHARS = 56  # the separator before a repeat's number

StrayOutput = Literal["orphan", "second", "alone"]


def own_id(item: JSON) -> str | None:
    """The item's own id."""
    kind = kind_of(item)
    id = item.get("id") if kind in KNOWN and kind not in _NO_OWN_ID else None
    return id if isinstance(id, str) else None


def has_valid_prefix(item: Object, kind: str) -> bool:
    """Return whether the item's id is missing, or has the prefix of its type."""
    id = item.get("id")
    if id is None or kind not in PREFIXES:
        return True
    return isinstance(id, str) and id.startswith(PREFIXES[kind])


def is_plain(step: Step, kinds: Sequence[str], state: RuleState) -> bool:
    """Return whether a step evidently breaks no rule on ids, pairs or order.

    A fast pre-check; False proves nothing.
    """
    own: set[str] = set()
    asked: dict[str, str] = {}  # call id -> type of the call, "" once it is answered
    for item, kind in zip(step.messages, kinds, strict=True):
        if kind not in _PLAIN:
            return False
        if item.get("id") is not None and not _has_new_id(item, kind, own, state):
            return False
        if kind in CALLS:
            if not _is_new_call(item.get("call_id"), kind, asked, state):
                return False
        elif kind in OUTPUTS and not _is_answer(item.get("call_id"), kind, asked):
            return False
    return not step.model_count or kinds[step.model_count - 1] != "reasoning"


def _has_new_id(item: Object, kind: str, own: set[str], state: RuleState) -> bool:
    """Return whether the item's own id is valid and new."""
    id = item["id"]
    if not isinstance(id, str) or id in own or f"id {id}" in state.item_rows:
        return False
    own.add(id)
    return has_valid_prefix(item, kind)


def _is_new_call(id: object, kind: str, asked: dict[str, str], state: RuleState) -> bool:
    """Return whether a call's id is valid and new."""
    if (
        not isinstance(id, str)
        or not 0 < len(id) <= MAX_ID_CHARS
        or id in asked
        or id in state.call_counts
    ):
        return False
    asked[id] = kind
    return True


def _is_answer(id: object, kind: str, asked: dict[str, str]) -> bool:
    """Return whether an output is the first for a call of its type in this step."""
    if not isinstance(id, str) or asked.get(id) != OUTPUTS[kind][0]:
        return False
    asked[id] = ""
    return True


def valid_id(id: object) -> str:
    """A valid call id: the id itself, or a short one made from it."""
    if not isinstance(id, str) or not id:
        return "call_unknown"
    return id if len(id) <= MAX_ID_CHARS else f"call_{digest(id)}"


def stem_of(id: str) -> str:
    """The stem for numbered repeats, short enough for the limit."""
    return id if len(id) <= _MAX_STEM_CHARS else f"call_{digest(id)}"


def repeat_of(stem: str, times: int) -> str:
    """The id of an item or call whose id was used this many times."""
    return f"{stem}_{times + 1}"


def is_paired(item: Object, kind: str) -> bool:
    """Return whether this call or output belongs to a pair; a server's tool search does not."""
    if kind not in ("tool_search_call", "tool_search_output"):
        return kind in CALLS or kind in OUTPUTS
    return isinstance(item.get("call_id"), str) and item.get("execution") != "server"


class Pairing:
    """Pairs of the calls and outputs of a step, with valid and new ids.

    In a valid step every id is unchanged. A local shell's call may be named by its
    own id, too, unless that id is removed (`unbound`).
    """

    def __init__(self, step: Step, state: RuleState, unbound: Collection[int] = ()) -> None:
        self.ids: dict[int, str] = {}  # by offset: a call's id, or the id of the call answered
        self.asked: dict[int, str] = {}  # by offset of an output: the type of the call
        self.strays: dict[
            int, StrayOutput
        ] = {}  # by offset of an output: the reason that it answers no call
        self._seen = state
        self._repeats: dict[str, int] = {}
        self._kinds: dict[str, str] = {}  # of this step's calls
        self._waiting: dict[str, deque[str]] = {}
        self._answered: set[str] = set()
        self._unbound = unbound
        self._own: dict[str, deque[str]] = {}  # own id of a local shell's call -> call ids
        self._kept: set[str] = set()  # call ids of those that keep their own id
        self._by_own: set[int] = set()  # offsets where a call is named by its own id, and may be
        self._shown: set[str | None] = set()  # own ids so far in this step
        self.foreign: set[str] = set()  # call ids of items of unknown type: outputs may name them
        self._wanted = {
            _id_text(call_id_field(cast(Object, item)))
            for item in step.model
            if kind_of(item) in CALLS
        }
        for offset, item in enumerate(step.messages):
            kind = kind_of(item)
            if kind in CALLS and is_paired(cast(Object, item), kind):
                self._add_call(offset, cast(Object, item), kind)
            elif kind in OUTPUTS and is_paired(cast(Object, item), kind):
                self._add_output(offset, cast(Object, item))
            elif kind not in KNOWN and kind:
                self.foreign.update(_foreign_ids(cast(Object, item)))
            self._shown.add(own_id(item))

    def name(self, offset: int, text: JSON) -> JSON:
        """The valid call id for this item, which has `said` now."""
        return text if offset in self._by_own else self.ids.get(offset, text)

    def _add_call(self, offset: int, item: Object, kind: str) -> None:
        said = call_id_field(item)
        id = self._free(valid_id(said))
        self.ids[offset] = id
        self._kinds[id] = kind
        self._waiting.setdefault(_id_text(said), deque()).append(id)
        if kind == "local_shell_call" and (own := own_id(item)):
            self._own.setdefault(own, deque()).append(id)
            if offset not in self._unbound and not self._is_shown(own):
                self._kept.add(id)
                if own == id and item.get("call_id") is None:
                    self._by_own.add(offset)

    def _is_shown(self, own: str) -> bool:
        return own in self._shown or f"id {own}" in self._seen.item_rows

    def _free(self, id: str) -> str:
        """The id itself if it is free, else its next repeat."""
        if id not in self._seen.call_counts and id not in self._kinds:
            return id
        stem = stem_of(id)
        before = max(self._seen.call_counts.get(stem, 0), 1)
        times = before + self._repeats.get(stem, 0)
        while self._is_taken(new := repeat_of(stem, times)):
            times += 1
        self._repeats[stem] = times - before + 1
        return new

    def _is_taken(self, id: str) -> bool:
        return id in self._seen.call_counts or id in self._kinds or id in self._wanted

    def _add_output(self, offset: int, item: Object) -> None:
        said = answered_call_id(item)
        id = valid_id(said)
        if waiting := self._first(self._waiting.get(said)):
            self._pair(offset, waiting)
        elif id in self._seen.open_calls and id not in self._answered:
            self._pair(offset, id)
        elif called := self._called_by_own(item, said):
            if called in self._kept or called not in self._kinds:
                self._by_own.add(offset)
            self._pair(offset, called)
        elif said in self.foreign or f"foreign {said}" in self._seen.item_rows:
            return
        elif said in self._waiting or (said and id in self._seen.call_counts):
            self.strays[offset] = "second"
        else:
            alone = item.get("call_id") is None and isinstance(item.get("name"), str)
            self.strays[offset] = "alone" if alone else "orphan"

    def _first(self, waiting: deque[str] | None) -> str | None:
        """The first of these calls without an output."""
        while waiting:
            id = waiting.popleft()
            if id not in self._answered:
                return id
        return None

    def _called_by_own(self, item: Object, text: str) -> str | None:
        """The call id of the local shell's call whose own id this output names."""
        if item.get("type") != "local_shell_call_output":
            return None
        if text in self._own:
            return self._first(self._own[text])
        row = self._seen.item_rows.get(f"id {text}")
        if row is None:
            return None
        here = (id for id, at in self._seen.open_calls.items() if at == row)
        return next((id for id in here if self._is_open_shell(id)), None)

    def _is_open_shell(self, id: str) -> bool:
        return id not in self._answered and f"local_shell_call {id}" in self._seen.item_rows

    def _pair(self, offset: int, id: str) -> None:
        self._answered.add(id)
        self.ids[offset] = id
        asked = self._kinds.get(id)
        self.asked[offset] = asked or next(k for k in CALLS if f"{k} {id}" in self._seen.item_rows)


def _id_text(id: object) -> str:
    return id if isinstance(id, str) else ""


def _foreign_ids(item: Object) -> set[str]:
    """The call id of an item of unknown type that is no output."""
    id = item.get("call_id")
    is_output = str(item.get("type")).endswith("_output")
    return {id} if isinstance(id, str) and id and not is_output else set()


_CODEC = OpenAIResponsesCodec()
_RAW = msgspec.json.Decoder(msgspec.Raw)
_SERVER_HELD = "item_reference"  # in `RuleState.item_rows` once the history has one


def is_server_held(step: Step, state: RuleState, fields: Fields | None) -> bool:
    """Return whether the server holds a part of the history so far."""
    return (
        _has_server_history(fields)
        or _SERVER_HELD in state.item_rows
        or any(kind_of(item) == "item_reference" for item in step.messages)
    )


def _has_server_history(fields: Fields | None) -> bool:
    names = ("previous_response_id", "conversation")
    return fields is not None and any(fields.get(name) is not None for name in names)


def trailing_reasoning(step: Step) -> range:
    """Offsets of the reasoning at the end of the model's run that lacks its item."""
    start = step.model_count
    while start and kind_of(step.messages[start - 1]) == "reasoning":
        start -= 1
    after = kind_of(step.messages[step.model_count]) if step.answers else ""
    # An item of an unknown type may be the one that follows.
    return range(0) if after and after not in KNOWN else range(start, step.model_count)


def misplaced_offsets(step: Step, stranded: range) -> Iterator[int]:
    """Offsets of items that may belong to trailing reasoning: before it, and not after another."""
    for offset in range(stranded.start if stranded else 0):
        item = step.messages[offset]
        led = offset and kind_of(step.messages[offset - 1]) == "reasoning"
        if not led and kind_of(item) != "reasoning" and _CODEC.unbind(item) is not item:
            yield offset


def is_json(text: object) -> bool:
    """Return whether a call's arguments are JSON text, or empty."""
    if not isinstance(text, str):
        return False
    try:
        _RAW.decode(text)
    except RecursionError:
        return True  # nested too deeply to check
    except (msgspec.DecodeError, ValueError):
        return not text or _is_lenient_json(text)
    return True


def _is_lenient_json(text: str) -> bool:
    """Return whether this is JSON with NaN or lone surrogates, which most readers accept."""
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def is_block(block: JSON) -> bool:
    """Return whether a content item is an object with a type."""
    return isinstance(block, dict) and isinstance(cast(Object, block).get("type"), str)


class OpenAIResponsesRules:
    """OpenAI's rules for the Responses API."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """Problems inside this step."""
        found: list[Problem] = []
        kinds = [kind_of(item) for item in step.messages]
        for row, item in enumerate(step.messages, step.at):
            found += _shape_problems(row, item, kinds[row - step.at])
            if has_long_candidate(item):
                found += [_length_problem(row, path) for path in overlong_paths(item)]
        if not is_plain(step, kinds, state):
            found += relation_problems(step, state, fields)
        return found

    def advance(self, step: Step, state: RuleState) -> None:
        """Record this step's ids and its pending calls."""
        kinds = [kind_of(item) for item in step.messages]
        if is_plain(step, kinds, state):
            track_plain_ids(step, kinds, state)
        else:
            track_ids(step, kinds, state)

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """Problems of calls without an output, and of compaction triggers before the end."""
        if not count:
            return _empty_problems(fields)
        found = [
            Problem("R1", f"input[{row}]", f"No output is found for call {id!r}.")
            for id, row in unanswered_calls(state, count, message_at, fields)
        ]
        found += [_trigger_problem(row) for row in state.pending_rows if row != count - 1]
        return found

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Problems of conflicting history references, and of missing phases."""
        return [*_history_problems(fields), *_phase_problems(messages)]


def _length_problem(row: int, path: BlockPath) -> Problem:
    place = str(Ref(row, path))
    return Problem("C6", f"input{place}", f"A string has at most {MAX_STRING_CHARS:,} characters.")


def unanswered_calls(
    state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
) -> list[tuple[str, int]]:
    """Calls without an output, with their rows; those of the last run are only pending.

    A program waits for its calls, and the server writes its output: it is not checked. Nor
    is a call that runs beside the conversation: its output comes with any later request.
    """
    if _SERVER_HELD in state.item_rows or _has_server_history(fields):
        return []
    pending = count
    while pending and is_model_made(message_at(pending - 1)):
        pending -= 1
    return [
        (id, row)
        for id, row in state.open_calls.items()
        if row < pending
        and f"program {id}" not in state.item_rows
        and not _is_async(message_at(row))
    ]


def _is_async(item: JSON) -> bool:
    return isinstance(item, dict) and cast(Object, item).get("async") is True


def _empty_problems(fields: Fields | None) -> list[Problem]:
    """The problem of an empty input, unless other fields replace it."""
    named = ("previous_response_id", "conversation", "prompt")
    if fields is not None and any(fields.get(name) is not None for name in named):
        return []
    return [Problem("R0", "input", "The history is empty: it needs an item.")]


def relation_problems(step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
    """Problems between the items of a step, or with earlier ones."""
    held = is_server_held(step, state, fields)
    found = [*_own_id_problems(step, state), *_pairing_problems(step, state, held)]
    if not held:
        found += _reasoning_problems(step)
        found += _approval_problems(step, state)
    found += _trigger_problems(step)
    return found


def track_ids(step: Step, kinds: Sequence[str], state: RuleState) -> None:
    """Record the ids of any step, after repair of its ids."""
    pairing = Pairing(step, state)
    for offset, item in enumerate(step.messages):
        row, kind = step.at + offset, kinds[offset]
        if offset in pairing.asked:
            state.open_calls.pop(pairing.ids[offset], None)
        elif offset in pairing.ids:
            _track_call(pairing.ids[offset], kind, row, state)
        if kind == "item_reference":
            state.item_rows[_SERVER_HELD] = row
        elif (id := own_id(item)) is not None:
            _track_item(id, kind, row, state)
    for id in pairing.foreign:
        state.item_rows[f"foreign {id}"] = step.at
    if kinds and kinds[-1] == "compaction_trigger":
        state.pending_rows[step.at + len(kinds) - 1] = 0


def track_plain_ids(step: Step, kinds: Sequence[str], state: RuleState) -> None:
    """Record the ids of a plain step."""
    for row, item in enumerate(step.messages, step.at):
        kind = kinds[row - step.at]
        if kind in CALLS:
            _track_call(item["call_id"], kind, row, state)
        elif kind in OUTPUTS:
            del state.open_calls[item["call_id"]]
        if (id := item.get("id")) is not None:
            _track_item(id, kind, row, state)


def _track_call(id: str, kind: str, row: int, state: RuleState) -> None:
    if (stem := stem_of(id)) != id:
        state.call_counts.setdefault(stem, 1)
    count_call_id(id, state)
    state.open_calls[id] = row
    state.item_rows[f"{kind} {id}"] = row


def _track_item(id: str, kind: str, row: int, state: RuleState) -> None:
    """Record an item's own id, and count it for the id it repeats."""
    state.item_rows[f"id {id}"] = row
    if kind == "mcp_approval_request":
        state.item_rows[f"mcp_approval_request {id}"] = row
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and f"id {base}" in state.item_rows:
        state.item_rows[f"repeats {base}"] = state.item_rows.get(f"repeats {base}", 0) + 1


def _shape_problems(row: int, item: JSON, kind: str) -> Sequence[Problem]:
    """Problems of one item by itself."""
    if kind == "message":
        return _message_problems(row, item)
    if lacks_type(item, kind):
        return [Problem("R0", f"input[{row}].type", f"The item lacks its type, {kind}.")]
    if kind in OUTPUTS:
        return _output_problems(row, item, kind)
    if kind == "function_call" and not is_json(item.get("arguments")):
        where = f"input[{row}].arguments"
        return [Problem("R0", where, "The arguments of a call must be a string of JSON.")]
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        where = f"input[{row}].summary"
        return [Problem("R0", where, "Reasoning must have a summary, if only an empty list.")]
    if not kind:
        text = "An item must be an object with a type or a role."
        return [Problem("R0", f"input[{row}]", text)]
    return ()


def _output_problems(row: int, item: Object, kind: str) -> Sequence[Problem]:
    if isinstance(item.get("output"), str) and kind in TEXT_OUTPUTS:
        return ()
    fault = output_fault(item, kind)
    if fault:
        return [Problem("R9", f"input[{row}]", fault)]
    return _block_problems(f"input[{row}].output", blocks_of_output(item, kind))


def blocks_of_output(item: Object, kind: str) -> list[JSON]:
    """The blocks of an output, if it has blocks."""
    held = item.get("output")
    return cast(list[JSON], held) if kind in TEXT_OUTPUTS and isinstance(held, list) else []


def _message_problems(row: int, item: Object) -> list[Problem]:
    found: list[Problem] = []
    if item.get("type") not in (None, "message"):
        text = "The type of an item must be a string."
        found.append(Problem("R0", f"input[{row}].type", text))
    if item.get("role") not in ROLES:
        text = f"A message's role is one of {', '.join(ROLES)}."
        found.append(Problem("R0", f"input[{row}].role", text))
    content = item.get("content")
    if isinstance(content, list):
        found += _block_problems(f"input[{row}].content", cast(list[JSON], content))
    elif not isinstance(content, str):
        text = "Content must be a string or a list."
        found.append(Problem("R0", f"input[{row}].content", text))
    return found


def _block_problems(place: str, blocks: list[JSON]) -> list[Problem]:
    return [
        Problem("R0", f"{place}[{position}]", "A part must be an object with a type.")
        for position, block in enumerate(blocks)
        if not is_block(block)
    ]


def output_fault(item: Object, kind: str) -> str | None:
    """The problem of an output's content, as a sentence."""
    held = item.get(OUTPUTS[kind][1])
    if kind == "apply_patch_call_output":
        if not isinstance(item.get("status"), str):
            return "The output of a patch must have a status."
        return None if held is None or isinstance(held, str) else "A patch's log must be a string."
    if held is None:
        return "An output must not be null."
    types, name = _OUTPUT_TYPES[kind]
    sound = isinstance(held, types)
    if sound and kind == "shell_call_output":
        sound = all(isinstance(chunk, dict) for chunk in held)
    return None if sound else f"This output must be {name}."


_OUTPUT_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "function_call_output": ((str, list), "a string or a list"),
    "custom_tool_call_output": ((str, list), "a string or a list"),
    "local_shell_call_output": ((str,), "a string"),
    "shell_call_output": ((list,), "a list of what was written and how it ended"),
    "computer_call_output": ((dict,), "a screenshot"),
    "tool_search_output": ((list,), "a list of tools"),
    "program_output": ((str,), "a string"),
}


def _own_id_problems(step: Step, state: RuleState) -> list[Problem]:
    found: list[Problem] = []
    here: set[str] = set()
    for offset, item in enumerate(step.messages):
        kind = kind_of(item)
        place = f"input[{step.at + offset}].id"
        if kind in PREFIXES and not has_valid_prefix(cast(Object, item), kind):
            text = f"The id of a {kind} must begin with {PREFIXES[kind]!r}."
            found.append(Problem("R5", place, text))
        id = own_id(item)
        if id is None:
            continue
        if id in here or f"id {id}" in state.item_rows:
            found.append(Problem("R5", place, f"Id {id!r} is the id of an earlier item."))
        here.add(id)
    return found


def _pairing_problems(step: Step, state: RuleState, held: bool) -> list[Problem]:
    """Problems of call ids, and of outputs without a call or with the wrong type."""
    found: list[Problem] = []
    pairing = Pairing(step, state)
    for offset, item in enumerate(step.messages):
        kind = kind_of(item)
        if kind not in CALLS and kind not in OUTPUTS:
            continue
        place = f"input[{step.at + offset}]"
        field = call_id_path(cast(Object, item))[0]
        said = cast(Object, item).get(str(field))
        stray = pairing.strays.get(offset)
        if stray and not held:
            found.append(_stray_problem(place, answered_call_id(cast(Object, item)), stray))
        elif (id := pairing.name(offset, said)) != said or id != _printable_id(id):
            found.append(_call_id_problem(f"{place}.{field}", said))
        asked = pairing.asked.get(offset)
        if asked and not is_output_type_of(kind, asked):
            found.append(Problem("R9", place, f"A {kind} cannot answer a {asked}."))
    return found


def _printable_id(id: object) -> object:
    return id[:MAX_ID_CHARS] if isinstance(id, str) else id


def is_output_type_of(output: str, call: str) -> bool:
    """Return whether an output of this type may answer a call of that type."""
    if (output, call) == ("function_call_output", "local_shell_call"):
        return True  # as Codex answers it
    return OUTPUTS[output][0] == call


def _stray_problem(place: str, id: str, stray: StrayOutput) -> Problem:
    if stray == "second":
        return Problem("R2", place, f"A second output for call {id!r}.")
    if stray == "orphan":
        return Problem("R2", place, f"No call is found for the output with call_id {id!r}.")
    text = "An output with a name and no call_id is not accepted everywhere."
    return Problem("R2", place, text, "warning")


def _call_id_problem(place: str, id: object) -> Problem:
    if not isinstance(id, str) or not id:
        return Problem("R5", place, "A call_id must be a string that is not empty.")
    if len(id) > MAX_ID_CHARS:
        return Problem("R5", place, f"A call_id has at most {MAX_ID_CHARS} characters.")
    return Problem("R5", place, f"Call id {id!r} is used by an earlier call.")


def _reasoning_problems(step: Step) -> list[Problem]:
    stranded = trailing_reasoning(step)
    found = [
        Problem("R4", f"input[{step.at + k}].id", "This item's reasoning does not stand before it.")
        for k in misplaced_offsets(step, stranded)
    ]
    found += [
        Problem("R3", f"input[{step.at + k}]", "Reasoning without its required following item.")
        for k in stranded
    ]
    return found


def unrequested_approvals(step: Step, state: RuleState) -> list[int]:
    """Offsets of approvals without their request."""
    asked: set[object] = set()
    found: list[int] = []
    for offset, item in enumerate(step.messages):
        kind = kind_of(item)
        if kind == "mcp_approval_request":
            asked.add(own_id(item))
        elif kind == "mcp_approval_response":
            id = cast(Object, item).get("approval_request_id")
            known = isinstance(id, str) and (
                id in asked or f"mcp_approval_request {id}" in state.item_rows
            )
            if not known:
                found.append(offset)
    return found


def _approval_problems(step: Step, state: RuleState) -> list[Problem]:
    text = "An approval needs the request that it answers."
    return [
        Problem("R9", f"input[{step.at + k}]", text) for k in unrequested_approvals(step, state)
    ]


def _trigger_problems(step: Step) -> list[Problem]:
    return [
        _trigger_problem(step.at + offset)
        for offset, item in enumerate(step.messages[:-1])
        if kind_of(item) == "compaction_trigger"
    ]


def _trigger_problem(row: int) -> Problem:
    return Problem("R10", f"input[{row}]", "A compaction_trigger must be the last item.")


def _history_problems(fields: Fields | None) -> list[Problem]:
    both = fields is not None and all(
        fields.get(name) is not None for name in ("previous_response_id", "conversation")
    )
    text = "A request names its history by previous_response_id or by conversation, not by both."
    return [Problem("R8", "previous_response_id", text)] if both else []


def _phase_problems(messages: Sequence[JSON]) -> list[Problem]:
    """Problems of missing phases, which separate commentary from answers."""
    said = [
        (row, cast(Object, item).get("phase") is not None)
        for row, item in enumerate(messages)
        if kind_of(item) == "message" and is_model_made(item)
    ]
    bare = next((row for row, phase in said if not phase), None)
    if bare is None or not any(phase for _, phase in said):
        return []
    text = "Some of the model's messages have a phase and this one has none."
    return [Problem("R11", f"input[{bare}].phase", text, "warning")]


# Rules in the words of the reference, which is generated from this table.
RULE_SPECS: Final[tuple[RuleSpec, ...]] = (
    RuleSpec(
        "R0",
        "An item has a known shape, arguments are a string of JSON, and reasoning has a summary.",
        "error",
        "The shape is corrected.",
    ),
    RuleSpec(
        "R1",
        "Every call has an output; an `async` call may wait for it over several turns.",
        "error",
        "An output of the right type is added directly behind the call.",
    ),
    RuleSpec(
        "R2",
        "Every output answers a call, and each call has one output.",
        "error",
        "An output without a call becomes a user message; a second one is removed.",
    ),
    RuleSpec(
        "R2",
        "An output has a `call_id`, not only a `name`.",
        "warning",
    ),
    RuleSpec(
        "R3",
        "Reasoning is followed by the item it led to.",
        "error",
        "The reasoning is removed.",
    ),
    RuleSpec(
        "R4",
        "An item that was made with reasoning has it before it.",
        "error",
        "The item loses its `id`, and so its link to the reasoning.",
    ),
    RuleSpec(
        "R5",
        "An item's `id` has the prefix of its type; a `call_id` has 1 to 64 characters; both are "
        "unique.",
        "error",
        "An `id` is removed where allowed, else rewritten; a `call_id` is rewritten.",
    ),
    RuleSpec(
        "R8",
        "`previous_response_id` and `conversation` are not used together.",
        "error",
    ),
    RuleSpec(
        "R9",
        "An output has the type that its call needs and is not null; an approval answers a "
        "request.",
        "error",
        "It is rewritten as that type; an approval of nothing is removed.",
    ),
    RuleSpec(
        "R10",
        "A `compaction_trigger` is the last item.",
        "error",
        "It is removed.",
    ),
    RuleSpec(
        "R11",
        "If some of the model's messages have a `phase`, all have one.",
        "warning",
    ),
)
