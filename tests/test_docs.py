"""Documents: what they show and name exists, and what is generated is current."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import respool
from bench import results
from docs import generate
from respool.cli import main
from respool.cli.demo import load_example
from respool.edits import REASON_SPECS, REASONS
from respool.integrations.requirement import MissingFramework
from respool.markers import (
    MAX_MARKER_CHARS,
    UNITS,
    ClipMarker,
    OmissionMarker,
    is_gap_line,
    parse_marker,
)
from respool.passes import PASSES
from respool.proxy.log import CompactionSummary, LogEntry

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
CONSOLE = re.compile(
    r"^```console\n\$ (?P<command>respool .*)\n(?P<output>[^`]*)^```$", re.MULTILINE
)
SHOWN = [
    pytest.param(found["command"], found["output"], id=f"{path.name}: {found['command']}")
    for path in DOCS
    for found in CONSOLE.finditer(path.read_text("utf-8"))
]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)")
MARKER_PAGES = [ROOT / "docs" / folder / "markers.md" for folder in ("how", "reference")]
CODE = re.compile(r"[ACRG]\d+a?")


def run(pipeline: str) -> str:
    """Output of a pipeline of respool commands, standard error included."""
    output, said = b"", ""
    for command in pipeline.split(" | "):
        name, *arguments = shlex.split(command)
        assert name == "respool"
        result = CliRunner().invoke(main, arguments, input=output)
        output, said = result.stdout_bytes, result.output
    return said


def test_commands_are_shown():
    assert {"respool demo", "respool demo --raw | respool check -"} <= {
        case.values[0] for case in SHOWN
    }


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_output_shown_is_real(command: str, shown: str):
    printed = run(command)
    at = 0
    for excerpt in re.split(r"^…\n", shown, flags=re.MULTILINE):
        found = printed.find(excerpt.rstrip("\n"), at)
        assert found >= 0, f"not in the output of {command}:\n{excerpt}"
        at = found + len(excerpt)


PYTHON = [
    pytest.param(found[1], id=f"{path.name}: {found[1].splitlines()[0]}")
    for path in DOCS
    # Whose blocks go on from one another (test_extending.py), or need frameworks (make frameworks).
    if path.name not in ("extending.md", "frameworks.md")
    for found in re.finditer(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)
]
TOLD = re.compile(r"(?P<code>[^#]+?)\s+# (?P<value>['(].*)")


def test_python_is_shown():
    assert len(PYTHON) >= 6


@pytest.mark.parametrize("block", PYTHON)
def test_python_shown_runs_and_says_what_it_is_shown_to(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each block by itself, beside a request; `expression   # 'value'` is held to its value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "respool.toml").write_text("")
    request = json.loads(load_example())
    ref, text = "bzvio7hfrwv665ltstuw", "the original"
    world: dict[str, Any] = {
        "respool": respool,
        "request": request,
        "ref": ref,
        "tools": respool.Tools(),
    }
    world |= {"send": len, "execute": lambda *_: "printed", "error": False}
    world |= {"name": "Bash", "arguments": {"command": "ls"}}
    monkeypatch.setitem(world, "originals", {ref: text})
    exec(block.replace("respool.expand(ref, out)", "respool.expand(ref, originals)"), world)
    for line in block.splitlines():
        if told := TOLD.fullmatch(line):
            value = eval(told["code"], world)
            assert repr(value) == told["value"] or repr(value) == f"({told['value']})", line


def test_generated_pages_are_not_stale():
    """`python -m docs.generate` writes them."""
    assert [path.name for path in generate.stale_pages()] == []
    assert results.RESULTS.read_text("utf-8") == results.assemble(results.read_sections())


def test_every_generated_block_stands_on_a_page():
    text = "".join(path.read_text("utf-8") for path in PAGES)
    assert set(re.findall(r"<!-- generated: ([\w-]+) -->", text)) == set(generate.BLOCKS)


def test_the_library_s_page_names_all_that_is_public():
    text = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    properties = {name for name, one in vars(respool.Report).items() if isinstance(one, property)}
    names = {*respool.__all__, *respool.Report.__struct_fields__, *properties} - {"tally", "survey"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


def options_of(command: click.Command) -> set[str]:
    """The options of a command, and of the commands in it."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*map(options_of, inner))


