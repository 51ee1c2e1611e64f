"""The page of a replay, opened from disk in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from respool.replay.page import render_page
from respool.replay.result import Replay
from respool.replay.totals import conversation_count
from tests.e2e.browser import COLLIDING, FAINT, Tab
from tests.replay.results import POLICIES, hostile, sample

pytestmark = pytest.mark.e2e

Open = Callable[..., "Visit"]
ATTACK = "</script><img src=x onerror=\"window.hit=1\"><svg onload='window.hit=1'>"
PHONE = {"width": 375, "height": 812}
DAY = 86_400


class Visit(Tab):
    """A replay's page, opened from disk."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        super().__init__(browser, path.as_uri(), "#footer p", **options)

    def count(self, selector: str) -> int:
        """Number of elements."""
        return self.tab.locator(selector).count()

    def texts(self, selector: str) -> list[str]:
        """Texts of all elements."""
        return self.tab.locator(selector).all_inner_texts()


@pytest.fixture
def visit(opened: Callable[..., Visit], tmp_path: Path) -> Open:
    """Opens the page of a replay."""
    numbers = count()

    def visited(replay: Replay, **options: Any) -> Visit:
        path = tmp_path / f"report {next(numbers)}.html"
        path.write_text(render_page(replay), "utf-8")
        return opened(Visit, path, **options)

    return visited


@pytest.fixture(scope="module")
def forty() -> Replay:
    """A replay of forty sessions."""
    return sample(40)


def numbers(texts: list[str]) -> list[float]:
    """Numbers in formatted texts."""
    units = {"k": 1e3, "M": 1e6, "bn": 1e9}
    found = []
    for text in texts:
        words = text.replace("$", "").replace(",", "").replace("−", "-").split()
        found.append(float(words[0]) * units.get(words[1] if len(words) > 1 else "", 1))
    return found


def column(seen: Visit, name: str) -> list[str]:
    """The cells of one column of the sessions."""
    return seen.tab.locator(f"tr.row > td[data-label='{name}']").all_inner_texts()


def named(replay: Replay, tab: Any) -> Any:
    """The session of the row that was opened."""
    shown = tab.locator("tr.detail dd code").first.inner_text()
    return next(session for session in replay.sessions if session.id == shown)


def losing(replay: Replay, policy: str) -> str:
    """A session whose requests are drawn and that loses something."""
    ranked = sorted(replay.sessions, key=lambda one: one.scores[0].bill.cost, reverse=True)
    at = POLICIES.index(policy)
    return next(one.id for one in ranked[:20] if one.scores[at].lost_turns)


def find(seen: Visit, words: str) -> None:
    """Types into the search field, and opens the first row."""
    seen.tab.get_by_label("Find").fill(words)
    seen.tab.locator("button.open").first.click()


class TestHeadline:
    def test_says_what_was_spent_and_what_safe_would_have_done(self, visit: Open, forty: Replay):
        seen = visit(forty)
        money = forty.totals[0].bill.money
        safe = forty.totals[1]
        assert money is not None
        assert safe.bill.money is not None
        saved = (1 - safe.bill.money / money * safe.all_in_ratio / safe.bill_ratio) * 100
        verdict = seen.texts(".verdict")[0].replace("\u00a0", " ")
        count = conversation_count(forty.sessions)
        assert seen.texts("h1") == [f"{count}\u00a0conversations cost ${money:,.2f}"]
        assert "Below they are listed as 40\u00a0sessions" in " ".join(
            seen.texts("#headline .note")
        )
        assert verdict.startswith(f"safe would have saved {saved:.1f} % of it")
        assert f"{forty.totals[1].lost_turns} later turns" in verdict

    def test_without_safe_takes_the_cheapest_that_does_not_know_the_future(self, visit: Open):
        seen = visit(sample(9, policies=("none", "mask-10", "clear-100k", "floor")))
        assert seen.texts(".verdict")[0].startswith("clear-100k would have")


