"""Layout caches: an extended request is parsed to the same layout."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import respool
from respool.compaction.memo import Memo
from respool.engine import fold_request
from respool.errors import UnreadableRequest
from respool.wire.base import NewMessage, Piece, SourceRun
from respool.wire.body import BytesBody
from respool.wire.layout import (
    FrameCache,
    Layout,
    LayoutCache,
    extend_layout,
    frame_of,
    layout_in_frame,
    parse_layout,
)
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json

EPHEMERAL = {"type": "ephemeral"}
STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "spaced": {},
    "indented": {"indent": 2},
    "odd": {"separators": ("\r\n\t, ", " : ")},
}
FIELDS = {"messages": "messages", "input": "input", "contents": "contents"}


def said(number: int, words: str = "said", marked: bool = False) -> dict[str, Any]:
    mark = {"cache_control": EPHEMERAL} if marked else {}
    text = f"{words} {number} " + "and so on " * 40
    return {"role": "user", "content": [{"type": "text", "text": text, **mark}]}


def request(messages: list[Any], field: str = "messages", style: str = "compact") -> bytes:
    whole = {"model": "m", field: messages, "tools": [{"name": "n", "messages": [{}]}]}
    return json.dumps(whole, **STYLES[style]).encode()


def apart(layout: Layout) -> Any:
    """All that a layout tells of its request."""
    fields = layout.fields
    told = None if fields is None else {name: bytes(fields.raw(name)) for name in fields}
    return layout.history_field, layout.starts, layout.ends, told, layout.breakpoint_rows


HISTORY = [said(number) for number in range(40)]
NEXT: dict[str, list[Any]] = {
    "the same": HISTORY,
    "one more": [*HISTORY, said(40)],
    "many more": [*HISTORY, *(said(number) for number in range(40, 90))],
    "fewer": HISTORY[:20],
    "another last one": [*HISTORY[:-1], said(39, "thought")],
    "a mark on the last": [*HISTORY[:-1], said(39, marked=True)],
    "a fork": [*HISTORY[:10], said(10, "asked"), said(11)],
    "a number": [*HISTORY, 1],
    "a string with a bracket": [*HISTORY, 'a "]" b', said(41)],
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("change", NEXT)
def test_it_is_read_as_if_it_were_the_first(change: str, field: str, style: str) -> None:
    body = request(NEXT[change], field, style)
    found = extend_layout(parse_layout(request(HISTORY, field, style)), body)
    assert found is not None
    assert apart(found) == apart(parse_layout(body))


def test_a_mark_that_moves_on_is_told() -> None:
    first = [*HISTORY[:-1], said(39, marked=True)]
    found = extend_layout(parse_layout(request(first)), request([*HISTORY, said(40, marked=True)]))
    assert found is not None
    assert (found.shared_count, found.breakpoint_rows) == (39, [40])


OTHERS: dict[str, bytes] = {
    "another opening": request([said(0, "asked"), *HISTORY[1:]]),
    "other tools": request(HISTORY).replace(b'"name": "n"', b'"name": "o"').replace(b'"n"', b'"o"'),
    "another model": request(HISTORY).replace(b'"m"', b'"l"'),
    "another field": request(HISTORY, "input"),
    "cut short": request(HISTORY)[:-1],
    "a comma too many": request(HISTORY).replace(b"]," + b'"tools"', b",]," + b'"tools"'),
    "no comma": request(HISTORY).replace(b'],"tools"', b'{}],"tools"'),
    "nothing": b"",
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_differs_in_more_is_not_taken_for_it(case: str) -> None:
    assert OTHERS[case] != request(HISTORY)
    assert extend_layout(parse_layout(request(HISTORY)), OTHERS[case]) is None


@pytest.mark.parametrize("case", ["cut short", "a comma too many", "no comma", "nothing"])
def test_what_is_malformed_is_refused_as_ever(case: str) -> None:
    bodies = LayoutCache()
    bodies.parse_layout(request(HISTORY))
    with pytest.raises(UnreadableRequest):
        bodies.parse_layout(OTHERS[case])


@given(
    known=st.lists(arbitrary_json(), min_size=1, max_size=5),
    kept=st.integers(0, 5),
    new=st.lists(arbitrary_json(), max_size=3),
    style=st.sampled_from(list(STYLES)),
)
def test_any_json_is_read_the_same(known: Any, kept: int, new: Any, style: str) -> None:
    body = request([*known[:kept], *new], "messages", style)
    found = extend_layout(parse_layout(request(known, "messages", style)), body)
    assert found is None or apart(found) == apart(parse_layout(body))


@given(st.binary(max_size=12), st.integers(0, 200), st.integers(0, 12))
def test_any_bytes_in_its_place_are_read_the_same_or_not_at_all(
    put: bytes, at: int, gone: int
) -> None:
    base = request([said(0), said(1), 7, "x"])
    at = len(base) - min(at, len(base))
    body = base[:at] + put + base[at + gone :]
    found = extend_layout(parse_layout(base), body)
    try:
        anew = apart(parse_layout(body))
    except respool.RespoolError:
        anew = None
    assert found is None or apart(found) == anew


# --- what stands around -------------------------------------------------------------------------


@given(
    known=st.lists(arbitrary_json(), min_size=1, max_size=3),
    new=st.lists(arbitrary_json(), max_size=4),
    style=st.sampled_from(list(STYLES)),
    field=st.sampled_from(list(FIELDS)),
)
def test_another_history_with_the_same_around_it_is_read_the_same(
    known: Any, new: Any, style: str, field: str
) -> None:
    frame, body = frame_of(parse_layout(request(known, field, style))), request(new, field, style)
    assert frame is not None
    found = layout_in_frame(frame, body)
    assert found is None or apart(found) == apart(parse_layout(body))
    assert (found is None) == (not new)


@given(st.binary(max_size=12), st.integers(0, 500), st.integers(0, 500))
def test_any_bytes_within_are_read_the_same_or_not_at_all(put: bytes, at: int, gone: int) -> None:
    base = request([said(0), 7, "x"])
    body = base[:at] + put + base[at + gone :]
    frame = frame_of(parse_layout(base))
    assert frame is not None
    found = layout_in_frame(frame, body)
    try:
        anew = apart(parse_layout(body))
    except respool.RespoolError:
        anew = None
    assert found is None or apart(found) == anew


@pytest.mark.parametrize(
    "within",
    ['1],"messages":[2', '1],"tools":[2', "1]}  [2", '"open', "1,", ",1", "1 2", " ", '1,"x]'],
)
def test_what_ends_the_history_earlier_is_not_within(within: str) -> None:
    frame = frame_of(parse_layout(b'{"messages":[1],"tools":[]}'))
    assert frame is not None
    assert layout_in_frame(frame, b'{"messages":[%s],"tools":[]}' % within.encode()) is None
    assert layout_in_frame(frame, b'{"messages":[],"tools":[]}') is None
    assert layout_in_frame(frame, b'{"messages":[1],"tools":[1]}') is None


@pytest.mark.parametrize("size", [2, 40])
def test_fields_that_come_again_are_the_same_ones(size: int) -> None:
    bodies = LayoutCache()
    one = bodies.parse_layout(request([said(number, "one") for number in range(size)]))
    other = bodies.parse_layout(request([said(number, "other") for number in range(size)]))
    assert one.fields is other.fields
    assert one.fields is not bodies.parse_layout(request(HISTORY, style="spaced")).fields
    bodies.clear()
    assert one.fields is not bodies.parse_layout(one.body).fields


def test_only_so_much_around_is_kept() -> None:
    frames = FrameCache(max_bytes=5_000)
    seen = [b'{"model":"%d","messages":[1]}' % number for number in range(500)]
    first = frames.parse_layout(seen[0]).fields
    for body in seen:
        kept = frames.parse_layout(body).fields
        assert frames.parse_layout(body).fields is kept
    assert frames.parse_layout(seen[0]).fields is not first
    large = b'{"system":"%s","messages":[1]}' % (b"x" * 6_000)
    assert frames.parse_layout(large).fields is not frames.parse_layout(large).fields


@pytest.mark.parametrize("model", [None, "gemini-3-pro", "gemini-2.5-flash"])
def test_a_setting_is_what_it_would_be_alone(model: str | None) -> None:
    """Whatever came before with the same fields, under other policies, marks and facts."""
    field, memo = "contents" if model else "messages", Memo()
    format = "gemini" if model else "anthropic"
    policies = (respool.Policy(), respool.Policy(budget=9_000), respool.Policy(repair=False))
    for policy in (*policies, *policies):
        for marked in (False, True):
            for facts in (respool.Facts(), respool.Facts(cold=frozenset({"ab"}))):
                body = request([said(0), said(1, marked=marked)], field)
                warm = fold_request(
                    body, format=format, policy=policy, facts=facts, memo=memo, model=model
                ).context
                cold = fold_request(
                    body, format=format, policy=policy, facts=facts, memo=None, model=model
                ).context
                bare = [
                    replace(
                        one,
                        request=replace(one.request, encode=None, start_key=b"", fields=None),
                    )
                    for one in (warm, cold)
                ]
                assert bare[0] == bare[1]


def test_fields_that_are_forgotten_are_gone_at_once() -> None:
    """They are large, and nobody looks often for what only holds itself."""
    memo, body = Memo(), request(HISTORY)
    found = weakref.ref(memo.bodies.parse_layout(body).fields)  # pyright: ignore[reportArgumentType]
    gc.disable()
    try:
        respool.compact(body, format="anthropic", memo=memo)
        assert found() is not None
        memo.clear()
        assert found() is None
    finally:
        gc.enable()


# --- what goes out ------------------------------------------------------------------------------


def pieces_of(draw: list[int], count: int) -> list[Piece]:
    """Messages kept, replaced, left out and put in, as numbers say."""
    found: list[Piece] = []
    for at in range(count):
        match draw[at % len(draw)] % 5:
            case 0:
                continue
            case 1:
                found.append(NewMessage(at, {"new": at}, b'{"new": %d}' % at))
            case 2:
                found.append(NewMessage(at, {"told": at}))
            case 3:
                found += [SourceRun(at, at + 1), NewMessage(None, {"put": at}, b'{"put": %d}' % at)]
            case _:
                found.append(SourceRun(at, at + 1))
    return found


@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=9), st.integers(1, 30), st.integers(1, 12),
    st.integers(0, 3), st.sampled_from(list(STYLES)),
)  # fmt: skip
def test_it_goes_out_as_if_it_were_the_first(
    draw: list[int], count: int, more: int, other: int, style: str
) -> None:
    bodies, history = LayoutCache(), [said(number) for number in range(60)]
    for number in range(count, min(60, count + 3 * more), more):
        messages = [*history[: number - other], *(said(at, "anew") for at in range(other))]
        raw = request(messages, style=style)
        pieces = pieces_of(draw, len(messages))
        warm = BytesBody(raw, bodies.parse_layout(raw)).splice(pieces)
        assert warm == BytesBody(raw).splice(pieces)


def test_what_went_out_is_kept_as_bytes_alone() -> None:
    """Objects of a message nested deeply could not even be compared."""
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    bodies, raw = LayoutCache(), request(HISTORY)
    for _ in range(2):
        body = BytesBody(raw, bodies.parse_layout(raw))
        body.splice([SourceRun(0, 3), NewMessage(3, json.loads(json.dumps(deep)), b'{"new": 3}')])
        joined = body.layout.spliced
        assert joined is not None
        assert joined.pieces == [SourceRun(0, 3), NewMessage(3, None, b'{"new": 3}')]


@pytest.mark.parametrize(
    "format",
    [
        "anthropic",
        "openai-responses",
        *(pytest.param(one, marks=pytest.mark.laws) for one in ("openai-chat", "gemini")),
    ],
)
def test_a_session_in_any_format_goes_out_the_same(format: str) -> None:
    field = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    whole = long_session(format, 60, result=1_500)
    memo, policy, shared = Memo(), respool.Policy(reevaluate_tokens=500, keep_exchanges=0), 0
    for number, count in enumerate(range(20, len(whole[field]), 7)):
        body = json.dumps({**whole, field: whole[field][:count]}).encode()
        warm = respool.compact(body, format=format, policy=policy, memo=memo)
        if number % 3 == 2:
            cold = respool.compact(body, format=format, policy=policy, memo=None)
            assert warm.request == cold.request
        shared = max(shared, memo.bodies.parse_layout(body).shared_count)
    assert shared > 40


# --- how many are kept --------------------------------------------------------------------------


def test_only_so_many_bytes_are_kept() -> None:
    bodies = LayoutCache(max_bytes=200_000)
    for number in range(50):
        bodies.parse_layout(request([said(number, f"task {number}"), *HISTORY]))
        assert bodies.size_bytes <= 200_000
    assert bodies.size_bytes > 20_000
    bodies.clear()
    assert bodies.size_bytes == 0


def test_what_extends_one_takes_its_place() -> None:
    bodies = LayoutCache()
    for count in range(30, 40):
        bodies.parse_layout(request(HISTORY[:count]))
    assert bodies.size_bytes == 2 * len(request(HISTORY[:39]))


def test_conversations_that_begin_alike_are_told_apart() -> None:
    bodies = LayoutCache()
    one = [*HISTORY, *(said(number, "one") for number in range(10))]
    other = [*HISTORY, *(said(number, "other") for number in range(10))]
    bodies.parse_layout(request(one[:45]))
    bodies.parse_layout(request(other[:45]))
    assert bodies.parse_layout(request(one[:46])).shared_count >= 40
    assert bodies.parse_layout(request(other[:46])).shared_count >= 40


def test_a_short_body_is_not_kept() -> None:
    bodies = LayoutCache()
    bodies.parse_layout(request(HISTORY[:2]))
    assert bodies.size_bytes == 0
