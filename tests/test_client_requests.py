"""Requests of real clients, grown turn by turn: detected, valid, and only clipped."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import respool
from respool.compaction.memo import Memo
from respool.markers import find_marker
from respool.providers.registry import PROVIDERS
from tests.judges import judge
from tests.support.client_requests import (
    ASKED,
    CLIENTS,
    LONG,
    Client,
    Path,
    Turn,
    breakpoints,
    developer,
    grown,
    leaves,
    spelled,
    text,
    without_breakpoints,
)
from tests.support.formats import FIELD

AT_ONCE = respool.Policy(eager=True, passes=("tidy_results", "cap_results"), keep_exchanges=0)
CAP = AT_ONCE.cap_chars or 0
clients = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def to_be_clipped(client: Client, request: dict[str, Any]) -> set[Path]:
    """Places of results over the cap that the model has seen."""
    field = FIELD[client.format]
    history = request[field]
    made = PROVIDERS[client.format].codec.is_model_made
    seen = max((at for at, message in enumerate(history) if made(message)), default=0)
    found = leaves(history[:seen], (field,))
    return {path for path, leaf in found if isinstance(leaf, str) and len(leaf) > CAP}


@clients
def test_is_told_apart_and_valid_as_it_comes(client: Client) -> None:
    for request in grown(client):
        body = spelled(client, request)
        assert respool.compact(body, policy=AT_ONCE, memo=None).report.format == client.format
        assert respool.check(body) == []
        assert respool.repair(body).request is body
    *_, last = grown(client)
    assert len([path for path in breakpoints(last) if path[-1] == "type"]) == client.breakpoints


@clients
def test_seen_results_are_clipped_and_nothing_else_is_touched(client: Client) -> None:
    for request in grown(client):
        body = spelled(client, request)
        out = respool.compact(body, policy=AT_ONCE, memo=None)
        projection = json.loads(out.request)
        before, after = dict(leaves(request)), dict(leaves(projection))
        wanted = to_be_clipped(client, request)
        assert before.keys() == after.keys()
        assert {path for path in before if before[path] != after[path]} == wanted
        assert {edit.reason for edit in out.report.edits} <= {"over_cap"}
        assert (len(out.report.edits), out.report.repairs) == (len(wanted), ())
        for path in wanted:
            marker = find_marker(after[path])
            assert marker is not None
            assert len(after[path]) <= CAP
            assert respool.expand(marker.ref, out) == before[path]
    *_, last = grown(client)
    assert len(to_be_clipped(client, last)) == len(LONG)


@clients
def test_untouched_messages_keep_their_bytes(client: Client) -> None:
    field = FIELD[client.format]
    *_, request = grown(client)
    out = respool.compact(spelled(client, request), policy=AT_ONCE, memo=None).request
    touched = {path[1] for path in to_be_clipped(client, request)}
    assert touched
    for at, message in enumerate(request[field]):
        assert (spelled(client, message) in out) == (at not in touched)
    head, tail = spelled(client, request).split(spelled(client, request[field]))
    assert out.startswith(head)
    assert out.endswith(tail)


@clients
def test_the_projection_is_valid_and_keeps_the_marks(client: Client) -> None:
    assert client.breakpoints <= 4
    for request in grown(client):
        out = respool.compact(request, policy=AT_ONCE, memo=None).request
        assert respool.check(out) == []
        assert breakpoints(out) == breakpoints(request)
    *_, last = grown(client)
    assert judge(client.format, respool.compact(last, policy=AT_ONCE).request) == judge(
        client.format, last
    )


@clients
def test_warm_is_cold_and_projections_extend_one_another(client: Client) -> None:
    memo = Memo()
    field = FIELD[client.format]
    earlier: Any = None
    for request in grown(client):
        body = spelled(client, request)
        warm, cold = (
            respool.compact(body, policy=AT_ONCE, memo=memo),
            respool.compact(body, policy=AT_ONCE, memo=None),
        )
        assert warm.request == cold.request
        assert warm.report == cold.report
        assert warm.originals == cold.originals
        history = without_breakpoints(json.loads(warm.request))[field]
        if earlier is not None and earlier[0] == warm.report.epochs:
            assert history[: len(earlier[1])] == earlier[1]
        earlier = warm.report.epochs, history
    assert earlier[0] == len(LONG)


@clients
def test_objects_say_what_bytes_say(client: Client) -> None:
    *_, request = grown(client)
    said = copy.deepcopy(request)
    out = respool.compact(request, policy=AT_ONCE, memo=None)
    assert request == said, "the caller's own request is never changed"
    assert out.request == json.loads(
        respool.compact(spelled(client, request), policy=AT_ONCE, memo=None).request
    )
    changed = {path[1] for path in to_be_clipped(client, request)}
    field = FIELD[client.format]
    for at, message in enumerate(request[field]):
        assert (out.request[field][at] is message) == (at not in changed)


@clients
def test_a_lost_result_is_mended_and_nothing_else(client: Client) -> None:
    """The client was stopped in the middle of a turn, and the user said something else."""
    *_, request = grown(client)
    field = FIELD[client.format]
    made = PROVIDERS[client.format].codec.is_model_made
    last = max(at for at, message in enumerate(request[field]) if made(message))
    words = ASKED if client.format != "gemini" else [{"role": "user", "parts": [{"text": "No."}]}]
    stopped = {**request, field: [*request[field][: last + 1], *words]}
    assert {problem.code for problem in respool.check(stopped)} & {"A1", "C1", "R1", "G1"}
    repaired = respool.repair(stopped)
    assert respool.check(repaired.request) == []
    assert not judge(client.format, repaired.request) or judge(client.format, stopped)
    kept = [message for message in repaired.request[field] if message in stopped[field]]
    assert kept[: last + 1] == stopped[field][: last + 1], "all that was there stays, in its order"
    assert respool.repair(stopped).request == repaired.request
    assert respool.repair(repaired.request).request is repaired.request


def test_claude_codes_own_compaction_is_left_whole() -> None:
    """It asks for a summary behind the newest results, which the model has not read yet."""
    client = CLIENTS["claude-code"]
    *_, request = grown(client)
    request["messages"][-1]["content"].append(text("Now sum up. Respond with TEXT ONLY."))
    body = spelled(client, request)
    out = respool.compact(body, policy=AT_ONCE, memo=None)
    assert respool.check(out.request) == []
    assert json.loads(out.request)["messages"][-1] == request["messages"][-1]


TITLE: Turn = [
    {"role": "system", "content": "You write titles."},
    {"role": "user", "content": "Mend the gauge."},
]
TALK: Turn = [*TITLE, {"role": "assistant", "content": "Mended."}, *ASKED]
WITHOUT_TOOLS: dict[str, dict[str, Any]] = {
    "opencode's title, Chat": {
        "model": "glm-4.6",
        "messages": TITLE,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "opencode's title, Anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": [text("You write titles.")],
        "messages": ASKED,
        "stream": True,
    },
    "opencode's title, Responses": {
        "model": "gpt-5.1",
        "input": [developer("You write titles."), developer("Mend the gauge.", "user")],
        "store": False,
    },
    "aider, GPT": {"model": "gpt-4.1", "messages": TALK, "temperature": 0, "stream": True},
    "aider, Claude behind a gateway": {
        "model": "claude-sonnet-4-5",
        "messages": TALK,
        "temperature": 0,
        "stream": True,
    },
    "OpenHands' title, Claude behind a gateway": {
        "model": "litellm_proxy/claude-sonnet-4-5",
        "messages": TITLE,
        "max_tokens": 50,
    },
    "a local server's own field": {"model": "qwen3-coder", "messages": TITLE, "top_k": 20},
    "thinking switched off on Chat": {
        "model": "glm-4.6",
        "messages": TITLE,
        "thinking": {"type": "disabled"},
    },
    "Bedrock Converse without tools": {
        "system": [{"text": "You write titles."}],
        "messages": [{"role": "user", "content": [{"text": "Mend the gauge."}]}],
    },
}


@pytest.mark.parametrize("request_", WITHOUT_TOOLS.values(), ids=WITHOUT_TOOLS)
def test_a_request_without_tools_comes_back_as_it_is(request_: dict[str, Any]) -> None:
    """These are fine where they go, whichever format they are taken for."""
    assert respool.compact(request_, policy=AT_ONCE, memo=None).request is request_
    body = json.dumps(request_).encode()
    assert respool.compact(body, policy=AT_ONCE, memo=None).request is body
