"""Plots as self-contained SVG: light and dark, no script, no external files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 340, 240  # of one plot
LEFT, TOP, BETWEEN, BELOW = 56, 56, 76, 84
STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #3b3b3b }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #dcdcdc } .axis { stroke: #8a8a8a; fill: none }
.line { fill: none; stroke-width: 2 }
.dashed { stroke-dasharray: 5 4 }
.blue { stroke: #1f6feb } .orange { stroke: #c2410c } .grey { stroke: #767676 }
circle.blue { fill: #1f6feb } circle.orange { fill: #c2410c } circle.grey { fill: #767676 }
@media (prefers-color-scheme: dark) {
  text { fill: #d6d6d6 }
  .grid { stroke: #3a3a3a }
  .blue { stroke: #6ea8fe } .orange { stroke: #fb923c } .grey { stroke: #a3a3a3 }
  circle.blue { fill: #6ea8fe } circle.orange { fill: #fb923c } circle.grey { fill: #a3a3a3 }
}
"""

Place = tuple[float, float]


class Axis(NamedTuple):
    """Range of one axis of a plot, and the labels at its lines."""

    least: float
    most: float
    marks: Mapping[float, str]


class Plot(NamedTuple):
    """The frame of a plot."""

    title: str
    up: str  # label of the vertical axis
    along: str
    x: Axis
    y: Axis

    def at(self, point: Place) -> Place:
        """Return the position of a point in the picture."""
        along = (point[0] - self.x.least) / (self.x.most - self.x.least)
        up = (point[1] - self.y.least) / (self.y.most - self.y.least)
        return WIDTH * along, HEIGHT * (1 - up)

    def drawn(self) -> Iterator[str]:
        """The frame itself."""
        yield f'<text class="title" x="0" y="-32">{escape(self.title)}</text>'
        yield f'<text x="0" y="-14">{escape(self.up)}</text>'
        for value, said in self.x.marks.items():
            x, _ = self.at((value, self.y.least))
            yield f'<path class="grid" d="M{x:.1f} 0V{HEIGHT}"/>'
            yield _text(x, HEIGHT + 18, said, "middle")
        for value, said in self.y.marks.items():
            _, y = self.at((self.x.least, value))
            yield f'<path class="grid" d="M0 {y:.1f}H{WIDTH}"/>'
            yield _text(-8, y + 4, said, "end")
        yield f'<path class="axis" d="M0 0V{HEIGHT}H{WIDTH}"/>'
        yield _text(WIDTH, HEIGHT + 36, self.along, "end")

    def line(self, points: Sequence[Place], kind: str) -> str:
        """A line through points, of a kind that the style names."""
        places = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(self.at, points))
        return f'<path class="line {kind}" d="M{places}"/>'

    def dot(self, point: Place, kind: str, said: str = "") -> str:
        """A point with its label."""
        x, y = self.at(point)
        drawn = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        if not said:
            return drawn
        right = x > WIDTH / 2
        return drawn + _text(x + (-8 if right else 8), y + 17, said, "end" if right else "start")


def picture(told: str, plots: Iterable[Iterable[str]], legend: Mapping[str, str]) -> str:
    """Plots side by side, with a legend by kind."""
    drawn = [list(plot) for plot in plots]
    width = LEFT + (WIDTH + BETWEEN) * len(drawn)
    height = TOP + HEIGHT + BELOW
    sized = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {sized} role="img">',
        f"<title>{escape(told)}</title>",
        f"<style>{STYLE}</style>",
    ]
    for at, plot in enumerate(drawn):
        place = LEFT + at * (WIDTH + BETWEEN)
        pieces += [f'<g transform="translate({place} {TOP})">', *plot, "</g>"]
    return "\n".join([*pieces, *_legend(legend, width), "</svg>", ""])


def _legend(legend: Mapping[str, str], width: int) -> Iterator[str]:
    step, y = (width - LEFT) / max(1, len(legend)), TOP + HEIGHT + 66
    for at, (kind, said) in enumerate(legend.items()):
        x = LEFT + at * step
        yield f'<path class="line {kind}" d="M{x:.1f} {y - 4}h28"/>'
        yield _text(x + 34, y, said, "start")


def _text(x: float, y: float, said: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
