"""Throughput, growth and memory of batch jobs, on request logs made from recorded sessions.

    python -m bench.batch make FOLDER [--corpus CORPUS] [--gigabytes 10]
    python -m bench.batch compact FOLDER OUT [--runs local:1,local:2] [--kill]
    python -m bench.batch replay FOLDER OUT [--runs local:1,local:2]

`make` writes `requests/` (every request of every session, eight sessions taking turns, until there
are so many bytes; sessions come again with another first message) and `sessions/` (a tenth of the
bytes, under other ids). `compact` and `replay` run the command once for each engine and number of
processes, and print a row of a table each: CPU time is that of all processes, memory that of the
largest one. Every run's output is compared with the first one's. `--kill` kills a run with -9 in
its middle, and starts it again.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession
from respool.wire.base import known_formats

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
FILE_BYTES = 500_000_000
TURNS = 8  # sessions that take turns in a log
SESSIONS_SHARE = 0.1


# --- the input ---------------------------------------------------------------------------------


def make(folder: Path, corpus: Path, size: int) -> None:
    """Write request logs and collections of sessions."""
    files = sorted(corpus.glob("*.jsonl.gz"))
    _write(folder / "requests", _request_logs(files), size)
    _write(folder / "sessions", _session_lines(files), int(size * SESSIONS_SHARE))


def _write(folder: Path, lines: Iterator[bytes], size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for number in count():
        with (folder / f"{number:03}.jsonl").open("wb") as stream:
            while stream.tell() < FILE_BYTES and written + stream.tell() < size:
                stream.write(next(lines))
            written += stream.tell()
        if written >= size:
            return


def _request_logs(files: Sequence[Path]) -> Iterator[bytes]:
    """The requests of sessions, so many of them taking turns."""
    sessions = (_requests(session, copy) for copy, session in _sessions(files))
    taking_turns = list(islice(sessions, TURNS))
    while taking_turns:
        for at, requests in enumerate(taking_turns):
            line = next(requests, None)
            if line is None:
                taking_turns[at] = next(sessions)
            else:
                yield line


def _sessions(files: Sequence[Path]) -> Iterator[tuple[int, RecordedSession]]:
    for copy in count():
        for file in files:
            for session in read_file(file, READERS):
                if isinstance(session, RecordedSession):
                    yield copy, session


def _requests(session: RecordedSession, copy: int) -> Iterator[bytes]:
    field = known_formats()[session.format].history_field
    first: Any = session.messages[0]
    if copy:
        first = {**first, "content": f"({copy}) {first.get('content')}"}
    messages = [_encode(one) for one in (first, *session.messages[1:])]
    for sent in session.requests:
        model = json.dumps(sent.model or "claude-sonnet-4-5")
        history = b",".join(messages[: sent.cut])
        yield b'{"model":%b,"%b":[%b]}\n' % (model.encode(), field.encode(), history)


def _encode(message: object) -> bytes:
    try:
        return msgspec.json.encode(message)
    except ValueError:  # a lone surrogate
        return json.dumps(message).encode()


def _session_lines(files: Sequence[Path]) -> Iterator[bytes]:
    """The corpus's own lines, under other ids from the second time on."""
    for copy in count():
        for file in files:
            with gzip.open(file) as lines:
                for line in lines:
                    if not copy:
                        yield line
                        continue
                    session = msgspec.json.decode(line)
                    yield _encode({**session, "id": f"{session.get('id')}-{copy}"}) + b"\n"


# --- the runs ----------------------------------------------------------------------------------


class Run(NamedTuple):
    """One run's cost."""

    seconds: float
    cpu: float
    peak: int  # bytes
    status: int


def run_command(
    words: Sequence[str],
    kill_after: float | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
) -> Run:
    """Run respool, and measure it and all that it starts."""
    env = {**os.environ, "RESPOOL_STORE": os.devnull + "/none"}
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "respool", *words], env=env, stdout=output)
    if kill_after is not None:
        time.sleep(kill_after)
        process.send_signal(signal.SIGKILL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, process.returncode)


def hash_folder(folder: Path) -> str:
    """A hash of all files of a folder and their names."""
    found = hashlib.sha256()
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        found.update(f"{file.relative_to(folder)} {digest}\n".encode())
    return found.hexdigest()[:16]


def hash_replay(file: Path) -> str:
    """A hash of a replay's figures, times left out."""
    found = json.loads(file.read_bytes())
    del found["made"]
    for total in found["totals"]:
        del total["ms"], total["worst_ms"]
    for session in found["sessions"]:
        for score in session["scores"]:
            del score["seconds"], score["worst"]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def size_of(folder: Path) -> int:
    """The bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def show(name: str, size: int, run: Run, digest: str) -> None:
    """Print a row."""
    share = run.cpu / run.seconds
    print(
        f"| {name} | {run.seconds:,.0f} s | {run.cpu:,.0f} s | {size / run.seconds / 1e6:.1f} MB/s "
        f"| {size / run.cpu / 1e6:.1f} MB/s | {share:.2f} | {run.peak / 1e6:,.0f} MB | {digest} |",
        flush=True,
    )


def show_head(size: int) -> None:
    """Print the head of the table."""
    print(f"{size / 1e9:.2f} GB\n")
    print("| engine | time | CPU | by time | a CPU second | cores | largest process | output |")
    print("|---|---|---|---|---|---|---|---|", flush=True)


def compact(folder: Path, out: Path, runs: Sequence[str], *, kill: bool) -> None:
    """Compact the request logs once for each engine."""
    source, digests = folder / "requests", set[str]()
    size = size_of(source)
    show_head(size)
    for name in runs:
        run = run_command(_compact_words(source, out, name))
        assert run.status == 0, run.status
        digests.add(digest := hash_folder(out))
        show(name, size, run, digest)
        shutil.rmtree(out)
        if kill and name == runs[-1]:
            killed = run_command(_compact_words(source, out, name), run.seconds / 2)
            done = len(list((out / "manifest").glob("*.json")))
            show(f"{name}, killed", size, killed, f"{done} shards")
            again = run_command(_compact_words(source, out, name))
            digests.add(digest := hash_folder(out))
            show(f"{name}, started again", size, again, digest)
            shutil.rmtree(out)
    print("every output is the same" if len(digests) == 1 else "OUTPUTS DIFFER")


def _compact_words(source: Path, out: Path, name: str) -> list[str]:
    engine, jobs = name.split(":")
    words = ["compact", "--batch", str(source), "-o", str(out), "--quiet"]
    return [*words, "--engine", engine, "--jobs", jobs]


def replay(folder: Path, out: Path, runs: Sequence[str]) -> None:
    """Replay the sessions once for each engine."""
    source, digests = folder / "sessions", set[str]()
    size = size_of(source)
    show_head(size)
    for name in runs:
        engine, jobs = name.split(":")
        words = ["replay", "--json", "--quiet", "--engine", engine, "--jobs", jobs, str(source)]
        with out.open("wb") as stream:
            run = run_command(words, output=stream)
        assert run.status == 0, run.status
        digests.add(digest := hash_replay(out))
        show(name, size, run, digest)
    print("every output is the same" if len(digests) == 1 else "OUTPUTS DIFFER")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("make", "compact", "replay"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--runs", default="local:1,local:2")
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    runs = given.runs.split(",")
    if given.what == "make":
        make(given.folder, given.corpus, int(given.gigabytes * 1e9))
    elif given.what == "compact":
        compact(given.folder, given.out, runs, kill=given.kill)
    else:
        replay(given.folder, given.out, runs)


if __name__ == "__main__":
    main()
