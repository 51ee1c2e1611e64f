"""`respool install` and `uninstall` as commands, with a proxy that really starts."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.agents.service import port_state
from tests.support.ports import free_port

SOURCE = Path(__file__).parents[2] / "src"
SETTINGS = '{\n  "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/gateway"}\n}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def port(home: Path) -> Iterator[int]:
    """A port, on which nothing listens any more at the end."""
    chosen = free_port()
    yield chosen
    file = home / ".local" / "state" / "respool" / f"serve-{chosen}.pid"
    if file.exists():
        os.kill(int(file.read_text()), signal.SIGKILL)


def respool(home: Path, *words: str, typed: str = "", **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "respool", *words],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE), **variables},
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def files(home: Path) -> dict[str, bytes]:
    found = (one for one in home.rglob("*") if one.is_file())
    return {str(one.relative_to(home)): one.read_bytes() for one in found}


def test_an_agent_is_installed_and_uninstalled(home: Path, port: int):
    before = files(home)
    options = ("--port", str(port), "--service", "none")
    status, said = respool(home, "install", "claude", *options, typed="y\n")
    assert status == 0, said
    assert '-  "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/gateway"}' in said
    assert f"goes through respool on http://127.0.0.1:{port}" in said
    assert port_state(port) == "respool"
    status, said = respool(home, "install", "claude", *options)
    assert (status, said) == (0, f"Claude Code is installed already, on port {port}.\n")
    status, said = respool(home, "doctor", "--json")
    found = {(one["check"], one["level"]): one["found"] for one in json.loads(said)["checks"]}
    assert found["claude", "ok"] == f"Claude Code is installed, on port {port}"
    assert found[f"service {port}", "ok"] == "runs, started by agents' own hooks"
    assert found["mcp", "ok"] == f"registered in {home / '.claude.json'}"
    status, said = respool(home, "uninstall", "claude", "--yes")
    assert status == 0, said
    assert "respool.db is kept" in said
    assert port_state(port) == "free"
    left = files(home)
    assert {name: left.pop(name) for name in before} == before
    assert [name for name in left if "respool.db" not in name] == []
    status, said = respool(home, "uninstall", "claude")
    assert (status, said) == (2, "respool: claude is not installed; installed: none.\n")


def test_the_store_is_deleted_if_asked(home: Path, port: int):
    before = files(home)
    options = ("--port", str(port), "--service", "none", "--yes")
    assert respool(home, "install", "claude", *options)[0] == 0
    status, said = respool(home, "uninstall", "--all", "--delete-store", "--yes")
    assert status == 0, said
    assert "respool.db is deleted" in said
    assert files(home) == before


@pytest.mark.parametrize(("words", "typed"), [(("--dry-run",), ""), ((), "n\n")])
def test_nothing_is_changed_unless_it_is_confirmed(words: tuple[str, ...], typed: str, home: Path):
    before = files(home)
    status, said = respool(
        home, "install", "claude", "--service", "systemd", "--port", str(free_port()), *words,
        typed=typed,
    )  # fmt: skip
    assert status == 0
    assert "ExecStart=/bin/sh" in said
    assert "guard.sh" in said
    assert files(home) == before


def test_a_port_of_another_program_is_refused(home: Path):
    before = files(home)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = str(other.getsockname()[1])
        status, said = respool(home, "install", "claude", "--port", number, "--yes")
    assert status == 2
    assert f"Another program listens on port {number}; --port takes another one." in said
    assert files(home) == before


def test_an_http_proxy_that_would_get_the_requests_is_refused(home: Path):
    before = files(home)
    words = ("install", "claude", "--port", str(free_port()), "--dry-run")
    status, said = respool(home, *words, HTTPS_PROXY="http://proxy.example")
    assert status == 2
    assert "Add 127.0.0.1 to NO_PROXY" in said
    assert files(home) == before
    both = {"HTTPS_PROXY": "http://proxy.example", "no_proxy": "127.0.0.1"}
    assert respool(home, *words, **both)[0] == 0


def test_what_does_not_start_leaves_nothing_behind(home: Path):
    """There is no user manager to be reached in this home."""
    before = files(home)
    options = ("--port", str(free_port()), "--service", "systemd", "--yes")
    status, said = respool(home, "install", "claude", *options, XDG_RUNTIME_DIR=str(home))
    if shutil.which("systemctl") is None:
        pytest.skip("there is no systemctl here")
    assert status == 2
    assert "systemctl --user daemon-reload failed" in said
    assert files(home) == before


def health(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/healthz")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_socket_of_the_service_manager_is_taken(is_broken: bool, home: Path):
    """systemd's own tool opens the port, and starts the proxy with the first connection."""
    program = shutil.which("systemd-socket-activate")
    if program is None:
        pytest.skip("there is no systemd-socket-activate here")
    if is_broken:
        (home / "respool.toml").write_text("preset = 1")
    port = free_port()
    kept = [f"--setenv={name}" for name in ("PYTHONPATH", "HOME", "RESPOOL_STORE")]
    serve = ("serve", "--fail-open", "--quiet", "--port", "1")
    process = subprocess.Popen(
        [program, "-l", f"127.0.0.1:{port}", *kept, sys.executable, "-P", "-m", "respool", *serve],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)}
        | {"RESPOOL_STORE": str(home / "respool.db")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 10
        while True:
            try:
                answer = health(port)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < until
                time.sleep(0.02)
        assert answer["status"] == ("degraded" if is_broken else "ok")
        assert answer["mode"] == ("forward" if is_broken else "compact")
    finally:
        process.terminate()
        process.wait(10)
