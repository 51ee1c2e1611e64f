"""The few sentences that repair puts into a history, the same ones every time."""

from __future__ import annotations

from ..codecs.codec import CONTINUE

__all__ = [
    "BLANK",
    "CONTINUE",
    "EARLIER",
    "NO_RESULT",
    "misplaced_call",
    "renamed",
    "unpaired_result",
]

NO_RESULT = "[no result was recorded for this call]"
EARLIER = "[earlier conversation not shown]"
BLANK = "[blank]"


def unpaired_result(id: str, text: str) -> str:
    """A result that no call waits for, told as history and not as an instruction."""
    head = f"[tool result that answers no call at this point, id {id or 'unknown'}]"
    return f"{head}\n{text}" if text.strip() else head


def misplaced_call(name: str, arguments: str) -> str:
    """A call that the assistant did not make, told as history and not as an instruction."""
    return f"[tool call that is not the assistant's: {name} {arguments}]"


def renamed(id: str, times: int) -> str:
    """The id for a repeat of a call id: the same every time, and new to this history."""
    return f"{id}_{times + 1}"
