"""Requests in which nothing can be compacted: the short way decides as the fold does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import respool
from respool.engine import Session
from respool.errors import RespoolError
from respool.proxy.decide import Decider
from respool.proxy.middleware import Decision
from respool.store import SQLiteStore
from respool.wire.base import FormatName
from tests.proxy.compaction import parsed
from tests.support.formats import FORMATS

HISTORY = {"openai-responses": "input", "gemini": "contents"}
FIELDS: dict[str, dict[str, Any]] = {
    "anthropic": {"model": "claude-opus-4-6", "max_tokens": 99},
    "openai-chat": {"model": "gpt-5.4"},
    "openai-responses": {"model": "gpt-5.4"},
    "gemini": {"systemInstruction": {"parts": [{"text": "be brief"}]}},
}
MODELS: dict[str, str] = {"gemini": "gemini-2.5-pro"}
LONG = "a line of what the user pasted\n" * 300
TEXTS: tuple[Any, ...] = (
    "hello",
    " \n",
    "",
    LONG,
    "x\x1b[31mred\r90 %\r100 %",
    "\ud83d\ude00",
    None,
)
BOUND = {"model": "claude-fable-5.2", "max_tokens": 99, "thinking": {"type": "adaptive"}}


def body_of(format: str, messages: list[Any], fields: dict[str, Any] | None = None) -> bytes:
    held = FIELDS[format] if fields is None else fields
    return json.dumps({**held, HISTORY.get(format, "messages"): messages}).encode()


def spellings(format: str, text: Any) -> Iterator[dict[str, Any]]:
    """Messages that hold one text, or something like it."""
    if format == "gemini":
        yield from ({"parts": [{"text": text}]}, {"parts": [{"text": text}, {"text": "and"}]})
        return
    kind = "input_text" if format == "openai-responses" else "text"
    block = {"type": kind, "text": text}
    contents = (
        text,
        [block],
        [block, block],
        [],
        [{"type": "image", "source": {}}],
        {"text": text},
    )
    for content in contents:
        yield {"content": content}
    yield {"type": "message", "content": text}
    yield {"content": text, "name": "me"}
    yield {"content": [{**block, "cache_control": {"type": "ephemeral"}}]}


def messages_of(format: str) -> list[list[Any]]:
    """Histories of one message, sensible or not, and some of two."""
    roles = ("user", "system", "developer", "assistant", "model", "tool", "function", "")
    found: list[list[Any]] = []
    for role, text in product(roles, TEXTS):
        found += [[{"role": role, **one}] for one in spellings(format, text)]
    hello = next(spellings(format, "hello"))
    found += [[], ["hello"], [hello], [{"role": "user", **hello}] * 2]
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_plain_goes_out_as_it_came_and_is_counted_alike(format: FormatName):
    policies = [
        respool.Policy(reevaluate_tokens=1, reevaluate_ratio=0.0),
        respool.Policy(eager=True, keep_exchanges=0, reevaluate_tokens=1, reevaluate_ratio=0.0),
        respool.Policy.preset("lean"),
    ]
    plain = 0
    for messages, policy in product(messages_of(format), policies):
        session, body = Session(), body_of(format, messages)
        try:
            history = session.parse(body, format, MODELS.get(format))
            found = history.plain(policy)
        except RespoolError:
            continue
        if found is None:
            continue
        plain += 1
        folded = session.fold(history, policy, respool.Facts())
        sent, repairs = session.project(folded, body)
        assert sent is body
        assert not repairs
        assert not folded.edits
        assert not folded.failures
        assert folded.boundaries == [found.prefix]
        assert (folded.tokens_before, folded.tokens_after) == (found.tokens, found.tokens)
        assert (folded.head_tokens, folded.output) == (found.head, found.output)
        assert folded.client_cached_tokens() == found.head
        assert folded.is_bound == found.is_bound
        assert (folded.epochs, folded.results, folded.waiting) == (0, 0, (0, 0))
        assert not folded.repeat_cells()
        assert not folded.called_tools()
    assert plain >= 12  # texts of the user that are not blank


def test_a_policy_that_may_change_any_request_leaves_none_plain():
    def own(view: Any, policy: respool.Policy) -> Iterator[Any]:
        yield from ()

    hello = body_of("anthropic", [{"role": "user", "content": "hello"}])
    history = Session().parse(hello, "anthropic")
    assert history.plain(respool.Policy()) is not None
    for policy in (
        respool.Policy(budget=2_000),
        respool.Policy(rendering="text"),
        respool.Policy(passes=("cap_results", own)),
    ):
        assert history.plain(policy) is None


def without_edition(decision: Decision | None) -> Decision | None:
    return None if decision is None else replace(decision, edition=0, body=None)


@pytest.mark.parametrize("fields", [FIELDS["anthropic"], BOUND])
@pytest.mark.parametrize("observe", [False, True])
def test_the_short_way_decides_as_the_long_one(
    tmp_path: Path, fields: dict[str, Any], observe: bool
):
    decider = Decider(respool.Policy(), SQLiteStore(tmp_path / "store.db"), observe=observe)
    body = body_of("anthropic", [{"role": "user", "content": "Which files are there?"}], fields)
    request = parsed(body, "anthropic", None, "me", 1_800_000_000.0)
    first = decider.decide(request)  # defines the tools
    decider.note_accepted(request, first)
    long = decider.decide(request)
    assert without_edition(decider.decide_immediately(request)) == without_edition(long)
    known = decider._conversations.get(long.identity.conversation)
    assert known is not None
    is_bound = fields is BOUND
    assert known.lineage.is_in_flight(long.identity.prefix, object()) == (is_bound and not observe)


def test_a_conversation_with_a_fact_is_not_decided_on_the_short_way(tmp_path: Path):
    decider = Decider(respool.Policy(), SQLiteStore(tmp_path / "store.db"))
    body = body_of("anthropic", [{"role": "user", "content": "Which files are there?"}], BOUND)
    request = parsed(body, "anthropic", None, "me", 1_800_000_000.0)
    assert decider.decide(request).kind == "projection"
    decider.decide_original(request, "bypassed")  # this boundary is skipped from now on
    assert decider.decide_immediately(request) is None
    assert decider.decide(request).reason == "sent unchanged before"
