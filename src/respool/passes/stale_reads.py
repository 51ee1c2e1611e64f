"""Replace a read of a file that was read again or rewritten since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ..edits import STALE, Offer, Replace
from ..history.failures import is_failed, is_failed_call
from ..history.ledger import FileEvent
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..regex import lazy_compile
from ..shapes.decoration import is_truncated
from ..summaries.call_label import short_path
from ..tools.use import END_OF_FILE, Span
from ..transcript import Exchange, Part
from .base import View, call_label, describe_sources, is_intact

_MIN_CHARS = 300  # a marker in place of fewer characters saves nothing
_MAX_FILE_EVENTS = 50  # latest reads and writes of one file that are checked
_DERIVED_CONTENTS = ("listing", "hits", "diff", "test")  # not a file's own lines
_SAMPLE_COUNT = 6  # lines by which one text is searched in another
_LINE_NUMBER = lazy_compile(r"\s{0,12}\d{1,9}[\t→|: ] ?")  # how tools number lines
_MIN_LINE_CHARS = 12  # shorter lines are common to many files


class _LaterEvent(Struct, frozen=True, gc=False):
    """An event that made a read stale: a write of the whole file, or another read."""

    ordinal: int
    wrote: bool


def stale_reads(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to replace reads of content that was read again or rewritten since.

    As soon as the later read was seen: it may stay whole for being recent while the earlier one
    goes.
    """
    offered: set[int] = set()
    for ordinal in _due_reads(view):
        if ordinal not in offered and _can_replace(view, ordinal):
            offer = _offer(view, policy, ordinal)
            if offer is not None:
                offered.add(ordinal)
                yield offer


def _due_reads(view: View) -> Iterator[int]:
    """Reads that may be touched since the last epoch, and those that were shown again since."""
    for exchange in view.fresh_exchanges():
        yield exchange.ordinal
    if view.phase == "full":
        yield from (exchange.ordinal for exchange in view.newly_seen())
        return
    for exchange in view.newly_seen():
        yield from _earlier_reads(view, exchange)


def _earlier_reads(view: View, exchange: Exchange) -> Iterator[int]:
    """Earlier reads of the content that this exchange reads or rewrites."""
    use = view.use(exchange.ordinal)
    shown = [span for span in use.reads if not span.part]
    replaced = [span for span in use.writes if use.replaces and not span.part]
    for now in (*shown, *replaced):
        for event in view.ledger.events(now.path, exchange.ordinal)[-_MAX_FILE_EVENTS:]:
            if (
                not event.is_write
                and not event.span.part
                and _overlaps(now.lines, event.span.lines)
            ):
                yield event.ordinal


