"""What a command does, and what several do together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from .paths import content_of, folder_before, is_absolute, normal
from .script import UNKNOWN, Word
from .use import Content, Kind, Span, stronger

Passing = tuple[int, int] | Literal["all", "part"] | None

STREAMS: Final = ("-", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/tty")
_LONGEST_TARGET = 120
_REWRITES = re.compile(
    r"UPDATE|BLESS|REGEN|OVERWRITE|ACCEPT"
    r"|(?:^|_)(?:RECORD|GENERATE|GOLDEN|SNAPSHOTS?|FIX|WRITE)(?:_|$)",
    re.IGNORECASE,
)


def words(text: str) -> frozenset[str]:
    """A set of words, written as a line of them."""
    return frozenset(text.split())


class Effect(Struct, frozen=True):
    """What one command does, or several in a row."""

    kind: Kind = "other"
    reads: tuple[Span, ...] = ()  # what it prints
    writes: tuple[Span, ...] = ()
    replaces: bool = True  # of the writes; nothing has been written in part so far
    barrier: bool = False
    known: bool = True
    content: Content | None = None
    passed_lines: Passing = None  # what it lets through of its input; None: it prints something else
    target: str = ""


SILENT: Final = Effect()
BARRIER: Final = Effect(kind="run", barrier=True)
IGNORANCE: Final = Effect(kind="run", barrier=True, known=False)
RUN: Final = Effect(kind="run", content="log")
TEST: Final = Effect(kind="run", content="test")


class Call(Struct, frozen=True):
    """One program as it is called."""

    name: str
    args: tuple[Word, ...]
    cwd: str | None = None
    has_input: bool = False  # whether something is piped or redirected into it
    text: str | None = None  # a here-document for it
    run: Callable[[tuple[Word, ...], str | None], Effect] | None = None  # other words, in a folder
    script: Callable[[str, str | None], Effect] | None = None  # shell text, in a folder

    def run_words(self, words: Iterable[Word], cwd: str | None = None) -> Effect:
        """What other words do, run in the place of this program."""
        given = tuple(words)
        return self.run(given, cwd or self.cwd) if self.run and given else SILENT

    def run_script(self, text: str) -> Effect:
        """What shell text does, run by this program."""
        return self.script(text, self.cwd) if self.script else IGNORANCE


class Options(Struct, frozen=True):
    """Words told apart: flags with their values, and the rest."""

    flags: tuple[tuple[str, Word | None], ...]
    operands: tuple[Word, ...]

    def has(self, *names: str) -> bool:
        """Whether one of these flags is given."""
        return any(flag in names for flag, _ in self.flags)

    def values(self, *names: str) -> tuple[Word, ...]:
        """The values that these flags are given."""
        return tuple(value for flag, value in self.flags if flag in names and value is not None)


def options(args: Iterable[Word], valued: Iterable[str] = (), long_dash: bool = False) -> Options:
    """Tell flags from operands; `valued` take the next word, `long_dash` is `-run` for one flag."""
    takes = frozenset(valued)
    flags: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    words = iter(args)
    for word in words:
        text = word.text
        if text == "--":
            operands += words
        elif len(text) < 2 or text[0] != "-":
            operands.append(word)
        else:
            flags += _flags(word, words, takes, long_dash)
    return Options(tuple(flags), tuple(operands))


def _flags(
    word: Word, rest: Iterable[Word], takes: frozenset[str], long_dash: bool
) -> list[tuple[str, Word | None]]:
    """The flags in one word, with the value that the last of them takes."""
    text = word.text
    following = iter(rest)
    if text in takes:
        return [(text, next(following, None))]
    if text.startswith("--") or long_dash:
        name, equals, value = text.partition("=")
        return [(name, Word(value, word.certain, word.glob) if equals else None)]
    found: list[tuple[str, Word | None]] = []
    for at in range(1, len(text)):
        flag = f"-{text[at]}"
        if flag in takes:
            value = text[at + 1 :]
            found.append((flag, Word(value, word.certain) if value else next(following, None)))
            break
        found.append((flag, None))
    return found


def span(word: Word, cwd: str | None, part: bool = False) -> Span | None:
    """What a word names, where that is known; of a pattern, the folder it stays in."""
    if not word.certain or (cwd == UNKNOWN and not is_absolute(word.text)):
        return None
    if word.glob:
        return Span(normal(folder_before(word.text), cwd), part=True)
    return Span(normal(word.text, cwd), part=part)


def folder_told(call: Call, folders: Sequence[Word]) -> str | None:
    """The folder that a flag says a command runs in; where none says one, its own."""
    if not folders:
        return call.cwd
    found = span(folders[-1], call.cwd)
    return found.path if found else UNKNOWN


def expanded(word: Word) -> Word:
    """A word whose program expands patterns itself, so that quotes do not make it a plain name."""
    return replace(word, glob=True) if re.search(r"[*?\[{]", word.text) else word


def rewrites(variable: str) -> bool:
    """Whether a variable tells what is run to write files anew, by its name."""
    return _REWRITES.search(variable[:200]) is not None


def named(words: Iterable[Word]) -> list[Word]:
    """The words that name files, not streams."""
    return [word for word in words if word.text not in STREAMS and (word.text or not word.certain)]


def reading(
    call: Call,
    words: Iterable[Word],
    content: Content | None = "code",
    kind: Kind = "read",
    part: bool = False,
    passes: Passing = None,
) -> Effect:
    """Printing what these words name; what is not known of them stays out."""
    files = named(words)
    spans = [found for word in files if (found := span(word, call.cwd, part))]
    if content == "code" and spans and not spans[0].part:
        content = content_of(spans[0].path)
    if not files and call.has_input:
        return Effect(passed_lines=passes, content=None)
    return Effect(
        kind, tuple(spans), content=content, target=spans[0].path if spans else called(call)
    )


def writing(call: Call, words: Iterable[Word], replaces: bool = False) -> Effect:
    """Writing what these words name; if one is not known, or none is named, it may be anything."""
    given = list(words)
    files = named(given)
    if given and not files:
        return SILENT
    spans = [span(word, call.cwd) for word in files]
    sure = tuple(found for found in spans if found is not None)
    barrier = len(sure) < len(spans) or not given
    target = sure[0].path if sure else called(call)
    whole = replaces and not any(found.part for found in sure)
    return Effect(
        "write", (), sure, whole, barrier, known=not barrier, content="edit", target=target
    )


def called(call: Call) -> str:
    """A command's name with what it is about: the words that are no flags."""
    words = [word.text for word in call.args if word.text[:1] not in ("-", "") and word.certain]
    return " ".join([call.name, *words[:3]])[:_LONGEST_TARGET]


