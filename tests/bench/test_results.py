"""bench/RESULTS.md: assembled from recorded sections, whose commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.results import HERE, assemble, read_sections

SECTION = "# A title\n\n<!-- command: make bench -->\n<!-- date: 2026-11-17 -->\n\nFigures.\n"


def test_commands_of_sections_exist():
    commands = [section.command for section in read_sections()]
    modules = {name for command in commands for name in re.findall(r"bench\.(\w+)", command)}
    assert len(modules) >= 5
    assert [name for name in sorted(modules) if not (HERE / f"{name}.py").exists()] == []


def test_sections_are_assembled_in_order(tmp_path: Path):
    (tmp_path / "2.md").write_text(SECTION.replace("A title", "Second"), "utf-8")
    (tmp_path / "1.md").write_text(SECTION, "utf-8")
    page = assemble(read_sections(tmp_path))
    assert "| A title | `make bench` | 2026-11-17 |" in page
    assert page.index("## A title") < page.index("## Second")


def test_a_section_without_a_command_is_refused(tmp_path: Path):
    (tmp_path / "1.md").write_text("# A title\n\nFigures.\n", "utf-8")
    with pytest.raises(ValueError, match=r"1\.md"):
        read_sections(tmp_path)
