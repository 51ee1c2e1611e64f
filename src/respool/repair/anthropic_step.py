"""One step of an Anthropic history made sound: its blocks, its pairs, its thinking, its order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple, cast

from msgspec import Struct, field

from ..check.anthropic import (
    ID,
    MISPLACED,
    ROLES,
    blocks_of,
    ends_in_server_result,
    is_blank_text,
    is_effort_only,
    is_sound_content,
    is_whole_thinking,
    may_be_cleared,
    nulls_of_compaction,
    opens_with_thinking,
    role_of,
    talks,
    type_of,
)
from ..check.anthropic_server import fits, fits_open, server_tool
from ..check.rules import Seen, Step
from ..codecs.anthropic import REASONING, SERVER_CALLS, is_server_result
from ..codecs.json_tree import JSON, Object, compact_text, get
from .anthropic_blocks import (
    Names,
    server_stand_in,
    sound_result,
    text_block,
    told_result,
    typed,
    user_message,
    with_blocks,
    without_thinking,
)
from .arguments import as_object
from .mending import Repair, Row
from .words import BLANK, CONTINUE, EARLIER, NO_RESULT, misplaced_call

UNNAMED = "unknown"  # the tool of a call that names none


class _Waiting(NamedTuple):
    """A server-side call without a result yet, and where it stands among the kept blocks."""

    message: int
    block: int
    call: Object


class _Answer(Struct):
    """A message behind the model's, while it is mended."""

    at: int
    message: Object
    blocks: list[JSON] = field(default_factory=list[JSON])


