"""The pass fold_exchanges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool import Policy
from respool.compaction.memo import Memo
from respool.edits import DropExchange, Offer, Replace
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes import Pass
from respool.passes.base import View
from respool.passes.fold_exchanges import (
    FoldThresholds,
    fold_exchanges,
    fold_offers,
    fold_thresholds,
)
from respool.passes.stub_results import stub_results
from respool.tokens import counter_for
from tests.effort import examples
from tests.laws import laws
from tests.laws.subject import compactor
from tests.laws.trial_passes import drop_old_reasoning
from tests.strategies import requests
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
one_format = pytest.mark.parametrize(  # the others with `make laws`
    "format",
    [
        "openai-responses",
        *(
            pytest.param(one, marks=pytest.mark.laws)
            for one in FORMATS
            if one != "openai-responses"
        ),
    ],
)
TOOL = {
    "anthropic": "Bash",
    "openai-chat": "shell",
    "openai-responses": "shell",
    "gemini": "run_shell_command",
}
CODE = "\n".join(f"def thread_{number}(spool): return spool.turn({number})" for number in range(40))
HEAD = "Earlier in this session, "
EVERY_TIME = Policy(
    reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=1, errors_verbatim=False
)
EAGER = FoldThresholds(budget=1, target_ratio=0.0, waiver_ratio=math.inf, min_saved_tokens=1)


def folding(tiers: FoldThresholds) -> Pass:
    """The pass with other constants."""

    def fold_by_tiers(view: View, policy: Policy) -> Iterator[Offer]:
        return fold_offers(view, tiers)

    return fold_by_tiers


def folded(
    format: str, source: dict[str, Any], *passes: Pass, keep: int = 2, memo: Memo | None = None
) -> Compaction[Any]:
    """The request after folding at every boundary; open errors may be told too."""
    policy = Policy(
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=keep,
        errors_verbatim=False,
    )
    chosen = passes or (folding(EAGER),)
    out = build_compaction(
        fold_request(source, format=format, policy=policy, facts=Facts(), memo=memo, passes=chosen),
        source,
    )
    assert out.report.failures == {}
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    return out


def ran(format: str, command: str, printed: str, id: str, **about: Any) -> Exchange:
    return Exchange(printed, tool=TOOL[format], id=id, args={"command": command}, **about)


def said(format: str, words: str, *step: Exchange, bound: str = "") -> list[Any]:
    """One turn of the model: its words, perhaps reasoning of its own, its calls, their results."""
    messages: list[Any] = request(format, list(step))[FIELD[format]]
    first = messages[0]
    if format == "openai-chat":
        return [{**first, "content": words or None}, *messages[1:]]
    if format == "anthropic":
        text = [{"type": "text", "text": words}] if words else []
        thought = {"type": "thinking", "thinking": "hm, hm", "signature": bound}
        content = [*([thought] if bound else []), *text, *first["content"]]
        return [{**first, "content": content}, *messages[1:]]
    if format == "gemini":
        text = [{"text": words}] if words else []
        call = {**first["parts"][0], **({"thoughtSignature": bound} if bound else {})}
        return [{**first, "parts": [*text, call, *first["parts"][1:]]}, *messages[1:]]
    spoken = [{"type": "output_text", "text": words, "annotations": []}]
    message = {"type": "message", "role": "assistant", "id": f"msg_{step[0].id}", "content": spoken}
    thought = {"type": "reasoning", "id": f"rs_{step[0].id}", "summary": []}
    thought = {**thought, "encrypted_content": bound}
    return [*([thought] if bound else []), *([message] if words else []), *messages]


def session(format: str, *turns: list[Any]) -> dict[str, Any]:
    """A request that begins with the user's task."""
    base = request(format, "Mend the loom, please.")
    field = FIELD[format]
    return {**base, field: [*base[field], *(message for turn in turns for message in turn)]}


