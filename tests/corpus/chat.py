"""Sessions that are recorded as chat messages already: OpenAI's, and Inspect's kind of them."""

from __future__ import annotations

import json
from typing import Any

from tests.corpus.recording import Message, Recording

_WIRE = ("role", "content", "name", "tool_calls", "tool_call_id")


def read(session: Message) -> Recording:
    """The messages without what the agents noted on them for themselves."""
    told = Recording("openai-chat")
    for definition in session.get("tools") or ():
        told.tools[definition["function"]["name"]] = definition
    for message in session["messages"]:
        sent = {key: message[key] for key in _WIRE if key in message}
        if ids := message.get("tool_call_ids"):  # SWE-agent's, of which it sends the first
            sent["tool_call_id"] = ids[0]
        for call in sent.get("tool_calls") or ():
            told.tools.setdefault(call["function"]["name"], None)
        told.messages.append(sent)
    return told


def read_inspect(session: Message) -> Recording:
    """Inspect flattens a call's function and keeps its arguments as an object."""
    told = Recording("openai-chat")
    for message in session["messages"]:
        sent = {key: message[key] for key in _WIRE if key in message}
        if calls := message.get("tool_calls"):
            sent["tool_calls"] = [chat_call(c["id"], c["function"], c["arguments"]) for c in calls]
            told.tools.update({call["function"]: None for call in calls})
        told.messages.append(sent)
    return told


def chat_call(id: str, name: str, arguments: Any) -> Message:
    """A call as it stands in a chat message."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
