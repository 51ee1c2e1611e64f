"""Repairs of OpenAI Responses histories: the smallest change that the API accepts.

Almost all repairs are made within a step. A call without an output gets its placeholder at the
end, directly after the call, since an output may come much later; and only the end shows that a
compaction_trigger is not the last item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...wire.base import Fields
from ...wire.json import JSON, Object, compact_json, digest, get, put, without
from ..base import (
    BLANK_TEXT,
    CONTINUE_TEXT,
    NO_RESULT_TEXT,
    EndRepair,
    Repair,
    RepairedRow,
    RuleState,
    Step,
    StepRepair,
    unpaired_result_text,
)
from ..openai_string_limit import arguments_from_text, overlong_paths, truncate
from .check import (
    MAX_ID_CHARS,
    PREFIXES,
    OpenAIResponsesRules,
    Pairing,
    blocks_of_output,
    has_valid_prefix,
    is_block,
    is_json,
    is_output_type_of,
    is_server_held,
    misplaced_offsets,
    output_fault,
    own_id,
    repeat_of,
    trailing_reasoning,
    unanswered_calls,
    unrequested_approvals,
    valid_id,
)
from .codec import (
    CALLS,
    ID_REQUIRED,
    OUTPUTS,
    ROLES,
    OpenAIResponsesCodec,
    answered_call_id,
    call_id_path,
    is_model_made,
    kind_of,
    lacks_type,
    output_text,
)

_CODEC = OpenAIResponsesCodec()
_RULES = OpenAIResponsesRules()
REPAIRED_CODES = frozenset({"C6", "R0", "R2", "R3", "R4", "R5", "R9", "R10"})
# One white pixel: a computer call can only be answered with a screenshot.
NO_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEA"
    "HLCMmQAAAABJRU5ErkJggg=="
)
RESULT_ABOVE_TEXT = "[the result stands above, before this call]"
_REPAIR_NOTES = {
    "C6": "cut the text to the allowed length",
    "R0": "gave it the shape of an item that the API knows",
    "R1": "put a stand-in output behind the call",
    "R2": "made it a user message, or dropped a repeated output",
    "R3": "dropped the reasoning that nothing follows",
    "R4": "took off the id that ties it to reasoning",
    "R5": "took off or renewed the id, on both sides of a pair",
    "R9": "made the output fit its call",
    "R10": "took out the trigger, which may only come last",
}


class OpenAIResponsesRepairer:
    """OpenAI's repairs for the Responses API."""

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The repaired step, or None if nothing is broken."""
        found = _RULES.check_step(step, state, fields)
        problems = [p for p in found if p.severity == "error" and p.code in REPAIRED_CODES]
        if not problems:
            return None
        repairs = [Repair(p.code, p.place, _REPAIR_NOTES[p.code]) for p in problems]
        repairer = _StepRepairer(step, state, is_server_held(step, state, fields))
        rows = [
            RepairedRow(_truncate_strings(new), step.at + offset)
            for offset, item in enumerate(step.messages)
            if (new := repairer.item(offset, item)) is not None
        ]
        return StepRepair(_trigger_last(rows), repairs)

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """Add placeholders for calls without an output; keep only a final compaction_trigger."""
        problems = _RULES.check_end(state, count, message_at, fields) if count else []
        if not problems:
            return None
        repairs = [Repair(p.code, p.place, _REPAIR_NOTES[p.code]) for p in problems]
        changes: dict[int, JSON] = {
            row: _user_message(CONTINUE_TEXT) for row in state.pending_rows if row != count - 1
        }
        open_calls = unanswered_calls(state, count, message_at, fields)
        first_lines = _texts_before([row for _, row in open_calls], message_at)
        inserts: dict[int, list[JSON]] = {
            row: [
                _placeholder_output(
                    kind_of(message_at(row)), id, unpaired_result_text(id, "") in first_lines
                )
            ]
            for id, row in open_calls
        }
        return EndRepair(changes, inserts, repairs)

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """None: extra breakpoints are no error."""
        return None


def _placeholder_output(call: str, id: str, is_rendered: bool) -> Object:
    """The placeholder output of a call; it says so if the result was rendered as text."""
    if is_rendered:
        return output_for(call, id, RESULT_ABOVE_TEXT, failed=False)
    return output_for(call, id, NO_RESULT_TEXT, failed=True)


def _texts_before(rows: Sequence[int], message_at: Callable[[int], JSON]) -> set[str]:
    """The first lines of the user messages directly before the runs of these calls.

    An output that came before its call is rendered there as text.
    """
    begun: set[str] = set()
    walked: set[int] = set()
    for row in rows:
        at, made = row, True
        while at and at - 1 not in walked:
            at -= 1
            walked.add(at)
            item = message_at(at)
            if is_model_made(item) and not made:
                break
            made = is_model_made(item)
            begun.update(() if made else (_first_line(item),))
    return begun


def _first_line(item: JSON) -> str:
    """The first line of a message with one text."""
    content = cast(Object, item).get("content") if isinstance(item, dict) else None
    if not isinstance(content, list) or not content:
        return ""
    block = cast(list[JSON], content)[0]
    text = cast(Object, block).get("text") if isinstance(block, dict) else None
    return text.partition("\n")[0] if isinstance(text, str) else ""


def _user_message(text: str) -> Object:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content}


def _trigger_last(rows: list[RepairedRow]) -> list[RepairedRow]:
    """The rows without a compaction_trigger that is not the last of them."""
    return [
        row
        for position, row in enumerate(rows)
        if kind_of(row.message) != "compaction_trigger" or position == len(rows) - 1
    ]


def output_for(call: str, id: str, text: str, *, failed: bool) -> Object:
    """An output with this text, of the type for a call of this type."""
    if call == "shell_call":
        return {"type": "shell_call_output", "call_id": id, "output": [_chunk(text, failed)]}
    if call == "apply_patch_call":
        status = "failed" if failed else "completed"
        kind = "apply_patch_call_output"
        return {"type": kind, "call_id": id, "status": status, "output": text}
    if call == "computer_call":
        return {"type": "computer_call_output", "call_id": id, "output": _screenshot()}
    if call == "tool_search_call":
        done: Object = {"execution": "client", "status": "completed", "tools": []}
        return {"type": "tool_search_output", "call_id": id, **done}
    if call == "program":
        status = "incomplete" if failed else "completed"
        own = {"type": "program_output", "id": f"prgo_{digest(id)}"}
        return {**own, "call_id": id, "result": text, "status": status}
    kind = "custom_tool_call_output" if call == "custom_tool_call" else "function_call_output"
    return {"type": kind, "call_id": id, "output": text}


def _chunk(text: str, failed: bool) -> Object:
    return {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": int(failed)}}


def _screenshot() -> Object:
    return {"type": "computer_screenshot", "image_url": NO_SCREENSHOT}


class _StepRepairer:
    """Repairer of the items of one step."""

    def __init__(self, step: Step, state: RuleState, held: bool) -> None:
        self._seen = state
        self._ids: set[str] = set()  # items' own ids in this step
        self._repeats: dict[str, int] = {}
        stranded = range(0) if held else trailing_reasoning(step)
        self._unbound = set(misplaced_offsets(step, stranded))
        self._pairing = Pairing(step, state, self._unbound)
        self._strays = {} if held else self._pairing.strays
        self._dropped = {*stranded, *(() if held else unrequested_approvals(step, state))}
        self._wanted = {id for item in step.messages if (id := own_id(item)) is not None}

    def item(self, offset: int, item: JSON) -> JSON | None:
        """The item in a valid form; None if it cannot be sent."""
        if offset in self._dropped:
            return None
        kind = kind_of(item)
        if not kind:
            return _as_message(item)
        holder = cast(Object, item)
        stray = self._strays.get(offset)
        if stray in ("orphan", "second"):
            said = unpaired_result_text(answered_call_id(holder), output_text(holder, kind))
            return _user_message(said) if stray == "orphan" else None
        if offset in self._unbound:
            holder = cast(Object, _CODEC.unbind(holder))
        return self._paired(offset, self._own_id(_valid_item(holder, kind), kind), kind)

    def _own_id(self, item: Object, kind: str) -> Object:
        """The item with a new id of its own, or with none."""
        id = own_id(item)
        sound = has_valid_prefix(item, kind)
        if sound and (id is None or not self._is_known(id)):
            self._ids.update(() if id is None else (id,))
            return item
        if kind not in ID_REQUIRED:
            return cast(Object, without(item, ("id",)))
        base = id if sound and id is not None else f"{PREFIXES[kind]}_{digest(item.get('id'))}"
        new = self._free(base)
        self._ids.add(new)
        return {**item, "id": new}

    def _is_known(self, id: str) -> bool:
        return id in self._ids or f"id {id}" in self._seen.item_rows

    def _free(self, id: str) -> str:
        """The id itself if it is free, else its next repeat."""
        if not self._is_known(id):
            return id
        before = 1 + self._seen.item_rows.get(f"repeats {id}", 0)
        times = before + self._repeats.get(id, 0)
        while self._is_known(new := repeat_of(id, times)) or new in self._wanted:
            times += 1
        self._repeats[id] = times - before + 1
        return new

    def _paired(self, offset: int, item: Object, kind: str) -> Object:
        """The call or output with the id of its pair, and the type that the call needs."""
        if kind not in CALLS and kind not in OUTPUTS:
            return item
        path = call_id_path(item)
        said = item.get(str(path[0]))
        id = self._pairing.ids.get(offset)
        if id is None:
            too_long = isinstance(said, str) and len(said) > MAX_ID_CHARS
            return cast(Object, put(item, path, valid_id(said))) if too_long else item
        asked = self._pairing.asked.get(offset)
        if asked and not is_output_type_of(kind, asked):
            return _as_output(item, kind, asked, id)
        name = self._pairing.name(offset, said)
        return item if said == name else cast(Object, put(item, path, name))


def _as_message(item: JSON) -> Object | None:
    """A malformed item as a user message, its JSON if nothing else says what it is."""
    content = cast(Object, item).get("content") if isinstance(item, dict) else item
    if isinstance(content, str) and content.strip():
        return _user_message(content)
    if isinstance(content, list) and isinstance(item, dict):
        blocks = _valid_blocks(cast(list[JSON], content), "input_text")
        return {"type": "message", "role": "user", "content": blocks}
    said = compact_json(item) if isinstance(item, dict | list) and item else ""
    return _user_message(said) if said.strip() else None


def _as_output(item: Object, kind: str, asked: str, id: str) -> Object:
    """An output, converted to the type that its call needs."""
    alike = {"function_call", "custom_tool_call"}
    if asked in alike and OUTPUTS[kind][0] in alike:
        return {**item, "type": f"{asked}_output", "call_id": id}
    return output_for(asked, id, output_text(item, kind), failed=False)


def _valid_item(item: Object, kind: str) -> Object:
    """The item in a valid shape; the same object if it is valid."""
    if kind == "message":
        return _valid_message(item)
    if lacks_type(item, kind):
        item = {**cast(Object, without(item, ("role",))), "type": kind}
    if kind == "function_call" and not is_json(item.get("arguments")):
        return {**item, "arguments": _json_arguments(item.get("arguments"))}
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        return {**item, "summary": []}
    if kind not in OUTPUTS:
        return item
    if output_fault(item, kind):
        return _valid_output(item, kind)
    blocks = blocks_of_output(item, kind)
    if all(map(is_block, blocks)):
        return item
    return {**item, "output": _valid_blocks(blocks, "input_text")}


def _valid_message(item: Object) -> Object:
    if item.get("type") not in (None, "message"):
        item = {**item, "type": "message"}
    if item.get("role") not in ROLES:
        item = {**item, "role": "user"}
    content = item.get("content")
    if isinstance(content, list):
        blocks = cast(list[JSON], content)
        if all(map(is_block, blocks)):
            return item
        text_type = "output_text" if item.get("role") == "assistant" else "input_text"
        return {**item, "content": _valid_blocks(blocks, text_type)}
    if isinstance(content, str):
        return item
    return {**item, "content": BLANK_TEXT if content is None else compact_json(content)}


def _valid_blocks(blocks: list[JSON], text_type: str) -> list[JSON]:
    """The valid blocks; plain text becomes a block, and at least one stays."""
    sound: list[JSON] = []
    for block in blocks:
        text = cast(Object, block).get("text") if isinstance(block, dict) else block
        if is_block(block):
            sound.append(block)
        elif isinstance(text, str):
            sound += [{"type": text_type, "text": text}] if text.strip() else []
        elif block:
            sound.append({"type": text_type, "text": compact_json(block)})
    return sound or [{"type": text_type, "text": BLANK_TEXT}]


def _truncate_strings(item: JSON) -> JSON:
    """The item with each string within the limit; the same object if they are."""
    for path in list(overlong_paths(item)):
        text = str(get(item, path))
        said = arguments_from_text(text) if path == ("arguments",) else truncate(text)
        item = put(item, path, said)
    return item


def _json_arguments(arguments: JSON) -> str:
    """Arguments as JSON text."""
    if arguments is None:
        return "{}"
    return compact_json({"input": arguments} if isinstance(arguments, str) else arguments)


def _valid_output(item: Object, kind: str) -> Object:
    """An output with valid content."""
    field = OUTPUTS[kind][1]
    held = item.get(field)
    text = NO_RESULT_TEXT if held is None else compact_json(held)
    if kind == "apply_patch_call_output":
        status = item.get("status")
        item = {**item, "status": status if isinstance(status, str) else "completed"}
        return item if held is None or isinstance(held, str) else {**item, "output": text}
    if kind == "shell_call_output":
        return {**item, "output": [_chunk(text, failed=held is None)]}
    if kind == "computer_call_output":
        return {**item, "output": _screenshot()}
    return {**item, field: [] if kind == "tool_search_output" else text}
