"""The dashboard's page: one text, with its style and script in it, and leave for nothing else."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from ...drawing import leave_for, script, style

__all__ = ["page", "policy"]

# In this order: what runs at once uses only the names of those before it.
_SCRIPTS = (
    "words.js",
    "asking.js",
    "charts.js",
    "overview.js",
    "differing.js",
    "edits.js",
    "conversation.js",
    "conversations.js",
    "notable.js",
    "standing.js",
    "page.js",
)


@cache
def page() -> bytes:
    """All of the page."""
    return Template(_asset("page.html")).substitute(style=_style(), script=_script()).encode()


@cache
def policy() -> bytes:
    """What the page may do: run this very script, and ask where it came from.

    By their hashes, and not by where they are: whatever else this port serves comes from a
    provider, and is nothing that the page may run.
    """
    rules = (
        "default-src 'none'",
        f"script-src {leave_for(_script())}",
        f"style-src {leave_for(_style())}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules).encode()


@cache
def _style() -> str:
    return style() + _asset("page.css")


@cache
def _script() -> str:
    return "\n".join((script(), *map(_asset, _SCRIPTS)))


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
