"""Fit the forecast to recorded sessions, by owner, and print its scores on other owners.

    python -m bench.fit_forecast [CORPUS] --data FOLDER [--folds FOLDER] [--importance] [--write]

CORPUS (default: ../shared/corpus beside the repository) holds one .jsonl.gz for each agent and
repository. The lines of its results are extracted into the folder --data, one file each, unless
they are there. --folds writes weights for `bench.held_out --weights`: for each fold of the owners
that fit, those of all other folds, and those of all that fit, for the owners that judge; and prints
the scores on owners that the weights have not seen, and what a level by session would add. --write
puts the weights fitted on everything into src/respool/forecast/weights.toml. --importance prints
what each feature and each pair of features contributes. Needs numpy and scikit-learn.

The forecast is a sum of boosted trees of depth two. Each leaf has at most two features, so that
the sum is exactly a table of factors for each feature and for some pairs of features.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import combinations, product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score

from bench.forecast_data import (
    USES_SHAPE,
    Lines,
    call_rows,
    join,
    result_locations,
    rows_of,
    sampled_lines,
)
from bench.held_out import JUDGES, owner_of
from respool.forecast.features import (
    AGES,
    LINE_FEATURES,
    MIXED_FEATURES,
    RESULT_FEATURES,
    bin_of,
)
from respool.pricing import CacheTerms
from respool.replay.prompt_cache import HOUR, CharacterMeasure
from respool.replay.recording import BillingConditions, Recording
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"
WEIGHTS = REPOSITORY / "src" / "respool" / "forecast" / "weights.toml"
AGENTS = ("claude-code", "codex", "copilot-cli", "gemini-cli", "openai-chat", "opencode", "pi")
CONDITIONS = BillingConditions(
    CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0), 28_000, HOUR
)
NAMES = [*RESULT_FEATURES, *(f"line: {name}" for name in LINE_FEATURES)]
SIZES = [len(bins) for bins in (*RESULT_FEATURES.values(), *LINE_FEATURES.values())]
FIRST_LINE = len(RESULT_FEATURES)
UNIQUE = range(FIRST_LINE, FIRST_LINE + 7)  # features of a line's unique content
OWNED = range(FIRST_LINE, FIRST_LINE + 4)  # if all are 0, nothing in the line can be needed
FOLDS = 4
MAX_LINES = 10_000  # of one repository
EVEN = 0.75  # a repository with twice the lines has this power of two times the weight
TREES, RATE, MIN_LEAF, PENALTY = 150, 0.1, 1_000, 50.0
PRIOR_USES = 3.0  # uses, and expected ones, that a session's level begins with
MAX_PAIRS = 30  # pairs of features; more give little
# Observed misses per expected one: a forecast counts a need even if another copy is kept. Chosen by
# replay of the sessions that fit (`bench.held_out --part fit`), not computed here.
LINES_CALIBRATION, RESULTS_CALIBRATION = 0.3, 0.6
CONTENTS = {"code": "read code", "diff": "read diff", "hits": "search hits", "test": "run test"}
LINES_BY_CONTENT = {"diff": 4.0}  # patches repeat lines of diffs, many at a time
RESULTS_BY_CONTENT = {"code": 0.45, "diff": 4.0, "hits": 0.4, "test": 0.2}
_SEED = 1


class Corpus(Struct, frozen=True):
    """The lines of all files, with the owner and the weight of each."""

    lines: Lines
    owner: np.ndarray
    group: np.ndarray  # number of the agent and repository
    weight: np.ndarray  # evened out between repositories
    groups: Sequence[str]
    calls: Mapping[str, np.ndarray]  # by owner: kind, age, and turns or lines
    uses: Sequence[np.ndarray]  # by group: exposures and uses so far, at each moment
    sessions: int


class Tables(Struct, frozen=True):
    """One forecast: logarithms of the base rate, of each bin's factor, and of those of pairs."""

    base: float
    single: Sequence[np.ndarray]
    pairs: Mapping[tuple[int, int], np.ndarray]

    def rates(self, bins: np.ndarray) -> np.ndarray:
        """The rate of each line."""
        found = np.full(len(bins), self.base)
        for feature, table in enumerate(self.single):
            found += table[bins[:, feature]]
        for (first, second), table in self.pairs.items():
            found += table[bins[:, first], bins[:, second]]
        return np.exp(found)


