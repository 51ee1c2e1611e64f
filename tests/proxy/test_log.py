"""Lines printed aside: in their order, to whoever reads them, and nobody waits for who does not."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.proxy.log import (
    CompactionSummary,
    LineWriter,
    LogEntry,
    LogFormat,
    log_to,
    log_warnings_to,
    text_line,
)
from tests.proxy.compaction import request_body
from tests.proxy.program import Client, events, provider
from tests.proxy.test_server import SOURCE, served
from tests.store.support import bytes_of

SOON = 10.0
PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python 3.11 does not name everywhere
LINE = "x" * 200


class Pipe:
    """A pipe that holds little; each end is closed once."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writing, PIPE_SIZE, 4096)
        self.reading = open(reading, "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor
        self.writing = open(writing, "wb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor


@contextlib.contextmanager
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    with made.reading, made.writing:
        yield made


@pytest.mark.parametrize("blocking", [True, False])
def test_lines_come_whole_and_in_their_order(blocking: bool):
    with pipe() as made:
        os.set_blocking(made.writing.fileno(), blocking)
        printer, got = LineWriter(made.writing.fileno()), list[bytes]()
        taking = threading.Thread(target=lambda: got.append(made.reading.readall()))
        threads = [
            threading.Thread(
                target=lambda name=name: [printer.write(f"{name} {n} {LINE}") for n in range(100)]
            )
            for name in "abc"
        ]
        for thread in (*threads, taking):
            thread.start()
        for thread in threads:
            thread.join()
        printer.close(SOON)
        made.writing.close()
        taking.join(SOON)
    lines = got[0].decode().splitlines()
    assert len(lines) == 300
    for name in "abc":
        assert [one for one in lines if one[0] == name] == [
            f"{name} {n} {LINE}" for n in range(100)
        ]


def test_nobody_waits_where_nobody_reads_and_what_is_left_out_is_counted():
    with pipe() as made:
        printer = LineWriter(made.writing.fileno(), max_waiting=50)
        begun = time.monotonic()
        for number in range(2_000):
            printer.write(f"{number} {LINE}")
        printer.close(0.2)
        assert time.monotonic() - begun < SOON / 2
        found: list[str] = []
        while sum(map(told_of, found)) < 2_000:
            found += made.reading.read(1 << 16).decode().splitlines()
            found = rejoined(found)
    numbers = [int(line.split()[0]) for line in found if not line.startswith("{")]
    assert numbers == sorted(numbers)
    left_out = json.loads(found[-1])
    assert left_out["level"] == "warning"
    assert len(numbers) + told_of(found[-1]) == 2_000


def told_of(line: str) -> int:
    """Number of lines that one line stands for; 0 for half a line."""
    if line.startswith("{"):
        return int(re.findall(r"([\d,]+) lines", line)[0].replace(",", ""))
    return int(line.endswith(LINE))


def rejoined(lines: list[str]) -> list[str]:
    """Lines that were read in two pieces, put together."""
    made: list[str] = []
    for line in lines:
        whole = not made or made[-1].startswith("{") or made[-1].endswith(LINE)
        made[-1:] = [*made[-1:], line] if whole else [made[-1] + line]
    return made


def entry(**given: Any) -> LogEntry:
    about: dict[str, Any] = {"time": 0.0, "method": "POST", "path": "/v1/messages"}
    return LogEntry(
        **{**about, "outcome": "complete", "status": 200, "duration_ms": 9_120, **given}
    )


def done(**given: Any) -> CompactionSummary:
    about: dict[str, Any] = {"sent": "projection", "model": "claude-x", "conversation": "5f0c" * 8}
    return CompactionSummary(**{**about, "tokens_before": 200_000, "tokens_saved": 50_000, **given})


SAVED, NAMED = "200,000 tokens, 25 % saved", "conversation 5f0c5f0c"
# an entry, and its line without the time
LINES: dict[str, tuple[LogEntry, str]] = {
    "compacted": (
        entry(compaction=done(new_edits=3)),
        "claude-x; 200; 200,000 tokens, 25 % saved; 3 new edits; 9.1 s; conversation 5f0c5f0c",
    ),
    "observed": (
        entry(compaction=done(sent="observed")),
        "claude-x; 200; 200,000 tokens, 25 % would be saved; 9.1 s; conversation 5f0c5f0c",
    ),
    "late": (
        entry(compaction=done(sent="known-edits", fallback="late", why="over 3 s")),
        f"claude-x; 200; {SAVED}; sent with the edits in force (late: over 3 s); 9.1 s; {NAMED}",
    ),
    "passed through": (
        entry(compaction=CompactionSummary(sent="untouched", fallback="passed-through", why="X.")),
        "POST /v1/messages; 200; sent as it came (passed through: X); 9.1 s",
    ),
    "no answer": (
        entry(outcome="unreachable", status=502, note="127.0.0.1:9: connection refused"),
        "POST /v1/messages; 502 no answer; 127.0.0.1:9: connection refused; 9.1 s",
    ),
    "count": (
        entry(compaction=CompactionSummary(model="m", operation="count")),
        "count for m; 200; 9.1 s",
    ),
    "a hostile name": (
        entry(compaction=CompactionSummary(model="m\x1b[2J\n\u202e")),
        "m\\u001b[2J\\u000a\\u202e; 200; 9.1 s",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_a_line_for_a_person(case: str):
    one, line = LINES[case]
    clock, _, said = text_line(one).partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", clock)
    assert said == line


@pytest.mark.parametrize("format", ["json", "text"])
def test_polling_is_not_logged_and_warnings_are_in_the_same_format(
    format: LogFormat, tmp_path: Path
):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    path = tmp_path / "log"
    try:
        with path.open("wb") as file:
            writer = LineWriter(file.fileno(), token="the-token", format=format)
            log = log_to(writer)
            for method, url in (
                ("GET", "/healthz"),
                ("GET", "/respool/api/overview"),
                ("HEAD", "/"),
            ):
                log(entry(method=method, path=url, outcome="own_page"))
            log(entry(method="POST", path="/respool/api/pause", outcome="own_page"))
            log(entry(method="GET", path="/healthz", outcome="own_page", note="failed: ValueError"))
            log(entry(note="the-token"))
            log_warnings_to(writer)
            try:
                raise ValueError("quotes a request")
            except ValueError:
                logging.getLogger("x").exception("It failed")
            writer.close(SOON)
    finally:
        root.handlers[:], root.level = before, level
    lines = path.read_text("utf-8").splitlines()
    assert "the-token" not in "".join(lines)
    assert "quotes a request" not in "".join(lines)
    if format == "json":
        found = [json.loads(line) for line in lines]
        assert [one.get("path") for one in found[:3]] == [
            "/respool/api/pause", "/healthz", "/v1/messages",
        ]  # fmt: skip
        assert (found[3]["message"], found[3]["error"]) == ("It failed", "ValueError")
    else:
        assert [line.partition(" ")[2].split(";")[0] for line in lines[:3]] == [
            "POST /respool/api/pause", "GET /healthz", "POST /v1/messages",
        ]  # fmt: skip
        assert " error: It failed (ValueError at " in lines[3]


def test_one_whose_reader_has_gone_harms_nobody():
    with pipe() as made:
        made.reading.close()
        printer = LineWriter(made.writing.fileno())
        for _ in range(100):
            printer.write(LINE)
        printer.close(SOON)


def test_a_closed_standard_error_is_written_to_by_nobody(tmp_path: Path):
    """Whatever file or connection has its number now would get the lines."""
    store = tmp_path / "respool.db"
    with provider() as behind:
        upstream = ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}")
        words = ("-m", "respool", "serve", "--port", "0", *upstream)
        command = ["sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, *words]
        world = {**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(store)}
        with subprocess.Popen(command, env=world, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert found
            client = Client(int(found[1]))
            for steps in (1, 2, 3):
                status, answered = client.post(request_body("anthropic", steps))
                assert (status, answered) == (200, b"".join(events()))
            process.terminate()
            assert process.wait(SOON) == 0
    assert b'"outcome":"complete"' not in bytes_of(store)


def test_a_proxy_whose_log_nobody_reads_goes_on_and_ends_when_told(tmp_path: Path):
    with provider() as behind:
        options = ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}")
        store = str(tmp_path / "respool.db")
        with served(*options, RESPOOL_STORE=store) as (process, port):
            assert process.stderr is not None
            with contextlib.suppress(OSError):
                fcntl.fcntl(process.stderr.fileno(), PIPE_SIZE, 4096)
            client = Client(port)
            for _ in range(30):  # four times what fits
                assert client.post(request_body("anthropic", 1))[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON) == 0
