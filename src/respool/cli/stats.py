"""`respool stats`: money and tokens saved, by day, week or month, agent, project and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct, to_builtins

from ..history.repeat_rates import ExcessRefetch, excess_refetch
from ..pricing import format_dollars
from ..store.base import RecordedBill
from ..store.bill_statement import state_bill
from ..store.comparison import (
    ARM_NAMES,
    MEASURE_NAMES,
    HoldoutComparison,
    MeasuredDifference,
    compare_groups,
    comparison_fields,
    describe_comparison,
    describe_excess,
    describe_verdict,
    excess_fields,
)
from ..store.periods import SHOWN_PERIODS, Period, last_periods, midnight
from ..store.savings import (
    Saving,
    add_savings,
    format_share,
    saving_of_record,
    saving_of_total,
    state_saving,
)
from ..tools.switch_off import switch_off_line
from .console import Table, pluralize, show
from .options import (
    as_team,
    json_option,
    open_recorded_store,
    store_option,
    team_option,
    to_json,
)

if TYPE_CHECKING:
    from ..store import ConversationSummary, DefinedTool, SQLStore
    from ..store.owned import OwnedStore

NOTHING_RECORDED: Final = (
    "Nothing is recorded yet: start an agent with respool run -- claude, or point one at "
    "respool serve."
)
_END_OF_TIME: Final = 4e11  # seconds since 1970
_ALL_REQUESTS: Final = 2**31
_CONVERSATIONS_PER_PAGE: Final = 200
_MAX_ROWS: Final = 10  # of a table


def saving_between(
    store: SQLStore | OwnedStore, since: float, until: float = _END_OF_TIME
) -> Saving:
    """Saving of all requests from one time to another."""
    totals = store.totals(None, since=since, until=until, step=until - since)
    return add_savings(saving_of_total(one) for one in totals)


def saving_of_conversation(
    store: SQLStore | OwnedStore, conversation: ConversationSummary
) -> Saving:
    """Saving of one conversation."""
    records = store.requests(conversation.name, conversation.owner, limit=_ALL_REQUESTS)
    return add_savings(saving_of_record(one) for one in records)


def every_conversation(store: SQLStore | OwnedStore) -> Iterable[ConversationSummary]:
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
    store: SQLStore | OwnedStore, since: float, until: float = _END_OF_TIME
) -> SavingsByOrigin:
    """Savings from one time to another by agent, project and model."""
    found = store.totals_by_origin(None, since=since, until=until)
    agents, projects, models = (
        _sums((getattr(one, name), saving_of_total(one.total)) for one in found)
        for name in ("agent", "project", "model")
    )
    return SavingsByOrigin(agents, projects, models)


class Evidence(Struct, frozen=True):
    """Comparisons of what is recorded: groups of a holdout, and refetches after a cut."""

    comparisons: tuple[HoldoutComparison, ...] = ()
    excess: ExcessRefetch = ExcessRefetch()

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        return {
            "holdout": [comparison_fields(one) for one in self.comparisons],
            "excess_refetch": excess_fields(self.excess),
        }


def read_evidence(store: SQLStore | OwnedStore) -> Evidence:
    """Comparisons of all that is recorded."""
    units = store.holdout_units(None)
    return Evidence(tuple(compare_groups(units)), excess_refetch(store.repeats(None)))


def _show_evidence(evidence: Evidence) -> None:
    """Print each comparison as a table, then excess refetch."""
    for found in evidence.comparisons:
        click.echo()
        show(_comparison_table(found), "\n".join(describe_comparison(found)))
    if evidence.excess.cut:
        click.echo()
        show(describe_excess(evidence.excess))


def _comparison_table(found: HoldoutComparison) -> Table:
    title = "A/A: both groups compacted" if found.is_aa else "Held out and compacted"
    names = [ARM_NAMES[one].capitalize() for one in (found.control, found.other)]
    columns = ("Per conversation", *names, "Difference", "95 % interval", "Says")
    return Table(
        title,
        columns,
        [
            (
                MEASURE_NAMES[one.measure],
                *(_figure(one, value) for value in (one.control.mean, one.other.mean)),
                _figure(one, one.difference),
                f"{_figure(one, one.low)} to {_figure(one, one.high)}",
                describe_verdict(one),
            )
            for one in found.measures
        ],
        numeric=frozenset(columns[1:5]),
        no_wrap=frozenset(columns),
    )


def _figure(of: MeasuredDifference, value: float) -> str:
    if of.measure != "cost":
        return f"{value:,.2f}"
    return f"-{format_dollars(-value)}" if value < 0 else format_dollars(value)


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
@team_option
@store_option
@json_option
def stats(*, period: Period, team_name: str | None, store_file: str | None, as_json: bool) -> None:
    """Show what respool saved, by day, week or month, and by agent, project and model.

    Savings are what the same requests would have cost without respool, less what was paid, by
    reported usage and list prices: the dashboard's figures. Without an option: the last 7 days.
    Groups of a holdout (serve --holdout) and refetches after a cut are compared over all that is
    recorded.
    """
    spans = last_periods(period, datetime.now().date(), SHOWN_PERIODS[period])
    since = midnight(spans[0][0])
    evidence = Evidence()
    with open_recorded_store(store_file) as whole:
        store = None if whole is None else as_team(whole, team_name)
        if store is None:
            rows, origins, every, bill = [], SavingsByOrigin(), Saving(), RecordedBill()
        else:
            rows = [
                (start, saving_between(store, midnight(start), midnight(end)))
                for start, end in spans
            ]
            origins = savings_by_origin(store, since)
            every = saving_between(store, 0.0)
            bill = store.bill(None, since=since, until=_END_OF_TIME)
            evidence = read_evidence(store)
    total = add_savings(one for _, one in rows)
    if as_json:
        figures = _to_json(period, rows, origins, total, every)
        click.echo(to_json({**figures, "bill": _bill_json(bill), **evidence.to_dict()}))
    elif not every.requests:
        click.echo(NOTHING_RECORDED)
    else:
        _show(period, rows, origins, total=total, every=every)
        _show_bill(bill)
        _show_evidence(evidence)


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


def _bill_json(bill: RecordedBill) -> dict[str, Any]:
    tools = [
        {**to_builtins(one), "off": switch_off_line(one.agent, one.name)} for one in bill.tools
    ]
    return {**to_builtins(bill), "tools": tools}


def _show_bill(bill: RecordedBill) -> None:
    """Print what the requests of the time cost besides their work, and the dearest unused tools."""
    sentences = state_bill(bill)
    if not sentences:
        return
    tables = [_tool_table(bill.tools[:_MAX_ROWS])] if bill.tools else []
    click.echo()
    show("\n".join(["Besides:", *sentences]), *tables)


def _tool_table(tools: Sequence[DefinedTool]) -> Table:
    columns = ("Never called", "Tokens", "Requests", "Switched off")
    rows = [
        (
            one.name,
            f"{one.tokens:,}",
            f"{one.requests:,}",
            switch_off_line(one.agent, one.name) or "not known",
        )
        for one in tools
    ]
    numeric = frozenset({"Tokens", "Requests"})
    return Table("Tools", columns, rows, numeric=numeric, no_wrap=numeric)


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
