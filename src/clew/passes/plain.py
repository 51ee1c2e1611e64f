"""What tools put around and before the lines they show, and no reader misses: blanks and ids."""

from __future__ import annotations

import re
from typing import Final

# Numbers that a tool put before a file's lines, set flush right: "    12→", "    12\t".
_PADDED: Final = re.compile(r"^ {1,8}(?=\d{1,8}[→\t])", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^ {0,8}(\d{1,8})([→\t])", re.MULTILINE)
_FRAME: Final = 512  # characters in which the head of a shell tool's result stands
_OUTPUT: Final = "\nOutput:\n"
_IDLE: Final = re.compile(
    r"^(?:Chunk ID: [0-9A-Za-z]{1,32}|Wall time: 0\.\d{1,8} seconds"
    r"|Original token count: \d{1,9}|Command: [^\n]{1,400})\n",
    re.MULTILINE,
)
_LEAST: Final = 3  # numbered lines, by which a tool's numbers are told from a file's own


def plain(text: str) -> str:
    """A result without blanks before line numbers, and without what a shell tool notes for itself.

    >>> plain("    98→weave()\\n    99→\\n   100→return")
    '98→weave()\\n99→\\n100→return'
    """
    return _without_padding(_without_notes(text))


def _without_notes(text: str) -> str:
    """The text without the head's ids, counts, idle times, and the command, which its call says."""
    end = text.find(_OUTPUT, 0, _FRAME)
    if end < 0 or text.startswith(_OUTPUT[1:]):  # a head in the output itself is no head
        return text
    return _IDLE.sub("", text[: end + 1]) + text[end + 1 :]


def _without_padding(text: str) -> str:
    return _PADDED.sub("", text) if _is_numbered_by_a_tool(text) else text


def _is_numbered_by_a_tool(text: str) -> bool:
    """Whether the first numbered lines are, and go on one by one: no file's own text does that."""
    last, sign, count = -1, "", 0
    for found in _NUMBERED.finditer(text):
        number = int(found[1])
        if count and (number != last + 1 or found[2] != sign):
            return False
        last, sign, count = number, found[2], count + 1
        if count == _LEAST:
            return True
    return False
