"""Effect of one call, as far as known: kind, reads, writes, identity."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

ToolKind = Literal["read", "write", "run", "search", "other"]
Content = Literal["code", "listing", "hits", "log", "test", "diff", "json", "table", "page", "edit"]

TOOL_KINDS: Final[tuple[ToolKind, ...]] = ("read", "write", "run", "search", "other")
CONTENTS: Final[tuple[Content, ...]] = (
    "code", "listing", "hits", "log", "test", "diff", "json", "table", "page", "edit",
)  # fmt: skip

END_OF_FILE: Final = 1_000_000_000  # the last line of a range that has no end

_STRENGTH: Final[dict[ToolKind, int]] = {"other": 0, "search": 1, "read": 2, "run": 3, "write": 4}


class Span(Struct, frozen=True, gc=False):
    """A file, a folder, a URL or another named thing, whole or in part."""

    path: str  # normalised
    lines: tuple[int, int] | None = None  # 1-based, inclusive; None: all of it
    part: bool = False  # True: some part of it (or of what is below it), it is not known which

    def covers(self, other: Span) -> bool:
        """Whether this is all of another part of the same thing, as far as that is known."""
        if self.part:
            return False
        if self.lines is None or other.lines is None:
            return self.lines is None
        return self.lines[0] <= other.lines[0] and other.lines[1] <= self.lines[1]

    def overlaps(self, other: Span) -> bool:
        """Whether two parts of the same thing surely have something in common."""
        if self.part or other.part:
            return False
        if self.lines is None or other.lines is None:
            return True
        return self.lines[0] <= other.lines[1] and other.lines[0] <= self.lines[1]


class Use(Struct, frozen=True):
    """What one call does, as far as it is known."""

    kind: ToolKind  # the strongest thing it does: any write makes it "write"
    operation: str = "default"
    target: str | None = None  # what error counters go by; None: they go by the key
    key: str = ""  # the same for calls that repeat one another
    reads: tuple[Span, ...] = ()  # what its result shows
    writes: tuple[Span, ...] = ()  # what it writes, where that is known
    replaces: bool = False  # its writes replace the whole of each file; else they are increments
    barrier: bool = False  # may write anything, anywhere
    content: Content | None = None  # what its result is
    known: bool = True  # False: what it does could not be told; it counts as a barrier
    rerun: bool = False  # running it again is safe
    numbers: bool = False  # its tool puts the number of each line before it, asked or not
    problem: str | None = None  # a declared function that failed on it, for a person
    in_shell: bool = False  # it runs a shell command

    @property
    def can_write(self) -> bool:
        """Whether any file may be another one after it."""
        return self.barrier or self.kind == "write" or bool(self.writes)

    @property
    def outcome_kind(self) -> ToolKind:
        """By which kind its result tells how it ended: what a shell writes ends as any run does."""
        return "run" if self.in_shell and self.kind == "write" else self.kind


class CallIdentity(Struct, frozen=True, gc=False):
    """The three keys of a call: what it does, to what, and which calls are the same call."""

    operation: str
    target: str | None
    key: str

    @property
    def counter(self) -> str:
        """What errors are counted by: the target, or else the whole identity."""
        return self.key if self.target is None else self.target


def stronger_kind(one: ToolKind, other: ToolKind) -> ToolKind:
    """The kind that says more of what may have happened."""
    return one if _STRENGTH[one] >= _STRENGTH[other] else other
