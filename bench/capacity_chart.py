"""Waits and use of one core by the number of agents, as a picture.

    python -m bench.capacity_chart [JSON] [-o docs/capacity.svg]

Reads what `python -m bench.capacity --check … --json JSON` wrote. Lines are simulated, dots are
runs of a real server.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.capacity import Checked, Figures, Plan
from bench.charts import Axis, Plot, picture
from bench.results import RECORDED

LEGEND: Final = {"blue": "median", "orange": "one request in a hundred", "grey": "share of a core"}
STEPS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000)
MOST_MS: Final = 250


class Recorded(Struct, frozen=True):
    """Figures of one core."""

    plan: Plan
    checks: tuple[Checked, ...]
    curve: tuple[tuple[int, Figures], ...]


def plotted(found: Recorded, title: str, up: Axis, lines: dict[str, Callable[[Figures], float]],
            label: str) -> Iterator[str]:  # fmt: skip
    """One plot over the number of agents."""
    most = found.curve[-1][0]
    step = next((one for one in STEPS if most / one <= 5), STEPS[-1])
    along = Axis(0, most, {float(n): f"{n:,}" for n in range(0, most + 1, step)})
    plot = Plot(title, label, "agents at work on one core", along, up)
    yield from plot.drawn()
    for kind, of in lines.items():
        held = [(float(count), of(figures)) for count, figures in found.curve]
        yield plot.line([one for one in held if one[1] <= up.most], kind)
        for one in found.checks:
            if one.agents <= most and of(one.real) <= up.most:
                yield plot.dot((one.agents, of(one.real)), kind)


def main() -> None:
    """Read, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("json", nargs="?", type=Path, default=RECORDED / "19-capacity.json")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/capacity.svg"))
    given = parser.parse_args()
    found = msgspec.json.decode(given.json.read_bytes(), type=Recorded)
    waits = Axis(0, MOST_MS, {float(n): f"{n}" for n in range(0, MOST_MS + 1, 50)})
    shares = Axis(0, 1, {n / 5: f"{20 * n} %" for n in range(6)})
    plots = [
        plotted(
            found,
            "Wait for one server",
            waits,
            {"blue": lambda one: 1e3 * one.p50, "orange": lambda one: 1e3 * one.p99},
            "milliseconds that a request waits",
        ),
        plotted(found, "CPU", shares, {"grey": lambda one: one.busy}, "of one core"),
    ]
    told = "Waits and CPU of one server by the number of agents; dots are measured"
    given.output.write_text(picture(told, plots, LEGEND), "utf-8")


if __name__ == "__main__":
    main()
