"""The numbers behind `/metrics`: sums over processes, whatever is counted, in whichever row."""

from __future__ import annotations

import json
import logging
import multiprocessing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from respool.pricing import Usage
from respool.proxy.forwarding.handling import About
from respool.proxy.forwarding.record import Log, Record, to_all
from respool.proxy.watching.families import FAMILIES, FIRST, REQUESTS, RESTING, TOOK, USAGE
from respool.proxy.watching.lines import Lines
from respool.proxy.watching.metrics import WIDTH, Cells, Metrics, cells_for
from respool.wire.base import FORMATS

HOWS = ["whole", "gone", "broke", "unreachable", "refused", "own", "unheard of"]
count = st.integers(0, 10**6)
abouts = st.builds(
    About,
    sent=st.sampled_from(["projection", "original", 'odd"\n{', "observed"]),
    operation=st.sampled_from(["generate", "count"]),
    model=st.text(max_size=5),
    before=count,
    saved=count,
    edits=count,
    why=st.sampled_from(["", "late", "unreadable", 'odd"}\n']),
    again=st.sampled_from(["", "overflow", "odd"]),
    ms=st.floats(0, 1e5),
    usage=st.none()
    | st.builds(Usage, input=count, cache_read=count, cache_write=count, output=count),
)
records = st.builds(
    Record,
    at=st.just(0.0),
    method=st.just("POST"),
    path=st.text(max_size=5),
    how=st.sampled_from(HOWS),
    format=st.none() | st.sampled_from(sorted(FORMATS)),
    status=st.none() | st.integers(100, 999),
    first_ms=st.none() | st.floats(0, 1e6),
    up=count,
    down=count,
    respool=st.none() | abouts,
)


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: dict[Any, float], name: str) -> float:
    return sum(value for (named, _), value in found.items() if named == name)


@given(st.lists(st.tuples(st.integers(0, 2), records), max_size=30))
def test_whatever_is_counted_wherever_the_sums_are_those_of_one_process(
    told: list[tuple[int, Record]],
):
    shared, alone = cells_for(3), Metrics()
    several = [Metrics(shared, row) for row in range(3)]
    for row, record in told:
        several[row].count(record)
        alone.count(record)
    seen = [samples(one.shown({})) for one in several]
    assert seen[0] == seen[1] == seen[2] == pytest.approx(samples(alone.shown({})))
    check(seen[0], [record for _, record in told if record.how != "own"])


def check(found: dict[Any, float], told: list[Record]) -> None:
    assert total(found, REQUESTS.name) == total(found, "respool_ended_total") == len(told)
    assert total(found, "respool_bytes_total") == sum(one.up + one.down for one in told)
    about = [one.respool for one in told if one.respool is not None]
    assert total(found, "respool_sent_total") == found[f"{TOOK.name}_count", ()] == len(about)
    assert total(found, "respool_fallbacks_total") == sum(one.why != "" for one in about)
    assert total(found, "respool_retries_total") == sum(one.again != "" for one in about)
    paid = [one for one in about if one.operation == "generate"]
    assert total(found, "respool_saved_tokens_total") == sum(one.saved for one in paid)
    reported = [one.usage for one in paid if one.usage is not None]
    assert found[USAGE.name, ("output",)] == sum(one.output for one in reported)
    waited = [one.first_ms for one in told if one.first_ms is not None]
    assert found[f"{FIRST.name}_count", ()] == len(waited)
    assert found[f"{FIRST.name}_bucket", ("0.5",)] == sum(ms <= 500 for ms in waited)
    assert found[f"{FIRST.name}_sum", ()] == pytest.approx(sum(waited) / 1e3)


@given(st.lists(records, max_size=10))
def test_no_request_can_make_another_series(told: list[Record]):
    metrics = Metrics()
    before = samples(metrics.shown({})).keys()
    for record in told:
        metrics.count(record)
    text = metrics.shown({})
    assert samples(text).keys() == before
    assert len(text.splitlines()) == len(Metrics().shown({}).splitlines())


def test_every_family_is_told_with_its_kind_and_meaning():
    parsed = {one.name: one for one in text_string_to_metric_families(Metrics().shown({}))}
    assert len(parsed) == len(FAMILIES)
    for family in FAMILIES:
        found = parsed[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.help)


def test_a_process_that_takes_a_dead_ones_place_goes_on_from_its_counts():
    cells = cells_for(2)
    first = Metrics(cells, 1)
    first.count(Record(0.0, "POST", "/", "whole", status=200))
    first.put(RESTING, 1.0)
    assert samples(first.shown({}))[RESTING.name, ()] == 1
    second = Metrics(cells, 1)
    second.count(Record(0.0, "POST", "/", "whole", status=200))
    found = samples(second.shown({}))
    assert found[REQUESTS.name, ("none", "2xx")] == 2
    assert found[RESTING.name, ()] == 0  # that was the dead one's


def add_many(cells: Cells, row: int) -> None:
    metrics = Metrics(cells, row)
    for _ in range(500):
        metrics.add(REQUESTS, "none", "2xx")


def test_processes_share_the_numbers():
    cells = cells_for(2)
    assert len(cells) == 2 * WIDTH
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=add_many, args=(cells, row)) for row in range(2)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert [one.exitcode for one in started] == [0, 0]
    found = samples(Metrics(cells, 0).shown({}))
    assert found[REQUESTS.name, ("none", "2xx")] == 1_000


def test_one_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture):
    heard: list[Record] = []

    def fail(_record: Record) -> None:
        raise RuntimeError("of its own")

    log: Log = to_all(fail, heard.append)
    log(Record(0.0, "GET", "/", "own"))
    assert [record.path for record in heard] == ["/"]
    assert "could not be told of" in caplog.text


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
    text = Lines().format(made)
    line = json.loads(text)
    assert (line["level"], line["from"]) == ("error", "respool.x")
    assert (line["message"], line["error"]) == ("A request failed", "ValueError")
    assert "test_what_an_exception_says" in line["where"][0]
    assert "model was told" not in text
