"""Clip each seen result that is longer than its tool's cap."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

from ..edits import Offer
from ..history.failures import error_line, is_failed_call, strip_color
from ..markers import RESERVED_MARKER_CHARS, ClipMarker, find_marker, reference
from ..policy import Policy
from ..regex import lazy_compile
from ..shapes.excerpt import clip_line
from ..summaries.call_label import call_subject
from ..transcript import Part
from .base import View, trim_offer

_FAILURE_PATTERN = lazy_compile(
    r"error|exception|traceback|fail|fatal|panic|denied|not found|cannot|abort", re.IGNORECASE
)
_MAX_SEARCHED_LINE_CHARS = 2_000  # longer lines are not searched for a failure
_MIN_ERROR_CHARS = 136  # of the line that names the error; these always stay


def cap_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to clip results over their cap; head and tail stay, cut at line ends."""
    smallest = _smallest_cap(policy)
    parts = view.transcript.parts
    for position in view.fresh_results():
        part = parts[position]
        if len(part.text) <= smallest or not view.is_tidy(position):
            continue
        cap = policy.tools.cap_for(view.tool_of(position), policy.cap_chars)
        if cap is None or len(part.text) <= cap or not view.can_rewrite(position):
            continue
        offer = _clip_offer(view, position, part, cap)
        if offer is not None:
            yield offer


def _smallest_cap(policy: Policy) -> float:
    """The smallest cap of any tool."""
    caps = [
        policy.cap_chars,
        *(policy.tools.cap_for(tool.name, policy.cap_chars) for tool in policy.tools),
    ]
    return min((cap for cap in caps if cap is not None), default=math.inf)


def _clip_offer(view: View, position: int, part: Part, cap: int) -> Offer | None:
    if find_marker(part.text) is not None:
        return None
    tool = view.tool_of(position)
    ref = reference(part.text)
    clip = _Clip(
        tool=tool or "unnamed",
        subject=_subject(view, position),
        cap=cap,
        is_rerun_safe=_is_rerun_safe(view, position),
        ref=ref,
        fetch_tool=view.fetch_tool,
    )
    text = clip.apply(part.text, _has_failed(view, position, part))
    saved = view.saved_by(position, text)
    if saved <= 0:
        return None
    evidence = f"{len(part.text):,} chars, cap {cap:,}"
    return trim_offer(
        view, position, text, original=ref, reason="over_cap", evidence=evidence, saved=saved
    )


def _subject(view: View, position: int) -> str:
    """The file or command of the call of a result."""
    ordinal = view.transcript.exchange_of[position]
    call = view.transcript.call_of(position)
    return "" if call is None else call_subject(call, view.use(ordinal))


def _has_failed(view: View, position: int, part: Part) -> bool:
    """Return whether the call of a result failed, if the result says so."""
    ordinal = view.transcript.exchange_of[position]
    return is_failed_call(
        part.text, part.error, view.use(ordinal).outcome_kind if ordinal >= 0 else "other"
    )


def _is_rerun_safe(view: View, position: int) -> bool:
    """Return whether the call is known to be safe to run again."""
    ordinal = view.transcript.exchange_of[position]
    return ordinal >= 0 and view.use(ordinal).rerun


class _KeptRange(Struct, frozen=True, gc=False):
    """The kept ranges of a text: up to `head`, from `tail` on, and these lines between."""

    head: int
    tail: int
    lines: tuple[str, ...] = ()


class _Clip(Struct, frozen=True, gc=False):
    """The clip of one result: the fields of its marker, and its cap."""

    tool: str
    subject: str
    cap: int
    is_rerun_safe: bool
    ref: str
    fetch_tool: str | None = None  # the tool of this request that returns originals

    def apply(self, text: str, failed: bool) -> str:
        """Replace the middle of the text by a marker, and by lines that name the error."""
        kept = _choose_range(text, max(0, self.cap - RESERVED_MARKER_CHARS - 2), failed)
        marker = str(self._marker(text, kept))
        head, tail = text[: kept.head].removesuffix("\n"), text[kept.tail :]
        pieces = [*([head] if kept.head else []), marker, *kept.lines, *([tail] if tail else [])]
        return "\n".join(pieces)

    def _marker(self, text: str, kept: _KeptRange) -> ClipMarker:
        omitted, total, unit = _count_omitted(text, kept)
        return ClipMarker(
            tool=self.tool,
            size=len(text),
            cap=self.cap,
            omitted=omitted,
            total=total,
            unit=unit,
            errors=len(kept.lines),
            subject=self.subject,
            is_rerun_safe=self.is_rerun_safe,
            ref=self.ref,
            fetch_tool=self.fetch_tool,
        )


def _choose_range(text: str, budget: int, failed: bool) -> _KeptRange:
    """The head and the tail that fit; for a failed call also the lines between that say why."""
    for_lines = budget // 4 if failed else 0
    half = (budget - for_lines) // 2
    head = _end_of_line(text, half) if half else 0
    tail = _start_of_line(text, len(text) - half) if half else len(text)
    if not failed:
        return _KeptRange(head, tail)
    main = error_line(text)
    is_kept = main in strip_color(text[:head]) or main in strip_color(text[tail:])
    missing = "" if is_kept else main
    return _KeptRange(head, tail, _failure_lines(text[head:tail], for_lines, missing))


def _end_of_line(text: str, at: int) -> int:
    """The last line start at or before `at`; inside a long line, a character border."""
    border = text.rfind("\n", 0, at) + 1
    return border if border > at // 2 else _character_border(text, at)


def _start_of_line(text: str, at: int) -> int:
    """The first line start at or after `at`; inside a long line, a character border."""
    border = text.find("\n", at) + 1
    return border if 0 < border < (at + len(text)) // 2 else _character_border(text, at)


def _character_border(text: str, at: int) -> int:
    """The next position that does not separate a character from its accents and joiners."""
    while at < len(text) and (
        unicodedata.combining(text[at])
        or text[at] in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
        or (at > 0 and text[at - 1] == "\u200d")
    ):
        at += 1
    return at


def _failure_lines(text: str, budget: int, main: str) -> tuple[str, ...]:
    """Lines that name a failure, in order; if they do not all fit, the last ones.

    The main one always stays, clipped if necessary.
    """
    lines = text.split("\n")
    chosen: dict[int, str] = {}
    if main:
        at = next((at for at, line in enumerate(lines) if main in strip_color(line)), -1)
        whole = at >= 0 and len(lines[at]) < budget
        chosen[at] = lines[at] if whole else "".join(clip_line(main, _MIN_ERROR_CHARS))
        budget -= len(chosen[at]) + 1
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        fits = len(line) < min(budget, _MAX_SEARCHED_LINE_CHARS)
        if fits and at not in chosen and _FAILURE_PATTERN.search(line):
            chosen[at] = line
            budget -= len(line) + 1
    return tuple(chosen[at] for at in sorted(chosen))


def _count_omitted(text: str, kept: _KeptRange) -> tuple[int, int, str]:
    """The omitted amount, the total and their unit: lines if whole lines went, else characters."""
    lines = text.count("\n") + (not text.endswith("\n"))
    whole = _is_line_border(text, kept.head) and _is_line_border(text, kept.tail)
    if not whole or lines < 2:
        return kept.tail - kept.head, len(text), "chars"
    gone = text.count("\n", kept.head, kept.tail)
    if kept.tail == len(text) and not text.endswith("\n"):
        gone += 1
    return gone, lines, "lines"


def _is_line_border(text: str, at: int) -> bool:
    return at in (0, len(text)) or text[at - 1] == "\n"
