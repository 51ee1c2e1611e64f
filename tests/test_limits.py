"""Limits of one request, and media to remove."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool import Policy
from respool.edits import Offer
from respool.errors import BudgetError, RespoolError
from respool.limits import (
    FIRST_USER_LABEL,
    HEAD_LABEL,
    SERVER_LABEL,
    SYSTEM_LABEL,
    UNSEEN_LABEL,
    ExceededLimit,
    HeldMedia,
    RequestLimits,
    held_media,
    limits_for,
    measure_overflow,
    media_to_remove,
    protection_label,
    reserved_tokens,
    tokens_by_blocker,
)
from respool.markers import OmissionMarker, parse_marker, reference
from respool.media import MEDIA_UNITS, is_media_marker
from respool.passes.base import View
from respool.passes.protections import Protections
from respool.providers.anthropic.request_rules import MAX_BODY_BYTES
from respool.providers.registry import PROVIDERS
from respool.transcript import Part, PartKind, Ref
from tests.judges import judge
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request

formats = pytest.mark.parametrize("format", FORMATS)
HAIKU = "claude-haiku-4-5"  # a window of 200,000 tokens
OPUS = "claude-opus-5-5"  # of 1,000,000


# What is allowed.

ALLOWED: dict[str, tuple[int | None, str, dict[str, Any] | None, int | None, int | None, str]] = {
    "the window": (None, "anthropic", {"model": HAIKU}, None, 190_000, "window"),
    "less the output": (
        None, "anthropic", {"model": HAIKU, "max_tokens": 20_000}, None, 171_000, "window",
    ),
    "thinking is output": (
        None,
        "anthropic",
        {"model": HAIKU, "max_tokens": 20_000, "thinking": {"budget_tokens": 16_000}},
        None, 171_000, "window",
    ),
    "at most half for output": (
        None, "anthropic", {"model": HAIKU, "max_tokens": 10**9}, None, 95_000, "window",
    ),
    "a wide window": (None, "anthropic", {"model": OPUS}, None, 950_000, "window"),
    "chat": (
        None, "openai-chat", {"model": "gpt-4o", "max_completion_tokens": 28_000}, None, 95_000,
        "window",
    ),
    "chat, the old name": (
        None, "openai-chat", {"model": "gpt-4o", "max_tokens": 28_000}, None, 95_000, "window",
    ),
    "responses": (
        None, "openai-responses", {"model": "gpt-5", "max_output_tokens": 100_000}, None, 285_000,
        "window",
    ),
    "gemini names its model elsewhere": (
        None, "gemini", {"generationConfig": {"maxOutputTokens": 60_000}}, None, 893_000, "window",
    ),
    "gemini in the other spelling": (
        None, "gemini", {"generation_config": {"max_output_tokens": 60_000}}, None, 893_000,
        "window",
    ),
    "gemini as its SDK has it": (
        None, "gemini", {"model": "gemini-3-pro", "config": {"max_output_tokens": 60_000}}, None,
        893_000, "window",
    ),
    "another maker's": (None, "openai-chat", {"model": "qwen3-coder"}, None, None, ""),
    "no model": (None, "anthropic", {}, None, None, ""),
    "a bare list": (None, "anthropic", None, None, None, ""),
    "an overflow told more": (None, "anthropic", {"model": OPUS}, 200_000, 190_000, "window"),
    "an overflow told it all": (
        None, "openai-chat", {"model": "qwen3-coder"}, 32_000, 30_400, "window",
    ),
    "an overflow cannot widen": (None, "anthropic", {"model": HAIKU}, 10**6, 190_000, "window"),
    "the budget": (150_000, "anthropic", {"model": OPUS}, None, 150_000, "budget"),
    "the budget, whatever the output": (
        150_000, "anthropic", {"model": OPUS, "max_tokens": 64_000}, None, 150_000, "budget",
    ),
    "a budget above what is listed": (
        600_000, "anthropic", {"model": HAIKU}, None, 600_000, "budget",
    ),
    "a budget above what an overflow told": (
        600_000, "anthropic", {"model": HAIKU, "max_tokens": 10_000}, 500_000, 465_500, "window",
    ),
    "a budget as large as what an overflow told": (
        465_500, "anthropic", {"model": HAIKU, "max_tokens": 10_000}, 500_000, 465_500, "budget",
    ),
    "the longest of all outputs": (
        None, "anthropic", {"model": HAIKU, "max_output_tokens": 9, "max_tokens": 20_000}, None,
        171_000, "window",
    ),
    "an empty name": (None, "anthropic", {"model": ""}, None, None, ""),
    "no name": (None, "anthropic", {"model": 5}, None, None, ""),
    "a budget below it": (300_000, "anthropic", {"model": HAIKU}, 500_000, 300_000, "budget"),
    "a budget for a bare list": (9_000, "gemini", None, None, 9_000, "budget"),
}  # fmt: skip


@pytest.mark.parametrize("case", ALLOWED)
def test_tokens_by_budget_window_and_overflow(case: str) -> None:
    budget, format, fields, window, tokens, source = ALLOWED[case]
    limits = limits_for(Policy(budget=budget), format, fields, window)
    assert (limits.tokens, limits.source) == (tokens, source)
    assert limits.low == (None if tokens is None else int(tokens * 0.7))


@pytest.mark.parametrize("asked", [None, "8000", True, -5, 0, 2.5, [], {}])
def test_an_output_that_is_no_number_reserves_nothing(asked: Any) -> None:
    assert reserved_tokens({"max_tokens": asked, "generationConfig": asked}, 100_000) == 0
    assert reserved_tokens({"max_tokens": asked, "max_output_tokens": 7}, 100_000) == 7


@pytest.mark.parametrize("format", FORMATS[1:])
def test_only_limits_that_are_known_are_set(format: str) -> None:
    limits = limits_for(Policy(), format, {"model": "gpt-5"})
    assert (limits.bytes, limits.images, limits.max_side(1_000)) == (None, None, None)


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + struct.pack(">II", width, height)
    return base64.b64encode(head + bytes(9)).decode()


def picture(width: int = 8, height: int = 8) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": png(width, height)}
    return {"type": "image", "source": source}


@pytest.mark.parametrize("model", [HAIKU, OPUS, "claude-sonnet-4-6", "claude-3-5-sonnet", "kimi"])
def test_as_many_images_as_the_check_lets_through(model: str) -> None:
    limits = limits_for(Policy(), "anthropic", {"model": model})
    assert limits.images is not None
    for count, found in ((limits.images, []), (limits.images + 1, ["A22"])):
        content = [picture()] * count
        body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        assert [one.code for one in respool.check(body)] == found
        assert bool(measure_overflow(limits, images=count)) == bool(found)


@pytest.mark.parametrize("side", [2_000, 2_001, 8_000, 8_001])
@pytest.mark.parametrize("count", [20, 21])
def test_as_large_ones_as_the_check_lets_through(side: int, count: int) -> None:
    limits = limits_for(Policy(), "anthropic", {"model": OPUS})
    content = [picture(8, side), *[picture()] * (count - 1)]
    body = {"model": OPUS, "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    assert bool(measure_overflow(limits, images=count, side=side)) == bool(respool.check(body))


# What is over.


def test_pressure_names_each_limit_and_where_to_go_back_to() -> None:
    limits = limits_for(Policy(), "anthropic", {"model": HAIKU})
    found = measure_overflow(
        limits, tokens=190_001, bytes=MAX_BODY_BYTES + 1, images=101, side=2_001
    )
    assert found.exceeded == (
        ExceededLimit("tokens", 190_000, 190_001, 133_000),
        ExceededLimit("bytes", MAX_BODY_BYTES, MAX_BODY_BYTES + 1, int(0.7 * MAX_BODY_BYTES)),
        ExceededLimit("images", 100, 101, 70),
        ExceededLimit("pixels", 2_000, 2_001, 2_000),
    )
    assert found.of("images") == found.exceeded[2]
    assert found.exceeded[2].excess == 31
    assert not measure_overflow(
        limits, tokens=190_000, bytes=MAX_BODY_BYTES, images=100, side=2_000
    )
    assert measure_overflow(limits).of("tokens") is None


sizes = st.integers(0, 1_000)


@given(st.none() | sizes, sizes, sizes)
def test_over_is_what_exceeds_and_the_aim_never_does(
    allowed: int | None, reached: int, low: int
) -> None:
    limits = RequestLimits(tokens=allowed, low=None if allowed is None else min(low, allowed))
    over = measure_overflow(limits, tokens=reached).of("tokens")
    assert (over is not None) == (allowed is not None and reached > allowed)
    if over is not None:
        assert over.excess > 0
        assert not measure_overflow(limits, tokens=reached - over.excess)


# The error.


def test_the_error_is_a_sentence_for_a_person() -> None:
    over = ExceededLimit("tokens", 8_000, 9_500, 5_600)
    error = over.error(((HEAD_LABEL, 6_000), (FIRST_USER_LABEL, 3_500)))
    assert isinstance(error, RespoolError)
    assert str(error) == (
        "The request has 9,500 tokens with all taken out that may go; 8,000 are allowed. "
        "In the way: system prompt and tools (6,000), first user message (3,500)."
    )
    assert str(ExceededLimit("pixels", 8_000, 9_000, 8_000).error()) == (
        "The request has 9,000 pixels on a side of an image with all taken out that may go; "
        "8,000 are allowed."
    )


def test_the_error_survives_a_process_border() -> None:
    error = BudgetError("images", 100, 120, iter([("x", 1)]))
    back = pickle.loads(pickle.dumps(error))
    assert (back.limit, back.allowed, back.reached, back.in_the_way) == (
        "images",
        100,
        120,
        (("x", 1),),
    )
    assert str(back) == str(error)


# What stands in the way.


def looked_at(format: str, *steps: Any, **settings: Any) -> tuple[View, Protections]:
    """View of the last evaluation of a session."""
    seen: list[View] = []

    def look(view: View, policy: Policy) -> Iterator[Offer]:
        seen.append(view)
        return iter(())

    often: dict[str, Any] = {"keep_exchanges": 0, "reevaluate_tokens": 1, "reevaluate_ratio": 0.0}
    policy = Policy(passes=(look,), **often | settings)
    body = request(format, "go", *steps)
    prefix = respool.compact(body, format=format, memo=None).report.prefix
    assert prefix is not None
    here = respool.Facts(cold=frozenset({prefix}))  # so that it takes force here
    respool.compact(body, format=format, policy=policy, facts=here, memo=None)
    view = seen[-1]
    assert isinstance(view.pinned, Protections)
    return view, view.pinned


STEPS = (
    [Exchange("one", id="a")],
    [Exchange("two " * 50, id="b"), Exchange("three", id="c")],
    "and now",
    [Exchange("four", id="d")],
)


@formats
def test_a_part_has_a_reason_to_stay_just_if_it_is_protected(format: str) -> None:
    view, pins = looked_at(format, *STEPS, pin_calls=("b",))
    why = [
        protection_label(view.transcript, at, view.unseen_from, view.first_user, pins.label_for)
        for at in range(len(view.transcript.parts))
    ]
    assert [one is not None for one in why] == [view.is_protected(at) for at in range(len(why))]
    assert {FIRST_USER_LABEL, UNSEEN_LABEL, "what is pinned"} <= set(why)


def test_what_the_provider_ran_and_system_messages_stay() -> None:
    answer = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    parts = [
        *PROVIDERS["anthropic"].codec.decode(0, {"role": "assistant", "content": [call, answer]}),
        *PROVIDERS["openai-chat"].codec.decode(1, {"role": "system", "content": "be brief"}),
    ]
    view, _ = looked_at("anthropic", *STEPS)
    history: Any = type("Parts", (), {"parts": parts})()
    why = [
        protection_label(history, at, len(parts), view.first_user, lambda _: None) for at in (1, 2)
    ]
    assert view.first_user == (0, 1)
    assert why == [SERVER_LABEL, SYSTEM_LABEL]


@formats
def test_all_that_stands_in_the_way_adds_up(format: str) -> None:
    view, pins = looked_at(format, *STEPS, pin_calls=("b",))
    parts = view.transcript.parts
    tokens = [view.tokens_of(at) for at in range(len(parts))]
    tokens[3] = 0  # what is gone
    told = tokens_by_blocker(
        parts,
        tokens,
        lambda at: protection_label(
            view.transcript, at, view.unseen_from, view.first_user, pins.label_for
        ),
        head=1_000,
    )
    assert sum(size for _, size in told) == sum(tokens) + 1_000
    assert told[0] == (HEAD_LABEL, 1_000)
    assert [size for _, size in told] == sorted((size for _, size in told), reverse=True)
    assert {"what is pinned", FIRST_USER_LABEL, UNSEEN_LABEL, "calls"} <= {what for what, _ in told}


def test_what_nothing_protects_is_told_by_its_kind_the_largest_first() -> None:
    kinds: tuple[PartKind, ...] = ("text", "reasoning", "call", "result", "media", "opaque")
    parts = [Part(Ref(0, ()), kind, "model", "") for kind in (*kinds, "text", "call")]
    told = tokens_by_blocker(parts, [1, 2, 3, 4, 5, 6, 6, 0], lambda _: None, head=1)
    assert told == (
        ("what was said", 7),
        ("blocks of an unknown kind", 6),
        ("images and documents", 5),
        ("results, or what is left of them", 4),
        ("calls", 3),
        ("reasoning", 2),
        ("system prompt and tools", 1),
    )


def test_nothing_stands_in_the_way_of_nothing() -> None:
    assert tokens_by_blocker((), (), lambda _: None) == ()


# Images that make room.

FEW = RequestLimits(images=10, many=4, side=8_000, side_of_many=2_000, bytes=1_000)


def image(
    part: int, side: int = 100, speaker: str = "tool", bytes: int = 10, **more: Any
) -> HeldMedia:
    ref = reference(str(part))
    return HeldMedia(part, speaker, more.pop("unit", "image"), bytes, side, ref, **more)  # type: ignore[arg-type]


def seen(until: int) -> Any:
    return lambda part: part < until


ROOM: dict[str, tuple[list[HeldMedia], int, int, tuple[int, ...]]] = {
    # what stands, bytes of the body, first part that must stay, what goes
    "nothing is over": ([image(n) for n in range(10)], 1_000, 99, ()),
    "too many: down to the low water": ([image(n) for n in range(11)], 0, 99, (0, 1, 2, 3)),
    "results before what the user sent": (
        [image(0, speaker="user"), *(image(n) for n in range(1, 5)), *(
            image(n, speaker="user") for n in range(5, 11)
        )], 0, 99, (1, 2, 3, 4),
    ),
    "then what the user sent": (
        [*(image(n, speaker="user") for n in range(9)), image(9), image(10)], 0, 99, (0, 1, 9, 10),
    ),
    "never what is not seen": ([image(n) for n in range(11)], 0, 2, (0, 1)),
    "not where no text may stand": (
        [image(0, is_fixed=True), *(image(n) for n in range(1, 11))], 0, 99, (1, 2, 3, 4),
    ),
    "files are no images": (
        [image(n, unit="file") for n in range(20)], 0, 99, (),
    ),
    "large ones of few are fine": ([image(n, 2_001) for n in range(4)], 0, 99, ()),
    "large ones of many go": (
        [image(0), image(1, 2_001), image(2), image(3, 3_000), image(4)], 0, 99, (1, 3),
    ),
    "just as large as many may be": ([image(n, 2_000) for n in range(5)], 0, 99, ()),
    "just as large as few may be": ([image(0), image(1, 8_000)], 0, 99, ()),
    "too large ones go in any case": ([image(0), image(1, 8_001)], 0, 99, (1,)),
    "a new large one drives out old ones": (
        [*(image(n) for n in range(5)), image(5, 2_001)], 0, 5, (0, 1),
    ),
    "and a too large one first": (
        [image(0), image(1, 9_000), image(2), image(3), image(4, 2_001)], 0, 4, (1,),
    ),
    "and one more, where that is not enough": (
        [image(0, 9_000), *(image(n) for n in range(1, 5)), image(5, 2_001)], 0, 5, (0, 1),
    ),
    "a new one that is too large drives out none": (
        [*(image(n) for n in range(5)), image(5, 8_001)], 0, 5, (),
    ),
    "bytes: files and images until the low water": (
        [image(n, bytes=200, unit=MEDIA_UNITS[n % 2]) for n in range(5)], 1_001, 99, (0, 1),
    ),
    "bytes that went by number count": (
        [image(n, bytes=100) for n in range(11)], 1_100, 99, (0, 1, 2, 3),
    ),
    "all that may go is not enough": ([image(n, bytes=10) for n in range(3)], 9_000, 2, (0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("case", ROOM)
def test_which_images_make_room(case: str) -> None:
    standing, size, until, gone = ROOM[case]
    assert media_to_remove(standing, FEW, size, seen(until)) == gone
    assert media_to_remove(standing, RequestLimits(), size, seen(until)) == ()


@st.composite
def standings(draw: st.DrawFn) -> list[HeldMedia]:
    count = draw(st.integers(0, 16))
    return [
        image(
            part,
            draw(st.sampled_from([0, 500, 2_001, 8_001])),
            draw(st.sampled_from(["tool", "user"])),
            draw(st.integers(1, 300)),
            unit=draw(st.sampled_from(MEDIA_UNITS)),
            is_fixed=draw(st.booleans()),
        )
        for part in range(count)
    ]


@given(standings(), st.integers(0, 3_000), st.integers(0, 16))
def test_all_is_in_its_limits_or_nothing_more_helps(
    standing: list[HeldMedia], beside: int, until: int
) -> None:
    size = beside + sum(one.bytes for one in standing)
    gone = media_to_remove(standing, FEW, size, seen(until))
    assert all(part < until and not standing[part].is_fixed for part in gone)
    left = [one for one in standing if one.part not in gone]
    free = [one for one in left if one.part < until and not one.is_fixed]
    pictures = [one for one in left if one.unit == "image"]
    over = measure_overflow(
        FEW,
        bytes=beside + sum(one.bytes for one in left),
        images=len(pictures),
        side=max((one.side for one in pictures), default=0),
    )
    if over.of("bytes"):
        assert free == []
    if over.of("images"):
        assert [one for one in free if one.unit == "image"] == []
    longest = FEW.max_side(len(pictures))
    assert [one for one in free if one.unit == "image" and one.side > (longest or 0)] == []
    if not gone:
        return
    before = [one for one in standing if one.unit == "image"]
    assert measure_overflow(
        FEW, bytes=size, images=len(before), side=max((one.side for one in before), default=0)
    )


# Images on the wire.

WITH_TEXT = ("anthropic", "openai-responses")  # a Gemini response holds no text beside its images


def image_in(format: str) -> tuple[dict[str, Any], int, Part]:
    """A request with an image in a result, the row of that result, and the image's part."""
    body = request(format, "go", [Exchange("look", id="a", image=True)], "well?")
    for row, message in enumerate(body[FIELD[format]]):
        for part in PROVIDERS[format].codec.decode(row, message):  # type: ignore[index]
            if part.kind == "media":
                return body, row, part
    raise AssertionError(format)


