"""Gemini generateContent: codec, rules, repairs and rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...media import GEMINI_PAGE_TOKENS, gemini_image_tokens
from ...wire.base import Fields, WireFormat
from ..base import ANY_MAKER, ROUTED_CLAUDE_RULES, Binding, BindingRule, Provider
from .check import GeminiRules
from .codec import GeminiCodec
from .render import GeminiRenderer
from .repair import GeminiRepairer


def _owns_message(content: Mapping[str, Any]) -> bool:
    return isinstance(content.get("parts"), list)


def _server_held_field(fields: Fields) -> str | None:
    names = ("cachedContent", "cached_content")
    return next((name for name in names if fields.get(name) is not None), None)


FORMAT = WireFormat(
    name="gemini",
    history_field="contents",
    has_object_arguments=True,
    has_model_in_url=True,
    maker="google",
    tokenizer="gemini",
    image_tokens=gemini_image_tokens,
    page_tokens=GEMINI_PAGE_TOKENS,
    owns_message=_owns_message,
    server_held_field=_server_held_field,
)
GEMINI = Provider(
    format=FORMAT,
    codec=GeminiCodec(),
    rules=GeminiRules(),
    repairer=GeminiRepairer(),
    renderer=lambda _: GeminiRenderer(),
    binding_rules=(
        *ROUTED_CLAUDE_RULES,
        BindingRule(ANY_MAKER, (), (0, 0), Binding("block", "all")),
    ),
    definition_fields=("tools", "toolConfig", "tool_config"),
    definition_holder="config",  # in calls of Google's SDK
)
