"""`respool docs`: pages in the terminal, from the package or a clone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.cli.console import CommandError
from respool.cli.docs import COMMAND_PAGES, docs_folder, find_page, list_pages, page_of_command

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["docs", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_page_is_listed_by_its_title():
    listed = run()
    assert "  start/run                Run an agent through respool\n" in listed
    assert all(f"\n  {page} " in listed for page in list_pages())


@pytest.mark.parametrize(
    ("topic", "page"),
    [
        ("run", "start/run"),
        ("start/run", "start/run"),
        ("docs/start/run.md", "start/run"),
        ("serve", "operate/proxy"),
        ("expand", "how/markers"),
        ("trouble", "operate/troubleshooting"),
        ("how/markers", "how/markers"),
        ("index", "index"),
    ],
)
def test_a_topic_is_a_page_or_a_command(topic: str, page: str):
    assert find_page(topic, list_pages()) == page
    assert run(topic) == (ROOT / "docs" / f"{page}.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("markers", "several pages: how/markers, reference/markers."),
        ("nowhere", "There is no page 'nowhere'; respool docs lists them all."),
        ("../../pyproject", "There is no page"),
        ("", "There is no page"),
    ],
)
def test_another_topic_is_refused_in_a_sentence(topic: str, said: str):
    with pytest.raises(CommandError) as error:
        find_page(topic, list_pages())
    assert said in str(error.value)


def test_every_help_ends_with_a_page_that_exists():
    for name in main.commands:
        said = CliRunner().invoke(main, [name, "--help"], terminal_width=80).stdout
        assert said.endswith(f"\n\n  More: respool docs {page_of_command(name)}\n")
        assert page_of_command(name) in list_pages()
    assert set(COMMAND_PAGES) <= set(main.commands)
    assert "respool docs " in CliRunner().invoke(main, ["--help"]).stdout


def test_no_command_is_described_by_half_a_sentence_in_the_list():
    listed = CliRunner().invoke(main, ["--help"], terminal_width=78).stdout
    assert [line for line in listed.splitlines()[1:] if line.endswith("...")] == []


def test_on_a_terminal_a_page_is_formatted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("respool.cli.docs.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    said = run("troubleshooting")
    assert "**" not in said
    assert max(map(len, said.splitlines())) <= 60


def test_the_wheel_holds_every_page():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    held = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert all(target == f"respool/{source}" for source, target in held.items())
    names = {f"docs/{page}.md" for page in list_pages()}
    assert docs_folder() == ROOT / "docs"  # which is only there in a clone
    missing = {one for one in names if not any(one == h or one.startswith(f"{h}/") for h in held)}
    assert missing == set()
