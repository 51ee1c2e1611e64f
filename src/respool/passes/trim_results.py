"""Cut old results to their shape, by kind of content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from ..edits import Offer, Replace
from ..markers import OmissionMarker, reference
from ..policy import DEFAULT, Policy
from ..shapes import SHAPES, ShapedText, ShapeKind, can_be, classify, shape
from ..tools.use import Use
from ..transcript import Exchange, Part
from .base import View


class TrimLimits(Struct, frozen=True, gc=False):
    """From which length and age on results of a kind are cut, and to how much."""

    min_chars: int = 1_500  # characters; shorter results stay
    ratio: float = 0.2  # of those characters that stays
    min_kept_chars: int = 600  # characters that stay in any case
    max_kept_chars: int = 4_000  # and at most
    min_age: int = 0  # exchanges behind the recent window

    def kept_chars(self, length: int) -> int:
        """The characters that may stay of a result of this length."""
        return min(self.max_kept_chars, max(self.min_kept_chars, int(self.ratio * length)))


TrimLimitsByKind = Mapping[ShapeKind, TrimLimits]

# By replay of recorded sessions: code and listings are needed again too often, so they stay whole
# unless a policy names them; pages are cut only when they are very old.
DEFAULT_KINDS: Final[TrimLimitsByKind] = {
    **dict.fromkeys(
        ("hits", "log", "test", "diff", "json", "table", "edit", "other"), TrimLimits()
    ),
    "page": TrimLimits(min_age=34),
}


def trim_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut results that left the recent window."""
    wanted = _limits_for(policy)
    for age in sorted({measure.min_age for measure in wanted.values()}):
        measures: TrimLimitsByKind = {
            kind: one for kind, one in wanted.items() if one.min_age == age
        }
        yield from _trim_offers(view, _exchanges_of_age(view, age), measures)


def _limits_for(policy: Policy) -> TrimLimitsByKind:
    """The kinds that a policy wants cut, each with its measure."""
    if policy.trim_kinds is None:
        return DEFAULT_KINDS
    usual = DEFAULT_KINDS if DEFAULT in policy.trim_kinds else {}
    named: list[ShapeKind] = [kind for kind in SHAPES if kind in policy.trim_kinds]
    return {**usual, **{kind: DEFAULT_KINDS.get(kind, TrimLimits()) for kind in named}}


def _exchanges_of_age(view: View, age: int) -> Iterator[Exchange]:
    """The exchanges that since the last evaluation came to stand so far behind the recent ones."""
    first = max(0, view.aged_from - age)
    end = view.seen_exchanges() - view.recent_count - age
    for ordinal in range(first, end):
        yield view.transcript.exchanges[ordinal]


def _trim_offers(
    view: View, exchanges: Iterator[Exchange], measures: TrimLimitsByKind
) -> Iterator[Offer]:
    least = min(measure.min_chars for measure in measures.values())
    for exchange in exchanges:
        position = exchange.result
        part = None if position is None else view.transcript.parts[position]
        if position is None or part is None or len(part.text) < least:
            continue
        use = view.use(exchange.ordinal)
        if _can_trim(part, use, measures) and view.can_rewrite(position):
            offer = _trim_offer(view, position, use, measures)
            if offer is not None:
                yield offer


def _trim_offer(view: View, position: int, use: Use, measures: TrimLimitsByKind) -> Offer | None:
    part = view.transcript.parts[position]
    kind = _kind_of_result(part, use)
    measure = measures.get(kind)
    if measure is None or len(part.text) < measure.min_chars:
        return None
    shaped = shape(part.text, kind, measure.kept_chars(len(part.text)))
    return None if shaped is None else _offer(view, position, use, kind, shaped)


def _can_trim(part: Part, use: Use, measures: TrimLimitsByKind) -> bool:
    """Whether a result may be of a kind that is cut, by what is known before a look at it."""
    return part.error or can_be(measures, use.content)


def _kind_of_result(part: Part, use: Use) -> ShapeKind:
    """What a result is; one that failed is a log, for its errors must stay."""
    if part.error:
        return "test" if use.content == "test" else "log"
    return classify(part.text, use.content)


def _offer(
    view: View, position: int, use: Use, kind: ShapeKind, shaped: ShapedText
) -> Offer | None:
    part = view.transcript.parts[position]
    ref = reference(part.text)
    marker = OmissionMarker(
        shaped.removed,
        shaped.unit,
        ref,
        shaped.total,
        is_rerun_safe=use.rerun,
        fetch_tool=view.fetch_tool,
    )
    text = f"{shaped.text}\n{marker}"
    if len(text) >= len(part.text):
        return None
    saved = view.saved_by(position, text)
    if saved <= 0:
        return None
    evidence = f"{kind}: {shaped.removed:,} of {shaped.total:,} {shaped.unit}"
    return Offer("trim", Replace(position, part.ref, text, ref, "trimmed", evidence, saved))
