"""Replay on Ray: a file is a unit of work, and a large one is several.

Each unit of a large file reads all of it and replays every nth session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..batch.ray_engine import run_on_ray
from ..batch.worker_process import KILLED_EACH_TIME
from .runner import (
    ItemOutcome,
    OutcomeCollector,
    RunRequest,
    process_item,
    read_items,
    session_bytes,
)

_UNIT_BYTES = 32_000_000
_MAX_SHARES = 16  # of a file: each reads all of it
_LAST_INDEX = 1_000_000_000  # behind all sessions: of what is reported about a whole file


class ReplayUnit(Struct, frozen=True):
    """The sessions of a file that one task replays."""

    file: str
    share: int
    shares: int
    request: RunRequest
    folder: str  # relative names of files and policies start there


SessionOutcome = tuple[int, ItemOutcome, int]  # the session's index, its outcome, its bytes


def replay_unit(unit: ReplayUnit) -> list[SessionOutcome]:
    """Replay the sessions of a unit, in a task of Ray."""
    with suppress(OSError):  # another machine may not have it
        os.chdir(unit.folder)
    return [
        (index, process_item(item, (unit.file, index), unit.request), session_bytes(item))
        for index, item in enumerate(read_items(unit.file))
        if index % unit.shares == unit.share
    ]


def process_on_ray(request: RunRequest, jobs: int, collector: OutcomeCollector) -> None:
    """Process all pending files on Ray."""
    units = [*_split(request, collector)]
    left = {number: unit.file for number, unit in enumerate(units)}
    for number, outcomes in run_on_ray(replay_unit, units, jobs) if units else ():
        file = left.pop(number)
        for index, outcome, size in outcomes:
            collector.add(file, index, outcome, size)
        if file not in left.values():
            collector.finish_file(file)
    for file in dict.fromkeys(left.values()):
        collector.note_death(file)
        collector.abandon(file, _LAST_INDEX, KILLED_EACH_TIME)
        collector.finish_file(file)


def _split(request: RunRequest, collector: OutcomeCollector) -> Iterator[ReplayUnit]:
    """Units, the largest files first; each has the duplicates of its own file only."""
    folder = str(Path.cwd())
    pending = sorted(collector.pending().items(), key=lambda one: -one[1])
    for file, size in pending:
        own = {place: one for place, one in request.duplicates.items() if place[0] == file}
        shares = min(_MAX_SHARES, max(1, ceil(size / _UNIT_BYTES)))
        for share in range(shares):
            yield ReplayUnit(file, share, shares, replace(request, duplicates=own), folder)
