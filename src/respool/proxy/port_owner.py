"""The process that listens on a port, as far as this process can see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_TABLES: Final = ("net/tcp", "net/tcp6")
_LISTENING: Final = "0A"  # the state of a socket that listens
_MAX_SECONDS: Final = 3.0  # for lsof


def describe_port_owner(port: int, proc: Path = Path("/proc")) -> str:
    """The name and number of the process that listens on a port; empty: it cannot be seen.

    Only a program's name is given: its arguments may hold a key.
    """
    if sys.platform == "darwin":
        return _ask_lsof(port)
    with suppress(OSError, ValueError):
        inodes = {inode for inode in _listening_inodes(port, proc) if inode != "0"}
        for folder in _processes(proc) if inodes else ():
            if _holds(folder, inodes):
                return _describe(folder)
    return ""


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    """The inodes of the sockets that listen on a port."""
    for table in _TABLES:
        with suppress(OSError):
            for line in (proc / table).read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _processes(proc: Path) -> Iterator[Path]:
    return (folder for folder in proc.iterdir() if folder.name.isdigit())


def _holds(folder: Path, inodes: set[str]) -> bool:
    """True if a process has one of these sockets open; those of other users cannot be seen."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    with suppress(OSError):
        for link in (folder / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(link) in wanted:  # noqa: PTH115 - a link to no file
                    return True
    return False


def _describe(folder: Path) -> str:
    words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    name = (folder / "comm").read_text("utf-8", "replace").strip()
    if any(Path(word).name == "respool" for word in words[:3]):
        name = "respool"
    return f"{name if name.isprintable() else 'a program'} (process {folder.name})"


def _ask_lsof(port: int) -> str:
    lsof = shutil.which("lsof")
    if lsof is None:
        return ""
    command = [lsof, "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        found = subprocess.run(  # noqa: S603 - fixed words and a number
            command, capture_output=True, text=True, timeout=_MAX_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    fields = {line[0]: line[1:] for line in reversed(found.stdout.splitlines()) if line}
    if "p" not in fields:
        return ""
    return f"{fields.get('c', 'a program')} (process {fields['p']})"
