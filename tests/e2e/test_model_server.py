"""A real model server reads, renders, answers and caches what respool sends.

The server is one that we did not write, with a template as strict as any (tests/e2e).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import respool
from respool.providers.registry import PROVIDERS
from tests.e2e.conversations import ASK, BROKEN, HEADS, MORE, conversation, fit, growing
from tests.e2e.model_process import CONTEXT
from tests.e2e.model_server import WIRES, ModelServer
from tests.effort import examples
from tests.laws.subject import EAGER
from tests.strategies import HISTORY, conversations, render
from tests.strategies.neutral import Conversation, moments

pytestmark = pytest.mark.e2e

wires = pytest.mark.parametrize("format", WIRES)
SAMPLE = settings(
    max_examples=examples(60),
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Behind the common part of two prompts: what opens the answer, and the token that came of it.
MARGIN = 8


def errors(request: dict[str, Any], format: str) -> list[str]:
    """Errors that check reports for a request."""
    return [str(p) for p in respool.check(request, format=format) if p.severity == "error"]


def projections(request: dict[str, Any], format: str) -> list[dict[str, Any]]:
    """The request, and what the default and the most eager policy make of it, each once."""
    outs = [
        request,
        *(respool.compact(request, format=format, policy=p).request for p in (None, EAGER)),
    ]
    return [one for at, one in enumerate(outs) if one not in outs[:at]]


# The template, which is ours: that it shows what it should, and refuses what it should.


def test_tools_calls_and_results_are_rendered(server: ModelServer) -> None:
    request = render("openai-chat", conversation())
    prompt = server.rendered(request)
    assert prompt.count("<tools>") == 1
    assert prompt.count("<tool_call>") == 4
    assert prompt.count("<tool_response>") == 4
    assert '{"name": "Bash", "arguments": {"command": "make 1"}}' in prompt
    assert "15: def wind_15(spool)" in prompt
    shorter = server.rendered(respool.compact(request, policy=EAGER).request)
    assert shorter.count("<tool_response>") == 4
    assert len(shorter) < len(prompt)


SAID = {"role": "assistant", "content": "Mended."}
NOTE = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    "messages",
    [[ASK, MORE], [SAID, ASK], [ASK, SAID, SAID, ASK], [ASK, NOTE, SAID, ASK]],
    ids=["user twice", "assistant first", "assistant twice", "late system"],
)
def test_roles_must_alternate(server: ModelServer, messages: list[Any]) -> None:
    answer = server.answer("openai-chat", {**HEADS["openai-chat"], "messages": messages})
    assert not answer.accepted


# Whole histories.


@wires
def test_a_conversation_is_read_at_every_moment_and_answered(
    server: ModelServer, format: str
) -> None:
    whole = fit(format, conversation())
    for moment in moments(whole):
        for request in projections(render(format, moment), format):
            assert server.read(format, request).accepted
    for request in projections(render(format, whole), format):
        answer = server.answer(format, request)
        assert answer.accepted, answer.error


@wires
def test_whole_histories_are_read(server: ModelServer, format: str) -> None:
    """Read, rendered and counted, without running the model: that takes many histories."""
    shorter = 0

    @SAMPLE
    @given(conversations())
    def run(whole: Conversation) -> None:
        nonlocal shorter
        request = render(format, fit(format, whole))
        assert errors(request, format) == []
        for projection in projections(request, format):
            answer = server.read(format, projection)
            assert answer.accepted, (answer.error, projection)
            shorter += projection is not request

    run()
    assert shorter >= SAMPLE.max_examples // 2, "hardly a history was compacted"


# Histories told in plain messages: the strict template refuses roles that do not alternate.


@wires
@pytest.mark.parametrize("style", ["text", "text-only", "rfc013"])
def test_plain_messages_are_read_and_answered(server: ModelServer, format: str, style: str) -> None:
    whole = fit(format, conversation())
    policy = respool.Policy().replace(rendering=style)
    for moment in moments(whole):
        out = respool.compact(render(format, moment), format=format, policy=policy).request
        assert server.read(format, out).accepted
    request = render(format, whole)
    out = respool.compact(request, format=format, policy=policy).request
    assert server.answer(format, out).accepted
    if format == "openai-chat":
        prompt = server.rendered(out)
        assert "<tool_call>" not in prompt
        assert "<tool_response>" not in prompt
        assert ("<tools>" in prompt) == (style != "text-only")
        assert "15: def wind_15(spool)" in prompt


# Broken histories.


@pytest.mark.parametrize(
    ("format", "name"), [(format, name) for format in WIRES for name in BROKEN[format]]
)
def test_broken_histories_are_refused_until_repaired(
    server: ModelServer, format: str, name: str
) -> None:
    broken = {**HEADS[format], HISTORY[format]: BROKEN[format][name]}
    assert errors(broken, format)
    refused = server.answer(format, broken, roles_may_repeat=True)
    assert not refused.accepted
    repaired = respool.repair(broken, format=format).request
    assert errors(repaired, format) == []
    # A result that answers no call is told by the user, perhaps next to what else the user says:
    # the providers take that, and only the strictest templates (T2) do not.
    answer = server.answer(format, repaired, roles_may_repeat=True)
    assert answer.accepted, answer.error


def test_the_judge_can_fail() -> None:
    assert all(len(BROKEN[format]) >= 10 for format in WIRES)


# The cache.


@wires
def test_the_cache_keeps_what_lies_between_epochs(server: ModelServer, format: str) -> None:
    """Whatever was sent before is read from the cache, until an epoch; then what lies before it."""
    outs = [
        respool.compact(request, format=format, policy=EAGER)
        for request in growing(format, (2, 20, 1, 1))
    ]
    answers = [server.answer(format, out.request) for out in outs]
    kept: list[bool] = []
    for (before, after), (sent, answer) in zip(pairwise(outs), pairwise(answers), strict=True):
        assert answer.accepted, answer.error
        if before.report.epochs == after.report.epochs:
            assert answer.cached >= sent.prompt - MARGIN
        else:
            common = shared_tokens(server, format, before.request, after.request)
            assert common - MARGIN <= answer.cached < sent.prompt - 100
        kept.append(before.report.epochs == after.report.epochs)
    assert kept == [True, True, False, True]


def shared_tokens(
    server: ModelServer, format: str, one: dict[str, Any], other: dict[str, Any]
) -> int:
    """The tokens of the whole exchanges that two requests have in common, by the server's count."""
    field = HISTORY[format]
    pairs = zip(one[field], other[field], strict=False)
    same = next(at for at, (left, right) in enumerate(pairs) if left != right)
    while PROVIDERS[format].codec.is_model_made(one[field][same - 1]):  # type: ignore[index]
        same -= 1
    return server.read(format, {**one, field: one[field][:same]}).body["input_tokens"]


# The window.


@wires
def test_a_history_that_does_not_fit_is_refused_until_compacted(
    server: ModelServer, format: str
) -> None:
    requests = growing(format, (200, 1))
    whole = server.answer(format, requests[-1])
    assert whole.status == 400
    assert whole.error["type"] == "exceed_context_size_error"
    assert whole.error["n_prompt_tokens"] > whole.error["n_ctx"] == CONTEXT
    out = respool.compact(requests[-1], format=format, policy=EAGER)
    answer = server.answer(format, out.request)
    assert answer.accepted, answer.error
    assert answer.prompt < CONTEXT
    assert out.report.tokens_after < out.report.tokens_before
