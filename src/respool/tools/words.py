"""The words of shell text: what each becomes, as far as the text tells it.

What it does not tell (the value of a variable, what a command printed) makes a word unsure, never
wrong.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .script import UNKNOWN, Word, joined, together

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\(["\\$`]|\n)')
_GLOB = re.compile(r"(?<!\\)[*?\[{]")


def text_of(node: Node) -> str:
    """The text that a node stands for."""
    return (node.text or b"").decode("utf-8", "replace")


class Words(ABC):
    """Reads words, knowing the folder and the variables that the text has set so far."""

    def __init__(self, cwd: str | None) -> None:
        self.cwd = cwd
        self.values: dict[str, Word] = {}

    @abstractmethod
    def hide(self, nodes: Iterable[Node]) -> None:
        """Commands inside a word: they run, but what they print is not seen as such."""

    def words(self, node: Node) -> tuple[Word, ...]:
        """What one argument becomes; an unquoted variable may become several words or none."""
        word = self.word(node)
        if node.type in ("simple_expansion", "expansion") and word.certain:
            return tuple(Word(part, glob=bool(_GLOB.search(part))) for part in word.text.split())
        return (word,)

    def word(self, node: Node) -> Word:
        """One argument, as far as the text tells it."""
        kind = node.type
        if kind in ("word", "number", "variable_name", "special_variable_name", "regex"):
            text = text_of(node)
            plain = _ESCAPE.sub(r"\1", text) if "\\" in text else text
            return Word(plain, glob=_GLOB.search(text) is not None)
        if kind == "raw_string":
            return Word(text_of(node)[1:-1])
        if kind == "string":
            return self._string(node)
        if kind == "concatenation":
            return joined([self.word(child) for child in node.named_children])
        if kind in ("simple_expansion", "expansion"):
            return self._value(node)
        return self._unsure(node)

    def _string(self, node: Node) -> Word:
        if all(child.type == "string_content" for child in node.named_children):
            return Word(_QUOTED_ESCAPE.sub(r"\1", text_of(node)[1:-1]))
        parts: list[Word] = []
        source, start = node.text or b"", node.start_byte
        end = start + 1
        for child in node.named_children:
            between = source[end - start : child.start_byte - start]
            parts.append(Word(between.decode("utf-8", "replace")))
            whole = child.type == "string_content"
            parts.append(Word(text_of(child)) if whole else self.word(child))
            end = child.end_byte
        return together(parts)

    def _value(self, node: Node) -> Word:
        """What a variable holds, where the text says so."""
        named = node.named_children
        if len(named) != 1 or len(node.children) > (2 if node.type == "simple_expansion" else 3):
            return self._unsure(node)
        name = text_of(named[0])
        if name == "PWD" and self.cwd not in (None, UNKNOWN):
            return Word(self.cwd or "")
        if name == "HOME" and name not in self.values:
            return Word("~")
        return self.values.get(name, Word("", certain=False))

    def _unsure(self, node: Node) -> Word:
        """Something the text does not decide; the commands in it run all the same."""
        if node.type in ("command_substitution", "process_substitution"):
            self.hide(node.named_children)
        elif node.type == "ansi_c_string":
            return Word(_ESCAPE.sub(r"\1", text_of(node)[2:-1]))
        else:
            for child in node.named_children:
                self.word(child)
        return Word("", certain=False)
