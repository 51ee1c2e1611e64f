"""What the provider charged for a session, beside what its replay comes to, and why they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..sessions.session import Usage
from .caches import Billed
from .calibration import Evidence
from .reading import HOUR
from .recording import Conditions, Recording
from .result import Bill, Point, Recorded, Score

# What the reported prompts were made of.
HEAD = "system prompt and tools"
SHOWN = "what the record shows"
HIDDEN = "hidden reasoning"
LEFT_OUT = "reminders, and what else the record leaves out"
CLEARED = "shown, but not sent"  # results that the client had cleared, and what is counted too high

# Why a request was charged more or less than its replay.
LENGTH = "longer or shorter prompts, read from the cache"
NEW = "more or less new text"
STARTED = "a head that was found though its own entry had expired"
MISSED_ALL = "unforeseen misses: nothing was found"
MISSED_HISTORY = "unforeseen misses: at most the head was found"
MISSED_PART = "unforeseen misses: only a part was found"
FOUND = "unforeseen hits"
PRICE = "another price of writing"

# How many tokens of a prompt, and which part of it, must be read or not against what was foreseen.
_MANY, _PART = 4_000, 0.1


class _Request(Struct, frozen=True, gc=False):
    """One request as it was reported, as it is replayed, and what no record shows of it."""

    usage: Usage
    model: str | None
    point: Point
    hidden: float  # tokens of reasoning
    counted: float  # of them, those that the replay has


def recorded(
    recording: Recording, baseline: Score, evidence: Evidence | None = None
) -> Recorded | None:
    """The requests of a session that have a report; None where none has."""
    requests = list(_requests(recording, baseline, evidence))
    if not requests:
        return None
    conditions = recording.conditions
    terms = conditions.terms
    output = sum(one.usage.output for one in requests)
    written = [one.usage.output * terms.output for one in requests]
    made_of = _made_of(requests, conditions.head)
    return Recorded(
        requests=len(requests),
        reported=_reported(requests, conditions),
        replayed=_replayed(requests, conditions),
        output=output,
        head=conditions.head,
        warm=conditions.warm.head,
        hidden=round(made_of[HIDDEN] + made_of[LEFT_OUT]),
        output_money=_money(requests, written, conditions),
        made_of=made_of,
        explained=_explained(requests, conditions),
    )


def _requests(recording: Recording, baseline: Score, evidence: Evidence | None) -> Iterator[_Request]:
    for number, (sent, point) in enumerate(
        zip(recording.session.requests, baseline.points, strict=True)
    ):
        if sent.usage is None or not sent.usage.prompt:
            continue
        hidden = counted = 0.0
        if evidence is not None:
            hidden = evidence.hidden[number]
            counted = evidence.scale.tokens_per_thought * evidence.thoughts[number]
        yield _Request(sent.usage, sent.model, point, hidden, counted)


# --- the two bills -----------------------------------------------------------------------------


def _billed(usage: Usage) -> Billed:
    lasting = min(usage.cache_write_1h, usage.cache_write)
    return Billed(usage.cache_read, usage.cache_write - lasting, lasting, usage.input)


def _reported(requests: Sequence[_Request], conditions: Conditions) -> Bill:
    bills = [_billed(one.usage) for one in requests]
    costs = [bill.cost(conditions.terms) for bill in bills]
    return Bill(
        sum(bill.read for bill in bills),
        sum(bill.write for bill in bills),
        sum(bill.write_1h for bill in bills),
        sum(bill.plain for bill in bills),
        sum(costs),
        _money(requests, costs, conditions),
    )


def _replayed(requests: Sequence[_Request], conditions: Conditions) -> Bill:
    """The replay's bill of the same requests; what is new is written where there is a cache."""
    read = sum(one.point.read for one in requests)
    new = sum(one.point.tokens for one in requests) - read
    terms = conditions.terms
    if terms.cache == "none" or (terms.cache == "marks" and not conditions.lifetime):
        billed = Billed(read, plain=new)
    elif terms.cache == "marks" and conditions.lifetime == HOUR:
        billed = Billed(read, write_1h=new)
    else:
        billed = Billed(read, write=new)
    costs = [one.point.cost for one in requests]
    money = _money(requests, costs, conditions)
    return Bill(billed.read, billed.write, billed.write_1h, billed.plain, sum(costs), money)


def _money(
    requests: Sequence[_Request], costs: Sequence[float], conditions: Conditions
) -> float | None:
    """What the requests come to in dollars, each at the price of its own model."""
    asked = zip(costs, requests, strict=True)
    money = [conditions.dollars(cost, one.model) for cost, one in asked]
    known = [dollars for dollars in money if dollars is not None]
    return sum(known) if known else None


# --- what explains the difference --------------------------------------------------------------


def _made_of(requests: Sequence[_Request], head: int) -> dict[str, float]:
    """The reported prompts' tokens, by what they were; they sum to all that was reported."""
    found: dict[str, float] = dict.fromkeys((HEAD, SHOWN, HIDDEN, LEFT_OUT, CLEARED), 0.0)
    for one in requests:
        shown = one.point.tokens - head - one.counted
        rest = one.usage.prompt - head - shown - one.hidden
        found[HEAD] += head
        found[SHOWN] += shown
        found[HIDDEN] += one.hidden
        found[LEFT_OUT if rest > 0 else CLEARED] += rest
    return found


def _explained(requests: Sequence[_Request], conditions: Conditions) -> dict[str, float]:
    """Reported less replayed cost, by cause, in tokens of plain input; they sum to all of it."""
    read, write = conditions.terms.read, conditions.write
    found: defaultdict[str, float] = defaultdict(float)
    for one in requests:
        usage, point = one.usage, one.point
        new, foreseen = usage.prompt - usage.cache_read, point.tokens - point.read
        found[LENGTH] += read * (usage.prompt - point.tokens)
        found[_cause(one, new - foreseen, conditions.head)] += (write - read) * (new - foreseen)
        charged = _billed(usage).cost(conditions.terms) - read * usage.cache_read - write * new
        found[PRICE] += charged - (point.cost - read * point.read - write * foreseen)
    return dict(found)


def _cause(request: _Request, more: float, head: int) -> str:
    """Why more was new to the cache than foreseen, or less."""
    usage, point = request.usage, request.point
    if abs(more) < max(_MANY, _PART * usage.prompt):
        return NEW
    if more < 0:
        return STARTED if not point.read and usage.cache_read <= head + _MANY else FOUND
    if not usage.cache_read:
        return MISSED_ALL
    return MISSED_HISTORY if usage.cache_read <= head + _MANY else MISSED_PART
