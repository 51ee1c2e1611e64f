"""A scripted model server on loopback: it answers in four wires, and keeps what it was sent."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

from tests.support import event_stream

MODEL_TIME = 0.15  # seconds that an answer takes, so that the times of two requests differ

Event = dict[str, Any]
_AGENT_ID = re.compile(r'agent_id\\*": ?\\*"([0-9a-f-]{36})')  # as Codex names a sub-agent


@dataclass(frozen=True)
class Answer:
    """Response of the model to one request."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()  # tool (space.tool) and arguments
    thought: str = ""


@dataclass(frozen=True)
class Usage:
    """The tokens of one request, in the terms of `respool.sessions.session.Usage`."""

    input: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    output: int

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write


@dataclass
class Received:
    """One request as it came, and how it was answered."""

    conversation: str
    path: str
    came: float
    body: dict[str, Any]
    number: int
    usage: Usage
    answered: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""  # the body, without its encoding


Script = dict[str, list[Answer]]


@dataclass
class Upstream:
    """The server: each conversation has its answers in order; what has none is told "Fine."."""

    script: Script
    conversation: Callable[[dict[str, Any]], str]
    received: list[Received] = field(default_factory=list)
    counted: list[dict[str, Any]] = field(default_factory=list)  # bodies that were only counted
    tls: dict[str, ssl.SSLContext] = field(default_factory=dict)  # hosts that it is taken for
    refused: list[str] = field(default_factory=list)  # other hosts that were asked for
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, path: str, body: dict[str, Any]) -> tuple[Received, Answer]:
        """Keeps a request, and finds its answer."""
        with self._lock:
            name = self.conversation(body)
            before = sum(one.conversation == name for one in self.received)
            answers = self.script.get(name, [])
            answer = answers[before] if before < len(answers) else Answer("Fine.")
            answer = _addressed(answer, body)
            number = len(self.received)
            large = name in ("main", "sub")
            taken = Received(name, path, time.time(), body, number, _usage(number, large))
            self.received.append(taken)
        return taken, answer

    def serve(self) -> ThreadingHTTPServer:
        """A server in a thread of its own, on a port that is free."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def _addressed(answer: Answer, body: dict[str, Any]) -> Answer:
    """The answer with the id of the sub-agent, which only the request knows."""
    found = _AGENT_ID.search(json.dumps(body))
    if found is None:
        return answer
    calls = json.loads(json.dumps(answer.calls).replace("AGENT-ID", found[1]))
    return replace(answer, calls=tuple((name, given) for name, given in calls))


def _usage(number: int, large: bool) -> Usage:
    """No two requests have a number in common; after a compaction they are small."""
    read = 2000 + 100 * number if large else 700 + 10 * number
    return Usage(11 + number, read, 300 + number, 30 + number, 40 + 3 * number)


class _Tunnel(BaseHTTPRequestHandler):
    """A company's proxy, but the host at the other end is this server."""

    upstream: Upstream

    def do_CONNECT(self) -> None:
        host = self.path.rpartition(":")[0]
        context = self.upstream.tls.get(host)
        if context is None:
            self.upstream.refused.append(host)
            self.send_error(403)
            return
        self.send_response(200)
        self.end_headers()
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()


