"""Conversations without what this server or its template cannot take, so that the rest is judged.

Left out: media; notes, and a second message of the user in a row, which the template refuses (T2);
tools that a provider runs itself; kinds of calls and items that the server has not heard of;
reasoning items without their text, and messages without a type, on the Responses wire.
"""

from __future__ import annotations

from dataclasses import replace

from tests.strategies.neutral import Ask, Call, Conversation, Result, Step, Turn, pick


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
