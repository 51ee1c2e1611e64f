"""What OpenAI Responses would reject (rules R0 to R11), step by step.

Calls and outputs pair by call_id over the whole input, with anything in between, so a call without
an output (R1) shows only at the end. Where the server holds a part of the history, pairs cannot be
judged (R1 to R4). R0 is the shape of one item, its arguments included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec

from ..codecs.codec import Fields
from ..codecs.json_tree import JSON, Object
from ..codecs.openai_responses import (
    CALLS,
    KNOWN,
    OUTPUTS,
    ROLES,
    SAID,
    OpenAIResponsesCodec,
    answered_id,
    is_model_made,
    kind_of,
    path_of_id,
)
from ..transcript import Path, Ref
from .lengths import LONGEST, may_be_long, too_long
from .openai_responses_pairs import (
    LONGEST_ID,
    PREFIXES,
    Pairing,
    Stray,
    has_sound_prefix,
    is_plain,
    own_id,
    stem_of,
)
from .problem import Problem
from .rules import Seen, Step, note_id

_CODEC = OpenAIResponsesCodec()
_RAW = msgspec.json.Decoder(msgspec.Raw)
_HELD = "item_reference"  # in `Seen.items` once the history has one


def is_held(step: Step, state: Seen, fields: Fields | None) -> bool:
    """Whether a part of the history so far is with the server and not in the request."""
    return (
        _names_server_history(fields)
        or _HELD in state.item_rows
        or any(kind_of(item) == "item_reference" for item in step.messages)
    )


def _names_server_history(fields: Fields | None) -> bool:
    names = ("previous_response_id", "conversation")
    return fields is not None and any(fields.get(name) is not None for name in names)


def stranded_reasoning(step: Step) -> range:
    """Offsets of the reasoning at the end of the model's run, where its item should follow."""
    start = step.model_count
    while start and kind_of(step.messages[start - 1]) == "reasoning":
        start -= 1
    after = kind_of(step.messages[step.model_count]) if step.answers else ""
    # An item of a type we do not know may be the one that follows.
    return range(0) if after and after not in KNOWN else range(start, step.model_count)


def misplaced(step: Step, stranded: range) -> Iterator[int]:
    """Offsets of items that may belong to stranded reasoning: before it, not behind another's."""
    for offset in range(stranded.start if stranded else 0):
        item = step.messages[offset]
        led = offset and kind_of(step.messages[offset - 1]) == "reasoning"
        if not led and kind_of(item) != "reasoning" and _CODEC.unbind(item) is not item:
            yield offset


def is_json(text: object) -> bool:
    """Whether a call's arguments are a string of JSON; an empty one passes for none."""
    if not isinstance(text, str):
        return False
    try:
        _RAW.decode(text)
    except RecursionError:
        return True  # too deep to tell
    except (msgspec.DecodeError, ValueError):
        return not text or _is_lenient_json(text)
    return True


def _is_lenient_json(text: str) -> bool:
    """JSON as most readers take it: with NaN, or with lone surrogates."""
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def is_block(block: JSON) -> bool:
    """Whether something in a list of content is an object with a type."""
    return isinstance(block, dict) and isinstance(cast(Object, block).get("type"), str)


