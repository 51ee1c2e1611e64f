"""Each format with its rules, and a whole request judged by them."""

from __future__ import annotations

from collections.abc import Sequence

from ..codecs.codec import Codec, Fields, FormatName
from ..codecs.json_tree import JSON
from .anthropic import AnthropicRules
from .anthropic_request import MOST_BYTES
from .gemini import GeminiRules
from .openai_chat import OpenAIChatRules
from .openai_responses import OpenAIResponsesRules
from .problem import Problem
from .rules import Rules, Seen, steps_of

RULES: dict[FormatName, Rules] = {
    "anthropic": AnthropicRules(),
    "openai-chat": OpenAIChatRules(),
    "openai-responses": OpenAIResponsesRules(),
    "gemini": GeminiRules(),
}


def size_problems(format: FormatName, size: int) -> list[Problem]:
    """Whether a body of so many bytes is larger than the provider takes."""
    if format != "anthropic" or size <= MOST_BYTES:
        return []
    return [Problem("A22", "body", f"{size:,} bytes; at most {MOST_BYTES:,} are allowed.")]


def problems_in(codec: Codec, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
    """Everything that this provider would reject, in the order of the history."""
    rules = RULES[codec.name]
    seen = Seen()
    found: list[Problem] = []
    for step in steps_of(codec, messages):
        found += rules.check_step(step, seen, fields)
        rules.advance(step, seen)
    found += rules.check_end(seen, len(messages), lambda row: messages[row], fields)
    found += rules.check_fields(messages, fields)
    return found
