"""The house holds: imports point one way, the core does no I/O, and what exists is documented.

One test a rule, over files that are parsed once; a failure lists all offenders. The table below
is all that knows where a module stands.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

import respool
from respool.edits import REASONS
from respool.integrations.requirement import MissingFramework
from respool.policy import SETTINGS

# By package, "" for the whole: each row may import from the rows before its own. A module of the
# whole needs a row; within a package, one without a row may be imported and import as it likes.
LAYERS: dict[str, tuple[str, ...]] = {
    "": (
        "errors accelerator cache_scope lru_map pauses plugins regex transcript",
        "line_search model_names native_library",
        "wire",
        "media",
        "edits facts markers tokens tools",
        "policy shapes",
        "config history pricing",
        "forecast providers summaries",
        "limits loops",
        "passes",
        "compaction",
        "report",
        "engine",
        "api",
        "aio",
        "__init__",
        "testing",
        "pages sessions store",
        "batch",
        "hooks",
        "dashboard mcp_server replay",
        "proxy",
        "integrations",
        "agents",
        "cli",
        "__main__",
    ),
}  # fmt: skip
# Within these, every file needs a row.
COMPLETE = {""}
# Rooms that know less than their row would let them.
KNOWS_ONLY = {
    "wire": "errors providers regex transcript",
    "tools": "cache_scope errors regex",
    "compaction.conflicts": "edits transcript",
    # Through `engine.Session` alone; the others hold values, not steps of the pipeline.
    "proxy": (
        "dashboard edits engine errors facts lru_map markers pauses plugins policy pricing regex"
        " sessions store tools wire"
    ),
}
# Imports inside a function, against the direction, each for its one reason.
LATE = {
    ("policy", "passes"),  # a policy names passes, and passes read the policy
    ("wire", "providers"),  # a format is its provider's, and whoever asks for one needs them all
    ("accelerator", "native_library"),  # ctypes is slow to import, and needed with a library only
    ("policy", "config"),  # Policy.load is where people look for it, and reading files is I/O
}
# Who may reach outside: all others are the core.
EDGE = {"agents", "aio", "cli", "config", "dashboard", "mcp_server", "pages", "proxy", "replay"}
EDGE |= {"batch", "hooks", "integrations", "sessions", "store"}
MAY = {
    ("accelerator", "os"),  # one variable of the process, which changes no projection
    ("accelerator", "pathlib"),  # a library is a file
    ("engine", "secrets"),  # the memo's keys are this process's own, and never leave it
    ("pricing", "datetime"),  # prices are listed by the day
}
ALONE = {"agents.forwarder"}  # run as a file, by an interpreter that need not have respool
# The packages in which codes of rules are string literals.
RULES = ("providers",)

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "respool"
DOCS = ROOT / "docs"
MOST_LINES = 1_000  # of a file
MOST_FUNCTION_LINES = 60
RANKS = {
    package: {name: rank for rank, row in enumerate(rows) for name in row.split()}
    for package, rows in LAYERS.items()
}
OUTSIDE = frozenset(
    """
    asyncio datetime fileinput glob http io logging multiprocessing os pathlib random secrets
    select shutil signal socket sqlite3 ssl subprocess tempfile time urllib uuid
    """.split()  # noqa: SIM905 - reads better
)
CORE_NEEDS = {"bpe_openai", "msgspec", "rs_bpe", "tree_sitter", "tree_sitter_bash", "xxhash"}
CORE_NEEDS |= {"genai_prices"}  # a snapshot on disk, loaded with the first price
IO_CALLS = {"breakpoint", "eval", "exec", "input", "open", "print"}

FACE = {"Facts", "LoopDetector", "Policy", "Tool", "Tools"}
FACE |= {"apply", "check", "compact", "expand", "plan", "repair"}

CODE = re.compile(r"[ACRG]\d+a?")


@dataclass(frozen=True)
class Module:
    """A file of the package, parsed once. `parts` is its name within respool."""

    parts: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    @property
    def room(self) -> str:
        """The file's name, or that of the folder below respool that it is in."""
        return self.parts[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[tuple[tuple[str, ...], bool]]:
        """Every module that it imports, absolute, and whether it does so inside a function."""
        return list(_imports(self.tree, ("respool", *self.parts[:-1]), False))

    @property
    def own_imports(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Those of respool, by their names within it."""
        for target, late in self.imports:
            if target[0] == "respool":
                yield target[1:] or ("__init__",), late


@cache
def modules() -> tuple[Module, ...]:
    files = sorted(SOURCE.rglob("*.py"))
    return tuple(
        Module(file.relative_to(SOURCE).with_suffix("").parts, file.read_text("utf-8"))
        for file in files
    )


@cache
def names() -> frozenset[tuple[str, ...]]:
    """Every module and package of respool."""
    return frozenset(one.parts[:end] for one in modules() for end in range(1, len(one.parts) + 1))


def _imports(
    node: ast.AST, package: tuple[str, ...], late: bool
) -> Iterator[tuple[tuple[str, ...], bool]]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return  # for the type checker only; nothing is imported when it runs
    if isinstance(node, ast.Import):
        yield from ((tuple(alias.name.split(".")), late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        target = (*base, *(node.module.split(".") if node.module else ()))
        for alias in node.names:  # `from . import edits` and `from .edits import Edit` are alike
            inner = (*target, alias.name)
            yield (inner if inner[1:] in names() else target), late
    inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, inside)


# The rules: each says what is wrong with a module.
Rule = Callable[[Module], Iterable[str]]


def has_no_place(one: Module) -> Iterator[str]:
    for package in COMPLETE:
        inside = _inside(one.parts, package)
        if inside is not None and inside not in RANKS[package]:
            yield f"has no row in LAYERS[{package!r}]"


def imports_against_the_direction(one: Module) -> Iterator[str]:
    for target, late in one.own_imports:
        for package, ranks in RANKS.items():
            me, other = _inside(one.parts, package), _inside(target, package)
            if me is None or other is None or me == other or me not in ranks:
                continue
            if other in ranks and ranks[other] >= ranks[me] and not (late and (me, other) in LATE):
                yield f"imports {'.'.join(target)}"


def _inside(parts: tuple[str, ...], package: str) -> str | None:
    """The name that a module has in a package, by its folder there; None if it is not in it."""
    if not package:
        return parts[0]
    return parts[1] if parts[0] == package and len(parts) > 1 else None


def knows_too_much(one: Module) -> Iterator[str]:
    for me in {one.room, one.name} & KNOWS_ONLY.keys():
        known = {target[0] for target, _ in one.own_imports}
        for other in sorted(known - {me} - set(KNOWS_ONLY[me].split())):
            yield f"knows {other}"


def reaches_outside(one: Module) -> Iterator[str]:
    if one.room in EDGE:
        return
    roots = {target[0] for target, _ in one.imports}
    for root in sorted(roots & OUTSIDE):
        if (one.room, root) not in MAY:
            yield f"imports {root}"
    for root in sorted(roots - sys.stdlib_module_names - CORE_NEEDS - {"respool"}):
        yield f"imports {root}"
    calls = (node.func for node in one.nodes if isinstance(node, ast.Call))
    for called in calls:
        if isinstance(called, ast.Name) and called.id in IO_CALLS:
            yield f"calls {called.id} in line {called.lineno}"


def compiles_at_import(one: Module) -> Iterator[str]:
    """Patterns outside functions are made by `regex.lazy_compile`."""
    if one.name in ALONE:
        return
    inside = {
        id(node)
        for function in one.nodes
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in one.nodes:
        if not isinstance(node, ast.Attribute) or id(node) in inside:
            continue
        if ast.unparse(node) == "re.compile":
            yield f"compiles a pattern at its import, in line {node.lineno}"


def is_too_long(one: Module) -> Iterator[str]:
    count = len(one.text.splitlines())
    if count > MOST_LINES:
        yield f"has {count} lines"


def has_a_function_that_is_too_long(one: Module) -> Iterator[str]:
    for node in one.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or 0) - node.lineno
            if count >= MOST_FUNCTION_LINES:
                yield f"{node.name} has {count} lines"


def offenders(rule: Rule, among: Iterable[Module]) -> str:
    """All that break a rule, a line each."""
    return "\n".join(f"{one.name}: {what}" for one in among for what in rule(one))


def nobody(rule: Rule) -> None:
    """No module of the package breaks a rule."""
    if found := offenders(rule, modules()):
        pytest.fail(found, pytrace=False)


def test_every_module_has_a_place_in_the_house():
    nobody(has_no_place)


def test_imports_point_one_way():
    nobody(imports_against_the_direction)


def test_modules_know_only_what_they_should():
    nobody(knows_too_much)


def test_the_core_does_no_io():
    nobody(reaches_outside)


def test_no_pattern_is_compiled_at_an_import():
    nobody(compiles_at_import)


def test_no_file_is_too_long():
    nobody(is_too_long)


def test_no_function_is_too_long():
    nobody(has_a_function_that_is_too_long)


def test_the_tables_name_only_what_exists():
    """A module that moves takes its rows with it."""
    rows = {(*filter(None, [package]), one) for package in RANKS for one in RANKS[package]}
    known = {tuple(name.split(".")) for name in KNOWS_ONLY}
    known |= {(one,) for row in KNOWS_ONLY.values() for one in row.split()}
    edge = {(name,) for name in (*EDGE, *RULES)} | {tuple(name.split(".")) for name in ALONE}
    assert {".".join(one) for one in (rows | known | edge) - names()} == set()


def planted() -> Iterator[tuple[Rule, str, str]]:
    """By rule: a module that breaks it, made of what the tables say."""
    low, beside, *_ = LAYERS[""][0].split()
    top = LAYERS[""][-2].split()[0]
    yield has_no_place, "unheard_of", ""
    for package in COMPLETE - {""}:
        yield has_no_place, f"{package}.unheard_of", ""
    for text in (
        f"from . import {top}",
        f"from .{top} import name",
        f"import respool.{top}.inner",
        f"def late():\n    import respool.{top}",
        f"from .{beside} import name",
    ):
        yield imports_against_the_direction, low, text
    for package, (first, *_, last) in LAYERS.items():
        if package:
            other = last.split()[0]
            for text in (f"from .{other} import name", f"from . import {other}"):
                yield imports_against_the_direction, f"{package}.{first.split()[0]}", text
            deep = f"{package}.{first.split()[0]}.inner"
            yield imports_against_the_direction, deep, f"from ..{other} import name"
    for name in KNOWS_ONLY:
        yield knows_too_much, name, f"import respool.{top}"
    for text in ("import os", "def late():\n    from pathlib import Path", "import click"):
        yield reaches_outside, low, text
    yield reaches_outside, f"{low}.inner", "open('a')"
    yield compiles_at_import, low, "import re\nPATTERN = re.compile('a')"
    yield is_too_long, low, "\n" * (MOST_LINES + 1)
    long = "def long():" + "\n    pass" * MOST_FUNCTION_LINES
    yield has_a_function_that_is_too_long, low, long


def test_a_violation_is_seen():
    """The rules can fail: each is broken by a planted module, and says which one it is."""
    unseen = [
        f"{rule.__name__}: {name}: {text}"
        for rule, name, text in planted()
        if not offenders(rule, [Module(tuple(name.split(".")), text)]).startswith(f"{name}: ")
    ]
    assert unseen == []


def test_what_is_no_violation_is_not_seen():
    low, top = LAYERS[""][0].split()[0], LAYERS[""][-2].split()[0]
    typed = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .{top} import name\n"
    sound = {low: typed, f"{top}.inner": "import os\nopen('a')"}
    sound |= {me: f"def late():\n    from .{other} import name" for me, other in LATE}
    for name, text in sound.items():
        for rule in (imports_against_the_direction, reaches_outside):
            assert offenders(rule, [Module(tuple(name.split(".")), text)]) == ""


def codes_of(package: str) -> set[str]:
    """The string literals in this package's files that look like codes of rules."""
    found = {
        node.value
        for one in modules()
        if one.room == package
        for node in one.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in found if CODE.fullmatch(text)}


def words_of(name: str) -> set[str]:
    """The words of a document that stand there as code."""
    return set(re.findall(r"`([^`\n]+)`", (DOCS / "reference" / name).read_text("utf-8")))


PASS_ARGUMENTS = "view: View, policy: Policy"


def test_a_pass_is_one_file_with_one_public_function_of_the_same_name():
    from respool.passes import PASSES

    for offer in PASSES:
        assert offer.__module__ == f"respool.passes.{offer.__name__}"
        tree = ast.parse((SOURCE / "passes" / f"{offer.__name__}.py").read_text("utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        public = [node for node in functions if not node.name.startswith("_")]
        passes = [node.name for node in public if ast.unparse(node.args) == PASS_ARGUMENTS]
        assert passes == [offer.__name__]


def test_all_is_sorted_and_complete():
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    bound = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "respool")
        for alias in node.names
    }
    public = {name for name in bound if not name.startswith("_")}
    names = list(respool.__all__)
    assert names == sorted(names)
    assert set(names) - {"__version__"} == public
    assert set(names) >= FACE
    assert all(hasattr(respool, name) for name in names)


def test_public_functions_outlive_the_import_of_modules_that_share_their_name():
    """A function and a module of one name: loading the module late must not replace it."""
    for module in pkgutil.walk_packages(respool.__path__, "respool."):
        if not module.name.endswith("__main__"):
            with suppress(MissingFramework):  # an adapter whose framework is not installed here
                importlib.import_module(module.name)
    assert [name for name in FACE if not callable(getattr(respool, name))] == []


def test_every_code_of_a_rule_is_documented():
    for package in RULES:
        codes = codes_of(package)
        assert codes, f"no codes found in {package}: did they move?"
        assert codes - words_of("problems.md") == set()


def test_every_reason_is_documented():
    assert REASONS
    assert set(REASONS) - words_of("reasons.md") == set()


def test_every_setting_is_documented():
    names = {setting.name for setting in SETTINGS}
    assert names - words_of("settings.md") == set()


def test_every_dependency_is_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"].values()
    extras = project["project"]["optional-dependencies"].values()
    listed = [project["project"]["dependencies"], *groups, *extras]
    wanted = [line for group in listed for line in group if isinstance(line, str)]
    names = {re.split(r"[ ;<>=!~\[]", line)[0] for line in wanted}
    assert names - words_of("dependencies.md") == set()
