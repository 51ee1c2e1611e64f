"""opencode's messages, which hold calls and results together, as chat messages."""

from __future__ import annotations

from tests.corpus.chat import chat_call
from tests.corpus.recording import Message, Recording

_BOOKKEEPING = ("step-start", "step-finish", "patch", "file", "subtask")


def read(session: Message) -> Recording:
    """One message a step: what was thought, said, called and answered."""
    told = Recording("openai-chat")
    for message in session["messages"]:
        for part in message["parts"]:
            if part["type"] in _BOOKKEEPING:
                told.leave(part["type"])
        if message["info"]["role"] == "user":
            parts = [part for part in message["parts"] if part["type"] == "text"]
            texts = [{"type": "text", "text": part["text"]} for part in parts]
            if texts:
                told.messages.append({"role": "user", "content": texts})
        else:
            told.model = told.model or message["info"]["modelID"]
            _answer(told, message)
    return told


def _answer(told: Recording, message: Message) -> None:
    parts = message["parts"]
    calls = [part for part in parts if part["type"] == "tool"]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    thoughts = [part["text"] for part in parts if part["type"] == "reasoning"]
    if not calls and not texts:
        told.leave("answer without content")
        return
    sent: Message = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        sent["reasoning_text"] = "".join(thoughts)
    if calls:
        sent["tool_calls"] = [
            chat_call(part["callID"], part["tool"], part["state"]["input"]) for part in calls
        ]
    told.messages.append(sent)
    for part in calls:
        state = part["state"]
        result = state["output"] if state["status"] == "completed" else state["error"]
        told.messages.append({"role": "tool", "tool_call_id": part["callID"], "content": result})
        told.tools.setdefault(part["tool"], None)
