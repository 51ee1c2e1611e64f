"""`respool stats`, `status`, `statusline` and `doctor`: figures, sentences and refusals."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from rich.console import Console

from respool.cli import main
from respool.cli.stats import last_periods, midnight
from respool.history.repeat_rates import RepeatCell
from respool.pricing import format_dollars
from respool.proxy.billing import RunTotals
from respool.store import RequestRecord, SQLiteStore
from tests.dashboard.support import dashboarded
from tests.store.support import OTHER, record

DAY = 86_400
TOKEN = "a-token-of-enough-characters"


def run(*arguments: str, data: str = "") -> Result:
    result = CliRunner().invoke(main, arguments, input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands look for a store; there is none."""
    path = tmp_path / "state" / "respool.db"
    monkeypatch.setenv("RESPOOL_STORE", str(path))
    return path


def write(path: Path, *records: RequestRecord) -> None:
    store = SQLiteStore(path)
    for one in records:
        assert store.record(one)
    store.close()


def noon(days_ago: int = 0) -> float:
    """Noon of a day, or now on the first half of today: nothing is recorded in the future."""
    today = midnight(datetime.now().date())
    return min(today + DAY / 2 - days_ago * DAY, time.time())


def sample() -> list[RequestRecord]:
    """Requests of four days, two models, two keys; some observed, without a price, failed."""
    return [
        record("a", time=noon(), cost_before=0.5, cost_after=0.2, model="large"),
        record("b", time=noon(), cost_before=0.1, cost_after=0.15, model="small", owner=OTHER),
        record("c", time=noon(2), cost_before=4.0, cost_after=1.0, model="large"),
        record("d", time=noon(2), mode="observed", cost_before=2.0, cost_after=1.0, model="large"),
        record("e", time=noon(2), cost_before=None, cost_after=None, model="", conversation="c2"),
        record("f", time=noon(3), status=500, cost_before=None, cost_after=None, saved=0),
        record("g", time=noon(40), cost_before=8.0, cost_after=7.0, model="large"),
    ]


