"""Reconciliation of the reported bill with the replayed one, by cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..pricing import Usage
from .calibration import UsageEvidence
from .prompt_cache import HOUR, BilledTokens
from .recording import BillingConditions, Recording
from .result import PolicyScore, ReplayBill, ReportedUsage, RequestPoint

# Components of the reported prompts.
HEAD_PART = "system prompt and tools"
SHOWN_PART = "what the record shows"
HIDDEN_PART = "hidden reasoning"
UNRECORDED_PART = "reminders, and what else the record leaves out"
CLEARED_PART = "shown, but not sent"  # results cleared by the client, and overcounted text

# Why a request was charged more or less than its replay.
LENGTH_CAUSE = "longer or shorter prompts, read from the cache"
NEW_TEXT_CAUSE = "more or less new text"
WARM_HEAD_CAUSE = "a head that was found though its own entry had expired"
FULL_MISS_CAUSE = "unforeseen misses: nothing was found"
HISTORY_MISS_CAUSE = "unforeseen misses: at most the head was found"
PARTIAL_MISS_CAUSE = "unforeseen misses: only a part was found"
UNEXPECTED_HIT_CAUSE = "unforeseen hits"
PRICE_CAUSE = "another price of writing"

# Tokens, and share of a prompt, by which a cache read must differ from the replay's.
_MIN_DIFF_TOKENS, _MIN_DIFF_RATIO = 4_000, 0.1


class _ReportedRequest(Struct, frozen=True, gc=False):
    """One request as reported and as replayed, and its unrecorded tokens."""

    usage: Usage
    model: str | None
    point: RequestPoint
    hidden: float  # tokens of reasoning
    counted: float  # of them, those that the replay has


def reconcile(
    recording: Recording, baseline: PolicyScore, evidence: UsageEvidence | None = None
) -> ReportedUsage | None:
    """The requests of a session that have a report; None where none has."""
    requests = list(_reported_requests(recording, baseline, evidence))
    if not requests:
        return None
    conditions = recording.conditions
    terms = conditions.terms
    output = sum(one.usage.output for one in requests)
    written = [one.usage.output * terms.output for one in requests]
    made_of = _prompt_parts(requests, conditions.head)
    return ReportedUsage(
        requests=len(requests),
        reported=_reported_bill(requests, conditions),
        replayed=_replayed_bill(requests, conditions),
        output=output,
        head=conditions.head,
        warm=conditions.warm.head,
        hidden=round(made_of[HIDDEN_PART] + made_of[UNRECORDED_PART]),
        output_money=_dollars(requests, written, conditions),
        made_of=made_of,
        explained=_cost_difference(requests, conditions),
    )


def _reported_requests(
    recording: Recording, baseline: PolicyScore, evidence: UsageEvidence | None
) -> Iterator[_ReportedRequest]:
    for number, (sent, point) in enumerate(
        zip(recording.session.requests, baseline.points, strict=True)
    ):
        if sent.usage is None or not sent.usage.prompt:
            continue
        hidden = counted = 0.0
        if evidence is not None:
            hidden = evidence.hidden[number]
            counted = evidence.scale.tokens_per_thought * evidence.thoughts[number]
        yield _ReportedRequest(
            usage=sent.usage, model=sent.model, point=point, hidden=hidden, counted=counted
        )


# --- the two bills -----------------------------------------------------------------------------


def _billed_usage(usage: Usage) -> BilledTokens:
    lasting = min(usage.cache_write_1h, usage.cache_write)
    return BilledTokens(usage.cache_read, usage.cache_write - lasting, lasting, usage.input)


def _reported_bill(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> ReplayBill:
    bills = [_billed_usage(one.usage) for one in requests]
    costs = [bill.cost(conditions.terms) for bill in bills]
    return ReplayBill(
        read=sum(bill.read for bill in bills),
        write=sum(bill.write for bill in bills),
        write_1h=sum(bill.write_1h for bill in bills),
        plain=sum(bill.plain for bill in bills),
        cost=sum(costs),
        money=_dollars(requests, costs, conditions),
    )


def _replayed_bill(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> ReplayBill:
    """Return the replay's bill of the same requests; new text is a write if there is a cache."""
    read = sum(one.point.read for one in requests)
    new = sum(one.point.tokens for one in requests) - read
    terms = conditions.terms
    if terms.cache == "none" or (terms.cache == "marks" and not conditions.lifetime):
        billed = BilledTokens(read, plain=new)
    elif terms.cache == "marks" and conditions.lifetime == HOUR:
        billed = BilledTokens(read, write_1h=new)
    else:
        billed = BilledTokens(read, write=new)
    costs = [one.point.cost for one in requests]
    money = _dollars(requests, costs, conditions)
    return ReplayBill(
        read=billed.read,
        write=billed.write,
        write_1h=billed.write_1h,
        plain=billed.plain,
        cost=sum(costs),
        money=money,
    )


def _dollars(
    requests: Sequence[_ReportedRequest], costs: Sequence[float], conditions: BillingConditions
) -> float | None:
    """Return the requests' cost in dollars, each at its model's price."""
    asked = zip(costs, requests, strict=True)
    money = [conditions.dollars(cost, one.model) for cost, one in asked]
    known = [dollars for dollars in money if dollars is not None]
    return sum(known) if known else None


# --- causes of the difference ------------------------------------------------------------------


def _prompt_parts(requests: Sequence[_ReportedRequest], head: int) -> dict[str, float]:
    """Split the reported prompts' tokens by component; they sum to the reported total."""
    found: dict[str, float] = dict.fromkeys(
        (HEAD_PART, SHOWN_PART, HIDDEN_PART, UNRECORDED_PART, CLEARED_PART), 0.0
    )
    for one in requests:
        shown = one.point.tokens - head - one.counted
        rest = one.usage.prompt - head - shown - one.hidden
        found[HEAD_PART] += head
        found[SHOWN_PART] += shown
        found[HIDDEN_PART] += one.hidden
        found[UNRECORDED_PART if rest > 0 else CLEARED_PART] += rest
    return found


def _cost_difference(
    requests: Sequence[_ReportedRequest], conditions: BillingConditions
) -> dict[str, float]:
    """Reported less replayed cost, by cause, in tokens of plain input; they sum to all of it."""
    read, write = conditions.terms.read, conditions.write
    found: defaultdict[str, float] = defaultdict(float)
    for one in requests:
        usage, point = one.usage, one.point
        new, foreseen = usage.prompt - usage.cache_read, point.tokens - point.read
        found[LENGTH_CAUSE] += read * (usage.prompt - point.tokens)
        found[_cause(one, new - foreseen, conditions.head)] += (write - read) * (new - foreseen)
        charged = (
            _billed_usage(usage).cost(conditions.terms) - read * usage.cache_read - write * new
        )
        found[PRICE_CAUSE] += charged - (point.cost - read * point.read - write * foreseen)
    return dict(found)


def _cause(request: _ReportedRequest, more: float, head: int) -> str:
    """Return the cause of a difference in cached tokens."""
    usage, point = request.usage, request.point
    if abs(more) < max(_MIN_DIFF_TOKENS, _MIN_DIFF_RATIO * usage.prompt):
        return NEW_TEXT_CAUSE
    if more < 0:
        return (
            WARM_HEAD_CAUSE
            if not point.read and usage.cache_read <= head + _MIN_DIFF_TOKENS
            else UNEXPECTED_HIT_CAUSE
        )
    if not usage.cache_read:
        return FULL_MISS_CAUSE
    return HISTORY_MISS_CAUSE if usage.cache_read <= head + _MIN_DIFF_TOKENS else PARTIAL_MISS_CAUSE
