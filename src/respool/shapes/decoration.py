"""Decoration that tools add to results: line numbers, escape codes, shell notes.

Removes padding, ids, and most of the numbers before consecutive lines: every fifth number is enough
to derive the others.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from ..regex import lazy_compile
from ..tools.use import Use

# Line numbers that a tool put before a file's lines, right-aligned: "    12→", "    12\t".
_PADDED_NUMBER: Final = lazy_compile(r"^ {1,8}(?=\d{1,8}[→\t])", re.MULTILINE)
_FILE_NUMBER_AFTER: Final = lazy_compile(r"\n {0,8}(\d{1,8})([→\t])")  # a line break is found fast
# The same, and "12: ", "00012| ": each tool has its own separator.
_NUMBERED_LINE: Final = lazy_compile(r" {0,8}(\d{1,8})(→|\t|: |\| )")
_NUMBERED_LINE_AFTER: Final = lazy_compile(rf"\n{_NUMBERED_LINE.pattern}")
# File text that a reader would take for such a number, or for a line of respool's.
_AMBIGUOUS_LINE: Final = lazy_compile(r"\s*(?:\d+[→\t:|]|\[(?:… |respool|names only there: ))")
_MAX_HEAD_CHARS: Final = 512  # characters that hold the head of a shell tool's result
# The head holds nothing else; a command alone is not a head.
_SHELL_HEAD: Final = lazy_compile(
    r"(?:Command: [^\n]{1,400}\n)?"
    r"(?:(?:Chunk ID|Wall time|Process |Exit code|Original token count)[^\n]{0,200}\n){1,8}"
    r"(?=Output:\n)"
)
_SHELL_NOTE: Final = lazy_compile(
    r"^(?:Chunk ID: [0-9A-Za-z]{1,32}|Wall time: 0\.\d{1,8} seconds"
    r"|Original token count: \d{1,9}|Command: [^\n]{1,400})\n",
    re.MULTILINE,
)
_MIN_NUMBERED_LINES: Final = 3  # numbered lines that distinguish a tool's numbers from a file's own
_NO_NUMBER: Final = -1
_ROW_CONTENTS: Final = frozenset(("table", "log"))

# All escape codes that move, color or name something, complete or not. The rest cannot form a new
# one: an introducer is always removed, with all escapes before it.
ESCAPE_CODE: Final = lazy_compile(
    r"(?<!\x1b)\x1b++(?:"
    r"\[[0-?]*+[ -/]*+[@-~]?"
    r"|\](?:[^\x07\x1b\n]{0,4096}+(?:\x07|\x1b\\))?"
    r"|[()][0-9AB]?"
    r"|[=>78\\])"
)
# Beginnings of lines that respool inserts.
_OWN_LINE_STARTS: Final = ("[respool", "[… ", "[names only there: ")


def is_exact_file(use: Use) -> bool:
    """Check whether a result is a file's exact text, which agents edit by."""
    whole = any(not span.part for span in use.reads)
    return use.kind == "read" and whole and use.content != "log"


def strip_escape_codes(text: str, use: Use | None) -> str:
    """A result without the escape codes that tidying removed; files keep theirs.

    No line may become one of respool's own by that.
    """
    if "\x1b" not in text or use is None or is_exact_file(use):
        return text
    lines = text.split("\n")
    if any("\x1b" in line and any(sign in line for sign in _OWN_LINE_STARTS) for line in lines):
        return text
    return ESCAPE_CODE.sub("", text)


def strip_padding(text: str, original: str | None = None) -> str:
    """A result without padding before line numbers and without a shell tool's notes.

    `original` is the result as it arrived, if lines were removed since: it shows whose numbers they
    are.

    >>> strip_padding("    98→weave()\\n    99→\\n   100→return")
    '98→weave()\\n99→\\n100→return'
    """
    text = strip_shell_notes(text)
    return (
        _PADDED_NUMBER.sub("", text)
        if _number_separator(_FILE_NUMBER_AFTER, original or text)
        else text
    )


def strip_decoration(text: str, use: Use | None, interval: int, original: str | None = None) -> str:
    """The same, with fewer line numbers."""
    if use is not None and use.content in _ROW_CONTENTS and not use.numbers:
        return strip_shell_notes(text)
    return thin_tool_numbers(strip_padding(text, original), use, interval, original)