def work(format: str, *, bound: str = "", count: int = 1) -> list[list[Any]]:
    """Turns of ordinary work: reading, changing with a reason, running, failing, mending."""
    turns: list[list[Any]] = []
    for n in range(count):
        calls = [
            ("Let me look.", "cat docs/loom.md", CODE),
            ("", "rg -n turn src", "src/loom.py:1: turn"),
            ("The spool turns twice. So I halve it.", "sed -i s/2/1/ src/loom.py", "ok"),
            ("", "make", "Exit code 2\nloom.c:7: error: no spool" + "\n." * 80),
            ("The header is missing.", "sed -i 1i# src/spool.h", "ok"),
            ("", "make", "made"),
            ("", "pytest -q", "Exit code 1\nE assert 1 == 2\n1 failed"),
        ]
        for k, (words, command, printed) in enumerate(calls):
            one = ran(format, command, printed, f"call_{n}_{k}")
            turns.append(said(format, words, one, bound=bound))
    return turns


def quiet(format: str, count: int) -> list[list[Any]]:
    return [said(format, "", ran(format, f"echo {k}", "hm", f"q{k}")) for k in range(count)]


def summaries(format: str, out: Compaction[Any]) -> list[str]:
    return [text for text in results(format, out.request) if text.startswith(HEAD)]


SUMMARY = """\
Earlier in this session, 7 tool calls of the assistant, in short:
- changed:
  src/loom.py: “The spool turns twice. So I halve it.”
  src/spool.h: “The header is missing.”
- failed, exit 1: pytest -q
  E assert 1 == 2
  1 failed
- ran: make (2 times, 1 failed); pytest -q (failed)
- read: docs/loom.md
- failed at first, then succeeded: make: loom.c:7: error: no spool
- searched once
[respool: 6 calls left out, told above; ref {ref}]"""


def one_fold(format: str, bound: str = "") -> Compaction[Any]:
    """A session of which all old exchanges fold at once."""
    source = session(format, *work(format, bound=bound), *quiet(format, 3))
    return folded(format, source, at_the_end(9), keep=2)


def at_the_end(count: int) -> Pass:
    """The pass, once the model has seen so many exchanges."""

    def fold_at_the_end(view: View, policy: Policy) -> Iterator[Offer]:
        return fold_offers(view, EAGER) if view.seen_exchanges() == count else iter(())

    return fold_at_the_end


@formats
def test_what_was_done_and_why_is_still_told(format: str) -> None:
    out = one_fold(format)
    (text,) = summaries(format, out)
    marker = find_marker(text)
    assert isinstance(marker, OmissionMarker)
    assert text == SUMMARY.format(ref=marker.ref)
    assert len(results(format, out.request)) == 4, "the summary, and what is recent"


@formats
def test_the_others_are_gone_and_kept_under_their_own_hashes(format: str) -> None:
    out = one_fold(format)
    drops = [edit for edit in out.report.edits if isinstance(edit, DropExchange)]
    (told,) = [edit for edit in out.report.edits if isinstance(edit, Replace)]
    assert len(drops) == 6
    assert {edit.evidence for edit in drops} == {"told in the result of call call_0_6"}
    assert told.evidence == "7 calls told in one result"
    assert out.originals[reference(CODE)] == CODE
    assert CODE not in str(out.request)


RECORD = """\
=== 1 of 7: {tool} call_0_0
{{"command":"cat docs/loom.md"}}
--- result
{code}
=== 2 of 7: {tool} call_0_1
{{"command":"rg -n turn src"}}
--- result
src/loom.py:1: turn
=== 3 of 7: {tool} call_0_2
"""


@formats
def test_its_reference_leads_back_to_all_that_it_stands_for(format: str) -> None:
    out = one_fold(format)
    (text,) = summaries(format, out)
    marker = find_marker(text)
    assert marker is not None
    given_back = respool.expand(marker.ref, out)
    assert reference(given_back) == marker.ref
    spelled = given_back.replace('": "', '":"')  # arguments are told as they came
    assert spelled.startswith(RECORD.format(tool=TOOL[format], code=CODE))
    assert given_back.endswith("--- result\nExit code 1\nE assert 1 == 2\n1 failed\n")
    assert respool.expand(marker.ref, out, pattern="^=== ").count("\n") == 7
    assert respool.expand(reference("made"), out) == "made", "and each is found on its own"


