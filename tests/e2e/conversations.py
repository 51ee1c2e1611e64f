"""Conversations for a model server: broken ones, short ones, and ones that grow by turns.

Left out: media; notes, and a second message of the user in a row, which the template refuses (T2);
tools that a provider runs itself; kinds of calls and items that the server has not heard of;
reasoning items without their text, and messages without a type, on the Responses wire.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.strategies import render
from tests.strategies.neutral import Ask, Call, Conversation, Result, Step, Turn, moments, pick

Messages = list[Any]
Message = dict[str, Any]

SCHEMA = {"type": "object", "properties": {}}
HEADS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "local",
        "tools": [{"type": "function", "function": {"name": "run", "parameters": SCHEMA}}],
    },
    "anthropic": {
        "model": "local",
        "max_tokens": 64,
        "tools": [{"name": "run", "input_schema": SCHEMA}],
    },
    "openai-responses": {
        "model": "local",
        "store": False,
        "tools": [{"type": "function", "name": "run", "parameters": SCHEMA, "strict": False}],
    },
}

# Chat Completions

ASK: Message = {"role": "user", "content": "Why does it fail?"}
MORE: Message = {"role": "user", "content": "And now?"}


def chat_call(id: Any, arguments: Any = '{"command": "make"}') -> Message:
    return {"id": id, "type": "function", "function": {"name": "run", "arguments": arguments}}


def calling(*calls: Message, text: str | None = None) -> Message:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def answer(id: Any, text: Any = "1 failed") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


A, B = chat_call("call_a"), chat_call("call_b")
NAMELESS = {key: value for key, value in A.items() if key != "id"}
UNTYPED = {key: value for key, value in A.items() if key != "type"}

CHAT: dict[str, Messages] = {
    "unmatched call": [ASK, calling(A), MORE],
    "unmatched result": [ASK, calling(A), answer("call_a"), answer("call_z"), MORE],
    "the front cut off": [answer("call_a"), calling(B), answer("call_b"), MORE],
    "a result after the user's words": [ASK, answer("call_a"), calling(B), answer("call_b")],
    "renamed result": [ASK, calling(A), answer("call_z")],
    "interleaved": [ASK, calling(A), MORE, answer("call_a")],
    "interleaved with a system note": [
        ASK, calling(A), {"role": "system", "content": "Be brief."}, answer("call_a"),
    ],
    "duplicate result": [ASK, calling(A), answer("call_a"), answer("call_a")],
    "duplicate result that differs": [ASK, calling(A), answer("call_a"), answer("call_a", "ok")],
    "duplicate step": [ASK, calling(A), calling(A), answer("call_a")],
    "wrong order": [ASK, answer("call_a"), calling(A), MORE],
    "two steps, answers swapped": [
        ASK, calling(A), answer("call_b"), calling(B), answer("call_a"), MORE,
    ],
    "answers behind both steps": [ASK, calling(A), calling(B), answer("call_a"), answer("call_b")],
    "parallel, one answer": [ASK, calling(A, B), answer("call_b"), MORE],
    "parallel, answers around text": [ASK, calling(A, B), answer("call_a"), MORE, answer("call_b")],
    "parallel, one answered twice": [ASK, calling(A, B), answer("call_a"), answer("call_a"), MORE],
    "mixed with text, unanswered": [ASK, calling(A, text="I look."), MORE],
    "mixed with text, interleaved": [
        ASK, calling(A, B, text="I look."), answer("call_a"), calling(text="So."), answer("call_b"),
    ],
    "no ids": [ASK, calling(NAMELESS), {"role": "tool", "content": "1 failed"}],
    "a call without a type": [ASK, calling(UNTYPED), answer("call_a")],
    "arguments cut off": [ASK, calling(chat_call("call_a", '{"command": "ma')), answer("call_a")],
    "arguments empty": [ASK, calling(chat_call("call_a", "")), answer("call_a")],
    "arguments that are prose": [ASK, calling(chat_call("call_a", "run make")), answer("call_a")],
    "a message that is a string": [ASK, calling(A), answer("call_a"), "go on"],
    "a role nobody knows": [ASK, calling(A), {**answer("call_a"), "role": "tool_result"}],
}  # fmt: skip

# Anthropic Messages

TEXT = {"type": "text", "text": "I look."}


def use(id: Any, input: Any = None) -> Message:
    return {"type": "tool_use", "id": id, "name": "run", "input": input or {"command": "make"}}


def result(id: Any, text: str = "1 failed") -> Message:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def model(*blocks: Message) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Message) -> Message:
    return {"role": "user", "content": list(blocks)}


ANTHROPIC: dict[str, Messages] = {
    "unmatched call": [ASK, model(use("toolu_a")), MORE],
    "unmatched result": [ASK, model(TEXT), user(result("toolu_a"))],
    "the front cut off": [user(result("toolu_a")), model(use("toolu_b")), user(result("toolu_b"))],
    "renamed result": [ASK, model(use("toolu_a")), user(result("toolu_z"))],
    "duplicate result": [ASK, model(use("toolu_a")), user(result("toolu_a"), result("toolu_a"))],
    "interleaved": [ASK, model(use("toolu_a")), MORE, user(result("toolu_a"))],
    "text in front of a result": [ASK, model(use("toolu_a")), user(TEXT, result("toolu_a"))],
    "wrong order": [ASK, user(result("toolu_a")), model(use("toolu_a")), MORE],
    "parallel, one answer": [
        ASK, model(use("toolu_a"), use("toolu_b")), user(result("toolu_b")),
    ],
    "parallel, answers in two messages around text": [
        ASK, model(use("toolu_a"), use("toolu_b")), user(result("toolu_a")), model(TEXT),
        user(result("toolu_b")),
    ],
    "input that is no object": [ASK, model(use("toolu_a", "make")), user(result("toolu_a"))],
    "mixed with text": [ASK, model(TEXT, use("toolu_a")), MORE],
}  # fmt: skip

# Responses

SAID = {"type": "message", "role": "user", "content": "Why does it fail?"}
TOLD = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}


def item(id: str, arguments: str = '{"command": "make"}') -> Message:
    return {"type": "function_call", "call_id": id, "name": "run", "arguments": arguments}


def output(id: str, text: str = "1 failed") -> Message:
    return {"type": "function_call_output", "call_id": id, "output": text}


RESPONSES: dict[str, Messages] = {
    "unmatched call": [SAID, item("call_a"), SAID],
    "unmatched result": [SAID, TOLD, output("call_a")],
    "the front cut off": [output("call_a"), item("call_b"), output("call_b")],
    "renamed result": [SAID, item("call_a"), output("call_z")],
    "duplicate result": [SAID, item("call_a"), output("call_a"), output("call_a")],
    "duplicate call": [SAID, item("call_a"), item("call_a"), output("call_a")],
    "wrong order": [SAID, output("call_a"), item("call_a"), SAID],
    "parallel, one answer": [SAID, item("call_a"), item("call_b"), output("call_b"), SAID],
    "mixed with text": [SAID, TOLD, item("call_a"), SAID],
    "arguments cut off": [SAID, item("call_a", '{"command": "ma'), output("call_a")],
    "arguments that are prose": [SAID, item("call_a", "run make"), output("call_a")],
}

BROKEN: dict[str, dict[str, Messages]] = {
    "openai-chat": CHAT,
    "anthropic": ANTHROPIC,
    "openai-responses": RESPONSES,
}


def fit(format: str, conversation: Conversation) -> Conversation:
    """The conversation as far as this server can take it in this format."""
    turns = tuple(_turn(format, turn) for turn in conversation.turns)
    ids = conversation.ids or format == "openai-responses"
    return replace(conversation, turns=turns, note=None, compacted=None, ids=ids, alone=False)


def _turn(format: str, turn: Turn) -> Turn:
    return Turn(_ask(format, turn.ask), tuple(_step(format, step) for step in turn.steps))


def _ask(format: str, ask: Ask) -> Ask:
    form = pick(ask.form, 0, 3) if format == "openai-responses" else ask.form
    return Ask(("\n\n".join(ask.texts),), image=False, document=False, future=False, form=form)


def _step(format: str, step: Step) -> Step:
    withheld = format == "openai-responses" and step.form // 2 % 3 != 1
    return replace(
        step,
        note=None,
        compaction=None,
        reasoning=None if withheld else step.reasoning,
        text=step.text or (None if step.calls else "Done."),
        server=None,
        calls=tuple(_call(call) for call in step.calls),
        future=False,
    )


def _call(call: Call) -> Call:
    return replace(call, result=_result(call.result), form=call.form % 4)


def _result(result: Result) -> Result:
    form = 2 if result.form % 6 == 4 else result.form
    return replace(result, image=False, document=False, form=form)


def conversation(lines: int = 16) -> Conversation:
    """A short conversation with all that matters: parallel calls, failures, words beside calls."""
    long = "\n".join(f"{n}: def wind_{n}(spool)" for n in range(lines))

    def call(form: int, text: str, error: bool = False) -> Call:
        return Call(
            "Bash", {"command": f"make {form}"}, Result((text,), False, False, error, 0), form
        )

    def step(*calls: Call, text: str | None = None) -> Step:
        return Step(None, None, None, text, None, calls, False, 0)

    def ask(text: str) -> Ask:
        return Ask((text,), False, False, False, 0)

    first = step(call(0, long), call(1, "1 failed", error=True), text="I look.")
    return Conversation(
        system=("Be brief.",),
        turns=(
            Turn(ask("Why does it fail?"), (first, step(call(2, "ok")), step(text="Mended."))),
            Turn(ask("And now?"), (step(call(0, "ok")),)),
        ),
        note=None,
        thinking="off",
        tools=True,
        compacted=None,
        ids=True,
        signed=False,
        breakpoint_style=0,
        form=0,
    )


def growing(format: str, lines: tuple[int, ...]) -> list[dict[str, Any]]:
    """The requests of one agent's turn whose calls give so many lines each."""
    whole = conversation()
    turn = whole.turns[0]
    call = turn.steps[0].calls[0]
    steps = tuple(
        replace(turn.steps[1], calls=(replace(call, result=_lines(count, seed)),))
        for seed, count in enumerate(lines)
    )
    whole = replace(whole, turns=(replace(turn, steps=steps),))
    return [render(format, moment) for moment in moments(fit(format, whole))]


def _lines(count: int, seed: int) -> Result:
    text = "\n".join(f"{n}: thread {n * 7 + seed} of loom {seed}" for n in range(count))
    return Result((text,), image=False, document=False, error=False, form=0)
