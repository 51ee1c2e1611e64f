"""Real agents through `respool run`, in sessions long enough to be compacted.

What the upstream got is judged: valid, stable between epochs, never too many marks.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import respool
from respool.markers import find_marker
from tests.e2e.agents import (
    AT_MAKER,
    DRIVEN,
    LINES,
    LOGGED_IN,
    TURNS,
    Came,
    drive,
    missing,
    missing_lines,
    shown,
    unavailable,
)
from tests.support.client_requests import breakpoints, leaves, without_breakpoints
from tests.support.formats import FIELD
from tests.transcripts.upstream import Received

pytestmark = pytest.mark.e2e

EARLY = ("--set", "eager=on", "--set", "reevaluate_tokens=8000", "--set", "reevaluate_ratio=0")
LONGER = 60  # calls, in which some 200,000 tokens are read
BUDGET = 60_000
clients = pytest.mark.parametrize("name", [name for name in DRIVEN if DRIVEN[name].shell])
talkers = pytest.mark.parametrize("name", [name for name in DRIVEN if not DRIVEN[name].shell])


def driven(name: str, folder: Path, *options: str, turns: int = TURNS) -> Came:
    if reason := missing(name):
        pytest.skip(reason)
    came = drive(name, folder, *options, turns=turns)
    assert came.status == 0, came.said
    assert len(came.main) == turns + 1, came.said
    assert "Gauge 7 is the highest." in came.out
    print(f"\n{name}: {shown(came)}\n{came.said}")
    return came


def holds(came: Came, format: Any) -> None:
    """Every request is valid, and has four marks at the most."""
    for taken in (*came.main, *came.others):
        assert respool.check(taken.body, format=format) == []
        assert len([path for path in breakpoints(taken.body) if path[-1] == "type"]) <= 4
    assert {record.fallback for record in came.records} == {""}
    assert {record.status for record in came.records} == {200}


def extends(came: Came, format: str) -> int:
    """Between epochs each history begins with all of the one before; how often that was so."""
    field, steady = FIELD[format], 0
    histories = [_spelled(without_breakpoints(taken.body[field])) for taken in came.main]
    for at in range(1, len(histories)):
        if came.records[at].epochs == came.records[at - 1].epochs:
            assert histories[at][: len(histories[at - 1])] == histories[at - 1]
            steady += 1
    return steady


def _spelled(history: list[Any]) -> list[str]:
    """Each message as the bytes it came with would read, its order of keys included."""
    return [json.dumps(message, ensure_ascii=False) for message in history]


def markers(body: dict[str, Any]) -> int:
    """Number of respool's markers in a request."""
    return sum(isinstance(leaf, str) and find_marker(leaf) is not None for _, leaf in leaves(body))


@clients
def test_a_long_session_is_compacted_and_ends_well(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path, *EARLY)
    holds(came, format)
    assert came.records[-1].epochs >= 2
    assert markers(came.main[-1].body) >= 5
    assert came.records[-1].tokens_after < 0.75 * came.records[-1].tokens_before
    assert extends(came, format) >= 5
    assert f"respool: {len(came.main) + len(came.others)} requests" in came.said
    assert re.search(r"saved .* of [\d,]+ tokens \(\d+ %", came.said)


@clients
def test_by_default_a_session_ends_well_and_is_stable(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path)
    holds(came, format)
    assert extends(came, format) >= TURNS - came.records[-1].epochs


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_longer_session_stays_within_a_budget(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path, "--set", f"budget={BUDGET}", turns=LONGER)
    holds(came, format)
    assert came.records[-1].tokens_before > 2 * BUDGET
    assert all(record.tokens_after <= BUDGET for record in came.records)
    assert extends(came, format) >= LONGER - 15
    assert sum(record.cost_after or 0 for record in came.records) < sum(
        record.cost_before or 0 for record in came.records
    )


def test_to_observe_is_to_change_nothing(tmp_path: Path):
    came = driven("qwen", tmp_path, "--observe", *EARLY)
    assert markers(came.main[-1].body) == 0
    assert {record.mode for record in came.records} == {"observed"}
    assert came.records[-1].tokens_after < came.records[-1].tokens_before
    assert re.search(r"would have saved .* tokens \(\d+ %", came.said)


