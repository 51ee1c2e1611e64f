"""`respool stats`: money and tokens saved, by day, week or month, agent, project and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from ..pricing import format_dollars
from ..store.periods import SHOWN_PERIODS, Period, last_periods, midnight
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

NOTHING_RECORDED: Final = (
    "Nothing is recorded yet: start an agent with respool run -- claude, or point one at "
    "respool serve."
)
_END_OF_TIME: Final = 4e11  # seconds since 1970
_ALL_REQUESTS: Final = 2**31
_CONVERSATIONS_PER_PAGE: Final = 200
_MAX_ROWS: Final = 10  # of a table


def saving_between(store: SQLiteStore, since: float, until: float = _END_OF_TIME) -> Saving:
    """Saving of all requests from one time to another."""
    totals = store.totals(None, since=since, until=until, step=until - since)
    return add_savings(saving_of_total(one) for one in totals)


def saving_of_conversation(store: SQLiteStore, conversation: ConversationSummary) -> Saving:
    """Saving of one conversation."""
    records = store.requests(conversation.name, conversation.owner, limit=_ALL_REQUESTS)
    return add_savings(saving_of_record(one) for one in records)


def every_conversation(store: SQLiteStore) -> Iterable[ConversationSummary]:
    """All conversations, page by page."""
    behind: tuple[float, int] | None = None
    while page := store.conversations(None, behind=behind, limit=_CONVERSATIONS_PER_PAGE):
        yield from page
        behind = page[-1].last, page[-1].id


class SavingsByOrigin(Struct, frozen=True):
    """Savings by agent, by project and by model, the largest saving first."""

    agents: dict[str, Saving] = {}
    projects: dict[str, Saving] = {}
    models: dict[str, Saving] = {}

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; an unknown agent, project or model is empty."""
        return {
            "agents": _named("agent", self.agents),
            "projects": _named("project", self.projects),
            "models": _named("model", self.models),
        }

    def tables(self, *names: str, would: bool) -> list[Table]:
        """Tables by agent, project or model, those with a known name only."""
        by = {"agent": self.agents, "project": self.projects, "model": self.models}
        return [
            _table(
                f"By {name}",
                name.capitalize(),
                [(one or "unknown", saving) for one, saving in list(by[name].items())[:_MAX_ROWS]],
                would,
            )
            for name in names
            if any(by[name])
        ]


def savings_by_origin(
    store: SQLiteStore, since: float, until: float = _END_OF_TIME
) -> SavingsByOrigin:
    """Savings from one time to another by agent, project and model."""
    found = store.totals_by_origin(None, since=since, until=until)
    agents, projects, models = (
        _sums((getattr(one, name), saving_of_total(one.total)) for one in found)
        for name in ("agent", "project", "model")
    )
    return SavingsByOrigin(agents, projects, models)


def _sums(savings: Iterable[tuple[str, Saving]]) -> dict[str, Saving]:
    """Sums by name, the largest saving first."""
    found: dict[str, list[Saving]] = {}
    for name, saving in savings:
        found.setdefault(name, []).append(saving)
    sums = {name: add_savings(held) for name, held in found.items()}
    return dict(sorted(sums.items(), key=lambda one: (-one[1].money, -one[1].tokens, one[0])))


def _named(key: str, savings: dict[str, Saving]) -> list[dict[str, Any]]:
    return [{key: name, **one.to_dict()} for name, one in savings.items()]


@click.command()
@click.option("--daily", "period", flag_value="day", default="day", help="The last 7 days.")
@click.option("--weekly", "period", flag_value="week", help="The last 8 weeks, from Monday on.")
@click.option("--monthly", "period", flag_value="month", help="The last 12 months.")
@store_option
@json_option
def stats(period: Period, store_file: str | None, as_json: bool) -> None:
    """Show what respool saved, by day, week or month, and by agent, project and model.

    Savings are what the same requests would have cost without respool, less what was paid, by
    reported usage and list prices: the dashboard's figures. Without an option: the last 7 days.
    """
    spans = last_periods(period, datetime.now().date(), SHOWN_PERIODS[period])
    since = midnight(spans[0][0])
    with open_recorded_store(store_file) as store:
        if store is None:
            rows, origins, every = [], SavingsByOrigin(), Saving()
        else:
            rows = [
                (start, saving_between(store, midnight(start), midnight(end)))
                for start, end in spans
            ]
            origins = savings_by_origin(store, since)
            every = saving_between(store, 0.0)
    total = add_savings(one for _, one in rows)
    if as_json:
        click.echo(to_json(_to_json(period, rows, origins, total, every)))
    elif not every.requests:
        click.echo(NOTHING_RECORDED)
    else:
        _show(period, rows, origins, total=total, every=every)


def _to_json(
    period: Period,
    rows: Sequence[tuple[date, Saving]],
    origins: SavingsByOrigin,
    total: Saving,
    every: Saving,
) -> dict[str, Any]:
    return {
        "period": period,
        "periods": [{"start": start.isoformat(), **one.to_dict()} for start, one in rows],
        **origins.to_dict(),
        "total": total.to_dict(),
        "all": every.to_dict(),
    }


def _show(
    period: Period,
    rows: Sequence[tuple[date, Saving]],
    origins: SavingsByOrigin,
    *,
    total: Saving,
    every: Saving,
) -> None:
    """Print the totals, then periods from the first with a request, then by origin."""
    span = f"In the last {SHOWN_PERIODS[period]} {period}s"
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
        *origins.tables("agent", "project", "model", would=would),
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
