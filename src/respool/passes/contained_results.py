"""Replace a new read whose lines all stand in an earlier read of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from ..edits import Offer, Replace
from ..history.ledger import FileEvent
from ..history.line_index import NUMBERED
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..tools.use import END_OF_FILE, Span
from .base import View, acts
from .exchanges import call_label, is_intact

_MIN_CHARS = 256  # characters; a shorter read is left as it is
_MAX_FILE_EVENTS = 32  # so many of the latest dealings with a file are looked at
_MAX_FRAME_LINES = 12  # lines that a tool may put in front of a file's own; they stay
_FRAME_ENDS = ("Output:", "<output>")  # the last line in front of what a shell command printed


def containment_offers(view: View, policy: Policy, *, new: bool) -> Iterator[Offer]:
    """References to the larger read, in place of the new one or of old ones."""
    gone: set[int] = set()  # reads that are offered to go: no other one may lean on them
    for exchange in reversed(view.fresh_exchanges()):
        span = _span_read(view, exchange.ordinal)
        if span is None or exchange.result is None or exchange.ordinal in gone:
            continue
        earlier = _reads_since_written(view, span.path, exchange.ordinal)
        pairs = _pairs(exchange.ordinal, span, earlier, new=new)
        for inner, outer in pairs:
            offer = (
                None if inner in gone else _containment_offer(view, policy, inner, outer, earlier)
            )
            if offer is not None:
                gone.add(inner)
                yield offer


def _pairs(
    ordinal: int, span: Span, earlier: Sequence[FileEvent], *, new: bool
) -> Iterator[tuple[int, int]]:
    """Which read may be contained in which: the new one in an earlier one, or these in it."""
    for event in earlier:
        if new and _can_contain(span, event.span):
            yield ordinal, event.ordinal
        elif not new and _can_contain(event.span, span):
            yield event.ordinal, ordinal


def _span_read(view: View, ordinal: int) -> Span | None:
    """What a call shows, if that is one file, whole or known lines of it."""
    use = view.use(ordinal)
    if use.kind != "read" or len(use.reads) != 1 or use.reads[0].part:
        return None
    return use.reads[0]


def _reads_since_written(view: View, path: str, ordinal: int) -> list[FileEvent]:
    """The earlier reads of a file as it still is, the latest first."""
    events = reversed(view.ledger.events(path, ordinal)[-_MAX_FILE_EVENTS:])
    reads = takewhile(lambda event: not event.is_write, events)
    found = [event for event in reads if not event.span.part]
    # The earlier the read, the more may be written since: what is still fit comes first.
    written = view.ledger.can_be_written
    return list(takewhile(lambda event: not written(path, event.ordinal, ordinal), found))


def _can_contain(inner: Span, outer: Span) -> bool:
    """Whether lines may all stand among others: they begin there; the text tells the rest."""
    first, _ = inner.lines or (1, END_OF_FILE)
    start, end = outer.lines or (1, END_OF_FILE)
    return start <= first <= end


def _containment_offer(
    view: View, policy: Policy, inner: int, outer: int, earlier: Sequence[FileEvent]
) -> Offer | None:
    """The offer to put a reference to one read in place of another, if its lines stand there."""
    transcript = view.transcript
    position, other = transcript.exchanges[inner].result, transcript.exchanges[outer].result
    if position is None or other is None:
        return None
    part, kept = transcript.parts[position], transcript.parts[other]
    least = _MIN_CHARS if policy.min_chars is None else policy.min_chars
    if len(part.text) < least or part.error or kept.error or not view.can_rewrite(position):
        return None
    if not is_intact(view, policy, other) or find_marker(part.text) is not None:
        return None
    run = _find_contained_lines(part.text, kept.text)
    if run is None or _is_referenced(view, inner, earlier):
        return None
    name = call_label(view, outer, inner)
    what = _describe_lines(_span_read(view, inner), run.gone)
    text = run.replaced(f"{what} stand in the result of {name}", reference(part.text))
    saved = view.saved_by(position, text)
    evidence = f"{run.gone:,} lines are in {name}"
    edit = Replace(position, part.ref, text, reference(part.text), "contained", evidence, saved)
    return Offer("stub", edit, depends_on=(other,)) if saved > 0 else None


def _describe_lines(span: Span | None, gone: int) -> str:
    """The lines of the file, where the call says which they are and no fewer came."""
    if span is None or span.lines is None:
        return "they"
    first, last = span.lines
    return f"lines {first:,}-{last:,}" if last - first < gone else "they"


def _is_referenced(view: View, ordinal: int, earlier: Sequence[FileEvent]) -> bool:
    """Whether a marker that came with the history sends its reader to this very read."""
    for event in earlier:
        result = view.transcript.exchanges[event.ordinal].result
        marker = None if result is None else find_marker(view.transcript.parts[result].text)
        name = call_label(view, ordinal, event.ordinal)
        if isinstance(marker, OmissionMarker) and marker.reason.endswith(f" {name}"):
            return True
    return False


class _ContainedLines(Struct, frozen=True):
    """The lines of a text, and which of them, one after another, stand in another text."""

    lines: list[str]
    first: int
    end: int

    @property
    def all(self) -> int:
        """How many lines the text has; the end of the last one is not another."""
        return len(self.lines) - (not self.lines[-1])

    @property
    def gone(self) -> int:
        """How many of them go."""
        return min(self.end, self.all) - self.first

    def replaced(self, why: str, ref: str) -> str:
        """The text with a marker in their place."""
        all = None if self.gone == self.all else self.all
        marker = OmissionMarker(self.gone, "lines", ref, all, why)
        return "\n".join((*self.lines[: self.first], str(marker), *self.lines[self.end :]))


def _find_contained_lines(inner: str, outer: str) -> _ContainedLines | None:
    """The lines of a file in one text, if they all stand in the other, in a row."""
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
    """Where a file's own lines begin and end in what a tool shows, and whether it numbers them."""
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
    """A text without the numbers in front of its lines, if it has some."""
    lines = text.split("\n")
    first, end, numbered = _file_lines(lines)
    if not numbered:
        return None
    return "\n".join(NUMBERED.sub("", line, count=1) for line in lines[first:end])


def _extend_to_frame(lines: list[str], first: int, end: int, others: list[str]) -> _ContainedLines:
    """The lines that go: what stands around them too, where the other text has the same there."""
    head, tail = lines[:first], lines[end:]
    if head == others[: len(head)]:
        first = 0
    if tail == [""] or (tail and tail == others[-len(tail) :]):
        end = len(lines)
    return _ContainedLines(lines, first, end)


@acts(at_arrival=True, at_epochs=False)
def contained_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer a reference to the earlier read that shows it all, before the new one is ever sent."""
    return containment_offers(view, policy, new=True)
