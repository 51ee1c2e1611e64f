"""Repairs of Anthropic histories: the smallest change that the API accepts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from operator import is_
from typing import NamedTuple, cast

from msgspec import Struct, field

from ...regex import lazy_compile
from ...transcript import BlockPath
from ...wire.base import Fields
from ...wire.json import JSON, Object, compact_json, get, put, without
from ...wire.message_identity import strip_breakpoints
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
    misplaced_call_text,
    repeat_id,
    unpaired_result_text,
)
from .check import (
    ID_PATTERN,
    MISPLACED_TYPES,
    ROLES,
    AnthropicRules,
    LastTurn,
    blocks_of,
    can_be_cleared,
    has_disabled_thinking,
    has_more_than_results,
    has_trailing_whitespace,
    is_blank_text,
    is_effort_only,
    is_result_of,
    is_result_of_open_call,
    is_server_result_last,
    is_sound_content,
    is_thinking_first,
    is_user_end_required,
    is_whole_thinking,
    last_turn,
    null_fields,
    role_of,
    server_tool,
    type_of,
)
from .codec import REASONING_TYPES, SERVER_CALLS, is_server_result
from .request_rules import (
    MAX_BREAKPOINTS,
    empty_texts_with_breakpoint,
    has_automatic_breakpoint,
    has_useless_breakpoint,
    head_breakpoints,
    is_one_hour,
    message_breakpoints,
)

_NOT_ID = lazy_compile(r"[^a-zA-Z0-9_-]")
_SHOWABLE = frozenset(
    {"image", "document", "search_result"}
)  # blocks that a user message can hold, too


def text_block(text: str) -> Object:
    """A block with this text."""
    return {"type": "text", "text": text}


def user_message(text: str) -> Object:
    """A user message with this text."""
    return {"role": "user", "content": [text_block(text)]}


def with_blocks(message: JSON, blocks: list[JSON]) -> JSON:
    """The message with these blocks; the same object if nothing changed."""
    old = cast(Object, message).get("content")
    if isinstance(old, str):
        same = blocks == [text_block(old)]
    else:
        items = cast(list[JSON], old) if isinstance(old, list) else [None]
        same = len(items) == len(blocks) and all(map(is_, items, blocks))
    if same and blocks:
        return message
    return put(message, ("content",), blocks or [text_block(BLANK_TEXT)])


def without_thinking(blocks: Sequence[JSON]) -> list[JSON]:
    """The blocks without thinking."""
    return [block for block in blocks if type_of(block) not in REASONING_TYPES]


def with_type(item: JSON) -> JSON | None:
    """A value without a type as a text block; None if it is empty."""
    holder = cast(Object, item) if isinstance(item, dict) else {}
    if isinstance(holder.get("text"), str):
        return {**holder, "type": "text"} if holder["text"].strip() else None
    said = compact_json(item) if item else ""
    return text_block(said) if said.strip() else None


def inferred_type(block: JSON) -> str | None:
    """The type inferred from the fields of a block without a type."""
    holder = cast(Object, block) if isinstance(block, dict) else {}
    if holder.get("type") is not None:
        return None
    return next((kind for kind, fields in _FIELDS_BY_TYPE.items() if holder.keys() >= fields), None)


_FIELDS_BY_TYPE: Mapping[str, frozenset[str]] = {
    "tool_result": frozenset({"tool_use_id", "content"}),
    "tool_use": frozenset({"id", "name", "input"}),
    "thinking": frozenset({"thinking", "signature"}),
}


def valid_result(result: Object, id: str) -> Object:
    """A result for this id, with valid content."""
    if result.get("tool_use_id") != id:
        result = {**result, "tool_use_id": id}
    content = result.get("content")
    if is_sound_content(content):
        return result
    if not isinstance(content, list):
        return {**result, "content": compact_json(content)}
    items = [i if type_of(i) else with_type(i) for i in cast(list[JSON], content)]
    return {**result, "content": [item for item in items if item is not None]}


def result_as_text(result: Object) -> list[JSON]:
    """A result without its call, as text and images of a user, with its breakpoint."""
    content = result.get("content")
    items = cast(list[JSON], content) if isinstance(content, list) else [content or ""]
    shown = [item for item in items if type_of(item) in _SHOWABLE]
    said = "\n".join(_text_of(item) for item in items if type_of(item) not in _SHOWABLE)
    blocks: list[JSON] = [text_block(unpaired_result_text(_id_of(result), said)), *shown]
    if result.get("cache_control") is not None:
        blocks[-1] = {**blocks[-1], "cache_control": result["cache_control"]}
    return blocks


def _text_of(item: JSON) -> str:
    """The text of a result's item; an unknown type is only named."""
    kind = type_of(item)
    if kind is None:
        return compact_json(item)
    text = cast(Object, item).get("text")
    return text if isinstance(text, str) else f"[{kind}]"


