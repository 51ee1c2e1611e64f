"""Result of a replay on one terminal screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..history.repeat_rates import ExcessRefetch, excess_refetch
from ..regex import lazy_compile
from ..replay.bill_sentences import COLUMNS, LEGEND, bill_sentences, cost_rows
from ..replay.cost_breakdown import AGES
from ..replay.policies import describe_policy
from ..replay.result import (
    CostShare,
    LoopTotals,
    PolicyTotal,
    Replay,
    ReplayBill,
    ReportedUsage,
    SessionResult,
    SkippedSource,
)
from ..replay.totals import conversation_count, describe_proxied, sum_bills
from .console import escape_unprintable, pluralize

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_BAR_WIDTH = 8  # characters
_MAX_ROWS = 5  # rows of a list, plus one for the rest
_MAX_LEFT_OUT = 3  # lines about what was left out
_MAX_AGENTS = 3  # names shown
_MAX_NAME_CHARS = 23  # characters of a name
_LIST_WIDTH = 40  # columns of one list
_WIDE_FROM = 100  # min columns for the wide table
_NARROW_BELOW = 76  # max columns for the narrow table
_COLUMNS = ("money", "bill", "lost")
_DETAIL_COLUMNS = ("money", "bill", "all-in", "lost", "peak", "captured", "invalid", "breaks", "ms")
_LEGEND = (
    "lost: turns whose next step needed something that had been taken out.",
    "More columns, and how exact this is: --detail.",
)
_DETAIL_LEGEND = (
    "all-in: the bill, and what asking again for what was lost would cost.",
    "lost: turns whose next step needed something that had been taken out.",
    "captured: share of floor's saving. invalid: refused. breaks: cache not found.",
)
_COMPARED = lazy_compile(r"none|floor|oracle|mask-\d+|clear-.+")  # policies that are not respool's
_TOKENS_NOTE = "*: of plain input; one that is read from the cache counts as its price does."


def show_replay(replay: Replay, *, detail: bool = False) -> None:
    """Print a replay: coloured on a terminal, plain text elsewhere."""
    from rich.console import Console  # lazily: it takes longer to load than most commands to run

    console = Console(highlight=False, emoji=False, markup=False)
    with console.capture() as shown:
        console.print(_sentence(replay), style="bold")
        console.print()
        for line in _headline(replay):
            console.print(line)
        console.print()
        _show_spending(console, replay)
        _show_policies(console, replay, detail=detail)
        _show_rest(console, replay, detail=detail)
        for line in (
            *_loop_lines(replay.loops, replay.totals[0].bill.cost),
            *(_reported_bill_lines(replay.sessions) if detail else ()),
            *_left_out(replay.left, console.width),
        ):
            console.print(line)
    click.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


# --- what there was ----------------------------------------------------------------------------


def _sentence(replay: Replay) -> str:
    """What the sessions cost, and what respool would have saved and lost, in one sentence."""
    bill, count = replay.totals[0].bill, conversation_count(replay.sessions)
    which = "This conversation" if count == 1 else f"These {count:,} conversations"
    cost = f"{which} cost {_format_bill(bill)}"
    total = next((one for one in replay.totals if not _COMPARED.fullmatch(one.policy)), None)
    if total is None:
        return f"{cost}."
    saving = _format_saving(bill, total)
    if not saving and not total.lost_turns:
        return f"{cost}; respool would have found nothing to save."
    return f"{cost}; respool would have {saving or 'saved nothing'}, and {_format_losses(total)}."


def _format_saving(bill: ReplayBill, total: PolicyTotal) -> str:
    """Saving of a policy, in the unit of the bill; empty: none."""
    is_priced = bill.money is not None and total.bill.money is not None
    before, after = (
        (bill.money or 0.0, total.bill.money or 0.0) if is_priced else (bill.cost, total.bill.cost)
    )
    saved = before - after
    amount = _format_dollars(abs(saved)) if is_priced else f"{_format_tokens(abs(saved))} tokens"
    share = _format_percent(abs(saved), before)
    if share in ("–", "0 %"):
        return ""
    return f"saved {amount} ({share})" if saved > 0 else f"cost {amount} ({share}) more"


def _format_losses(total: PolicyTotal) -> str:
    if not total.lost_turns:
        return "no step would have missed what it took out"
    steps = pluralize(total.lost_turns, "step")
    return f"{steps} ({100 * total.lost:.1f} %) would have missed something that it took out"


def _headline(replay: Replay) -> Iterator[str]:
    sessions = replay.sessions
    files = len({session.source for session in sessions})
    yield (
        f"{pluralize(conversation_count(sessions), 'conversation')} in {pluralize(files, 'file')}, "
        f"{pluralize(replay.requests, 'request')}{_parts(sessions)}"
    )
    yield f"{_agents(sessions)}{_period(sessions)}"
    bill = replay.totals[0].bill
    share = f", of which {_format_percent(bill.read, bill.tokens)} were read from the cache"
    yield f"{_format_tokens(bill.tokens)} tokens were sent{share}."
    yield f"The prompts come to {_format_bill(bill)}{_unpriced(sessions)}."
    if replay.duplicates:
        repetitions = pluralize(replay.duplicates, "repetition")
        yield f"{repetitions} of requests, as forks and copies of sessions have them, left out."
    yield from describe_proxied(replay)


def _parts(sessions: Sequence[SessionResult]) -> str:
    """Other parts of the conversations."""
    agents = len({(one.source, one.id) for one in sessions if one.parent is not None})
    later = sum(one.segment > 0 for one in sessions)
    counts = [
        *([pluralize(agents, "sub-agent")] if agents else []),
        *([pluralize(later, "compaction")] if later else []),
    ]
    return f" ({', '.join(counts)})" if counts else ""


def _agents(sessions: Sequence[SessionResult]) -> str:
    """Agents with the most sessions."""
    agents = Counter(one.agent for one in sessions).most_common()
    counts = [f"{_truncate(agent)} {count:,}" for agent, count in agents[:_MAX_AGENTS]]
    more = len(agents) - len(counts)
    return ", ".join([*counts, *([pluralize(more, "other")] if more else [])])


def _period(sessions: Sequence[SessionResult]) -> str:
    first = min((one.started for one in sessions if one.started is not None), default=None)
    last = max((one.ended for one in sessions if one.ended is not None), default=None)
    if first is None or last is None:
        return ""
    days = list(dict.fromkeys((_day(first), _day(last))))
    return f"; {' to '.join(days)}"


def _day(time: float) -> str:
    try:
        return datetime.fromtimestamp(time).astimezone().date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "an unknown day"


def _unpriced(sessions: Sequence[SessionResult]) -> str:
    unknown = sum(one.scores[0].bill.money is None for one in sessions)
    if not unknown or unknown == len(sessions):
        return ""
    return f" ({unknown:,} sessions have no listed price)"


# --- where it went -----------------------------------------------------------------------------


def _show_spending(console: Console, replay: Replay) -> None:
    from rich.table import Table

    spent = replay.spent
    cells: list[RenderableType] = [
        _share_table("Where the bill went", _largest_shares(spent.kinds), console),
        _share_table("By tool", _largest_shares(spent.tools), console),
        _share_table("Tool results by age", spent.ages, console),
        _unused_line(replay),
    ]
    wide = max(1, min(3, console.width // _LIST_WIDTH))
    for start in range(0, len(cells), wide):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(*cells[start : start + wide])
        console.print(grid)
        console.print()


def _share_table(title: str, shares: Sequence[CostShare], console: Console) -> Table:
    """Table of shares of the bill, with bars."""
    from rich.table import Table
    from rich.text import Text

    whole = sum(share.cost for share in shares)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    table.title, table.title_style, table.title_justify = title, "bold", "left"
    for width in (_MAX_NAME_CHARS, _BAR_WIDTH, 5):
        table.add_column(min_width=width, no_wrap=True)
    for share in shares:
        bar = Text(_bar(share.cost, whole, console), style="cyan")
        part = _format_percent(share.cost, whole).rjust(5)
        table.add_row(Text(_truncate(share.name)), bar, Text(part))
    return table


def _largest_shares(shares: Sequence[CostShare]) -> list[CostShare]:
    """Largest shares, and the rest as one."""
    if len(shares) <= _MAX_ROWS + 1:
        return [*shares]
    rest = shares[_MAX_ROWS:]
    others = CostShare(f"{len(rest):,} others", 0, sum(share.cost for share in rest))
    return [*shares[:_MAX_ROWS], others]


def _bar(part: float, whole: float, console: Console) -> str:
    full = "█" if console.encoding.lower().startswith("utf") else "#"
    return (full * round(_BAR_WIDTH * part / whole) if whole else "").ljust(_BAR_WIDTH)


def _truncate(name: str) -> str:
    line = escape_unprintable(name)
    return line if len(line) <= _MAX_NAME_CHARS else f"{line[: _MAX_NAME_CHARS - 1]}…"


def _unused_line(replay: Replay) -> str:
    """Line on tokens that were resent and never used."""
    again = sum(share.tokens for share in replay.spent.ages if share.name != AGES[0][1])
    unused = sum(share.unused for share in replay.spent.kinds)
    if not again:
        return "No tool result was sent twice."
    return (
        f"Of the tokens of tool results that were sent again, "
        f"{_format_percent(unused, again)} stood in lines that no later action used."
    )


# --- what policies would have done -------------------------------------------------------------


def _show_policies(console: Console, replay: Replay, *, detail: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    money, roomy = replay.totals[0].bill.money is not None, console.width >= _WIDE_FROM
    table = Table(box=None, pad_edge=False, padding=(0, 2 if roomy else 1, 0, 0))
    table.add_column("policy", overflow="fold", min_width=6)
    shown = _DETAIL_COLUMNS if detail else _COLUMNS
    shown = shown[:5] if console.width < _NARROW_BELOW else shown
    for name in shown:
        heading = "tokens*" if name == "money" and not money else name
        table.add_column(heading, justify="right", no_wrap=True)
    for total in replay.totals:
        cells = _policy_cells(total, money, roomy)
        table.add_row(
            Text(escape_unprintable(total.policy)), *(Text(cells[name]) for name in shown)
        )
    title = Text("What a policy would have done", style="bold")
    beside = "bill, all-in and peak" if detail else "bill"
    console.print(title.append(f" ({beside} next to none)", style="not bold"))
    console.print(table)
    tried = (
        f"{escape_unprintable(name)}: {describe_policy(name)}." for name in replay.policies[1:]
    )
    legend = _DETAIL_LEGEND if detail else _LEGEND
    for line in (" ".join(tried), *legend, *(() if money else (_TOKENS_NOTE,))):
        console.print(Text(line, style="dim"))
    for line in (*_disputed_lines(replay), *(_refetch_lines(replay) if detail else ())):
        console.print(line)


def _disputed_lines(replay: Replay) -> Iterator[str]:
    """Line on requests that the provider answered although the check finds them wrong."""
    if count := replay.totals[0].disputed:
        yield (
            f"respool's check finds {pluralize(count, 'recorded request')} wrong that the provider "
            "had answered: a fault of the check or of the transcript, not counted as invalid."
        )


def _refetch_lines(replay: Replay) -> Iterator[str]:
    """Lines on results that were fetched again, cut or not."""
    looked = [(one.policy, one.again) for one in replay.totals if one.again and one.again.cut]
    if not looked:
        return
    yield ""
    for policy, again in looked:
        yield (
            f"Read again after a cut by {escape_unprintable(policy)}: "
            f"{_format_rate(again.after_cut, replay)}, {_format_short(again.tokens)} tokens, "
            f"{_format_share(again.after_cut, again.cut)} of the results it cut. "
            f"While a copy stood: {_format_rate(again.standing, replay)}, "
            f"{_format_share(again.standing, again.whole)} of the others."
        )
        if again.cells:
            yield _describe_excess(excess_refetch(again.cells))
    yield (
        "The agents saw all of it when they asked, so they may have asked without the cut: here "
        "the excess shows which results are cut, not what a cut does to an agent. Only requests "
        "through the proxy show that."
    )


def _describe_excess(found: ExcessRefetch) -> str:
    low, high = found.interval
    return (
        f"As often as whole results of the same kind and age were read again, that would be "
        f"{found.expected:,.1f} times in place of {found.after_cut:,}: an excess of "
        f"{found.excess:+,.1f} ({low:+,.1f} to {high:+,.1f})."
    )


def _format_rate(count: int, replay: Replay) -> str:
    rate = 100 * count / replay.requests if replay.requests else 0.0
    return f"{count:,} ({rate:.2f} per 100 requests)"


def _format_share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _policy_cells(total: PolicyTotal, money: bool, wide: bool) -> dict[str, str]:
    lost = f"{100 * total.lost:.1f} %"
    return {
        "money": _format_dollars(total.bill.money) if money else _format_short(total.bill.cost),
        "bill": _format_percent(total.bill_ratio, 1),
        "all-in": _format_percent(total.all_in_ratio, 1),
        "lost": f"{total.lost_turns:,} ({lost})" if wide else lost,
        "peak": _format_percent(total.peak_ratio, 1),
        "captured": "–" if total.captured is None else _format_percent(total.captured, 1),
        "invalid": f"{total.invalid:,}",
        "breaks": f"{sum(total.breaks.values()):,}",
        "ms": f"{total.ms:.1f}",
    }


# --- the rest of the bill -----------------------------------------------------------------------


def _show_rest(console: Console, replay: Replay, *, detail: bool) -> None:
    """Show what pauses, the head and cache misses cost, which respool changes only on request."""
    from rich.table import Table
    from rich.text import Text

    lines = bill_sentences(replay.cache)
    if not lines:
        return
    console.print()
    title = Text("The rest of the bill", style="bold")
    console.print(title.append(" (told only; nothing of it is changed)", style="not bold"))
    for line in lines:
        console.print(escape_unprintable(line))
    if not detail:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("sessions", overflow="fold", min_width=12)
    for name in COLUMNS:
        table.add_column("number" if name == "sessions" else name, justify="right", no_wrap=True)
    for row in cost_rows(replay.cache):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    console.print(Text(f"{LEGEND}.", style="dim"))


# --- loops --------------------------------------------------------------------------------------


def _loop_lines(loops: LoopTotals, bill: float) -> Iterator[str]:
    """Lines on loops: their number, their cost, and when advice would have come."""
    if not loops.count:
        return
    after, calls = loops.advised_after / loops.count, loops.calls / loops.count
    share = f", {100 * loops.cost / bill:.2f} % of the bill" if bill else ""
    yield ""
    yield (
        f"Agents ran {pluralize(loops.count, 'loop')} in "
        f"{pluralize(loops.sessions, 'session')}: {pluralize(loops.again, 'call')} brought nothing "
        f"new, {_format_tokens(loops.tokens)} tokens{share}. The detector would "
        f"have spoken after {after:.1f} of {calls:.1f} calls on average."
    )


# --- what was really charged -------------------------------------------------------------------


def _reported_bill_lines(sessions: Sequence[SessionResult]) -> Iterator[str]:
    """Lines on the replayed bill beside the reported one."""
    known = [one.recorded for one in sessions if one.recorded is not None]
    if not known:
        return
    requests = sum(one.requests for one in known)
    reported = sum_bills([one.reported for one in known])
    replayed = sum_bills([one.replayed for one in known])
    yield ""
    yield (
        f"The provider reported {pluralize(requests, 'request')}: {_format_bill(reported)}. "
        f"Replayed, the same come to {_format_bill(replayed)}: {_difference(replayed, reported)}."
        f"{_output_line(known)}"
    )


def _difference(replayed: ReplayBill, reported: ReplayBill) -> str:
    """Difference of two bills, in the unit in which both are shown."""
    known = replayed.money is not None and reported.money is not None
    ours, theirs = (bill.money if known else bill.cost for bill in (replayed, reported))
    off = (ours or 0.0) / theirs - 1 if theirs else 0.0
    if abs(off) < 0.0005:
        return "the same"
    return f"{100 * abs(off):.1f} % {'more' if off > 0 else 'less'}"


def _output_line(known: Sequence[ReportedUsage]) -> str:
    """Line on the models' output, which no policy changes."""
    output = sum(one.output for one in known)
    money = [one.output_money for one in known if one.output_money is not None]
    if not output:
        return ""
    cost = f" for {_format_dollars(sum(money))}" if money else ""
    return f" Beside the prompts, {_format_tokens(output)} tokens were written{cost}."