class StepMending:
    """One step on its way to being sound; every change is noted."""

    def __init__(self, step: Step, state: Seen) -> None:
        self._step = step
        self._seen = state
        self._names = Names(state)
        self._late: list[JSON] = []  # results that have to move to the front
        self._talked = False  # whether the user has said something but results
        self._waiting: dict[str, list[_Waiting]] = {}  # server-side calls of this step
        self._closed: set[str] = set()  # server-side calls of earlier steps with their result
        self.repairs: list[Repair] = []

    def rows(self) -> list[Row]:
        """The step's messages, mended."""
        step = self._step
        contents = [self._contents(step.at + k, message) for k, message in enumerate(step.model)]
        model = [self._model_blocks(step.at + k, blocks) for k, blocks in enumerate(contents)]
        answers = self._answers(model)
        if any(_talks(row.message) for row in answers):
            self._settle_server_calls(model)
        self._repair_thinking(model)
        return [*self._opening(model, answers), *self._model_rows(model, answers), *answers]

    def _record(self, code: str, at: int, done: str, position: int | None = None) -> None:
        block = "" if position is None else f".content[{position}]"
        self.repairs.append(Repair(code, f"messages[{at}]{block}", done))

    def _contents(self, at: int, message: JSON) -> list[JSON]:
        """The blocks that a message has, or that can be made of what it has."""
        content = cast(Object, message).get("content")
        if isinstance(content, str | list):
            return blocks_of(message)
        self._record("A0", at, "made its content a list of blocks")
        if type_of(content) is not None:
            return [content]
        block = typed(content)
        return [] if block is None else [block]

    def _valid_block(self, at: int, position: int, block: JSON) -> JSON | None:
        """The block if it can be sent, or what can be sent of it; None when there is nothing."""
        kind = type_of(block)
        if kind is None:
            self._record("A0", at, "made it a text block, or dropped it if it was empty", position)
            return typed(block)
        if is_blank_text(block):
            self._record("A6", at, "dropped the blank text", position)
            return None
        if kind == "compaction" and cast(Object, block).get("content") == "":
            self._record("A18", at, "dropped the empty compaction", position)
            return None
        if kind == "compaction" and (nulls := nulls_of_compaction(cast(Object, block))):
            self._record("A15", at, f"left out what is null: {', '.join(nulls)}", position)
            return {key: value for key, value in cast(Object, block).items() if key not in nulls}
        return block

    # The model's messages.

    def _model_blocks(self, at: int, blocks: Sequence[JSON]) -> list[JSON]:
        """Sound blocks with sound calls; results that stand here move behind them."""
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
                    place = _Waiting(at - self._step.at, len(kept), call)
                    self._waiting.setdefault(str(call.get("id")), []).append(place)
                kept.append(block)
        return kept

    def _repair_call(self, at: int, position: int, call: Object) -> Object:
        id = self._names.of_call(call.get("id"))
        if call.get("id") != id:
            code = "A3" if ID.match(str(call.get("id"))) else "A4"
            self._record(code, at, f"renamed the id to {id}", position)
            call = {**call, "id": id}
        if not isinstance(call.get("name"), str) or not call["name"]:
            self._record("A0", at, f"named the tool {UNNAMED!r}", position)
            call = {**call, "name": UNNAMED}
        if not isinstance(call.get("input"), dict):
            self._record("A4", at, "made the input an object", position)
            call = {**call, "input": as_object(call.get("input"))}
        return call

    def _is_expected(self, result: Object) -> bool:
        """Whether a server-side result answers a call that waits."""
        id = str(result.get("tool_use_id"))
        if id in self._waiting and fits(result, server_tool(self._waiting[id][-1].call)):
            del self._waiting[id]
            return True
        if id in self._closed or not fits_open(result, self._seen):
            return False
        self._closed.add(id)
        return True

    def _settle_server_calls(self, model: list[list[JSON]]) -> None:
        """The user speaks: calls of this step without result go, earlier ones get a stand-in."""
        at = self._step.at
        gone = {(one.message, one.block) for calls in self._waiting.values() for one in calls}
        for k, blocks in enumerate(model if gone else []):
            stay = [block for n, block in enumerate(blocks) if (k, n) not in gone]
            model[k] = [self._unbind_call(block) for block in stay]
        for name in self._waiting:
            self._record("A8", at, f"dropped server-side call {name!r}, which has no result")
        names = list(self._seen.item_rows)
        late = [id for id in self._seen.open_calls if id not in self._closed]
        stand_ins = [server_stand_in(id, names[self._seen.open_calls[id]]) for id in late]
        for name in late:
            self._record("A8", at, f"put a stand-in result for server-side call {name!r}")
        if stand_ins:
            thinking = takewhile(lambda block: type_of(block) in REASONING, model[0])
            spot = sum(1 for _ in thinking)
            model[0][spot:spot] = stand_ins

    def _unbind_call(self, block: JSON) -> JSON:
        """A call without the tie to a server-side call that is gone."""
        caller = get(block, ("caller", "tool_id")) if type_of(block) == "tool_use" else None
        if caller is None or str(caller) not in self._waiting:
            return block
        return {key: value for key, value in cast(Object, block).items() if key != "caller"}

    def _repair_thinking(self, model: list[list[JSON]]) -> None:
        """A turn's thinking stays whole and in its place, or all of it goes."""
        blocks = [block for message in model for block in message]
        thinking = [block for block in blocks if type_of(block) in REASONING]
        if not thinking:
            return
        opened = opens_with_thinking([type_of(block) for block in blocks])
        in_place = all(
            opened or opens_with_thinking(kinds)
            for kinds in ([type_of(block) for block in message] for message in model)
            if not REASONING.isdisjoint(kinds)
        )
        whole = all(map(is_whole_thinking, thinking))
        if not whole or not in_place:
            self._record("A11" if whole else "A9", self._step.at, "dropped the turn's thinking")
            model[:] = [without_thinking(message) for message in model]
            return
        last = next(k for k in range(len(model) - 1, -1, -1) if model[k])
        if type_of(model[last][-1]) in REASONING:
            self._record("A11", self._step.at + last, f"put {BLANK} behind the thinking")
            model[last].append(text_block(BLANK))

    def _model_rows(self, model: list[list[JSON]], answers: list[Row]) -> list[Row]:
        """The model's messages; an empty one goes, unless nothing else or the end is left."""
        rows: list[Row] = []
        final = len(model) - 1 if not answers else -1
        left = any(model)
        for k, (message, blocks) in enumerate(zip(self._step.model, model, strict=True)):
            at = self._step.at + k
            if k == final and _is_empty(message):
                rows.append(Row(message, at))
            elif blocks or (not left and k == 0):
                rows.append(Row(with_blocks(message, blocks), at))
                if not blocks:
                    self._record("A6", at, f"put {BLANK} in its place")
            else:
                self._record("A6", at, "dropped the message, which says nothing")
        return rows

    def _opening(self, model: list[list[JSON]], answers: list[Row]) -> list[Row]:
        """The user message that a history has to start with, where it is missing."""
        if self._step.at or (not model and any(role_of(r.message) == "user" for r in answers)):
            return []
        first = next((blocks for blocks in model if blocks), [None])[0]
        if type_of(first) == "compaction":
            return []
        self._record("A7" if model else "A16", 0, "put a user message in front of it")
        return [Row(user_message(EARLIER), None)]

    # What answers them.

    def _answers(self, model: list[list[JSON]]) -> list[Row]:
        """Results first and complete, then what else was said, then system messages."""
        step = self._step
        first = step.at + step.model_count
        users: list[_Answer] = []
        others: list[_Answer] = []
        order: list[_Answer] = []
        for at, message in enumerate(step.answers, first):
            answer = self._answer(at, message)
            (others if answer.message.get("role") == "system" else users).append(answer)
            order.append(answer)
        if step.answers or self._late:
            self._put_results(users)
        kept = self._nonempty_messages(users)
        rows = self._ordered_rows(order, {id(answer) for answer in kept})
        if self._late and not users:
            rows.insert(0, Row({"role": "user", "content": self._late}, None))
        elif not kept and not users and self._is_user_turn_missing(others, model):
            rows.insert(0, Row(user_message(CONTINUE), None))
            self._record("A16", first, "put a user message in front of it")
        return rows

    def _answer(self, at: int, source: JSON) -> _Answer:
        """A message as the user or the system can have said it."""
        if not isinstance(source, dict):
            self._record("A0", at, "made it a message of the user")
            block = typed(source)
            message: Object = {"role": "user", "content": [] if block is None else [block]}
        else:
            message = cast(Object, source)
        if message.get("role") not in ROLES:
            self._record("A0", at, "made it a message of the user")
            message = _of_user(message)
        answer = _Answer(at, message)
        if message["role"] != "system" or not is_effort_only(message):
            for position, block in enumerate(self._contents(at, message)):
                answer.blocks += self._answer_block(answer, position, block)
        if message["role"] == "system" and not may_be_cleared(
            {**message, "content": answer.blocks}
        ):
            self._record("A16", at, "took clear_at off: it holds more than text")
            answer.message = {key: message[key] for key in message if key != "clear_at"}
        return answer

    def _answer_block(self, answer: _Answer, position: int, source: JSON) -> list[JSON]:
        """What is sent of a block; a result that comes too late is put aside."""
        block = self._valid_block(answer.at, position, source)
        kind, role = type_of(block), answer.message["role"]
        if block is None:
            return []
        if kind == "tool_result":
            late = self._talked or role == "system"
            told = self._result(answer.at, position, cast(Object, block), late)
        elif kind not in MISPLACED[role]:
            told = [block]
        elif kind == "tool_use":
            self._record("A0", answer.at, "told the call as text", position)
            call = cast(Object, block)
            said = misplaced_call(str(call.get("name")), compact_text(call.get("input")))
            told = [text_block(said)]
        else:
            self._record("A0", answer.at, "dropped the thinking, which is not the user's", position)
            told = []
        if role == "user":
            self._talked = self._talked or talks(role, map(type_of, told))
        return told

    def _result(self, at: int, position: int, result: Object, late: bool) -> list[JSON]:
        """A result in its place; nothing where it has to move or go; or its words."""
        old = result.get("tool_use_id")
        id = self._names.of_result(old)
        if id is not None:
            sound = sound_result(result, id)
            if old != id:
                code = "A3" if ID.match(str(old)) else "A4"
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
        self._record("A2", at, "told the result as text, for no call waits for it", position)
        return told_result(result)

    def _put_results(self, users: Sequence[_Answer]) -> None:
        """Late results and stand-ins right before the first thing that is no result."""
        for id in self._names.unanswered():
            self._record("A1", self._step.at, f"put a stand-in result for call {id!r}")
            self._late.append({"type": "tool_result", "tool_use_id": id, "content": NO_RESULT})
        for user in users if self._late else ():
            spot = next((k for k, b in enumerate(user.blocks) if type_of(b) != "tool_result"), None)
            if spot is not None:
                user.blocks[spot:spot] = self._late
                return
        if users:
            users[-1].blocks += self._late

    def _nonempty_messages(self, users: Sequence[_Answer]) -> list[_Answer]:
        """The user's messages that hold something; if none does, the first one says so."""
        kept = [user for user in users if user.blocks]
        if not kept and users:
            kept = [users[0]]
            self._record("A6", users[0].at, f"put {BLANK} in its place")
        for user in users:
            if not user.blocks and user is not kept[0]:
                self._record("A6", user.at, "dropped the message, which says nothing more")
        return kept

    def _ordered_rows(self, answers: Sequence[_Answer], users: set[int]) -> list[Row]:
        """The rows in order; a system message moves behind the user's where one follows it."""
        rows: list[Row] = []
        moved: list[Row] = []
        last = max((k for k, a in enumerate(answers) if id(a) in users), default=-1)
        for k, answer in enumerate(answers):
            system = answer.message["role"] == "system"
            if system and is_effort_only(answer.message):
                rows.append(Row(self._step.messages[answer.at - self._step.at], answer.at))
            elif not system:
                if id(answer) in users:
                    rows.append(Row(with_blocks(answer.message, answer.blocks), answer.at))
            else:
                if not answer.blocks:
                    self._record("A6", answer.at, f"put {BLANK} in its place")
                if k < last:
                    self._record("A16", answer.at, "moved it behind the user's turn")
                (moved if k < last else rows).append(
                    Row(with_blocks(answer.message, answer.blocks), answer.at)
                )
        return _behind(rows, moved, answers[last].at) if moved else rows

    def _is_user_turn_missing(self, others: Sequence[_Answer], model: list[list[JSON]]) -> bool:
        """Whether system messages stand where only the user's turn may stand before them."""
        if not model or all(is_effort_only(answer.message) for answer in others):
            return False
        last = [blocks for blocks in model if blocks][-1:]
        return not last or not ends_in_server_result(last[0])


def _of_user(message: Object) -> Object:
    """What a message of no known role says, said by the user; all of it where it has no content."""
    content = message.get("content")
    if content is None:
        told = {key: value for key, value in message.items() if key != "role"}
        content = compact_text(told) if told else ""
    return {"role": "user", "content": content}


def _talks(message: JSON) -> bool:
    return talks(role_of(message), map(type_of, blocks_of(message)))


def _behind(rows: list[Row], moved: list[Row], at: int) -> list[Row]:
    """The rows with the moved ones behind the row from this source."""
    spot = next(k for k, row in enumerate(rows) if row.source == at) + 1
    return [*rows[:spot], *moved, *rows[spot:]]


def _is_empty(message: JSON) -> bool:
    content = cast(Object, message).get("content")
    return isinstance(content, str | list) and not content
