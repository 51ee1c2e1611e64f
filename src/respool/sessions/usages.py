"""The tokens of one request, in the words of each provider."""

from __future__ import annotations

from ..codecs.json_tree import JSON, get
from .history import count, reported
from .session import Usage


def told_usage(usage: JSON) -> Usage | None:
    """The usage that a provider's answer reports; None when it reports none."""
    if get(usage, ("promptTokenCount",)) is not None:
        return reported(gemini_usage(usage))
    if get(usage, ("prompt_tokens",)) is not None:
        return reported(chat_usage(usage))
    if get(usage, ("input_tokens_details",)) is not None:
        return reported(responses_usage(usage))
    return reported(anthropic_usage(usage))


def anthropic_usage(usage: JSON) -> Usage:
    """Anthropic counts what it read from the cache, or wrote to it, beside the input."""
    return Usage(
        input=count(usage, "input_tokens"),
        cache_read=count(usage, "cache_read_input_tokens"),
        cache_write=count(usage, "cache_creation_input_tokens"),
        cache_write_1h=count(usage, "cache_creation", "ephemeral_1h_input_tokens"),
        output=count(usage, "output_tokens"),
    )


def chat_usage(usage: JSON) -> Usage:
    """The prompt's tokens hold what was read from the cache and written to it."""
    read = count(usage, "prompt_tokens_details", "cached_tokens")
    read = read or count(usage, "cache_read_input_tokens")
    read = read or count(usage, "prompt_cache_hit_tokens")  # DeepSeek's word
    written = count(usage, "prompt_tokens_details", "cache_write_tokens")
    written = written or count(usage, "cache_creation_input_tokens")
    given = max(0, count(usage, "prompt_tokens") - read - written)
    return Usage(given, read, written, 0, count(usage, "completion_tokens"))


def responses_usage(usage: JSON) -> Usage:
    """The input holds what was read from the cache and written to it."""
    read = count(usage, "input_tokens_details", "cached_tokens")
    written = count(usage, "input_tokens_details", "cache_write_tokens")
    given = max(0, count(usage, "input_tokens") - read - written)
    return Usage(given, read, written, 0, count(usage, "output_tokens"))


def gemini_usage(usage: JSON) -> Usage:
    """The prompt holds what was read from the cache; thoughts stand beside the output."""
    read = count(usage, "cachedContentTokenCount")
    given = max(0, count(usage, "promptTokenCount") - read)
    output = count(usage, "candidatesTokenCount") + count(usage, "thoughtsTokenCount")
    return Usage(given + count(usage, "toolUsePromptTokenCount"), read, 0, 0, output)
