"""Real agents with respool's hook in place of a proxy: results shaped, sessions as they were."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from respool.hooks.hook_command import AgentName
from respool.hooks.snippets import hook_settings, snippet
from tests.e2e.agents import DRIVEN, WITHIN, Driven, _bin, missing
from tests.transcripts.agent import SAID
from tests.transcripts.upstream import Answer, Received, Upstream

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
AGENTS: tuple[AgentName, ...] = ("claude", "gemini", "opencode", "pi")
LINES = "".join(f"{n:03} the gauge at mile {n * 37 % 211} reads {n * 91} mm\n" for n in range(150))
REF = re.compile(r"ref ([a-z2-7]{20})\]")
_PLUGINS = {"opencode": ".config/opencode/plugin", "pi": ".pi/agent/extensions"}


@dataclass
class Outcome:
    """What an agent did, and what its upstream got."""

    status: int
    out: str
    err: str
    main: list[Received]
    store: Path
    home: Path
    world: dict[str, str] = field(default_factory=dict)

    def results(self) -> list[str]:
        """The results in the last request, as JSON texts."""
        return [json.dumps(one, ensure_ascii=False) for one in _results(self.main[-1].body)]


def _results(body: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for message in body.get("messages") or body.get("contents") or ():
        if message.get("role") == "tool":
            found.append(message["content"])
        for block in message.get("content") or message.get("parts") or ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                found.append({key: block.get(key) for key in ("content", "is_error")})
            elif isinstance(block, dict) and "functionResponse" in block:
                found.append(block["functionResponse"]["response"])
    return found


def _install(agent: AgentName, home: Path) -> None:
    """What `respool hook AGENT --print` says, put where it says."""
    if agent in _PLUGINS:
        path = home / _PLUGINS[agent] / "respool.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(snippet(agent))
        return
    path = home / f".{agent}" / "settings.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**known, **hook_settings(agent)}))


def drive(
    agent: AgentName,
    folder: Path,
    commands: list[str],
    *,
    hooked: bool = True,
    script: list[Answer] | None = None,
    tools: tuple[str, ...] = (),
) -> Outcome:
    """A session in which the model runs these commands, or what a script says."""
    one = DRIVEN[agent]
    home, work = folder / "home", folder / "work"
    for place in (home, work, folder / "run"):
        place.mkdir(parents=True, mode=0o700)
    (work / "gauge.txt").write_text(LINES)
    upstream = Upstream({"main": script or run_all(one, commands)}, one.named)
    server = upstream.serve()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        one.set_up(home, url)
        if hooked:
            _install(agent, home)
        world = {
            "PATH": f"{_bin(one)}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TZ": "UTC",
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "RESPOOL_STORE": str(folder / "respool.db"),
            **one.variables(url),
        }
        done = _run([one.command, *one.words, *tools], work, world)
    finally:
        server.shutdown()
        server.server_close()
    main = [taken for taken in upstream.received if taken.conversation == "main"]
    store = folder / "respool.db"
    return Outcome(done.returncode, done.stdout, done.stderr, main, store, home, world)


def _run(words: list[str], work: Path, world: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=work,
        env=world,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def run_all(one: Driven, commands: list[str]) -> list[Answer]:
    """The model's answers: a command each, then the end."""
    calls = [((one.shell, {one.argument: text, **SAID[one.shell]}),) for text in commands]
    return [*(Answer(f"Step {at}.", call) for at, call in enumerate(calls)), one.ends]


def expanded(outcome: Outcome, ref: str) -> str:
    """The original that `respool expand` gives back."""
    words = [sys.executable, "-m", "respool", "expand", ref, "--store", str(outcome.store)]
    world = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(words, capture_output=True, text=True, check=True, env=world).stdout


@pytest.mark.parametrize("agent", AGENTS)
def test_a_result_is_shaped_and_the_agent_goes_on(agent: AgentName, tmp_path: Path) -> None:
    if (why := missing(agent)) is not None:
        pytest.skip(why)
    commands = ["true", "cat gauge.txt", "cat gauge.txt", "cat gauge.txt; exit 3"]
    bare = drive(agent, tmp_path / "bare", commands, hooked=False)
    hooked = drive(agent, tmp_path / "hooked", commands)
    assert hooked.status == bare.status == 0, hooked.err
    assert len(hooked.main) == len(bare.main) == 5
    whole, shaped = bare.results(), hooked.results()
    process = re.compile(r"PGID: \d+")
    assert process.sub("", shaped[1]) == process.sub("", whole[1])  # the first copy stands whole
    assert len(shaped[2]) < len(whole[2]) / 5
    ref = REF.search(shaped[2])
    assert ref is not None
    assert LINES.strip() in expanded(hooked, ref[1])
    assert ("3" in shaped[3]) == ("3" in whole[3])


