"""Replace an old result by one line: what was read, what changed, how a run ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..edits import Offer, Replace
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..summaries.call_summary import CallSummary, Stub, build_stub
from ..summaries.outcome import count_lines
from ..tools.use import Use
from ..transcript import Exchange
from .base import View
from .exchanges import deed_in_view

MIN_CHARS: Final = 400  # characters; under these a line and its marker save nothing worth having
_MAX_OPEN_ERROR_CHARS: Final = (
    2_000  # characters up to which an error that is still open stays whole
)
_MIN_SAVED_TOKENS: Final = 30  # tokens


def stub_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a line for each result that left the recent exchanges."""
    verbatim = getattr(policy, "errors_verbatim", True)
    least = MIN_CHARS if policy.min_chars is None else policy.min_chars
    for exchange in view.aged_exchanges():
        offer = _offer(view, exchange, verbatim, least)
        if offer is not None:
            yield offer


def _offer(view: View, exchange: Exchange, verbatim: bool, min_chars: int) -> Offer | None:
    position = exchange.result
    if position is None or exchange.server or not view.can_rewrite(position):
        return None
    part = view.transcript.parts[position]
    if len(part.text) < min_chars or find_marker(part.text) is not None:
        return None
    if _is_finding(view.use(exchange.ordinal)):
        return None
    deed = deed_in_view(view, exchange)
    if deed is None or (verbatim and _should_stay_whole(deed)):
        return None
    ref = reference(part.text)
    stub = build_stub(deed, errors_verbatim=verbatim, framed=_count_frame_lines(part.text, deed))
    text = _append_marker(view, deed, stub, part.text, ref)
    saved = view.saved_by(position, text)
    if saved < _MIN_SAVED_TOKENS:
        return None
    evidence = f"{deed.kind}, {count_lines(part.text):,} lines"
    return Offer("stub", Replace(position, part.ref, text, ref, "stubbed", evidence, saved))


def _is_finding(use: Use) -> bool:
    """Whether a result is what somebody found out, or nobody knows what: no line can tell it."""
    return use.kind == "other" or (use.kind == "run" and use.content == "page")


def _should_stay_whole(deed: CallSummary) -> bool:
    """Whether an error is still open, and short enough to stay as it is."""
    failed = deed.outcome.failed and not deed.resolved
    return failed and len(deed.outcome.body) <= _MAX_OPEN_ERROR_CHARS


def _count_frame_lines(text: str, deed: CallSummary) -> int:
    """How many lines stand around what a failed call printed: only of such a one lines stay."""
    return max(0, count_lines(text) - deed.outcome.lines) if deed.outcome.failed else 0


def _append_marker(view: View, deed: CallSummary, stub: Stub, text: str, ref: str) -> str:
    lines = count_lines(text)
    gone, of, unit = (
        (lines - stub.kept_lines, lines, "lines") if lines > 1 else (len(text), None, "chars")
    )
    all = of if stub.kept_lines else None
    marker = OmissionMarker(
        gone, unit, ref, all, is_rerun_safe=deed.rerun, fetch_tool=view.fetch_tool
    )
    return f"{stub.text}\n{marker}"
