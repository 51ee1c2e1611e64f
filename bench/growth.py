"""Growth of a cold compaction with its history, by shape of the history and by format.

    python -m bench.growth [--shapes NAME,…] [--formats NAME,…] [--scale X] [--rounds N] [--calls]

One line a shape and format: seconds of the processor at n, 2n and 4n, the exponent of their
growth (1: linear, 2: quadratic), and the seconds a megabyte at 4n. `make bench` and `make slow`
hold the exponent to a limit. With `--calls` millions of function calls instead of seconds, in one
round: other work does not change them, but what happens inside one call does not count.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import cProfile
import gc
import itertools
import json
import math
import random
import struct
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec import Struct

import respool
from respool.cache_scope import enter_scope
from respool.policy import Policy
from tests.laws.sessions import long_session, prose
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request

Compact = Callable[[bytes, str, Policy], object]
Cost = Callable[[Callable[[], object]], float]
DOUBLINGS = 2
# Linear work measured on a busy machine. A sort and caches that no longer fit take a few percent.
LIMIT = 1.25
# Of function calls, which no other work disturbs.
CALLS_LIMIT = 1.15
LOGARITHMIC_LIMIT = 1.25  # n log n: a result is looked at whenever its age has doubled
ATTEMPTS = 4


class Shape(Struct, frozen=True):
    """Histories of one shape: `make(format, n)`, with an `n` that takes about a second at 4n.

    All its sizes are within the model's context window, or over the budget: a step is no growth.
    """

    make: Callable[[str, int], bytes]
    count: int
    policy: Policy = Policy()
    formats: tuple[str, ...] = FORMATS
    max_exponent: float = CALLS_LIMIT


class Growth(Struct, frozen=True):
    """Measured costs of one shape in one format, from n to its last doubling."""

    sizes: tuple[int, ...]  # bytes
    costs: tuple[float, ...]  # seconds, or millions of calls

    @property
    def exponent(self) -> float:
        """The power of the size with which the cost grows, from the first to the last."""
        return math.log(self.costs[-1] / self.costs[0]) / math.log(self.sizes[-1] / self.sizes[0])

    @property
    def cost_per_megabyte(self) -> float:
        return self.costs[-1] / self.sizes[-1] * 1e6


def _encoded(whole: dict[str, Any]) -> bytes:
    return json.dumps(whole, ensure_ascii=False).encode()


def _each(format: str, exchanges: Sequence[Exchange]) -> bytes:
    """One exchange a step, then a word of the user's."""
    return _encoded(request(format, "Find the fault.", *([one] for one in exchanges), "Go on."))


def ordinary(format: str, n: int) -> bytes:
    """Words, a command, and its output."""
    return _encoded(long_session(format, n, result=1_200))


def images(format: str, n: int) -> bytes:
    """A screenshot in each result; in each message of the user's where results hold only text."""
    made = [Exchange(f"Screenshot {at} taken.", id=f"c{at}", image=True) for at in range(n)]
    whole = request(format, "Click through the pages.", *([one] for one in made), "Go on.")
    if format == "openai-chat":
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        shown = {"role": "user", "content": [{"type": "text", "text": "This one."}, url]}
        history = whole["messages"]
        whole["messages"] = [
            one
            for message in history
            for one in ((message, shown) if message["role"] == "tool" else (message,))
        ]
    return _with_images(whole)


def _with_images(whole: dict[str, Any]) -> bytes:
    """The request with an image of its own in each place."""
    first, *rest = _encoded(whole).split(PIXEL.encode())
    return b"".join((first, *(_image(at) + piece for at, piece in enumerate(rest))))


def same_images(format: str, n: int) -> bytes:
    """The same screenshot of one pixel each time, which no marker is shorter than."""
    made = [Exchange("Taken.", id=f"c{at}", image=True) for at in range(n)]
    return _each(format, made)


def images_in_one_result(format: str, n: int) -> bytes:
    """All screenshots in one result."""
    whole = request(format, "Show all.", [Exchange("All.", id="c0", image=True)])
    for holder in _lists_in(whole[FIELD[format]]):
        if holder and PIXEL in json.dumps(holder[-1]) and not _lists_in(holder[-1]):
            holder[1:] = [holder[-1]] * n
    more = request(format, "Go on.", [Exchange("ok", id="c1")], "Go on.")[FIELD[format]]
    return _with_images({**whole, FIELD[format]: [*whole[FIELD[format]], *more]})


def _lists_in(value: Any) -> list[list[Any]]:
    """All lists in a JSON value, the inner ones first."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return []
    inner = [one for item in items for one in _lists_in(item)]
    return [*inner, *([items] if isinstance(value, list) else [])]


def _image(number: int) -> bytes:
    """A PNG file of its own, in base64."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 300 + number % 90, 200, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    tail = random.Random(number).randbytes(30)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk + tail)


