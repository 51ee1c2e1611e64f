"""Names are spelled only where they decide: the same lines stay as if all were."""

from __future__ import annotations

from random import Random

import pytest

from respool.forecast.features import RESULT_FEATURES, ResultFeatures, result_features
from respool.forecast.line_selection import LineNames, SelectedLines, _OpenLines, select_lines
from respool.forecast.model import Forecast

from .support import IndexedHistory, history_of, result, runs

NAMES = "weave_all warp_count src/loom.py loom.py loom.weave 0x9d3f5c69 0123.5.7 E0277".split()  # noqa: SIM905
STARTS = ("", "", "def one():", "    ", "    ", "        if", "# ", "- ", "src/a.py:7:")
RATE = 1e-3


def page(random: Random) -> str:
    """Lines of code, prose and rows with names of their own, short and long."""
    lines: list[str] = []
    for number in range(random.randint(2, 60)):
        own = [f"name_{number}_{'x' * random.randrange(30)}" for _ in range(random.randrange(3))]
        words = [
            *own,
            *random.choices(NAMES, k=random.randrange(3)),
            "words " * random.randrange(9),
        ]
        lines.append(random.choice(STARTS) + " ".join(words) if random.random() < 0.85 else "")
    return "\n".join(lines)


def cut(random: Random, text: str, history: IndexedHistory) -> list[SelectedLines | None]:
    """What stays of a text as each kind of result, where needs are about as large as costs."""
    found = result_features(result(history), history.transcript, history.ledger, history.mentions)
    assert found is not None
    lines = text.split("\n")
    costs = [RATE / 4 * (1 + len(line)) for line in lines]
    times = random.choice((1, 8))
    whole = [random.random() * cost * (random.random() < 0.3) for cost in costs]
    names = [times * random.random() * cost for cost in costs]
    for at, line in enumerate(lines):
        listed = RATE / 4 * sum(len(one) + 2 for one in line.split() if one.startswith("name_"))
        if random.random() < 0.3:  # a little worth if its names are listed, and only then
            names[at] = 1.05 * listed
            whole[at] = max(0.0, costs[at] - 1.02 * names[at])
    needed = Forecast(whole, names)
    kept: list[SelectedLines | None] = []
    for kind in range(len(RESULT_FEATURES["kind"])):
        one = ResultFeatures(found.words, (kind, *found.bins[1:]), found.owned, found.mentions)
        kept.append(select_lines(text, one, needed, history.mentions, rate=RATE))
    return kept


def test_the_same_lines_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[int] = []
    chars = LineNames.listed_chars
    monkeypatch.setattr(LineNames, "listed_chars", lambda *of: (spelled.append(1), chars(*of))[1])

    def run() -> tuple[list[list[SelectedLines | None]], int]:
        spelled.clear()
        found: list[list[SelectedLines | None]] = []
        for seed in range(150):
            random = Random(seed)
            text = page(random)
            found.append(cut(random, text, history_of(runs("make", text))))
        return found, len(spelled)

    found, few = run()
    monkeypatch.setattr(_OpenLines, "keep_all", lambda *_: False)
    monkeypatch.setattr(
        _OpenLines, "settle", lambda lines, _blocks: lines.settle_lines(tuple(lines._open))
    )
    expected, all_of_them = run()
    assert found == expected
    assert few < 0.8 * all_of_them
