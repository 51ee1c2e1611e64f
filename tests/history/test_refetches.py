"""Refetches: calls that ask again for what was taken out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import Policy, Tool, Tools
from respool.edits import Offer, Replace
from respool.engine import fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.base import View
from respool.passes.identical_results import identical_results
from respool.tools.use import Span
from tests.effort import examples
from tests.passes.test_protections import drop_all, stub_all
from tests.support.formats import FIELD, FORMATS, Exchange, request, results
from tests.support.timing import takes_at_most

formats = pytest.mark.parametrize("format", FORMATS)
TOOLS = Tools(
    [
        Tool("read", kind="read", reads="path", lines="first..last"),
        Tool("edit", kind="write", writes="path"),
        Tool("run", kind="run", key="arguments", barrier=False),
        Tool("build", kind="run", key="arguments", barrier=True),
        Tool("look", kind="search", key="arguments", barrier=False),
        Tool("note", kind="other", barrier=False),
    ]
)


def policy_with(*passes: Any, **more: Any) -> Policy:
    settings: dict[str, Any] = {"reevaluate_tokens": 1, "reevaluate_ratio": 0.0, "eager": True}
    return Policy(passes=passes, **settings, keep_exchanges=0, tools=TOOLS, **more)


STUB = policy_with(stub_all)


def lines(path: str, first: int = 1, last: int = 60) -> str:
    """Lines of a file, as a tool numbers them."""
    return "\n".join(
        f"{n:6}→    value_{n} = the_words_of({path!r})" for n in range(first, last + 1)
    )


def read(path: str, first: int | None = None, last: int | None = None) -> tuple[str, str, Any]:
    text = lines(path) if first is None or last is None else lines(path, first, last)
    args = {"path": path} if first is None else {"path": path, "first": first, "last": last}
    return "read", text, args


def edit(path: str) -> tuple[str, str, Any]:
    return "edit", "done", {"path": path}


def run(text: str, tool: str = "run", **args: Any) -> tuple[str, str, Any]:
    return tool, text, args or {"cmd": "make"}


NOTE = ("note", "noted", {"about": "this"})
MADE = "\n".join(f"compiled file number {n} of the project" for n in range(60))
Done = tuple[str, str, Any]


def steps_of(did: Sequence[Done]) -> list[list[Exchange]]:
    """The exchanges, each with an id of its own; no two notes are the same."""
    return [
        [Exchange(text, tool=tool, id=f"c{n}", args={**args, "n": n} if tool == "note" else args)]
        for n, (tool, text, args) in enumerate(did, 1)
    ]


def grown(format: str, did: Sequence[Done], policy: Policy) -> list[respool.Compaction[Any]]:
    """Projections as the conversation grows; warm and cold agree, and all are valid."""
    steps, memo, found = steps_of(did), respool.Memo(), list[respool.Compaction[Any]]()
    for count in range(1, len(steps) + 1):
        body = json.dumps(request(format, "go", *steps[:count])).encode()
        warm = respool.compact(body, format=format, policy=policy, memo=memo)
        cold = respool.compact(body, format=format, policy=policy, memo=None)
        assert cold.request == warm.request
        assert cold.report.refetched == warm.report.refetched
        assert cold.report.failures == {}
        assert respool.check(cold.request, format=format) == []
        found.append(cold)
    return found


def found_in(format: str, did: Sequence[Done], policy: Policy) -> tuple[list[tuple[int, int]], int]:
    """Calls that fetched cut content again, with its source; and calls for content still there."""
    grown(format, did, policy)
    whole = request(format, "go", *steps_of(did))
    state = fold_request(whole, format=format, policy=policy, facts=Facts(), memo=None).state
    return [(one.exchange, one.earlier_exchange) for one in state.refetches.found], len(
        state.refetches.repeats
    )


CASES: dict[str, tuple[list[Done], list[tuple[int, int]], int]] = {
    "the same file": ([read("a"), NOTE, read("a")], [(2, 0)], 0),
    "some lines of it": ([read("a"), NOTE, read("a", 20, 30)], [(2, 0)], 0),
    "mostly the same lines": ([read("a", 1, 40), NOTE, read("a", 20, 60)], [(2, 0)], 0),
    "lines further on": ([read("a", 1, 40), NOTE, read("a", 30, 60)], [], 0),
    "lines of two reads": (
        [read("a", 1, 30), read("a", 31, 60), NOTE, read("a", 20, 60)], [(3, 1)], 0,
    ),
    "all of it after some lines": ([read("a", 1, 40), NOTE, read("a")], [(2, 0)], 0),
    "other lines": ([read("a", 1, 40), NOTE, read("a", 41, 60)], [], 0),
    "another file": ([read("a"), NOTE, read("b")], [], 0),
    "before it was cut": ([read("a"), read("a")], [], 1),
    "after a write": ([read("a"), edit("a"), NOTE, read("a")], [], 0),
    "after a write elsewhere": ([read("a"), edit("b"), NOTE, read("a")], [(3, 0)], 0),
    "after anything may have been written": (
        [read("a"), run("x", "build"), NOTE, read("a")], [], 0,
    ),
    "while the copy that came again stands": (
        [read("a"), NOTE, read("a"), NOTE, NOTE, read("a")], [(2, 0)], 1,
    ),
    "again after that was written to": (
        [read("a"), NOTE, read("a"), NOTE, edit("a"), read("a"), NOTE, NOTE, read("a")],
        [(2, 0), (8, 5)], 0,
    ),
    "a part of it that stands": (
        [read("a"), NOTE, read("a", 1, 30), read("a", 1, 30)], [(2, 0)], 1,
    ),
    "more than the part that stands": (
        [read("a"), NOTE, read("a", 1, 30), NOTE, read("a", 1, 50)], [(2, 0), (4, 0)], 0,
    ),
    "a run": ([run(MADE), NOTE, run(MADE)], [(2, 0)], 0),
    "a run that may write, and nothing between": (
        [run(MADE, "build"), NOTE, run(MADE, "build")], [(2, 0)], 0,
    ),
    "a search": ([run(MADE, "look", q="x"), NOTE, run(MADE, "look", q="x")], [(2, 0)], 0),
    "another run": ([run(MADE), NOTE, run(MADE, cmd="make all")], [], 0),
    "a run after a write": ([run(MADE), edit("a"), NOTE, run(MADE)], [], 0),
    "a run that says something new": ([run(MADE), NOTE, run("all is done now, see log")], [], 0),
    "a run of which some lines are the same": (
        [run(MADE), NOTE, run(f"{MADE[:500]}\nand then it stopped for good")], [(2, 0)], 0,
    ),
    "a run that said something else since": ([run(MADE), NOTE, run("no"), NOTE, run(MADE)], [], 0),
    "a write": ([("edit", MADE, {"path": "a"}), NOTE, ("edit", MADE, {"path": "a"})], [], 0),
    "one long line": ([run("x" * 5_000), NOTE, run("x" * 5_000)], [(2, 0)], 0),
    "nothing": ([run(""), NOTE, run("")], [], 0),
}  # fmt: skip


@formats
@pytest.mark.parametrize("case", CASES)
def test_what_counts_as_fetched_again(format: str, case: str) -> None:
    did, again, stood = CASES[case]
    assert found_in(format, did, STUB) == (again, stood)


@formats
def test_calls_of_one_turn_do_not_answer_one_another(format: str) -> None:
    both = [Exchange(lines("a"), tool="read", id=f"p{n}", args={"path": "a"}) for n in range(2)]
    whole = request(format, "go", both, *steps_of([NOTE, read("a")]))
    state = fold_request(whole, format=format, policy=STUB, facts=Facts(), memo=None).state
    assert [(one.exchange, one.earlier_exchange) for one in state.refetches.found] == [(3, 1)]
    assert state.refetches.repeats == []


def keep_half(view: View, policy: Policy) -> Iterator[Offer]:
    """A user's pass: of every seen result, the first half of its lines."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        if not view.can_rewrite(position) or find_marker(part.text) or "\n" not in part.text:
            continue
        all = part.text.split("\n")
        kept, ref = all[: len(all) // 2], reference(part.text)
        marker = OmissionMarker(len(all) - len(kept), "lines", ref, len(all))
        text = "\n".join([*kept, str(marker)])
        saved = view.saved_by(position, text)
        if saved > 0:
            yield Offer("trim", Replace(position, part.ref, text, ref, "trimmed", "half", saved))


@formats
@pytest.mark.parametrize(
    ("again", "found"),
    [
        (read("a", 1, 20), []),
        (read("a", 1, 30), []),
        (read("a", 1, 31), [(2, 0)]),
        (read("a", 40, 50), [(2, 0)]),
        (read("a"), [(2, 0)]),
    ],
    ids=["lines that stayed", "all that stayed", "one more", "lines that went", "all"],
)
def test_only_the_lines_that_went_count(format: str, again: Done, found: Any) -> None:
    did = [read("a"), NOTE, again]
    assert found_in(format, did, policy_with(keep_half))[0] == found


@formats
@pytest.mark.parametrize(
    ("passes", "reason"),
    [((stub_all,), "stubbed"), ((keep_half,), "trimmed"), ((drop_all,), "stubbed")],
    ids=["a stub", "a part", "dropped"],
)  # fmt: skip
def test_it_is_reported(format: str, passes: Any, reason: str) -> None:
    policy = policy_with(*passes)
    out = grown(format, [read("docs/a.md"), NOTE, read("docs/a.md")], policy)[-1]
    (one,) = out.report.refetched
    assert (one.tool, one.target, one.reason) == ("read", "docs/a.md", reason)
    assert one.ref.row > one.earlier.row > 0
    assert one.tokens > 60 * 8
    told = out.report.to_dict()["refetched"][0]
    assert (told["target"], told["reason"], told["tokens"]) == ("docs/a.md", reason, one.tokens)
    said = (
        f"fetched again at {one.ref}, stays from now on: read docs/a.md, taken out at {one.earlier}"
    )
    assert said in out.report.to_text()


@formats
@pytest.mark.parametrize("passes", [(stub_all,), (drop_all,), (keep_half,)])
def test_the_copy_stays_and_the_old_one_stays_cut(format: str, passes: Any) -> None:
    did = [read("a"), NOTE, read("a"), *([NOTE] * 4), read("b"), NOTE, edit("c"), NOTE]
    outs = grown(format, did, policy_with(*passes))
    for out in outs[2:]:
        said = results(format, json.loads(out.request))
        assert said.count(lines("a")) == 1, "the old copy says it again, or the new one is cut"
        assert len(out.report.refetched) == 1
    assert lines("b") not in results(format, json.loads(outs[-1].request))


@formats
def test_the_usual_passes_leave_it_alone(format: str) -> None:
    policy = Policy(
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        tools=TOOLS,
        cap_chars=300,
        trim_on_arrival=True,
        miss_penalty=0.0,
        cache_read_price=0.1,
        cache_write_price=0.1,
        keep_exchanges=0,
    )
    did = [read("a"), *([NOTE] * 3), read("a"), *([NOTE] * 9), read("b"), NOTE, NOTE]
    outs = grown(format, did, policy)
    assert [one.exchange for one in outs[-1].report.refetched] == [4]
    said = results(format, json.loads(outs[-1].request))
    plain = lines("a").replace("\n     ", "\n").lstrip()  # tidied: blanks before numbers
    assert ["value_60 " in text for text in said].count(True) == 1
    assert [line.strip() for line in said[4].split("\n")] == [
        line.strip() for line in plain.split("\n")
    ]
    assert find_marker(said[0]) is not None


@formats
def test_a_copy_that_is_pointed_to_is_no_cut(format: str) -> None:
    policy = policy_with(identical_results, stub_all, pin_calls=("c1",))
    did = [read("a"), read("a"), NOTE, read("a")]
    assert found_in(format, did, policy) == ([], 2)


@formats
@pytest.mark.parametrize("budget", [4_000, 6_000])
def test_a_budget_is_met_all_the_same(format: str, budget: int) -> None:
    """However much was fetched again, what is old may fold in the end."""
    did: list[Done] = []
    for number in range(12):
        did += [read(f"file_{number}"), NOTE, NOTE]
    did += [done for number in range(12) for done in (read(f"file_{number}"), NOTE)]
    policy = Policy(
        passes=(stub_all, "fold_exchanges"),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        tools=TOOLS,
        keep_exchanges=0,
    )
    whole = request(format, "go", *steps_of(did))
    out = respool.compact(whole, format=format, policy=policy.replace(budget=budget), memo=None)
    assert out.report.refetched
    assert out.report.tokens_after <= budget
    assert respool.check(out.request, format=format) == []


@formats
@pytest.mark.parametrize(
    ("budget", "stay"),
    [(None, [(3, "a"), (14, "b")]), (3_000, [(14, "b")]), (2_100, [])],
    ids=["room for both", "room for the latest", "room for none"],
)
def test_where_there_is_no_room_copies_give_way_the_late_ones_last(
    format: str, budget: int | None, stay: list[tuple[int, str]]
) -> None:
    did = [read("a"), read("b"), NOTE, read("a"), *([NOTE] * 10), read("b"), NOTE, NOTE]
    whole = request(format, "go " * 1_500, *steps_of(did))
    policy = policy_with(stub_all, budget=budget, counter="o200k")
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    said = enumerate(results(format, out.request))
    assert [(at, path) for at, text in said for path in "ab" if text == lines(path)] == stay


@formats
def test_a_copy_gives_way_at_once_to_what_just_came(format: str) -> None:
    did = [read("a"), NOTE, read("a"), NOTE, ("note", lines("b"), {"about": "that"})]
    whole = request(format, "go " * 1_500, *steps_of(did))
    policy = policy_with(stub_all, budget=3_000, counter="o200k")
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    assert lines("a") not in results(format, out.request)
    assert results(format, out.request)[-1] == lines("b")
    assert out.report.tokens_after <= 3_000


@formats
def test_a_client_that_sends_projections_back_keeps_its_copy(format: str) -> None:
    did = [read("a"), NOTE, read("a"), NOTE, NOTE]
    out = grown(format, did, STUB)[-1]
    again = respool.compact(out.request, format=format, policy=STUB, memo=None)
    assert again.request == out.request
    assert [one.reason for one in again.report.refetched] == ["before it came here"]


@formats
def test_a_skipped_boundary_is_looked_at_later(format: str) -> None:
    steps = steps_of([read("a"), NOTE, read("a"), NOTE])
    late = respool.compact(
        request(format, "go", *steps[:3]), format=format, policy=STUB, memo=None
    ).report.prefix
    facts = Facts(skipped=frozenset({late or ""}))
    whole = request(format, "go", *steps)
    out = respool.compact(whole, format=format, policy=STUB, facts=facts, memo=None)
    assert len(out.report.refetched) == 1
    assert results(format, out.request).count(lines("a")) == 1


deeds = st.lists(
    st.tuples(st.sampled_from(["read", "edit", "note", "run", "build"]), st.sampled_from("ab")),
    min_size=2,
    max_size=10,
)


def done(chosen: Sequence[tuple[str, str]]) -> list[Done]:
    """Calls of these deeds; a file has other content after each write that may reach it."""
    version, did = dict.fromkeys("ab", 0), list[Done]()
    for deed, name in chosen:
        if deed in ("edit", "build"):
            for one in "ab" if deed == "build" else name:
                version[one] += 1
        text = lines(f"{name}{version[name]}")
        made = {
            "read": ("read", text, {"path": name}),
            "edit": edit(name),
            "run": run(f"{MADE}\n{len(did)}", cmd=name, n=len(did)),
            "build": run("built", "build", n=len(did)),
        }
        did.append(made.get(deed, NOTE))
    return did


@formats
@pytest.mark.parametrize("passes", [(stub_all,), (drop_all,)], ids=["stubs", "drops"])
def test_it_is_found_just_where_the_model_could_not_see_it(format: str, passes: Any) -> None:
    @settings(max_examples=examples(12), deadline=None)
    @given(deeds)
    def hold(chosen: list[tuple[str, str]]) -> None:
        did = done(chosen)
        outs = grown(format, did, policy_with(*passes))
        seen = [results(format, json.loads(out.request)) for out in outs]
        expected = [
            at
            for at, (tool, text, _) in enumerate(did)
            if tool == "read"
            and any(other == "read" and said == text for other, said, _ in did[:at])
            and text not in seen[at - 1]
        ]
        assert [one.exchange for one in outs[-1].report.refetched] == expected
        for at in expected:
            for out in seen[at:]:
                assert did[at][1] in out, "what was fetched again is gone again"
        for before, after in pairwise(outs):
            known = json.loads(before.request)[FIELD[format]]
            if before.report.epochs == after.report.epochs:
                assert json.loads(after.request)[FIELD[format]][: len(known)] == known

    hold()


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Span("a"), Span("a"), True),
        (Span("a"), Span("a", (3, 4)), True),
        (Span("a", (1, 3)), Span("a", (3, 9)), True),
        (Span("a", (1, 3)), Span("a", (4, 9)), False),
        (Span("a", part=True), Span("a"), False),
    ],
)
def test_spans_meet(one: Span, other: Span, meet: bool) -> None:
    assert one.overlaps(other) is other.overlaps(one) is meet


@pytest.mark.slow
def test_looking_stays_linear() -> None:
    def session(count: int) -> dict[str, Any]:
        did = [done for n in range(count) for done in (read("a", n + 1, n + 40), NOTE)]
        return request("anthropic", "go", *steps_of(did))

    short, long = session(100), session(400)
    takes_at_most(
        2.5 * 4,
        lambda: respool.compact(long, policy=policy_with(), memo=None),
        lambda: respool.compact(short, policy=policy_with(), memo=None),
    )