def thin_tool_numbers(
    text: str, use: Use | None, interval: int, original: str | None = None
) -> str:
    """A result with fewer line numbers if the tool numbers every line it shows.

    A file of numbered rows may have its own numbers, and a shell command that numbers lines was
    asked to.
    """
    if use is None or not use.numbers or use.content in _ROW_CONTENTS:
        return text
    return thin_line_numbers(text, interval, original)


def thin_line_numbers(text: str, interval: int, original: str | None = None) -> str:
    """A result with every `interval`-th of its tool's line numbers.

    The first and the last of consecutive lines keep their numbers, so the others can be derived. So
    do lines that would be ambiguous without a number.

    >>> thin_line_numbers("7→weave()\\n8→\\n9→return\\n10→\\n11→def knot\\n12→", 5)
    '7→weave()\\n\\nreturn\\n10→\\ndef knot\\n12→'
    """
    sign = "" if interval == 1 else _number_separator(_NUMBERED_LINE_AFTER, original or text)
    if not sign:
        return text
    lines = text.split("\n")
    numbers = [_line_number(line, sign) for line in lines]
    thinned = lines.copy()
    for at in range(1, len(lines) - 1):
        number = numbers[at]
        if number % interval and numbers[at - 1] == number - 1 and numbers[at + 1] == number + 1:
            content = lines[at].partition(sign)[2]
            thinned[at] = lines[at] if _AMBIGUOUS_LINE.match(content) else content
    return "\n".join(thinned)


def _line_number(line: str, sign: str) -> int:
    """The number before a line, if this separator follows it."""
    found = _NUMBERED_LINE.match(line)
    return int(found[1]) if found is not None and found[2] == sign else _NO_NUMBER


def _number_separator(numbered: re.Pattern[str], text: str) -> str:
    """The separator after the first line numbers, if these are consecutive.

    No file's own text has that; empty if they are not consecutive.
    """
    last, sign, count = _NO_NUMBER, "", 0
    for found in numbered.finditer(f"\n{text}"):
        number = int(found[1])
        if count and (number != last + 1 or found[2] != sign):
            return ""
        last, sign, count = number, found[2], count + 1
        if count == _MIN_NUMBERED_LINES:
            return sign
    return ""


def strip_shell_notes(text: str) -> str:
    """The text without ids, counts and idle times of the head, and without the command."""
    head = _SHELL_HEAD.match(text, 0, _MAX_HEAD_CHARS)
    return text if head is None else _SHELL_NOTE.sub("", head[0]) + text[head.end() :]


# --- the frame ---------------------------------------------------------------------------------


_HEAD = lazy_compile(
    r"(?:(?:Command|Chunk ID|Wall time|Process |Exit code|Original token count|Total output lines)"
    r"[^\n]{0,2000}\n){1,8}(?:Output:\n)?(?:Total output lines[^\n]{0,40}\n\n?)?"
)
# Notes of agents around an output that they saved elsewhere and show in part: Claude Code,
# Copilot, Gemini CLI, opencode; pi.
_ABOVE = lazy_compile(
    r"(?:<persisted-output>\n)?(?:Output too large\b[^\n]{0,300}?|\.{3}output truncated\.{3}\n\n"
    r"Full output )(?:[Ss]aved to|[Ff]ull output see): ([^\n]{1,500})\n"
    r"(?:Consider [^\n]{0,400}\n)?(?:\nPreview[^\n]{0,40}\n|\n)?"
)
_BELOW = lazy_compile(
    r"\n\n?\[[^\n\]]{0,200}Full output: ([^\n\]]{1,500})\]"
    r"(?:\n\nCommand exited with code -?\d{1,10})?\s{0,4}\Z"
)
_TRUNCATED = lazy_compile(r"…\d{1,9} (?:tokens|chars|lines) truncated…")  # Codex, in the middle
_NOTE = "\n<system-reminder>"
_NOTE_END = "</system-reminder>"
# Beginnings of the notes that Gemini CLI and qwen-code put below an output.
_BEGUN = ("Output: ", "Stdout: ", "Command: ")
_ENDING = (
    r"(?:Error: \(none\)|Stderr: \(empty\)|Exit Code: [^\n]{1,20}|Signal: [^\n]{1,20}"
    r"|Background PIDs: [^\n]{1,200}|Process Group PGID: [^\n]{1,20})"
)
_ENDED = lazy_compile(
    rf"\n{_ENDING}(?:\n{_ENDING}){{0,5}}\s{{0,4}}\Z"
)  # a line break is found fast
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