def tiny_turns(format: str, n: int) -> bytes:
    """Two words each, from the user and from the model in turn."""
    said: dict[str, Callable[[str, str], Any]] = {
        "anthropic": lambda role, text: {"role": role, "content": text},
        "openai-chat": lambda role, text: {"role": role, "content": text},
        "openai-responses": lambda role, text: {"role": role, "content": text},
        "gemini": lambda role, text: {
            "role": "user" if role == "user" else "model",
            "parts": [{"text": text}],
        },
    }
    whole = request(format)
    whole[FIELD[format]] = [
        said[format]("user" if at % 2 == 0 else "assistant", f"word {at}")
        for at in range(2 * n + 1)
    ]
    return _encoded(whole)


def _file_lines(first: int, count: int) -> str:
    return "\n".join(
        f"{at:6}\tthread_{at} = weave({at * 7919 % 1009}, warp={at * 7})"
        for at in range(first, first + count)
    )


def _read(number: int, first: int, count: int) -> Exchange:
    args = {"file_path": "/w/loom.py", "offset": first, "limit": count}
    return Exchange(_file_lines(first, count), tool="Read", id=f"r{number}", args=args)


def rereads(format: str, n: int) -> bytes:
    """Reads of one file, each of which overlaps the next ones."""
    return _each(format, [_read(at, 1 + 10 * at, 40) for at in range(n)])


def same_rereads(format: str, n: int) -> bytes:
    """Reads of the same few hundred lines, again and again in other pieces."""
    return _each(format, [_read(at, 1 + at * 37 % 400, 40) for at in range(n)])


def edits(format: str, n: int) -> bytes:
    """Edits of one file, with a read of the place now and then."""
    made: list[Exchange] = []
    for at in range(n):
        if at % 8 == 0:
            made.append(_read(at, 1 + at, 40))
        args = {
            "file_path": "/w/loom.py",
            "old_string": f"thread_{at} = weave({at})",
            "new_string": f"thread_{at} = weave({at}, warp={at * 3})\nknot_{at} = tie({at})",
        }
        made.append(Exchange("The file was updated.", tool="Edit", id=f"e{at}", args=args))
    return _each(format, made)


def parallel_calls(format: str, n: int) -> bytes:
    """All calls in one message, and all results in the next one."""
    source = random.Random(n)
    made = [
        Exchange(prose(source, 300), id=f"c{at}", args={"command": f"cat notes/{at}.txt"})
        for at in range(n)
    ]
    steps = request(format, "Look at all of them.", made, [Exchange("ok", id="last")], "Go on.")
    return _encoded(steps)


def one_line(format: str, n: int) -> bytes:
    """One result in one line of so many kilobytes."""
    text = prose(random.Random(7), 1_000 * n).replace("\n", " ")
    return _each(format, [Exchange(text, id="c0"), Exchange("ok", id="c1")])


def many_lines(format: str, n: int) -> bytes:
    """One result in many lines, of so many kilobytes."""
    text = prose(random.Random(7), 1_000 * n)
    return _each(format, [Exchange(text, id="c0"), Exchange("ok", id="c1")])


def many_tools(format: str, n: int) -> bytes:
    """Every call is of another tool, and each of them is defined."""
    source = random.Random(n)
    made = [
        Exchange(prose(source, 400), tool=f"tool_{at}", id=f"c{at}", args={"query": f"q {at}"})
        for at in range(n)
    ]
    whole = request(format, "Ask all of them.", *([one] for one in made), "Go on.")
    whole["tools"] = _DEFINED[format]([one.tool for one in made])
    return _encoded(whole)


_DEFINED: dict[str, Callable[[list[str]], Any]] = {
    "anthropic": lambda names: [{"name": one, "input_schema": {"type": "object"}} for one in names],
    "openai-chat": lambda names: [
        {"type": "function", "function": {"name": one, "parameters": {}}} for one in names
    ],
    "openai-responses": lambda names: [
        {"type": "function", "name": one, "parameters": {}, "strict": False} for one in names
    ],
    "gemini": lambda names: [{"functionDeclarations": [{"name": one} for one in names]}],
}


def failures(format: str, n: int) -> bytes:
    """Commands that fail, one after the other."""
    made = [
        Exchange(
            f"Error: cannot weave thread_{at}\nsrc/loom.py:{at}: KeyError: 'warp_{at % 50}'\n"
            "Traceback (most recent call last):\nexit code 1",
            id=f"c{at}",
            error=True,
            args={"command": f"python -m loom --thread {at % 50}"},
        )
        for at in range(n)
    ]
    return _each(format, made)


