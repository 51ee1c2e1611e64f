"""Users' own passes: names, discovery, and validation of their offers."""

from __future__ import annotations

import json
import pickle
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import respool
from respool import Memo, Policy, PolicyError
from respool.edits import DropExchange, DropReasoning, Offer, PlaceBreakpoint, Replace
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.base import View
from respool.passes.cap_results import cap_results
from respool.plugins import pass_name, pass_token
from respool.policy import default_pass_names
from tests.support.formats import FIELD, FORMATS, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))
USUAL = default_pass_names()


def stub_seen(view: View, policy: Policy) -> Iterator[Offer]:
    """A marker for every result that was seen."""
    yield from stubs(view, "lines")


def stubs(view: View, unit: str) -> Iterator[Offer]:
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        if view.can_rewrite(position) and not find_marker(part.text):
            ref = reference(part.text)
            text = str(OmissionMarker(part.text.count("\n") + 1, unit, ref))
            saved = view.saved_by(position, text)
            if saved > 0:
                yield Offer("stub", Replace(position, part.ref, text, ref, "stubbed", "", saved))


def stubber(unit: str) -> Callable[[View, Policy], Iterator[Offer]]:
    """Passes of one factory: the same name, another behaviour."""

    def stub(view: View, policy: Policy) -> Iterator[Offer]:
        yield from stubs(view, unit)

    return stub


def session(format: str = "anthropic", *more: list[Exchange]) -> dict[str, Any]:
    return request(format, "go", [Exchange(LINES, id="a")], [Exchange("done", id="b")], *more)


def eager(*passes: Any, **settings: Any) -> Policy:
    return Policy(
        passes=passes,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=0,
        **settings,
    )


# In a policy.


@formats
def test_a_function_stands_among_names(format: str) -> None:
    policy = eager("cap_results", stub_seen)
    out = respool.compact(session(format), format=format, policy=policy, memo=None)
    assert (
        results(format, out.request)[0] == f"[respool: 200 lines left out; ref {reference(LINES)}]"
    )
    assert [edit.reason for edit in out.report.edits] == ["stubbed"]
    assert respool.expand(reference(LINES), out) == LINES


WORDED = "Chunk ID: 7\nWall time: 0.1 seconds\nOutput:\n   1\tone\n   2\ttwo\n   3\tthree"


def reword(view: View, policy: Policy) -> Iterator[Offer]:
    """Words of its own, that look like what a tool notes, for every result that was seen."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        if view.can_rewrite(position) and len(part.text) > 999:
            ref = reference(part.text)
            text = f"{WORDED}\n{OmissionMarker(200, 'lines', ref)}"
            saved = view.saved_by(position, text)
            yield Offer("trim", Replace(position, part.ref, text, ref, "trimmed", "", saved))


@formats
def test_what_a_pass_says_goes_out_as_it_says_it(format: str) -> None:
    """Only what respool's own passes leave of a result is tidied as well."""
    out = respool.compact(session(format), format=format, policy=eager(reword), memo=None)
    assert out.report.failures == {}
    assert results(format, out.request)[0].startswith(WORDED)


def other(view: View, policy: Policy) -> Iterator[Offer]:
    return iter(())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ([], ()),
        (["default"], USUAL),
        (["default", other], (*USUAL, other)),
        ([other, "default"], (other, *USUAL)),
        ([other, "default", stub_seen], (other, *USUAL, stub_seen)),
        (["-cap_results"], tuple(name for name in USUAL if name != "cap_results")),
        (["default", "-cap_results", other],
         (*(name for name in USUAL if name != "cap_results"), other)),
        (["cap_results", "default"],
         ("cap_results", *(name for name in USUAL if name != "cap_results"))),
        ([other, "-cap_results"], (*(name for name in USUAL if name != "cap_results"), other)),
    ],
)  # fmt: skip
def test_lists_of_passes(written: list[Any], meant: tuple[Any, ...]) -> None:
    assert Policy(passes=written).passes == meant  # type: ignore[arg-type]
    assert Policy(passes=meant).passes == meant


@pytest.mark.parametrize(
    "written",
    [[other, other], ["nope"], ["-nope"], ["cap_results", "-cap_results"], [3], [None], other,
     ["default", "cap_results", "cap_results"], [stubber("lines"), stubber("rows")]],
)  # fmt: skip
def test_lists_that_mean_nothing_are_refused(written: Any) -> None:
    with pytest.raises(PolicyError, match=r"passes: .*each at most once"):
        Policy(passes=written)


