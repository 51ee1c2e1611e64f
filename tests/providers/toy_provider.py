"""An invented provider in one file: all that a fifth wire format needs.

A request is `{"turns": [...]}` with three kinds of turns:
`{"by": "user", "say": text}`, `{"by": "bot", "say": text, "run": [{"key", "tool", "with"}]}` and
`{"by": "tool", "key": key, "gave": text}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from respool.providers.base import (
    NO_RESULT_TEXT,
    EndRepair,
    OutputMessage,
    Problem,
    Provider,
    Repair,
    RepairedRow,
    Role,
    RuleState,
    Step,
    StepRepair,
)
from respool.transcript import Part, Ref, Speaker
from respool.wire.base import HEAD_ROW, Fields, WireFormat
from respool.wire.json import JSON, Object, compact_json, put

SPEAKERS: dict[str, Speaker] = {"user": "user", "bot": "model", "tool": "tool"}
ROLES: dict[str, Role] = {"user": "user", "bot": "model", "tool": "user"}


class ToyCodec:
    """Turns, decoded and changed."""

    name = "toy"
    history_field = "turns"
    head_fields: tuple[str, ...] = ("tools",)

    def is_model_made(self, message: JSON) -> bool:
        return isinstance(message, dict) and message.get("by") == "bot"

    def decode(self, row: int, message: JSON) -> list[Part]:
        speaker = SPEAKERS.get(str(message.get("by"))) if isinstance(message, dict) else None
        if speaker is None:
            return [Part(Ref(row, ()), "opaque", "user", compact_json(message))]
        if speaker == "tool":
            return [Part(Ref(row, ("gave",)), "result", "tool", message["gave"], id=message["key"])]
        said = (
            [Part(Ref(row, ("say",)), "text", speaker, message["say"])] if "say" in message else []
        )
        calls = [
            Part(
                Ref(row, ("run", at)),
                "call",
                "model",
                json.dumps(one["with"]),
                one["tool"],
                one["key"],
            )
            for at, one in enumerate(message.get("run", []))
        ]
        return [*said, *calls]

    def decode_head(self, fields: Fields) -> list[Part]:
        tools = fields.get("tools") or []
        return [Part(Ref(HEAD_ROW, ("tools",)), "opaque", "system", compact_json(t)) for t in tools]

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        return False

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        return False

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        if part.kind == "call":
            return put(message, (*part.ref.path, "with"), json.loads(text))
        return put(message, part.ref.path, text)

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        gone = {part.ref.path for part in parts}
        left = {key: one for key, one in message.items() if (key,) not in gone}
        if "run" in left:
            left["run"] = [one for at, one in enumerate(left["run"]) if ("run", at) not in gone]
        return left if left.get("say") or left.get("run") or "gave" in left else None

    def unbind(self, message: JSON) -> JSON:
        return message

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        return None

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        return None

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        return message


def keys_run(step: Step) -> list[str]:
    """The keys of a step's calls."""
    return [run["key"] for message in step.model for run in message.get("run", [])]


class ToyRules:
    """Each call has one result, and each result a call before it."""

    def check_step(self, step: Step, state: RuleState, fields: Fields | None) -> list[Problem]:
        run = keys_run(step)
        found = [
            Problem("T1", f"turns[{step.at + step.model_count + at}]", "It answers no call.")
            for at, message in enumerate(step.answers)
            if message["by"] == "tool" and message["key"] not in run
        ]
        given = {message.get("key") for message in step.answers}
        missing = [key for key in run if key not in given] if step.answers else []
        return found + [Problem("T2", f"turns[{step.at}]", f"No result for {k}.") for k in missing]

    def advance(self, step: Step, state: RuleState) -> None:
        pass

    def check_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> list[Problem]:
        return []

    def check_fields(self, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
        return []


class ToyRepairer:
    """Stand-ins for missing results; results without a call go."""

    def repair_step(self, step: Step, state: RuleState, fields: Fields | None) -> StepRepair | None:
        problems = ToyRules().check_step(step, state, fields)
        if not problems:
            return None
        run, rows = (
            keys_run(step),
            [RepairedRow(message, step.at + at) for at, message in enumerate(step.messages)],
        )
        kept = [row for row in rows if row.message["by"] != "tool" or row.message["key"] in run]
        given = {row.message.get("key") for row in kept}
        stand_ins = [
            RepairedRow({"by": "tool", "key": key, "gave": NO_RESULT_TEXT}, None)
            for key in run
            if key not in given
        ]
        kept[step.model_count : step.model_count] = stand_ins
        return StepRepair(kept, [Repair(one.code, one.place, "repaired") for one in problems])

    def repair_end(
        self, state: RuleState, count: int, message_at: Callable[[int], JSON], fields: Fields | None
    ) -> EndRepair | None:
        return None

    def limit_breakpoints(
        self, rows_with_breakpoints: Sequence[tuple[int, JSON]], fields: Fields | None
    ) -> EndRepair | None:
        return None


class ToyRenderer:
    """Plain turns."""

    requires_leading_thinking = False

    def role(self, message: JSON) -> Role:
        return ROLES[message["by"]]

    def block(self, message: JSON, part: Part) -> JSON:
        return part.text

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        return {}

    def join_fields(self, before: Object, after: Object) -> Object:
        return {**before, **after}

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        return text

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        return part.text, ()

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        return []

    def is_model_turn_required(self, before: JSON) -> bool:
        return False

    def build(self, turn: OutputMessage) -> JSON:
        return {"by": "bot" if turn.role == "model" else "user", "say": "\n".join(turn.blocks)}


def owns_message(message: Mapping[str, Any]) -> bool:
    """A bare list of turns is detected by them."""
    return message.get("by") in SPEAKERS


TOY = Provider(
    format=WireFormat(name="toy", history_field="turns", owns_message=owns_message),
    codec=ToyCodec(),
    rules=ToyRules(),
    repairer=ToyRepairer(),
    renderer=lambda _: ToyRenderer(),
)
