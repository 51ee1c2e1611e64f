"""Spans in the output of a collector that others wrote."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.program import KEY, MODEL, Client, provider
from tests.proxy.test_operations import options, said
from tests.proxy.test_server import SOON, served

pytestmark = pytest.mark.e2e

FOLDER = Path(os.environ.get("COLLECTORS", "/tmp/respool-collectors"))
INSTALL = "python3 -m venv {0} && {0}/bin/pip install {1}"
SINK_PORT = 4318  # which otelsink cannot change
STARTS_WITHIN = 30.0  # seconds
EXPECTED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": MODEL,
    "gen_ai.usage.input_tokens": 400,
    "gen_ai.usage.cache_read.input_tokens": 300,
    "gen_ai.usage.cache_creation.input_tokens": 90,
    "gen_ai.usage.output_tokens": 5,
    "respool.sent": "projection",
    "respool.results": 3,
}


def command(name: str, package: str) -> str:
    """The path of a collector's command; skips the test without it."""
    found = shutil.which(name, path=os.pathsep.join([str(FOLDER / "bin"), os.environ["PATH"]]))
    if found is None:
        install = INSTALL.format(FOLDER, package)
        pytest.skip(f"The collector {name} is not installed: {install}")
    return found


def is_open(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(arguments: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A collector that accepts connections at this port."""
    process = subprocess.Popen(
        arguments,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        until = time.monotonic() + STARTS_WITHIN
        while not is_open(port):
            assert process.poll() is None, f"{arguments[0]} has ended"
            assert time.monotonic() < until, f"{arguments[0]} does not listen"
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.communicate()


def send_requests(endpoint: str, folder: Path) -> None:
    """Two requests through a proxy that sends its spans to a collector."""
    environment = {
        "RESPOOL_STORE": str(folder / "respool.db"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
    }
    with provider() as behind, served(*options(behind), **environment) as (process, port):
        client = Client(port)
        assert client.post(said(1))[0] == 200
        assert client.post(said(3))[0] == 200
        process.terminate()  # what waits is sent then
        process.communicate(timeout=SOON)
        while Client.opened:
            Client.opened.pop().close()
    assert process.returncode == 0


def check_spans(spans: list[dict[str, Any]], text: str) -> None:
    """Both spans came, the second with its compaction, and no word of a request."""
    assert len(spans) == 2
    second = max(spans, key=lambda span: span["respool.tokens.before"])
    assert {name: second.get(name) for name in EXPECTED} == EXPECTED
    before, saved = second["respool.tokens.before"], second["respool.tokens.saved"]
    assert before > saved > 500
    assert second["respool.tokens.after"] == before - saved
    assert second["respool.edits.new"] > 0
    for secret in (KEY["x-api-key"], "long output", "go on", "make 1", "Bash"):
        assert secret not in text


def flat(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as OTLP spells them in JSON, by name."""
    read: dict[str, Callable[[Any], Any]] = {"intValue": int, "doubleValue": float}
    found: dict[str, Any] = {}
    for one in attributes:
        ((kind, value),) = one["value"].items()
        found[one["key"]] = read.get(kind, lambda same: same)(value)
    return found


def test_otelsink_prints_the_spans(tmp_path: Path) -> None:
    sink = command("otelsink", "oteltest")
    if is_open(SINK_PORT):
        pytest.skip(f"Port {SINK_PORT} is in use, and otelsink has no other.")
    with running([sink, "--http"], SINK_PORT) as process:
        send_requests(f"http://127.0.0.1:{SINK_PORT}", tmp_path)
        process.terminate()
        printed, _ = process.communicate(timeout=SOON)
    requests = [ast.literal_eval(line) for line in printed.splitlines() if line.startswith("{")]
    spans = [
        flat(span["attributes"])
        for request in requests
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    check_spans(spans, printed)
