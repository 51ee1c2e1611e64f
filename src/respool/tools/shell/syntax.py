"""Syntax tree of a shell text, with its here-documents where a shell has them.

The grammar ends a here-document also at a line that is indented or only begins with the delimiter,
and knows no end at the end of the text, where a shell closes what is still open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from threading import local
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ...regex import lazy_compile

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree

_MAX_RENAMED: Final = 3  # delimiters renamed in one text; the parser reads it again for each
_DELIMITER = lazy_compile(
    rb"""(?:'([^'\n]+)'|"([^"\\$`\n]+)"|(\\)?([^\s'"\\$`|&;()<>]+))(?=[ \t\n|&;()<>]|\r\n|\Z)"""
)
_LONG_NAME = lazy_compile(rb"_+")
_PARSERS = local()  # one per thread: parsers are not thread-safe


class UnreadableCommand(ValueError):
    """The text is not a shell command, or is too large to parse."""


class HereDocument(Struct, frozen=True, gc=False):
    """Places of a here-document's delimiter and of its terminator in a shell."""

    delimiter: tuple[int, int]  # with its quotes
    quoted: bool
    terminator: tuple[int, int] | None  # None: it ends with the text
    end: int
    as_parsed: bool  # the syntax tree ends it there too


def parse_shell(data: bytes) -> Node:
    """The root of the tree of a shell text.
    Raises `UnreadableCommand` for other text.

    A delimiter that the grammar does not follow as a shell does gets a name that stands nowhere
    else, and a missing terminator is added. If the tree still ends the here-document elsewhere,
    the text counts as unreadable.
    """
    root = parse_tree(data).root_node
    renamed = set[bytes]()
    found = _misread_document(root, data)
    while found is not None and len(renamed) < _MAX_RENAMED:
        delimiter = _unused_delimiter(data, found.quoted)
        renamed.add(delimiter)
        data = _rename_delimiter(data, found, delimiter)
        root = parse_tree(data).root_node
        found = _misread_document(root, data)
    if root.has_error or found is not None:
        raise UnreadableCommand("it is not valid shell")
    if renamed and not renamed <= {start.text for _, start in _operators(root, data)}:
        raise UnreadableCommand("its here-documents are not understood")
    return root


def parse_tree(data: bytes) -> Tree:
    """The syntax tree of a text, with error nodes where it is not shell."""
    if not hasattr(_PARSERS, "parse"):
        from tree_sitter import Parser

        _PARSERS.parse = Parser(_language()).parse
    return _PARSERS.parse(data)


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _misread_document(root: Node, data: bytes) -> HereDocument | None:
    """The first here-document that the syntax tree ends elsewhere than a shell does."""
    last: HereDocument | None = None
    for operator, start in _operators(root, data):
        last = _here_document(operator, start, data, last)
        if not last.as_parsed:
            return last
    return None


def _operators(root: Node, data: bytes) -> Iterator[tuple[Node, Node]]:
    """Each `<<` and `<<-` with the delimiter behind it."""
    at = data.find(b"<<")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 2)
        start = node.next_sibling if node is not None and node.type in ("<<", "<<-") else None
        if node is not None and start is not None and start.type == "heredoc_start":
            yield node, start
        at = data.find(b"<<", at + (3 if data.startswith(b"<<<", at) else 2))


def _here_document(
    operator: Node, start: Node, data: bytes, last: HereDocument | None
) -> HereDocument:
    """The here-document of an operator; `last` is the one before, perhaps on the same line."""
    found = _DELIMITER.match(data, start.start_byte)
    if found is None or found.end() != start.end_byte:
        raise UnreadableCommand("the delimiter of a here-document is not understood")
    quoted = found[4] is None or found[3] is not None
    line = rb"(" + re.escape(found[1] or found[2] or found[4]) + rb")"
    if operator.type == "<<-":
        line = rb"\t*" + line
    if data.startswith(b"\r", found.end()):
        line += rb"\r"  # a part of the delimiter to a shell
    begin = _line_end(data, found.end())
    if last is not None and _line_end(data, last.delimiter[1]) == begin:
        begin = last.end
    terminator = _find_terminator(data, begin, line, joined=not quoted)
    parent = operator.parent
    ends = [
        (child.start_byte, child.end_byte)
        for child in (parent.children if parent is not None else ())
        if child.type == "heredoc_end"
    ]
    return HereDocument(
        delimiter=found.span(),
        quoted=quoted,
        terminator=terminator,
        end=_line_end(data, terminator[1]) if terminator else len(data),
        as_parsed=ends == [terminator],
    )


def _line_end(data: bytes, at: int) -> int:
    """The place behind the line that goes on at `at`."""
    return data.find(b"\n", at) + 1 or len(data)


def _find_terminator(data: bytes, begin: int, line: bytes, joined: bool) -> tuple[int, int] | None:
    """The place of the first line that is a delimiter; `joined`: a backslash joins lines."""
    # A command substitution may end on the same line.
    found = re.compile(rb"^" + line + rb"(?:\)|$)", re.MULTILINE).search(data, begin)
    if found is None:
        return None
    before = data[begin : max(begin, found.start() - 1)]
    if joined and (len(before) - len(before.rstrip(b"\\"))) % 2:
        raise UnreadableCommand("the terminator of a here-document continues a line")
    return found.span(1)


def _unused_delimiter(data: bytes, quoted: bool) -> bytes:
    """A delimiter that no line of a text begins with."""
    name = b"_" * (max(map(len, _LONG_NAME.findall(data)), default=0) + 1)
    return b"'" + name + b"'" if quoted else name


def _rename_delimiter(data: bytes, document: HereDocument, delimiter: bytes) -> bytes:
    """The text with this delimiter for a here-document, and with a terminator."""
    name = delimiter.strip(b"'")
    first, last = document.delimiter
    begins = data[:first] + delimiter
    if document.terminator is not None:
        start, end = document.terminator
        return begins + data[last:start] + name + data[end:]
    carriage = b"\r" if data.startswith(b"\r", last) else b""
    between = b"" if data.endswith(b"\n") else b"\n"
    return begins + data[last:] + between + name + carriage + b"\n"
