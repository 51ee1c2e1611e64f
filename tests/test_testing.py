"""The laws for users' passes: sound passes hold, and each planted fault is caught."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import respool
from respool import testing
from respool.passes import (
    PASSES,
    Offer,
    OmissionMarker,
    Pass,
    Replace,
    View,
    find_marker,
    reference,
)
from respool.policy import Policy
from respool.testing import Law, Violation, assert_laws, check_pass, sample_requests
from tests.passes.example_pass.acme_passes import drop_empty_searches, stub_lock_files

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
LAWS: tuple[Law, ...] = get_args(Law)
EAGER = Policy(
    keep_exchanges=3,
    cap_chars=2_000,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    strip_decoration=True,
)


def shapes(words: Callable[[str, str], str], *, twice: bool = False) -> Pass:
    """A pass that says these words of an original and its reference in place of old results."""

    def planted(view: View, policy: Policy) -> Iterator[Offer]:
        for exchange in view.aged_exchanges():
            position = exchange.result
            if position is None or not view.can_rewrite(position):
                continue
            part = view.transcript.parts[position]
            ref = reference(part.text)
            text = words(part.text, ref)
            saved = view.saved_by(position, text)
            if twice or (find_marker(part.text) is None and len(part.text) > 400):
                yield Offer("stub", Replace(position, part.ref, text, ref, "mine", "", saved))

    return planted


def marked(text: str, ref: str) -> str:
    return str(OmissionMarker(text.count("\n") + 1, "lines", ref))


def change_the_request(view: View, policy: Policy) -> Iterator[Offer]:
    tools: Any = (view.fields or {}).get("tools")
    tools.append(tools[0])
    return iter(())


def break_arguments(view: View, policy: Policy) -> Iterator[Offer]:
    """Put words in place of arguments, which are an object."""
    for exchange in view.aged_exchanges():
        part = view.transcript.parts[exchange.call]
        if view.can_rewrite(exchange.call) and len(part.text) > 12:
            ref = reference(part.text)
            yield Offer("trim", Replace(exchange.call, part.ref, "gone", ref, "mine", "", 1))


def boast(view: View, policy: Policy) -> Iterator[Offer]:
    for exchange in view.aged_exchanges():
        position = exchange.result
        part = view.transcript.parts[position or 0]
        if position and view.can_rewrite(position) and find_marker(part.text) is None:
            ref = reference(part.text)
            text = marked(part.text, ref)
            if view.saved_by(position, text) > 0:
                yield Offer("stub", Replace(position, part.ref, text, ref, "mine", "", 10**6))


def counting() -> Pass:
    turns = itertools.count()
    return shapes(lambda text, ref: f"{next(turns)}\n{marked(text, ref)}")


def fail(view: View, policy: Policy) -> Iterator[Offer]:
    raise ZeroDivisionError("a planted bug")


def no_offer(view: View, policy: Policy) -> Any:
    return [object()]


def compare_all_with_all(view: View, policy: Policy) -> Iterator[Offer]:
    for part in view.transcript.parts:
        for other in view.transcript.parts:
            if part is not other and part.text == other.text == "the same":
                yield from ()


# By fault: the law that must catch it.
FAULTS: dict[str, tuple[Law, Pass]] = {
    "the caller's request changes": ("faithful", change_the_request),
    "arguments are no object": ("valid", break_arguments),
    "a longer text": ("small", shapes(lambda text, ref: f"{text} and more of it\n{ref}")),
    "a count of calls in the text": ("stable", counting()),
    "hidden state": ("reproducible", counting()),
    "no reference": ("reversible", shapes(lambda text, ref: "gone")),
    "a reference to nothing": (
        "reversible",
        shapes(lambda text, ref: f"{marked(text, reference('x'))}\n{ref}"),
    ),
    "a false count of lines": (
        "honest",
        shapes(lambda text, ref: str(OmissionMarker(2, "lines", ref))),
    ),
    "a false count of chars": (
        "honest",
        shapes(lambda text, ref: str(OmissionMarker(9, "chars", ref, total=10))),
    ),
    "a gap that does not add up": (
        "honest",
        shapes(lambda text, ref: f"[… 1 lines]\n{marked(text, ref)}"),
    ),
    "a false saving": ("honest", boast),
    "its own output": (
        "idempotent",
        shapes(lambda text, ref: f"{ref} {text[: len(text) // 2]}", twice=True),
    ),
    "an exception": ("harmless", fail),
    "no offers": ("harmless", no_offer),
    "quadratic": ("linear", compare_all_with_all),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str) -> None:
    law, planted = FAULTS[fault]
    found = check_pass(planted)
    assert law in {one.law for one in found}, found
    first = next(one for one in found if one.law == law)
    assert first.format in FORMATS
    assert first.sentence.endswith((".", "a planted bug")) or law in ("valid", "harmless")


def test_an_assertion_names_the_laws() -> None:
    with pytest.raises(AssertionError, match=r"(?s)fail breaks 4 laws:.*harmless \(gemini, req"):
        assert_laws(fail)


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _ in FAULTS.values()} == set(LAWS)


@pytest.mark.laws
@pytest.mark.parametrize("offer_pass", PASSES, ids=lambda one: one.__name__)
def test_the_built_in_passes_hold(offer_pass: Pass) -> None:
    assert check_pass(offer_pass) == []


@pytest.mark.parametrize("offer_pass", [stub_lock_files, drop_empty_searches, shapes(marked)])
def test_sound_passes_of_users_hold(offer_pass: Pass) -> None:
    assert_laws(offer_pass)


@pytest.mark.parametrize("number", range(4))
def test_the_samples_are_valid_and_give_passes_work(number: int) -> None:
    request = sample_requests()[number]
    assert respool.check(request) == []
    assert request == sample_requests()[number]
    text = json.dumps(request)
    assert all(word in text for word in ("FAILED", "iVBORw0", "No matches", "may break"))
    made: dict[str, int] = {}
    for offer_pass in (*PASSES, stub_lock_files, drop_empty_searches):
        named: Any = offer_pass.__name__ if offer_pass in PASSES else offer_pass
        out = respool.compact(request, policy=EAGER.replace(passes=(named,)), memo=None)
        assert out.report.format == FORMATS[number]
        made[offer_pass.__name__] = len(out.report.edits)
    assert made["stub_lock_files"] >= 3
    assert made["drop_empty_searches"] >= 3
    assert sum(count > 0 for count in made.values()) >= 9, made
    every = respool.compact(request, policy=EAGER, memo=None)
    assert every.report.epochs >= 10


def test_requests_of_the_user_are_checked_too() -> None:
    """Also as bytes; they are numbered after the samples."""
    own = sample_requests(6)[0]
    own["messages"][4]["content"][0]["content"] = "the secret\n" * 100

    def pick(view: View, policy: Policy) -> Iterator[Offer]:
        for offer in shapes(lambda text, ref: "gone")(view, policy):
            edit = offer.edit
            if isinstance(edit, Replace) and view.transcript.parts[edit.part].text[:10] == (
                "the secret"
            ):
                yield offer

    assert check_pass(pick) == []
    given = [own, json.dumps(own).encode()]
    found = check_pass(pick, given)
    assert {(one.law, one.request) for one in found} >= {("reversible", at) for at in (4, 5)}
    assert {one.format for one in found} == {"anthropic"}


def test_a_policy_of_the_user_is_used() -> None:
    seen: set[int] = set()

    def look(view: View, policy: Policy) -> Iterator[Offer]:
        seen.add(policy.keep_exchanges)
        return iter(())

    assert check_pass(look, policy=EAGER.replace(keep_exchanges=5)) == []
    assert seen == {5}


def test_a_violation_is_a_frozen_value_and_a_sentence() -> None:
    one = Violation("small", "gemini", 3, "It is longer.")
    assert str(one) == "small (gemini, request 3): It is longer."
    assert one in {Violation("small", "gemini", 3, "It is longer.")}
    with pytest.raises(AttributeError):
        one.law = "valid"  # pyright: ignore[reportAttributeAccessIssue]


def test_no_test_framework_is_imported() -> None:
    code = "import sys, respool.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    tree = ast.parse(inspect.getsource(testing))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any(name.startswith("tests") for name in names)
    assert sorted(testing.__all__) == testing.__all__