def main() -> None:
    """Extract, fit, judge, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--importance", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    extract_all(asked.corpus, asked.data, asked.processes)
    corpus = read_data(asked.data)
    fits = ~np.isin(corpus.owner, JUDGES)
    pairs = {column: choose_pairs(corpus, fits, column) for column in (0, 1)}
    if asked.folds is not None:
        write_folds(corpus, fits, pairs, asked.folds)
    if asked.importance:
        _print_importance(corpus, fits, pairs)
    if asked.write:
        everything = np.ones(len(fits), bool)
        WEIGHTS.write_text(fitted_document(corpus, everything, pairs), "utf-8")


def extract_all(corpus: Path, folder: Path, processes: int) -> None:
    """Extract the lines of each file that is not extracted yet, large files first."""
    paths = [path for path in corpus.glob("*.jsonl.gz") if path.name.partition("__")[0] in AGENTS]
    paths.sort(key=lambda path: -path.stat().st_size)
    tasks = [(path, folder / f"{path.name.removesuffix('.jsonl.gz')}.npz") for path in paths]
    tasks = [(path, target) for path, target in tasks if not target.exists()]
    with Pool(processes, maxtasksperchild=1) as pool:
        for number, name in enumerate(pool.imap_unordered(_extract_task, tasks, chunksize=1), 1):
            print(f"{number} of {len(tasks)} files: {name}", file=sys.stderr, flush=True)


def _extract_task(task: tuple[Path, Path]) -> str:
    extract(*task)
    return task[0].name


def extract(path: Path, target: Path) -> None:
    """Write the lines and calls of a file's sessions as columns."""
    rng = np.random.default_rng(_SEED)
    tables: list[Lines] = []
    calls, sessions = np.zeros((2, len(AGES), 2)), 0
    moments: list[np.ndarray] = []
    for session in read_file(path, READERS):
        if not isinstance(session, RecordedSession) or len(session.requests) < 3:
            continue
        recording = Recording(session, CharacterMeasure(), CONDITIONS)
        tables += [
            sampled_lines(row, rng)
            for row in rows_of(recording, result_locations(recording), moments)
        ]
        for kind, age, count, later in call_rows(recording):
            calls[int(kind == "write"), bin_of(AGES, age)] += later, count
        sessions += 1
    if not tables:
        return
    found = join(tables)
    columns = {name: getattr(found, name) for name in Lines.__struct_fields__}
    # Under another name until it is whole.
    partial = target.with_suffix(".partial.npz")
    np.savez(
        partial,
        calls=calls,
        sessions=sessions,
        uses=np.array(moments, np.float32),
        **columns,
    )
    partial.rename(target)


def read_data(folder: Path) -> Corpus:
    """All extracted lines in which something can be needed."""
    tables: list[Lines] = []
    owners: list[np.ndarray] = []
    calls: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(AGES), 2)))
    uses: list[np.ndarray] = []
    groups, sessions = sorted(folder.glob("*.npz")), 0
    for path in groups:
        with np.load(path) as data:
            lines = Lines(*(data[name] for name in Lines.__struct_fields__))
            calls[owner_of(path)] += data["calls"]
            uses.append(data["uses"])
            sessions += int(data["sessions"])
        owned = np.flatnonzero(lines.bins[:, OWNED.start : OWNED.stop].sum(axis=1))
        lines = _some(lines.only(owned))
        tables.append(lines)
        owners.append(np.full(len(lines.weight), owner_of(path)))
    group = np.repeat(np.arange(len(tables)), [len(one.weight) for one in tables])
    lines = join(tables)
    totals = np.maximum(np.bincount(group, lines.weight, len(tables)), 1.0)
    weight = lines.weight * totals[group] ** (EVEN - 1)
    return Corpus(
        lines=lines,
        owner=np.concatenate(owners),
        group=group,
        weight=weight / weight.mean(),
        groups=[path.stem.replace("__", " ").replace("+", "/") for path in groups],
        calls=calls,
        uses=uses,
        sessions=sessions,
    )


