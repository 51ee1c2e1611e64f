"""Calibration: what it learns from usage, and what it refuses to learn from."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.pricing import MIN_SAMPLES, Growth, Usage, calibrations
from respool.replay.prompt_cache import HOUR, MINUTES, CharacterMeasure
from respool.replay.reconciliation import (
    FRAMING,
    TOKENS_PER_SIGNATURE_CHAR,
    Framing,
    UsageEvidence,
    calibrated_measure,
    drops_reasoning,
    infer_evidence,
)
from respool.replay.recording import DEFAULT_HEAD_TOKENS, infer_cache_lifetime, infer_head_tokens
from respool.replay.result import SessionResult
from respool.replay.runner import ReplayOptions, choose_measure, replay_session
from respool.sessions.session import RecordedRequest, RecordedSession
from respool.tokens import EstimateCounter, ExactCounter
from tests.effort import examples

MODEL = "claude-opus-4-7"
AROUND = FRAMING["claude"]
WORDS = "the ledger closes on the last day and its totals are compared line by line "


def counted(text: str) -> int:
    return EstimateCounter("claude").count(text)


def conversation(
    steps: int,
    *,
    head: int = 30_000,
    factor: float = 1.5,
    hidden: int = 0,  # tokens of each answer's reasoning
    sealed: bool = True,  # whether its signature is in the record
    started: bool = False,  # whether usage holds only the first tokens of an answer
    thought: str = "",
    model: str = MODEL,
    length: int = 40,
) -> RecordedSession:
    """A session of Claude Code's whose usage is as a tokenizer with this factor would have it."""
    ask = WORDS * 3
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": ask}]}]
    requests: list[RecordedRequest] = []
    prompt = head + factor * counted(ask)
    for at in range(steps):
        command, result = f"run {at}", f"{at} " + WORDS * (length + at % 7)
        said = counted('{"command":"' + command + '"}') + counted("Bash") + counted(thought)
        output = factor * said + AROUND.call + hidden
        usage = Usage(cache_write=round(prompt), output=3 if started else round(output))
        requests.append(RecordedRequest(len(messages), 60.0 * at, usage, model))
        blocks: list[Any] = []
        if hidden or thought:
            signature = (
                "s" * round((hidden + factor * counted(thought)) / TOKENS_PER_SIGNATURE_CHAR)
                if sealed
                else ""
            )
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
        blocks.append(
            {"type": "tool_use", "id": f"c{at}", "name": "Bash", "input": {"command": command}}
        )
        messages.append({"role": "assistant", "content": blocks})
        back = {"type": "tool_result", "tool_use_id": f"c{at}", "content": result}
        messages.append({"role": "user", "content": [back]})
        prompt += output + factor * counted(result) + AROUND.result
    return RecordedSession(
        id="s", agent="claude-code", format="anthropic", messages=messages, requests=tuple(requests)
    )


def known(session: RecordedSession) -> UsageEvidence:
    evidence = infer_evidence(session)
    assert evidence is not None
    return evidence


def predicted(session: RecordedSession) -> list[tuple[int, int]]:
    """Prompts as they are replayed, and as they were reported."""
    points = replay_session(session, ReplayOptions(("none",))).scores[0].points
    reported = [sent.usage.prompt for sent in session.requests if sent.usage]
    return list(zip((point.tokens for point in points), reported, strict=True))


@settings(max_examples=examples(40), deadline=None)
@given(st.floats(0.8, 2.5), st.integers(0, 60_000), st.integers(MIN_SAMPLES + 1, 20), st.booleans())
def test_factor_and_head_are_found(factor: float, head: int, steps: int, started: bool) -> None:
    session = conversation(steps, head=head, factor=factor, started=started)
    evidence = known(session)
    assert evidence.scale.factor == pytest.approx(factor, rel=0.01)
    assert evidence.scale.growth_count == steps - 1
    assert evidence.scale.tokens_per_thought == 0
    measure = calibrated_measure(evidence, "claude")
    assert infer_head_tokens(session, measure) == pytest.approx(head, abs=5)
    for replayed, reported in predicted(session):
        assert replayed == pytest.approx(reported, rel=0.01, abs=5)


@settings(max_examples=examples(40), deadline=None)
@given(st.floats(1.0, 2.0), st.integers(50, 3_000), st.integers(MIN_SAMPLES + 1, 15), st.booleans())
def test_hidden_reasoning_is_found(factor: float, hidden: int, steps: int, shown: bool) -> None:
    """By what was reported of the answers, whether or not something of it is shown."""
    thought = "First the totals, then the lines." if shown else ""
    session = conversation(steps, factor=factor, hidden=hidden, thought=thought)
    evidence = known(session)
    assert evidence.scale.factor == pytest.approx(factor, rel=0.01)
    assert evidence.scale.tokens_per_thought == pytest.approx(hidden, rel=0.02, abs=3)
    assert evidence.thoughts == tuple(range(steps))
    assert evidence.hidden[-1] == pytest.approx(hidden * (steps - 1), rel=0.02, abs=3 * steps)
    for replayed, reported in predicted(session):
        assert replayed == pytest.approx(reported, rel=0.01, abs=5)


