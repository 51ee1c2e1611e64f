"""Registry of providers: codec, rules, repairer and renderer of each wire format."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.base import Codec, Fields, FormatName
from ..wire.json import JSON
from .anthropic.check import AnthropicRules
from .anthropic.codec import AnthropicCodec
from .anthropic.render import AnthropicRenderer
from .anthropic.repair import AnthropicRepairer
from .anthropic.request_rules import MAX_BODY_BYTES
from .base import Problem, ProviderRules, Renderer, Repairer, RuleState, split_steps
from .gemini.check import GeminiRules
from .gemini.codec import GeminiCodec
from .gemini.render import GeminiRenderer
from .gemini.repair import GeminiRepairer
from .openai_chat.check import OpenAIChatRules
from .openai_chat.codec import OpenAIChatCodec
from .openai_chat.render import OpenAIChatRenderer
from .openai_chat.repair import OpenAIChatRepairer
from .openai_responses.check import OpenAIResponsesRules
from .openai_responses.codec import OpenAIResponsesCodec
from .openai_responses.render import OpenAIResponsesRenderer
from .openai_responses.repair import OpenAIResponsesRepairer

CODECS: dict[FormatName, Codec] = {
    "anthropic": AnthropicCodec(),
    "openai-chat": OpenAIChatCodec(),
    "openai-responses": OpenAIResponsesCodec(),
    "gemini": GeminiCodec(),
}


RULES: dict[FormatName, ProviderRules] = {
    "anthropic": AnthropicRules(),
    "openai-chat": OpenAIChatRules(),
    "openai-responses": OpenAIResponsesRules(),
    "gemini": GeminiRules(),
}


def size_problems(format: FormatName, size: int) -> list[Problem]:
    """Whether a body of so many bytes is larger than the provider takes."""
    if format != "anthropic" or size <= MAX_BODY_BYTES:
        return []
    return [Problem("A22", "body", f"{size:,} bytes; at most {MAX_BODY_BYTES:,} are allowed.")]


def check_request(codec: Codec, messages: Sequence[JSON], fields: Fields | None) -> list[Problem]:
    """Everything that this provider would reject, in the order of the history."""
    rules = RULES[codec.name]
    seen = RuleState()
    found: list[Problem] = []
    for step in split_steps(codec, messages):
        found += rules.check_step(step, seen, fields)
        rules.advance(step, seen)
    found += rules.check_end(seen, len(messages), lambda row: messages[row], fields)
    found += rules.check_fields(messages, fields)
    return found


REPAIRERS: dict[FormatName, Repairer] = {
    "anthropic": AnthropicRepairer(),
    "openai-chat": OpenAIChatRepairer(),
    "openai-responses": OpenAIResponsesRepairer(),
    "gemini": GeminiRepairer(),
}


def renderer_for(format: FormatName, *, has_breakpoints: bool) -> Renderer:
    """The wire of a format, for a history with cache marks or without."""
    match format:
        case "anthropic":
            return AnthropicRenderer()
        case "openai-chat":
            return OpenAIChatRenderer(has_breakpoints)
        case "openai-responses":
            return OpenAIResponsesRenderer()
        case "gemini":
            return GeminiRenderer()
