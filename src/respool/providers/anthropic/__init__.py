"""Anthropic Messages: codec, rules, repairs and rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from ...media import ANTHROPIC_PAGE_TOKENS, anthropic_image_tokens
from ...wire.base import Fields, WireFormat
from ...wire.json import Object
from ..base import ANY_MAKER, LARGE_CLAUDES, OTHER_CLAUDES, Binding, BindingRule, Provider
from .check import AnthropicRules
from .codec import AnthropicCodec
from .render import AnthropicRenderer
from .repair import AnthropicRepairer
from .request_rules import check_size, media_limits

_BLOCK_TYPES = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
    | {"server_tool_use", "mcp_tool_use", "compaction", "search_result"}
)


def _owns_tool(tool: Mapping[str, Any]) -> bool:
    return "input_schema" in tool


def _server_held_field(fields: Fields) -> str | None:
    thread = fields.get("thread")
    is_continued = isinstance(thread, dict) and cast(Object, thread).get("type") == "continue"
    return "thread" if is_continued else None


def _adjust_binding(binding: Binding, fields: Fields) -> Binding:
    """In manual mode a running turn must open with its thinking (A10); the API may drop (A12)."""
    thinking = fields.get("thinking")
    mode = cast(Object, thinking) if isinstance(thinking, dict) else {}
    if mode.get("type") == "enabled" and binding.droppable == "all":
        binding = replace(binding, droppable="turns", oldest_first=True)
    controls = mode.get("block_binding")
    block_binding = cast(Object, controls) if isinstance(controls, dict) else {}
    if block_binding.get("prefix_mismatch_behavior") == "drop_block":
        binding = replace(binding, is_dropped_by_api=True)
    return binding


FORMAT = WireFormat(
    name="anthropic",
    history_field="messages",
    breakpoint_fields=("cache_control",),
    has_client_breakpoints=True,
    has_object_arguments=True,
    maker="anthropic",
    tokenizer="claude",
    image_tokens=anthropic_image_tokens,
    page_tokens=ANTHROPIC_PAGE_TOKENS,
    own_block_types=_BLOCK_TYPES,
    owns_tool=_owns_tool,
    only_fields=("anthropic_version",),  # on Bedrock and Vertex
    own_fields=("system", "context_management", "stop_sequences"),  # others have top_k, too
    server_held_field=_server_held_field,
)
ANTHROPIC = Provider(
    format=FORMAT,
    codec=AnthropicCodec(),
    rules=AnthropicRules(),
    repairer=AnthropicRepairer(),
    renderer=lambda _: AnthropicRenderer(),
    check_size=check_size,
    media_limits=media_limits,
    binding_rules=(
        BindingRule(
            "anthropic", LARGE_CLAUDES, (5, 1), Binding("prefix", "all", oldest_first=True)
        ),
        BindingRule(
            "anthropic", OTHER_CLAUDES, (5, 5), Binding("prefix", "all", oldest_first=True)
        ),
        BindingRule("anthropic", (), (0, 0), Binding("block", "all")),
        BindingRule("", (), (0, 0), Binding("prefix", "none", oldest_first=True)),
        BindingRule(ANY_MAKER, (), (0, 0), Binding("block", "turns", oldest_first=True)),
    ),
    adjust_binding=_adjust_binding,
    breakpoint_controls=(
        {"type": "ephemeral"},
        {"type": "ephemeral", "ttl": "5m"},
        {"type": "ephemeral", "ttl": "1h"},
    ),
    definition_fields=("tools", "tool_choice", "mcp_servers"),
)
