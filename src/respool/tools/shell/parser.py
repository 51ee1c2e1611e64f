"""Parser of shell commands: pipelines of simple commands, in the order they run.

Quotes, variables set in the text, `cd`, loops over words and functions are resolved here. What the
text does not decide (a variable's value, a command's output) makes a word uncertain, never wrong.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from ...regex import lazy_compile
from ..paths import is_absolute, normalize
from .syntax import UnreadableCommand, parse_shell

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN_FOLDER: Final = "?"  # the folder after a `cd` to an unknown place
MAX_COMMAND_BYTES: Final = 65_536  # maximum length of a parsed command
MAX_NESTING: Final = 60  # levels of nesting
MAX_COMMANDS: Final = 400  # simple commands in one text, with loops unrolled


class ShellWord(Struct, frozen=True, gc=False):
    """One word: its known text, and whether that is all of it."""

    text: str
    certain: bool = True
    glob: bool = False


class Redirect(Struct, frozen=True, gc=False):
    """One redirection to or from a file; other descriptors are left out."""

    operator: str
    word: ShellWord
    descriptor: str = ""


class SimpleCommand(Struct, frozen=True):
    """One program with its words, its folder and its input."""

    words: tuple[ShellWord, ...]
    cwd: str | None
    redirects: tuple[Redirect, ...] = ()
    text: str | None = None  # body of a here-document or here-string
    env: tuple[str, ...] = ()  # variables set for it, or exported before


class CommandGroup(Struct, frozen=True):
    """Pipelines that share input, output and starting folder."""

    pipelines: tuple[Pipeline, ...]
    cwd: str | None = UNKNOWN_FOLDER
    redirects: tuple[Redirect, ...] = ()
    text: str | None = None


class Pipeline(Struct, frozen=True):
    """Commands that feed one another; a hidden pipeline has no visible output."""

    stages: tuple[SimpleCommand | CommandGroup, ...]
    hidden: bool = False
    conditional: bool = False  # it may not run, depending on others


class ParseBudget:
    """Remaining parse work, shared by all walkers of one text."""

    def __init__(self) -> None:
        self.steps = MAX_COMMANDS
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise UnreadableCommand("it is nested too deeply")

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def step(self) -> None:
        """Count one command."""
        self.steps -= 1
        if self.steps < 0:
            raise UnreadableCommand("it has too many commands")


def join_quoted(words: Sequence[ShellWord]) -> ShellWord:
    """Join the pieces of one quoted word."""
    return ShellWord("".join(word.text for word in words), all(word.certain for word in words))


def join_words(words: Sequence[ShellWord]) -> ShellWord:
    """Join adjacent pieces; a brace expansion among them makes several words."""
    whole = join_quoted(words)
    glob = any(word.glob or word.text == "{" for word in words)
    return ShellWord(whole.text, whole.certain, glob)


_ESCAPE = lazy_compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = lazy_compile(r'\\(["\\$`]|\n)')
_GLOB = lazy_compile(r"(?<!\\)[*?\[{]")


def node_text(node: Node) -> str:
    """The text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


class WordExpander(ABC):
    """Expands words with the current folder and the variables set so far."""

    def __init__(self, cwd: str | None) -> None:
        self.cwd = cwd
        self.values: dict[str, ShellWord] = {}

    @abstractmethod
    def hide(self, nodes: Iterable[Node]) -> None:
        """Walk commands inside a word: they run, but their output is not visible."""

    def words(self, node: Node) -> tuple[ShellWord, ...]:
        """The words of one argument; an unquoted variable may become several words or none."""
        word = self.word(node)
        if node.type in ("simple_expansion", "expansion") and word.certain:
            return tuple(
                ShellWord(part, glob=bool(_GLOB.search(part))) for part in word.text.split()
            )
        return (word,)

    def word(self, node: Node) -> ShellWord:
        """One argument, with the text that is known."""
        kind = node.type
        if kind in ("word", "number", "variable_name", "special_variable_name", "regex"):
            text = node_text(node)
            plain = _ESCAPE.sub(r"\1", text) if "\\" in text else text
            return ShellWord(plain, glob=_GLOB.search(text) is not None)
        if kind == "raw_string":
            return ShellWord(node_text(node)[1:-1])
        if kind == "string":
            return self._string(node)
        if kind == "concatenation":
            return join_words([self.word(child) for child in node.named_children])
        if kind in ("simple_expansion", "expansion"):
            return self._value(node)
        return self._unsure(node)

    def _string(self, node: Node) -> ShellWord:
        if all(child.type == "string_content" for child in node.named_children):
            return ShellWord(_QUOTED_ESCAPE.sub(r"\1", node_text(node)[1:-1]))
        parts: list[ShellWord] = []
        source, start = node.text or b"", node.start_byte
        end = start + 1
        for child in node.named_children:
            between = source[end - start : child.start_byte - start]
            parts.append(ShellWord(between.decode("utf-8", "replace")))
            whole = child.type == "string_content"
            parts.append(ShellWord(node_text(child)) if whole else self.word(child))
            end = child.end_byte
        return join_quoted(parts)

    def _value(self, node: Node) -> ShellWord:
        """The value of a variable, if the text sets it."""
        named = node.named_children
        if len(named) != 1 or len(node.children) > (2 if node.type == "simple_expansion" else 3):
            return self._unsure(node)
        name = node_text(named[0])
        if name == "PWD" and self.cwd not in (None, UNKNOWN_FOLDER):
            return ShellWord(self.cwd or "")
        if name == "HOME" and name not in self.values:
            return ShellWord("~")
        return self.values.get(name, ShellWord("", certain=False))

    def _unsure(self, node: Node) -> ShellWord:
        """An uncertain word; the commands in it still run."""
        if node.type in ("command_substitution", "process_substitution"):
            self.hide(node.named_children)
        elif node.type == "ansi_c_string":
            return ShellWord(_ESCAPE.sub(r"\1", node_text(node)[2:-1]))
        else:
            for child in node.named_children:
                self.word(child)
        return ShellWord("", certain=False)


