"""Fuzz of the whole pipeline: hostile and random requests over the four wires (`make fuzz`).

    python -m tests.fuzz [--cases N] [--processes N] [--state FILE] [--fresh]

A block is a number: it seeds the histories drawn (tests/strategies) and what is done to them. Each
case is compacted under two hash seeds and judged: no word vanishes, nothing is invalid, unstable or
longer, and no undocumented error is raised. The finished blocks are kept in FILE, so that a run
goes on where the last one stopped; each kind of failure is kept there with its smallest request.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import just, tuples

import respool
from respool import BudgetError, PassedThrough, Policy, UnreadableRequest
from respool.edits import Advise, DropExchange, DropReasoning, Replace
from respool.engine import Compaction
from respool.providers.registry import PROVIDERS
from respool.wire.message_identity import strip_breakpoints
from tests.judges import judge
from tests.laws import laws
from tests.laws.subject import EAGER, LEAN, PRICED, Compact
from tests.strategies import FORMATS, HISTORY, broken, growing

Case = tuple[str, str, Any]  # format, policy, request
Failure = tuple[str, str, Case]  # property, what was found, where
DRAWN, MUTANTS = 4, 11  # of each block: conversations a format, and damaged copies of each
BLOCK = DRAWN * len(FORMATS) * (MUTANTS + 2)  # cases
HASH_SEEDS = ("1", "4242")
DOCUMENTED = (BudgetError, PassedThrough, UnreadableRequest)
POLICIES = {"default": Policy(), "eager": EAGER, "priced": PRICED, "lean": LEAN}
ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / "build" / "fuzz.json"

# --- cases -------------------------------------------------------------------------------------


def drawn(number: int) -> list[tuple[str, list[Any], Any]]:
    """The conversations of a block: a format, the growing requests of one, and a broken request."""
    found: list[tuple[str, list[Any], Any]] = []
    for format in FORMATS:

        @seed(number)
        @settings(
            max_examples=DRAWN,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(tuples(just(format), growing(format), broken(format)))
        def draw(one: tuple[str, list[Any], Any]) -> None:
            found.append(one)

        draw()
    return found


JUNK: tuple[Any, ...] = (
    None, "", " \n\t", 0, -1, 1e308, True, [], {}, [[]], {"a": {"b": [1]}}, "plain words alone",
    ["two", "words"], "\x00\x1b[31mred\x1b[0m\r\nover\rdraw",
    "[respool: 3 lines left out; ref aaaaaaaaaaaaaaaaaaaa]", "[… 37 lines]",
    "\ud800 half", "𝒳" * 40, "word " * 400,
    "line with words\n" * 90, '{"json": "inside"}', "FAIL: unheard\n",
)  # fmt: skip
FIELDS = (
    "type",
    "role",
    "content",
    "id",
    "call_id",
    "output",
    "name",
    "arguments",
    "text",
    "parts",
)


def mutated(request: Any, chance: random.Random) -> Any:
    """A copy of a request with one to four hostile changes in its history."""
    copied = json.loads(json.dumps(request))
    for _ in range(chance.randint(1, 4)):
        places = [*_places(copied[_history_field(copied)])]
        if not places:
            break
        holder, key = chance.choice(places)
        _change(holder, key, chance)
    return copied


def _history_field(request: Any) -> str:
    return next(name for name in HISTORY.values() if name in request)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every item of a value, as its holder and its key."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            for key in one if isinstance(one, dict) else range(len(one)):
                yield one, key
                waiting.append(one[key])


def _change(holder: Any, key: Any, chance: random.Random) -> None:
    other = json.loads(json.dumps(chance.choice(JUNK)))
    how = chance.randrange(6)
    if how == 0:
        del holder[key]
    elif how == 1:
        holder[key] = other
    elif how == 2 and isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(chance.choice(holder))))
    elif how == 3 and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder)), holder.pop(key))
    elif how == 4 and isinstance(holder, dict):
        holder.pop(chance.choice(FIELDS), None)
    elif isinstance(holder, dict):
        holder[chance.choice(FIELDS)] = other
    else:
        holder.append(other)


def cases(number: int) -> Iterator[tuple[list[Case], bool]]:
    """The cases of a block: requests that extend one another, and whether they are whole."""
    chance = random.Random(number)
    for format, requests, damaged in drawn(number):
        name = chance.choice([*POLICIES])
        yield [(format, name, one) for one in requests[-3:]], True
        yield [(format, name, damaged)], False
        for _ in range(MUTANTS):
            source = chance.choice([requests[-1], damaged])
            name = chance.choice([*POLICIES])
            yield [(format, name, mutated(source, chance))], False


# --- judgement ---------------------------------------------------------------------------------

_WORD = re.compile(r"\w+")
_NAMES = frozenset(
    (
        "id",
        "call_id",
        "tool_call_id",
        "tool_use_id",
        "type",
        "role",
        "status",
        "signature",
        "encrypted_content",
        "thoughtSignature",
        "thought_signature",
        "cache_control",
        "prompt_cache_breakpoint",
    )
)


def words(value: Any, *, known: bool = False) -> set[str]:
    """The words of all strings in a value, of those in strings of JSON too; names are none.

    `known`: without fields that a block of text or reasoning cannot have.
    """
    found: set[str] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += _said(one, known)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            try:
                inner = json.loads(one) if one[:1] in ("{", "[") else None
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, dict | list):
                waiting.append(inner)
            else:
                found.update(_WORD.findall(one))
    return found


def _said(holder: dict[str, Any], known: bool) -> list[Any]:
    """The values of an object that may hold words."""
    if known:
        if holder.get("type") == "redacted_thinking":  # ciphertext
            return []
        if holder.get("type") == "reasoning":
            return [holder.get("summary"), holder.get("content")]
        for field in ("thinking", "text"):
            if isinstance(holder.get(field), str):
                return [holder[field]]
    return [held for key, held in holder.items() if key not in _NAMES]


def vanished(request: Any, out: Compaction[Any], field: str) -> set[str]:
    """The words that stand neither in the projection nor in an original that something names."""
    missing = words(request.get(field), known=True) - words(out.request.get(field))
    if not missing:
        return missing
    edits, originals = out.report.edits, out.originals
    named = {edit.original for edit in edits if isinstance(edit, Replace)}
    named |= {one for repair in out.report.repairs for one in repair.originals}
    if any(isinstance(edit, DropExchange | DropReasoning) for edit in edits):
        named |= set(originals)
    for reference in sorted(named):
        text = originals.get(reference, "")
        missing -= words(text) | set(_WORD.findall(text))
        missing -= words(_decoded(text))
    return missing


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def run(
    format: str, policy: Policy, compact: Callable[..., Compaction[Any]] = respool.compact
) -> Compact:
    """A compactor as the laws see it, of this format and under this policy."""
    usual = policy

    def compacted(request: Any, *, policy: Policy | None = None, memo: Any = None) -> Any:
        return compact(request, format=format, policy=policy or usual, memo=memo)

    return compacted


def _once(compact: Compact) -> Compact:
    """A compactor that compacts each request once."""
    known: dict[int, Any] = {}

    def compacted(request: Any, *, policy: Policy | None = None, memo: Any = None) -> Any:
        assert policy is None
        if id(request) not in known:
            known[id(request)] = compact(request)
        return known[id(request)]

    return compacted


def judged(group: Sequence[Case], whole: bool, compact: Compact) -> Iterator[tuple[str, str, Case]]:
    """The failures of requests that extend one another."""
    compact = _once(compact)
    for case in group:
        format, _, request = case
        try:
            out = compact(request)
        except DOCUMENTED:
            continue
        except Exception as error:  # noqa: BLE001 - each is a failure
            yield "error", f"{type(error).__name__}: {error}", case
            continue
        if out.report.untouched:
            continue
        if lost := vanished(request, out, HISTORY[format]):
            yield "vanished", f"{len(lost)} words: {sorted(lost)[:5]}", case
        if out.report.failures:
            yield "error", f"a pass failed: {out.report.failures}", case
        yield from _law("invalid", case, partial(_assert_valid, case, out, whole))
        yield from _law("longer", case, partial(_assert_small, out))
    if len(group) > 1 or not whole:
        format = group[0][0]
        requests = [request for _, _, request in group] if whole else _prefixes(*group[0][::2])
        yield from _law("unstable", group[-1], lambda: _assert_stable(format, requests, compact))


def _law(name: str, case: Case, holds: Callable[[], None]) -> Iterator[tuple[str, str, Case]]:
    try:
        holds()
    except DOCUMENTED:
        return
    except AssertionError as broken_law:
        yield name, str(broken_law), case
    except Exception as error:  # noqa: BLE001 - each is a failure
        yield "error", f"{type(error).__name__}: {error}", case


def _assert_valid(case: Case, out: Compaction[Any], whole: bool) -> None:
    format, _, request = case
    left = [p for p in respool.check(out.request, format=format) if p.severity == "error"]
    left = [p for p in left if p.place != HISTORY[format] and p.code not in laws.UNREPAIRABLE]
    assert not left, f"{left[0].code} {left[0].message}"
    if whole and not judge(format, request):
        wrong = judge(format, out.request)
        assert not wrong, f"the SDK: {wrong[0]}"


def _assert_stable(format: str, requests: Sequence[Any], compact: Compact) -> None:
    sent = compact(requests[0]).request[HISTORY[format]]
    if isinstance(sent, list) and sent and PROVIDERS[format].codec.is_model_made(sent[-1]):  # type: ignore[index]
        return  # nothing that follows its calls is left, so they are pending here and not later
    laws.stable(compact, format, requests)


def _assert_small(out: Compaction[Any]) -> None:
    report = out.report
    assert report.tokens_saved >= 0, f"{report.tokens_saved} tokens saved"
    for edit in report.edits:
        assert isinstance(edit, Advise) or edit.saved >= 0, f"{edit.reason} adds tokens"


def _prefixes(format: str, request: Any) -> list[Any]:
    """The request up to half of its boundaries, and all of it; without cache breakpoints.

    Where only one of them has breakpoints, prices differ, and the history is decided anew.
    """
    field, codec = HISTORY[format], PROVIDERS[format].codec  # type: ignore[index]
    history = request.get(field)
    if not isinstance(history, list):
        return [request]
    history = [strip_breakpoints(message) for message in history]
    made = [codec.is_model_made(message) for message in history]
    starts = [at for at in range(1, len(made)) if made[at] and not made[at - 1]]
    if not starts:
        return [request]
    cut = starts[len(starts) // 2]
    return [{**request, field: history[:cut]}, {**request, field: history}]


def digest(case: Case, compact: Callable[..., Compaction[Any]] = respool.compact) -> str:
    """A hash of all that goes out for a case: its bytes and its originals."""
    format, name, request = case
    body = json.dumps(request).encode()
    try:
        out = compact(body, format=format, policy=POLICIES[name], memo=None)
    except DOCUMENTED as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - judged where it is seen first
        return f"undocumented {type(error).__name__}"
    kept = json.dumps(sorted(out.originals.items()))
    return hashlib.sha256(out.request + kept.encode()).hexdigest()


class OtherSeed:
    """A process with another hash seed that says what goes out for a case."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEEDS[1]}
        command = [sys.executable, "-m", "tests.fuzz", "--answer"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def digest(self, case: Case) -> str:
        """The hash of what goes out there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case).encode() + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().decode().strip()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@cache
def other_seed() -> OtherSeed:
    """The one such process of this process, which ends with it."""
    other = OtherSeed()
    atexit.register(other.close)
    return other


def fuzz_block(number: int) -> tuple[int, int, list[Failure]]:
    """Judge a block of cases; return its number, the cases and the failures."""
    count, found = 0, list[Failure]()
    for group, whole in cases(number):
        count += len(group)
        found += judged(group, whole, run(group[0][0], POLICIES[group[0][1]]))
        case = group[-1]
        if digest(case) != other_seed().digest(case):
            found.append(("unstable", "other bytes under another hash seed", case))
    return number, count, found


# --- the run -----------------------------------------------------------------------------------


class State:
    """The finished blocks, the number of cases and the failures, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.ranges: list[list[int]] = known.get("blocks", [])  # [first, last] of finished blocks
        self.cases: int = known.get("cases", 0)
        self.failures: dict[str, list[Any]] = known.get("failures", {})

    def is_done(self, number: int) -> bool:
        """Return whether a block is finished."""
        return any(first <= number <= last for first, last in self.ranges)

    def add(self, number: int, count: int, found: Sequence[Failure]) -> None:
        """Record a finished block, and write the file."""
        numbers = sorted({number, *(n for a, b in self.ranges for n in range(a, b + 1))})
        self.ranges = []
        for one in numbers:
            if self.ranges and self.ranges[-1][1] == one - 1:
                self.ranges[-1][1] = one
            else:
                self.ranges.append([one, one])
        self.cases += count
        for kind, said, case in found:
            key = f"{kind}: {re.sub(r'[0-9]+', 'N', said)[:120]}"
            known = self.failures.get(key)
            if known is None or len(json.dumps(case)) < len(json.dumps(known[2])):
                self.failures[key] = [number, said[:1000], case, (known[3] if known else 0) + 1]
            else:
                known[3] += 1
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"blocks": self.ranges, "cases": self.cases, "failures": self.failures}
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(kept), "utf-8")
        draft.replace(self._path)


