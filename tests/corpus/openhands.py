"""OpenHands' events as chat messages."""

from __future__ import annotations

from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """An action holds the model's whole answer; several actions may share one."""
    told = Recording("openai-chat")
    answers: set[str] = set()
    for event in session["messages"]:
        made = event.get("tool_call_metadata")
        kind = event.get("action") or event.get("observation")
        if kind == "system":
            told.messages.append({"role": "system", "content": event["args"]["content"]})
            told.tools = {tool["function"]["name"]: tool for tool in event["args"]["tools"]}
        elif event.get("action") == "message":
            role = "assistant" if event["source"] == "agent" else "user"
            told.messages.append({"role": role, "content": event["args"]["content"]})
        elif made and "action" in event:
            _answer(told, answers, made["model_response"])
        elif made:
            id = made["tool_call_id"]
            content = event["content"]
            told.messages.append({"role": "tool", "tool_call_id": id, "content": content})
        elif kind == "error":
            told.messages.append({"role": "user", "content": event["content"]})
        else:
            told.leave(kind)
    return told


def _answer(told: Recording, answers: set[str], response: Message) -> None:
    if response["id"] in answers:
        return
    answers.add(response["id"])
    told.model = told.model or response["model"]
    message = response["choices"][0]["message"]
    sent: Message = {"role": "assistant", "content": message["content"]}
    calls = [
        {"id": call["id"], "type": "function", "function": call["function"]}
        for call in message.get("tool_calls") or ()
    ]
    told.messages.append({**sent, "tool_calls": calls} if calls else sent)