MAX_HEREDOCS: Final = 200  # each makes the parser scan the rest of the text
MAX_EXPORTED: Final = 100  # exported variables remembered by name

_QUESTION_PROGRAMS: Final = (
    "test",
    "[",
    "grep",
    "egrep",
    "rg",
    "which",
    "command",
    "diff",
    "cmp",
    "false",
)
_QUOTES = ("'", '"', "\\")
_BACKTICKS = lazy_compile(r"\\.|`((?:[^`\\]|\\.)*)`", re.DOTALL)


def parse_command(text: str, cwd: str | None = None) -> tuple[Pipeline, ...]:
    """The pipelines of a command, in order.
    Raises `UnreadableCommand` for other text.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_COMMAND_BYTES or data.count(b"<<") > MAX_HEREDOCS:
        raise UnreadableCommand("it is too long")
    walker = _Walker(cwd)
    walker.block(parse_shell(data).named_children)
    return tuple(walker.pipelines)


def _is_question(node: Node) -> bool:
    """Check whether a statement only yields an answer: a test, or a search."""
    while node.type in ("negated_command", "list") and node.named_children:
        node = node.named_children[-1]
    name = node.child_by_field_name("name") if node.type == "command" else None
    return node.type == "test_command" or (
        name is not None and node_text(name) in _QUESTION_PROGRAMS
    )


class _Walker(WordExpander):
    """Walks a syntax tree as a shell would, and collects its pipelines."""

    def __init__(self, cwd: str | None) -> None:
        super().__init__(cwd)
        self.functions: dict[str, Node] = {}
        self.exported: tuple[str, ...] = ()
        self.pipelines: list[Pipeline] = []
        self.budget = ParseBudget()

    def branch(self) -> _Walker:
        """A copy of this walker that leaves this one unchanged."""
        twin = _Walker(self.cwd)
        twin.values = self.values.copy()
        twin.functions = self.functions.copy()
        twin.exported = self.exported
        twin.budget = self.budget
        return twin

    def merge(self, branch: _Walker) -> None:
        """Continue after a branch that may have run: what it changed is uncertain."""
        self.pipelines += branch.pipelines
        for name, value in branch.values.items():
            if self.values.get(name) != value:
                self.values[name] = ShellWord("", certain=False)
        self.functions |= branch.functions
        self.exported = branch.exported
        if branch.cwd != self.cwd:
            self.cwd = UNKNOWN_FOLDER

    def block(self, nodes: Iterable[Node]) -> None:
        """Walk statements in sequence."""
        for node in nodes:
            self.statement(node)

    def statement(self, node: Node) -> None:
        """Walk any node that can stand in place of a command."""
        read = _STATEMENTS.get(node.type)
        if read is None:
            raise UnreadableCommand(f"{node.type} is not understood")
        with self.budget:
            read(self, node)

    def add(self, stages: Sequence[SimpleCommand | CommandGroup], hidden: bool = False) -> None:
        """Add a pipeline."""
        if stages:
            self.pipelines.append(Pipeline(tuple(stages), hidden))

    def stages_of(self, node: Node) -> tuple[SimpleCommand | CommandGroup, ...]:
        """The stages of a statement inside a pipeline, which runs in a subshell."""
        branch = self.branch()
        branch.statement(node)
        self.pipelines += [one for one in branch.pipelines if one.hidden]
        shown = tuple(one for one in branch.pipelines if not one.hidden)
        alone = len(shown) == 1 and not shown[0].conditional
        return shown[0].stages if alone else (CommandGroup(shown, self.cwd),)

    def hide(self, nodes: Iterable[Node]) -> None:
        """Walk commands inside a word: they run, but their output is not visible."""
        branch = self.branch()
        branch.block(nodes)
        self.pipelines += [replace(one, hidden=True) for one in branch.pipelines]

    def command(self, node: Node) -> None:
        """Walk a simple command; apply `cd`, and walk the body of a function."""
        words: list[ShellWord] = []
        redirects: list[Redirect] = []
        input_text: str | None = None
        env = list(self.exported)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assigned_value(child)
                env.append(node_text(child).partition("=")[0])
            elif child.type == "command_name":
                words += self.words(child.named_children[0])
            elif child.type == "file_redirect":
                redirects += self.redirect(child, words)
            elif child.type == "herestring_redirect":
                input_text = self.word(child.named_children[-1]).text
            else:
                words += self.words(child)
        if not words and node.child_by_field_name("name"):
            words.append(ShellWord("", certain=False))
        if words:
            self._run(
                SimpleCommand(
                    words=tuple(words),
                    cwd=self.cwd,
                    redirects=tuple(redirects),
                    text=input_text,
                    env=tuple(env),
                )
            )

    def _run(self, simple: SimpleCommand) -> None:
        self.budget.step()
        name = simple.words[0].text
        if name in self.functions:
            self._function(name)
            return
        self.add([simple])
        if name in ("cd", "pushd", "popd"):
            self.cwd = self._folder_after_cd(simple.words)
        elif name in ("read", "mapfile", "readarray", "getopts", "eval", "source", "."):
            self.values = dict.fromkeys(self.values, ShellWord("", certain=False))
        for word in simple.words[1:] if name == "read" else ():
            self.values[word.text] = ShellWord("", certain=False)

    def _function(self, name: str) -> None:
        """Walk a function's body once, with unknown arguments."""
        branch = self.branch()
        body = branch.functions.pop(name)
        branch.block([body])
        self.merge(branch)

    def _folder_after_cd(self, words: Sequence[ShellWord]) -> str | None:
        """The folder after a `cd`."""
        given = [word for word in words[1:] if word.text not in ("-P", "-L", "--", "-e")]
        if words[0].text != "cd" or len(given) > 1:
            return UNKNOWN_FOLDER
        if not given:
            return "~"
        word = given[0]
        if not word.certain or word.glob or word.text in ("-", ""):
            return UNKNOWN_FOLDER
        if self.cwd == UNKNOWN_FOLDER and not is_absolute(word.text):
            return UNKNOWN_FOLDER
        return normalize(word.text, self.cwd)

    def _assigned_value(self, node: Node) -> ShellWord:
        """The value of an assignment; its substitutions run even if it is not kept."""
        value = node.child_by_field_name("value")
        if value is None:
            return ShellWord("")
        if value.type == "array":
            for child in value.named_children:
                self.word(child)
            return ShellWord("", certain=False)
        return self.word(value)

    def assignment(self, node: Node) -> None:
        """Apply `NAME=value`."""
        target = node.child_by_field_name("name")
        value = self._assigned_value(node)
        plain = target is not None and target.type == "variable_name"
        appends = any(child.type == "+=" for child in node.children)
        if target is not None:
            self.values[node_text(target)] = (
                value if plain and not appends else ShellWord("", certain=False)
            )

    def declaration(self, node: Node) -> None:
        """Apply the assignments in `export`, `local` and `declare`."""
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assignment(child)
        if node.children[0].type == "export":
            names = (node_text(child).partition("=")[0] for child in node.named_children)
            self.exported = (*self.exported, *names)[-MAX_EXPORTED:]

    def redirect(self, node: Node, words: list[ShellWord]) -> list[Redirect]:
        """One redirection; the grammar nests the words after it as more destinations."""
        descriptor, operator, found = "", "", list[ShellWord]()
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = node_text(child)
            elif not child.is_named:
                operator = child.type
            else:
                found += [self.word(child)]
        words += found[1:]
        to_stream = operator in (">&", "<&") and found and re.fullmatch(r"\d*-?", found[0].text)
        return [] if to_stream or not found else [Redirect(operator, found[0], descriptor)]

    def redirected_statement(self, node: Node) -> None:
        """Walk a statement with redirections, which belong to its last command."""
        body = node.child_by_field_name("body")
        before = len(self.pipelines)
        if body is not None:
            self.statement(body)
        redirects: list[Redirect] = []
        more: list[ShellWord] = []
        input_text: str | None = None
        rest: list[Callable[[], None]] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                redirects += self.redirect(child, more)
            elif child.type == "herestring_redirect":
                input_text = self.word(child.named_children[-1]).text
            elif child.type == "heredoc_redirect":
                input_text = self._heredoc(child, redirects, more, rest)
        self._attach(before, tuple(redirects), tuple(more), input_text)
        for read in rest:
            read()

    def _heredoc(
        self,
        node: Node,
        redirects: list[Redirect],
        more: list[ShellWord],
        rest: list[Callable[[], None]],
    ) -> str:
        """The body of a here-document; the grammar nests the rest of its first line inside."""
        body, quoted = "", False
        for child in node.named_children:
            match child.type:
                case "heredoc_body":
                    body = node_text(child)
                    self._expanded(child, "" if quoted else body)
                case "file_redirect":
                    redirects += self.redirect(child, more)
                case "heredoc_start":
                    quoted = any(delimiter in node_text(child) for delimiter in _QUOTES)
                case "heredoc_end" | "comment":
                    pass
                case "pipeline":
                    rest.append(lambda child=child: self._pipe_on(child))
                case _ if node.child_by_field_name("right") == child:
                    rest.append(lambda child=child: self.statement(child))
                case _:
                    more.append(self.word(child))
        return body

    def _expanded(self, node: Node, text: str) -> None:
        """Walk the substitutions in a here-document; the grammar misses its backticks."""
        for one in node.named_children:
            if one.type == "command_substitution":
                self.hide(one.named_children)
        for found in _BACKTICKS.finditer(text) if "`" in text else ():
            script = (found[1] or "").encode("utf-8", "surrogatepass")
            self.hide(parse_shell(script).named_children)

    def _pipe_on(self, node: Node) -> None:
        """Add the stages after a here-document to the command it feeds."""
        producer = self.pipelines.pop()
        stages = [stage for child in node.named_children for stage in self.stages_of(child)]
        self.pipelines.append(replace(producer, stages=(*producer.stages, *stages)))

    def _attach(
        self,
        before: int,
        redirects: tuple[Redirect, ...],
        more: tuple[ShellWord, ...],
        input_text: str | None,
    ) -> None:
        """Attach redirections to the last command added since `before`."""
        at = self._last_shown(before)
        if at is None:
            self.add([SimpleCommand((ShellWord(":"),), self.cwd, redirects, input_text)])
            return
        last = self.pipelines.pop(at)
        stage = last.stages[-1]
        redirects = (*stage.redirects, *redirects)
        input_text = stage.text if input_text is None else input_text
        if isinstance(stage, SimpleCommand):
            stage = SimpleCommand(
                words=(*stage.words, *more),
                cwd=stage.cwd,
                redirects=redirects,
                text=input_text,
                env=stage.env,
            )
        else:
            stage = CommandGroup(stage.pipelines, stage.cwd, redirects, input_text)
        self.pipelines.append(replace(last, stages=(*last.stages[:-1], stage)))

    def _last_shown(self, before: int) -> int | None:
        """The position of the last pipeline that is not part of a word."""
        places = range(len(self.pipelines) - 1, before - 1, -1)
        return next((at for at in places if not self.pipelines[at].hidden), None)

    def pipeline(self, node: Node) -> None:
        """Walk commands joined by `|`; of a list before it, only the last is fed."""
        first, *others = node.named_children
        body = first.child_by_field_name("body") if first.type == "redirected_statement" else first
        before = len(self.pipelines)
        stages: list[SimpleCommand | CommandGroup] = []
        if body is not None and body.type == "list":
            self.statement(first)
            at = self._last_shown(before)
            stages += self.pipelines.pop(at).stages if at is not None else ()
        else:
            stages += self.stages_of(first)
        self.add([*stages, *(stage for child in others for stage in self.stages_of(child))])

    def command_list(self, node: Node) -> None:
        """Walk `a && b`, which runs both unless `a` only tests, or `a
        b`, which may not run `b`.
        """
        operator = next((child.type for child in node.children if not child.is_named), "&&")
        first, *others = node.named_children
        self.statement(first)
        run = self._conditional if operator == "||" or _is_question(first) else self.statement
        for other in others:
            run(other)

    def _conditional(self, node: Node) -> None:
        branch = self.branch()
        branch.statement(node)
        branch.pipelines = [replace(one, conditional=True) for one in branch.pipelines]
        self.merge(branch)

    def block_statement(self, node: Node) -> None:
        """Walk a block that runs in the current shell."""
        if any(child.type == "((" for child in node.children):
            self.test(node)
            return
        self._run_group(node.named_children, self)

    def subshell(self, node: Node) -> None:
        """Walk a block whose variables and folder end with it."""
        branch = self.branch()
        self._run_group(node.named_children, branch)

    def _run_group(self, nodes: Iterable[Node], walker: _Walker) -> None:
        before, cwd = walker.pipelines, walker.cwd
        walker.pipelines = []
        walker.block(nodes)
        found, walker.pipelines = walker.pipelines, before
        self._add_group(found, cwd)

    def _add_group(self, found: Sequence[Pipeline], cwd: str | None) -> None:
        self.pipelines += [one for one in found if one.hidden]
        self.add([CommandGroup(tuple(one for one in found if not one.hidden), cwd)])

    def branches(self, node: Node) -> None:
        """Walk `if` and `case`: the condition runs, each branch may run."""
        before, cwd = self.pipelines, self.cwd
        self.pipelines = []
        for child in node.named_children:
            if child.type in _STATEMENTS:
                self._conditional(child)
            else:
                self.word(child)
        found, self.pipelines = self.pipelines, before
        self._add_group(found, cwd)

    def while_loop(self, node: Node) -> None:
        """Walk `while` and loops over unknown words: what the body sets is uncertain."""
        statements = [child for child in node.named_children if child.type in _STATEMENTS]
        trial = self.branch()
        trial.block(statements)
        trial.pipelines.clear()
        self.merge(trial)
        before = len(self.pipelines)
        self._run_group(statements, self)
        self.pipelines[before:] = [
            replace(one, conditional=True) for one in self.pipelines[before:]
        ]

    def for_loop(self, node: Node) -> None:
        """Walk `for`, unrolled if all its words are known."""
        name = node.child_by_field_name("variable")
        values = [w for one in node.children_by_field_name("value") for w in self.words(one)]
        body = [child for child in node.named_children if child.type == "do_group"]
        known = 0 < len(values) <= 40 and all(word.certain and not word.glob for word in values)
        if name is None or not known:
            self.values[node_text(name) if name is not None else ""] = ShellWord("", certain=False)
            self.while_loop(node)
            return
        branch = self.branch()
        for value in values:
            branch.values[node_text(name)] = value
            branch.block(body)
        found, branch.pipelines = branch.pipelines, []
        cwd = self.cwd
        self.merge(branch)
        self._add_group(found, cwd)

    def function(self, node: Node) -> None:
        """Store a function definition; it runs nothing."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[node_text(name)] = body

    def test(self, node: Node) -> None:
        """Walk the substitutions in `[ … ]`."""
        for child in node.named_children:
            self._scan_substitutions(child)

    def _scan_substitutions(self, node: Node) -> None:
        if node.type == "command_substitution":
            self.hide(node.named_children)
            return
        for child in node.named_children:
            self._scan_substitutions(child)

    def ignore(self, node: Node) -> None:
        """Skip a comment, or a statement like `unset`."""


_STATEMENTS: Final[dict[str, Callable[[_Walker, Node], None]]] = {
    "command": _Walker.command,
    "redirected_statement": _Walker.redirected_statement,
    "pipeline": _Walker.pipeline,
    "list": _Walker.command_list,
    "compound_statement": _Walker.block_statement,
    "do_group": lambda walk, node: walk.block(node.named_children),
    "else_clause": lambda walk, node: walk.block(node.named_children),
    "elif_clause": lambda walk, node: walk.block(node.named_children),
    "case_item": lambda walk, node: walk.block(
        child for child in node.named_children if child.type in _STATEMENTS
    ),
    "subshell": _Walker.subshell,
    "if_statement": _Walker.branches,
    "case_statement": _Walker.branches,
    "while_statement": _Walker.while_loop,
    "c_style_for_statement": _Walker.while_loop,
    "for_statement": _Walker.for_loop,
    "function_definition": _Walker.function,
    "negated_command": lambda walk, node: walk.block(node.named_children),
    "variable_assignment": _Walker.assignment,
    "variable_assignments": _Walker.declaration,
    "declaration_command": _Walker.declaration,
    "test_command": _Walker.test,
    "unset_command": _Walker.ignore,
    "comment": _Walker.ignore,
}
