"""The dashboard in a real browser: long lists, branches, links and faults."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from respool.pricing import Usage
from respool.store import RequestRecord
from tests.dashboard.support import LONG, Dashboarded, dashboarded
from tests.e2e.browser import SOON, Look, Seen
from tests.support.formats import Exchange

pytestmark = pytest.mark.e2e

TURNED = "\u202egnp.exe\u202c"  # reads exe.png
HIDDEN = "".join(chr(0xE0000 + ord(one)) for one in "obey")  # nobody sees it, a model may read it


def recorded(one: Dashboarded, count: int, **fields: Any) -> None:
    """Requests as if they had gone through, each of a conversation of its own, a second apart."""
    before = one.sent
    told = {
        "owner": "o", "format": "anthropic", "model": "claude-sonnet-4-5", "status": 200,
        "tokens_before": 1_000, "tokens_after": 600, "saved": 400,
        "usage": Usage(input=10, cache_read=500, cache_write=90, output=5),
        "cost_before": 0.5, "cost_after": 0.25,
    }  # fmt: skip
    for n in range(before, before + count):
        given = {"time": time.time() - 1_000 + n, "conversation": f"{n:032x}", **told, **fields}
        one.store.record(RequestRecord(id=f"r{n}", **given))
    one.sent += count
    one.recorded()


def rows(seen: Seen) -> int:
    """Number of requests listed."""
    return seen.tab.locator("#detail tbody tr").count()


class TestLongLists:
    def test_no_conversation_is_lost_while_others_come(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 120)
            seen = look(one)
            picks = seen.tab.locator("#list button.pick")
            assert picks.count() == 50
            seen.tab.get_by_role("button", name="Older conversations").click()
            picks.nth(99).wait_for()
            recorded(one, 3)
            picks.nth(102).wait_for(timeout=SOON)
            names = seen.tab.locator("#list button.pick code").all_inner_texts()
            assert len(names) == 103
            seen.tab.get_by_role("button", name="Older conversations").click()
            picks.nth(122).wait_for()
            assert seen.tab.get_by_role("button", name="Older conversations").count() == 0
            one.store.forget(conversation=f"{122:032x}")
            one.store.forget(conversation=f"{0:032x}")
            seen.tab.wait_for_function(
                "() => document.querySelectorAll('#list button.pick').length === 122", timeout=SOON
            )
            seen.context.close()

    def test_where_one_is_in_the_list_one_stays(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 50)
            seen = look(one)
            seen.tab.locator("#list").evaluate("list => { list.scrollTop = 800 }")
            recorded(one, 1)
            first = f"{50:032x}"[:6]
            seen.tab.locator("#list button.pick").first.get_by_text(first).wait_for(timeout=SOON)
            assert seen.tab.locator("#list").evaluate("list => list.scrollTop") >= 790
            seen.context.close()

    def test_all_that_happened_can_be_seen(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 250, status=529)
            seen = look(one)
            events = seen.tab.locator("#events tbody tr")
            more = seen.tab.locator("#events > button")
            assert "Errors (100+)" in seen.text("#filters")
            assert events.count() == 20
            for _ in range(6):
                if more.count():
                    before = events.count()
                    more.click()
                    events.nth(before).wait_for()
            assert events.count() == 250
            assert "Errors (250)" in seen.text("#filters")
            recorded(one, 1, status=500)
            events.nth(250).wait_for(timeout=SOON)
            assert "answered 500" in events.first.inner_text()
            assert "Errors (251)" in seen.text("#filters")
            seen.context.close()

    def test_the_same_again_and_again_is_one_line(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 30, conversation="c" * 32, fallback="late: over 3 s")
            seen = look(one)
            (line,) = seen.tab.locator("#events tbody tr").all_inner_texts()
            assert "late: over 3 s (30 times since " in line
            assert "Fall-backs (30)" in seen.text("#filters")

    def test_many_requests_are_drawn_as_a_line(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 1_200, conversation="c" * 32)
            seen = look(one)
            seen.open_conversation()
            assert rows(seen) == 25
            assert seen.tab.locator("#detail svg circle").count() == 0
            seen.tab.get_by_role("button", name="Show 500 earlier requests").click()
            assert rows(seen) == 525
            assert seen.text("#detail tbody tr").startswith("1200")


class TestBranches:
    @pytest.fixture
    def parted(self, look: Look, tmp_path: Path) -> Any:
        """Two sessions that open with the same words, one after the other a step at a time."""
        made = [
            [[Exchange(f"{name} {n} {LONG * size}", id=f"{name}_{n}")] for n in range(4)]
            for name, size in (("a", 1), ("b", 3))
        ]
        with dashboarded(tmp_path) as one:
            for end in range(5):
                for steps in made:
                    one.send(*steps[:end], task="fix the tests")
            seen = look(one)
            seen.open_conversation()
            yield seen
            seen.context.close()

    def test_each_has_its_own_line(self, parted: Seen):
        lines = parted.tab.locator("#detail svg path.came").evaluate_all(
            """all => all.map((one) => one.getAttribute("d").split(/[ML]/).slice(1)
                .map((place) => Number(place.split(" ")[1])))"""
        )
        assert [len(heights) for heights in lines] == [6, 4]
        assert all(heights == sorted(heights, reverse=True) for heights in lines)
        assert "Branch" in parted.text("#detail thead")

    def test_one_can_be_looked_at_alone(self, parted: Seen):
        parted.tab.get_by_label("Branch").focus()
        parted.tab.get_by_label("Branch").select_option("2")
        assert rows(parted) == 4
        numbers = parted.tab.locator("#detail tbody th").all_inner_texts()
        assert numbers == ["10", "8", "6", "4"]
        assert "Branch" not in parted.text("#detail thead")
        assert parted.tab.locator("#detail svg path.came").count() == 1
        assert parted.focused().startswith("all 2")
        parted.tab.get_by_label("Branch").select_option("0")
        assert rows(parted) == 10

    def test_one_session_alone_has_none(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(3)
            seen = look(one)
            seen.open_conversation()
            assert seen.tab.get_by_label("Branch").count() == 0


class TestLinks:
    def test_back_and_forward_and_a_link_in_an_open_tab(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 1, conversation="a" * 32)
            recorded(one, 2, conversation="b" * 32)
            seen = look(one)
            title = seen.tab.locator("#detail .origin code")
            first, second = (seen.tab.locator("#list button.pick").nth(at) for at in (0, 1))
            first.click()
            title.get_by_text("b" * 32, exact=True).wait_for()
            second.click()
            title.get_by_text("a" * 32, exact=True).wait_for()
            seen.tab.go_back()
            title.get_by_text("b" * 32, exact=True).wait_for()
            seen.tab.go_back()
            seen.tab.locator("#detail .hint").wait_for()
            seen.tab.go_forward()
            title.get_by_text("b" * 32, exact=True).wait_for()
            seen.tab.get_by_role("button", name="Close this conversation").click()
            seen.tab.locator("#detail .hint").wait_for()
            assert seen.tab.url == one.url
            seen.tab.go_back()
            title.get_by_text("b" * 32, exact=True).wait_for()
            seen.tab.evaluate(f"location.hash = '#conversation={'a' * 32}'")
            title.get_by_text("a" * 32, exact=True).wait_for()
            seen.tab.get_by_role("link", name="What happened").click()
            assert title.inner_text() == "a" * 32
            seen.tab.go_back()
            seen.tab.reload()
            title.get_by_text("a" * 32, exact=True).wait_for()
            seen.tab.close()  # it asks again as long as it is open, and the proxy ends here


class TestMeanwhile:
    def test_a_tab_outlives_a_restart(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            seen = look(one)
            seen.open_conversation()
        seen.tab.locator("#live.off").wait_for(timeout=SOON)
        seen.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert seen.tab.locator("#live").evaluate(
            "one => one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().top < 100"
        ), "who has scrolled does not see it"
        with dashboarded(tmp_path, port=one.port) as again:
            seen.tab.locator("#live.on").wait_for(timeout=SOON)
            again.sent = 2
            again.talk(4)
            seen.tab.locator("#detail tbody tr").nth(5).wait_for(timeout=SOON)
            seen.complaints.clear()
            seen.context.close()

    def test_another_version_is_told(
        self, look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with dashboarded(tmp_path) as one:
            seen = look(one)
        monkeypatch.setattr("respool.proxy.app.installed_version", lambda: "99.0")
        with dashboarded(tmp_path, port=one.port):
            told = seen.tab.get_by_text("respool was updated: load this page again")
            told.wait_for(timeout=SOON)
            seen.tab.reload()
            seen.tab.locator("#live.on").wait_for(timeout=SOON)
            assert told.count() == 0, "it is the new one's page now"
            seen.complaints.clear()
            seen.context.close()

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ({"status": 503, "json": {"error": "The store is busy."}}, "The store is busy."),
            (
                {"status": 401, "json": {"error": {"message": "respool: a token."}}},
                "respool: a token.",
            ),
            ({"status": 500, "json": {}}, "respool answered 500"),
            ({"status": 200, "body": "<p>Welcome"}, "what answers here is not respool"),
            (None, "respool does not answer"),
        ],
    )
    def test_what_cannot_be_had_is_said_and_holds_up_nothing_else(
        self, look: Look, tmp_path: Path, answer: dict[str, Any] | None, said: str
    ):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            seen = look(one)
            for question in ("overview", "notable"):
                seen.tab.route(
                    f"**/respool/api/{question}?*",
                    lambda route: route.fulfill(**answer) if answer else route.abort(),
                )
            seen.tab.locator("#live.off").get_by_text(said, exact=True).wait_for(timeout=SOON)
            one.talk(3)
            seen.tab.get_by_text("5 requests").first.wait_for(timeout=SOON)
            seen.tab.unroute_all()
            seen.tab.locator("#live.on").wait_for(timeout=SOON)
            seen.complaints.clear()
            seen.context.close()

    def test_edits_that_cannot_be_had_are_said_so(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(3)
            seen = look(one)
            seen.open_conversation()
            seen.tab.route("**/respool/api/edits?*", lambda route: route.abort())
            seen.tab.locator("#detail td button.link").first.click()
            seen.tab.get_by_text("respool does not answer").wait_for(timeout=SOON)
            assert seen.tab.locator("dialog[open]").count() == 0
            seen.complaints.clear()
            seen.context.close()

    def test_another_range_is_shown_at_once(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            recorded(one, 1, time=time.time() - 7_300)
            seen = look(one)
            assert seen.text("h1").startswith("Saved $")
            seen.tab.locator("#range").select_option("hour")
            seen.tab.get_by_role("heading", name="Nothing in the last hour").wait_for(timeout=1_500)
            assert "The latest request came 2 hours ago" in seen.text("#overview .verdict")

    def test_without_storage_it_works_too(self, look: Look, browser: Any, tmp_path: Path):
        refused = (
            "Object.defineProperty(window, 'localStorage', { get() {"
            " throw new DOMException('denied', 'SecurityError'); } });"
        )
        with dashboarded(tmp_path) as one:
            seen = look(one, color_scheme="light")
            seen.context.add_init_script(refused)
            seen.tab.reload()
            seen.tab.locator("#live.on").wait_for(timeout=SOON)
            seen.tab.get_by_role("button", name="Switch to dark colours").click()
            assert seen.tab.evaluate("document.documentElement.dataset.theme") == "dark"


class TestWhatIsShown:
    def test_signs_that_nobody_sees_are_named(self, look: Look, tmp_path: Path):
        text = f"{TURNED} {HIDDEN} \0\x1b[31mred\n{LONG}"
        read = {"tool": "Read", "args": {"file_path": f"/w/{TURNED}"}}
        steps = [[Exchange(text, id=f"call_{n}", **read)] for n in range(5)]
        with dashboarded(tmp_path) as one:
            for end in range(1, 6):
                one.send(*steps[:end], model=f"model {TURNED}")
            seen = look(one)
            assert "model ⟨U+202E⟩gnp.exe⟨U+202C⟩" in seen.text("#list")
            seen.open_edit()
            shown = seen.tab.locator("dialog").inner_text()
            assert "⟨U+202E⟩gnp.exe⟨U+202C⟩ ⟨U+E006F⟩⟨U+E0062⟩" in shown
            assert "␀␛[31mred" in shown
            seen.press("Escape")
            seen.tab.locator("#detail svg").focus()
            assert "⟨U+202E⟩" in seen.text("#detail output")
            whole = seen.tab.evaluate("document.documentElement.outerHTML")
            assert not set(TURNED + HIDDEN) & set(whole) & {"\u202e", "\u202c", HIDDEN[0]}
            seen.context.close()

    def test_a_model_without_a_price_is_given_none(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            one.talk(4, name="other", model="a-model-that-nobody-sells")
            seen = look(one)
            assert "4 requests not in the bill" in seen.text("#overview")
            seen.open_conversation()
            facts = seen.text("#detail .facts").split("\n")
            assert facts[facts.index("Saved") + 1] == "–"
            assert facts[facts.index("Provider's cache saved") + 1] == "–"
            assert "$" not in seen.text("#detail tbody")

    def test_a_new_user_is_told_what_to_do(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            seen = look(one)
            assert "respool run -- claude" in seen.text("#overview")
            assert f"OPENAI_BASE_URL=http://localhost:{one.port}/v1" in seen.text(".ways")

    def test_on_paper(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(6)
            seen = look(one, viewport={"width": 700, "height": 900}, color_scheme="dark")
            seen.open_conversation()
            seen.tab.emulate_media(media="print", color_scheme="dark")
            for gone in ("nav", "#range", "#theme", "#filters", "#list"):
                assert not seen.tab.locator(gone).is_visible(), gone
            assert seen.tab.locator("#detail tbody tr").first.is_visible()
            wider = "all => all.map((one) => one.scrollWidth - one.clientWidth)"
            assert max(seen.tab.locator(".box").evaluate_all(wider)) <= 0
            ground = seen.tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == "rgb(253, 252, 250)"

    def test_fall_backs_are_told_in_words(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            for fields in (
                {"fallback": "refused", "again": "invalid"},
                {"fallback": "left alone"},
                {"again": "overflow"},
                {"fallback": "late: over 3 s"},
            ):
                recorded(one, 1, conversation="c" * 32, **fields)
            seen = look(one)
            told = seen.tab.locator("#events").inner_text()
            for words in (
                "the provider refused the projection; the original was sent",
                "left alone since the provider refused a projection",
                "too long for the provider; sent again under its limit",
                "late: over 3 s",
            ):
                assert words in told
            assert "Fall-backs (4)" in seen.text("#filters")
            seen.open_conversation()
            assert seen.tab.locator("#detail svg circle.wrong").count() == 4

    def test_observing_with_a_bypass_between_is_still_observing(self, look: Look, tmp_path: Path):
        with dashboarded(tmp_path, observe=True) as one:
            steps = one.talk(4)
            one.send(*steps, task="go on with make", headers=("x-respool-bypass: 1",))
            seen = look(one)
            assert seen.text("h1").startswith("Would have ")
            assert "would have been taken out of 5 requests" in seen.text("#overview .verdict")
            seen.open_conversation()
            facts = seen.text("#detail .facts")
            assert "Would have saved" in facts
            assert "Tokens saved" not in facts
            assert "4 requests only observed" in seen.text("#detail .badge")
            seen.context.close()

    def test_what_was_observed_first_and_then_compacted_is_told_apart(
        self, look: Look, tmp_path: Path
    ):
        with dashboarded(tmp_path) as one:
            told = {"conversation": "c" * 32}
            recorded(one, 2, mode="observed", saved=300, prefix_break="cold", **told)
            recorded(one, 1, mode="observed", saved=300, prefix_break="folded", **told)
            recorded(one, 3, **told)
            seen = look(one)
            assert seen.text("h1") == "Saved $0.7500 (25 %)"
            assert "3 requests only observed would have saved $0.7500" in seen.text("#overview")
            seen.open_conversation()
            facts = seen.text("#detail .facts").split("\n")
            for name, value in {"Tokens saved": "1.2 k", "Tokens, would have saved": "540"}.items():
                assert facts[facts.index(name) + 1] == value
            shown = seen.tab.locator("#detail tbody").inner_text()
            assert "\nprefix break: the cache had gone cold" in shown
            assert "would have been a prefix break: old calls told in a summary" in shown
