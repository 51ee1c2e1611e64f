"""Overflows are sent again, smaller, even if the first attempt was sent unchanged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import respool
from respool.limits import HIGH_WATER_RATIO, limits_for
from respool.proxy.compactor import Compactor
from respool.proxy.decide import Decider
from respool.proxy.middleware import ErrorResponse, ParsedRequest
from respool.proxy.recorder import Recorder
from respool.proxy.server_options import CompactionOptions
from respool.store import SQLiteStore
from tests.proxy.compaction import PATHS
from tests.proxy.sockets import OK, ask, post, proxy, reply_with, run
from tests.store.support import salt_of
from tests.support.formats import FORMATS, Exchange, request, results

WAITING = respool.Policy(
    reevaluate_tokens=1_000_000, keep_exchanges=0
)  # nothing is edited of so short a history, but for a limit


def _long(at: int) -> str:
    return "".join(f"{at}:{n} the gauge reads {n * 37 * at % 997}\n" for n in range(400))


STEPS = [[Exchange(_long(n), id=f"call_{n}", args={"command": f"make {n}"})] for n in range(1, 7)]
SAID = "request (30000 tokens) exceeds the available context size (20000 tokens)"


def refusal(message: str, kind: str, *, is_packed: bool = False) -> bytes:
    body = json.dumps({"error": {"message": message, "type": kind}}).encode()
    body = gzip.compress(body) if is_packed else body
    extra = b"Content-Encoding: gzip\r\n" if is_packed else b""
    head = b"HTTP/1.1 400 Bad Request\r\n%sContent-Length: %d\r\n\r\n"
    return head % (extra, len(body)) + body


@pytest.mark.parametrize(
    ("format", "is_packed"), [*((format, False) for format in FORMATS), ("anthropic", True)]
)
def test_an_unchanged_request_that_does_not_fit_is_sent_again_smaller(
    format: str, is_packed: bool, tmp_path: Path
):
    store = SQLiteStore(tmp_path / "respool.db")
    decider = Decider(WAITING, store)
    middleware = Compactor(
        decider, Recorder(store), CompactionOptions(policy=WAITING), salt=salt_of(store)
    )
    body = json.dumps(request(format, "go on", *STEPS)).encode()

    async def case() -> None:
        script = reply_with(refusal(SAID, "exceed_context_size_error", is_packed=is_packed), OK)
        async with proxy(script, middleware=middleware) as standing:
            reply = await ask(standing.port, post(PATHS[format], body))
            assert (reply.status, reply.body) == (200, b"ok")
            first, second = standing.behind.received
        assert first.body == body
        before, after = (results(format, json.loads(one.body)) for one in (first, second))
        assert len("".join(after)) < 0.7 * len("".join(before))
        assert after[-1] == before[-1]  # the model has not read it yet
        assert respool.check(second.body) == []

    run(case)


def test_an_unchanged_request_that_is_refused_for_another_reason_is_not_sent_again(tmp_path: Path):
    store = SQLiteStore(tmp_path / "respool.db")
    decider = Decider(WAITING, store)
    middleware = Compactor(
        decider, Recorder(store), CompactionOptions(policy=WAITING), salt=salt_of(store)
    )
    body = json.dumps(request("anthropic", "go on", *STEPS)).encode()

    async def case() -> None:
        script = reply_with(refusal("messages.3: bad", "invalid_request_error"), OK)
        async with proxy(script, middleware=middleware) as standing:
            reply = await ask(standing.port, post("/v1/messages", body))
            assert reply.status == 400
            assert len(standing.behind.received) == 1

    run(case)


ROOM = 0.8  # of the prompt that was refused, as the errors below say, or as is tried unless they do
OUTPUTS = {
    "with the output": "input length and `max_tokens` exceed context limit: {n} + 20000 > {both}",
    "with no number": "prompt is too long",
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_room_for_the_output_is_made_once(case: str, tmp_path: Path):
    """The prompt gets the space that an error names, for any output that the request asks for."""
    store = SQLiteStore(tmp_path / "respool.db")
    middleware = Compactor(
        Decider(WAITING, store),
        Recorder(store),
        CompactionOptions(policy=WAITING),
        salt=salt_of(store),
    )
    asked = {**request("anthropic", "go on", *STEPS), "max_tokens": 20_000}
    body = json.dumps(asked).encode()
    count = respool.compact(body, policy=WAITING, memo=None).report.tokens_before
    both = int(ROOM * count) + 20_000
    said = OUTPUTS[case].format(n=count, both=both)

    async def case_of() -> None:
        incoming = ParsedRequest(
            "POST", "/v1/messages", "", (), "anthropic", "generate", None, None, body
        )
        sent = await middleware.request_parsed(incoming)
        told = json.dumps({"error": {"message": said}}).encode()
        again = await middleware.error_received(sent, ErrorResponse(400, (), told))
        assert again is not None
        ((_, window),) = again.decision.facts.windows
        allowed = limits_for(WAITING, "anthropic", asked, window).tokens
        assert allowed == pytest.approx(HIGH_WATER_RATIO * ROOM * count, rel=0.01)
        await middleware.stop()

    run(case_of)
