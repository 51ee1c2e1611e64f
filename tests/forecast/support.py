"""Short histories for the forecast, indexed unit by unit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from respool.forecast.mentions import Mentions
from respool.history.ledger import Ledger
from respool.tools import Tools
from respool.transcript import Part, Ref, TranscriptIndex


class Turn(Struct, frozen=True):
    """One run of model output, with what answered it."""

    tool: str = ""
    args: dict[str, Any] = {}
    result: str = ""
    said: str = ""  # by the model, before its call
    asked: str = ""  # by the user, behind the result


class IndexedHistory(Struct):
    """A history with all that the forecast looks at."""

    transcript: TranscriptIndex = field(default_factory=TranscriptIndex)
    ledger: Ledger = field(default_factory=Ledger)
    mentions: Mentions = field(default_factory=Mentions)


def history_of(*turns: Turn) -> IndexedHistory:
    """A history of these turns, noted unit by unit."""
    history = IndexedHistory()
    for number, turn in enumerate(turns):
        add(history, number, turn)
    return history


def add(history: IndexedHistory, number: int, turn: Turn) -> None:
    """Read one more turn."""
    index = history.transcript
    model: list[Part] = []
    answers: list[Part] = []
    row = 2 * number
    if turn.said:
        model.append(Part(Ref(row, (0,)), "text", "model", turn.said))
    if turn.tool:
        id = f"c{number}"
        arguments = json.dumps(turn.args)
        model.append(Part(Ref(row, (1,)), "call", "model", arguments, turn.tool, id))
        answers.append(Part(Ref(row + 1, (0,)), "result", "tool", turn.result, turn.tool, id))
    if turn.asked:
        answers.append(Part(Ref(row + 1, (1,)), "text", "user", turn.asked))
    noted = len(index.exchanges)
    index.add_unit((row, row + 2), model, answers, locked=False)
    history.mentions.extend(index.units, index.parts, number)
    new = index.exchanges[noted:]
    history.ledger.extend(noted, exchanges=new, parts=index.parts, tools=Tools(), definitions={})


def reads(path: str, text: str, **about: Any) -> Turn:
    """A file that is read."""
    return Turn("Read", {"file_path": path}, text, **about)


def runs(command: str, text: str, **about: Any) -> Turn:
    """A command that is run."""
    return Turn("Bash", {"command": command}, text, **about)


def edits(path: str, old: str, new: str) -> Turn:
    """A file that is edited."""
    args = {"file_path": path, "old_string": old, "new_string": new}
    return Turn("Edit", args, f"The file {path} has been updated.")


def result(history: IndexedHistory, number: int = 0) -> int:
    """The position of a result."""
    return history.transcript.results[number]


def numbered(lines: Sequence[str]) -> str:
    """Lines as tools number them."""
    return "\n".join(f"{n:6}→{line}" for n, line in enumerate(lines, 1))
