"""Anthropic's rules for a history (A0 to A22), checked step by step."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from ...model_names import parse_model_name
from ...regex import lazy_compile
from ...wire.base import Fields
from ...wire.json import JSON, Object
from ...wire.message_identity import BREAKPOINT_FIELDS
from ..base import Problem, RuleSpec, RuleState, Step, count_call_id
from .codec import REASONING_TYPES, SERVER_CALLS, is_server_result
from .request_rules import check_whole_request

ID_PATTERN = lazy_compile(r"[a-zA-Z0-9_-]+\Z")


def is_plain(step: Step, state: RuleState) -> bool:
    """Return whether a step has the usual shape, which breaks no rule; False proves nothing.

    One model turn with text, calls and at most one leading thinking block; all its calls
    answered at once, then text of the user. Such a step passes every rule.
    """
    if step.model_count != (step.at > 0) or state.open_calls:
        return False
    calls: set[str] = set()
    if step.model_count and not _is_plain_turn(step.messages[0], calls, state.call_counts):
        return False
    talked = False
    for message in step.messages[step.model_count :]:
        said = _is_plain_answer(message, calls, talked)
        if said is None:
            return False
        talked = said
    return not calls or len(step.messages) == step.model_count


def _is_plain_turn(message: JSON, calls: set[str], state: Container[str]) -> bool:
    """Return whether the model's turn is plain; record its calls."""
    content: JSON = message.get("content")
    if isinstance(content, str):
        return _is_not_blank(content)
    blocks: list[JSON] = content
    if not isinstance(content, list) or not content:
        return False
    last = len(blocks) - 1
    for position, block in enumerate(blocks):
        holder: Object = block
        if not isinstance(block, dict):
            return False
        kind = holder.get("type")
        if kind == "tool_use":
            if not _is_plain_call(holder, calls, state):
                return False
        elif kind == "thinking":
            whole = isinstance(holder.get("thinking"), str) and isinstance(
                holder.get("signature"), str
            )
            if position or not last or not whole:
                return False
        elif kind != "text" or not _is_not_blank(holder.get("text")):
            return False
    return True


def _is_plain_call(call: Object, calls: set[str], state: Container[str]) -> bool:
    id = call.get("id")
    if not isinstance(id, str) or id in calls or id in state or not ID_PATTERN.match(id):
        return False
    calls.add(id)
    name = call.get("name")
    return isinstance(call.get("input"), dict) and isinstance(name, str) and name != ""


def _is_plain_answer(message: JSON, calls: set[str], talked: bool) -> bool | None:
    """Return whether the user has written text by now; None if the message is not plain."""
    holder: Object = message
    if not isinstance(message, dict) or holder.get("role") != "user":
        return None
    content: JSON = holder.get("content")
    if isinstance(content, str):
        return True if _is_not_blank(content) else None
    blocks: list[JSON] = content
    if not isinstance(content, list) or not content:
        return None
    for block in blocks:
        inner: Object = block
        if not isinstance(block, dict):
            return None
        if inner.get("type") == "text" and _is_not_blank(inner.get("text")):
            talked = True
        elif talked or not _is_plain_result(inner, calls):
            return None
    return talked


def _is_plain_result(block: Object, calls: set[str]) -> bool:
    """Return whether the block is the text result of a pending call, and settle that call."""
    id = block.get("tool_use_id")
    if block.get("type") != "tool_result" or not isinstance(id, str) or id not in calls:
        return False
    calls.remove(id)
    return isinstance(block.get("content", ""), str)


def _is_not_blank(text: object) -> bool:
    return isinstance(text, str) and bool(text) and not text.isspace()


_TOOL_SEARCH = "tool_search_tool"  # several tools, one type of result
# The type of each tool's results; a tool that is not listed is not checked.
RESULT_TYPES: Mapping[str, str] = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "advisor": "advisor_tool_result",
    "mcp": "mcp_tool_result",
    _TOOL_SEARCH: "tool_search_tool_result",
}


def is_server_side(kind: str | None) -> bool:
    """Return whether a block is a call or a result of a tool that the provider runs."""
    return kind in SERVER_CALLS or is_server_result(kind)


