"""Short sequences of calls and results, given to the loop detector in any format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from respool.history.ledger import Ledger
from respool.loops import Loop, LoopDetector, find_loops
from respool.loops.detector import index_history
from respool.providers.registry import PROVIDERS
from respool.providers.tool_definitions import tool_definitions
from respool.tools import Tools
from respool.transcript import TranscriptIndex
from tests.support.formats import FIELD, Exchange, request

Step = Exchange | list[Exchange] | str  # a call, several at once, or words of the user

LOOM = "def weave(thread):\n    return loom.beat(thread, times=3)\n"
PASSED = "24 passed in 0.31s\nall threads are even, none is loose"
FAILED = "FAILED tests/test_loom.py::test_weft - AssertionError: 3 != 4\n1 failed in 0.31s"
MISSING = "Error: String to replace not found in file."


def read(path: str = "loom.py", result: str = LOOM, **more: Any) -> Exchange:
    return Exchange(result, tool="Read", args={"file_path": path, **more})


def edit(old: str, new: str = "warp", path: str = "loom.py", result: str = "Edited.") -> Exchange:
    args = {"file_path": path, "old_string": old, "new_string": new}
    return Exchange(result, tool="Edit", args=args, error=result.startswith("Error"))


def run(command: str, result: str, **more: Any) -> Exchange:
    return Exchange(result, tool="Bash", args={"command": command, **more})


def call(tool: str, result: str, **args: Any) -> Exchange:
    return Exchange(result, tool=tool, args=args, error=result.startswith("Error"))


def history_of(
    format: str, steps: Sequence[Step], tools: Tools | None = None
) -> tuple[TranscriptIndex, Ledger]:
    """The steps as a request in a wire format, read."""
    body = request_of(format, steps)
    known = tool_definitions(body)
    codec = PROVIDERS[format].codec  # pyright: ignore[reportArgumentType]
    return index_history(codec, body[FIELD[format]], tools or Tools(), known)


def request_of(format: str, steps: Sequence[Step]) -> dict[str, Any]:
    """The steps as a request in a wire format, each call with an id of its own."""
    said: list[Sequence[Exchange] | str] = ["Mend the loom."]
    for number, step in enumerate(steps):
        if isinstance(step, str):
            said.append(step)
            continue
        batch = step if isinstance(step, list) else [step]
        said.append([_named(x, f"call_{number}_{at}") for at, x in enumerate(batch)])
    return request(format, *said)


def _named(x: Exchange, id: str) -> Exchange:
    return Exchange(x.result, tool=x.tool, id=id, error=x.error, args=x.args)


def loops_in(format: str, steps: Sequence[Step], tools: Tools | None = None) -> list[Loop]:
    """The loops that are found in a history of these steps."""
    return find_loops(*history_of(format, steps, tools))


def ask_all(detector: LoopDetector, steps: Sequence[Step], *, at_once: bool = False) -> list[str]:
    """The actions of the detector before each call; refused calls are not made.

    `at_once`: a step's calls are all asked about before any of them is made.
    """
    answers: list[str] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            detector.heard()
            continue
        calls = step if isinstance(step, list) else [step]
        batch = number if isinstance(step, list) else None
        for few in [calls] if at_once else [[x] for x in calls]:
            verdicts = [detector.ask(x.tool, x.args, batch=batch) for x in few]
            answers += [verdict.action for verdict in verdicts]
            for x, verdict in zip(few, verdicts, strict=True):
                if verdict.action != "refuse":
                    detector.tell(x.tool, x.args, x.result, x.error, batch=batch)
    return answers
