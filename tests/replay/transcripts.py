"""Small transcripts of several agents, written as the agents write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.laws.sessions import long_session

START = datetime(2026, 10, 1, 12, tzinfo=UTC)


def claude_code(
    path: Path, exchanges: int = 4, *, id: str = "one", result: int = 300, start: datetime = START
) -> Path:
    """A transcript of Claude Code: each of its messages a record, ten seconds apart."""
    messages = long_session("anthropic", exchanges, result)["messages"]
    records = [
        {
            "type": message["role"],
            "sessionId": id,
            "uuid": f"{id}-{at}",
            "parentUuid": f"{id}-{at - 1}" if at else None,
            "isSidechain": False,
            "timestamp": _stamp(start, at),
            "message": _answered(message, f"msg_{id}_{at}"),
        }
        for at, message in enumerate(messages)
    ]
    return _lines(path, records)


def _answered(message: dict[str, Any], id: str) -> dict[str, Any]:
    if message["role"] != "assistant":
        return message
    return {**message, "id": id, "type": "message", "model": "claude-sonnet-4-5"}


def codex(path: Path, exchanges: int = 4, *, id: str = "two", start: datetime = START) -> Path:
    """A rollout of Codex."""
    head = [
        {"type": "session_meta", "payload": {"id": id, "timestamp": _stamp(start, 0)}},
        {"type": "turn_context", "payload": {"model": "gpt-5.1"}},
    ]
    items = long_session("openai-responses", exchanges)["input"]
    records = [*head, *({"type": "response_item", "payload": item} for item in items)]
    return _lines(
        path, [{"timestamp": _stamp(start, at), **record} for at, record in enumerate(records)]
    )


def collection(path: Path, sizes: Sequence[int]) -> Path:
    """Many sessions in one packed file, a line each."""
    lines = [
        {
            "id": f"s{at}",
            "format": "openai-chat",
            "messages": long_session("openai-chat", size, seed=at)["messages"],
        }
        for at, size in enumerate(sizes)
    ]
    path.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))
    return path


def requests(path: Path, bodies: Sequence[dict[str, Any]]) -> Path:
    """A log of requests."""
    return _lines(path, bodies)


def _stamp(start: datetime, at: int) -> str:
    return (start + timedelta(seconds=10 * at)).isoformat().replace("+00:00", "Z")


def _lines(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    return path
