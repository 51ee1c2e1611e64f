"""Codex's rollouts as items of the Responses API."""

from __future__ import annotations

from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """The payloads of its response items are the input of its requests."""
    told = Recording("openai-responses")
    for record in session["messages"]:
        payload = record.get("payload") or {}
        if record["type"] == "compacted":
            told.begin(list(payload.get("replacement_history") or ()))
        elif record["type"] == "response_item":
            told.messages.append(payload)
            if "name" in payload:
                told.tools.setdefault(payload["name"], payload["type"])
        else:
            if record["type"] == "turn_context":
                told.model = told.model or payload.get("model")
            told.leave(record["type"])
    return told
