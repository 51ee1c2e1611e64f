"""`respool stats`: money and tokens saved, by day, week or month, agent, project and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from ..pricing import format_dollars
from ..store.periods import SHOWN_PERIODS, Period, last_periods, midnight
from .console import Table, pluralize, show
from .options import json_option, open_recorded_store, store_option, to_json

if TYPE_CHECKING:
    from ..store import ConversationSummary, PeriodTotal, RequestRecord, SQLiteStore

NOTHING_RECORDED: Final = (
    "Nothing is recorded yet: start an agent with respool run -- claude, or point one at "
    "respool serve."
)
_END_OF_TIME: Final = 4e11  # seconds since 1970
_ALL_REQUESTS: Final = 2**31
_MAX_ROWS: Final = 10  # of a table


class Saving(Struct, frozen=True, kw_only=True):
    """Sums of some requests, as the dashboard and `respool run` state them."""

    requests: int = 0
    observed: int = 0  # requests that were measured but not changed
    unpriced: int = 0  # answered requests of unknown cost
    tokens_before: int = 0
    tokens: int = 0  # tokens saved
    money: float = 0.0  # dollars saved
    bill: float = 0.0  # dollars without respool
    would_tokens: int = 0  # tokens that observed requests would have saved
    would_money: float = 0.0

    @property
    def is_priced(self) -> bool:
        """Report whether a price is known."""
        return self.bill > 0

    @property
    def is_only_observed(self) -> bool:
        """Report whether nothing was changed, only observed."""
        return self.observed > 0 and not self.tokens

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; dollars are null where no price is known."""
        return {
            "saved_usd": self.money if self.is_priced else None,
            "bill_without_respool_usd": self.bill if self.is_priced else None,
            "requests": self.requests,
            "tokens_before": self.tokens_before,
            "tokens_saved": self.tokens,
            "observed_requests": self.observed,
            "would_have_saved_usd": self.would_money if self.is_priced else None,
            "would_have_saved_tokens": self.would_tokens,
            "unpriced_requests": self.unpriced,
        }


def saving_of_total(total: PeriodTotal) -> Saving:
    """Saving in a period."""
    return Saving(
        requests=total.requests,
        observed=total.observed,
        unpriced=total.unpriced,
        tokens_before=total.tokens_before,
        tokens=total.saved - total.would_saved,
        money=total.cost_before - total.cost_after - total.would_cost,
        bill=total.cost_before,
        would_tokens=total.would_saved,
        would_money=total.would_cost,
    )


def _saving_of_record(record: RequestRecord) -> Saving:
    is_observed = record.mode == "observed"
    cost = record.cost_before or 0.0
    money = cost - (record.cost_after or 0.0)
    return Saving(
        requests=1,
        observed=int(is_observed),
        unpriced=int(0 < record.status < 400 and record.cost_after is None),
        tokens_before=record.tokens_before,
        tokens=0 if is_observed else record.saved,
        money=0.0 if is_observed else money,
        bill=cost,
        would_tokens=record.saved if is_observed else 0,
        would_money=money if is_observed else 0.0,
    )


def add_savings(savings: Iterable[Saving]) -> Saving:
    """Sum of savings."""
    every = list(savings)
    return Saving(**{
        name: sum(getattr(one, name) for one in every) for name in Saving.__struct_fields__
    })  # fmt: skip


def saving_between(store: SQLiteStore, since: float, until: float = _END_OF_TIME) -> Saving:
    """Saving of all requests from one time to another."""
    totals = store.totals(None, since=since, until=until, step=until - since)
    return add_savings(saving_of_total(one) for one in totals)


def saving_of_conversation(store: SQLiteStore, conversation: ConversationSummary) -> Saving:
    """Saving of one conversation."""
    records = store.requests(conversation.name, conversation.owner, limit=_ALL_REQUESTS)
    return add_savings(_saving_of_record(one) for one in records)


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


def describe_saving(saving: Saving) -> str:
    """Describe a saving in words: money, or tokens where no price is known."""
    would = saving.is_only_observed
    money = saving.would_money if would else saving.money
    tokens = saving.would_tokens if would else saving.tokens
    if saving.is_priced and money < 0:
        return f"{'would have cost' if would else 'cost'} {format_dollars(-money)} more"
    amount = format_dollars(money) if saving.is_priced else pluralize(tokens, "token")
    return f"{'would have saved' if would else 'saved'} {amount}"


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
    would = saving.is_only_observed
    money = saving.would_money if would else saving.money
    share = f", {_format_share(money, saving.bill)} of a bill of {format_dollars(saving.bill)}"
    tokens = pluralize(saving.would_tokens if would else saving.tokens, "token")
    beside = (
        f" Beside that, {pluralize(saving.observed, 'request')} only observed would have saved "
        f"{format_dollars(saving.would_money)}."
        if saving.observed and not would and saving.is_priced
        else ""
    )
    unpriced = (
        f" No price is known for {pluralize(saving.unpriced, 'request')}."
        if saving.unpriced and saving.is_priced
        else ""
    )
    counted = f"; {tokens}" if saving.is_priced else ""
    return (
        f"{span}, respool {describe_saving(saving)}{share if saving.is_priced else ''}{counted} "
        f"in {pluralize(saving.requests, 'request')}.{beside}{unpriced}"
    )


def _format_share(part: float, whole: float) -> str:
    return f"{round(100 * part / whole)} %" if whole > 0 else "–"


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
        _format_share(saving.money, saving.bill),
        f"{saving.tokens:,}",
        f"{saving.requests:,}",
    )


def _would_cells(saving: Saving) -> tuple[str, str]:
    priced = saving.is_priced and saving.observed
    return format_dollars(saving.would_money) if priced else "–", f"{saving.observed:,}"
