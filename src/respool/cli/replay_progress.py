"""How far a replay is, for a person who waits: a bar on standard error."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..replay.run import Note, Progress, weight


@contextmanager
def progress_bar(files: Sequence[Path], *, quiet: bool) -> Generator[Note]:
    """Show what is noted, if standard error is a terminal."""
    if quiet or not files or not _is_watched():
        yield lambda _: None
        return
    from rich.console import Console  # late: only where somebody watches
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn())
    total = max(1, sum(map(weight, files)))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(_told(Progress(), len(files)), total=total)
        yield lambda done: bar.update(
            task, completed=done.size, description=_told(done, len(files))
        )


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def _told(done: Progress, files: int) -> str:
    counted = f"{done.files:,} of {files:,} files"
    return f"{counted}, {done.sessions:,} sessions, {done.requests:,} requests"
