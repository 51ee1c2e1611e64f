"""What Anthropic Messages would reject (rules A0 to A22), step by step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from ..codecs.anthropic import REASONING, is_server_result
from ..codecs.codec import Fields
from ..codecs.json_tree import JSON, Object
from ..codecs.marks import MARKS
from ..models import model_of
from .anthropic_plain import is_plain
from .anthropic_request import whole_request
from .anthropic_server import is_server_side, note_server_block, server_problems
from .problem import Problem
from .rules import Seen, Step, note_id

ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
ROLES = ("user", "assistant", "system")
# What only the other side of the conversation can say.
_OF_MODEL = frozenset({"tool_use"}) | REASONING
MISPLACED: Mapping[object, frozenset[str]] = {
    "assistant": frozenset({"tool_result"}),
    "user": _OF_MODEL,
    "system": _OF_MODEL | {"tool_result"},
}
_BEFORE_THINKING = frozenset({"compaction", "fallback"})
_MAY_BE_NULL = ("content", *MARKS)  # of a compaction


def blocks_of(message: JSON) -> list[JSON]:
    """The blocks of a message; a string counts as one text block."""
    content = cast(Object, message).get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast(list[JSON], content) if isinstance(content, list) else []


def type_of(block: JSON) -> str | None:
    """The block's type, or None when it has none."""
    kind = cast(Object, block).get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def role_of(message: JSON) -> object:
    """The message's role, or None."""
    return cast(Object, message).get("role") if isinstance(message, dict) else None


def is_blank_text(block: JSON) -> bool:
    """A text block that says nothing."""
    if type_of(block) != "text":
        return False
    text = cast(Object, block).get("text")
    return not isinstance(text, str) or not text.strip()


def is_effort_only(message: JSON) -> bool:
    """A system message that only sets the output's effort; it may stand anywhere."""
    holder = cast(Object, message)
    return not holder.get("content") and isinstance(holder.get("output_config"), dict)


def is_whole_thinking(block: Object) -> bool:
    """Whether a thinking block has all that the response gave it."""
    if block.get("type") == "redacted_thinking":
        return isinstance(block.get("data"), str)
    return isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)


def opens_with_thinking(kinds: Sequence[str | None]) -> bool:
    """Whether the first block that counts is thinking; what compaction puts in front does not."""
    first = next((kind for kind in kinds if kind not in _BEFORE_THINKING), None)
    return first in REASONING


def ends_in_server_result(blocks: Sequence[JSON]) -> bool:
    """Whether the blocks end with the result of a server-side tool."""
    return bool(blocks) and is_server_result(type_of(blocks[-1]))


class Turn(Struct, frozen=True, gc=False):
    """One message of a step with its blocks and their types, read once for all rules."""

    row: int
    role: object
    message: JSON
    blocks: list[JSON]
    kinds: list[str | None]


def turns_of(step: Step) -> tuple[list[Turn], list[Turn]]:
    """The model's turns and those that answer them."""
    turns: list[Turn] = []
    for at, message in enumerate(step.messages, step.at):
        blocks = blocks_of(message)
        turns.append(Turn(at, role_of(message), message, blocks, [type_of(b) for b in blocks]))
    return turns[: step.model_count], turns[step.model_count :]


