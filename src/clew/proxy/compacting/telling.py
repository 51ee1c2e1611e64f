"""What a request tells that no later one can: how long its cache lives, and how it is marked."""

from __future__ import annotations

from typing import Final

from ...codecs.body import Body
from ...codecs.codec import FormatName
from ...facts import FAR_BACK, Facts
from ...folding.state import State
from ...planning.marking import marking_of
from ...prices import terms_for
from .reading import Read

_NO_FACTS: Final = Facts()
_ALWAYS_WARM: Final = 60.0  # seconds: no provider's cache lives shorter


def lifetime(body: Body, format: FormatName, model: str) -> float:
    """How many seconds a cached prefix of this request lives."""
    return marking_of(body, format).lifetime or terms_for(format, model).lifetime


def is_cold(read: Read, before: float) -> bool:
    """Whether the provider has forgotten by now what it was sent at an earlier time."""
    since = read.asked.time - before
    return since > _ALWAYS_WARM and since > lifetime(read.body, read.format, read.model)


def comes_back(read: Read, boundaries: list[bytes]) -> bool:
    """Whether the provider still has what it was sent on these terms, before others came."""
    before = read.conversation.last_on(boundaries[-1 - FAR_BACK : -1], read.terms())
    return before is not None and not is_cold(read, before.time)


def first_marks(read: Read) -> Facts:
    """How the client marks, said of its history from the start; nothing where none was decided."""
    if len(read.body) < 2 or not _tells_marks(read):
        return _NO_FACTS
    return Facts(marks=((read.boundaries()[0].hex(), marking_of(read.body, read.format).told),))


def marks_seen(read: Read, state: State) -> Facts:
    """How the client marks, where facts say something else, or nothing of this branch.

    What was decided before was decided by how it marked then, and stays so.
    """
    passed = state.boundaries
    told = marking_of(read.body, read.format).told
    if len(passed) < 2 or told == state.marks or not _tells_marks(read):
        return _NO_FACTS
    since = passed[0] if state.marks is None else passed[-1]
    return Facts(marks=((since.hex(), told),))


def _tells_marks(read: Read) -> bool:
    """Whether what is decided on a request depends on its cache marks."""
    if read.asked.counting or read.format != "anthropic":
        return False
    return terms_for(read.format, read.model).cache == "marks"
