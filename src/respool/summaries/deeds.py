"""One old call in plain facts: what it did, to what, how it ended, and why it was made."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from ..tools.use import TO_THE_END, Content, Kind, Span, Use
from ..transcript import Part
from .outcomes import Ending, clip, ending_of, strings_in

_ASKED: Final = ("pattern", "query", "regex", "search", "q", "glob")  # arguments that say for what
_COMMANDS: Final = (
    "command",
    "cmd",
    "commands",
)  # those that hold one; beside them it is described
_SHELL = re.compile(r"^(?:/\S*/)?(?:ba|z|da)?sh -l?c ")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(])|\n\s*\n")


KnownBy = Literal["name", "command", "pattern"]


class Deed(Struct, frozen=True):
    """What is told of one call."""

    kind: Kind
    label: str  # a file, a command, a pattern: how a reader knows the call again
    tool: str
    outcome: Ending
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    replaces: bool = False
    content: Content | None = None
    rerun: bool = False
    resolved: bool = False  # it failed, and the same succeeded since
    reason: str = ""  # the assistant's own words before it
    session: str = ""  # what still ran and was asked about again
    label_source: KnownBy = "name"  # what `what` is
    in_shell: bool = False  # a command may have done a part of it before it failed


def deed_of(call: Part, use: Use, result: Part, *, why: str = "", resolved: bool = False) -> Deed:
    """The facts of one call and its result."""
    ending = ending_of(result.text, result.error, use.outcome_kind)
    session = use.target if use.target and use.target.isdigit() else ""
    what, known_by = _named(call, use)
    if session and ending.command:
        what = _unquoted(ending.command)
    return Deed(
        use.kind, what, call.name, ending, use.reads, use.writes, use.replaces, use.content,
        use.rerun, resolved, why, session, known_by, use.in_shell,
    )  # fmt: skip


def _named(call: Part, use: Use) -> tuple[str, KnownBy]:
    """What a reader knows a call by."""
    if use.kind == "write" and use.writes:
        return use.writes[0].path, "name"
    if use.kind == "read" and use.reads and use.target == use.reads[0].path:
        return use.reads[0].path, "name"
    what, known_by = _asked(call, use)
    return " ".join(what.split()), known_by if use.in_shell or known_by != "command" else "name"


def _asked(call: Part, use: Use) -> tuple[str, KnownBy]:
    """The command or the pattern among a call's arguments; else what it goes by."""
    texts = strings_in(call.text)
    if use.kind == "search":
        for name in _ASKED:
            if texts.get(name):
                return texts[name], "pattern"
    target = use.target or ""
    program = target.partition(" ")[0].rpartition("/")[2]
    named = sorted(texts, key=lambda name: name not in _COMMANDS)
    spoken = [texts[name] for name in named if " " in texts[name].strip()]
    for text in spoken:
        if program and program in text:
            shell = _SHELL.match(text)
            return (_unquoted(text[shell.end() :]) if shell else text), "command"
    if target and not target.isdigit() and (use.kind != "search" or not spoken):
        return target, "name"
    return (spoken[0], "command") if spoken else (f"{call.name} {target}".strip(), "name")


def _unquoted(command: str) -> str:
    """What a shell is given, without the quotes around it; the last one may be cut off."""
    quote = command[:1]
    return command[1:].removesuffix(quote) if quote in ("'", '"') else command


def lines_read(span: Span, shown: int) -> str:
    """Which lines of a thing were read, as far as they were there."""
    if span.lines is None or span.part:
        return ""
    first, last = span.lines
    there = first + max(shown, 1) - 1
    if first == 1 and there < last:
        return ""  # the file ended before what was asked for did
    return f"{first}-{min(last, there) if last < TO_THE_END else there}"


def first_sentences(text: str, budget: int) -> str:
    """The first sentences of what was said, as many as fit; at least a part of the first.

    Where the first only opens ("Right."), what follows is told in part.
    """
    said = ""
    for sentence in _SENTENCE.split(text.strip()):
        longer = f"{said} {sentence}".strip()
        if said and len(longer) > budget:
            said = longer if len(said) < budget // 3 else said
            break
        said = longer
        if len(said) > budget // 2:
            break
    return clip(" ".join(said.split()), budget)
