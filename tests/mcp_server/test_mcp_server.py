"""`respool mcp`, called by the SDK's own client over the standard streams of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import respool
from respool import Policy
from respool.markers import find_marker, reference
from respool.mcp_server.server import (
    MAX_ANSWER_CHARS,
    ToolCallError,
    parse_lines,
    parse_number,
    parse_reference,
)
from respool.store import RecordedEdit, SQLiteStore
from respool.store.reader import LocalReader
from respool.tools.identity import is_expand_tool
from tests.late import late
from tests.proxy.sockets import ask as over_the_port
from tests.proxy.sockets import post
from tests.proxy.test_originals_endpoint import running
from tests.store.support import OTHER, OWNER, SOURCE, by_ref, record
from tests.support.formats import FORMATS, Exchange, request, results
from tests.tools.test_expand_tool import STUB, offering

EXPAND, HISTORY, SEARCH = "respool_expand", "respool_history", "respool_search"
BRIEF = "respool_brief"
TEXT = "".join(f"line {number} of a log{'!' * (number == 7)}\n" for number in range(1, 21))
LONG = "".join(f"{number} is the number of this line\n" for number in range(1, 5_001))
WIDE = '{"rows":[' + ",".join(str(number) for number in range(20_000)) + "]}"
HALF = "half \ud83d of it"
REF = reference(TEXT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with originals and records of two keys."""
    path = tmp_path / "respool.db"
    store = SQLiteStore(path)
    store.keep(OWNER, "c1", by_ref(TEXT, LONG, WIDE, HALF))
    store.keep(OTHER, "c2", by_ref("of another key"))
    now = time.time()
    edit = RecordedEdit("stale", "messages[3]", "read again at messages[9]", 600, REF)
    edit = replace(edit, tool="Read", target="a.log")
    store.record(record("r1", time=now - 9, edits=(edit,)))
    store.record(record("r2", time=now - 5, edits=(), saved=0, fallback="late: over 3 s"))
    store.record(record("r3", time=now, conversation="c2", owner=OTHER, model="another", edits=()))
    store.close()
    return path


Client = Any  # of the SDK
Act = Callable[[Client], Awaitable[None]]


@asynccontextmanager
async def client(path: Path, *options: str) -> AsyncGenerator[Client]:
    server = late("mcp").StdioServerParameters(
        command=sys.executable,
        args=["-m", "respool", "mcp", *options],
        env={
            **os.environ,
            "HOME": str(path.parent),
            "PYTHONPATH": str(SOURCE),
            "RESPOOL_STORE": str(path),
        },
    )
    # By default the stream that stood there at the first import: that of a command in a test.
    transport = late("mcp.client.stdio").stdio_client(server, errlog=sys.__stderr__)
    async with late("mcp").Client(transport, read_timeout_seconds=20) as asking:
        yield asking


def ask(path: Path, act: Act, *options: str) -> None:
    async def run() -> None:
        async with client(path, *options) as asking:
            await act(asking)

    asyncio.run(run())


def said(result: Any) -> list[str]:
    TextContent = late("mcp_types").TextContent  # noqa: N806 - a class
    assert all(isinstance(block, TextContent) for block in result.content)
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def it_offers_tools_that_only_read(asking: Client) -> None:
    tools = (await asking.list_tools()).tools
    assert [tool.name for tool in tools] == [EXPAND, HISTORY, SEARCH, BRIEF]
    for tool in tools:
        hints = tool.annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
        assert (hints.idempotent_hint, hints.open_world_hint) == (True, False)
        assert tool.input_schema["type"] == "object"
    assert asking.server_info is not None
    assert asking.server_info.name == "respool"
    assert "respool_expand" in (asking.instructions or "")


def lines(*numbers: int) -> str:
    every = TEXT.splitlines(keepends=True)
    return "".join(every[number - 1] for number in numbers)