def fuzz(count: int, state: State, processes: int = 1, first: int = 0) -> None:
    """Judge blocks that are not finished until there are so many cases, and show progress."""
    numbers = (n for n in range(first, sys.maxsize) if not state.is_done(n))
    started, before = time.monotonic(), state.cases
    os.environ["PYTHONHASHSEED"] = HASH_SEEDS[0]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running: set[Future[tuple[int, int, list[Failure]]]] = set()
        while running or state.cases < count:
            while len(running) < processes and state.cases + len(running) * BLOCK < count:
                running.add(pool.submit(fuzz_block, next(numbers)))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                state.add(*one.result())
            speed = (state.cases - before) / max(time.monotonic() - started, 0.001)
            print(
                f"{state.cases:,} of {count:,} cases, {speed:.0f} a second, "
                f"{len(state.failures)} kinds of failure",
                file=sys.stderr,
                flush=True,
            )


def answer() -> None:
    """Say what goes out for each case on standard input."""
    for line in sys.stdin:
        print(digest(tuple(json.loads(line))), flush=True)


def main() -> None:
    """Fuzz, and list the kinds of failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=5_000, help="in all, finished ones included")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first block")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--fresh", action="store_true", help="forget what is finished")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        answer()
        return
    if asked.fresh:
        asked.state.unlink(missing_ok=True)
    state = State(asked.state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no worker is left behind
    fuzz(asked.cases, state, asked.processes, asked.first)
    for key, (number, said, case, times) in sorted(state.failures.items()):
        print(f"{key}\n  {times} times; block {number}, {case[0]}, {case[1]}: {said[:300]}")
    print(f"{state.cases:,} cases, {len(state.failures)} kinds of failure")
    sys.exit(bool(state.failures))


if __name__ == "__main__":
    main()
