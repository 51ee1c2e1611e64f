"""Replicas behind a real balancer, set up as the documentation says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.replicas import (
    SOON,
    Load,
    Replica,
    Upstream,
    assert_as_by_one,
    assert_originals,
    free_ports,
    get,
    upstream,
)
from tests.store.postgres_server import serving

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "servers.md"
_NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
{documented} }}
"""


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {name}).")
    return found


def _documented(name: str, port: int, ports: list[int]) -> str:
    """The configuration on the page, with these ports; a fourth server is added to its list."""
    found = re.search(rf"```{name}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    text = found[1].replace(":8080", f":{port}")
    for documented, real in zip((7733, 7734, 7735), ports, strict=False):
        text = text.replace(f":{documented}", f":{real}")
    last = next(line for line in text.splitlines() if f":{ports[2]}" in line)
    added = last.replace(f":{ports[2]}", f":{ports[3]}").replace("three", "four")
    return text.replace(last, f"{last}\n{added}")


def _at_random(text: str) -> str:
    """The configuration without its choice by session: each request to any server."""
    changed, count = re.subn(r"hash \$http.*;|balance hdr.*\n *hash-type.*", _random_line, text)
    assert count == 1
    return changed


def _random_line(found: re.Match[str]) -> str:
    return "random;" if found[0].startswith("hash") else "balance random"


@contextlib.contextmanager
def _balancer(name: str, folder: Path, ports: list[int], *, random: bool) -> Iterator[int]:
    """A balancer in front of these ports, and its own port."""
    program, (port,) = _program(name), free_ports(1)
    text = _documented(name, port, ports)
    text = _at_random(text) if random else text
    if name == "nginx":
        text = _NGINX.format(folder=folder, documented=text)
    file = folder / f"{name}.conf"
    file.write_text(text, encoding="utf-8")
    command = (
        [program, "-p", str(folder), "-c", str(file)]
        if name == "nginx"
        else [*(program, "-db", "-f", str(file))]
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_answer(process, port, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(SOON)


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + SOON
    while True:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        with contextlib.suppress(OSError):
            if get(port, "/readyz")[0] == 200:
                return
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture(params=["nginx", "haproxy"])
def balancer(request: pytest.FixtureRequest) -> str:
    _program(request.param)
    return request.param


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the replicas keep what they share."""
    if request.param == "sqlite":
        yield str(tmp_path / "shared.db")
        return
    with serving() as server:
        yield server.new_database()


@contextlib.contextmanager
def _replicas(to: Upstream, store: str, *options: str) -> Iterator[list[Replica]]:
    """Three that run, and a fourth that does not yet."""
    ports = free_ports(4)
    every = [Replica(port, to.port, store, "--shared-store", *options) for port in ports]
    try:
        for one in every[:3]:
            one.start()
        yield every
    finally:
        for one in every:
            one.close()


def _assert_as_by_one(received: Upstream, folder: Path) -> None:
    """All of it again, through one process with a store of its own."""
    (port,) = free_ports(1)
    with upstream() as single:
        alone = Replica(port, single.port, str(folder / "alone.db")).start()
        try:
            assert_as_by_one(received.received, single, port)
        finally:
            alone.close()


@pytest.mark.e2e
def test_one_is_killed_and_one_added_under_load(tmp_path: Path, balancer: str, store: str):
    with (
        upstream(seconds=0.05) as received,
        _replicas(received, store) as replicas,
        _balancer(balancer, tmp_path, [one.port for one in replicas], random=True) as port,
    ):
        # HAProxy repeats no request whose connection is reset, as those of a killed server are.
        load = Load(lambda: port, repeated=(400,) if balancer == "nginx" else (400, 502))
        with load.running():
            load.wait_for(60)
            replicas[0].kill()
            load.wait_for(60)
            replicas[3].start()
            load.wait_for(120)
        assert not load.failed
        assert_originals(received, [one.port for one in replicas[1:]])
    _assert_as_by_one(received, tmp_path)


@pytest.mark.e2e
def test_a_rolling_restart_fails_no_request(tmp_path: Path, balancer: str, store: str):
    options = ("--notice", "1.5", "--drain", "20")
    with (
        upstream(seconds=0.05) as received,
        _replicas(received, store, *options) as replicas,
        _balancer(balancer, tmp_path, [one.port for one in replicas], random=False) as port,
    ):
        load = Load(lambda: port)
        with load.running():
            for one in replicas[:3]:
                load.wait_for(30)
                one.end()
                one.start()
            load.wait_for(30)
        assert not load.failed
    _assert_as_by_one(received, tmp_path)