# --- what was left out -------------------------------------------------------------------------


def _left_out(left: Sequence[SkippedSource], width: int) -> Iterator[str]:
    if left:
        yield ""
        yield f"Left out ({len(left):,}):"
        yield from left_out_lines(left, width)


def left_out_lines(left: Sequence[SkippedSource], width: int | None = None) -> list[str]:
    """Lines on what was not replayed and why; paths are shortened to fit."""
    shown = [_left_out_line(one, width) for one in left[:_MAX_LEFT_OUT]]
    if len(left) > len(shown):
        shown.append(f"and {len(left) - len(shown):,} more; --json lists all.")
    return shown


def _left_out_line(left: SkippedSource, width: int | None) -> str:
    source, why = (
        escape_unprintable(click.format_filename(left.source)),
        escape_unprintable(left.reason),
    )
    room = len(source) if width is None else max(_MAX_NAME_CHARS, width - len(why) - 2)
    return f"{source if len(source) <= room else f'…{source[1 - room :]}'}: {why}"


# --- figures for a person ----------------------------------------------------------------------


def _format_tokens(number: float) -> str:
    """Format a number of tokens with a unit."""
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.{2 if number < 10 * size else 1}f}{unit}"
    return f"{number:,.0f}"


def _format_percent(part: float, whole: float) -> str:
    if not whole:
        return "–"
    share = part / whole
    return "<1 %" if 0 < share < 0.005 else f"{round(100 * share)} %"  # avoids -0


def _format_short(number: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def _format_dollars(money: float | None) -> str:
    if money is None:
        return "–"
    return f"${money:,.2f}" if money >= 1 or not money else f"${money:.4f}"


def _format_bill(bill: ReplayBill) -> str:
    """Format a bill in dollars, or in tokens where no price is known."""
    if bill.money is None:
        return f"{_format_tokens(bill.cost)} tokens of plain input"
    return f"{_format_dollars(bill.money)} at list prices"
