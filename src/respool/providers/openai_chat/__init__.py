"""OpenAI Chat Completions: codec, rules, repairs and rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...wire.base import WireFormat
from ..base import ANY_MAKER, ROUTED_CLAUDE_RULES, Binding, BindingRule, Provider
from .check import OpenAIChatRules
from .codec import OpenAIChatCodec
from .render import OpenAIChatRenderer
from .repair import OpenAIChatRepairer


def _owns_message(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("tool", "function", "developer") or "tool_calls" in message


def _owns_tool(tool: Mapping[str, Any]) -> bool:
    return "function" in tool or "custom" in tool


FORMAT = WireFormat(
    name="openai-chat",
    history_field="messages",
    breakpoint_fields=("cache_control", "prompt_cache_breakpoint"),  # routers take Anthropic's
    owns_message=_owns_message,
    own_block_types=frozenset({"image_url", "input_audio", "file", "refusal"}),
    has_system_message=True,  # Anthropic has none
    owns_tool=_owns_tool,
    own_fields=("stream_options", "max_completion_tokens", "reasoning_effort", "response_format"),
)
OPENAI_CHAT = Provider(
    format=FORMAT,
    codec=OpenAIChatCodec(),
    rules=OpenAIChatRules(),
    repairer=OpenAIChatRepairer(),
    renderer=OpenAIChatRenderer,
    binding_rules=(
        *ROUTED_CLAUDE_RULES,
        BindingRule("", (), (0, 0), Binding("prefix", "none", oldest_first=True)),
        BindingRule(ANY_MAKER, (), (0, 0), Binding("block", "turns", oldest_first=True)),
    ),
    breakpoint_controls=({"mode": "explicit"},),
    definition_fields=("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
)
