"""What goes out when a compaction is late or fails agrees with all that went before and after."""

from __future__ import annotations

import json
from typing import Any

import pytest

import respool
from respool.codecs.object_body import ObjectBody
from respool.engine import prefix_of
from respool.facts import Facts
from respool.fallback import as_it_came, with_known_edits
from respool.folding.memo import Memo
from tests.formats import FIELD, FORMATS, Exchange, request, results

KEEN = respool.Policy(cap_chars=500, eager=True, reevaluate_tokens=1, reevaluate_ratio=0.0, passes=("cap_results",))
LONG = "".join(f"line {n} of a long output\n" for n in range(200))
STEPS = [[Exchange(f"{n} {LONG}", id=f"call_{n}", args={"command": f"make {n}"})] for n in range(6)]


def said(format: str, steps: int) -> bytes:
    return json.dumps(request(format, "go on", *STEPS[:steps])).encode()


def compacted(format: str, body: bytes, **given: Any) -> bytes:
    return respool.compact(body, format=format, policy=KEEN, **given).request


@pytest.mark.parametrize("format", FORMATS)
class TestKnownEdits:
    def test_edits_in_force_stay_and_no_others_are_made(self, format: str):
        memo = Memo()
        sent = json.loads(compacted(format, said(format, 3), memo=memo))
        late = with_known_edits(
            said(format, 5), format=format, policy=KEEN, facts=Facts(), memo=memo
        )
        assert late is not None
        texts = results(format, json.loads(late.compaction.request))
        before = results(format, sent)
        assert texts[:3] == before
        assert len(texts[0]) < 1_000
        assert texts[3:] == [f"{n} {LONG}" for n in (3, 4)]

    def test_its_facts_give_the_same_bytes_in_a_new_process(self, format: str):
        memo = Memo()
        compacted(format, said(format, 3), memo=memo)
        late = with_known_edits(
            said(format, 4), format=format, policy=KEEN, facts=Facts(), memo=memo
        )
        assert late is not None
        assert len(late.facts.skipped) == 1
        assert compacted(format, said(format, 4), facts=late.facts, memo=None) == (
            late.compaction.request
        )

    def test_later_requests_extend_it(self, format: str):
        memo = Memo()
        compacted(format, said(format, 3), memo=memo)
        late = with_known_edits(
            said(format, 4), format=format, policy=KEEN, facts=Facts(), memo=memo
        )
        assert late is not None
        warm = compacted(format, said(format, 5), facts=late.facts, memo=memo)
        assert warm == compacted(format, said(format, 5), facts=late.facts, memo=None)
        assert len(results(format, json.loads(warm))[3]) < 1_000  # what was passed over then

    def test_nothing_is_known_of_a_new_conversation(self, format: str):
        known = with_known_edits(
            said(format, 3), format=format, policy=KEEN, facts=Facts(), memo=Memo()
        )
        assert known is None

    def test_a_retry_is_known_whole(self, format: str):
        memo = Memo()
        sent = compacted(format, said(format, 3), memo=memo)
        again = with_known_edits(
            said(format, 3), format=format, policy=KEEN, facts=Facts(), memo=memo
        )
        assert again is not None
        assert again.compaction.request == sent
        assert again.facts == Facts()

    def test_without_signed_reasoning_the_original_is_the_original(self, format: str):
        body = said(format, 3)
        assert as_it_came(body, format=format).compaction.request == body


def thought(steps: int, model: str = "claude-opus-5-5") -> dict[str, Any]:
    """A conversation with a signed thought before each call."""
    body: dict[str, Any] = {**request("anthropic", "go on", *STEPS[:steps]), "model": model}
    for at, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            thinking = {"type": "thinking", "thinking": f"thought {at}", "signature": "c2ln"}
            message["content"].insert(0, thinking)
    return body


def thoughts(body: dict[str, Any]) -> list[str]:
    return [
        block["thinking"]
        for message in body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "thinking"
    ]


def prefix(body: dict[str, Any]) -> str:
    return prefix_of(ObjectBody(body, []), "anthropic", None)


class TestAsItCame:
    def test_reasoning_signed_for_projections_stays_behind(self):
        body = thought(3)
        fallen = as_it_came(body)
        assert thoughts(fallen.compaction.request) == []
        assert results("anthropic", fallen.compaction.request) == results("anthropic", body)
        assert respool.check(fallen.compaction.request) == []
        assert fallen.facts == Facts(left_alone=frozenset({prefix(body)}))

    def test_what_was_thought_since_stays(self):
        since = as_it_came(thought(3)).facts
        later = as_it_came(thought(5), sent=since).compaction.request
        assert thoughts(later) == ["thought 7", "thought 9"]

    def test_where_reasoning_is_bound_to_itself_all_stays(self):
        body = thought(3, "claude-opus-4-5")
        assert as_it_came(body).compaction.request is body

    def test_nothing_is_mended(self):
        body = request("anthropic", "go on", *STEPS[:2])
        del body[FIELD["anthropic"]][-1]
        assert as_it_came(body).compaction.request is body
