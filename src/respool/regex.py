"""Regular expressions that are compiled when they are first used.

Compiling the package's patterns takes a third of its import, and most processes use few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class CompiledPattern:
    """Pattern after its first use: the methods of the `re.Pattern` are its own attributes."""


class LazyPattern(CompiledPattern):
    """Pattern before its first use: the first attribute that is asked for compiles it."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        self.__dict__.update({one: getattr(compiled, one) for one in _ATTRIBUTES})
        # A class without __getattr__, whose attributes the interpreter finds as fast as methods.
        self.__class__ = CompiledPattern  # pyright: ignore[reportAttributeAccessIssue]
        return getattr(compiled, name)


_ATTRIBUTES = [name for name in dir(re.Pattern) if not name.startswith("_")]


def lazy_compile(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Make a pattern that is used as the result of `re.compile` is.

    >>> lazy_compile(r"\\d+").findall("3 of 14")
    ['3', '14']
    """
    return cast("re.Pattern[AnyStr]", LazyPattern(pattern, flags))
