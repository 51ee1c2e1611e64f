"""A history mended as the fold does it: step by step, then its end and its marks."""

from __future__ import annotations

from typing import Any

from respool.check.anthropic import AnthropicRules
from respool.check.formats import problems_in
from respool.check.rules import Seen, Step, steps_of
from respool.codecs.anthropic import AnthropicCodec
from respool.repair.anthropic import REPAIRED, AnthropicMender
from respool.repair.mending import Repair

CODEC, RULES, MENDER = AnthropicCodec(), AnthropicRules(), AnthropicMender()

Messages = list[Any]
Fields = dict[str, Any] | None


class Mended:
    """A history after repair: its steps, all rows, and what was done."""

    def __init__(self, messages: Messages, fields: Fields = None, ending: bool = True) -> None:
        self.steps: list[Messages] = []
        self.rows: Messages = []
        self.repairs: list[Repair] = []
        seen = Seen()
        for step in steps_of(CODEC, messages):
            self._add(step, seen, fields)
        if ending:
            self._end(seen, fields)

    def _add(self, step: Step, seen: Seen, fields: Fields) -> None:
        mended = MENDER.repair_step(step, seen, fields)
        rows = list(step.messages)
        if mended is not None:
            rows = [row.message for row in mended.rows]
            self.repairs += mended.repairs
            for row in mended.rows:
                assert row.source is None or 0 <= row.source - step.at < len(step.messages)
        for sub in steps_of(CODEC, rows):
            RULES.advance(Step(sub.messages, len(self.rows) + sub.at, sub.model_count), seen)
        self.rows += rows
        self.steps.append(rows)

    def _end(self, seen: Seen, fields: Fields) -> None:
        rows = self.rows
        ending = MENDER.repair_end(seen, len(rows), lambda row: rows[row], fields)
        changes = dict(ending.changes) if ending else {}
        marked = [(row, changes.get(row, message)) for row, message in enumerate(rows)]
        limited = MENDER.limit_breakpoints(marked, fields)
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
        for p in problems_in(CODEC, messages, fields)
        if p.severity == "error"
        and p.code in REPAIRED | {"A21"}
        and p.place != "messages"
        and not p.place.startswith(beside)
        and "not among the tools" not in p.message
    ]


def same(rows: Messages, messages: Messages) -> bool:
    return len(rows) == len(messages) and all(a is b for a, b in zip(rows, messages, strict=True))
