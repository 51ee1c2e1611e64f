"""A request taken apart: the conversation that it belongs to, and the histories behind it."""

from __future__ import annotations

from typing import Final

import xxhash
from msgspec import Struct

from ...compaction.fold import chain_prefix, initial_prefix
from ...engine import complete_fields
from ...facts import Facts
from ...providers.base import split_steps
from ...providers.bound_reasoning import binding_of
from ...providers.registry import PROVIDERS
from ...wire.base import FormatName, RequestBody
from ...wire.layout import cached_on_fields
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
    body: RequestBody
    format: FormatName
    model: str
    conversation: Conversation
    passed: list[bytes] = []  # the hash of its history at each boundary, once somebody asked
    found: list[Last] = []  # what it goes on from, once somebody asked
    named: list[str] = []  # its terms, once somebody asked

    def boundaries(self) -> list[bytes]:
        """The hash of its history at each of its boundaries, worked out once."""
        if not self.passed:
            body, prefix = self.body, initial_prefix(self.format)
            messages = [body.message(at) for at in range(len(body))]
            for step in split_steps(PROVIDERS[self.format].codec, messages):
                end = step.at + len(step.messages)
                prefix = chain_prefix(prefix, body.identities(step.at, end))
                self.passed.append(prefix)
        return self.passed

    def here(self) -> str:
        """The hash of its whole history."""
        boundaries = self.boundaries()
        return (boundaries[-1] if boundaries else initial_prefix(self.format)).hex()

    def is_left_alone(self, facts: Facts) -> bool:
        """Whether a fact says so of a prefix of this very history."""
        if not facts.left_alone:
            return False
        return any(prefix.hex() in facts.left_alone for prefix in self.boundaries())

    def is_bound(self) -> bool:
        """Whether its model refuses signed reasoning in a history that is not the signed one."""
        return binding_of(self.format, complete_fields(self.body.fields, self.asked.model)).is_bound

    def terms(self) -> str:
        """Its model and its tools, in few characters."""
        if not self.named:
            tools = cached_on_fields(self.body.fields or {}, "tools", self._tools)
            self.named.append(f"{self.model} {tools}")
        return self.named[0]

    def _tools(self) -> str:
        return xxhash.xxh3_64_hexdigest(self.body.head_bytes(_TOOLS))

    def session(self) -> str:
        """The client's own name for what it belongs to, hashed; empty: it has none."""
        asked = self.asked
        return asked.session or group_of((), self.body.fields, asked.owner) or ""


def taken_apart(asked: Asked, body: RequestBody, format: FormatName, known: Conversation) -> Read:
    """A request of a known conversation."""
    named = (complete_fields(body.fields, asked.model) or {}).get("model")
    return Read(asked, body, format, named if isinstance(named, str) else "", known)


def parent_of(boundaries: list[bytes]) -> str:
    """The history that the last request behind this one ended; empty: there was none."""
    return boundaries[-2].hex() if len(boundaries) > 1 else ""