def _handler(of: Upstream) -> type[BaseHTTPRequestHandler]:
    class Handler(_Tunnel):
        upstream = of
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._send(b"", "application/json")

        def do_GET(self) -> None:
            # Codex asks for a WebSocket first, and goes on without when it is told so.
            socket = self.headers.get("Upgrade", "").lower() == "websocket"
            models = {"object": "list", "data": [], "models": []}
            self._send(_json(models), "application/json", 426 if socket else 200)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            raw = _plain(raw, self.headers.get("Content-Encoding")) or b"{}"
            body = json.loads(raw)
            wire = next((wire for mark, wire in WIRES if mark in self.path), None)
            if "count_tokens" in self.path.lower() or "counttokens" in self.path.lower():
                of.counted.append(body)
                self._send(_json({"input_tokens": 7, "totalTokens": 7}), "application/json")
            elif wire is None:
                self._send(_json({"error": {"message": "no such path"}}), "application/json", 404)
            else:
                self._answer(raw, body, wire)

        def _answer(self, raw: bytes, body: dict[str, Any], wire: Wire) -> None:
            taken, answer = of.take(self.path, body)
            taken.raw = raw
            taken.headers = {name.lower(): value for name, value in self.headers.items()}
            time.sleep(MODEL_TIME)
            taken.answered = time.time()
            self._send(*_response_to(self.path, body, wire, (answer, taken)))

        def _send(self, body: bytes, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _plain(raw: bytes, encoding: str | None) -> bytes:
    """A body without its encoding: Codex has one, with ChatGPT's login."""
    return zstandard.ZstdDecompressor().decompressobj().decompress(raw) if encoding else raw


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _data(event: Any, *, named: bool = False) -> str:
    name = f"event: {event['type']}\n" if named else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def _response_to(
    path: str, body: dict[str, Any], wire: Wire, said: tuple[Answer, Received]
) -> tuple[bytes, str]:
    """A response, whole or streamed as the request asks, and its type."""
    if path.endswith("-with-response-stream"):
        return b"".join(map(_framed, wire(*said))), event_stream.TYPE
    if body.get("stream") or ":stream" in path:
        return "".join(wire(*said)).encode(), "text/event-stream"
    return _json(WHOLE[wire](*said)), "application/json"


def _framed(event: str) -> bytes:
    """A server-sent event, as Bedrock sends it."""
    return event_stream.event(json.loads(event.partition("data: ")[2]))


def _call_id(taken: Received, at: int, prefix: str) -> str:
    return f"{prefix}maze{taken.number:02}{at}"


# Anthropic Messages


def anthropic(answer: Answer, taken: Received) -> Iterator[str]:
    """The events of an answer over the Messages API."""
    message = _anthropic_message(answer, taken)
    blocks, usage = message["content"], message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _data({"type": "message_start", "message": start}, named=True)
    for at, block in enumerate(blocks):
        empty, deltas = _anthropic_deltas(block)
        begin = {"type": "content_block_start", "index": at, "content_block": empty}
        yield _data(begin, named=True)
        for delta in deltas:
            piece = {"type": "content_block_delta", "index": at, "delta": delta}
            yield _data(piece, named=True)
        yield _data({"type": "content_block_stop", "index": at}, named=True)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _data({"type": "message_delta", "delta": stop, "usage": usage}, named=True)
    yield _data({"type": "message_stop"}, named=True)


def _anthropic_deltas(block: Event) -> tuple[Event, list[Event]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [thought, signed]
        case _:
            given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            return {**block, "input": {}}, [given]


def _anthropic_message(answer: Answer, taken: Received) -> Event:
    blocks: list[Event] = []
    if answer.thought:
        sealed = {"signature": f"c2lnbmVk{taken.number:04}"}
        blocks.append({"type": "thinking", "thinking": answer.thought, **sealed})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for at, (name, given) in enumerate(answer.calls):
        id = _call_id(taken, at, "toolu_")
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": given})
    return {
        "id": f"msg_maze{taken.number:02}",
        "type": "message",
        "role": "assistant",
        "model": taken.body.get("model", "claude-sonnet-4-5"),
        "content": blocks,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": _anthropic_usage(taken.usage),
    }


def _anthropic_usage(usage: Usage) -> Event:
    hour = usage.cache_write_1h
    lifetimes = {
        "ephemeral_5m_input_tokens": usage.cache_write - hour,
        "ephemeral_1h_input_tokens": hour,
    }
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": lifetimes,
        "output_tokens": usage.output,
    }


# OpenAI Chat Completions


def chat(answer: Answer, taken: Received) -> Iterator[str]:
    """The events of an answer over Chat Completions."""
    message = _chat_message(answer, taken)
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
    deltas: list[Event] = [{"role": "assistant", "content": ""}]
    if answer.text:
        deltas.append({"content": answer.text})
    deltas += [{"tool_calls": [call]} for call in calls]
    for delta in deltas:
        yield _data(_chunk(taken, [{"index": 0, "delta": delta, "finish_reason": None}]))
    end = "tool_calls" if calls else "stop"
    yield _data(_chunk(taken, [{"index": 0, "delta": {}, "finish_reason": end}]))
    yield _data({**_chunk(taken, []), "usage": _chat_usage(taken.usage)})
    yield "data: [DONE]\n\n"


def _chunk(taken: Received, choices: list[Event]) -> Event:
    about = {"id": f"chatcmpl-maze{taken.number:02}", "object": "chat.completion.chunk"}
    model = taken.body.get("model", "gpt-5")
    return {**about, "created": int(taken.came), "model": model, "choices": choices}


def _chat_message(answer: Answer, taken: Received) -> Event:
    message: Event = {"role": "assistant", "content": answer.text or None}
    calls = [
        {
            "id": _call_id(taken, at, "call_"),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for at, (name, given) in enumerate(answer.calls)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _chat_usage(usage: Usage) -> Event:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def _chat_whole(answer: Answer, taken: Received) -> Event:
    end = "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": _chat_message(answer, taken), "finish_reason": end}
    whole = {**_chunk(taken, [choice]), "object": "chat.completion"}
    return {**whole, "usage": _chat_usage(taken.usage)}


# OpenAI Responses


def responses(answer: Answer, taken: Received) -> Iterator[str]:
    """The events of an answer over the Responses API."""
    whole = _response(answer, taken)
    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    number = iter(range(1000))

    def event(kind: str, **more: Any) -> str:
        return _data({"type": kind, "sequence_number": next(number), **more}, named=True)

    yield event("response.created", response=started)
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        yield event("response.output_item.added", output_index=at, item=_empty(item))
        if item["type"] == "message":
            part = item["content"][0]
            place["content_index"] = 0
            yield event("response.content_part.added", **place, part={**part, "text": ""})
            yield event("response.output_text.delta", **place, delta=part["text"], logprobs=[])
            yield event("response.output_text.done", **place, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **place, part=part)
        elif item["type"] == "function_call":
            given = item["arguments"]
            yield event("response.function_call_arguments.delta", **place, delta=given)
            yield event("response.function_call_arguments.done", **place, arguments=given)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=whole)


def _empty(item: Event) -> Event:
    started = {**item, "status": "in_progress"}
    match item["type"]:
        case "message":
            return {**started, "content": []}
        case "function_call":
            return {**started, "arguments": ""}
        case _:
            return {**item, "summary": []}


def _response(answer: Answer, taken: Received) -> Event:
    output: list[Event] = []
    tag = f"maze{taken.number:02}"
    if answer.thought:
        summary = [{"type": "summary_text", "text": answer.thought}]
        sealed = {"encrypted_content": f"c2VhbGVk{taken.number:04}"}
        output.append({"type": "reasoning", "id": f"rs_{tag}", "summary": summary, **sealed})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        said = {"role": "assistant", "status": "completed", "content": [part]}
        output.append({"type": "message", "id": f"msg_{tag}", **said})
    for at, (name, given) in enumerate(answer.calls):
        space, _, tool = name.rpartition(".")
        call = {"call_id": _call_id(taken, at, "call_"), "name": tool, "status": "completed"}
        known = {"type": "function_call", "id": f"fc_{tag}{at}", **call}
        if space:
            known["namespace"] = space
        output.append({**known, "arguments": json.dumps(given)})
    return {
        "id": f"resp_{tag}",
        "object": "response",
        "created_at": int(taken.came),
        "status": "completed",
        "model": taken.body.get("model", "gpt-5"),
        "output": output,
        "parallel_tool_calls": True,
        "usage": _responses_usage(taken.usage),
    }


def _responses_usage(usage: Usage) -> Event:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.output,
    }