class TestStats:
    def test_the_figures_are_those_of_the_dashboard_and_of_run(self, tmp_path: Path):
        """Real requests through a real proxy: three faces, one figure."""
        with dashboarded(tmp_path) as one:
            one.talk(4)
            one.talk(3, name="test", model="claude-opus-4-5")
            (slots,) = [one.data("overview?range=day")["totals"]]
            path = one.store.path
            told = RunTotals()
            for conversation in one.store.conversations(None):
                for each in one.store.requests(conversation.name, None):
                    told.add(each)
        shown = json.loads(run("stats", "--json", "--store", str(path)).output)
        saved = sum(slot["cost_before"] - slot["cost_after"] for slot in slots)
        assert saved > 0
        assert shown["total"]["saved_usd"] == pytest.approx(saved)
        assert shown["total"]["saved_usd"] == pytest.approx(told.saving.money)
        assert shown["total"]["requests"] == shown["all"]["requests"] == 7
        assert shown["total"]["tokens_saved"] == sum(slot["saved"] for slot in slots)
        assert {one["model"]: one["requests"] for one in shown["models"]} == {
            "claude-sonnet-4-5": 4,
            "claude-opus-4-5": 3,
        }
        said = run("stats", "--store", str(path)).output.splitlines()[0]
        assert said.startswith(f"In the last 7 days, respool saved {format_dollars(saved)}, ")

    def test_both_groups_of_a_holdout_are_shown(self, path: Path):
        write(
            path,
            *(
                replace(
                    record(f"{arm}{n}", time=time.time(), conversation=f"{arm}{n}"),
                    unit=f"{arm}{n}",
                    arm=arm,
                    cost_before=cost + n % 3,
                    cost_after=cost + n % 3,
                )
                for arm, cost in (("held-out", 9.0), ("compacted", 4.0))
                for n in range(25)
            ),
        )
        (found,) = json.loads(run("stats", "--json").output)["holdout"]
        cost = found["measures"][0]
        assert (cost["measure"], cost["verdict"]) == ("cost", "less")
        assert cost["low"] < -5 < cost["high"] < 0
        said = " ".join(run("stats").output.split())
        assert "Held out and compacted" in said
        assert "25 conversations held out, 25 compacted." in said
        assert "Too few" not in said

    def test_excess_refetch_is_shown_with_its_interval(self, path: Path):
        cells = (RepeatCell("read", 2, cut=100, cut_again=9, whole=200, whole_again=10),)
        write(path, replace(record("r", time=time.time()), repeats=cells))
        shown = json.loads(run("stats", "--json").output)["excess_refetch"]
        assert (shown["after_cut"], shown["expected"], shown["excess"]) == (9, 5.0, 4.0)
        said = " ".join(run("stats").output.split())
        assert "9 results were fetched again after a cut; 5.0 would have been" in said

    def test_days_and_models_sum_up_to_the_total(self, path: Path):
        write(path, *sample())
        shown = json.loads(run("stats", "--json").output)
        for key, value in shown["total"].items():
            for rows in (shown["periods"], shown["models"]):
                assert sum(row[key] or 0 for row in rows) == pytest.approx(value or 0), key
        assert len(shown["periods"]) == 7
        assert [row["requests"] for row in shown["periods"]] == [0, 0, 0, 1, 3, 0, 2]
        assert shown["periods"][-1]["saved_usd"] == pytest.approx(0.25)
        assert shown["total"]["saved_usd"] == pytest.approx(3.25)
        assert shown["total"]["bill_without_respool_usd"] == pytest.approx(6.6)
        assert shown["total"]["would_have_saved_usd"] == pytest.approx(1.0)
        assert shown["total"]["unpriced_requests"] == 1
        assert shown["all"]["saved_usd"] == pytest.approx(4.25)
        assert [row["model"] for row in shown["models"]][:1] == ["large"]

    def test_by_agent_and_project_money_first(self, path: Path):
        shop, infra = {"project": "/home/a/shop"}, {"project": "/srv/infra"}
        write(
            path,
            record("a", time=noon(), agent="Codex", cost_before=2.0, cost_after=1.5, **shop),
            record("b", time=noon(), agent="Claude Code", cost_before=3.0, cost_after=1.0, **infra),
            record("c", time=noon(), agent="Claude Code", cost_before=1.0, cost_after=0.5, **shop),
            record("d", time=noon(), cost_before=1.0, cost_after=1.0),
        )
        shown = json.loads(run("stats", "--json").output)
        found = {
            (key, row[key]): (row["saved_usd"], row["requests"])
            for key in ("agent", "project")
            for row in shown[f"{key}s"]
        }
        assert found == {
            ("agent", "Claude Code"): (2.5, 2),
            ("agent", "Codex"): (0.5, 1),
            ("agent", ""): (0.0, 1),
            ("project", "/srv/infra"): (2.0, 1),
            ("project", "/home/a/shop"): (1.0, 2),
            ("project", ""): (0.0, 1),
        }
        assert json.loads(run("status", "--json").output)["saved"]["agents"] == shown["agents"]
        for command in ("stats", "status"):
            said = run(command).output
            rows = [" ".join(line.split()) for line in said.splitlines()]
            assert "Agent Saved Of the bill Tokens saved Requests" in rows
            assert "Claude Code $2.50 62 % 1,200 2" in rows
            assert "/srv/infra $2.00 67 % 600 1" in rows
        line = run("statusline", data='{"session_id": "x", "cwd": "/home/a/shop"}').output
        assert line == "respool saved $1.00 (33 %) today in shop\n"
        workspace = '{"cwd": "/x", "workspace": {"project_dir": "/srv/infra"}}'
        assert "(67 %) today in infra" in run("statusline", data=workspace).output
        assert "(43 %) today\n" in run("statusline", data='{"cwd": "/elsewhere"}').output

    def test_a_period_begins_at_midnight_exactly(self, path: Path):
        start = midnight(last_periods("day", datetime.now().date(), 7)[0][0])
        before = math.nextafter(start, 0.0)
        write(path, record("a", time=start, model="in"), record("b", time=before, model="out"))
        shown = json.loads(run("stats", "--json").output)
        assert [row["requests"] for row in shown["periods"]] == [1, 0, 0, 0, 0, 0, 0]
        assert [row["model"] for row in shown["models"]] == ["in"]

    def test_says_money_first(self, path: Path):
        write(path, *sample())
        lines = run("stats").output.splitlines()
        assert lines[0] == (
            "In the last 7 days, respool saved $3.25, 49 % of a bill of $6.60; "
            "2,400 of 4,800 tokens (50 %) in 6 requests. "
            "Beside that, 1 request only observed would have saved $1.00. "
            "No price is known for 1 request."
        )
        assert lines[1].startswith(
            "Of all that is recorded, respool saved $4.25, 29 % of a bill of $14.60;"
        )
        days = [line.split()[0] for line in lines if line.startswith("  20")]
        assert days == [date.fromtimestamp(noon(ago)).isoformat() for ago in (3, 2, 1, 0)]

    @pytest.mark.parametrize("option", ["--weekly", "--monthly"])
    def test_longer_periods_hold_older_requests(self, path: Path, option: str):
        write(path, *sample())
        shown = json.loads(run("stats", option, "--json").output)
        assert shown["total"] == pytest.approx(shown["all"])
        assert len(shown["periods"]) == {"--weekly": 8, "--monthly": 12}[option]

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"cost_before": 0.1, "cost_after": 0.3}, "respool cost $0.2000 more, 200 % of"),
            (
                {"cost_before": None, "cost_after": None},
                "respool saved 600 of 1,000 tokens (60 %) in 1 request.",
            ),
            (
                {"mode": "observed"},
                "respool would have saved $0.2500, 50 % of a bill of $0.5000; 240 of 400 tokens",
            ),
        ],
    )
    def test_other_headlines(self, path: Path, fields: dict[str, Any], said: str):
        write(path, record(time=noon(), **fields))
        assert said in run("stats").output.splitlines()[0]

    def test_old_records_only(self, path: Path):
        write(path, record(time=noon(40)))
        assert run("stats").output == (
            "In the last 7 days, no request was recorded.\n"
            "Of all that is recorded, respool saved $0.2500, 50 % of a bill of $0.5000; "
            "600 of 1,000 tokens (60 %) in 1 request.\n"
        )

    @pytest.mark.parametrize("made", [False, True])
    def test_without_a_request_it_says_what_to_do(self, path: Path, made: bool):
        if made:
            write(path)
            SQLiteStore(path).salt()
        result = run("stats")
        assert result.exit_code == 0
        assert result.output == (
            "Nothing is recorded yet: start an agent with respool run -- claude, or point one at "
            "respool serve.\n"
        )
        assert path.exists() == made  # asking makes no store
        assert json.loads(run("stats", "--json").output)["all"]["requests"] == 0

    def test_a_store_that_was_named_has_to_exist(self, path: Path):
        result = run("stats", "--store", str(path))
        assert result.exit_code == 2
        assert "There is no store at" in result.stderr

    def test_a_foreign_file_is_refused_in_a_sentence(self, tmp_path: Path):
        foreign = tmp_path / "notes.db"
        foreign.write_bytes(b"another program's" * 100)
        result = run("stats", "--store", str(foreign))
        assert result.exit_code == 2
        assert "it is another program's file" in result.stderr

    @pytest.mark.parametrize("width", [30, 50, 200])
    def test_a_terminal_of_any_width_shows_every_figure_and_no_escape(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, width: int
    ):
        write(path, record(time=noon(), model="evil\x1b[2J", cost_before=9.5, cost_after=1.25))
        screen = io.StringIO()
        terminal = Console(file=screen, width=width, force_terminal=True, highlight=False)
        monkeypatch.setattr("respool.cli.console.is_terminal", lambda: True)
        monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
        run("stats")
        text = screen.getvalue()
        assert "\x1b[2J" not in text
        assert "evil\\x1b[2J" in text
        assert text.count("$8.25") == 4  # two sentences, a day, a model