def _id_of(result: Object) -> str:
    id = result.get("tool_use_id")
    return id if isinstance(id, str) else ""


def server_placeholder(id: str, name: str) -> Object:
    """A placeholder for the lost result of a server-side tool: the provider's own error."""
    if name == "mcp":
        said = [text_block(NO_RESULT_TEXT)]
        return {"type": "mcp_tool_result", "tool_use_id": id, "is_error": True, "content": said}
    kind = "tool_search" if name.startswith("tool_search_tool") else name
    error = {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}
    return {"type": f"{kind}_tool_result", "tool_use_id": id, "content": error}


class CallIds:
    """Assigns ids to this step's calls that are valid and new to the history."""

    def __init__(self, state: RuleState) -> None:
        self._seen = state.call_counts
        self._here: dict[str, int] = {}
        self._waiting: dict[str, deque[str]] = {}  # old id -> new ids without a result

    def of_call(self, old: JSON) -> str:
        """The id for the next call."""
        id = old if isinstance(old, str) else "" if old is None else str(old)
        new = self._fresh(id if ID_PATTERN.match(id) else _NOT_ID.sub("_", id) or "call")
        self._waiting.setdefault(str(old), deque()).append(new)
        return new

    def _fresh(self, id: str) -> str:
        times = self._seen.get(id, 0) + self._here.get(id, 0)
        new, stride = id, 1
        while new in self._seen or new in self._here:
            new = repeat_id(id, times)
            times, stride = times + stride, stride * 2  # few tries, however many ids are taken
        self._here[id] = self._here.get(id, 0) + 1
        self._here.setdefault(new, 1)
        return new

    def of_result(self, old: JSON) -> str | None:
        """The new id for the next result with this old id."""
        waiting = self._waiting.get(str(old))
        return waiting.popleft() if waiting else None

    def has_result_id(self, old: JSON) -> bool:
        """Return whether a call of this step had this id."""
        return str(old) in self._waiting

    def unanswered(self) -> list[str]:
        """The ids without a result."""
        return [id for waiting in self._waiting.values() for id in waiting]


UNNAMED_TOOL = "unknown"  # the tool of a call that names none


class _PendingServerCall(NamedTuple):
    """A server-side call without a result, and its position among the kept blocks."""

    message: int
    block: int
    call: Object


class _RepairedAnswer(Struct):
    """A message after the model's, during repair."""

    at: int
    message: Object
    blocks: list[JSON] = field(default_factory=list[JSON])


