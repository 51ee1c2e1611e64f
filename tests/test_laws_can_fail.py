"""A violation of each law is planted, and the law's own check sees it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from respool.compaction.memo import Memo
from respool.edits import Offer, Replace
from respool.engine import Compaction
from respool.markers import ClipMarker, reference
from respool.passes.base import View
from respool.policy import Policy
from tests.laws import laws
from tests.laws.sessions import long_session
from tests.laws.subject import EAGER, IDLE, Compact, compactor, real
from tests.laws.trial_passes import fail

FORMAT = "anthropic"
REQUEST = long_session(FORMAT, 6, result=600)
GROWING = [{**REQUEST, "messages": REQUEST["messages"][: 2 * k + 1]} for k in range(1, 7)]


def changed(change: Any) -> Compact:
    """The real compactor with its output changed by hand."""

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        out = real(request, policy=policy or EAGER, memo=memo)
        return Compaction(change(out.request), out.report, out.originals)

    return run


def respelled(request: Any) -> Any:
    return (
        json.dumps(json.loads(request), indent=1).encode()
        if isinstance(request, bytes)
        else request
    )


def copied(request: Any) -> Any:
    return json.loads(json.dumps(request)) if isinstance(request, dict) else request


def without_a_result(request: Any) -> Any:
    return {**request, "messages": [*request["messages"][:2], *request["messages"][3:]]}


def test_the_real_one_breaks_none_of_them() -> None:
    laws.faithful(real, FORMAT, REQUEST)
    laws.valid(real, FORMAT, REQUEST, whole=True)
    laws.small(real, FORMAT, REQUEST)
    laws.stable(real, FORMAT, GROWING)
    laws.reproducible(real, FORMAT, GROWING)
    laws.reversible(real, FORMAT, REQUEST)
    laws.honest(real, FORMAT, REQUEST)
    laws.idempotent(real, FORMAT, REQUEST)
    laws.harmless(real, REQUEST)


@pytest.mark.parametrize("change", [respelled, copied])
def test_unfaithful_is_seen(change: Any) -> None:
    with pytest.raises(AssertionError):
        laws.faithful(changed(change), FORMAT, REQUEST)


def test_invalid_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.valid(changed(without_a_result), FORMAT, REQUEST, whole=True)


def test_a_shape_that_the_sdk_refuses_is_seen() -> None:
    odd = changed(
        lambda request: {
            **request,
            "messages": [*request["messages"], {"role": "user", "content": [{"type": "text"}]}],
        }
    )
    with pytest.raises(AssertionError):
        laws.valid(odd, FORMAT, REQUEST, whole=True)


def test_a_repair_of_what_was_sound_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.repairs_only_what_is_broken(changed(copied), FORMAT, REQUEST)


def lengthen(view: View, policy: Policy) -> Iterator[Offer]:
    """Replace results by longer ones, and call it a saving."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        ref = reference(part.text)
        edit = Replace(position, part.ref, f"{part.text}\n{ref} more", ref, "trial", "", 5)
        yield Offer("trim", edit)


def test_longer_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.small(compactor(lengthen), FORMAT, REQUEST)


def test_unstable_is_seen() -> None:
    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        out = real(request, policy=IDLE)
        first = {**request["messages"][0], "content": f"{len(request['messages'])} messages"}
        return Compaction(
            {**request, "messages": [first, *request["messages"][1:]]}, out.report, {}
        )

    with pytest.raises(AssertionError):
        laws.stable(run, FORMAT, GROWING)


def test_hidden_state_is_seen() -> None:
    turns = itertools.count()

    def forgetful(view: View, policy: Policy) -> Iterator[Offer]:
        for position in view.fresh_results():
            part = view.transcript.parts[position]
            ref = reference(part.text)
            text = f"{ref} {next(turns)}"
            yield Offer("stub", Replace(position, part.ref, text, ref, "trial", "", 5))

    with pytest.raises(AssertionError):
        laws.reproducible(compactor(forgetful), FORMAT, GROWING)


def lose(view: View, policy: Policy) -> Iterator[Offer]:
    """Replace results by a text that does not lead back."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        edit = Replace(position, part.ref, "gone", reference(part.text), "trial", "", 5)
        yield Offer("stub", edit)


def test_a_text_that_does_not_lead_back_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.reversible(compactor(lose), FORMAT, REQUEST)


def test_a_lost_original_is_seen() -> None:
    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        out = real(request, policy=policy or EAGER)
        return Compaction(out.request, out.report, dict.fromkeys(out.originals, "other"))

    with pytest.raises(AssertionError):
        laws.reversible(run, FORMAT, REQUEST)


def lie(view: View, policy: Policy) -> Iterator[Offer]:
    """Claim in the marker that fewer lines are gone than are."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        ref = reference(part.text)
        marker = ClipMarker("Bash", len(part.text), 10, 1, 2, "lines", 0, "x", False, ref)
        saved = view.tokens_of(position) - view.counter.count(str(marker))
        yield Offer("stub", Replace(position, part.ref, str(marker), ref, "trial", "", saved))


def test_a_false_marker_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.honest(compactor(lie), FORMAT, REQUEST)


def test_a_false_saving_is_seen() -> None:
    with pytest.raises(AssertionError, match="figure"):
        laws.honest(compactor(lose), FORMAT, REQUEST)


def shave(view: View, policy: Policy) -> Iterator[Offer]:
    """Take a line off every result, each time again."""
    for position in view.fresh_results():
        part = view.transcript.parts[position]
        text = part.text.partition("\n")[2]
        if text:
            ref = reference(part.text)
            yield Offer("trim", Replace(position, part.ref, text, ref, "trial", "", 5))


def test_a_pass_that_cuts_its_own_output_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.idempotent(compactor(shave), FORMAT, REQUEST)


def test_a_second_compaction_that_shapes_what_was_shaped_is_seen() -> None:
    def blind(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        again = "[respool: " in json.dumps(request)
        return compactor(shave)(request) if again else real(request)

    laws.keeps_what_is_shaped(real, FORMAT, REQUEST)
    with pytest.raises(AssertionError, match="shaped again"):
        laws.keeps_what_is_shaped(blind, FORMAT, REQUEST)


def test_a_second_compaction_that_loses_a_marker_is_seen() -> None:
    def lossy(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        if "[respool: " not in json.dumps(request):
            return real(request)
        out = real({**request, "messages": request["messages"][:1]})
        return Compaction(out.request, out.report, {})

    with pytest.raises(AssertionError, match="nothing leads"):
        laws.keeps_what_is_shaped(lossy, FORMAT, REQUEST)


def test_an_error_that_escapes_is_seen() -> None:
    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        raise ValueError("not contained")

    with pytest.raises(ValueError, match="not contained"):
        laws.harmless(run, REQUEST)
    assert compactor(fail)(REQUEST).report.failures


def test_an_unreadable_request_that_is_changed_is_seen() -> None:
    with pytest.raises(AssertionError):
        laws.harmless(changed(lambda request: [*request, 1]), [object()])


def test_quadratic_is_seen() -> None:
    def slow(view: View, policy: Policy) -> Iterator[Offer]:
        for part in view.transcript.parts:
            for _ in range(8):  # plainly quadratic, however loaded the machine is
                for other in view.transcript.parts:
                    if part.ref != other.ref and part.id == other.id == "the same":
                        yield from ()

    with pytest.raises(AssertionError):
        laws.linear(compactor(slow), lambda count: long_session(FORMAT, count), rounds=3)
