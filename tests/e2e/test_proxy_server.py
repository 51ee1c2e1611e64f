"""A real model server behind a real proxy: its cache, its window and its streams."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.proxy.app import build_app
from respool.proxy.log import log_nothing
from respool.proxy.server import serving_in_thread
from respool.proxy.server_options import CompactionOptions, ServerOptions, upstreams_of
from respool.store import RequestRecord
from tests.e2e.conversations import growing
from tests.e2e.model_process import CONTEXT
from tests.e2e.model_server import WIRES, ModelServer
from tests.laws.subject import EAGER

pytestmark = pytest.mark.e2e

wires = pytest.mark.parametrize("format", WIRES)
MARGIN = 8  # tokens: what opens the answer, and the one that came of it
SOON = 10.0
WAITING = respool.Policy(
    reevaluate_tokens=1_000_000, keep_exchanges=0
)  # nothing is edited of so short a history, but for a limit
WORDS = 16  # tokens of a streamed answer
LENGTH = {"openai-responses": "max_output_tokens"}
LAST = {
    "openai-chat": b"data: [DONE]",
    "anthropic": b"event: message_stop",
    "openai-responses": b"event: response.completed",
}


@contextmanager
def proxied(
    server: ModelServer, policy: respool.Policy, folder: Path, patch: pytest.MonkeyPatch
) -> Generator[tuple[ModelServer, list[RequestRecord]]]:
    """The same server by way of a proxy, and what that writes down."""
    patch.setenv("RESPOOL_STORE", str(folder / "respool.db"))
    names = ("anthropic", "openai", "gemini")
    config = ServerOptions(
        port=0, upstreams=upstreams_of(f"{name}={server.address}" for name in names)
    )
    records: list[RequestRecord] = []

    def make() -> Any:
        return build_app(
            config, CompactionOptions(policy=policy), log_nothing, listener=records.append
        )

    with serving_in_thread(make) as running_here:
        yield ModelServer(running_here.url), records


def written(records: list[RequestRecord], count: int) -> list[RequestRecord]:
    """The records, once there are so many: they are written aside."""
    until = time.monotonic() + SOON
    while len(records) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert len(records) == count
    return records


@wires
def test_between_epochs_the_servers_own_cache_is_read_on(
    server: ModelServer, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = growing(format, (2, 20, 1, 1))
    with proxied(server, EAGER, tmp_path, monkeypatch) as (through, records):
        answers = [through.answer(format, request) for request in requests]
        epochs = [record.epochs for record in written(records, len(requests))]
    assert [answer.status for answer in answers] == [200] * len(requests)
    kept: list[bool] = []
    for (before, after), (sent, answer) in zip(pairwise(epochs), pairwise(answers), strict=True):
        if before == after:
            assert answer.cached >= sent.prompt - MARGIN
        else:
            assert answer.cached < sent.prompt - 100
        kept.append(before == after)
    assert kept == [True, True, False, True]
    reported = [record.usage.cache_read for record in records if record.usage is not None]
    assert reported == [answer.cached for answer in answers]
    assert answers[-1].prompt < server.answer(format, requests[-1]).prompt - 100


@wires
def test_what_does_not_fit_is_sent_again_under_the_limit_that_the_server_names(
    server: ModelServer, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, request, later = growing(format, (200, 1, 1))
    assert server.answer(format, request).error["type"] == "exceed_context_size_error"
    assert respool.compact(request, format=format, policy=WAITING).request is request
    with proxied(server, WAITING, tmp_path, monkeypatch) as (through, records):
        answer = through.answer(format, request)
        again = through.answer(format, later)
        written(records, 2)
    for one in (answer, again):
        assert one.accepted, one.error
        assert one.prompt < CONTEXT
    assert [record.status for record in records] == [200, 200]
    assert all(record.saved > 0 for record in records)


ASKED = [{"role": "user", "content": "Count from one to twenty, in words."}]


def streamed(format: str, through: ModelServer) -> bytes:
    """Text of a streamed response of a small model without tools, which it cannot use."""
    request = {"model": "local", "input" if format == "openai-responses" else "messages": ASKED}
    asked = {**request, LENGTH.get(format, "max_tokens"): WORDS, "temperature": 0, "stream": True}
    status, data = through.bytes_of(format, asked)
    assert status == 200
    return data


def words(data: bytes) -> str:
    """Text of a stream, in any of the three formats."""
    said = ""
    for line in data.splitlines():
        if line.startswith(b"data: {"):
            said += _said(json.loads(line[6:]))
    return said


def _said(event: dict[str, Any]) -> str:
    if event.get("choices"):
        return event["choices"][0]["delta"].get("content") or ""
    delta = event.get("delta")
    return delta if isinstance(delta, str) else (delta or {}).get("text") or ""


@wires
def test_a_stream_arrives_whole(
    server: ModelServer, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = streamed(format, server)
    with proxied(server, respool.Policy(), tmp_path, monkeypatch) as (through, records):
        came = streamed(format, through)
        (record,) = written(records, 1)
    assert len(words(came)) > WORDS / 2
    assert words(came) == words(direct)
    assert came.count(b"data: ") == direct.count(b"data: ")
    assert LAST[format] in came[-4_000:]
    if format != "openai-chat":  # there usage is told only to who asks for it
        assert record.usage is not None
        assert record.usage.output == WORDS
