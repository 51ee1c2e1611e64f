"""Replace a new read whose lines are all in an earlier read of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from ..edits import Offer, Replace
from ..history.ledger import FileEvent
from ..history.line_index import NUMBERED
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..summaries.call_label import call_subject
from ..tools.use import END_OF_FILE, Span
from .base import View, acts, call_label, describe_source, is_intact

_MIN_CHARS = 256  # shorter reads are left unchanged
_MAX_FILE_EVENTS = 32  # latest reads and writes of a file that are checked
_MAX_FRAME_LINES = 12  # lines that a tool may print before the file's own; they stay
_FRAME_ENDS = ("Output:", "<output>")  # the last line before the output of a shell command


def containment_offers(view: View, policy: Policy, *, new: bool) -> Iterator[Offer]:
    """Offer references to a larger read in place of the new read, or of old ones."""
    replaced: set[int] = set()  # reads already offered: no other offer may depend on them
    for exchange in reversed(view.fresh_exchanges()):
        span = _span_read(view, exchange.ordinal)
        if span is None or exchange.result is None or exchange.ordinal in replaced:
            continue
        earlier = _reads_since_written(view, span.path, exchange.ordinal)
        pairs = _pairs(exchange.ordinal, span, earlier, new=new)
        for inner, outer in pairs:
            offer = (
                None
                if inner in replaced
                else _containment_offer(view, policy, (inner, outer), earlier)
            )
            if offer is not None:
                replaced.add(inner)
                yield offer


def _pairs(
    ordinal: int, span: Span, earlier: Sequence[FileEvent], *, new: bool
) -> Iterator[tuple[int, int]]:
    """Pairs of reads, inner and outer: the new one in an earlier one, or earlier ones in it."""
    for event in earlier:
        if new and _can_contain(span, event.span):
            yield ordinal, event.ordinal
        elif not new and _can_contain(event.span, span):
            yield event.ordinal, ordinal


def _span_read(view: View, ordinal: int) -> Span | None:
    """The span that a call reads, if it is one file or known lines of one."""
    use = view.use(ordinal)
    if use.kind != "read" or len(use.reads) != 1 or use.reads[0].part:
        return None
    return use.reads[0]


def _reads_since_written(view: View, path: str, ordinal: int) -> list[FileEvent]:
    """Earlier reads of a file since its last write, the latest first."""
    events = reversed(view.ledger.events(path, ordinal)[-_MAX_FILE_EVENTS:])
    reads = takewhile(lambda event: not event.is_write, events)
    found = [event for event in reads if not event.span.part]
    # An earlier read can only have more writes after it, so the usable ones come first.
    written = view.ledger.can_be_written
    return list(takewhile(lambda event: not written(path, event.ordinal, ordinal), found))


def _can_contain(inner: Span, outer: Span) -> bool:
    """Return whether the inner lines begin among the outer ones; the texts decide the rest."""
    first, _ = inner.lines or (1, END_OF_FILE)
    start, end = outer.lines or (1, END_OF_FILE)
    return start <= first <= end


def _containment_offer(
    view: View, policy: Policy, pair: tuple[int, int], earlier: Sequence[FileEvent]
) -> Offer | None:
    """Offer a reference to the outer read in place of the inner one, if it has all its lines."""
    (inner, outer), transcript = pair, view.transcript
    position, other = transcript.exchanges[inner].result, transcript.exchanges[outer].result
    if position is None or other is None or _is_replaced(view, position):
        return None
    part, kept = transcript.parts[position], transcript.parts[other]
    min_chars = _MIN_CHARS if policy.min_chars is None else policy.min_chars
    if len(part.text) < min_chars or part.error or kept.error or not view.can_rewrite(position):
        return None
    if not is_intact(view, policy, other) or find_marker(part.text) is not None:
        return None
    run = _find_contained_lines(part.text, kept.text)
    if run is None or _is_referenced(view, inner, earlier):
        return None
    name = call_label(view, outer, inner)
    lines = _describe_lines(_span_read(view, inner), run.gone)
    where = f"{describe_source(view, outer)} {'above' if outer < inner else 'further down'}"
    text = run.replaced(f"{lines} stand in {where}", reference(part.text))
    saved = view.saved_by(position, text)
    evidence = f"{run.gone:,} lines are in {name}"
    edit = Replace(
        part=position,
        ref=part.ref,
        text=text,
        original=reference(part.text),
        reason="contained",
        evidence=evidence,
        saved=saved,
    )
    return Offer("stub", edit, depends_on=(other,)) if saved > 0 else None


def _is_replaced(view: View, position: int) -> bool:
    """Return whether a read refers to another one already: a second reference says no more."""
    before = view.in_force.get(position)
    return before is not None and before.reason == "contained"


def _describe_lines(span: Span | None, gone: int) -> str:
    """The line range that the call asked for, if the result has at least as many lines."""
    if span is None or span.lines is None:
        return "they"
    first, last = span.lines
    return f"lines {first:,}-{last:,}" if last - first < gone else "they"


def _is_referenced(view: View, ordinal: int, earlier: Sequence[FileEvent]) -> bool:
    """Return whether a marker in the client's history refers to this read."""
    call = view.transcript.parts[view.transcript.exchanges[ordinal].call]
    subject = call_subject(call, view.use(ordinal))
    for event in earlier:
        result = view.transcript.exchanges[event.ordinal].result
        marker = None if result is None else find_marker(view.transcript.parts[result].text)
        if isinstance(marker, OmissionMarker) and subject in marker.reason:
            return True
    return False


