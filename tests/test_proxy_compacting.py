"""Requests compacted on their way up, through a real proxy, a real store and real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.proxy.compacting import Compacting
from clew.proxy.deciding import Deciding
from clew.proxy.options import Options
from clew.proxy.recording import Recording
from clew.store import Record, SQLiteStore
from tests.formats import FORMATS, Exchange, request, results
from tests.proxying import Script, Standing, ask, post, proxy

KEEN = clew.Policy(cap=500, at_once=True, step=1, growth=0.0, passes=("cap_results",))
LONG = "".join(f"line {n} of a long output\n" for n in range(200))
STEPS = [[Exchange(f"{n} {LONG}", id=f"call_{n}", args={"command": f"make {n}"})] for n in range(9)]
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
KEYS = {"anthropic": "x-api-key: one", "gemini": "x-goog-api-key: one"}
formats = pytest.mark.parametrize("format", FORMATS)


def said(format: str, steps: int) -> bytes:
    return json.dumps(request(format, "go on", *STEPS[:steps])).encode()


@dataclass
class Compacted:
    """A proxy that compacts, and what is behind it."""

    standing: Standing
    store: SQLiteStore
    handling: Compacting
    deciding: Deciding

    async def ask(self, format: str, steps: int, *headers: str) -> Any:
        key = KEYS.get(format, "authorization: Bearer one")
        sent = post(PATHS[format], said(format, steps), key, *headers)
        return await ask(self.standing.port, sent)

    def heard(self, format: str, at: int = -1) -> list[str]:
        """The results that a request held when it came to the provider."""
        return results(format, json.loads(self.standing.behind.heard[at].body))

    def records(self, format: str) -> list[Record]:
        assert self.store.flush()
        (conversation,) = self.store.conversations(None)
        return self.store.requests(conversation.name, None)


@asynccontextmanager
async def compacting(
    folder: Path, script: Script | None = None, **given: Any
) -> AsyncGenerator[Compacted]:
    options = Options(policy=KEEN, **given)
    store = SQLiteStore(folder / "clew.db")
    deciding = Deciding(options.policy, store, observe=options.observe)
    handling = Compacting(deciding, Recording(store), options, store.salt())
    more = {} if script is None else {"script": script}
    async with proxy(handling=handling, **more) as standing:
        yield Compacted(standing, store, handling, deciding)


def drive(folder: Path, act: Callable[[Compacted], Any], **given: Any) -> None:
    async def run() -> None:
        async with compacting(folder, **given) as standing:
            await act(standing)

    asyncio.run(run())


@formats
def test_what_was_seen_goes_up_smaller_and_stays_so(tmp_path: Path, format: str):
    async def act(one: Compacted) -> None:
        reply = await one.ask(format, 3)
        assert reply.status == 200
        assert dict(reply.headers)[b"x-clew-sent"] == b"projection"
        assert int(dict(reply.headers)[b"x-clew-saved"]) > 500
        await one.ask(format, 4)
        first, second = one.heard(format, 0), one.heard(format, 1)
        assert [len(text) < 1_000 for text in first] == [True, True, False]
        assert second[:2] == first[:2]

    drive(tmp_path, act)
