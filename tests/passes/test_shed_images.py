"""The pass shed_images."""

from __future__ import annotations

import base64
import copy
import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest

import respool
from respool import Facts, Memo, Policy
from respool.edits import Replace
from respool.markers import OmissionMarker, find_marker, reference
from respool.providers.anthropic.request_rules import MAX_BODY_BYTES
from tests.judges import judge
from tests.support.formats import FIELD, FORMATS

HAIKU = "claude-haiku-4-5"  # at most 100 images
OPUS = "claude-opus-5-5"  # at most 600
ALONE = Policy(passes=("shed_images",))
SCREEN = (640, 480)
Size = tuple[int, int]


def png(size: Size, number: int, bytes: int = 0) -> str:
    """The data of a picture: its header, a number that tells it apart, and so many more bytes."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + struct.pack(">II", *size)
    return base64.b64encode(head + struct.pack(">Q", number) + b"\0" * (bytes * 3 // 4)).decode()


def image(size: Size, number: int = 0, bytes: int = 0) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": png(size, number, bytes)}
    return {"type": "image", "source": source}


class Shot:
    """One message with an image: a result's, or the user's own."""

    def __init__(self, size: Size = SCREEN, *, bytes: int = 0, sent: bool = False) -> None:
        self.size, self.bytes, self.sent = size, bytes, sent


def session(shots: Sequence[Shot], model: str = HAIKU) -> dict[str, Any]:
    """A request in which the model looked at these one after the other; the last is new to it."""
    messages: list[Any] = [{"role": "user", "content": "Look at each of them."}]
    for number, shot in enumerate(shots):
        block = image(shot.size, number, shot.bytes)
        if shot.sent:
            said = [{"type": "text", "text": f"and this, {number}?"}, block]
            messages += [
                {"role": "assistant", "content": "I see."},
                {"role": "user", "content": said},
            ]
            continue
        call = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"at": number}}
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [block]}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [answer]},
        ]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    return {"model": model, "max_tokens": 99, "tools": tools, "messages": messages}


def shed(request: dict[str, Any], policy: Policy = ALONE, **more: Any) -> list[int]:
    """Numbers of the removed images, after all invariants were checked."""
    kept = copy.deepcopy(request)
    out = respool.compact(request, policy=policy, memo=None, **more)
    assert request == kept
    assert judge("anthropic", out.request) == []
    for edit in out.report.edits:
        assert isinstance(edit, Replace)
        assert edit.reason == "over_limit"
        marker = find_marker(edit.text)
        assert isinstance(marker, OmissionMarker)
        assert (marker.omitted, marker.unit, marker.ref) == (1, "image", edit.original)
        assert _at(out.request, edit.ref) == {"type": "text", "text": edit.text}
        original = respool.expand(edit.original, out)
        assert json.loads(original) == _at(request, edit.ref)
        assert reference(original) == edit.original
    return [(edit.ref.row - 2) // 2 for edit in out.report.edits]


def _at(request: dict[str, Any], ref: Any) -> Any:
    found = request["messages"][ref.row]
    for key in ref.path:
        found = found[key]
    return found


def few(count: int, **about: Any) -> list[Shot]:
    return [Shot(**about) for _ in range(count)]


OLD_OF_100 = list(range(31))  # back to seven tenths of a hundred, so that it lasts
WIDE, HUGE = (2_400, 1_200), (8_400, 600)
MANY: dict[str, tuple[list[Shot], list[int]]] = {
    "as many as there may be": (few(100), []),
    "one more": (few(101), OLD_OF_100),
    "more, until there are too many again": (few(131), OLD_OF_100),
    "too many again": (few(132), list(range(62))),
    "results' before the user's": (
        [*few(40, sent=True), *few(61)], list(range(40, 71)),
    ),
    "the user's where there are no others": (few(101, sent=True), OLD_OF_100),
    "both where results are not enough": (
        [*few(90, sent=True), *few(12)], [*range(21), *range(90, 100)],
    ),
    "large ones among few": (few(20, size=WIDE), []),
    "large ones among many": (
        [*few(2, size=WIDE), *few(19)], [0, 1],
    ),
    "the large ones go, wherever they are": (
        [*few(9), Shot(WIDE), *few(12)], [9],
    ),
    "too large anywhere": ([Shot(), Shot(HUGE), Shot()], [1]),
    "a large one that is new stays: others go until there are few": (
        [*few(20), Shot(WIDE)], [0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MANY)
def test_which_go(case: str) -> None:
    shots, expected = MANY[case]
    request = session(shots)
    assert shed(request) == expected
    assert respool.check(respool.compact(request, policy=ALONE, memo=None).request) == []


@pytest.mark.parametrize("case", MANY)
def test_with_the_default_policy_too(case: str) -> None:
    shots, expected = MANY[case]
    assert shed(session(shots), Policy()) == expected


@pytest.mark.parametrize("case", MANY)
@pytest.mark.parametrize("policy", [ALONE, Policy()], ids=["alone", "default"])
def test_what_a_limit_demands_goes_though_the_rest_is_too_short_to_be_cached(
    case: str, policy: Policy
) -> None:
    shots, expected = MANY[case]
    request = session(shots)
    request["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    assert shed(request, policy) == expected
    assert respool.check(respool.compact(request, policy=policy, memo=None).request) == []


ICON, SMALL = (64, 64), (130, 130)  # 6 tokens, fewer than any marker; 23, more than the shortest


@pytest.mark.parametrize(
    ("shots", "expected"),
    [
        ([*few(40, size=ICON), *few(61)], list(range(40, 71))),
        ([*few(80, size=ICON), *few(21)], list(range(80, 100))),
        (few(101, size=SMALL), OLD_OF_100),
        (few(101, size=ICON), []),
    ],
    ids=["larger ones go", "all larger ones go", "the shortest marker", "none is worth a marker"],
)
def test_what_takes_fewer_tokens_than_a_marker_stays(
    shots: list[Shot], expected: list[int]
) -> None:
    request = session(shots)
    for policy in (ALONE, Policy()):
        assert shed(request, policy) == expected
        out = respool.compact(request, policy=policy, memo=None)
        assert out.report.tokens_after <= out.report.tokens_before
        left = [one.code for one in respool.check(out.request)]
        assert left == ([] if expected else ["A22"]), "what is still too many is told"


def test_a_larger_model_may_have_more() -> None:
    assert shed(session(few(300), OPUS)) == []


@pytest.mark.parametrize(("each", "expected"), [(2_000_000, []), (3_000_000, [0, 1, 2, 3, 4])])
def test_too_many_bytes(each: int, expected: list[int]) -> None:
    request = session(few(12, bytes=each))
    out = respool.compact(json.dumps(request).encode(), policy=ALONE, memo=None)
    assert shed(request) == expected
    assert len(out.request) < MAX_BODY_BYTES
    assert respool.check(out.request) == []
    assert bool(respool.check(json.dumps(request))) == (each > 2_600_000)


def test_what_the_model_has_not_seen_stays() -> None:
    """All came at once, in the last message: the provider will say what is wrong with that."""
    blocks = [image(SCREEN, number) for number in range(101)]
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": blocks}
    request = session([])
    request["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer]},
    ]
    assert respool.compact(request, policy=ALONE, memo=None).request is request
    request["messages"].append({"role": "assistant", "content": "I see."})
    request["messages"].append({"role": "user", "content": "And?"})
    out = respool.compact(request, policy=ALONE, memo=None)
    assert len(out.report.edits) == len(OLD_OF_100)
    assert respool.check(out.request) == []


def test_the_first_message_and_pins_stay() -> None:
    shots = few(101)
    request = session(shots)
    request["messages"][0] = {"role": "user", "content": [image(SCREEN, 900)]}
    assert shed(request, ALONE.replace(pin_calls=("t0", "t2"))) == [1, *range(3, 33)]


def test_what_went_stays_gone_and_goes_out_the_same() -> None:
    memo = Memo()
    outs = []
    for count in range(99, 136):
        body = json.dumps(session(few(count))).encode()
        out = respool.compact(body, policy=ALONE, memo=memo)
        cold = respool.compact(body, policy=ALONE, memo=None)
        assert (out.request, out.originals) == (cold.request, cold.originals)
        assert respool.check(out.request) == []
        outs.append(out)
    assert [len(out.report.edits) for out in outs] == [0] * 2 + [31] * 31 + [62] * 4
    assert [out.report.epochs for out in outs] == [0] * 2 + [1] * 31 + [2] * 4


def test_where_nothing_may_be_done_nothing_is() -> None:
    request = session(few(101))
    prefix = respool.compact(request, policy=ALONE, memo=None).report.prefix
    assert prefix is not None
    assert shed(request, facts=Facts(left_alone=frozenset({prefix}))) == []


HEADS: dict[str, dict[str, Any]] = {
    "anthropic": {"model": HAIKU, "max_tokens": 9},
    "openai-chat": {"model": "gpt-4.1"},
    "openai-responses": {"model": "gpt-5.1"},
    "gemini": {},
}


def shown(format: str, count: int) -> dict[str, Any]:
    """A conversation in which the user showed so many images, in any format."""
    model = "model" if format == "gemini" else "assistant"
    said = (lambda text: {"parts": [{"text": text}]}) if format == "gemini" else _content
    history: list[Any] = [{"role": "user", **said("Look.")}]
    for number in range(count):
        history += [{"role": model, **said("I see.")}, {"role": "user", **_image(format, number)}]
    return {**HEADS[format], FIELD[format]: history}


def _content(text: str) -> dict[str, Any]:
    return {"content": text}


def _image(format: str, number: int) -> dict[str, Any]:
    data = png(SCREEN, number)
    url = f"data:image/png;base64,{data}"
    return {
        "anthropic": {"content": [image(SCREEN, number)]},
        "openai-chat": {"content": [{"type": "image_url", "image_url": {"url": url}}]},
        "openai-responses": {
            "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]
        },
        "gemini": {"parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]},
    }[format]


@pytest.mark.parametrize("format", FORMATS)
def test_only_where_a_limit_is_known(format: str) -> None:
    request = shown(format, 120)
    out = respool.compact(request, format=format, policy=ALONE, memo=None)
    assert len(out.report.edits) == (len(OLD_OF_100) if format == "anthropic" else 0)
    assert [
        one for one in respool.check(out.request, format=format) if one.severity == "error"
    ] == []