@formats
def test_what_goes_with_an_exchange_is_in_the_record_too(format: str) -> None:
    looks = [[ran(format, "look", CODE, f"{k}{n}", image=True) for n in "ab"] for k in range(3)]
    bound = "c2ln" * 8 if format == "anthropic" else ""
    turns = [said(format, "", *step, bound=bound) for step in looks]
    source = session(format, *turns, *quiet(format, 4))
    for n in range(6):  # each image is another one
        source = json.loads(json.dumps(source).replace(PIXEL, f"{n}" * 8, 1))
    out = folded(format, source, at_the_end(9))
    (edit,) = [one for one in out.report.edits if isinstance(one, Replace) and one.stands_for]
    assert len(edit.stands_for) == 7
    refs = respool.expand(edit.original, out, pattern="^--- image; ref ").split("\n")[:-1]
    kept = [respool.expand(line.split()[-1], out) for line in refs]
    assert [f"{n}" * 8 in text for n, text in enumerate(kept)] == [True] * len(kept)
    assert len(kept) == (0 if format == "openai-chat" else 6)
    thoughts = respool.expand(edit.original, out, pattern="^hm, hm$")
    assert thoughts == "hm, hm\n" * (3 if bound else 0)


@formats
def test_a_summary_of_summaries_leads_back_to_everything(format: str) -> None:
    tiers = folding(
        FoldThresholds(
            budget=1,
            target_ratio=0.0,
            waiver_ratio=math.inf,
            min_saved_tokens=1,
            max_batch_calls=4,
            max_summaries=2,
        )
    )
    memo = Memo()
    turns = [
        said(format, f"{k}!", ran(format, f"echo {k}", f"thread {k} of the cloth\n" * 9, f"n{k}"))
        for k in range(40)
    ]
    seen: dict[str, str] = {}
    out = folded(format, session(format), tiers)
    for end in range(1, len(turns) + 1):
        out = folded(format, session(format, *turns[:end]), tiers, memo=memo)
        cold = folded(format, session(format, *turns[:end]), tiers)
        assert out.originals == cold.originals
        assert out.request == cold.request, "words that are left become neighbours, and are joined"
        seen |= out.originals
    told = [edit for edit in out.report.edits if isinstance(edit, Replace) and edit.stands_for]
    assert max(len(edit.stands_for) for edit in told) > 8, "summaries merged"
    back = "".join(respool.expand(edit.original, out) for edit in told)
    for k in range(out.report.edits[-1].stands_for[-1] + 1):  # type: ignore[union-attr]
        assert back.count(f"thread {k} of the cloth\n" * 9) == 1, "each once"
    assert seen.items() == out.originals.items(), "what was named once is still there"


@formats
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_reversible_whatever_folds(format: str, data: st.DataObject) -> None:
    example = data.draw(requests(format))
    if isinstance(example[FIELD[format]], list):
        compact = compactor(folding(EAGER), format=format, usual=EVERY_TIME)
        laws.reversible(compact, format, example)


@formats
@pytest.mark.parametrize("bound", ["", "c2ln" * 8])
def test_reasoning_goes_with_its_exchanges(format: str, bound: str) -> None:
    out = one_fold(format, bound)
    assert len(summaries(format, out)) == 1
    wire = json.dumps(out.request[FIELD[format]])
    assert wire.count(bound) <= 1 if bound else True, "only what is bound to the call that stayed"


