"""The dashboard in a real browser: live, by keyboard, in both themes, with hostile text."""

from __future__ import annotations

import csv
import sqlite3
import zlib
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.dashboard.support import LONG, Dashboarded, dashboarded, only
from tests.e2e.browser import COLLIDING, FAINT, SOON, Look, Seen
from tests.support.formats import Exchange

pytestmark = pytest.mark.e2e

DAY = 86_400
ATTACK = (
    '</script><img src=x onerror="window.hit=1"><svg onload="window.hit=1"></svg>'
    "<iframe src=//evil.example></iframe><a href=javascript:window.hit=1>x</a>"
    "<style>body{display:none}</style><script src=//evil.example/x.js></script>"
)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy that three conversations went through, two of one session, with trouble."""
    with dashboarded(tmp_path_factory.mktemp("used")) as one:
        one.talk(6, name="first", headers=("x-claude-code-session-id: one",))
        one.talk(4, name="second", headers=("x-claude-code-session-id: one",))
        circles(one)
        one.statuses.append(529)
        one.send([Exchange("short", id="call_0")], task="third")
        one.talk(8, name="fourth")
        yield one


def circles(one: Dashboarded) -> None:
    """An agent that reads a file again after it was cut, and then again and again."""
    source = "".join(f"def function_{n}(): return {n}\n" for n in range(200))
    read = {"tool": "Read", "args": {"file_path": "/w/a.py"}}
    steps = [[Exchange(source, id=f"call_{n}", **read)] for n in range(5)]
    steps.insert(1, [Exchange("done", id="call_9", args={"command": "ls"})])
    for end in range(1, 7):
        one.send(*steps[:end], task="circles")


class TestLive:
    def test_a_conversation_appears_and_grows_while_one_looks(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            seen = look(one)
            assert seen.text("h1") == "Nothing came through yet"
            assert f"ANTHROPIC_BASE_URL=http://localhost:{one.port} claude" in seen.text(".ways")
            one.talk(3)
            button = seen.tab.locator("#list button.pick")
            button.wait_for(timeout=SOON)
            assert "3 requests" in seen.text("#list button.pick")
            seen.open_conversation()
            assert seen.tab.locator("#detail tbody tr").count() == 3
            one.talk(5)
            seen.tab.locator("#detail tbody tr").nth(7).wait_for(timeout=SOON)
            seen.tab.get_by_text("8 requests").first.wait_for(timeout=SOON)
            assert seen.text("h1").startswith("Saved $")
            seen.context.close()

    def test_says_when_respool_does_not_answer(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            seen = look(one)
        seen.tab.locator("#live.off").wait_for(timeout=SOON)
        assert seen.text("#live") == "respool does not answer"
        seen.complaints.clear()

    def test_what_has_the_focus_keeps_it(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            seen = look(one)
            seen.tab.locator("#list button.pick").focus()
            one.talk(3)
            seen.tab.get_by_text("5 requests").first.wait_for(timeout=SOON)
            assert "5 requests" in seen.focused().replace("\u00a0", " ")
            seen.open_conversation()
            seen.tab.locator("#detail svg").focus()
            one.talk(1)
            seen.tab.locator("#detail tbody tr").nth(5).wait_for(timeout=SOON)
            seen.tab.locator("#detail svg:focus").wait_for(timeout=SOON)
            seen.context.close()


class TestWhatIsShown:
    def test_money_and_what_the_cache_saved_apart(self, look: Look, used: Dashboarded):
        seen = look(used)
        totals = used.data("overview")["totals"]
        saved = sum(x["cost_before"] - x["cost_after"] for x in totals)
        cached = sum(x["cost_uncached"] - x["cost_after"] for x in totals)
        share = saved / sum(x["cost_before"] for x in totals)
        assert seen.text("h1") == f"Saved ${saved:.4f} ({share:.0%})".replace("%", " %")
        assert f"provider's own cache saved ${cached:.4f}" in seen.text("#overview .note")
        figures = seen.text("#overview .facts")
        assert "Fetched again" in figures
        assert "Without respool" in figures

    def test_everything_out_of_the_ordinary_with_its_cause(self, look: Look, used: Dashboarded):
        seen = look(used)
        assert "Prefixes broke because: longer than its cap" in seen.text("#events .note")
        before = seen.tab.locator("#events tbody tr").count()
        seen.tab.get_by_label("Prefix breaks").uncheck()
        assert 0 < seen.tab.locator("#events tbody tr").count() < before
        told = seen.tab.locator("#events").inner_text()
        assert "Prefixes broke" not in told
        assert "Read /w/a.py: the agent asked for it again" in told
        assert "was called 3 times" in told
        assert "the provider answered 529" in told
        seen.tab.get_by_role("button", name="Open the conversation").first.click()
        seen.tab.locator("#detail svg").wait_for()

    def test_context_before_and_after(self, look: Look, used: Dashboarded):
        seen = look(used)
        seen.open_conversation()
        assert seen.tab.locator("#detail svg circle.dot").count() == 8
        heights = seen.tab.locator("#detail svg path.line").evaluate_all(
            "all => all.map(one => one.getBBox().height)"
        )
        assert heights[0] > 2 * heights[1]
        assert seen.tab.locator("#detail svg line.break").count() == 7

    def test_conversations_of_one_session_stand_together(self, look: Look, used: Dashboarded):
        seen = look(used)
        assert seen.tab.locator("#list .group").count() == 1
        assert seen.tab.locator("#list .group button.pick").count() == 2
        assert seen.tab.locator("#list button.pick").count() == 5

    def test_before_and_after_side_by_side(self, look: Look, used: Dashboarded):
        seen = look(used)
        seen.open_edit()
        gone = seen.tab.locator("dialog .line.gone .left")
        assert gone.count() == 40
        seen.tab.get_by_role("button", name="more lines taken out").click()
        assert gone.count() > 150
        assert "line 100 of a long output" in seen.tab.locator("dialog .diff").inner_text()
        assert (
            "[respool: clipped" in seen.tab.locator("dialog .line.came .right").first.inner_text()
        )
        left = seen.tab.locator("dialog .line:not(.heads) .cell.left").all_inner_texts()
        before = f"fourth 6 {LONG}".split("\n")
        assert [text.strip("\u200b\n") for text in left] == before

    def test_observing_is_said_and_nothing_claimed(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path, observe=True) as one:
            one.talk(4)
            one.talk(4)
            seen = look(one)
            assert seen.text("#mode") == "observing: nothing is changed"
            assert seen.text("h1").startswith("Would have ")
            assert "would have saved" in seen.text("#list button.pick")
            seen.open_conversation()
            assert "observed: nothing was changed" in seen.text("#detail .badge")
            seen.tab.locator("#detail td button.link").first.click()
            seen.tab.locator("dialog .pane .note").wait_for()
            assert "changed nothing, and kept no text" in seen.text("dialog .pane .note")
            seen.context.close()

    def test_with_a_token_in_the_path(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path, token="a-token-of-enough-length") as one:
            one.talk(2)
            seen = look(one)
            seen.open_edit()
            assert seen.tab.locator("dialog .pane").first.is_visible()
            seen.context.close()


class TestByKeyboard:
    def test_from_the_top_to_an_edit_and_back(self, look: Look, used: Dashboarded):
        seen = look(used)
        for _ in range(60):
            seen.press("Tab")
            if seen.tab.evaluate("document.activeElement.matches('#list button.pick')"):
                break
        first = seen.focused()
        seen.press("ArrowDown")
        assert seen.focused() != first
        seen.press("ArrowUp", "Enter")
        seen.tab.locator("#detail svg").wait_for()
        for _ in range(20):
            seen.press("Tab")
            if seen.tab.evaluate("document.activeElement.matches('#detail svg')"):
                break
        seen.press("ArrowLeft")
        assert "Request 7" in seen.text("#detail output")
        for _ in range(20):
            seen.press("Tab")
            if "edit at request" in seen.focused():
                break
        assert seen.focused() == "1\u00a0edit at request 8"
        seen.press("Enter")
        seen.tab.locator("dialog .diff").wait_for()
        assert seen.tab.evaluate("document.activeElement.matches('dialog button.pick')")
        seen.press("Escape")
        assert seen.tab.locator("dialog[open]").count() == 0
        assert seen.focused() == "1\u00a0edit at request 8"
        seen.press("Escape")
        seen.tab.locator("#detail .hint").wait_for()
        assert seen.focused() == first

    def test_the_focus_is_seen_and_everything_has_a_name(self, look: Look, used: Dashboarded):
        seen = look(used)
        seen.open_conversation()
        stops = 0
        for _ in range(60):
            seen.press("Tab")
            found = seen.tab.evaluate(
                """() => { const one = document.activeElement, style = getComputedStyle(one);
                const name = one.ariaLabel || one.labels?.[0]?.textContent || one.textContent
                    || one.getAttribute("aria-labelledby");
                return [one.tagName, name.trim(), style.outlineStyle, style.outlineWidth]; }"""
            )
            if found[0] == "BODY":
                break
            stops += 1
            assert found[1], found
            assert found[2:] == ["solid", "2px"], found
        assert stops > 15

    def test_basics_for_who_does_not_see(self, look: Look, used: Dashboarded):
        seen = look(used)
        seen.open_conversation()
        judged = seen.tab.evaluate(
            """() => ({
              language: document.documentElement.lang,
              heads: [...document.querySelectorAll("h1,h2,h3")].map((one) => one.tagName),
              doubled: [...document.querySelectorAll("[id]")].length
                - new Set([...document.querySelectorAll("[id]")].map((one) => one.id)).size,
              bare: [...document.querySelectorAll("table")].filter((one) => !one.caption
                || [...one.rows[0].cells].some((head) => head.scope !== "col")).length,
              charts: [...document.querySelectorAll("svg")].every((one) =>
                one.querySelector("title").textContent && one.querySelector("desc").textContent),
              main: document.querySelectorAll("main").length,
            })"""
        )
        assert judged["heads"].count("H1") == 1
        assert (judged["language"], judged["doubled"], judged["bare"]) == ("en", 0, 0)
        assert (judged["charts"], judged["main"]) == (True, 1)


class TestLooks:
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_every_text_can_be_read(self, look: Look, used: Dashboarded, theme: str):
        seen = look(used, color_scheme=theme)
        seen.open_conversation()
        seen.tab.locator("summary").click()
        judged = seen.tab.evaluate(FAINT)
        assert judged["seen"] > 200
        assert judged["found"] == []
        seen.tab.locator("#detail td button.link").first.click()
        seen.tab.locator("dialog .diff").wait_for()
        assert seen.tab.evaluate(FAINT)["found"] == []
        picture = seen.tab.screenshot()
        assert len(zlib.compress(picture)) > 20_000, "it is nearly blank"

    def test_the_theme_can_be_switched_and_is_kept(self, look: Look, used: Dashboarded):
        seen = look(used, color_scheme="light")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = seen.tab.evaluate(ground)
        seen.tab.get_by_role("button", name="Switch to dark colours").click()
        dark = seen.tab.evaluate(ground)
        seen.tab.reload()
        assert light != dark
        assert seen.tab.evaluate(ground) == dark

    @pytest.mark.parametrize("width", [320, 360, 768, 1280])
    def test_never_scrolls_sideways(self, look: Look, used: Dashboarded, width: int):
        seen = look(used, viewport={"width": width, "height": 780})
        seen.open_edit()
        assert seen.overflow() <= 0
        assert seen.tab.locator("dialog").evaluate("one => one.scrollWidth - one.clientWidth") <= 0
        seen.press("Escape")
        seen.tab.locator("summary").click()
        assert seen.overflow() <= 0
        tall = "one => one.getBoundingClientRect().height"
        assert seen.tab.locator("#detail td button.link").first.evaluate(tall) < 40, "it wraps"
        assert seen.tab.evaluate(COLLIDING) == []


class TestHostileText:
    def test_is_shown_and_never_run(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            steps = [
                [
                    Exchange(
                        f"{ATTACK}\n{LONG}", tool="Read", id=f"call_{n}", args={"file_path": ATTACK}
                    )
                ]
                for n in range(5)
            ]
            for end in range(1, 6):
                one.send(*steps[:end], task=ATTACK, model=ATTACK)
            for theme in ("light", "dark"):
                seen = look(one, color_scheme=theme)
                assert f"{ATTACK[:59]}…" in seen.tab.locator("#list").inner_text()
                seen.open_edit()
                assert ATTACK in seen.tab.locator("dialog").inner_text()
                seen.press("Escape")
                assert ATTACK in seen.tab.locator("#detail").inner_text()
                assert seen.tab.evaluate("window.hit") is None
                assert seen.tab.locator("img, iframe, script[src], svg[onload]").count() == 0
                assert seen.tab.locator("a:not([href^='#']), body style").count() == 0
                seen.context.close()

    @pytest.mark.parametrize("name", ["%E0%A4%A", "<img%20src=x>", "x" * 999, "__proto__"])
    def test_links_with_odd_names_do_no_harm(self, look: Look, used: Dashboarded, name: str):
        seen = look(used)
        seen.tab.goto(f"{used.url}#conversation={name}")
        seen.tab.reload()
        seen.tab.locator("#list button.pick").first.wait_for()
        seen.tab.locator("#live.on").wait_for(timeout=SOON)
        assert seen.tab.locator("#detail .hint").count() == 1
        assert seen.tab.locator("img").count() == 0
        seen.complaints = [one for one in seen.complaints if "400" not in one]

    def test_could_not_run_or_reach_anything_if_it_got_in(self, look: Look, used: Dashboarded):
        """The last wall holds too: what a mistake of ours let in, the browser would refuse."""
        seen = look(used)
        refused = seen.tab.evaluate(
            """async () => {
                const found = [];
                const note = (one) => found.push(one.effectiveDirective);
                addEventListener("securitypolicyviolation", note);
                await fetch("http://127.0.0.1:9/").catch(() => {});
                try { document.body.innerHTML = "<b>x</b>"; } catch { found.push("innerHTML"); }
                const script = document.createElement("script");
                try { script.text = "window.hit = 1"; document.body.append(script); }
                catch { found.push("script"); }
                const image = document.createElement("img");
                image.src = "http://127.0.0.1:9/x.png";
                document.body.append(image);
                await new Promise((done) => setTimeout(done, 200));
                return [found, window.hit ?? null];
            }"""
        )
        assert {"connect-src", "innerHTML", "script", "img-src"} <= set(refused[0])
        assert refused[1] is None
        seen.asked = [url for url in seen.asked if not url.startswith("http://127.0.0.1:9/")]
        seen.complaints.clear()

    def test_another_site_can_neither_frame_it_nor_load_its_data(
        self, look: Look, used: Dashboarded, tmp_path: Path
    ):
        seen = look(used)
        frame = tmp_path / "frame.html"
        data = f"{used.url}respool/api/overview"
        told = "onload='window.got = true' onerror='window.got = false'"
        frame.write_text(f"<iframe src='{used.url}'></iframe><script src='{data}' {told}></script>")
        seen.tab.goto(frame.as_uri())
        seen.tab.wait_for_timeout(500)
        (inside,) = seen.tab.frames[1:]
        assert inside.url.startswith("chrome-error:")
        assert seen.tab.evaluate("window.got") is False
        seen.complaints.clear()
        seen.asked.clear()


CLAUDE = (
    "user-agent: claude-cli/2.1.325 (external, cli)",
    "x-claude-code-session-id: two",
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy that two agents in two folders went through, one of them three days ago."""
    with dashboarded(tmp_path_factory.mktemp("mixed")) as one:
        steps = [
            [
                Exchange(
                    LONG, id=f"call_{n}", tool="Read", args={"file_path": f"/home/a/shop/{n}.py"}
                )
            ]
            for n in range(4)
        ]
        codex = ("user-agent: codex_cli_rs/0.166.0",)
        task = "<environment_context>\n  <cwd>/srv/infra</cwd>\n</environment_context>\nRotate keys"
        for end in range(1, 4):
            one.send(*steps[:end], task=task, headers=codex)
        with sqlite3.connect(one.store.path) as base:
            for table, columns in (("requests", ["time"]), ("conversations", ["last", "started"])):
                for column in columns:
                    base.execute(f"UPDATE {table} SET {column} = {column} - {3 * DAY}")
        shop = "Fix the login test\n\nWorking directory: /home/a/shop"
        for end in range(1, 5):
            one.send(*steps[:end], task=shop, headers=CLAUDE)
        yield one


