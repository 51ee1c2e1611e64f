"""Effect of one command, and of combined commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...regex import lazy_compile
from ..paths import content_by_suffix, glob_root, is_absolute, normalize
from ..use import Content, Span, ToolKind, stronger_kind
from .parser import UNKNOWN_FOLDER, ShellWord

PassedLines = tuple[int, int] | Literal["all", "part"] | None

STREAMS: Final = ("-", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/tty")
_MAX_TARGET_CHARS = 120
_REWRITE_VARIABLES = lazy_compile(
    r"UPDATE|BLESS|REGEN|OVERWRITE|ACCEPT"
    r"|(?:^|_)(?:RECORD|GENERATE|GOLDEN|SNAPSHOTS?|FIX|WRITE)(?:_|$)",
    re.IGNORECASE,
)


def word_set(text: str) -> frozenset[str]:
    """A set of words, written as one string."""
    return frozenset(text.split())


class Effect(Struct, frozen=True):
    """The effect of one command, or of a sequence."""

    kind: ToolKind = "other"
    reads: tuple[Span, ...] = ()  # shown in its output
    writes: tuple[Span, ...] = ()
    replaces: bool = True  # the writes replace whole files; True until one does not
    barrier: bool = False
    known: bool = True
    content: Content | None = None
    # Lines of its input that it passes on; None: it prints something else.
    passed_lines: PassedLines = None
    target: str = ""


NO_EFFECT: Final = Effect()
BARRIER_EFFECT: Final = Effect(kind="run", barrier=True)
UNKNOWN_EFFECT: Final = Effect(kind="run", barrier=True, known=False)
RUN_EFFECT: Final = Effect(kind="run", content="log")
TEST_EFFECT: Final = Effect(kind="run", content="test")


class ProgramCall(Struct, frozen=True):
    """One call of a program."""

    name: str
    args: tuple[ShellWord, ...]
    cwd: str | None = None
    has_input: bool = False  # something is piped or redirected into it
    text: str | None = None  # a here-document for it
    # Runs other words, in a folder
    run: Callable[[tuple[ShellWord, ...], str | None], Effect] | None = None
    script: Callable[[str, str | None], Effect] | None = None  # runs shell text, in a folder
    powershell: Callable[[str, str | None], Effect] | None = None  # runs PowerShell text

    def run_words(self, words: Iterable[ShellWord], cwd: str | None = None) -> Effect:
        """The effect of other words, run in place of this program."""
        given = tuple(words)
        return self.run(given, cwd or self.cwd) if self.run and given else NO_EFFECT

    def run_script(self, text: str) -> Effect:
        """The effect of shell text that this program runs."""
        return self.script(text, self.cwd) if self.script else UNKNOWN_EFFECT

    def run_powershell(self, text: str) -> Effect:
        """The effect of PowerShell text that this program runs."""
        return self.powershell(text, self.cwd) if self.powershell else UNKNOWN_EFFECT


class ParsedOptions(Struct, frozen=True):
    """Parsed words of a command: flags with their values, and operands."""

    flags: tuple[tuple[str, ShellWord | None], ...]
    operands: tuple[ShellWord, ...]

    def has(self, *names: str) -> bool:
        """Check whether one of these flags is given."""
        return any(flag in names for flag, _ in self.flags)

    def values(self, *names: str) -> tuple[ShellWord, ...]:
        """The values of these flags."""
        return tuple(value for flag, value in self.flags if flag in names and value is not None)


def parse_options(
    args: Iterable[ShellWord], valued: Iterable[str] = (), long_dash: bool = False
) -> ParsedOptions:
    """Separate flags from operands.
    `valued` flags take the next word; with `long_dash`, `-run` is one flag.
    """
    takes = frozenset(valued)
    flags: list[tuple[str, ShellWord | None]] = []
    operands: list[ShellWord] = []
    words = iter(args)
    for word in words:
        text = word.text
        if text == "--":
            operands += words
        elif len(text) < 2 or text[0] != "-":
            operands.append(word)
        else:
            flags += _flags(word, words, takes, long_dash)
    return ParsedOptions(tuple(flags), tuple(operands))


def _flags(
    word: ShellWord, rest: Iterable[ShellWord], takes: frozenset[str], long_dash: bool
) -> list[tuple[str, ShellWord | None]]:
    """The flags in one word, with the value of the last one."""
    text = word.text
    following = iter(rest)
    if text in takes:
        return [(text, next(following, None))]
    if text.startswith("--") or long_dash:
        name, equals, value = text.partition("=")
        return [(name, ShellWord(value, word.certain, word.glob) if equals else None)]
    found: list[tuple[str, ShellWord | None]] = []
    for at in range(1, len(text)):
        flag = f"-{text[at]}"
        if flag in takes:
            value = text[at + 1 :]
            found.append((flag, ShellWord(value, word.certain) if value else next(following, None)))
            break
        found.append((flag, None))
    return found


def span_of(word: ShellWord, cwd: str | None, part: bool = False) -> Span | None:
    """The span a word names, if known; for a pattern, its fixed folder."""
    if not word.certain or (cwd == UNKNOWN_FOLDER and not is_absolute(word.text)):
        return None
    if word.glob:
        return Span(normalize(glob_root(word.text), cwd), part=True)
    return Span(normalize(word.text, cwd), part=part)


def working_folder(call: ProgramCall, folders: Sequence[ShellWord]) -> str | None:
    """The folder named by a flag, else the command's own."""
    if not folders:
        return call.cwd
    found = span_of(folders[-1], call.cwd)
    return found.path if found else UNKNOWN_FOLDER


