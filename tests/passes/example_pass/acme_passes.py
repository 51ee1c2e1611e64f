"""Passes of a package that knows only respool's public modules."""

from __future__ import annotations

from collections.abc import Iterator

import respool
from respool.passes import (
    DropExchange,
    Offer,
    OmissionMarker,
    Replace,
    Use,
    View,
    exchange_closure,
    find_marker,
    reference,
)

LOCK_FILES = ("uv.lock", "package-lock.json", "Cargo.lock")


def stub_lock_files(view: View, policy: respool.Policy) -> Iterator[Offer]:
    """Keep of an old lock file only how long it was."""
    for exchange in view.aged_exchanges():
        position = exchange.result
        if position is None or not _shows_lock_file(view.use(exchange.ordinal)):
            continue
        part = view.transcript.parts[position]
        if not view.can_rewrite(position) or find_marker(part.text) is not None:
            continue
        ref, count = reference(part.text), len(part.text.split("\n"))
        tool = view.fetch_tool
        text = str(OmissionMarker(count, "lines", ref, reason="a lock file", fetch_tool=tool))
        saved = view.saved_by(position, text)
        if saved > 0:
            edit = Replace(position, part.ref, text, ref, "lock_file", f"{count} lines", saved)
            yield Offer("stub", edit)


def _shows_lock_file(use: Use) -> bool:
    return any(span.path.endswith(LOCK_FILES) for span in use.reads)


def drop_empty_searches(view: View, policy: respool.Policy) -> Iterator[Offer]:
    """Take out old searches that found nothing."""
    for exchange in view.aged_exchanges():
        parts = view.transcript.parts
        if exchange.result is None or view.use(exchange.ordinal).kind != "search":
            continue
        if parts[exchange.result].text.strip() not in ("", "No matches found"):
            continue
        gone = exchange_closure(view.transcript, exchange.ordinal)
        if any(view.is_protected(position) for position in gone):
            continue
        saved = sum(view.tokens_of(position) for position in gone)
        if saved > 0:
            ref = parts[exchange.call].ref
            edit = DropExchange(exchange.ordinal, ref, "empty_search", "no hits", saved)
            yield Offer("drop", edit)
