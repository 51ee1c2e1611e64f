"""Effect of one call: kind, reads, writes, identity."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

ToolKind = Literal["read", "write", "run", "search", "other"]
Content = Literal["code", "listing", "hits", "log", "test", "diff", "json", "table", "page", "edit"]

TOOL_KINDS: Final[tuple[ToolKind, ...]] = ("read", "write", "run", "search", "other")
CONTENTS: Final[tuple[Content, ...]] = (
    "code", "listing", "hits", "log", "test", "diff", "json", "table", "page", "edit",
)  # fmt: skip

END_OF_FILE: Final = 1_000_000_000  # last line of an open-ended range

_STRENGTH: Final[dict[ToolKind, int]] = {"other": 0, "search": 1, "read": 2, "run": 3, "write": 4}


class Span(Struct, frozen=True, gc=False):
    """A file, folder, URL or other named thing, whole or in part."""

    path: str  # normalized
    lines: tuple[int, int] | None = None  # 1-based, inclusive; None: all of it
    part: bool = False  # some part of it, or of what is below it; which is unknown

    def covers(self, other: Span) -> bool:
        """Check whether this span is known to contain another."""
        if self.part:
            return False
        if self.lines is None or other.lines is None:
            return self.lines is None
        return self.lines[0] <= other.lines[0] and other.lines[1] <= self.lines[1]

    def overlaps(self, other: Span) -> bool:
        """Check whether two spans are known to share something."""
        if self.part or other.part:
            return False
        if self.lines is None or other.lines is None:
            return True
        return self.lines[0] <= other.lines[1] and other.lines[0] <= self.lines[1]


class Use(Struct, frozen=True):
    """The known effect of one call."""

    kind: ToolKind  # the strongest effect: any write makes it "write"
    operation: str = "default"
    target: str | None = None  # groups error counters; None: they use the key
    key: str = ""  # equal for repeated calls
    reads: tuple[Span, ...] = ()  # shown in its result
    writes: tuple[Span, ...] = ()  # the writes that are known
    replaces: bool = False  # writes replace whole files; otherwise they are increments
    barrier: bool = False  # may write anything, anywhere
    content: Content | None = None  # content kind of its result
    known: bool = True  # False: the effect is unknown, and it counts as a barrier
    rerun: bool = False  # running it again is safe
    numbers: bool = False  # its tool always numbers the lines it shows
    problem: str | None = None  # the failure of a declared function, for display
    in_shell: bool = False  # it runs a shell command

    @property
    def can_write(self) -> bool:
        """Check whether the call may change any file."""
        return self.barrier or self.kind == "write" or bool(self.writes)

    @property
    def outcome_kind(self) -> ToolKind:
        """The kind that decides how its result reports success: a shell write ends like a run."""
        return "run" if self.in_shell and self.kind == "write" else self.kind


class CallIdentity(Struct, frozen=True, gc=False):
    """The three keys of a call: operation, target and repeat key."""

    operation: str
    target: str | None
    key: str

    @property
    def counter(self) -> str:
        """The key that groups error counts: the target, else the whole identity."""
        return self.key if self.target is None else self.target


def stronger_kind(one: ToolKind, other: ToolKind) -> ToolKind:
    """The stronger of two kinds."""
    return one if _STRENGTH[one] >= _STRENGTH[other] else other