class _ContainedLines(Struct, frozen=True):
    """The lines of a text, and the range of them that is also in another text."""

    lines: list[str]
    first: int
    end: int

    @property
    def total(self) -> int:
        """Number of lines; a final line end does not begin another."""
        return len(self.lines) - (not self.lines[-1])

    @property
    def gone(self) -> int:
        """Number of lines that go."""
        return min(self.end, self.total) - self.first

    def replaced(self, why: str, ref: str) -> str:
        """The text with a marker in place of those lines."""
        total = None if self.gone == self.total else self.total
        marker = OmissionMarker(self.gone, "lines", ref, total, reason=why)
        return "\n".join((*self.lines[: self.first], str(marker), *self.lines[self.end :]))


def _find_contained_lines(inner: str, outer: str) -> _ContainedLines | None:
    """The file's lines in the inner text, if the outer text has them all in a row."""
    lines = inner.split("\n")
    first, end, numbered = _file_lines(lines)
    body = "\n".join(lines[first:end])
    if not body.strip():
        return None
    if not _is_contained(body, outer):
        bare = None if numbered else _without_numbers(outer)
        if bare is None or not _is_contained(body, bare):
            return None
    return _extend_to_frame(lines, first, end, outer.split("\n"))


def _file_lines(lines: Sequence[str]) -> tuple[int, int, bool]:
    """The start and end of the file's own lines in a result; True if they are numbered."""
    size = len(lines) - (not lines[-1])
    middle = size // 2
    if all(map(NUMBERED.match, lines[middle : middle + 2])):
        first = next(at for at, line in enumerate(lines) if NUMBERED.match(line))
        after = next(at for at in range(size, 0, -1) if NUMBERED.match(lines[at - 1]))
        return first, after, True
    ends = [at for at, line in enumerate(lines[:_MAX_FRAME_LINES], 1) if line in _FRAME_ENDS]
    return (ends[0] if ends else 0), size, False


def _is_contained(body: str, text: str) -> bool:
    return f"\n{body}\n" in f"\n{text}\n"


def _without_numbers(text: str) -> str | None:
    """A text without its line numbers; None if it has none."""
    lines = text.split("\n")
    first, end, numbered = _file_lines(lines)
    if not numbered:
        return None
    return "\n".join(NUMBERED.sub("", line, count=1) for line in lines[first:end])


def _extend_to_frame(lines: list[str], first: int, end: int, others: list[str]) -> _ContainedLines:
    """The lines that go, with the frame around them if the other text has the same frame."""
    head, tail = lines[:first], lines[end:]
    if head == others[: len(head)]:
        first = 0
    if tail == [""] or (tail and tail == others[-len(tail) :]):
        end = len(lines)
    return _ContainedLines(lines, first, end)


@acts(at_arrival=True, at_epochs=False)
def contained_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the earlier read before the new one is sent."""
    return containment_offers(view, policy, new=True)
