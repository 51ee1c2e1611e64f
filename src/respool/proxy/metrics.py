"""Prometheus metrics.

All label values are known before the first request, so that no client can create new series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from typing import Final, Literal

from msgspec import Struct

from ..engine import FORMATS
from ..store.savings import max_scale, state_tokens
from .log import CompactionSummary, LogEntry
from .middleware import FALLBACK_REASONS

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
NONE: Final = "none"
OTHER: Final = "other"
_FORMATS: Final = (*FORMATS, NONE)
_STATUSES: Final = ("2xx", "3xx", "4xx", "5xx", NONE)
_OUTCOMES: Final = (
    "complete",
    "client_closed",
    "upstream_closed",
    "unreachable",
    "rejected",
    OTHER,
)
_SENT: Final = ("projection", "known-edits", "original", "untouched", "observed", OTHER)
_TOKENS: Final = ("input", "cache_read", "cache_write", "output")
_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metric(Struct, frozen=True):
    """One metric: a number for each combination of its labels' values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()  # of each label
    bounds: tuple[float, ...] = ()  # of a histogram's buckets except the last

    @property
    def series(self) -> tuple[tuple[str, ...], ...]:
        """All combinations of label values; an empty one if there are no labels."""
        return tuple(product(*self.values))

    @property
    def width(self) -> int:
        """The number of cells of one series: a histogram has its buckets and their sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


def _counter(name: str, help: str, **labels: tuple[str, ...]) -> Metric:
    return Metric(name, "counter", help, tuple(labels), tuple(labels.values()))


REQUESTS: Final = _counter(
    "respool_requests_total",
    "Requests to providers, by format and status.",
    format=_FORMATS,
    status=_STATUSES,
)
OUTCOMES: Final = _counter(
    "respool_outcomes_total", "Requests to providers, by outcome.", outcome=_OUTCOMES
)
SENT: Final = _counter(
    "respool_sent_total", "Requests whose body was read, by what was sent.", sent=_SENT
)
FALLBACKS: Final = _counter(
    "respool_fallbacks_total",
    "Requests of which no projection was sent, by reason.",
    reason=(*FALLBACK_REASONS, OTHER),
)
RETRIES: Final = _counter(
    "respool_retries_total",
    "Requests that were sent a second time, by reason.",
    reason=("overflow", "invalid", OTHER),
)
PROMPT_TOKENS: Final = _counter(
    "respool_prompt_tokens_total",
    "Tokens of requests as they came, by reported usage, else estimated.",
    format=_FORMATS,
)
SAVED_TOKENS: Final = _counter(
    "respool_saved_tokens_total",
    "Tokens that were not sent, or would not have been, by reported usage, else estimated.",
    format=_FORMATS,
)
EDITS: Final = _counter("respool_edits_total", "New edits.")
USAGE: Final = _counter(
    "respool_usage_tokens_total", "Tokens that providers reported.", type=_TOKENS
)
BYTES: Final = _counter("respool_bytes_total", "Bytes of bodies.", direction=("up", "down"))
DROPPED_RECORDS: Final = _counter(
    "respool_records_dropped_total", "Records that could not be written."
)
KEEP_ALIVE: Final = _counter(
    "respool_keep_alive_total",
    "Keep-alive pings, and requests that found what they had kept.",
    kind=("ping", "hit"),
)
KEEP_ALIVE_DOLLARS: Final = _counter(
    "respool_keep_alive_dollars_total",
    "Dollars that keep-alive pings cost and saved.",
    kind=("paid", "saved"),
)
COMPACTION_SECONDS: Final = Metric(
    "respool_compaction_seconds", "histogram", "Time that respool took.", bounds=_SHORT
)
FIRST_BYTE_SECONDS: Final = Metric(
    "respool_first_byte_seconds", "histogram", "Time to the client's first byte.", bounds=_LONG
)
BREAKER_OPEN: Final = Metric(
    "respool_circuit_breaker_open", "gauge", "1 while compaction is paused, else 0."
)
STORE_USABLE: Final = Metric(
    "respool_store_usable", "gauge", "1 while the store can be read and written, else 0."
)
METRICS: Final = (
    REQUESTS,
    OUTCOMES,
    SENT,
    FALLBACKS,
    RETRIES,
    PROMPT_TOKENS,
    SAVED_TOKENS,
    EDITS,
    USAGE,
    BYTES,
    DROPPED_RECORDS,
    KEEP_ALIVE,
    KEEP_ALIVE_DOLLARS,
    COMPACTION_SECONDS,
    FIRST_BYTE_SECONDS,
    BREAKER_OPEN,
    STORE_USABLE,
)


class Metrics:
    """The values of all metrics; one thread counts."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, tuple[str, ...]], list[float]] = {
            (metric.name, labels): [0.0] * metric.width
            for metric in METRICS
            for labels in metric.series
        }

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter; a label value that is not listed counts as `other`."""
        if by:
            self._cell(metric, labels)[0] += by

    def set(self, metric: Metric, value: float) -> None:
        """Set a gauge."""
        self._cell(metric, ())[0] = value

    def observe(self, metric: Metric, value: float) -> None:
        """Add a value to a histogram."""
        cell = self._cell(metric, ())
        cell[bisect_left(metric.bounds, value)] += 1
        cell[-1] += value

    def count(self, entry: LogEntry) -> None:
        """Count a request that has ended."""
        if entry.outcome == "own_page":
            return
        format = entry.format or NONE
        self.add(REQUESTS, format, _status(entry.status))
        self.add(OUTCOMES, entry.outcome)
        self.add(BYTES, "up", by=entry.bytes_up)
        self.add(BYTES, "down", by=entry.bytes_down)
        if entry.first_byte_ms is not None:
            self.observe(FIRST_BYTE_SECONDS, entry.first_byte_ms / 1e3)
        if entry.compaction is not None:
            self._count_compaction(format, entry.compaction)

    def _count_compaction(self, format: str, summary: CompactionSummary) -> None:
        self.add(SENT, summary.sent)
        self.observe(COMPACTION_SECONDS, summary.compaction_ms / 1e3)
        if summary.fallback:
            self.add(FALLBACKS, summary.fallback)
        if summary.retry:
            self.add(RETRIES, summary.retry)
        if summary.operation == "count":
            return  # nobody pays for these
        stated = state_tokens(
            summary.tokens_before,
            summary.tokens_saved,
            summary.usage,
            is_observed=summary.sent == "observed",
            limit=max_scale(format, summary.model),
        )
        self.add(PROMPT_TOKENS, format, by=stated.before)
        self.add(SAVED_TOKENS, format, by=stated.saved)
        self.add(EDITS, by=summary.new_edits)
        if summary.usage is not None:
            for kind in _TOKENS:
                self.add(USAGE, kind, by=getattr(summary.usage, kind))

    def render(self) -> str:
        """All metrics in Prometheus's text format."""
        return "".join(f"{line}\n" for metric in METRICS for line in self._lines(metric))

    def _lines(self, metric: Metric) -> Iterator[str]:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for labels in metric.series:
            cell = self._cells[metric.name, labels]
            if metric.kind == "histogram":
                yield from _histogram(metric, cell)
            else:
                yield f"{metric.name}{_labels(metric, labels)} {_number(cell[0])}"

    def _cell(self, metric: Metric, labels: tuple[str, ...]) -> list[float]:
        cell = self._cells.get((metric.name, labels))
        return self._cells[metric.name, (*labels[:-1], OTHER)] if cell is None else cell


def _histogram(metric: Metric, cell: list[float]) -> Iterator[str]:
    """The buckets, each with the counts of all smaller ones, then sum and count."""
    *counts, total = cell
    running = 0.0
    for bound, count in zip((*metric.bounds, None), counts, strict=True):
        running += count
        shown = "+Inf" if bound is None else f"{bound:g}"
        yield f'{metric.name}_bucket{{le="{shown}"}} {_number(running)}'
    yield f"{metric.name}_sum {_number(total)}"
    yield f"{metric.name}_count {_number(running)}"


def _labels(metric: Metric, labels: tuple[str, ...]) -> str:
    named = ",".join(f'{name}="{value}"' for name, value in zip(metric.labels, labels, strict=True))
    return f"{{{named}}}" if named else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _status(status: int | None) -> str:
    return f"{status // 100}xx" if status is not None and 200 <= status < 600 else NONE
