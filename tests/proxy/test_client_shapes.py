"""The requests of eleven real clients through a real proxy: what the provider gets is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.proxy.compactor import Compactor
from respool.proxy.decide import Decider
from respool.proxy.recorder import Recorder
from respool.proxy.server_options import CompactionOptions
from respool.store import RequestRecord, SQLiteStore
from tests.proxy.sockets import ReceivedRequest, ask, post, proxy, run
from tests.store.support import salt_of
from tests.support.client_requests import (
    CLIENTS,
    LONG,
    Client,
    breakpoints,
    grown,
    spelled,
    without_breakpoints,
)
from tests.support.formats import FIELD

PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
COUNTS = {
    "anthropic": "/v1/messages/count_tokens?beta=true",
    "gemini": "/v1beta/models/gemini-2.5-pro:countTokens",
}
KEYS = {"anthropic": "x-api-key: one", "gemini": "x-goog-api-key: one"}
EAGER_POLICY = respool.Policy(
    eager=True, reevaluate_tokens=30_000, reevaluate_ratio=0.0, keep_exchanges=0
)
DEFAULT = respool.Policy()
clients = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def sent(
    client: Client, folder: Path, policy: respool.Policy, path: str
) -> tuple[Any, list[RequestRecord]]:
    """Requests that the provider got from a client's successive requests, and their records."""
    store = SQLiteStore(folder / "respool.db")
    middleware = Compactor(
        Decider(policy, store),
        Recorder(store),
        CompactionOptions(policy=policy),
        salt=salt_of(store),
    )
    received: list[ReceivedRequest] = []

    async def case() -> None:
        key = KEYS.get(client.format, "authorization: Bearer one")
        async with proxy(middleware=middleware) as standing:
            for request in grown(client):
                reply = await ask(standing.port, post(path, spelled(client, request), key))
                assert reply.status == 200
                assert b"x-respool-sent" in dict(reply.headers)
            received.extend(standing.behind.received)

    run(case)
    read = SQLiteStore(folder / "respool.db", create=False)
    try:
        records = [
            record
            for conversation in read.conversations(None)
            for record in read.requests(conversation.name, None)
        ]
    finally:
        read.close()
    return received, sorted(records, key=lambda one: one.time)


def pairs(
    client: Client, received: list[ReceivedRequest], records: list[RequestRecord]
) -> Iterator[Any]:
    """Histories that follow one another, without their marks, and whether an epoch is between."""
    field = FIELD[client.format]
    histories = [without_breakpoints(json.loads(one.body))[field] for one in received]
    for at in range(1, len(histories)):
        between = records[at].epochs > records[at - 1].epochs
        yield histories[at - 1], histories[at], between


@clients
def test_what_the_provider_gets_is_valid_and_stable(client: Client, tmp_path: Path):
    received, records = sent(client, tmp_path, EAGER_POLICY, PATHS[client.format])
    assert len(received) == len(records) == 6
    assert {record.fallback for record in records} == {""}
    for one, request in zip(received, grown(client), strict=True):
        body = json.loads(one.body)
        assert respool.check(one.body) == []
        assert len([path for path in breakpoints(body) if path[-1] == "type"]) <= 4
        assert set(breakpoints(body).values()) <= {*breakpoints(request).values(), "ephemeral"}
    assert records[-1].epochs >= 1
    assert len(received[-1].body) < len(spelled(client, list(grown(client))[-1])) / 2
    steady = 0
    for before, after, between in pairs(client, received, records):
        if not between:
            assert after[: len(before)] == before
            steady += 1
    assert steady + records[-1].epochs == len(received) - 1
    assert steady >= 2


@clients
def test_by_default_so_short_a_history_goes_up_as_it_came(client: Client, tmp_path: Path):
    received, records = sent(client, tmp_path, DEFAULT, PATHS[client.format])
    for before, after, between in pairs(client, received, records):
        assert between or after[: len(before)] == before
    for one in received:
        assert respool.check(one.body) == []
        assert one.target == PATHS[client.format]


@pytest.mark.parametrize("name", ["claude-code", "gemini-cli"])
def test_a_count_is_of_the_projection(name: str, tmp_path: Path):
    """The client's meter shows what is really sent."""
    client = CLIENTS[name]
    counting, sending = tmp_path / "counting", tmp_path / "sending"
    counting.mkdir()
    sending.mkdir()
    counted, records = sent(client, counting, EAGER_POLICY, COUNTS[client.format])
    went, _ = sent(client, sending, EAGER_POLICY, PATHS[client.format])
    assert records == []  # nothing was asked of a model
    for one, other in zip(counted, went, strict=True):
        assert json.loads(one.body) == json.loads(other.body)
    assert len(LONG) == 3
    assert len(counted[-1].body) < len(spelled(client, list(grown(client))[-1])) / 2
