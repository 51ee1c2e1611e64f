"""The ten laws, each as a function that raises AssertionError when a compactor breaks it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from respool.api import check, expand
from respool.compaction.memo import Memo
from respool.edits import Advise, DropExchange, PlaceBreakpoint, Replace
from respool.engine import Compaction
from respool.markers import ClipMarker, OmissionMarker, find_marker, parse_gap, reference
from respool.policy import Policy
from respool.providers.base import split_steps
from respool.providers.registry import PROVIDERS
from respool.shapes.decoration import ESCAPE_CODE, strip_padding, thin_line_numbers
from respool.tokens import counter_for, part_tokens
from respool.transcript import TranscriptIndex
from tests.judges import JUDGES
from tests.laws.spans import same_without_breakpoints, spans, spellings
from tests.laws.subject import IDLE, ORDINARY, Compact
from tests.strategies import HISTORY
from tests.support.timing import ROUNDS, takes_at_most

# What no change to the history can mend: it is the request around it that is wrong.
MARKLESS = ("tidied", "whitespace")  # reasons of edits that remove no words
UNREPAIRABLE = {"A5", "A10", "A14", "A15", "A17", "A20", "A22", "C7", "R8"}


def faithful(compact: Compact, format: str, request: Any) -> None:
    """With nothing to do, the same bytes or objects; and what no edit touches keeps its own."""
    kept = copy.deepcopy(request)
    assert compact(request, policy=IDLE).request is request
    for body in spellings(request):
        assert compact(body, policy=IDLE).request == body
    out = compact(request)
    assert request == kept, "the caller's request was changed"
    field = HISTORY[format]
    sources = {id(message) for message in request[field]}
    fresh = [m for m in out.request[field] if id(m) not in sources]
    touchable = _touchable(out, format, compact(request, policy=IDLE).request[field])
    touchable += _has_own_breakpoint(fresh, request[field])
    assert len(fresh) <= touchable, "a message that no edit touches is another object"
    for name in request:
        assert name == field or out.request[name] is request[name]
    for body in spellings(request):
        _keeps_bytes(compact, body, field, touchable)


def _has_own_breakpoint(fresh: Sequence[Any], sources: Sequence[Any]) -> bool:
    """Return whether a new message differs from its source in a cache breakpoint alone."""
    return any(same_without_breakpoints(one, source) for one in fresh for source in sources)


def _touchable(out: Compaction[Any], format: str, history: Sequence[Any]) -> int:
    """Maximum number of messages that the edits and repairs of a report can have changed."""
    rows: set[int] = set()
    for step in split_steps(PROVIDERS[format].codec, history):  # type: ignore[index]
        step_rows = range(step.at, step.at + len(step.messages))
        for edit in out.report.edits:
            if edit.ref.row in step_rows:
                alone = isinstance(edit, Replace | PlaceBreakpoint | Advise)
                rows.update([edit.ref.row] if alone else step_rows)
    return len(rows) + 4 * len(out.report.repairs)


def _keeps_bytes(compact: Compact, body: bytes, field: str, touchable: int) -> None:
    out = compact(body)
    before, after = spans(body, field), spans(out.request, field)
    known = {text.lstrip(", \n\r\t") for text in before}
    changed = [text for text in after if text.lstrip(", \n\r\t") not in known]
    assert len(changed) <= touchable, "a message that no edit touches has other bytes"
    for text in after[1:]:
        assert text.startswith(","), text[:20]


def valid(compact: Compact, format: str, request: Any, whole: bool) -> None:
    """The provider accepts the projection."""
    out = compact(request)
    if out.report.untouched:
        return
    left = [p for p in check(out.request, format=format) if p.severity == "error"]
    empty = [p for p in left if p.place == HISTORY[format]]  # nothing there to mend
    assert all(p.code in UNREPAIRABLE for p in left if p not in empty), left
    if whole:
        # Mistral's own rules on roles are the first judge's neighbours, not this provider's: they
        # hold for what shapes parts, and a removal may leave a system message behind the model.
        drops = any(isinstance(edit, DropExchange) for edit in out.report.edits)
        judges = JUDGES[format][:1] if drops else JUDGES[format]
        assert [one for judge in judges for one in judge(out.request)] == []


def repairs_only_what_is_broken(compact: Compact, format: str, request: Any) -> None:
    """Repair changes nothing that the provider would have accepted."""
    errors = [p for p in check(request, format=format) if p.severity == "error"]
    if not errors:
        assert compact(request, policy=IDLE).request is request


def small(compact: Compact, format: str, request: Any) -> None:
    """No saving edit makes anything longer, by the request's own counter."""
    out = compact(request)
    counter = counter_for(format, request.get("model"))
    for edit in out.report.edits:
        if isinstance(edit, Replace) and edit.reason != "folded":  # which saves with what it tells
            original = out.originals[edit.original]
            assert counter.count(edit.text) < counter.count(original)
    report = out.report
    added = report.tokens_repaired + report.tokens_advised
    assert report.tokens_after <= report.tokens_before + added
    assert report.tokens_saved >= 0


