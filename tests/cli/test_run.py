"""`respool run -- CMD` as a program: terminal, signals and exit status are the command's."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from respool.cli.run import SHORT, RunLog, child_environment
from respool.pricing import Usage
from respool.proxy.billing import RunTotals
from respool.proxy.log import CompactionSummary, LogEntry
from respool.store import RequestRecord
from tests.support.formats import Exchange, request
from tests.transcripts.upstream import Answer, Upstream

SOURCE = Path(__file__).parents[2] / "src"
SOON = 20.0
LONG = "".join(f"line {n} of a long output\n" for n in range(400))

# An agent of few words: it sends each body that it is given, and says what came back.
AGENT = """
import json, os, sys, urllib.request
base = os.environ["ANTHROPIC_BASE_URL"]
for body in json.load(open(sys.argv[1])):
    sent = urllib.request.Request(base + "/v1/messages", json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "x"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(sent) as answer:
        print(answer.status, answer.headers["x-respool-sent"])
"""


def started(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "RESPOOL_STORE": str(folder / "respool.db"),
        **more.pop("world", {}),
    }
    command = [sys.executable, *more.pop("program", ("-m", "respool", "run")), *words]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.Popen(command, env=environment, **given)


def ran(folder: Path, *words: str, **more: Any) -> tuple[int, str, str]:
    process = started(folder, *words, **more)
    out, said = process.communicate(timeout=SOON)
    return process.returncode, out, said


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        pytest.param("exit 0", 0, marks=pytest.mark.slow),
        pytest.param("kill -KILL $$", 137, marks=pytest.mark.slow),
    ],
)
def test_the_exit_status_is_the_commands(tmp_path: Path, script: str, status: int):
    assert ran(tmp_path, "--", "sh", "-c", script)[0] == status


def test_what_is_no_command_is_said_in_a_sentence(tmp_path: Path):
    assert ran(tmp_path, "--", "no-such-agent", "-p") == (
        127,
        "",
        "respool: There is no command no-such-agent to run.\n",
    )
    plain = tmp_path / "plain"
    plain.write_text("x")
    status, _, said = ran(tmp_path, "--", str(plain))
    assert (status, "plain cannot be run: it is no program." in said) == (126, True)
    plain.chmod(0o755)
    status, _, said = ran(tmp_path, "--", str(plain))
    assert (status, "cannot be run: Exec format error." in said) == (126, True)


def test_its_input_and_output_are_its_own(tmp_path: Path):
    process = started(tmp_path, "sh", "-c", "cat; echo mine >&2", stdin=subprocess.PIPE)
    out, said = process.communicate("hello\n", timeout=SOON)
    assert out == "hello\n"  # nothing of respool's is among it
    lines = said.splitlines()
    assert [line.startswith("respool: ") for line in lines] == [True, False, True]
    assert "which respool does not know" in lines[0]
    assert "no request that could be compacted came through" in lines[2]


@contextlib.contextmanager
def behind() -> Iterator[tuple[Upstream, str]]:
    upstream = Upstream({}, lambda _: "main")
    upstream.script["main"] = [Answer("Fine.")] * 9
    server = upstream.serve()
    try:
        yield upstream, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def bodies(folder: Path, count: int) -> Path:
    steps = [[Exchange(f"{n} {LONG}", id=f"toolu_{n}", args={"n": n})] for n in range(count)]
    path = folder / "bodies.json"
    path.write_text(json.dumps([request("anthropic", "go", *steps[: n + 1]) for n in range(count)]))
    return path


EARLY = (
    "--set",
    "keep_exchanges=0",
    "--set",
    "cap_chars=500",
    "--set",
    "eager=on",
    "--set",
    "reevaluate_tokens=1",
    "--set",
    "reevaluate_ratio=0",
)


@pytest.mark.parametrize("observe", [False, True])
def test_requests_go_through_to_where_they_went_before(tmp_path: Path, observe: bool):
    with behind() as (upstream, url):
        words = (*EARLY, *(["--observe"] if observe else []), "--", sys.executable, "-c", AGENT)
        world = {"ANTHROPIC_BASE_URL": f"{url}/team"}
        status, out, said = ran(tmp_path, *words, str(bodies(tmp_path, 4)), world=world)
    assert status == 0, said
    assert out == ("200 observed\n" if observe else "200 projection\n") * 4
    assert [taken.path for taken in upstream.received] == ["/team/v1/messages"] * 4
    shorter = "line 200 of" not in json.dumps(upstream.received[-1].body["messages"][:4])
    assert shorter != observe
    last = said.splitlines()[-1]
    found = re.search(
        r"respool: 4 requests; (.*?)(?:saved|cost) \$[\d.]+.*, \d+ % of a bill of \$[\d.]+"
        # "about": the agent may leave before usage comes.
        r"(?:; |, and saved )(?:about )?([\d,]+) of ([\d,]+) tokens \(\d+ %",
        last,
    )
    assert found, said
    saved, before = (int(found[at].replace(",", "")) for at in (2, 3))
    assert 0 < saved < before
    assert found[1] == ("would have " if observe else "")
    assert last.endswith("; respool serve shows the dashboard again")


def test_the_last_lines_name_the_real_causes(tmp_path: Path):
    """One run with a request that is passed through, and one that nobody answers."""
    bodies(tmp_path, 1)
    script = (
        AGENT.replace(
            'base + "/v1/messages"',
            'base + ("/v1/messages" if "messages" in body else "/v1/responses")',
        )
        .replace("with opener.open", "try:\n        opener.open")
        .replace(
            ') as answer:\n        print(answer.status, answer.headers["x-respool-sent"])',
            ")\n    except OSError as error: print(error.code)",
        )
    )
    path = tmp_path / "both.json"
    held = {"model": "gpt-5", "previous_response_id": "r", "input": []}
    path.write_text(json.dumps([*json.loads((tmp_path / "bodies.json").read_text()), held]))
    words = ("--upstream", "openai=http://no-such-host.invalid", "--", sys.executable, "-c", script)
    world = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    _, out, said = ran(tmp_path, *words, str(path), world=world)
    assert out == "502\n502\n", said
    assert "respool: 2 requests failed: 127.0.0.1:9: connection refused (and 1 more)" in said
    assert "1 request went on as it came: The provider holds the history (previous_resp" in said
    assert said.splitlines()[-1].startswith("respool: 1 request, 1 of them not answered well; ")


def entry(**given: Any) -> LogEntry:
    about: dict[str, Any] = {"time": 1.0, "method": "POST", "path": "/v1/messages", "upstream": "u"}
    return LogEntry(**{**about, "format": "anthropic", "outcome": "complete", **given})


def compacted(conversation: str = "c", **given: Any) -> LogEntry:
    done = CompactionSummary(sent="projection", conversation=conversation, **given)
    return entry(compaction=done)


# entries of the log, and what is said of them where little was saved
SAID: dict[str, tuple[list[LogEntry], list[str]]] = {
    "the last request of each conversation counts": (
        [
            compacted("a", waiting_offers=9, waiting_tokens=9_000, results=9),
            compacted("a", waiting_offers=2, waiting_tokens=4_000, results=9),
            compacted("b", waiting_offers=1, waiting_tokens=100, results=3),
            compacted("b", operation="count"),
        ],
        ["3 offers, 4,100 tokens, wait until they pay; `eager` takes them now (--set eager=on)"],
    ),
    "no results": (
        [compacted()],
        ["there were no tool results, and those are what respool takes out"],
    ),
    "short": (
        [compacted(results=2)],
        [SHORT],
    ),
    "pages do not count": (
        [
            entry(outcome="own_page", path="/respool/api/overview", upstream=None, format=None),
            entry(outcome="rejected", upstream=None, format=None),
        ],
        [],
    ),
    "nothing with a history": (
        [entry(path="/v1/models", method="GET", format=None), entry(path="/v1/x", format=None)],
        ["2 requests had no history that could be compacted: GET /v1/models (and 1 more)"],
    ),
    "others are not told of beside those with a history": (
        [compacted(results=2), entry(path="/v1/x", format=None, status=404)],
        [SHORT],
    ),
    "originals are no evidence": (
        [entry(compaction=CompactionSummary(sent="original", conversation="c", fallback="late"))],
        [],
    ),
    "only observed": (
        [entry(compaction=CompactionSummary(sent="observed", fallback="unreadable"))],
        ["1 request went on as it came: unreadable"],
    ),
    "errors of the provider": (
        [
            replace(compacted(results=1), status=429, upstream="https://api"),
            replace(compacted(results=1), status=429, upstream="https://api"),
            entry(status=404, compaction=CompactionSummary(operation="count", sent="projection")),
            compacted(results=1),
        ],
        ["2 requests failed: https://api answered 429", SHORT],
    ),
    "an answer that is cut off": (
        [entry(outcome="upstream_closed", status=200, note="h:1: closed within its answer")],
        ["1 request failed: h:1: closed within its answer"],
    ),
    "nothing but failures": (
        [entry(outcome="unreachable", status=502, note="h:1: X", compaction=CompactionSummary())],
        ["1 request failed: h:1: X"],
    ),
    "too large": (
        [entry(note="not read: the body is too large")],
        ["1 request went on as it came: not read: the body is too large"],
    ),
    "passed through": (
        [entry(compaction=CompactionSummary(sent="untouched", fallback="unreadable", why="X."))],
        ["1 request went on as it came: X"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_the_last_lines_say_why_little_was_saved(case: str):
    entries, said = SAID[case]
    log = RunLog()
    for one in entries:
        log.add(one)
    assert log.sentences(is_little=True) == said
    assert not [one for one in log.sentences(is_little=False) if "wait" in one or "short" in one]


def test_an_option_holds_before_what_was_set(tmp_path: Path):
    with behind() as (upstream, url):
        words = ("--upstream", f"anthropic={url}", "--", sys.executable, "-c", AGENT)
        world = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        assert ran(tmp_path, *words, str(bodies(tmp_path, 1)), world=world)[0] == 0
    assert len(upstream.received) == 1


def test_a_token_is_in_the_base_url(tmp_path: Path):
    with behind() as (upstream, url):
        words = ("--", sys.executable, "-c", AGENT, str(bodies(tmp_path, 1)))
        world = {"ANTHROPIC_BASE_URL": url, "RESPOOL_TOKEN": "a-token-of-enough-length"}
        status, _, said = ran(tmp_path, *words, world=world)
    assert (status, len(upstream.received)) == (0, 1)
    assert "a-token-of-enough-length" not in said


def test_an_agent_that_was_asked_and_did_not_come_is_warned_of(tmp_path: Path):
    agent = tmp_path / "qwen"
    agent.write_text("#!/bin/sh\nexit 0\n")
    agent.chmod(0o755)
    _, _, said = ran(tmp_path, "--", str(agent))
    first, last = said.splitlines()
    assert first.startswith("respool: Qwen Code is asked to go through http://127.0.0.1:")
    assert last.startswith("respool: warning: Qwen Code was asked to go through respool, but no ")
    _, _, said = ran(tmp_path, "--", "true")
    assert "warning" not in said


@pytest.mark.parametrize(
    ("options", "registered"), [((), True), (("--no-mcp",), False), (("--observe",), False)]
)
def test_the_mcp_server_of_this_store_is_registered_for_the_run(
    tmp_path: Path, options: tuple[str, ...], registered: bool
):
    agent = tmp_path / "codex"
    agent.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    agent.chmod(0o755)
    world = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    _, out, said = ran(tmp_path, *options, "--", str(agent), "go", world=world)
    assert out.splitlines()[-1] == "go"
    assert ("mcp_servers.respool.args" in out) == registered
    assert (str(tmp_path / "respool.db") in out) == registered
    assert ("MCP" in said) == registered


# Signals

TRAPS = 'trap "echo got $0; exit 5" {}; echo ready; while :; do sleep 0.05; done'


# A system that does not tell who sent a signal; in a session of its own nobody takes it for a
# terminal's.
NORMAL = ("-m", "respool", "run")
BLIND = """
import os, signal, sys
del signal.sigtimedwait
from respool.cli import main
main(["run", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("INT", NORMAL),
        ("TERM", NORMAL),
        ("HUP", ("-c", BLIND)),
        *(
            pytest.param(name, program, marks=pytest.mark.slow)
            for name in ("INT", "TERM", "HUP", "QUIT", "USR1")
            for program in (NORMAL, ("-c", BLIND))
        ),
    ],
)
def test_a_signal_sent_to_respool_reaches_the_command(
    tmp_path: Path, name: str, program: tuple[str, ...]
):
    words = ("sh", "-c", TRAPS.format(name))
    process = started(tmp_path, *words, program=program, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    out, _ = process.communicate(timeout=SOON)
    assert (process.returncode, out) == (5, "got sh\n")


def test_a_command_may_take_no_notice_of_an_interrupt(tmp_path: Path):
    """As agents do, which ask first."""
    script = 'trap "echo no" INT; echo ready; while [ ! -e over ]; do sleep 0.05; done; exit 3'
    process = started(tmp_path, "sh", "-c", script, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "no\n"
    (tmp_path / "over").touch()
    _, said = process.communicate(timeout=SOON)
    assert process.returncode == 3
    assert "interrupted" not in said


# A terminal


@contextlib.contextmanager
def in_terminal(
    folder: Path, *words: str, program: tuple[str, ...] = ("-m", "respool", "run")
) -> Iterator[tuple[int, int]]:
    """The command in a terminal of its own: its process, and the terminal's other end."""
    pid, master = pty.fork()
    if pid == 0:  # pragma: no cover - another process
        os.environ.update(PYTHONPATH=str(SOURCE), RESPOOL_STORE=str(folder / "respool.db"))
        os.execv(sys.executable, [sys.executable, *program, *words])
    try:
        yield pid, master
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        os.close(master)


def shown(master: int, until: str) -> str:
    """Output of a terminal up to this text."""
    seen, end = "", time.monotonic() + SOON
    while until not in seen:
        assert time.monotonic() < end, seen
        try:
            seen += os.read(master, 4096).decode()
        except OSError:
            break
    return seen


def ended(pid: int) -> int:
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    raise AssertionError("it did not end")


# The command is there for a moment before respool goes on.
SLOW_START = """
import subprocess, time
start = subprocess.Popen.__init__
def slow(*given, **named):
    start(*given, **named)
    time.sleep(0.15)
subprocess.Popen.__init__ = slow
from respool.cli import main
main()
"""


@pytest.mark.parametrize("program", [("-m", "respool", "run"), ("-c", SLOW_START, "run")])
def test_the_terminal_is_the_commands_and_ctrl_c_comes_once(
    tmp_path: Path, program: tuple[str, ...]
):
    script = (
        'test -t 0 && test -t 1 && test -t 2 && echo "a terminal"; n=0; '
        'trap "n=\\$((n+1)); echo got \\$n" INT; echo ready; '
        "while [ ! -e over ]; do sleep 0.05; done; echo had $n; exit 4"
    )
    over = tmp_path / "over"
    words = ("sh", "-c", f"cd {tmp_path}; {script}")
    with in_terminal(tmp_path, *words, program=program) as (pid, master):
        assert "a terminal" in shown(master, "ready")
        os.write(master, b"\x03")
        shown(master, "got 1")
        time.sleep(0.3)
        over.touch()
        assert "had 1" in shown(master, "respool: no request")
        assert ended(pid) == 4


def test_ctrl_z_stops_both_and_a_shell_goes_on_with_both(tmp_path: Path):
    """As job control does: what the terminal sends goes to the whole group."""
    script = "trap : CONT; echo ready; read line; echo went on with $line; exit 6"
    with in_terminal(tmp_path, "sh", "-c", script) as (pid, master):
        shown(master, "ready")
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        assert os.getpgid(child) == os.getpgid(pid)
        # An orphaned group takes no notice of a terminal's stop, and nobody owns this terminal.
        os.killpg(os.getpgid(pid), signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        os.killpg(os.getpgid(pid), signal.SIGCONT)
        os.write(master, b"this\n")
        shown(master, "went on with this")
        assert ended(pid) == 6


# Smaller things


def test_another_proxy_is_no_detour_to_this_machine():
    assert child_environment({"A": "1"}, {"B": "2"}) == {"A": "1", "B": "2"}
    made = child_environment({"https_proxy": "http://corp:3128", "NO_PROXY": "corp"}, {})
    assert made["NO_PROXY"] == "corp,127.0.0.1"
    assert made["no_proxy"] == "corp,127.0.0.1"  # which else would hide what the other says
    both = {"ALL_PROXY": "http://corp:3128", "NO_PROXY": "a", "no_proxy": "b"}
    made = child_environment(both, {})
    assert (made["NO_PROXY"], made["no_proxy"]) == ("a,127.0.0.1", "b,127.0.0.1")
    made = child_environment({"HTTP_PROXY": "http://corp:3128"}, {})
    assert made["NO_PROXY"] == made["no_proxy"] == "127.0.0.1"


def record(**given: Any) -> RequestRecord:
    about = {"time": 1.0, "owner": "o", "conversation": "c", "format": "anthropic", "status": 200}
    return RequestRecord(id="x", **{**about, **given})


def test_the_summary_says_what_happened():
    sums = RunTotals()
    reported = {"usage": Usage(input=600), "cost_before": 2.0, "cost_after": 1.5}
    sums.add(record(tokens_before=1000, saved=400, **reported))
    sums.add(record(tokens_before=3000, saved=1600, usage=Usage(input=1400), fallback="late: 3 s"))
    sums.add(record(status=529))
    assert sums.sentences() == [
        "3 requests, 1 of them not answered well",
        "saved $0.5000, 25 % of a bill of $2.00; 2,000 of 4,000 tokens (50 %) (priced: 1 request)",
        "1 fallback (mostly late: 3 s)",
    ]


def test_the_summary_of_a_run_that_was_observed():
    sums = RunTotals()
    sums.add(
        record(
            mode="observed",
            tokens_before=1000,
            saved=400,
            usage=Usage(input=1000),
            cost_before=2.0,
            cost_after=1.5,
        )
    )
    assert sums.sentences()[1] == (
        "would have saved $0.5000, 25 % of a bill of $2.00; 400 of 1,000 tokens (40 %)"
    )


def test_until_usage_is_reported_the_summary_has_a_range():
    sums = RunTotals()
    sums.add(record(tokens_before=1000, saved=400, model="claude-opus-4-8"))
    assert sums.sentences()[1] == "saved about 400 of 1,000 tokens (40 %; 380 to 500)"
    sums.add(record(tokens_before=1000, saved=400, model="claude-opus-4-8", usage=Usage(input=300)))
    assert sums.sentences()[1] == "saved about 600 of 1,500 tokens (40 %; 580 to 700)"


def test_what_o200k_counts_needs_no_range():
    sums = RunTotals()
    sums.add(record(format="openai-chat", model="gpt-5", tokens_before=1000, saved=400))
    assert sums.sentences()[1] == "saved 400 of 1,000 tokens (40 %)"


def test_the_summary_does_not_call_more_less():
    sums = RunTotals()
    sums.add(record(tokens_before=1000, saved=-50, usage=Usage(input=1050)))
    assert sums.sentences()[1] == "added 50 to 1,000 tokens (5 %)"


def test_without_the_extra_it_says_what_is_missing():
    code = "import sys\nsys.modules['uvicorn'] = None\n"
    code += "from respool.cli import main\nmain(['run','ls'])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "respool: The proxy needs uvicorn, which is not installed: "
        "pip install '.[serve]' in a clone of respool's repository.\n"
    )
