"""The rest of the bill, keep-alive pings and the holdout, as a browser shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from respool.proxy.server_options import HoldoutOptions
from respool.store import KeepAliveEvent
from respool.store.base import KeepAliveKind
from tests.dashboard.support import MODEL, Dashboarded, dashboarded
from tests.dashboard.test_bill import send
from tests.e2e.browser import COLLIDING, FAINT, Look, Seen

pytestmark = pytest.mark.e2e

SENTENCES = (
    "The system prompt and the tool definitions cost $",
    "1 of 3 defined tools was never called: ",
    "No cached prefix expired in a pause.",
    "2 keep-alive pings cost $0.0400; 1 request found what they had kept, which saved $0.2512.",
)
OFF = 'in .claude/settings.json: {"permissions": {"deny": ["Browse"]}}'


PINGS: tuple[tuple[KeepAliveKind, float], ...] = (
    ("ping", 0.0213),
    ("ping", 0.0187),
    ("hit", 0.2512),
)


@pytest.fixture(scope="module")
def billed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy with a holdout, a tool that is never called, and pings."""
    folder = tmp_path_factory.mktemp("billed")
    with dashboarded(folder, holdout=HoldoutOptions(0.5)) as one:
        for steps in range(1, 5):
            send(one, steps)
        for n in range(8):
            one.talk(2, name=f"job {n}", headers=(f"x-claude-code-session-id: {n}",))
        known = one.store.conversations(None)[0]
        for kind, money in PINGS:
            event = KeepAliveEvent(
                time=time.time(),
                owner=known.owner,
                conversation=known.name,
                model=MODEL,
                kind=kind,
                money=money,
            )
            one.store.add_keep_alive(event)
        yield one


def opened(look: Look, one: Dashboarded, **options: object) -> Seen:
    """A dashboard whose bill and groups are drawn."""
    seen = look(one, **options)
    seen.tab.locator("#rest p").first.wait_for()
    seen.tab.locator("#compared table").wait_for()
    return seen


def test_the_rest_of_the_bill(look: Look, billed: Dashboarded) -> None:
    seen = opened(look, billed)
    said = seen.text("#rest")
    assert [one for one in SENTENCES if one not in said] == []
    assert "(less than 1 % of the bill)" in said
    row = [
        cell.replace("\u00a0", " ")
        for cell in seen.tab.locator("#rest tbody tr *").all_inner_texts()
    ]
    assert row[:2] == ["Browse", "Claude Code"]
    assert row[-1] == OFF


def test_both_groups_of_a_holdout(look: Look, billed: Dashboarded) -> None:
    seen = opened(look, billed)
    rows = seen.tab.locator("#compared tbody tr")
    names = [row.locator("th").inner_text() for row in rows.all()]
    assert names == ["Cost", "Requests", "Errors", "Fetched again after a cut"]
    assert seen.text("#compared caption") == "Held out and compacted"
    assert {row.locator("td").last.inner_text() for row in rows.all()} == {"too few to tell"}
    assert "Too few to tell: each group needs 20 or more." in seen.text("#compared")
    assert "-" not in "".join(cell.inner_text() for cell in rows.locator("td").all())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_can_be_read(look: Look, billed: Dashboarded, scheme: str, width: int) -> None:
    seen = opened(look, billed, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert seen.overflow() <= 0
    faint = seen.tab.evaluate(FAINT)
    assert faint["seen"] > 60
    assert faint["found"] == []
    assert seen.tab.evaluate(COLLIDING) == []
    line = seen.tab.locator("#rest tbody td code").first
    assert line.bounding_box()["width"] > 300  # on one or two lines, also of a narrow page