def expand_pattern(word: ShellWord) -> ShellWord:
    """A word whose quoted pattern is expanded by its program."""
    return replace(word, glob=True) if re.search(r"[*?\[{]", word.text) else word


def is_rewrite_variable(variable: str) -> bool:
    """Check whether an environment variable makes a program rewrite files, by its name."""
    return _REWRITE_VARIABLES.search(variable[:200]) is not None


def file_operands(words: Iterable[ShellWord]) -> list[ShellWord]:
    """The words that name files rather than streams."""
    return [word for word in words if word.text not in STREAMS and (word.text or not word.certain)]


def read_effect(
    call: ProgramCall,
    words: Iterable[ShellWord],
    *,
    content: Content | None = "code",
    kind: ToolKind = "read",
    part: bool = False,
    passes: PassedLines = None,
) -> Effect:
    """Effect of printing what these words name; unknown words are left out."""
    files = file_operands(words)
    spans = [found for word in files if (found := span_of(word, call.cwd, part))]
    if content == "code" and spans and not spans[0].part:
        content = content_by_suffix(spans[0].path)
    if not files and call.has_input:
        return Effect(passed_lines=passes, content=None)
    return Effect(
        kind, tuple(spans), content=content, target=spans[0].path if spans else command_label(call)
    )


def write_effect(call: ProgramCall, words: Iterable[ShellWord], replaces: bool = False) -> Effect:
    """Effect of writing what these words name; a barrier if one is unknown or none is named."""
    given = list(words)
    files = file_operands(given)
    if given and not files:
        return NO_EFFECT
    spans = [span_of(word, call.cwd) for word in files]
    known_spans = tuple(found for found in spans if found is not None)
    barrier = len(known_spans) < len(spans) or not given
    target = known_spans[0].path if known_spans else command_label(call)
    whole = replaces and not any(found.part for found in known_spans)
    return Effect(
        kind="write",
        reads=(),
        writes=known_spans,
        replaces=whole,
        barrier=barrier,
        known=not barrier,
        content="edit",
        target=target,
    )


def command_label(call: ProgramCall) -> str:
    """A command's name with its operands."""
    words = [word.text for word in call.args if word.text[:1] not in ("-", "") and word.certain]
    return " ".join([call.name, *words[:3]])[:_MAX_TARGET_CHARS]


def run_effect(call: ProgramCall, effect: Effect = RUN_EFFECT) -> Effect:
    """Effect of a run, labelled by its words."""
    return replace(effect, target=command_label(call)) if not effect.target else effect


def combine_effects(one: Effect, other: Effect) -> Effect:
    """The combined effect of two commands in sequence."""
    strongest = stronger_kind(one.kind, other.kind)
    first = one.kind == strongest and (one.target or one.kind != other.kind)
    return Effect(
        kind=strongest,
        reads=(*one.reads, *other.reads),
        writes=(*one.writes, *other.writes),
        replaces=one.replaces and other.replaces,
        barrier=one.barrier or other.barrier,
        known=one.known and other.known,
        content=_combined_content(one, other),
        passed_lines=None,
        target=one.target if first else other.target,
    )


def _combined_content(one: Effect, other: Effect) -> Content | None:
    """The content kind of two outputs, if one fits both; no output changes nothing."""
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


def pipe_effects(upstream: Effect, stage: Effect) -> Effect:
    """The effect of a command whose input comes from another."""
    if stage.passed_lines is None:
        shown = Effect(
            kind=upstream.kind,
            reads=(),
            writes=upstream.writes,
            replaces=upstream.replaces,
            barrier=upstream.barrier,
            known=upstream.known,
            content=None,
            passed_lines=None,
            target=upstream.target,
        )
        return replace(combine_effects(shown, stage), content=stage.content)
    joined = combine_effects(
        replace(upstream, reads=_visible_spans(upstream, stage.passed_lines)), stage
    )
    passes = upstream.passed_lines if stage.passed_lines == "all" else "part"
    return replace(
        joined,
        content=upstream.content or stage.content,
        passed_lines=None if upstream.passed_lines is None else passes,
        target=upstream.target or stage.target,
    )


def _visible_spans(upstream: Effect, passing: PassedLines) -> tuple[Span, ...]:
    """The reads still visible after a filter; lines of a listing are not lines of its files."""
    reads = upstream.reads
    if passing == "all":
        return reads
    if isinstance(passing, tuple) and len(reads) == 1 and upstream.kind == "read":
        return (slice_lines(reads[0], *passing),)
    return tuple(Span(one.path, one.lines, part=True) for one in reads)


def slice_lines(read: Span, first: int, last: int) -> Span:
    """These lines of a span, counted from its start."""
    if read.part:
        return read
    start, end = read.lines or (1, last + 1)
    begins, ends = start + first - 1, min(end, start + last - 1)
    return Span(read.path, (begins, ends)) if begins <= ends else Span(read.path, part=True)


def hide_output(effect: Effect) -> Effect:
    """The effect of a command whose output is discarded."""
    kind: ToolKind = effect.kind if effect.kind in ("write", "run") else "other"
    return replace(effect, kind=kind, reads=(), content=None, passed_lines=None)
