"""Clip each seen result that is longer than its tool's cap."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

from ..edits import Offer, Replace
from ..history.failures import error_line, is_failed_call, strip_color
from ..markers import MAX_MARKER_CHARS, ClipMarker, find_marker, reference
from ..policy import Policy
from ..shapes.excerpt import clip_line
from ..transcript import Part
from .base import View

_FAILURE_PATTERN = re.compile(
    r"error|exception|traceback|fail|fatal|panic|denied|not found|cannot|abort", re.IGNORECASE
)
_MAX_SEARCHED_LINE_CHARS = 2_000  # characters of a line that are searched for a failure
_MIN_ERROR_CHARS = 136  # characters of the line that tells an error, which stay in any case


def cap_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to clip results over their cap: head and tail stay, on line borders."""
    least = _smallest_cap(policy)
    parts = view.transcript.parts
    for position in view.fresh_results():
        part = parts[position]
        if len(part.text) <= least or not view.is_tidy(position):
            continue
        cap = policy.tools.cap_for(view.tool_of(position), policy.cap_chars)
        if cap is None or len(part.text) <= cap or not view.can_rewrite(position):
            continue
        offer = _clip_offer(view, policy, position, part, cap)
        if offer is not None:
            yield offer


def _smallest_cap(policy: Policy) -> float:
    """No result up to this length is over any cap."""
    caps = [
        policy.cap_chars,
        *(policy.tools.cap_for(tool.name, policy.cap_chars) for tool in policy.tools),
    ]
    return min((cap for cap in caps if cap is not None), default=math.inf)


def _clip_offer(view: View, policy: Policy, position: int, part: Part, cap: int) -> Offer | None:
    if find_marker(part.text) is not None:
        return None
    tool = view.tool_of(position)
    call = view.transcript.call_of(position)
    ref = reference(part.text)
    clip = _Clip(
        tool or "unnamed",
        (call.id if call else part.id) or f"no. {view.transcript.exchange_of[position] + 1}",
        cap,
        _is_rerun_safe(view, position),
        ref,
        view.fetch_tool,
    )
    text = clip.apply(part.text, _has_failed(view, position, part))
    saved = view.saved_by(position, text)
    if saved <= 0:
        return None
    evidence = f"{len(part.text):,} chars, cap {cap:,}"
    return Offer("trim", Replace(position, part.ref, text, ref, "over_cap", evidence, saved))


def _has_failed(view: View, position: int, part: Part) -> bool:
    """Whether a result is that of a failed call, as far as it tells."""
    ordinal = view.transcript.exchange_of[position]
    return is_failed_call(
        part.text, part.error, view.use(ordinal).outcome_kind if ordinal >= 0 else "other"
    )


def _is_rerun_safe(view: View, position: int) -> bool:
    """Whether running the call again is safe, as far as that is known of it."""
    ordinal = view.transcript.exchange_of[position]
    return ordinal >= 0 and view.use(ordinal).rerun


class _KeptRange(Struct, frozen=True, gc=False):
    """What is kept of a text: up to `head`, from `tail` on, and these lines from between."""

    head: int
    tail: int
    lines: tuple[str, ...] = ()


class _Clip(Struct, frozen=True, gc=False):
    """How one result is clipped."""

    tool: str
    call: str
    cap: int
    is_rerun_safe: bool
    ref: str
    fetch_tool: str | None = None  # the tool of this request that gives originals back

    def apply(self, text: str, failed: bool) -> str:
        """The text with its middle replaced by a marker; where no more fits, that and the error."""
        kept = _choose_range(text, max(0, self.cap - MAX_MARKER_CHARS - 2), failed)
        marker = str(self._marker(text, kept))
        head, tail = text[: kept.head].removesuffix("\n"), text[kept.tail :]
        said = [*([head] if kept.head else []), marker, *kept.lines, *([tail] if tail else [])]
        return "\n".join(said)

    def _marker(self, text: str, kept: _KeptRange) -> ClipMarker:
        gone, all, unit = _count_omitted(text, kept)
        return ClipMarker(
            self.tool,
            len(text),
            self.cap,
            gone,
            all,
            unit,
            len(kept.lines),
            self.call,
            self.is_rerun_safe,
            self.ref,
            self.fetch_tool,
        )


def _choose_range(text: str, budget: int, failed: bool) -> _KeptRange:
    """The head and the tail that fit, and for a failed call the lines between that tell why."""
    for_lines = budget // 4 if failed else 0
    half = (budget - for_lines) // 2
    head = _end_of_line(text, half) if half else 0
    tail = _start_of_line(text, len(text) - half) if half else len(text)
    if not failed:
        return _KeptRange(head, tail)
    main = error_line(text)
    told = main in strip_color(text[:head]) or main in strip_color(text[tail:])
    return _KeptRange(head, tail, _failure_lines(text[head:tail], for_lines, "" if told else main))


def _end_of_line(text: str, at: int) -> int:
    """The last line border at or before `at`; inside a single long line, a character border."""
    border = text.rfind("\n", 0, at) + 1
    return border if border > at // 2 else _character_border(text, at)


def _start_of_line(text: str, at: int) -> int:
    """The first line border at or after `at`; inside a single long line, a character border."""
    border = text.find("\n", at) + 1
    return border if 0 < border < (at + len(text)) // 2 else _character_border(text, at)


def _character_border(text: str, at: int) -> int:
    """The next place that does not part a character from its accents and joiners."""
    while at < len(text) and (
        unicodedata.combining(text[at])
        or text[at] in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
        or (at > 0 and text[at - 1] == "\u200d")
    ):
        at += 1
    return at


def _failure_lines(text: str, budget: int, main: str) -> tuple[str, ...]:
    """The lines that tell of a failure, the last ones first chosen, in their order.

    The main one stays in any case, if need be without its end, and then says so.
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
    """How much is left out, of how much, in lines where whole lines went, else in characters."""
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
