"""Replace an old result by a line about the read, the change or the outcome of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..edits import Offer, Replace
from ..markers import OmissionMarker, find_marker
from ..policy import Policy
from ..summaries.call_summary import CallSummary, Stub, build_stub
from ..summaries.outcome import count_lines
from ..tools.use import Use
from ..transcript import Exchange
from .base import View, deed_in_view

_MIN_CHARS: Final = 400  # a line and its marker in place of fewer characters save too little
_MAX_OPEN_ERROR_CHARS: Final = 2_000  # shorter open errors stay whole
_MIN_SAVED_TOKENS: Final = 30


def stub_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a line in place of each result that is no longer recent."""
    min_chars = _MIN_CHARS if policy.min_chars is None else policy.min_chars
    for exchange in view.aged_exchanges():
        offer = _offer(view, exchange, policy.errors_verbatim, min_chars)
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
    call = deed_in_view(view, exchange)
    if call is None or (verbatim and _should_stay_whole(call)):
        return None
    stub = build_stub(call, errors_verbatim=verbatim, framed=_count_frame_lines(part.text, call))
    marker = _marker(view, position, call, stub)
    text = f"{stub.text}\n{marker}"
    saved = view.saved_by(position, text)
    if saved < _MIN_SAVED_TOKENS:
        return None
    evidence = f"{call.kind}, {count_lines(part.text):,} lines"
    return Offer(
        "stub",
        Replace(
            part=position,
            ref=part.ref,
            text=text,
            original=marker.ref,
            reason="stubbed",
            evidence=evidence,
            saved=saved,
        ),
    )


def _is_finding(use: Use) -> bool:
    """Return whether a result is a finding or of an unknown kind: no line can replace it."""
    return use.kind == "other" or (use.kind == "run" and use.content == "page")


def _should_stay_whole(call: CallSummary) -> bool:
    """Return whether an error is still open and short enough to stay whole."""
    is_open = call.outcome.failed and not call.resolved
    return is_open and len(call.outcome.body) <= _MAX_OPEN_ERROR_CHARS


def _count_frame_lines(text: str, call: CallSummary) -> int:
    """Number of lines around the output of a failed call; only its stub keeps lines."""
    return max(0, count_lines(text) - call.outcome.lines) if call.outcome.failed else 0


def _marker(view: View, position: int, call: CallSummary, stub: Stub) -> OmissionMarker:
    text = view.transcript.parts[position].text
    lines = count_lines(text)
    is_long = lines > 1
    return OmissionMarker(
        lines - stub.kept_lines if is_long else len(text),
        "lines" if is_long else "chars",
        view.reference_of(position),
        lines if is_long and stub.kept_lines else None,
        is_rerun_safe=call.rerun,
        fetch_tool=view.fetch_tool,
    )
