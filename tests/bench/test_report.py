"""The report: tables equal the recorded figures, here and in the README."""

from __future__ import annotations

import pytest

from bench.report import (
    BEGIN,
    DATA,
    END,
    README,
    SECTION,
    Cost,
    Drops,
    Proof,
    RepositoryFigures,
    merge,
    read_proof,
    render_readme,
    render_section,
    with_table,
)
from bench.results import RESULTS, assemble, read_sections


def figures(repository: str, dropped: int, **cost: float) -> RepositoryFigures:
    drops = {"0.25": {"respool's forecast": Drops(needs=10, dropped=dropped, size=100, kept=25)}}
    return RepositoryFigures("codex", "o", repository, 1, drops, {"safe": Cost(**cost)})  # type: ignore[arg-type]


def test_the_readme_has_the_recorded_figures():
    page = README.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert with_table(page, render_readme(read_proof())) == page


def test_the_results_have_the_recorded_figures():
    assert SECTION.read_text("utf-8") == render_section(read_proof())
    assert RESULTS.read_text("utf-8") == assemble(read_sections())


def test_a_changed_figure_shows(monkeypatch: pytest.MonkeyPatch):
    proof = read_proof()
    before = render_readme(proof), render_section(proof)
    proof.repositories[0].drops["0.25"]["respool's forecast"].dropped += 5
    assert render_readme(proof) != before[0]
    assert render_section(proof) != before[1]


def test_figures_are_of_owners_that_judge():
    from bench.held_out import JUDGES

    assert DATA.exists()
    assert {one.owner for one in read_proof().repositories} <= set(JUDGES)


def test_sessions_are_summed_by_repository():
    one, two, three = (
        figures("o/a", 1, base=10, all_in=8, requests=4, sessions=1),
        figures("o/a", 4, base=30, all_in=28, requests=6, sessions=1),
        figures("o/b", 0, base=1, all_in=1, requests=1, sessions=1),
    )
    merged = merge([one, three, two])
    assert [(held.repository, held.sessions) for held in merged] == [("o/a", 2), ("o/b", 1)]
    drops = merged[0].drops["0.25"]["respool's forecast"]
    assert (drops.needs, drops.dropped, drops.size) == (20, 5, 200)
    cost = merged[0].costs["safe"]
    assert (cost.base, cost.all_in, cost.requests) == (40, 36, 10)
    assert one.drops["0.25"]["respool's forecast"].dropped == 1  # as it was


def test_a_peer_that_did_not_run_is_named_with_its_reason():
    proof = Proof("2026-11-18", 1, 1, [figures("o/a", 1)], {"headroom": "not installed"})
    assert "- headroom-ai 0.42.0 `compress`: not installed" in render_section(proof)


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="has no"):
        with_table("# A page", "a table")
