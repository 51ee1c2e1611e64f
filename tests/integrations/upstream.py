"""A scripted provider on loopback that speaks four wires, and records what it received.

It asks for tools turn by turn, as its script says, and then answers in words.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import respool

Ask = tuple[str, dict[str, Any]]  # a tool's name and its arguments
MARKER = "[respool:"
FINAL = "All is done."
FILES = 6


def read_text(path: str) -> str:
    """Ten kilobytes that no other file has."""
    name = re.sub(r"\W", "_", path)
    return "\n".join(f"{at}: value_{name}_{at} = compute({at * 7}, '{name}')" for at in range(180))


def reads(turns: int, parallel: int = 1) -> list[list[Ask]]:
    """A script that reads six files again and again, so many at once."""
    return [
        [
            ("read_file", {"path": f"/w/file_{(turn * parallel + at) % FILES}.py"})
            for at in range(parallel)
        ]
        for turn in range(turns)
    ]


def writes(turns: int) -> list[list[Ask]]:
    """A script that writes one file again and again, with reads in between."""
    script = []
    for turn in range(turns):
        path = f"/w/out_{turn}.py"
        script += [
            [("write_file", {"path": "/w/out.py", "content": read_text(path)})],
            [("read_file", {"path": f"/w/file_{turn % FILES}.py"})],
        ]
    return script


@dataclass
class Upstream:
    """The server's address, its script, and all that it received."""

    script: Sequence[Sequence[Ask]]
    reasoning: bool = False  # thoughts with signatures before calls
    refuse: int = 0  # the status for bodies that hold a marker; 0: none is refused
    url: str = ""
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # path and body
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    answered: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of all accepted requests."""
        return [body for _, body in self.received]

    @property
    def size(self) -> int:
        """The bytes of all accepted requests."""
        return sum(map(len, self.raw))

    def markers(self) -> list[int]:
        """The number of markers in each accepted request."""
        return [raw.count(MARKER.encode()) for raw in self.raw]

    def refs(self) -> list[str]:
        """The references that markers name, in the order of their first occurrence."""
        found = (ref for raw in self.raw for ref in re.findall(rb"ref ([a-z2-7]{20})", raw))
        return [ref.decode() for ref in dict.fromkeys(found)]

    def problems(self) -> list[str]:
        """What the providers would have refused."""
        found: list[str] = []
        for path, body in self.received:
            model = re.search(r"/models/([^:]+):", path)
            named = {} if model is None else {"model": model[1]}
            found += [f"{path}: {one}" for one in respool.check(body, **named)]
        return found

    def breaks(self) -> int:
        """How often a request did not extend the one before it."""
        histories = [history_of(body) for body in self.bodies]
        pairs = pairwise(histories)
        return sum(after[: len(before)] != before for before, after in pairs)


def history_of(body: dict[str, Any]) -> list[str]:
    """The messages of a request, each as JSON without cache breakpoints."""
    rows = body.get("messages") or body.get("input") or body.get("contents") or []
    return [json.dumps(_without_breakpoints(row), sort_keys=True) for row in rows]


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_breakpoints(one) for key, one in value.items() if key != "cache_control"
        }
    return [_without_breakpoints(one) for one in value] if isinstance(value, list) else value


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close its connection at any time."""