# Gemini


def gemini(answer: Answer, taken: Received) -> Iterator[str]:
    """The events of an answer over generateContent."""
    whole = _generated(answer, taken)
    parts = whole["candidates"][0]["content"]["parts"]
    for part in parts[:-1]:
        content = {"role": "model", "parts": [part]}
        yield _data({**whole, "candidates": [{"index": 0, "content": content}]})
    last = {"role": "model", "parts": parts[-1:]}
    yield _data({**whole, "candidates": [{**whole["candidates"][0], "content": last}]})


def _generated(answer: Answer, taken: Received) -> Event:
    parts: list[Event] = []
    if answer.thought:
        parts.append({"text": answer.thought, "thought": True})
    if answer.text:
        parts.append({"text": answer.text})
    for at, (name, given) in enumerate(answer.calls):
        signed = {} if at else {"thoughtSignature": f"c2lnbmVk{taken.number:04}"}
        call = {"id": _call_id(taken, at, "call_"), "name": name, "args": given}
        parts.append({"functionCall": call, **signed})
    usage = taken.usage
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "modelVersion": "gemini-2.5-pro",
        "responseId": f"maze{taken.number:02}",
        "usageMetadata": {
            "promptTokenCount": usage.prompt,
            "cachedContentTokenCount": usage.cache_read,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.prompt + usage.output,
        },
    }


Wire = Callable[[Answer, Received], Iterator[str]]
WIRES: tuple[tuple[str, Wire], ...] = (
    ("/chat/completions", chat),
    ("/responses", responses),
    ("enerateContent", gemini),
    ("/messages", anthropic),
    ("/invoke", anthropic),  # Bedrock's
    ("awPredict", anthropic),  # Vertex's
)
WHOLE: dict[Wire, Callable[[Answer, Received], Event]] = {
    anthropic: _anthropic_message,
    chat: _chat_whole,
    responses: _response,
    gemini: _generated,
}
