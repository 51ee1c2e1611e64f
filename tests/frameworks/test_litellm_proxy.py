"""LiteLLM's own proxy with `respool serve` as its guardrail, in both ways that LiteLLM has."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import respool
from tests.frameworks.litellm_process import KEY, call, free_port, litellm_proxy, program

pytestmark = pytest.mark.frameworks
# The first is there with litellm[proxy] only, the others with respool[serve].
for needed in ("litellm_proxy_extras", "aiohttp", "brotli", "httptools", "uvicorn", "zstandard"):
    pytest.importorskip(needed, reason="needs litellm[proxy] and respool[serve]")

TOKEN = "a-token-of-enough-length"
TURNS = 20
CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {{model: openai/gpt-5, api_base: "{upstream}/v1", api_key: sk-up}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{upstream}", api_key: sk-up}}
guardrails:
  - guardrail_name: respool
    litellm_params:
      guardrail: {guardrail}
      mode: pre_call
      default_on: true
      api_base: "{respool}/respool-token/{token}"
      api_key: sk-of-the-gateway
general_settings: {{master_key: {key}}}
"""
CHAT_ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
}
MESSAGES_ANSWER = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
CHAT_TOOLS = [
    {
        "type": "function",
        "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}},
    }
]
CLAUDE_TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}]


def output_of(turn: int) -> str:
    return "".join(f"{turn}: line {n} of the output of a build\n" for n in range(300))


def chat_request(turns: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You build programs."},
        {"role": "user", "content": "Build them all."},
    ]
    for turn in range(turns):
        arguments = json.dumps({"command": f"make part{turn}"})
        function = {"name": "bash", "arguments": arguments}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": f"call_{turn}", "content": output_of(turn)}
        messages.append(result)
    return {"model": "chat", "messages": messages, "tools": CHAT_TOOLS}


def claude_request(turns: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build them all."}]
    for turn in range(turns):
        id = f"toolu_{turn}"
        given = {"command": f"make part{turn}"}
        call = {"type": "tool_use", "id": id, "name": "bash", "input": given}
        result = {"type": "tool_result", "tool_use_id": id, "content": output_of(turn)}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    made = {"model": "claude", "max_tokens": 99, "system": "You build programs."}
    return {**made, "messages": messages, "tools": CLAUDE_TOOLS}


REQUESTS = {
    "openai-chat": ("/v1/chat/completions", chat_request),
    "anthropic": ("/v1/messages", claude_request),
}


# --- programs ----------------------------------------------------------------------------------


@contextlib.contextmanager
def scripted_upstream() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A provider of both formats, and the bodies that it received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            answer = MESSAGES_ANSWER if self.path.startswith("/v1/messages") else CHAT_ANSWER
            raw = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, received
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def gateway(folder: Path, guardrail: str) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
    """LiteLLM in front of an upstream, with respool beside it: both ports, and what arrived."""
    port, own = free_port(), free_port()
    store = {"RESPOOL_STORE": str(folder / "respool.db"), "RESPOOL_TOKEN": TOKEN}
    # Results are few and large here: what stays whole behind a cut would cost too much to rewrite.
    early = ("--set", "keep_exchanges=0")
    serve = [sys.executable, "-m", "respool", "serve", "--port", str(own), *early]
    with scripted_upstream() as (upstream, received):
        config = folder / "config.yaml"
        places = {
            "upstream": f"http://127.0.0.1:{upstream}",
            "respool": f"http://127.0.0.1:{own}",
        }
        text = CONFIG.format(guardrail=guardrail, token=TOKEN, key=KEY, **places)
        config.write_text(text)
        with (
            program(serve, own, "/healthz", folder / "respool.log", **store),
            litellm_proxy(sys.executable, config, port),
        ):
            yield port, own, received


# --- the test ----------------------------------------------------------------------------------


@pytest.mark.parametrize("guardrail", ["headroom", "generic_guardrail_api"])
def test_edits_of_a_growing_conversation(tmp_path: Path, guardrail: str):
    with gateway(tmp_path, guardrail) as (port, own, received):
        for format, (path, request_with) in REQUESTS.items():
            received.clear()
            sent = {}
            changed: dict[str, str] = {}
            for turn in range(1, TURNS + 1):
                sent = request_with(turn)
                before = copy.deepcopy(sent)
                status, answer = call(port, "POST", path, sent)
                assert status == 200, answer
                assert sent == before
                got = received[-1]
                assert not [p for p in respool.check(got, format=format) if p.severity == "error"]
                texts = results_in(got)
                assert list(texts) == list(results_in(sent))
                assert {id: texts[id] for id in changed} == changed  # what is changed stays so
                originals = results_in(sent)
                changed = {id: text for id, text in texts.items() if text != originals[id]}
            whole, left = size(sent["messages"]), size(received[-1]["messages"])
            print(f"{guardrail} {format}: {whole:,} -> {left:,} bytes, {len(changed)} changed")
            assert left < whole * 0.7
        status, page = call(own, "GET", f"/respool-token/{TOKEN}/healthz")
        assert (status, json.loads(page)["status"]) == (200, "ok")


def size(messages: object) -> int:
    return len(json.dumps(messages))


def results_in(body: dict[str, Any]) -> dict[str, str]:
    """The texts of results by the ids of their calls."""
    found: dict[str, str] = {}
    for message in body["messages"]:
        if message["role"] == "tool":
            found[message["tool_call_id"]] = text_of(message["content"])
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block["type"] == "tool_result":
                found[block["tool_use_id"]] = text_of(block["content"])
    return found


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content)
