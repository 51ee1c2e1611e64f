"""A scripted run through a real proxy: every byte up, every byte down, and all that is stored.

`SCRIPTED_RUN=DIR` writes the texts into a folder, to be compared; `SCRIPTED_RUN_RECORD=1` records
their hashes anew.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import respool
from tests.providers.signing_provider import BOUND, OTHER_BOUND, TOOLS, Signer
from tests.proxy.compaction import (
    INVALID,
    KEYS,
    OVERFLOW,
    PATHS,
    Compacted,
    answer,
    compacting,
    request_body,
)
from tests.proxy.sockets import ReceivedRequest, Reply, ask, get, post, until
from tests.support.formats import FORMATS

SNAPSHOT = Path(__file__).with_name("scripted_run.json")
SECTIONS = ("upstream", "responses", "store", "log")
SALT = b"a fixed salt for a scripted run!"
START = 1_800_000_000.0
PLANNED = respool.Policy(
    cap_chars=2_000, reevaluate_tokens=300, reevaluate_ratio=0.02, keep_exchanges=0
)
BUDGET = respool.Policy(
    budget=6_000, cap_chars=2_000, reevaluate_tokens=300, reevaluate_ratio=0.02, keep_exchanges=0
)
MASKED = re.compile(
    r'"(ms|first_ms|milliseconds|at|id|compaction_ms|first_byte_ms|duration_ms)":[^,}]+'
)
MODELS = {"anthropic": "claude-sonnet-4-5", "openai-chat": "gpt-5.4", "openai-responses": "gpt-5.6"}

USAGE: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 900,
            "cache_read_input_tokens": 3000,
            "cache_creation_input_tokens": 400,
            "output_tokens": 50,
        },
    },
    "openai-chat": {
        "model": "gpt-5.4",
        "choices": [{"finish_reason": "tool_calls"}],
        "usage": {
            "prompt_tokens": 4300,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 3000},
        },
    },
    "openai-responses": {
        "model": "gpt-5.6",
        "status": "completed",
        "usage": {
            "input_tokens": 4300,
            "output_tokens": 50,
            "input_tokens_details": {"cached_tokens": 3000},
        },
    },
    "gemini": {
        "modelVersion": "gemini-2.5-pro",
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 4300,
            "candidatesTokenCount": 50,
            "cachedContentTokenCount": 3000,
        },
    },
}


def plain(format: str) -> bytes:
    return answer(200, USAGE[format], "Content-Type: application/json", "X-Request-Id: r1")


def streamed(format: str) -> bytes:
    """The same as events, in chunks that cut them anywhere."""
    told = USAGE[format]
    if format == "anthropic":
        first = {
            "type": "message_start",
            "message": {"model": told["model"], "usage": told["usage"]},
        }
        last = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": told["usage"],
        }
        events = [first, {"type": "content_block_delta", "delta": {"text": "well"}}, last]
    elif format == "openai-responses":
        events = [{"type": "response.completed", "response": told}]
    else:
        events = [{"delta": "well"}, told]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    cut = [text[at : at + 97] for at in range(0, len(text), 97)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in cut)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + chunks + b"0\r\n\r\n"


def packed(format: str) -> bytes:
    raw = gzip.compress(json.dumps(USAGE[format]).encode(), mtime=0)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


class Scene:
    """A proxy, a provider that follows a script, and the text of all that passes."""

    def __init__(self, one: Compacted, script: list[bytes], clock: list[float]) -> None:
        self.one, self._script, self._clock = one, script, clock
        self.replies: list[Reply] = []

    async def send(
        self,
        format: str,
        body: bytes,
        *answers: bytes,
        path: str = "",
        after: float = 5,
        headers: tuple[str, ...] = (),
    ) -> Reply:
        """One request; the provider gives these answers, one to each attempt."""
        self._clock[0] += after
        self._script[:] = answers or (plain(format),)
        key = KEYS.get(format, "authorization: Bearer one")
        raw = post(path or PATHS[format], body, key, *headers)
        logged = len(self.one.standing.records)
        reply = await ask(self.one.standing.port, raw)
        self.replies.append(reply)
        await until(lambda: len(self.one.standing.records) > logged)
        return reply

    async def raw(self, raw: bytes, *answers: bytes, quiet: float = 5.0) -> None:
        self._script[:] = answers
        self.replies.append(await ask(self.one.standing.port, raw, quiet))
        await asyncio.sleep(0.01)


def body_of(format: str, steps: int, **more: Any) -> bytes:
    told = json.loads(request_body(format, steps))
    if format in MODELS:
        told["model"] = MODELS[format]
    return json.dumps({**told, **more}).encode()


# --- the scenes --------------------------------------------------------------------------------


async def growing(scene: Scene, format: str) -> None:
    """Grown, counted, passed by, gone cold, moved to another model, too long, and refused."""
    for steps, made in enumerate((plain, streamed, packed, plain), 1):
        await scene.send(format, body_of(format, steps), made(format))
    count = {
        "anthropic": "/v1/messages/count_tokens",
        "openai-responses": "/v1/responses/input_tokens",
        "gemini": "/v1beta/models/gemini-2.5-pro:countTokens",
    }
    if format in count:
        await scene.send(format, body_of(format, 4), path=count[format])
    if format == "gemini":
        inner = b'{"generateContentRequest":' + body_of(format, 4) + b"}"
        await scene.send(format, inner, path=count[format])
    await scene.send(format, body_of(format, 4), headers=("x-respool-bypass: 1",))
    await scene.send(format, body_of(format, 5), after=4_000)
    await scene.send(format, body_of(format, 6, tools=[]))
    await scene.send(format, body_of(format, 7), OVERFLOW, streamed(format))
    await scene.send(format, body_of(format, 8), INVALID, plain(format))
    await scene.send(format, body_of(format, 9))
    await scene.send(format, body_of(format, 9), INVALID)


async def signed(scene: Scene) -> None:
    """Reasoning that is bound to what was sent, through all that may go up in its place."""
    provider = Signer()
    now: list[dict[str, Any]] = [{"role": "user", "content": "go on"}]
    model, more = [BOUND], list[Any]()

    async def grow(*answers: bytes, headers: tuple[str, ...] = (), after: float = 5) -> None:
        told = {"model": model[0], "max_tokens": 99, "tools": [*TOOLS, *more], "messages": now}
        await scene.send(
            "anthropic", json.dumps(told).encode(), *answers, headers=headers, after=after
        )
        sent = scene.one.bodies[-1]
        said = provider.answer(sent)
        text = f"{len(now)} " + "".join(f"line {n} of a long output\n" for n in range(150))
        result = {"type": "tool_result", "tool_use_id": said[-1]["id"], "content": text}
        now.append({"role": "assistant", "content": said})
        now.append({"role": "user", "content": [result]})

    for _ in range(4):
        await grow()
    scene.one.decider.fault = RuntimeError("broken for a test")
    await grow()
    scene.one.decider.fault = None
    await grow()
    async with scene.one.late():
        await grow()
    await grow()
    await grow(headers=("x-respool-bypass: yes",))
    await grow(after=8_000)
    model[0] = OTHER_BOUND
    await grow()
    more.append({"name": "more", "description": "", "input_schema": {"type": "object"}})
    await grow(OVERFLOW, plain("anthropic"))
    await grow(INVALID, plain("anthropic"))
    await grow()


async def planned(scene: Scene) -> None:
    """Send a growing conversation in all formats, with a pause and an overflow."""
    for format in FORMATS:
        for steps in range(1, 10):
            await scene.send(format, body_of(format, steps), after=20 if steps != 6 else 9_000)
        await scene.send(format, body_of(format, 9), OVERFLOW, plain(format))


async def odd(scene: Scene) -> None:
    """Errors of the provider, of the client and of the way between them."""
    body = body_of("anthropic", 3)
    await scene.send("anthropic", body)
    for status in (401, 429, 500, 529):
        await scene.send("anthropic", body, answer(status, {"error": {"message": "no"}}))
    await scene.send("anthropic", b"not json")
    await scene.send("anthropic", b'{"messages": "nothing"}')
    await scene.send(
        "openai-responses", b'{"model":"gpt-5.6","previous_response_id":"r","input":"x"}'
    )
    raw = gzip.compress(body, mtime=0)
    await scene.send("anthropic", raw, headers=("content-encoding: gzip",))
    await scene.send("anthropic", b"no gzip", headers=("content-encoding: gzip",))
    await scene.send("anthropic", body_of("anthropic", 9) + b" " * 3_000_000)
    await scene.raw(get("/v1/models", "x-api-key: one"), plain("anthropic"))
    await scene.raw(post("/v1/embeddings", b"{}", "authorization: Bearer two"), answer(204, None))
    await scene.raw(get("/v1/realtime", "Upgrade: websocket", "Connection: upgrade"))
    await scene.raw(post("/v1/../x", b"{}"))
    await scene.raw(get("/healthz"))
    await scene.raw(get("/respool/none"))
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nonly this"
    await scene.raw(post(PATHS["anthropic"], body, KEYS["anthropic"]), broken, b"close")
    await scene.raw(post(PATHS["anthropic"], body, KEYS["anthropic"]), b"", b"close")


async def locked(scene: Scene) -> None:
    """A store that cannot be written to for a while."""
    for steps in (1, 2):
        await scene.send("anthropic", body_of("anthropic", steps))
    lock = sqlite3.connect(scene.one.store.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for steps in (3, 4):
        await scene.send("anthropic", body_of("anthropic", steps))
    lock.execute("ROLLBACK")
    lock.close()
    await asyncio.sleep(1.2)
    for steps in (5, 6):
        await scene.send("anthropic", body_of("anthropic", steps))


Play = Callable[[Scene], Awaitable[None]]


def grown(format: str) -> Play:
    return lambda scene: growing(scene, format)


SCENES: dict[str, tuple[Play, dict[str, Any]]] = {
    **{f"growing-{format}": (grown(format), {}) for format in FORMATS},
    "signed": (signed, {}),
    "planned": (planned, {"policy": PLANNED}),
    "budget": (planned, {"policy": BUDGET}),
    "observed": (grown("anthropic"), {"observe": True}),
    "as-text": (grown("openai-chat"), {"text_formats": ("openai-chat",)}),
    "odd": (odd, {"body": 2_000_000}),
    "locked": (locked, {"wait": 0.01}),
}


@pytest.mark.parametrize("name", SCENES)
def test_every_byte_is_as_recorded(name: str, tmp_path: Path):
    told = asyncio.run(asyncio.wait_for(played(name, tmp_path), 60))
    folder = os.environ.get("SCRIPTED_RUN")
    if folder:
        for section, text in told.items():
            Path(folder, f"{name}.{section}.txt").write_text(text, "utf-8")
    found = {
        section: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for section, text in told.items()
    }
    recorded = json.loads(SNAPSHOT.read_text("utf-8")) if SNAPSHOT.exists() else {}
    if os.environ.get("SCRIPTED_RUN_RECORD"):
        SNAPSHOT.write_text(json.dumps({**recorded, name: found}, indent=1) + "\n", "utf-8")
        return
    assert found == recorded[name]


async def played(name: str, folder: Path) -> dict[str, str]:
    play, given = SCENES[name]
    given = dict(given)
    clock, script = [START], list[bytes]()

    async def provider(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(script.pop(0))
        if script == [b"close"]:
            await writer.drain()
            writer.close()

    if "body" in given:
        from respool.proxy.server_options import TransferLimits

        given["limits"] = TransferLimits(body_bytes=given.pop("body"), drain_seconds=1.0)
    async with compacting(folder, provider, clock=lambda: clock[0], salt=SALT, **given) as one:
        scene = Scene(one, script, clock)
        await play(scene)
        port = one.standing.behind.port
        received = "\n".join(map(_received, one.standing.behind.received))
        entries = (msgspec.structs.replace(one, time=0.0) for one in one.standing.records)
        log = "\n".join(msgspec.json.encode(entry).decode() for entry in entries)
    replies = "\n".join(map(_reply, scene.replies))
    told = {"upstream": received, "responses": replies, "store": stored(one.store.path), "log": log}
    return {
        section: MASKED.sub(r'"\1":0', text)
        .replace(f":{port}", ":PORT")
        .replace(str(folder), "DIR")
        for section, text in told.items()
    }


def _received(one: ReceivedRequest) -> str:
    headers = "\n".join(f"{name.lower()}: {value}" for name, value in one.headers)
    return f"{one.line}\n{headers}\n{one.body.decode('utf-8', 'backslashreplace')}\n"


def _reply(one: Reply) -> str:
    if not one.raw:
        return f"nothing; open: {one.open}"
    chunked = (b"transfer-encoding", b"chunked") in one.headers
    body = one.joined if chunked else one.body
    headers = "\n".join(f"{name.decode()}: {value.decode()}" for name, value in one.headers)
    return f"{one.status}\n{headers}\n{body.decode('utf-8', 'backslashreplace')}\n"


def stored(path: Path) -> str:
    """All that a store holds, without names that are drawn and times that passed."""
    store = respool_store(path)
    lines: list[str] = []
    for conversation in sorted(store.conversations(None), key=lambda one: one.name):
        lines.append(f"conversation {conversation.name} {conversation.owner}")
        for one in store.requests(conversation.name, None):
            lines.append(msgspec.json.encode(one).decode())
            lines += [
                f"  {msgspec.json.encode(edit).decode()}"
                for edit in store.edits(one.id, None) or ()
            ]
        facts = {
            name: sorted(value) for name, value in store.facts(conversation.name).to_dict().items()
        }
        lines.append(json.dumps(facts, sort_keys=True))
    for ref in sorted(store.refs(None)):
        text = store.original(ref, None) or ""
        lines.append(f"original {ref} {len(text)} {hashlib.sha256(text.encode()).hexdigest()[:16]}")
    for case in store.rejected_requests(None):
        lines.append(msgspec.json.encode(msgspec.structs.replace(case, version="")).decode())
    store.close()
    return "\n".join(lines)


def respool_store(path: Path) -> Any:
    from respool.store import SQLiteStore

    return SQLiteStore(path)
