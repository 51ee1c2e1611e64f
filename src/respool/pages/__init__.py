"""Style and scripts that respool's HTML pages share: theme, elements, number formats, SVG."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

__all__ = ["csp_hash", "shared_script", "shared_style"]

# In this order: the shapes use the words.
_SCRIPTS = ("elements.js", "svg.js", "theme.js")


def shared_script() -> str:
    """All of it; a page's own scripts stand behind."""
    return "\n".join(map(_asset, _SCRIPTS))


def shared_style() -> str:
    """What every page looks like, light and dark; a page's own sheet stands behind."""
    return _asset("base.css")


def csp_hash(text: str) -> str:
    """What a page's policy says to let this very script or sheet stand in it, and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
