"""Gemini CLI's messages as contents of `generateContent`."""

from __future__ import annotations

from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """Its answers hold their calls, and these their results; thoughts are not sent again."""
    told = Recording("gemini")
    for message in session["messages"]:
        if message["type"] == "user":
            content = message["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            told.messages.append({"role": "user", "parts": parts})
        elif message["type"] == "gemini":
            _answer(told, message)
        else:
            told.leave(message["type"])
    return told


def _answer(told: Recording, message: Message) -> None:
    calls = message.get("toolCalls") or []
    parts = [{"text": message["content"]}] if message["content"] else []
    for call in calls:
        asked = {key: call[key] for key in ("id", "name", "args")}
        parts.append({"functionCall": asked})
        told.tools.setdefault(call["name"], None)
    if not parts:
        told.leave("answer without content")
        return
    told.messages.append({"role": "model", "parts": parts})
    results = [part for call in calls for part in call.get("result") or ()]
    if results:
        told.messages.append({"role": "user", "parts": results})