def test_options_shown_exist():
    """`respool COMMAND … --option`, wherever a document shows one."""
    shown = [
        (path.name, found[1], option)
        for path in DOCS
        for found in re.finditer(r"\brespool ([a-z]+)\b([^`\n|;#]*)", path.read_text("utf-8"))
        if found[1] in main.commands
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", found[2])
    ]
    assert len(shown) >= 20
    known = {name: options_of(one) for name, one in main.commands.items()}
    assert [one for one in shown if one[2] not in known[one[1]]] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path):
    for target, heading in LINK.findall(path.read_text("utf-8")):
        file = path.parent / target
        assert file.exists(), target
        if heading:
            lines = file.read_text("utf-8").splitlines()
            titles = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
            assert heading in {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def test_every_document_is_in_the_index_and_in_the_navigation():
    folder = ROOT / "docs"
    index = (folder / "index.md").read_text("utf-8")
    wanted = {path.relative_to(folder).as_posix() for path in PAGES} - {"index.md"}
    assert {target for target, _ in LINK.findall(index)} >= wanted
    navigation = (ROOT / "zensical.toml").read_text("utf-8")
    assert set(re.findall(r'"([\w/-]+\.md)"', navigation)) == wanted | {"index.md"}


def test_contributing_names_every_folder_and_stays_short():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+)/`", text))
    source = ROOT / "src" / "respool"
    folders = {path.parent.name for path in source.glob("*/__init__.py")}
    assert folders <= named
    assert len(text.split()) < 1_500


def test_problems_are_exactly_those_of_the_source():
    for folder in ("anthropic", "openai_chat", "openai_responses", "gemini"):
        package = ROOT / "src" / "respool" / "providers" / folder
        used = {
            node.value
            for path in package.glob("*.py")
            for node in ast.walk(_without_specs(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        specs = importlib.import_module(f"respool.providers.{folder}.check").RULE_SPECS
        shared = {"C6"} if folder == "openai_responses" else set()  # described with Chat's
        assert {one.code for one in specs} | shared == {
            code for code in used if CODE.fullmatch(code)
        }


def _without_specs(path: Path) -> ast.Module:
    """A module without the table of its rules, which names every code."""
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if not isinstance(node, ast.AnnAssign | ast.Assign)]
    return tree


def test_headers_are_exactly_those_of_the_source():
    page = (ROOT / "docs" / "operate" / "proxy.md").read_text("utf-8")
    headers = page.partition("## Headers")[2].partition("## ")[0]
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/respool/proxy").rglob("*.py"))
    ours = set(re.findall(r"x-respool-[a-z]+", source)) - {"x-respool-upgrade"}  # stays inside
    assert set(re.findall(r"x-respool-[a-z]+", headers)) == ours


def test_members_of_a_log_line_are_on_the_page():
    page = (ROOT / "docs" / "operate" / "monitoring.md").read_text("utf-8")
    names = {*LogEntry.__struct_fields__, *CompactionSummary.__struct_fields__} - {"started"}
    assert [name for name in sorted(names) if not re.search(rf"[`\"]{name}[`\"]", page)] == []


def test_reasons_are_exactly_those_of_the_source():
    codes = [spec.code for spec in REASON_SPECS]
    assert len(codes) == len(set(codes))
    assert set(codes) == set(REASONS)
    named = {name for spec in REASON_SPECS for name in spec.passes}
    assert named == {offer.__name__ for offer in PASSES}


def test_markers_shown_are_markers():
    lines = "".join(page.read_text("utf-8") for page in MARKER_PAGES).splitlines()
    shown = [line for line in lines if line.startswith("[respool: ")]
    assert len(shown) >= 3
    for line in shown:
        marker = parse_marker(line)
        assert marker is not None
        assert str(marker) == line
        assert len(line) <= MAX_MARKER_CHARS
    assert {type(parse_marker(line)) for line in shown} == {ClipMarker, OmissionMarker}
    holes = [line for line in lines if line.startswith("[… ")]
    assert len(holes) >= 2
    assert all(is_gap_line(line) for line in holes)


def test_the_grammar_shown_is_the_one_that_is_parsed():
    """Every line that the EBNF derives parses, and it names every unit and every fixed word."""
    text = MARKER_PAGES[-1].read_text("utf-8")
    rules = _rules(re.search(r"```ebnf\n(.*?)```", text, re.DOTALL)[1])  # type: ignore[index]
    assert re.findall(r'"([^"]+)"', rules["unit"]) == list(UNITS)
    whole = {name: re.compile(_as_regex(rules, name)) for name in ("marker", "hole")}
    lines = [line for line in text.splitlines() if line.startswith(("[respool: ", "[… "))]
    for line in lines:
        assert (parse_marker(line) is not None) == (whole["marker"].fullmatch(line) is not None)
        assert is_gap_line(line) == (whole["hole"].fullmatch(line) is not None)
        for at in range(len(line)):
            for wrong in (line[:at] + line[at + 1 :], f"{line[:at]};{line[at:]}"):
                found = whole["marker"].fullmatch(wrong) is not None
                assert (parse_marker(wrong) is not None) == found, wrong
                assert is_gap_line(wrong) == (whole["hole"].fullmatch(wrong) is not None), wrong


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
    ranges["said"] = r"[^\[\];\x00-\x1f\x7f]"
    bounds = {"number": 15, "name": 48, "why": 120, "subject": 60}
    if name in ranges:
        return ranges[name]
    if name in bounds:
        inner = {"number": "figure", "name": "sign"}.get(name, "said")
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


def _with_examples() -> list[str]:
    """The modules whose docstrings show examples."""
    source = ROOT / "src"
    files = [file for file in source.rglob("*.py") if ">>> " in file.read_text("utf-8")]
    return sorted(".".join(file.relative_to(source).with_suffix("").parts) for file in files)


@pytest.mark.parametrize("name", _with_examples())
def test_examples_in_docstrings_print_what_they_show(name: str) -> None:
    try:
        module = importlib.import_module(name.removesuffix(".__init__"))
    except MissingFramework:
        return  # `make frameworks` runs it
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