class Stranger(BaseHTTPRequestHandler):
    """A server that is not respool."""

    body = b"{}"
    heard: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.heard.append(self.headers.get("x-respool-token"))
        self.send_response(200)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def stranger(body: bytes) -> Iterator[str]:
    Stranger.body, Stranger.heard = body, []
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def free_url() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


class TestStatus:
    @pytest.mark.parametrize(
        ("token", "given", "observe", "said"),
        [
            (None, None, False, ", compacts requests; circuit breaker closed"),
            (None, None, True, ", observes, changes nothing; circuit breaker closed"),
            (TOKEN, TOKEN, False, ", compacts requests; circuit breaker closed"),
            (TOKEN, None, False, "it asks for its token for more (RESPOOL_TOKEN)"),
        ],
    )
    def test_a_proxy_says_how_it_is(
        self,
        path: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        token: str | None,
        given: str | None,
        observe: bool,
        said: str,
    ):
        if given is not None:
            monkeypatch.setenv("RESPOOL_TOKEN", given)
        with dashboarded(tmp_path, token=token, observe=observe) as one:
            url = f"http://127.0.0.1:{one.port}"
            lines = run("status", "--url", url).output
            told = json.loads(run("status", "--url", url, "--json").output)["proxy"]
        assert f"Proxy  listening on {url}" in lines
        assert said in lines
        assert (told["version"] is None) == (token != given)

    def test_sums_up_today_this_week_and_all(self, path: Path):
        write(path, *sample())
        url = free_url()
        lines = run("status", "--url", url).output.splitlines()
        told = json.loads(run("status", "--url", url, "--json").output)
        assert told["saved"]["today"]["saved_usd"] == pytest.approx(0.25)
        assert told["saved"]["all"]["saved_usd"] == pytest.approx(4.25)
        since = last_periods("week", datetime.now().date(), 1)[0][0]
        week = sum(one.time >= midnight(since) for one in sample())
        assert told["saved"]["week"]["requests"] == week
        assert lines[2] == "  Today      saved $0.2500 (42 %)"
        assert lines[4] == "  In all     saved $4.25 (29 %)"
        assert f"{path}: " in lines[6]
        assert lines[6].endswith(" kB, healthy")
        assert f"not listening on {url} (Connection refused); respool serve starts" in lines[5]

    def test_without_a_store_it_says_what_to_do_and_makes_none(self, path: Path):
        result = run("status", "--url", free_url())
        assert result.exit_code == 0
        assert "Saved  Nothing is recorded yet: start an agent with" in result.output
        assert f"Store  {path}: not made yet" in result.output
        assert not path.exists()

    def test_a_damaged_store_is_said_to_be_and_left_as_it_is(self, path: Path):
        path.parent.mkdir()
        path.write_bytes(b"x" * 5_000)
        result = run("status", "--url", free_url())
        assert result.exit_code == 0
        assert "cannot be used: it is damaged" in result.output
        assert path.read_bytes() == b"x" * 5_000

    @pytest.mark.parametrize("body", [b"{}", b"[1]", b"<html>", b"", b'{"status": "up"}'])
    def test_another_server_is_told_apart_and_gets_no_token(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
    ):
        monkeypatch.setenv("RESPOOL_TOKEN", TOKEN)
        with stranger(body) as url:
            assert "something else than respool answers" in run("status", "--url", url).output
        assert Stranger.heard == [None]

    def test_a_server_that_never_answers_is_not_waited_for(self, path: Path):
        with deaf() as url:
            started = time.monotonic()
            result = run("status", "--url", url)
        assert "not listening on" in result.output
        assert "(timed out)" in result.output
        assert time.monotonic() - started < 5

    @pytest.mark.parametrize("url", ["", "7733", "ftp://host", "http://", "http://host:none"])
    def test_refuses_what_is_no_address(self, path: Path, url: str):
        result = run("status", "--url", url)
        assert result.exit_code == 2
        assert "is not allowed; write it as http://127.0.0.1:7733." in result.stderr


