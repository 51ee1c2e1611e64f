"""Style and scripts that respool's HTML pages share: theme, elements, number formats, SVG."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

__all__ = ["csp_hash", "shared_script", "shared_style"]

# In dependency order.
_SCRIPTS = ("elements.js", "svg.js", "theme.js")


def shared_script() -> str:
    """Shared script; a page's own scripts follow it."""
    return "\n".join(map(_asset, _SCRIPTS))


def shared_style() -> str:
    """Shared style, light and dark; a page's own sheet follows it."""
    return _asset("base.css")


def csp_hash(text: str) -> str:
    """Hash of a script or style sheet for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
