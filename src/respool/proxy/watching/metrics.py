"""The numbers behind `/metrics`, shared by all processes that serve one port.

Each process has a row of its own in one array that they share, and adds to nothing but that row:
no lock between processes, and no file. A scrape adds the rows up, whichever process it reaches. A
process that dies leaves its row to the one that takes its place, so counters never go back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableSequence
from multiprocessing import sharedctypes
from typing import Final

from ..forwarding.handling import About
from ..forwarding.record import Record
from .families import (
    AGAIN,
    BEFORE,
    BYTES,
    EDITS,
    ENDED,
    FALLBACKS,
    FAMILIES,
    FIRST,
    NONE,
    OTHER,
    REQUESTS,
    SAVED,
    SENT,
    TOOK,
    USAGE,
    Family,
)

Cells = MutableSequence[float]
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_PLACES: Final[dict[tuple[str, tuple[str, ...]], int]] = {}
_width = 0
for _family in FAMILIES:
    for _labels in _family.series:
        _PLACES[_family.name, _labels] = _width
        _width += _family.width
WIDTH: Final = _width


def cells_for(processes: int) -> Cells:
    """Room for the numbers of so many processes; may be handed to them when they are started."""
    return sharedctypes.RawArray("d", WIDTH * processes)


class Metrics:
    """The numbers of one process, and the sums over all of them; one thread counts."""

    def __init__(self, cells: Cells | None = None, row: int = 0) -> None:
        self._cells = cells_for(1) if cells is None else cells
        self._base = WIDTH * row
        for family in FAMILIES:
            if family.kind == "gauge":  # of a process that died, only what it counted stays
                self.put(family, 0.0)

    def add(self, family: Family, *labels: str, by: float = 1.0) -> None:
        """Count; a value that a label does not have is counted as another."""
        if by:
            self._cells[self._place(family, labels)] += by

    def put(self, family: Family, value: float, *labels: str) -> None:
        """Say how something stands in this process."""
        self._cells[self._place(family, labels)] = value

    def observe(self, family: Family, value: float) -> None:
        """Note one value in a histogram."""
        at = self._place(family, ())
        self._cells[at + bisect_left(family.bounds, value)] += 1
        self._cells[at + len(family.bounds) + 1] += value

    def count(self, record: Record) -> None:
        """Count a request that is over."""
        if record.how == "own":
            return
        format = record.format or NONE
        self.add(REQUESTS, format, _status(record.status))
        self.add(ENDED, record.how)
        self.add(BYTES, "up", by=record.up)
        self.add(BYTES, "down", by=record.down)
        if record.first_ms is not None:
            self.observe(FIRST, record.first_ms / 1e3)
        if record.respool is not None:
            self._count_about(format, record.respool)

    def _count_about(self, format: str, about: About) -> None:
        self.add(SENT, about.sent)
        self.observe(TOOK, about.ms / 1e3)
        if about.why:
            self.add(FALLBACKS, about.why)
        if about.again:
            self.add(AGAIN, about.again)
        if about.operation == "count":
            return  # nobody pays for these
        self.add(BEFORE, format, by=about.before)
        self.add(SAVED, format, by=about.saved)
        self.add(EDITS, by=about.edits)
        if about.usage is not None:
            for kind in ("input", "cache_read", "cache_write", "output"):
                self.add(USAGE, kind, by=getattr(about.usage, kind))

    def shown(self, only: Mapping[str, float]) -> str:
        """All numbers in Prometheus's text format, summed over the processes.

        `only`: what stands for all processes and is seen by any, and has no sum.
        """
        return "".join(f"{line}\n" for family in FAMILIES for line in self._lines(family, only))

    def _lines(self, family: Family, only: Mapping[str, float]) -> Iterator[str]:
        yield f"# HELP {family.name} {family.help}"
        yield f"# TYPE {family.name} {family.kind}"
        if family.name in only:
            yield f"{family.name} {_number(only[family.name])}"
            return
        for labels in family.series:
            at = _PLACES[family.name, labels]
            sums = [self._sum(at + offset) for offset in range(family.width)]
            if family.kind == "histogram":
                yield from _histogram(family, sums)
            else:
                yield f"{family.name}{_labelled(family, labels)} {_number(sums[0])}"

    def _sum(self, at: int) -> float:
        return sum(self._cells[place] for place in range(at, len(self._cells), WIDTH))

    def _place(self, family: Family, labels: tuple[str, ...]) -> int:
        at = _PLACES.get((family.name, labels))
        if at is None:
            at = _PLACES[family.name, (*labels[:-1], OTHER)]
        return self._base + at


def _histogram(family: Family, sums: list[float]) -> Iterator[str]:
    """The buckets, each with all that is in the smaller ones too."""
    *counts, total = sums
    running = 0.0
    for bound, count in zip((*family.bounds, None), counts, strict=True):
        running += count
        shown = "+Inf" if bound is None else f"{bound:g}"
        yield f'{family.name}_bucket{{le="{shown}"}} {_number(running)}'
    yield f"{family.name}_sum {_number(total)}"
    yield f"{family.name}_count {_number(running)}"


def _labelled(family: Family, labels: tuple[str, ...]) -> str:
    named = ",".join(f'{name}="{value}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{{{named}}}" if named else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _status(status: int | None) -> str:
    return f"{status // 100}xx" if status is not None and 200 <= status < 600 else NONE
