"""Sentences and table rows on what pauses, cache misses and the head cost."""

from __future__ import annotations

from collections.abc import Iterator

from ..pricing import format_dollars
from .result import CacheCosts, CacheTotals, HeadTools, UnusedTool

MAX_TOOLS = 5  # tools named in a sentence
# Titles of the columns of `cost_rows`.
COLUMNS = ("sessions", "head", "pauses", "one hour", "keep-alive", "cold", "missed")
LEGEND = (
    "Shares of the bill without compaction. pauses: writing expired prefixes again; missed: "
    "prefixes that were cached and not found; one hour, keep-alive, cold: the bill with that remedy"
)


def bill_sentences(totals: CacheTotals) -> list[str]:
    """What the rest of the bill is made of, and what its remedies would have done."""
    whole = totals.whole
    if not whole.bill:
        return []
    return [*_pause_sentences(whole), *_head_sentences(whole, totals.tools), *_missed(whole)]


def _pause_sentences(whole: CacheCosts) -> Iterator[str]:
    if not whole.pauses:
        yield "Pauses: no cached prefix expired between two requests."
        return
    money = f"{format_dollars(whole.expired_money)}, " if whole.expired_money else ""
    yield (
        f"Pauses: {_count(whole.pauses, 'request')} came after the cached prefix had expired. "
        f"Writing {_tokens(whole.expired)} tokens again cost {money}"
        f"{_share(whole.expired_cost, whole.bill)} of the bill."
    )
    remedies = [
        f"a cache lifetime of one hour {_changed(whole.one_hour, whole.bill)}",
        f"keep-alive pings ({whole.pings:,}) {_changed(whole.keep_alive, whole.bill)}",
    ]
    if whole.cold:
        lost = f", with {_count(whole.cold_lost, 'lost step')}" if whole.cold_lost else ""
        cold = _changed(whole.cold, whole.bill)
        remedies.append(f"compaction only where a pause had emptied the cache {cold}{lost}")
    yield f"The bill would have been: with {'; with '.join(remedies)}."


def _head_sentences(whole: CacheCosts, tools: HeadTools) -> Iterator[str]:
    share = _share(whole.head, whole.bill)
    yield f"Head: system prompt and tool definitions cost {share} of the bill."
    if not tools.sessions:
        yield (
            "These transcripts hold no tool definitions, so it is not known which ones were never "
            "called. The records of respool's proxy tell it: respool stats."
        )
    elif not tools.unused:
        yield "Every tool that was defined was called."
    else:
        yield unused_sentence(tools.unused)


def unused_sentence(unused: tuple[UnusedTool, ...]) -> str:
    """Name the dearest tools that were defined and never called."""
    tokens = sum(one.tokens for one in unused)
    named = ", ".join(f"{one.name} ({one.tokens:,})" for one in unused[:MAX_TOOLS])
    more = f" and {len(unused) - MAX_TOOLS:,} more" if len(unused) > MAX_TOOLS else ""
    return (
        f"{_count(len(unused), 'tool')} of {_tokens(tokens)} tokens in all "
        f"{'was' if len(unused) == 1 else 'were'} defined and never called: {named}{more}."
    )


def _missed(whole: CacheCosts) -> Iterator[str]:
    if whole.missed:
        far = _tokens(whole.beyond_lookback)
        yield (
            f"Cache breakpoints: {_tokens(whole.missed)} tokens were cached and not found, "
            f"{_share(whole.missed_cost, whole.bill)} of the bill; {far} of them had an entry "
            "beyond the lookback, the others had none where the prefix ended."
        )


def cost_rows(totals: CacheTotals) -> Iterator[tuple[str, ...]]:
    """The costs of all sessions, of each kind and at each read price, as shares of their bill."""
    yield ("all", *_cells(totals.whole))
    for name, costs in totals.kinds.items():
        yield (name, *_cells(costs))
    for costs in totals.prices:
        yield (f"cache reads at {costs.read_price:g}", *_cells(costs))


def _cells(costs: CacheCosts) -> tuple[str, ...]:
    bill = costs.bill
    cold = _share(costs.cold, bill) if costs.cold else "–"
    shares = (costs.head, costs.expired_cost, costs.one_hour, costs.keep_alive)
    return (
        f"{costs.sessions:,}",
        *(_share(part, bill) for part in shares),
        cold,
        _share(costs.missed_cost, bill),
    )


def _changed(after: float, before: float) -> str:
    saved = 1 - after / before
    if abs(saved) < 0.0005:
        return "as it was"
    return f"{100 * abs(saved):.1f} % {'lower' if saved > 0 else 'higher'}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _tokens(count: int) -> str:
    if count < 1_000:
        return f"{count:,}"
    return f"{count / 1_000:,.0f}k" if count < 1_000_000 else f"{count / 1_000_000:,.1f}M"
