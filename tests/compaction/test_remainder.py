"""Why nothing was taken out: what waits and what stays, by the planner's own state."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import respool
from respool.compaction.memo import Memo
from respool.compaction.remainder import Remainder, describe_waiting
from respool.facts import Facts
from respool.policy import Policy
from tests.support.coding_sessions import bash, done, edit, lines, read
from tests.support.formats import FORMATS, request

NOW: dict[str, Any] = {
    "reevaluate_tokens": 1,
    "reevaluate_ratio": 0.0,
    "keep_exchanges": 0,
}
PATIENT = Policy(**NOW, miss_penalty=100.0)  # nothing is sure enough to pay
WORDS = ("weft", "warp", "shuttle", "heddle")
TEXTS = {word: "\n".join(f"{word}_{n} = weave({n * 7})" for n in range(200)) for word in WORDS}
READS = [[read(f"/w/{word}.py", text, word)] for word, text in TEXTS.items()]


def report(*steps: Any, policy: Policy, format: str = "anthropic", **about: Any) -> respool.Report:
    body = request(format, "go", *steps)
    return respool.compact(body, format=format, policy=policy, memo=None, **about).report


@pytest.mark.parametrize("format", FORMATS)
def test_what_waits_is_what_eager_takes(format: str) -> None:
    patient = report(*READS, done(), policy=PATIENT, format=format)
    eager = report(*READS, done(), policy=PATIENT.replace(eager=True), format=format)
    left = patient.remainder
    assert left.offers == len(WORDS)
    assert left.offer_tokens == eager.tokens_saved - patient.tokens_saved > 1_000
    assert [(one.cause, one.results) for one in left.kept] == [("waiting", 4), ("unseen", 1)]
    assert eager.remainder.offers == 0
    said = f"4 offers, {left.offer_tokens:,} tokens, wait until they pay; `eager` takes them now"
    assert said in patient.why_so_little()
    assert said in patient.to_text()
    assert eager.why_so_little() == ""


def test_what_waits_is_counted_beyond_the_edits_in_force() -> None:
    """The numbers of these lines are taken out at once; the offers that wait take the rest."""
    reads = [[read(f"/w/{word}.py", lines(1, 200, word), word)] for word in WORDS]
    thin = PATIENT.replace(line_number_interval=5)
    patient = report(*reads, done(), policy=thin)
    eager = report(*reads, done(), policy=thin.replace(eager=True))
    assert len(patient.edits) == len(WORDS)
    assert patient.remainder.offer_tokens == eager.tokens_saved - patient.tokens_saved > 1_000
    left = patient.remainder
    said = f"4 offers, {left.offer_tokens:,} tokens, wait until they pay; `eager` takes them now."
    assert patient.why_so_little() == ""  # more than a twentieth was taken out
    assert patient.to_text().splitlines()[1] == said


def test_little_is_told_from_nothing() -> None:
    blanks = [bash("ls", f"a{' ' * 4_000}\nb", "b")]
    made = report(*READS, blanks, done(), policy=PATIENT)
    assert 0 < made.tokens_saved < 0.05 * made.tokens_before
    assert made.why_so_little().startswith("Little was taken out: ")


ERROR = bash("make", "make: *** [all] Error 2", "e", error=True)
EDITED = [[read("/w/a.py", TEXTS["weft"], "r")], [edit("/w/a.py", "weft_1 =", "t =", "x")]]
# steps, settings, the causes of what stays, and what is said
CASES: dict[str, tuple[list[Any], dict[str, Any], set[tuple[str, str]], str]] = {
    "no results": ([], NOW, set(), "there are no tool results in it"),
    "short": (
        [[bash("ls", "a b", "l")], done()],
        {"keep_exchanges": 0},
        {("early", ""), ("unseen", "what the model has not seen yet")},
        "1 result, 1 token, is not looked at yet: that is done whenever 5,000 new tokens have",
    ),
    "unseen": (
        [[bash("ls", "a b", "l")]],
        NOW,
        {("unseen", "what the model has not seen yet")},
        "1 result, 1 token, is new: the model has not read it yet",
    ),
    "pinned": (
        [*READS, done()],
        {**NOW, "pin_paths": ("*.py",)},
        {("protected", "what is pinned"), ("unseen", "what the model has not seen yet")},
        "are protected: what is pinned (4)",
    ),
    "recent": (
        [*READS, done()],
        {**NOW, "keep_calls": 9},
        {
            ("protected", "the latest messages and calls"),
            ("unseen", "what the model has not seen yet"),
        },
        "are protected: the latest messages and calls (4)",
    ),
    "an open error": (
        [[ERROR], done()],
        NOW,
        {("protected", "errors still open"), ("unseen", "what the model has not seen yet")},
        "is protected: errors still open (1)",
    ),
    "a file edited since": (
        [*EDITED, done()],
        {**NOW, "passes": ("stub_results",)},
        {
            ("protected", "latest reads of files edited since"),
            ("spent", ""),
            ("unseen", "what the model has not seen yet"),
        },
        "is protected: latest reads of files edited since (1)",
    ),
    "nothing that may go": (
        [[bash("ls", "a b", "l")], done()],
        NOW,
        {("spent", ""), ("unseen", "what the model has not seen yet")},
        "1 result, 1 token, holds nothing that may go",
    ),
    "kept whole": (
        [*READS, done()],
        {**NOW, "keep_exchanges": 6},
        {
            ("protected", "the latest messages and calls"),
            ("unseen", "what the model has not seen yet"),
        },
        "are protected: the latest messages and calls (4)",
    ),
    "no passes": ([*READS, done()], {"passes": ()}, set(), "no pass is switched on"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named(case: str) -> None:
    steps, settings, causes, said = CASES[case]
    made = report(*steps, policy=Policy(**settings))
    assert made.edits == ()
    if causes:
        assert {(one.cause, one.label) for one in made.remainder.kept} == causes
    assert made.why_so_little().startswith("Nothing was taken out: ")
    assert said in made.why_so_little()
    assert sum(one.results for one in made.remainder.kept) == made.remainder.results


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("left_alone", "this conversation is left alone: the provider refused a projection"),
        ("skipped", "the facts name this request as one at which no new edit is made"),
    ],
)
def test_facts_that_forbid_edits_are_the_cause(name: str, said: str) -> None:
    here = report(*READS, done(), policy=PATIENT).prefix
    facts = Facts.from_dict({name: [here]})
    assert said in report(*READS, done(), policy=PATIENT, facts=facts).why_so_little()


def test_a_request_that_is_passed_through_says_so_itself() -> None:
    body = {"previous_response_id": "r", "input": [{"role": "user", "content": "go"}]}
    made = respool.compact(body, format="openai-responses").report
    assert made.untouched == "The provider holds the history (previous_response_id)."
    assert made.why_so_little() == ""
    assert made.remainder == Remainder()


def test_it_is_the_same_from_a_memo_and_in_a_copy() -> None:
    memo, bodies = Memo(), [request("anthropic", "go", *READS[:n], done()) for n in range(1, 5)]
    for body in bodies:
        warm = respool.compact(body, policy=PATIENT, memo=memo).report
        cold = respool.compact(body, policy=PATIENT, memo=None).report
        assert warm.remainder == cold.remainder
        assert warm == cold
    warm = respool.compact(bodies[-1], policy=PATIENT, memo=memo).report
    assert pickle.loads(pickle.dumps(warm)).remainder == warm.remainder
    assert copy.deepcopy(warm).remainder == warm.remainder
    assert warm.to_dict()["remainder"]["offers"] == 4


def test_it_is_not_computed_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("respool.compaction.remainder.compatible_waiting", fail)
    made = report(*READS, done(), policy=PATIENT)
    assert made.tokens_saved == 0
    with pytest.raises(AssertionError):
        _ = made.remainder


@pytest.mark.parametrize(
    ("offers", "said"),
    [
        (1, "1 offer, 40 tokens, waits until it pays; `eager` takes it now"),
        (2, "2 offers, 40 tokens, wait until they pay; `eager` takes them now"),
    ],
)
def test_numbers_agree_with_their_nouns(offers: int, said: str) -> None:
    assert describe_waiting(offers, 40) == said