class AnthropicRules:
    """Anthropic's rules."""

    def check_step(self, step: Step, state: Seen, fields: Fields | None) -> list[Problem]:
        """What is wrong inside this step."""
        return [] if is_plain(step, state) else self.check_every_rule(step, state)

    def check_every_rule(self, step: Step, state: Seen) -> list[Problem]:
        """What every rule says of this step."""
        model, answers = turns_of(step)
        last = step.at + len(step.messages) - 1 if not answers else -1
        return [
            *(p for turn in (*model, *answers) for p in _message_problems(turn, turn.row == last)),
            *_call_problems(model, state),
            *_pairing_problems(model, answers),
            *_server_problems(step, model, answers, state),
            *_thinking_problems(model),
            *_placement_problems(step, model, answers),
        ]

    def advance(self, step: Step, state: Seen) -> None:
        """Note the ids of this step's calls and which server-side calls wait for their result."""
        for message in step.model:
            for block in blocks_of(message):
                kind = type_of(block)
                if kind == "tool_use":
                    note_id(str(cast(Object, block).get("id")), state)
                elif is_server_side(kind):
                    note_server_block(block, state)
        if state.open_calls and any(talks(role_of(m), map(type_of, blocks_of(m))) for m in step.answers):
            state.open_calls.clear()  # too late for their results: told in this step, and not again

    def check_end(
        self, state: Seen, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """What is wrong with how the history ends."""
        if not count:
            return [Problem("A7", "messages", "The history is empty: it needs a user message.")]
        if fields is None:
            return []
        run = last_run(count, message_at)
        found = _thinking_mode_problems(run, count, fields)
        if run.stop == count and needs_user_end(run, state, fields):
            why = "The conversation must end with a user message."
            found.append(Problem("A7", f"messages[{count - 1}]", why))
        elif run.stop == count and ends_in_white_space(run, fields):
            why = "Final assistant content cannot end with whitespace."
            found.append(Problem("A7", f"messages[{count - 1}]", why))
        return found

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """What is wrong with the other fields, and with counts over the whole request."""
        return whole_request(messages, fields)


def _message_problems(turn: Turn, final: bool) -> list[Problem]:
    """A message that the API knows, and that says something."""
    place = f"messages[{turn.row}]"
    if not isinstance(turn.message, dict):
        return [Problem("A0", place, "A message must be an object with role and content.")]
    if turn.role not in ROLES:
        return [Problem("A0", place, f"Role {turn.role!r} is not one of user, assistant, system.")]
    content = cast(Object, turn.message).get("content")
    if turn.role == "system" and is_effort_only(cast(Object, turn.message)):
        return []
    if not isinstance(content, str | list):
        return [Problem("A0", place, "Content must be a string or a list of blocks.")]
    if not content:
        if final and turn.role == "assistant":
            return []
        return [Problem("A6", place, "A message must have non-empty content.")]
    if isinstance(content, str):
        return [] if content.strip() else [Problem("A6", place, "Text must not be blank.")]
    return _block_problems(place, turn)


def _block_problems(place: str, turn: Turn) -> list[Problem]:
    found: list[Problem] = []
    misplaced = MISPLACED[turn.role]
    for position, kind in enumerate(turn.kinds):
        judge = _JUDGES.get(kind)
        fault = judge(cast(Object, turn.blocks[position])) if judge else None
        if kind in misplaced:
            fault = "A0", f"A {kind} block cannot stand in a message of role {turn.role}."
        if fault is not None:
            found.append(Problem(fault[0], f"{place}.content[{position}]", fault[1]))
    return found


_Fault = tuple[str, str]


def _untyped(block: Object) -> _Fault | None:
    return "A0", "A block must be an object with a type."


def _text(block: Object) -> _Fault | None:
    text = block.get("text")
    if isinstance(text, str) and text.strip():
        return None
    return "A6", "A text block must not be blank."


def _compaction(block: Object) -> _Fault | None:
    if block.get("content") == "":
        return "A18", "A compaction block must not have empty content."
    nulls = nulls_of_compaction(block)
    return ("A15", f"A compaction block cannot hold null: {', '.join(nulls)}.") if nulls else None


def nulls_of_compaction(block: Object) -> list[str]:
    """Its fields that are null and must not be; without content it tells of a failure."""
    return [key for key, value in block.items() if value is None and key not in _MAY_BE_NULL]


def _result(block: Object) -> _Fault | None:
    if not isinstance(block.get("tool_use_id"), str):
        return "A4", "The tool_use_id of a result must be a string."
    if is_sound_content(block.get("content")):
        return None
    return "A0", "The content of a result must be a string or a list of blocks."


def is_sound_content(content: JSON) -> bool:
    """Whether a result can hold this: nothing, a string, or blocks."""
    if isinstance(content, list):
        return all(type_of(item) is not None for item in cast(list[JSON], content))
    return content is None or isinstance(content, str)


_JUDGES: Mapping[str | None, Callable[[Object], _Fault | None]] = {
    None: _untyped,
    "text": _text,
    "compaction": _compaction,
    "tool_result": _result,
}


def _call_problems(model: Sequence[Turn], state: Seen) -> list[Problem]:
    """Ids, names and arguments of the calls in this step."""
    found: list[Problem] = []
    here: set[str] = set()
    for turn in model:
        for position, kind in enumerate(turn.kinds):
            if kind != "tool_use":
                continue
            call = cast(Object, turn.blocks[position])
            id, name = call.get("id"), call.get("name")
            if not isinstance(id, str) or not ID.match(id):
                why = f"Id {id!r} must be letters, digits, _ and - only."
                found.append(Problem("A4", f"{_place(turn, position)}.id", why))
            elif id in state.call_counts or id in here:
                why = f"Id {id!r} is used by an earlier call."
                found.append(Problem("A3", f"{_place(turn, position)}.id", why))
            here.add(str(id))
            if not isinstance(name, str) or not name:
                why = "A call must name its tool."
                found.append(Problem("A0", f"{_place(turn, position)}.name", why))
            if not isinstance(call.get("input"), dict):
                why = "The input of a call must be an object."
                found.append(Problem("A4", f"{_place(turn, position)}.input", why))
    return found


def _place(turn: Turn, position: int) -> str:
    return f"messages[{turn.row}].content[{position}]"


def _pairing_problems(model: Sequence[Turn], answers: Sequence[Turn]) -> list[Problem]:
    """Calls answered at once, results first, one result a call."""
    calls = [
        (str(cast(Object, turn.blocks[position]).get("id")), turn, position)
        for turn in model
        for position, kind in enumerate(turn.kinds)
        if kind == "tool_use"
    ]
    asked = {id for id, _, _ in calls}
    answered: set[str] = set()
    found: list[Problem] = []
    talked = False
    for turn in answers:
        if turn.role == "system":
            continue
        for position, kind in enumerate(turn.kinds):
            if kind != "tool_result":
                talked = True
                continue
            id = str(cast(Object, turn.blocks[position]).get("tool_use_id"))
            if id not in asked:
                why = f"Result for {id!r}, which the turn before did not call."
                found.append(Problem("A2", _place(turn, position), why))
            elif id in answered:
                why = f"A second result for call {id!r}."
                found.append(Problem("A3", _place(turn, position), why))
            elif talked:
                why = "Results must come before any other block."
                found.append(Problem("A1", _place(turn, position), why))
            answered.add(id)
    if answers and not asked <= answered:
        found += [
            Problem("A1", _place(turn, position), f"Call {id!r} has no result right after it.")
            for id, turn, position in calls
            if id not in answered
        ]
    return found


def talks(role: object, kinds: Iterable[str | None]) -> bool:
    """Whether a message holds more than results; the provider's own words are not asked."""
    return role != "system" and any(kind != "tool_result" for kind in kinds)


def _server_problems(
    step: Step, model: Sequence[Turn], answers: Sequence[Turn], state: Seen
) -> list[Problem]:
    """Pairs of the tools that the provider ran."""
    blocks = [
        (_place(turn, position), cast(Object, turn.blocks[position]))
        for turn in model
        for position, kind in enumerate(turn.kinds)
        if is_server_side(kind)
    ]
    if not blocks and not state.open_calls:
        return []
    talked = any(talks(turn.role, turn.kinds) for turn in answers)
    return server_problems(blocks, step.at, talked, state)


def _thinking_problems(model: Sequence[Turn]) -> list[Problem]:
    """Thinking stands first, never last, and as it came.

    The API joins neighbouring messages, so only what is wrong either way is told.
    """
    if not any(kind in REASONING for turn in model for kind in turn.kinds):
        return []
    found: list[Problem] = []
    opened = opens_with_thinking([kind for turn in model for kind in turn.kinds])
    for turn in model:
        thinking = [k for k, kind in enumerate(turn.kinds) if kind in REASONING]
        if thinking and not opened and not opens_with_thinking(turn.kinds):
            why = "A turn with thinking must start with it."
            found.append(Problem("A11", _place(turn, 0), why))
        found += [
            Problem("A9", _place(turn, k), "A thinking block must stay as it came.")
            for k in thinking
            if not is_whole_thinking(cast(Object, turn.blocks[k]))
        ]
    if model[-1].kinds and model[-1].kinds[-1] in REASONING:
        why = "The last block of a turn cannot be thinking."
        found.append(Problem("A11", f"messages[{model[-1].row}]", why))
    return found


def _placement_problems(
    step: Step, model: Sequence[Turn], answers: Sequence[Turn]
) -> list[Problem]:
    """Where user and system messages may stand."""
    found: list[Problem] = _first_problems(model, answers) if step.at == 0 else []
    talked = not model or ends_in_server_result(model[-1].blocks)
    waiting: int | None = None  # a system message that nothing may follow but the assistant
    for turn in answers:
        if turn.role == "user":
            if waiting is not None:
                why = "A system message must stand before an assistant turn."
                found.append(Problem("A16", f"messages[{waiting}]", why))
            talked, waiting = True, None
        elif turn.role == "system" and not is_effort_only(turn.message):
            if not talked:
                why = "A system message must stand right after a user turn."
                found.append(Problem("A16", f"messages[{turn.row}]", why))
            waiting = turn.row
            if not may_be_cleared(cast(Object, turn.message)):
                why = "A message with clear_at holds text only."
                found.append(Problem("A16", f"messages[{turn.row}]", why))
    return found


def _first_problems(model: Sequence[Turn], answers: Sequence[Turn]) -> list[Problem]:
    """The history opens with the user, or with a compaction."""
    if model:
        if model[0].kinds[:1] == ["compaction"]:
            return []
        return [Problem("A7", "messages[0]", "The first message must be the user's.")]
    if answers and answers[0].role == "system" and not is_effort_only(answers[0].message):
        return [Problem("A16", "messages[0]", "A system message cannot come first.")]
    if all(turn.role == "system" for turn in answers):
        return [Problem("A7", "messages[0]", "The history needs a message of the user first.")]
    return []


def may_be_cleared(message: Object) -> bool:
    """Whether a system message is text only, where it asks to be cleared."""
    if message.get("clear_at") in (None, "never"):
        return True
    return all(type_of(block) == "text" for block in blocks_of(message))


class Run(Struct, frozen=True):
    """The last run of assistant messages: where it stands, and all its blocks."""

    start: int
    stop: int
    blocks: list[JSON]
    kinds: list[str | None]


def last_run(count: int, message_at: Callable[[int], JSON]) -> Run:
    """The last assistant turn; neighbouring messages count as one."""
    stop = count
    while stop > 0 and role_of(message_at(stop - 1)) != "assistant":
        stop -= 1
    start = stop
    while start > 0 and role_of(message_at(start - 1)) == "assistant":
        start -= 1
    blocks = [block for at in range(start, stop) for block in blocks_of(message_at(at))]
    return Run(start, stop, blocks, [type_of(block) for block in blocks])


def thinking_mode(fields: Fields) -> object:
    """The type of the request's thinking, or None."""
    mode = fields.get("thinking")
    return cast(Object, mode).get("type") if isinstance(mode, dict) else None


def thinks_when_disabled(run: Run, count: int, fields: Fields) -> bool:
    """Whether the history ends on thinking that the request's mode does not allow."""
    if thinking_mode(fields) != "disabled" or run.stop != count:
        return False
    return any(kind in REASONING for kind in run.kinds)


def _thinking_mode_problems(run: Run, count: int, fields: Fields) -> list[Problem]:
    """What the thinking mode of the request asks of the last assistant turn."""
    place = f"messages[{run.start}]"
    if thinks_when_disabled(run, count, fields):
        return [Problem("A11", place, "With thinking disabled the last turn cannot hold thinking.")]
    if thinking_mode(fields) != "enabled" or "tool_use" not in run.kinds:
        return []
    if opens_with_thinking(run.kinds):
        return []
    return [Problem("A10", place, "With thinking enabled this turn must start with thinking.")]


def _ends_on_words(run: Run, state: Seen) -> bool:
    """Whether the last turn waits for nothing: no pending call, not paused by the provider."""
    if "tool_use" in run.kinds or state.open_calls:
        return False
    return not run.kinds or not is_server_side(run.kinds[-1])


def needs_user_end(run: Run, state: Seen, fields: Fields) -> bool:
    """Whether this model does not go on from words of its own that end the history."""
    model = model_of(fields.get("model"))
    if model is None or model.maker != "anthropic" or model.version < (4, 6):
        return False
    return _ends_on_words(run, state)


def ends_in_white_space(run: Run, fields: Fields) -> bool:
    """Whether words that the model is to go on from end in white space."""
    model = model_of(fields.get("model"))
    if model is None or model.maker != "anthropic" or not run.blocks:
        return False
    text = cast(Object, run.blocks[-1]).get("text") if run.kinds[-1] == "text" else None
    return isinstance(text, str) and text != text.rstrip()
