"""Ray engine: units of work mapped by Ray Data over the cores of a machine or of a cluster.

Only the units and their outcomes go through Ray; a worker reads its input and writes its output
itself. If a worker dies, Ray does its unit again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from .addresses import missing_package
from .worker_process import safe_path

Unit = TypeVar("Unit")
Outcome = TypeVar("Outcome")

_OBJECT_STORE_BYTES = 500_000_000  # units and outcomes are small
_MAX_RETRIES = 2  # of a unit whose worker died; Ray Data would try for ever
_MAX_PARTITIONS = 10_000  # beyond it, a task of Ray has several units


def _import_ray() -> Any:
    # Set before the import, which reads them.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray: Any = import_module("ray")  # lazily: it takes seconds
        import_module("ray.data")
    except ImportError as error:
        raise missing_package("The Ray engine", error, "batch,ray") from None
    return ray


@contextmanager
def _cluster(ray: Any, jobs: int | None) -> Generator[None]:
    """The cluster that RAY_ADDRESS names, or one of this machine's cores."""
    if ray.is_initialized():
        yield
        return
    here: dict[str, Any] = {
        "num_cpus": jobs,
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE_BYTES,
    }
    with tempfile.TemporaryDirectory(prefix="respool-ray-") as folder:
        # Workers import from the folder in which Ray starts: not from the one that a user is in.
        with contextlib.chdir(folder), safe_path():
            ray.init(
                log_to_driver=False,
                logging_level="ERROR",
                **({} if os.environ.get("RAY_ADDRESS") else here),
            )
        try:
            yield
        finally:
            ray.shutdown()


def _call(function: Callable[[Unit], Outcome], row: dict[str, Any]) -> dict[str, Any]:
    """One unit, in a worker."""
    outcome = function(pickle.loads(row["unit"]))  # noqa: S301 - of our own process
    return {"number": row["number"], "outcome": pickle.dumps(outcome)}


def run_on_ray(
    function: Callable[[Unit], Outcome], units: Sequence[Unit], jobs: int | None
) -> Iterator[tuple[int, Outcome]]:
    """The number and the outcome of each unit, as they end; one that Ray gave up is left out."""
    ray = _import_ray()
    # Ray reports dead workers on standard output, which is for the command's own output.
    with contextlib.redirect_stdout(sys.stderr), _cluster(ray, jobs):
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = -1
        rows = [{"number": at, "unit": pickle.dumps(unit)} for at, unit in enumerate(units)]
        parts = max(1, min(len(rows), _MAX_PARTITIONS))
        dataset = ray.data.from_items(rows, override_num_blocks=parts)
        with warnings.catch_warnings():  # the bound on retries has another name from 2.64 on
            warnings.simplefilter("ignore")
            mapped = dataset.map(partial(_call, function), num_cpus=1, max_retries=_MAX_RETRIES)
        for row in mapped.iter_rows():
            yield row["number"], pickle.loads(row["outcome"])  # noqa: S301 - of our own workers
