"""What an edit may lean on: another result that says the same, and stays."""

from __future__ import annotations

from ..edits import TIDIED
from ..marker import find_marker
from ..policy import Policy
from .view import View


def stands(view: View, policy: Policy, position: int) -> bool:
    """Whether a result says all that it said, to the model too, and will go on doing so."""
    part = view.transcript.parts[position]
    if part.server or not _says_all(view, position):
        return False
    cap = policy.tools.cap_for(view.tool_of(position), policy.cap_chars)
    over = cap is not None and len(part.text) > cap  # what is to be clipped must not be held
    return not over and find_marker(part.text) is None


def _says_all(view: View, position: int) -> bool:
    if view.is_whole(position):
        return True
    edit = view.in_force.get(position)
    return edit is not None and edit.reason == TIDIED


def name_of_call(view: View, ordinal: int, beside: int) -> str:
    """How a marker in one exchange names the call of another: by its id, if that tells them apart.

    Some wires have no ids, and on some the same id may come again.
    """
    transcript = view.transcript
    call, other = (transcript.parts[transcript.exchanges[one].call] for one in (ordinal, beside))
    if call.id and call.id != other.id:
        return f"call {call.id}"
    return f"call no. {ordinal + 1}"
