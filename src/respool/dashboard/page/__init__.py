"""The dashboard's page: one HTML text with its style, its script and its security policy."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from ...pages import csp_hash, shared_script, shared_style

__all__ = ["page", "content_security_policy"]

# In dependency order.
_SCRIPTS = (
    "terms.js",
    "format.js",
    "api_client.js",
    "controls.js",
    "filters.js",
    "charts.js",
    "overview.js",
    "tables.js",
    "bill.js",
    "evidence.js",
    "diff.js",
    "edits.js",
    "conversation.js",
    "conversations.js",
    "events.js",
    "status.js",
    "page.js",
)


@cache
def page() -> bytes:
    """Complete page."""
    return Template(_asset("page.html")).substitute(style=_style(), script=_script()).encode()


@cache
def content_security_policy() -> bytes:
    """Content security policy: run this script only, and query this origin.

    By hash, not by origin: everything else on this port comes from a provider and must not run.
    """
    rules = (
        "default-src 'none'",
        f"script-src {csp_hash(_script())}",
        f"style-src {csp_hash(_style())}",
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
    return shared_style() + _asset("page.css")


@cache
def _script() -> str:
    return "\n".join((shared_script(), *map(_asset, _SCRIPTS)))


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
