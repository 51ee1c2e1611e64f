"""The stated saving of a scripted run, against the same run without respool.

The upstream counts with a tokenizer of its own, which respool does not have, and bills a prompt
cache of its own, as a provider does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src"
POINTS = 3
READ, WRITE, OUTPUT = 0.1, 1.25, 5.0  # Anthropic's list, in multiples of plain input
LOOK_BACK = 20
LEAN = ("--preset", "lean")

Body = dict[str, Any]

# An agent of few words: it sends each body that it is given, and reads the whole answer.
AGENT = """
import json, os, sys, urllib.request
path, variable = sys.argv[2:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for body in json.load(open(sys.argv[1])):
    sent = urllib.request.Request(os.environ[variable] + path, json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": "k", "authorization": "Bearer k"})
    with opener.open(sent) as answer:
        answer.read()
"""


@cache
def tokenizer() -> Callable[[str], int]:
    """Tekken, whose vocabulary comes with the package."""
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tekken = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    return lambda text: len(tekken.encode(text, bos=False, eos=False))


# --- the provider ------------------------------------------------------------------------------


class Block(NamedTuple):
    """One block of a prompt: its text, and whether a cache breakpoint is on it."""

    text: str
    has_breakpoint: bool


class Billed(NamedTuple):
    """What a request is billed."""

    plain: int
    read: int
    write: int
    output: int = 20

    @property
    def prompt(self) -> int:
        return self.plain + self.read + self.write

    @property
    def cost(self) -> float:
        return self.plain + READ * self.read + WRITE * self.write + OUTPUT * self.output


class Provider:
    """A scripted provider: it counts, caches and bills, and says "Fine."."""

    def __init__(self) -> None:
        self.billed: list[Billed] = []
        self._entries: set[bytes] = set()
        self._lock = threading.Lock()

    def take(self, body: Body) -> Billed:
        blocks = list(blocks_of(body))
        sizes = [tokenizer()(block.text) + 4 for block in blocks]
        chain, ends = sha256(), list[bytes]()
        for block in blocks:
            chain.update(block.text.encode() + b"\0")
            ends.append(chain.copy().digest())
        marks = [at for at, block in enumerate(blocks) if block.has_breakpoint]
        with self._lock:
            looked = (at for mark in marks for at in range(mark, max(-1, mark - LOOK_BACK), -1))
            found = max((at for at in looked if ends[at] in self._entries), default=-1)
            written = max(marks, default=-1)
            self._entries.update(ends[at] for at in marks)
            one = Billed(
                plain=sum(sizes[max(found, written) + 1 :]),
                read=sum(sizes[: found + 1]),
                write=sum(sizes[found + 1 : written + 1]),
            )
            self.billed.append(one)
        return one

    @contextmanager
    def serve(self) -> Iterator[str]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(answer_of(self.path, body, provider.take(body))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()


def blocks_of(body: Body) -> Iterator[Block]:
    """The blocks of a prompt in the order in which they are cached."""
    for tool in body.get("tools", []):
        yield Block(json.dumps(tool), has_breakpoint=False)
    for message in [*body.get("system", []), *body["messages"]]:
        content = message.get("content", message)
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            marked = isinstance(block, dict) and "cache_control" in block
            yield Block(" ".join(texts(block)), marked)
        for call in message.get("tool_calls", []):
            yield Block(" ".join(texts(call)), has_breakpoint=False)


def texts(value: Any) -> Iterator[str]:
    """All text in a block that a model reads."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "input":
                yield json.dumps(one)
            elif key not in ("cache_control", "type", "id", "tool_use_id"):
                yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def answer_of(path: str, body: Body, billed: Billed) -> Body:
    if path.endswith("/messages"):
        usage = {
            "input_tokens": billed.plain,
            "cache_read_input_tokens": billed.read,
            "cache_creation_input_tokens": billed.write,
            "output_tokens": billed.output,
        }
        content = [{"type": "text", "text": "Fine."}]
        kind = {"id": "m", "type": "message", "role": "assistant", "stop_reason": "end_turn"}
        return {**kind, "model": body["model"], "content": content, "usage": usage}
    usage = {"prompt_tokens": billed.prompt, "completion_tokens": billed.output}
    message = {"role": "assistant", "content": "Fine."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    kind = {"id": "m", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**kind, "choices": [choice], "usage": usage}


# --- the conversation --------------------------------------------------------------------------


def results() -> list[tuple[str, str, str]]:
    """Tool, target and result of each call: numbered files, logs, hits, JSON; some again."""
    files = [SOURCE / "respool" / name for name in ("tokens.py", "markers.py", "report.py")]
    numbered = {
        file: "\n".join(f"{at}\t{line}" for at, line in enumerate(file.read_text().splitlines(), 1))
        for file in files
    }
    log = "\n".join(
        f"2026-11-18T06:{at % 60:02}:12.{at * 7919 % 1000:03}Z INFO worker-{at % 7} took {at}ms"
        for at in range(260)
    )
    rows = json.dumps([{"id": at, "name": f"station {at}", "level": at * 1.5} for at in range(150)])
    hits = "\n".join(f"src/part_{at % 9}.py:{at * 3}:    value = read({at})" for at in range(150))
    calls = [("read", str(file), numbered[file]) for file in files]
    calls += [("run", "make test", log), ("run", "make rows", rows), ("search", "value", hits)]
    return [*calls, *calls[:2], *calls[3:5]]


def anthropic_bodies(model: str) -> list[Body]:
    """Requests as Claude Code makes them: breakpoints on the system prompt and on the end."""
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "You are a careful agent. " * 150, **mark}]
    messages: list[Body] = [{"role": "user", "content": [{"type": "text", "text": "Look around."}]}]
    made: list[Body] = []
    for at, (tool, target, result) in enumerate([*results(), ("", "", "")]):
        *before, last = messages
        marked = [*last["content"][:-1], {**last["content"][-1], **mark}]
        sent = [*before, {**last, "content": marked}]
        made.append({"model": model, "max_tokens": 99, "system": system, "messages": sent})
        call = {"type": "tool_use", "id": f"c{at}", "name": tool, "input": {"target": target}}
        back = {"type": "tool_result", "tool_use_id": f"c{at}", "content": result}
        messages = [
            *messages,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [back]},
        ]
    return made


