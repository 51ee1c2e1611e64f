"""Chart of the frontier: cost against lost turns, by caution.

    python -m bench.frontier_chart WEIGHTS [CORPUS] [-o docs/frontier.svg]

WEIGHTS is the folder of `bench.fit_forecast --folds`: each preset is drawn twice, with the weights
that are shipped and with those fitted without the owner of the session at hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Final, NamedTuple

import respool
from bench.charts import Axis, Place, Plot, picture
from bench.frontier import CORPUS, Row, measured, weights_of
from bench.passes import panel

CAUTIONS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
COLOURS: Final = {"safe": "blue", "lean": "orange"}
UP, ALONG = "all-in cost, next to nothing taken out", "turns that missed something"
PLOTS: Final = {
    "anthropic": Plot(
        "Claude Code, 16 sessions", UP, ALONG,
        Axis(0.0, 0.04, {n / 100: f"{n} %" for n in range(5)}),
        Axis(0.84, 1.01, {n / 100: f".{n}" for n in range(84, 100, 4)} | {1.0: "1"}),
    ),
    "openai-responses": Plot(
        "Codex, 8 sessions", UP, ALONG,
        Axis(0.0, 0.12, {n / 100: f"{n} %" for n in range(0, 13, 2)}),
        Axis(0.6, 1.02, {n / 10: f".{n}" for n in range(6, 10)} | {1.0: "1"}),
    ),
}  # fmt: skip
# By the published baselines; on Claude Code the best fixed method is to take out nothing.
OTHERS: Final[Mapping[str, Mapping[str, Place]]] = {
    "anthropic": {"nothing taken out": (0.0, 1.0)},
    "openai-responses": {"nothing taken out": (0.0, 1.0), "best fixed method": (0.101, 0.810)},
}


class Curve(NamedTuple):
    """One preset at several degrees of caution."""

    preset: str
    held_out: bool
    points: Sequence[Place]  # by caution: lost, all-in
    chosen: Place  # at the caution that the preset has


def tried() -> dict[str, respool.Policy]:
    """Each preset at each degree of caution, by name."""
    presets = {name: respool.Policy.preset(name) for name in COLOURS}
    degrees = sorted({*CAUTIONS, *(policy.miss_penalty for policy in presets.values())})
    return {
        f"{name} {one:g}": policy.replace(miss_penalty=one)
        for name, policy in presets.items()
        for one in degrees
    }


def curves_of(rows: Sequence[Row], *, held_out: bool) -> Iterator[Curve]:
    """Curves of one agent's sessions."""
    for preset in COLOURS:
        names = [name for name in tried() if name.startswith(f"{preset} ")]
        points = {name: _summed([row for row in rows if row.policy == name]) for name in names}
        chosen = points[f"{preset} {respool.Policy.preset(preset).miss_penalty:g}"]
        yield Curve(preset, held_out, list(points.values()), chosen)


def _summed(rows: Sequence[Row]) -> Place:
    lost = sum(row.lost for row in rows) / sum(row.requests for row in rows)
    return lost, sum(row.all_in for row in rows) / sum(row.base for row in rows)


def drawn(curves: Mapping[str, Sequence[Curve]]) -> str:
    """The picture: a plot for each agent."""
    legend = {
        f"{colour}{' dashed' * held}": f"{preset}{', held out' * held}"
        for preset, colour in COLOURS.items()
        for held in (False, True)
    }
    plots = [_plot(format, curves[format]) for format in PLOTS]
    return picture("All-in cost against turns that missed something", plots, legend)


def _plot(format: str, curves: Sequence[Curve]) -> Iterator[str]:
    plot = PLOTS[format]
    yield from plot.drawn()
    for curve in curves:
        colour = COLOURS[curve.preset]
        inside = [point for point in curve.points if point[0] <= plot.x.most]
        yield plot.line(inside, f"{colour}{' dashed' * curve.held_out}")
        yield plot.dot(curve.chosen, colour)
    for name, point in OTHERS[format].items():
        yield plot.dot(point, "grey", name)


def main() -> None:
    """Measure, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/frontier.svg"))
    given = parser.parse_args()
    found: dict[str, list[Curve]] = {format: [] for format in PLOTS}
    for folder in (None, given.weights):
        sessions = panel(given.corpus, rest=False)
        tasks = [(one, tried(), weights_of(one, folder)) for one in sessions]
        with Pool() as pool:
            rows = [row for of in pool.imap_unordered(measured, tasks) for row in of]
        for format in PLOTS:
            of_it = [row for row in rows if row.format == format]
            found[format] += curves_of(of_it, held_out=folder is not None)
    given.output.write_text(drawn(found), "utf-8")


if __name__ == "__main__":
    main()