class TestCharts:
    def test_draw_one_mark_a_policy(self, visit: Open, forty: Replay):
        seen = visit(forty)
        bars = seen.tab.locator("#policies rect.mark").evaluate_all(
            "all => all.map(one => [one.dataset.policy, one.getBBox().x, one.getBBox().width])"
        )
        assert [name for name, _, _ in bars] == list(POLICIES)
        assert seen.count("#policies circle.mark") == len(POLICIES)
        ends = {name: x for name, x, _ in bars}
        assert ends["clear-100k"] < ends["safe"] < ends["none"]  # the cheaper, the further left

    def test_draw_one_bar_a_week_as_high_as_what_was_spent(self, visit: Open, forty: Replay):
        seen = visit(forty)
        days = sorted(int(one.started // DAY) for one in forty.sessions if one.started)
        weeks = (days[-1] - days[-1] % 7 + 4 - days[0] + days[0] % 7) // 7
        marks = seen.count("#time g.mark")
        assert abs(marks - weeks) <= 1
        heights = seen.tab.locator("#time g.mark").evaluate_all(
            "all => all.map(one => one.getBBox().height)"
        )
        assert max(heights) > 150

    def test_draw_every_share_and_its_unused_part(self, visit: Open, forty: Replay):
        seen = visit(forty)
        shares = (*forty.spent.kinds, *forty.spent.tools, *forty.spent.ages)
        assert seen.count("#spent rect.mark") == len(shares)
        assert seen.count("#spent rect.unused") == sum(share.unused > 0 for share in shares)

    def test_draw_one_dot_a_session_with_a_report(self, visit: Open, forty: Replay):
        seen = visit(forty)
        assert seen.count("#trust circle.mark") == sum(
            one.recorded is not None for one in forty.sessions
        )

    def test_all_have_a_text_alternative(self, visit: Open, forty: Replay):
        seen = visit(forty)
        seen.tab.locator("button.open").first.click()
        silent = seen.tab.locator("svg").evaluate_all(
            """all => all.filter(one => {
                const named = one.getAttribute("aria-label")
                    ?? document.getElementById(one.getAttribute("aria-labelledby"))?.textContent;
                return !named || !one.querySelector("title");
            }).length"""
        )
        assert seen.count("svg") > 30
        assert silent == 0

    def test_tell_their_values_to_pointer_and_keyboard(self, visit: Open, forty: Replay):
        seen = visit(forty)
        chart, told = seen.tab.locator("#time svg"), seen.tab.locator("#time output")
        chart.hover()
        assert "as sent" in told.inner_text()
        chart.focus()
        seen.tab.keyboard.press("Home")
        first = told.inner_text()
        seen.tab.keyboard.press("ArrowRight")
        assert first.startswith("week of ")
        assert told.inner_text() not in ("", first)

    def test_redraw_for_another_policy(self, visit: Open, forty: Replay):
        seen = visit(forty)
        before = seen.tab.locator("#time svg").inner_html()
        seen.tab.locator("#time select.policy").select_option("clear-100k")
        assert seen.tab.locator("#time svg").inner_html() != before
        assert seen.tab.locator("#sessions select.policy").input_value() == "clear-100k"


class TestSessions:
    @pytest.mark.parametrize("name", ["Cost", "Requests", "Peak", "Saving", "Turns lost"])
    def test_sort_both_ways(self, visit: Open, name: str):
        seen = visit(sample(40, priced=False))
        seen.tab.get_by_role("button", name="Show all 40").click()
        header = seen.tab.locator("#session-table").get_by_role(
            "columnheader", name=name, exact=True
        )
        for order in ("descending", "ascending"):
            if header.get_attribute("aria-sort") != order:
                header.get_by_role("button").click()
            values = numbers(column(seen, name))
            assert header.get_attribute("aria-sort") == order
            assert len(values) == 40
            assert values == sorted(values, reverse=order == "descending")

    def test_are_found_by_words(self, visit: Open, forty: Replay):
        seen = visit(forty)
        seen.tab.get_by_label("Find").fill("codex")
        assert seen.count("tr.row") == sum(one.agent == "codex" for one in forty.sessions)

    def test_open_and_close_by_keyboard(self, visit: Open, forty: Replay):
        seen = visit(forty)
        button = seen.tab.locator("button.open").nth(2)
        button.focus()
        seen.tab.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        assert seen.count("tr.detail") == 1
        seen.tab.keyboard.press("Enter")
        assert seen.count("tr.detail") == 0

    def test_show_what_a_policy_lost_and_cut(self, visit: Open, forty: Replay):
        seen = visit(forty)
        find(seen, losing(forty, "mask-10"))
        session = named(forty, seen.tab)
        seen.tab.get_by_label("What happened under").select_option("mask-10")
        score = session.scores[2]
        for summary in seen.tab.locator("tr.detail summary").all():
            summary.click()
        shown = seen.tab.locator(".losses > li").all_inner_texts()
        assert len(shown) == min(60, score.lost_turns)
        for text, lost in zip(shown, score.losses, strict=False):
            assert text.startswith(f"Request {lost.request + 1:,}\n")
            assert all(need.strip() in text for need in (*lost.needs, *lost.sources))
        table = seen.tab.get_by_role("group", name="Cut by mask-10").locator("tbody tr")
        assert table.count() == len(score.cuts)
        causes = seen.tab.get_by_role("group", name="Requests that do not extend").locator("tr")
        assert causes.count() == 1 + len({one.cause for one in score.breaks})

    def test_draw_a_line_for_each_policy_that_is_switched_on(self, visit: Open, forty: Replay):
        seen = visit(forty)
        find(seen, losing(forty, "mask-10"))
        lines = "tr.detail path.line"
        assert seen.count(lines) == 2
        for name in ("mask-10", "clear-100k", "floor"):
            seen.tab.get_by_role("checkbox", name=name).check()
        assert seen.count(lines) == 5
        seen.tab.get_by_role("checkbox", name="none").uncheck()
        assert seen.count(lines) == 4
        seen.tab.locator("tr.detail figure svg").first.hover()
        told = seen.tab.locator("tr.detail output").inner_text()
        assert "Request" in told
        assert "mask-10" in told

    def test_say_what_is_not_drawn(self, visit: Open, forty: Replay):
        seen = visit(forty)
        assert "30 most expensive" in " ".join(seen.texts("#sessions > .note"))
        seen.tab.get_by_role("button", name="Show all 40").click()
        seen.tab.locator("button.open").last.click()
        assert "not among the 30 most expensive" in seen.tab.locator("tr.detail").inner_text()

    def test_stay_open_when_another_policy_is_chosen(self, visit: Open, forty: Replay):
        seen = visit(forty)
        seen.tab.locator("button.open").first.click()
        seen.tab.locator("#sessions select.policy").select_option("mask-10")
        assert seen.count("tr.detail") == 1


class TestLooks:
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_every_text_can_be_read(self, visit: Open, forty: Replay, theme: str):
        seen = visit(forty, color_scheme=theme)
        seen.tab.locator("button.open").first.click()
        for summary in seen.tab.locator("summary").all():
            summary.click()
        judged = seen.tab.evaluate(FAINT)
        assert judged["seen"] > 500
        assert judged["found"] == []

    def test_faint_text_is_seen(self, visit: Open):
        seen = visit(sample(1))
        seen.tab.evaluate("document.querySelector('h1').style.color = '#ccc'")
        assert len(seen.tab.evaluate(FAINT)["found"]) == 1

    def test_the_theme_can_be_switched_and_is_kept(self, visit: Open, forty: Replay):
        seen = visit(forty, color_scheme="light")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = seen.tab.evaluate(ground)
        seen.tab.get_by_role("button", name="Switch to dark colours").click()
        dark = seen.tab.evaluate(ground)
        seen.tab.reload()
        assert light != dark
        assert seen.tab.evaluate(ground) == dark
        seen.tab.emulate_media(media="print")
        assert seen.tab.evaluate(ground) == light
        seen.asked.clear()

    @pytest.mark.parametrize("width", [320, 375, 768, 1200])
    def test_the_page_never_scrolls_sideways(self, visit: Open, forty: Replay, width: int):
        seen = visit(forty, viewport={"width": width, "height": 800})
        assert seen.overflow() <= 0
        seen.tab.locator("button.open").first.click()
        for summary in seen.tab.locator("summary").all():
            summary.click()
        assert seen.overflow() <= 0

    @pytest.mark.parametrize("width", [375, 768, 1200])
    @pytest.mark.parametrize("count", [3, 40])
    def test_labels_do_not_lie_on_each_other(self, visit: Open, count: int, width: int):
        seen = visit(sample(count), viewport={"width": width, "height": 800})
        seen.tab.locator("button.open").first.click()
        seen.tab.locator("tr.detail figure svg").first.wait_for()
        assert seen.tab.evaluate(COLLIDING) == []

    def test_labels_on_each_other_are_seen(self, visit: Open):
        seen = visit(sample(1))
        seen.tab.locator("#time text").evaluate_all(
            "all => all.forEach(one => { one.setAttribute('x', 9); one.setAttribute('y', 9); })"
        )
        assert seen.tab.evaluate(COLLIDING) != []

    def test_long_names_do_not_widen_a_phone(self, visit: Open):
        seen = visit(hostile("x" * 300), viewport=PHONE)
        seen.tab.locator("button.open").first.click()
        assert seen.overflow() <= 0

    def test_what_is_wide_scrolls_in_its_box_and_by_keyboard(self, visit: Open, forty: Replay):
        seen = visit(forty, viewport=PHONE)
        box = seen.tab.get_by_role("group", name="Every policy over all sessions")
        assert box.get_attribute("tabindex") == "0"
        assert box.evaluate("one => one.scrollWidth > one.clientWidth")

    def test_every_table_has_headers(self, visit: Open, forty: Replay):
        seen = visit(forty)
        seen.tab.locator("button.open").first.click()
        bare = seen.tab.locator("table").evaluate_all(
            """all => all.filter(one => [...one.querySelectorAll(":scope > thead th")]
                .some(head => head.scope !== "col" || !head.textContent)
                || ![...one.rows].slice(1).filter(row => row.className !== "detail")
                .every(row => row.querySelector("th[scope=row]"))).length"""
        )
        assert bare == 0


class TestEdges:
    def test_no_sessions(self, visit: Open):
        seen = visit(sample(0))
        assert seen.texts("h1") == ["No sessions were found"]
        assert seen.count("section:visible") == 1

    def test_nothing_but_files_that_cannot_be_read(self, visit: Open):
        seen = visit(replace(sample(0), left=sample(1).left))
        assert "4\u00a0files could not be replayed" in seen.texts(".verdict")[0]
        assert seen.count("#trust details") == 3

    def test_no_prices(self, visit: Open):
        seen = visit(sample(5, priced=False))
        assert seen.texts("h1")[0].endswith("tokens of plain input")
        assert "$" not in seen.tab.locator("main").inner_text()

    def test_only_none(self, visit: Open):
        seen = visit(sample(5, policies=("none",)))
        assert "No policy was replayed except none" in seen.texts(".verdict")[0]
        assert seen.count("select.policy") == 0
        seen.tab.locator("button.open").first.click()
        assert seen.count("tr.detail path.line") == 1

    def test_one_session(self, visit: Open):
        seen = visit(sample(1))
        assert seen.texts("h1")[0].startswith("1\u00a0conversation cost")
        assert seen.count("tr.row") == 1

    def test_ratios_that_are_no_numbers(self, visit: Open):
        replay = sample(2)
        totals = tuple(replace(total, all_in_ratio=float("nan")) for total in replay.totals)
        seen = visit(replace(replay, totals=totals))
        assert "NaN" not in seen.tab.locator("body").inner_text()

    def test_four_hundred_sessions_are_drawn_in_a_moment(self, visit: Open):
        seen = visit(sample(400))
        seen.tab.get_by_role("button", name="Show all 400").click()
        assert seen.count("tr.row") == 400
        assert seen.tab.evaluate("performance.getEntriesByType('navigation')[0].duration") < 5000


class TestHostileText:
    @pytest.mark.parametrize("text", [ATTACK, "<b>bold</b>", "javascript:window.hit=1"])
    def test_is_shown_and_never_run(self, visit: Open, text: str):
        seen = visit(hostile(text))
        seen.tab.locator("button.open").first.click()
        for summary in seen.tab.locator("summary").all():
            summary.click()
        assert seen.tab.evaluate("window.hit") is None
        assert seen.count("img, b:has-text('bold'):not(:has-text('<b>')), svg[onload]") == 0
        assert seen.count("a:not([href^='#'])") == 0
        assert text in seen.tab.locator("tr.detail").inner_text()

    def test_signs_that_nobody_sees_are_named(self, visit: Open):
        seen = visit(hostile("\u202egnp.exe\u202c \0"))
        seen.tab.locator("button.open").first.click()
        for summary in seen.tab.locator("summary").all():
            summary.click()
        assert "⟨U+202E⟩gnp.exe⟨U+202C⟩ ␀" in seen.tab.locator("tr.detail").inner_text()
        told = seen.tab.evaluate(
            """() => document.querySelector("main").textContent
                + [...document.querySelectorAll("[aria-label], [title]")]
                    .map((one) => `${one.ariaLabel}${one.title}`).join("")"""
        )
        assert "\u202e" not in told
        assert "\u202c" not in told

    def test_could_not_run_if_it_got_in(self, visit: Open):
        """The last wall: what a mistake of ours let in, the browser would refuse."""
        seen = visit(sample(1))
        refused = seen.tab.evaluate(
            """() => {
                const found = [];
                try { document.body.innerHTML = "<b>x</b>"; } catch { found.push("innerHTML"); }
                const script = document.createElement("script");
                try { script.text = "window.hit = 1"; document.body.append(script); }
                catch { found.push("script"); }
                return [found, window.hit ?? null];
            }"""
        )
        assert refused == [["innerHTML", "script"], None]
        assert len(seen.complaints) > 0
        seen.complaints.clear()

    def test_could_not_reach_the_network(self, visit: Open):
        seen = visit(sample(1))
        blocked = seen.tab.evaluate(
            """() => new Promise(done => {
                addEventListener("securitypolicyviolation", one => done(one.effectiveDirective));
                fetch("http://127.0.0.1:9/").catch(() => {});
            })"""
        )
        assert blocked == "connect-src"
        assert len(seen.complaints) > 0
        seen.complaints.clear()
