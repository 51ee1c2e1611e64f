"""`respool brief`: what the agent of a request or a transcript did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import respool
from respool.cli import main
from respool.edits import Replace
from tests.cli.test_loops_command import transcript
from tests.loops.support import FAILED, Step, edit, read, request_of, run
from tests.support.formats import FORMATS

STEPS: list[Step] = [
    read("src/loom.py"),
    edit("weft", path="src/loom.py"),
    run("make", FAILED),
    run("ls src", "loom.py\n"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def brief(*arguments: str, data: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["brief", *arguments], input=data)


def body(format: str, steps: list[Step] = STEPS) -> bytes:
    return json.dumps(request_of(format, steps)).encode()


@pytest.mark.parametrize("format", FORMATS)
def test_says_the_same_of_each_format_and_of_a_transcript(format: str, tmp_path: Path):
    result = brief("-", data=body(format))
    assert result.exit_code == 0
    told = result.stdout.splitlines()
    assert told[0].startswith("Earlier in this session, 4 tool calls of the assistant, in short")
    assert told[1:4] == ["- changed:", "  src/loom.py", "- failed: make"]
    assert told[-3:] == ["- ran: make (failed)", "- read: src/loom.py", "- searched once"]
    assert brief(str(transcript(tmp_path / "one.jsonl", STEPS))).stdout == result.stdout


def test_in_the_words_of_a_fold():
    """The summary in a folded request, but for its marker, is the brief of what it stands for."""
    steps: list[Step] = [*STEPS[:2], *[run(f"make p{at}", f"{at} y" * 2_000) for at in range(8)]]
    policy = respool.Policy(passes=("fold_exchanges",), budget=3_000)
    history = request_of("anthropic", [*steps, *[read("last.py")] * 9])
    out = respool.compact(history, policy=policy)
    folded, *_ = [one for one in out.report.edits if isinstance(one, Replace) and one.stands_for]
    summary, _, _ = folded.text.rpartition("\n")
    count = len(folded.stands_for)
    assert folded.stands_for == tuple(range(count))
    every = [*steps, *[read("last.py")] * 9]
    assert brief("-", data=body("anthropic", every[:count])).stdout == f"{summary}\n"


def test_names_the_conversations_if_there_are_several():
    lines: list[str] = []
    for name, steps in (("one", STEPS), ("two", STEPS[:1])):
        messages = request_of("openai-chat", steps)["messages"]
        done = [*messages, {"role": "assistant", "content": "Done."}]
        lines.append(json.dumps({"instance_id": name, "messages": done}))
    Path("both.jsonl").write_text("\n".join(lines), "utf-8")
    first, second = brief("both.jsonl").stdout.split("\n\n")
    assert first.startswith("one\nEarlier in this session, 4 tool calls")
    assert second.startswith("two\nEarlier in this session, 1 tool calls")


def test_a_history_without_calls_and_what_is_neither():
    hello = b'[{"role": "user", "content": "hello"}]'
    told = brief("-", "--format", "anthropic", data=hello)
    assert told.stdout == "There are no calls with results in this.\n"
    refused = brief("-", data=b"[1, 2]")
    assert refused.exit_code == 2
    assert "standard input: " in refused.stderr
    assert brief("nowhere.json").exit_code == 2
    Path("some.json").write_text("{}")
    assert "This is no transcript, and no request: " in brief("some.json").stderr


def test_cannot_steer_a_terminal():
    told = brief("-", data=body("anthropic", [run("echo \x1b[2J", "Error: \x1b]0;\x07 failed\n")]))
    assert told.exit_code == 0
    assert "\x1b" not in told.stdout
    assert "\x07" not in told.stdout


def test_keeps_to_its_length():
    steps: list[Step] = [run(f"make part_{at}", "done\n" * 9) for at in range(60)]
    short, long = (brief("-", "--tokens", n, data=body("anthropic", steps)) for n in ("60", "2000"))
    assert len(short.stdout) < len(long.stdout) / 2