# What no two sessions have in common.
OWN = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # sessions, turns, messages
    r"|\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b"  # the device, the cache's key
    r"|<current_datetime>[^<]+"
    r"|\bcch=[0-9a-f]{5}\b"
    r"|\bses_\w+|\bmsg_[0-9a-f]{12}\w+|127\.0\.0\.1:\d+"
    r"|\bBash=\d+|PGID: \d+|Chunk ID: \w+|Wall time: [\d.]+|\b\d{13}\b"
)
HOP = {"connection", "content-length"}
SECURE = {"accept-encoding", "host"}  # Node's fetch offers brotli over TLS only
# Only its maker's own host, and no setting, brings this one.
MAKERS_OWN = "mid-conversation-system-clear-at-2026-08-21,"
MARKER = re.compile(r"\[respool[^\]]*\]")  # it may name the tool as well
LOSSY = {"qwen"}  # its terminal loses the end of some outputs on a busy machine
OWN_FIELDS = {"create_time", "promptId"}
HEADS = ("system", "systemInstruction", "instructions", "tools")
COMPARED = {
    **{name: one for name, one in DRIVEN.items() if one.shell and not one.upstream},
    **LOGGED_IN,
    **{f"{name}, at its maker": one for name, one in AT_MAKER.items()},
}


def alike(value: Any) -> Any:
    """A JSON value without what no two sessions have in common."""
    if isinstance(value, dict):
        return {key: alike(inner) for key, inner in value.items() if key not in OWN_FIELDS}
    if isinstance(value, list):
        return [alike(inner) for inner in value]
    return OWN.sub("…", value) if isinstance(value, str) else value


def headers(taken: Received, maker: str, *, changed: bool) -> dict[str, str]:
    """Headers but for those of a connection, and of the encoding of a body that was changed."""
    left_out = HOP | (SECURE if maker else set()) | ({"content-encoding"} if changed else set())
    sent = {name: text for name, text in taken.headers.items() if name not in left_out}
    return alike({name: text.replace(MAKERS_OWN, "") for name, text in sent.items()})


def heads(taken: Received) -> dict[str, str]:
    """What stands before the history, byte for byte, but for what is a session's own."""
    fields = msgspec.json.decode(taken.raw, type=dict[str, msgspec.Raw])
    written = {name: bytes(fields[name]).decode() for name in HEADS if name in fields}
    return {name: OWN.sub("…", text) for name, text in written.items()}


def in_result(path: tuple[Any, ...], body: dict[str, Any], field: str) -> bool:
    """Whether a leaf of a request is in what a tool said."""
    if path[0] != field:
        return False
    message = body[field][path[1]]
    if message.get("role") == "tool" or str(message.get("type")).endswith("_output"):
        return True
    block = message[path[2]][path[3]] if len(path) > 3 else {}
    return "functionResponse" in path or block.get("type") == "tool_result"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(pytest.param(name, ("--no-mcp",), id=f"{name}, compacted") for name in COMPARED),
        *(
            pytest.param(name, ("--observe",), id=f"{name}, observed")
            for name, one in COMPARED.items()
            if one.maker
        ),
    ],
)
def test_an_agent_sends_what_it_sends_without_respool(
    name: str, options: tuple[str, ...], tmp_path: Path
):
    """At their makers', both sessions get there by TLS, through a proxy of a company's."""
    one, folder = COMPARED[name], tmp_path / "session"
    if reason := unavailable(one):
        pytest.skip(reason)
    alone = drive(one, folder, through=False)
    shutil.rmtree(folder)  # paths are in what is sent
    came = drive(one, folder, *options)
    assert (alone.status, came.status) == (0, 0), came.said
    assert len(alone.main) == len(came.main) == len(came.records) == TURNS + 1, came.said
    assert [taken.path for taken in alone.others] == [taken.path for taken in came.others]
    field, changed = FIELD[one.format], 0
    for before, after in zip(alone.main, came.main, strict=True):
        assert before.path == after.path
        assert heads(before) == heads(after)
        assert breakpoints(before.body) == breakpoints(after.body)
        assert list(before.body) == list(after.body)
        left, right = dict(leaves(alike(before.body))), dict(leaves(alike(after.body)))
        assert left.keys() == right.keys()
        differing = [path for path in left if left[path] != right[path]]
        assert all(in_result(path, after.body, field) for path in differing), differing
        sent = [headers(taken, one.maker, changed=bool(differing)) for taken in (before, after)]
        assert sent[0] == sent[1]
        changed += len(differing)
    observed = "--observe" in options
    assert not (observed and markers(came.main[-1].body))
    assert bool(changed) != observed or one.command in LOSSY


