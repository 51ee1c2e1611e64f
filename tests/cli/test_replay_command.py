"""`respool replay`: the screen, the files and the exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import respool
from respool.cli import main
from respool.cli.replay_screen import left_out_lines, show_replay
from respool.proxy.auth import keyed_hash
from respool.replay.result import ReplayBill, SkippedSource
from respool.replay.totals import conversation_count
from respool.store import SQLiteStore
from tests.replay.results import sample
from tests.replay.transcripts import START, claude_code, codex, collection, requests
from tests.store.support import record

HOME = Path(respool.__file__).parents[1]
POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX pipes and signals")
LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run where there are no transcripts but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    for name in [*os.environ]:
        if name.startswith("RESPOOL_") or name.endswith(("_DIR", "_HOME", "_DB")):
            monkeypatch.delenv(name)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["replay", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def told(*arguments: str) -> dict[str, Any]:
    """The answer as JSON."""
    result = run("--json", *arguments)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def history(format: str) -> list[dict[str, Any]]:
    """Three requests that add up by hand: 100, 1,120 and 2,140 tokens of four characters."""
    arguments = {"command": "x" * (80 - len("bash ") - len(json.dumps({"command": ""})))}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "z" * 400}]
    for id in ("one", "two"):
        messages += _exchange[format](id, arguments, "y" * 4_000)
    model = {"openai-chat": "gpt-4", "anthropic": "claude-sonnet-4-5"}[format]
    return [{"model": model, "messages": messages[:cut]} for cut in (1, 3, 5)]


def _chat(id: str, arguments: Any, result: str) -> list[dict[str, Any]]:
    function = {"name": "bash", "arguments": json.dumps(arguments)}
    call = {"id": id, "type": "function", "function": function}
    answer = {"role": "tool", "tool_call_id": id, "content": result}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, answer]


def _anthropic(id: str, arguments: Any, result: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": id, "name": "bash", "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": id, "content": result}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]


_exchange = {"openai-chat": _chat, "anthropic": _anthropic}


OWNER = "0" * 32


def proxied(path: Path, session: str) -> None:
    """A store with two requests of a session, as the proxy writes them."""
    hashed = keyed_hash(OWNER.encode(), "session", session.encode())
    store = SQLiteStore(path)
    for at in range(2):
        assert store.record(
            record(f"r{at}", owner=OWNER, session=hashed, cost_before=0.5, cost_after=0.4)
        )
    store.close()


class TestSessionsThatWentThroughRespool:
    def test_saved_and_would_have_saved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        folder = tmp_path / "logs"
        folder.mkdir()
        claude_code(folder / "a.jsonl", 12, id="went", result=3_000)
        claude_code(folder / "b.jsonl", 12, id="did-not", result=3_000)
        monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "respool.db"))
        assert "went through" not in run("--policy", "mask-1", str(folder)).stdout
        proxied(tmp_path / "respool.db", "went")
        shown = run("--policy", "mask-1", str(folder)).stdout
        assert "1 conversation went through respool, which saved $0.2000 (20 %).\n" in shown
        assert re.search(
            r"^In the other one, mask-1 would have (saved|cost) \$", shown, re.MULTILINE
        )
        answer = told("--policy", "mask-1", str(folder))
        assert {one["id"]: one["proxied"] for one in answer["sessions"]} == {
            "went": True,
            "did-not": False,
        }
        assert answer["proxied"]["conversations"] == 1
        assert answer["proxied"]["saving"]["saved_usd"] == pytest.approx(0.2)
        page = run("--policy", "mask-1", "--html", "-", str(folder)).stdout
        assert answer["proxied"]["stated"] in page

    def test_a_store_that_cannot_be_read_is_no_obstacle(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        (tmp_path / "respool.db").write_bytes(b"x" * 5_000)
        monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "respool.db"))
        result = run("--policy", "mask-1", str(claude_code(tmp_path / "a.jsonl")))
        assert (result.exit_code, "went through" in result.stdout) == (0, False)


class TestInvalid:
    def test_what_the_provider_had_answered_is_set_apart(self, tmp_path: Path):
        """A call in the record has no result, and the conversation went on all the same."""
        bodies = history("anthropic")
        lone = {"type": "tool_use", "id": "lost", "name": "bash", "input": {}}
        broken = [{"role": "assistant", "content": [lone]}, {"role": "user", "content": "Go on."}]
        bodies = [
            {**body, "messages": [body["messages"][0], *broken, *body["messages"][1:]]}
            for body in bodies
        ]
        bodies.append({**bodies[-1], "messages": [*bodies[-1]["messages"], *broken]})
        file = requests(tmp_path / "log.jsonl", bodies)
        none, mask = told("--policy", "mask-1", str(file))["totals"]
        assert none["disputed"] == mask["disputed"] == 3
        assert none["invalid"] == mask["invalid"] == 1  # nobody knows whether the last was answered
        shown = " ".join(run("--policy", "mask-1", str(file)).stdout.split())
        assert "finds 3 recorded requests wrong that the provider had answered" in shown


class TestFigures:
    """GPT-4 has no cache. Claude's is written at 1.25 from 1,024 tokens on, and read at 0.1."""

    @pytest.mark.parametrize(
        ("format", "none", "masked"),
        [
            ("openai-chat", 100 + 1_120 + 2_140, 100 + 1_120 + (2_140 - 1_000 + 6)),
            (
                "anthropic",
                100 + 1.25 * 1_120 + 0.1 * 1_120 + 1.25 * 1_020,
                100 + 1.25 * 1_120 + 1.25 * (2_140 - 1_000 + 6),
            ),
        ],
    )
    def test_a_bill_that_is_known(self, tmp_path: Path, format: str, none: float, masked: float):
        file = requests(tmp_path / "log.jsonl", history(format))
        answer = told("--plain", "--policy", "mask-1", str(file))
        assert answer["policies"] == ["none", "mask-1"]
        assert [total["bill"]["cost"] for total in answer["totals"]] == [none, masked]
        assert answer["totals"][1]["bill_ratio"] == pytest.approx(masked / none)
        assert answer["totals"][1]["peak_ratio"] == 1_146 / 2_140
        assert answer["counter"] == "as characters / 4"

    def test_the_head_of_a_logged_request_is_in_its_bill(self, tmp_path: Path):
        bodies = [{**body, "tools": "t" * 4_000} for body in history("openai-chat")]
        answer = told("--plain", "--policy", "none", str(requests(tmp_path / "log.jsonl", bodies)))
        assert answer["totals"][0]["bill"]["plain"] == 100 + 1_120 + 2_140 + 3 * 1_000
        head = next(k for k in answer["spent"]["kinds"] if k["name"] == "system prompt and tools")
        assert head["tokens"] == 3_000

    def test_the_screen_has_them_too(self, tmp_path: Path):
        file = requests(tmp_path / "log.jsonl", history("openai-chat"))
        shown = run("--plain", "--detail", "--policy", "mask-1", str(file)).stdout
        assert "1 conversation in 1 file, 3 requests\n" in shown
        assert "3,360 tokens were sent, of which 0 % were read from the cache." in shown
        assert re.search(r"^none +\$[\d.]+ 100 %  100 % 0\.0 % 100 %", shown, re.MULTILINE)
        assert re.search(r"^mask-1 +\$[\d.]+  70 %  +\d+ % +0\.0 % +\d+ %", shown, re.MULTILINE)

    def test_a_model_without_a_price_is_billed_in_tokens(self, tmp_path: Path):
        bodies = [{**body, "model": "a-model-of-our-own"} for body in history("openai-chat")]
        shown = run(str(requests(tmp_path / "log.jsonl", bodies))).stdout
        assert "tokens of plain input." in shown
        assert "tokens*" in shown
        assert "$" not in shown

    def test_the_window_can_be_given(self, tmp_path: Path):
        file = requests(tmp_path / "log.jsonl", history("openai-chat"))
        for window, full in (("1000", 1), ("2139", 1), ("2140", 0)):
            assert told("--plain", "--window", window, str(file))["totals"][0]["full"] == full

    def test_all_of_it_is_in_the_json(self, tmp_path: Path):
        answer = told(str(claude_code(tmp_path / "a.jsonl", 5)))
        assert len(answer["sessions"][0]["scores"][0]["points"]) == 5
        assert answer["policies"] == ["none", "safe", "mask-10", "clear-100k", "floor"]