@pytest.mark.parametrize("format", WITH_TEXT)
def test_a_marker_in_place_of_an_image_is_taken_by_the_provider(format: str) -> None:
    body, row, part = image_in(format)
    before = copy.deepcopy(body)
    history, codec = body[FIELD[format]], PROVIDERS[format].codec  # type: ignore[index]
    found = held_media(7, part, history[row])
    assert found is not None
    assert (found.unit, found.side, found.is_fixed, found.part) == ("image", 1, False, 7)
    changed = codec.replace(history[row], part, found.marker("respool_expand"))
    new = {**body, FIELD[format]: [*history[:row], changed, *history[row + 1 :]]}
    assert body == before
    assert judge(format, new) == []
    assert respool.check(new, format=format) == []
    result, *rest = codec.decode(row, changed)
    assert (result.kind, result.text) == ("result", "look")
    assert [(one.kind, one.ref) for one in rest] == [("opaque", part.ref)]
    again = codec.replace(changed, result, "cut")
    assert codec.decode(row, again)[0].text == "cut"
    assert found.marker("respool_expand") in json.dumps(again)
    assert PIXEL not in json.dumps(again)


def test_an_image_inside_a_gemini_response_stays() -> None:
    body, row, part = image_in("gemini")
    message = body["contents"][row]
    found = held_media(0, part, message)
    assert found is not None
    assert (found.unit, found.is_fixed) == ("image", True)
    assert PROVIDERS["gemini"].codec.replace(message, part, "b") is message