def test_a_policy_with_functions_is_a_value() -> None:
    policy = Policy(passes=("cap_results", other))
    assert policy == Policy(passes=("cap_results", other)) != Policy(passes=("cap_results",))
    assert policy.replace(cap_chars=5).passes == policy.passes
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert policy.fingerprint() == Policy(passes=("cap_results", other)).fingerprint()
    assert policy.fingerprint() != Policy(passes=("cap_results", stub_seen)).fingerprint()


# Told apart.


def test_functions_are_known_by_their_place_and_others_by_number() -> None:
    assert pass_token(cap_results) == "respool.passes.cap_results:cap_results"
    assert pass_token(other) == f"{__name__}:other"
    one, two = stubber("lines"), stubber("rows")
    assert pass_token(one) == pass_token(one) != pass_token(two)
    assert pass_name(one) == "stub"
    assert pass_name(partial(other)) == "partial"  # pyright: ignore[reportArgumentType]
    assert pass_token(partial(other)) != pass_token(partial(other))


def test_numbers_are_not_used_again() -> None:
    tokens = {pass_token(stubber("lines")) for _ in range(50)}
    assert len(tokens) == 50


def test_two_closures_of_one_factory_do_not_share_what_is_remembered() -> None:
    memo = Memo()
    said: list[str] = []
    for unit in ("lines", "rows", "lines"):
        out = respool.compact(session(), policy=eager(stubber(unit)), memo=memo)
        said.append(results("anthropic", out.request)[0])
    assert [text.split()[2] for text in said] == ["lines", "rows", "lines"]


# Passes that go wrong.


def wrong_type(view: View, policy: Policy) -> Any:
    return [object()]


def no_list(view: View, policy: Policy) -> Any:
    return 3


def unseen(view: View, policy: Policy) -> Iterator[Offer]:
    for position in view.transcript.results[-1:]:
        part = view.transcript.parts[position]
        yield Offer("stub", Replace(position, part.ref, "", reference(part.text), "stubbed", "", 1))


def wrong_original(view: View, policy: Policy) -> Iterator[Offer]:
    for position in view.fresh_results():
        ref = view.transcript.parts[position].ref
        yield Offer("stub", Replace(position, ref, "gone", reference("x"), "stubbed", "", 9))


def no_record(view: View, policy: Policy) -> Iterator[Offer]:
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        ref, told = reference(part.text), (view.transcript.exchange_of[position],)
        yield Offer("stub", Replace(position, part.ref, "gone", ref, "folded", "", 9, told))


def longer(view: View, policy: Policy) -> Iterator[Offer]:
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        text = part.text + " and so on and on"
        yield Offer("stub", Replace(position, part.ref, text, reference(part.text), "x", "", 9))


def nowhere(view: View, policy: Policy) -> Iterator[Offer]:
    part = view.transcript.parts[0]
    yield Offer("stub", Replace(10**6, part.ref, "", reference(""), "stubbed", "", 9))


def nothing_there(view: View, policy: Policy) -> Iterator[Offer]:
    yield Offer("drop", DropReasoning(0, view.transcript.parts[0].ref, "stubbed", "", 5))


def _stub(view: View, text: str, behind: int = 0) -> Iterator[Offer]:
    """An offer that is sound but for what is asked for."""
    for position in view.fresh_results()[:1] if not view.arrival else ():
        part = view.transcript.parts[position]
        saved, ref = view.saved_by(position, text), reference(part.text)
        yield Offer("stub", Replace(position - behind, part.ref, text, ref, "mine", "", saved))


def no_text(view: View, policy: Policy) -> Iterator[Offer]:
    return _stub(view, "half a sign \ud83d")


def from_the_end(view: View, policy: Policy) -> Iterator[Offer]:
    return _stub(view, "gone", len(view.transcript.parts))


def another_exchange(view: View, policy: Policy) -> Iterator[Offer]:
    ref = view.transcript.parts[view.transcript.exchanges[0].call].ref
    yield Offer("drop", DropExchange(-len(view.transcript.exchanges), ref, "mine", "", 5))


def boasting(view: View, policy: Policy) -> Iterator[Offer]:
    ref = view.transcript.parts[view.transcript.exchanges[0].call].ref
    if not view.arrival:
        yield Offer("drop", DropExchange(0, ref, "mine", "", 10**9))


def strange_mark(view: View, policy: Policy) -> Iterator[Offer]:
    part = view.transcript.parts[0]
    yield Offer("trim", PlaceBreakpoint(0, part.ref, {"type": "for ever"}, "mine", ""))


