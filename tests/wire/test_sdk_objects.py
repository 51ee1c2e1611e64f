"""Histories that hold SDK objects."""

from __future__ import annotations

import copy
import datetime
import enum
from typing import Any

import pytest
from pydantic import BaseModel

import respool
from respool.wire.body import as_plain_data
from tests.judges import HISTORY_JUDGES
from tests.late import late

anthropic_types = late("anthropic.types")
gemini_types = late("google.genai.types")
mcp_types = late("mcp.types")
chat_types = late("openai.types.chat")
responses_types = late("openai.types.responses")

TURNS = 12
AT_ONCE = respool.Policy(eager=True, keep_exchanges=0)


def printed(turn: int) -> str:
    return "\n".join(
        f"row {line} of table {turn % 3}, as the tool printed it" for line in range(400)
    )


def anthropic_history() -> list[Any]:
    """`messages.append({"role": "assistant", "content": response.content})`, and an MCP result."""
    history: list[Any] = [{"role": "user", "content": "Look at the tables."}]
    for turn in range(TURNS):
        answer = anthropic_types.Message.model_validate(
            {
                "id": f"msg_{turn}",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "stop_reason": "tool_use",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
                "content": [
                    {"type": "text", "text": f"Table {turn}.", "citations": None},
                    {"type": "tool_use", "id": f"t{turn}", "name": "show", "input": {"of": turn}},
                ],
            }
        )
        told = mcp_types.CallToolResult.model_validate(
            {"content": [{"type": "text", "text": printed(turn)}]}
        )
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": told.content}
        history += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [result]},
        ]
    return history


def chat_history() -> list[Any]:
    """`messages.append(response.choices[0].message)`."""
    history: list[Any] = [{"role": "user", "content": "Look at the tables."}]
    for turn in range(TURNS):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "show", "arguments": f'{{"table": {turn}}}'},
        }
        told = {"role": "assistant", "content": None, "tool_calls": [call]}
        history += [
            chat_types.ChatCompletionMessage.model_validate(told),
            {"role": "tool", "tool_call_id": f"c{turn}", "content": printed(turn)},
        ]
    return history


def responses_history() -> list[Any]:
    """`input += response.output`."""
    history: list[Any] = [{"role": "user", "content": "Look at the tables."}]
    for turn in range(TURNS):
        thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "e"}
        call = {
            "type": "function_call", "id": f"fc_{turn}", "call_id": f"c{turn}", "name": "show",
            "arguments": f'{{"table": {turn}}}', "status": "completed",
        }  # fmt: skip
        history += [
            responses_types.ResponseReasoningItem.model_validate(thought),
            responses_types.ResponseFunctionToolCall.model_validate(call),
            {"type": "function_call_output", "call_id": f"c{turn}", "output": printed(turn)},
        ]
    return history


def gemini_history() -> list[Any]:
    """`contents.append(response.candidates[0].content)`, and a response made into a part."""
    history: list[Any] = [
        gemini_types.Content(
            role="user", parts=[gemini_types.Part.from_text(text="Look at the tables.")]
        )
    ]
    for turn in range(TURNS):
        call = gemini_types.Part(
            function_call=gemini_types.FunctionCall(name="show", args={"table": turn}),
            thought_signature=b"\xff\xfe" + bytes([turn]),
        )
        told = gemini_types.Part.from_function_response(
            name="show", response={"output": printed(turn)}
        )
        history += [
            gemini_types.Content(role="model", parts=[call]),
            gemini_types.Content(role="user", parts=[told]),
        ]
    return history


HISTORIES = {
    "anthropic": anthropic_history,
    "openai-chat": chat_history,
    "openai-responses": responses_history,
    "gemini": gemini_history,
}
formats = pytest.mark.parametrize("format", HISTORIES)


def dumped(history: list[Any]) -> list[Any]:
    return [as_plain_data(at, message) for at, message in enumerate(history)]


@formats
def test_it_is_compacted_as_the_plain_data_that_the_sdk_sends(format: str):
    history = HISTORIES[format]()
    out = respool.compact(history, policy=AT_ONCE)
    beside = respool.compact(dumped(history), policy=AT_ONCE)
    assert out.report.untouched is None
    assert out.report.format == format
    assert out.report.edits == beside.report.edits != ()
    assert out.originals == beside.originals
    assert dumped(out.request) == beside.request
    assert HISTORY_JUDGES[format](beside.request) == []


