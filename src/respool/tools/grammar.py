"""Bash's grammar, loaded with the first shell command."""

from __future__ import annotations

from functools import cache
from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Tree

_PARSERS = local()  # one for each thread, for they cannot share one


def parsed(data: bytes) -> Tree:
    """The tree of a text, with errors in it where it is no shell."""
    if not hasattr(_PARSERS, "parse"):
        from tree_sitter import Parser

        _PARSERS.parse = Parser(_language()).parse
    return _PARSERS.parse(data)


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())