def server_tool(call: Object) -> str:
    """The tool of a server-side call; tools with the same type of result share one name."""
    if call.get("type") == "mcp_tool_use":
        return "mcp"
    name = str(call.get("name"))
    return _TOOL_SEARCH if name.startswith(_TOOL_SEARCH) else name


def is_result_of(result: Object, tool: str) -> bool:
    """Return whether a result has the type of this tool's results."""
    return RESULT_TYPES.get(tool, result.get("type")) == result.get("type")


def is_result_of_open_call(result: Object, state: RuleState) -> bool:
    """Return whether a result answers a pending call of an earlier step."""
    id = str(result.get("tool_use_id"))
    if id not in state.open_calls:
        return False
    number = state.open_calls[id]
    return all(
        is_result_of(result, tool) for tool in RESULT_TYPES if state.item_rows.get(tool) == number
    )


def track_server_block(block: JSON, state: RuleState) -> None:
    """Record a server-side call as pending, with its tool by number, or as settled."""
    holder = cast(Object, block)
    if holder.get("type") in SERVER_CALLS:
        number = state.item_rows.setdefault(server_tool(holder), len(state.item_rows))
        state.open_calls[str(holder.get("id"))] = number
    elif is_result_of_open_call(holder, state):
        del state.open_calls[str(holder.get("tool_use_id"))]


def check_server_pairs(
    blocks: Iterable[tuple[str, Object]], at: int, talked: bool, state: RuleState
) -> list[Problem]:
    """Check that results follow their calls before the next user text; blocks have places.

    A call may be pending over several steps while the user only answers calls.
    """
    found: list[Problem] = []
    here: dict[str, tuple[str, str]] = {}  # pending calls of this step: their tools and places
    closed: set[str] = set()  # calls of earlier steps that got their result
    for place, block in blocks:
        if block.get("type") in SERVER_CALLS:
            here[str(block.get("id"))] = server_tool(block), place
            continue
        id = str(block.get("tool_use_id"))
        if id in here and is_result_of(block, here[id][0]):
            del here[id]
        elif id not in closed and is_result_of_open_call(block, state):
            closed.add(id)
        else:
            why = f"Result for {id!r} without its call."
            if id in here:
                why = f"A {block.get('type')} does not answer {here[id][0]!r}, which {id!r} called."
            found.append(Problem("A8", place, why))
    if talked:
        late = {id: f"messages[{at}]" for id in state.open_calls if id not in closed}
        late |= {id: place for id, (_, place) in here.items()}
        found += [
            Problem("A8", place, f"Server-side call {id!r} has no result.")
            for id, place in late.items()
        ]
    return found


ROLES = ("user", "assistant", "system")
# Blocks that only the other role can send.
_MODEL_TYPES = frozenset({"tool_use"}) | REASONING_TYPES
MISPLACED_TYPES: Mapping[object, frozenset[str]] = {
    "assistant": frozenset({"tool_result"}),
    "user": _MODEL_TYPES,
    "system": _MODEL_TYPES | {"tool_result"},
}
_BEFORE_THINKING = frozenset({"compaction", "fallback"})
_NULLABLE = ("content", *BREAKPOINT_FIELDS)  # of a compaction


def blocks_of(message: JSON) -> list[JSON]:
    """The blocks of a message; a string counts as one text block."""
    content = cast(Object, message).get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast(list[JSON], content) if isinstance(content, list) else []


def type_of(block: JSON) -> str | None:
    """The block's type, or None."""
    kind = cast(Object, block).get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def role_of(message: JSON) -> object:
    """The message's role, or None."""
    return cast(Object, message).get("role") if isinstance(message, dict) else None


def is_blank_text(block: JSON) -> bool:
    """Return whether this is a blank text block."""
    if type_of(block) != "text":
        return False
    text = cast(Object, block).get("text")
    return not isinstance(text, str) or not text.strip()


def is_effort_only(message: JSON) -> bool:
    """Return whether a system message only sets the effort; it may stand anywhere."""
    holder = cast(Object, message)
    return not holder.get("content") and isinstance(holder.get("output_config"), dict)


def is_whole_thinking(block: Object) -> bool:
    """Return whether a thinking block is complete."""
    if block.get("type") == "redacted_thinking":
        return isinstance(block.get("data"), str)
    return isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)


