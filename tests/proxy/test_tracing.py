"""Spans: what a collector is sent, over the real protocol, and that nobody waits for one."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import opentelemetry.semconv
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from respool.pricing import Usage
from respool.proxy.log import CompactionSummary, LogEntry
from respool.proxy.tracing import attributes_of, error_type, span_exporter, span_name, wants_spans
from tests.proxy.program import KEY, MODEL, Client, provider
from tests.proxy.test_operations import options, said
from tests.proxy.test_server import SOON, served
from tests.store.support import SOURCE

TRACE, PARENT = "a" * 32, "b" * 16
CLIENT, ERROR = 3, 2  # as the protocol numbers them


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector, and what it was sent."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def value(found: Any) -> Any:
    kind = found.WhichOneof("value")
    if kind == "array_value":
        return [value(one) for one in found.array_value.values]
    return getattr(found, kind)


def told(attributes: Any) -> dict[str, Any]:
    return {one.key: value(one.value) for one in attributes}


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while Client.opened:
        Client.opened.pop().close()


def test_a_collector_is_sent_one_span_for_each_request_and_no_word_of_it(tmp_path: Path):
    with collector() as (url, got), provider() as behind:
        environment = {
            "RESPOOL_STORE": str(tmp_path / "respool.db"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        with served(*options(behind), **environment) as (process, port):
            client = Client(port)
            client.get("/healthz")
            assert client.post(said(1))[0] == 200
            trace = f"00-{TRACE}-{PARENT}-01"
            assert client.post(said(3), traceparent=trace)[0] == 200
            behind.refuses = lambda body: True
            assert client.post(said(4), **{"x-respool-bypass": "1"})[0] == 400
            process.terminate()  # what waits is sent then
            _, logged = process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert "Traceback" not in logged
    (resource,) = {str(one.resource) for request in got for one in request.resource_spans}
    for expected in ('"service.name"', '"respool"', '"deployment.environment.name"'):
        assert expected in resource
    spans = [
        span
        for request in got
        for one in request.resource_spans
        for scope in one.scope_spans
        for span in scope.spans
    ]
    first, second, refused = sorted(spans, key=lambda span: span.start_time_unix_nano)
    check_span(second, behind.port)
    assert first.trace_id.hex() != TRACE
    assert first.parent_span_id == b""
    assert refused.status.code == ERROR
    assert told(refused.attributes)["error.type"] == "400"
    assert told(refused.attributes)["respool.fallback"] == "bypassed"
    for secret in (KEY["x-api-key"], "long output", "go on", "make 1", "Bash"):
        assert secret not in str(got)


def check_span(span: Any, port: int) -> None:
    assert span.name == f"chat {MODEL}"
    assert span.kind == CLIENT
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < SOON * 1e9
    assert abs(span.start_time_unix_nano / 1e9 - time.time()) < 60
    found = told(span.attributes)
    assert found.pop("respool.compaction.milliseconds") > 0
    before, saved = found.pop("respool.tokens.before"), found.pop("respool.tokens.saved")
    assert before > saved > 500
    assert found.pop("respool.tokens.after") == before - saved
    assert found.pop("respool.edits.new") > 0
    assert found.pop("respool.edits.over_cap") == 2
    assert found.pop("respool.epochs") == 2
    assert found.pop("respool.refetched") == 0
    assert found.pop("respool.results") == 3
    assert found.pop("respool.waiting.offers") >= 0
    assert found.pop("respool.waiting.tokens") >= 0
    assert len(found.pop("gen_ai.conversation.id")) == 32
    assert found.pop("http.request.body.size") > 500
    assert found.pop("http.response.body.size") > 100
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": 400,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.cache_creation.input_tokens": 90,
        "gen_ai.usage.output_tokens": 5,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
        "respool.sent": "projection",
    }


def test_the_names_are_those_of_the_conventions():
    folder = Path(next(iter(opentelemetry.semconv.__path__)))
    texts = "".join(file.read_text("utf-8") for file in folder.rglob("*_attributes.py"))
    usage = Usage(input=1, cache_read=2, cache_write=3, output=4)
    about = CompactionSummary(
        "projection", conversation="c", model="m", response_model="m", stop_reason="x", usage=usage
    )
    found = attributes_of(record(format="anthropic", status=500, about=about))
    names = {name for name in found if not name.startswith("respool.")}
    assert len(names) > 12
    assert {name for name in names if f'"{name}"' not in texts} == set()


MONITORING = (Path(__file__).parents[2] / "docs" / "operate" / "monitoring.md").read_text("utf-8")


def full_entry() -> LogEntry:
    """An entry with a value for every attribute."""
    usage = Usage(input=10, cache_read=300, cache_write=90, output=5)
    about = CompactionSummary(
        "known-edits",
        conversation="c",
        model="m",
        tokens_before=1_000,
        tokens_saved=400,
        new_edits=2,
        edits={"stubbed": 2},
        epochs=1,
        refetched=1,
        results=7,
        waiting_offers=3,
        waiting_tokens=120,
        fallback="late",
        retry="overflow",
        compaction_ms=1.5,
        response_model="m",
        stop_reason="x",
        usage=usage,
    )
    return record(format="anthropic", status=500, about=about)


def test_compaction_is_told_in_figures():
    found = attributes_of(full_entry())
    assert {name: value for name, value in found.items() if name.startswith("respool.")} == {
        "respool.sent": "known-edits",
        "respool.fallback": "late",
        "respool.retry": "overflow",
        "respool.tokens.before": 1_000,
        "respool.tokens.after": 600,
        "respool.tokens.saved": 400,
        "respool.edits.new": 2,
        "respool.edits.stubbed": 2,
        "respool.epochs": 1,
        "respool.refetched": 1,
        "respool.results": 7,
        "respool.waiting.offers": 3,
        "respool.waiting.tokens": 120,
        "respool.compaction.milliseconds": 1.5,
    }


def test_every_attribute_has_a_row_on_the_page():
    listed = re.findall(r"^\| `([a-zA-Z_.]+)` \|", MONITORING.partition("## Traces")[2], re.M)
    found = [name.replace(".stubbed", ".REASON") for name in attributes_of(full_entry())]
    assert sorted(listed) == sorted(found)


def record(
    *,
    format: str | None = None,
    status: int | None = 200,
    outcome: Any = "complete",
    about: CompactionSummary | None = None,
    upstream: str | None = "https://api.example.com",
) -> LogEntry:
    made = LogEntry(time.time(), "POST", "/v1/x", outcome, format, upstream, status)
    made.compaction = about
    return made


@pytest.mark.parametrize(
    ("format", "about", "name"),
    [
        ("anthropic", CompactionSummary(model="m"), "chat m"),
        ("openai-chat", CompactionSummary(model="m"), "chat m"),
        ("openai-responses", CompactionSummary(), "chat"),
        ("gemini", CompactionSummary(model="m"), "generate_content m"),
        ("anthropic", CompactionSummary(model="m", operation="count"), "count_tokens m"),
        ("anthropic", None, "POST"),
        (None, None, "POST"),
    ],
)
def test_a_span_is_named_after_what_was_asked(
    format: str | None, about: CompactionSummary | None, name: str
):
    assert span_name(record(format=format, about=about)) == name


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, ""),
        ({"status": 399}, ""),
        ({"status": 429}, "429"),
        ({"outcome": "upstream_closed"}, "upstream_closed"),
        ({"outcome": "client_closed", "status": None}, "client_closed"),
        ({"outcome": "unreachable", "status": 502}, "unreachable"),
    ],
)
def test_an_error_is_named(given: dict[str, Any], error: str):
    assert error_type(record(**given)) == error
    assert attributes_of(record(**given)).get("error.type", "") == error


def test_what_is_not_known_is_left_out():
    assert attributes_of(record(status=None, upstream=None)) == {
        "http.request.method": "POST",
        "http.request.body.size": 0,
        "http.response.body.size": 0,
    }
    assert attributes_of(record(upstream="http://[::1]:9/x"))["server.port"] == 9
    assert attributes_of(record())["server.port"] == 443


HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (HERE, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({**HERE, "OTEL_SDK_DISABLED": "True"}, False),
        ({**HERE, "OTEL_SDK_DISABLED": "false"}, True),
        ({**HERE, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**HERE, "OTEL_TRACES_EXPORTER": "console,otlp"}, True),
    ],
)
def test_spans_are_made_where_the_environment_says_so(environ: dict[str, str], wanted: bool):
    assert wants_spans(environ) is wanted


def test_without_a_collector_nothing_of_the_sdk_is_imported():
    assert span_exporter({}) is None
    code = (
        "import sys\nimport respool.proxy.app\n"
        "from respool.proxy.tracing import span_exporter\n"
        "span_exporter({})\nprint('opentelemetry' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_without_the_extra_the_proxy_goes_on_and_says_what_is_missing():
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\n"
        "from respool.proxy.log import LineWriter, log_warnings_to\n"
        "from respool.proxy.tracing import span_exporter\n"
        "log_warnings_to(LineWriter(2))\n"
        f"print(span_exporter({HERE!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"
    line = json.loads(done.stderr)
    assert line["level"] == "warning"
    assert "pip install '.[otel]' in a clone" in line["message"]


def test_a_collector_that_is_not_there_holds_up_neither_requests_nor_the_end(tmp_path: Path):
    environment = {
        "RESPOOL_STORE": str(tmp_path / "respool.db"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with provider() as behind, served(*options(behind), **environment) as (process, port):
        client = Client(port)
        began = time.monotonic()
        for steps in range(1, 6):
            assert client.post(said(steps))[0] == 200
        took = time.monotonic() - began
        began = time.monotonic()
        process.terminate()
        _, logged = process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert time.monotonic() - began < 12
    assert took < 10
    assert all(
        json.loads(line)["time"] for line in logged.splitlines()
    )  # every line is one of ours