class TestNames:
    def test_the_newest_conversation_is_open_with_its_names(self, look: Look, mixed: Dashboarded):
        seen = look(mixed)
        seen.tab.locator("#detail svg").wait_for(timeout=SOON)
        assert seen.text("#detail h3").startswith("Fix the login test")
        assert seen.text("#detail .origin").startswith("Claude Code · shop · claude-sonnet-4-5")
        assert not seen.tab.url.count("#")
        first = seen.text("#list button.pick")
        assert "Fix the login test" in first
        assert "Claude Code · shop" in first
        seen.tab.get_by_role("button", name="Close this conversation").click()
        seen.tab.wait_for_timeout(2_500)  # a round of asking: it stays closed
        assert seen.tab.locator("#detail .hint").count() == 1

    def test_edits_are_named_by_tool_and_path(self, look: Look, mixed: Dashboarded):
        seen = look(mixed)
        seen.open_edit()
        assert seen.text("dialog .pick b") == "Read 2.py"
        assert seen.text("dialog .pane h3") == "Read 2.py"
        assert seen.tab.locator("dialog .pick b").first.get_attribute("title") == (
            "/home/a/shop/2.py"
        )


class TestFilters:
    def picks(self, seen: Seen, count: int) -> list[str]:
        """Texts of the conversations, once there are so many."""
        seen.tab.wait_for_function(
            f"() => document.querySelectorAll('#list button.pick').length === {count}", timeout=SOON
        )
        return seen.tab.locator("#list button.pick b").all_inner_texts()

    def test_by_words_agent_project_and_day(self, look: Look, mixed: Dashboarded):
        seen = look(mixed)
        assert self.picks(seen, 2) == [
            "Fix the login test Working directory: /home/a/shop",
            "Rotate keys",
        ]
        seen.tab.locator("#search").fill("ROTATE infra")
        assert self.picks(seen, 1) == ["Rotate keys"]
        seen.tab.locator("#search").fill("no such words")
        seen.tab.get_by_text("None meets the filters.").wait_for(timeout=SOON)
        assert seen.text("h1") == "Nothing meets the filters"
        seen.tab.locator("#clear").click()
        self.picks(seen, 2)
        seen.tab.locator("#filter-agent").select_option(label="Codex")
        assert self.picks(seen, 1) == ["Rotate keys"]
        seen.tab.locator("#clear").click()
        seen.tab.locator("#filter-project").select_option(label="shop")
        assert len(self.picks(seen, 1)) == 1
        seen.tab.locator("#clear").click()
        then = date.today() - timedelta(days=3)
        seen.tab.locator("#day").fill(then.isoformat())
        assert self.picks(seen, 1) == ["Rotate keys"]
        seen.tab.get_by_text("3 requests").first.wait_for(timeout=SOON)
        assert seen.tab.locator("#range").is_disabled()

    def test_tables_by_day_week_and_month(self, look: Look, mixed: Dashboarded):
        seen = look(mixed)
        tables = seen.tab.locator("#tables table")
        assert tables.count() == 4
        assert tables.first.locator("tbody tr").count() == 2
        shown = seen.tab.locator("#tables").inner_text()
        for name in ("Claude Code", "Codex", "shop", "infra", "claude-sonnet-4-5"):
            assert name in shown
        seen.tab.get_by_role("button", name="Month").click()
        seen.tab.get_by_text("By month, the last 12 months").wait_for(timeout=SOON)
        seen.tab.get_by_role("button", name="Only Codex").click()
        assert self.picks(seen, 1) == ["Rotate keys"]

    def test_the_csv_holds_what_is_filtered(self, look: Look, mixed: Dashboarded):
        seen = look(mixed)
        seen.tab.locator("#range").select_option("week")
        seen.tab.locator("#filter-agent").select_option(label="Codex")
        self.picks(seen, 1)
        with seen.tab.expect_download() as waiting:
            seen.tab.locator("#csv").click()
        rows = list(csv.DictReader(Path(waiting.value.path()).read_text().splitlines()))
        assert [row["agent"] for row in rows] == ["Codex"] * 3
        assert {row["project"] for row in rows} == {"/srv/infra"}