GIVEN: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "text", "text": "what is this?"},
        picture(40, 30),
        {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}},
    ],
    "openai-chat": [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(40, 30)}"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ],
    "openai-responses": [
        {"type": "input_text", "text": "what is this?"},
        {
            "type": "input_image",
            "image_url": f"data:image/png;base64,{png(40, 30)}",
            "detail": "auto",
        },
        {"type": "input_file", "file_id": "file_1"},
    ],
    "gemini": [
        {"text": "what is this?"},
        {"inlineData": {"mimeType": "image/png", "data": png(40, 30)}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/b.pdf"}},
    ],
}


@formats
def test_what_the_user_sent_can_be_left_out_too(format: str) -> None:
    body = request(format, "go")
    said = "parts" if format == "gemini" else "content"
    message: Any = {"role": "user", said: GIVEN[format]}
    codec = PROVIDERS[format].codec  # type: ignore[index]
    parts = codec.decode(0, message)
    found = [held_media(at, part, message) for at, part in enumerate(parts)]
    assert [one and (one.unit, one.side, one.is_fixed) for one in found] == [
        None,
        ("image", 40, False),
        ("file", 0, False),
    ]
    for one in found:
        if one is not None:
            message = codec.replace(message, parts[one.part], one.marker())
    assert judge(format, {**body, FIELD[format]: [message]}) == []
    told = [part.text for part in codec.decode(0, message)]
    assert told[0] == "what is this?"
    assert all(is_media_marker(text) for text in told[1:])


