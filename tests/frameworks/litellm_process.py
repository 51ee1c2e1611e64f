"""LiteLLM's own proxy as a process, for the tests that put respool into it or beside it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START_SECONDS = 120.0
KEY = "sk-of-the-client-1234"
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "HTTPS_PROXY": "http://127.0.0.1:9",  # where nobody listens
}


@contextlib.contextmanager
def litellm_proxy(python: str | Path, config: Path, port: int, **env: str) -> Iterator[None]:
    """LiteLLM's proxy with a configuration, until the end of the block."""
    start = "from litellm.proxy.proxy_cli import run_server; run_server()"
    command = [str(python), "-c", start, "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    log = config.parent / "litellm.log"
    with program(command, port, "/health/liveliness", log, **OFFLINE, **env):
        yield


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def program(command: list[str], port: int, ready: str, log: Path, **env: str) -> Iterator[None]:
    """A program that answers on a port; it is ended afterwards."""
    environ = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", **env}
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env=environ, cwd=log.parent)
        try:
            until = time.monotonic() + START_SECONDS
            while not is_ready(port, ready):
                is_late = time.monotonic() > until
                if running.poll() is not None or is_late:
                    pytest.fail(f"{command[:3]} does not answer: {log.read_text()[-3000:]}")
                time.sleep(0.2)
            yield
        finally:
            running.terminate()
            running.wait(30)


def is_ready(port: int, path: str) -> bool:
    try:
        return call(port, "GET", path)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
