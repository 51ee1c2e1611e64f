"""What an agent's own tools put around an output: heads that tell how it went, notes at the end."""

from __future__ import annotations

import re

from msgspec import Struct

_HEAD = re.compile(
    r"(?:(?:Command|Chunk ID|Wall time|Process |Exit code|Original token count|Total output lines)"
    r"[^\n]{0,2000}\n){1,8}(?:Output:\n)?(?:Total output lines[^\n]{0,40}\n\n?)?"
)
_NOTE = "\n<system-reminder>"
_NOTE_END = "</system-reminder>"
# What Gemini CLI and qwen-code say below an output: they begin it in one of these ways.
_BEGUN = ("Output: ", "Stdout: ", "Command: ")
_ENDED = re.compile(
    r"(?:\n(?:Error: \(none\)|Stderr: \(empty\)|Exit Code: [^\n]{1,20}|Signal: [^\n]{1,20}"
    r"|Background PIDs: [^\n]{1,200}|Process Group PGID: [^\n]{1,20})){1,6}\s{0,4}\Z"
)
_FAR = 1_000  # characters before the end in which that stands
_MOST = 2_000  # characters of a head or a note that stay as they are


class Frame(Struct, frozen=True, gc=False):
    """A text in three: what stands before the output, the output, what stands behind it."""

    head: str
    body: str
    note: str


def framed(text: str) -> Frame:
    """Take an output out of its frame.

    >>> framed("Exit code: 0\\nOutput:\\nfine").body
    'fine'
    """
    found = _HEAD.match(text, 0, _MOST)
    start = found.end() if found is not None else 0
    end = len(text)
    if text.endswith((_NOTE_END, _NOTE_END + "\n")):
        note = text.rfind(_NOTE, max(start, end - _MOST))
        end = note + 1 if note >= 0 else end
    elif text.startswith(_BEGUN) and (ended := _ENDED.search(text, max(start, end - _FAR))):
        end = ended.start() + 1
    return Frame(text[:start], text[start:end], text[end:])
