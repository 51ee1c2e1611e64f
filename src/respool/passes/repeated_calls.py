"""Replace the arguments of a repeated call by a reference to the first call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from ..edits import Offer, Replace
from ..markers import reference
from ..policy import Policy
from ..tools.identity import canonical_text, parse_arguments
from ..transcript import Exchange
from .base import View

_MIN_BYTES = 64  # shorter arguments are left unchanged
_REPEAT_KEY = "repeat_of"


def repeated_calls(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to shorten old calls that repeat an earlier one with no write between them.

    Only reads, runs and searches: the model might copy a placeholder in the arguments of a write
    into a file.
    """
    min_bytes = _MIN_BYTES if policy.min_chars is None else policy.min_chars
    for exchange in view.aged_exchanges():
        call = view.transcript.parts[exchange.call]
        if len(call.text) * 4 < min_bytes or not _can_shorten(view, exchange):
            continue
        first = _first_call(view, exchange)
        if first is not None:
            yield from _offers(view, exchange, first, min_bytes)


def _can_shorten(view: View, exchange: Exchange) -> bool:
    use = view.use(exchange.ordinal)
    return (
        use.kind in ("read", "run", "search")
        and not use.can_write
        and not exchange.server
        and exchange.call not in view.in_force
        and view.can_rewrite(exchange.call)
    )


def _first_call(view: View, exchange: Exchange) -> Exchange | None:
    """The first equal call since the last write, if its arguments are still whole."""
    call = view.transcript.parts[exchange.call]
    use = view.use(exchange.ordinal)
    same = view.ledger.repeats(call.name, use, exchange.ordinal)
    at = bisect_left(
        same, True, key=lambda one: not view.ledger.has_any_write(one, exchange.ordinal)
    )
    if at == len(same):
        return None
    first = view.transcript.exchanges[same[at]]
    return first if view.is_whole(first.call) else None


def _offers(view: View, exchange: Exchange, first: Exchange, min_bytes: int) -> Iterator[Offer]:
    call, original = view.transcript.parts[exchange.call], view.transcript.parts[first.call]
    size = len(call.text.encode("utf-8", "surrogatepass"))
    if size < min_bytes or not _has_same_arguments(call.text, original.text):
        return
    has_own_id = original.id and original.id != call.id
    id = original.id if has_own_id else f"call no. {first.ordinal + 1}"
    ref = reference(call.text)
    text = msgspec.json.encode({_REPEAT_KEY: id, "bytes": size, "ref": ref}).decode()
    if len(text) >= size:
        return
    saved = view.saved_by(exchange.call, text)
    if saved > 0:
        evidence = f"same as {id}, {size - len(text):,} of {size:,} bytes saved"
        edit = Replace(
            part=exchange.call,
            ref=call.ref,
            text=text,
            original=ref,
            reason="repeated_call",
            evidence=evidence,
            saved=saved,
        )
        yield Offer("trim", edit, (first.call,))


def _has_same_arguments(one: str, other: str) -> bool:
    """Return whether both are equal JSON objects and not references themselves."""
    if not one.lstrip().startswith("{"):
        return False
    arguments = parse_arguments(one)
    if _REPEAT_KEY in arguments:
        return False
    return one == other or canonical_text(arguments) == canonical_text(parse_arguments(other))
