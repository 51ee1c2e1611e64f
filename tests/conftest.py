"""Settings for all tests: no deadline for an example, as machines are noisy; and a model server.

The examples are the same in every run, so that a failure is one of the change at hand; with
FUZZ=1 in the environment new ones are drawn. `make laws` draws more of them, with THOROUGH=1.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from respool.store import SQLStore
from tests.e2e.model_server import ModelServer, missing, running
from tests.effort import THOROUGH, examples
from tests.tables import Rows, rows_of, run_rows

settings.register_profile(
    "respool",
    deadline=None,
    derandomize="FUZZ" not in os.environ,
    max_examples=examples(100),
)
settings.load_profile("respool")
if not THOROUGH and "FUZZ" not in os.environ:
    # Constants of all modules that are loaded are drawn otherwise: what one test draws would
    # depend on which tests ran before it in its process.
    providers._get_local_constants = lambda: providers._local_constants
# Modules are compiled once, whatever is usual here: tests start many processes that load them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for own in [name for name in os.environ if name.startswith("RESPOOL_")]:
    del os.environ[own]  # settings of whoever runs the tests, which are none of theirs


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--cases`, to run one case of a table by its id."""
    parser.addoption("--cases", action="store_true", help="make a test of each case of a table")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the garbage collector: nothing becomes free, and it looks at all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of a table (see tests/tables.py)."""
    definition = metafunc.definition
    marks = list(definition.iter_markers())
    if metafunc.config.getoption("--cases") or len(marks) != len(definition.own_markers):
        return
    rows = rows_of(metafunc.function, marks)
    if rows is not None:
        definition.own_markers[:] = [mark for mark in marks if mark.name != "parametrize"]
        names = list(rows[0][1])
        metafunc.parametrize(names, [[rows] * len(names)], ids=[f"{len(rows)} cases"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a table."""
    held = pyfuncitem.callspec.params.values() if hasattr(pyfuncitem, "callspec") else ()
    for rows in held:
        if isinstance(rows, Rows):
            run_rows(pyfuncitem.obj, rows)
            return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what draws examples, so that `make laws` draws all of them."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item.obj, "hypothesis"):
            item.add_marker("drawn")


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever store a test began ends with it: one that is left is warned of, and a failure."""
    begun: list[SQLStore] = []
    begin = SQLStore.__init__

    def noted(store: SQLStore, *args: Any, **given: Any) -> None:
        begin(store, *args, **given)
        begun.append(store)

    monkeypatch.setattr(SQLStore, "__init__", noted)
    yield
    for store in begun:
        store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A real model server, for all tests of a file."""
    if reason := missing():
        pytest.skip(reason)
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started