FAULTS = {
    no_text: "cannot be written",
    from_the_end: "is of no part",
    another_exchange: "is of no part",
    strange_mark: "no cache breakpoint",
    boasting: "tokens, not 1,000,000,000",
    wrong_type: "is no Offer",
    no_list: "TypeError",
    unseen: "touches what is protected",
    wrong_original: "names another original",
    no_record: "names another original",
    longer: "tokens, not 9",
    nowhere: "is of no part",
    nothing_there: "takes out nothing",
}


@formats
@pytest.mark.parametrize("faulty", FAULTS, ids=lambda faulty: faulty.__name__)
def test_a_faulty_pass_is_skipped_and_reported(format: str, faulty: Any) -> None:
    whole = session(format)
    out = respool.compact(whole, format=format, policy=eager(faulty), memo=None)
    assert out.request is whole
    assert FAULTS[faulty] in out.report.failures[faulty.__name__]
    with_cap = eager(faulty, "cap_results", cap_chars=1_000)
    mixed = respool.compact(whole, format=format, policy=with_cap, memo=None)
    assert [edit.reason for edit in mixed.report.edits] == ["over_cap"]


# What a pass that knows nothing of providers may try on any part.

WRITTEN = {"file_path": "/w/a.py", "content": "x = 1\n" * 60}
TRIES = ("a word", "nothing", "a marker", "an object", "drop", "drop reasoning")


def trying(what: str, at: int) -> Callable[[View, Policy], Iterator[Offer]]:
    """A pass that tries one edit on one part, if that is not protected."""

    def attempt(view: View, policy: Policy) -> Iterator[Offer]:
        history = view.transcript
        if at >= len(history.parts) or view.is_protected(at):
            return
        part, ordinal = history.parts[at], history.exchange_of[at]
        ref = reference(part.text)
        marker = str(OmissionMarker(3, "lines", ref))
        said = {"a word": "gone", "nothing": "", "a marker": marker}
        said["an object"] = f'{{"x": "{marker}"}}'
        if what in said:
            saved = view.saved_by(at, said[what])
            yield Offer("stub", Replace(at, part.ref, said[what], ref, "mine", "", saved))
        elif what == "drop" and ordinal >= 0:
            yield Offer("drop", DropExchange(ordinal, part.ref, "mine", "", 9))
        elif what == "drop reasoning" and part.kind == "reasoning":
            unit = next(n for n, one in enumerate(history.units) if at in one.reasoning)
            yield Offer("drop", DropReasoning(unit, part.ref, "mine", "", 9))

    return attempt


