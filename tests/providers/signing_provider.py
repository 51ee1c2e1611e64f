"""A provider that signs reasoning for its prefix, and verifies what comes back."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import respool

REF = re.compile(r"\[respool: [^\[\]]{1,240}; ref ([a-z2-7]{20})\]")
BOUND, OTHER_BOUND = "claude-opus-5-5", "claude-sonnet-5-5"
UNBOUND, OTHER_UNBOUND = "claude-opus-4-5", "claude-sonnet-4-5"
TOOLS = [{"name": "shell", "description": "runs", "input_schema": {"type": "object"}}]


def without_breakpoints(value: Any) -> Any:
    """A message without cache marks, its words as blocks: spelled in one way."""
    if isinstance(value, list):
        return [without_breakpoints(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {key: without_breakpoints(one) for key, one in value.items() if key != "cache_control"}
    if isinstance(plain.get("content"), str) and "role" in plain:
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain


class Signer:
    """Answers requests with signed reasoning and a call, and says what does not belong."""

    def __init__(self) -> None:
        self._signed: dict[str, tuple[str, str, list[str]]] = {}  # model, what was said, thoughts
        self.refs: set[str] = set()  # of all markers that ever came
        self._count = 0

    def problems(self, body: bytes) -> list[str]:
        """Reasons for which this provider rejects a request."""
        sent = json.loads(body)
        self.refs |= set(REF.findall(body.decode()))
        found = [str(problem) for problem in respool.check(sent, format="anthropic")]
        for before, thoughts, block in _thoughts(sent["messages"]):
            model, said, older = self._signed[block["signature"]]
            if model != sent["model"] or model in (UNBOUND, OTHER_UNBOUND):
                continue  # another model's vanishes, an older one's is bound to itself
            if said != before:
                found.append(f"{block['thinking']}: bound to a different conversation")
            elif thoughts != older[len(older) - len(thoughts) :]:
                found.append(f"{block['thinking']}: one before it is gone, an older one is not")
        return found

    def answer(self, body: bytes, *, thinks: bool = True) -> list[dict[str, Any]]:
        """The blocks of an answer to a request."""
        sent = json.loads(body)
        self._count += 1
        name = f"{self._count}"
        call = {"type": "tool_use", "id": f"call_{name}", "name": "shell", "input": {"n": name}}
        if not thinks:
            return [call]
        before, thoughts = _before(sent["messages"])
        self._signed[name] = (sent["model"], before, thoughts)
        return [{"type": "thinking", "thinking": f"thought {name}", "signature": name}, call]


def _before(messages: list[Any]) -> tuple[str, list[str]]:
    """The hash of all that is said in messages but thoughts, and the signatures of those."""
    said, thoughts = hashlib.sha256(), list[str]()
    for message in messages:
        blocks = without_breakpoints(message)["content"]
        thoughts += [one["signature"] for one in blocks if one["type"] == "thinking"]
        rest = [one for one in blocks if one["type"] != "thinking"]
        said.update(json.dumps([message["role"], rest], sort_keys=True).encode())
    return said.hexdigest(), thoughts


def _thoughts(messages: list[Any]) -> list[tuple[str, list[str], Any]]:
    """Each signed thought of a history, with all that stands before it."""
    found, said, thoughts = list[tuple[str, list[str], Any]](), hashlib.sha256(), list[str]()
    for message in messages:
        blocks = without_breakpoints(message)["content"]
        for one in blocks:
            if one["type"] == "thinking":
                found.append((said.hexdigest(), list(thoughts), one))
        thoughts += [one["signature"] for one in blocks if one["type"] == "thinking"]
        rest = [one for one in blocks if one["type"] != "thinking"]
        said.update(json.dumps([message["role"], rest], sort_keys=True).encode())
    return found
