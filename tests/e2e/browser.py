"""A real browser that opens pages and dashboards, and records what it saw."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tests.dashboard.support import Dashboarded

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

DRAWN_WITHIN = 15_000  # milliseconds

# Every visible text whose colour is too close to what lies behind it.
FAINT = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (["SCRIPT", "title", "desc", "OPTION", "NOSCRIPT"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.tagName === "text" ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    seen += 1;
    if (ratio < 4.5) found.push(`${walker.currentNode.data.trim().slice(0, 40)}: ${ratio}`);
  }
  return { seen, found };
}"""

# Every two texts of one drawing that lie on each other.
COLLIDING = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBBox()]);
  return texts.flatMap(([one, a], at) => texts.slice(at + 1)
    .filter(([, b]) => a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1
      && a.y < b.y + b.height - 3 && b.y < a.y + a.height - 3)
    .map(([other]) => `${one.textContent} / ${other.textContent}`));
})"""


def missing() -> str | None:
    """Reason that no browser can be started here; None if one can."""
    if find_spec("playwright") is None:
        return "playwright is not installed: make e2e installs it"
    if shutil.which("chromium") is None:
        return "there is no chromium on this PATH (on Debian: the package chromium)"
    return None


@contextmanager
def browsing(*flags: str) -> Iterator[Any]:
    """A browser with these flags too, for as long as the block runs."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        args = [*_FLAGS, *flags]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        yield browser
        browser.close()


class Tab:
    """A page in a browser, and all that it asked for and complained of."""

    allowed: tuple[str, ...] = ("data:",)  # how addresses begin that the page may ask for

    def __init__(self, browser: Any, url: str, drawn: str, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1200, "height": 900})
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.goto(url)
        self._await(drawn)

    def _await(self, drawn: str) -> None:
        """Wait for what the page draws last; if that never comes, say what it complained of."""
        try:
            self.tab.locator(drawn).wait_for(timeout=DRAWN_WITHIN)
        except Exception as error:
            error.add_note(f"The page complained: {self.complaints}")
            raise

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return self.tab.evaluate("document.scrollingElement.scrollWidth - innerWidth")

    def close(self) -> None:
        """Close it: all it asked for was allowed, and nothing complained of."""
        self.context.close()
        assert [url for url in self.asked[1:] if not url.startswith(self.allowed)] == []
        assert self.complaints == [], self.complaints


WIDE = {"width": 1280, "height": 900}
SOON = 8_000  # milliseconds: some rounds of asking

Look = Callable[..., "Seen"]  # opens one


class Seen(Tab):
    """A dashboard that is looked at."""

    def __init__(self, browser: Any, one: Dashboarded, **options: Any) -> None:
        self.allowed = (one.url, "data:")
        super().__init__(browser, one.url, "#live.on", **{"viewport": WIDE, **options})

    def text(self, selector: str) -> str:
        """Text of an element, with plain spaces."""
        return self.tab.locator(selector).first.inner_text().replace("\u00a0", " ")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.tab.keyboard.press(key)

    def focused(self) -> str:
        """Label or text of the focused element."""
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