def test_a_signature_tells_where_only_an_answers_start_was_counted() -> None:
    session = conversation(12, factor=1.65, hidden=800, started=True)
    evidence = known(session)
    assert evidence.growths == ()  # nothing tells the reasoning from the results
    assert evidence.scale.factor == 1.0
    assert evidence.scale.tokens_per_thought == pytest.approx(800, rel=0.02)


def test_nothing_is_made_up_where_neither_tells() -> None:
    session = conversation(12, hidden=800, started=True, sealed=False)
    assert known(session).scale.tokens_per_thought == 0


def test_reasoning_that_is_shown_whole_hides_nothing() -> None:
    thought = WORDS * 2
    session = conversation(12, factor=1.5, thought=thought, started=True)
    evidence = known(session)
    assert evidence.scale.tokens_per_thought == 0
    assert evidence.scale.factor == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-4-5-20251101", False),
        ("claude-opus-4-1", True),
        ("claude-sonnet-4-5", True),
        ("claude-sonnet-4-6", False),
        ("claude-haiku-4-5", True),
        ("claude-fable-5", False),
        ("gpt-5.5", True),
        ("gpt-5.6-sol", False),
        ("o3", True),
        ("qwen3-coder", False),
        ("a-model-of-their-own", False),
        (None, False),
    ],
)
def test_which_models_forget_their_reasoning(model: str | None, expected: bool) -> None:
    assert drops_reasoning(model) is expected


def test_forgotten_reasoning_is_in_no_later_prompt() -> None:
    """Two turns with hidden reasoning, then the user speaks: on such a model it is gone."""
    exact = ExactCounter()
    texts = ["Close the month.", "Now the year.", "Well."]
    items: list[Any] = []
    requests: list[RecordedRequest] = []
    for at, text in enumerate(texts):
        items.append({"type": "message", "role": "user", "content": text})
        answer = f"Done with part {at}."
        usage = Usage(input=1_000 + at, output=exact.count(answer) + 500)
        requests.append(RecordedRequest(len(items), None, usage, "gpt-5.4"))
        items.append({"type": "reasoning", "summary": []})
        items.append({"type": "message", "role": "assistant", "content": answer})
    session = RecordedSession(
        id="s", agent="codex", format="openai-responses", messages=items, requests=tuple(requests)
    )
    assert known(session).hidden == (0.0, 0.0, 0.0)
    kept = [msgspec.structs.replace(sent, model="gpt-5.6") for sent in requests]
    later = msgspec.structs.replace(session, requests=tuple(kept))
    assert known(later).hidden == pytest.approx((0, 500, 1_000), abs=10)


# --- what nothing is learnt from ---------------------------------------------------------------


def without_usage(session: RecordedSession) -> RecordedSession:
    bare = tuple(msgspec.structs.replace(sent, usage=None) for sent in session.requests)
    return msgspec.structs.replace(session, requests=bare)


def test_without_usage_the_family_counts() -> None:
    session = without_usage(conversation(10))
    assert infer_evidence(session) is None
    result = replay_session(session, ReplayOptions(("none",)))
    assert result.recorded is None
    assert result.samples == ()
    first = counted(WORDS * 3)
    assert result.scores[0].points[0].tokens == pytest.approx(
        DEFAULT_HEAD_TOKENS["claude-code"] + first, abs=2
    )


def test_usage_of_zero_teaches_nothing() -> None:
    session = conversation(10)
    zero = tuple(msgspec.structs.replace(sent, usage=Usage()) for sent in session.requests)
    session = msgspec.structs.replace(session, requests=zero)
    evidence = known(session)
    assert evidence.growths == ()
    assert evidence.scale.factor == 1.0
    assert replay_session(session, ReplayOptions(("none",))).recorded is None


def test_one_request_tells_the_head_only() -> None:
    session = conversation(1, head=25_000, factor=1.0)
    evidence = known(session)
    assert evidence.growths == ()
    assert evidence.scale.growth_count == 0
    assert infer_head_tokens(session, calibrated_measure(evidence, "claude")) == pytest.approx(
        25_000, abs=5
    )


def test_few_growths_are_kept_and_not_used() -> None:
    evidence = known(conversation(MIN_SAMPLES, factor=1.2))
    assert len(evidence.growths) == MIN_SAMPLES - 1
    assert evidence.scale.factor == 1.0


def test_a_factor_that_is_no_tokenizers_is_not_used() -> None:
    evidence = known(conversation(12, factor=9.0))
    assert evidence.scale.factor == 1.0
    assert evidence.scale.growth_count == 0


def with_request(session: RecordedSession, at: int, **changes: Any) -> RecordedSession:
    changed = list(session.requests)
    changed[at] = msgspec.structs.replace(changed[at], **changes)
    return msgspec.structs.replace(session, requests=tuple(changed))


