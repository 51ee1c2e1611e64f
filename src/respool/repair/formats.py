"""Each format with its repairs."""

from __future__ import annotations

from ..codecs.codec import FormatName
from .anthropic import AnthropicMender
from .gemini import GeminiMender
from .mending import Mender
from .openai_chat import OpenAIChatMender
from .openai_responses import OpenAIResponsesMender

MENDERS: dict[FormatName, Mender] = {
    "anthropic": AnthropicMender(),
    "openai-chat": OpenAIChatMender(),
    "openai-responses": OpenAIResponsesMender(),
    "gemini": GeminiMender(),
}