def test_the_tools_of_claude_code_take_what_the_hook_says(tmp_path: Path) -> None:
    """A file that was read in part again, a search that shows it, and then an edit of the file."""
    if (why := missing("claude")) is not None:
        pytest.skip(why)
    file = str(tmp_path / "hooked" / "work" / "gauge.txt")
    old = LINES.splitlines()[41]
    calls = [
        ("Bash", {"command": "true", **SAID["Bash"]}),
        ("Read", {"file_path": file}),
        ("Read", {"file_path": file, "offset": 40, "limit": 60}),
        ("Grep", {"pattern": "gauge", "path": file, "output_mode": "content", "-n": False}),
        ("Edit", {"file_path": file, "old_string": old, "new_string": "041 none"}),
    ]
    script = [*(Answer(f"Step {at}.", (call,)) for at, call in enumerate(calls)), Answer("Done.")]
    hooked = drive("claude", tmp_path / "hooked", [], script=script, tools=("Read", "Grep", "Edit"))
    assert hooked.status == 0, hooked.err
    results = hooked.results()
    assert "150\\t149 the gauge" in results[1]
    for shaped in results[2:4]:
        assert len(shaped) < 1_000, shaped
        ref = REF.search(shaped)
        assert ref is not None, shaped
        assert old in expanded(hooked, ref[1])
    assert "updated successfully" in results[4]
    assert "041 none" in Path(file).read_text()
    assert "does not match" not in hooked.out + hooked.err


def test_a_brief_outlives_the_compaction_of_claude_code(tmp_path: Path) -> None:
    if (why := missing("claude")) is not None:
        pytest.skip(why)
    one = DRIVEN["claude"]
    home, work, run = (tmp_path / name for name in ("home", "work", "run"))
    for place in (home, work, run):
        place.mkdir(mode=0o700)
    _install("claude", home)
    made = ("Write", {"file_path": str(work / "valve.py"), "content": "OPEN = 7\n"})
    fails = ("Bash", {"command": "ls no_such_gauge", **SAID["Bash"]})
    said = [
        Answer("I write the valve, so that the pump has one.", (made,)),
        Answer("Now the check.", (fails,)),
        Answer("It is written."),
        Answer("Going on."),
    ]
    summary = Answer("<summary>The user wanted something.</summary>")
    upstream = Upstream({"main": said, "compaction": [summary]}, _main_or_compaction)
    server = upstream.serve()
    world = {
        "PATH": f"{_bin(one)}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(run),
        "RESPOOL_STORE": str(tmp_path / "respool.db"),
        **one.variables(f"http://127.0.0.1:{server.server_port}"),
    }
    try:
        for words in (["Make a valve."], ["/compact", "--continue"], ["Go on.", "--continue"]):
            done = _run(["claude", "-p", *words, "--allowedTools", "Bash", "Write"], work, world)
            assert done.returncode == 0, done.stderr
    finally:
        server.shutdown()
        server.server_close()
    requests = [json.dumps(taken.body["messages"]) for taken in upstream.received]
    names = [taken.conversation for taken in upstream.received]
    compaction, after = requests[names.index("compaction")], requests[-1]
    assert "Additional Instructions:\\nFacts about this conversation" in compaction
    assert "took out" not in requests[0]  # a session that starts has nothing to be told
    assert "SessionStart hook additional context: Facts about the part" in after
    for told in (compaction, after.partition("SessionStart hook")[2]):
        assert "valve.py: \\u201cI write the valve, so that the pump has one.\\u201d" in told
        assert "failed, exit 2: ls no_such_gauge" in told


def _main_or_compaction(body: dict[str, Any]) -> str:
    return "compaction" if "TEXT ONLY" in json.dumps(body["messages"]) else "main"