def _some(lines: Lines) -> Lines:
    """At most so many lines of a repository, each of which stands for more."""
    count = len(lines.weight)
    if count <= MAX_LINES:
        return lines
    some = lines.only(np.random.default_rng(_SEED).permutation(count)[:MAX_LINES])
    return structs.replace(some, weight=some.weight * np.float32(count / MAX_LINES))


def admissible_pairs() -> list[tuple[int, int]]:
    """The pairs of features that the forecast can evaluate quickly."""
    mixed = [NAMES.index(name) for name in MIXED_FEATURES]
    return [
        *combinations(range(FIRST_LINE), 2),
        *product(mixed, range(FIRST_LINE, len(NAMES))),
        *combinations(UNIQUE, 2),
    ]


def choose_pairs(corpus: Corpus, rows: np.ndarray, column: int) -> list[tuple[int, int]]:
    """The pairs that contribute most, by a fit on a third of the lines."""
    some = rows & (np.random.default_rng(_SEED).random(len(rows)) < 1 / 3)
    found = fit_tables(corpus, some, column, admissible_pairs())
    worth = _spread_of_pairs(found, corpus, some)
    return sorted(worth, key=lambda pair: -worth[pair])[:MAX_PAIRS]


def _spread_of_pairs(
    tables: Tables, corpus: Corpus, rows: np.ndarray
) -> dict[tuple[int, int], float]:
    """The spread of the logarithms that each pair adds."""
    bins = corpus.lines.bins[rows]
    return {pair: float(table[bins[:, pair[0]], bins[:, pair[1]]].std())
            for pair, table in tables.pairs.items()}  # fmt: skip


def fit_tables(
    corpus: Corpus, rows: np.ndarray, column: int, pairs: Sequence[tuple[int, int]]
) -> Tables:
    """Boosted trees of depth two on these lines, as tables."""
    trees = HistGradientBoostingRegressor(
        loss="poisson",
        max_iter=TREES,
        learning_rate=RATE,
        max_depth=2,
        min_samples_leaf=MIN_LEAF,
        l2_regularization=PENALTY,
        # Features that no set names would be a set of their own.
        interaction_cst=[*({one} for one in range(len(NAMES))), *map(set, pairs)],
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        max_bins=16,
    )
    lines = corpus.lines
    trees.fit(lines.bins[rows], lines.turns[rows, column], sample_weight=corpus.weight[rows])
    return _tables_of(trees)


def _tables_of(trees: Any) -> Tables:
    """The sum of all trees as tables; what a pair says of one feature alone is moved there."""
    single = [np.zeros(size) for size in SIZES]
    pairs: dict[tuple[int, int], np.ndarray] = {}
    base = float(np.ravel(trees._baseline_prediction)[0])
    for (tree,) in trees._predictors:
        for masks, value in _leaves(tree.nodes, 0, {}):
            features = sorted(masks)
            if not features:
                base += value
            elif len(features) == 1:
                single[features[0]] += value * masks[features[0]]
            else:
                first, second = features
                table = pairs.setdefault((first, second), np.zeros((SIZES[first], SIZES[second])))
                table += value * np.outer(masks[first], masks[second])
    for (first, second), table in list(pairs.items()):
        rows = table.mean(axis=1)
        single[first] += rows
        columns = (table - rows[:, None]).mean(axis=0)
        single[second] += columns
        pairs[first, second] = table - rows[:, None] - columns
    return Tables(base, single, pairs)


def _leaves(
    nodes: Any, at: int, masks: Mapping[int, np.ndarray]
) -> Iterator[tuple[Mapping[int, np.ndarray], float]]:
    """The leaves of a tree: the bins that lead to each, by feature, and its value."""
    node = nodes[at]
    if node["is_leaf"]:
        yield masks, float(node["value"])
        return
    feature = int(node["feature_idx"])
    before = masks.get(feature, np.ones(SIZES[feature], bool))
    below = np.arange(SIZES[feature]) <= node["num_threshold"]
    yield from _leaves(nodes, int(node["left"]), {**masks, feature: before & below})
    yield from _leaves(nodes, int(node["right"]), {**masks, feature: before & ~below})