class _StepRepairer:
    """Repairer of one step; records every change."""

    def __init__(self, step: Step, state: RuleState) -> None:
        self._step = step
        self._seen = state
        self._names = CallIds(state)
        self._late: list[JSON] = []  # results that must move to the front
        self._talked = False  # the user has written more than results
        self._waiting: dict[str, list[_PendingServerCall]] = {}  # server-side calls of this step
        self._closed: set[str] = set()  # server-side calls of earlier steps with their result
        self.repairs: list[Repair] = []

    def rows(self) -> list[RepairedRow]:
        """The repaired messages of the step."""
        step = self._step
        contents = [self._contents(step.at + k, message) for k, message in enumerate(step.model)]
        model = [self._model_blocks(step.at + k, blocks) for k, blocks in enumerate(contents)]
        answers = self._answers(model)
        if any(_has_more_than_results(row.message) for row in answers):
            self._settle_server_calls(model)
        self._repair_thinking(model)
        return [*self._opening(model, answers), *self._model_rows(model, answers), *answers]

    def _record(self, code: str, at: int, done: str, position: int | None = None) -> None:
        block = "" if position is None else f".content[{position}]"
        self.repairs.append(Repair(code, f"messages[{at}]{block}", done))

    def _contents(self, at: int, message: JSON) -> list[JSON]:
        """The blocks of a message, or those made from its content."""
        content = cast(Object, message).get("content")
        if isinstance(content, str | list):
            return blocks_of(message)
        self._record("A0", at, "made its content a list of blocks")
        if type_of(content) is not None:
            return [content]
        block = with_type(content)
        return [] if block is None else [block]

    def _valid_block(self, at: int, position: int, block: JSON) -> JSON | None:
        """The block in a valid form; None if nothing of it can be sent."""
        kind = type_of(block)
        if inferred := inferred_type(block):
            self._record("A0", at, f"gave it the type {inferred}", position)
            return {**cast(Object, block), "type": inferred}
        if kind is None:
            self._record("A0", at, "made it a text block, or dropped it if it was empty", position)
            return with_type(block)
        if is_blank_text(block):
            self._record("A6", at, "dropped the blank text", position)
            return None
        if kind == "compaction" and cast(Object, block).get("content") == "":
            self._record("A18", at, "dropped the empty compaction", position)
            return None
        if kind == "compaction" and (nulls := null_fields(cast(Object, block))):
            self._record("A15", at, f"left out what is null: {', '.join(nulls)}", position)
            return {key: value for key, value in cast(Object, block).items() if key not in nulls}
        return block

    # The model's messages.

    def _model_blocks(self, at: int, blocks: Sequence[JSON]) -> list[JSON]:
        """Valid blocks with valid calls; misplaced results move behind them."""
        kept: list[JSON] = []
        for position, source in enumerate(blocks):
            block = self._valid_block(at, position, source)
            kind = type_of(block)
            if kind == "tool_use":
                kept.append(self._repair_call(at, position, cast(Object, block)))
            elif kind == "tool_result":
                kept += self._result(at, position, cast(Object, block), late=True)
            elif is_server_result(kind) and not self._is_expected(cast(Object, block)):
                self._record("A8", at, "dropped the result, which answers no call", position)
            elif block is not None:
                if kind in SERVER_CALLS:
                    call = cast(Object, block)
                    place = _PendingServerCall(at - self._step.at, len(kept), call)
                    self._waiting.setdefault(str(call.get("id")), []).append(place)
                kept.append(block)
        return kept

    def _repair_call(self, at: int, position: int, call: Object) -> Object:
        id = self._names.of_call(call.get("id"))
        if call.get("id") != id:
            code = "A3" if ID_PATTERN.match(str(call.get("id"))) else "A4"
            self._record(code, at, f"renamed the id to {id}", position)
            call = {**call, "id": id}
        if not isinstance(call.get("name"), str) or not call["name"]:
            self._record("A0", at, f"named the tool {UNNAMED_TOOL!r}", position)
            call = {**call, "name": UNNAMED_TOOL}
        if not isinstance(call.get("input"), dict):
            self._record("A4", at, "made the input an object", position)
            call = {**call, "input": arguments_object(call.get("input"))}
        return call

    def _is_expected(self, result: Object) -> bool:
        """Return whether a server-side result answers a pending call."""
        id = str(result.get("tool_use_id"))
        if id in self._waiting and is_result_of(result, server_tool(self._waiting[id][-1].call)):
            del self._waiting[id]
            return True
        if id in self._closed or not is_result_of_open_call(result, self._seen):
            return False
        self._closed.add(id)
        return True

    def _settle_server_calls(self, model: list[list[JSON]]) -> None:
        """Settle calls at a user text: drop this step's, add placeholders for earlier ones."""
        at = self._step.at
        gone = {(one.message, one.block) for calls in self._waiting.values() for one in calls}
        for k, blocks in enumerate(model if gone else []):
            stay = [block for n, block in enumerate(blocks) if (k, n) not in gone]
            model[k] = [self._unbind_call(block) for block in stay]
        for name in self._waiting:
            self._record("A8", at, f"dropped server-side call {name!r}, which has no result")
        names = list(self._seen.item_rows)
        late = [id for id in self._seen.open_calls if id not in self._closed]
        stand_ins = [server_placeholder(id, names[self._seen.open_calls[id]]) for id in late]
        for name in late:
            self._record("A8", at, f"put a stand-in result for server-side call {name!r}")
        if stand_ins:
            thinking = takewhile(lambda block: type_of(block) in REASONING_TYPES, model[0])
            spot = sum(1 for _ in thinking)
            model[0][spot:spot] = stand_ins

    def _unbind_call(self, block: JSON) -> JSON:
        """A call without the reference to a removed server-side call."""
        caller = get(block, ("caller", "tool_id")) if type_of(block) == "tool_use" else None
        if caller is None or str(caller) not in self._waiting:
            return block
        return {key: value for key, value in cast(Object, block).items() if key != "caller"}

    def _repair_thinking(self, model: list[list[JSON]]) -> None:
        """Keep a turn's thinking complete and in place, or remove all of it."""
        blocks = [block for message in model for block in message]
        thinking = [block for block in blocks if type_of(block) in REASONING_TYPES]
        if not thinking:
            return
        opened = is_thinking_first([type_of(block) for block in blocks])
        in_place = all(
            opened or is_thinking_first(kinds)
            for kinds in ([type_of(block) for block in message] for message in model)
            if not REASONING_TYPES.isdisjoint(kinds)
        )
        whole = all(map(is_whole_thinking, thinking))
        if not whole or not in_place:
            self._record("A11" if whole else "A9", self._step.at, "dropped the turn's thinking")
            model[:] = [without_thinking(message) for message in model]
            return
        last = next(k for k in range(len(model) - 1, -1, -1) if model[k])
        if type_of(model[last][-1]) in REASONING_TYPES:
            self._record("A11", self._step.at + last, f"put {BLANK_TEXT} behind the thinking")
            model[last].append(text_block(BLANK_TEXT))

    def _model_rows(self, model: list[list[JSON]], answers: list[RepairedRow]) -> list[RepairedRow]:
        """The model's messages; an empty one is removed, unless it is the only or the last one."""
        rows: list[RepairedRow] = []
        final = len(model) - 1 if not answers else -1
        left = any(model)
        for k, (message, blocks) in enumerate(zip(self._step.model, model, strict=True)):
            at = self._step.at + k
            if k == final and _is_empty(message):
                rows.append(RepairedRow(message, at))
            elif blocks or (not left and k == 0):
                rows.append(RepairedRow(with_blocks(self._as_assistant(at, message), blocks), at))
                if not blocks:
                    self._record("A6", at, f"put {BLANK_TEXT} in its place")
            else:
                self._record("A6", at, "dropped the message, which says nothing")
        return rows

    def _as_assistant(self, at: int, message: JSON) -> JSON:
        """The model's message with its role; the same object if it has one."""
        if role_of(message) is not None:
            return message
        self._record("A0", at, "made it a message of the assistant: it holds a call")
        return {**cast(Object, message), "role": "assistant"}

    def _opening(self, model: list[list[JSON]], answers: list[RepairedRow]) -> list[RepairedRow]:
        """The missing user message at the start of a history."""
        if self._step.at or (not model and any(role_of(r.message) == "user" for r in answers)):
            return []
        first = next((blocks for blocks in model if blocks), [None])[0]
        if type_of(first) == "compaction":
            return []
        self._record("A7" if model else "A16", 0, "put a user message in front of it")
        return [RepairedRow(user_message(EARLIER_TEXT), None)]

    # The answers.

    def _answers(self, model: list[list[JSON]]) -> list[RepairedRow]:
        """The answers in order: complete results, other content, system messages."""
        step = self._step
        first = step.at + step.model_count
        users: list[_RepairedAnswer] = []
        others: list[_RepairedAnswer] = []
        order: list[_RepairedAnswer] = []
        for at, message in enumerate(step.answers, first):
            answer = self._answer(at, message)
            (others if answer.message.get("role") == "system" else users).append(answer)
            order.append(answer)
        if step.answers or self._late:
            self._put_results(users)
        kept = self._nonempty_messages(users)
        rows = self._ordered_rows(order, {id(answer) for answer in kept})
        if self._late and not users:
            rows.insert(0, RepairedRow({"role": "user", "content": self._late}, None))
        elif not kept and not users and self._is_user_turn_missing(others, model):
            rows.insert(0, RepairedRow(user_message(CONTINUE_TEXT), None))
            self._record("A16", first, "put a user message in front of it")
        return rows

    def _answer(self, at: int, source: JSON) -> _RepairedAnswer:
        """A valid message of the user or the system."""
        if not isinstance(source, dict):
            self._record("A0", at, "made it a message of the user")
            block = with_type(source)
            message: Object = {"role": "user", "content": [] if block is None else [block]}
        else:
            message = cast(Object, source)
        if message.get("role") not in ROLES:
            self._record("A0", at, "made it a message of the user")
            message = _as_user_message(message)
        answer = _RepairedAnswer(at, message)
        if message["role"] != "system" or not is_effort_only(message):
            for position, block in enumerate(self._contents(at, message)):
                answer.blocks += self._answer_block(answer, position, block)
        if message["role"] == "system" and not can_be_cleared(
            {**message, "content": answer.blocks}
        ):
            self._record("A16", at, "took clear_at off: it holds more than text")
            answer.message = {key: message[key] for key in message if key != "clear_at"}
        return answer

    def _answer_block(self, answer: _RepairedAnswer, position: int, source: JSON) -> list[JSON]:
        """The valid form of a block; a late result is set aside."""
        block = self._valid_block(answer.at, position, source)
        kind, role = type_of(block), answer.message["role"]
        if block is None:
            return []
        if kind == "tool_result":
            late = self._talked or role == "system"
            kept = self._result(answer.at, position, cast(Object, block), late)
        elif kind not in MISPLACED_TYPES[role]:
            kept = [block]
        elif kind == "tool_use":
            self._record("A0", answer.at, "made the call a text", position)
            call = cast(Object, block)
            said = misplaced_call_text(str(call.get("name")), compact_json(call.get("input")))
            kept = [text_block(said)]
        else:
            self._record("A0", answer.at, "dropped the thinking, which is not the user's", position)
            kept = []
        if role == "user":
            self._talked = self._talked or has_more_than_results(role, map(type_of, kept))
        return kept

    def _result(self, at: int, position: int, result: Object, late: bool) -> list[JSON]:
        """A result in its place, or as text; None if it moves or is removed."""
        old = result.get("tool_use_id")
        id = self._names.of_result(old)
        if id is not None:
            sound = valid_result(result, id)
            if old != id:
                code = "A3" if ID_PATTERN.match(str(old)) else "A4"
                self._record(code, at, "made the result fit its call", position)
            if not is_sound_content(result.get("content")):
                self._record("A0", at, "made its content text or blocks", position)
            if not late:
                return [sound]
            self._record("A1", at, "moved the result right behind its call", position)
            self._late.append(sound)
            return []
        if self._names.has_result_id(old):
            self._record("A3", at, "dropped the second result of one call", position)
            return []
        self._record("A2", at, "made the result a text: it has no call", position)
        return result_as_text(result)

    def _put_results(self, users: Sequence[_RepairedAnswer]) -> None:
        """Insert late results and placeholders before the first block that is no result."""
        for id in self._names.unanswered():
            self._record("A1", self._step.at, f"put a stand-in result for call {id!r}")
            self._late.append({"type": "tool_result", "tool_use_id": id, "content": NO_RESULT_TEXT})
        for user in users if self._late else ():
            spot = next((k for k, b in enumerate(user.blocks) if type_of(b) != "tool_result"), None)
            if spot is not None:
                user.blocks[spot:spot] = self._late
                return
        if users:
            users[-1].blocks += self._late

    def _nonempty_messages(self, users: Sequence[_RepairedAnswer]) -> list[_RepairedAnswer]:
        """The non-empty user messages; if there is none, the first with a placeholder."""
        kept = [user for user in users if user.blocks]
        if not kept and users:
            kept = [users[0]]
            self._record("A6", users[0].at, f"put {BLANK_TEXT} in its place")
        for user in users:
            if not user.blocks and user is not kept[0]:
                self._record("A6", user.at, "dropped the message, which says nothing more")
        return kept

    def _ordered_rows(
        self, answers: Sequence[_RepairedAnswer], users: set[int]
    ) -> list[RepairedRow]:
        """The rows in order; a system message moves behind a user message that follows it."""
        rows: list[RepairedRow] = []
        moved: list[RepairedRow] = []
        last = max((k for k, a in enumerate(answers) if id(a) in users), default=-1)
        for k, answer in enumerate(answers):
            system = answer.message["role"] == "system"
            if system and is_effort_only(answer.message):
                rows.append(RepairedRow(self._step.messages[answer.at - self._step.at], answer.at))
            elif not system:
                if id(answer) in users:
                    rows.append(RepairedRow(with_blocks(answer.message, answer.blocks), answer.at))
            else:
                if not answer.blocks:
                    self._record("A6", answer.at, f"put {BLANK_TEXT} in its place")
                if k < last:
                    self._record("A16", answer.at, "moved it behind the user's turn")
                (moved if k < last else rows).append(
                    RepairedRow(with_blocks(answer.message, answer.blocks), answer.at)
                )
        return _insert_behind(rows, moved, answers[last].at) if moved else rows

    def _is_user_turn_missing(
        self, others: Sequence[_RepairedAnswer], model: list[list[JSON]]
    ) -> bool:
        """Return whether system messages lack the user turn before them."""
        if not model or all(is_effort_only(answer.message) for answer in others):
            return False
        last = [blocks for blocks in model if blocks][-1:]
        return not last or not is_server_result_last(last[0])