def thinking(format: str, whole: dict[str, Any]) -> dict[str, Any]:
    """The request with reasoning before each of its calls, as far as its wire has any."""
    history = list[Any]()
    for source in whole[FIELD[format]]:
        message = dict(source)
        if format == "anthropic" and message["role"] == "assistant":
            block = {"type": "thinking", "thinking": "I think. " * 20, "signature": "c2ln" * 20}
            message["content"] = [block, *message["content"]]
        if format == "openai-chat" and message["role"] == "assistant":
            message["reasoning_content"] = "I think. " * 20
        last = history[-1].get("type") if history else None
        if message.get("type") == "function_call" and last != "function_call":
            summary = [{"type": "summary_text", "text": "I think. " * 20}]
            history.append({"type": "reasoning", "id": f"rs_{len(history)}", "summary": summary})
        history.append(message)
    modes = {"anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}
    return {**whole, **modes.get(format, {}), "max_tokens": 4_000, FIELD[format]: history}


def pending(format: str, whole: dict[str, Any]) -> dict[str, Any]:
    """The request before its last call was answered."""
    return {**whole, FIELD[format]: whole[FIELD[format]][:-1]}


def as_it_is(format: str, whole: dict[str, Any]) -> dict[str, Any]:
    return whole


def busy(format: str) -> dict[str, Any]:
    def long(id: str, **about: Any) -> Exchange:
        return Exchange(f"what {id} printed\n" * 40, id=id, **about)

    return request(
        format,
        "go",
        [long("a")],
        [long("b", tool="Write", args=WRITTEN)],
        [long("c"), long("d", tool="Write", args={**WRITTEN, "file_path": "/w/b.py"})],
        "some more words of the user, and quite a lot of them",
        [long("e")],
    )


@formats
@pytest.mark.parametrize("shaped", [as_it_is, thinking, pending], ids=lambda one: one.__name__)
@pytest.mark.parametrize("what", TRIES)
def test_whatever_a_pass_tries_what_goes_out_is_valid(format: str, shaped: Any, what: str) -> None:
    whole = shaped(format, busy(format))
    assert respool.check(whole, format=format) == []
    done = 0
    for at in range(24):
        out = respool.compact(whole, format=format, policy=eager(trying(what, at)), memo=None)
        assert respool.check(out.request, format=format) == []
        done += len(out.report.edits)
        sent = json.dumps(out.request)
        if what != "drop":
            assert sent.count("x = 1") == json.dumps(whole).count("x = 1"), "what is written stays"
        if shaped is pending:
            assert '"e"' in sent or format == "gemini"
            assert str(whole[FIELD[format]][-1]) == str(out.request[FIELD[format]][-1])
    assert done or what in ("nothing", "drop reasoning")


def leaning(given: Any, level: Any = "stub") -> Callable[[View, Policy], Iterator[Offer]]:
    def lean(view: View, policy: Policy) -> Iterator[Offer]:
        for offer in stubs(view, "lines"):
            yield replace(offer, depends_on=given, level=level)

    return lean


@formats
@pytest.mark.parametrize("given", [3, None, "0", ("0",), (None,), (-1,), (10**6,), (1.0,)])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_an_offer_leans_on_must_be_there(format: str, given: Any, at_once: bool) -> None:
    later = (
        () if at_once else ([Exchange("end", id="c")],)
    )  # offers are judged at the next boundary
    whole, policy = session(format, *later), eager(leaning(given)).replace(eager=at_once)
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    assert out.request is whole
    assert "is no tuple of positions" in out.report.failures["lean"]


def test_a_level_must_be_one_that_there_is() -> None:
    out = respool.compact(session(), policy=eager(leaning((), "deep")), memo=None)
    assert "is none of trim, stub, drop" in out.report.failures["lean"]
    for level in ("trim", "stub", "drop"):
        sound = respool.compact(session(), policy=eager(leaning((0,), level)), memo=None)
        assert sound.report.failures == {}
        assert len(sound.report.edits) == 1


UNSOUND = {
    "a reason that is no text": ("stubbed", None, "no text"),
    "respool's own word for what still says all": ("tidied", "", "has the reason tidied"),
}


@formats
@pytest.mark.parametrize("case", UNSOUND)
def test_words_that_respool_goes_by_are_refused(format: str, case: str) -> None:
    reason, evidence, said = UNSOUND[case]

    def stub(view: View, policy: Policy) -> Iterator[Offer]:
        for offer in stubs(view, "lines"):
            edit: Any = replace(offer.edit, reason=reason, evidence=evidence)
            yield replace(offer, edit=edit)

    out = respool.compact(session(format), format=format, policy=eager(stub), memo=None)
    assert out.report.edits == ()
    assert said in out.report.failures["stub"]


# In packages.


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A package that offers passes, installed as pip would leave it."""
    code = """
    raise_on_use = []

    def drop_nothing(view, policy):
        return iter(())

    NUMBER = 3
    """
    (tmp_path / "acme_passes.py").write_text(textwrap.dedent(code))
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[respool.passes]\nacme = acme_passes:drop_nothing\nnumber = acme_passes:NUMBER\n"
        "missing = acme_passes:nope\nbroken = acme_broken:x\n"
    )
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("acme_passes", None)


def test_a_package_offers_a_pass_by_name(installed: Path) -> None:
    policy = Policy(passes=["default", "acme"])
    assert policy.passes is not None
    assert policy.passes[:-1] == USUAL
    assert pass_name(policy.passes[-1]) == "drop_nothing"  # type: ignore[arg-type]
    assert respool.compact(session(), policy=policy).report.failures == {}
    (installed / "respool.toml").write_text('passes = ["acme", "cap_results"]')
    toml = Policy.from_toml(installed / "respool.toml")
    assert toml == Policy.from_env({"RESPOOL_PASSES": "acme, cap_results"})
    assert toml.passes == (sys.modules["acme_passes"].drop_nothing, "cap_results")


def test_packages_are_looked_at_only_when_a_policy_names_one(installed: Path) -> None:
    Policy(passes=["default"])
    Policy(passes=(other,))
    assert "acme_passes" not in sys.modules


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", "number (acme_passes:NUMBER) is no function"),
        ("missing", "missing (acme_passes:nope) cannot be loaded: AttributeError"),
        ("broken", "broken (acme_broken:x) cannot be loaded: ModuleNotFoundError"),
        ("nope", "cap_results"),
        ("nope", "acme"),
    ],
)
def test_what_cannot_be_loaded_is_told(installed: Path, name: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        Policy(passes=(name,))
    assert said in str(error.value)
    assert name in str(error.value)
