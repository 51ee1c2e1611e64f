"""The resident process behind hooks: it answers over a socket, and ends when it is not needed."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import threading
import time
from pathlib import Path

from .hook_client import MAX_BYTES, MAX_SECONDS
from .responder import HookCall, Responder

IDLE_SECONDS = 900.0
_CHECK_SECONDS = 2.0  # between looks at the clock, the socket and the installed files
_MAX_WAITING = 32  # connections
_PEER = struct.Struct("3i")  # process, user and group


class _Malformed(ValueError):
    """A call that no client of this version sends."""


def main(path: str) -> None:
    """Serve at this socket, unless another process does."""
    import fcntl  # lazily: Windows has none, and no resident process

    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    before = os.umask(0o177)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        os.umask(before)
        server.listen(_MAX_WAITING)
        gc.freeze()  # what was imported stays
        Resident(server, Path(path)).serve()


class Resident:
    """The server of one socket."""

    def __init__(
        self, server: socket.socket, path: Path, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._server = server
        self._path = path
        self._idle_seconds = idle_seconds
        self._responder = Responder()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._socket = path.lstat().st_ino
        self._version = installed_version()

    def serve(self) -> None:
        """Answer calls until none has come for long, or until this is no longer what is asked."""
        self._server.settimeout(_CHECK_SECONDS)
        try:
            while self._is_needed():
                with contextlib.suppress(TimeoutError):
                    connection, _ = self._server.accept()
                    threading.Thread(target=self._handle, args=(connection,), daemon=True).start()
        finally:
            if self._is_own_socket():
                self._path.unlink()
            with self._lock:
                self._responder.close()

    def _is_needed(self) -> bool:
        is_idle = time.monotonic() - self._last > self._idle_seconds
        return not is_idle and self._is_own_socket() and installed_version() == self._version

    def _is_own_socket(self) -> bool:
        try:
            return self._path.lstat().st_ino == self._socket
        except OSError:
            return False

    def _handle(self, connection: socket.socket) -> None:
        """Answer one call; whatever fails, nothing is changed."""
        self._last = time.monotonic()
        with connection:
            connection.settimeout(MAX_SECONDS)
            try:
                answer = self._answer(connection) if _is_same_user(connection) else b""
            except Exception:  # noqa: BLE001 - law 9: an agent's result must not be lost
                answer = b""
            with contextlib.suppress(OSError):
                connection.sendall(b"%d\n%b" % (len(answer), answer))

    def _answer(self, connection: socket.socket) -> bytes:
        call = decode_call(_receive(connection))
        if not self._lock.acquire(timeout=MAX_SECONDS):
            return b""
        try:
            return self._responder.answer(call)
        finally:
            self._lock.release()


def decode_call(received: bytes) -> HookCall:
    """A call as `hook_client.encode_call` packs it."""
    size, _, rest = received.partition(b"\n")
    if not size.isdigit() or int(size) > len(rest):
        raise _Malformed("The head of this call is not whole.")
    head = rest[: int(size)].decode("utf-8", "surrogateescape").split("\0")
    folder, count = head[0], int(head[1])
    pairs = (text.partition("=") for text in head[2 + count :])
    return HookCall(
        arguments=head[2 : 2 + count],
        folder=folder,
        environ={name: text for name, _, text in pairs},
        data=rest[int(size) :],
    )


def _receive(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := connection.recv(1 << 20):
        pieces.append(piece)
        size += len(piece)
        if size > 2 * MAX_BYTES:
            raise _Malformed("This call is too large.")
    return b"".join(pieces)


def _is_same_user(connection: socket.socket) -> bool:
    """Return whether the other end is this user's; where the system does not say, its folder does.

    The socket's folder can be entered by this user alone.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return _PEER.unpack(peer)[1] == os.getuid()


def installed_version() -> tuple[int, ...]:
    """Numbers that change when respool is installed anew."""
    package = Path(__file__).parents[1]
    files = (package, package / "engine.py", package / "policy.py", Path(__file__))
    try:
        return tuple(file.stat().st_mtime_ns for file in files)
    except OSError:
        return ()
