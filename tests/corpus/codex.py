"""Codex's rollouts as items of the Responses API."""

from __future__ import annotations

from tests.corpus.recording import Message, Recording

# Records of old rollouts are the items themselves, between records of a state without a type.
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})


def read(session: Message) -> Recording:
    """The payloads of its response items are the input of its requests."""
    told = Recording("openai-responses")
    for record in session["messages"]:
        kind, payload = record.get("type", "state"), record.get("payload") or {}
        if kind == "compacted":
            told.begin(list(payload.get("replacement_history") or ()))
        elif kind == "response_item" or kind in _ITEMS:
            item = payload or record
            told.messages.append(item)
            if "name" in item:
                told.tools.setdefault(item["name"], item["type"])
        else:
            if kind == "turn_context":
                told.model = told.model or payload.get("model")
            told.leave(kind)
    return told
