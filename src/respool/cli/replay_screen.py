"""The answer of `respool replay` on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..replay.policies import told
from ..replay.result import Bill, Circles, Left, Recorded, Replay, SessionResult, Share, Total
from ..replay.spending import AGES
from ..replay.totals import conversations, total_bill
from .showing import counted, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_BAR = 8  # characters
_ROWS = 5  # of a list, and one for all others
_LEFT = 3  # lines on what was left out
_AGENTS = 3  # that are named
_NAME = 23  # characters of a name
_LIST = 40  # columns that one list takes
_ROOMY = 100  # columns from which on the table has room for more
_NARROW = 76  # columns below which it has room for the first few only
_COLUMNS = ("money", "bill", "all-in", "lost", "peak", "captured", "invalid", "breaks", "ms")
_LEGEND = (
    "all-in: the bill, and what asking again for what was lost would cost.",
    "lost: turns whose next step needed something that had been taken out.",
    "captured: share of floor's saving. invalid: refused. breaks: cache not found.",
)
_TOKENS = "*: of plain input; one that is read from the cache counts as its price does."


def show_replay(replay: Replay) -> None:
    """Print it: with colours on a terminal, as plain text elsewhere."""
    from rich.console import Console  # late: it takes longer to load than most commands to run

    console = Console(highlight=False, emoji=False, markup=False)
    with console.capture() as shown:
        for line in _headline(replay):
            console.print(line)
        console.print()
        _show_spent(console, replay)
        _show_policies(console, replay)
        found = _circles(replay.circles, replay.totals[0].bill.cost)
        for line in (*found, *_charged(replay.sessions), *_left(replay.left, console.width)):
            console.print(line)
    click.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


# --- what there was ----------------------------------------------------------------------------


def _headline(replay: Replay) -> Iterator[str]:
    sessions = replay.sessions
    files = len({session.source for session in sessions})
    yield (
        f"{counted(conversations(sessions), 'conversation')} in {counted(files, 'file')}, "
        f"{counted(replay.requests, 'request')}{_parts(sessions)}"
    )
    yield f"{_agents(sessions)}{_period(sessions)}"
    bill = replay.totals[0].bill
    share = f", of which {_percent(bill.read, bill.tokens)} were read from the cache"
    yield f"{_large(bill.tokens)} tokens were sent{share}."
    yield f"The prompts come to {_price(bill)}{_unpriced(sessions)}."
    if replay.twice:
        told = counted(replay.twice, "repetition")
        yield f"{told} of requests, as forks and copies of sessions have them, left out."


def _parts(sessions: Sequence[SessionResult]) -> str:
    """What else the conversations consist of."""
    agents = len({(one.source, one.id) for one in sessions if one.parent is not None})
    later = sum(one.segment > 0 for one in sessions)
    told = [
        *([counted(agents, "sub-agent")] if agents else []),
        *([counted(later, "compaction")] if later else []),
    ]
    return f" ({', '.join(told)})" if told else ""


def _agents(sessions: Sequence[SessionResult]) -> str:
    """The agents with the most sessions."""
    agents = Counter(one.agent for one in sessions).most_common()
    told = [f"{_clipped(agent)} {count:,}" for agent, count in agents[:_AGENTS]]
    more = len(agents) - len(told)
    return ", ".join([*told, *([counted(more, "other")] if more else [])])


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


def _show_spent(console: Console, replay: Replay) -> None:
    from rich.table import Table

    spent = replay.spent
    cells: list[RenderableType] = [
        _shares("Where the bill went", _largest(spent.kinds), console),
        _shares("By tool", _largest(spent.tools), console),
        _shares("Tool results by age", spent.ages, console),
        _unused(replay),
    ]
    wide = max(1, min(3, console.width // _LIST))
    for start in range(0, len(cells), wide):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(*cells[start : start + wide])
        console.print(grid)
        console.print()


def _shares(title: str, shares: Sequence[Share], console: Console) -> Table:
    """Shares of the bill, with bars."""
    from rich.table import Table
    from rich.text import Text

    whole = sum(share.cost for share in shares)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    table.title, table.title_style, table.title_justify = title, "bold", "left"
    for width in (_NAME, _BAR, 5):
        table.add_column(min_width=width, no_wrap=True)
    for share in shares:
        bar = Text(_bar(share.cost, whole, console), style="cyan")
        part = _percent(share.cost, whole).rjust(5)
        table.add_row(Text(_clipped(share.name)), bar, Text(part))
    return table


def _largest(shares: Sequence[Share]) -> list[Share]:
    """The first few, and the rest as one."""
    if len(shares) <= _ROWS + 1:
        return [*shares]
    rest = shares[_ROWS:]
    others = Share(f"{len(rest):,} others", 0, sum(share.cost for share in rest))
    return [*shares[:_ROWS], others]


def _bar(part: float, whole: float, console: Console) -> str:
    full = "█" if console.encoding.lower().startswith("utf") else "#"
    return (full * round(_BAR * part / whole) if whole else "").ljust(_BAR)


def _clipped(name: str) -> str:
    line = printable(name)
    return line if len(line) <= _NAME else f"{line[: _NAME - 1]}…"


def _unused(replay: Replay) -> str:
    """How much of what was sent again no later action used."""
    again = sum(share.tokens for share in replay.spent.ages if share.name != AGES[0][1])
    unused = sum(share.unused for share in replay.spent.kinds)
    if not again:
        return "No tool result was sent twice."
    return (
        f"Of the tokens of tool results that were sent again, "
        f"{_percent(unused, again)} stood in lines that no later action used."
    )


# --- what policies would have done -------------------------------------------------------------


def _show_policies(console: Console, replay: Replay) -> None:
    from rich.table import Table
    from rich.text import Text

    money, roomy = replay.totals[0].bill.money is not None, console.width >= _ROOMY
    table = Table(box=None, pad_edge=False, padding=(0, 2 if roomy else 1, 0, 0))
    table.add_column("policy", overflow="fold", min_width=6)
    shown = _COLUMNS[:5] if console.width < _NARROW else _COLUMNS
    for name in shown:
        heading = "tokens*" if name == "money" and not money else name
        table.add_column(heading, justify="right", no_wrap=True)
    for total in replay.totals:
        cells = _cells(total, money, roomy)
        table.add_row(Text(printable(total.policy)), *(Text(cells[name]) for name in shown))
    title = Text("What a policy would have done", style="bold")
    console.print(title.append(" (bill, all-in and peak next to none)", style="not bold"))
    console.print(table)
    tried = (f"{printable(name)}: {told(name)}." for name in replay.policies[1:])
    for line in (" ".join(tried), *_LEGEND, *(() if money else (_TOKENS,))):
        console.print(Text(line, style="dim"))
    for line in _read_again(replay):
        console.print(line)


def _read_again(replay: Replay) -> Iterator[str]:
    """How often what a policy had cut was asked for again, beside what stood."""
    looked = [(one.policy, one.again) for one in replay.totals if one.again and one.again.cut]
    if not looked:
        return
    yield ""
    for policy, again in looked:
        yield (
            f"Read again after a cut by {printable(policy)}: {_times(again.after_cut, replay)}, "
            f"{_short(again.tokens)} tokens, {_share(again.after_cut, again.cut)} of the results "
            f"it cut. While a copy stood: {_times(again.standing, replay)}, "
            f"{_share(again.standing, again.whole)} of the others."
        )
    yield "The agents saw all of it when they asked, so they may have asked without the cut."


def _times(count: int, replay: Replay) -> str:
    rate = 100 * count / replay.requests if replay.requests else 0.0
    return f"{count:,} ({rate:.2f} per 100 requests)"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _cells(total: Total, money: bool, wide: bool) -> dict[str, str]:
    lost = f"{100 * total.lost:.1f} %"
    return {
        "money": _dollars(total.bill.money) if money else _short(total.bill.cost),
        "bill": _percent(total.bill_ratio, 1),
        "all-in": _percent(total.all_in_ratio, 1),
        "lost": f"{total.lost_turns:,} ({lost})" if wide else lost,
        "peak": _percent(total.peak_ratio, 1),
        "captured": "–" if total.captured is None else _percent(total.captured, 1),
        "invalid": f"{total.invalid:,}",
        "breaks": f"{sum(total.breaks.values()):,}",
        "ms": f"{total.ms:.1f}",
    }


# --- circles -----------------------------------------------------------------------------------


def _circles(loops: Circles, bill: float) -> Iterator[str]:
    """How often agents went round, what that cost, and how early it would have been told."""
    if not loops.count:
        return
    after, calls = loops.told_after / loops.count, loops.calls / loops.count
    share = f", {100 * loops.cost / bill:.2f} % of the bill" if bill else ""
    yield ""
    yield (
        f"Agents went round in {counted(loops.count, 'circle')} in "
        f"{counted(loops.sessions, 'session')}: {counted(loops.again, 'call')} brought nothing "
        f"new, {_large(loops.tokens)} tokens{share}. The detector would "
        f"have spoken after {after:.1f} of {calls:.1f} calls on average."
    )


# --- what was really charged -------------------------------------------------------------------


def _charged(sessions: Sequence[SessionResult]) -> Iterator[str]:
    """The replayed bill next to the reported one, over the requests that have a report."""
    known = [one.recorded for one in sessions if one.recorded is not None]
    if not known:
        return
    requests = sum(one.requests for one in known)
    reported = total_bill([one.reported for one in known])
    replayed = total_bill([one.replayed for one in known])
    yield ""
    yield (
        f"The provider reported {counted(requests, 'request')}: {_price(reported)}. Replayed, the "
        f"same come to {_price(replayed)}: {_off(replayed, reported)}.{_written(known)}"
    )


def _off(replayed: Bill, reported: Bill) -> str:
    """How far one bill is from the other, in the unit in which both are shown."""
    known = replayed.money is not None and reported.money is not None
    ours, theirs = (bill.money if known else bill.cost for bill in (replayed, reported))
    off = (ours or 0.0) / theirs - 1 if theirs else 0.0
    if abs(off) < 0.0005:
        return "the same"
    return f"{100 * abs(off):.1f} % {'more' if off > 0 else 'less'}"


def _written(known: Sequence[Recorded]) -> str:
    """What the models wrote, which no policy changes."""
    output = sum(one.output for one in known)
    money = [one.output_money for one in known if one.output_money is not None]
    if not output:
        return ""
    cost = f" for {_dollars(sum(money))}" if money else ""
    return f" Beside the prompts, {_large(output)} tokens were written{cost}."


# --- what was left out -------------------------------------------------------------------------


def _left(left: Sequence[Left], width: int) -> Iterator[str]:
    if left:
        yield ""
        yield f"Left out ({len(left):,}):"
        yield from left_lines(left, width)


def left_lines(left: Sequence[Left], width: int | None = None) -> list[str]:
    """What was not replayed and why: the first few, with less of their paths if it must be."""
    shown = [_left_line(one, width) for one in left[:_LEFT]]
    if len(left) > len(shown):
        shown.append(f"and {len(left) - len(shown):,} more; --json lists all.")
    return shown


def _left_line(left: Left, width: int | None) -> str:
    source, why = printable(click.format_filename(left.source)), printable(left.why)
    room = len(source) if width is None else max(_NAME, width - len(why) - 2)
    return f"{source if len(source) <= room else f'…{source[1 - room :]}'}: {why}"


# --- figures for a person ----------------------------------------------------------------------


def _large(number: float) -> str:
    """A number of tokens, in the units people say."""
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.{2 if number < 10 * size else 1}f}{unit}"
    return f"{number:,.0f}"


def _percent(part: float, whole: float) -> str:
    if not whole:
        return "–"
    share = part / whole
    return "<1 %" if 0 < share < 0.005 else f"{round(100 * share)} %"  # a whole number has no -0


def _short(number: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def _dollars(money: float | None) -> str:
    if money is None:
        return "–"
    return f"${money:,.2f}" if money >= 1 or not money else f"${money:.4f}"


def _price(bill: Bill) -> str:
    """What a bill comes to: dollars where they are known."""
    if bill.money is None:
        return f"{_large(bill.cost)} tokens of plain input"
    return f"{_dollars(bill.money)} at list prices"