@formats
@pytest.mark.parametrize("bound", ["", "c2ln" * 8])
@pytest.mark.parametrize("stop", range(1, 12))
def test_a_cut_never_falls_inside_parallel_calls(format: str, bound: str, stop: int) -> None:
    turns = [
        said(format, "", *(ran(format, f"cat {n}{k}", CODE, f"{n}{k}") for k in "abc"), bound=bound)
        for n in range(4)
    ]
    out = folded(format, session(format, *turns), keep=stop)
    old = 9 - stop  # the last turn's results have not been seen
    whole = max(0, old - old % 3)
    drops = [edit for edit in out.report.edits if isinstance(edit, DropExchange)]
    assert all(edit.exchange < whole for edit in drops)
    texts = results(format, out.request)
    assert texts[len(texts) - (12 - whole) :] == [CODE] * (12 - whole)


def test_what_must_stay_beside_a_summary_points_to_it() -> None:
    """Signed thinking holds the calls of its message together: none of them goes alone."""
    other = CODE.replace("thread", "weft")
    both = [
        ran("anthropic", f"cat {name}", text, name) for name, text in (("a", CODE), ("b", other))
    ]
    turn = said("anthropic", "Let me look.", *both, bound="c2ln" * 8)
    out = folded("anthropic", session("anthropic", turn, *work("anthropic")))
    first, summary, *_ = results("anthropic", out.request)
    assert first == str(
        OmissionMarker(40, "lines", reference(CODE), reason="told in a result below")
    )
    told, marker = summary.rsplit("\n", 1)
    assert told == f"{HEAD}2 tool calls of the assistant, in short:\n- read: a, b"
    assert marker.startswith("[respool: 1 calls left out, told above; ref ")
    evidence = ["told in the result of call b", "2 calls told in one result"]
    assert [edit.evidence for edit in out.report.edits][:2] == evidence


@formats
def test_nothing_recent_changes(format: str) -> None:
    source = session(format, *work(format, count=3))
    out = folded(format, source, keep=6)
    assert results(format, out.request)[-7:] == results(format, source)[-7:]


@formats
def test_to_keep_none_means_none_not_all(format: str) -> None:
    out = folded(format, session(format, *work(format)), keep=0)
    texts = results(format, out.request)
    assert texts[-1].startswith("Exit code 1"), "what the model has not seen stays"
    assert len(texts) < 7


@formats
def test_an_unanswered_call_is_never_folded(format: str) -> None:
    field = FIELD[format]
    source = session(format, *work(format))
    asked = said(format, "", ran(format, "rm -r out", "", "pending"))[:1]
    pending = {**source, field: [*source[field], *asked]}
    out = folded(format, pending, keep=0)
    assert "rm -r out" in json.dumps(out.request[field][-1])


@formats
def test_a_flagged_failure_never_holds_the_summary(format: str) -> None:
    turns = work(format)
    broken = said(format, "", ran(format, "make all", "no such target", "x", error=True))
    out = folded(format, session(format, *turns, broken, *quiet(format, 2)), keep=1)
    assert summaries(format, out)
    flagged = [one for one in out.request[FIELD[format]] if "no such target" in str(one)]
    assert len(flagged) == 1, "an open error stays as it is"
    assert HEAD not in str(flagged)


