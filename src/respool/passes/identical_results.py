"""Replace a result that is identical to an earlier one by a reference to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..edits import Offer, Replace
from ..history.failures import MAX_OPEN_ERROR_CHARS, is_failed_call
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..tools.use import Use
from ..transcript import Part
from .base import View, acts, call_label, describe_source, is_intact

_MIN_BYTES = 256  # shorter results are left unchanged
_MAX_ERROR_LINE_CHARS = 300  # longer error lines are not repeated


@acts(at_arrival=True, at_epochs=False)
def identical_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the first of several identical results with no write between them.

    The first one stays and the later one is replaced before it is sent, so no prefix breaks.
    """
    transcript = view.transcript
    min_bytes = _MIN_BYTES if policy.min_chars is None else policy.min_chars
    for position in view.fresh_results():
        part, ordinal = transcript.parts[position], transcript.exchange_of[position]
        if ordinal < 0 or not _is_long(part.text, min_bytes):
            continue
        earlier = _first_intact_copy(view, policy, ordinal, part.text)
        if earlier is None or not view.can_rewrite(position):
            continue
        if _is_open_error(part, view.use(ordinal), policy):
            continue
        if find_marker(part.text) is None:
            offer = _offer(view, position, part, earlier)
            if offer is not None:
                yield offer


def _is_open_error(part: Part, use: Use, policy: Policy) -> bool:
    """Return whether a result is a new failure, short enough to stay whole."""
    short = policy.errors_verbatim and len(part.text) <= MAX_OPEN_ERROR_CHARS
    return short and is_failed_call(part.text, part.error, use.outcome_kind)


def _is_long(text: str, min_bytes: int) -> bool:
    if len(text) >= min_bytes or 4 * len(text) < min_bytes:
        return len(text) >= min_bytes
    return len(text.encode("utf-8", "surrogatepass")) >= min_bytes


def _first_intact_copy(view: View, policy: Policy, ordinal: int, text: str) -> int | None:
    """The first exchange with this result since anything could have changed it."""
    copies = view.ledger.copies(text, ordinal)
    if not copies:
        return None
    # A later copy has fewer writes after it, so all copies from the first usable one on are usable.
    usable = bisect_left(copies, True, key=lambda copy: not _has_changed_since(view, copy, ordinal))
    for copy in copies[usable:]:
        result = view.transcript.exchanges[copy].result
        if result is None or view.transcript.parts[result].text != text:
            continue  # a hash collision
        if is_intact(view, policy, result):
            return copy
    return None


def _has_changed_since(view: View, earlier: int, ordinal: int) -> bool:
    """Return whether a write between the two calls can have changed the result."""
    use, ledger = view.use(ordinal), view.ledger
    if use.kind == "read" and use.reads:
        return any(ledger.can_be_written(span.path, earlier, ordinal) for span in use.reads)
    return ledger.has_any_write(earlier, ordinal)


def _offer(view: View, position: int, part: Part, earlier: int) -> Offer | None:
    name = call_label(view, earlier, view.transcript.exchange_of[position])
    text = _stub_text(part, f"the same as in {describe_source(view, earlier)} above")
    copy = view.transcript.exchanges[earlier].result
    if text is None or copy is None:
        return None
    saved = view.saved_by(position, text)
    evidence = f"same as {name}, {len(part.text):,} chars"
    edit = Replace(
        part=position,
        ref=part.ref,
        text=text,
        original=reference(part.text),
        reason="identical",
        evidence=evidence,
        saved=saved,
    )
    return Offer("stub", edit, depends_on=(copy,)) if saved > 0 else None


def _stub_text(part: Part, why: str) -> str | None:
    """A marker; for a failure with its first and last line; None if those are too long."""
    lines = part.text.removesuffix("\n").split("\n")
    ref, total = reference(part.text), len(lines)
    if not part.error:
        omitted, unit = (total, "lines") if total > 1 else (len(part.text), "chars")
        return str(OmissionMarker(omitted, unit, ref, reason=why))
    first, last = lines[0], lines[-1]
    if total < 4 or max(len(first), len(last)) > _MAX_ERROR_LINE_CHARS:
        return None
    return f"{first}\n{OmissionMarker(total - 2, 'lines', ref, total, reason=why)}\n{last}"
