"""The program that an agent runs as its hook: it asks the resident process, and starts it.

It is run as a file, without site-packages: `python -I -S hook_client.py AGENT`. So it imports
nothing that is not needed on the way. Whatever goes wrong, it prints nothing and ends with status
0.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

MAX_SECONDS = 5.0  # of a call, a start of the resident process included
MAX_BYTES = 64 * 1024 * 1024
VARIABLES = ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "OPENCODE_DB")  # beside RESPOOL_…
_MAX_FOLDER_BYTES = 55  # for the name of a socket has at most 104
_POLL_SECONDS = 0.01
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from respool.hooks.resident import main; main(sys.argv[2])"
)


def runtime_folder() -> str:
    """The folder of the socket: only this user can enter it."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    short = base.startswith("/") and len(os.fsencode(base)) <= _MAX_FOLDER_BYTES
    known = short and os.path.isdir(base)  # noqa: PTH112 - pathlib takes too long
    folder = f"{base}/respool" if known else f"/tmp/respool-{os.getuid()}"  # noqa: S108
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102
    except FileExistsError:  # contextlib takes too long
        known = True
    about = os.lstat(folder)
    if about.st_uid != os.getuid() or about.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} can be used by others")
    return folder


def socket_path() -> str:
    """The socket of the resident process of this very installation."""
    about = os.stat(__file__)  # noqa: PTH116
    return f"{runtime_folder()}/hook-{about.st_ino:x}-{about.st_mtime_ns:x}"


def encode_call(arguments: list[str], data: bytes) -> bytes:
    """A call in bytes: the length of its head, its head, and the standard input."""
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    given += [f"{name}={text}" for name, text in os.environ.items() if name.startswith("RESPOOL_")]
    head = "\0".join([os.getcwd(), str(len(arguments)), *arguments, *given])  # noqa: PTH109
    packed = head.encode("utf-8", "surrogateescape")
    return b"%d\n%b%b" % (len(packed), packed, data)


def _connect(path: str, until: float) -> _socket.socket:
    """A connection to the resident process, which is started if there is none."""
    started = False
    while True:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(max(0.01, until - time.monotonic()))
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > until:
                raise
            if not started:
                _start(path)
                started = True
            time.sleep(_POLL_SECONDS)
        else:
            return connection


def _start(path: str) -> None:
    """Start the resident process, which outlives this one and holds none of its files."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
        root = os.path.dirname(package)  # noqa: PTH120
        os.execv(sys.executable, [sys.executable, "-I", "-c", _START, root, path])  # noqa: S606
    os._exit(0)


def _receive(connection: _socket.socket, until: float) -> bytes:
    """The answer: its length in a line, and itself."""
    found = b""
    while True:
        connection.settimeout(max(0.01, until - time.monotonic()))
        more = connection.recv(1 << 20)
        if not more:
            break
        found += more
    size, _, answer = found.partition(b"\n")
    return answer if size.isdigit() and int(size) == len(answer) else b""


def _read_input() -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MAX_BYTES and (piece := os.read(0, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _write(answer: bytes) -> None:
    while answer:
        answer = answer[os.write(1, answer) :]


def main() -> None:
    """Answer one call of a hook."""
    data = _read_input()
    until = time.monotonic() + MAX_SECONDS
    if len(data) > MAX_BYTES:
        return
    connection = _connect(socket_path(), until)
    try:
        connection.sendall(encode_call(sys.argv[1:], data))
        connection.shutdown(_socket.SHUT_WR)
        _write(_receive(connection, until))
    finally:
        connection.close()


if __name__ == "__main__":
    try:
        main()
    finally:  # an agent goes on without its hook, whatever failed
        os._exit(0)