@pytest.mark.parametrize(
    "name", ["claude", "codex", "opencode", "pi", "qwen", "copilot", "continue"]
)
def test_an_agent_gets_originals_back_by_itself(name: str, tmp_path: Path):
    """The tool is offered, and its call brings what is in the request no more."""
    if reason := missing(name):
        pytest.skip(reason)
    came = drive(name, tmp_path, *EARLY, expands=True)
    assert (came.status, len(came.main)) == (0, TURNS + 2), came.said
    assert came.asked is not None
    at, original = came.asked
    offered = [MARKER.sub("", json.dumps(taken.body)) for taken in came.main[:at]]
    assert any("respool_expand" in text for text in offered)
    assert not any("respool_history" in text for text in offered)
    before, after = (json.dumps(came.main[one].body, ensure_ascii=False) for one in (at - 1, at))
    assert missing_lines(original, before) > LINES // 2
    assert missing_lines(original, after) == 0


def _claude_settings(url: str) -> str:
    return json.dumps({"env": {"ANTHROPIC_BASE_URL": url}})


def _qwen_settings(url: str) -> str:
    model = {"id": "qwen3-coder", "baseUrl": f"{url}/v1", "envKey": "OPENAI_API_KEY"}
    return json.dumps({"modelProviders": {"openai": [model]}})


def _aider_settings(url: str) -> str:
    return f"OPENAI_API_BASE={url}/v1\n"


@pytest.mark.parametrize(
    ("name", "variable", "file", "held"),
    [
        ("claude", "ANTHROPIC_BASE_URL", ".claude/settings.json", _claude_settings),
        ("qwen", "OPENAI_BASE_URL", ".qwen/settings.json", _qwen_settings),
        ("aider", "OPENAI_API_BASE", ".env", _aider_settings),
    ],
)
@pytest.mark.parametrize("place", ["home", "work"])
def test_an_agents_own_settings_are_overridden_or_said_to_hold(
    place: str, name: str, variable: str, file: str, held: Callable[[str], str], tmp_path: Path
):
    """In either file it goes where that says; from the user's own it can be moved."""
    if reason := missing(name):
        pytest.skip(reason)
    known = DRIVEN[name]

    def set_up(home: Path, url: str) -> None:
        known.set_up(home, url)
        path = home.parent / place / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(held(url))

    kept = {key: value for key, value in known.variables("").items() if key != variable}
    came = drive(replace(known, variables=lambda _: kept, set_up=set_up), tmp_path)
    assert (came.status, len(came.main)) == (0, TURNS + 1), came.said
    if place == "home":
        assert len(came.records) == TURNS + 1
        assert "is asked to go through" in came.said
    else:
        assert came.records == []
        assert str(tmp_path / place / file) in came.said.partition("\n")[0]


@talkers
def test_an_agent_without_tools_comes_through_as_it_is(name: str, tmp_path: Path):
    format: Any = DRIVEN[name].format
    came = driven(name, tmp_path / "through", *EARLY)
    holds(came, format)
    alone = drive(name, tmp_path / "alone", through=False)
    assert [taken.body for taken in came.main] == [taken.body for taken in alone.main]
    assert "Gauge 7 is the highest." in alone.out
    assert {record.edited for record in came.records} == {0}
    assert all(record.cost_before == record.cost_after for record in came.records)
    assert "; saved $0.0000, 0 % of a bill of $" in came.said
