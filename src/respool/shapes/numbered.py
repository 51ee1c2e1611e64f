"""Line numbers that tools put before the lines of a file."""

from __future__ import annotations

import re
from typing import Final

# "   12→", "12\t", "12: ", "12|": as the tools of agents, `cat -n`, `nl -ba` and `rg -n` print them
NUMBER: Final = r"[ ]{0,6}\d{1,7}(?:→|\t|: ?|\| ?)"
_FIRST: Final = re.compile(r"[ ]{0,6}(\d{1,7})(?:→|\t|: ?|\| ?)")


def is_numbered(text: str) -> bool:
    """Whether the lines of a text carry numbers, by its first two lines."""
    first = _FIRST.match(text)
    if first is None:
        return False
    after = text.find("\n") + 1
    if after in (0, len(text)):
        return True
    second = _FIRST.match(text, after)
    return second is not None and int(second[1]) == int(first[1]) + 1


def both(pattern: str, number: str = NUMBER) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A pattern of how lines begin: for lines without numbers, and for lines with them.

    Each match begins at the line break before its line, which is quick to look for.
    """
    return re.compile(rf"\n{pattern}"), re.compile(rf"\n{number}{pattern}")
