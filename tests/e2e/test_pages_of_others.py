"""A real browser, with cookies and pages of others: nothing of it reaches a provider."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.support import Dashboarded, dashboarded
from tests.e2e.browser import Look, browsing, missing

pytestmark = pytest.mark.e2e

REBOUND = "evil.test"  # a foreign name that leads to this machine
PAGE = b"<!doctype html><title>another site</title>"
# Posts to the proxy in every way that a page has; what it could read of the answers.
ATTACK = """async (url) => {
  const read = [];
  const attempt = async (name, act) => {
    try { read.push([name, await act()]); } catch (error) { read.push([name, null]); }
  };
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] });
  const text = async (path, options) => {
    const answer = await fetch(url + path, { cache: "no-store", ...options });
    return answer.status === 403 || answer.type === "opaque" ? null : await answer.text();
  };
  const chat = "v1/chat/completions";
  await attempt("no-cors", () => text(chat, { method: "POST", mode: "no-cors", body }));
  await attempt("cookies", () => text(chat,
    { method: "POST", mode: "no-cors", body, credentials: "include" }));
  await attempt("cors", () => text(chat, { method: "POST", body }));
  await attempt("json", () => text(chat,
    { method: "POST", body, headers: { "content-type": "application/json" } }));
  await attempt("key", () => text("v1/messages",
    { method: "POST", body, headers: { "x-api-key": "made-up", authorization: "Bearer x" } }));
  await attempt("models", () => text("v1/models?key=made-up"));
  await attempt("list", () => text("v1/models", { mode: "no-cors" }));
  await attempt("beacon", () => { navigator.sendBeacon(url + chat, body); return null; });
  await attempt("dashboard", () => text("respool/api/conversations"));
  const loaded = (element, set) => new Promise((done) => {
    element.onload = () => done("loaded");
    element.onerror = () => done(null);
    set(element);
    document.body.append(element);
  });
  await attempt("image", () => loaded(new Image(), (one) => { one.src = url + "v1/x.png"; }));
  await attempt("script", () => loaded(document.createElement("script"),
    (one) => { one.src = url + "v1/models"; }));
  const frame = document.createElement("iframe");
  frame.name = "frame";
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, { action: url + chat, method: "POST", target: "frame" });
  form.enctype = "text/plain";
  const sent = new Promise((done) => { frame.onload = () => done(null); });
  document.body.append(form);
  form.submit();
  await attempt("form", () => sent);
  return read.filter(([, found]) => found !== null);
}"""


@contextmanager
def another_site() -> Iterator[int]:
    """A site on another port of this machine, which sets a cookie; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("set-cookie", "session=secret-cookie; Path=/")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser in which a foreign name leads to this machine."""
    if reason := missing():
        pytest.skip(reason)
    with browsing(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as started:
        yield started


def as_localhost(one: Dashboarded) -> str:
    return f"http://127.0.0.1:{one.port}/"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", REBOUND])
def test_a_page_of_another_site_neither_uses_nor_reads_anything(
    browser: Any, tmp_path: Path, host: str
):
    with dashboarded(tmp_path) as one, another_site() as port:
        one.talk(1)
        one.received.clear()
        tab = browser.new_context().new_page()
        tab.goto(f"http://{host}:{port}/")
        assert tab.evaluate(ATTACK, as_localhost(one)) == []
        assert [received.line for received in one.received] == []
        tab.context.close()


def test_a_page_whose_name_leads_here_later_neither_uses_nor_reads_anything(
    browser: Any, tmp_path: Path
):
    """To the browser, the proxy is then the page's own site: it sends what the page says."""
    with dashboarded(tmp_path) as one:
        one.talk(1)
        one.received.clear()
        tab = browser.new_context().new_page()
        url = f"http://{REBOUND}:{one.port}/"
        tab.goto(f"{url}page")  # refused too, but now there is a page of that origin
        assert tab.evaluate("location.origin") == url.rstrip("/")
        assert tab.evaluate(ATTACK, url) == []
        assert [received.line for received in one.received] == []
        tab.context.close()


def test_a_browser_on_respools_own_pages_takes_nothing_to_a_provider(browser: Any, tmp_path: Path):
    with dashboarded(tmp_path) as one, another_site() as port:
        tab = browser.new_context().new_page()
        tab.goto(f"http://127.0.0.1:{port}/")
        for path in ("healthz", "metrics", "", "favicon.ico", "v1/models", "v1/models?key=k", "x"):
            tab.goto(f"{as_localhost(one)}{path}")
            cookies = tab.context.cookies(as_localhost(one))
            assert [cookie["value"] for cookie in cookies] == ["secret-cookie"]
            if path in ("healthz", "metrics"):
                icon = "async () => (await fetch('/favicon.ico')).status"
                assert tab.evaluate(icon) == 404
        assert [received.line for received in one.received] == []
        tab.context.close()


def test_the_dashboard_works_with_cookies_of_others_about(look: Look, tmp_path: Path):
    with dashboarded(tmp_path) as one:
        one.talk(2)
        cookie = {"name": "session", "value": "secret", "domain": "localhost", "path": "/"}
        rest = {"expires": -1, "httpOnly": False, "secure": False, "sameSite": "Lax"}
        seen = look(one, storage_state={"cookies": [{**cookie, **rest}], "origins": []})
        seen.open_conversation()
        assert "claude" in seen.text("#detail")
