"""Replay page: one complete, small file without network access, safe with any text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from respool.replay.page import render_page
from respool.replay.page.page_data import DETAILED_SESSIONS, clip_strings, thin_points
from respool.replay.result import LostTurn, Replay, RequestPoint
from tests.replay.results import POLICIES, hostile, sample

ASSETS = sorted(
    (package, asset.name)
    for package in ("respool.pages", "respool.replay.page")
    for asset in files(package).iterdir()
    if asset.name.endswith((".js", ".css", ".html"))
)
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]></style></title><svg onload=alert(1)>",
    "$data $style ${script} $$",
    "&lt;b&gt; &amp; \" ' `",
    "a\u2028b\u2029c\x00\x1f\x7f",
    "\u202eright to left",
)


class Outline(HTMLParser):
    """The elements of a page with their attributes, and what stands in its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)


def data_of(text: str) -> dict[str, Any]:
    """Data that the page's script reads."""
    return json.loads(Outline(text).scripts[0])


@pytest.fixture(scope="module")
def forty() -> Replay:
    """A replay of forty sessions."""
    return sample(40)


class TestStructure:
    def test_is_a_page_in_english_that_forbids_all_network(self, forty: Replay):
        text = render_page(forty)
        outline = Outline(text)
        policies = [
            attributes["content"]
            for tag, attributes in outline.elements
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert text.startswith('<!doctype html>\n<html lang="en">')
        assert policies[0] is not None
        rules = dict(rule.split(" ", 1) for rule in policies[0].split("; "))
        for kind, tag in (("script-src", '<script type="module">'), ("style-src", "<style>")):
            (inside,) = re.findall(rf"{tag}(.*?)</{tag[1:7].rstrip('> ')}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            assert rules[kind] == f"'sha256-{digest}'"
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert rules["img-src"] == "data:"
        assert "unsafe" not in policies[0]

    def test_names_nothing_outside_of_itself(self, forty: Replay):
        outline = Outline(render_page(forty))
        named = {
            value
            for _, attributes in outline.elements
            for name, value in attributes.items()
            if name in ("src", "href", "action", "srcset", "data", "poster")
        }
        assert named == {"data:,", "#headline"}

    @pytest.mark.parametrize(("package", "name"), ASSETS)
    def test_its_assets_load_nothing_and_write_no_html(self, package: str, name: str):
        text = files(package).joinpath(name).read_text("utf-8")
        addresses = set(re.findall(r"\b(?:https?|wss?):[^\"'\s)]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches
        ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
        ways += r"|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(|@import|@font-face"
        ways += r"|url\((?!#)|DOMParser|srcdoc|setHTML|createContextualFragment"
        assert re.findall(ways, text) == []
        assert "</script" not in text or name == "page.html"

    @pytest.mark.parametrize(("package", "name"), ASSETS)
    def test_its_assets_can_be_read_in_one_sitting(self, package: str, name: str):
        text = files(package).joinpath(name).read_text("utf-8")
        assert len(text.splitlines()) < 500

    def test_its_script_is_made_of_all_its_files(self, forty: Replay):
        text = render_page(forty)
        scripts = [(package, name) for package, name in ASSETS if name.endswith(".js")]
        parts = [files(package).joinpath(name).read_text("utf-8") for package, name in scripts]
        assert all(text.count(part) == 1 for part in parts)

    def test_has_a_heading_for_every_question(self, forty: Replay):
        titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", render_page(forty))
        assert titles == [
            "Policies compared",
            "Where the tokens went",
            "Money over time",
            "Sessions",
            "Accuracy",
        ]

    def test_is_the_same_every_time(self, forty: Replay):
        assert render_page(forty) == render_page(forty)


class TestText:
    @pytest.mark.parametrize("text", HOSTILE)
    def test_is_never_read_as_html(self, text: str):
        made = render_page(hostile(text))
        elements = [tag for tag, _ in Outline(made).elements]
        assert elements == [tag for tag, _ in Outline(render_page(sample(8))).elements]
        assert len(Outline(made).scripts) == 2

    @pytest.mark.parametrize("text", HOSTILE)
    def test_arrives_as_it_was(self, text: str):
        data = data_of(render_page(hostile(text)))
        session = data["sessions"][0]
        assert {session["agent"], session["source"], data["left"][0]["reason"]} == {text}
        assert data["policies"] == ["none", *(text + name for name in POLICIES[1:])]

    def test_that_utf8_lacks_is_replaced(self):
        data = data_of(render_page(replace(sample(1), counter="half \ud83d of a pair")))
        assert data["counter"] == "half ? of a pair"

    @given(st.text(st.characters(), max_size=30))
    def test_of_any_kind_is_carried(self, text: str):
        spelled = text.encode("utf-8", "replace").decode("utf-8")
        assert data_of(render_page(replace(sample(0), counter=text)))["counter"] == spelled

    @given(st.text(), st.integers(2, 20))
    def test_is_clipped(self, text: str, most: int):
        short = clip_strings({"a": [text]}, most)
        assert isinstance(short, dict)
        assert len(short["a"][0]) <= most
        assert len(text) > most or short["a"][0] == text.encode("utf-8", "replace").decode()


@pytest.mark.slow
class TestSize:
    @pytest.mark.parametrize(
        ("count", "most"), [(0, 120_000), (3, 300_000), (40, 1_200_000), (400, 3_000_000)]
    )
    def test_stays_small(self, count: int, most: int):
        assert len(render_page(sample(count)).encode("utf-8")) < most

    def test_stays_small_whatever_the_texts(self):
        loss = LostTurn(1, ("n" * 5000,) * 20, 20, ("s" * 5000,) * 20)
        replay = sample(DETAILED_SESSIONS)
        sessions = tuple(
            replace(one, scores=tuple(replace(s, losses=(loss,) * 50) for s in one.scores))
            for one in replay.sessions
        )
        assert len(render_page(replace(replay, sessions=sessions)).encode("utf-8")) < 3_000_000

    @pytest.mark.slow
    def test_stays_small_however_many_policies_and_sessions(self):
        names = ("none", *(f"policy-{number}" for number in range(19)))
        replay = sample(60, policies=names)
        many = replace(replay, sessions=replay.sessions * 20)
        text = render_page(many)
        data = data_of(text)
        assert len(text.encode("utf-8")) < 3_000_000
        assert data["count"]["sessions"] == 1200
        assert len(data["sessions"]) < 1200


class TestData:
    def test_has_the_most_expensive_sessions_first_and_draws_only_those(self, forty: Replay):
        sessions = data_of(render_page(forty))["sessions"]
        costs = [session["scores"][0]["bill"]["cost"] for session in sessions]
        drawn = [bool(session["scores"][0]["points"]) for session in sessions]
        assert len(sessions) == 40
        assert costs == sorted(costs, reverse=True)
        assert drawn == [True] * DETAILED_SESSIONS + [False] * 10

    def test_counts_what_it_leaves_out(self, forty: Replay):
        data = data_of(render_page(forty))
        by_id = {session.id: session for session in forty.sessions}
        assert data["count"]["sessions"] == 40
        for session in data["sessions"]:
            for score, whole in zip(session["scores"], by_id[session["id"]].scores, strict=True):
                assert score["break_count"] == len(whole.breaks)
                assert score["break_count"] == sum(cause["times"] for cause in score["breaks"])
                assert score["cut_count"] == len(whole.cuts)
                assert score["lost_turns"] >= len(score["losses"])

    def test_days_add_up_to_all_that_was_spent(self, forty: Replay):
        dated = [one for one in forty.sessions if one.started is not None]
        days = data_of(render_page(forty))["days"]
        for at, policy in enumerate(POLICIES):
            scores = [score for one in dated for score in one.scores if score.policy == policy]
            costs = sum(day["costs"][at] for day in days)
            assert costs == pytest.approx(sum(score.all_in for score in scores))

    def test_recorded_usage_adds_up(self, forty: Replay):
        recorded = [one.recorded for one in forty.sessions if one.recorded]
        data = data_of(render_page(forty))
        reported = sum(one.reported.cost for one in recorded)
        assert data["recorded"]["requests"] == sum(one.requests for one in recorded)
        assert data["recorded"]["reported"]["cost"] == pytest.approx(reported)
        assert len(data["close"]) == len(recorded)
        assert data["recorded"]["explained"] == {
            name: pytest.approx(sum(one.explained[name] for one in recorded), abs=1e-3)
            for name in recorded[0].explained
        }

    def test_of_many_tools_the_small_ones_stand_together(self, forty: Replay):
        tools = tuple(replace(forty.spent.tools[0], name=f"tool {n}", tokens=n) for n in range(50))
        data = data_of(render_page(replace(forty, spent=replace(forty.spent, tools=tools))))
        shown = data["spent"]["tools"]
        assert shown[-1]["name"] == "36 other tools"
        assert sum(tool["tokens"] for tool in shown) == sum(range(50))

    @pytest.mark.parametrize("ratio", [float("nan"), float("inf"), float("-inf")])
    def test_takes_ratios_that_are_no_numbers(self, ratio: float):
        replay = sample(1)
        totals = tuple(replace(total, all_in_ratio=ratio) for total in replay.totals)
        data = data_of(render_page(replace(replay, totals=totals)))
        assert data["totals"][0]["all_in_ratio"] is None


POINTS = st.lists(st.integers(0, 300_000), min_size=1, max_size=900)


class TestThinned:
    @given(POINTS, st.integers(4, 240))
    def test_keeps_the_ends_and_the_extremes(self, sizes: list[int], most: int):
        points = [RequestPoint(size, size // 2, size / 3) for size in sizes]
        kept = thin_points(points, most)
        requests = [point[0] for point in kept]
        heights = [point[1] for point in kept]
        assert len(kept) <= most
        assert requests == sorted(set(requests))
        assert {0, len(sizes) - 1} <= set(requests)
        assert {max(sizes), min(sizes)} <= set(heights)
        assert heights == [sizes[request] for request in requests]

    def test_keeps_all_of_a_short_line(self):
        points = [RequestPoint(size, 0, 0.0) for size in range(240)]
        assert [point[1] for point in thin_points(points, 240)] == list(range(240))