def chat_bodies(model: str) -> list[Body]:
    """The same over Chat Completions."""
    messages: list[Body] = [
        {"role": "system", "content": "You are a careful agent. " * 150},
        {"role": "user", "content": "Look around."},
    ]
    made: list[Body] = []
    for at, (tool, target, result) in enumerate([*results(), ("", "", "")]):
        made.append({"model": model, "messages": messages})
        function = {"name": tool, "arguments": json.dumps({"target": target})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        messages = [
            *messages,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": result},
        ]
    return made


def run(folder: Path, url: str, case: Case, *words: str) -> str:
    """Run the agent, through respool if words are given; return the last line that it said."""
    bodies = folder / "bodies.json"
    bodies.write_text(json.dumps(case.bodies(case.model)))
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "RESPOOL_STORE": str(folder / "respool.db"),
        case.variable: f"{url}{case.base}",
    }
    agent = [sys.executable, "-c", AGENT, str(bodies), case.path, case.variable]
    through = [sys.executable, "-m", "respool", "run", *words, "--"] if words else []
    done = subprocess.run(
        [*through, *agent], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.splitlines()[-1] if words else ""


class Case(NamedTuple):
    """A wire and a model."""

    model: str
    bodies: Callable[[str], list[Body]]
    variable: str
    base: str
    path: str


CASES = {
    "claude": Case("claude-opus-4-8", anthropic_bodies, "ANTHROPIC_BASE_URL", "", "/v1/messages"),
    "claude, former": Case(
        "claude-sonnet-4-5", anthropic_bodies, "ANTHROPIC_BASE_URL", "", "/v1/messages"
    ),
    "mistral": Case(
        "mistral-large-latest", chat_bodies, "OPENAI_BASE_URL", "/v1", "/chat/completions"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_stated_saving_is_that_of_the_same_run_without_respool(tmp_path: Path, name: str):
    case = CASES[name]
    without, through = Provider(), Provider()
    with without.serve() as url:
        run(tmp_path, url, case)
    with through.serve() as url:
        said = run(tmp_path, url, case, *LEAN)
    assert len(without.billed) == len(through.billed) == len(results()) + 1
    found = re.search(
        r"saved \$\S+, (\d+) % of a bill of \$\S+; ([\d,]+) of ([\d,]+) tokens \((\d+) %\)", said
    )
    assert found, said
    money, saved, before, tokens = (int(one.replace(",", "")) for one in found.groups())
    true_before = sum(one.prompt for one in without.billed)
    true_saved = true_before - sum(one.prompt for one in through.billed)
    assert true_saved > 0.15 * true_before  # else there is nothing to state
    assert tokens == pytest.approx(100 * true_saved / true_before, abs=POINTS), said
    assert before == pytest.approx(true_before, rel=0.07)  # over half of it is estimated
    assert saved == pytest.approx(true_saved, rel=0.15)
    costs = [sum(one.cost for one in side.billed) for side in (without, through)]
    assert money == pytest.approx(100 * (1 - costs[1] / costs[0]), abs=POINTS), said
