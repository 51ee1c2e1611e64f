"""A request taken apart: the conversation that it belongs to, and the histories behind it."""

from __future__ import annotations

from typing import Final

import xxhash
from msgspec import Struct

from ...binding import binding_of
from ...check.rules import steps_of
from ...codecs.body import Body
from ...codecs.codec import FormatName
from ...codecs.formats import CODECS
from ...codecs.layout import once
from ...engine import fields_with
from ...facts import Facts
from ...folding.fold import first_prefix, next_prefix
from .conversations import Conversation, Last
from .owners import group_of

_TOOLS: Final = ("tools", "functions")


class Asked(Struct, frozen=True):
    """A request to be decided on."""

    body: bytes
    format: FormatName
    model: str | None  # where the body does not name it
    owner: str
    time: float
    counting: bool = False  # the client only asks how many tokens it would be
    session: str | None = None  # the client's own name for what it belongs to, hashed


class Read(Struct, frozen=True):
    """A request taken apart, and the conversation it belongs to."""

    asked: Asked
    body: Body
    format: FormatName
    model: str
    conversation: Conversation
    passed: list[bytes] = []  # the hash of its history at each boundary, once somebody asked
    found: list[Last] = []  # what it goes on from, once somebody asked
    named: list[str] = []  # its terms, once somebody asked

    def boundaries(self) -> list[bytes]:
        """The hash of its history at each of its boundaries, worked out once."""
        if not self.passed:
            body, prefix = self.body, first_prefix(self.format)
            messages = [body.message(at) for at in range(len(body))]
            for step in steps_of(CODECS[self.format], messages):
                end = step.at + len(step.messages)
                prefix = next_prefix(prefix, body.identities(step.at, end))
                self.passed.append(prefix)
        return self.passed

    def here(self) -> str:
        """The hash of its whole history."""
        boundaries = self.boundaries()
        return (boundaries[-1] if boundaries else first_prefix(self.format)).hex()

    def is_left_alone(self, facts: Facts) -> bool:
        """Whether a fact says so of a prefix of this very history."""
        if not facts.left_alone:
            return False
        return any(prefix.hex() in facts.left_alone for prefix in self.boundaries())

    def is_bound(self) -> bool:
        """Whether its model refuses signed reasoning in a history that is not the signed one."""
        return binding_of(self.format, fields_with(self.body.fields, self.asked.model)).is_bound

    def terms(self) -> str:
        """Its model and its tools, in few characters."""
        if not self.named:
            tools = once(self.body.fields or {}, "tools", self._tools)
            self.named.append(f"{self.model} {tools}")
        return self.named[0]

    def _tools(self) -> str:
        return xxhash.xxh3_64_hexdigest(self.body.head_bytes(_TOOLS))

    def session(self) -> str:
        """The client's own name for what it belongs to, hashed; empty: it has none."""
        asked = self.asked
        return asked.session or group_of((), self.body.fields, asked.owner) or ""


def taken_apart(asked: Asked, body: Body, format: FormatName, known: Conversation) -> Read:
    """A request of a known conversation."""
    named = (fields_with(body.fields, asked.model) or {}).get("model")
    return Read(asked, body, format, named if isinstance(named, str) else "", known)


def parent_of(boundaries: list[bytes]) -> str:
    """The history that the last request behind this one ended; empty: there was none."""
    return boundaries[-2].hex() if len(boundaries) > 1 else ""
