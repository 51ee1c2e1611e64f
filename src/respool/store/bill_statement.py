"""Sentences on what requests cost besides their work: one wording for every face."""

from __future__ import annotations

from collections.abc import Iterator

from ..pricing import format_dollars
from .base import KeepAliveTotal, RecordedBill


def state_bill(bill: RecordedBill) -> list[str]:
    """What the head, pauses, misses and keep-alive pings of the recorded requests cost.

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
    if not whole:
        return format_dollars(part)
    percent = 100 * part / whole
    share = f"{percent:.0f} %" if percent >= 1 or not part else "less than 1 %"
    return f"{format_dollars(part)} ({share} of the bill)"