def _overlaps(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    """Return whether two line ranges overlap; None is the whole file."""
    return one is None or other is None or (one[0] <= other[1] and other[0] <= one[1])


def _can_replace(view: View, ordinal: int) -> bool:
    """Return whether an exchange only read files and its result may be replaced."""
    use = view.use(ordinal)
    if use.kind != "read" or use.can_write or use.content in _DERIVED_CONTENTS:
        return False
    result = view.transcript.exchanges[ordinal].result
    if result is None or not view.can_rewrite(result):
        return False
    part = view.transcript.parts[result]
    before = view.in_force.get(result)
    return (
        len(part.text) >= _MIN_CHARS
        and (before is None or before.reason != STALE)
        and not is_failed(part.text, part.error)
        and find_marker(part.text) is None
    )


def _offer(view: View, policy: Policy, ordinal: int) -> Offer | None:
    """Offer to replace one read, if all of it is stale."""
    spans = view.use(ordinal).reads
    reasons = [_find_later_event(view, policy, ordinal, span) for span in spans]
    known = [one for one in reasons if one is not None]
    if not known or len(known) < len(reasons):
        return None
    if len(known) > 1 and not _is_shown_together(view, ordinal, known):
        return None
    last, shown_in = max(known, key=lambda one: one.ordinal), {one.ordinal for one in known}
    at = view.transcript.exchanges[ordinal].result
    assert at is not None  # checked by _can_replace
    part = view.transcript.parts[at]
    by = f"by {call_label(view, last.ordinal, ordinal)}"
    # The marker does not name a write, which may be dropped at the next write of the file.
    why = (
        f"{short_path(spans[0].path)} was written as a whole since"
        if last.wrote
        else f"shown again in {describe_sources(view, shown_in)} further down"
    )
    lines = part.text.count("\n") + (not part.text.endswith("\n"))
    ref = reference(part.text)
    rerun = view.use(ordinal).rerun and not last.wrote
    text = str(
        OmissionMarker(
            lines, "lines", ref, reason=why, is_rerun_safe=rerun, fetch_tool=view.fetch_tool
        )
    )
    saved = view.saved_by(at, text)
    if saved <= 0:
        return None
    evidence = f"{'written anew' if last.wrote else 'read again'} {by}, {lines:,} lines"
    return Offer(
        "stub",
        Replace(
            part=at,
            ref=part.ref,
            text=text,
            original=ref,
            reason=STALE,
            evidence=evidence,
            saved=saved,
        ),
        depends_on=() if last.wrote else _results_of(view, shown_in),
    )


def _results_of(view: View, ordinals: Iterable[int]) -> tuple[int, ...]:
    """The parts that hold the results of these exchanges."""
    found = (view.transcript.exchanges[one].result for one in sorted(ordinals))
    return tuple(one for one in found if one is not None)


def _is_shown_together(view: View, ordinal: int, reasons: Sequence[_LaterEvent]) -> bool:
    """Return whether several later reads together have what one call read of several files."""
    if any(one.wrote for one in reasons):
        return False
    shown = [_result_part(view, view.transcript.exchanges[one.ordinal]) for one in reasons]
    earlier = _result_part(view, view.transcript.exchanges[ordinal])
    samples = _sample_lines(earlier.text) if earlier is not None else []
    found = [any(part and line in part.text for part in shown) for line in samples]
    return bool(found) and found.count(False) <= len(found) // _SAMPLE_COUNT


def _find_later_event(view: View, policy: Policy, ordinal: int, span: Span) -> _LaterEvent | None:
    """The last event of a file that makes an earlier read of it stale."""
    events = view.ledger.events(span.path, view.seen_exchanges())[-_MAX_FILE_EVENTS:]
    for event in reversed(events):
        if event.ordinal <= ordinal:
            break
        later = _judge_event(view, policy, (ordinal, span), event)
        if later is not None:
            return later
    return None


def _judge_event(
    view: View, policy: Policy, read: tuple[int, Span], event: FileEvent
) -> _LaterEvent | None:
    """The event, if it makes the read of an exchange stale."""
    ordinal, span = read
    if span.part or event.span.part or not _overlaps(event.span.lines, span.lines):
        return None
    if event.is_write and not event.replaced:
        return None  # an edit depends on the read
    exchange = view.transcript.exchanges[event.ordinal]
    shown = _result_part(view, exchange)
    earlier = _result_part(view, view.transcript.exchanges[ordinal])
    outcome_kind = view.use(event.ordinal).outcome_kind
    if shown is None or earlier is None or is_failed_call(shown.text, shown.error, outcome_kind):
        return None
    same = view.ledger.is_same_path(span.path, ordinal, event.ordinal)
    if event.is_write and not same:
        return None
    if event.is_write:
        arguments = view.transcript.parts[exchange.call].text
        holds_text = len(arguments) >= max(_MIN_CHARS, len(earlier.text) // 2)
        return _LaterEvent(event.ordinal, True) if holds_text else None
    if exchange.result is None or not is_intact(view, policy, exchange.result):
        return None
    if view.use(event.ordinal).content in _DERIVED_CONTENTS or not _covers(
        event.span, span, earlier
    ):
        return None
    alone = len(view.use(ordinal).reads) == 1
    written = view.ledger.can_be_written(span.path, ordinal, event.ordinal)
    if (alone or not same) and not _is_shown_again(event.span, shown, earlier, written and same):
        return None
    return _LaterEvent(event.ordinal, False)


def _result_part(view: View, exchange: Exchange) -> Part | None:
    return None if exchange.result is None else view.transcript.parts[exchange.result]


def _covers(later: Span, earlier: Span, shown: Part) -> bool:
    """Return whether the later span covers the lines that the earlier read returned."""
    if later.lines is None:
        return True
    first, last = earlier.lines or (1, END_OF_FILE)
    return later.lines[0] <= first and min(last, first + shown.text.count("\n")) <= later.lines[1]


def _is_shown_again(span: Span, later: Part, earlier: Part, written: bool) -> bool:
    """Return whether the later text repeats the unchanged lines of the earlier one.

    A tool may answer "unchanged since the last read", or with fewer lines than requested.
    """
    written = written and not is_truncated(later.text)
    samples = _sample_lines(earlier.text)
    missed = sum(line not in later.text for line in samples)
    if samples and missed <= len(samples) // (2 if written else _SAMPLE_COUNT):
        return True
    from_start = span.lines is None or span.lines[0] == 1
    url = "://" in span.path
    return written and from_start and not url and 2 * len(later.text) >= len(earlier.text)


def _sample_lines(text: str) -> list[str]:
    """A few lines spread over a text, without their numbers."""
    start = text.find("\nOutput:\n", 0, 400)  # the lines before describe the process
    lines = [line for line in text[start + 1 :].split("\n") if len(line) >= _MIN_LINE_CHARS]
    step = max(1, len(lines) // _SAMPLE_COUNT)
    chosen = lines[step // 2 :: step][:_SAMPLE_COUNT]
    return [bare for line in chosen if (bare := _LINE_NUMBER.sub("", line, count=1).strip())]
