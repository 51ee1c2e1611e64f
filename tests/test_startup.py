"""Starts stay light: what each must not import. bench/startup.py measures them."""

from __future__ import annotations

import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import respool
from respool.hooks import hook_client
from respool.integrations.requirement import MissingFramework
from respool.regex import CompiledPattern, LazyPattern, lazy_compile

SOURCE = Path(respool.__file__).parents[1]
# Loaded with the first price, count, shell command, screen, worker or connection.
HEAVY = """
    aiohttp asyncio bpe_openai concurrent ctypes email genai_prices http importlib.metadata logging
    multiprocessing rich rs_bpe socket sqlite3 ssl tree_sitter tree_sitter_bash urllib.request
    uvicorn
""".split()  # noqa: SIM905 - reads better
# Loaded with the first forecast, memo or mistake.
FILES = "difflib importlib.resources pathlib random secrets tempfile tomllib".split()  # noqa: SIM905
COMMANDS = "msgspec json subprocess respool.engine respool.policy respool.sessions".split()  # noqa: SIM905
STARTS = {
    "import": (["-c", "import respool"], [*HEAVY, *FILES, "msgspec", "respool.errors"]),
    "engine": (["-c", "import respool; respool.compact"], [*HEAVY, *FILES, "click", "subprocess"]),
    "help": (["-m", "respool", "--help"], [*HEAVY, *COMMANDS, "respool.cli.run"]),
    "hook": (["-m", "respool", "hook", "pi"], [*HEAVY, *COMMANDS, "respool.hooks.events"]),
    "run": (
        ["-m", "respool", "run", "--help"],
        [*{*HEAVY} - {"logging", "socket"}, "respool.cli.serve", "respool.engine", "respool.proxy"],
    ),
    "client": (
        ["-I", "-S", hook_client.__file__, "nobody"],
        [*HEAVY, *FILES, *COMMANDS, "click", "contextlib", "enum", "re", "site", "typing"],
    ),
}

DETECTION = """
from respool.wire.body import read_body
from respool.wire.detect import detect_format
assert detect_format(read_body(b'{"contents": []}'), None) == "gemini"
"""


def imported(words: list[str], folder: Path) -> set[str]:
    """Run Python, and list the modules that it imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "XDG_RUNTIME_DIR": str(folder)},
    )
    return set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, in which the hook's resident process has its socket."""
    with tempfile.TemporaryDirectory(prefix="st") as made:
        yield Path(made)  # without its socket, the process ends


@pytest.mark.parametrize("start", STARTS)
def test_a_start_imports_nothing_heavy(start: str, folder: Path):
    if start in ("hook", "client") and sys.platform == "win32":
        pytest.skip("there is no resident process")
    words, unwanted = STARTS[start]
    found = imported(words, folder)
    assert "os" in found  # the list can be read
    heavy = {one for name in unwanted for one in found if f"{one}.".startswith(f"{name}.")}
    assert heavy == set()


def test_an_import_is_seen(folder: Path):
    assert {"json", "json.decoder"} <= imported(["-c", "import json"], folder)


@pytest.mark.parametrize(
    "code",
    [
        "from respool.pricing import _find_maker; assert _find_maker('gemini', '') == 'google'",
        "from respool.wire.base import wire_format; assert wire_format('gemini').name == 'gemini'",
        "from respool.wire.base import history_fields; assert 'contents' in history_fields()",
        DETECTION,
    ],
)
def test_formats_are_known_without_the_engine(code: str):
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCE)})


def test_a_pattern_is_compiled_with_its_first_use():
    pattern = lazy_compile(r"(?P<digits>\d+)", re.ASCII)
    assert isinstance(pattern, LazyPattern)
    assert pattern.pattern == r"(?P<digits>\d+)"
    assert isinstance(pattern, LazyPattern)
    assert pattern.sub("n", "3 of 14") == "n of n"
    assert type(pattern) is CompiledPattern
    compiled = re.compile(r"(?P<digits>\d+)", re.ASCII)
    for name in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(pattern, name) == getattr(compiled, name)
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = lazy_compile("").unheard_of  # pyright: ignore[reportAttributeAccessIssue]


def test_every_pattern_compiles():
    """A mistake in a pattern would be seen at its first use only."""
    patterns = 0
    for found in pkgutil.walk_packages(respool.__path__, "respool."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = import_module(found.name)
        except MissingFramework:  # an adapter whose framework is not installed here
            continue
        for value in vars(module).values():
            if isinstance(value, CompiledPattern):
                assert isinstance(getattr(value, "flags"), int)  # noqa: B009 - which compiles it
                patterns += 1
    assert patterns > 200


def test_the_package_gives_its_names_and_modules_when_they_are_used():
    assert set(respool.__all__) <= set(dir(respool))
    code = (
        "import respool, sys\n"
        "assert respool.passes.View and respool.errors.RespoolError is respool.RespoolError\n"
        "assert 'Policy' not in vars(respool) and respool.Policy is respool.policy.Policy\n"
        "assert 'Policy' in vars(respool) and not hasattr(respool, 'unheard_of')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCE)})
