"""Parser of PowerShell commands, into the pipelines of the shell parser.

Quotes, literal variables, `cd`, and lines of a file that a variable holds are resolved here. What
the text does not decide makes a word uncertain; text that may do anything else is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ...regex import lazy_compile
from ..paths import is_absolute, normalize
from .parser import (
    UNKNOWN_FOLDER,
    CommandGroup,
    ParseBudget,
    Pipeline,
    Redirect,
    ShellWord,
    SimpleCommand,
)
from .syntax import UnreadableCommand

_FILTER: Final = "select-object"  # a stage that passes on a part of its input
# Aliases of PowerShell that differ from the program of that name, or have none.
_ALIASES: Final = {
    alias: name
    for name, aliases in {
        "get-content": "gc cat type",
        "get-childitem": "gci ls dir",
        "get-item": "gi",
        "select-string": "sls",
        "select-object": "select",
        "where-object": "where ?",
        "foreach-object": "foreach %",
        "sort-object": "sort",
        "measure-object": "measure",
        "group-object": "group",
        "compare-object": "compare diff",
        "format-table": "ft",
        "format-list": "fl",
        "tee-object": "tee",
        "set-content": "sc",
        "add-content": "ac",
        "clear-content": "clc",
        "remove-item": "rm del ri erase rd rmdir",
        "copy-item": "cp copy cpi",
        "move-item": "mv move mi",
        "rename-item": "ren rni",
        "new-item": "ni",
        "set-location": "cd sl chdir",
        "push-location": "pushd",
        "pop-location": "popd",
        "write-output": "echo write",
        "get-location": "pwd gl",
        "start-sleep": "sleep",
        "invoke-expression": "iex",
        "invoke-webrequest": "iwr",
        "invoke-restmethod": "irm",
    }.items()
    for alias in aliases.split()
}
_KNOWN: Final = "|".join(
    (
        r"(?:get|set|add)-content|(?:get|new|copy|move|remove)-item|get-(?:childitem|command)",
        r"(?:select|where|foreach|sort|measure)-object|select-string|out-(?:string|file|null)",
        r"test-path|join-path|resolve-path|(?:set|push)-location|write-(?:output|host)",
        r"format-(?:table|list)",
    )
)
_COMMAND = lazy_compile(rf"(?:^|[|;&(){{=\n])[ \t]*(?:{_KNOWN})(?![\w-])", re.IGNORECASE)
_SPACE = lazy_compile(r"(?:[ \t\r]|`\r?\n)+")
_COMMENT = lazy_compile(r"#[^\n]*|<#.*?#>", re.DOTALL)
_HERE = lazy_compile(r"@(['\"])[ \t]*\r?\n(.*?)\r?\n?^\1@", re.DOTALL | re.MULTILINE)
_SINGLE = lazy_compile(r"'((?:[^']|'')*)'")
_DOUBLE = lazy_compile(r'"((?:[^"`]|`.|"")*)"', re.DOTALL)
_BARE = lazy_compile(r"(?:[^\s|;&<>(){}'\"`$,#]|(?<=\S)#|`.)+")
_VARIABLE = lazy_compile(r"\$(?:\{[^}\n]*\}|(?:\w+:)?\w+|[$?^_])")
_ASSIGN = lazy_compile(r"[ \t]*(?:\+|-|\*|/)?=(?!=)[ \t]*")
_REDIRECT = lazy_compile(r"([1-6*]?)(>>?)(?:&([12])|[ \t]*(\$null)\b|[ \t]*)", re.IGNORECASE)
_INDEX = lazy_compile(r"[ \t]*\[[ \t]*(?:\(?(\d{1,7})\)?[ \t]*\.\.[ \t]*\(?(\d{1,7})\)?)?")
_KEYWORD = lazy_compile(
    r"(if|elseif|else|foreach|for|while|do|until|switch|try|catch|finally)(?=[\s({]|$)",
    re.IGNORECASE,
)
# Methods and types that may change files, and statements that define or load code
_UNSAFE = lazy_compile(
    r"\]::(?:Write|Append|Create|Delete|Move|Copy|Replace|Open|Set|Start|new\b.{0,80}(?:Stream|Writer))"
    r"|\.(?:Write\w*|Delete|MoveTo|CopyTo|Create\w*|Save\w*|SetAccess\w*|Open\w*|Invoke\w*)\("
    r"|(?:^|[;{\n])[ \t]*(?:function|filter|class|using|param|\.[ \t])",
    re.IGNORECASE,
)
_EXPANDS = lazy_compile(r"(?<!`)\$(?=[\w({:?^$])")
_ESCAPE = lazy_compile(r"`(.)", re.DOTALL)
_UNSURE: Final = ShellWord("", certain=False)


def is_powershell(text: str) -> bool:
    """Return whether a text calls a cmdlet of PowerShell.

    >>> is_powershell("Get-Content a.py -TotalCount 40"), is_powershell("cat a.py")
    (True, False)
    """
    return "-" in text and _COMMAND.search(text) is not None


def parse_powershell(text: str, cwd: str | None) -> tuple[Pipeline, ...]:
    """The pipelines of a PowerShell text, in the order they run.

    Raises `UnreadableCommand` for other text, and for what may change files out of sight.
    """
    if _UNSAFE.search(text) is not None:
        raise UnreadableCommand("it calls a method that may write")
    walker = _Walker(text, cwd)
    walker.statements("")
    return tuple(walker.pipelines)


class _Walker:
    """Reads statements one after another; `pipelines` are those found so far."""

    def __init__(self, text: str, cwd: str | None) -> None:
        self.text, self.at, self.cwd = text, 0, cwd
        self.pipelines: list[Pipeline] = []
        self.values: dict[str, ShellWord | Pipeline] = {}
        self.budget = ParseBudget()
        self.printed: Pipeline | None = None  # what a variable of the expression holds

    # --- characters

    def _skip(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _blanks(self, lines: bool = False) -> None:
        """Skip blanks and comments, and ends of statements if `lines`."""
        while self._skip(_SPACE) or self._skip(_COMMENT) or (lines and self._next() in "\n;"):
            if lines and self._next() in "\n;" and self.at < len(self.text):
                self.at += 1
            elif self.at >= len(self.text):
                return

    def _next(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size] or "\0"

    # --- statements

    def statements(self, closer: str) -> None:
        """Read statements up to a closing bracket, or to the end if there is none."""
        with self.budget:
            while True:
                self._blanks(lines=True)
                if self.at >= len(self.text) and not closer:
                    return
                if self._next() == closer:
                    self.at += 1
                    return
                start = self.at
                self._statement()
                if self.at == start:
                    raise UnreadableCommand("it has an unexpected character")

    def _statement(self) -> None:
        self.budget.step()
        if self._skip(_KEYWORD):
            self._control()
            return
        start = self.at
        variable = self._skip(_VARIABLE)
        if variable is not None and self._skip(_ASSIGN):
            self._assignment(variable[0].lower())
            return
        self.at = start
        found = self._pipeline()
        if found is not None:
            self.pipelines.append(found)
        if self._next(2) in ("&&", "||"):
            self.at += 2
            self._blanks(lines=True)

    def _control(self) -> None:
        """A loop or branch: what it tests runs unseen, its blocks perhaps."""
        while True:
            self._blanks(lines=True)
            if self._next() == "(":
                self.at += 1
                self._group(")", hidden=True)
            elif self._next() == "{":
                self.at += 1
                self._group("}", conditional=True)
            elif not self._skip(_KEYWORD):
                return

    def _group(self, closer: str, *, hidden: bool = False, conditional: bool = False) -> None:
        """Statements in brackets, as a pipeline of their own; what they set is uncertain."""
        inner = self._inner(closer)
        if inner:
            group = CommandGroup(tuple(inner), self.cwd)
            self.pipelines.append(Pipeline((group,), hidden=hidden, conditional=conditional))

    def _inner(self, closer: str) -> list[Pipeline]:
        before, values, cwd = self.pipelines, dict(self.values), self.cwd
        self.pipelines = []
        self.statements(closer)
        found, self.pipelines = self.pipelines, before
        changed = {name for name, value in self.values.items() if values.get(name) != value}
        self.values |= dict.fromkeys(changed, _UNSURE)
        self.cwd = cwd if self.cwd == cwd else UNKNOWN_FOLDER
        return found

    def _assignment(self, name: str) -> None:
        """A variable: its text if that is literal, else the command that fills it, unseen."""
        start = self.at
        word = self._argument() if self._next() in "'\"@" else None
        self._blanks()
        if word is not None and self._next() in "\n;\0}":
            self.values[name] = word
            return
        self.at = start
        found = self._pipeline()
        self.values[name] = _UNSURE
        if found is not None:
            self.values[name] = found
            self.pipelines.append(replace(found, hidden=True))

    # --- pipelines

    def _pipeline(self) -> Pipeline | None:
        """Stages up to the end of a statement; None: an expression without a command."""
        stages: list[SimpleCommand | CommandGroup] = []
        while True:
            self._blanks(lines=bool(stages))
            stages += self._stage()
            self._blanks()
            if self._next() != "|" or self._next(2) == "||":
                return Pipeline(tuple(stages)) if stages else None
            self.at += 1

    def _stage(self) -> Sequence[SimpleCommand | CommandGroup]:
        first = self._next()
        if first == "&":
            self.at += 1
            self._blanks()
            return self._command()
        if first in "$'\"@([-+!,0123456789" or self._next(2) == "..":
            return self._expression()
        return self._command()

    def _expression(self) -> Sequence[SimpleCommand | CommandGroup]:
        """A value: what a variable or a command in brackets holds, whole or in part."""
        held: Sequence[SimpleCommand | CommandGroup] = ()
        start, self.printed = self.at, None
        if (variable := self._skip(_VARIABLE)) is not None:
            value = self.values.get(variable[0].lower())
            held = value.stages if isinstance(value, Pipeline) else ()
        elif self._next() == "(":
            self.at += 1
            inner = self._inner(")")
            held = (CommandGroup(tuple(inner), self.cwd),) if inner else ()
        lines = self._skip(_INDEX) if held else None
        if lines is not None:
            self._rest_of_brackets("]")
        whole = lines is None
        while self._next() not in "|;\n}\0)" and self._next(2) != "&&":
            before = self.at
            self._argument_of_expression()
            whole = whole and not self.text[before : self.at].strip()
        if not held and self.printed is not None:
            held, whole = self.printed.stages, False
        if self.at == start or not held or whole:
            return held
        words = [ShellWord(_FILTER)]
        if lines is not None and lines[1] is not None:
            first, last = int(lines[1]), int(lines[2])
            if first <= last:
                count = str(last - first + 1)
                options = ("-skip", str(first), "-first", count)
                words += [ShellWord(one) for one in options]
        return (*held, SimpleCommand(tuple(words), self.cwd))

    def _argument_of_expression(self) -> None:
        if self._skip(_SPACE) or self._skip(_COMMENT):
            return
        if self._next() in ",&<>[]!":
            self.at += 1
            return
        if self._redirect() is None:
            self._argument()

    def _rest_of_brackets(self, closer: str) -> None:
        end = self.text.find(closer, self.at)
        if end < 0:
            raise UnreadableCommand("a bracket is open")
        self.at = end + 1

    def _command(self) -> Sequence[SimpleCommand]:
        """A command with its arguments; script blocks among them run unseen before it."""
        words: list[ShellWord] = []
        redirects: list[Redirect] = []
        while True:
            self._blanks()
            if self._next() in "|;\n})\0" or self._next(2) == "&&":
                break
            redirect = self._redirect()
            if redirect is not None:
                redirects += redirect
            elif self._next() == ",":
                self.at += 1
            else:
                words.append(self._argument())
        if not words:
            return ()
        name = words[0].text.lower().removesuffix(".exe")
        name = _ALIASES.get(name, name) if words[0].certain else words[0].text
        given = (ShellWord(name, words[0].certain), *words[1:])
        if name in ("set-location", "push-location", "pop-location"):
            self._enter(name, words[1:])
            return ()
        return (SimpleCommand(given, self.cwd, tuple(redirects)),)

    def _enter(self, name: str, words: Sequence[ShellWord]) -> None:
        places = [word for word in words if not word.text.startswith("-")]
        place = places[0] if len(places) == 1 else _UNSURE
        lost = self.cwd == UNKNOWN_FOLDER and not is_absolute(place.text)
        if name == "pop-location" or lost or not place.certain:
            self.cwd = UNKNOWN_FOLDER
        else:
            self.cwd = normalize(place.text, self.cwd)

    def _redirect(self) -> Sequence[Redirect] | None:
        """Redirections at this place; None: there is none."""
        found = self._skip(_REDIRECT)
        if found is None:
            return None
        if found[3] or found[4]:
            return ()
        return (Redirect(found[2], self._argument(), found[1]),)

    # --- words

    def _argument(self) -> ShellWord:
        """One argument; adjacent pieces are one word."""
        pieces: list[ShellWord] = []
        while (piece := self._piece()) is not None:
            pieces.append(piece)
            if self._next() in " \t\r\n|;,)}\0":
                break
        if not pieces:
            raise UnreadableCommand("it has an unexpected character")
        text = "".join(piece.text for piece in pieces)
        certain = all(piece.certain for piece in pieces)
        return ShellWord(text, certain, any(piece.glob for piece in pieces))

    def _piece(self) -> ShellWord | None:
        if (here := self._skip(_HERE)) is not None:
            return ShellWord(here[2], here[1] == "'" or not _EXPANDS.search(here[2]))
        if (single := self._skip(_SINGLE)) is not None:
            return ShellWord(_path(single[1].replace("''", "'")))
        if (double := self._skip(_DOUBLE)) is not None:
            certain = _EXPANDS.search(double[1]) is None
            return ShellWord(_path(_ESCAPE.sub(r"\1", double[1])), certain)
        if (variable := self._skip(_VARIABLE)) is not None:
            value = self.values.get(variable[0].lower())
            self.printed = value if isinstance(value, Pipeline) else self.printed
            return value if isinstance(value, ShellWord) else _UNSURE
        if self._next() in "({" or self._next(2) in ("@(", "@{", "$("):
            self.at += 1 if self._next() in "({" else 2
            self._group(")" if self.text[self.at - 1] == "(" else "}", hidden=True)
            return _UNSURE
        bare = self._skip(_BARE)
        if bare is None:
            return None
        text = _path(_ESCAPE.sub(r"\1", bare[0]))
        return ShellWord(text, glob=re.search(r"[*?\[]", text) is not None)


def _path(text: str) -> str:
    """A word with the separators of paths that all parts of the package use."""
    return text if "\n" in text else text.replace("\\", "/")
