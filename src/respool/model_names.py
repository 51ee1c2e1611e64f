"""Model names: maker, family and version."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from .regex import lazy_compile

Version = tuple[int, int]


class ModelName(Struct, frozen=True, gc=False):
    """A model's maker, family and version."""

    maker: str  # "anthropic", "openai", "google"
    family: str  # "opus", "sonnet", "gpt", "gemini", …
    version: Version


_CLAUDE_NEW = lazy_compile(
    r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?![\d.])", re.ASCII
)
_CLAUDE_OLD = lazy_compile(r"claude-(\d)(?:[-.](\d))?-(opus|sonnet|haiku)", re.ASCII)
_GPT = lazy_compile(r"(?:^|[/:])gpt-(\d{1,2})(?:\.(\d{1,2}))?", re.ASCII)
_GEMINI = lazy_compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?", re.ASCII)


def parse_model_name(name: object) -> ModelName | None:
    """Parse a model name; None if it is not known.

    >>> parse_model_name("claude-sonnet-4-5-20250929")
    ModelName(maker='anthropic', family='sonnet', version=(4, 5))
    """
    return _parse(name) if isinstance(name, str) and len(name) <= 200 else None


@lru_cache(64)  # asked several times per request
def _parse(name: str) -> ModelName | None:
    name = name.lower().replace("gpt-35", "gpt-3.5")  # as Azure spells it
    if found := _CLAUDE_NEW.search(name):
        return ModelName("anthropic", found[1], (int(found[2]), int(found[3] or 0)))
    if found := _CLAUDE_OLD.search(name):
        return ModelName("anthropic", found[3], (int(found[1]), int(found[2] or 0)))
    if found := _GPT.search(name):
        return ModelName("openai", "gpt", (int(found[1]), int(found[2] or 0)))
    if found := _GEMINI.search(name):
        return ModelName("google", "gemini", (int(found[1]), int(found[2] or 0)))
    return None


def is_always_thinking(model: ModelName) -> bool:
    """Return whether this Claude model's thinking cannot be switched off."""
    return model.maker == "anthropic" and model.family in ("fable", "mythos")
