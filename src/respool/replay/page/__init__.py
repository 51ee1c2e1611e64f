"""A replay as one page that a browser opens from disk: its data, style and script in one file."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from ...drawing import leave_for, script, style
from ..result import Replay
from .drawn import fitted

__all__ = ["page"]

# In this order: each uses only the names of those before it.
_SCRIPTS = (
    "words.js",
    "shapes.js",
    "policy_charts.js",
    "charts.js",
    "headline.js",
    "policies.js",
    "spent.js",
    "time.js",
    "trust.js",
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


def page(replay: Replay) -> str:
    """All of the page, ready to be written to a file."""
    sheet, drawn = style() + _asset("page.css"), "\n".join((script(), *map(_asset, _SCRIPTS)))
    return Template(_asset("page.html")).substitute(
        style=sheet,
        script=drawn,
        leave=f"script-src {leave_for(drawn)}; style-src {leave_for(sheet)}",
        data=fitted(replay).decode("utf-8").translate(_ESCAPES),
    )


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