def is_thinking_first(kinds: Sequence[str | None]) -> bool:
    """Return whether the first block is thinking; a leading compaction block is ignored."""
    first = next((kind for kind in kinds if kind not in _BEFORE_THINKING), None)
    return first in REASONING_TYPES


def is_server_result_last(blocks: Sequence[JSON]) -> bool:
    """Return whether the blocks end with the result of a server-side tool."""
    return bool(blocks) and is_server_result(type_of(blocks[-1]))


class ParsedMessage(Struct, frozen=True, gc=False):
    """One message of a step with its blocks and their types, parsed once for all rules."""

    row: int
    role: object
    message: JSON
    blocks: list[JSON]
    kinds: list[str | None]


def parse_step(step: Step) -> tuple[list[ParsedMessage], list[ParsedMessage]]:
    """The parsed model turns of a step, and their answers."""
    turns: list[ParsedMessage] = []
    for at, message in enumerate(step.messages, step.at):
        blocks = blocks_of(message)
        turns.append(
            ParsedMessage(
                at,
                role_of(message),
                message=message,
                blocks=blocks,
                kinds=[type_of(b) for b in blocks],
            )
        )
    return turns[: step.model_count], turns[step.model_count :]


class AnthropicRules:
    """Anthropic's rules."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        """Problems inside this step."""
        return [] if is_plain(step, state) else self.check_every_rule(step, state)

    def check_every_rule(self, step: Step, state: RuleState) -> list[Problem]:
        """Problems of this step by every rule."""
        model, answers = parse_step(step)
        last = step.at + len(step.messages) - 1 if not answers else -1
        return [
            *(p for turn in (*model, *answers) for p in _message_problems(turn, turn.row == last)),
            *_call_problems(model, state),
            *_pairing_problems(model, answers),
            *_server_pair_problems(step, model, answers, state),
            *_thinking_problems(model),
            *_placement_problems(step, model, answers),
        ]

    def advance(self, step: Step, state: RuleState) -> None:
        """Record the ids of this step's calls and the pending server-side calls."""
        for message in step.model:
            for block in blocks_of(message):
                kind = type_of(block)
                if kind == "tool_use":
                    count_call_id(str(cast(Object, block).get("id")), state)
                elif is_server_side(kind):
                    track_server_block(block, state)
        if state.open_calls and any(
            has_more_than_results(role_of(m), map(type_of, blocks_of(m))) for m in step.answers
        ):
            state.open_calls.clear()  # too late for their results: reported in this step only

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        """Problems of the end of the history."""
        if not count:
            return [Problem("A7", "messages", "The history is empty: it needs a user message.")]
        if fields is None:
            return []
        run = last_turn(count, message_at)
        found = _thinking_mode_problems(run, count, fields)
        if run.stop == count and is_user_end_required(run, state, fields):
            why = "The conversation must end with a user message."
            found.append(Problem("A7", f"messages[{count - 1}]", why))
        elif run.stop == count and has_trailing_whitespace(run, fields):
            why = "Final assistant content cannot end with whitespace."
            found.append(Problem("A7", f"messages[{count - 1}]", why))
        return found

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        """Problems of the other fields, and of counts over the whole request."""
        return check_whole_request(messages, fields)


def _message_problems(turn: ParsedMessage, final: bool) -> list[Problem]:
    """Problems of a message's shape and content."""
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


def _block_problems(place: str, turn: ParsedMessage) -> list[Problem]:
    found: list[Problem] = []
    misplaced = MISPLACED_TYPES[turn.role]
    for position, kind in enumerate(turn.kinds):
        judge = _BLOCK_CHECKS.get(kind)
        fault = judge(cast(Object, turn.blocks[position])) if judge else None
        if kind in misplaced:
            fault = "A0", f"A {kind} block cannot stand in a message of role {turn.role}."
        if fault is not None:
            found.append(Problem(fault[0], f"{place}.content[{position}]", fault[1]))
    return found


_Fault = tuple[str, str]


def _check_untyped(block: Object) -> _Fault | None:
    return "A0", "A block must be an object with a type."


