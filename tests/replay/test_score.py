"""Scores: bills and losses worked out by hand, and laws over any history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import respool
from respool.errors import PolicyError
from respool.pricing import CacheTerms
from respool.providers.registry import PROVIDERS, check_request
from respool.replay.cost_breakdown import break_down_cost
from respool.replay.policies import ProjectionSender, sender_factory
from respool.replay.prompt_cache import CharacterMeasure
from respool.replay.recording import BillingConditions, Recording, infer_conditions
from respool.replay.result import PolicyScore
from respool.replay.score import ValidityChecker, score_policy
from respool.wire.base import FORMATS
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.providers.signing_provider import BOUND, OTHER_BOUND
from tests.providers.signing_provider import OTHER_UNBOUND as OTHER
from tests.providers.signing_provider import UNBOUND as ONE
from tests.replay.support import call, cuts_in, recording_of, result, session_of, text, user
from tests.strategies import broken, histories

LINE = "def the_function_that_matters(argument_one):"
LONG = "\n".join([LINE, *(f"filler line number {n} of the file" for n in range(200))])
SESSION = [
    user(text("please fix src/fault.py")),
    call("c1", path="src/fault.py"),
    user(result("c1", LONG)),
    call("c2", path="src/other.py"),
    user(result("c2", "nothing here")),
    call("c3", name="Edit", path="src/fault.py", old=LINE, new="pass"),
    user(result("c3", "done")),
]
POLICIES = ("none", "safe", "mask-1", "mask-10", "clear-0k-1", "oracle", "floor")


def run(name: str, recording: Recording) -> PolicyScore:
    return score_policy(recording, sender_factory(name)(recording), name)


def tokens(*texts: str) -> int:
    return sum((len(one) + 3) // 4 for one in texts)


def test_the_bill_of_a_session_that_nobody_compacts() -> None:
    got = run("none", recording_of("anthropic", SESSION, head=1000))
    first = 1000 + tokens("please fix src/fault.py")
    second = tokens('Read {"path": "src/fault.py"}', LONG)
    third = tokens('Read {"path": "src/other.py"}', "nothing here")
    arguments = f'{{"path": "src/fault.py", "old": "{LINE}", "new": "pass"}}'
    fourth = tokens(f"Edit {arguments}", "done")
    assert got.bill.read == first + (first + second) + (first + second + third)
    assert got.bill.write_1h == first + second + third + fourth
    assert got.bill.cost == pytest.approx(0.1 * got.bill.read + 2 * got.bill.write_1h)
    assert got.all_in == got.bill.cost
    assert (got.lost_turns, got.breaks, got.invalid) == (0, (), ())
    assert got.peak == first - 1000 + second + third + fourth
    assert [point.tokens for point in got.points][-1] == got.peak + 1000


def test_a_lost_turn_asks_again_for_what_it_lost() -> None:
    recording = recording_of("anthropic", SESSION, head=1000)
    none, masked = run("none", recording), run("mask-1", recording)
    assert masked.lost_turns == 1
    (loss,) = masked.losses
    assert loss.request == 2
    assert LINE[:80] in loss.needs
    assert loss.sources == ("Read src/fault.py (result, message 2)",)
    assert (masked.lines, masked.lines_kept) == (none.lines, none.lines - 1)
    sent = masked.points[2].tokens
    again = 0.1 * sent + 2.0 * 1500 + 5 * 150 + 0.1 * 1500 * 2  # two requests were left
    assert masked.all_in == pytest.approx(masked.bill.cost + again)
    assert [(one.request, one.cause) for one in masked.breaks] == [(2, "masked"), (3, "masked")]
    (cut,) = masked.cuts
    assert (cut.reason, cut.tool, cut.parts) == ("masked", "Read", 2)


def test_the_floor_keeps_what_is_used_later_and_breaks_nothing() -> None:
    recording = recording_of("anthropic", SESSION)
    floor = run("floor", recording)
    assert (floor.lost_turns, floor.breaks) == (0, ())
    sender = sender_factory("floor")(recording)
    assert sender.send(3)[2]["content"][0]["content"] == LINE
    assert floor.bill.cost < run("oracle", recording).bill.cost < run("none", recording).bill.cost


def test_clearing_waits_for_its_threshold() -> None:
    recording = recording_of("anthropic", SESSION)
    assert run("clear-100k", recording).cuts == ()
    (cut,) = run("clear-1k-1", recording).cuts
    assert (cut.reason, cut.parts) == ("cleared", 2)


@pytest.mark.parametrize("name", ["mask", "mask-x", "clear-10", "no-such-policy", ""])
def test_an_unknown_policy_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(PolicyError, match=r"mask-N.*floor"):
        sender_factory(name)


def test_a_policy_may_be_a_file(tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "cap_chars = 1000\nkeep_exchanges = 0\nreevaluate_tokens = 1\neager = true\n"
        "passes = ['cap_results']\n",
        "utf-8",
    )
    got = run(str(path), recording_of("anthropic", SESSION))
    assert [cut.reason for cut in got.cuts] == ["over_cap"]
    assert [one.cause for one in got.breaks] == ["over_cap"]


def test_a_message_that_was_dropped_names_its_reason_too() -> None:
    """Reasoning on Responses is a message of its own, which no message in its place names."""
    messages: list[Any] = [{"type": "message", "role": "user", "content": "go on"}]
    for turn in range(12):
        messages += [
            {
                "type": "reasoning",
                "id": f"r{turn}",
                "summary": [],
                "encrypted_content": "x" * 4_000,
            },
            {"type": "function_call", "call_id": f"c{turn}", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": LINE},
        ]
    recording = recording_of("openai-responses", messages)
    policy = respool.Policy(
        passes=("old_reasoning",),
        eager=True,
        keep_exchanges=2,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
    )
    got = score_policy(recording, ProjectionSender(recording, policy), "mine")
    assert got.breaks
    assert {one.cause for one in got.breaks} == {"old_reasoning"}


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_every_figure_is_within_its_bounds(format: Any, data: Any) -> None:
    messages = data.draw(histories(format))
    if not cuts_in(format, messages):
        return
    recording = recording_of(format, messages, head=100)
    none = run("none", recording)
    for name in POLICIES:
        got = run(name, recording)
        assert got.requests == len(recording.cuts)
        assert got.bill.tokens == sum(point.tokens for point in got.points)
        assert got.all_in >= got.bill.cost > 0
        assert 0 <= got.atoms_kept <= got.atoms == none.atoms
        assert 0 <= got.lines_kept <= got.lines == none.lines
        assert (got.all_in == got.bill.cost) == (got.lost_turns == 0)
    for exact in ("none", "oracle", "floor"):
        assert run(exact, recording).lost_turns == 0
    assert run("floor", recording).breaks == none.breaks == ()


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_the_replay_sends_what_compact_would(format: Any, data: Any) -> None:
    messages = data.draw(st.one_of(histories(format), broken(format).map(_history(format))))
    if not isinstance(messages, list) or not cuts_in(format, messages):
        return
    policy = respool.Policy(
        cap_chars=300, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
    )
    recording = recording_of(format, messages, lifetime=0)
    sender = ProjectionSender(recording, policy)
    for number in range(len(recording.cuts)):
        request = {"model": None, PROVIDERS[format].codec.history_field: recording.request(number)}
        try:
            want = respool.compact(request, format=format, policy=policy)
        except respool.RespoolError:
            return
        if want.report.untouched is None:
            assert list(sender.send(number)) == want.request[PROVIDERS[format].codec.history_field]


@pytest.mark.parametrize(
    ("models", "gap", "changed"),
    [
        ([ONE, ONE, ONE, ONE], 10.0, []),
        ([ONE, OTHER, ONE, OTHER], 10.0, [1]),  # who is asked again still has what it was sent
        ([ONE, OTHER, OTHER, ONE], 400.0, [1, 3]),  # three gaps are more than a prefix lives
        ([BOUND, OTHER_BOUND] * 2, 10.0, [1, 2, 3]),  # what the other thought goes
    ],
)
def test_a_model_that_still_has_a_prefix_is_no_free_moment(
    models: list[str], gap: float, changed: list[int]
) -> None:
    recording = recording_of("anthropic", SESSION, lifetime=900.0, gap=gap)
    session = recording.session
    sent = tuple(replace(one, model=m) for one, m in zip(session.requests, models, strict=True))
    recording.session = replace(session, requests=sent)
    sender = ProjectionSender(recording, respool.Policy())
    found: list[int] = []
    known = 0
    for number in range(len(sent)):
        sender.send(number)
        now = len(sender.facts.changed)
        found += [number] if now > known else []
        known = now
    assert found == changed


@pytest.mark.parametrize(
    ("format", "gap", "cold"),
    [
        ("anthropic", 290.0, False),
        ("anthropic", 310.0, True),
        ("openai-chat", 590.0, False),  # marks that usage seems to tell of are none of OpenAI's
        ("openai-chat", 610.0, True),
    ],
)
def test_a_cache_goes_cold_as_its_terms_say(format: Any, gap: float, cold: bool) -> None:
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]
    recording = recording_of(format, said * 2, lifetime=300.0, gap=gap)
    sender = ProjectionSender(recording, respool.Policy())
    for number in range(2):
        sender.send(number)
    assert bool(sender.facts.cold) == cold


@pytest.mark.parametrize(
    ("models", "dollars"),
    [
        ([ONE, ONE, ONE, ONE], 4 * 3.0),
        ([ONE, ONE, OTHER, OTHER], 2 * 3.0 + 2 * 5.0),
        ([ONE, ONE, ONE, "a-model-of-ones-own"], 3 * 3.0),  # what it costs is not known
        (["a-model-of-ones-own"] * 3 + [ONE], None),
    ],
)
def test_each_request_has_the_price_of_its_own_model(
    models: list[str], dollars: float | None
) -> None:
    prices = {ONE: 3.0, OTHER: 5.0}
    main = max(models, key=models.count)
    others = {model: prices.get(model) for model in {*models} - {main}}
    terms = CacheTerms(cache="none", read=1.0, dollars=prices.get(main))
    conditions = BillingConditions(terms, 1_000_000_000, prices=others)
    session = session_of("anthropic", SESSION)
    sent = tuple(replace(one, model=m) for one, m in zip(session.requests, models, strict=True))
    bill = run(
        "none", Recording(replace(session, requests=sent), CharacterMeasure(), conditions)
    ).bill
    assert bill.money == (dollars if dollars is None else pytest.approx(1_000 * dollars, rel=1e-4))


def test_a_model_without_a_listed_price_has_none_of_another() -> None:
    session = session_of("anthropic", SESSION)
    models = ["claude-opus-4-5"] * 2 + ["claude-haiku-4-5", "a-model-of-ones-own"]
    sent = tuple(replace(one, model=m) for one, m in zip(session.requests, models, strict=True))
    conditions = infer_conditions(replace(session, requests=sent), CharacterMeasure())
    assert [conditions.dollars(1e6, model) for model in models] == [5.0, 5.0, 1.0, None]


def _history(format: Any) -> Any:
    return lambda request: (
        request.get(PROVIDERS[format].codec.history_field) if isinstance(request, dict) else None
    )


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_request_is_judged_as_check_judges_it(format: Any, data: Any) -> None:
    messages = data.draw(broken(format).map(_history(format)))
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return
    recording = recording_of(format, messages)
    judge = ValidityChecker(PROVIDERS[format].codec)
    rows = [recording.row(message) for message in messages]
    cut = data.draw(st.integers(0, len(rows)))
    for sent, kept in (
        (rows[:cut], 0),
        (rows, cut),
        (rows[: cut // 2], cut // 2),
        (rows, cut // 2),
    ):
        if not sent:
            continue
        found = check_request(PROVIDERS[format].codec, [row.message for row in sent], None)
        errors = [one for one in found if one.severity == "error"]
        verdict = judge.first_problem(sent, kept)
        assert (verdict is None) == (not errors)


@pytest.mark.parametrize("format", FORMATS)
def test_spending_adds_up_to_the_bill(format: Any) -> None:
    request = long_session(format, 30, 400, seed=3, model=None)
    recording = recording_of(format, request[PROVIDERS[format].codec.history_field], head=500)
    spent, none = break_down_cost(recording), run("none", recording)
    assert sum(share.tokens for share in spent.kinds) == none.bill.tokens
    assert sum(share.cost for share in spent.kinds) == pytest.approx(none.bill.cost, rel=1e-6)
    results = next(share for share in spent.kinds if share.name == "tool results")
    assert sum(share.tokens for share in spent.ages) == results.tokens
    assert sum(share.cost for share in spent.ages) == pytest.approx(results.cost, rel=1e-3)
    assert sum(share.unused for share in spent.tools) == results.unused <= results.tokens
