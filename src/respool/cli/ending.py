"""How a command ends when something is wrong: one sentence and an exit status, no traceback."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

import click

from ..errors import RespoolError

UNUSABLE = 2  # the input or an option cannot be used
INTERRUPTED = 130  # as shells report a program that was interrupted
CUT_OFF = 141  # as shells report a program whose reader went away


class Failure(click.ClickException):
    """A command that cannot go on; its message is one sentence for a person."""

    exit_code = UNUSABLE

    def show(self, file: Any = None) -> None:
        """Say what is wrong, on standard error."""
        click.echo(f"respool: {self.format_message()}", file=file, err=True)


def missing(what: str, error: ImportError, extra: str) -> Failure:
    """That something needs a package which an extra installs; respool is on no registry yet."""
    return Failure(
        f"{what} needs {error.name}, which is not installed: "
        f"pip install '.[{extra}]' in a clone of respool's repository."
    )


class _Interrupted(Failure):
    exit_code = INTERRUPTED


class Commands(click.Group):
    """Commands whose every error ends in a sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        _write_what_cannot_be_encoded()
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
                sys.stdout.flush()
        except RespoolError as error:
            raise Failure(str(error)) from None
        except KeyboardInterrupt:
            raise _Interrupted("interrupted") from None
        except MemoryError:
            raise Failure("There is not enough memory for this request.") from None
        except RecursionError:
            raise Failure("The request is nested too deeply.") from None
        except BrokenPipeError:
            _let_go_of_output()
            ctx.exit(CUT_OFF)
        except OSError as error:
            _let_go_of_output()
            raise Failure(_why(error)) from None
        return result


def _why(error: OSError) -> str:
    """What the system refused: a file that it names, the folder we are in, or else the output."""
    if isinstance(error.filename, str | bytes):
        return f"{click.format_filename(error.filename)}: {error.strerror}."
    if isinstance(error, FileNotFoundError):
        return "The folder that this was started in is gone."
    return f"The output cannot be written: {error.strerror or error}."


def _write_what_cannot_be_encoded() -> None:
    """Let a terminal that lacks a character show its escape, where it would raise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _let_go_of_output() -> None:
    """Point standard output at nothing, so that its last flush cannot fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
