"""Waits and use of one core by the number of agents, as a picture.

    python -m bench.capacity_chart JSON [-o docs/capacity.svg]

Reads what `python -m bench.capacity --check … --json JSON` wrote. Lines are simulated, dots are
runs of a real server.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.capacity import Checked, Figures, Plan
from bench.charts import Axis, Place, Plot, picture

LEGEND: Final = {
    "blue": "512 MB for conversations",
    "orange": "2 GB",
    "grey": "any memory",
}
SHOWN: Final = {"blue": 512.0, "orange": 2_048.0, "grey": 8_192.0}
STEPS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000)
MOST_MS: Final = 200


class Recorded(Struct, frozen=True):
    """Figures of one server, by the megabytes that it has for conversations."""

    plans: tuple[Plan, ...]
    checks: tuple[Checked, ...]
    curves: tuple[tuple[float, tuple[tuple[int, Figures], ...]], ...]


def plotted(
    found: Recorded, *, title: str, label: str, up: Axis, of: Callable[[Figures], float]
) -> Iterator[str]:
    """One plot over the number of agents."""
    curves = dict(found.curves)
    most = max(one.agents_per_server for one in found.plans) * 3 // 2
    step = next((one for one in STEPS if most / one <= 6), STEPS[-1])
    along = Axis(0, most, {float(n): f"{n:,}" for n in range(0, most + 1, step)})
    plot = Plot(title, label, "agents at work on one server", along, up)
    yield from plot.drawn()
    for kind, megabytes in SHOWN.items():
        held = [(float(count), of(figures)) for count, figures in curves[megabytes]]
        yield plot.line(list(_within(held, most, up.most)), kind)
    for one in found.checks:
        if one.agents <= most and of(one.real) <= up.most:
            yield plot.dot((one.agents, of(one.real)), "grey")


def _within(points: Sequence[Place], most: float, top: float) -> Iterator[Place]:
    """The line up to where it leaves the plot."""
    before: Place | None = None
    for x, y in points:
        if x > most or y > top:
            if before is not None:
                x0, y0 = before
                share = min((most - x0) / (x - x0), (top - y0) / (y - y0) if y > y0 else 1.0)
                yield x0 + share * (x - x0), y0 + share * (y - y0)
            return
        yield x, y
        before = x, y


def main() -> None:
    """Read, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/capacity.svg"))
    given = parser.parse_args()
    found = msgspec.json.decode(given.json.read_bytes(), type=Recorded)
    waits = Axis(0, MOST_MS, {float(n): f"{n}" for n in range(0, MOST_MS + 1, 50)})
    shares = Axis(0, 1, {n / 5: f"{20 * n} %" for n in range(6)})
    plots = [
        plotted(
            found,
            title="Wait of one request in a hundred",
            label="milliseconds or more",
            up=waits,
            of=lambda one: 1e3 * one.p99,
        ),
        plotted(found, title="CPU", label="of one core", up=shares, of=lambda one: one.busy),
    ]
    title = "Waits and CPU of one server by the number of agents; dots are measured"
    given.output.write_text(picture(title, plots, LEGEND), "utf-8")


if __name__ == "__main__":
    main()