def test_the_reference_of_an_image_is_that_of_its_block_without_marks() -> None:
    plain, marked = picture(), {**picture(), "cache_control": {"type": "ephemeral"}}
    refs = []
    for block in (plain, marked):
        message = {"role": "user", "content": [block]}
        found = held_media(0, PROVIDERS["anthropic"].codec.decode(0, message)[0], message)
        assert found is not None
        refs.append(found.ref)
    original = json.dumps(plain, separators=(",", ":"))
    assert refs == [reference(original)] * 2
    assert parse_marker(found.marker()) == OmissionMarker(
        1, "image", reference(original), reason="8 px on its longer side"
    )


def test_a_document_that_says_its_text_is_not_left_out() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    message = {"role": "user", "content": [{"type": "document", "source": source}]}
    found = held_media(0, PROVIDERS["anthropic"].codec.decode(0, message)[0], message)
    assert found is not None
    assert found.is_fixed


@given(
    st.sampled_from([*MEDIA_UNITS, "lines"]),
    st.integers(0, 2),
    st.text(),
    st.booleans(),
    st.none() | st.text(),
)
def test_what_stands_for_an_image_is_a_marker_of_one(
    unit: str, gone: int, why: str, rerun: bool, fetch: str | None
) -> None:
    text = str(OmissionMarker(gone, unit, reference("a"), None, why, rerun, fetch))
    assert is_media_marker(text) == (unit in MEDIA_UNITS and gone == 1)
    assert not is_media_marker(f"{text}\n")
    assert not is_media_marker(f" {text}")
