"""The laws over every recorded session of the corpus (`make corpus`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from respool import Policy, check, compact, repair
from respool.compaction.memo import Memo
from respool.edits import TIDIED, Replace
from respool.engine import Compaction
from respool.markers import reference
from respool.policy import PRESETS
from respool.providers.anthropic.request_rules import MAX_BREAKPOINTS
from tests.corpus.sessions import BREAKPOINT, READERS, History, corpus, encode, sessions, shards
from tests.judges import judge
from tests.laws import laws
from tests.laws.subject import Compact
from tests.providers.rendered_history import assert_alternates, assert_grows, assert_nothing_lost
from tests.strategies import HISTORY

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(corpus() is None, reason="CORPUS names no folder of recorded sessions"),
]

Shard = tuple[str, int, int]

POLICIES = {
    "default": Policy(),
    "eager": Policy(
        cap_chars=2000, reevaluate_tokens=1, reevaluate_ratio=0.1, eager=True, keep_exchanges=0
    ),
    **{name: Policy.preset(name) for name, values in PRESETS.items() if values},
}
EAGEREST = Policy(
    cap_chars=2000, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)
COLD = 20  # every so many requests, and the last one, are compacted cold as well

# Records that went into no request: what a program noted for itself, and answers that never came.
NOT_SENT = {
    "claude-code": {
        "agent-name", "ai-title", "api_error", "attachment", "away_summary", "bridge-session",
        "bridge_status", "compact_boundary", "custom-title", "file-history-delta",
        "file-history-snapshot", "informational", "last-prompt", "local_command",
        "microcompact_boundary", "mode", "permission-mode", "pr-link", "progress",
        "queue-operation", "sidechain", "stop_hook_summary", "summary", "synthetic answer",
        "system", "turn_duration",
    },
    "codex": {
        "event_msg", "inter_agent_communication_metadata", "session_meta", "state", "turn_context",
        "world_state",
    },
    "copilot-cli": {
        "assistant.turn_end", "assistant.turn_start", "hook.end", "hook.start",
        "permission.completed", "permission.requested", "session.compaction_complete",
        "session.compaction_start", "session.info", "session.mode_changed", "session.model_change",
        "session.permissions_changed", "session.plan_changed", "session.resume",
        "session.shutdown", "session.start", "session.task_complete", "session.usage_checkpoint",
        "session.workspace_file_changed", "skill.invoked", "subagent.completed",
        "subagent.started", "system.notification", "tool.execution_start",
    },
    "gemini-cli": {
        "answer without content", "error", "info",
    },
    "opencode": {
        "answer without content", "file", "patch", "step-finish", "step-start", "subtask",
    },
    "openhands-events": {"recall"},
    "pi": {
        "answer without content", "custom", "custom_message", "model_change", "session",
        "session_info", "thinking_level_change",
    },
}  # fmt: skip

shard = pytest.mark.parametrize(
    "shard", shards(), ids=[f"{name.split('.')[0]}-{at}" for name, at, _ in shards()]
)


def runs() -> Iterator[tuple[str, Shard]]:
    """The default policy on every slice; of the others one on each in turn, or with ALL each."""
    default, *others = POLICIES
    for at, one in enumerate(shards()):
        yield default, one
        for name in others if os.environ.get("ALL") else others[at % len(others) :][:1]:
            yield name, one


under_policies = pytest.mark.parametrize(
    ("policy", "shard"),
    [(POLICIES[name], one) for name, one in runs()],
    ids=[f"{name.split('.')[0]}-{at}-{policy}" for policy, (name, at, _) in runs()],
)


def under(policy: Policy) -> Compact:
    """Compactor for the laws: the public one, under this policy."""

    usual = policy

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        return compact(request, policy=policy or usual, memo=memo)

    return run


def histories(shard: Shard) -> Iterator[History]:
    return chain.from_iterable(session.histories for session in sessions(shard))


def test_every_format_is_there() -> None:
    assert {name.split("__")[0] for name, _, _ in shards()} == READERS.keys()


@shard
def test_every_session_is_read(shard: Shard) -> None:
    known = NOT_SENT.get(shard[0].split("__")[0], set())
    for session in sessions(shard):
        assert session.histories, f"{session.id}: no request"
        assert session.left.keys() <= known, f"{session.id}: left out {session.left}"


@under_policies
def test_last_requests(shard: Shard, policy: Policy) -> None:
    run = under(policy)
    for history in histories(shard):
        request = history.last
        laws.valid(run, history.format, request, whole=not judge(history.format, request))
        laws.repairs_only_what_is_broken(run, history.format, request)
        laws.small(run, history.format, request)
        laws.reversible(run, history.format, request)
        laws.honest(run, history.format, request)
        repaired = repair(request).request
        assert repair(repaired).request is repaired, history.id
        laws.faithful(run, history.format, repaired)
        assert_shaped_stay(run, repaired)
        laws.keeps_what_is_shaped(run, history.format, request)
        assert_bytes_are_objects(run, request)


@shard
def test_plain_messages(shard: Shard) -> None:
    """Told in plain messages, every last request is valid, alternates, and says all it said."""
    how = Policy(passes=(), rendering="text")
    for history in histories(shard):
        source = compact(history.last, policy=Policy(passes=()), memo=None).request
        out = compact(history.last, policy=how, memo=None).request
        assert_nothing_lost(history.format, source, out)
        assert_alternates(history.format, out)
        wrong = [p for p in check(out, format=history.format) if p.severity == "error"]
        assert [p for p in wrong if p.code not in laws.UNREPAIRABLE] == []
        half = history.cuts[len(history.cuts) // 2]
        field = HISTORY[history.format]
        earlier = {**source, field: source[field][:half]}
        if source is history.last:  # nothing was mended, so rows are messages
            assert_grows(history.format, compact(earlier, policy=how, memo=None).request, out)


def assert_shaped_stay(run: Compact, request: Any) -> None:
    """No pass shapes what it has shaped, whenever it looks at it again."""
    once = run(request)
    twice = run(once.request, policy=EAGEREST)
    shaped = {
        reference(edit.text)
        for edit in once.report.edits
        if isinstance(edit, Replace) and edit.reason != TIDIED
    }
    again = {edit.original for edit in twice.report.edits if isinstance(edit, Replace)}
    assert not shaped & again


def assert_bytes_are_objects(run: Compact, request: Any) -> None:
    """A body's projection is the projection of what it says."""
    assert json.loads(run(encode(request)).request) == run(request).request