def _check_text(block: Object) -> _Fault | None:
    text = block.get("text")
    if isinstance(text, str) and text.strip():
        return None
    return "A6", "A text block must not be blank."


def _check_compaction(block: Object) -> _Fault | None:
    if block.get("content") == "":
        return "A18", "A compaction block must not have empty content."
    nulls = null_fields(block)
    return ("A15", f"A compaction block cannot hold null: {', '.join(nulls)}.") if nulls else None


def null_fields(block: Object) -> list[str]:
    """The fields that are null and must not be; a result without content is a failure."""
    return [key for key, value in block.items() if value is None and key not in _NULLABLE]


def _check_result(block: Object) -> _Fault | None:
    if not isinstance(block.get("tool_use_id"), str):
        return "A4", "The tool_use_id of a result must be a string."
    if is_sound_content(block.get("content")):
        return None
    return "A0", "The content of a result must be a string or a list of blocks."


def is_sound_content(content: JSON) -> bool:
    """Return whether this is valid content of a result: nothing, a string, or blocks."""
    if isinstance(content, list):
        return all(type_of(item) is not None for item in cast(list[JSON], content))
    return content is None or isinstance(content, str)


_BLOCK_CHECKS: Mapping[str | None, Callable[[Object], _Fault | None]] = {
    None: _check_untyped,
    "text": _check_text,
    "compaction": _check_compaction,
    "tool_result": _check_result,
}


def _call_problems(model: Sequence[ParsedMessage], state: RuleState) -> list[Problem]:
    """Problems of ids, names and arguments of the calls in this step."""
    found: list[Problem] = []
    here: set[str] = set()
    for turn in model:
        for position, kind in enumerate(turn.kinds):
            if kind != "tool_use":
                continue
            call = cast(Object, turn.blocks[position])
            id, name = call.get("id"), call.get("name")
            if not isinstance(id, str) or not ID_PATTERN.match(id):
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


def _place(turn: ParsedMessage, position: int) -> str:
    return f"messages[{turn.row}].content[{position}]"


def _pairing_problems(
    model: Sequence[ParsedMessage], answers: Sequence[ParsedMessage]
) -> list[Problem]:
    """Problems of pairs: calls are answered at once, results first, one result a call."""
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


def has_more_than_results(role: object, kinds: Iterable[str | None]) -> bool:
    """Return whether a message holds more than results; the provider's own blocks are ignored."""
    return role != "system" and any(kind != "tool_result" for kind in kinds)


def _server_pair_problems(
    step: Step, model: Sequence[ParsedMessage], answers: Sequence[ParsedMessage], state: RuleState
) -> list[Problem]:
    """Problems of pairs of server-side tools."""
    blocks = [
        (_place(turn, position), cast(Object, turn.blocks[position]))
        for turn in model
        for position, kind in enumerate(turn.kinds)
        if is_server_side(kind)
    ]
    if not blocks and not state.open_calls:
        return []
    talked = any(has_more_than_results(turn.role, turn.kinds) for turn in answers)
    return check_server_pairs(blocks, step.at, talked, state)


def _thinking_problems(model: Sequence[ParsedMessage]) -> list[Problem]:
    """Problems of thinking: it comes first, never last, and unchanged.

    The API joins neighbouring messages, so only problems in both readings are reported.
    """
    if not any(kind in REASONING_TYPES for turn in model for kind in turn.kinds):
        return []
    found: list[Problem] = []
    opened = is_thinking_first([kind for turn in model for kind in turn.kinds])
    for turn in model:
        thinking = [k for k, kind in enumerate(turn.kinds) if kind in REASONING_TYPES]
        if thinking and not opened and not is_thinking_first(turn.kinds):
            why = "A turn with thinking must start with it."
            found.append(Problem("A11", _place(turn, 0), why))
        found += [
            Problem("A9", _place(turn, k), "A thinking block must stay as it came.")
            for k in thinking
            if not is_whole_thinking(cast(Object, turn.blocks[k]))
        ]
    if model[-1].kinds and model[-1].kinds[-1] in REASONING_TYPES:
        why = "The last block of a turn cannot be thinking."
        found.append(Problem("A11", f"messages[{model[-1].row}]", why))
    return found


