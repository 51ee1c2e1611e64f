"""Tables and lines on standard output: with colours on a terminal, as plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct

if TYPE_CHECKING:
    from rich.console import Console


_GAP = 3  # between two columns on a terminal
_LEAST = 8  # characters that a column needs so that its folded cells can still be read


class Table(Struct, frozen=True):
    """Rows under headings; columns of numbers stand at the right, whole ones are never broken."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[str] = frozenset()
    no_wrap: frozenset[str] = frozenset()


def show(*sections: Table | str) -> None:
    """Print tables and lines, one blank line between them."""
    if is_terminal():
        _show_rich(sections)
        return
    click.echo("\n\n".join(_plain(section) for section in sections))


def is_terminal() -> bool:
    """Whether a person is looking at standard output."""
    return sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def printable(text: str) -> str:
    """Text in which nothing can move a terminal's cursor or change its colours."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def counted(number: int, noun: str) -> str:
    """So many of something.

    >>> counted(1, "call"), counted(2_000, "call")
    ('1 call', '2,000 calls')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plain(section: Table | str) -> str:
    if isinstance(section, str):
        return printable(section)
    lines = [section.columns, *section.rows]
    cells = [[printable(cell) for cell in line] for line in lines]
    widths = [max(len(line[at]) for line in cells) for at in range(len(section.columns))]
    return "\n".join([printable(section.title), *(_line(section, line, widths) for line in cells)])


def _line(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if name in table.numeric else cell.ljust(width)
        for name, cell, width in zip(table.columns, cells, widths, strict=True)
    ]
    return f"  {'  '.join(padded)}".rstrip()


def _show_rich(sections: Sequence[Table | str]) -> None:
    from rich.console import Console  # late: it takes longer to load than most commands to run

    console = Console(highlight=False)
    for number, section in enumerate(sections):
        if number:
            console.print()
        if isinstance(section, str):
            console.print(printable(section), markup=False)
        else:
            _print_table(console, section)


def _print_table(console: Console, section: Table) -> None:
    """Rows under headings; where these would not stand side by side, a line for each cell."""
    from rich.text import Text

    console.print(Text(printable(section.title), style="bold"))
    if _least_width(section) <= console.width:
        _print_columns(console, section)
    else:
        told = "\n\n".join(_stacked(section, row) for row in section.rows)
        console.print(Text(told), soft_wrap=True)


def _stacked(section: Table, row: tuple[str, ...]) -> str:
    wide = max(map(len, section.columns))
    cells = zip(section.columns, row, strict=True)
    return "\n".join(f"{name:{wide}}  {printable(cell)}" for name, cell in cells)


def _least_width(section: Table) -> int:
    """The characters that a table needs in a line."""
    columns = zip(section.columns, *section.rows, strict=True)
    widths = [(cells[0], max(map(len, cells))) for cells in columns]
    folded = (width if name in section.no_wrap else min(width, _LEAST) for name, width in widths)
    return sum(folded) + _GAP * (len(widths) - 1)


def _print_columns(console: Console, section: Table) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in section.columns:
        justify = "right" if name in section.numeric else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in section.no_wrap)
    for row in section.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
