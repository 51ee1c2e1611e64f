"""What clew's pages share: how numbers are said, what charts are made of, light and dark."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["script"]

# In this order: the shapes use the words.
_SCRIPTS = ("words.js", "shapes.js", "theme.js")


def script() -> str:
    """All of it; a page's own scripts stand behind."""
    return "\n".join(files(__name__).joinpath(name).read_text("utf-8") for name in _SCRIPTS)
