"""Advice at the end of results stays and is counted apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool import Policy
from respool.compaction.advice import TranscriptWithoutAdvice
from respool.edits import Advise
from respool.history.ledger import Ledger
from respool.markers import advice_line, append_advice, find_marker, strip_advice
from respool.passes import PASSES
from respool.transcript import Part, ReadOnlyTranscript, Ref, TranscriptIndex
from tests import effort
from tests.judges import JUDGES
from tests.laws import laws
from tests.laws.examples import Example, Once, examples, is_listed
from tests.laws.subject import EAGER, PRICED, compactor
from tests.laws.trial_passes import drop_every_other_exchange, drop_old_reasoning
from tests.passes.test_protections import drop_all
from tests.support.formats import FIELD, FORMATS, Exchange, request, results
from tests.tools.test_expand_tool import stub_seen

formats = pytest.mark.parametrize("format", FORMATS)
SAME = "\n".join(f"line {number} of what the tool printed" for number in range(40))
ADVISING = Policy(passes=(), advise=True)
STUBBING = Policy(
    passes=(stub_seen,),
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    advise=True,
    keep_exchanges=0,
)


def repeats(count: int, text: str = SAME, **more: Any) -> list[list[Exchange]]:
    """The same call with the same result, so many times."""
    return [[Exchange(text, id=f"c{number}", **more)] for number in range(count)]


def run(format: str, *steps: Any, policy: Policy = ADVISING) -> respool.Compaction[dict[str, Any]]:
    """A request compacted; whatever comes out is valid."""
    whole = request(format, "go", *steps)
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    assert respool.check(out.request, format=format) == []
    assert [one for judge in JUDGES[format] for one in judge(out.request)] == []
    return out


def line_in(text: str) -> str:
    """The line of advice at the end of a result."""
    plain = strip_advice(text)
    assert plain is not text, "there is no advice"
    return text[len(plain) :].removeprefix("\n")


# How it reads.


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Try another.", "[respool noticed: Try another.]"),
        ("  Two\nlines\r\n and\ttabs ", "[respool noticed: Two lines and tabs]"),
        ("not [this]", "[respool noticed: not (this)]"),
        ("x" * 1_001, f"[respool noticed: {'x' * 998}..]"),
        ("x" * 1_000, f"[respool noticed: {'x' * 1_000}]"),
    ],
)
def test_advice_is_one_line(said: str, line: str) -> None:
    assert advice_line(said) == line
    for text in ("", "a", "a\n", "\n"):
        assert strip_advice(append_advice(text, line)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "]", "a]", "[respool noticed: ]", "x [respool noticed: this]", "[respool noticed: this",
        "[respool noticed: this] ", "[respool noticed: this]\n", "[respool noticed: a]b]",
        "[respool noticed: a\nb]", "[respool: noticed: this]", f"[respool noticed: {'x' * 1_001}]",
        "[respool noticed: [respool noticed: a]]",
    ],
)  # fmt: skip
def test_what_only_looks_like_advice_is_none(text: str) -> None:
    assert strip_advice(text) is text


@given(st.text(), st.text(min_size=1).filter(str.split))
def test_advice_comes_off_again(text: str, said: str) -> None:
    assert strip_advice(append_advice(text, advice_line(said))) == text


def test_a_history_is_looked_at_without_it() -> None:
    index = TranscriptIndex()
    line = advice_line("Try another.")
    call = Part(Ref(0, ()), "call", "model", line, "shell", "a")
    result = Part(Ref(1, ()), "result", "tool", f"said\n{line}", id="a")
    other = Part(Ref(1, (1,)), "text", "user", line)
    index.add_unit((0, 2), [call], [result, other], locked=False)
    plain = TranscriptWithoutAdvice(index)
    assert [part.text for part in plain.parts] == [line, "said", line]
    assert [part.text for part in plain.parts[1:]] == ["said", line]
    assert (plain.parts[1].text, len(plain.parts)) == ("said", 3)
    assert plain.parts[0] is call
    assert plain.call_of(1) is call
    assert (plain.results, plain.units) == (index.results, index.units)
    assert (plain.exchanges, plain.exchange_of) == (index.exchanges, index.exchange_of)


# Where it is given.


@formats
def test_it_is_off_unless_it_is_asked_for(format: str) -> None:
    whole = request(format, "go", *repeats(5))
    assert respool.compact(whole, format=format, policy=Policy(passes=())).request is whole


@formats
@pytest.mark.parametrize("text", [SAME, "x", ""], ids=["long", "short", "none"])
def test_a_third_time_is_told_at_the_end_of_the_newest_result(format: str, text: str) -> None:
    for count in (1, 2):
        assert run(format, *repeats(count, text)).report.edits == ()
    out = run(format, *repeats(3, text))
    *before, last = results(format, out.request)
    assert before == [text, text]
    assert strip_advice(last) == text
    assert "called 3 times" in line_in(last)
    (edit,) = out.report.edits
    assert isinstance(edit, Advise)
    assert (edit.text, edit.reason, edit.evidence) == (line_in(last), "advised", "on shell")


@formats
def test_results_that_differ_get_none(format: str) -> None:
    steps = [[Exchange(f"{SAME}{n}", id=f"c{n}")] for n in range(4)]
    assert run(format, *steps).report.edits == ()


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_an_image_beside_the_words_stays(format: str) -> None:
    out = run(format, *repeats(3, image=True))
    whole = request(format, "go", *repeats(3, image=True))
    assert strip_advice(results(format, out.request)[-1]) == SAME
    assert json.dumps(out.request).count("iVBOR") == json.dumps(whole).count("iVBOR") == 3


def everything(history: ReadOnlyTranscript, ledger: Ledger, unseen_from: int) -> Mapping[int, str]:
    """Advice on whatever just came, wanted or not."""
    return {at: f"This is part {at}." for at in range(unseen_from, len(history.parts))}


@pytest.fixture
def on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respool.compaction.advice.advice", everything)


@pytest.mark.usefixtures("on_everything")
@pytest.mark.parametrize(
    ("format", "items"),
    [
        ("openai-responses", [
            {"type": "computer_call", "call_id": "a", "id": "cu_1", "status": "completed",
             "action": {"type": "screenshot"}, "pending_safety_checks": []},
            {"type": "computer_call_output", "call_id": "a",
             "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}},
        ]),
        ("openai-responses", [
            {"type": "shell_call", "call_id": "a", "id": "sh_1", "status": "completed",
             "action": {"commands": ["ls", "pwd"]}},
            {"type": "shell_call_output", "call_id": "a", "output": []},
        ]),
        ("anthropic", [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://x.y/z.png"}}]}]},
        ]),
    ],
    ids=["a screenshot", "no stream to write to", "an image alone"],
)  # fmt: skip
def test_what_takes_no_words_gets_none(format: str, items: list[Any]) -> None:
    user = {"role": "user", "content": "go"}
    whole = {"model": "m", FIELD[format]: [user, *items]}
    out = respool.compact(whole, format=format, policy=ADVISING, memo=None)
    assert out.report.edits == ()


# It stays.


def grown(format: str, steps: list[Any], policy: Policy) -> list[dict[str, Any]]:
    """The projections of a conversation that grows step by step; warm and cold agree."""
    memo, found = respool.Memo(), list[dict[str, Any]]()
    for count in range(1, len(steps) + 1):
        body = json.dumps(request(format, *steps[:count])).encode()
        warm = respool.compact(body, format=format, policy=policy, memo=memo)
        assert (
            respool.compact(body, format=format, policy=policy, memo=None).request == warm.request
        )
        found.append(json.loads(warm.request))
    return found


@formats
def test_it_is_said_again_in_every_later_request(format: str) -> None:
    steps = ["go", *repeats(6), "and now?", [Exchange("other", id="o")], *repeats(2)]
    sent = grown(format, steps, ADVISING)
    for before, after in pairwise(sent):
        known = before[FIELD[format]]
        assert after[FIELD[format]][: len(known)] == known
    said = [strip_advice(text) != text for text in results(format, sent[-1])]
    assert said == [False, False, True, False, True, False, False, False, False]


@formats
def test_it_stays_behind_whatever_is_left_of_the_result(format: str) -> None:
    sent = grown(
        format, ["go", *repeats(3), *([Exchange("x", id=f"o{n}")] for n in "ab")], STUBBING
    )
    whole, stub = results(format, sent[3])[2], results(format, sent[-1])[2]
    assert strip_advice(whole) == SAME
    assert find_marker(stub) is not None
    assert find_marker(strip_advice(stub)) is not None
    assert line_in(stub) == line_in(whole)


@formats
def test_it_is_put_behind_a_tidied_result(format: str) -> None:
    coloured = "\n".join(f"\x1b[31mline {number} in red\x1b[0m" for number in range(400))
    out = run(format, *repeats(3, coloured), policy=Policy(passes=("tidy_results",), advise=True))
    last = results(format, out.request)[-1]
    assert "\x1b" not in last
    assert strip_advice(last).endswith("line 399 in red")
    assert line_in(last)


@formats
def test_it_goes_with_its_exchange(format: str) -> None:
    policy = Policy(
        passes=(drop_all,),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        advise=True,
        keep_exchanges=0,
    )
    out = run(format, *repeats(3), [Exchange("x", id="o")], policy=policy)
    assert results(format, out.request) == ["x"]
    assert out.report.tokens_advised == 0
    assert not any(isinstance(edit, Advise) for edit in out.report.edits)


@formats
def test_it_goes_with_what_is_folded(format: str) -> None:
    steps = [*repeats(30), *([Exchange(f"{SAME}{n}", id=f"o{n}")] for n in range(10))]
    passes = ("fold_exchanges",)
    policy = Policy(
        passes=passes,
        budget=8_000,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        advise=True,
        keep_exchanges=0,
    )
    out = run(format, *steps, policy=policy)
    assert any(edit.reason == "folded" for edit in out.report.edits)
    folded = {edit.ref for edit in out.report.edits if edit.reason == "folded"}
    kept = [edit for edit in out.report.edits if isinstance(edit, Advise)]
    assert folded.isdisjoint(edit.ref for edit in kept)
    assert len(kept) < 28
    assert sum(strip_advice(t) is not t for t in results(format, out.request)) == len(kept)
    assert out.report.tokens_after <= 8_000
    assert out.report.tokens_after == counted(format, out.request)


def counted(format: str, whole: Any) -> int:
    """Tokens of a request, by the report of a run that does nothing."""
    idle = Policy(passes=(), repair=False)
    return respool.compact(whole, format=format, policy=idle, memo=None).report.tokens_after


# It is not said twice.


@formats
@pytest.mark.parametrize("policy", [ADVISING, STUBBING], ids=["alone", "stubbed"])
def test_a_client_may_send_it_back(format: str, policy: Policy) -> None:
    out = run(format, *repeats(5), policy=policy)
    again = respool.compact(out.request, format=format, policy=policy, memo=None)
    assert again.request is out.request
    assert again.report.edits == ()


@formats
def test_who_goes_on_from_what_was_sent_gets_the_same_advice(format: str) -> None:
    echoed = run(format, *repeats(3)).request
    more = request(format, *([Exchange(SAME, id=f"d{n}")] for n in range(2)))[FIELD[format]]
    echoed = {**echoed, FIELD[format]: [*echoed[FIELD[format]], *more]}
    out = respool.compact(echoed, format=format, policy=ADVISING, memo=None)
    plain = run(format, *repeats(5))
    assert results(format, out.request) == results(format, plain.request)


# It is planned, applied and reported like any other edit.


@formats
def test_a_plan_carries_it(format: str) -> None:
    whole = request(format, "go", *repeats(5), [Exchange("x", id="o")])
    plan = respool.plan(whole, format=format, policy=STUBBING, memo=None)
    done = respool.compact(whole, format=format, policy=STUBBING, memo=None)
    assert plan.edits == done.report.edits
    assert sum(isinstance(edit, Advise) for edit in plan.edits) == 2
    for policy in (None, STUBBING):
        applied = respool.apply(whole, plan, policy=policy)
        assert applied.request == done.request
        assert applied.report.tokens_advised == done.report.tokens_advised > 0
        assert applied.report.tokens_saved == done.report.tokens_saved == plan.tokens_saved


@formats
@pytest.mark.parametrize("policy", [ADVISING, STUBBING], ids=["alone", "stubbed"])
def test_it_is_counted_apart(format: str, policy: Policy) -> None:
    steps = (*repeats(5), [Exchange("x", id="o")], [Exchange("y", id="p")])
    report = run(format, *steps, policy=policy).report
    without = run(format, *steps, policy=policy.replace(advise=False)).report
    assert report.tokens_saved == without.tokens_saved
    assert report.tokens_advised == report.tokens_after - without.tokens_after > 0
    assert without.tokens_advised == 0
    told = report.to_dict()
    assert told["tokens_advised"] == report.tokens_advised
    assert [edit["type"] for edit in told["edits"]].count("advise") == 2
    assert f"advice in 2 results, +{report.tokens_advised:,} tokens" in report.to_text()
    saving = len(report.edits) - 2
    assert f"saved by {saving} edit" in report.to_text()


@formats
def test_it_never_makes_a_budget_fail(format: str) -> None:
    steps = repeats(3, "and so on, one word behind the other; " * 99)
    size = counted(format, request(format, "go", *steps))
    assert size > 2_000
    out = run(format, *steps, policy=Policy(passes=(), budget=size + 5, advise=True))
    assert out.report.tokens_after == size
    assert out.report.edits == ()
    assert run(
        format, *steps, policy=Policy(passes=(), budget=size + 200, advise=True)
    ).report.edits


def test_a_source_that_fails_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Mapping[int, str]:
        raise ZeroDivisionError("a planted bug")

    monkeypatch.setattr("respool.compaction.advice.advice", fail)
    out = run("anthropic", *repeats(3))
    assert out.report.failures == {"advise": "ZeroDivisionError: a planted bug"}
    assert results("anthropic", out.request) == [SAME] * 3


# The laws hold with advice on everything that comes.

quick = settings(
    max_examples=effort.examples(25),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
DROPPING = (*PASSES, drop_every_other_exchange, drop_old_reasoning)
USUAL = {"eager": EAGER.replace(advise=True), "priced": PRICED.replace(advise=True)}


def hold(usual: Policy, example: Example) -> None:
    """Hold them to every law, on one example."""
    format, idle = example.format, dict[Any, Any]()
    every, dropping, none = (
        Once(compactor(*passes, format=format, usual=usual), idle)
        for passes in (PASSES, DROPPING, ())
    )
    if is_listed(example.whole):
        laws.faithful(every, format, example.whole)
        laws.reversible(every, format, example.whole)
        laws.honest(every, format, example.whole)
        laws.valid(dropping, format, example.whole, whole=True)
        laws.small(dropping, format, example.whole)
        laws.idempotent(none, format, example.whole)
    if is_listed(example.broken):
        laws.valid(dropping, format, example.broken, whole=False)
    if example.growing:
        laws.stable(dropping, format, example.growing)
        laws.reproducible(dropping, format, example.growing)


@pytest.mark.usefixtures("on_everything")
@formats
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.laws)])
def test_the_laws_hold(format: str, times: int) -> None:
    """Each conversation meets each policy in one of the formats; in all with `make laws`."""

    @quick
    @given(examples(format))
    def run(example: Example) -> None:
        for name in example.rotated([*USUAL], times):
            hold(USUAL[name], example)

    run()