@contextmanager
def upstream(script: Sequence[Sequence[Ask]], **options: Any) -> Iterator[Upstream]:
    """A server that follows a script until the end of the block."""
    state = Upstream(script, **options)
    server = _Server(("127.0.0.1", 0), _handler(state))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _handler(state: Upstream) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_GET(self) -> None:
            self._answer(200, b'{"data":[]}', "application/json")

        def do_POST(self) -> None:
            raw = self._body()
            body = json.loads(raw)
            path = self.path.partition("?")[0]
            if state.refuse and MARKER.encode() in raw:
                state.refused.append(raw)
                error = {"type": "invalid_request_error", "message": "no such thing is accepted"}
                self._answer(
                    state.refuse, json.dumps({"error": error}).encode(), "application/json"
                )
                return
            if path.endswith(("count_tokens", "countTokens", "input_tokens")):
                count = {"input_tokens": len(raw) // 4, "totalTokens": len(raw) // 4}
                self._answer(200, json.dumps(count).encode(), "application/json")
                return
            with state.lock:
                turn = state.answered
                state.answered += 1
                state.received.append((path, body))
                state.raw.append(raw)
                state.headers.append(dict(self.headers.items()))
            asked = list(state.script[turn]) if turn < len(state.script) else []
            wire = wire_of(path)
            stream = bool(body.get("stream")) or "streamGenerateContent" in path
            events = wire(turn, asked, state.reasoning, len(raw) // 4)
            if stream:
                self._answer(200, sse(path, events), "text/event-stream")
            else:
                self._answer(200, json.dumps(events).encode(), "application/json")

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", "0")))
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _answer(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


# --- four wires ----------------------------------------------------------------------------------


def wire_of(path: str) -> Any:
    """The function that words an answer for a path."""
    if path.endswith("/messages"):
        return anthropic_answer
    if path.endswith("/chat/completions"):
        return chat_answer
    if path.endswith("/responses"):
        return responses_answer
    return gemini_answer


def anthropic_answer(turn: int, asked: list[Ask], reasoning: bool, tokens: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reasoning and asked:
        thought = f"I think of turn {turn}."
        content.append({"type": "thinking", "thinking": thought, "signature": f"c2ln{turn}" * 8})
    content += [
        {"type": "tool_use", "id": f"toolu_{turn}_{at}", "name": name, "input": arguments}
        for at, (name, arguments) in enumerate(asked)
    ] or [{"type": "text", "text": FINAL}]
    usage = {"input_tokens": tokens, "output_tokens": 5}
    usage |= {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "tool_use" if asked else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def chat_answer(turn: int, asked: list[Ask], reasoning: bool, tokens: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if asked else FINAL}
    if asked:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(asked)
        ]
    reason = "tool_calls" if asked else "stop"
    return {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.2",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
    }


def responses_answer(turn: int, asked: list[Ask], reasoning: bool, tokens: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if reasoning and asked:
        hidden = {"encrypted_content": f"Z0FB{turn}" * 40}
        output.append({"type": "reasoning", "id": f"rs_{turn}", "summary": [], **hidden})
    output += [
        {
            "type": "function_call",
            "id": f"fc_{turn}_{at}",
            "call_id": f"call_{turn}_{at}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for at, (name, arguments) in enumerate(asked)
    ]
    if not asked:
        said = [{"type": "output_text", "text": FINAL, "annotations": []}]
        message = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "content": said}
        output.append({**message, "status": "completed"})
    usage = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-5.2",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**usage, **details},
    }


def gemini_answer(turn: int, asked: list[Ask], reasoning: bool, tokens: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"functionCall": {"id": f"call_{turn}_{at}", "name": name, "args": arguments}}
        for at, (name, arguments) in enumerate(asked)
    ]
    if reasoning and parts:
        parts[0]["thoughtSignature"] = "c2lnbmF0dXJl"
    content = {"role": "model", "parts": parts or [{"text": FINAL}]}
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-pro"}


# --- streams -------------------------------------------------------------------------------------


def sse(path: str, answer: dict[str, Any]) -> bytes:
    """The answer as a stream of events."""
    if path.endswith("/messages"):
        return b"".join(_event(one, one["type"]) for one in _anthropic_events(answer))
    if path.endswith("/chat/completions"):
        return b"".join(_event(one) for one in _chat_events(answer)) + b"data: [DONE]\n\n"
    if path.endswith("/responses"):
        return b"".join(_event(one, one["type"]) for one in _responses_events(answer))
    return _event(answer)


def _event(data: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _anthropic_events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}
    for at, block in enumerate(answer["content"]):
        start: dict[str, Any] = dict(block)
        if block["type"] == "tool_use":
            start["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif block["type"] == "thinking":
            start |= {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            start["text"] = ""
            deltas = [{"type": "text_delta", "text": block["text"]}]
        yield {"type": "content_block_start", "index": at, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    # The counts of a message_delta are totals, those of the prompt among them.
    yield {"type": "message_delta", "delta": delta, "usage": answer["usage"]}
    yield {"type": "message_stop"}


def _chat_events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choice = answer["choices"][0]
    message = dict(choice["message"])
    calls = message.pop("tool_calls", [])
    if calls:
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    base = {**answer, "object": "chat.completion.chunk"}
    base.pop("usage")
    chunk = {"index": 0, "delta": message, "finish_reason": None}
    yield {**base, "choices": [chunk]}
    yield {**base, "choices": [{**chunk, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**base, "choices": [], "usage": answer["usage"]}


def _responses_events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    number = 0

    def event(kind: str, **more: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number, **more}

    started = {**answer, "output": [], "status": "in_progress", "usage": None}
    yield event("response.created", response=started)
    for at, item in enumerate(answer["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        if item["type"] == "function_call":
            bare = {**item, "arguments": "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=at, item=bare)
            text = item["arguments"]
            yield event("response.function_call_arguments.delta", **place, delta=text)
            yield event("response.function_call_arguments.done", **place, arguments=text)
        elif item["type"] == "message":
            bare = {**item, "content": [], "status": "in_progress"}
            yield event("response.output_item.added", output_index=at, item=bare)
            part, place = item["content"][0], {**place, "content_index": 0}
            yield event("response.content_part.added", **place, part={**part, "text": ""})
            yield event("response.output_text.delta", **place, delta=FINAL, logprobs=[])
            yield event("response.output_text.done", **place, text=FINAL, logprobs=[])
            yield event("response.content_part.done", **place, part=part)
        else:
            yield event("response.output_item.added", output_index=at, item=item)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=answer)
