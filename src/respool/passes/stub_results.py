"""One line in place of an old result: what was read, what changed, how a run ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..edits import Offer, Replace
from ..marker import Short, find_marker, reference
from ..policy import Policy
from ..summaries.deeds import Deed
from ..summaries.outcomes import count_lines
from ..summaries.stubs import Stub, stub_of
from ..tools.use import Use
from ..transcript import Exchange
from .telling import told_deed
from .view import View

LEAST: Final = 400  # characters; under these a line and its marker save nothing worth having
_LEAST_OPEN: Final = 2_000  # characters up to which an error that is still open stays whole
_LEAST_SAVED: Final = 30  # tokens


def stub_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a line for each result that left the recent exchanges."""
    verbatim = getattr(policy, "errors_verbatim", True)
    least = LEAST if policy.min_chars is None else policy.min_chars
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
    if _is_report(view.use(exchange.ordinal)):
        return None
    deed = told_deed(view, exchange)
    if deed is None or (verbatim and _stays_whole(deed)):
        return None
    ref = reference(part.text)
    stub = stub_of(deed, errors_verbatim=verbatim, framed=_framed(part.text, deed))
    text = _with_marker(view, deed, stub, part.text, ref)
    saved = view.saved_by(position, text)
    if saved < _LEAST_SAVED:
        return None
    evidence = f"{deed.kind}, {count_lines(part.text):,} lines"
    return Offer("stub", Replace(position, part.ref, text, ref, "stubbed", evidence, saved))


def _is_report(use: Use) -> bool:
    """Whether a result is what somebody found out, or nobody knows what: no line can tell it."""
    return use.kind == "other" or (use.kind == "run" and use.content == "page")


def _stays_whole(deed: Deed) -> bool:
    """Whether an error is still open, and short enough to stay as it is."""
    failed = deed.outcome.failed and not deed.resolved
    return failed and len(deed.outcome.body) <= _LEAST_OPEN


def _framed(text: str, deed: Deed) -> int:
    """How many lines stand around what a failed call printed: only of such a one lines stay."""
    return max(0, count_lines(text) - deed.outcome.lines) if deed.outcome.failed else 0


def _with_marker(view: View, deed: Deed, stub: Stub, text: str, ref: str) -> str:
    lines = count_lines(text)
    gone, of, unit = (
        (lines - stub.kept_lines, lines, "lines") if lines > 1 else (len(text), None, "chars")
    )
    all = of if stub.kept_lines else None
    marker = Short(gone, unit, ref, all, is_rerun_safe=deed.rerun, fetch_tool=view.fetch_tool)
    return f"{stub.text}\n{marker}"
