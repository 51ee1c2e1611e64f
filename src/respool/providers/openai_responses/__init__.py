"""OpenAI Responses: codec, rules, repairs and rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...wire.base import Fields, WireFormat
from ..base import ANY_MAKER, ROUTED_CLAUDE_RULES, Binding, BindingRule, Provider
from .check import OpenAIResponsesRules
from .codec import OpenAIResponsesCodec
from .render import OpenAIResponsesRenderer
from .repair import OpenAIResponsesRepairer


def _owns_message(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    return isinstance(kind, str) and kind != "message" and "role" not in item


def _server_held_field(fields: Fields) -> str | None:
    names = ("previous_response_id", "conversation")
    return next((name for name in names if fields.get(name) is not None), None)


FORMAT = WireFormat(
    name="openai-responses",
    history_field="input",
    allows_text_history=True,
    breakpoint_fields=("prompt_cache_breakpoint",),
    owns_message=_owns_message,
    own_block_types=frozenset({"input_text", "output_text", "input_image", "input_file"}),
    server_held_field=_server_held_field,
)
OPENAI_RESPONSES = Provider(
    format=FORMAT,
    codec=OpenAIResponsesCodec(),
    rules=OpenAIResponsesRules(),
    repairer=OpenAIResponsesRepairer(),
    renderer=lambda _: OpenAIResponsesRenderer(),
    checks_server_held=True,
    binding_rules=(
        *ROUTED_CLAUDE_RULES,
        BindingRule(ANY_MAKER, (), (0, 0), Binding("block", "all")),
    ),
    breakpoint_controls=({"mode": "explicit"},),
    definition_fields=("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"),
)
