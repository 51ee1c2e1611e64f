"""Shell commands, parsed: pipelines of simple commands with their words, in the order they run.

What the text alone decides is settled here: quotes, variables that the text sets, `cd`, loops over
words, functions. What it does not decide (the value of a variable, what a command printed) makes
a word unsure, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from .grammar import parsed
from .paths import is_absolute, normal
from .script import (
    LONGEST,
    UNKNOWN,
    Budget,
    Group,
    Pipeline,
    Redirect,
    Simple,
    Unreadable,
    Word,
)
from .words import Words, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_HEREDOCS: Final = 200  # each makes the parser look through the rest
MOST_EXPORTED: Final = 100  # variables that are remembered by name

_QUESTIONS: Final = ("test", "[", "grep", "egrep", "rg", "which", "command", "diff", "cmp", "false")
_QUOTES = ("'", '"', "\\")
_BACKTICKS = re.compile(r"\\.|`((?:[^`\\]|\\.)*)`", re.DOTALL)


def parse(text: str, cwd: str | None = None) -> tuple[Pipeline, ...]:
    """The pipelines of a command, in order; raises Unreadable for what is no command."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > LONGEST or data.count(b"<<") > MOST_HEREDOCS:
        raise Unreadable("it is too long")
    root = parsed(data).root_node
    if root.has_error:
        raise Unreadable("it is not valid shell")
    walk = _Walk(cwd)
    walk.block(root.named_children)
    return tuple(walk.pipelines)


def _asks(node: Node) -> bool:
    """Whether a statement is there for its answer: a test, or a search for something."""
    while node.type in ("negated_command", "list") and node.named_children:
        node = node.named_children[-1]
    name = node.child_by_field_name("name") if node.type == "command" else None
    return node.type == "test_command" or (name is not None and text_of(name) in _QUESTIONS)


