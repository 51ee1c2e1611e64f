"""Remove colours and redraws from results on arrival, and decoration if the policy says so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import eq

from ..edits import TIDIED, Offer
from ..markers import find_marker, gap_line, reference
from ..policy import Policy
from ..regex import lazy_compile
from ..shapes.decoration import ESCAPE_CODE, is_exact_file, strip_decoration, thin_tool_numbers
from ..shapes.search_results import group_by_file
from ..tools.use import Use
from .base import View, acts, trim_offer

_MIN_CHARS = 16  # smaller changes are ignored
_MIN_SAVED_TOKENS = 8  # smaller savings are not worth a changed message
_PRINTED_CONTENTS = frozenset(("log", "test", "listing", "table"))  # printed by a program
_MIN_REPEATS = 4  # from this many identical lines on, they are counted
_GAP_START = "[… "

_ERASE_TO_END = lazy_compile(r"\x1b\[0?K")  # from here to the end of the line
_ERASE_LINE = lazy_compile(r"\x1b\[2K")
_TRAILING_BLANKS = lazy_compile(r"(?<![ \t])[ \t]++(?=\r?(?:\n|\Z))")
_EXCESS_BLANK_LINES = lazy_compile(r"(?<!\n)\n{4,}+")  # more than two blank lines


@acts(at_arrival=True, at_epochs=False)
def tidy_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer results as a terminal would show them; lines of files stay exact."""
    transcript = view.transcript
    for position in view.fresh_results():
        part, ordinal = transcript.parts[position], transcript.exchange_of[position]
        if len(part.text) < _MIN_CHARS or ordinal < 0:
            continue
        text, done = _tidy(part.text, view.use(ordinal), policy)
        if len(part.text) - len(text) < _MIN_CHARS or not text.strip():
            continue
        if not view.can_rewrite(position) or find_marker(part.text) or find_marker(text):
            continue  # tidying must not produce a marker
        saved = view.saved_by(position, text)
        if saved >= _MIN_SAVED_TOKENS:
            ref, evidence = reference(part.text), ", ".join(done)
            yield trim_offer(
                view, position, text, original=ref, reason=TIDIED, evidence=evidence, saved=saved
            )


def _tidy(text: str, use: Use, policy: Policy) -> tuple[str, list[str]]:
    """A result as a terminal shows it, without its decoration; and a list of the changes."""
    done: list[str] = []
    strip = strip_decoration if policy.strip_decoration else thin_tool_numbers
    text = _record_change(
        text, strip(text, use, policy.line_number_interval), "numbering and notes", done
    )
    if is_exact_file(use):
        return text, done
    if use.content == "hits" and policy.strip_decoration:
        text = _record_change(text, group_by_file(text), "paths that come again", done)
    printed = _is_printed(use)
    if printed and "\r" in text and text.count("\r") > text.count("\r\n"):
        text = _record_change(text, _resolve_redraws(text), "redrawn lines", done)
    if "\x1b" in text:
        text = _record_change(text, ESCAPE_CODE.sub("", text), "escape codes", done)
    if printed and policy.strip_decoration:
        text = _record_change(text, _strip_trailing_blanks(text), "trailing blanks", done)
        text = _count_repeats(text, done)
        text = _record_change(text, _collapse_blank_lines(text), "blank lines", done)
    return text, done


def _is_printed(use: Use) -> bool:
    """Return whether a result is a program's own output and not a file."""
    return use.content in _PRINTED_CONTENTS and use.kind != "read" and not use.reads


def _record_change(before: str, after: str, what: str, done: list[str]) -> str:
    gone = len(before) - len(after)
    if gone:
        done.append(f"{gone:,} chars of {what}")
    return after


def _resolve_redraws(text: str) -> str:
    """Lines redrawn by carriage returns, in their final state; CR LF line ends stay."""
    return "\n".join(_final_line(line) if "\r" in line else line for line in text.split("\n"))


def _final_line(line: str) -> str:
    drawn = line.rstrip("\r")
    if "\r" not in drawn:
        return drawn + "\r" * (len(drawn) < len(line))
    shown = ""
    for over in drawn.split("\r"):
        *erased, left = _ERASE_LINE.split(over)
        plain = ESCAPE_CODE.sub("", left)
        if not erased and not _ERASE_TO_END.search(left) and len(plain) < len(shown):
            return line  # redrawn in part: data with a carriage return, not progress
        shown = plain
    return shown + "\r" * (len(drawn) < len(line))


def _strip_trailing_blanks(text: str) -> str:
    if " \n" in text or "\t\n" in text or " \r\n" in text or "\t\r\n" in text:
        return _TRAILING_BLANKS.sub("", text)
    return text.rstrip(" \t")


def _count_repeats(text: str, done: list[str]) -> str:
    """The text with one line of each run of identical lines, and a count of the others."""
    lines = text.split("\n")
    same = bytes(map(eq, lines, islice(lines, 1, None)))  # 1: the next line is the same
    at = same.find(b"\1" * (_MIN_REPEATS - 1))
    if at < 0 or _GAP_START in text:  # its gaps could not be distinguished
        return text
    kept: list[str] = []
    start = repeats = 0
    while at >= 0:
        end = same.find(b"\0", at)
        more = (end if end >= 0 else len(same)) - at
        if _is_worth_counting(lines[at], more):
            kept += (*lines[start : at + 1], gap_line(more, "repeats"))
            start, repeats = at + more + 1, repeats + more
        at = same.find(b"\1" * (_MIN_REPEATS - 1), at + more)
    if repeats:
        done.append(f"{repeats:,} repeated lines")
    return "\n".join((*kept, *lines[start:]))


def _is_worth_counting(line: str, more: int) -> bool:
    return bool(line.strip()) and more * (len(line) + 1) >= 2 * len(gap_line(more, "repeats"))


def _collapse_blank_lines(text: str) -> str:
    """At most two blank lines in a row, and none at the end."""
    if "\n\n\n\n" in text:
        text = _EXCESS_BLANK_LINES.sub("\n\n\n", text)
    return text.rstrip("\n") + "\n" if text.endswith("\n\n") else text
