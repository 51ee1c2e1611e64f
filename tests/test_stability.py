"""A session request by request, with the default policy and each preset, in every format.

Between epochs each projection begins with the one before it, byte for byte, cache marks aside;
what is remembered changes nothing; nor does the process, a fork, or a turn that is edited.
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
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import clew
from clew import Memo, Policy
from clew.check.anthropic_request import MOST_MARKS
from clew.engine import Compaction
from clew.policy import PRESETS
from tests.formats import FIELD, FORMATS
from tests.judges import judge
from tests.laws.laws import _ends_made_up
from tests.laws.sessions import long_session, prose

EXCHANGES = 36
MARK = re.compile(rb',\s*"cache_control":\s*\{"type":\s*"ephemeral"\}')
# The default; every preset; and a budget that these sessions exceed, so that they fold.
POLICIES: dict[str, Policy] = {
    "default": Policy(),
    **{name: Policy.preset(name) for name in PRESETS},
    "tight, folding": Policy.preset("tight").replace(budget=16_000),
    "keen": Policy(caution=0.0, step=1, growth=0.0),
}
cases = pytest.mark.parametrize("format", [*FORMATS, "anthropic, marked", "anthropic, bound"])
policies = pytest.mark.parametrize("name", POLICIES)


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
    return [_marked(case, {**whole, FIELD[format]: history[:end]}) for end in ends]


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


def _marked(case: str, request: dict[str, Any]) -> bytes:
    """The request as its client writes it: some mark the newest block."""
    if case.startswith("anthropic,") and len(request["messages"]) > 1:
        *head, last = request["messages"]
        content = last["content"]
        if isinstance(content, list):
            marked = {**content[-1], "cache_control": {"type": "ephemeral"}}
            last = {**last, "content": [*content[:-1], marked]}
        request = {**request, "messages": [*head, last]}
    return json.dumps(request).encode()


def unmarked(body: bytes) -> bytes:
    return MARK.sub(b"", body)


def assert_extends(before: Compaction[bytes], after: Compaction[bytes], where: str) -> None:
    if before.report.epochs == after.report.epochs and not _ends_made_up(before):
        start = unmarked(before.request).removesuffix(b"]}")
        assert unmarked(after.request).startswith(start), f"{where}: another prefix"


def assert_sound(case: str, out: Compaction[bytes], body: bytes) -> None:
    """What goes out is valid, and has at most one mark more than came."""
    format = wire(case)
    problems = [one for one in clew.check(out.request, format=format) if one.severity == "error"]
    assert problems == []
    assert judge(format, json.loads(out.request)) == []
    count = len(re.findall(b'"cache_control"', out.request))
    came = len(re.findall(b'"cache_control"', body))
    assert came <= count <= min(MOST_MARKS, came + 1)


@cases
@policies
def test_request_by_request(format: str, name: str) -> None:
    policy, memo = POLICIES[name], Memo()
    outs: list[Compaction[bytes]] = []
    for number, body in enumerate(bodies(format)):
        out = clew.compact(body, format=wire(format), policy=policy, memo=memo)
        if number % 4 == 0 or number == EXCHANGES:
            cold = clew.compact(body, format=wire(format), policy=policy, memo=None)
            assert (out.request, out.report) == (cold.request, cold.report), f"request {number}"
            assert_sound(format, out, body)
        outs.append(out)
    for number, (before, after) in enumerate(pairwise(outs)):
        assert_extends(before, after, f"request {number + 1}")
        assert before.report.epochs <= after.report.epochs
    if name in ("keen", "tight, folding"):
        assert outs[-1].report.epochs > 0, "nothing was done, so this shows nothing"


@cases
@pytest.mark.parametrize("name", ["default", "tight, folding", "keen"])
def test_forks_and_edited_turns(format: str, name: str) -> None:
    """Two conversations that part, in turns with one memo, each as if it were alone."""
    policy, memo = POLICIES[name], Memo()
    one, other = bodies(format), bodies(format, edited=20)
    before: dict[int, Compaction[bytes]] = {}
    for number in range(17, 30, 2):
        for which, told in enumerate((one, other)):
            body = told[number]
            warm = clew.compact(body, format=wire(format), policy=policy, memo=memo)
            cold = clew.compact(body, format=wire(format), policy=policy, memo=None)
            assert (warm.request, warm.report) == (cold.request, cold.report)
            assert_sound(format, warm, body)
            if which in before:
                assert_extends(before[which], warm, f"{which}, request {number}")
            before[which] = warm


FRESH = """
from tests.test_stability import told
print(told())
"""


def told() -> str:
    """What comes out of the last request of each session, under each policy."""
    found: list[str] = []
    for case in (*FORMATS, "anthropic, marked", "anthropic, bound"):
        body = bodies(case)[-1]
        for name in ("default", "tight, folding", "keen"):
            out = clew.compact(body, format=wire(case), policy=POLICIES[name], memo=None)
            edits = json.dumps(out.report.to_dict(), sort_keys=True).encode()
            print_of = hashlib.sha256(out.request + edits).hexdigest()
            found.append(f"{case} {print_of} {len(out.report.edits)}")
    return "\n".join(found)


def test_another_process_gives_the_same_bytes() -> None:
    outputs: set[str] = set()
    for seed in ("0", "4711"):
        run = subprocess.run(
            [sys.executable, "-c", FRESH], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        outputs.add(run.stdout)
    assert len(outputs) == 1