EXPANDED = [
    ({"ref": REF}, [TEXT]),
    ({"ref": f"[respool: 20 lines left out; ref {REF}]"}, [TEXT]),
    ({"ref": reference("of another key")}, ["of another key"]),
    ({"ref": REF, "lines": "3-5"}, [lines(3, 4, 5), "These are the lines 3-5 of 20."]),
    ({"ref": REF, "lines": "19-"}, [lines(19, 20), "These are the lines 19-20 of 20."]),
    ({"ref": REF, "lines": "first 2"}, [lines(1, 2), "These are the lines 1-2 of 20."]),
    ({"ref": REF, "lines": "last 2"}, [lines(19, 20), "These are the lines 19-20 of 20."]),
    ({"ref": REF, "lines": "18-99"}, [lines(18, 19, 20), "These are the lines 18-20 of 20."]),
    ({"ref": REF, "pattern": "!$"}, [lines(7), "1 of the lines 1-20 fit the pattern: 7."]),
    (
        {"ref": REF, "pattern": "1[0-2] of", "lines": "5-11"},
        [lines(10, 11), "2 of the lines 5-11 fit the pattern: 10, 11."],
    ),
    (
        {"ref": REF, "pattern": "nowhere"},
        ["0 of the lines 1-20 fit the pattern; this original has 20 lines."],
    ),
    ({"ref": reference(HALF)}, ["half \N{REPLACEMENT CHARACTER} of it"]),
]
REFUSED = [
    ({}, "ref=None is no reference"),
    ({"ref": "abc"}, "ref='abc' is no reference"),
    ({"ref": "a" * 21}, "is no reference"),
    ({"ref": REF[:8]}, "is no reference"),  # an agent must not find others by guessing
    ({"ref": "a" * 20}, f"No original is kept under {'a' * 20}"),
    ({"ref": REF, "lines": "x"}, "lines='x' is not allowed; write \"120-180\""),
    ({"ref": REF, "lines": "9-3"}, "no lines 9-3 here: this original has the lines 1-20"),
    ({"ref": REF, "lines": "30-40"}, "this original has the lines 1-20"),
    ({"ref": REF, "pattern": "("}, "This pattern is not allowed: it is no regular expression"),
    ({"ref": REF, "pattern": 7}, "pattern=7 is not allowed"),
    ({"ref": REF, "skip": -1}, "skip=-1 is not allowed"),
    ({"ref": REF, "skip": 10**6}, "skip=1000000 is not allowed"),
]


async def what_was_asked_for_is_given_and_what_is_wrong_is_said(asking: Client) -> None:
    for asked, expected in EXPANDED:
        result = await asking.call_tool(EXPAND, asked)
        assert (said(result), result.is_error) == (expected, False), asked
    for asked, sentence in REFUSED:
        result = await asking.call_tool(EXPAND, asked)
        assert result.is_error, asked
        assert sentence in said(result)[0], asked
        assert "Traceback" not in said(result)[0]
    result = await asking.call_tool("respool_nothing", {})
    assert result.is_error
    assert "there are respool_expand, respool_history, respool_search" in said(result)[0]


async def a_large_original_is_given_in_pages_that_add_up_to_it(asking: Client, text: str) -> None:
    got, skip, remark = "", 0, list[str]()
    while skip < len(text):
        result = await asking.call_tool(EXPAND, {"ref": reference(text), "skip": skip})
        page, *remark = said(result)
        assert len(page) <= MAX_ANSWER_CHARS
        got, skip = got + page, skip + len(page)
        if skip < len(text):
            assert f"call again with skip={skip}" in remark[0]
            assert "give lines or a pattern" in remark[0]
            assert text is WIDE or page.endswith("\n")
    assert got == text
    assert remark == []