def _placement_problems(
    step: Step, model: Sequence[ParsedMessage], answers: Sequence[ParsedMessage]
) -> list[Problem]:
    """Problems of the order of user and system messages."""
    found: list[Problem] = _first_problems(model, answers) if step.at == 0 else []
    talked = not model or is_server_result_last(model[-1].blocks)
    waiting: int | None = None  # a system message that only the assistant may follow
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
            if not can_be_cleared(cast(Object, turn.message)):
                why = "A message with clear_at holds text only."
                found.append(Problem("A16", f"messages[{turn.row}]", why))
    return found


def _first_problems(
    model: Sequence[ParsedMessage], answers: Sequence[ParsedMessage]
) -> list[Problem]:
    """Problems of the first message: the user's, or a compaction."""
    if model:
        if model[0].kinds[:1] == ["compaction"]:
            return []
        return [Problem("A7", "messages[0]", "The first message must be the user's.")]
    if answers and answers[0].role == "system" and not is_effort_only(answers[0].message):
        return [Problem("A16", "messages[0]", "A system message cannot come first.")]
    if all(turn.role == "system" for turn in answers):
        return [Problem("A7", "messages[0]", "The history needs a message of the user first.")]
    return []


def can_be_cleared(message: Object) -> bool:
    """Return whether a system message that asks to be cleared is text only."""
    if message.get("clear_at") in (None, "never"):
        return True
    return all(type_of(block) == "text" for block in blocks_of(message))


class LastTurn(Struct, frozen=True):
    """The last run of assistant messages: its rows and all its blocks."""

    start: int
    stop: int
    blocks: list[JSON]
    kinds: list[str | None]


def last_turn(count: int, message_at: Callable[[int], JSON]) -> LastTurn:
    """The last assistant turn; neighbouring messages count as one."""
    stop = count
    while stop > 0 and role_of(message_at(stop - 1)) != "assistant":
        stop -= 1
    start = stop
    while start > 0 and role_of(message_at(start - 1)) == "assistant":
        start -= 1
    blocks = [block for at in range(start, stop) for block in blocks_of(message_at(at))]
    return LastTurn(start, stop, blocks, [type_of(block) for block in blocks])


def thinking_mode(fields: Fields) -> object:
    """The type of the request's thinking, or None."""
    mode = fields.get("thinking")
    return cast(Object, mode).get("type") if isinstance(mode, dict) else None


def has_disabled_thinking(run: LastTurn, count: int, fields: Fields) -> bool:
    """Return whether the history ends on thinking that the request's mode forbids."""
    if thinking_mode(fields) != "disabled" or run.stop != count:
        return False
    return any(kind in REASONING_TYPES for kind in run.kinds)


def _thinking_mode_problems(run: LastTurn, count: int, fields: Fields) -> list[Problem]:
    """Problems of the last assistant turn with the request's thinking mode."""
    place = f"messages[{run.start}]"
    if has_disabled_thinking(run, count, fields):
        return [Problem("A11", place, "With thinking disabled the last turn cannot hold thinking.")]
    if thinking_mode(fields) != "enabled" or "tool_use" not in run.kinds:
        return []
    if is_thinking_first(run.kinds):
        return []
    return [Problem("A10", place, "With thinking enabled this turn must start with thinking.")]


def _is_complete(run: LastTurn, state: RuleState) -> bool:
    """Return whether the last turn is complete: no pending call, not paused."""
    if "tool_use" in run.kinds or state.open_calls:
        return False
    return not run.kinds or not is_server_side(run.kinds[-1])


def is_user_end_required(run: LastTurn, state: RuleState, fields: Fields) -> bool:
    """Return whether this model requires the history to end with a user message."""
    model = parse_model_name(fields.get("model"))
    if model is None or model.maker != "anthropic" or model.version < (4, 6):
        return False
    return _is_complete(run, state)


def has_trailing_whitespace(run: LastTurn, fields: Fields) -> bool:
    """Return whether text to be continued by the model ends in white space."""
    model = parse_model_name(fields.get("model"))
    if model is None or model.maker != "anthropic" or not run.blocks:
        return False
    text = cast(Object, run.blocks[-1]).get("text") if run.kinds[-1] == "text" else None
    return isinstance(text, str) and text != text.rstrip()


