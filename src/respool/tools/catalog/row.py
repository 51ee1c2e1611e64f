"""One row of the catalog: a declaration, and the arguments by which its tool is recognised."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..declaration import Arguments, Tool

Value = str | None  # None: the argument is missing


class Row(Struct, frozen=True):
    """A declaration for the calls that have these arguments, and in some of them these values."""

    tool: Tool
    needs: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def matches(self, arguments: Arguments) -> bool:
        """Whether a call is one of this row's."""
        return all(name in arguments for name in self.needs) and all(
            arguments.get(name) in values for name, values in self.where
        )


Rows = tuple[Row, ...]
Where = dict[str, tuple[Value, ...]]


def rows(names: str, needs: str = "", where: Where | None = None, **declared: Any) -> Rows:
    """The same row under several names; `needs` lists arguments, the rest is what `Tool` takes."""
    needed, values = tuple(needs.split()), tuple((where or {}).items())
    return tuple(Row(Tool(name, **declared), needed, values) for name in names.split())


def shells(names: str, command: str, workdir: str | None = None, **declared: Any) -> Rows:
    """Tools that run a shell command."""
    needs = command.removesuffix("[]")
    return rows(names, needs, command=command, workdir=workdir, content="log", **declared)


def reads(names: str, path: str, also: str = "", where: Where | None = None, **more: Any) -> Rows:
    """Tools that read a file, a URL or a record."""
    declared: dict[str, Any] = {"kind": "read", "reads": path, "content": "code", **more}
    return rows(names, f"{path} {also}", where, **declared)


def creates(names: str, path: str, also: str, where: Where | None = None, **more: Any) -> Rows:
    """Tools that write a whole file."""
    declared: dict[str, Any] = {"replaces": True, **more}
    return edits(names, path, also, where, **declared)


def edits(names: str, path: str, also: str = "", where: Where | None = None, **more: Any) -> Rows:
    """Tools that change a part of a file."""
    declared: dict[str, Any] = {"kind": "write", "writes": path, "content": "edit", **more}
    return rows(names, f"{path} {also}", where, **declared)


def hits(names: str, needs: str, places: str, where: Where | None = None, **more: Any) -> Rows:
    """Tools that search in files."""
    declared: dict[str, Any] = {"kind": "search", "content": "hits", **more}
    return rows(names, needs, where, reads=tuple(places.split()), **declared)


def lists(names: str, needs: str, places: str, where: Where | None = None, **more: Any) -> Rows:
    """Tools that say what is there."""
    return hits(names, needs, places, where, content="listing", **more)


def agents(names: str, needs: str, target: Any = None) -> Rows:
    """Tools that set another agent to work: it may write anything."""
    return rows(names, needs, kind="run", barrier=True, target=target, content="page")


def talks(names: str, needs: str = "", **more: Any) -> Rows:
    """Tools that reach no file: plans, questions, thoughts."""
    return rows(names, needs, kind="other", **more)
