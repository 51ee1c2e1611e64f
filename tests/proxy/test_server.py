"""`respool serve` as a program: it says where it listens, ends well, and says what is wrong."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.cli.serve import start_lines
from respool.policy import Policy
from respool.proxy.port_owner import describe_port_owner
from respool.proxy.server_options import CompactionOptions, ServerOptions, upstreams_of

SOURCE = Path(__file__).parents[2] / "src"
SOON = 60.0  # seconds after which a test gives up, on a slow machine too
TOKEN = "a-token-of-enough-length"


class Slow(BaseHTTPRequestHandler):
    """Answers with the process that asked, after as many seconds as the path says."""

    protocol_version = "HTTP/1.1"
    received: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.received.append(self.path)
        time.sleep(float(self.path.removeprefix("/")))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def behind() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A store that is not that of whoever runs the tests."""
    monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "respool.db"))


@contextlib.contextmanager
def served(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command in a process of its own, and its port; without a store of its user's."""
    command = [sys.executable, "-m", "respool", "serve", "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        world = {"PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(Path(folder, "respool.db"))}
        process = subprocess.Popen(
            command,
            env={**os.environ, **world, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"listens on http://[\w.]+:(\d+)", said)
        assert found, process.communicate()[1]
        try:
            yield process, int(found[1])
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def asked(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    connection.request("GET", path, headers=headers)
    with contextlib.closing(connection), connection.getresponse() as response:
        return response.status, response.read()


@pytest.fixture
def heeding_hang_ups() -> Iterator[None]:
    """Let child processes handle SIGHUP, even if these tests were started by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heeding_hang_ups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_logs_and_ends_when_told(behind: int, number: signal.Signals):
    with served("--upstream", f"openai=http://127.0.0.1:{behind}", "--observe") as (process, port):
        status, body = asked(port, "/healthz")
        assert (status, json.loads(body)["mode"]) == (200, "observe")
        assert asked(port, "/0", Authorization="Bearer secret") == (200, b"ok")
        answers: list[tuple[int, bytes]] = []
        waiting = threading.Thread(target=lambda: answers.append(asked(port, "/1")))
        Slow.received.clear()
        waiting.start()
        while not Slow.received:
            time.sleep(0.01)
        process.send_signal(number)
        _, logged = process.communicate(timeout=SOON)
        waiting.join()
    assert process.returncode == 0
    assert answers == [(200, b"ok")]  # what was open was finished
    lines = [json.loads(line) for line in logged.splitlines()]
    assert [(line["path"], line["outcome"]) for line in lines] == [
        ("/0", "complete"),
        ("/1", "complete"),
    ]
    assert "secret" not in logged


def test_it_gives_notice_before_it_ends(behind: int):
    """Not ready, but it serves; each connection is closed; Ctrl-C does not wait."""
    options = ("--upstream", f"openai=http://127.0.0.1:{behind}", "--notice", "60")
    with served(*options, RESPOOL_TOKEN=TOKEN) as (process, port):
        assert asked(port, "/readyz") == (200, b'{"ready":true}')
        process.send_signal(signal.SIGTERM)
        while asked(port, "/readyz") != (503, b'{"ready":false}'):
            time.sleep(0.01)
        assert asked(port, "/healthz")[0] == 200
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
        kept.request("GET", f"/respool-token/{TOKEN}/0", headers={"Authorization": "Bearer a"})
        with contextlib.closing(kept), kept.getresponse() as response:
            assert (response.read(), response.getheader("connection")) == (b"ok", "close")
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == 0


def test_it_goes_on_where_it_was_told_to_when_its_terminal_is_closed(behind: int):
    """As `nohup` has it: who starts it ignores the signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        options = ("--upstream", f"openai=http://127.0.0.1:{behind}")
        with served(*options) as (process, port):
            assert asked(port, "/0") == (200, b"ok")
            os.kill(process.pid, signal.SIGHUP)
            time.sleep(0.3)
            assert asked(port, "/0") == (200, b"ok")
            process.terminate()
            assert process.wait(SOON) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_token_lets_others_in():
    with served("--host", "0.0.0.0", RESPOOL_TOKEN=TOKEN) as (_, port):
        assert asked(port, "/metrics")[0] == 401
        assert asked(port, f"/respool-token/{TOKEN}/metrics")[0] == 200
        assert asked(port, "/healthz")[0] == 200


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_may_be_written_as_in_a_url(host: str):
    with socket.socket(socket.AF_INET6) as taken:
        try:
            taken.bind(("::1", 0))
        except OSError:
            pytest.skip("there is no IPv6 here")
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["serve", "--host", host, "--port", str(port)])
    assert result.stderr.startswith(
        f"respool: respool cannot listen on ::1 port {port}: Address already in use by "
    )


def test_a_port_in_use_is_said_in_a_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["serve", "--port", str(port)])
    assert result.exit_code == 2
    found = re.fullmatch(
        rf"respool: respool cannot listen on 127.0.0.1 port {port}: Address already in use by "
        rf"[\w.-]+ \(process {os.getpid()}\)\. --port chooses another port\.\n",
        result.stderr,
    )
    assert found, result.stderr


def proc_folder(folder: Path, table: str, comm: str = "node", cmdline: str = "node\0x") -> Path:
    """A /proc with one process that holds the socket 77."""
    process = folder / "4242"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "5").symlink_to("socket:[77]")
    (process / "fd" / "6").symlink_to("/dev/null")
    (process / "comm").write_text(f"{comm}\n")
    (process / "cmdline").write_text(cmdline)
    (folder / "net").mkdir()
    (folder / "net" / table).write_text(
        "  sl  local_address rem_address st tx rx tr tm retrnsmt uid timeout inode\n"
        "   0: 0100007F:2253 00000000:0000 0A 0:0 00:0 0 0 0 77 1 0 100\n"
        "   1: 0100007F:2254 0100007F:9C40 01 0:0 00:0 0 0 0 77 1 0 100\n"
    )
    return folder


