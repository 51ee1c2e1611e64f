"""Lines printed aside: in their order, to whoever reads them, and nobody waits for who does not."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.proxy.log import LineWriter
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