@formats
def test_what_no_edit_touches_is_the_same_object_and_nothing_is_changed(format: str):
    history = HISTORIES[format]()
    before = copy.deepcopy(history)
    out = respool.compact(history, policy=AT_ONCE)
    assert history == before
    by_model = [at for at, one in enumerate(history) if at and not _is_result(one)]
    assert by_model
    assert all(out.request[at] is history[at] for at in by_model)


@formats
def test_an_object_and_its_plain_data_are_one_conversation(format: str):
    """A history that was saved and loaded goes on where it was."""
    history = HISTORIES[format]()
    memo = respool.Memo()
    before = respool.compact(history, memo=memo)
    loaded = respool.compact(dumped(history), memo=memo)
    assert loaded.report.prefix == before.report.prefix is not None
    assert loaded.request == dumped(before.request)


@formats
def test_it_is_judged_and_mended_as_well(format: str):
    history = HISTORIES[format]()
    assert respool.check(history) == []
    cut = history[:-1]  # a call without its result, and words behind it
    text = {"gemini": {"role": "user", "parts": [{"text": "Go on."}]}}
    cut.append(text.get(format, {"role": "user", "content": "Go on."}))
    assert respool.check(cut) != []
    repaired = respool.repair(cut)
    assert respool.check(repaired.request) == []
    assert repaired.request[1] is history[1]


def test_what_an_sdk_keeps_to_itself_is_not_sent():
    parsed = late("anthropic.types.parsed_message").ParsedTextBlock[Any]
    block = parsed(type="text", text="hi", parsed_output={"a": 1})
    assert as_plain_data(0, {"content": [block]}) == {"content": [{"type": "text", "text": "hi"}]}


def test_bytes_dates_and_tuples_are_read_as_they_are_sent():
    day = datetime.date(2026, 11, 16)
    assert as_plain_data(0, {"data": b"\xfb\xff", "at": day, "of": (1, "a")}) == {
        "data": "+/8=",
        "at": "2026-11-16",
        "of": [1, "a"],
    }


class Text(str):
    """As template engines and array libraries have them."""


def of_own_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {Text(key): of_own_types(one) for key, one in value.items()}
    if isinstance(value, list):
        return [of_own_types(one) for one in value]
    return Text(value) if isinstance(value, str) else value


@formats
def test_words_of_a_type_of_their_own_are_read_as_words(format: str):
    history = dumped(HISTORIES[format]())
    out = respool.compact(of_own_types(history), policy=AT_ONCE, memo=None)
    assert out.request == respool.compact(history, policy=AT_ONCE, memo=None).request
    assert respool.check(of_own_types(history)) == []


def test_an_enumeration_is_what_it_stands_for():
    told = as_plain_data(0, {"role": Role.USER, "of": Number.ONE})
    assert told == {"role": "user", "of": 1}
    assert [type(one) for one in told.values()] == [str, int]


class Role(str, enum.Enum):  # noqa: UP042 - as most code that is older than StrEnum has it
    USER = "user"


class Number(enum.IntEnum):
    ONE = 1


def test_plain_data_is_the_same_object():
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert as_plain_data(0, message) is message


class Loud(BaseModel):
    """A model that cannot be dumped."""

    def model_dump(self, **how: Any) -> dict[str, Any]:
        raise RuntimeError


class Odd(BaseModel):
    """A model that dumps something that is no data."""

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {"what": object()}


@pytest.mark.parametrize("value", [object(), Loud(), Odd(), {"deep": [object()]}])
def test_what_cannot_be_told_is_refused_by_name(value: Any):
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [value]}]
    out = respool.compact(history, format="anthropic")
    assert out.request is history
    kind = "object" if isinstance(value, dict) else type(value).__name__
    assert f"Message 1 holds a {kind} object" in str(out.report.untouched)


def test_a_history_that_holds_itself_is_no_hang():
    history: list[Any] = [{"role": "user", "content": "go"}]
    history.append({"role": "assistant", "content": history})
    assert respool.compact(history, format="anthropic").request is history


def _is_result(message: Any) -> bool:
    told = as_plain_data(0, message)
    kinds = [*told.get("content", ())] if isinstance(told.get("content"), list) else []
    return (
        told.get("role") == "tool"
        or told.get("type") == "function_call_output"
        or any("tool_result" in str(kind.get("type")) for kind in kinds)
        or any("functionResponse" in part for part in told.get("parts", ()))
    )
