"""Tools: declarations, the registry, and the effects of calls."""

from __future__ import annotations

from .declaration import TOOL_KEYS, UNLIMITED, Tool
from .registry import Tools
from .use import CONTENTS, CallIdentity, Content, Span, ToolKind, Use

__all__ = [
    "CONTENTS",
    "Content",
    "CallIdentity",
    "ToolKind",
    "Span",
    "TOOL_KEYS",
    "Tool",
    "Tools",
    "UNLIMITED",
    "Use",
]