@under_policies
def test_every_request(shard: Shard, policy: Policy) -> None:
    """Each request in turn with one memo: projections extend one another, and cold equals warm."""
    for history in histories(shard):
        memo = Memo()
        before: Compaction[bytes] | None = None
        for number, body in enumerate(history.bodies()):
            out = compact(body, policy=policy, memo=memo)
            assert out.report.format == history.format, f"{history.id}, request {number}"
            assert_breakpoints(
                out.request.count(BREAKPOINT), body.count(BREAKPOINT), f"{history.id}, {number}"
            )
            if before is not None:
                assert_extends(before, out, f"{history.id}, request {number}")
            if number % COLD == 0 or number == len(history.cuts) - 1:
                cold = compact(body, policy=policy, memo=None)
                assert cold.request == out.request, f"{history.id}, request {number}: warm differs"
                assert cold.report == out.report, f"{history.id}, request {number}: the report"
            before = out


def assert_breakpoints(after: int, before: int, where: str) -> None:
    """At most one mark is ours, and a request never has more than four, unless it came so."""
    assert before <= after <= max(before, min(MAX_BREAKPOINTS, before + 1)), f"{where}: marks"


def assert_extends(before: Compaction[bytes], after: Compaction[bytes], where: str) -> None:
    """Between epochs, a projection begins with the one before it, cache marks aside."""
    if before.report.epochs == after.report.epochs and not laws._ends_made_up(before):
        start = without_breakpoints(before.request).removesuffix(b"]}")
        assert without_breakpoints(after.request).startswith(start), f"{where}: another prefix"


def without_breakpoints(body: bytes) -> bytes:
    """A body without cache marks; inside of a string, quotes would be escaped."""
    return body.replace(BREAKPOINT, b"")
