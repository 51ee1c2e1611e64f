"""Drop an old write of a whole file that was rewritten as a whole since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..edits import SUPERSEDED, DropExchange, Offer, exchange_closure
from ..history.failures import is_failed_call
from ..policy import Policy
from ..providers.bound_reasoning import binding_of
from ..transcript import Exchange, Unit
from .base import View, call_label

_MIN_CHARS = 300  # of arguments: shorter ones hardly hold a file


def superseded_writes(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop writes, call and result, that a later write of the whole file replaced.

    An edit does not replace a write: it depends on it. The arguments of a write must not contain a
    placeholder, so the whole exchange goes or nothing.
    """
    min_chars = _MIN_CHARS if policy.min_chars is None else policy.min_chars
    offered: set[int] = set()
    for exchange in view.aged_exchanges():
        yield from _offers(view, exchange, offered, min_chars)
    for exchange in view.newly_seen() if view.aged_from else ():
        for earlier in _earlier_writes(view, exchange, min_chars):
            yield from _offers(view, earlier, offered, min_chars)


def _earlier_writes(view: View, exchange: Exchange, min_chars: int) -> Iterator[Exchange]:
    """The last old write of each whole file that this exchange writes as a whole."""
    if not _is_whole_write(view, exchange, min_chars):
        return
    for span in view.use(exchange.ordinal).writes:
        for event in reversed(view.ledger.events(span.path, exchange.ordinal)):
            if event.replaced:
                if event.ordinal < view.aged_from:
                    yield view.transcript.exchanges[event.ordinal]
                break


def _offers(view: View, exchange: Exchange, offered: set[int], min_chars: int) -> Iterator[Offer]:
    if exchange.ordinal in offered or not _can_drop(view, exchange, min_chars):
        return
    later = _superseded_by(view, exchange, min_chars)
    parts = exchange_closure(view.transcript, exchange.ordinal)
    if later is None or any(map(view.is_protected, parts)) or not _is_whole(view, exchange, parts):
        return
    offered.add(exchange.ordinal)
    saved = sum(map(view.tokens_of, parts))
    call = view.transcript.parts[exchange.call]
    path = view.use(exchange.ordinal).writes[0].path
    evidence = f"{path} was wholly written again by {later}, {len(call.text):,} chars"
    yield Offer(
        "drop",
        DropExchange(
            exchange=exchange.ordinal,
            ref=call.ref,
            reason=SUPERSEDED,
            evidence=evidence,
            saved=saved,
        ),
    )


def _is_whole(view: View, exchange: Exchange, parts: Iterable[int]) -> bool:
    """Return whether all but the reasoning is whole; reasoning may have gone before its call."""
    reasoning = view.transcript.units[exchange.unit].reasoning
    return all(view.is_whole(part) for part in parts if part not in reasoning)


def _can_drop(view: View, exchange: Exchange, min_chars: int) -> bool:
    """Return whether an exchange only wrote whole files and can go without others."""
    if not _is_whole_write(view, exchange, min_chars) or exchange.server:
        return False
    return can_leave_unit(view, exchange)


def can_leave_unit(view: View, exchange: Exchange) -> bool:
    """Return whether an exchange can go without others, and without reasoning that must stay."""
    unit = view.transcript.units[exchange.unit]
    return (len(unit.exchanges) == 1 or not unit.locked) and _can_lose_reasoning(view, unit)


def _can_lose_reasoning(view: View, unit: Unit) -> bool:
    """Return whether the unit has no reasoning, or reasoning that may go with the exchange."""
    if not unit.reasoning:
        return True
    binding = binding_of(view.format, view.fields)
    return len(unit.exchanges) == 1 and binding.droppable == "all" and not binding.oldest_first


def _is_whole_write(view: View, exchange: Exchange, min_chars: int) -> bool:
    """Return whether a call wrote whole files, succeeded, and did nothing else."""
    use = view.use(exchange.ordinal)
    if not use.replaces or not use.writes or use.barrier or use.reads:
        return False
    if use.content not in (None, "edit") or any(span.part for span in use.writes):
        return False
    if exchange.result is None or len(view.transcript.parts[exchange.call].text) < min_chars:
        return False
    result = view.transcript.parts[exchange.result]
    return not is_failed_call(result.text, result.error, use.outcome_kind)


def _superseded_by(view: View, exchange: Exchange, min_chars: int) -> str | None:
    """The last call that rewrote the files of this one, if all of them were rewritten."""
    seen = view.seen_exchanges()
    last = -1
    for span in view.use(exchange.ordinal).writes:
        for event in reversed(view.ledger.events(span.path, seen)):
            if event.ordinal <= exchange.ordinal:
                return None
            later = view.transcript.exchanges[event.ordinal]
            same = view.ledger.is_same_path(span.path, exchange.ordinal, event.ordinal)
            if event.replaced and same and _is_whole_write(view, later, min_chars):
                last = max(last, event.ordinal)
                break
        else:
            return None
    if last < 0:
        return None
    return call_label(view, last, exchange.ordinal)
