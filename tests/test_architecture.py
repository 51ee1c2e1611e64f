"""The house holds: imports point one way, the core does no I/O, and what exists is documented."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import respool
from respool.edits import REASONS
from respool.policy import SETTINGS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "respool"
DOCS = ROOT / "docs"
MODULES = sorted(SOURCE.rglob("*.py"))

# Each module may import from the rows above its own. A new module needs a place here first.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "media", "models", "searching", "transcript"}),
    frozenset({"edits", "presets", "prices", "ranges", "tokens"}),
    frozenset({"codecs", "facts", "marker", "registered", "tools", "touching"}),
    frozenset({"binding", "check", "ledger", "policy", "shapes"}),
    frozenset({"limits", "loops", "protections", "recent", "summaries"}),
    frozenset({"forecast", "repair", "settings"}),
    frozenset({"passes"}),
    frozenset({"planning"}),
    frozenset({"folding"}),
    frozenset({"rendering", "report", "rows"}),
    frozenset({"projection"}),
    frozenset({"engine"}),
    frozenset({"fallback", "overrun"}),
    frozenset({"api"}),
    frozenset({"__init__"}),
    frozenset({"drawing", "integrations", "sessions", "store"}),
    frozenset({"dashboard", "mcp_server", "replay"}),
    frozenset({"proxy"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
# Within these rooms too: each file may import from those named before it.
ORDER = {
    "ledger": ("__init__", "failures", "numbering", "lines", "ledger"),
    "planning": ("__init__", "choosing", "rates", "marking", "planner", "tracing", "vetting"),
    "folding": (
        "__init__", "mimicry", "originals", "refetching", "state", "memo", "noting", "room",
        "evaluating", "advising", "fold",
    ),
}  # fmt: skip
# And the proxy's rooms: each may import from those before it.
PROXY_ROOMS = ("forwarding", "answers", "compacting", "watching")
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}

# Who knows less than their row would let them.
KNOWS_ONLY = {
    "codecs": {"edits", "errors", "media", "models", "transcript"},
    "check": {"codecs", "errors", "media", "models", "transcript"},
    "repair": {"check", "codecs", "errors", "media", "models", "transcript"},
    "tools": {"errors", "ranges"},
    "planning.choosing": {"edits", "touching", "transcript"},
    "planning.planner": {"binding", "edits", "planning", "touching", "transcript"},
}

# Imports inside a function, against the direction, each for its one reason.
LATE = {
    ("policy", "passes"),  # a policy names passes, and passes read the policy
    ("policy", "settings"),  # Policy.load is where people look for it, and reading files is I/O
}

EDGE = {"cli", "dashboard", "drawing", "integrations", "mcp_server", "proxy", "replay", "sessions"}
EDGE |= {"settings", "store"}
OUTSIDE = frozenset(
    """
    asyncio datetime fileinput glob http io logging multiprocessing os pathlib random secrets
    select shutil signal socket sqlite3 ssl subprocess tempfile time urllib uuid
    """.split()  # noqa: SIM905 - reads better
)
MAY = {("engine", "secrets")}  # the memo's keys are this process's own, and never leave it
CORE_NEEDS = {"bpe_openai", "msgspec", "rs_bpe", "tree_sitter", "tree_sitter_bash", "xxhash"}
IO_CALLS = {"breakpoint", "eval", "exec", "input", "open", "print"}

FACE = {"Facts", "LoopDetector", "Policy", "Tool", "Tools"}
FACE |= {"apply", "check", "compact", "expand", "plan", "repair"}

CODE = re.compile(r"[ACRG]\d+a?")


def house_name(path: Path) -> str:
    """The name a module has in the house: its file, or the folder it lives in."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def full_name(path: Path) -> str:
    """The name a module has within respool, its folder's included."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, absolute, and whether it does so inside a function."""
    package = ("respool", *path.relative_to(SOURCE).parts[:-1])
    yield from _imports(ast.parse(path.read_text("utf-8")), package, False)