def stable(compact: Compact, format: str, requests: Sequence[Any]) -> None:
    """Between epochs, projections of requests that extend one another extend one another."""
    field = HISTORY[format]
    outs = [compact(request) for request in requests]
    for one, next_one in pairwise(outs):
        if one.report.epochs != next_one.report.epochs or one.report.untouched:
            continue
        if _ends_made_up(one):
            continue
        before, after = one.request[field], next_one.request[field]
        assert len(after) >= len(before)
        for said, again in zip(before, after, strict=False):
            assert same_without_breakpoints(said, again)


def _ends_made_up(out: Compaction[Any]) -> bool:
    """Return whether the end of this request was repaired; the next request ends elsewhere."""
    return any(repair.code in ("A7", "G7", "G3", "G3a", "R1") for repair in out.report.repairs)


def reproducible(compact: Compact, format: str, requests: Sequence[Any]) -> None:
    """Cold equals warm, byte for byte, and twice is the same as once."""
    memo = Memo()
    for request in requests:
        body = json.dumps(request).encode()
        cold = compact(body).request
        assert compact(body, memo=memo).request == cold, "warm differs from cold"
        assert compact(body, memo=memo).request == cold, "the second time differs"
        assert json.loads(cold) == json.loads(json.dumps(compact(request).request))


def reversible(compact: Compact, format: str, request: Any) -> None:
    """Every original that is elided comes back exactly, under the hash that its marker names."""
    out = compact(request)
    source = compact(request, policy=IDLE).request
    said = {part.text for part in _parts(format, source)}
    for edit in out.report.edits:
        if isinstance(edit, Replace):
            original = expand(edit.original, out)
            if edit.stands_for:
                _is_record_of_all(edit.stands_for, original, format, source)
            else:
                assert original in said, "the original is not what the request said"
            if edit.reason not in MARKLESS:
                assert edit.original in edit.text, "the text does not name its original"


def _is_record_of_all(ordinals: Sequence[int], original: str, format: str, request: Any) -> None:
    """A summary leads back to every call and every result that it tells of, in their order."""
    index, codec = TranscriptIndex(), PROVIDERS[format].codec  # type: ignore[index]
    for step in split_steps(codec, request[HISTORY[format]]):
        model = [part for message in step.model for part in codec.decode(0, message)]
        answers = [part for message in step.answers for part in codec.decode(0, message)]
        index.add_unit((0, 0), model, answers, locked=codec.has_locked_calls(model))
    at = 0
    for ordinal in ordinals:
        pair = index.exchanges[ordinal]
        for position in (pair.call, pair.result):
            text = index.parts[position].text if position is not None else ""
            at = original.find(text, at)
            assert at >= 0, "the record lacks what a call or its result said"
            at += len(text)


def honest(compact: Compact, format: str, request: Any) -> None:
    """Markers and report say what is so."""
    out = compact(request)
    for edit in out.report.edits:
        if not isinstance(edit, Replace):
            continue
        original, marker = out.originals[edit.original], find_marker(edit.text)
        if isinstance(marker, ClipMarker):
            _marker_is_true(marker, original, edit.text)
        elif isinstance(marker, OmissionMarker):
            _short_is_true(marker, original, edit.text)
        elif edit.reason in MARKLESS:
            _leaves_all_words(original, edit.text)
    report = out.report
    if report.untouched:
        return
    counter = counter_for(format, request.get("model"))
    field = HISTORY[format]
    rest = sum(part_tokens(p, counter) for p in PROVIDERS[format].codec.decode_head(request))  # type: ignore[index]
    before = sum(part_tokens(p, counter) for p in _parts(format, request)) + rest
    after = sum(part_tokens(p, counter) for p in _parts(format, out.request)) + rest
    assert report.tokens_before == before
    if not report.repairs:
        assert report.tokens_after == after, "the report's figure is not the projection's"
        if all(
            isinstance(edit, Replace | PlaceBreakpoint) for edit in report.edits
        ):  # nothing is joined
            saved = sum(getattr(edit, "saved", 0) for edit in report.edits)
            assert report.tokens_saved == saved, "an edit's figure is not what it saved"
    assert field in out.request