def with_picture(session: RecordedSession) -> RecordedSession:
    messages = list(session.messages)
    source = {"type": "url", "url": "https://example.org/a.png"}
    content = [*messages[2]["content"], {"type": "image", "source": source}]
    messages[2] = {**messages[2], "content": content}
    return msgspec.structs.replace(session, messages=messages)


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        (lambda session: with_request(session, 3, usage=None), 2),
        (lambda session: with_request(session, 3, model="claude-opus-4-8"), 2),
        (lambda session: with_request(session, 9, usage=Usage(input=10)), 1),  # it was cleared
        (with_picture, 1),
    ],
)
def test_growth_that_something_else_made_is_left_out(changed: Any, lost: int) -> None:
    session = conversation(10)
    assert len(known(changed(session)).growths) == len(known(session).growths) - lost


def test_short_growth_is_left_out() -> None:
    assert known(conversation(10, length=1)).growths == ()


def test_unseen_reminders_do_not_move_the_factor() -> None:
    """A third of the requests bring 2,000 tokens that no record shows."""
    session = conversation(30, factor=1.5)
    beside = 0
    requests: list[RecordedRequest] = []
    for at, sent in enumerate(session.requests):
        assert sent.usage is not None
        beside += 2_000 if at % 3 == 2 else 0
        usage = Usage(cache_write=sent.usage.prompt + beside, output=sent.usage.output)
        requests.append(msgspec.structs.replace(sent, usage=usage))
    session = msgspec.structs.replace(session, requests=tuple(requests))
    assert known(session).scale.factor == pytest.approx(1.5, rel=0.02)


# --- many sessions -----------------------------------------------------------------------------


def test_models_are_calibrated_apart_and_the_best_known_comes_first() -> None:
    samples = [Growth("b", 1_000, 1_500)] * 5 + [Growth("a", 1_000, 1_200)] * 7
    found = calibrations(samples)
    assert [(one.model, one.factor, one.requests) for one in found] == [
        ("a", 1.2, 7),
        ("b", 1.5, 5),
    ]


def test_a_few_growths_bound_nothing() -> None:
    assert calibrations([]) == calibrations([Growth("m", 1_000, 1_500)] * 4) == ()


@given(st.lists(st.integers(500, 3_000), min_size=5, max_size=200))
def test_bounds_hold_nine_in_ten(reported: list[int]) -> None:
    (found,) = calibrations(Growth("m", 1_000, one) for one in reported)
    inside = [found.low <= one / 1_000 <= found.high for one in reported]
    assert sum(inside) >= 0.89 * len(inside) - 1
    assert found.low <= found.factor <= found.high


def test_long_growths_count_for_more() -> None:
    samples = [Growth("m", 400, 1_200)] * 4 + [Growth("m", 20_000, 24_000)]
    assert calibrations(samples)[0].factor == 1.2


def test_a_long_session_keeps_few_growths() -> None:
    evidence = known(conversation(300, length=22))
    assert 0 < len(evidence.growths) <= 64
    assert evidence.scale.growth_count == 299


# --- how it is used ----------------------------------------------------------------------------


def test_plain_counting_is_as_it_was() -> None:
    session = conversation(10)
    options = ReplayOptions(("none",), plain=True)
    assert isinstance(choose_measure(session, options, infer_evidence(session)), CharacterMeasure)
    result = replay_session(session, options)
    assert result.samples == ()
    length = sum(len(message["content"][0].get("text", "")) for message in session.messages[:1])
    first = session.requests[0].usage
    assert first is not None
    assert result.recorded is not None
    assert result.recorded.head == first.prompt - (length + 3) // 4


def test_openai_keeps_its_exact_counter() -> None:
    evidence = known(conversation(10, factor=1.5))
    assert calibrated_measure(evidence, "openai").name.startswith("o200k")
    assert calibrated_measure(evidence, "claude").name.startswith("estimate")


def test_no_framing_is_made_up_for_other_families() -> None:
    session = conversation(10, model="qwen3-coder")
    assert known(session).scale.framing == Framing()


def test_results_cross_processes_with_their_samples() -> None:
    result = replay_session(conversation(10), ReplayOptions(("none",)))
    assert result.samples
    assert pickle.loads(pickle.dumps(result)) == result
    assert msgspec.json.decode(msgspec.json.encode(result), type=SessionResult) == result


@pytest.mark.parametrize(
    ("written", "lasting", "expected"),
    [(100, 100, HOUR), (100, 60, HOUR), (100, 10, MINUTES), (100, 0, MINUTES), (0, 0, 0.0)],
)
def test_the_lifetime_is_that_of_most_that_was_written(
    written: int, lasting: int, expected: float
) -> None:
    usage = Usage(input=5, cache_write=written, cache_write_1h=lasting)
    session = with_request(conversation(1), 0, usage=usage)
    assert infer_cache_lifetime(session) == expected
