"""What respool's pages share: paper and ink, how numbers are said, what charts are made of."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

__all__ = ["leave_for", "script", "style"]

# In this order: the shapes use the words.
_SCRIPTS = ("words.js", "shapes.js", "theme.js")


def script() -> str:
    """All of it; a page's own scripts stand behind."""
    return "\n".join(map(_asset, _SCRIPTS))


def style() -> str:
    """What every page looks like, light and dark; a page's own sheet stands behind."""
    return _asset("paper.css")


def leave_for(text: str) -> str:
    """What a page's policy says to let this very script or sheet stand in it, and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
