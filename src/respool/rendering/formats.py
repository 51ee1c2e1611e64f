"""Each format with the way it is written as plain messages."""

from __future__ import annotations

from ..codecs.codec import FormatName
from .anthropic import AnthropicWire
from .gemini import GeminiWire
from .openai_chat import OpenAIChatWire
from .openai_responses import OpenAIResponsesWire
from .wire import Wire


def wire_for(format: FormatName, *, has_breakpoints: bool) -> Wire:
    """The wire of a format, for a history with cache marks or without."""
    match format:
        case "anthropic":
            return AnthropicWire()
        case "openai-chat":
            return OpenAIChatWire(has_breakpoints)
        case "openai-responses":
            return OpenAIResponsesWire()
        case "gemini":
            return GeminiWire()
