"""The public module for users' passes: complete, documented, and enough for an example package."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import respool
from respool import Policy, passes
from respool.passes import PASSES, View
from tests.support.formats import FORMATS, Exchange, request

EXAMPLE = Path(__file__).parent / "example_pass" / "acme_passes.py"
PAGE = (Path(__file__).parents[2] / "docs" / "operate" / "extending.md").read_text("utf-8")
PUBLIC = {"respool", "respool.passes"}
LOCK = "\n".join(f'name = "package-{number}"\nversion = "1.{number}"' for number in range(60))
NAMES = ("stub_lock_files", "drop_empty_searches")


def rows(header: str) -> dict[str, str]:
    """The table of the page with this header: its names, without arguments, and their lines."""
    found = re.search(rf"^\| {re.escape(header)} \| \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
    assert found is not None, header
    cells = [line.strip("|\n ").split(" | ", 1) for line in found[1].splitlines()]
    return {name.strip("`").partition("(")[0]: said for name, said in cells}


MODULE, VIEW = rows("in `respool.passes`"), rows("of a `View`")


def used_attributes(tree: ast.AST, of: str) -> set[str]:
    """The attributes that code reads of the name `of`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == of
    }


def imported_names(tree: ast.AST) -> dict[str, set[str]]:
    """By absolute module: the names that code imports from it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name: set() for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known = found.setdefault("." * node.level + (node.module or ""), set())
            known.update(alias.name for alias in node.names)
    return found


def examples() -> dict[str, ast.Module]:
    """The example package, and the first block of the page."""
    first = re.search(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert first is not None
    return {"package": ast.parse(EXAMPLE.read_text("utf-8")), "page": ast.parse(first[1])}


def test_all_is_sorted_and_complete() -> None:
    tree = ast.parse(inspect.getsource(passes))
    own = {offer_pass.__name__ for offer_pass in PASSES}
    bound = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert sorted(passes.__all__) == passes.__all__
    assert set(passes.__all__) == bound - own | {"OPT_IN", "PASSES", "Pass"}
    assert all(hasattr(passes, name) for name in passes.__all__)


def test_what_the_types_of_public_names_mention_is_public() -> None:
    """A user can annotate all that a documented attribute or a field returns."""
    types = {
        word
        for name in set(passes.__all__) - {"Policy"}  # whose page is another
        for text in getattr(getattr(passes, name), "__annotations__", {}).values()
        for word in re.findall(r"\b[A-Z]\w+", str(text))
    }
    for name in VIEW:
        shown = vars(View).get(name)
        inner: Any = getattr(shown, "func", shown)
        if inspect.isfunction(inner):
            returned = inspect.get_annotations(inner).get("return", "")
            types |= set(re.findall(r"\b[A-Z]\w+", str(returned)))
    plain = {"Any", "Callable", "None", "Mapping", "Sequence", "BlockPath", "Literal", "Phase"}
    internal = {"State", "Context"}  # of the fields of View that are not documented
    assert types - plain - internal - set(passes.__all__) == set()


def test_each_name_has_a_line_on_the_page() -> None:
    assert sorted(MODULE) == passes.__all__
    assert [name for name, said in (MODULE | VIEW).items() if not said.endswith(".")] == []


def test_each_documented_attribute_of_a_view_exists() -> None:
    public = {name for name in (*vars(View), *View.__struct_fields__) if not name.startswith("_")}
    assert set(VIEW) - public == set()
    assert public - set(VIEW), "some attributes are for respool alone"
    calls = {name for name in VIEW if f"`{name}(" in PAGE.partition("| of a `View` |")[2]}
    assert calls == {name for name in VIEW if inspect.isfunction(vars(View).get(name))}


@pytest.mark.parametrize("name", ["package", "page"])
def test_an_example_uses_only_what_is_public(name: str) -> None:
    tree = examples()[name]
    imports = imported_names(tree)
    own = {module for module in imports if module not in sys.stdlib_module_names | {"__future__"}}
    assert own - {"collections.abc"} == PUBLIC
    assert imports["respool.passes"] <= set(passes.__all__)
    assert used_attributes(tree, "respool") <= set(respool.__all__)
    used = used_attributes(tree, "view")
    assert len(used) >= 6
    assert used - set(VIEW) == set()


def test_a_private_import_or_attribute_is_seen() -> None:
    tree = ast.parse("from respool.passes.base import View\nview.state.take(view.ledger)")
    assert imported_names(tree).keys() - PUBLIC == {"respool.passes.base"}
    assert used_attributes(tree, "view") - set(VIEW) == {"state", "ledger"}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[ModuleType]:
    """The example package, installed as pip would leave it."""
    shutil.copy(EXAMPLE, tmp_path)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    points = "".join(f"{name} = acme_passes:{name}\n" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[respool.passes]\n{points}")
    before = sys.modules.pop("acme_passes", None)
    sys.path.insert(0, str(tmp_path))
    Policy(passes=NAMES)
    yield sys.modules["acme_passes"]
    sys.path.remove(str(tmp_path))
    del sys.modules["acme_passes"]
    if before is not None:
        sys.modules["acme_passes"] = before


def session(format: str) -> dict[str, Any]:
    """A lock file, a search without hits, and later work."""
    steps = [
        [Exchange(LOCK, id="lock", tool="Read", args={"file_path": "/w/uv.lock"})],
        [Exchange("No matches found", id="none", tool="Grep", args={"pattern": "lost_thread"})],
        *([Exchange(f"built {number}", id=f"make_{number}")] for number in range(4)),
    ]
    return request(format, "go", *steps)


@pytest.mark.parametrize("format", FORMATS)
def test_the_example_package_runs_by_the_names_of_its_entry_points(
    installed: ModuleType, format: str
) -> None:
    policy = Policy(
        passes=NAMES, keep_exchanges=2, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True
    )
    assert policy.passes == tuple(getattr(installed, name) for name in NAMES)
    out = respool.compact(session(format), format=format, policy=policy, memo=None)
    assert out.report.failures == {}
    assert {edit.reason for edit in out.report.edits} == {"lock_file", "empty_search"}
    assert LOCK in out.originals.values()
    assert respool.check(out.request, format=format) == []
    assert respool.compact(out.request, format=format, policy=policy).report.edits == ()
