"""Tasks of SWE-bench, and the lists of them that code-compression-bench publishes.

Of an instance these fields are used: `instance_id`, `repo`, `base_commit`, `problem_statement`. The
answers (`patch`, `test_patch`, `hints_text`) are never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REPO = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_FIELDS = ("instance_id", "repo", "base_commit", "problem_statement")


class TaskError(ValueError):
    """A file of tasks cannot be used; the message names the line and the field."""


class Task(Struct, frozen=True):
    """One issue of a repository at a commit."""

    id: str
    repo: str  # owner/name
    commit: str
    problem: str

    @property
    def folder(self) -> str:
        """The name of its clone: owner__name."""
        return self.repo.replace("/", "__")


def load_tasks(path: Path, only: Collection[str] | None = None) -> list[Task]:
    """Read instances of SWE-bench from lines of JSON; `only` names those that are taken."""
    found: dict[str, Task] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.strip():
            task = _task(line, f"{path.name}, line {number}")
            if task.id in found:
                raise TaskError(f"{path.name}, line {number}: {task.id} is there twice.")
            found[task.id] = task
    if only is None:
        return list(found.values())
    missing = [id for id in only if id not in found]
    if missing:
        raise TaskError(f"{path.name} has no {', '.join(missing[:5])}.")
    return [found[id] for id in only]


def _task(line: str, place: str) -> Task:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{place}: this is no JSON: {error}.") from None
    if not isinstance(value, dict):
        raise TaskError(f"{place}: this is no instance.")
    fields = cast("dict[str, Any]", value)
    for name in _FIELDS:
        if not isinstance(fields.get(name), str) or not fields[name].strip():
            raise TaskError(f"{place}: {name} is missing, or is no text.")
    # They become names of folders and arguments of git.
    for name, form in (("instance_id", _ID), ("repo", _REPO), ("base_commit", _COMMIT)):
        if not form.fullmatch(fields[name]) or ".." in fields[name]:
            raise TaskError(f"{place}: {name} is {fields[name]!r}, which is none.")
    return Task(*(fields[name] for name in _FIELDS))


def load_ids(path: Path) -> list[str]:
    """Read a list of code-compression-bench: the `instances` of its tasks*.json."""
    value: Any = json.loads(path.read_text("utf-8"))
    held = cast("dict[str, Any]", value).get("instances") if isinstance(value, dict) else value
    return list(_ids(held, path.name))


def _ids(held: object, name: str) -> Iterator[str]:
    if not isinstance(held, list) or not held:
        raise TaskError(f"{name}: there is no list of instances.")
    for one in cast("list[Any]", held):
        id = cast("dict[str, Any]", one).get("instance_id") if isinstance(one, dict) else one
        if not isinstance(id, str):
            raise TaskError(f"{name}: {one!r} is no instance.")
        yield id
