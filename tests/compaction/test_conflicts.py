"""Conflicts between offers and edits in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from respool.compaction.conflicts import choose_compatible
from respool.edits import (
    FOLDED,
    TIDIED,
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    PlaceBreakpoint,
    Replace,
    exchange_closure,
    touched_parts,
    touched_rows,
)
from respool.engine import FoldedRequest, fold_request
from respool.facts import Facts
from respool.passes import Pass
from respool.passes.base import View
from respool.policy import Policy
from respool.transcript import Part, PartKind, Ref, Speaker, Transcript, TranscriptIndex
from tests.support.formats import Exchange, request

EAGER = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0)


def part(
    row: int, kind: PartKind, *path: str | int, id: str = "", speaker: Speaker = "tool"
) -> Part:
    return Part(Ref(row, path), kind, speaker, "words", id=id)


def transcript(*, locked: bool = False) -> Transcript:
    """Two units: 0 reasoning, 1-2 calls, 3 result, 4-5 its media, 6 result; 7 call, 8 result."""
    index = TranscriptIndex()
    index.add_unit(
        (0, 2),
        [part(0, "reasoning", 0), part(0, "call", 1, id="a"), part(0, "call", 2, id="b")],
        [
            part(1, "result", "content", 0, id="a"),
            part(1, "media", "content", 0, "content", 1),
            part(1, "opaque", "content", 0, "content", 2),
            part(1, "result", "content", 1, id="b"),
        ],
        locked=locked,
    )
    index.add_unit(
        (2, 4),
        [part(2, "call", 0, id="c")],
        [part(3, "result", "content", 0, id="c")],
        locked=False,
    )
    return index.freeze()


def shorten(
    position: int,
    saved: int = 10,
    *,
    leans_on: Iterable[int] = (),
    to: str = "",
    reason: str = "trial",
) -> Offer:
    edit = Replace(position, Ref(0, ()), to or f"cut {position}", "ref", reason, "", saved)
    return Offer("trim", edit, tuple(leans_on))


def tidy(position: int, saved: int = 10) -> Offer:
    return shorten(position, saved, reason=TIDIED)


def fold_up(position: int, saved: int = 10) -> Offer:
    return shorten(position, saved, reason=FOLDED)


def together(first: Offer, *others: Offer) -> Offer:
    """One offer of all these edits."""
    return Offer(first.level, first.edit, also=tuple(one.edit for one in others))


def drop(exchange: int, saved: int = 10, leans_on: Iterable[int] = ()) -> Offer:
    return Offer("drop", DropExchange(exchange, Ref(0, ()), "trial", "", saved), tuple(leans_on))


def mute(unit: int, saved: int = 10) -> Offer:
    return Offer("drop", DropReasoning(unit, Ref(0, ()), "trial", "", saved))


def place_breakpoint(position: int) -> Offer:
    return Offer("trim", PlaceBreakpoint(position, Ref(0, ()), {}, "trial", ""))


A, B, A_SAID, B_SAID, C, C_SAID = 1, 2, 3, 6, 7, 8
SMALL, LARGE = shorten(A_SAID, 10, to="small"), shorten(A_SAID, 30, to="large")
EVEN = shorten(A_SAID, 10, to="even")
# What is offered, what edits in force touch and lean on, and which of the offers are taken.
CHOICES: dict[str, tuple[list[Offer], set[int], set[int], list[Offer]]] = {
    "nothing": ([], set(), set(), []),
    "every part its offer": (
        [shorten(C_SAID), shorten(A_SAID)],
        set(),
        set(),
        [shorten(A_SAID), shorten(C_SAID)],
    ),
    "of several the one that saves most": ([SMALL, LARGE], set(), set(), [LARGE]),
    "whatever the order": ([LARGE, SMALL], set(), set(), [LARGE]),
    "what follows a part with two offers is not forgotten": (
        [SMALL, LARGE, shorten(C_SAID)],
        set(),
        set(),
        [LARGE, shorten(C_SAID)],
    ),
    "of equal ones the first": ([SMALL, EVEN], set(), set(), [SMALL]),
    "an edit in force stays": ([LARGE, shorten(C_SAID)], {A_SAID}, set(), [shorten(C_SAID)]),
    "no drop of what an edit in force touches": ([drop(0)], {A_SAID}, set(), []),
    "no drop of reasoning that is gone": ([mute(0), drop(0)], {0}, set(), []),
    "a drop takes the result along": ([drop(0), LARGE], set(), set(), [drop(0)]),
    "a drop takes the media along": ([drop(0), shorten(4)], set(), set(), [drop(0)]),
    "a drop takes the reasoning along": ([mute(0), drop(0, 30)], set(), set(), [drop(0, 30)]),
    "reasoning that is worth more": ([drop(0), mute(0, 30)], set(), set(), [mute(0, 30)]),
    "a drop leaves other units alone": (
        [drop(0), drop(2)],
        set(),
        set(),
        [drop(0), drop(2)],
    ),
    "leaning on what stays whole": (
        [shorten(C_SAID, leans_on=[A_SAID])],
        set(),
        set(),
        [shorten(C_SAID, leans_on=[A_SAID])],
    ),
    "leaning on what was cut before": (
        [shorten(C_SAID, leans_on=[A_SAID])],
        {A_SAID},
        set(),
        [],
    ),
    "leaning on what is cut now": (
        [shorten(C_SAID, leans_on=[A_SAID]), LARGE],
        set(),
        set(),
        [LARGE],
    ),
    "cutting what is leaned on now": (
        [shorten(A_SAID, leans_on=[C_SAID]), shorten(C_SAID, 99)],
        set(),
        set(),
        [shorten(A_SAID, leans_on=[C_SAID])],
    ),
    "dropping what is leaned on now": (
        [shorten(A_SAID, leans_on=[C_SAID]), drop(2, 99)],
        set(),
        set(),
        [shorten(A_SAID, leans_on=[C_SAID])],
    ),
    "tidying what is leaned on now": (
        [shorten(A_SAID, leans_on=[C_SAID]), tidy(C_SAID)],
        set(),
        set(),
        [shorten(A_SAID, leans_on=[C_SAID]), tidy(C_SAID)],
    ),
    "tidying what an edit in force leans on": ([tidy(A_SAID)], set(), {A_SAID}, [tidy(A_SAID)]),
    "edits that need each other come before those that would take a part of them": (
        [shorten(B_SAID, 99), together(shorten(C_SAID), shorten(B_SAID))],
        set(),
        set(),
        [together(shorten(C_SAID), shorten(B_SAID))],
    ),
    "cutting what an edit in force leans on": ([LARGE], set(), {A_SAID}, []),
    "dropping what an edit in force leans on": ([drop(0), drop(1)], set(), {A_SAID}, [drop(1)]),
    "never each the other's copy": (
        [shorten(C_SAID, 99, leans_on=[A_SAID]), shorten(A_SAID, leans_on=[C_SAID])],
        set(),
        set(),
        [shorten(A_SAID, leans_on=[C_SAID])],
    ),
    "never in a ring": (
        [
            shorten(A_SAID, leans_on=[B_SAID]),
            shorten(B_SAID, leans_on=[C_SAID]),
            shorten(C_SAID, leans_on=[A_SAID]),
        ],
        set(),
        set(),
        [shorten(A_SAID, leans_on=[B_SAID])],
    ),
    "never on itself": ([drop(0, leans_on=[A_SAID])], set(), set(), []),
    "the next best, where the best leans on what was cut": (
        [shorten(A_SAID, 99, leans_on=[C_SAID]), SMALL],
        {C_SAID},
        set(),
        [SMALL],
    ),
    "an offer that touches nothing": ([mute(1), SMALL], set(), set(), [SMALL]),
    "a mark beside an edit": (
        [place_breakpoint(C_SAID), SMALL],
        set(),
        set(),
        [SMALL, place_breakpoint(C_SAID)],
    ),
}


def needing(whole: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """An edit on a part that no offer touches needs each of these."""
    return dict.fromkeys(whole, (999,))


@pytest.mark.parametrize("case", CHOICES)
def test_choice(case: str) -> None:
    offers, claimed, whole, taken = CHOICES[case]
    before = set(claimed), set(whole)
    assert (
        choose_compatible(
            offers, edits={}, claimed=claimed, dependents=needing(whole), transcript=transcript()
        )
        == taken
    )
    assert (claimed, whole) == before


@pytest.mark.parametrize("case", CHOICES)
def test_no_part_is_cut_twice_or_leaned_on_in_vain(case: str) -> None:
    offers, claimed, whole, _ = CHOICES[case]
    seen = transcript()
    taken = choose_compatible(
        offers, edits={}, claimed=claimed, dependents=needing(whole), transcript=seen
    )
    cut = [one for offer in taken for one in touched_parts(offer.edit, seen)]
    assert len(cut) == len(set(cut))
    assert claimed.isdisjoint(cut)
    leaned_on = whole | {one for offer in taken for one in offer.depends_on}
    tidied = {
        one
        for offer in taken
        if offer.edit.reason == TIDIED
        for one in touched_parts(offer.edit, seen)
    }
    assert leaned_on.isdisjoint({*cut, *claimed} - whole - tidied)


MUTED = mute(0, 20)
# What is offered, the edits in force, and whether the offer is taken in their place.
STANDING: dict[str, tuple[Offer, list[Offer], bool]] = {
    "a text that saves more": (LARGE, [SMALL], True),
    "as much": (EVEN, [SMALL], False),
    "less": (SMALL, [LARGE], False),
    "a drop that saves more": (drop(0, 30), [SMALL], True),
    "a drop that saves more than one of two, not than both": (
        together(drop(0, 15), drop(2, 15)), [LARGE, shorten(C_SAID, 20)], False,
    ),
    "a drop that saves more than both": (
        together(drop(0, 30), drop(2, 30)), [LARGE, shorten(C_SAID, 20)], True,
    ),
    "a marked part": (LARGE, [place_breakpoint(A_SAID)], False),
    "reasoning that is gone, once more": (mute(0, 99), [MUTED], False),
    "reasoning that is gone, with its calls": (drop(0, 30), [MUTED], True),
    "with its calls, but for less": (drop(0, 20), [MUTED], False),
    "a summary in place of a text": (fold_up(A_SAID, 30), [SMALL], True),
    "a text in place of a summary": (LARGE, [fold_up(A_SAID)], False),
    "a larger summary": (fold_up(A_SAID, 30), [fold_up(A_SAID)], True),
    "leaning on what was tidied": (shorten(C_SAID, leans_on=[A_SAID]), [tidy(A_SAID)], True),
    "leaning on what was cut": (shorten(C_SAID, leans_on=[A_SAID]), [SMALL], False),
    "dropping what a text in force leans on": (
        drop(0, 30), [shorten(C_SAID, leans_on=[A_SAID])], False,
    ),
    "dropping both": (
        together(drop(0, 30), drop(2)), [shorten(C_SAID, leans_on=[A_SAID])], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STANDING)
def test_what_outdoes_an_edit_in_force(case: str) -> None:
    offer, standing, taken = STANDING[case]
    seen = transcript()
    edits = {touched_parts(one.edit, seen)[0]: one.edit for one in standing}
    claimed = {part for edit in edits.values() for part in touched_parts(edit, seen)}
    whole = {on: touched_parts(one.edit, seen) for one in standing for on in one.depends_on}
    assert (
        choose_compatible([offer], edits=edits, claimed=claimed, dependents=whole, transcript=seen)
        == [offer] * taken
    )


def test_reasoning_in_two_parts_gives_way_as_one() -> None:
    index = TranscriptIndex()
    said = [part(0, "reasoning", 0), part(0, "reasoning", 1), part(0, "call", 2, id="a")]
    index.add_unit((0, 2), said, [part(1, "result", "content", 0, id="a")], locked=False)
    seen = index.freeze()
    taken = [
        choose_compatible(
            [drop(0, saved)],
            edits={0: MUTED.edit},
            claimed={0, 1},
            dependents={},
            transcript=seen,
        )
        for saved in (20, 21)
    ]
    assert taken == [[], [drop(0, 21)]]


TOUCHED: dict[str, tuple[Edit, bool, tuple[int, ...], set[int]]] = {
    "a text put in place": (shorten(A_SAID).edit, False, (A_SAID,), {1}),
    "a mark": (place_breakpoint(A_SAID).edit, False, (A_SAID,), {1}),
    "reasoning: all rows of its unit are unbound": (mute(0).edit, False, (0,), {0, 1}),
    "reasoning where there is none": (mute(1).edit, False, (), {2, 3}),
    "an exchange with its media and reasoning": (
        drop(0).edit, False, (A, A_SAID, 4, 5, 0), {0, 1},
    ),
    "its neighbour, without them": (drop(1).edit, False, (B, B_SAID, 0), {0, 1}),
    "an exchange without reasoning": (drop(2).edit, False, (C, C_SAID), {2, 3}),
    "a locked exchange takes its neighbours along": (
        drop(1).edit, True, (B, B_SAID, A, A_SAID, 4, 5, 0), {0, 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOUCHED)
def test_what_an_edit_takes_along(case: str) -> None:
    edit, locked, parts, rows = TOUCHED[case]
    seen = transcript(locked=locked)
    assert touched_parts(edit, seen) == parts
    assert touched_rows(edit, seen) == rows


def test_an_open_call_goes_alone() -> None:
    index = TranscriptIndex()
    index.add_unit((0, 1), [part(0, "call", 0, id="a")], [], locked=False)
    assert exchange_closure(index, 0) == (0,)


def test_a_late_result_goes_with_its_call() -> None:
    index = TranscriptIndex()
    index.add_unit((0, 1), [part(0, "call", id="a")], [], locked=True)
    index.add_unit((1, 3), [part(1, "text")], [part(2, "result", id="a")], locked=False)
    assert exchange_closure(index, 0) == (0, 2)
    assert touched_rows(drop(0).edit, index) == {0, 2}


def test_media_of_another_row_is_no_part_of_a_result() -> None:
    """In Responses every result has the empty path, which is the beginning of any other."""
    index = TranscriptIndex()
    answers = [part(1, "result", id="a"), part(1, "media", "output", 1), part(2, "text", "content")]
    index.add_unit((0, 3), [part(0, "call", id="a")], answers, locked=False)
    assert exchange_closure(index, 0) == (0, 1, 2)


LINES = "\n".join(f"line {number} of what the tool printed" for number in range(30))


def fold(passes: tuple[Pass, ...], *steps: list[Exchange] | str) -> FoldedRequest:
    return fold_request(
        request("anthropic", *steps),
        format="anthropic",
        policy=EAGER,
        facts=Facts(),
        memo=None,
        passes=passes,
    )


def copies_of_the_first(view: View, policy: Policy) -> Iterator[Offer]:
    """Let every later result lean on the first one that says the same."""
    first: dict[str, int] = {}
    for position in view.transcript.results:
        said = view.transcript.parts[position]
        original = first.setdefault(said.text, position)
        if original != position and not view.is_protected(position):
            edit = Replace(position, said.ref, "see above", "ref", "trial", "", 20)
            yield Offer("trim", edit, (original,))


def cut_everything(view: View, policy: Policy) -> Iterator[Offer]:
    """Cut every result, but only once two copies have been seen."""
    if len(view.transcript.results) > 3:
        for position in view.transcript.results:
            if not view.is_protected(position):
                ref = view.transcript.parts[position].ref
                yield Offer("stub", Replace(position, ref, "gone", "ref", "trial", "", 9))


def test_what_an_edit_in_force_leans_on_stays_whole_at_later_evaluations() -> None:
    said = [Exchange(LINES, id="a"), Exchange(LINES, id="b"), Exchange("other", id="c")]
    steps = [[said[0]], [said[1]], [said[2]], [Exchange("last", id="d")]]
    state = fold((copies_of_the_first, cut_everything), "go", *steps).state
    texts = {
        state.transcript.parts[edit.part].id: edit.text
        for edit in state.edits.by_part.values()
        if isinstance(edit, Replace)
    }
    assert texts == {"b": "see above", "c": "gone"}
