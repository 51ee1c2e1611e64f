"""Session length benchmark: requests until full, changed files and open errors."""

from __future__ import annotations

from typing import Any

import pytest

import respool
from bench.session_length import (
    Chain,
    Contained,
    Follower,
    chained,
    changed_files,
    follow,
    open_errors,
    point_at,
    policy_of,
    rejected,
    renamed,
)
from respool.replay.prompt_cache import CharacterMeasure
from respool.sessions.session import RecordedRequest, RecordedSession
from tests.replay.support import call, result, text, user

LINES = "\n".join(f"thread_{n} = spool.turn({n})" for n in range(60))
NOTHING = respool.Policy(passes=())
FOLDING = respool.Policy(passes=("fold_exchanges",), budget=8_000)
ERROR = "loom.c:7: error: no spool"


def worked(count: int, name: str) -> list[Any]:
    """The steps of one session: each reads a file, and writes another one."""
    steps = [
        (call(f"r{n}", "Read", file_path=f"/w/{name}/reed_{n}.py"), result(f"r{n}", LINES))
        for n in range(count)
    ]
    wrote = [
        (
            call(f"w{n}", "Write", file_path=f"/w/{name}/heddle_{n}.py", content="x"),
            result(f"w{n}", "File created successfully"),
        )
        for n in range(count)
    ]
    failed = (
        call("f", "Bash", command=f"make {name}"),
        result("f", f"Exit code 2\n{ERROR} {name}"),
    )
    return [one for pair in zip(steps, wrote, strict=True) for one in pair] + [failed]


def session(name: str, count: int = 4, *, ends: bool = True) -> RecordedSession:
    """A session of so many reads and writes; one that does not end asks for what never came."""
    messages: list[Any] = [user(text(f"Please mend {name}."))]
    for asked, answer in worked(count, name):
        messages += [asked, user(answer)]
    cuts = tuple(RecordedRequest(at + 1) for at in range(0, len(messages), 2))
    last = {"role": "assistant", "content": [text("Done.")]} if ends else call("never", "Bash")
    return RecordedSession(
        id=name, agent="claude-code", format="anthropic", messages=[*messages, last], requests=cuts
    )


def followed(chain: Chain, policy: respool.Policy, upto: int | None = None) -> Follower:
    follower = Follower(chain, policy, CharacterMeasure(), 0)
    for number in range(len(chain.requests) if upto is None else upto):
        follower.send(number)
    return follower


def test_ids_are_renamed_and_what_calls_say_is_not() -> None:
    asked = call("a", "Edit", call_id="a")
    assert renamed(asked, "_1")["content"][0] | {"input": {}} == {
        **asked["content"][0],
        "id": "a_1",
        "input": {},
    }
    assert renamed(asked, "_1")["content"][0]["input"] == {"call_id": "a"}
    assert renamed(result("a", "id"), "_1")["tool_use_id"] == "a_1"
    item = {"type": "function_call", "id": "fc", "call_id": "c", "arguments": '{"id": "c"}'}
    assert renamed(item, "_2") == {**item, "id": "fc_2", "call_id": "c_2"}


@pytest.mark.parametrize("ends", [True, False])
def test_a_joint_is_valid(ends: bool) -> None:
    chain = chained([session("loom", ends=ends), session("spool", ends=ends)])
    assert rejected("anthropic", chain.messages) == []
    assert chain.ends[-1] == len(chain.requests) == (20 if ends else 18)
    cut = chain.requests[chain.ends[0]].cut
    assert chain.messages[cut - 1] == user(text("Please mend spool."))
    ids = [
        block["id"]
        for one in chain.messages
        if one["role"] == "assistant"
        for block in one["content"]
        if block["type"] == "tool_use"
    ]
    assert len(ids) == len(set(ids))


def test_a_system_prompt_is_not_said_twice() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi."}]
    one = RecordedSession(
        id="a",
        agent="opencode",
        format="openai-chat",
        messages=messages,
        requests=(RecordedRequest(2),),
    )
    chain = chained([one, one])
    assert [message["role"] for message in chain.messages] == ["system", "user", "user"]
    assert [sent.cut for sent in chain.requests] == [2, 3]


def test_files_that_were_changed_and_errors_that_are_open() -> None:
    state = followed(chained([session("loom", 2)]), NOTHING).state
    assert changed_files(state) == {"/w/loom/heddle_0.py": True, "/w/loom/heddle_1.py": True}
    assert open_errors(state) == [f"{ERROR} loom"]


def test_an_error_is_open_until_the_same_succeeds() -> None:
    repaired = [call("again", "Bash", command="make loom"), user(result("again", "made"))]
    broken = session("loom", 1)
    messages = [*broken.messages[:-1], *repaired]
    cuts = (*broken.requests, RecordedRequest(len(messages)))
    chain = chained(
        [
            RecordedSession(
                id="loom", agent="claude-code", format="anthropic", messages=messages, requests=cuts
            )
        ]
    )
    assert open_errors(followed(chain, NOTHING, -1 + len(cuts)).state) == [f"{ERROR} loom"]
    assert open_errors(followed(chain, NOTHING).state) == []


def test_all_is_told_where_nothing_is_taken_out() -> None:
    follower = followed(chained([session("loom"), session("spool")]), NOTHING)
    point, missing = point_at(follower, 0)
    assert (point.edited, point.errors, missing) == (Contained(8, 8), Contained(2, 2), ())
    assert follower.tokens == follower.raw


def forget(view: Any, policy: respool.Policy) -> Any:
    """Say of every old result, and of every call, that it was something."""
    from respool.edits import DropExchange, Offer

    for exchange in view.aged_exchanges():
        if exchange.result is not None:
            ref, saved = view.transcript.parts[exchange.call].ref, view.tokens_of(exchange.call)
            yield Offer("drop", DropExchange(exchange.ordinal, ref, "forgotten", "", saved))


def test_what_is_gone_is_missed() -> None:
    policy = respool.Policy(
        passes=(forget,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        errors_verbatim=False,
        eager=True,
        keep_exchanges=0,
    )
    follower = followed(chained([session("loom"), session("spool")]), policy)
    point, missing = point_at(follower, 0)
    assert point.edited.of == 8
    assert point.edited.told < 8
    assert "/w/loom/heddle_0.py" in missing


def test_a_session_lasts_until_its_projection_is_full() -> None:
    chain = chained([session(f"loom{n}", 6) for n in range(16)])
    plain = follow(chain, NOTHING, CharacterMeasure(), 1_000, 12_000)
    assert plain is not None
    assert (plain.n1, plain.ratio, plain.why) == (plain.n0, 1.0, "full")
    longer = follow(chain, FOLDING, CharacterMeasure(), 1_000, 12_000)
    assert longer is not None
    assert longer.n0 == plain.n0
    assert longer.ratio >= 3
    assert longer.peak <= 12_000
    assert (longer.invalid, longer.failures) == ((), {})
    assert (longer.edited.share, longer.errors.share) == (1.0, 1.0)


def test_what_never_fills_the_window_is_not_counted() -> None:
    assert follow(chained([session("loom")]), NOTHING, CharacterMeasure(), 0, 1_000_000) is None


def test_a_policy_without_a_budget_gets_the_windows() -> None:
    assert policy_of("budget", 200_000).budget == 180_000
    assert policy_of("safe", 100_000).budget == 80_000
