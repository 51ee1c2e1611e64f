"""Cut old results to an excerpt, by kind of content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from ..edits import Offer
from ..markers import OmissionMarker
from ..policy import DEFAULT, Policy
from ..shapes import SHAPES, ShapedText, ShapeKind, can_be, classify, shape
from ..tools.use import Use
from ..transcript import Exchange, Part
from .base import View, trim_offer


class TrimLimits(Struct, frozen=True, gc=False):
    """Length and age from which results of a kind are cut, and the length that stays."""

    min_chars: int = 1_500  # shorter results stay whole
    ratio: float = 0.2  # share of the characters that stays
    min_kept_chars: int = 600
    max_kept_chars: int = 4_000
    min_age: int = 0  # exchanges before the recent ones

    def kept_chars(self, length: int) -> int:
        """Number of characters that stay of a result of this length."""
        return min(self.max_kept_chars, max(self.min_kept_chars, int(self.ratio * length)))


TrimLimitsByKind = Mapping[ShapeKind, TrimLimits]

# Fitted by replay of recorded sessions: code and listings are needed again too often, so they stay
# whole unless a policy names them; pages are cut only when they are very old.
DEFAULT_KINDS: Final[TrimLimitsByKind] = {
    **dict.fromkeys(
        ("hits", "log", "test", "diff", "json", "table", "edit", "other"), TrimLimits()
    ),
    "page": TrimLimits(min_age=34),
}


def trim_results(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to cut results that are no longer recent."""
    by_kind = _limits_for(policy)
    for age in sorted({limits.min_age for limits in by_kind.values()}):
        due: TrimLimitsByKind = {
            kind: limits for kind, limits in by_kind.items() if limits.min_age == age
        }
        yield from _trim_offers(view, view.aged_exchanges(age), due)


def _limits_for(policy: Policy) -> TrimLimitsByKind:
    """The limits of each kind that a policy cuts."""
    if policy.trim_kinds is None:
        return DEFAULT_KINDS
    default = DEFAULT_KINDS if DEFAULT in policy.trim_kinds else {}
    named: list[ShapeKind] = [kind for kind in SHAPES if kind in policy.trim_kinds]
    return {**default, **{kind: DEFAULT_KINDS.get(kind, TrimLimits()) for kind in named}}


def _trim_offers(
    view: View, exchanges: Iterable[Exchange], by_kind: TrimLimitsByKind
) -> Iterator[Offer]:
    min_chars = min(limits.min_chars for limits in by_kind.values())
    for exchange in exchanges:
        position = exchange.result
        part = None if position is None else view.transcript.parts[position]
        if position is None or part is None or len(part.text) < min_chars:
            continue
        use = view.use(exchange.ordinal)
        if _can_trim(part, use, by_kind) and view.can_rewrite(position):
            offer = _trim_offer(view, position, use, by_kind)
            if offer is not None:
                yield offer


def _trim_offer(view: View, position: int, use: Use, by_kind: TrimLimitsByKind) -> Offer | None:
    part = view.transcript.parts[position]
    kind = _kind_of_result(part, use)
    limits = by_kind.get(kind)
    if limits is None or len(part.text) < limits.min_chars:
        return None
    shaped = shape(part.text, kind, limits.kept_chars(len(part.text)))
    return None if shaped is None else _offer(view, position, kind, shaped)


def _can_trim(part: Part, use: Use, by_kind: TrimLimitsByKind) -> bool:
    """Return whether a result can be of a kind that is cut, before its text is inspected."""
    return part.error or can_be(by_kind, use.content)


def _kind_of_result(part: Part, use: Use) -> ShapeKind:
    """The kind of a result; a failed one is a log, because its errors must stay."""
    if part.error:
        return "test" if use.content == "test" else "log"
    return classify(part.text, use.content)


def _offer(view: View, position: int, kind: ShapeKind, shaped: ShapedText) -> Offer | None:
    part = view.transcript.parts[position]
    use = view.use(view.transcript.exchange_of[position])
    ref = view.reference_of(position)
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
    return trim_offer(
        view, position, text, original=ref, reason="trimmed", evidence=evidence, saved=saved
    )