def _marker_is_true(marker: Any, original: str, text: str) -> None:
    assert marker.size == len(original)
    assert marker.ref in text
    bare = ESCAPE_CODE.sub("", original)  # codes are tidied out of it, too
    if marker.unit == "lines":
        stay = [line for line in text.split("\n") if line != str(marker)]
        ends = original.endswith("\n") and stay[-1:] == [""]
        assert marker.total == original.count("\n") + (not original.endswith("\n"))
        noted = original.count("\n") - strip_padding(original).count(
            "\n"
        )  # a tool's own, tidied out of it
        left = marker.total - marker.omitted + marker.errors
        assert len(stay) - ends in (left, left - noted)
        assert all(_stood_there(line, original, bare) for line in stay)
    else:
        lines = text.split("\n")
        told = lines[lines.index(str(marker)) + 1 :][: marker.errors]
        kept = len(text) - len(str(marker)) - sum(len(line) + 1 for line in told)
        assert marker.total == len(original)
        assert all(_stood_there(line, original, bare) for line in told)
        spare = len(original) - len(thin_line_numbers(strip_padding(bare), 5))  # tidied out of it
        assert -spare <= kept - (marker.total - marker.omitted) <= 2


def _stood_there(line: str, original: str, bare: str) -> bool:
    """Return whether the original has a line, or its start with the length of the rest."""
    said, _, gone = line.rpartition("[… ")
    whole = line in original or line in bare
    return whole or any(
        said and len(one.strip()) - len(said) == int(gone.removesuffix(" chars]").replace(",", ""))
        for one in bare.split("\n")
        if one.strip().startswith(said) and gone.endswith(" chars]")
    )


def _short_is_true(marker: OmissionMarker, original: str, text: str) -> None:
    """Check a marker without a cap: its reference, its count, and its gaps."""
    assert marker.ref == reference(original)
    assert 0 < marker.omitted <= (marker.total or marker.omitted)
    holes = [one for line in text.split("\n") if (one := parse_gap(line)) is not None]
    assert sum(gone for gone, unit in holes if unit == marker.unit) in (0, marker.omitted)
    if marker.unit == "lines":
        assert (marker.total or marker.omitted) == original.count("\n") + (
            not original.endswith("\n")
        )
    elif marker.unit == "chars":
        assert (marker.total or marker.omitted) == len(original)


def _leaves_all_words(original: str, text: str) -> None:
    """A text that was only tidied, or squeezed, says nothing that the original does not."""
    unfolded: list[str] = []
    for line in text.split("\n"):
        repeats = parse_gap(line)
        unfolded += [unfolded[-1]] * repeats[0] if repeats and unfolded else [line]
    bare = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[^\[]", "", original)
    words = set(bare.split())
    assert all(word in words or word in bare for line in unfolded for word in line.split())


def idempotent(compact: Compact, format: str, request: Any) -> None:
    """A pass proposes nothing on its own output.

    What was fetched again after a cut stays for that; the output no longer tells of the cut.
    """
    once = compact(request)
    if once.report.refetched:
        return
    twice = compact(once.request)
    assert twice.report.edits == (), twice.report.edits
    assert twice.request is once.request


def shapes_nothing_twice(compact: Compact, format: str, request: Any) -> None:
    """The same where edits wait until they pay: what pays later is none of what was shaped."""
    once = compact(request)
    shaped = {edit.text for edit in once.report.edits if isinstance(edit, Replace)}
    twice = compact(once.request)
    for edit in twice.report.edits:
        if isinstance(edit, Replace):
            assert twice.originals[edit.original] not in shaped, "its own output is cut again"


def keeps_what_is_shaped(compact: Compact, format: str, request: Any) -> None:
    """Compacting a projection again edits no part that a marker stands in, and loses no original.

    A projection is another, shorter history, so what was whole in it may be shaped now. A call
    whose result was shaped may still be dropped or told in a summary: then the original leads to
    the marker.
    """
    once = compact(request)
    twice = compact(once.request)
    for edit in twice.report.edits:
        if isinstance(edit, Replace) and not edit.stands_for:
            marker = find_marker(twice.originals[edit.original])
            own = marker is not None and marker.ref in once.originals
            assert not own, f"what was shaped is shaped again: {edit.reason}"
    left = "\n".join([json.dumps(twice.request), *twice.originals.values()])
    for edit in once.report.edits:
        if isinstance(edit, Replace) and edit.reason not in MARKLESS:
            assert edit.original in left, f"nothing leads to an original any more: {edit.reason}"


def harmless(compact: Compact, anything: Any) -> None:
    """Whatever comes in: no error, and what cannot be read goes out as it came."""
    out = compact(anything)
    if out.report.untouched:
        assert out.request is anything


def linear(
    compact: Compact,
    make: Callable[[int], Any],
    times: int = 4,
    policy: Policy = ORDINARY,
    rounds: int = ROUNDS,
) -> None:
    """So many times the history costs about so many times the time.

    The shorter one is long enough that what waits until it pays has begun to be looked at.
    """
    short, long = make(120), make(120 * times)
    takes_at_most(
        2.5 * times,
        lambda: compact(long, policy=policy),
        lambda: compact(short, policy=policy),
        rounds,
    )


def _parts(format: str, request: Any) -> list[Any]:
    codec = PROVIDERS[format].codec  # type: ignore[index]
    history = request[HISTORY[format]]
    return [part for row, message in enumerate(history) for part in codec.decode(row, message)]
