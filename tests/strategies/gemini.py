"""Whole Gemini generateContent requests, as Gemini CLI and the Google SDK send them."""

from __future__ import annotations

import base64
from typing import Any

from tests.strategies.neutral import (
    FUTURE,
    PDF,
    PIXEL,
    TOOLS,
    Ask,
    Call,
    Conversation,
    Server,
    Step,
    pick,
)

Part = dict[str, Any]


def render(conversation: Conversation) -> dict[str, Any]:
    """The request that a client would send at the end of this conversation."""
    request: dict[str, Any] = {"contents": _Writer(conversation).contents}
    if conversation.form % 3:
        request["model"] = "gemini-3-pro-preview" if conversation.signed else "gemini-2.5-flash"
    if conversation.system:
        parts = [{"text": text} for text in conversation.system]
        request["systemInstruction"] = pick(
            conversation.form, {"parts": parts}, {"role": "user", "parts": parts}
        )
    if conversation.tools:
        declared = [{"name": name, "description": f"Runs {name}."} for name in TOOLS]
        request["tools"] = [{"functionDeclarations": declared}, {"codeExecution": {}}]
    if conversation.thinking != "off":
        request["generationConfig"] = {
            "temperature": 1,
            "thinkingConfig": {"includeThoughts": True},
        }
    return request


class _Writer:
    """Writes the contents one after the other."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._count = 0
        self.contents: list[dict[str, Any]] = []
        for at, turn in enumerate(conversation.turns):
            self._ask(turn.ask)
            last_turn = at == len(conversation.turns) - 1
            for number, step in enumerate(turn.steps):
                last = last_turn and number == len(turn.steps) - 1
                self._step(step, answered=not (conversation.pending and last))

    def _say(self, role: str, parts: list[Part]) -> None:
        self.contents.append({"role": role, "parts": parts})

    def _ask(self, ask: Ask) -> None:
        parts: list[Part] = [{"text": text} for text in ask.texts]
        if ask.image:
            parts.append(_picture())
        if ask.document:
            inline = {"inlineData": {"mimeType": "application/pdf", "data": PDF}}
            stored = {
                "fileData": {
                    "mimeType": "application/pdf",
                    "fileUri": "https://files.example/thread",
                }
            }
            parts.append(pick(ask.form, inline, stored))
        if ask.future:
            parts.append({f"{FUTURE}gesture": {"strokes": [[0, 1]]}})
        self._say("user", parts)

    def _step(self, step: Step, answered: bool) -> None:
        calls = [(call, self._id()) for call in step.calls]
        parts = self._opening(step)
        for number, (call, id) in enumerate(calls):
            made: dict[str, Any] = {**id, "name": call.name}
            if call.args or call.form % 2 == 0:
                made["args"] = call.args
            signed = self._conversation.signed and number == 0  # the first of a step bears it
            parts.append({"functionCall": made, **(_signature(call.name) if signed else {})})
        self._say("model", parts)
        if calls and answered:
            self._say("user", [_response(call, id) for call, id in calls])

    def _id(self) -> Part:
        self._count += 1
        return (
            {"id": f"{pick(self._count, 'fn', 'run')}-{self._count}"}
            if self._conversation.ids
            else {}
        )

    def _opening(self, step: Step) -> list[Part]:
        """Parts before a step's calls."""
        parts: list[Part] = []
        if step.reasoning:
            parts.append({"text": step.reasoning, "thought": True})
        if step.server:
            parts += _served(step.server)
        if step.text or not (step.server or step.calls):
            said: Part = {"text": step.text or "Done."}
            parts.append(
                said | _signature("text")
                if self._conversation.signed and step.form % 3 == 1
                else said
            )
        if step.future:
            parts.append({f"{FUTURE}sketch": {"lines": [1, 2]}})
        return parts


def _signature(text: str) -> Part:
    return {"thoughtSignature": base64.b64encode(f"signed {text}".encode()).decode()}


def _picture() -> Part:
    return {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


def _served(server: Server) -> list[Part]:
    if server.form % 3 == 2:
        search = {"id": "srv-1", "toolType": "GOOGLE_SEARCH_WEB"}
        return [
            {"toolCall": {**search, "args": {"query": server.query}}},
            {"toolResponse": {**search, "response": {"found": list(server.found)}}},
        ]
    code = {"language": "PYTHON", "code": f"print({server.query!r})"}
    outcome = pick(server.form, "OUTCOME_OK", "OUTCOME_FAILED")
    result = (
        {"outcome": outcome, "output": "\n".join(server.found)}
        if server.found
        else {"outcome": outcome}
    )
    return [{"executableCode": code}, {"codeExecutionResult": result}]


def _response(call: Call, id: Part) -> Part:
    result = call.result
    body: dict[str, Any] = {"output": result.text}
    if result.error:
        body = {"error": result.text}
    elif not result.texts:
        body = pick(result.form, {}, {"output": ""})
    elif result.form % 4 == 1:
        body = {
            "content": [{"type": "text", "text": text} for text in result.texts],
            "isError": False,
        }
    elif result.form % 4 == 2:
        body = {"result": {"lines": result.text.split("\n"), "truncated": False}}
    response: dict[str, Any] = {**id, "name": call.name, "response": body}
    media = [_picture()] if result.image else []
    if result.document:
        media.append(
            {
                "inlineData": {
                    "mimeType": "application/pdf",
                    "data": PDF,
                    "displayName": "thread.pdf",
                }
            }
        )
    if media:
        response["parts"] = media
    return {"functionResponse": response}
