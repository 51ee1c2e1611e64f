"""Output of every session reader for a recorded session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass
class Recording:
    """The histories of one session, split where the agent itself compacted."""

    format: str
    model: str | None = None
    histories: list[list[Message]] = field(default_factory=lambda: [[]])
    tools: dict[str, Any] = field(default_factory=dict)  # name -> definition, if that is recorded
    left: Counter[str] = field(default_factory=Counter)  # records that went into no request

    @property
    def messages(self) -> list[Message]:
        """The history that is being read."""
        return self.histories[-1]

    def begin(self, messages: list[Message]) -> None:
        """A new history, as after a compaction."""
        self.histories.append(messages)

    def leave(self, kind: object) -> None:
        """Count a record that goes into no request."""
        self.left[str(kind)] += 1
