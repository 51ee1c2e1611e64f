"""Record what was checked of each framework, for the table in the documentation."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

FOUND = Path(__file__).parents[2] / "build" / "frameworks"
_OUTCOMES: dict[str, dict[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome of each test by module; a failure outweighs all else."""
    if not report.nodeid.startswith("tests/frameworks/"):
        return
    if report.when != "call" and report.outcome != "failed":
        return
    module, _, name = report.nodeid.partition("::")
    outcomes = _OUTCOMES.setdefault(Path(module).stem, {})
    plain = name.partition("[")[0]
    order = ("skipped", "passed", "failed")  # one wire may be skipped where others passed
    outcomes[plain] = max(outcomes.get(plain, "skipped"), report.outcome, key=order.index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes of this environment, with the versions in it."""
    del session
    if not _OUTCOMES:
        return
    FOUND.mkdir(parents=True, exist_ok=True)
    from tests.frameworks.table import ROWS

    packages = {name: _version(name) for row in ROWS for name in row.packages}
    data: dict[str, Any] = {"versions": packages, "outcomes": _OUTCOMES}
    (FOUND / f"{Path(sys.prefix).name}.json").write_text(json.dumps(data, indent=1))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