def told_by_claude(session: str) -> str:
    """What Claude Code writes to a status line's standard input, shortened."""
    return json.dumps({
        "hook_event_name": "Status",
        "session_id": session,
        "transcript_path": "/home/u/.claude/projects/p/s.jsonl",
        "cwd": "/home/u/p",
        "model": {"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5"},
        "workspace": {"current_dir": "/home/u/p", "project_dir": "/home/u/p"},
        "version": "2.1.325",
        "cost": {"total_cost_usd": 0.42, "total_duration_ms": 45_000},
        "context_window": {"used_percentage": 8, "context_window_size": 200_000},
    })  # fmt: skip


class TestStatusline:
    def test_says_what_this_session_saved_and_otherwise_today(self, tmp_path: Path):
        """The session id of the header is the one that Claude Code gives a status line."""
        with dashboarded(tmp_path) as one:
            one.talk(3, headers=("x-claude-code-session-id: 5e55-1",))
            one.talk(2, name="sub-agent", headers=("x-claude-code-session-id: 5e55-1",))
            one.talk(4, name="other", headers=("x-claude-code-session-id: 5e55-2",))
            path = one.store.path
            saved = {n.session: 0.0 for n in one.store.conversations(None)}
            for n in one.store.conversations(None):
                saved[n.session] += n.cost_before - n.cost_after
        lines = {
            name: run("statusline", "--store", str(path), data=told_by_claude(name)).output
            for name in ("5e55-1", "5e55-2", "unknown")
        }
        first, second = saved.values()  # the latest first
        assert f"respool saved {format_dollars(second)} (" in lines["5e55-1"]
        assert f"respool saved {format_dollars(first)} (" in lines["5e55-2"]
        assert f"respool saved {format_dollars(first + second)} (" in lines["unknown"]
        assert lines["5e55-1"].endswith(" %) this session\n")
        assert lines["unknown"].endswith(" %) today\n")
        assert all(line.count("\n") == 1 and len(line) < 60 for line in lines.values())

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({}, "respool saved $0.2500 (50 %) today\n"),
            ({"mode": "observed"}, "respool would have saved $0.2500 (50 %) today\n"),
            ({"cost_after": 0.6}, "respool cost $0.1000 more (20 %) today\n"),
            ({"cost_before": None, "cost_after": None}, "respool saved 600 tokens (60 %) today\n"),
            ({"saved": 0, "cost_after": 0.5}, "respool saved nothing yet today\n"),
            ({"time": 1e9}, ""),
        ],
    )
    def test_lines(self, tmp_path: Path, fields: dict[str, Any], said: str):
        path = tmp_path / f"{len(said)}-{'-'.join(fields)}.db"
        write(path, record(**{"time": noon(), **fields}))
        result = run("statusline", "--store", str(path), data="{}")
        assert (result.output, result.exit_code) == (said, 0)

    @pytest.mark.parametrize(
        "data",
        [
            *("", "{", "[]", "null", "7", "[" * 100_000, "\x00\xff"),
            *('{"session_id": 7}', '{"session_id": null}', '{"session_id": "\\ud83d"}'),
            f'{{"session_id": "{"x" * 10_000}"}}',
        ],
    )
    def test_whatever_it_reads_it_does_not_fail(self, tmp_path: Path, data: str):
        path = tmp_path / "respool.db"
        if not path.exists():
            write(path, record(time=noon()))
        result = run("statusline", "--store", str(path), data=data)
        assert (result.output, result.stderr) == ("respool saved $0.2500 (50 %) today\n", "")
        assert result.exit_code == 0

    @pytest.mark.parametrize("held", [None, b"x" * 5_000, b""])
    def test_without_a_usable_store_it_prints_nothing(self, path: Path, held: bytes | None):
        if held is not None:
            path.parent.mkdir()
            path.write_bytes(held)
        result = run("statusline", data=told_by_claude("s"))
        assert (result.output, result.stderr, result.exit_code) == ("", "", 0)
        assert path.exists() == (held is not None)

    def test_a_bad_variable_is_no_failure(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("RESPOOL_STORE", "not/absolute")
        result = run("statusline", data="{}")
        assert (result.output, result.stderr, result.exit_code) == ("", "", 0)

    def test_an_input_that_stays_open_is_not_waited_for(self, path: Path):
        write(path, record(time=noon()))
        command = [sys.executable, "-m", "respool", "statusline"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            try:
                assert child.wait(30) == 0
                assert child.stdout is not None
                assert child.stdout.read() == b"respool saved $0.2500 (50 %) today\n"
            finally:
                child.kill()


class Home:
    """A home folder with programs on the PATH, in which `respool doctor` is run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        self.url = free_url()
        for name in ("bin", "project"):
            (folder / name).mkdir()
        for name in [*os.environ]:
            if name.startswith(("ANTHROPIC_", "OPENAI_", "CODEX_", "OPENCODE_", "XDG_")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.setenv("RESPOOL_STORE", str(folder / "state" / "respool.db"))
        monkeypatch.chdir(folder / "project")
        self.install("respool")

    def install(self, *names: str) -> None:
        for name in names:
            file = self.folder / "bin" / name
            file.write_text("#!/bin/sh\nexit 1\n")
            file.chmod(0o755)

    def write(self, name: str, held: Any) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(held if isinstance(held, str) else json.dumps(held))

    def doctor(self) -> tuple[int, list[dict[str, str]]]:
        result = run("doctor", "--url", self.url, "--json")
        told = json.loads(result.output)
        assert told["ok"] == (result.exit_code == 0)
        return result.exit_code, told["checks"]

    def found(self, check: str) -> list[tuple[str, str]]:
        return [(one["level"], one["found"]) for one in self.doctor()[1] if one["check"] == check]

    def snapshot(self) -> dict[str, bytes]:
        return {str(one): one.read_bytes() for one in self.folder.rglob("*") if one.is_file()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


# How each agent's own settings point it at a URL: a file of the home folder, or variables.
POINTED: list[tuple[str, str, Any, dict[str, str]]] = [
    ("claude", "", None, {"ANTHROPIC_BASE_URL": "@"}),
    ("claude", ".claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": "@"}}, {}),
    ("claude", "project/.claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": "@/x"}}, {}),
    ("codex", ".codex/config.toml", 'openai_base_url = "@/v1"', {}),
    (
        "opencode",
        ".config/opencode/opencode.json",
        {"provider": {"anthropic": {"options": {"baseURL": "@/v1"}}}},
        {},
    ),
    ("pi", ".pi/agent/models.json", {"providers": {"anthropic": {"baseUrl": "@"}}}, {}),
    ("gemini", ".gemini/.env", "GEMINI_API_KEY=k\nGOOGLE_GEMINI_BASE_URL=@\n", {}),
    ("qwen", ".qwen/settings.json", {"env": {"OPENAI_BASE_URL": "@/v1"}}, {}),
    ("copilot", "", None, {"COPILOT_PROVIDER_BASE_URL": "@/v1"}),
    ("aider", "", None, {"OPENAI_API_BASE": "@/v1"}),
    ("mini", ".config/mini-swe-agent/.env", "OPENAI_API_BASE=@/v1\n", {}),
]


class TestDoctor:
    def test_finds_nothing_broken_where_all_is_well_and_writes_nothing(self, home: Home):
        home.write("project/respool.toml", "cap_chars = 9000\n")
        home.write(".claude.json", {"mcpServers": {"respool": {"command": "respool"}}})
        home.install("claude")
        with dashboarded(home.folder / "state") as one:
            home.url = f"http://127.0.0.1:{one.port}"
            home.patch.setenv("ANTHROPIC_BASE_URL", home.url)
            home.patch.setenv("RESPOOL_STORE", str(one.store.path))
            one.store.salt()
            before = home.snapshot()
            code, checks = home.doctor()
            assert home.snapshot().keys() == before.keys()
            text = run("doctor", "--url", home.url)
        assert (code, text.exit_code) == (0, 0)
        # The accelerator is there where it was built.
        others = [one for one in checks if one["check"] != "accelerator"]
        assert [one for one in others if one["level"] != "ok"] == []
        assert {one["check"] for one in checks} == {
            *(
                "python",
                "extra serve",
                "extra mcp",
                "accelerator",
                "store",
                "settings",
                "variables",
                "proxy",
            ),
            *("claude", "mcp"),
        }
        assert "valid: " in text.output
        assert "project/respool.toml" in text.output
        assert f"Claude Code goes through respool on {home.url}" in text.output
        assert text.output.endswith("\n\nNothing is broken.\n")

    def test_an_empty_machine_is_not_broken(self, home: Home):
        before = home.snapshot()
        code, checks = home.doctor()
        assert code == 0
        assert {one["level"] for one in checks} == {"ok", "note"}
        assert home.snapshot() == before

    @pytest.mark.parametrize(("name", "file", "held", "variables"), POINTED)
    def test_an_agent_whose_settings_point_where_nobody_listens_is_broken(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        *,
        name: str,
        file: str,
        held: Any,
        variables: dict[str, str],
    ):
        with pytest.MonkeyPatch.context() as monkeypatch:
            home = Home(tmp_path_factory.mktemp("home"), monkeypatch)
            home.install(name)
            ((level, said),) = home.found(name)
            assert level == "note", said
            dead = free_url()
            if file:
                text = held if isinstance(held, str) else json.dumps(held)
                home.write(file, text.replace("@", dead))
            for variable, url in variables.items():
                monkeypatch.setenv(variable, url.replace("@", dead))
            assert home.doctor()[0] == 1
            ((level, said),) = home.found(name)
            assert level == "problem"
            assert said.endswith(f"is pointed at {dead}, where nobody listens")

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            (
                "RESPOOL_CAP_CHAR",
                "1",
                "unknown key 'RESPOOL_CAP_CHAR'; did you mean RESPOOL_CAP_CHARS?",
            ),
            ("RESPOOL_CAP_CHARS", "many", "RESPOOL_CAP_CHARS"),
            ("RESPOOL_STORE_DAYS", "-1", "RESPOOL_STORE_DAYS='-1'"),
        ],
    )
    def test_names_every_wrong_variable(self, home: Home, name: str, value: str, said: str):
        home.patch.setenv("RESPOOL_WRONG_TOO", "secret-value")
        home.patch.setenv(name, value)
        found = home.found("variables")
        assert [level for level, _ in found] == ["problem", "problem"]
        assert any(said in told for _, told in found), found
        assert "secret-value" not in str(found)
        assert home.doctor()[0] == 1

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("respool.toml", "cap_chars = 9000\n"),
            ("respool.toml", 'preset = "lean"\n'),
            ("pyproject.toml", "[tool.respool]\ncap_chars = 9000\n"),
        ],
    )
    def test_names_the_settings_file_that_applies(self, home: Home, name: str, text: str):
        home.write(name, text)  # above the working folder
        assert home.found("settings") == [("ok", f"valid: {home.folder / name}")]

    def test_a_settings_file_that_is_wrong(self, home: Home):
        home.write("project/respool.toml", "cap_char = 1\n")
        ((level, said),) = home.found("settings")
        assert level == "problem"
        assert "project/respool.toml" in said

    def test_a_store_that_is_not_ours_or_not_private(self, home: Home):
        foreign = home.folder / "notes.db"
        foreign.write_bytes(b"another program's" * 100)
        foreign.chmod(0o644)
        home.patch.setenv("RESPOOL_STORE", str(foreign))
        (ours, private) = home.found("store")
        assert ours[0] == private[0] == "problem"
        assert "it is another program's file" in ours[1]
        assert private[1] == f"Others can read {foreign}"
        home.patch.setenv("RESPOOL_STORE", "not/absolute")
        ((level, said),) = home.found("store")
        assert level == "problem"
        assert "allowed: the whole path of a file" in said

    def test_a_full_disk(self, home: Home):
        home.patch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 5))
        assert ("problem", f"5 bytes are left on the disk of {home.folder}") in home.found("store")

    def test_a_proxy_that_is_not_well(self, home: Home):
        state = {"status": "degraded", "version": "0.0.9", "mode": "compact", "store": "full"}
        breaker = {"phase": "open", "reason": "Compaction failed 5 times.\x1b[2J"}
        body = json.dumps({**state, "circuit_breaker": breaker}).encode()
        with stranger(body) as home.url:
            first, second = home.found("proxy")
            text = run("doctor", "--url", home.url).output
        assert first[0] == "problem"
        assert first[1] == (
            f"listening on {home.url}, version 0.0.9, compacts requests; circuit breaker open: "
            "Compaction failed 5 times.\x1b[2J; its store is full"
        )
        assert second[0] == "note"
        assert second[1].startswith("it runs version 0.0.9, and ")
        assert "\x1b" not in text

    @pytest.mark.parametrize(
        ("file", "held"),
        [
            (".claude.json", {"mcpServers": {"respool": {"command": "gone", "args": ["mcp"]}}}),
            (
                ".claude.json",
                {"projects": {"HERE": {"mcpServers": {"respool": {"command": "gone"}}}}},
            ),
            ("project/.mcp.json", {"mcpServers": {"respool": {"command": "gone"}}}),
            (".codex/config.toml", '[mcp_servers.respool]\ncommand = "gone"\nargs = ["mcp"]\n'),
            (".gemini/settings.json", {"mcpServers": {"respool": {"command": "gone"}}}),
            (".qwen/settings.json", {"mcpServers": {"respool": {"command": "gone"}}}),
            (".config/opencode/opencode.json", {"mcp": {"respool": {"command": ["gone", "mcp"]}}}),
        ],
    )
    def test_sees_where_mcp_is_registered(
        self, tmp_path_factory: pytest.TempPathFactory, file: str, held: Any
    ):
        with pytest.MonkeyPatch.context() as monkeypatch:
            home = Home(tmp_path_factory.mktemp("home"), monkeypatch)
            text = held if isinstance(held, str) else json.dumps(held)
            home.write(file, text.replace("HERE", str(home.folder / "project")))
            said = f"{home.folder / file} registers gone, which is not on the PATH"
            assert home.found("mcp") == [("problem", said)]
            home.install("gone")
            assert home.found("mcp") == [("ok", f"registered in {home.folder / file}")]

    def test_no_token_is_printed(self, home: Home):
        home.install("claude")
        home.patch.setenv("RESPOOL_TOKEN", TOKEN)
        for url in (home.url, "https://user:a-token-of-enough-characters@gateway"):
            home.patch.setenv("ANTHROPIC_BASE_URL", f"{url}/respool-token/{TOKEN}")
            home.write(".claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": f"{url}/{TOKEN}"}})
            assert TOKEN not in run("doctor", "--url", home.url).output

    def test_a_gateway_by_file_is_said_to_win_over_run(self, home: Home):
        home.install("claude")
        home.write(".claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": "https://gateway/x"}})
        (found,) = [one for one in home.doctor()[1] if one["check"] == "claude"]
        file = home.folder / ".claude" / "settings.json"
        assert found["found"] == f"Claude Code, by {file}, goes to https://gateway"
        assert found["advice"].startswith("respool run cannot change that")


@pytest.mark.parametrize(
    ("period", "today", "count", "starts"),
    [
        ("day", "2026-03-02", 3, ["2026-02-28", "2026-03-01", "2026-03-02"]),
        ("day", "2026-11-18", 1, ["2026-11-18"]),
        ("week", "2026-11-18", 2, ["2026-11-09", "2026-11-16"]),
        ("week", "2026-11-16", 2, ["2026-11-09", "2026-11-16"]),
        ("week", "2026-11-15", 1, ["2026-11-09"]),
        ("month", "2026-01-31", 3, ["2025-11-01", "2025-12-01", "2026-01-01"]),
        ("month", "2024-02-29", 2, ["2024-01-01", "2024-02-01"]),
    ],
)
def test_periods_follow_the_calendar_without_a_gap(
    period: Any, today: str, count: int, starts: list[str]
):
    found = last_periods(period, date.fromisoformat(today), count)
    assert [start.isoformat() for start, _ in found] == starts
    assert [end for _, end in found[:-1]] == [start for start, _ in found[1:]]
    assert found[-1][1] > date.fromisoformat(today)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_day_has_the_hours_that_clocks_gave_it(berlin: None):
    """On 25 October 2026 clocks went back an hour in Berlin."""
    start, end = date(2026, 10, 25), date(2026, 10, 26)
    assert midnight(end) - midnight(start) == 25 * 3_600