class TestWhatIsRead:
    def test_this_machines_own_transcripts(self, tmp_path: Path):
        folder = tmp_path / "home" / ".claude" / "projects" / "maze"
        folder.mkdir(parents=True)
        claude_code(folder / "a.jsonl", 3)
        shown = run().stdout
        assert "1 conversation in 1 file, 3 requests\nclaude-code 1; 2026-10-01" in shown

    def test_none_on_this_machine_is_told_with_the_places(self):
        result = run()
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith(
            "respool: There is no transcript on this machine. Looked in ~"
        )
        assert "~/.claude/projects, " in result.stderr
        assert "~/.codex/sessions, " in result.stderr

    def test_the_places_are_those_that_variables_name(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("CODEX_HOME", "/nowhere/codex")
        said = run("--agent", "codex").stderr
        assert "Looked in /nowhere/codex/sessions, /nowhere/codex/archived_sessions; " in said

    def test_old_transcripts_of_this_machine_are_not_even_read(self, tmp_path: Path):
        folder = tmp_path / "home" / ".claude" / "projects" / "maze"
        folder.mkdir(parents=True)
        (folder / "broken.jsonl").write_text("nonsense\n" * 3)
        os.utime(folder / "broken.jsonl", (START.timestamp(), START.timestamp()))
        result = run("--since", "1d")
        assert result.exit_code == 0
        assert "There is no transcript from that time on this machine." in result.stderr
        assert "broken" not in result.stderr

    @pytest.mark.parametrize(("since", "count"), [("2026-10-02", 1), ("2026-09-30", 2)])
    def test_since_a_day(self, tmp_path: Path, since: str, count: int):
        claude_code(tmp_path / "a.jsonl")
        codex(tmp_path / "b.jsonl", start=START + timedelta(days=3))
        assert len(told("--since", since, str(tmp_path))["sessions"]) == count

    def test_nothing_later_is_a_sentence(self, tmp_path: Path):
        file = str(claude_code(tmp_path / "a.jsonl"))
        result = run("--since", "1h", file)
        assert result.exit_code == 0
        assert result.stderr == "respool: Of 1 session, none ended after that time.\n"
        said = run("--agent", "codex", "--agent", "pi", file).stderr
        assert said == "respool: Of 1 session, none is of codex or pi.\n"
        said = run("--agent", "codex", "--since", "1h", file).stderr
        assert said == "respool: Of 1 session, none is of codex and ended after that time.\n"

    def test_only_some_agents(self, tmp_path: Path):
        claude_code(tmp_path / "a.jsonl")
        codex(tmp_path / "b.jsonl")
        answer = told("--agent", "codex", str(tmp_path))
        assert [one["agent"] for one in answer["sessions"]] == ["codex"]

    def test_a_file_that_is_named_twice_counts_once(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl")
        assert len(told(str(file), str(tmp_path), "a.jsonl")["sessions"]) == 1


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--policy", "best"], "There is no policy 'best'. A policy is none, a preset"),
            (["--policy", "leann"], "'leann'. Did you mean lean? A policy is none, a preset"),
            (["--policy", "gone.toml"], "gone.toml"),
            (["--agent", "cursor"], "--agent: There is no 'cursor'. Known are claude-code, "),
            (["--since", "soon"], "--since: 'soon' is neither a date such as 2026-11-01 nor"),
            (["--since", "2026-13-01"], "--since: '2026-13-01' is neither"),
            (["--json", "--html", "-"], "Only one of --json and --html can go to standard output."),
            (["--html", "."], ".: This is a folder; name a file in it."),
            (["--html", "no/such/folder.html"], "no/such/folder.html: No such file or directory."),
        ],
    )
    def test_an_option_is_refused_before_anything_is_read(self, arguments: list[str], said: str):
        result = run(*arguments, "missing.jsonl")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("respool: ")
        assert said in result.stderr
        assert "missing.jsonl" not in result.stderr

    @pytest.mark.parametrize(
        ("name", "data", "why"),
        [
            ("other.jsonl", b'{"tool": "of another kind"}\n', "no transcript of an agent"),
            ("binary.jsonl", bytes(range(256)) * 40, "no transcript of an agent"),
            ("empty.jsonl", b"", "it is empty"),
            ("packed.jsonl.gz", b"\x1f\x8bnot really", "gzip"),
        ],
    )
    def test_what_cannot_be_read_is_named_and_the_rest_goes_on(
        self, tmp_path: Path, name: str, data: bytes, why: str
    ):
        (tmp_path / name).write_bytes(data)
        alone = run(name)
        assert (alone.exit_code, alone.stdout) == (2, "")
        assert alone.stderr.startswith(
            f"respool: There is no session to replay.\nrespool: {name}: "
        )
        assert why in alone.stderr
        beside = run(name, str(claude_code(tmp_path / "whole.jsonl")))
        assert beside.exit_code == 0
        assert f"Left out (1):\n{name}: " in beside.stdout

    def test_a_transcript_that_is_still_written(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl", 4)
        with file.open("ab") as growing:
            growing.write(b'{"type": "assistant", "message": {"role": "assis')
        result = run("a.jsonl")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "1 conversation in 1 file, 4 requests\n" in result.stdout
        assert "Left out" not in result.stdout

    def test_an_empty_folder(self, tmp_path: Path):
        (tmp_path / "folder").mkdir()
        result = run("folder")
        assert result.exit_code == 2
        assert "respool: folder: there is no transcript below this folder\n" in result.stderr

    def test_a_path_that_does_not_exist(self, tmp_path: Path):
        result = run("nowhere.jsonl", str(claude_code(tmp_path / "a.jsonl")))
        assert result.exit_code == 2
        assert "1 conversation in 1 file" in result.stdout
        assert "nowhere.jsonl: no such file or directory\n" in result.stdout

    @LINUX
    @pytest.mark.parametrize(
        ("start", "why"),
        [
            (b"", "it is no transcript of an agent that respool knows"),
            (
                b'{"type": "user", "sessionId": "s", "uuid": "u", "message": {}}\n',
                "1 line is longer",
            ),
        ],
    )
    @pytest.mark.parametrize("size", [2**28 + 2**20, pytest.param(2**31, marks=pytest.mark.slow)])
    @pytest.mark.slow
    def test_a_file_of_two_gigabytes(self, tmp_path: Path, start: bytes, why: str, size: int):
        with (tmp_path / "huge.jsonl").open("wb") as file:
            file.write(start)
            file.truncate(size)
        whole = str(claude_code(tmp_path / "whole.jsonl"))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
        limit = {"preexec_fn": _with_a_gigabyte}
        done = process("--jobs", "1", "--policy", "none", "huge.jsonl", whole, **pipes, **limit)
        out, err = done.communicate(timeout=120)
        assert (done.returncode, err) == (0, b"")
        assert f"Left out (1):\nhuge.jsonl: {why}" in out.decode()

    @POSIX
    def test_what_may_not_be_read(self, tmp_path: Path):
        run(str(claude_code(tmp_path / "whole.jsonl")))  # imports, while everything may be read
        claude_code(tmp_path / "a.jsonl").chmod(0)
        (tmp_path / "folder").mkdir(mode=0)
        tmp_path.chmod(0o755)
        with _as_nobody():
            result = run("a.jsonl", "folder", "whole.jsonl")
        assert result.exit_code == 0
        assert "1 conversation in 1 file, 4 requests\n" in result.stdout
        assert "Left out (2):\na.jsonl: permission denied\nfolder: permission denied\n" in (
            result.stdout
        )

    @POSIX
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path):
        os.mkfifo(tmp_path / "pipe.jsonl")
        result = run("pipe.jsonl", str(claude_code(tmp_path / "whole.jsonl")))
        assert result.exit_code == 0
        assert "Left out (1):\npipe.jsonl: it is no regular file\n" in result.stdout

    def test_a_file_that_grows_while_it_is_read(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl", 200, result=5_000)
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:201]) + lines[201][:50])
        over = threading.Event()
        writer = threading.Thread(target=_grow, args=(file, lines[201][50:], lines[202:], over))
        writer.start()
        try:
            results = [run("--policy", "none", "a.jsonl") for _ in range(3)]
        finally:
            over.set()
            writer.join()
        for result in results:
            assert (result.exit_code, result.stderr) == (0, "")
            told = re.search(r"^1 conversation in 1 file, (\d+) requests\n", result.stdout, re.M)
            assert told is not None
            assert 100 <= int(told[1]) <= 200
            assert "Left out" not in result.stdout

    def test_names_cannot_move_the_cursor(self, tmp_path: Path):
        (tmp_path / "a\x1b[2J.jsonl").write_text("nonsense\n")
        assert "\x1b" not in run(str(tmp_path)).output

    def test_quiet_says_nothing_of_what_was_left_out(self, tmp_path: Path):
        (tmp_path / "empty.jsonl").touch()
        claude_code(tmp_path / "a.jsonl")
        assert run("--json", "--quiet", str(tmp_path)).stderr == ""
        assert "empty.jsonl" in run("--json", str(tmp_path)).stderr


