"""What is known of tools: what each one declares, in a registry that is itself a value."""

from __future__ import annotations

from .declaration import TOOL_KEYS, UNLIMITED, Tool
from .registry import Tools
from .use import CONTENTS, Content, Identity, Kind, Span, Use

__all__ = [
    "CONTENTS", "Content", "Identity", "Kind", "Span", "TOOL_KEYS", "Tool", "Tools", "UNLIMITED",
    "Use",
]  # fmt: skip
