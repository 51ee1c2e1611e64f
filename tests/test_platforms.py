"""Differences of Windows, macOS and older SQLite, as far as one machine can show them.

Each test takes away what a platform lacks, or has it answer as that platform does.
"""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from respool.proxy.server import bind
from respool.proxy.server_options import ServerOptions
from respool.store import RequestRecord, SQLiteStore, database
from tests.cli.test_run import SOURCE, ended, in_terminal, shown

run: Any = importlib.import_module("respool.cli.run")  # the module, not its command of that name
serve: Any = importlib.import_module("respool.cli.serve")

# What Windows has of signals and terminals; a process there can be sent no Ctrl-C by another.
WINDOWS = """
import os, signal, subprocess, sys
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "pthread_sigmask",
             "sigtimedwait", "sigpending", "sigwait"):
    delattr(signal, name)
for name in ("O_NOCTTY", "tcgetpgrp", "getpgrp"):
    delattr(os, name)
def send_signal(process, number):
    raise ValueError(f"Unsupported signal: {number}")
subprocess.Popen.send_signal = send_signal
from respool.cli import main
main(["run", *sys.argv[1:]])
"""


def test_ctrl_c_on_windows_is_the_commands_own(tmp_path: Path):
    script = (
        f'trap "echo got it" INT; cd {tmp_path}; echo ready; '
        "while [ ! -e over ]; do sleep 0.05; done; exit 4"
    )
    with in_terminal(tmp_path, "sh", "-c", script, program=("-c", WINDOWS)) as (pid, master):
        shown(master, "ready")
        os.write(master, b"\x03")
        shown(master, "got it")
        (tmp_path / "over").touch()
        shown(master, "respool: no request")
        assert ended(pid) == 4


def test_a_command_without_exe_is_found_on_windows(monkeypatch: pytest.MonkeyPatch):
    found = {"claude": r"C:\npm\claude.CMD"}
    monkeypatch.setattr(run.shutil, "which", found.get)
    assert run._resolve_executable(("claude", "-p")) == ("claude", "-p")
    monkeypatch.setattr(sys, "platform", "win32")
    assert run._resolve_executable(("claude", "-p")) == (r"C:\npm\claude.CMD", "-p")
    assert run._resolve_executable(("other",)) == ("other",)


def test_a_port_has_one_server_on_windows_too(monkeypatch: pytest.MonkeyPatch):
    """There the option that lets a port be had again soon lets two processes have it at once."""
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with bind(ServerOptions(port=0)) as listening:
        assert not listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    monkeypatch.delattr(socket, "SO_EXCLUSIVEADDRUSE")
    with bind(ServerOptions(port=0)) as listening:
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_a_mac_gives_as_many_files_as_it_has(monkeypatch: pytest.MonkeyPatch):
    """It names no limit, and refuses to be asked for that many."""
    given: list[tuple[int, int]] = []

    def limited(_: int, limits: tuple[int, int]) -> None:
        if not 0 <= limits[0] <= 10_240:
            raise ValueError("current limit exceeds maximum limit")
        given.append(limits)

    unlimited = (256, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    monkeypatch.setattr(resource, "setrlimit", limited)
    serve._raise_file_limit()
    assert given == [(10_240, resource.RLIM_INFINITY)]


# Functions that SQLite has had since 3.27 or later: Red Hat's Python 3.11 comes with 3.26.
NEWER = {"iif", "unixepoch", "timediff", "format", "octet_length", "concat", "string_agg", "unhex"}


def test_an_older_sqlite_can_answer_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def older(opening: Any) -> Any:
        def opened(*args: Any, **given: Any) -> sqlite3.Connection:
            connection = opening(*args, **given)
            connection.set_authorizer(_without_newer)
            return connection

        return opened

    for name in ("open_reader", "open_writer"):
        monkeypatch.setattr(database, name, older(getattr(database, name)))
    store = SQLiteStore(tmp_path / "respool.db")
    about: Any = {"owner": "o", "conversation": "c", "format": "anthropic", "status": 200}
    store.record(
        RequestRecord(
            id="x", time=50.0, mode="observed", saved=7, cost_before=3.0, cost_after=1.0, **about
        )
    )
    store.record(
        RequestRecord(id="y", time=51.0, saved=5, cost_before=2.0, cost_after=1.0, **about)
    )
    store.record(RequestRecord(id="z", time=52.0, mode="observed", saved=1, **about))
    assert store.flush()
    (total,) = store.totals(None, since=0.0, until=100.0, step=100.0)
    assert (total.saved, total.observed, total.would_saved, total.would_cost) == (13, 2, 8, 2.0)
    assert len(store.conversations(None)) == 1
    assert len(store.requests("c", None)) == 3
    assert store.notable(None) == []
    assert store.lineage("c", None)
    store.prior_requests("c", ["00"])
    assert store.forget().requests == 3
    assert not store.sweep()
    store.close()


def _without_newer(action: int, _one: str | None, name: str | None, *_: str | None) -> int:
    newer = action == sqlite3.SQLITE_FUNCTION and name in NEWER
    return sqlite3.SQLITE_DENY if newer else sqlite3.SQLITE_OK


# What Windows does not have, taken away behind what the standard library itself imports.
EVERYTHING = """
import asyncio, importlib, multiprocessing.connection, os, pkgutil, signal, socket, subprocess, sys
import uvicorn, aiohttp, mcp.server, concurrent.futures.process, tempfile, shutil
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGKILL", "SIGPIPE", "SIGALRM",
             "pthread_sigmask", "sigtimedwait", "sigwait", "alarm"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "getpgrp", "tcgetpgrp", "killpg", "O_NOCTTY",
             "O_NONBLOCK", "WNOHANG", "sched_getaffinity", "getloadavg", "chown"):
    delattr(os, name)
import respool
from respool.integrations.requirement import MissingFramework
for found in pkgutil.walk_packages(respool.__path__, "respool."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except MissingFramework:
            pass  # adapters are checked where their frameworks are: make frameworks
print("all")
"""


def test_everything_can_be_imported_on_windows():
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("all\n", "")
