"""The numbers behind `/metrics`: sums over processes, whatever is counted, in whichever row."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from respool.proxy.log import CompactionSummary, JSONFormatter, Log, LogEntry, log_to_all
from respool.proxy.metrics import (
    COMPACTION_SECONDS,
    FIRST_BYTE_SECONDS,
    METRICS,
    REQUESTS,
    USAGE,
    Metrics,
)
from respool.store import Usage
from respool.store.savings import state_tokens
from respool.wire.base import FORMATS

OUTCOMES = [
    "complete", "client_closed", "upstream_closed", "unreachable", "rejected", "own_page", "odd",
]  # fmt: skip
count = st.integers(0, 10**6)
abouts = st.builds(
    CompactionSummary,
    sent=st.sampled_from(["projection", "original", 'odd"\n{', "observed"]),
    operation=st.sampled_from(["generate", "count"]),
    model=st.text(max_size=5),
    tokens_before=count,
    tokens_saved=count,
    new_edits=count,
    fallback=st.sampled_from(["", "late", "unreadable", 'odd"}\n']),
    retry=st.sampled_from(["", "overflow", "odd"]),
    compaction_ms=st.floats(0, 1e5),
    usage=st.none() | st.builds(Usage, count, count, count, output=count),
)
records = st.builds(
    LogEntry,
    time=st.just(0.0),
    method=st.just("POST"),
    path=st.text(max_size=5),
    outcome=st.sampled_from(OUTCOMES),
    format=st.none() | st.sampled_from(sorted(FORMATS)),
    status=st.none() | st.integers(100, 999),
    first_byte_ms=st.none() | st.floats(0, 1e6),
    bytes_up=count,
    bytes_down=count,
    compaction=st.none() | abouts,
)


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: dict[Any, float], name: str) -> float:
    return sum(value for (named, _), value in found.items() if named == name)


@given(st.lists(records, max_size=30))
def test_the_sums_are_those_of_all_requests(told: list[LogEntry]):
    metrics = Metrics()
    for record in told:
        metrics.count(record)
    check(samples(metrics.render()), [record for record in told if record.outcome != "own_page"])


def check(found: dict[Any, float], told: list[LogEntry]) -> None:
    assert total(found, REQUESTS.name) == total(found, "respool_outcomes_total") == len(told)
    assert total(found, "respool_bytes_total") == sum(one.bytes_up + one.bytes_down for one in told)
    about = [one.compaction for one in told if one.compaction is not None]
    assert (
        total(found, "respool_sent_total")
        == found[f"{COMPACTION_SECONDS.name}_count", ()]
        == len(about)
    )
    assert total(found, "respool_fallbacks_total") == sum(one.fallback != "" for one in about)
    assert total(found, "respool_retries_total") == sum(one.retry != "" for one in about)
    paid = [one for one in about if one.operation == "generate"]
    stated = [
        state_tokens(
            one.tokens_before, one.tokens_saved, one.usage, is_observed=one.sent == "observed"
        )
        for one in paid
    ]
    assert total(found, "respool_saved_tokens_total") == sum(one.saved for one in stated)
    assert total(found, "respool_prompt_tokens_total") == sum(one.before for one in stated)
    reported = [one.usage for one in paid if one.usage is not None]
    assert found[USAGE.name, ("output",)] == sum(one.output for one in reported)
    waited = [one.first_byte_ms for one in told if one.first_byte_ms is not None]
    assert found[f"{FIRST_BYTE_SECONDS.name}_count", ()] == len(waited)
    assert found[f"{FIRST_BYTE_SECONDS.name}_bucket", ("0.5",)] == sum(ms <= 500 for ms in waited)
    assert found[f"{FIRST_BYTE_SECONDS.name}_sum", ()] == pytest.approx(sum(waited) / 1e3)


@given(st.lists(records, max_size=10))
def test_no_request_can_make_another_series(told: list[LogEntry]):
    metrics = Metrics()
    before = samples(metrics.render()).keys()
    for record in told:
        metrics.count(record)
    text = metrics.render()
    assert samples(text).keys() == before
    assert len(text.splitlines()) == len(Metrics().render().splitlines())


def test_every_family_is_told_with_its_kind_and_meaning():
    parsed = {one.name: one for one in text_string_to_metric_families(Metrics().render())}
    assert len(parsed) == len(METRICS)
    for family in METRICS:
        found = parsed[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.help)


def test_one_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture):
    received: list[LogEntry] = []

    def fail(_record: LogEntry) -> None:
        raise RuntimeError("of its own")

    log: Log = log_to_all(fail, received.append)
    log(LogEntry(0.0, "GET", "/", "own_page"))
    assert [record.path for record in received] == ["/"]
    assert "could not be logged" in caplog.text


def test_what_an_exception_says_is_not_in_its_line():
    try:
        raise ValueError("what the model was told")
    except ValueError as error:
        made = logging.LogRecord(
            "respool.x",
            logging.ERROR,
            "f",
            1,
            "A request %s",
            ("failed",),
            (type(error), error, error.__traceback__),
        )
    text = JSONFormatter().format(made)
    line = json.loads(text)
    assert (line["level"], line["logger"]) == ("error", "respool.x")
    assert (line["message"], line["error"]) == ("A request failed", "ValueError")
    assert "test_what_an_exception_says" in line["traceback"][0]
    assert "model was told" not in text
