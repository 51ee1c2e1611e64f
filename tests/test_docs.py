"""What the documents show and name is what there is."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from clew.cli import main
from clew.edits import REASONS
from clew.marker import MOST, parse_marker

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"^```console\n\$ (?P<command>clew .*)\n(?P<output>[^`]*)^```$", re.MULTILINE)
SHOWN = [
    pytest.param(found["command"], found["output"], id=f"{path.name}: {found['command']}")
    for path in DOCS
    for found in CONSOLE.finditer(path.read_text("utf-8"))
]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)")
CODE = re.compile(r"[ACRG]\d+a?")


def run(pipeline: str) -> str:
    """What a pipeline of clew commands prints, standard error included."""
    output, said = b"", ""
    for command in pipeline.split(" | "):
        name, *arguments = shlex.split(command)
        assert name == "clew"
        result = CliRunner().invoke(main, arguments, input=output)
        output, said = result.stdout_bytes, result.output
    return said


def test_commands_are_shown():
    assert {"clew demo", "clew demo --raw | clew check -"} <= {case.values[0] for case in SHOWN}


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_output_shown_is_real(command: str, shown: str):
    printed = run(command)
    at = 0
    for excerpt in re.split(r"^…\n", shown, flags=re.MULTILINE):
        found = printed.find(excerpt.rstrip("\n"), at)
        assert found >= 0, f"not in the output of {command}:\n{excerpt}"
        at = found + len(excerpt)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path):
    for target, heading in LINK.findall(path.read_text("utf-8")):
        file = path.parent / target
        assert file.exists(), target
        if heading:
            lines = file.read_text("utf-8").splitlines()
            titles = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
            assert heading in {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    wanted = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {target for target, _ in LINK.findall(index)} >= wanted


def test_the_map_names_every_module_and_no_other():
    source = ROOT / "src" / "clew"
    named = set(re.findall(r"`([a-z_/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    empty = {"codecs/__init__.py", "check/__init__.py", "repair/__init__.py"}
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")} - empty
    elsewhere = {name for name in named if (ROOT / name).exists()} | {"formats.py"}
    assert modules - named == set()
    assert named - modules - elsewhere - {"passes/drop_something.py"} == set()


def test_problems_are_exactly_those_of_the_source():
    found = {
        node.value
        for path in (ROOT / "src" / "clew" / "check").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    text = (ROOT / "docs" / "problems.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    assert rows == {code for code in found if CODE.fullmatch(code)}


def test_reasons_are_exactly_those_of_the_source():
    text = (ROOT / "docs" / "reasons.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == set(REASONS)


def test_markers_shown_are_markers():
    lines = (ROOT / "docs" / "markers.md").read_text("utf-8").splitlines()
    shown = [line for line in lines if line.startswith("[clew: ")]
    assert len(shown) >= 3
    for line in shown:
        marker = parse_marker(line)
        assert marker is not None
        assert str(marker) == line
        assert len(line) <= MOST