def _as_user_message(message: Object) -> Object:
    """A message of an unknown role as a user message; all of it if it has no content."""
    content = message.get("content")
    if content is None:
        rest = {key: value for key, value in message.items() if key != "role"}
        content = compact_json(rest) if rest else ""
    return {"role": "user", "content": content}


def _has_more_than_results(message: JSON) -> bool:
    return has_more_than_results(role_of(message), map(type_of, blocks_of(message)))


def _insert_behind(rows: list[RepairedRow], moved: list[RepairedRow], at: int) -> list[RepairedRow]:
    """The rows with the moved ones after the row from this source."""
    spot = next(k for k, row in enumerate(rows) if row.source == at) + 1
    return [*rows[:spot], *moved, *rows[spot:]]


def _is_empty(message: JSON) -> bool:
    content = cast(Object, message).get("content")
    return isinstance(content, str | list) and not content


_RULES = AnthropicRules()
REPAIRED_CODES = frozenset(
    {"A0", "A1", "A2", "A3", "A4", "A6", "A7", "A8", "A9", "A11", "A15", "A16", "A18"}
)


class AnthropicRepairer:
    """Anthropic's repairs."""

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        """The repaired step, or None if nothing is broken."""
        problems = _RULES.check_step(step, state, fields)
        if not any(p.severity == "error" and p.code in REPAIRED_CODES for p in problems):
            return None
        repairer = _StepRepairer(step, state)
        return StepRepair(repairer.rows(), repairer.repairs)

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        """Add a user turn to a history that ends on assistant text, if one is required."""
        if fields is None or not count:
            return None
        run = last_turn(count, message_at)
        if run.stop < count:
            return None
        ending = EndRepair()
        if has_disabled_thinking(run, count, fields):
            run = _end_without_thinking(ending, run, message_at)
        last = count - 1
        if is_user_end_required(run, state, fields):
            message = ending.changes.get(last, message_at(last))
            if not blocks_of(message) or cast(Object, message)["content"] == "":
                ending.changes[last] = put(message, ("content",), [text_block(BLANK_TEXT)])
            ending.inserts[last] = [user_message(CONTINUE_TEXT)]
            ending.repairs.append(Repair("A7", f"messages[{last}]", "put a user message behind it"))
        elif has_trailing_whitespace(run, fields):
            ending.changes[last] = _trim_end(ending.changes.get(last, message_at(last)))
            ending.repairs.append(
                Repair("A7", f"messages[{last}]", "cut the white space at its end")
            )
        return ending if ending.repairs else None

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        """Keep the newest four valid breakpoints, none longer-lived than one before."""
        rows = _BreakpointRows(dict(rows_with_breakpoints))
        for row, message in rows_with_breakpoints:
            if has_useless_breakpoint(message):
                rows.change(row, strip_breakpoints(message), "A16", "removed the cache breakpoint")
            rows.strip_empty(row)
        head = head_breakpoints(fields or {})
        limit = MAX_BREAKPOINTS - len(head) - has_automatic_breakpoint(fields or {})
        if limit >= 0:
            rows.keep_newest(limit)
        rows.shorten(all(is_one_hour(control) for _, control in head))
        return EndRepair(rows.changes, {}, rows.repairs) if rows.repairs else None


