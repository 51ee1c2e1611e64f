"""The accelerator, built from the repository where Rust is, and a switch between it and Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from respool.accelerator import VARIABLE, accelerator, find_accelerator, library_name

CRATE = Path(__file__).parents[2] / "native"


def cargo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run cargo on the crate, without the network; skip the test where there is none."""
    program = shutil.which("cargo")
    if program is None or not CRATE.is_dir():
        pytest.skip("the accelerator is built by cargo, which is not here")
    command = [program, *arguments, "--release", "--offline"]
    return subprocess.run(
        command, cwd=CRATE, capture_output=True, text=True, timeout=900, check=False
    )


@lru_cache(maxsize=1)
def _built() -> str:
    ran = cargo("build", "--lib")
    assert ran.returncode == 0, ran.stderr
    return str(CRATE / "target" / "release" / library_name())


def native_library() -> Any:
    """The library, loaded; skip the test where it cannot be built."""
    cargo("--version")
    status = find_accelerator(_built())
    assert status.library is not None, status.detail
    return status.library


@contextmanager
def accelerated(yes: bool) -> Iterator[None]:
    """Choose the accelerator, or Python alone, for all that begins within."""
    known = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = _built() if yes else "off"
    accelerator.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if known is not None:
            os.environ[VARIABLE] = known
        accelerator.cache_clear()
