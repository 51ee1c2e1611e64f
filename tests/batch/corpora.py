"""Small corpora: request logs with growing histories, and records that cannot be compacted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from respool.policy import Policy
from tests.laws.sessions import long_session

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
POLICY = Policy(budget=5_000)

# Lines that are set aside, each with the beginning of its reason.
BAD = {
    b"{not json": "The JSON is malformed",
    b'{"id": 1}': "This is no chat request",
    b'{"messages": 3}': "",
    b"17": "",
    b'{"messages": [], "respool_tokens_before": 1}': "it has a field respool_tokens_before already",
    b"[" * 100_000: "",
    b'{"messages": [{"role": "user", "content": "\xff"}]}': "",
}


def requests(format: str = "anthropic", exchanges: int = 12) -> Iterator[dict[str, Any]]:
    """The requests of one session, each with more of its history."""
    whole = long_session(format, exchanges, 3_000)
    field = next(name for name in ("messages", "input", "contents") if name in whole)
    for cut in range(2, len(whole[field]) + 1, 2):
        yield {**whole, field: whole[field][:cut]}


def lines(*formats: str, exchanges: int = 12) -> list[bytes]:
    """Requests of a session in each format, taking turns."""
    sessions = [list(requests(one, exchanges)) for one in formats or FORMATS]
    count = max(map(len, sessions))
    return [
        json.dumps(session[at], ensure_ascii=False).encode()
        for at in range(count)
        for session in sessions
        if at < len(session)
    ]


def write_lines(path: Path, found: list[bytes]) -> Path:
    """A file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in found))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def records(folder: Path) -> list[bytes]:
    """The lines of all shards, in order."""
    shards = sorted(folder.glob("part-*.jsonl"))
    return [line for shard in shards for line in shard.read_bytes().splitlines()]


def rejects(folder: Path) -> list[dict[str, Any]]:
    """What was set aside, in order."""
    files = sorted((folder / "rejected").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
