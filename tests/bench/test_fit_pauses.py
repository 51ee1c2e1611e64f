"""The table of chances that a silent conversation goes on."""

from __future__ import annotations

from typing import Literal

from bench.fit_pauses import Pause, chances, session_pauses
from tests.replay.support import call, result, session_of, text, user

END = float("inf")


def many(kind: Literal["user", "tool"], seconds: float, count: int) -> list[Pause]:
    return [(kind, seconds) for _ in range(count)]


def test_chances_are_shares_of_the_silent_ones() -> None:
    pauses: list[Pause] = many("user", 10.0, 50) + many("user", 400.0, 30) + many("user", 700.0, 10)
    pauses += many("user", END, 60) + many("tool", 400.0, 9)
    # Silent after 270 seconds: 100, of which 30 came by 540; then 70, of which 10 came by 810.
    assert chances(pauses, "user", 300.0) == [0.3, 0.143]
    assert chances(pauses, "tool", 300.0) == [1.0]


def test_a_chance_that_would_rise_is_pooled_with_the_one_before() -> None:
    pauses: list[Pause] = many("user", 400.0, 10) + many("user", 700.0, 45) + many("user", END, 45)
    assert chances(pauses, "user", 300.0) == [0.289, 0.289]  # 55 of 190


def test_pauses_of_a_session_end_with_its_end() -> None:
    messages = [user(text("go")), call("a"), user(result("a", "x"))]
    messages += [{"role": "assistant", "content": [text("done")]}, user(text("more"))]
    session = session_of("anthropic", messages, gap=60.0)
    assert list(session_pauses(session, frozenset())) == [
        ("tool", 60.0),
        ("user", 60.0),
        ("user", END),
    ]
    assert list(session_pauses(session, frozenset({0, 1}))) == [("user", END)]