class _Walk(Words):
    """Runs through a tree as a shell would, and notes each pipeline."""

    def __init__(self, cwd: str | None) -> None:
        super().__init__(cwd)
        self.functions: dict[str, Node] = {}
        self.exported: tuple[str, ...] = ()
        self.pipelines: list[Pipeline] = []
        self.budget = Budget()

    def branch(self) -> _Walk:
        """A walk from here that leaves this one as it is."""
        twin = _Walk(self.cwd)
        twin.values = self.values.copy()
        twin.functions = self.functions.copy()
        twin.exported = self.exported
        twin.budget = self.budget
        return twin

    def merge(self, branch: _Walk) -> None:
        """Go on after something that may have run: what it changed is not sure any more."""
        self.pipelines += branch.pipelines
        for name, value in branch.values.items():
            if self.values.get(name) != value:
                self.values[name] = Word("", certain=False)
        self.functions |= branch.functions
        self.exported = branch.exported
        if branch.cwd != self.cwd:
            self.cwd = UNKNOWN

    def block(self, nodes: Iterable[Node]) -> None:
        """Statements, one after another."""
        for node in nodes:
            self.statement(node)

    def statement(self, node: Node) -> None:
        """Whatever can stand where a command can."""
        read = _STATEMENTS.get(node.type)
        if read is None:
            raise Unreadable(f"{node.type} is not understood")
        with self.budget:
            read(self, node)

    def add(self, stages: Sequence[Simple | Group], hidden: bool = False) -> None:
        """Note a pipeline."""
        if stages:
            self.pipelines.append(Pipeline(tuple(stages), hidden))

    def stages_of(self, node: Node) -> tuple[Simple | Group, ...]:
        """A statement inside a pipeline: it runs apart, and what it leaves is its stage."""
        branch = self.branch()
        branch.statement(node)
        self.pipelines += [one for one in branch.pipelines if one.hidden]
        shown = tuple(one for one in branch.pipelines if not one.hidden)
        alone = len(shown) == 1 and not shown[0].conditional
        return shown[0].stages if alone else (Group(shown, self.cwd),)

    def hide(self, nodes: Iterable[Node]) -> None:
        """Commands inside a word: they run, but what they print is not seen as such."""
        branch = self.branch()
        branch.block(nodes)
        self.pipelines += [replace(one, hidden=True) for one in branch.pipelines]

    def command(self, node: Node) -> None:
        """A simple command; `cd` is carried out, a function is run through."""
        words: list[Word] = []
        redirects: list[Redirect] = []
        fed: str | None = None
        env = list(self.exported)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assigned_value(child)
                env.append(text_of(child).partition("=")[0])
            elif child.type == "command_name":
                words += self.words(child.named_children[0])
            elif child.type == "file_redirect":
                redirects += self.redirect(child, words)
            elif child.type == "herestring_redirect":
                fed = self.word(child.named_children[-1]).text
            else:
                words += self.words(child)
        if not words and node.child_by_field_name("name"):
            words.append(Word("", certain=False))
        if words:
            self._run(Simple(tuple(words), self.cwd, tuple(redirects), fed, tuple(env)))

    def _run(self, simple: Simple) -> None:
        self.budget.step()
        name = simple.words[0].text
        if name in self.functions:
            self._function(name)
            return
        self.add([simple])
        if name in ("cd", "pushd", "popd"):
            self.cwd = self._folder_after_cd(simple.words)
        elif name in ("read", "mapfile", "readarray", "getopts", "eval", "source", "."):
            self.values = dict.fromkeys(self.values, Word("", certain=False))
        for word in simple.words[1:] if name == "read" else ():
            self.values[word.text] = Word("", certain=False)

    def _function(self, name: str) -> None:
        """Run a function's body once, without knowing its arguments."""
        branch = self.branch()
        body = branch.functions.pop(name)
        branch.block([body])
        self.merge(branch)

    def _folder_after_cd(self, words: Sequence[Word]) -> str | None:
        """The folder after a `cd`."""
        given = [word for word in words[1:] if word.text not in ("-P", "-L", "--", "-e")]
        if words[0].text != "cd" or len(given) > 1:
            return UNKNOWN
        if not given:
            return "~"
        word = given[0]
        if not word.certain or word.glob or word.text in ("-", ""):
            return UNKNOWN
        if self.cwd == UNKNOWN and not is_absolute(word.text):
            return UNKNOWN
        return normal(word.text, self.cwd)

    def _assigned_value(self, node: Node) -> Word:
        """The value in an assignment, for its substitutions run even where it is not kept."""
        value = node.child_by_field_name("value")
        if value is None:
            return Word("")
        if value.type == "array":
            for child in value.named_children:
                self.word(child)
            return Word("", certain=False)
        return self.word(value)

    def assignment(self, node: Node) -> None:
        """`NAME=value` on its own: it holds from here on."""
        target = node.child_by_field_name("name")
        value = self._assigned_value(node)
        plain = target is not None and target.type == "variable_name"
        appends = any(child.type == "+=" for child in node.children)
        if target is not None:
            self.values[text_of(target)] = value if plain and not appends else Word("", certain=False)

    def declaration(self, node: Node) -> None:
        """`export`, `local`, `declare`: the assignments in it."""
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assignment(child)
        if node.children[0].type == "export":
            names = (text_of(child).partition("=")[0] for child in node.named_children)
            self.exported = (*self.exported, *names)[-MOST_EXPORTED:]

    def redirect(self, node: Node, words: list[Word]) -> list[Redirect]:
        """One redirection; the grammar puts words that follow it inside, as more destinations."""
        descriptor, operator, found = "", "", list[Word]()
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = text_of(child)
            elif not child.is_named:
                operator = child.type
            else:
                found += [self.word(child)]
        words += found[1:]
        to_stream = operator in (">&", "<&") and found and re.fullmatch(r"\d*-?", found[0].text)
        return [] if to_stream or not found else [Redirect(operator, found[0], descriptor)]

    def redirected_statement(self, node: Node) -> None:
        """A statement with redirections: they belong to its last command."""
        body = node.child_by_field_name("body")
        before = len(self.pipelines)
        if body is not None:
            self.statement(body)
        redirects: list[Redirect] = []
        more: list[Word] = []
        fed: str | None = None
        rest: list[Callable[[], None]] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                redirects += self.redirect(child, more)
            elif child.type == "herestring_redirect":
                fed = self.word(child.named_children[-1]).text
            elif child.type == "heredoc_redirect":
                fed = self._heredoc(child, redirects, more, rest)
        self._attach(before, tuple(redirects), tuple(more), fed)
        for read in rest:
            read()

    def _heredoc(
        self,
        node: Node,
        redirects: list[Redirect],
        more: list[Word],
        rest: list[Callable[[], None]],
    ) -> str:
        """A here-document's body; the grammar puts what follows on its first line inside."""
        body, quoted = "", False
        for child in node.named_children:
            match child.type:
                case "heredoc_body":
                    body = text_of(child)
                    self._expanded(child, "" if quoted else body)
                case "file_redirect":
                    redirects += self.redirect(child, more)
                case "heredoc_start":
                    quoted = any(mark in text_of(child) for mark in _QUOTES)
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
        """Run what a here-document's body runs; the grammar does not know backticks in it."""
        for one in node.named_children:
            if one.type == "command_substitution":
                self.hide(one.named_children)
        for found in _BACKTICKS.finditer(text) if "`" in text else ():
            root = parsed((found[1] or "").encode("utf-8", "surrogatepass")).root_node
            if root.has_error:
                raise Unreadable("what stands in backticks is not valid shell")
            self.hide(root.named_children)

    def _pipe_on(self, node: Node) -> None:
        """Stages that follow a here-document, joined to the command that it feeds."""
        producer = self.pipelines.pop()
        stages = [stage for child in node.named_children for stage in self.stages_of(child)]
        self.pipelines.append(replace(producer, stages=(*producer.stages, *stages)))

    def _attach(
        self, before: int, redirects: tuple[Redirect, ...], more: tuple[Word, ...], fed: str | None
    ) -> None:
        """Give redirections to the last command that was noted since `before`."""
        at = self._last_shown(before)
        if at is None:
            self.add([Simple((Word(":"),), self.cwd, redirects, fed)])
            return
        last = self.pipelines.pop(at)
        stage = last.stages[-1]
        redirects = (*stage.redirects, *redirects)
        fed = stage.text if fed is None else fed
        if isinstance(stage, Simple):
            stage = Simple((*stage.words, *more), stage.cwd, redirects, fed, stage.env)
        else:
            stage = Group(stage.pipelines, stage.cwd, redirects, fed)
        self.pipelines.append(replace(last, stages=(*last.stages[:-1], stage)))

    def _last_shown(self, before: int) -> int | None:
        """Where the last pipeline stands that is no part of a word."""
        places = range(len(self.pipelines) - 1, before - 1, -1)
        return next((at for at in places if not self.pipelines[at].hidden), None)

    def pipeline(self, node: Node) -> None:
        """Commands joined by `|`; of a list before it, the grammar's slip, only the last is fed."""
        first, *others = node.named_children
        body = first.child_by_field_name("body") if first.type == "redirected_statement" else first
        before = len(self.pipelines)
        stages: list[Simple | Group] = []
        if body is not None and body.type == "list":
            self.statement(first)
            at = self._last_shown(before)
            stages += self.pipelines.pop(at).stages if at is not None else ()
        else:
            stages += self.stages_of(first)
        self.add([*stages, *(stage for child in others for stage in self.stages_of(child))])

    def command_list(self, node: Node) -> None:
        """`a && b` runs both, unless `a` only asks; `a || b` may not run the second."""
        operator = next((child.type for child in node.children if not child.is_named), "&&")
        first, *others = node.named_children
        self.statement(first)
        run = self._conditional if operator == "||" or _asks(first) else self.statement
        for other in others:
            run(other)

    def _conditional(self, node: Node) -> None:
        branch = self.branch()
        branch.statement(node)
        branch.pipelines = [replace(one, conditional=True) for one in branch.pipelines]
        self.merge(branch)

    def block_statement(self, node: Node) -> None:
        """A block that is run here and now."""
        if any(child.type == "((" for child in node.children):
            self.test(node)
            return
        self._run_group(node.named_children, self)

    def subshell(self, node: Node) -> None:
        """A block whose variables and folder do not outlast it."""
        branch = self.branch()
        self._run_group(node.named_children, branch)

    def _run_group(self, nodes: Iterable[Node], walk: _Walk) -> None:
        before, cwd = walk.pipelines, walk.cwd
        walk.pipelines = []
        walk.block(nodes)
        found, walk.pipelines = walk.pipelines, before
        self._add_group(found, cwd)

    def _add_group(self, found: Sequence[Pipeline], cwd: str | None) -> None:
        self.pipelines += [one for one in found if one.hidden]
        self.add([Group(tuple(one for one in found if not one.hidden), cwd)])

    def branches(self, node: Node) -> None:
        """`if` and `case`: the condition runs, each branch may."""
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
        """`while` and loops over what is not known: what the body sets is not sure inside it."""
        statements = [child for child in node.named_children if child.type in _STATEMENTS]
        trial = self.branch()
        trial.block(statements)
        trial.pipelines.clear()
        self.merge(trial)
        before = len(self.pipelines)
        self._run_group(statements, self)
        self.pipelines[before:] = [replace(one, conditional=True) for one in self.pipelines[before:]]

    def for_loop(self, node: Node) -> None:
        """`for`: unrolled over its words where they are all known."""
        name = node.child_by_field_name("variable")
        values = [w for one in node.children_by_field_name("value") for w in self.words(one)]
        body = [child for child in node.named_children if child.type == "do_group"]
        known = 0 < len(values) <= 40 and all(word.certain and not word.glob for word in values)
        if name is None or not known:
            self.values[text_of(name) if name is not None else ""] = Word("", certain=False)
            self.while_loop(node)
            return
        branch = self.branch()
        for value in values:
            branch.values[text_of(name)] = value
            branch.block(body)
        found, branch.pipelines = branch.pipelines, []
        cwd = self.cwd
        self.merge(branch)
        self._add_group(found, cwd)

    def function(self, node: Node) -> None:
        """A definition runs nothing yet."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[text_of(name)] = body

    def test(self, node: Node) -> None:
        """`[ … ]`: nothing but the substitutions in it."""
        for child in node.named_children:
            self._scan_substitutions(child)

    def _scan_substitutions(self, node: Node) -> None:
        if node.type == "command_substitution":
            self.hide(node.named_children)
            return
        for child in node.named_children:
            self._scan_substitutions(child)

    def ignore(self, node: Node) -> None:
        """A comment, or a word like `unset`."""


_STATEMENTS: Final[dict[str, Callable[[_Walk, Node], None]]] = {
    "command": _Walk.command,
    "redirected_statement": _Walk.redirected_statement,
    "pipeline": _Walk.pipeline,
    "list": _Walk.command_list,
    "compound_statement": _Walk.block_statement,
    "do_group": lambda walk, node: walk.block(node.named_children),
    "else_clause": lambda walk, node: walk.block(node.named_children),
    "elif_clause": lambda walk, node: walk.block(node.named_children),
    "case_item": lambda walk, node: walk.block(
        child for child in node.named_children if child.type in _STATEMENTS
    ),
    "subshell": _Walk.subshell,
    "if_statement": _Walk.branches,
    "case_statement": _Walk.branches,
    "while_statement": _Walk.while_loop,
    "c_style_for_statement": _Walk.while_loop,
    "for_statement": _Walk.for_loop,
    "function_definition": _Walk.function,
    "negated_command": lambda walk, node: walk.block(node.named_children),
    "variable_assignment": _Walk.assignment,
    "variable_assignments": _Walk.declaration,
    "declaration_command": _Walk.declaration,
    "test_command": _Walk.test,
    "unset_command": _Walk.ignore,
    "comment": _Walk.ignore,
}
