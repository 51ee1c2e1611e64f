"""CPU time, memory and modules of respool's starts, beside a bare interpreter.

    python -m bench.startup [--base CHECKOUT] [--runs 20]

Each start is a process of its own, with compiled bytecode. The starts take turns with
`python -c pass`, for another process on the machine changes them all; a ratio is to the bare
interpreter of the same turn. With --base, the starts of another checkout are measured beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1]
# A small process between this one and the measured one: a process inherits its parent's peak.
_LAUNCHER = """
import os, sys
null = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, used = os.wait4(child, 0)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


class Start(NamedTuple):
    """One way to start a process; `checkout` is None for the bare interpreter."""

    name: str
    words: tuple[str, ...]
    checkout: Path | None = None


BARE = Start("python -c pass", (sys.executable, "-c", "pass"))


class Cost(NamedTuple):
    """What one process took."""

    milliseconds: float
    megabytes: float


def main() -> None:
    """Print a table of starts for this checkout and the base."""
    parser = argparse.ArgumentParser(description="Measure respool's starts.")
    parser.add_argument("--base", type=Path, help="checkout to measure beside this one")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    checkouts = [one.resolve() for one in (given.base, HERE) if one is not None]
    with tempfile.TemporaryDirectory(prefix="st") as folder:
        try:
            measure(checkouts, Path(folder), given.runs)
        finally:
            for socket in (Path(folder) / "respool").glob("hook-*"):
                socket.unlink()  # so that the resident processes end


def starts(checkout: Path) -> list[Start]:
    """The starts of a checkout."""
    client = checkout / "src" / "respool" / "hooks" / "hook_client.py"
    python = sys.executable
    words = {
        "import respool": [python, "-c", "import respool"],
        "respool.compact": [python, "-c", "import respool; respool.compact"],
        "respool --help": [python, "-m", "respool", "--help"],
        "respool run -- true": [python, "-m", "respool", "run", "--", "true"],
        "hook call": [python, "-I", "-S", str(client), "claude"],
        "respool hook claude": [python, "-m", "respool", "hook", "claude"],
        "hook's resident process": [python, "-c", "import respool.hooks.resident"],
    }
    return [Start(name, tuple(one), checkout) for name, one in words.items()]


def measure(checkouts: list[Path], folder: Path, runs: int) -> None:
    """Run all starts in turns and print their medians."""
    everything = [BARE, *(one for checkout in checkouts for one in starts(checkout))]
    for one in everything:
        run(one, folder)  # compile bytecode, start resident processes
    turns = [{one: run(one, folder) for one in everything} for _ in range(runs)]
    print(f"| start | CPU ms | ratio to {BARE.name} | MB | modules |\n|---|---|---|---|---|")
    for name in dict.fromkeys(one.name for one in everything):
        columns = [_figures(one, turns, folder) for one in everything if one.name == name]
        cells = [" → ".join(one) for one in zip(*columns, strict=True)]
        print(f"| {' | '.join([name, *cells])} |")


def _figures(start: Start, turns: list[dict[Start, Cost]], folder: Path) -> tuple[str, ...]:
    costs = [turn[start] for turn in turns]
    ratios = [
        cost.milliseconds / turn[BARE].milliseconds for cost, turn in zip(costs, turns, strict=True)
    ]
    return (
        f"{statistics.median(one.milliseconds for one in costs):.1f}",
        f"{statistics.median(ratios):.1f}",
        f"{statistics.median(one.megabytes for one in costs):.1f}",
        f"{count_modules(start, folder)}",
    )


def run(start: Start, folder: Path) -> Cost:
    """Run a start, and take what the system says of its process."""
    words = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *start.words]
    done = _run(words, start, folder)
    status, seconds, most = done.stdout.split()
    if int(status):
        raise RuntimeError(f"{start.name}: {done.stderr.decode()}")
    size = int(most) if sys.platform == "darwin" else int(most) * 1024
    return Cost(float(seconds) * 1_000, size / 1e6)


def count_modules(start: Start, folder: Path) -> int:
    """The modules that a start imports, the interpreter's own included."""
    words = [start.words[0], "-X", "importtime", *start.words[1:]]
    said = _run(words, start, folder).stderr
    return said.count(b"import time:") - said.count(b"| imported package")


def _run(words: list[str], start: Start, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words,
        env=_environment(start, folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


def _environment(start: Start, folder: Path) -> dict[str, str]:
    names = {"HOME": folder, "XDG_RUNTIME_DIR": folder, "RESPOOL_STORE": folder / "respool.db"}
    names["PYTHONPYCACHEPREFIX"] = folder / "bytecode"
    if start.checkout is not None:
        names["PYTHONPATH"] = start.checkout / "src"
    return {"PATH": os.environ["PATH"], **{name: str(path) for name, path in names.items()}}


if __name__ == "__main__":
    main()
