"""A real systemd user manager, for tests: private to the test, in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SYSTEMD = Path("/lib/systemd/systemd")
# It wants a system that was booted with systemd, and asks for this folder to know.
START = f"mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec {SYSTEMD} --user"


def missing() -> str | None:
    """Reason that there can be no user manager here; None: there can."""
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        return "there is no systemd here"
    if shutil.which("unshare") is None or os.getuid() != 0:
        return "a user manager of the test's own needs unshare and root"
    return None


@contextlib.contextmanager
def user_manager(folder: Path, home: Path, **variables: str) -> Iterator[dict[str, str]]:
    """The variables by which `systemctl --user` reaches a manager that runs for the block."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    world = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", START],
        env={**world, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asked = ["systemctl", "--user", "show-environment"]
        until = time.monotonic() + 10
        while subprocess.run(asked, env=world, capture_output=True, check=False).returncode:
            assert time.monotonic() < until, "the user manager does not answer"
            time.sleep(0.1)
        yield {"XDG_RUNTIME_DIR": str(runtime)}
    finally:
        subprocess.run(["systemctl", "--user", "exit"], env=world, check=False)
        process.wait(20)
