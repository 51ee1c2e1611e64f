"""Charts: standalone pictures with every figure drawn at its value."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import respool
from bench.charts import HEIGHT, WIDTH, Axis, Place, Plot, picture
from bench.frontier_chart import COLOURS, PLOTS, Curve, curves_of, drawn
from bench.held_out import SessionFigures

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
PLOT = Plot("A & B", "cost", "turns", Axis(0, 10, {0: "0", 10: "10"}), Axis(1, 3, {2: "<2>"}))


@pytest.mark.parametrize(
    ("point", "place"),
    [
        ((0, 1), (0, HEIGHT)),
        ((10, 3), (WIDTH, 0)),
        ((5, 2), (WIDTH / 2, HEIGHT / 2)),
    ],
)
def test_points_stand_where_their_numbers_say(point: Place, place: Place):
    assert PLOT.at(point) == place


def test_a_plot_says_what_it_was_told():
    pieces = [
        *PLOT.drawn(),
        PLOT.line([(0, 1), (10, 3)], "blue"),
        PLOT.dot((10, 3), "grey", "here"),
    ]
    root = ElementTree.fromstring(picture("One & all", [pieces], {"blue dashed": "theirs"}))
    said = [one.text for one in root.iter(f"{SVG}text")]
    assert said == ["A & B", "cost", "0", "10", "<2>", "turns", "here", "theirs"]
    lines = [one.get("d") for one in root.iter(f"{SVG}path") if one.get("class") == "line blue"]
    assert lines == [f"M0.0 {HEIGHT:.1f}L{WIDTH:.1f} 0.0"]
    assert root.findtext(f"{SVG}title") == "One & all"


def test_sessions_are_added_up():
    rows = [
        figures(f"{preset} miss_penalty={caution}", base=base, all_in=all_in, lost=lost)
        for preset in COLOURS
        for caution in (1.5, respool.Policy.preset(preset).miss_penalty)
        for base, all_in, lost in ((100.0, 90.0, 1), (300.0, 210.0, 0))
    ]
    other = figures("lean miss_penalty=1.5", base=100.0, all_in=50.0, lost=10)
    curves = {curve.preset: curve for curve in curves_of([*rows, other])}
    assert list(curves) == list(COLOURS)
    assert all(curve.chosen == (0.05, 0.75) for curve in curves.values())
    assert curves["safe"].points == [(0.05, 0.75), (0.05, 0.75)]
    assert curves["lean"].points == [(11 / 30, 0.7), (0.05, 0.75)]


def figures(policy: str, *, base: float, all_in: float, lost: int) -> SessionFigures:
    return SessionFigures(
        agent="codex",
        owner="o",
        repository="o/r",
        session="s",
        policy=policy,
        base=base,
        bill=base,
        all_in=all_in,
        lost=lost,
        requests=10,
        invalid=0,
        breaks=0,
        seconds=0.1,
    )


def test_what_is_lost_beyond_the_plot_is_left_out():
    curve = Curve("safe", [(9.0, 0.9), (0.01, 0.9), (0.0, 0.95)], (0.01, 0.9))
    said = drawn({agent: [curve] for agent in PLOTS})
    places = [float(x) for x in re.findall(r'class="line blue" d="M([\d.]+) .*L', said)]
    assert len(places) == len(PLOTS)
    assert all(0 < x < WIDTH for x in places)


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_pictures_in_the_docs_stand_alone(path: Path):
    text = path.read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title")
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg",
        "title",
        "style",
        "g",
        "path",
        "text",
        "circle",
    }
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\(|@import|href|\son\w+=", text)