def _imports(node: ast.AST, package: tuple[str, ...], late: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return  # for the type checker only; nothing is imported when it runs
    if isinstance(node, ast.Import):
        yield from ((alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        target = ".".join((*base, *([node.module] if node.module else [])))
        yield from ((_resolved(target, alias.name), late) for alias in node.names)
    inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, inside)


def _resolved(target: str, name: str) -> str:
    """`from . import edits` imports respool.edits; `from .edits import Edit` does too."""
    return f"{target}.{name}" if target == "respool" and name in RANK else target


def within(module: str) -> str | None:
    """The house name of an imported module of respool; None for one that is not respool's."""
    parts = module.split(".")
    if parts[0] != "respool":
        return None
    return parts[1] if len(parts) > 1 else "__init__"


def known_in_source(pattern: str) -> set[str]:
    """The string literals in these files that look like codes of rules."""
    found = {
        node.value
        for path in SOURCE.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in found if CODE.fullmatch(text)}


def words_of(name: str) -> set[str]:
    """The words of a document that stand there as code."""
    return set(re.findall(r"`([^`\n]+)`", (DOCS / name).read_text("utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
class TestEachModule:
    def test_has_a_place_in_the_house(self, path: Path):
        assert house_name(path) in RANK, "give it a row in LAYERS"

    def test_imports_point_one_way(self, path: Path):
        me = house_name(path)
        against = [
            f"{me} imports {module}"
            for module, late in imports(path)
            if (other := within(module)) is not None
            and other != me
            and not RANK[other] < RANK[me]
            and not (late and (me, other) in LATE)
        ]
        assert against == []

    def test_imports_point_one_way_within_a_room(self, path: Path):
        room, _, me = full_name(path).partition(".")
        if room not in ORDER:
            return
        before = {f"respool.{room}.{name}" for name in ORDER[room][: ORDER[room].index(me)]}
        inside = {module for module, _ in imports(path) if module.startswith(f"respool.{room}.")}
        assert inside <= before

    def test_imports_point_one_way_between_the_rooms_of_the_proxy(self, path: Path):
        room = full_name(path).removeprefix("proxy.").partition(".")[0]
        if house_name(path) != "proxy" or room not in PROXY_ROOMS:
            return
        later = PROXY_ROOMS[PROXY_ROOMS.index(room) + 1 :]
        above = tuple(f"respool.proxy.{name}" for name in (*later, "app", "assembling", "running"))
        assert [module for module, _ in imports(path) if module.startswith(above)] == []

    def test_knows_only_what_it_should(self, path: Path):
        known = {other for module, _ in imports(path) if (other := within(module))}
        for me in {house_name(path), full_name(path)} & set(KNOWS_ONLY):
            assert known - {me} <= KNOWS_ONLY[me]

    def test_the_core_does_no_io(self, path: Path):
        me = house_name(path)
        if me in EDGE:
            return
        roots = {module.split(".")[0] for module, _ in imports(path)}
        assert {root for root in roots & OUTSIDE if (me, root) not in MAY} == set()
        assert roots - sys.stdlib_module_names - CORE_NEEDS - {"respool"} == set()
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call)
        ]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert names & IO_CALLS == set()

    def test_can_be_read_in_one_sitting(self, path: Path):
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 500
        functions = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        too_long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 60]
        assert too_long == []


def test_a_pass_is_one_file_with_one_public_function_of_the_same_name():
    from respool.passes import PASSES

    for offer in PASSES:
        assert offer.__module__ == f"respool.passes.{offer.__name__}"
        tree = ast.parse((SOURCE / "passes" / f"{offer.__name__}.py").read_text("utf-8"))
        public = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
        assert public == [offer.__name__]


def test_all_is_sorted_and_complete():
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    bound = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
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
            importlib.import_module(module.name)
    assert [name for name in FACE if not callable(getattr(respool, name))] == []


@pytest.mark.parametrize("folder", ["check", "repair"])
def test_every_code_of_a_rule_is_documented(folder: str):
    codes = known_in_source(f"{folder}/*.py")
    assert codes, "no codes found: did they move?"
    assert codes - words_of("problems.md") == set()


def test_every_reason_is_documented():
    assert REASONS
    assert set(REASONS) - words_of("reasons.md") == set()


def test_every_setting_is_documented():
    names = {setting.name for setting in SETTINGS}
    variables = {setting.variable for setting in SETTINGS if setting.variable}
    assert (names | variables) - words_of("settings.md") == set()


def test_every_dependency_is_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"].values()
    extras = project["project"]["optional-dependencies"].values()
    listed = [project["project"]["dependencies"], *groups, *extras]
    wanted = [line for group in listed for line in group]
    names = {re.split(r"[ ;<>=!~\[]", line)[0] for line in wanted}
    assert names - words_of("dependencies.md") == set()


def test_a_violation_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The judges above can fail: a planted file breaks each rule, and they say so."""
    planted = tmp_path / "edits.py"
    planted.write_text("from . import cli\nfrom .folding.state import State\nimport os\n")
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    judge = TestEachModule()
    for rule in (judge.test_imports_point_one_way, judge.test_the_core_does_no_io):
        with pytest.raises(AssertionError):
            rule(planted)
