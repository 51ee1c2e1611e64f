"""Reconciliation: reported and replayed bills, and the causes of the difference."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.pricing import Usage
from respool.replay.reconciliation import (
    CLEARED_PART,
    FULL_MISS_CAUSE,
    HEAD_PART,
    HIDDEN_PART,
    HISTORY_MISS_CAUSE,
    LENGTH_CAUSE,
    NEW_TEXT_CAUSE,
    PARTIAL_MISS_CAUSE,
    PRICE_CAUSE,
    SHOWN_PART,
    UNEXPECTED_HIT_CAUSE,
    UNRECORDED_PART,
    WARM_HEAD_CAUSE,
)
from respool.replay.result import ReportedUsage, SessionResult
from respool.replay.runner import ReplayOptions, replay_session
from respool.sessions.session import RecordedRequest, RecordedSession
from tests.effort import examples

MODEL = "claude-opus-4-5"
READ, WRITE, LASTING = 0.1, 1.25, 2.0
MANY = 20_000  # tokens of each result, about
STARTED_AT = 1  # what an agent notes of an answer's length when the answer begins


def history(steps: int, apart: float = 60.0) -> RecordedSession:
    """A session without usage, its requests so many seconds apart."""
    text = "the ledger closes on the last day and its totals are compared " * (MANY // 15)
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Close it."}]}]
    requests: list[RecordedRequest] = []
    for at in range(steps):
        requests.append(RecordedRequest(len(messages), 1.7e9 + apart * at, None, MODEL))
        call = {"type": "tool_use", "id": f"c{at}", "name": "Bash", "input": {"command": f"{at}"}}
        back = {"type": "tool_result", "tool_use_id": f"c{at}", "content": f"{at} {text}"}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [back]})
    return RecordedSession(
        id="s", agent="claude-code", format="anthropic", messages=messages, requests=tuple(requests)
    )


def told(session: RecordedSession, usages: list[Usage | None]) -> RecordedSession:
    """The session with what was reported."""
    pairs = zip(session.requests, usages, strict=True)
    requests = tuple(msgspec.structs.replace(sent, usage=usage) for sent, usage in pairs)
    return msgspec.structs.replace(session, requests=requests)


def replayed(session: RecordedSession) -> SessionResult:
    return replay_session(session, ReplayOptions(("none",)))


def found(session: RecordedSession) -> ReportedUsage:
    recorded = replayed(session).recorded
    assert recorded is not None
    return recorded


def foreseen(session: RecordedSession, lasting: bool = True) -> list[Usage]:
    """Usage just as the replay has it: a few rounds, for the replay learns from usage."""
    usages = [Usage(cache_write=30_000, cache_write_1h=30_000 * lasting)] * len(session.requests)
    for _ in range(4):
        points = replayed(told(session, [*usages])).scores[0].points
        usages = [
            Usage(
                cache_read=point.read,
                cache_write=point.tokens - point.read,
                cache_write_1h=(point.tokens - point.read) * lasting,
                output=STARTED_AT,
            )
            for point in points
        ]
    return usages


@pytest.mark.parametrize("lasting", [True, False])
def test_a_session_charged_as_foreseen_has_nothing_to_explain(lasting: bool) -> None:
    session = history(8)
    recorded = found(told(session, [*foreseen(session, lasting)]))
    assert recorded.requests == 8
    assert recorded.replayed.cost == pytest.approx(recorded.reported.cost, rel=0.001)
    assert recorded.replayed.tokens == pytest.approx(recorded.reported.tokens, rel=0.001)
    written = recorded.replayed.write_1h if lasting else recorded.replayed.write
    assert written == recorded.replayed.tokens - recorded.replayed.read
    for cause, cost in recorded.explained.items():
        assert abs(cost) < 0.001 * recorded.reported.cost, cause
    assert recorded.output == 8 * STARTED_AT
    assert recorded.output_money is not None
    assert recorded.output_money > 0


def all_new(usage: Usage, read: int = 0) -> Usage:
    """The same prompt, of which only so much was read."""
    new = usage.prompt - read
    return Usage(cache_read=read, cache_write=new, cache_write_1h=new, output=usage.output)


@pytest.mark.parametrize(
    ("at", "read", "cause"),
    [
        (4, 0, FULL_MISS_CAUSE),
        (4, 15_000, HISTORY_MISS_CAUSE),
        (7, 80_000, PARTIAL_MISS_CAUSE),
    ],
)
def test_a_read_that_was_not_foreseen_has_its_cause(at: int, read: int, cause: str) -> None:
    session = history(8)
    usages = foreseen(session)
    before = usages[at]
    usages[at] = all_new(before, read)
    recorded = found(told(session, [*usages]))
    more = (LASTING - READ) * (before.cache_read - read)
    assert recorded.explained[cause] == pytest.approx(more, rel=0.05)
    rest = {name: cost for name, cost in recorded.explained.items() if name != cause}
    assert all(abs(cost) < 0.01 * recorded.reported.cost for cost in rest.values()), rest


@pytest.mark.parametrize("read", [20_000, 29_000])
def test_a_start_that_another_conversation_had_cached_is_replayed_so(read: int) -> None:
    session = history(8)
    usages = foreseen(session)
    usages[0] = all_new(usages[0], read)
    recorded = found(told(session, [*usages]))
    assert recorded.warm == read < recorded.head
    assert recorded.replayed.read == pytest.approx(recorded.reported.read, rel=0.001)
    for cause, cost in recorded.explained.items():
        assert abs(cost) < 0.001 * recorded.reported.cost, cause


def test_what_a_first_request_finds_beyond_its_head_was_foreseen_where_others_had_sent_it() -> None:
    session = history(8)
    session = msgspec.structs.replace(session, requests=session.requests[3:])  # as if resumed
    usages = foreseen(session)
    usages[0] = all_new(usages[0], usages[0].prompt)
    recorded = found(told(session, [*usages]))
    assert recorded.warm == recorded.head < usages[0].prompt
    assert recorded.replayed.read == pytest.approx(recorded.reported.read, rel=0.001)
    for cause, cost in recorded.explained.items():
        assert abs(cost) < 0.001 * recorded.reported.cost, cause


def test_what_a_first_request_finds_beyond_its_head_is_a_hit_that_was_not_foreseen() -> None:
    session = history(8)
    usages = foreseen(session)
    usages[0] = all_new(usages[0], usages[0].prompt)  # of a history that nobody had sent
    recorded = found(told(session, [*usages]))
    assert recorded.warm == recorded.head < usages[0].prompt
    assert recorded.replayed.read < recorded.reported.read


def test_a_hit_after_the_entry_should_have_gone() -> None:
    session = history(6, apart=7_200.0)  # every request is too late
    usages = [all_new(usage) for usage in foreseen(session)]
    usages[5] = all_new(usages[5], usages[4].prompt)
    recorded = found(told(session, [*usages]))
    assert recorded.explained[UNEXPECTED_HIT_CAUSE] == pytest.approx(
        (READ - LASTING) * usages[4].prompt, rel=0.05
    )


def test_a_start_found_after_the_entry_should_have_gone_was_anothers() -> None:
    session = history(6, apart=7_200.0)
    usages = [all_new(usage) for usage in foreseen(session)]
    usages[5] = all_new(usages[5], 15_000)
    recorded = found(told(session, [*usages]))
    assert recorded.explained[WARM_HEAD_CAUSE] == pytest.approx((READ - LASTING) * 15_000, rel=0.05)


def test_a_prompt_that_was_cleared_and_found_was_started_by_nobody_else() -> None:
    session = history(8)
    usages = foreseen(session)
    usages[7] = Usage(cache_read=25_000, output=STARTED_AT)
    explained = found(told(session, [*usages])).explained
    assert explained[UNEXPECTED_HIT_CAUSE] < 0
    assert WARM_HEAD_CAUSE not in explained


def test_what_was_written_for_minutes_in_a_lasting_session_has_another_price() -> None:
    session = history(8)
    usages = foreseen(session)
    short = usages[6]
    usages[6] = msgspec.structs.replace(short, cache_write_1h=0)
    recorded = found(told(session, [*usages]))
    assert recorded.explained[PRICE_CAUSE] == pytest.approx(
        (WRITE - LASTING) * short.cache_write, rel=0.01
    )
    assert recorded.reported.write == short.cache_write


def test_what_no_record_shows_makes_prompts_longer() -> None:
    """From the fourth request on, 3,000 tokens of reminders are sent along."""
    session = history(12)
    usages = foreseen(session)
    for at in range(3, 12):
        usage = usages[at]
        new = 3_000 if at == 3 else 0
        usages[at] = msgspec.structs.replace(
            usage,
            cache_read=usage.cache_read + 3_000 - new,
            cache_write=usage.cache_write + new,
            cache_write_1h=usage.cache_write_1h + new,
        )
    recorded = found(told(session, [*usages]))
    assert recorded.made_of[UNRECORDED_PART] == pytest.approx(9 * 3_000, rel=0.05)
    assert recorded.hidden == pytest.approx(9 * 3_000, rel=0.05)
    assert recorded.explained[LENGTH_CAUSE] == pytest.approx(READ * 9 * 3_000, rel=0.05)
    assert recorded.explained[NEW_TEXT_CAUSE] == pytest.approx((LASTING - READ) * 3_000, rel=0.05)


def test_what_the_client_cleared_is_shown_but_was_not_sent() -> None:
    session = history(12)
    usages = foreseen(session)
    for at in range(6, 12):
        usages[at] = all_new(Usage(cache_write=usages[at].prompt - 50_000, output=STARTED_AT))
    recorded = found(told(session, [*usages]))
    assert recorded.made_of[CLEARED_PART] == pytest.approx(-6 * 50_000, rel=0.05)


_TOKENS = st.integers(0, 400_000)
_USAGES = st.lists(
    st.none()
    | st.builds(
        Usage,
        input=_TOKENS,
        cache_read=_TOKENS,
        cache_write=_TOKENS,
        cache_write_1h=_TOKENS,
        output=_TOKENS,
    ),
    min_size=5,
    max_size=5,
)
_FIVE = history(5)


@settings(max_examples=examples(60), deadline=None)
@given(_USAGES)
def test_the_explanations_sum_to_the_difference(usages: list[Usage | None]) -> None:
    """Whatever was reported, sense or not."""
    recorded = replayed(told(_FIVE, usages)).recorded
    reports = [usage for usage in usages if usage is not None and usage.prompt]
    if not reports:
        assert recorded is None
        return
    assert recorded is not None
    assert recorded.requests == len(reports)
    assert recorded.reported.tokens == sum(usage.prompt for usage in reports)
    assert recorded.output == sum(usage.output for usage in reports)
    assert set(recorded.made_of) == {
        HEAD_PART,
        SHOWN_PART,
        HIDDEN_PART,
        UNRECORDED_PART,
        CLEARED_PART,
    }
    assert sum(recorded.made_of.values()) == pytest.approx(recorded.reported.tokens, abs=1)
    assert recorded.made_of[UNRECORDED_PART] >= 0 >= recorded.made_of[CLEARED_PART]
    assert min(recorded.reported.write, recorded.reported.write_1h) >= 0
    difference = recorded.reported.cost - recorded.replayed.cost
    assert sum(recorded.explained.values()) == pytest.approx(difference, abs=1)
    money, dollars = recorded.reported.money, recorded.reported.cost
    assert money is not None
    assert money == pytest.approx(dollars * 5e-6)  # 5 dollars a million on this model


def test_requests_without_a_report_are_left_out_of_both_bills() -> None:
    session = history(6)
    usages: list[Usage | None] = [*foreseen(session)]
    whole = found(told(session, usages))
    usages[5] = None
    part = found(told(session, usages))
    assert part.requests == 5
    assert part.replayed.tokens < whole.replayed.tokens
    assert part.replayed.cost == pytest.approx(part.reported.cost, rel=0.001)


def test_without_any_report_there_is_nothing_to_show() -> None:
    assert replayed(history(3)).recorded is None
    assert replayed(told(history(3), [Usage(output=5)] * 3)).recorded is None


def test_one_request_is_explained_too() -> None:
    recorded = found(told(history(1), [Usage(cache_write=9_000, cache_write_1h=9_000, output=9)]))
    assert recorded.requests == 1
    assert recorded.made_of[HEAD_PART] + recorded.made_of[SHOWN_PART] == pytest.approx(9_000)
    assert recorded.replayed.cost == pytest.approx(recorded.reported.cost)


def test_a_cache_that_only_reads_is_charged_as_it_is() -> None:
    """Codex reports no writes: what is new is plain, and costs the same."""
    items: list[Any] = [{"type": "message", "role": "user", "content": "word " * 3_000}]
    items.append({"type": "message", "role": "assistant", "content": "Done."})
    items.append({"type": "message", "role": "user", "content": "And now?"})
    items.append({"type": "message", "role": "assistant", "content": "Done too."})
    requests = (
        RecordedRequest(1, 1.7e9, Usage(input=8_000, output=5), "gpt-5.4"),
        RecordedRequest(3, 1.7e9 + 60, Usage(input=336, cache_read=7_680, output=5), "gpt-5.4"),
    )
    recorded = found(
        RecordedSession(
            id="s", agent="codex", format="openai-responses", messages=items, requests=requests
        )
    )
    assert recorded.reported.plain == 8_336
    assert recorded.reported.cost == pytest.approx(8_336 + 0.1 * 7_680)
    assert recorded.replayed.cost == pytest.approx(recorded.reported.cost, rel=0.05)
    assert recorded.explained[PRICE_CAUSE] == pytest.approx(0, abs=1)
