"""A shell command as values: words, redirections, simple commands, pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

UNKNOWN: Final = "?"  # the folder after a `cd` to somewhere that the text does not say
LONGEST: Final = 65_536  # bytes of a command that are parsed
DEEPEST: Final = 60  # levels of nesting
MOST_STEPS: Final = 400  # simple commands in one text, loops unrolled


class Unreadable(ValueError):
    """The text is no shell command, or more of one than is worth reading."""


class Word(Struct, frozen=True, gc=False):
    """One word: what is known of its text, and whether that is all of it."""

    text: str
    certain: bool = True
    glob: bool = False


class Redirect(Struct, frozen=True, gc=False):
    """One redirection to or from a file; what goes to another descriptor is none."""

    operator: str
    word: Word
    descriptor: str = ""


class Simple(Struct, frozen=True):
    """One program with its words, where it runs, and what is fed to it."""

    words: tuple[Word, ...]
    cwd: str | None
    redirects: tuple[Redirect, ...] = ()
    text: str | None = None  # a here-document's body, or a here-string's
    env: tuple[str, ...] = ()  # the variables that are set for it, or exported before


class Group(Struct, frozen=True):
    """Several pipelines that share their input and output, and where they begin to run."""

    pipelines: tuple[Pipeline, ...]
    cwd: str | None = UNKNOWN
    redirects: tuple[Redirect, ...] = ()
    text: str | None = None


class Pipeline(Struct, frozen=True):
    """Commands that feed one another; a hidden one prints nothing that is seen."""

    stages: tuple[Simple | Group, ...]
    hidden: bool = False
    conditional: bool = False  # whether it runs depends on what others did


class Budget:
    """How much is left to be read, shared by all walks over one text."""

    def __init__(self) -> None:
        self.steps = MOST_STEPS
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("it is nested too deeply")

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def step(self) -> None:
        """Count one more command."""
        self.steps -= 1
        if self.steps < 0:
            raise Unreadable("it has too many commands")


def together(words: Sequence[Word]) -> Word:
    """Pieces of one quoted word."""
    return Word("".join(word.text for word in words), all(word.certain for word in words))


def joined(words: Sequence[Word]) -> Word:
    """Pieces that stand side by side; a brace among them makes several words of one."""
    whole = together(words)
    glob = any(word.glob or word.text == "{" for word in words)
    return Word(whole.text, whole.certain, glob)
