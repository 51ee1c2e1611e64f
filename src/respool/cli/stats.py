"""`respool stats`: requests, tokens and money saved, by day, week or month and by model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from ..pricing import format_dollars
from ..store.savings import (
    Saving,
    add_savings,
    format_share,
    saving_of_record,
    saving_of_total,
    state_saving,
)
from .console import Table, pluralize, show
from .options import json_option, open_recorded_store, store_option, to_json

if TYPE_CHECKING:
    from ..store import ConversationSummary, SQLiteStore

Period = Literal["day", "week", "month"]

NOTHING_RECORDED: Final = (
    "Nothing is recorded yet: start an agent with respool run -- claude, or point one at "
    "respool serve."
)
_PERIODS: Final[dict[Period, int]] = {"day": 7, "week": 8, "month": 12}  # shown of each
_END_OF_TIME: Final = 4e11  # seconds since 1970
_ALL_REQUESTS: Final = 2**31
_CONVERSATIONS_PER_PAGE: Final = 200


def saving_between(store: SQLiteStore, since: float, until: float = _END_OF_TIME) -> Saving:
    """Saving of all requests from one time to another."""
    totals = store.totals(None, since=since, until=until, step=until - since)
    return add_savings(saving_of_total(one) for one in totals)


def saving_of_conversation(store: SQLiteStore, conversation: ConversationSummary) -> Saving:
    """Saving of one conversation."""
    records = store.requests(conversation.name, conversation.owner, limit=_ALL_REQUESTS)
    return add_savings(saving_of_record(one) for one in records)


def savings_by_model(store: SQLiteStore, since: float) -> dict[str, Saving]:
    """Savings by model since a time, the largest saving first."""
    found: dict[str, list[Saving]] = {}
    for conversation in conversations_since(store, since):
        for record in store.requests(
            conversation.name,
            conversation.owner,
            after=math.nextafter(since, 0.0),
            limit=_ALL_REQUESTS,
        ):
            found.setdefault(record.model, []).append(saving_of_record(record))
    sums = {model: add_savings(held) for model, held in found.items()}
    return dict(sorted(sums.items(), key=lambda one: (-one[1].money, -one[1].tokens, one[0])))


def conversations_since(store: SQLiteStore, since: float) -> Iterable[ConversationSummary]:
    """Conversations with a request since a time, page by page."""
    behind: tuple[float, int] | None = None
    while page := store.conversations(None, behind=behind, limit=_CONVERSATIONS_PER_PAGE):
        yield from (one for one in page if one.last >= since)
        if page[-1].last < since:
            return
        behind = page[-1].last, page[-1].id


def start_of(period: Period, day: date) -> date:
    """First day of the week or month of a day; a week begins on Monday."""
    match period:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)


def last_periods(period: Period, today: date, count: int) -> list[tuple[date, date]]:
    """First days of the last periods and of those after them, the oldest first."""
    longest = {"day": 1, "week": 7, "month": 31}[period]
    starts = [start_of(period, today)]
    ends = [start_of(period, starts[0] + timedelta(days=longest))]
    while len(starts) < count:
        ends.append(starts[-1])
        starts.append(start_of(period, starts[-1] - timedelta(days=1)))
    return list(zip(reversed(starts), reversed(ends), strict=True))


def midnight(day: date) -> float:
    """Local midnight at the start of a day, in seconds since 1970."""
    return datetime(day.year, day.month, day.day).timestamp()


@click.command()
@click.option("--daily", "period", flag_value="day", default="day", help="The last 7 days.")
@click.option("--weekly", "period", flag_value="week", help="The last 8 weeks, from Monday on.")
@click.option("--monthly", "period", flag_value="month", help="The last 12 months.")
@store_option
@json_option
def stats(period: Period, store_file: str | None, as_json: bool) -> None:
    """Show what respool saved, by day, week or month and by model.

    Savings are what the same requests would have cost without respool, less what was paid, by
    reported usage and list prices: the dashboard's figures. Without an option: the last 7 days.
    """
    spans = last_periods(period, datetime.now().date(), _PERIODS[period])
    since = midnight(spans[0][0])
    with open_recorded_store(store_file) as store:
        if store is None:
            rows, models, every = [], {}, Saving()
        else:
            rows = [
                (start, saving_between(store, midnight(start), midnight(end)))
                for start, end in spans
            ]
            models = savings_by_model(store, since)
            every = saving_between(store, 0.0)
    total = add_savings(one for _, one in rows)
    if as_json:
        click.echo(to_json(_to_json(period, rows, models, total, every)))
    elif not every.requests:
        click.echo(NOTHING_RECORDED)
    else:
        _show(period, rows, models, total=total, every=every)


def _to_json(
    period: Period,
    rows: Sequence[tuple[date, Saving]],
    models: dict[str, Saving],
    total: Saving,
    every: Saving,
) -> dict[str, Any]:
    return {
        "period": period,
        "periods": [{"start": start.isoformat(), **one.to_dict()} for start, one in rows],
        "models": [{"model": model, **one.to_dict()} for model, one in models.items()],
        "total": total.to_dict(),
        "all": every.to_dict(),
    }


def _show(
    period: Period,
    rows: Sequence[tuple[date, Saving]],
    models: dict[str, Saving],
    *,
    total: Saving,
    every: Saving,
) -> None:
    """Print the totals, then periods from the first with a request, then models."""
    span = f"In the last {_PERIODS[period]} {period}s"
    first = next((at for at, (_, one) in enumerate(rows) if one.requests), None)
    lines = [_headline(span, total), _headline("Of all that is recorded", every)]
    if first is None:
        show("\n".join([f"{span}, no request was recorded.", lines[1]]))
        return
    would = bool(total.observed)
    show(
        "\n".join(lines),
        _table(
            f"By {period}",
            {"day": "Day", "week": "Week from", "month": "Month"}[period],
            [(_name(period, start), one) for start, one in rows[first:]],
            would,
        ),
        _table(
            "By model", "Model", [(name or "unknown", one) for name, one in models.items()], would
        ),
    )


def _name(period: Period, start: date) -> str:
    return start.strftime("%Y-%m") if period == "month" else start.isoformat()


def _headline(span: str, saving: Saving) -> str:
    """Sentence with a total: money, share of the bill, tokens, requests."""
    beside = (
        f" Beside that, {pluralize(saving.observed, 'request')} only observed would have saved "
        f"{format_dollars(saving.would_money)}."
        if saving.observed and not saving.is_only_observed and saving.is_priced
        else ""
    )
    unpriced = (
        f" No price is known for {pluralize(saving.unpriced, 'request')}."
        if saving.unpriced and saving.is_priced
        else ""
    )
    return (
        f"{span}, respool {state_saving(saving)} "
        f"in {pluralize(saving.requests, 'request')}.{beside}{unpriced}"
    )


def _table(title: str, head: str, rows: Sequence[tuple[str, Saving]], would: bool) -> Table:
    """Table of savings; those of observed requests have columns of their own."""
    columns = (head, "Saved", "Of the bill", "Tokens saved", "Requests")
    more = ("Would have saved", "Observed") if would else ()
    return Table(
        title,
        (*columns, *more),
        [(name, *_cells(one), *(_would_cells(one) if would else ())) for name, one in rows],
        numeric=frozenset({*columns[1:], *more}),
        no_wrap=frozenset({*columns, *more}),
    )


def _cells(saving: Saving) -> tuple[str, str, str, str]:
    priced = saving.is_priced
    return (
        format_dollars(saving.money) if priced else "–",
        format_share(saving.money, saving.bill) or "–",
        f"{saving.tokens:,}",
        f"{saving.requests:,}",
    )


def _would_cells(saving: Saving) -> tuple[str, str]:
    priced = saving.is_priced and saving.observed
    return format_dollars(saving.would_money) if priced else "–", f"{saving.observed:,}"
