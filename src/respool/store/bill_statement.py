"""Sentences on what requests cost besides their work: one wording for every face."""

from __future__ import annotations

from collections.abc import Iterator

from ..pricing import format_dollars
from .base import KeepAliveTotal, RecordedBill, Remedies


def state_bill(bill: RecordedBill) -> list[str]:
    """What the recorded requests cost besides their work, and what remedies would have done.

    >>> state_bill(RecordedBill(requests=2, money=4.0, head_money=1.0, tools_known=1))
    ['The system prompt and the tool definitions cost $1.00 (25 % of the bill).', \
'No cached prefix expired in a pause.']
    """
    if not bill.requests:
        return []
    return [*_head(bill), *_pauses(bill), *_misses(bill), *_keep_alive(bill.keep_alive)]


def _head(bill: RecordedBill) -> Iterator[str]:
    if bill.head_money:
        yield (
            "The system prompt and the tool definitions cost "
            f"{_money(bill.head_money, bill.money)}."
        )
    if bill.tools:
        tokens = sum(one.tokens for one in bill.tools)
        count = len(bill.tools)
        yield (
            f"{count:,} of {bill.tools_known:,} defined tools "
            f"{'was' if count == 1 else 'were'} never called: {tokens:,} tokens in each request "
            "that has them all."
        )


def _pauses(bill: RecordedBill) -> Iterator[str]:
    if not bill.pauses:
        yield "No cached prefix expired in a pause."
        return
    requests = "request" if bill.pauses == 1 else "requests"
    yield (
        f"{bill.pauses:,} {requests} came after a pause in which the cached prefix had expired: "
        f"writing {bill.expired:,} tokens again cost {_money(bill.expired_money, bill.money)}."
    )
    yield _compacted(bill.remedies)
    if not bill.remedies.pauses:
        yield (
            "A longer cache lifetime or keep-alive pings could have helped at none of these: both "
            "need cache breakpoints of the client and known prices."
        )
        return
    yield _one_hour(bill.remedies, bill.money)
    if not bill.keep_alive.pings:
        yield _pings(bill.remedies, bill.money)


def _compacted(remedies: Remedies) -> str:
    done = "at none of these"
    if remedies.compacted:
        done = f"at {remedies.compacted:,} of these, where it took out {remedies.removed:,} tokens"
        if remedies.pauses:
            done += " (no other remedy is credited there)"
    return (
        "respool compacts after such pauses by itself, as all is written again anyway: "
        f"{done}. What that alone would have done is not in the records: see respool replay."
    )


def _one_hour(remedies: Remedies, money: float) -> str:
    if not remedies.short_writes:
        return "A cache lifetime of one hour was in use already."
    return (
        "With a cache lifetime of one hour, the same requests would have cost "
        f"{_changed(remedies.hour_saved - remedies.hour_money, money)}: "
        f"{_found(remedies.hour_found, remedies.hour_saved)}, "
        f"{format_dollars(remedies.hour_money)} more for all other writes."
    )


def _pings(remedies: Remedies, money: float) -> str:
    if not remedies.pings:
        return "No keep-alive ping would have paid, by the chance that a conversation goes on."
    pings = "ping" if remedies.pings == 1 else "pings"
    return (
        "With keep-alive pings, the same requests would have cost "
        f"{_changed(remedies.pings_saved - remedies.ping_money, money)}: "
        f"{_found(remedies.pings_found, remedies.pings_saved)}, "
        f"{format_dollars(remedies.ping_money)} for {remedies.pings:,} {pings}. Records do not say "
        "what a pause waited for: the user is assumed."
    )


def _found(count: int, saved: float) -> str:
    if not count:
        return "nothing less, as no expired prefix would have been found"
    return (
        f"{format_dollars(saved)} less for {count:,} {'prefix' if count == 1 else 'prefixes'} found"
    )


def _changed(saved: float, whole: float) -> str:
    direction = "less" if saved >= 0 else "more"
    return f"{format_dollars(abs(saved))} {direction}{_share(abs(saved), whole)}"


def _misses(bill: RecordedBill) -> Iterator[str]:
    if bill.misses:
        requests = "request" if bill.misses == 1 else "requests"
        yield (
            f"{bill.misses:,} {requests} did not find a prefix that should have been cached, for "
            f"want of a cache breakpoint or beyond the lookback: {bill.missed:,} tokens, "
            f"{_money(bill.missed_money, bill.money)}."
        )


def _keep_alive(total: KeepAliveTotal) -> Iterator[str]:
    if total.pings:
        pings = "ping" if total.pings == 1 else "pings"
        requests = "request" if total.hits == 1 else "requests"
        yield (
            f"{total.pings:,} keep-alive {pings} cost {format_dollars(total.paid)}; "
            f"{total.hits:,} {requests} found what they had kept, which saved "
            f"{format_dollars(total.saved)}."
        )


def _money(part: float, whole: float) -> str:
    return format_dollars(part) + _share(part, whole)


def _share(part: float, whole: float) -> str:
    if not whole:
        return ""
    percent = 100 * part / whole
    share = f"{percent:.0f} %" if percent >= 1 or not part else "less than 1 %"
    return f" ({share} of the bill)"
