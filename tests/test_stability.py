"""A session request by request, with the default policy and each preset, in every format.

Between epochs each projection begins with the one before it, byte for byte, cache marks aside;
what is remembered changes nothing; nor does the process, a fork, or a turn that is edited.

Each test has every second policy in one of the six kinds of session, and tests differ in which;
`make laws` has all policies in all kinds.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest

import respool
from respool import Facts, Memo, Policy
from respool.engine import Compaction
from respool.policy import PRESETS
from respool.providers.anthropic.request_rules import MAX_BREAKPOINTS
from tests.judges import judge
from tests.laws.laws import _ends_made_up
from tests.laws.sessions import long_session, prose
from tests.support.formats import FIELD, FORMATS

EXCHANGES = 36
BREAKPOINT_PATTERN = re.compile(rb',\s*"cache_control":\s*\{"type":\s*"ephemeral"\}')
# The default; every other preset; and a budget that these sessions exceed, so that they fold.
POLICIES: dict[str, Policy] = {
    "default": Policy(),
    **{name: Policy.preset(name) for name in PRESETS if Policy.preset(name) != Policy()},
    "tight, folding": Policy.preset("tight").replace(budget=16_000),
    "keen": Policy(miss_penalty=0.0, reevaluate_tokens=1, reevaluate_ratio=0.0, keep_exchanges=0),
}
CASES = (*FORMATS, "anthropic, marked", "anthropic, bound")


def in_turn(policies: Iterable[str], first: int) -> pytest.MarkDecorator:
    """Every second policy with one case each, from this one on; all pairs with `make laws`."""

    def is_due(at: int, turn: int) -> bool:
        return at == (turn + first) % len(CASES) and turn % 2 == first % 2

    return pytest.mark.parametrize(
        ("format", "name"),
        [
            pytest.param(case, name, marks=() if is_due(at, turn) else pytest.mark.laws)
            for at, case in enumerate(CASES)
            for turn, name in enumerate(policies)
        ],
    )


@cache
def session(case: str) -> dict[str, Any]:
    """A session with short and long results, some of which come twice."""
    format = wire(case)
    model = "claude-opus-5-5" if case.endswith("bound") else None
    whole = long_session(format, EXCHANGES, result=1_500, seed=4, model=model)
    source, history = random.Random(9), [_in_blocks(format, one) for one in whole[FIELD[format]]]
    texts = [prose(source, size) for size in (9_000, 4_000, 14_000)]
    answers = [at for at, one in enumerate(history) if _is_answer(one)]
    for number, at in enumerate(answers):
        if number % 5 == 2:
            history[at] = _answering(history[at], texts[number % 3])
    if case.endswith("bound"):
        history = [_thinking(at, one) for at, one in enumerate(history)]
    return {**whole, FIELD[format]: history}


def wire(case: str) -> str:
    return case.split(",", maxsplit=1)[0]


def _is_answer(message: Any) -> bool:
    told = json.dumps(message)
    return any(
        word in told for word in ('"tool_result"', '"tool"', "_call_output", "functionResponse")
    )


def _answering(message: Any, text: str) -> Any:
    """The same answer with another text."""
    if "output" in message:
        return {**message, "output": text}
    if message["role"] == "tool":
        return {**message, "content": text}
    changed = copy.deepcopy(message)
    if "parts" in changed:
        changed["parts"][0]["functionResponse"]["response"]["output"] = text
    else:
        changed["content"][0]["content"] = text
    return changed


def _thinking(at: int, message: Any) -> Any:
    if message["role"] != "assistant":
        return message
    block = {"type": "thinking", "thinking": f"thought {at}", "signature": f"c2ln{at:04}"}
    return {**message, "content": [block, *message["content"]]}


def bodies(case: str, edited: int | None = None) -> list[bytes]:
    """Every request of the session; with `edited`, the user says something after that exchange."""
    whole, format = session(case), wire(case)
    step = 3 if format == "openai-responses" else 2
    history = whole[FIELD[format]]
    if edited is not None:
        said = copy.deepcopy(history[0])
        history = [
            *history[: 1 + step * edited],
            *_said_other(format, said),
            *history[1 + step * edited :],
        ]
    ends = range(1, len(history) + 1, step)
    return [_with_breakpoint(case, {**whole, FIELD[format]: history[:end]}) for end in ends]


def _said_other(format: str, said: Any) -> list[Any]:
    """The model's last word, and the user's next one."""
    model = "model" if format == "gemini" else "assistant"
    holder = "parts" if format == "gemini" else "content"
    if format == "openai-responses":
        done = [{"type": "output_text", "text": "Done.", "annotations": []}]
        return [{"type": "message", "role": model, "content": done}, said]
    words = [{"text": "Done."}] if format == "gemini" else "Done."
    return [_in_blocks(format, {"role": model, holder: words}), said]


def _in_blocks(format: str, message: Any) -> Any:
    """The message with its words in a block, which can be marked without another spelling."""
    words = message.get("content")
    if format != "anthropic" or not isinstance(words, str):
        return message
    return {**message, "content": [{"type": "text", "text": words}]}


def _with_breakpoint(case: str, request: dict[str, Any]) -> bytes:
    """The request as its client writes it: some mark the newest block."""
    if case.startswith("anthropic,") and len(request["messages"]) > 1:
        *head, last = request["messages"]
        content = last["content"]
        if isinstance(content, list):
            last_block = {**content[-1], "cache_control": {"type": "ephemeral"}}
            last = {**last, "content": [*content[:-1], last_block]}
        request = {**request, "messages": [*head, last]}
    return json.dumps(request).encode()


def without_breakpoints(body: bytes) -> bytes:
    return BREAKPOINT_PATTERN.sub(b"", body)


def assert_extends(before: Compaction[bytes], after: Compaction[bytes], where: str) -> None:
    if before.report.epochs == after.report.epochs and not _ends_made_up(before):
        start = without_breakpoints(before.request).removesuffix(b"]}")
        assert without_breakpoints(after.request).startswith(start), f"{where}: another prefix"


def assert_sound(case: str, out: Compaction[bytes], body: bytes) -> None:
    """The projection is valid, and has at most one cache breakpoint more than the request."""
    format = wire(case)
    problems = [one for one in respool.check(out.request, format=format) if one.severity == "error"]
    assert problems == []
    assert judge(format, json.loads(out.request)) == []
    count = len(re.findall(b'"cache_control"', out.request))
    came = len(re.findall(b'"cache_control"', body))
    assert came <= count <= min(MAX_BREAKPOINTS, came + 1)


@in_turn(POLICIES, 0)
def test_request_by_request(format: str, name: str) -> None:
    policy, memo = POLICIES[name], Memo()
    outs: list[Compaction[bytes]] = []
    for number, body in enumerate(bodies(format)):
        out = respool.compact(body, format=wire(format), policy=policy, memo=memo)
        if number % 6 == 0 or number == EXCHANGES:
            cold = respool.compact(body, format=wire(format), policy=policy, memo=None)
            assert (out.request, out.report) == (cold.request, cold.report), f"request {number}"
            assert_sound(format, out, body)
        outs.append(out)
    for number, (before, after) in enumerate(pairwise(outs)):
        assert_extends(before, after, f"request {number + 1}")
        assert before.report.epochs <= after.report.epochs
    if name in ("keen", "tight, folding"):
        assert outs[-1].report.epochs > 0, "nothing was done, so this shows nothing"


@in_turn(["default", "tight, folding", "keen"], 3)
def test_forks_and_edited_turns(format: str, name: str) -> None:
    """Two conversations that part, in turns with one memo, each as if it were alone."""
    policy, memo = POLICIES[name], Memo()
    one, other = bodies(format), bodies(format, edited=20)
    before: dict[int, Compaction[bytes]] = {}
    for number in range(17, 30, 3):
        for which, told in enumerate((one, other)):
            body = told[number]
            warm = respool.compact(body, format=wire(format), policy=policy, memo=memo)
            cold = respool.compact(body, format=wire(format), policy=policy, memo=None)
            assert (warm.request, warm.report) == (cold.request, cold.report)
            assert_sound(format, warm, body)
            if which in before:
                assert_extends(before[which], warm, f"{which}, request {number}")
            before[which] = warm


def compacted(case: str, kept: int) -> list[bytes]:
    """Request of a client that summarises all but its latest exchanges by itself."""
    whole, format = session(case), wire(case)
    history = whole[FIELD[format]]
    told = [history[0], *_said_other(format, copy.deepcopy(history[0]))]
    left = [*told, *history[-kept * (3 if format == "openai-responses" else 2) :]]
    ends = [at for at, one in enumerate(left, 1) if _is_answer(one)]
    return [_with_breakpoint(case, {**whole, FIELD[format]: left[:end]}) for end in ends]


@in_turn(["default", "tight, folding", "keen"], 0)
def test_a_clients_own_compaction(format: str, name: str) -> None:
    """Messages kept behind another beginning are decided as if they were new."""
    policy, memo = POLICIES[name], Memo()
    for body in bodies(format)[20::4]:
        respool.compact(body, format=wire(format), policy=policy, memo=memo)
    before: Compaction[bytes] | None = None
    for number, body in enumerate(compacted(format, 16)):
        warm = respool.compact(body, format=wire(format), policy=policy, memo=memo)
        cold = respool.compact(body, format=wire(format), policy=policy, memo=None)
        assert (warm.request, warm.report) == (cold.request, cold.report)
        assert_sound(format, warm, body)
        if before is not None:
            assert_extends(before, warm, f"request {number}")
        before = warm


# Facts of every kind, each told when its request came.

NOTED = {
    6: "cold", 8: "skipped", 10: "changed", 16: "windows", 20: "breakpoints",
    24: "breakpoints", 28: "cold", 32: "left_alone",
}  # fmt: skip


def noted(number: int, here: str) -> Facts:
    """Facts seen with this request."""
    kind = NOTED[number]
    if kind == "windows":
        return Facts(windows=((here, 24_000),))
    if kind == "breakpoints":
        return Facts(breakpoints=((here, "1h" if number == 20 else "5m full"),))
    told: dict[str, Any] = {kind: frozenset({here})}
    return Facts(**told)


def sum_up(record: str) -> str:
    return f"{len(record)} characters of work, summed up."


@cache
def with_facts(case: str, name: str) -> tuple[list[Compaction[bytes]], list[Facts]]:
    """Every request of the session, and the facts under which it was compacted."""
    how: Any = {"format": wire(case), "policy": POLICIES[name], "memo": Memo()}
    outs, known = list[Compaction[bytes]](), [Facts()]
    for number, body in enumerate(bodies(case)):
        facts = known[-1]
        if number in NOTED:
            before = respool.compact(
                body, facts=facts, **how
            )  # so that the memo knows it otherwise
            assert before.report.prefix is not None
            facts = facts.merge(noted(number, before.report.prefix))
        outs.append(respool.compact(body, facts=facts, summarize=sum_up, **how))
        known.append(outs[-1].facts)
    return outs, known[1:]


# Each policy in the kind of session whose turn it is: what follows looks at the same sessions.
WITH_FACTS = [(CASES[(turn + 5) % 6], name) for turn, name in enumerate(POLICIES)]


@in_turn(POLICIES, 5)
def test_facts_of_every_kind(format: str, name: str) -> None:
    outs, known = with_facts(format, name)
    for number, (body, out, facts) in enumerate(zip(bodies(format), outs, known, strict=True)):
        if number % 12 == 0 or number - 1 in NOTED:
            how: Any = {"format": wire(format), "policy": POLICIES[name], "memo": None}
            cold = respool.compact(body, facts=facts, **how)
            assert (out.request, out.report) == (cold.request, cold.report), f"request {number}"
            assert_sound(format, out, body)
    for number, (before, after) in enumerate(pairwise(outs)):
        assert_extends(before, after, f"request {number + 1}")


def test_each_kind_of_fact_matters() -> None:
    """Without it something else goes out: so what was shown above was shown of it, too."""
    kinds = {*NOTED.values(), "summaries"}
    matter: set[str] = set()
    pairs = [*WITH_FACTS, *product(("anthropic, marked", "anthropic, bound"), POLICIES)]
    for (case, name), number in product(pairs, (25, EXCHANGES)):
        if kinds == matter:
            break
        outs, known = with_facts(case, name)
        how: Any = {"format": wire(case), "policy": POLICIES[name], "memo": None}
        for kind in kinds - matter:
            told = {**known[number].to_dict(), kind: Facts().to_dict().get(kind, {})}
            without = respool.compact(bodies(case)[number], facts=Facts.from_dict(told), **how)
            if without.request != outs[number].request:
                matter.add(kind)
    assert kinds == matter


FRESH = """
import json, sys
from tests.test_stability import told
print(json.dumps(told(json.load(sys.stdin))))
"""
Known = dict[str, dict[str, Any]]


def told(known: Known) -> dict[str, str]:
    """Projections of the last request of each session under these facts, by policy."""
    found: dict[str, str] = {}
    for case, policies in known.items():
        for name, facts in policies.items():
            how: Any = {"format": wire(case), "policy": POLICIES[name], "memo": None}
            out = respool.compact(bodies(case)[-1], facts=Facts.from_dict(facts), **how)
            found[f"{case}, {name}"] = printed(out)
    return found


def printed(out: Compaction[bytes]) -> str:
    edits = json.dumps(out.report.to_dict(), sort_keys=True).encode()
    return f"{hashlib.sha256(out.request + edits).hexdigest()} {len(out.report.edits)}"


def gives_the_same_bytes(seed: str, pairs: Iterable[tuple[str, str]]) -> None:
    """With nothing but the request, the policy and the facts, and with another order of hashes."""
    found = {pair: with_facts(*pair) for pair in pairs}
    known: Known = {}
    for (case, name), (_, facts) in found.items():
        known.setdefault(case, {})[name] = facts[-1].to_dict()
    run = subprocess.run(
        [sys.executable, "-c", FRESH],
        capture_output=True,
        text=True,
        check=True,
        input=json.dumps(known),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(run.stdout) == {
        f"{case}, {name}": printed(outs[-1]) for (case, name), (outs, _) in found.items()
    }


def test_another_process_gives_the_same_bytes() -> None:
    """Each policy in one kind of session."""
    gives_the_same_bytes("4711", WITH_FACTS)


@pytest.mark.laws
@pytest.mark.parametrize("seed", ["0", "4711"])
def test_another_process_gives_the_same_bytes_everywhere(seed: str) -> None:
    gives_the_same_bytes(seed, product(CASES, POLICIES))
