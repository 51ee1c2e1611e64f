"""pi's records as Anthropic messages."""

from __future__ import annotations

from typing import Any

from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """Messages in order; a compaction keeps a summary and the records from some index on."""
    told = Recording("anthropic")
    records = session["messages"]
    for at, record in enumerate(records):
        if record["type"] == "message":
            _add(told, record["message"])
        elif record["type"] == "compaction":
            told.begin([{"role": "user", "content": [_text(record["summary"])]}])
            for kept in records[_first_kept(records, record) : at]:
                if kept["type"] == "message":
                    _add(told, kept["message"])
        else:
            told.leave(record["type"])
    return told


def _first_kept(records: list[Message], compaction: Message) -> int:
    """The index of the first record that a compaction keeps; newer versions name its id."""
    if "firstKeptEntryIndex" in compaction:
        return compaction["firstKeptEntryIndex"]
    ids = [record.get("id") for record in records]
    return ids.index(compaction["firstKeptEntryId"])


def _add(told: Recording, message: Message) -> None:
    role = message["role"]
    if role == "assistant":
        told.model = told.model or message["model"]
        ours = message["api"] == "anthropic-messages"
        content = [_said(block, ours) for block in message["content"]]
        told.tools.update({block["name"]: None for block in content if "name" in block})
        if content:
            told.messages.append({"role": "assistant", "content": content})
        else:
            told.leave("answer without content")
        return
    content = _from_user(message)
    if told.messages and told.messages[-1]["role"] == "user":
        told.messages[-1]["content"] += content
    else:
        told.messages.append({"role": "user", "content": content})


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _said(block: Message, ours: bool) -> Message:
    if block["type"] == "toolCall":
        call = {"id": block["id"], "name": block["name"], "input": block["arguments"]}
        return {"type": "tool_use", **call}
    if block["type"] == "thinking":
        thought, signature = block["thinking"], block.get("thinkingSignature")
        # What another provider thought, or what was cut off while it was thought, is not signed.
        if not signature or not ours:
            return _text(f"<thinking>\n{thought}\n</thinking>")
        return {"type": "thinking", "thinking": thought, "signature": signature}
    return _text(block["text"])


def _from_user(message: Message) -> list[Any]:
    if message["role"] == "toolResult":
        result = {"tool_use_id": message["toolCallId"], "content": message["content"]}
        return [{"type": "tool_result", **result, "is_error": message["isError"]}]
    if message["role"] == "bashExecution":
        return [_text(f"Ran `{message['command']}`\n```\n{message['output']}\n```")]
    content = message["content"]
    return [_text(content)] if isinstance(content, str) else list(content)
