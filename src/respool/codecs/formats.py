"""Every wire format by its name."""

from __future__ import annotations

from .anthropic import AnthropicCodec
from .codec import Codec, FormatName
from .gemini import GeminiCodec
from .openai_chat import OpenAIChatCodec
from .openai_responses import OpenAIResponsesCodec

CODECS: dict[FormatName, Codec] = {
    "anthropic": AnthropicCodec(),
    "openai-chat": OpenAIChatCodec(),
    "openai-responses": OpenAIResponsesCodec(),
    "gemini": GeminiCodec(),
}
