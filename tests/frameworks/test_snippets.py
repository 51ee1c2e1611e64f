"""Snippets for users, which the tests of each framework run; `docs.generate` shows them."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
SNIPPETS = {
    path.stem: path.read_text("utf-8") for path in (DOCS / "snippets" / "frameworks").glob("*.py")
}


def test_every_snippet_compiles_and_stays_short() -> None:
    for name, text in SNIPPETS.items():
        compile(text, name, "exec")
        lines = [line for line in text.splitlines() if line.strip()]
        assert len(lines) <= 24, f"{name}: {len(lines)} lines"
        assert "respool" in text