# --- folds and scores -----------------------------------------------------------------------------


def fold_owners(corpus: Corpus, rows: np.ndarray) -> dict[str, int]:
    """The fold of each owner, of about equal weight."""
    totals = {
        owner: float(corpus.weight[rows & (corpus.owner == owner)].sum())
        for owner in sorted(set(corpus.owner[rows]))
    }
    loads, found = [0.0] * FOLDS, dict[str, int]()
    for owner in sorted(totals, key=lambda owner: -totals[owner]):
        found[owner] = loads.index(min(loads))
        loads[found[owner]] += totals[owner]
    return found


def write_folds(
    corpus: Corpus,
    fits: np.ndarray,
    pairs: Mapping[int, Sequence[tuple[int, int]]],
    folder: Path,
) -> None:
    """Write the weights of each fold, those of all owners that fit, and print the scores."""
    folder.mkdir(parents=True, exist_ok=True)
    folds = fold_owners(corpus, fits)
    fold = np.array([folds.get(owner, FOLDS) for owner in corpus.owner])
    rates = np.zeros((len(fold), 2))
    for number in range(FOLDS + 1):
        rows = fits & (fold != number)
        tables = [fit_tables(corpus, rows, column, pairs[column]) for column in (0, 1)]
        for column in (0, 1):
            rates[fold == number, column] = tables[column].rates(corpus.lines.bins[fold == number])
        name = "fit" if number == FOLDS else f"fold-{number}"
        (folder / f"{name}.toml").write_text(document(corpus, rows, tables), "utf-8")
    files = {owner: f"fold-{number}.toml" for owner, number in folds.items()}
    (folder / "owners.json").write_text(json.dumps(files, indent=1), "utf-8")
    _print_scores(corpus, rates)
    _print_levels(corpus, rates)


def _print_scores(corpus: Corpus, rates: np.ndarray) -> None:
    """Print the scores of each repository by weights that did not see its owner."""
    for number, group in enumerate(corpus.groups):
        rows = corpus.group == number
        for column, name in enumerate(("whole", "names")):
            real, rate = corpus.lines.turns[rows, column], rates[rows, column]
            if np.count_nonzero(real) >= 30:
                score = _score(corpus.lines.only(rows), real, rate)
                print(f"{group:50} {name:6} {score}", flush=True)
    for content, kind in CONTENTS.items():
        rows = corpus.lines.bins[:, 0] == RESULT_FEATURES["kind"].index(kind)
        real = (corpus.lines.turns[rows] * corpus.weight[rows, None]).sum()
        print(
            content, f"real/predicted {real / (rates[rows] * corpus.weight[rows, None]).sum():.2f}"
        )


def _print_levels(corpus: Corpus, rates: np.ndarray) -> None:
    """Print how well the uses of results so far predict, beyond the forecast, the needs to come.

    The level of a session is the uses of its results so far over those that results of the same
    kinds and ages have elsewhere. A level that helped would go with more needs than were predicted,
    and lower the deviance of rates that are multiplied with a power of it.
    """
    levels = np.ones(len(rates))
    found: dict[str, list[tuple[float, float, float]]] = {agent: [] for agent in AGENTS}
    hazards = _hazards_elsewhere(corpus)
    for number, name in enumerate(corpus.groups):
        rows = np.flatnonzero(corpus.group == number)
        uses, moments = corpus.uses[number], corpus.lines.moment[rows]
        expected = (uses[:, 0] * hazards[number]).sum(axis=(1, 2))
        level = (uses[:, 1].sum(axis=(1, 2)) + PRIOR_USES) / (expected + PRIOR_USES)
        levels[rows] = level[moments]
        for first, last in _session_bounds(uses):
            middle = (first + last) // 2
            rest = rows[(moments >= middle) & (moments <= last)]
            if last - first >= 20 and len(rest):
                real = float(corpus.lines.turns[rest].sum(axis=1) @ corpus.lines.weight[rest])
                predicted = float(rates[rest].sum(axis=1) @ corpus.lines.weight[rest])
                excess = np.log((real + 1) / (predicted + 1))
                weight = predicted**0.5
                found[name.partition(" ")[0]].append((np.log(level[middle]), excess, weight))
    agents = np.array([name.partition(" ")[0] for name in corpus.groups])[corpus.group]
    real = corpus.lines.turns.sum(axis=1)
    for agent, pairs in found.items():
        if len(pairs) < 20:
            continue
        levels_then, excess, weight = np.array(pairs).T
        rows, deviances = agents == agent, list[str]()
        for power in (0.0, 0.25, 0.5, 1.0):
            rate = rates[rows].sum(axis=1) * levels[rows] ** power
            rate *= (real[rows] @ corpus.weight[rows]) / (rate @ corpus.weight[rows])
            deviances.append(f"{power}: {_deviance(real[rows], rate, corpus.weight[rows]):.0f}")
        correlation = _correlation(levels_then, excess, weight)
        print(
            f"{agent:12} {len(pairs)} sessions, level at half of the requests with later needs over"
            f" predicted ones: correlation {correlation:.2f}; deviance by power of the level "
            f"{', '.join(deviances)}"
        )


