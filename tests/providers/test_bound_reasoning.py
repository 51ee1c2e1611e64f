"""Reasoning bound to its prefix: dropped when the prefix changes, and only then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool.api import Plan
from respool.edits import DropExchange, DropReasoning, Edit, PlaceBreakpoint, Replace, touched_parts
from respool.engine import fold_request
from respool.facts import Facts
from respool.markers import reference
from respool.policy import Policy
from respool.providers.bound_reasoning import (
    Binding,
    binding_of,
    can_change_at,
    drop_bound_reasoning,
    first_breaking_part,
    first_changeable_part,
    is_turn_start,
    reasoning_value,
    running_turn_start,
)
from respool.providers.registry import PROVIDERS
from respool.transcript import (
    Part,
    PartKind,
    ReadOnlyTranscript,
    Ref,
    Speaker,
    Transcript,
    TranscriptIndex,
)
from tests.effort import examples
from tests.strategies import requests
from tests.support.formats import Exchange, request

BOUND = Binding("prefix", "all", oldest_first=True)
IN_TURNS = Binding("prefix", "turns", oldest_first=True)
UNKNOWN = Binding("prefix", "none", oldest_first=True)
OWN = Binding("block", "all")
OF_ROUTER = Binding("block", "turns", oldest_first=True)
DEMANDED = Binding("nothing", "none")

ADAPTIVE = {"type": "adaptive"}
MANUAL = {"type": "enabled", "budget_tokens": 2048}
DROPS = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
FAILS = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}


@pytest.mark.parametrize(
    ("format", "model", "binding"),
    [
        # Claude's signatures by generation: for the block itself, then for the whole prefix.
        ("anthropic", "claude-3-7-sonnet-20250219", OWN),
        ("anthropic", "claude-sonnet-4-5-20250929", OWN),
        ("anthropic", "claude-opus-4-8", OWN),
        ("anthropic", "claude-sonnet-5", OWN),
        ("anthropic", "claude-fable-5", OWN),
        ("anthropic", "claude-mythos-5-0", OWN),
        ("anthropic", "claude-fable-5-1", BOUND),
        ("anthropic", "claude-mythos-5-1", BOUND),
        ("anthropic", "claude-fable-5-2", BOUND),
        ("anthropic", "claude-opus-5-4", OWN),
        ("anthropic", "claude-opus-5-5", BOUND),
        ("anthropic", "claude-sonnet-5-5-20261001", BOUND),
        ("anthropic", "claude-haiku-5.5", BOUND),
        ("anthropic", "claude-opus-6", BOUND),
        # As clouds and routers spell them.
        ("anthropic", "us.anthropic.claude-opus-5-5-v1:0", BOUND),
        ("anthropic", "anthropic.claude-sonnet-4-5-20250929-v1:0", OWN),
        ("anthropic", "claude-haiku-5-5@20261015", BOUND),
        ("anthropic", "claude-opus-5@20260401", OWN),
        ("anthropic", "bedrock/eu.anthropic.claude-fable-5-1-v1:0", BOUND),
        ("anthropic", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x9", UNKNOWN),
        # A name that tells nothing, or that there is none.
        ("anthropic", "sonnet", UNKNOWN),
        ("anthropic", "mine", UNKNOWN),
        ("anthropic", None, UNKNOWN),
        ("anthropic", 5, UNKNOWN),
        ("anthropic", "x" * 500, UNKNOWN),
        # Others on Anthropic's wire.
        ("anthropic", "deepseek-v4-pro", DEMANDED),
        ("anthropic", "Kimi-K2-Thinking", DEMANDED),
        ("anthropic", "glm-4.7", DEMANDED),
        ("anthropic", "MiniMax-M2", DEMANDED),
        ("anthropic", "gpt-5.1-codex", OF_ROUTER),
        ("anthropic", "gemini-3-pro", OF_ROUTER),
        # Chat has no reasoning of its own: a router's, or a server's that may demand it back.
        ("openai-chat", "gpt-5.1", OF_ROUTER),
        ("openai-chat", "anthropic/claude-sonnet-4.5", OF_ROUTER),
        ("openai-chat", "anthropic/claude-opus-5.5", IN_TURNS),
        ("openai-chat", "google/gemini-3-pro", OF_ROUTER),
        ("openai-chat", "deepseek-chat", DEMANDED),
        ("openai-chat", "qwen3", DEMANDED),
        ("openai-chat", "mine", UNKNOWN),
        ("openai-chat", None, UNKNOWN),
        # Responses: encrypted for an organisation, bound to what followed it, and not to more.
        ("openai-responses", "gpt-6.1", OWN),
        ("openai-responses", "o3", OWN),
        ("openai-responses", "openai/gpt-oss-120b", DEMANDED),
        ("openai-responses", "deepseek-v4-pro", DEMANDED),
        ("openai-responses", None, OWN),
        ("openai-responses", "anthropic/claude-fable-5.1", IN_TURNS),
        ("openai-responses", "anthropic/claude-opus-4.5", OWN),
        # Gemini: the model's name stands in the address, and the calls are signed.
        ("gemini", None, OWN),
        ("gemini", "gemini-3-pro", OWN),
        ("gemini", "claude-opus-5-5-thinking", IN_TURNS),
        ("", None, UNKNOWN),
    ],
)
def test_what_each_model_signs_for_and_lets_go(format: str, model: Any, binding: Binding) -> None:
    assert binding_of(format, {"model": model} if model else None) == binding


@pytest.mark.parametrize(
    ("model", "thinking", "binding"),
    [
        ("claude-opus-4-6", ADAPTIVE, OWN),
        ("claude-opus-4-6", {"type": "disabled"}, OWN),
        ("claude-sonnet-4-5", MANUAL, Binding("block", "turns", oldest_first=True)),
        ("claude-opus-5-5", ADAPTIVE, BOUND),
        ("claude-opus-5-5", FAILS, BOUND),
        ("claude-opus-5-5", MANUAL, IN_TURNS),
        (
            "claude-opus-5-5",
            DROPS,
            Binding("prefix", "all", oldest_first=True, is_dropped_by_api=True),
        ),
        ("mine", ADAPTIVE, UNKNOWN),
        ("mine", MANUAL, UNKNOWN),
        ("mine", DROPS, Binding("prefix", "none", oldest_first=True, is_dropped_by_api=True)),
        ("claude-opus-5-5", "adaptive", BOUND),
        ("claude-opus-5-5", {"block_binding": []}, BOUND),
        ("kimi-k2", MANUAL, DEMANDED),
    ],
)
def test_what_the_request_itself_switches(model: str, thinking: Any, binding: Binding) -> None:
    assert binding_of("anthropic", {"model": model, "thinking": thinking}) == binding


@pytest.mark.parametrize(
    ("binding", "bound", "loses"),
    [
        (BOUND, True, True),
        (UNKNOWN, True, True),
        (
            Binding("prefix", "all", is_dropped_by_api=True),
            False,
            True,
        ),  # the API takes it out itself
        (OWN, False, False),
        (DEMANDED, False, False),
    ],
)
def test_bound_and_lost_are_two_things(binding: Binding, bound: bool, loses: bool) -> None:
    assert (binding.is_bound, binding.is_prefix_signed) == (bound, loses)


def test_what_signs_for_the_prefix_goes_oldest_first() -> None:
    assert all(
        row.binding.oldest_first
        for one in PROVIDERS.values()
        for row in one.binding_rules
        if row.binding.is_prefix_signed
    )


def test_a_switch_of_another_format_switches_nothing() -> None:
    fields = {"model": "anthropic/claude-opus-5.5", "thinking": DROPS}
    assert binding_of("openai-chat", fields) == IN_TURNS


# A history to cut in, by what its parts are. Upper case: signed reasoning.
_KINDS: dict[str, tuple[PartKind, Speaker]] = {
    "t": ("reasoning", "model"), "T": ("reasoning", "model"), "m": ("text", "model"),
    "c": ("call", "model"), "r": ("result", "tool"), "u": ("text", "user"),
}  # fmt: skip


def history(*units: str) -> Transcript:
    """Units by their parts: thoughts (T signed, t plain), m text, c calls, r results, u user."""
    index = TranscriptIndex()
    for number, unit in enumerate(units):
        parts = [
            _part(2 * number + (letter in "ru"), at, letter, number)
            for at, letter in enumerate(unit)
        ]
        model = [part for part in parts if part.speaker == "model"]
        index.add_unit((2 * number, 2 * number + 2), model, parts[len(model) :], locked=False)
    return index.freeze()


def _part(row: int, at: int, letter: str, number: int) -> Part:
    kind, speaker = _KINDS[letter]
    id = f"call_{number}" if letter in "cr" else ""
    return Part(Ref(row, ("content", at)), kind, speaker, "words", id=id, signed=letter == "T")


@pytest.mark.parametrize(
    ("units", "position", "gone", "found"),
    [
        (("u", "Tcr", "Tcr", "Tcr"), 0, (), [1, 2, 3]),
        (("u", "Tcr", "Tcr", "Tcr"), 3, (), [2, 3]),  # behind the first result
        (("u", "Tcr", "Tcr", "Tcr"), 2, (), [2, 3]),  # a call's own thinking stands before it
        (("u", "Tcr", "Tcr", "Tcr"), 7, (), []),  # behind all reasoning
        (("u", "Tcr", "Tcr", "Tcr"), -1, (4,), [1, 3]),
        (("u", "TmTcr", "Tcr"), 2, (), [1, 2]),  # interleaved: both thoughts of the message go
        (("u", "TmTcr", "Tcr"), 3, (), [2]),
        (("u", "cr", "mu", "Tcr"), 1, (), [3]),
        (("u", "T", "T"), 0, (), [1, 2]),  # thoughts alone
        (("u", "tcr", "tcr"), 0, (), []),  # plain text is bound to nothing
        (("u", "tTcr",), 0, (), [1]),
        ((), 0, (), []),
    ],
)  # fmt: skip
def test_all_signed_reasoning_behind_a_change_goes(
    units: tuple[str, ...], position: int, gone: tuple[int, ...], found: list[int]
) -> None:
    told = history(*units)
    drops = drop_bound_reasoning(told, position, gone, lambda at: 10)
    assert [drop.unit for drop in drops] == found
    for drop in drops:
        blocks = len(told.units[drop.unit].reasoning)
        assert drop.reason == "bound_reasoning"
        assert drop.saved == 10 * blocks
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        assert drop.evidence == f"{count} signed for what stood before"
        assert drop.ref == told.parts[told.units[drop.unit].reasoning[0]].ref


@pytest.mark.parametrize(
    ("units", "running"),
    [
        ((), 0),
        (("u",), 1),
        (("u", "Tcr"), 1),
        (("u", "Tcr", "Tcr"), 1),
        (("u", "Tcr", "mu", "Tcr", "Tcr"), 3),
        (("u", "Tcr", "Tmu"), 3),  # answered, and the user has spoken: nothing is running
        (("u", "Tcr", "m"), 1),
    ],
)
def test_where_the_running_turn_begins(units: tuple[str, ...], running: int) -> None:
    assert running_turn_start(history(*units)) == running


def test_words_in_a_message_of_results_open_no_turn() -> None:
    assert not is_turn_start(history("u", "Tcru", "Tcr"), 2)


@pytest.mark.parametrize(
    ("kind", "speaker", "opens"),
    [("text", "user", True), ("media", "user", False), ("text", "system", False)],
)
def test_what_follows_results_opens_a_turn_if_the_user_says_it(
    kind: PartKind, speaker: Speaker, opens: bool
) -> None:
    index = TranscriptIndex()
    call, result = _part(0, 0, "c", 0), _part(1, 0, "r", 0)
    index.add_unit((0, 3), [call], [result, Part(Ref(2, ()), kind, speaker, "words")], locked=False)
    assert is_turn_start(index, 1) is opens
    assert is_turn_start(index, 0)
    assert running_turn_start(index) == 0, "its calls are answered, but nothing has followed them"


@pytest.mark.parametrize(
    ("binding", "units", "gone", "first"),
    [
        (BOUND, ("u", "Tcr", "Tcr"), (), 0),  # adaptive: the latest thinking may go as well
        (IN_TURNS, ("u", "Tcr", "Tcr"), (), 5),  # A10: only behind what the running turn thought
        (IN_TURNS, ("u", "Tcr", "mu", "cr"), (), 0),  # whose turn is over
        (IN_TURNS, ("u", "Tcr", "mu", "Tcr", "cr"), (), 7),
        (IN_TURNS, ("u", "Tcr", "mu", "Tcr", "cr"), (6,), 0),
        (IN_TURNS, ("u", "Tcr", "Tmu"), (), 0),
        (UNKNOWN, ("u", "Tcr", "mu", "cr"), (), 2),
        (UNKNOWN, ("u", "tcr", "mu", "cr"), (), 0),
        (UNKNOWN, ("u", "Tcr", "Tcr"), (1, 4), 0),
        (OWN, ("u", "Tcr", "Tcr"), (), 0),
        (OF_ROUTER, ("u", "Tcr", "Tcr"), (), 0),
        (DEMANDED, ("u", "Tcr", "Tcr"), (), 0),
        (Binding("prefix", "none", oldest_first=True, is_dropped_by_api=True), ("u", "Tcr"), (), 0),
        (UNKNOWN, (), (), 0),
    ],
)
def test_from_where_on_a_change_is_possible(
    binding: Binding, units: tuple[str, ...], gone: tuple[int, ...], first: int
) -> None:
    told = history(*units)
    assert first_changeable_part(told, binding, gone) == first
    for position in range(len(told.parts)):
        assert can_change_at(told, position, binding, gone) is (position >= first)


def _replace(position: int) -> Edit:
    return Replace(position, Ref(0, ()), "less", "ref", "trial", "", 5)


def _mute(unit: int) -> Edit:
    return DropReasoning(unit, Ref(0, ()), "trial", "", 5)


@pytest.mark.parametrize(
    ("edits", "gone", "cut"),
    [
        ([], (), None),
        ([PlaceBreakpoint(3, Ref(0, ()), {}, "trial", "")], (), None),
        ([_replace(6), _replace(3)], (), 3),
        ([_mute(1)], (), None),  # the oldest
        ([_mute(1), _mute(2)], (), None),
        ([_mute(2)], (), 4),  # one in the middle
        ([_mute(2)], (1,), None),  # the oldest that is left
        ([_mute(1), _mute(3)], (), 7),
        ([_mute(1), _mute(2), _mute(3)], (), None),
        ([_mute(1), _replace(6)], (), 6),
        ([DropExchange(1, Ref(0, ()), "trial", "", 5)], (), 4),
        ([DropExchange(0, Ref(0, ()), "trial", "", 5)], (), 1),  # what is younger was signed for it
        ([_replace(0)], (), 0),
        ([_mute(0)], (), None),  # nothing to mute
    ],
)  # fmt: skip
def test_where_edits_make_reasoning_invalid(
    edits: list[Edit], gone: tuple[int, ...], cut: int | None
) -> None:
    assert first_breaking_part(history("u", "Tcr", "Tcr", "Tcr"), edits, gone) == cut


def test_worth_falls_with_age_and_grows_with_size() -> None:
    recorded = {1: 0.020, 2: 0.012, 3: 0.010, 8: 0.006, 11: 0.005, 21: 0.002, 41: 0.001}
    for age, share in recorded.items():
        assert share * 1000 <= reasoning_value(age, 0, 1000) <= 2 * share * 1000
    by_age = [reasoning_value(age, 100, 3000) for age in range(1, 50)]
    assert all(younger > older > 0 for younger, older in pairwise(by_age))
    assert reasoning_value(1, 200, 3000) > reasoning_value(1, 100, 3000)


Signed = tuple[str, str, str | None]


def signatures(request: Any) -> list[Signed]:
    """Content that the API signs: each thought, all content before it, and the thought before it.

    Older thoughts are not signed with one, but each one depends on the thought before it.
    """
    found: list[Signed] = []
    before, last = "", None
    for message in request["messages"]:
        content = message.get("content") or []
        texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in texts:
            spelled = json.dumps({k: v for k, v in block.items() if k != "cache_control"})
            if block.get("type") in ("thinking", "redacted_thinking"):
                found.append((spelled, before, last))
                last = spelled
            else:
                before += f"{message['role']} {spelled}\n"
    return found


def accepts(sent: Any, original: Any) -> bool:
    """Return whether all thinking was signed for exactly this content; the first may be any."""
    known = signatures(original)
    starts = {(block, before) for block, before, _ in known}
    left = signatures(sent)
    return set(left[1:]) <= set(known) and all(one[:2] in starts for one in left[:1])


def projected(request: Any, edits: Sequence[Edit], prefix: bytes) -> Any:
    plan = Plan(format="anthropic", prefix=prefix.hex(), edits=tuple(edits))
    return respool.apply(request, plan).request


def problems_of(request: Any) -> list[str]:
    return sorted(
        p.code for p in respool.check(request, format="anthropic") if p.severity == "error"
    )


@st.composite
def _changes(draw: st.DrawFn, told: ReadOnlyTranscript, first: int) -> list[Edit]:
    """Some results shortened and some reasoning taken out, from a part on."""
    results = [
        at
        for at in told.results
        if at >= first and told.parts[at].text and not told.parts[at].server
    ]
    muted = [
        n for n, unit in enumerate(told.units) if unit.reasoning and unit.reasoning[0] >= first
    ]
    cut = draw(st.lists(st.sampled_from(results), unique=True, max_size=3)) if results else []
    out = draw(st.lists(st.sampled_from(muted), unique=True, max_size=2)) if muted else []
    return [
        *(
            Replace(at, told.parts[at].ref, "less", reference(told.parts[at].text), "trial", "", 1)
            for at in cut
        ),
        *(
            DropReasoning(n, told.parts[told.units[n].reasoning[0]].ref, "trial", "", 1)
            for n in out
        ),
    ]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests("anthropic"), st.data())
def test_whatever_changes_the_reasoning_that_is_left_is_valid(
    body: dict[str, Any], data: st.DataObject
) -> None:
    state = fold_request(
        body, format="anthropic", policy=Policy(), facts=Facts(), memo=None, passes=()
    ).state
    told = state.transcript
    binding = binding_of("anthropic", {**body, "model": "claude-opus-5-5"})
    edits = data.draw(_changes(told, first_changeable_part(told, binding, ())))
    gone = {
        part
        for edit in edits
        for part in touched_parts(edit, told)
        if isinstance(edit, DropReasoning)
    }
    position = first_breaking_part(told, edits, ())
    if position is not None:
        edits += drop_bound_reasoning(told, position, gone, lambda at: 1)
    sent = projected(body, edits, state.prefix.hash)
    assert accepts(sent, body)
    assert problems_of(sent) == problems_of(body)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests("anthropic"), st.data())
def test_behind_any_cut_all_reasoning_goes_and_all_before_it_stays(
    body: dict[str, Any], data: st.DataObject
) -> None:
    state = fold_request(
        body, format="anthropic", policy=Policy(), facts=Facts(), memo=None, passes=()
    ).state
    told = state.transcript
    position = data.draw(st.integers(-1, len(told.parts) - 1))
    drops = drop_bound_reasoning(told, position, (), lambda at: 1)
    left = signatures(projected(body, drops, state.prefix.hash))
    here = {told.parts[position].ref.row} if position >= 0 else set[int]()
    thoughts = [at for unit in told.units for at in unit.reasoning]
    safe = [at for at in thoughts if at <= position and told.parts[at].ref.row not in here]
    assert len(safe) <= len(left) <= sum(at <= position for at in thoughts)
    assert left == signatures(body)[: len(left)]


@pytest.mark.parametrize(
    ("thinking", "may", "wrong"), [(ADAPTIVE, True, []), (MANUAL, False, ["A10"])]
)
def test_in_manual_mode_no_cut_reaches_a_running_turn(
    thinking: Any, may: bool, wrong: list[str]
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    body: dict[str, Any] = request("anthropic", "go", *([Exchange("ok", id=f"c{n}")] for n in "ab"))
    for message in body["messages"]:
        if message["role"] == "assistant":
            message["content"].insert(0, thought)
    body |= {"thinking": thinking, "model": "claude-opus-4-6"}
    state = fold_request(
        body, format="anthropic", policy=Policy(), facts=Facts(), memo=None, passes=()
    ).state
    told, binding = state.transcript, binding_of("anthropic", {**body, "model": "claude-opus-5-5"})
    first_result = told.results[0]
    assert can_change_at(told, first_result, binding, ()) is may
    assert can_change_at(told, told.results[-1], binding, ())
    drops = drop_bound_reasoning(told, first_result, (), lambda at: 1)
    sent = projected(body, drops, state.prefix.hash)
    assert problems_of(body) == []
    assert problems_of(sent) == wrong


def test_the_judge_of_these_laws_can_say_no() -> None:
    def thinks(text: str) -> dict[str, Any]:
        thought = {"type": "thinking", "thinking": text, "signature": "c2ln"}
        return {"role": "assistant", "content": [thought, {"type": "text", "text": "ok"}]}

    asked = {"role": "user", "content": "go"}
    whole = {"messages": [asked, thinks("a"), asked, thinks("b"), asked, thinks("c"), asked]}
    changed = {"messages": [{**asked, "content": "stay"}, *whole["messages"][1:]]}
    bare = {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
    without_first = {"messages": [asked, bare, *whole["messages"][2:]]}
    without_middle = {"messages": [*whole["messages"][:3], bare, *whole["messages"][4:]]}
    assert accepts(whole, whole)
    assert accepts(without_first, whole)
    assert not accepts(changed, whole)
    assert not accepts(without_middle, whole)
