"""Short Anthropic messages for tables, and a history repaired step by step."""

from __future__ import annotations

from typing import Any

from respool.providers.anthropic.check import AnthropicRules
from respool.providers.anthropic.codec import AnthropicCodec
from respool.providers.anthropic.repair import REPAIRED_CODES, AnthropicRepairer
from respool.providers.base import (
    NO_RESULT_TEXT,
    Repair,
    RuleState,
    Step,
    split_steps,
    unpaired_result_text,
)
from respool.providers.registry import check_request

OLD, NEW = "claude-sonnet-4-5", "claude-opus-5-5"
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "ZW5j"}
COMPACTION = {"type": "compaction", "content": "so far"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
EFFORT = {"role": "system", "output_config": {"effort": "low"}}
FUTURE = {"type": "future_gesture", "text": ""}


def text(said: Any = "x", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(id: Any = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "read", "input": {}, **more}


def res(id: Any = "a", content: Any = "r", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def none(id: str) -> dict[str, Any]:
    return res(id, NO_RESULT_TEXT)


def orphan(id: str, said: str = "r") -> dict[str, Any]:
    return text(unpaired_result_text(id, said))


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks) or "hi"}


def m(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks) or "ok"}


def s(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks) or "note", **more}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


CODEC, RULES, REPAIRER = AnthropicCodec(), AnthropicRules(), AnthropicRepairer()

Messages = list[Any]
Fields = dict[str, Any] | None


class Repaired:
    """A history after repair: its steps, all rows, and what was done."""

    def __init__(self, messages: Messages, fields: Fields = None, ending: bool = True) -> None:
        self.steps: list[Messages] = []
        self.rows: Messages = []
        self.repairs: list[Repair] = []
        seen = RuleState()
        for step in split_steps(CODEC, messages):
            self._add(step, seen, fields)
        if ending:
            self._end(seen, fields)

    def _add(self, step: Step, seen: RuleState, fields: Fields) -> None:
        repaired = REPAIRER.repair_step(step, seen, fields)
        rows = list(step.messages)
        if repaired is not None:
            rows = [row.message for row in repaired.rows]
            self.repairs += repaired.repairs
            for row in repaired.rows:
                assert row.source is None or 0 <= row.source - step.at < len(step.messages)
        for sub in split_steps(CODEC, rows):
            RULES.advance(Step(sub.messages, len(self.rows) + sub.at, sub.model_count), seen)
        self.rows += rows
        self.steps.append(rows)

    def _end(self, seen: RuleState, fields: Fields) -> None:
        rows = self.rows
        ending = REPAIRER.repair_end(seen, len(rows), lambda row: rows[row], fields)
        changes = dict(ending.changes) if ending else {}
        numbered = [(row, changes.get(row, message)) for row, message in enumerate(rows)]
        limited = REPAIRER.limit_breakpoints(numbered, fields)
        changes |= limited.changes if limited else {}
        for one in (ending, limited):
            self.repairs += one.repairs if one else []
        inserts = ending.inserts if ending else {}
        self.rows = [
            message
            for row, source in enumerate(rows)
            for message in (changes.get(row, source), *inserts.get(row, ()))
        ]


def repairable(messages: Messages, fields: Fields) -> list[Any]:
    """Errors that repair is there for: what is in the history, not in the fields beside it."""
    beside = ("tools[", "system[")
    return [
        p
        for p in check_request(CODEC, messages, fields)
        if p.severity == "error"
        and p.code in REPAIRED_CODES | {"A21"}
        and p.place != "messages"
        and not p.place.startswith(beside)
        and "not among the tools" not in p.message
    ]


def same(rows: Messages, messages: Messages) -> bool:
    return len(rows) == len(messages) and all(a is b for a, b in zip(rows, messages, strict=True))