def test_a_run_of_failures_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them can hold a summary: they were all looked at again for each that came behind."""
    looked: list[int] = []
    can_rewrite = View.can_rewrite

    def counting(view: View, position: int) -> bool:
        looked.append(position)
        return can_rewrite(view, position)

    monkeypatch.setattr(View, "can_rewrite", counting)
    failures = [
        said("anthropic", "", ran("anthropic", f"make {n}", "it fails", f"f{n}", error=True))
        for n in range(120)
    ]
    source = session("anthropic", *failures, *quiet("anthropic", 3))
    out = folded("anthropic", source, at_the_end(122), keep=2)
    assert out.report.edits == ()
    assert len(looked) == len(set(looked)) > 100


@formats
def test_the_latest_read_of_a_file_that_is_edited_folds_when_it_was_read_again(format: str) -> None:
    read = [said(format, "", ran(format, "cat src/loom.py", f"{CODE}\n{n}", f"r{n}")) for n in "ab"]
    first = session(format, read[0], *work(format), *quiet(format, 3))
    assert f"{CODE}\na" in results(format, folded(format, first).request)
    later = session(
        format, read[0], *work(format), read[1], *work(format, count=2), *quiet(format, 3)
    )
    texts = results(format, folded(format, later).request)
    assert f"{CODE}\na" not in texts
    assert f"{CODE}\nb" in texts


@formats
def test_nothing_folds_under_the_budget(format: str) -> None:
    source = session(format, *work(format, count=3))
    assert folded(format, source, folding(FoldThresholds(budget=1_000_000))).report.edits == ()
    assert folded(format, source, fold_exchanges).report.edits == ()


@formats
def test_a_budget_folds_the_oldest_only_as_far_as_needed(format: str) -> None:
    source = session(format, *work(format, count=12))
    size = folded(format, source, folding(FoldThresholds())).report.tokens_after
    tiers = FoldThresholds(
        budget=size * 3 // 4, target_ratio=0.9, min_saved_tokens=200, max_batch_calls=7
    )
    out = folded(format, source, folding(tiers))
    assert len(summaries(format, out)) >= 1
    assert out.report.tokens_after <= size * 3 // 4
    assert results(format, source)[-21] in results(format, out.request)


@one_format
def test_a_fold_goes_on_until_its_share_of_the_budget_is_reached(format: str) -> None:
    turns, memo, sizes = work(format, count=7), Memo(), list[int]()
    tiers = FoldThresholds(budget=3_000, target_ratio=0.4, min_saved_tokens=100, max_batch_calls=3)
    epochs = 0
    for end in range(1, len(turns), 2):
        out = folded(format, session(format, *turns[:end]), folding(tiers), memo=memo)
        sizes += [out.report.tokens_after] * (out.report.epochs > epochs)
        epochs = out.report.epochs
    assert sizes
    assert max(sizes) < 0.55 * 3_000, sizes


@formats
def test_the_threshold_counts_characters_of_calls_and_results(format: str) -> None:
    source = session(format, *work(format, count=2))
    said_in_all = sum(len(text) for text in results(format, source))
    assert (
        folded(
            format, source, folding(FoldThresholds(threshold_chars=2 * said_in_all))
        ).report.edits
        == ()
    )
    tiers = FoldThresholds(threshold_chars=said_in_all // 2, min_saved_tokens=1)
    assert summaries(format, folded(format, source, folding(tiers)))


@formats
def test_a_summary_is_no_longer_than_it_may_be_but_tells_what_changed_and_failed(
    format: str,
) -> None:
    source = session(format, *work(format, count=20))
    counter = counter_for(format, source.get("model"))
    for most, needed in ((500, 0), (120, 180), (60, 180)):
        tiers = FoldThresholds(
            budget=1,
            target_ratio=0.0,
            min_saved_tokens=1,
            max_summary_tokens=most,
            max_batch_calls=1_000,
        )
        texts = summaries(format, folded(format, source, folding(tiers)))
        assert all(counter.count(text) <= most + needed for text in texts)
        for known in ("src/loom.py", "src/spool.h", "E assert 1 == 2"):
            assert any(known in text for text in texts)


def writing(format: str, count: int) -> list[list[Any]]:
    """Turns that each read a file and write another one."""
    return [
        said(format, "", ran(format, command, printed, f"call_{n}_{k}"))
        for n in range(count)
        for k, (command, printed) in enumerate(
            [(f"cat src/reed_{n}.py", CODE), (f"touch src/heddle_{n}.py", "ok")]
        )
    ]


@formats
@pytest.mark.parametrize("standing", [1, 2, 6])
def test_every_changed_file_is_named_however_often_summaries_merge(
    format: str, standing: int
) -> None:
    turns = writing(format, 30)
    tiers = folding(
        FoldThresholds(
            budget=1_000,
            target_ratio=0.5,
            min_saved_tokens=200,
            max_batch_calls=7,
            max_summaries=standing,
        )
    )
    memo = Memo()
    out = folded(format, session(format), tiers, memo=memo)
    for end in range(2, len(turns) + 1, 4):
        out = folded(format, session(format, *turns[:end]), tiers, memo=memo)
        wire = json.dumps(out.request)
        assert [n for n in range(end // 2) if f"src/heddle_{n}.py" not in wire] == []
    texts = summaries(format, out)
    assert 1 <= len(texts) <= standing
    drops = [edit for edit in out.report.edits if isinstance(edit, DropExchange)]
    markers = [find_marker(text) for text in texts]
    told = sum(marker.omitted + 1 for marker in markers if isinstance(marker, OmissionMarker))
    assert told == len(drops) + len(texts), "every call is told of once"


@formats
def test_what_had_to_stay_is_told_later_in_the_summary_it_stands_before(format: str) -> None:
    read = said(format, "", ran(format, "cat src/loom.py", f"{CODE}\na", "base"))
    again = said(format, "", ran(format, "cat src/loom.py", f"{CODE}\nb", "again"))
    turns = [read, *work(format), *quiet(format, 3)]
    source = session(format, *turns, again, *work(format), *quiet(format, 6)[3:])
    out = folded(format, source, folding(EAGER))
    assert "src/loom.py" in summaries(format, out)[0].partition("- read:")[2]
    assert not any(f"{CODE}\na" in text for text in results(format, out.request))


@formats
@pytest.mark.parametrize(("yields", "stays"), [(math.inf, True), (0.0, False)])
def test_the_read_behind_an_edit_folds_only_under_pressure(
    format: str, yields: float, stays: bool
) -> None:
    read = said(format, "", ran(format, "cat src/loom.py", f"{CODE}\na", "base"))
    source = session(format, read, *work(format), *quiet(format, 3))
    tiers = FoldThresholds(budget=1, target_ratio=0.0, waiver_ratio=yields, min_saved_tokens=1)
    out = folded(format, source, folding(tiers))
    assert (f"{CODE}\na" in results(format, out.request)) is stays
    if not stays:
        assert any("src/loom.py" in text.partition("- read:")[2] for text in summaries(format, out))


@formats
def test_a_summary_once_sent_stays_until_the_next_fold(format: str) -> None:
    turns = work(format, count=6)
    tiers = folding(FoldThresholds(budget=1_500, target_ratio=0.3, min_saved_tokens=200))
    memo, before, changed = Memo(), None, 0
    for end in range(1, len(turns) + 1):
        source = session(format, *turns[:end])
        out = folded(format, source, tiers, memo=memo)
        assert out.request == folded(format, source, tiers).request, "warm is cold"
        wire = [json.dumps(one) for one in out.request[FIELD[format]]]
        if before is not None and wire[: len(before)] != before:
            changed += 1
        before = wire
    assert 1 <= changed <= len(turns) // 4


@formats
def test_summaries_merge_when_too_many_stand(format: str) -> None:
    source = session(format, *work(format, count=12))
    apart = folded(
        format,
        source,
        folding(FoldThresholds(budget=1, target_ratio=0.0, min_saved_tokens=300, max_summaries=99)),
    )
    merged = folded(
        format,
        source,
        folding(FoldThresholds(budget=1, target_ratio=0.0, min_saved_tokens=300, max_summaries=2)),
    )
    assert len(summaries(format, apart)) > 2
    texts = summaries(format, merged)
    assert 1 <= len(texts) <= 2
    calls = [find_marker(text) for text in texts]
    told = sum(marker.omitted + 1 for marker in calls if isinstance(marker, OmissionMarker))
    drops = [edit for edit in merged.report.edits if isinstance(edit, DropExchange)]
    assert told == len(drops) + len(texts), "every call is told of once"
    assert merged.report.tokens_after < apart.report.tokens_after


@formats
def test_nothing_is_offered_on_its_own_output(format: str) -> None:
    out = folded(format, session(format, *work(format, count=3)))
    assert summaries(format, out)
    assert folded(format, out.request).report.edits == ()


@formats
@pytest.mark.parametrize("bound", ["", "c2ln" * 8])
def test_it_agrees_with_other_passes(format: str, bound: str) -> None:
    source = session(format, *work(format, count=4, bound=bound))
    tiers = folding(FoldThresholds(budget=1_200, target_ratio=0.3, min_saved_tokens=100))
    alone = folded(format, source, tiers)
    beside = folded(format, source, drop_old_reasoning, stub_results, tiers)
    assert summaries(format, alone)
    assert summaries(format, beside), "what was shaped before can still fold"
    stays = sum(one.tokens for one in beside.report.refetched)  # read again after a stub
    assert beside.report.tokens_after <= alone.report.tokens_after + stays


def lean_on_the_first(view: View, policy: Policy) -> Iterator[Offer]:
    """Say of a later copy that the first read has it all."""
    exchanges, parts = view.transcript.exchanges, view.transcript.parts
    first = exchanges[0].result if exchanges else None
    for position in view.fresh_results():
        part = parts[position]
        if first is not None and first < position and part.text == CODE:
            text = f"as above\n{OmissionMarker(40, 'lines', reference(CODE))}"
            saved = view.saved_by(position, text)
            edit = Replace(position, part.ref, text, reference(CODE), "identical", "", saved)
            yield Offer("stub", edit, depends_on=(first,))


@formats
def test_what_an_edit_outside_needs_whole_stays(format: str) -> None:
    turns = [*work(format, count=2), *quiet(format, 2)]
    again = said(format, "", ran(format, "cat docs/loom.md", CODE, "again"))
    source = session(format, *turns, again, *quiet(format, 3)[2:])
    out = folded(format, source, lean_on_the_first, folding(EAGER), keep=1)
    assert summaries(format, out)
    texts = results(format, out.request)
    assert CODE in texts or not any(text.startswith("as above") for text in texts)


@one_format
def test_conversations_last_two_to_three_times_longer(format: str) -> None:
    turns = work(format, count=60)
    budget = 6_000
    tiers = folding(
        FoldThresholds(budget=budget * 9 // 10, target_ratio=0.5)
    )  # what is quick counts nearly so
    plain = requests_until_full(format, turns, budget, None)
    longer = requests_until_full(format, turns, budget, tiers)
    assert longer >= 2.5 * plain


def requests_until_full(
    format: str, turns: Sequence[list[Any]], budget: int, fold_pass: Pass | None
) -> int:
    """Number of requests before one is over the budget."""
    memo = Memo()
    policy = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0)
    passes = () if fold_pass is None else (fold_pass,)
    for end in range(1, len(turns)):
        source = session(format, *turns[:end])
        found = fold_request(
            source, format=format, policy=policy, facts=Facts(), memo=memo, passes=passes
        )
        if build_compaction(found, source).report.tokens_after > budget:
            return end
    return len(turns)


def test_the_policys_budget_is_what_counts() -> None:
    assert fold_thresholds(Policy(budget=60_000)).budget == 60_000
    assert fold_thresholds(Policy()) == FoldThresholds(keep_recent=6), "as its source has it"
    assert FoldThresholds().max_summary_tokens == 500, "as its source has it"


@formats
def test_a_plan_that_was_stored_leads_back_as_well(format: str) -> None:
    source = session(format, *work(format, count=8))
    policy = Policy(budget=3_500, passes=("fold_exchanges",))
    made = respool.plan(source, format=format, policy=policy, memo=None)
    kept = msgspec.json.decode(msgspec.json.encode(made), type=respool.Plan)
    out = respool.compact(source, format=format, policy=policy, memo=None)
    applied = respool.apply(source, kept)
    told = [one for one in applied.report.edits if isinstance(one, Replace) and one.stands_for]
    assert told
    assert all(CODE in respool.expand(edit.original, applied) for edit in told[:1])
    assert {
        ref: applied.originals[ref] for ref in applied.originals
    }.items() <= out.originals.items()
