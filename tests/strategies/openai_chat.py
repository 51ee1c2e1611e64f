"""Whole OpenAI Chat Completions requests, as agents send them to OpenAI and to its likes."""

from __future__ import annotations

import json
from typing import Any

from tests.strategies.neutral import (
    FUTURE,
    PDF,
    PIXEL,
    TOOLS,
    Ask,
    Call,
    Conversation,
    Result,
    Step,
    pick,
)

Part = dict[str, Any]
Message = dict[str, Any]


def render(conversation: Conversation) -> dict[str, Any]:
    """The request that a client would send at the end of this conversation."""
    request: dict[str, Any] = {
        "model": pick(conversation.form, "gpt-4.1", "qwen3-coder", "deepseek-reasoner"),
        "messages": _Writer(conversation).messages,
    }
    if conversation.tools:
        request["tools"] = [*map(_tool, TOOLS), {"type": "custom", "custom": {"name": "patch"}}]
        request["tool_choice"] = "auto"
    if conversation.form % 2:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    if conversation.breakpoint_style == 1:
        _place_breakpoints(request["messages"])
    return request


def _tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Runs {name}.", "parameters": schema},
    }


class _Writer:
    """Writes the messages one after the other."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._count = 0
        self.messages: list[Message] = []
        self._system()
        if conversation.compacted:
            self._say("user", f"This goes on from an earlier session:\n{conversation.compacted}")
        for at, turn in enumerate(conversation.turns):
            self._ask(turn.ask)
            last_turn = at == len(conversation.turns) - 1
            for number, step in enumerate(turn.steps):
                self._note(step.note)
                last = last_turn and number == len(turn.steps) - 1
                self._step(step, answered=not (conversation.pending and last))
        self._note(conversation.note)

    def _say(self, role: str, content: str | list[Part]) -> None:
        self.messages.append({"role": role, "content": content})

    def _system(self) -> None:
        texts, form = self._conversation.system, self._conversation.form
        if len(texts) == 2 and form % 2:
            self._say("system", [_text(text) for text in texts])
            return
        for text in texts:
            self._say(pick(form, "system", "system", "developer"), text)

    def _note(self, note: str | None) -> None:
        if note is not None:
            self._say(pick(len(note), "system", "developer"), note)

    def _id(self) -> str:
        """A new id; some servers count anew in each step, so that ids repeat in the history."""
        self._count += 1
        return pick(
            self._conversation.form,
            f"call_{self._count:06d}",
            f"call_{self._count}",
            f"{self._count:09d}",
        )

    def _ask(self, ask: Ask) -> None:
        if not (ask.image or ask.document or ask.future) and ask.form % 2 == 0:
            for text in ask.texts:
                self._say("user", text)
            return
        parts = [_text(text) for text in ask.texts]
        if ask.image:
            parts.append(_image())
        if ask.document:
            file = {"filename": "thread.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
            parts.append({"type": "file", "file": file})
        if ask.future:
            parts.append({"type": f"{FUTURE}gesture", "strokes": [[0, 1]]})
        self._say("user", parts)

    def _step(self, step: Step, answered: bool) -> None:
        if self._conversation.form % 3 == 1:
            self._count = 0
        calls = [(call, self._id()) for call in step.calls]
        self.messages.append(_assistant(step, calls))
        if not calls or not answered:
            return
        for call, id in calls[::-1] if step.form % 3 == 2 else calls:
            self.messages.append(_answer(call, id))
        if any(call.result.image for call in step.calls):  # tool messages hold text only
            self._say("user", [_text("Image from the tool:"), _image()])


def _assistant(step: Step, calls: list[tuple[Call, str]]) -> Message:
    message: Message = {"role": "assistant"}
    text = step.text or (step.server.query if step.server else None)
    if text is None and not calls:
        text = "Done."
    if text is not None:
        parts = [_text(text)]
        if step.future:
            parts.append({"type": f"{FUTURE}sketch", "lines": [1, 2]})
        message["content"] = parts if step.future or step.form % 4 == 3 else text
    elif step.form % 3 != 2:
        message["content"] = pick(step.form, None, "")
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if calls:
        message["tool_calls"] = [_call(call, id) for call, id in calls]
    return message


def _call(call: Call, id: str) -> dict[str, Any]:
    if call.form % 6 == 5:
        custom = {"name": "patch", "input": "*** Begin\n" + json.dumps(call.args) + "\n*** End"}
        return {"id": id, "type": "custom", "custom": custom}
    return {
        "id": id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments(call)},
    }


def arguments(call: Call) -> str:
    """The arguments as a JSON text, in one of the spellings that clients and models use."""
    return pick(
        call.form,
        json.dumps(call.args, separators=(",", ":"), ensure_ascii=False),
        json.dumps(call.args),
        json.dumps(call.args, indent=1, ensure_ascii=False),
    )


def _answer(call: Call, id: str) -> Message:
    result = call.result
    message: Message = {"role": "tool", "tool_call_id": id, "content": _result_content(result)}
    if result.form % 4 == 3:
        message = {
            "tool_call_id": id,
            "role": "tool",
            "name": call.name,
            "content": message["content"],
        }
    return message


def _result_content(result: Result) -> str | list[Part]:
    text = result.text
    if result.error:
        text = f"Error: {text}"
    elif result.document:
        text = f"{text}\n[thread.pdf, 1 page]"
    if result.texts and (len(result.texts) > 1 or result.form % 3 == 1):
        return [_text(text) for text in (*result.texts[:-1], text)]
    return text


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _image() -> Part:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def _place_breakpoints(messages: list[Message]) -> None:
    """Puts an explicit breakpoint on the newest text part that may carry one."""
    for message in reversed(messages):
        content = message.get("content")
        if (
            message["role"] in ("user", "tool")
            and isinstance(content, list)
            and content[0]["type"] == "text"
        ):
            content[0]["prompt_cache_breakpoint"] = {"mode": "explicit"}
            return