async def history_names_conversations_requests_edits_and_references(asking: Client) -> None:
    listed, remark = said(await asking.call_tool(HISTORY, {}))
    assert [line.split()[0] for line in listed.splitlines()] == ["c2", "c1"]
    assert "2 requests  1,400 tokens, 600 saved" in listed
    assert "Name one" in remark
    one, remark = said(await asking.call_tool(HISTORY, {"conversation": "c1"}))
    first, edit, second = one.splitlines()
    assert "status 200  1,000 tokens, 600 saved" in first
    expected = f"stale at messages[3]: read again at messages[9]  600 tokens  ref {REF}"
    assert edit.strip() == expected
    assert second.endswith("not compacted: late: over 3 s")
    assert remark == "These are the last 2 of 2 requests, in their order."
    last = said(await asking.call_tool(HISTORY, {"conversation": "c1", "limit": 1}))
    assert last == [f"{second}\n", "These are the last 1 of 2 requests, in their order."]
    latest = said(await asking.call_tool(HISTORY, {"conversation": "latest"}))
    assert "another" in latest[0]
    short = await asking.call_tool(HISTORY, {"conversation": "c"})
    assert short.is_error
    assert said(short) == ["'c' is too short for a conversation: give 4 characters or more."]
    unknown = await asking.call_tool(HISTORY, {"conversation": "c9"})
    assert unknown.is_error
    assert "No request of a conversation 'c9' is recorded" in said(unknown)[0]


async def search_names_references_sources_and_lines(asking: Client) -> None:
    for _ in range(2):  # the second time by the index
        listed, remark = said(await asking.call_tool(SEARCH, {"pattern": '7 "of a LOG!"'}))
        source, line = listed.splitlines()
        assert source.startswith(f"ref {REF}  ")
        assert source.endswith("  conversation c1  Read a.log  stale at messages[3]")
        assert line == "  line 7: line 7 of a log!"
        assert remark == "The latest first. respool_expand gives each back by its ref."
        both = said(await asking.call_tool(SEARCH, {"pattern": "of", "limit": 1}))
        assert both[1].endswith("There are more; raise limit, or give more words.")
    latest = said(await asking.call_tool(SEARCH, {"pattern": "key", "conversation": "latest"}))
    assert f"ref {reference('of another key')}" in latest[0]
    nothing = await asking.call_tool(SEARCH, {"pattern": "key", "conversation": "c1"})
    assert (said(nothing)[0][:31], nothing.is_error) == ("No original has all of these wo", False)
    for asked, sentence in (
        ({}, "Give a pattern"),
        ({"pattern": " "}, "The pattern has nothing to search for"),
        ({"pattern": "x" * 2_000}, "The pattern has 2,000 characters; allowed are 1,000."),
        ({"pattern": "x", "limit": 0}, "limit=0 is not allowed"),
    ):
        refused = await asking.call_tool(SEARCH, asked)
        assert refused.is_error
        assert sentence in said(refused)[0]


async def brief_names_what_was_done(asking: Client, home: Path) -> None:
    """Of the transcript of the folder that the server runs in; none elsewhere."""
    refused = await asking.call_tool(BRIEF, {})
    assert refused.is_error
    assert "No transcript of an agent that works in this folder" in said(refused)[0]
    projects = home / ".claude" / "projects" / "x"
    projects.mkdir(parents=True)
    source = Path(__file__).parents[1] / "transcripts" / "claude-code"
    name = "00000000-0000-4000-8000-000000000001.jsonl"
    text = (source / name).read_text("utf-8").replace('"/tmp/maze"', json.dumps(str(Path.cwd())))
    (projects / name).write_text(text)
    told, remark = said(await asking.call_tool(BRIEF, {}))
    assert "failed, exit 1: echo out; false" in told
    assert name in remark
    refused = await asking.call_tool(BRIEF, {"session": "other"})
    assert "with 'other' in its name" in said(refused)[0]
    refused = await asking.call_tool(BRIEF, {"tokens": 1})
    assert "tokens=1 is not allowed" in said(refused)[0]