WITH_IMAGES = tuple(format for format in FORMATS if format != "openai-chat")  # in results
TIGHT = Policy(budget=2_000)
SHAPES: dict[str, Shape] = {
    "ordinary": Shape(ordinary, 100),
    "images": Shape(images, 250),
    "same images": Shape(same_images, 250, formats=WITH_IMAGES),
    "images in one": Shape(images_in_one_result, 400, formats=WITH_IMAGES),
    "tiny turns": Shape(tiny_turns, 1_000),
    "rereads": Shape(rereads, 200, max_exponent=LOGARITHMIC_LIMIT),
    "same rereads": Shape(same_rereads, 200, max_exponent=LOGARITHMIC_LIMIT),
    "edits": Shape(edits, 200),
    "parallel calls": Shape(parallel_calls, 400),
    "one line": Shape(one_line, 100),
    "many lines": Shape(many_lines, 100),
    "many tools": Shape(many_tools, 150),
    "failures": Shape(failures, 300),
    "over budget": Shape(ordinary, 100, TIGHT),
    "tiny over budget": Shape(tiny_turns, 1_000, TIGHT),
    "images over budget": Shape(images, 150, TIGHT),
    "edits over budget": Shape(edits, 300, TIGHT),
    "failures over budget": Shape(failures, 200, TIGHT),
    "rereads over budget": Shape(rereads, 150, TIGHT),
    "calls over budget": Shape(parallel_calls, 200, TIGHT),
    "lines over budget": Shape(many_lines, 100, TIGHT),
    "tools over budget": Shape(many_tools, 100, TIGHT),
}


_SCOPES = itertools.count()


def compact_cold(body: bytes, format: str, policy: Policy) -> None:
    """Compact a request of which no text was seen; a budget that cannot be met is no fault here."""
    copy_context().run(_compact_in_new_scope, body, format, policy)


def _compact_in_new_scope(body: bytes, format: str, policy: Policy) -> None:
    enter_scope(str(next(_SCOPES)).encode())  # else shorter bodies would find more in caches
    with contextlib.suppress(respool.BudgetError):
        respool.compact(body, format=format, policy=policy, memo=None)


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of some work."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def million_calls(work: Callable[[], object]) -> float:
    """The function calls of some work, in millions."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats()) / 1e6


def measure(
    shape: Shape,
    format: str,
    *,
    scale: float = 1.0,
    rounds: int = 3,
    doublings: int = DOUBLINGS,
    compact: Compact = compact_cold,
    cost: Cost = processor_seconds,
) -> Growth:
    """The least costs of a shape at n and its doublings."""
    counts = [max(2, int(shape.count * scale)) << power for power in range(doublings + 1)]
    bodies = [shape.make(format, count) for count in counts]
    best = [math.inf] * len(bodies)
    compact(ordinary(format, 40), format, TIGHT)  # so that all is imported
    for _ in range(rounds):
        for at, body in enumerate(bodies):
            best[at] = min(best[at], cost(partial(compact, body, format, shape.policy)))
    return Growth(tuple(map(len, bodies)), tuple(best))


def cases() -> list[tuple[str, str]]:
    """Every shape in every format that has it."""
    return [(name, format) for name, shape in SHAPES.items() for format in shape.formats]


def hold_linear_growth(name: str, format: str, compact: Compact = compact_cold) -> Growth:
    """Hold the exponent of a shape to the limit; measure again while other work may disturb it."""
    found: list[Growth] = []
    for _ in range(ATTEMPTS):
        found.append(measure(SHAPES[name], format, rounds=2, compact=compact))
        if found[-1].exponent <= LIMIT:
            return found[-1]
    least = min(found, key=lambda one: one.exponent)
    times = ", ".join(f"{one:.3f}" for one in least.costs)
    raise AssertionError(f"{name} in {format}: exponent {least.exponent:.2f} ({times} s)")


def hold_linear_calls(shape: Shape, format: str, *, doublings: int = DOUBLINGS) -> None:
    """Hold the exponent of the function calls of a shape to its limit."""
    found = measure(shape, format, rounds=1, doublings=doublings, cost=million_calls)
    calls = ", ".join(f"{one:.3f}" for one in found.costs)
    assert found.exponent <= shape.max_exponent, f"exponent {found.exponent:.2f} ({calls} million)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", action="store_true", help="count function calls")
    asked = parser.parse_args()
    unit, short = ("million calls", "calls") if asked.calls else ("seconds", "s")
    print(f"{'shape':<20} {'format':<17} {f'{unit} at n, 2n, 4n':<24} exponent   {short}/MB")
    for name in asked.shapes.split(","):
        for format in asked.formats.split(","):
            if format in SHAPES[name].formats:
                one = measure(
                    SHAPES[name],
                    format,
                    scale=asked.scale,
                    rounds=1 if asked.calls else asked.rounds,
                    cost=million_calls if asked.calls else processor_seconds,
                )
                times = " ".join(f"{cost:7.3f}" for cost in one.costs)
                print(
                    f"{name:<20} {format:<17} {times:<24} {one.exponent:8.2f} "
                    f"{one.cost_per_megabyte:6.2f}  ({one.sizes[-1] / 1e6:.2f} MB)"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