class TestPage:
    def test_is_written_and_told(self, tmp_path: Path):
        result = run("--html", "page.html", str(claude_code(tmp_path / "a.jsonl")))
        assert result.exit_code == 0
        assert "The page is in page.html.\n" in result.stderr
        assert "1 conversation in 1 file" in result.stdout
        assert "</html>" in Path("page.html").read_text("utf-8")

    def test_takes_the_place_of_an_older_page_and_of_nothing_else(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl")
        before = file.read_bytes()
        for asked in (("--html", str(file)), ("--html", str(file), str(file))):
            result = run(*asked)
            assert (result.exit_code, result.stdout) == (2, "")
            assert "a.jsonl: This is no page, and would be lost; name another." in result.stderr
        assert file.read_bytes() == before
        Path("page.html").touch()
        for _ in range(2):
            assert run("--html", "page.html", str(file)).exit_code == 0

    def test_can_go_to_standard_output(self, tmp_path: Path):
        shown = run("--html", "-", str(claude_code(tmp_path / "a.jsonl"))).stdout
        assert shown.lstrip().lower().startswith("<!doctype html>")
        assert "conversation in 1 file" not in shown

    def test_trying_whether_it_can_be_written_leaves_nothing(self):
        Path("kept.html").write_text("as it was")
        for name in ("kept.html", "new.html"):
            assert run("--html", name, "--policy", "best").exit_code == 2
        assert Path("kept.html").read_text() == "as it was"
        assert not Path("new.html").exists()


SAVED = "respool would have saved $2.00 (20 %)"
LOST_NOTHING = "no step would have missed what it took out."


class TestScreen:
    @pytest.mark.parametrize("columns", [50, 60, 80, 100, 120, 200])
    @pytest.mark.parametrize("priced", [True, False])
    @pytest.mark.parametrize("detail", [True, False])
    def test_fits(
        self,
        columns: int,
        priced: bool,
        detail: bool,
        monkeypatch: pytest.MonkeyPatch,
        capsys: Any,
    ):
        monkeypatch.setenv("COLUMNS", str(columns))
        replay = sample(60, priced=priced)
        show_replay(replay, detail=detail)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        assert columns < 80 or len(lines) <= (48 if detail else 44)
        table = {line.split()[0] for line in lines if line.strip()}
        assert set(replay.policies) <= table
        assert not any("…" in line for line in lines if line.startswith(replay.policies))

    @pytest.mark.parametrize(
        ("policy", "changes", "said"),
        [
            (
                "safe",
                {},
                f"{SAVED}, and 7 steps (3.5 %) would have missed something that it took out.",
            ),
            ("lean", {"lost_turns": 0}, f"{SAVED}, and {LOST_NOTHING}"),
            (
                "safe",
                {"bill": ReplayBill(money=11.0), "lost_turns": 0},
                f"respool would have cost $1.00 (10 %) more, and {LOST_NOTHING}",
            ),
            (
                "safe",
                {"bill": ReplayBill(money=10.0), "lost_turns": 0},
                "respool would have found nothing to save.",
            ),
            ("mask-10", {}, ""),
        ],
    )
    def test_begins_with_one_sentence(
        self, policy: str, changes: dict[str, Any], said: str, capsys: Any
    ):
        replay = sample(60, priced=True)
        none, other = replay.totals[:2]
        fields = {"policy": policy, "bill": ReplayBill(money=8.0), "lost_turns": 7, "lost": 0.035}
        totals = (
            _changed(none, bill=ReplayBill(money=10.0, read=1.0)),
            _changed(other, **{**fields, **changes}),
        )
        show_replay(_changed(replay, totals=totals))
        first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
        head, _, rest = first.partition("; ")
        assert re.fullmatch(r"These \d+ conversations cost \$10.00 at list prices\.?", head)
        assert rest == said

    def test_expert_columns_are_behind_an_option(self, capsys: Any):
        replay, shown = sample(6), dict[bool, str]()
        for detail in (False, True):
            show_replay(replay, detail=detail)
            shown[detail] = capsys.readouterr().out
        for word in ("captured", "invalid", "breaks", "all-in", "The provider reported"):
            assert (word in shown[False], word in shown[True]) == (False, True), word
        assert "--detail" in shown[False]

    def test_hostile_names_stay_on_their_line(self, capsys: Any):
        replay = sample(3)
        tools = tuple(_changed(share, name="\x1b[31m\n[red]") for share in replay.spent.tools)
        show_replay(_changed(replay, spent=_changed(replay.spent, tools=tools)))
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "\\x1b[31m" in shown

    def test_agents_beyond_the_first_few_are_counted(self, capsys: Any):
        replay = sample(5)
        named = [_changed(one, agent=f"agent-{at}") for at, one in enumerate(replay.sessions)]
        show_replay(_changed(replay, sessions=tuple(named)))
        assert "agent-0 1, agent-1 1, agent-2 1, 2 others" in capsys.readouterr().out

    def test_what_was_left_out_is_counted(self):
        left = [SkippedSource(f"{at}.jsonl", "it is empty") for at in range(1_003)]
        assert left_out_lines(left)[-1] == "and 1,000 more; --json lists all."
        assert left_out_lines(left)[0] == "0.jsonl: it is empty"
        assert left_out_lines([]) == []

    @pytest.mark.parametrize(
        ("sessions", "count"),
        [
            ([], 0),
            ([("a", None, "f"), ("b", None, "g")], 2),
            ([("a", None, "f"), ("a", None, "f")], 1),  # after a compaction
            ([("a", None, "f"), ("a/1", "a", "f"), ("a/1/2", "a/1", "g")], 1),  # sub-agents
            ([("a/1", "a", "f"), ("a/2", "a", "f")], 1),  # of a conversation that is not there
            ([("log:1", None, "f/log"), ("log:1", None, "g/log")], 2),
            ([("a", "b", "f"), ("b", "a", "f")], 2),  # no record says so, and it must not hang
        ],
    )
    def test_conversations_are_counted(
        self, sessions: list[tuple[str, str | None, str]], count: int
    ):
        whole = sample(1).sessions[0]
        made = [_changed(whole, id=id, parent=parent, source=f) for id, parent, f in sessions]
        assert conversation_count(made) == count


@contextmanager
def _as_nobody() -> Iterator[None]:
    """As somebody who may not read everything, if root runs the tests."""
    if os.geteuid():
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def _grow(file: Path, rest: bytes, lines: list[bytes], over: threading.Event) -> None:
    """Write a line in two pieces, again and again."""
    with file.open("ab", buffering=0) as growing:
        growing.write(rest)
        for line in lines:
            growing.write(line[: len(line) // 2])
            over.wait(0.02)
            growing.write(line[len(line) // 2 :])
            if over.is_set():
                return


def _with_a_gigabyte() -> None:
    """Let a process have no more memory than that."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))


def _changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(HOME), **options.pop("env", {})}
    command = [sys.executable, "-m", "respool", "replay", *arguments]
    return subprocess.Popen[bytes](command, env=env, start_new_session=True, **options)


def workers(pid: int) -> set[int]:
    """The processes that a process has started."""
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return set()
    return set(map(int, told.split()))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


HOSTILE = "import os; open(os.environ['RAN'], 'a').write(__name__ + '\\n'); 1 / 0\n"


def parallel(folder: Path) -> list[str]:
    """Arguments for three short sessions, and a file so large that they are worth a process."""
    sessions = collection(folder / "a.jsonl.gz", [3, 2, 2])
    (folder / "noise.jsonl").write_bytes(b"{}\n" * 400_000)
    return ["--jobs=2", "--policy=mask-2", "--quiet", str(sessions), str(folder / "noise.jsonl")]


class TestWorkingDirectory:
    """A repository's files are not imported, neither by the command nor by its workers."""

    def ran(self, tmp_path: Path, *command: str, planted: tuple[str, ...]) -> tuple[int, str, str]:
        """Run replay where these modules lie; its status, what it said, and which of them ran."""
        (tmp_path / "repository").mkdir()
        for name in planted:
            (tmp_path / "repository" / f"{name}.py").write_text(HOSTILE)
        start = tmp_path / "bin" / "respool"  # as an installer writes it
        start.parent.mkdir()
        start.write_text("from respool.cli import main\nif __name__ == '__main__': main()\n")
        done = subprocess.run(
            [sys.executable, *(command or (str(start),)), "replay", *parallel(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(HOME), "RAN": str(tmp_path / "ran")},
            cwd=tmp_path / "repository",
            capture_output=True,
            timeout=60,
            check=False,
        )
        ran = tmp_path / "ran"
        told = (done.stdout + done.stderr).decode()
        return done.returncode, told, ran.read_text() if ran.exists() else ""

    def test_the_command_imports_nothing_from_it(self, tmp_path: Path):
        planted = ("select", "socket", "multiprocessing", "msgspec", "click", "respool", "runpy")
        status, told, ran = self.ran(tmp_path, planted=planted)
        assert (status, ran) == (0, ""), told
        assert told.startswith("These 3 conversations cost 757 tokens")

    def test_python_m_drops_it_before_workers_start(self, tmp_path: Path):
        """Python itself searches it for what it imports before the command's first line."""
        planted = ("multiprocessing", "resource_tracker")
        status, told, ran = self.ran(tmp_path, "-m", "respool", planted=planted)
        assert (status, ran) == (0, ""), told
        assert told.startswith("These 3 conversations cost 757 tokens")

    @pytest.mark.parametrize(
        ("flags", "can"), [((), True), (("-E",), False), (("-E", "-P"), True), (("-I",), True)]
    )
    def test_there_are_workers_only_where_they_can_be_kept_from_it(
        self, flags: tuple[str, ...], can: bool
    ):
        asks = f"import sys; sys.path[:0] = [{str(HOME)!r}]\n"
        asks += (
            "from respool.batch.worker_process import can_start_workers\nprint(can_start_workers())"
        )
        command = [sys.executable, *flags, "-c", asks]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        assert done.stdout.decode().strip() == str(can)

    def test_a_worker_that_cannot_start_is_a_sentence(self, tmp_path: Path):
        ends = "import os, sys\nif any('spawn_main' in one for one in sys.orig_argv): os._exit(3)\n"
        (tmp_path / "sitecustomize.py").write_text(ends)
        paths = f"{tmp_path}{os.pathsep}{HOME}"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = process(*parallel(tmp_path), env={"PYTHONPATH": paths}, **pipes)
        out, err = done.communicate(timeout=60)
        assert (done.returncode, out) == (2, b"")
        assert err.decode().endswith(
            "respool: A worker process of replay did not start: it ended with status 3. Check "
            "PYTHONPATH and PYTHONHOME, or use --jobs 1.\n"
        )


@POSIX
class TestProcess:
    @LINUX
    @pytest.mark.parametrize("pause", [0.0, 1.0])
    def test_an_interrupt_ends_it_and_all_it_started(self, tmp_path: Path, pause: float):
        file = collection(tmp_path / "a.jsonl.gz", [900] * 6)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = process("--jobs", "2", str(file), preexec_fn=_heed_interrupts, **pipes)
        wait_for(lambda: len(workers(done.pid)) >= 2)  # one of them keeps books for Python
        time.sleep(pause)  # while they start, and while they work
        started = workers(done.pid)
        os.killpg(done.pid, signal.SIGINT)
        out, err = done.communicate(timeout=30)
        assert (done.returncode, out, err) == (130, b"", b"respool: interrupted\n")
        wait_for(lambda: not any(map(alive, started)))

    @LINUX
    def test_nobody_is_left_when_it_is_killed(self, tmp_path: Path):
        file = collection(tmp_path / "a.jsonl.gz", [900] * 6)
        done = process("--jobs", "2", str(file), stdout=subprocess.DEVNULL)
        wait_for(lambda: len(workers(done.pid)) >= 2)
        time.sleep(1)
        started = workers(done.pid)
        done.kill()
        done.wait()
        wait_for(lambda: not any(map(alive, started)))

    def test_a_reader_that_goes_away_ends_it(self, tmp_path: Path):
        read, write = os.pipe()
        os.close(read)
        file = str(claude_code(tmp_path / "a.jsonl"))
        done = process(file, stdout=write, stderr=subprocess.PIPE)
        os.close(write)
        _, err = done.communicate(timeout=60)
        assert (done.returncode, err) == (141, b"")

    @pytest.mark.parametrize("plain", [{}, {"NO_COLOR": "1"}])
    def test_a_terminal_has_colours_unless_it_wants_none(
        self, tmp_path: Path, plain: dict[str, str]
    ):
        shown = self._on_a_terminal(str(claude_code(tmp_path / "a.jsonl")), env=plain)
        assert "What a policy would have done" in shown
        codes = {code for found in ESCAPE.findall(shown) for code in found.split(";")}
        assert ("36" in codes) == (not plain)

    def test_progress_is_shown_on_a_terminal(self, tmp_path: Path):
        file = str(claude_code(tmp_path / "a.jsonl"))
        assert "0 of 1 files, 0 sessions" in self._on_a_terminal(file)
        assert "of 1 files" not in self._on_a_terminal("--quiet", file)

    def _on_a_terminal(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        pty = pytest.importorskip("pty")
        leader, follower = pty.openpty()
        env = {"TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}
        with process(*arguments, stdout=follower, stderr=follower, env=env):
            os.close(follower)
            shown = b""
            try:
                while piece := os.read(leader, 65_536):
                    shown += piece
            except OSError:  # how a terminal ends on Linux
                pass
        os.close(leader)
        return shown.decode()


def _heed_interrupts() -> None:
    """A job in the background ignores interrupts, and would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
