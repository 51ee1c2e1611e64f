"""Claude Code's records as Anthropic messages."""

from __future__ import annotations

from typing import Any

from tests.corpus.recording import Message, Recording


def read(session: Message) -> Recording:
    """A record is a piece of a message: those of one answer share its id."""
    told = Recording("anthropic")
    answers: dict[str, Message] = {}
    for record in session["messages"]:
        if record.get("subtype") == "compact_boundary" or record.get("isCompactSummary"):
            if told.messages:
                told.begin([])
            answers.clear()
        kind = record["type"]
        if kind not in ("user", "assistant"):
            told.leave(record.get("subtype") or kind)
        elif record.get("isSidechain"):
            told.leave("sidechain")
        elif kind == "assistant":
            _answer(told, answers, record["message"])
        else:
            _from_user(told, record["message"])
    return told


def _answer(told: Recording, answers: dict[str, Message], message: Message) -> None:
    if message.get("model") == "<synthetic>" or not message["content"]:
        told.leave("synthetic answer")
        return
    told.model = told.model or message["model"]
    content: list[Any] = message["content"]
    for block in content:
        if block["type"] == "tool_use":
            told.tools.setdefault(block["name"], None)
    begun = answers.get(message["id"])
    if begun is not None:
        begun["content"] += content
    else:
        answers[message["id"]] = {"role": "assistant", "content": list(content)}
        told.messages.append(answers[message["id"]])


def _from_user(told: Recording, message: Message) -> None:
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if told.messages and told.messages[-1]["role"] == "user":
        told.messages[-1]["content"] += content
    else:
        told.messages.append({"role": "user", "content": list(content)})
