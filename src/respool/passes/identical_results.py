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
from .base import View, acts
from .exchanges import call_label, is_intact

MIN_BYTES = 256  # bytes; shorter results are left as they are
_MAX_ERROR_LINE_CHARS = 300  # characters of an error's line that are worth saying again


@acts(at_arrival=True, at_epochs=False)
def identical_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the first of several identical results, unless something was written.

    The first one stays and the later one is shaped before it is ever sent, so no prefix breaks.
    """
    transcript, least = view.transcript, MIN_BYTES if policy.min_chars is None else policy.min_chars
    for position in view.fresh_results():
        part, ordinal = transcript.parts[position], transcript.exchange_of[position]
        if ordinal < 0 or not _is_long(part.text, least):
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
    """Whether a result tells of a fresh failure, and is short enough to stay whole."""
    short = policy.errors_verbatim and len(part.text) <= MAX_OPEN_ERROR_CHARS
    return short and is_failed_call(part.text, part.error, use.outcome_kind)


def _is_long(text: str, min_bytes: int) -> bool:
    if len(text) >= min_bytes or 4 * len(text) < min_bytes:
        return len(text) >= min_bytes
    return len(text.encode("utf-8", "surrogatepass")) >= min_bytes


def _first_intact_copy(view: View, policy: Policy, ordinal: int, text: str) -> int | None:
    """The first exchange with this very result since anything could have changed it."""
    copies = view.ledger.copies(text, ordinal)
    if not copies:
        return None
    # The later the copy, the less was written since: all copies from one on are fit.
    fit = bisect_left(copies, True, key=lambda copy: not _has_changed_since(view, copy, ordinal))
    for copy in copies[fit:]:
        result = view.transcript.exchanges[copy].result
        if result is None or view.transcript.parts[result].text != text:
            continue  # the hash alone proves nothing
        if is_intact(view, policy, result):
            return copy
    return None


def _has_changed_since(view: View, earlier: int, ordinal: int) -> bool:
    """Whether what was written in between may make this call another one than the earlier."""
    use, ledger = view.use(ordinal), view.ledger
    if use.kind == "read" and use.reads:
        return any(ledger.can_be_written(span.path, earlier, ordinal) for span in use.reads)
    return ledger.has_any_write(earlier, ordinal)


def _offer(view: View, position: int, part: Part, earlier: int) -> Offer | None:
    name = call_label(view, earlier, view.transcript.exchange_of[position])
    text = _stub_text(part, f"the same as the result of {name}")
    copy = view.transcript.exchanges[earlier].result
    if text is None or copy is None:
        return None
    saved = view.saved_by(position, text)
    edit = Replace(
        position,
        part.ref,
        text,
        reference(part.text),
        "identical",
        f"same as {name}, {len(part.text):,} chars",
        saved,
    )
    return Offer("stub", edit, depends_on=(copy,)) if saved > 0 else None


def _stub_text(part: Part, why: str) -> str | None:
    """A marker; of a failure also the first and the last line, or all of it where they are long."""
    lines = part.text.removesuffix("\n").split("\n")
    ref, all = reference(part.text), len(lines)
    if not part.error:
        gone, unit = (all, "lines") if all > 1 else (len(part.text), "chars")
        return str(OmissionMarker(gone, unit, ref, reason=why))
    first, last = lines[0], lines[-1]
    if all < 4 or max(len(first), len(last)) > _MAX_ERROR_LINE_CHARS:
        return None
    return f"{first}\n{OmissionMarker(all - 2, 'lines', ref, all, why)}\n{last}"