def _end_without_thinking(
    ending: EndRepair, run: LastTurn, message_at: Callable[[int], JSON]
) -> LastTurn:
    """The last run without its thinking."""
    for at in range(run.start, run.stop):
        message = message_at(at)
        blocks = blocks_of(message)
        if any(type_of(block) in REASONING_TYPES for block in blocks):
            ending.changes[at] = with_blocks(message, without_thinking(blocks))
    ending.repairs.append(Repair("A11", f"messages[{run.start}]", "dropped the turn's thinking"))
    return last_turn(run.stop, lambda at: ending.changes.get(at, message_at(at)))


def _trim_end(message: JSON) -> JSON:
    """The message without white space at its end."""
    content = cast(Object, message)["content"]
    if isinstance(content, str):
        return put(message, ("content",), content.rstrip())
    end = len(cast(list[JSON], content)) - 1
    said = cast(str, get(message, ("content", end, "text")))
    return put(message, ("content", end, "text"), said.rstrip())


class _BreakpointRows:
    """The rows that carry cache breakpoints, during their removal."""

    def __init__(self, messages: dict[int, JSON]) -> None:
        self._messages = messages
        self.changes: dict[int, JSON] = {}
        self.repairs: list[Repair] = []

    def change(self, row: int, message: JSON, code: str, done: str) -> None:
        self._messages[row] = self.changes[row] = message
        self.repairs.append(Repair(code, f"messages[{row}]", done))

    def _breakpoints(self) -> list[tuple[int, BlockPath, Object]]:
        return [
            (row, path, control)
            for row, message in self._messages.items()
            for path, control in message_breakpoints(message)
        ]

    def strip_empty(self, row: int) -> None:
        """Remove breakpoints from empty texts inside results."""
        for path in empty_texts_with_breakpoint(self._messages[row]):
            bare = without(self._messages[row], (*path, "cache_control"))
            self.change(row, bare, "A6", "removed the cache breakpoint from an empty text")

    def keep_newest(self, limit: int) -> None:
        """Remove the oldest breakpoints until at most `limit` are left."""
        found = self._breakpoints()
        for row, path, _ in found[: max(len(found) - limit, 0)]:
            bare = without(self._messages[row], (*path, "cache_control"))
            self.change(row, bare, "A21", "removed an old cache breakpoint beyond the fourth")

    def shorten(self, long: bool) -> None:
        """Let no breakpoint last longer than one before it; `long`: no short one came before."""
        for row, path, control in self._breakpoints():
            if is_one_hour(control) and not long:
                short = without(self._messages[row], (*path, "cache_control", "ttl"))
                self.change(
                    row, short, "A21", "set the breakpoint's lifetime to 5m, like the one before it"
                )
            long = long and is_one_hour(control)
