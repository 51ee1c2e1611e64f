"""Replicas with one store, agents that ask any of them, and what their upstream receives."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from respool.markers import reference

SOURCE = Path(__file__).parents[2] / "src"
SOON = 60.0  # seconds after which a test gives up, on a slow machine too
BOUND, UNBOUND, OTHER = "claude-opus-5-5", "claude-opus-4-5", "claude-sonnet-4-5"
EAGER: Mapping[str, Any] = {
    "cap_chars": 500,
    "eager": True,
    "reevaluate_tokens": 1,
    "reevaluate_ratio": 0.0,
    "passes": ("cap_results",),
    "keep_exchanges": 0,
}
OPTIONS = tuple(
    f"--set={key}={value[0] if isinstance(value, tuple) else json.dumps(value)}"
    for key, value in EAGER.items()
)
STEPS = 8
BYPASSED, TOO_LONG, SWITCHED = 3, 5, 7  # steps at which facts arise
_REFS = re.compile(rb"\[respool: [^\[\]]{1,240}; ref ([a-z2-7]{20})\]")
_TOO_LONG = b'{"type":"error","error":{"type":"invalid_request_error","message":"%s"}}' % (
    b"prompt is too long: 210000 tokens > 200000 maximum"
)

Step = tuple[int, int]  # conversation and step


def body_of(conversation: int, step: int) -> bytes:
    """The request of a step: its conversation until then, and the tools' long results."""
    model = BOUND if conversation % 2 else UNBOUND
    if conversation % 4 == 2 and step >= SWITCHED:
        model = OTHER
    messages: list[Any] = [{"role": "user", "content": f"task {conversation}"}]
    for at in range(step):
        name = f"{conversation}_{at}"
        call = {"type": "tool_use", "id": f"call_{name}", "name": "shell", "input": {"n": at}}
        thought = {"type": "thinking", "thinking": f"thought {name}", "signature": name}
        said = [thought, call] if model == BOUND else [call]
        messages.append({"role": "assistant", "content": said})
        lines = random.Random(name)
        text = "".join(f"line {line} {lines.random()}\n" for line in range(40))
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        messages.append({"role": "user", "content": [result]})
    messages[-1] = {**messages[-1], "content": _marked(messages[-1]["content"])}
    tools = [{"name": "shell", "description": "runs", "input_schema": {"type": "object"}}]
    return json.dumps(
        {"model": model, "max_tokens": 99, "tools": tools, "messages": messages}
    ).encode()


def _marked(content: Any) -> list[Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


@dataclass
class Upstream:
    """A provider that keeps what it receives, by conversation and step."""

    port: int = 0
    seconds: float = 0.0  # that an answer takes
    received: dict[Step, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    refused: set[Step] = field(default_factory=set)

    def answer(self, at: Step, body: bytes) -> tuple[int, bytes]:
        self.received[at].add(body)
        if at[1] == TOO_LONG and at[0] % 4 == 1 and at not in self.refused:
            self.refused.add(at)
            return 400, _TOO_LONG
        return 200, b'{"type":"message","content":[],"usage":{"input_tokens":9}}'


@contextlib.contextmanager
def upstream(seconds: float = 0.0) -> Iterator[Upstream]:
    made = Upstream(seconds=seconds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            conversation, step = map(int, self.headers["x-step"].split("."))
            status, said = made.answer((conversation, step), body)
            time.sleep(made.seconds)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A replica that was killed has left."""

    with Server(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


def ask(port: int, at: Step) -> int:
    """Send the request of a step; its status, 0 if there is no response."""
    conversation, step = at
    headers = {
        "x-api-key": "sk-ant-one",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-claude-code-session-id": f"session {conversation}",
        "x-step": f"{conversation}.{step}",
    }
    if step == BYPASSED and conversation % 3 == 0:
        headers["x-respool-bypass"] = "1"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    try:
        connection.request("POST", "/v1/messages", body_of(*at), headers)
        with connection.getresponse() as response:
            response.read()
            return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def ask_again(choose: Callable[[], int], at: Step, statuses: tuple[int, ...] = (400,)) -> int:
    """Send the request of a step; once more after some statuses, as agents do."""
    status = ask(choose(), at)
    return ask(choose(), at) if status in statuses else status


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"x-api-key": "sk-ant-one"})
        with connection.getresponse() as response:
            return response.status, response.read()


@dataclass
class Load:
    """Agents at work at once: each plays conversation after conversation."""

    choose: Callable[[], int]  # the port for the next request
    agents: int = 6
    repeated: tuple[int, ...] = (400,)  # statuses after which agents ask once more
    failed: list[tuple[Step, int]] = field(default_factory=list)
    done: list[Step] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        """Load for the duration of the block; conversations that were begun are finished."""
        ended = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(number, ended))
            for number in range(self.agents)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _work(self, conversation: int, ended: threading.Event) -> None:
        while True:
            for step in range(STEPS):
                status = ask_again(self.choose, (conversation, step), self.repeated)
                if status != 200:
                    self.failed.append(((conversation, step), status))
                self.done.append((conversation, step))
            conversation += self.agents
            if ended.is_set():
                return

    def wait_for(self, more: int) -> None:
        """Wait until so many more requests are done."""
        until, enough = time.monotonic() + SOON, len(self.done) + more
        while len(self.done) < enough:
            assert time.monotonic() < until, "the load stands still"
            time.sleep(0.01)


def assert_as_by_one(received: Mapping[Step, set[bytes]], single: Upstream, port: int) -> None:
    """Play the same through one process alone: its upstream receives the same bytes."""
    for at in sorted(received):
        assert ask_again(lambda: port, at) == 200
    differing = [at for at, bodies in received.items() if bodies != single.received[at]]
    assert not differing, differing
    capped = [at for at in received if _refs_of(single, at)]
    assert len(capped) > len(received) / 2  # else this shows nothing


def assert_originals(received: Upstream, ports: list[int]) -> None:
    """Each original of some conversations is fetched through each replica."""
    for conversation in range(4):
        for ref in _refs_of(received, (conversation, STEPS - 1)):
            for port in ports:
                status, text = get(port, f"/respool/originals/{ref}")
                assert (status, reference(text.decode())) == (200, ref)


def _refs_of(one: Upstream, at: Step) -> set[str]:
    return {ref.decode() for body in one.received[at] for ref in _REFS.findall(body)}


# --- processes ---------------------------------------------------------------------------------


class Replica:
    """`respool serve` in a process of its own, on one port."""

    def __init__(self, port: int, upstream_port: int, store: str, *options: str) -> None:
        self.port = port
        self._command = [
            *(sys.executable, "-m", "respool", "serve", "--port", str(port), "--quiet"),
            *("--upstream", f"anthropic=http://127.0.0.1:{upstream_port}", "--deadline", "30"),
            *OPTIONS,
            *options,
        ]
        self._environment = {**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": store}
        self._process: subprocess.Popen[bytes] | None = None

    def set(self, variable: str, value: str) -> None:
        """Set a variable of its environment."""
        self._environment[variable] = value

    def start(self) -> Replica:
        """Start it, and wait until it is ready."""
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + SOON
        while not self._is_ready():
            assert self._process.poll() is None, "it has ended"
            assert time.monotonic() < until, "it does not answer"
            time.sleep(0.05)
        return self

    def _is_ready(self) -> bool:
        try:
            return get(self.port, "/readyz")[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """End it as a rollout does; all that is open is finished."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(SOON) == 0

    def close(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    import socket

    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
