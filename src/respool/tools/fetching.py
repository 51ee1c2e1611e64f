"""Which of a request's tools gives originals back: the one place that knows such names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# `expand` of a server called respool, as clients spell it: respool_expand, mcp__respool__expand,
# respool.expand, mcp__plugin_respool_respool__expand; the tool itself may be called respool_expand.
_FETCHES: Final = re.compile(
    r"(?:mcp(?:__?|[.:/-]))?(?:plugin_[A-Za-z0-9-]+_)?respool(?:__?|[.:/-])(?:respool[_-])?expand"
)


def fetches(name: str) -> bool:
    """Whether this is the name of the tool that gives originals back.

    >>> fetches("mcp__respool__expand"), fetches("expand"), fetches("mcp__other__expand")
    (True, False, False)
    """
    return _FETCHES.fullmatch(name) is not None


def fetching_tool(names: Iterable[str]) -> str | None:
    """The first of these tools that gives originals back; None if none does."""
    return next((name for name in names if fetches(name)), None)