def _hazards_elsewhere(corpus: Corpus) -> list[np.ndarray]:
    """For each group, the uses of a result in one request, by kind and age, of other owners."""
    owners = [corpus.owner[corpus.group == number][:1] for number in range(len(corpus.groups))]
    totals = [
        sum((uses[last] for _, last in _session_bounds(uses)), np.zeros(USES_SHAPE))
        for uses in corpus.uses
    ]
    found: list[np.ndarray] = []
    for owner in owners:
        others = sum(
            (total for other, total in zip(owners, totals, strict=True) if other != owner),
            np.zeros(USES_SHAPE),
        )
        found.append(others[1] / np.maximum(others[0], 30))
    return found


def _session_bounds(uses: np.ndarray) -> list[tuple[int, int]]:
    """The first and the last moment of each session: exposures grow within one."""
    totals = uses[:, 0].sum(axis=(1, 2))
    lasts = np.flatnonzero(np.append(totals[1:] < totals[:-1], True))
    return list(zip([0, *(lasts[:-1] + 1)], lasts, strict=True))


def _correlation(one: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    one, other = one - np.average(one, weights=weight), other - np.average(other, weights=weight)
    spread = np.average(one**2, weights=weight) * np.average(other**2, weights=weight)
    return float(np.average(one * other, weights=weight) / spread**0.5)


def _score(lines: Lines, real: np.ndarray, rate: np.ndarray) -> str:
    auc = roc_auc_score(real > 0, rate, sample_weight=lines.weight)
    ratio = float(np.sum(rate * lines.weight) / np.sum(real * lines.weight))
    kept = [kept_by(share, lines, real, rate) for share in (0.25, 0.5)]
    return f"AUC {auc:.3f} predicted/real {ratio:.2f} quarter {kept[0]:.3f} half {kept[1]:.3f}"


def kept_by(share: float, lines: Lines, real: np.ndarray, rate: np.ndarray) -> float:
    """The share of all needs that stays when the better lines up to a share of the text do."""
    order = np.argsort(-rate / np.maximum(lines.size, 8))
    tokens = np.cumsum((lines.size * lines.weight)[order])
    needs = np.cumsum((real * lines.weight)[order])
    return float(np.interp(share, tokens / tokens[-1], needs / needs[-1]))


def _print_importance(
    corpus: Corpus, rows: np.ndarray, pairs: Mapping[int, Sequence[tuple[int, int]]]
) -> None:
    """Print how much worse lines of other owners are predicted with each feature shuffled."""
    folds, rng = fold_owners(corpus, rows), np.random.default_rng(_SEED)
    fold = np.array([folds.get(owner, FOLDS) for owner in corpus.owner])
    test = fold == 0
    bins, weight = corpus.lines.bins[test], corpus.weight[test]
    for column, name in enumerate(("whole", "names")):
        real = corpus.lines.turns[test, column]
        tables = fit_tables(corpus, rows & ~test, column, pairs[column])
        full = _deviance(real, tables.rates(bins), weight)
        worse: dict[str, float] = {}
        for feature, of in enumerate(NAMES):
            shuffled = bins.copy()
            rng.shuffle(shuffled[:, feature])
            worse[of] = _deviance(real, tables.rates(shuffled), weight) / full - 1
        for of in sorted(worse, key=lambda of: -worse[of]):
            print(f"{name:6} {of:22} shuffled: deviance {100 * worse[of]:+.2f} %", flush=True)
        for pair, spread in sorted(
            _spread_of_pairs(tables, corpus, test).items(), key=lambda one: -one[1]
        )[:12]:
            print(f"{name:6} {NAMES[pair[0]]} with {NAMES[pair[1]]}: spread {spread:.3f}")


def _deviance(real: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> float:
    logs = np.where(real > 0, real * np.log(np.maximum(real, 1e-9) / rate), 0)
    return 2 * float(np.sum(weight * (logs - real + rate)))


# --- the file -------------------------------------------------------------------------------------


def fitted_document(
    corpus: Corpus, rows: np.ndarray, pairs: Mapping[int, Sequence[tuple[int, int]]]
) -> str:
    """The weights fitted on these lines, as a file."""
    tables = [fit_tables(corpus, rows, column, pairs[column]) for column in (0, 1)]
    return document(corpus, rows, tables)


def document(corpus: Corpus, rows: np.ndarray, tables: Sequence[Tables]) -> str:
    """The weights as a file that people can read."""
    owners = set(corpus.owner[rows])
    said = [
        "# How many later turns will need a line: a base rate times a factor for each feature's",
        "# bin, times a factor for the two bins of each pair of features (rows: the first).",
        "# Written by bench/fit_forecast.py; see docs/how/forecast.md.",
        f'date = "{date.today()}"',
        f'data = "{int(rows.sum()):,} lines of {len(owners)} owners, 0, 1, 2, 4 … requests old"',
        "",
        "[calibration]  # observed misses for each expected one",
        f"lines = {LINES_CALIBRATION}",
        f"results = {RESULTS_CALIBRATION}",
        f"lines_by_content = {{ {_listed(LINES_BY_CONTENT)} }}",
        f"results_by_content = {{ {_listed(RESULTS_BY_CONTENT)} }}",
        "",
    ]
    for name, one in zip(("whole", "names"), tables, strict=True):
        said += _section(name, one)
    for kind, rates in _call_rates(corpus, owners).items():
        said += [f"[calls.{kind}]  # turns for each line, by age in requests"]
        said += [f'"{age}" = {rate:.5f}' for age, rate in zip(AGES, rates, strict=True)]
        said.append("")
    return "\n".join(said)


def _listed(factors: Mapping[str, float]) -> str:
    return ", ".join(f"{of} = {factor}" for of, factor in factors.items())


def _call_rates(corpus: Corpus, owners: set[str]) -> dict[str, list[float]]:
    """Turns for each line of a call's arguments, by kind and age."""
    total = sum(by for owner, by in corpus.calls.items() if owner in owners)
    found: dict[str, list[float]] = {"write": [], "other": []}
    for kind, rates in found.items():
        for needed, lines in np.asarray(total)[int(kind == "write")]:
            rates.append(needed / lines if lines > 1_000 else (rates[-1] if rates else 0.0))
    return found


def _section(name: str, tables: Tables) -> list[str]:
    said = [f"[{name}]", f"rate = {_factor(tables.base)}", ""]
    at = 0
    for of, features in (("result", RESULT_FEATURES), ("line", LINE_FEATURES)):
        for feature, bins in features.items():
            said.append(f'[{name}.{of}."{feature}"]')
            said += [f'"{bin}" = {_factor(tables.single[at][n])}' for n, bin in enumerate(bins)]
            said.append("")
            at += 1
    for (first, second), table in tables.pairs.items():
        said += [f"[[{name}.pairs]]", f'of = ["{NAMES[first]}", "{NAMES[second]}"]', "table = ["]
        said += [f"  [{', '.join(map(_factor, row))}]," for row in table]
        said += ["]", ""]
    return said


def _factor(logarithm: float) -> str:
    """A factor with four digits."""
    return f"{float(f'{np.exp(logarithm):.4g}')}"


if __name__ == "__main__":
    main()
