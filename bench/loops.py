"""Loops that the detector finds in recorded sessions, for review.

    python bench/loops.py [CORPUS] [--second] [--left-out N] [--seed N]

CORPUS (default: ../shared/corpus beside the repository) is a file or folder that `respool replay`
reads. Every loop is listed with its calls. `--second` lists what would be reported if the detector
spoke at the second call already, without leeway or patience: a longer list, to see what the limits
are for. `--left-out` lists so many calls that were made before with the same result and that the
detector does not count, and why not: what it would miss. Agents whose commands stand in their text
(mini-SWE-agent) are read as if they had called a shell. Nothing is written.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from respool.history.ledger import Ledger
from respool.loops import Loop, LoopLimits, find_loops
from respool.loops.detector import has_user_input, index_history
from respool.loops.observations import ObservedCall, observe_call, pending_call
from respool.loops.patterns import MAX_GAP_CALLS
from respool.providers.registry import PROVIDERS
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession
from respool.tools import Tools
from respool.transcript import Exchange, TranscriptIndex

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"
SECOND = LoopLimits(2, 3, 4, leeway=0, patience=1)
_COMMAND = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)
_WIDTH = 150


class Read(NamedTuple):
    """One session, read for its loops."""

    session: RecordedSession
    history: TranscriptIndex
    ledger: Ledger


def sessions(corpus: Path) -> Iterator[Read]:
    """Every session below a folder."""
    tools = Tools()
    files = [corpus] if corpus.is_file() else sorted(corpus.rglob("*.jsonl.gz"))
    for file in files:
        for session in read_file(file, READERS):
            if isinstance(session, RecordedSession):
                messages = called(cast(list[Any], session.messages))
                yield Read(
                    session, *index_history(PROVIDERS[session.format].codec, messages, tools, {})
                )


def called(messages: list[Any]) -> list[Any]:
    """Chat messages in which commands that stand in the text are calls of a shell."""
    found: list[Any] = []
    open_call = ""
    for message in messages:
        text = message.get("content") if isinstance(message, dict) else None
        command = _COMMAND.findall(text) if isinstance(text, str) else []
        if isinstance(message, dict) and message.get("role") == "assistant" and len(command) == 1:
            open_call = f"c{len(found)}"
            function = {"name": "bash", "arguments": json.dumps({"command": command[0]})}
            call = {"id": open_call, "type": "function", "function": function}
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif open_call and isinstance(message, dict) and message.get("role") == "user":
            said = text if isinstance(text, str) else "\n".join(_texts(text))
            found.append({"role": "tool", "tool_call_id": open_call, "content": said})
            open_call = ""
        else:
            found.append(message)
            open_call = ""
    return found


def _texts(content: Any) -> Iterator[str]:
    yield from (str(block.get("text", "")) for block in content or [] if isinstance(block, dict))


def show(read: Read, loop: Loop) -> None:
    """Print one loop with its calls."""
    named = f"{read.session.agent} {read.session.id} segment {read.session.segment}"
    print(f"\n{loop.kind} x{loop.count} {loop.level}, said at {loop.advised}: {named}")
    print(f"    {loop.message}")
    for ordinal in (*loop.calls[:3], *loop.calls[3:][-2:]):
        print(f"  {ordinal:5} {_shown(read.history, read.history.exchanges[ordinal])}")
    inside = set(range(loop.calls[0], loop.calls[-1])) - set(loop.calls)
    for ordinal in sorted(inside)[:4]:
        call = read.history.parts[read.history.exchanges[ordinal].call]
        print(f"        between: {call.name} {' '.join(call.text.split())[:_WIDTH]}")


def _shown(index: TranscriptIndex, exchange: Exchange) -> str:
    call = index.parts[exchange.call]
    result = "" if exchange.result is None else index.parts[exchange.result].text
    said = " ".join(result[:600].split())[:_WIDTH]
    return f"{call.name} {' '.join(call.text.split())[:_WIDTH]}\n          -> {said}"


def left_out(read: Read) -> Iterator[tuple[str, int, int]]:
    """Calls that were made before with the same result and are not counted: why, and which."""
    history, ledger = read.history, read.ledger
    last: dict[tuple[str, str], tuple[int, ObservedCall]] = {}
    for exchange in history.exchanges:
        seen = _seen(read, exchange)
        if seen is None:
            continue
        at, before = last.get(seen.call.repeat_key, (-1, None))
        if before is not None and before.hash == seen.hash:
            why = _why(history, ledger, at, exchange, seen)
            if why:
                yield why, at, exchange.ordinal
        last[seen.call.repeat_key] = exchange.ordinal, seen


def _seen(read: Read, exchange: Exchange) -> ObservedCall | None:
    if exchange.result is None:
        return None
    call, result = read.history.parts[exchange.call], read.history.parts[exchange.result]
    use = read.ledger.uses[exchange.ordinal]
    return observe_call(pending_call(call.name, call.text, use), result.text, result.error)


def _why(
    index: TranscriptIndex, ledger: Ledger, at: int, exchange: Exchange, seen: ObservedCall
) -> str:
    if index.exchanges[at].unit == exchange.unit:
        return "at once"
    if has_user_input(index, index.exchanges[at].call + 1, exchange.call):
        return "the user spoke"
    if ledger.has_any_write(at, exchange.ordinal):
        return "something was written"
    if not seen.is_informative:
        return "the result does not tell"
    return "long ago" if exchange.ordinal - at > MAX_GAP_CALLS else ""


def main() -> None:
    """List the loops, and their number by kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--second", action="store_true", help="speak at the second call")
    parser.add_argument("--left-out", type=int, default=0, help="how many to list")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    limits = SECOND if chosen.second else LoopLimits()
    kinds: Counter[str] = Counter()
    others: list[tuple[str, Read, int, int]] = []
    calls, count, spent = 0, 0, 0.0
    for read in sessions(chosen.corpus):
        began = time.perf_counter()
        found = find_loops(read.history, read.ledger, limits)
        spent += time.perf_counter() - began
        calls, count = calls + len(read.history.exchanges), count + 1
        kinds.update(loop.kind for loop in found)
        for loop in found:
            show(read, loop)
        if chosen.left_out:
            others += [(why, read, at, again) for why, at, again in left_out(read)]
    print(f"\n{kinds.total()} loops in {count:,} sessions with {calls:,} calls: {dict(kinds)}")
    print(f"{spent / max(1, calls) * 1e6:.0f} µs a call")
    if chosen.left_out:
        show_left_out(others, chosen.left_out, chosen.seed)


def show_left_out(others: list[tuple[str, Read, int, int]], most: int, seed: int) -> None:
    """Print the number of calls that are not counted, by reason, and some of them."""
    print(f"\nnot counted: {dict(Counter(why for why, *_ in others))}")
    for why, read, at, ordinal in random.Random(seed).sample(others, min(most, len(others))):
        between = ordinal - at - 1
        print(f"\n{why}, {between} calls between: {read.session.agent} {read.session.id}")
        print(f"  {ordinal:5} {_shown(read.history, read.history.exchanges[ordinal])}")


if __name__ == "__main__":
    main()