def test_what_it_offers_and_answers(path: Path):
    """One process for all that changes nothing: it takes a second to start."""

    async def act(asking: Client) -> None:
        await it_offers_tools_that_only_read(asking)
        await what_was_asked_for_is_given_and_what_is_wrong_is_said(asking)
        for text in (LONG, WIDE):
            await a_large_original_is_given_in_pages_that_add_up_to_it(asking, text)
        await history_names_conversations_requests_edits_and_references(asking)
        await search_names_references_sources_and_lines(asking)
        await brief_names_what_was_done(asking, path.parent)

    ask(path, act)


def test_it_may_offer_originals_alone(path: Path):
    """A reference is needed for each; nothing lists those of other conversations."""

    async def act(asking: Client) -> None:
        assert [tool.name for tool in (await asking.list_tools()).tools] == [EXPAND]
        refused = await asking.call_tool(HISTORY, {})
        assert refused.is_error
        assert said(refused) == [f"There is no tool '{HISTORY}'; there are {EXPAND}."]

    ask(path, act, "--expand-only")


def test_a_store_that_is_made_later_is_found_then(tmp_path: Path):
    path = tmp_path / "respool.db"

    async def act(asking: Client) -> None:
        before = await asking.call_tool(EXPAND, {"ref": REF})
        assert before.is_error
        assert f"The store {path} cannot be used: there is no such file" in said(before)[0]
        assert os.listdir(tmp_path) == []  # noqa: PTH208 - nobody else runs in this loop
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref(TEXT))
        assert said(await asking.call_tool(EXPAND, {"ref": REF})) == [TEXT]
        store.close()

    ask(path, act)


