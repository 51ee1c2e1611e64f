"""The program that agents run, and the process behind it, as they are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.hooks import hook_client, resident
from respool.hooks.hook_command import hook_words
from respool.hooks.resident import Resident, decode_call

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such sockets")

LOG = "\n".join(f"{n:03} the gauge at mile {n * 37 % 211} reads {n * 91} mm" for n in range(80))
COLOURED = "\n".join(f"\x1b[31m{line}\x1b[0m" for line in LOG.split("\n"))


@pytest.fixture
def run() -> Iterator[Path]:
    """A folder with a short name, for the name of a socket has at most 104 bytes."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        yield Path(folder)


def event(call: str, text: str = COLOURED) -> dict[str, object]:
    output = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    about = {"hook_event_name": "PostToolUse", "session_id": "s", "transcript_path": "/none.jsonl"}
    asked = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": call}
    return {**about, **asked, "tool_response": output}


def ask(run: Path, data: object, **more: str) -> subprocess.CompletedProcess[bytes]:
    world = {"PATH": os.environ["PATH"], "HOME": str(run), "XDG_RUNTIME_DIR": str(run), **more}
    return subprocess.run(
        hook_words("claude"),
        input=data if isinstance(data, bytes) else json.dumps(data).encode(),
        env=world,
        cwd=run,
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_a_hook_is_answered_by_a_process_that_stays(run: Path):
    store = str(run / "respool.db")
    first, second = (ask(run, event(call), RESPOOL_STORE=store) for call in ("a", "b"))
    assert (first.returncode, first.stderr) == (0, b"")
    output = json.loads(first.stdout)["hookSpecificOutput"]["updatedToolOutput"]
    assert output["stdout"] == LOG
    shorter = json.loads(second.stdout)["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
    assert shorter == LOG  # there is no transcript, so nothing is known of the first
    (found,) = (path for path in (run / "respool").iterdir() if path.suffix != ".lock")
    assert found.stat().st_mode & 0o077 == 0
    # What cannot be understood changes nothing.
    for data in (b"", b"{", b"[]", b"\xff", {"hook_event_name": "PostToolUse"}):
        silent = ask(run, data, RESPOOL_STORE=store)
        assert (silent.returncode, silent.stdout, silent.stderr) == (0, b"", b"")
    silent = ask(run, event("c"), RESPOOL_STORE=store, RESPOOL_NONSENSE="1")
    assert (silent.returncode, silent.stdout) == (0, b"")
    silent = ask(run, event("d"), RESPOOL_STORE="/dev/null/nowhere")
    assert silent.returncode == 0
    found.unlink()  # so that it ends


def test_a_folder_that_others_can_enter_is_not_used(run: Path):
    (run / "respool").mkdir(mode=0o700)
    (run / "respool").chmod(0o755)
    silent = ask(run, event("a"))
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, b"", b"")
    assert list((run / "respool").iterdir()) == []


def test_an_answer_that_does_not_come_is_not_waited_for(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
):
    monkeypatch.setattr(hook_client, "MAX_SECONDS", 0.3)
    monkeypatch.setattr(hook_client, "socket_path", lambda: str(run / "s"))
    monkeypatch.setattr(hook_client, "_read_input", lambda: b"{}")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(run / "s"))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            hook_client.main()
    assert time.monotonic() - began < 3
    assert capfdbinary.readouterr().out == b""


def test_a_call_is_unpacked_as_it_was_packed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RESPOOL_PRESET", "lean=\udcff")
    call = decode_call(hook_client.encode_call(["claude", "--expand-tool", "x"], b"a\0b\n"))
    assert call.arguments == ["claude", "--expand-tool", "x"]
    assert call.environ["RESPOOL_PRESET"] == "lean=\udcff"
    assert "PATH" not in call.environ
    assert (call.folder, call.data) == (str(Path.cwd()), b"a\0b\n")
    for broken in (b"", b"9\nabc", b"x\n"):
        with pytest.raises(ValueError, match="not whole"):
            decode_call(broken)


@pytest.mark.parametrize("why", ["idle", "socket gone", "other version"])
def test_it_ends_when_it_is_not_needed(run: Path, why: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resident, "_CHECK_SECONDS", 0.02)
    path = run / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        serving = Resident(server, path, idle_seconds=0.1 if why == "idle" else 60.0)
        thread = threading.Thread(target=serving.serve)
        thread.start()
        if why == "socket gone":
            path.unlink()
        elif why == "other version":
            monkeypatch.setattr(resident, "installed_version", lambda: (0,))
        thread.join(5)
        assert not thread.is_alive()
    assert not path.exists()
