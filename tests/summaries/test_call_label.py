"""Labels of calls in markers: files and commands, in few words and without secrets."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.summaries.call_label import (
    call_subject,
    describe_call,
    join_descriptions,
    short_path,
)
from respool.tools import Tools
from respool.transcript import Part, Ref

TOOLS = Tools()


def labels(tool: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """The subject of a call, and the call in a sentence."""
    text = json.dumps(arguments)
    call, use = Part(Ref(0, ()), "call", "model", text, tool), TOOLS.use_of(tool, text)
    return call_subject(call, use), describe_call(call, use)


COMMANDS = {
    "npm test": ("npm test", "the run of npm test"),
    "cd /w && npm run test -- --watch 2>&1 | tail -40": ("npm run test", "the run of npm run test"),
    "cat src/cloth.py": ("src/cloth.py", "the read of src/cloth.py"),
    "head -50 src/cloth.py": (
        "lines 1-50 of src/cloth.py",
        "the read of lines 1-50 of src/cloth.py",
    ),
    "cat warp.py weft.py shed.py": ("warp.py and 2 more", "the read of warp.py and 2 more"),
    "git log --oneline -5": ("git log", "the run of git log"),
    "cd loom; rg 'warp|weft' src | head": ("rg 'warp|weft' src", "the run of rg 'warp|weft' src"),
    "bash -lc 'rg warp src | wc -l'": ("rg warp src", "the run of rg warp src"),
    "echo warp > /home/me/loom/a.py": ("me/loom/a.py", "the write of me/loom/a.py"),
    "for i in 1 2; do echo $i; done": ("", "the result of Bash"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_named_as_its_reader_knows_it(command: str) -> None:
    assert labels("Bash", {"command": command}) == COMMANDS[command]


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a file": ("Read", {"file_path": "/w/a/b/c/d.py"}, "the read of b/c/d.py"),
    "lines": (
        "Read", {"file_path": "/w/d.py", "offset": 10, "limit": 20},
        "the read of lines 10-29 of /w/d.py",
    ),
    "lines up to a tool's own limit": (
        "Read", {"file_path": "/w/d.py", "offset": 10}, "the read of /w/d.py from line 10",
    ),
    "an edit": (
        "Edit", {"file_path": "/w/d.py", "old_string": "a", "new_string": "b"},
        "the edit of /w/d.py",
    ),
    "a pattern": ("Grep", {"pattern": "weave\\(", "path": "src"}, "the search for weave\\("),
    "a page": ("WebFetch", {"url": "https://me:pw@loom.org/a?key=1", "prompt": "what"},
               "the read of https://loom.org/a"),
    "another agent": (
        "Task", {"description": "find the loom", "prompt": "p"},
        "the result of Task (find the loom)",
    ),
    "a process": ("write_stdin", {"session_id": 12, "chars": ""}, "the result of write_stdin"),
    "an unknown tool": ("mcp__loom__weave", {"n": 1}, "the result of mcp__loom__weave"),
    "a call without a name": ("", {"n": 1}, "the result of a call"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_named_by_what_it_uses(case: str) -> None:
    tool, arguments, described = CALLS[case]
    assert labels(tool, arguments)[1] == described


LONG = "loom/warps_and_wefts/of_the_year_2026/cloth.py"
JOINED: dict[str, tuple[list[str], str]] = {
    "one": (["the run of make"], "the run of make"),
    "one said twice": (["the read of a.py"] * 2, "the read of a.py"),
    "two files": (["the read of a.py", "the read of b.py"], "the reads of a.py and b.py"),
    "two ranges": (
        ["the read of lines 1-9 of a.py", "the read of lines 20-29 of a.py"],
        "the reads of lines 1-9 of a.py and lines 20-29 of a.py",
    ),
    "one file": (["the read of a.py", "the edit of a.py"], "the read and the edit of a.py"),
    "unlike": (["the run of make", "the read of a.py"], "the run of make and the read of a.py"),
    "others": (
        ["the search for warp", "the result of Task"], "the search for warp and the result of Task",
    ),
    "two long": ([f"the read of lines {n}-99 of {LONG}" for n in (1, 2)], f"2 reads of {LONG}"),
    "two long ones that are unlike": ([f"the run of {LONG}", f"the read of {LONG}2"], "2 calls"),
    "three of a kind": ([f"the read of lines {n}-9 of a.py" for n in (1, 2, 3)], "3 reads of a.py"),
    "three": (["the run of make", "the read of a.py", "the read of b.py"], "3 calls"),
}  # fmt: skip


@pytest.mark.parametrize("case", JOINED)
def test_several_calls_are_named_in_few_words(case: str) -> None:
    names, joined = JOINED[case]
    assert join_descriptions(names) == joined


SECRET = "hunter2"
HIDDEN = {
    f"mysql -u root --password {SECRET} looms": "mysql looms",
    f"sshpass -p {SECRET} ssh loom": "sshpass ssh loom",
    f"export LOOM_KEY={SECRET}; python weave.py": "python weave.py",
    f"LOOM_TOKEN={SECRET} ./weave.sh": "./weave.sh",
    f"python weave.py --api-key={SECRET} warp.txt": "python weave.py warp.txt",
    f"curl -H 'Authorization: Bearer {SECRET}' https://loom.org/a?k={SECRET}": "https://loom.org/a",
    f"curl -u me:{SECRET} https://loom.org/a": "https://loom.org/a",
    f"psql postgres://me:{SECRET}@loom/db": "psql postgres://loom/db",
    f"rg -H 'token: {SECRET}' src": "rg -H 'token: src",
    f"./weave.sh sk-{SECRET}abcdef prod": "./weave.sh prod",
    f"./weave.sh AbCdEfGhIjKlMnOpQrStUv{SECRET}": "./weave.sh",
}


@pytest.mark.parametrize("command", HIDDEN)
def test_what_looks_like_a_secret_is_left_out(command: str) -> None:
    subject, described = labels("Bash", {"command": command})
    assert subject == HIDDEN[command]
    assert SECRET not in described


@pytest.mark.parametrize("path", ["src/token_store.py", "auth/keys.py", "tests/test_password.py"])
def test_a_file_is_named_whatever_it_is_about(path: str) -> None:
    assert path in labels("Bash", {"command": f"pytest {path}"})[0]
    assert labels("Read", {"file_path": path})[0] == path


@given(st.text(), st.text())
def test_a_label_is_short(tool: str, command: str) -> None:
    for name in ("Bash", "Read", tool):
        key = "file_path" if name == "Read" else "command"
        assert len(labels(name, {key: command})[0]) <= 48


@given(st.text(alphabet="ab/.", max_size=200))
def test_a_short_path_is_an_end_of_the_path(path: str) -> None:
    found = short_path(path)
    assert len(found) <= 48
    assert path.strip("/").endswith(found.removeprefix("..").strip("/")) or found == path


@pytest.mark.parametrize("word", ["key", "a:", "-", "'", "$(", "/a", "<<", "sk-1 "])
def test_hostile_commands_take_linear_time(word: str) -> None:
    def seconds(count: int) -> float:
        command, best = f"rg {word * count}", float("inf")
        text = json.dumps({"command": command})
        use = TOOLS.use_of("Bash", json.dumps({"command": "rg x"}))
        call = Part(Ref(0, ()), "call", "model", text, "Bash")
        for _ in range(3):
            start = time.perf_counter()
            describe_call(call, use)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(80_000) < 40 * max(seconds(8_000), 1e-4)