@pytest.mark.parametrize(
    ("port", "table", "cmdline", "said"),
    [
        (0x2253, "tcp", "node\0--key=sk-secret", "node (process 4242)"),
        (0x2253, "tcp6", "node\0x", "node (process 4242)"),
        (0x2253, "tcp", "python\0/usr/bin/respool\0serve", "respool (process 4242)"),
        (0x2253, "tcp", "python\0-m\0respool\0serve", "respool (process 4242)"),
        (0x2254, "tcp", "node\0x", ""),  # connected, not listening
        (0x2255, "tcp", "node\0x", ""),
    ],
)
def test_a_port_s_owner_is_found_where_it_can_be_seen(
    tmp_path: Path, port: int, table: str, cmdline: str, said: str
):
    assert describe_port_owner(port, proc_folder(tmp_path, table, cmdline=cmdline)) == said


def test_a_port_s_owner_may_not_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = proc_folder(tmp_path, "tcp")
    (folder / "4242" / "fd" / "5").unlink()  # as if it were another user's
    assert describe_port_owner(0x2253, folder) == ""
    assert describe_port_owner(0x2253, tmp_path / "no-proc") == ""
    monkeypatch.setattr("respool.proxy.server.describe_port_owner", lambda _port: "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ["serve", "--port", str(taken.getsockname()[1])]
        said = CliRunner().invoke(main, options).stderr
    assert "in use; by which process cannot be seen from here. --port chooses another" in said


def test_a_mac_is_asked_by_lsof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_port_owner(8787) == ""
    lsof = tmp_path / "lsof"
    lsof.write_text('#!/bin/sh\n[ "$2" = -iTCP:8787 ] && printf "p512\\ncnode\\nf20\\n"\n')
    lsof.chmod(0o755)
    assert describe_port_owner(8787) == "node (process 512)"
    assert describe_port_owner(8788) == ""


# options of the server and the compaction, and lines that are printed at the start
STARTS: dict[str, tuple[ServerOptions, CompactionOptions, list[str]]] = {
    "defaults": (
        ServerOptions(),
        CompactionOptions(),
        [
            "  dashboard                 http://127.0.0.1:8787",
            "  Claude Code               ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude",
            "  OpenAI's formats          OPENAI_BASE_URL=http://127.0.0.1:8787/v1",
            "  anthropic goes to         https://api.anthropic.com",
            "  openai goes to            https://api.openai.com",
            "  gemini goes to            https://generativelanguage.googleapis.com",
            "  settings                  all at their defaults; respool settings lists them",
        ],
    ),
    "a token, upstreams, settings": (
        ServerOptions(
            "0.0.0.0", upstreams=upstreams_of(["openai-chat=http://llm:8000/api/v1"]), token=TOKEN
        ),
        CompactionOptions(policy=Policy().with_values({"eager": True}, "here"), observe=True),
        [
            "  dashboard                 http://127.0.0.1:8787/respool-token/$RESPOOL_TOKEN",
            "  openai-chat goes to       http://llm:8000/api/v1",
            "  openai-responses goes to  https://api.openai.com",
            "  settings                  eager (here); all others at their defaults",
            "It only observes: requests are measured and not changed.",
        ],
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_the_start_says_what_to_set_and_where_requests_go(case: str):
    server, options, expected = STARTS[case]
    lines = start_lines(f"http://{server.host}:8787", server, options)
    assert [line for line in expected if line not in lines] == [], lines
    assert not [line for line in lines if TOKEN in line]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--host", "0.0.0.0"],
            "Without a token respool listens on this machine only, not on 0.0.0.0",
        ),
        (["--upstream", "x=y"], "An upstream is written NAME=URL"),
        (["--upstream", "openai=ftp://x"], "An upstream is a URL that begins with https://"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--workers", "2"], "No such option"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(options: list[str], said: str):
    result = CliRunner().invoke(main, ["serve", *options], env={"RESPOOL_TOKEN": ""})
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_short_token_is_refused():
    result = CliRunner().invoke(main, ["serve"], env={"RESPOOL_TOKEN": "short"})
    assert (result.exit_code, "A token has 16 characters" in result.stderr) == (2, True)
    assert "short" not in result.stderr.replace("shorter", "")


def test_a_store_that_cannot_be_is_refused_before_it_says_that_it_listens():
    result = CliRunner().invoke(main, ["serve", "--port", "0"], env={"RESPOOL_STORE_DAYS": "soon"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "RESPOOL_STORE_DAYS='soon' is not allowed" in result.stderr


def test_nothing_else_needs_the_server():
    code = (
        "import sys, respool, respool.cli\n"
        "respool.Policy.load(environ={'RESPOOL_TOKEN': 'x'})\n"
        "heavy = {'aiohttp', 'asyncio', 'brotli', 'httptools', 'uvicorn', 'zstandard'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_without_the_extra_it_says_what_is_missing():
    code = (
        "import sys\nsys.modules['uvicorn'] = None\nfrom respool.cli import main\nmain(['serve'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "respool: The proxy needs uvicorn, which is not installed: "
        "pip install '.[serve]' in a clone of respool's repository.\n"
    )
