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
from clew.marker import MOST, UNITS, Marker, Short, is_hole, parse_marker

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
    named = set(re.findall(r"`([a-z0-9_/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
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
    assert {type(parse_marker(line)) for line in shown} == {Marker, Short}
    holes = [line for line in lines if line.startswith("[… ")]
    assert len(holes) >= 2
    assert all(is_hole(line) for line in holes)


def test_the_grammar_shown_is_the_one_that_is_parsed():
    """Every line that the EBNF derives parses, and it names every unit and every fixed word."""
    text = (ROOT / "docs" / "markers.md").read_text("utf-8")
    rules = _rules(re.search(r"```ebnf\n(.*?)```", text, re.DOTALL)[1])  # type: ignore[index]
    assert re.findall(r'"([^"]+)"', rules["unit"]) == list(UNITS)
    whole = {name: re.compile(_as_regex(rules, name)) for name in ("marker", "hole")}
    lines = [line for line in text.splitlines() if line.startswith(("[clew: ", "[… "))]
    for line in lines:
        assert (parse_marker(line) is not None) == (whole["marker"].fullmatch(line) is not None)
        assert is_hole(line) == (whole["hole"].fullmatch(line) is not None)
        for at in range(len(line)):
            for wrong in (line[:at] + line[at + 1 :], f"{line[:at]};{line[at:]}"):
                found = whole["marker"].fullmatch(wrong) is not None
                assert (parse_marker(wrong) is not None) == found, wrong
                assert is_hole(wrong) == (whole["hole"].fullmatch(wrong) is not None), wrong


def _rules(ebnf: str) -> dict[str, str]:
    bare = re.sub(r"\(\* (?:1 to|and|commas).*?\*\)", lambda found: _bounds(found[0]), ebnf)
    split = (rule.partition("=") for rule in re.split(r";(?=\s*(?:<\d+>)?\s*\n)", bare))
    return {name.split()[-1]: body for name, _, body in split if name.strip()}


def _bounds(comment: str) -> str:
    found = re.search(r"1 to (\d+)", comment)
    return f"<{found[1]}>" if found else "<..>" if "and so on" in comment else ""


def _as_regex(rules: dict[str, str], name: str) -> str:
    """The regular expression that a rule stands for; none of them refers to itself."""
    ranges = {"lower": "[a-z]", "upper": "[A-Z]", "digit": "[0-9]"}
    bounds = {"number": 15, "name": 48, "why": 90}
    if name in ranges:
        return ranges[name]
    if name in bounds:
        inner = {"number": "figure", "name": "sign", "why": "said"}[name]
        return f"(?:{_as_regex(rules, inner)}){{1,{bounds[name]}}}"
    found = ""
    for token in re.findall(r'"[^"]*"|\w+|[^\s\w]', re.sub(r"<[^>]*>", "", rules[name])):
        if token.startswith('"'):
            found += re.escape(token[1:-1])
        elif token.isdigit() or token in ",*":
            continue
        elif token in "[(":
            found += "(?:"
        elif token in "])|":
            found += {"]": ")?", ")": ")", "|": "|"}[token]
        else:
            found += f"(?:{_as_regex(rules, token)})"
    return f"(?:{found}){{20}}" if name == "reference" else f"(?:{found})"
