"""Chart of the frontier: cost against lost turns, by caution.

    python -m bench.held_out CORPUS --part fit --per-repository 3 --weights FOLDER \\
        --sweep miss_penalty=1.5 … --json SWEEP
    python -m bench.frontier_chart SWEEP [-o docs/frontier.svg]

No session was seen by the weights that it is measured with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import respool
from bench.charts import Axis, Place, Plot, picture
from bench.held_out import SessionFigures

SETTING: Final = "miss_penalty"
COLOURS: Final = {"safe": "blue", "lean": "orange"}
UP, ALONG = "all-in cost", "turns that missed something"
PLOTS: Final = {
    "claude-code": Plot(
        "Claude Code, 45 sessions", UP, ALONG,
        Axis(0.0, 0.03, {n / 100: f"{n} %" for n in range(4)}),
        Axis(0.88, 1.01, {n / 100: f".{n}" for n in range(88, 100, 4)} | {1.0: "1"}),
    ),
    "codex": Plot(
        "Codex, 17 sessions", UP, ALONG,
        Axis(0.0, 0.05, {n / 100: f"{n} %" for n in range(6)}),
        Axis(0.7, 1.02, {n / 100: f".{n // 10}" for n in range(70, 100, 10)} | {1.0: "1"}),
    ),
}  # fmt: skip


class Curve(NamedTuple):
    """One preset at several degrees of caution."""

    preset: str
    points: Sequence[Place]  # by caution: lost, all-in
    chosen: Place  # at the caution that the preset has


def curves_of(rows: Sequence[SessionFigures]) -> Iterator[Curve]:
    """Curves of one agent's sessions."""
    for preset in COLOURS:
        start = f"{preset} {SETTING}="
        cautions = {
            float(row.policy.removeprefix(start)) for row in rows if row.policy.startswith(start)
        }
        points = {
            caution: _summed([row for row in rows if row.policy == f"{start}{caution}"])
            for caution in sorted(cautions)
        }
        chosen = points[respool.Policy.preset(preset).miss_penalty]
        yield Curve(preset, list(points.values()), chosen)


def _summed(rows: Sequence[SessionFigures]) -> Place:
    lost = sum(row.lost for row in rows) / sum(row.requests for row in rows)
    return lost, sum(row.all_in for row in rows) / sum(row.base for row in rows)


def drawn(curves: Mapping[str, Sequence[Curve]]) -> str:
    """The picture: a plot for each agent."""
    legend = {colour: preset for preset, colour in COLOURS.items()}
    plots = [_plot(agent, curves[agent]) for agent in PLOTS]
    return picture("All-in cost against turns that missed something", plots, legend)


def _plot(agent: str, curves: Sequence[Curve]) -> Iterator[str]:
    plot = PLOTS[agent]
    yield from plot.drawn()
    for curve in curves:
        colour = COLOURS[curve.preset]
        inside = [point for point in curve.points if point[0] <= plot.x.most]
        yield plot.line(inside, colour)
        yield plot.dot(curve.chosen, colour)
    yield plot.dot((0.0, 1.0), "grey", "nothing taken out")


def main() -> None:
    """Draw what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/frontier.svg"))
    given = parser.parse_args()
    rows = msgspec.json.decode(given.sweep.read_bytes(), type=list[SessionFigures])
    curves = {
        agent: list(curves_of([row for row in rows if row.agent == agent])) for agent in PLOTS
    }
    given.output.write_text(drawn(curves), "utf-8")


if __name__ == "__main__":
    main()
