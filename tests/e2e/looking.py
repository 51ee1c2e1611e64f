"""A dashboard that is looked at in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dashboards import Dashboarded
from tests.e2e.browser import Tab

WIDE = {"width": 1280, "height": 900}
SOON = 8_000  # milliseconds: some rounds of asking

Look = Callable[..., "Seen"]  # opens one


class Seen(Tab):
    """A dashboard that is looked at."""

    def __init__(self, browser: Any, one: Dashboarded, **options: Any) -> None:
        self.allowed = (one.url, "data:")
        super().__init__(browser, one.url, "#live.on", **{"viewport": WIDE, **options})

    def text(self, selector: str) -> str:
        """What stands in an element, with plain spaces."""
        return self.tab.locator(selector).first.inner_text().replace("\u00a0", " ")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.tab.keyboard.press(key)

    def focused(self) -> str:
        """What has the focus: its label, or what stands in it."""
        return self.tab.evaluate(
            "(document.activeElement.ariaLabel ?? document.activeElement.textContent).trim()"
        )

    def open_conversation(self) -> None:
        """Open the first conversation."""
        self.tab.locator("#list button.pick").first.click()
        self.tab.locator("#detail svg").wait_for()

    def open_edit(self, at: int = 0) -> None:
        """Open an edit of the first conversation."""
        self.open_conversation()
        self.tab.locator("#detail td button.link").nth(at).click()
        self.tab.locator("dialog .diff").wait_for()
