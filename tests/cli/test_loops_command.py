"""`respool loops`: loops of transcripts and requests, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from respool.cli import main
from tests.loops.support import FAILED, Step, call, edit, read, request_of, run
from tests.support.formats import FORMATS

CIRCLING: list[Step] = [read(), run("make", FAILED), read(), edit("weft"), *[read()] * 5]
STRAIGHT: list[Step] = [read(), edit("weft"), read()]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loops(*arguments: str, data: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["loops", *arguments], input=data)


def transcript(path: Path, steps: Sequence[Step], id: str = "one") -> Path:
    """The steps as Claude Code records them."""
    messages = request_of("anthropic", steps)["messages"]
    records: list[Any] = []
    for at, message in enumerate(messages):
        made = message["role"] == "assistant"
        about = {"id": f"msg_{at}", "type": "message", "model": "claude-sonnet-4-5"} if made else {}
        records.append(
            {
                "type": message["role"],
                "sessionId": id,
                "uuid": f"{id}-{at}",
                "parentUuid": f"{id}-{at - 1}" if at else None,
                "isSidechain": False,
                "timestamp": f"2026-10-01T12:{at // 60:02}:{at % 60:02}.000Z",
                "message": {**message, **about},
            }
        )
    path.write_text("\n".join(map(json.dumps, records)) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_a_request_of_each_format(format: str) -> None:
    body = json.dumps(request_of(format, CIRCLING)).encode()
    result = loops("-", "--json", data=body)
    assert result.exit_code == 0
    (one,) = json.loads(result.stdout)
    tokens = one.pop("tokens")
    assert one == {
        "session": None,
        "kind": "repeat",
        "tool": "Read",
        "operation": "default",
        "target": "loom.py",
        "calls": 5,
        "count": 5,
        "first_call": 4,
        "told_after": 3,
        "told": 2,
        "level": "insist",
        "message": (
            "Read (loom.py) was called 5 times with the same result, and nothing was changed in "
            "between. Use what it returned, or change something before calling it again. This was "
            "said before, and it goes on."
        ),
    }
    assert 4 * 15 < tokens < 4 * 60  # of the four calls after the first, with their results


def test_a_transcript() -> None:
    file = transcript(Path("session.jsonl"), CIRCLING)
    result = loops(str(file))
    assert result.exit_code == 0
    assert result.stdout.startswith("1 loop in 9 calls: 4 of the calls brought nothing new, with ")
    (heading, row) = result.stdout.splitlines()[3:5]
    assert heading.split() == [
        "kind",
        "what",
        "target",
        "calls",
        "tokens",
        "told",
        "after",
        "message",
    ]
    assert row.split()[:4] == ["repeat", "Read", "loom.py", "5"]
    assert "3 of 5" in row
    (one,) = json.loads(loops(str(file), "--json").stdout)
    assert one["session"] == "one"


def test_a_request_in_a_file_is_told_from_a_transcript() -> None:
    Path("body.json").write_text(json.dumps(request_of("gemini", CIRCLING)), "utf-8")
    assert json.loads(loops("body.json", "--json").stdout)[0]["calls"] == 5
    assert json.loads(loops("body.json", "--json", "--format", "gemini").stdout)[0]["calls"] == 5


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_found_is_said(as_json: bool) -> None:
    file = transcript(Path("session.jsonl"), STRAIGHT)
    result = loops(str(file), *(["--json"] if as_json else []))
    assert result.exit_code == 0
    assert result.stdout == ("[]\n" if as_json else "No loops in 3 calls.\n")


def test_several_conversations_in_one_file_are_named() -> None:
    lines = []
    for name, steps in (("one", CIRCLING), ("two", STRAIGHT), ("three", CIRCLING)):
        body = request_of("openai-chat", steps)["messages"]
        done = [*body, {"role": "assistant", "content": "Done."}]
        lines.append(json.dumps({"instance_id": name, "messages": done}))
    Path("many.jsonl").write_text("\n".join(lines), "utf-8")
    result = loops("many.jsonl")
    assert result.stdout.startswith("2 loops in 21 calls in 3 conversations: 8 of the calls")
    assert result.stdout.splitlines()[3].split()[0] == "conversation"
    assert len({one["session"] for one in json.loads(loops("many.jsonl", "--json").stdout)}) == 2


def test_tools_are_known_by_the_policy() -> None:
    steps: list[Step] = [call("look", "the same again", page=n, path="a.pdf") for n in range(3)]
    Path("body.json").write_text(json.dumps(request_of("anthropic", steps)), "utf-8")
    assert loops("body.json").stdout == "No loops in 3 calls.\n"
    declared = '[tools.look]\nkind = "read"\ntarget = "path"\nkey = "target"\n'
    Path("respool.toml").write_text(declared, "utf-8")
    assert loops("body.json").stdout.startswith("1 loop in 3 calls")


UNUSABLE = {
    "no such file": ("nowhere.jsonl", b"", "nowhere.jsonl: No such file or directory."),
    "no transcript": ("a.md", b"# Loom\n", "a.md: This is no transcript, and no request: The JSON"),
    "nothing in it": ("empty.jsonl", b"", "empty.jsonl: This is empty."),
    "no tool calls": (
        "a.json",
        b'{"messages": [{"role": "user", "content": "hi"}]}',
        "a.json: The format cannot be detected, and there are no tool calls in it.",
    ),
    "a request of no known format": ("a.json", b'{"messages": 3}', "a.json: This is no transcript"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_read_ends_in_a_sentence(case: str) -> None:
    name, data, said = UNUSABLE[case]
    if case != "no such file":
        Path(name).write_bytes(data)
    result = loops(name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"respool: {said}")
    assert len(result.stderr.splitlines()) == 1


def test_standard_input_must_be_a_request() -> None:
    result = loops("-", data=b"no JSON")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("respool: ")
