"""The laws for histories told in plain messages, in every format."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clew
from clew.codecs.formats import CODECS
from clew.codecs.json_tree import get
from clew.memo import Memo
from clew.policy import Policy
from clew.rendering.definitions import DEFINING
from clew.rendering.words import fenced
from clew.tokens import counter_for, part_tokens
from tests.judges import JUDGES, mistral
from tests.laws.laws import UNREPAIRABLE
from tests.laws.subject import EAGER, IDLE
from tests.strategies import FORMATS, HISTORY, broken, growing, pending, requests

from .rendered_reading import atoms, entries_of, prose_of, read_told, roles_of

formats = pytest.mark.parametrize("format", FORMATS)
STYLES = ("text", "text-only", "rfc013")
styles = pytest.mark.parametrize("style", STYLES)
FEW = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def told(request: Any, format: str, style: str = "text", policy: Policy = IDLE) -> Any:
    """The request as plain messages."""
    how = policy.replace(rendering=style)
    return clew.compact(request, format=format, policy=how, memo=None)


def parts_of(format: str, request: Any) -> list[Any]:
    codec = CODECS[format]  # type: ignore[index]
    return [p for at, m in enumerate(request[HISTORY[format]]) for p in codec.read(at, m)]


def holds_tools(format: str, request: Any) -> bool:
    return any(part.kind in ("call", "result") for part in parts_of(format, request))


@formats
@styles
def test_what_comes_out_is_plain_valid_and_alternates(format: str, style: str) -> None:
    seen = 0

    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        nonlocal seen
        kept = copy.deepcopy(request)
        for policy in (IDLE, EAGER):
            out = told(request, format, style, policy).request
            assert request == kept, "the caller's request was changed"
            assert not holds_tools(format, out)
            left = [p for p in clew.check(out, format=format) if p.severity == "error"]
            assert [p for p in left if p.code not in UNREPAIRABLE] == []
            assert JUDGES[format][0](out) == []
            if format == "openai-chat" and "other" not in roles_of(format, out):
                assert mistral.judge(out) == []  # which refuses roles that do not alternate
            if not holds_tools(format, request):
                assert out == request or style == "text-only"
                continue
            seen += 1
            roles = roles_of(format, out)
            assert all(a != b for a, b in pairwise(roles) if a in ("user", "model")), roles
            for name in request.keys() - {HISTORY[format], *DEFINING[format]}:  # type: ignore[index]
                assert out[name] is request[name]
            offered = style != "text-only" and "tools" in request
            assert ("tools" in out) == offered

    run()
    assert seen > 15


@formats
def test_nothing_is_lost(format: str) -> None:
    seen = 0

    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        nonlocal seen
        source = clew.compact(request, format=format, policy=IDLE, memo=None).request
        out = told(request, format).request
        if out is request:
            return
        parts = parts_of(format, source)
        names = {(part.id, part.name) for part in parts if part.kind == "call"}
        entries = [one for one in entries_of(format, out) if one.kind != "thought"]
        tools = [part for part in parts if part.kind in ("call", "result")]
        assert len(entries) == len(tools)
        for entry, part in zip(entries, tools, strict=True):
            assert entry.kind == part.kind
            assert entry.failed == part.error
            assert entry.name == part.name or (part.id, entry.name) in names
            if entry.id or part.kind == "call":
                assert entry.id == part.id
            if not part.server:
                assert _says(entry.text, part.text), (entry, part)
            seen += 1
        assert prose_of(format, source) == prose_of(format, out)
        assert _media(format, source) == _media(format, out)

    run()
    assert seen > 60


def _says(told: str, text: str) -> bool:
    """Whether all of a text is told; what streams wrote apart is told as JSON."""
    if told == text:
        return True
    chunks = json.loads(told)
    streams = [chunk.get(name) for chunk in chunks for name in ("stdout", "stderr")]
    return "\n".join(one for one in streams if one) == text


_DATA = ("data", "image_url", "file_data", "file_id", "url", "fileUri")


def _media(format: str, request: Any) -> list[str]:
    """What every image and file is made of, in order, wherever they stand."""
    history = request[HISTORY[format]]
    blocks = [
        get(history[part.ref.row], part.ref.path)
        for part in parts_of(format, request)
        if part.kind == "media"
    ]
    return [text for block in blocks for text in _data_in(block)]


def _data_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for one in value for text in _data_in(one)]
    if not isinstance(value, dict):
        return []
    found = [one for key, one in value.items() if key in _DATA and isinstance(one, str)]
    return [*found, *(text for one in value.values() for text in _data_in(one))]


@formats
@styles
def test_requests_that_extend_one_another_still_do(format: str, style: str) -> None:
    seen = 0

    @FEW
    @given(growing(format))
    def run(session: Any) -> None:
        nonlocal seen
        outs = [
            pair
            for policy in (IDLE, EAGER)
            for pair in pairwise([told(request, format, style, policy) for request in session])
        ]
        for one, after in outs:
            made_up = any(r.code in ("A7", "G7", "G3", "G3a", "R1") for r in one.report.repairs)
            if one.report.epochs != after.report.epochs or one.report.untouched or made_up:
                continue
            before, now = atoms(format, one.request), atoms(format, after.request)
            assert len(now) >= len(before)
            *settled, last = before
            assert now[: len(settled)] == settled
            grown = now[len(settled)]
            assert grown[0] == last[0]
            if isinstance(last[1], str) and format == "openai-chat":
                assert grown[1].startswith(last[1])
            else:
                assert grown[1] == last[1]
            seen += 1

    run()
    assert seen > 15


@formats
@styles
def test_twice_is_once_and_warm_is_cold(format: str, style: str) -> None:
    @FEW
    @given(growing(format))
    def run(session: Any) -> None:
        memo = Memo()
        how = EAGER.replace(rendering=style)
        for request in session:
            body = json.dumps(request).encode()
            cold = clew.compact(body, format=format, policy=how, memo=None)
            warm = clew.compact(body, format=format, policy=how, memo=memo)
            assert warm.request == cold.request
            objects = clew.compact(request, format=format, policy=how, memo=None).request
            assert json.loads(cold.request) == json.loads(json.dumps(objects))
            listed = clew.compact(request[HISTORY[format]], format=format, policy=how, memo=None)
            assert isinstance(listed.request, list)
            again = told(objects, format, style)
            assert again.request is objects

    run()


@formats
@styles
def test_the_figures_are_those_of_what_goes_out(format: str, style: str) -> None:
    @FEW
    @given(requests(format))
    def run(request: Any) -> None:
        out = told(request, format, style, EAGER)
        report = out.report
        if report.untouched or report.repairs:
            return
        counter = counter_for(format, request.get("model"))
        head = CODECS[format].read_head(out.request)  # type: ignore[index]
        after = sum(part_tokens(p, counter) for p in [*head, *parts_of(format, out.request)])
        assert report.tokens_after == after
        saved = report.tokens_before + report.tokens_rendered - report.tokens_after
        assert report.tokens_saved == saved >= 0
        plain = clew.compact(request, format=format, policy=EAGER, memo=None).report
        assert plain.tokens_saved == saved
        assert plain.tokens_rendered == 0

    run()


@formats
@styles
def test_broken_and_pending_histories_become_plain_too(format: str, style: str) -> None:
    @FEW
    @given(broken(format), pending(format))
    def run(request: Any, history: Any) -> None:
        out = told(request, format, style)
        if not out.report.untouched:
            assert not holds_tools(format, out.request)
        body = {HISTORY[format]: history}
        ended = told(body, format, style).request
        assert not holds_tools(format, ended)

    run()


@given(st.text(alphabet="`~\n aé\r\u2028", max_size=60) | st.text(max_size=40))
def test_no_text_can_close_its_fence(text: str) -> None:
    history = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": text}}]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    how = IDLE.replace(rendering="text", repair=False)
    out = clew.compact(history, format="openai-chat", policy=how, memo=None).request
    (message,) = out
    read = read_told(message["content"])
    assert [one.text for one in read.entries] == [text, text]
    assert read.prose == ["Look.", "And?"]
    fence, *_, end = fenced(text).split("\n")
    assert fence == end
    assert f"\n{fence}\n" not in f"\n{text}\n"
