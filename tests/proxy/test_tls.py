"""Upstreams over TLS: certificates are verified, and a proxy of the environment's is gone through.

In processes of their own: who is trusted is read from the environment when one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from respool.proxy.client import Client, _tls_context
from respool.proxy.server_options import TransferLimits, Upstream
from tests.proxy.certificates import Authority
from tests.proxy.sockets import SOON, ReceivedRequest, ask, post, read_request, run, upstream
from tests.store.support import SOURCE

KEY = "x-api-key: sk-ant-secret"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def started(folder: Path, to: str, **environment: str) -> subprocess.Popen[str]:
    world = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    world = {name: value for name, value in world.items() if not name.startswith("SSL_CERT")}
    command = [sys.executable, "-m", "respool", "serve", "--port", "0", "--observe"]
    return subprocess.Popen(
        [*command, "--upstream", f"anthropic={to}"],
        env={
            **world,
            "PYTHONPATH": str(SOURCE),
            "RESPOOL_STORE": str(folder / "respool.db"),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.asynccontextmanager
async def served(folder: Path, to: str, **environment: str) -> AsyncGenerator[int]:
    process = started(folder, to, **environment)
    try:
        assert process.stdout is not None
        found = re.search(r"listens on http://[\w.]+:(\d+)", process.stdout.readline())
        assert found
        yield int(found[1])
    finally:
        process.kill()
        process.communicate()


def said(body: bytes) -> str:
    return json.loads(body)["error"]["message"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize(
    ("trusted", "host", "days", "why"),
    [
        (True, "localhost", 1, ""),
        (False, "localhost", 1, "unable to get local issuer certificate"),
        (True, "elsewhere.test", 1, "Hostname mismatch"),
        (True, "localhost", -1, "certificate has expired"),
    ],
    ids=["trusted", "not trusted", "another host's", "expired"],
)
def test_the_certificate_is_verified(
    tmp_path: Path, authority: Authority, trusted: bool, host: str, days: int, why: str
):
    ca = str(authority.write(tmp_path / "ca.pem"))
    given = {"SSL_CERT_FILE": ca} if trusted else {}

    async def case() -> None:
        tls = authority.context(tmp_path, host, days=days)
        async with (
            upstream(tls=tls) as behind,
            served(tmp_path, f"https://localhost:{behind.port}", **given) as port,
        ):
            reply = await ask(port, post("/v1/messages", b"{}", KEY), SOON)
            assert (reply.status, len(behind.received)) == ((502, 0) if why else (200, 1))
            if why:
                assert f"https://localhost:{behind.port} cannot be reached: " in said(reply.body)
                assert f"its certificate is not trusted ({why}" in said(reply.body)

    run(case)


def test_every_python_verifies_alike(monkeypatch: pytest.MonkeyPatch):
    """From 3.13 on it refuses a company's own authority, if that does not name its key."""
    begun = ssl.create_default_context

    def strict() -> ssl.SSLContext:
        made = begun()
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    made = _tls_context()
    assert not made.verify_flags & ssl.VERIFY_X509_STRICT
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, True)


class Tunnel:
    """A proxy as companies have it: it is told a host, and passes bytes on, here to one port."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.asked: list[ReceivedRequest] = []
        self.seen = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        behind, towards = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(self._pass(reader, towards, note=True), self._pass(behind, writer))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: bool = False
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.seen += data if note else b""
                writer.write(data)
        writer.close()


@contextlib.asynccontextmanager
async def tunnel(to: int) -> AsyncGenerator[tuple[Tunnel, int]]:
    made = Tunnel(to)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        server.close()


def secured(authority: Authority, folder: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    ca = str(authority.write(folder / "ca.pem"))
    return authority.context(folder, "provider.test"), {"SSL_CERT_FILE": ca}


def test_a_proxy_of_the_environment_is_gone_through_and_reads_nothing(
    tmp_path: Path, authority: Authority
):
    """It is asked for the configured upstream, whatever a request says."""
    tls, given = secured(authority, tmp_path)

    async def case() -> None:
        async with upstream(tls=tls) as behind, tunnel(behind.port) as (made, through):
            given["HTTPS_PROXY"] = f"http://user:word@127.0.0.1:{through}"
            async with served(tmp_path, "https://provider.test", **given) as port:
                for more in (
                    (),
                    ("X-Forwarded-Host: elsewhere.test", "Proxy-Connection: keep-alive"),
                ):
                    reply = await ask(port, post("/v1/messages", b"{}", KEY, *more), SOON)
                    assert reply.status == 200
                lost = await ask(port, b"CONNECT elsewhere.test:443 HTTP/1.1\r\n\r\n", SOON)
                assert lost.raw == b"" or lost.status == 400
            assert [one.line for one in made.asked] == ["CONNECT provider.test:443 HTTP/1.1"]
            assert made.asked[0].named("proxy-authorization") == ["Basic dXNlcjp3b3Jk"]
            assert not made.asked[0].named("x-api-key")
            assert b"sk-ant-secret" not in made.seen
            assert [one.named("host") for one in behind.received] == [["provider.test"]] * 2
            assert all(one.named("x-api-key") == ["sk-ant-secret"] for one in behind.received)
            assert not any(one.named("proxy-authorization") for one in behind.received)

    run(case)


def test_no_proxy_is_heeded(tmp_path: Path, authority: Authority):
    tls, given = secured(authority, tmp_path)

    async def case() -> None:
        async with upstream(tls=tls) as behind, tunnel(behind.port) as (made, through):
            given.update(HTTPS_PROXY=f"http://127.0.0.1:{through}", NO_PROXY="provider.test")
            async with served(tmp_path, "https://provider.test", **given) as port:
                reply = await ask(port, post("/v1/messages", b"{}", KEY), SOON)
                assert reply.status in (502, 504)  # there is no such host
            assert not made.asked
            assert not behind.received

    run(case)


@pytest.mark.parametrize(
    ("named", "gone_through"),
    [
        ("http://proxy.test:3128", "http://proxy.test:3128"),
        ("https://proxy.test:3128", "https://proxy.test:3128"),
        ("proxy.test:3128", "http://proxy.test:3128"),
        ("", None),
    ],
)
def test_a_proxy_may_be_named_as_is_usual(
    monkeypatch: pytest.MonkeyPatch, named: str, gone_through: str | None
):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", named)
    near, far = Upstream("https://localhost:9"), Upstream("https://provider.test")
    client = Client([near, far], TransferLimits())
    assert client._proxies == {near.origin: None, far.origin: gone_through}


@pytest.mark.parametrize(
    ("around", "passed_by"),
    [
        ("provider.test:8443", True),
        ("provider.test:443", False),
        (".test", True),
        ("other.test, provider.test", True),
        ("other.test", False),
        ("*", True),
    ],
)
def test_no_proxy_may_name_hosts_ports_and_endings(
    monkeypatch: pytest.MonkeyPatch, around: str, passed_by: bool
):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", around)
    there = Upstream("https://provider.test:8443")
    assert (Client([there], TransferLimits())._proxies[there.origin] is None) == passed_by


def test_a_proxy_that_is_none_for_http_is_said_in_a_sentence(tmp_path: Path):
    """At once, and without the password in it; not with each request."""
    process = started(
        tmp_path, "https://provider.test", HTTPS_PROXY="socks5://user:word@proxy.test:1080"
    )
    _, said_so = process.communicate(timeout=SOON)
    assert process.returncode != 0
    assert "a proxy for https that is not one for HTTP (socks5)" in said_so
    assert "Traceback" not in said_so
    assert "word@" not in said_so
