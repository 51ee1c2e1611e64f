"""What was decided on a request, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from ...edits import Edit, PlaceBreakpoint, Replace
from ...facts import BreakpointMode, Facts
from ...markers import reference
from ...providers.base import Repair
from ...store import ParentRequest
from .keeping import NO_FACTS
from .noticing import Noticed

Kind = Literal["projection", "known edits", "original", "untouched"]
LEFT_ALONE: Final = "left alone"
BYPASSED: Final = "bypassed"


class Decision(Struct, frozen=True, kw_only=True):
    """What goes up, and what is to be told of it."""

    kind: Kind
    body: bytes | None  # None: the bytes that came
    conversation: str = ""
    session: str = ""
    prefix: str = ""  # the hash of its history
    parent: str = ""  # and of that which the request before it ended
    why: str = ""  # it is no projection
    facts: Facts = NO_FACTS  # all that held
    model: str = ""
    before: int = 0  # tokens, about
    after: int = 0
    own: int = 0  # of them, what the client may have cached itself, where it marks no new message
    epochs: int = 0
    moment: str = ""  # a free moment: "cold", "changed"
    marks: BreakpointMode | None = None  # how the client marks, where that is known
    last: ParentRequest = ParentRequest()  # the request before it
    edits: tuple[Edit, ...] = ()
    edition: int = 0  # the same for the very same edits; 0: not known
    repairs: tuple[Repair, ...] = ()
    failures: Mapping[str, str] = {}
    terms: str = ""  # the model and the tools that it names
    output: int = 0  # tokens that it asks for; 0: not known
    noticed: Noticed = Noticed()  # what it shows that none before it did
    dropped: Mapping[str, str] = {}  # by place: references of what new edits took out whole


def shown_instead(edits: Iterable[Edit]) -> dict[str, str]:
    """What stands in place of texts now, by reference, so that it can be shown beside them."""
    return {reference(one.text): one.text for one in edits if isinstance(one, Replace)}


def alters(edits: Iterable[Edit]) -> bool:
    """Whether edits change what the model reads: cache marks do not."""
    return any(not isinstance(edit, PlaceBreakpoint) for edit in edits)
