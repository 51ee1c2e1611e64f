"""One thing a provider would reject: its rule, its place, and a sentence for a person."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning"]


class Problem(Struct, frozen=True, gc=False):
    """A rule of the provider that the request breaks."""

    code: str  # the rule's code in docs/problems.md, e.g. "A1"
    place: str  # where, e.g. "messages[3].content[0]"
    message: str  # a sentence for a person
    severity: Severity = "error"  # a warning rests on conflicting evidence and is never repaired

    def __str__(self) -> str:
        warning = ", warning" if self.severity == "warning" else ""
        return f"{self.place}: {self.message} [{self.code}{warning}]"