# As Claude Code, Codex, opencode, Gemini CLI, Copilot and plug-ins of Claude Code spell it.
SPELLINGS = (
    "mcp__respool__respool_expand", "respool__respool_expand", "respool_respool_expand",
    "respool_expand",
    "mcp_respool_respool_expand", "respool-respool_expand",
    "mcp__plugin_respool_respool__respool_expand",
)  # fmt: skip
LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))
EAGER = Policy(
    cap_chars=1_000, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("tool", SPELLINGS)
def test_markers_name_the_tool_and_what_it_brought_back_stays(
    tmp_path: Path, format: str, tool: str
):
    """A request that offers it is cut, its marker followed, and the answer never cut again."""
    assert is_expand_tool(tool)
    steps = ["go", [Exchange(LINES, id="a")], [Exchange("one", id="b")]]
    cut = compacted(format, STUB, tool, steps)
    marker = find_marker(results(format, cut.request)[0])
    assert marker is not None
    assert f"{tool} gets it back" in str(marker)
    brought = Exchange(fetched(tmp_path, cut.originals, str(marker)), id="c", tool=tool)
    assert brought.result == LINES
    later = [*steps, [brought], [Exchange("two", id="d")], "well?", [Exchange("three", id="e")]]
    for policy in (STUB, EAGER):
        first, _, back, *_ = results(format, compacted(format, policy, tool, later).request)
        assert find_marker(first) is not None
        assert back == LINES


def compacted(format: str, policy: Policy, tool: str, steps: list[Any]) -> Any:
    whole = offering(format, request(format, *steps), tool)
    return respool.compact(whole, format=format, policy=policy, memo=None)


def fetched(folder: Path, originals: Any, marker: str) -> str:
    """Answer of the server to a model that copies the whole marker into `ref`."""
    from respool.mcp_server.server import answer_expand

    store = SQLiteStore(folder / "respool.db")
    store.keep(OWNER, "c1", dict(originals))
    answer = answer_expand(LocalReader(store), {"ref": marker})
    store.close()
    assert answer.remark == ""
    return answer.text


def test_an_agent_follows_a_marker_that_the_proxy_has_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Proxy, store and server as they are run: cut, asked for, given back, never cut again."""
    tool, path = "mcp__respool__respool_expand", tmp_path / "respool.db"
    steps: list[Any] = ["go", [Exchange(LINES, id="a")], [Exchange("one", id="b")]]

    async def sent(port: int, behind: Any, steps: list[Any]) -> list[str]:
        whole = offering("anthropic", request("anthropic", *steps), tool)
        reply = await over_the_port(
            port, post("/v1/messages", json.dumps(whole).encode(), "x-api-key: k")
        )
        assert reply.status == 200
        return results("anthropic", json.loads(behind.received[-1].body))

    async def run() -> None:
        async with (
            running(path, monkeypatch, policy=STUB) as (proxy, _, behind),
            client(path) as asking,
        ):
            marker = find_marker((await sent(proxy.port, behind, steps))[0])
            assert marker is not None
            assert f"{tool} gets it back" in str(marker)
            given = await asking.call_tool(EXPAND, {"ref": marker.ref})
            assert said(given) == [LINES]
            back = Exchange(LINES, id="c", tool=tool, args={"ref": marker.ref})
            later = [*steps, [back], [Exchange("two", id="d")], "well?", [Exchange("3", id="e")]]
            for count in range(4, len(later) + 1):
                seen = await sent(proxy.port, behind, later[:count])
                assert find_marker(seen[0]) is not None
                assert seen[2] == LINES

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None), ("", None), ("3-7", (3, 7)), ("3:7", (3, 7)), ("3 - 7", (3, 7)),
        ("5", (5, 5)), (5, (5, 5)), ("5-", (5, 10**9)), ("first 9", (1, 9)),
        ("last 3", (8, 10**9)), ("LAST 3 lines", (8, 10**9)), ("last 99", (1, 10**9)),
    ],
)  # fmt: skip
def test_lines_are_read_as_models_write_them(given: Any, expected: tuple[int, int] | None):
    assert parse_lines({"lines": given}, 10) == expected


@pytest.mark.parametrize("given", ["a-b", "-5", True, [1, 2], 1.5, "1-2-3", "9" * 12, {}])
def test_lines_that_say_nothing_are_refused(given: Any):
    with pytest.raises(ToolCallError, match="lines="):
        parse_lines({"lines": given}, 10)


@pytest.mark.parametrize("given", [None, 7, "", "A" * 20, "a" * 19, "a" * 21, "ref1", "x" * 10**6])
def test_what_is_no_reference_is_refused_in_few_words(given: Any):
    with pytest.raises(ToolCallError, match="is no reference") as error:
        parse_reference({"ref": given})
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(("given", "expected"), [(None, 4), (0, 0), ("12", 12), (9, 9)])
def test_numbers_may_come_as_text(given: Any, expected: int):
    assert parse_number({"skip": given}, "skip", 4, 0) == expected


@pytest.mark.parametrize("given", [True, 1.0, "x", "-1", -1, [], "9" * 10])
def test_what_is_no_number_is_refused(given: Any):
    with pytest.raises(ToolCallError, match="allowed is a whole number"):
        parse_number({"skip": given}, "skip", 0, 0)


def test_nothing_else_needs_the_sdk():
    code = (
        "import sys, respool, respool.cli\n"
        "print(sorted({'mcp', 'mcp_types', 'pydantic', 'opentelemetry'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_without_the_extra_it_says_what_is_missing():
    code = "import sys\nsys.modules['mcp'] = None\nfrom respool.cli import main\nmain(['mcp'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "which is not installed: pip install '.[mcp]' in a clone" in done.stderr


def test_it_ends_when_its_input_does(path: Path):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    done = subprocess.run(
        [sys.executable, "-m", "respool", "mcp"],
        input=json.dumps(hello) + "\n",
        env={**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]


@pytest.mark.skipif(os.name == "nt", reason="needs a terminal of POSIX")
def test_at_a_terminal_it_says_what_it_waits_for_and_an_interrupt_ends_it(path: Path):
    """Though a thread waits for a line that never comes."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "respool", "mcp", "--store", str(path)]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert b"waits for an agent" in process.stderr.readline()
        time.sleep(1)  # until it reads
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
    os.close(leader)
    os.close(follower)
