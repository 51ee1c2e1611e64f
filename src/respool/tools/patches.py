"""Patches: which files they name, and whether each is written whole."""

from __future__ import annotations

import re
from typing import Final

from .paths import normal
from .use import Span

MOST_FILES: Final = 500  # a patch that names more is not listed

_ENVELOPE = re.compile(
    r"^\*\*\* (Add File|Update File|Delete File|Move to): ?([^\r\n]{1,1000})", re.MULTILINE
)
_UNIFIED = re.compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\r\n]{1,1000})", re.MULTILINE)
_BEGINS = "*** Begin Patch"


def patched(text: str, base: str | None = None) -> tuple[tuple[Span, ...], bool] | None:
    """The files that a patch writes, and whether it writes each whole; None if that is not clear.

    >>> patched("*** Begin Patch\\n*** Add File: a.py\\n+x\\n*** End Patch")
    ((Span(path='a.py', lines=None, part=False),), True)
    """
    if _BEGINS in text[:2_000]:
        return _envelope(text, base)
    return _unified(text, base)


def _envelope(text: str, base: str | None) -> tuple[tuple[Span, ...], bool] | None:
    """The form that `apply_patch` takes."""
    found = [(match[1], match[2].strip()) for match in _ENVELOPE.finditer(text)]
    if not found or len(found) > MOST_FILES or not all(path for _, path in found):
        return None
    whole = all(what in ("Add File", "Delete File") for what, _ in found)
    return _spans([path for _, path in found], base), whole


def _unified(text: str, base: str | None) -> tuple[tuple[Span, ...], bool] | None:
    """A diff as `diff -u` and `git diff` write it."""
    found = [match[1].strip() for match in _UNIFIED.finditer(text)]
    paths = [path for path in found if path != "/dev/null"]
    if not paths or len(paths) > MOST_FILES:
        return None
    return _spans(paths, base), False


def _spans(paths: list[str], base: str | None) -> tuple[Span, ...]:
    return tuple(Span(path) for path in dict.fromkeys(normal(path, base) for path in paths))
