"""Replay page: one HTML file with data, style and script inlined."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from ...pages import csp_hash, shared_script, shared_style
from ..result import Replay
from .page_data import encode_page_data

__all__ = ["render_page"]

# In this order: each uses only the names of those before it.
_SCRIPTS = (
    "format.js",
    "chart_parts.js",
    "policy_charts.js",
    "charts.js",
    "headline.js",
    "policies.js",
    "cost_breakdown.js",
    "timeline.js",
    "accuracy.js",
    "session.js",
    "sessions.js",
    "page.js",
)

# JSON inside HTML: nothing in it may end the element or open another one, and two characters
# that JSON allows end a line in older scripts.
_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def render_page(replay: Replay) -> str:
    """All of the page, ready to be written to a file."""
    sheet, drawn = (
        shared_style() + _asset("page.css"),
        "\n".join((shared_script(), *map(_asset, _SCRIPTS))),
    )
    return Template(_asset("page.html")).substitute(
        style=sheet,
        script=drawn,
        leave=f"script-src {csp_hash(drawn)}; style-src {csp_hash(sheet)}",
        data=encode_page_data(replay).decode("utf-8").translate(_ESCAPES),
    )


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