def ran(call: Call, effect: Effect = RUN) -> Effect:
    """A run of something, named by its words."""
    return replace(effect, target=called(call)) if not effect.target else effect


def both(one: Effect, other: Effect) -> Effect:
    """What two commands do, one after the other."""
    strongest = stronger(one.kind, other.kind)
    first = one.kind == strongest and (one.target or one.kind != other.kind)
    return Effect(
        strongest,
        (*one.reads, *other.reads),
        (*one.writes, *other.writes),
        one.replaces and other.replaces,
        one.barrier or other.barrier,
        one.known and other.known,
        _mixed(one, other),
        None,
        one.target if first else other.target,
    )


def _mixed(one: Effect, other: Effect) -> Content | None:
    """What the output of both is, if one name fits; silence changes nothing."""
    if one.content == other.content:
        return one.content
    for here, there in ((one, other), (other, one)):
        if here.content is None and here.kind in ("other", "write"):
            return there.content
        if here.content == "edit" and there.content is not None:
            return there.content
        if {here.content, there.content} == {"test", "log"}:
            return "test"
    return None


def piped(upstream: Effect, stage: Effect) -> Effect:
    """What a command does that is fed by another."""
    if stage.passed_lines is None:
        shown = Effect(
            upstream.kind, (), upstream.writes, upstream.replaces, upstream.barrier, upstream.known,
            None, None, upstream.target,
        )  # fmt: skip
        return replace(both(shown, stage), content=stage.content)
    joined = both(replace(upstream, reads=_through(upstream, stage.passed_lines)), stage)
    passes = upstream.passed_lines if stage.passed_lines == "all" else "part"
    return replace(
        joined,
        content=upstream.content or stage.content,
        passed_lines=None if upstream.passed_lines is None else passes,
        target=upstream.target or stage.target,
    )


def _through(upstream: Effect, passing: Passing) -> tuple[Span, ...]:
    """What is left to see of what was read; lines of a listing are no lines of what it lists."""
    reads = upstream.reads
    if passing == "all":
        return reads
    if isinstance(passing, tuple) and len(reads) == 1 and upstream.kind == "read":
        return (lines_of(reads[0], *passing),)
    return tuple(Span(one.path, one.lines, part=True) for one in reads)


def lines_of(read: Span, first: int, last: int) -> Span:
    """These lines of something, counted from where it begins."""
    if read.part:
        return read
    start, end = read.lines or (1, last + 1)
    begins, ends = start + first - 1, min(end, start + last - 1)
    return Span(read.path, (begins, ends)) if begins <= ends else Span(read.path, part=True)


def unseen(effect: Effect) -> Effect:
    """A command whose output nobody sees."""
    kind: Kind = effect.kind if effect.kind in ("write", "run") else "other"
    return replace(effect, kind=kind, reads=(), content=None, passed_lines=None)
