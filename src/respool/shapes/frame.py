"""Frame that an agent puts around an output: status head, notes at the end."""

from __future__ import annotations

import re

from msgspec import Struct

_HEAD = re.compile(
    r"(?:(?:Command|Chunk ID|Wall time|Process |Exit code|Original token count|Total output lines)"
    r"[^\n]{0,2000}\n){1,8}(?:Output:\n)?(?:Total output lines[^\n]{0,40}\n\n?)?"
)
# Notes of agents around an output that they saved elsewhere and show in part: Claude Code,
# Copilot, Gemini CLI, opencode; pi.
_ABOVE = re.compile(
    r"(?:<persisted-output>\n)?(?:Output too large\b[^\n]{0,300}?|\.{3}output truncated\.{3}\n\n"
    r"Full output )(?:[Ss]aved to|[Ff]ull output see): ([^\n]{1,500})\n"
    r"(?:Consider [^\n]{0,400}\n)?(?:\nPreview[^\n]{0,40}\n|\n)?"
)
_BELOW = re.compile(
    r"\n\n?\[[^\n\]]{0,200}Full output: ([^\n\]]{1,500})\]"
    r"(?:\n\nCommand exited with code -?\d{1,10})?\s{0,4}\Z"
)
_TRUNCATED = re.compile(r"…\d{1,9} (?:tokens|chars|lines) truncated…")  # Codex, in the middle
_NOTE = "\n<system-reminder>"
_NOTE_END = "</system-reminder>"
# Beginnings of the notes that Gemini CLI and qwen-code put below an output.
_BEGUN = ("Output: ", "Stdout: ", "Command: ")
_ENDED = re.compile(
    r"(?:\n(?:Error: \(none\)|Stderr: \(empty\)|Exit Code: [^\n]{1,20}|Signal: [^\n]{1,20}"
    r"|Background PIDs: [^\n]{1,200}|Process Group PGID: [^\n]{1,20})){1,6}\s{0,4}\Z"
)
_SEARCHED_CHARS = 1_000  # characters before the end that may hold such a note
_MAX_FRAME_LINES = 2_000  # characters of a head or a note that stay unchanged


class OutputFrame(Struct, frozen=True, gc=False):
    """An output with the text before and after it."""

    head: str
    body: str
    note: str


def split_frame(text: str) -> OutputFrame:
    """Separate an output from its frame.

    >>> split_frame("Exit code: 0\\nOutput:\\nfine").body
    'fine'
    """
    found = _HEAD.match(text, 0, _MAX_FRAME_LINES) or _ABOVE.match(text, 0, _MAX_FRAME_LINES)
    start = found.end() if found is not None else 0
    end = len(text)
    if text.endswith((_NOTE_END, _NOTE_END + "\n")):
        note = text.rfind(_NOTE, max(start, end - _MAX_FRAME_LINES))
        end = note + 1 if note >= 0 else end
    elif text.startswith(_BEGUN) and (
        ended := _ENDED.search(text, max(start, end - _SEARCHED_CHARS))
    ):
        end = ended.start() + 1
    return OutputFrame(text[:start], text[start:end], text[end:])


def is_truncated(text: str) -> bool:
    """Check whether the agent says that it shows only part of an output.

    >>> is_truncated("first\\n…6612 tokens truncated…\\nlast"), is_truncated("first\\nlast")
    (True, False)
    """
    return _TRUNCATED.search(text) is not None or bool(full_output_path(text))


def full_output_path(text: str) -> str:
    """The file with the full output that the agent shows in part; "" if it names none.

    >>> full_output_path("Output too large to read at once (9 KB). Saved to: /tmp/out.txt\\nfirst")
    '/tmp/out.txt'
    """
    found = _ABOVE.match(text, 0, _MAX_FRAME_LINES) or _BELOW.search(
        text, max(0, len(text) - _SEARCHED_CHARS)
    )
    return "" if found is None else found[1].strip()
