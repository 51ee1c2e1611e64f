"""Time that `respool hook` takes per call, over a bare `true`, while a transcript grows.

    python -m bench.hook SESSIONS [--preset lean] [--calls 200]

SESSIONS is a collection of recorded sessions of Claude Code, as `make corpus` reads them. The
longest one is written record by record, as Claude Code would, and the hook is run for each result,
with a `true` and a bare interpreter beside each. The resident process is started before.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from respool.hooks.hook_command import hook_words


def main() -> None:
    """Print the times of the calls of one session."""
    parser = argparse.ArgumentParser(description="Time respool hook.")
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--preset", default="safe")
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    records = longest(given.sessions)
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        measure(records, Path(folder), given.preset, given.calls)


def longest(path: Path) -> list[Any]:
    """The records of the session with the most text in results."""
    with gzip.open(path, "rt") as lines:
        sessions = (json.loads(line) for line in lines)
        best = max(sessions, key=lambda one: one["stats"]["res_chars"])
    print(f"{best['id']}: {best['stats']}")
    return best["messages"]


def measure(records: list[Any], folder: Path, preset: str, most: int) -> None:
    """Run the hook for each result; the transcript in front of the last ones is long."""
    path = folder / "s.jsonl"
    world = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    world |= {"RESPOOL_STORE": str(folder / "respool.db"), "RESPOOL_PRESET": preset}
    events = list(_events(records, path))
    first = max(0, len(events) - most)
    times: dict[str, list[float]] = {"hook": [], "true": [], "python": []}
    python = [*hook_words("claude")[:3], "-c", "pass"]
    shaped, written = 0, 0
    _time(hook_words("claude"), b"{}", world)  # which starts the resident process
    with path.open("a") as transcript:
        for number, (at, event) in enumerate(events):
            transcript.writelines(f"{json.dumps(one)}\n" for one in records[written:at])
            transcript.flush()
            written = at
            if number < first:
                continue
            took, answer = _time(hook_words("claude"), json.dumps(event).encode(), world)
            times["hook"].append(took)
            times["true"].append(_time(["true"], b"", world)[0])
            times["python"].append(_time(python, b"", world)[0])
            shaped += bool(answer)
            _keep(records[at], answer)
    size = path.stat().st_size
    print(f"{len(times['hook'])} calls, {shaped} shaped; {size:,} bytes of transcript at the end")
    for name, took in times.items():
        parts = statistics.quantiles(took, n=20)
        print(f"{name}: p50 {parts[9]:.1f} ms, p95 {parts[-1]:.1f} ms")
    for name in ("true", "python"):
        pairs = zip(times["hook"], times[name], strict=True)
        over = statistics.quantiles([one - other for one, other in pairs], n=20)
        print(f"hook over {name}: p50 {over[9]:.1f} ms, p95 {over[-1]:.1f} ms")
    for socket in (folder / "respool").glob("hook-*"):
        socket.unlink()  # so that the resident process ends


def _events(records: list[Any], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The hook's events in a session, each with the number of its result's record."""
    calls: dict[str, Any] = {}
    for at, record in enumerate(records):
        content = (record.get("message") or {}).get("content")
        for block in content if isinstance(content, list) and not record.get("isSidechain") else ():
            if block.get("type") == "tool_use":
                calls[block["id"]] = block
            elif block.get("type") == "tool_result" and isinstance(block.get("content"), str):
                call = calls.get(block["tool_use_id"])
                if call is not None and not block.get("is_error"):
                    yield at, _event(call, block["content"], path)


def _event(call: Any, text: str, path: Path) -> dict[str, Any]:
    about = {"hook_event_name": "PostToolUse", "session_id": "s", "transcript_path": str(path)}
    asked = {"tool_name": call["name"], "tool_input": call["input"], "tool_use_id": call["id"]}
    output: Any = text if call["name"] != "Bash" else {"stdout": text, "stderr": ""}
    return {**about, **asked, "tool_response": output}


def _keep(record: Any, answer: bytes) -> None:
    """Write the shaped text into the record, as the agent would."""
    if not answer:
        return
    output = json.loads(answer)["hookSpecificOutput"]["updatedToolOutput"]
    text = output if isinstance(output, str) else output["stdout"]
    for block in record["message"]["content"]:
        if block.get("type") == "tool_result":
            block["content"] = text


def _time(words: list[str], data: bytes, world: dict[str, str]) -> tuple[float, bytes]:
    began = time.perf_counter()
    done = subprocess.run(words, input=data, env=world, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1_000, done.stdout


if __name__ == "__main__":
    main()