class TestTerms:
    def test_every_heading_is_explained_by_pointer_and_keyboard(
        self, look: Look, mixed: Dashboarded
    ):
        seen = look(mixed)
        seen.open_conversation()
        seen.tab.locator("summary").click()
        bare = seen.tab.evaluate(
            """() => [...document.querySelectorAll(".facts dt, thead th, .legend li, .stand dt")]
                .filter((one) => one.checkVisibility() && !one.querySelector("[data-tip]"))
                .map((one) => one.textContent)"""
        )
        assert bare == []
        tip = seen.tab.locator("#tip")
        assert not tip.is_visible()
        seen.tab.locator("#overview .term", has_text="Prefix breaks").hover()
        assert "provider's cache" in tip.inner_text()
        seen.tab.mouse.move(2, 2)
        assert not tip.is_visible()
        seen.tab.locator("#overview .facts .term").first.focus()
        assert "Questions that an agent sent" in tip.inner_text()
        described = seen.tab.evaluate("document.activeElement.getAttribute('aria-describedby')")
        assert described == "tip"
        seen.press("ArrowRight")
        assert "reached respool" in tip.inner_text()
        seen.press("Escape")
        assert not tip.is_visible()
        assert seen.tab.locator("#detail svg").is_visible()


class TestChanges:
    def test_pause_observe_and_back(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            made = one.talk(4)
            task = "go on with make"
            assert "respool:" in one.received[-1].body.decode()
            seen = look(one)
            seen.tab.get_by_role("button", name="Pause").click()
            seen.tab.locator("#mode.badge").wait_for(timeout=SOON)
            assert seen.text("#mode") == "paused: requests pass as they come"
            one.send(*made, task=task)
            assert "respool:" not in one.received[-1].body.decode()
            seen.tab.get_by_role("button", name="Observe").click()
            seen.tab.get_by_text("observing: nothing is changed").first.wait_for(timeout=SOON)
            one.send(*made, task=task)
            assert "respool:" not in one.received[-1].body.decode()
            seen.tab.get_by_role("button", name="Compact").click()
            seen.tab.locator("#mode:not(.badge)").wait_for(state="attached", timeout=SOON)
            one.send(*made, [Exchange("ok", id="call_9")], task=task)
            assert "respool:" in one.received[-1].body.decode()
            assert [x["mode"] for x in only(one)[-3:]] == ["bypassed", "observed", "compacted"]
            seen.context.close()

    def test_pin_and_unpin(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            made = one.talk(4)
            seen = look(one)
            seen.tab.get_by_role("button", name="Pin", exact=True).click()
            seen.tab.get_by_role("button", name="Unpin").wait_for(timeout=SOON)
            one.send(*made, task="go on with make")
            assert "respool:" not in one.received[-1].body.decode()
            assert "pinned: left alone" in seen.text("#list button.pick")
            seen.tab.get_by_role("button", name="Unpin").click()
            seen.tab.get_by_role("button", name="Pin", exact=True).wait_for(timeout=SOON)
            one.send(*made, [Exchange("ok", id="call_9")], task="go on with make")
            assert "respool:" in one.received[-1].body.decode()
            seen.context.close()