# Rules in the words of the reference, which is generated from this table.
RULE_SPECS: Final[tuple[RuleSpec, ...]] = (
    RuleSpec(
        "A0",
        "A message has a known role and content that is a string or blocks of types which this "
        "role may hold; a call names its tool.",
        "error",
        "Unknown roles become `user`; misplaced calls and other data become text.",
    ),
    RuleSpec(
        "A1",
        "Every `tool_use` is answered in the next message, results first.",
        "error",
        "Late results move there; a missing one becomes `[no result was recorded for this call]`.",
    ),
    RuleSpec(
        "A2",
        "A `tool_result` answers a call of the turn before it.",
        "error",
        "It becomes user text.",
    ),
    RuleSpec(
        "A3",
        "Call ids are unique, and each call has one result.",
        "error",
        "The first result stays; a repeated id gets a number.",
    ),
    RuleSpec(
        "A4",
        "An id has only letters, digits, `_` and `-`; a call's `input` is an object.",
        "error",
        'The id is rewritten; JSON in a string is unpacked; other input goes into `{"input": …}`.',
    ),
    RuleSpec(
        "A5",
        "A history with tool calls comes with `tools`.",
        "error",
    ),
    RuleSpec(
        "A6",
        "No message is empty, no text is blank, and no cache breakpoint is on empty text.",
        "error",
        "Blank blocks are removed, inside a result only their breakpoints; a message that would "
        "be empty is removed or says `[blank]`.",
    ),
    RuleSpec(
        "A7",
        "The first message is the user's or opens with `compaction`; from Claude 4.6 on the last "
        "one is the user's too, and before that it does not end in white space.",
        "error",
        "A user message is added, or the white space is cut.",
    ),
    RuleSpec(
        "A8",
        "A tool that the provider runs is declared in `tools`, and its call has a result of its "
        "type.",
        "error",
        "A single half is removed; an open call of an earlier turn gets a result.",
    ),
    RuleSpec(
        "A9",
        "`thinking` and `redacted_thinking` come back as they were sent.",
        "error",
        "The thinking of that turn is removed, or gets text behind it.",
    ),
    RuleSpec(
        "A10",
        "With thinking `enabled`, the last turn that calls tools starts with thinking.",
        "error",
    ),
    RuleSpec(
        "A11",
        "Thinking is first in its turn and never last, and with thinking `disabled` the final "
        "turn has none.",
        "error",
        "The thinking of that turn is removed.",
    ),
    RuleSpec(
        "A14",
        "The model supports the thinking mode and the tool choice.",
        "error",
    ),
    RuleSpec(
        "A15",
        "A beta's field comes with the beta's name, if the request lists its betas.",
        "error",
    ),
    RuleSpec(
        "A15",
        "A `compaction` block holds no null, except `content` where compaction failed.",
        "error",
        "Null fields are removed.",
    ),
    RuleSpec(
        "A16",
        "A `system` message follows a user turn or a server tool's result and precedes an "
        "assistant turn; with `clear_at` it holds text without breakpoints.",
        "error",
        "It moves behind the user's turn; a wrong `clear_at` or breakpoint is removed.",
    ),
    RuleSpec(
        "A16",
        "Older models may not know system messages in the history.",
        "warning",
    ),
    RuleSpec(
        "A17",
        "`tool_addition` and `tool_removal` name declared tools.",
        "error",
    ),
    RuleSpec(
        "A18",
        "A `compaction` block is not empty.",
        "error",
        "The block is removed.",
    ),
    RuleSpec(
        "A20",
        "Clearing of thinking comes first among the edits of `context_management`.",
        "error",
    ),
    RuleSpec(
        "A21",
        "There are at most four cache breakpoints, and none of an hour behind one of five minutes.",
        "error",
        "The oldest in the history are removed; the hour becomes five minutes.",
    ),
    RuleSpec(
        "A22",
        "A request has at most 600 images (100 before Claude 4.6), 8,000 pixels a side (2,000 "
        "with over 20 images), 100,000 messages and 33,554,432 bytes.",
        "error",
    ),
)