class OpenAIResponsesRules:
    """OpenAI's rules for the Responses API."""

    def check_step(self, step: Step, state: Seen, fields: Fields | None) -> list[Problem]:
        """What is wrong inside this step."""
        found: list[Problem] = []
        kinds = [kind_of(item) for item in step.messages]
        for row, item in enumerate(step.messages, step.at):
            found += _shape_problems(row, item, kinds[row - step.at])
            if may_be_long(item):
                found += [_length_problem(row, path) for path in too_long(item)]
        if not is_plain(step, kinds, state):
            found += relation_problems(step, state, fields)
        return found

    def advance(self, step: Step, state: Seen) -> None:
        """Note this step's ids, and which of its calls still wait for their output."""
        kinds = [kind_of(item) for item in step.messages]
        if is_plain(step, kinds, state):
            note_plain(step, kinds, state)
        else:
            note_any(step, kinds, state)

    def check_end(
        self, state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """Calls without an output, and compaction asked for before the end."""
        if not count:
            return _empty_problems(fields)
        found = [
            Problem("R1", f"input[{row}]", f"No output is found for call {id!r}.")
            for id, row in unanswered(state, count, message_at, fields)
        ]
        found += [_trigger_problem(row) for row in state.pending_rows if row != count - 1]
        return found

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Two ways of naming the same history, and phases that got lost."""
        return [*_history_problems(fields), *_phase_problems(messages)]


def _length_problem(row: int, path: Path) -> Problem:
    place = str(Ref(row, path))
    return Problem("C6", f"input{place}", f"A string has at most {LONGEST:,} characters.")


def unanswered(
    state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
) -> list[tuple[str, int]]:
    """Calls that no output answers, with their rows; those of a last run are only pending.

    A program waits for the calls it made, and the server writes its output: it is not judged. Nor
    is a call that runs beside the conversation: its output comes with any later request.
    """
    if _HELD in state.item_rows or _names_server_history(fields):
        return []
    pending = count
    while pending and is_model_made(message_at(pending - 1)):
        pending -= 1
    return [
        (id, row)
        for id, row in state.open_calls.items()
        if row < pending and f"program {id}" not in state.item_rows and not _is_async(message_at(row))
    ]


def _is_async(item: JSON) -> bool:
    return isinstance(item, dict) and cast(Object, item).get("async") is True


def _empty_problems(fields: Fields | None) -> list[Problem]:
    """An empty input is one where nothing else says what to answer."""
    named = ("previous_response_id", "conversation", "prompt")
    if fields is not None and any(fields.get(name) is not None for name in named):
        return []
    return [Problem("R0", "input", "The history is empty: it needs an item.")]


def relation_problems(step: Step, state: Seen, fields: Fields | None) -> list[Problem]:
    """What is wrong with the items of a step only because of one another, or of earlier ones."""
    held = is_held(step, state, fields)
    found = [*_own_id_problems(step, state), *_pairing_problems(step, state, held)]
    if not held:
        found += _reasoning_problems(step)
        found += _approval_problems(step, state)
    found += _trigger_problems(step)
    return found


def note_any(step: Step, kinds: Sequence[str], state: Seen) -> None:
    """Note the ids of any step, under the ids that its calls and outputs stand for."""
    pairing = Pairing(step, state)
    for offset, item in enumerate(step.messages):
        row, kind = step.at + offset, kinds[offset]
        if offset in pairing.asked:
            state.open_calls.pop(pairing.ids[offset], None)
        elif offset in pairing.ids:
            _note_call(pairing.ids[offset], kind, row, state)
        if kind == "item_reference":
            state.item_rows[_HELD] = row
        elif (id := own_id(item)) is not None:
            _note_item(id, kind, row, state)
    for id in pairing.foreign:
        state.item_rows[f"foreign {id}"] = step.at
    if kinds and kinds[-1] == "compaction_trigger":
        state.pending_rows[step.at + len(kinds) - 1] = 0


def note_plain(step: Step, kinds: Sequence[str], state: Seen) -> None:
    """Note the ids of a plain step, where each stands for itself."""
    for row, item in enumerate(step.messages, step.at):
        kind = kinds[row - step.at]
        if kind in CALLS:
            _note_call(item["call_id"], kind, row, state)
        elif kind in OUTPUTS:
            del state.open_calls[item["call_id"]]
        if (id := item.get("id")) is not None:
            _note_item(id, kind, row, state)


def _note_call(id: str, kind: str, row: int, state: Seen) -> None:
    if (stem := stem_of(id)) != id:
        state.call_counts.setdefault(stem, 1)
    note_id(id, state)
    state.open_calls[id] = row
    state.item_rows[f"{kind} {id}"] = row


def _note_item(id: str, kind: str, row: int, state: Seen) -> None:
    """Note an item's own id, and count it for the id it is a repeat of."""
    state.item_rows[f"id {id}"] = row
    if kind == "mcp_approval_request":
        state.item_rows[f"mcp_approval_request {id}"] = row
    base, _, suffix = id.rpartition("_")
    if suffix.isdigit() and f"id {base}" in state.item_rows:
        state.item_rows[f"repeats {base}"] = state.item_rows.get(f"repeats {base}", 0) + 1


def _shape_problems(row: int, item: JSON, kind: str) -> Sequence[Problem]:
    """What is wrong with one item, whatever stands around it."""
    if kind == "message":
        return _message_problems(row, item)
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
    if isinstance(item.get("output"), str) and kind in SAID:
        return ()
    fault = output_fault(item, kind)
    if fault:
        return [Problem("R9", f"input[{row}]", fault)]
    return _block_problems(f"input[{row}].output", blocks_of_output(item, kind))


def blocks_of_output(item: Object, kind: str) -> list[JSON]:
    """The parts that an output is made of, where it is made of parts."""
    held = item.get("output")
    return cast(list[JSON], held) if kind in SAID and isinstance(held, list) else []


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
    """What is wrong with the output itself, in a sentence."""
    held = item.get(OUTPUTS[kind][1])
    if kind == "apply_patch_call_output":
        if not isinstance(item.get("status"), str):
            return "The output of a patch must have a status."
        return None if held is None or isinstance(held, str) else "A patch's log must be a string."
    if held is None:
        return "An output must not be null."
    types, name = _WANTED[kind]
    sound = isinstance(held, types)
    if sound and kind == "shell_call_output":
        sound = all(isinstance(chunk, dict) for chunk in held)
    return None if sound else f"This output must be {name}."


_WANTED: dict[str, tuple[tuple[type, ...], str]] = {
    "function_call_output": ((str, list), "a string or a list"),
    "custom_tool_call_output": ((str, list), "a string or a list"),
    "local_shell_call_output": ((str,), "a string"),
    "shell_call_output": ((list,), "a list of what was written and how it ended"),
    "computer_call_output": ((dict,), "a screenshot"),
    "tool_search_output": ((list,), "a list of tools"),
    "program_output": ((str,), "a string"),
}


def _own_id_problems(step: Step, state: Seen) -> list[Problem]:
    found: list[Problem] = []
    here: set[str] = set()
    for offset, item in enumerate(step.messages):
        kind = kind_of(item)
        place = f"input[{step.at + offset}].id"
        if kind in PREFIXES and not has_sound_prefix(cast(Object, item), kind):
            text = f"The id of a {kind} must begin with {PREFIXES[kind]!r}."
            found.append(Problem("R5", place, text))
        id = own_id(item)
        if id is None:
            continue
        if id in here or f"id {id}" in state.item_rows:
            found.append(Problem("R5", place, f"Id {id!r} is the id of an earlier item."))
        here.add(id)
    return found


def _pairing_problems(step: Step, state: Seen, held: bool) -> list[Problem]:
    """Call ids that cannot stand, and outputs that answer nothing, or the wrong kind of call."""
    found: list[Problem] = []
    pairing = Pairing(step, state)
    for offset, item in enumerate(step.messages):
        kind = kind_of(item)
        if kind not in CALLS and kind not in OUTPUTS:
            continue
        place = f"input[{step.at + offset}]"
        field = path_of_id(cast(Object, item))[0]
        said = cast(Object, item).get(str(field))
        stray = pairing.strays.get(offset)
        if stray and not held:
            found.append(_stray_problem(place, answered_id(cast(Object, item)), stray))
        elif (id := pairing.name(offset, said)) != said or id != _fitting(id):
            found.append(_call_id_problem(f"{place}.{field}", said))
        asked = pairing.asked.get(offset)
        if asked and not fits(kind, asked):
            found.append(Problem("R9", place, f"A {kind} cannot answer a {asked}."))
    return found


def _fitting(id: object) -> object:
    return id[:LONGEST_ID] if isinstance(id, str) else id


def fits(output: str, call: str) -> bool:
    """Whether an output of this type may answer a call of that type."""
    if (output, call) == ("function_call_output", "local_shell_call"):
        return True  # as Codex answers it
    return OUTPUTS[output][0] == call


def _stray_problem(place: str, id: str, stray: Stray) -> Problem:
    if stray == "second":
        return Problem("R2", place, f"A second output for call {id!r}.")
    if stray == "orphan":
        return Problem("R2", place, f"No call is found for the output with call_id {id!r}.")
    text = "An output with a name and no call_id is not accepted everywhere."
    return Problem("R2", place, text, "warning")


def _call_id_problem(place: str, id: object) -> Problem:
    if not isinstance(id, str) or not id:
        return Problem("R5", place, "A call_id must be a string that is not empty.")
    if len(id) > LONGEST_ID:
        return Problem("R5", place, f"A call_id has at most {LONGEST_ID} characters.")
    return Problem("R5", place, f"Call id {id!r} is used by an earlier call.")


def _reasoning_problems(step: Step) -> list[Problem]:
    stranded = stranded_reasoning(step)
    found = [
        Problem("R4", f"input[{step.at + k}].id", "This item's reasoning does not stand before it.")
        for k in misplaced(step, stranded)
    ]
    found += [
        Problem("R3", f"input[{step.at + k}]", "Reasoning without its required following item.")
        for k in stranded
    ]
    return found


def unasked_approvals(step: Step, state: Seen) -> list[int]:
    """Offsets of approvals whose request is not in the history."""
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


def _approval_problems(step: Step, state: Seen) -> list[Problem]:
    text = "An approval needs the request that it answers."
    return [Problem("R9", f"input[{step.at + k}]", text) for k in unasked_approvals(step, state)]


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
    """Phases tell a model its commentary from its answers; some without them confuse it."""
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
