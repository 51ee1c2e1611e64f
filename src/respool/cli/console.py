"""Console output of commands: tables, error sentences, exit statuses."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import RespoolError, describe_missing_package

if TYPE_CHECKING:
    from rich.console import Console

EXIT_UNUSABLE = 2  # unusable input or option
EXIT_INTERRUPTED = 130  # as shells report an interrupted program
EXIT_BROKEN_PIPE = 141  # as shells report a broken pipe


class CommandError(click.ClickException):
    """Error that ends a command; its message is one sentence for a person."""

    exit_code = EXIT_UNUSABLE

    def show(self, file: Any = None) -> None:
        """Print the message on standard error."""
        click.echo(f"respool: {self.format_message()}", file=file, err=True)


def missing_package(what: str, error: ImportError, extra: str) -> CommandError:
    """Error for an optional package that is not installed."""
    return CommandError(describe_missing_package(what, error, extra))


class _CommandInterrupted(CommandError):
    exit_code = EXIT_INTERRUPTED


class CommandTable(MutableMapping[str, click.Command]):
    """Commands by name, each imported when it is first used."""

    def __init__(
        self, short_helps: Mapping[str, str], load: Callable[[str], click.Command]
    ) -> None:
        self._short_helps = {**short_helps}
        self._load = load
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._short_helps:
            raise KeyError(name)
        if name not in self._loaded:
            command = self._load(name)
            command.short_help = self._short_helps[name]
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._short_helps[name] = command.get_short_help_str()
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._short_helps[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._short_helps)

    def __len__(self) -> int:
        return len(self._short_helps)

    def short_helps(self) -> list[tuple[str, str]]:
        """Names and short helps in the order of the names; no command is imported."""
        return sorted(self._short_helps.items())


class CommandGroup(click.Group):
    """Command group that imports a command with its use and turns every error into a sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, for which none is imported."""
        assert isinstance(self.commands, CommandTable)
        with formatter.section("Commands"):
            formatter.write_dl(self.commands.short_helps())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        _escape_unencodable()
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
                sys.stdout.flush()
        except RespoolError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise _CommandInterrupted("interrupted") from None
        except MemoryError:
            raise CommandError("There is not enough memory for this request.") from None
        except RecursionError:
            raise CommandError("The request is nested too deeply.") from None
        except BrokenPipeError:
            _detach_stdout()
            ctx.exit(EXIT_BROKEN_PIPE)
        except OSError as error:
            _detach_stdout()
            raise CommandError(_describe_os_error(error)) from None
        return result


def _describe_os_error(error: OSError) -> str:
    """Describe what the system refused: a named file, the working folder, or the output."""
    if isinstance(error.filename, str | bytes):
        return f"{click.format_filename(error.filename)}: {error.strerror}."
    if isinstance(error, FileNotFoundError):
        return "The folder that this was started in is gone."
    return f"The output cannot be written: {error.strerror or error}."


def _escape_unencodable() -> None:
    """Print an escape for a character that the terminal cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _detach_stdout() -> None:
    """Redirect standard output to the null device, so that its last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


_GAP = 3  # between two columns on a terminal
_MIN_COLUMN_WIDTH = 8  # min characters of a column with wrapped cells


class Table(NamedTuple):
    """Table with headings. Numbers are right-aligned; `whole` columns are never wrapped."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[str] = frozenset()
    no_wrap: frozenset[str] = frozenset()


def show(*sections: Table | str) -> None:
    """Print tables and lines, separated by blank lines."""
    if is_terminal():
        _show_rich(sections)
        return
    click.echo("\n\n".join(_plain_text(section) for section in sections))


def is_terminal() -> bool:
    """Report whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def escape_unprintable(text: str) -> str:
    """Escape characters that could move a terminal's cursor or change its colours."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def pluralize(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> pluralize(1, "call"), pluralize(2_000, "call")
    ('1 call', '2,000 calls')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plain_text(section: Table | str) -> str:
    if isinstance(section, str):
        return escape_unprintable(section)
    lines = [section.columns, *section.rows]
    cells = [[escape_unprintable(cell) for cell in line] for line in lines]
    widths = [max(len(line[at]) for line in cells) for at in range(len(section.columns))]
    return "\n".join(
        [escape_unprintable(section.title), *(_plain_row(section, line, widths) for line in cells)]
    )


def _plain_row(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if name in table.numeric else cell.ljust(width)
        for name, cell, width in zip(table.columns, cells, widths, strict=True)
    ]
    return f"  {'  '.join(padded)}".rstrip()


def _show_rich(sections: Sequence[Table | str]) -> None:
    from rich.console import Console  # lazily: it takes longer to load than most commands to run

    console = Console(highlight=False)
    for number, section in enumerate(sections):
        if number:
            console.print()
        if isinstance(section, str):
            console.print(escape_unprintable(section), markup=False)
        else:
            _print_table(console, section)


def _print_table(console: Console, section: Table) -> None:
    """Print a table; on a narrow terminal, one line per cell."""
    from rich.text import Text

    console.print(Text(escape_unprintable(section.title), style="bold"))
    if _min_width(section) <= console.width:
        _print_columns(console, section)
    else:
        stacked = "\n\n".join(_stack_cells(section, row) for row in section.rows)
        console.print(Text(stacked), soft_wrap=True)


def _stack_cells(section: Table, row: tuple[str, ...]) -> str:
    wide = max(map(len, section.columns))
    cells = zip(section.columns, row, strict=True)
    return "\n".join(f"{name:{wide}}  {escape_unprintable(cell)}" for name, cell in cells)


def _min_width(section: Table) -> int:
    """Width of a table in characters."""
    columns = zip(section.columns, *section.rows, strict=True)
    widths = [(cells[0], max(map(len, cells))) for cells in columns]
    folded = (
        width if name in section.no_wrap else min(width, _MIN_COLUMN_WIDTH)
        for name, width in widths
    )
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
        table.add_row(*(Text(escape_unprintable(cell)) for cell in row))
    console.print(table)
