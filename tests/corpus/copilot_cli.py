"""Copilot CLI's events as chat messages."""

from __future__ import annotations

from tests.corpus.chat import chat_call
from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """Results go behind their calls, though a skill's text may have come between them."""
    told = Recording("openai-chat")
    behind = 0
    for event in session["messages"]:
        data = event["data"]
        if event["type"] == "system.message":
            told.messages.append({"role": "system", "content": data["content"]})
        elif event["type"] == "user.message":
            text = data.get("transformedContent") or data["content"]
            told.messages.append({"role": "user", "content": text})
        elif event["type"] == "assistant.message":
            told.messages.append(_answer(told, data))
            behind = len(told.messages)
        elif event["type"] == "tool.execution_complete":
            told.messages.insert(behind, _result(data))
            behind += 1
        else:
            told.leave(event["type"])
    return told


def _answer(told: Recording, data: Message) -> Message:
    calls = [_call(told, asked) for asked in data["toolRequests"]]
    sent: Message = {"role": "assistant", "content": data["content"]}
    return {**sent, "tool_calls": calls} if calls else sent


def _call(told: Recording, asked: Message) -> Message:
    name, id = asked["name"], asked["toolCallId"]
    if asked["type"] == "function":
        told.tools.setdefault(name, None)
        return chat_call(id, name, asked["arguments"])
    told.tools.setdefault(name, {"type": "custom", "custom": {"name": name}})
    return {"id": id, "type": "custom", "custom": {"name": name, "input": asked["arguments"]}}


def _result(data: Message) -> Message:
    result = data.get("result") or {"content": ""}
    content = result["content"] if data["success"] else str(data.get("error"))
    return {"role": "tool", "tool_call_id": data["toolCallId"], "content": content}
