"""Fit the forecast to recorded sessions and print its held-out scores.

    python -m bench.fit_forecast [CORPUS] [--write] [--ablate] [--frontier AVERSION ...]
        [--cross FOLDER]

CORPUS (default: ../shared/corpus beside the repository) holds one .jsonl.gz for each agent and
repository. Every score is held out by repository: weights fitted on all others. --write puts the
weights fitted on everything into src/respool/forecast/weights.toml; --ablate tells what a feature
is worth; --frontier replays the sessions of the published baselines under a priced planner that
has nothing but the forecast, each with weights from other repositories; --cross writes for each
repository the weights of all others into FOLDER, for bench/frontier.py. Needs numpy, scipy and
scikit-learn, which nothing else does.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from msgspec import Struct
from scipy import sparse
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import roc_auc_score

from bench.forecast_data import call_rows, rows_of
from bench.forecast_planner import Knobs, Planned
from respool.forecast.features import AGES, LINE_FEATURES, RESULT_FEATURES, bin_of
from respool.forecast.model import ForecastModel, parse_model
from respool.pricing import CacheTerms
from respool.replay.policies import UnchangedSender
from respool.replay.prompt_cache import HOUR, CharacterMeasure
from respool.replay.recording import BillingConditions, Recording
from respool.replay.score import score_policy
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"
WEIGHTS = REPOSITORY / "src" / "respool" / "forecast" / "weights.toml"
AGENTS = ("claude-code", "codex", "opencode", "pi")
PANEL = {
    "claude-code__entireio+cli": 8,
    "claude-code__entireio+git-sync": 6,
    "claude-code__PackmindHub+context-evaluator": 4,
    "codex__entireio+git-sync": 8,
}
CONDITIONS = {
    "openai-responses": BillingConditions(CacheTerms(cache="prefix", lifetime=600), 12_000),
}
OTHERS = BillingConditions(
    CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0), 28_000, HOUR
)
UNNEEDED = 0.15  # of the lines that nobody needs, this share is enough
ABLATED = 0.3  # of the lines, for the ablation
_PENALTY, _EXACT = 3e-5, 1e-6  # with less exactness the regression stops after a few steps
_SEED = 1


class Lines(Struct):
    """Lines of results at some moment, and the later turns that needed them."""

    bins: np.ndarray
    whole: np.ndarray
    named: np.ndarray
    weight: np.ndarray
    size: np.ndarray
    group: np.ndarray  # agent and repository


def main() -> None:
    """Fit, judge, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--frontier", nargs="*", type=float, metavar="AVERSION")
    parser.add_argument("--cross", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    recordings = list(_recordings(asked.corpus))
    _print_horizon(recordings)
    lines = _lines(recordings)
    calls = _calls(recordings)
    scores = _judged(lines)
    everything = _fitted(lines, np.ones(len(lines.whole), bool))
    document = _document(everything, calls, scores, len(recordings), len(lines.whole))
    if asked.write:
        WEIGHTS.write_text(document, "utf-8")
    if asked.cross is not None:
        asked.cross.mkdir(parents=True, exist_ok=True)
        for repository, said in _crossed(lines, calls):
            (asked.cross / f"{repository.replace('/', '+')}.toml").write_text(said, "utf-8")
    if asked.ablate:
        _ablate(lines)
    if asked.frontier is not None:
        shipped = parse_model(tomllib.loads(document))
        _frontier(recordings, lines, calls, shipped, asked.frontier or [1.0, 1.5, 2.0, 3.0, 4.0])


def _recordings(corpus: Path) -> Iterator[tuple[str, bool, Recording]]:
    """Each session with its agent and repository, and whether the baselines use it."""
    for path in sorted(corpus.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if not name.startswith(AGENTS):
            continue
        group, taken = name.replace("__", " ").replace("+", "/"), 0
        for session in read_file(path, READERS):
            if not isinstance(session, RecordedSession) or len(session.requests) < 3:
                continue
            conditions = CONDITIONS.get(session.format, OTHERS)
            recording = Recording(session, CharacterMeasure(), conditions)
            baseline = taken < PANEL.get(name, 0) and _is_long(session)
            taken += baseline
            yield group, baseline, recording


def _print_horizon(recordings: Sequence[tuple[str, bool, Recording]]) -> None:
    """Print the requests still to come after a number of them."""
    for agent in AGENTS:
        sizes = [
            len(recording.cuts) for group, _, recording in recordings if group.startswith(agent)
        ]
        for so_far in (1, 5, 10, 20, 40, 80, 160):
            left = [size - so_far for size in sizes if size > so_far]
            if len(left) > 5:
                print(
                    f"{agent}: after {so_far}, {np.mean(left):.0f} (median {np.median(left):.0f})"
                )


def _is_long(session: RecordedSession) -> bool:
    size = sum(len(json.dumps(message, ensure_ascii=False)) for message in session.messages)
    return size >= 200_000 and 25 <= len(session.requests) <= 260


def _lines(recordings: Sequence[tuple[str, bool, Recording]]) -> Lines:
    """All lines that were needed, and some of the others."""
    rng = random.Random(_SEED)
    columns: dict[str, list[object]] = defaultdict(list)
    for group, _, recording in recordings:
        for row in rows_of(recording, AsPlaced(recording).results):
            for line, bins in enumerate(row.lines):
                needed = line in row.whole or line in row.named
                if not needed and rng.random() >= UNNEEDED:
                    continue
                columns["bins"].append((*row.known.bins, *bins))
                columns["whole"].append(row.whole.get(line, 0.0))
                columns["named"].append(row.named.get(line, 0.0))
                columns["weight"].append(1.0 if needed else 1 / UNNEEDED)
                columns["size"].append(row.sizes[line])
                columns["group"].append(group)
    kinds = {"bins": np.int8, "group": str, "size": np.int32}
    arrays = {name: np.array(got, kinds.get(name, np.float32)) for name, got in columns.items()}
    return Lines(**arrays)


class AsPlaced(Planned):
    """Locations of a session's results only."""

    def __init__(self, recording: Recording) -> None:
        super(Planned, self).__init__(recording)


def _calls(recordings: Sequence[tuple[str, bool, Recording]]) -> dict[str, list[float]]:
    """Turns for each line of a call, by kind and age."""
    turns: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for _, _, recording in recordings:
        for kind, age, lines, later in call_rows(recording):
            one = turns["write" if kind == "write" else "other", bin_of(AGES, age)]
            one[0] += later
            one[1] += lines
    found: dict[str, list[float]] = {"write": [], "other": []}
    for kind, rates in found.items():
        for age in range(len(AGES)):
            needed, lines = turns[kind, age]
            rates.append(needed / lines if lines > 1_000 else (rates[-1] if rates else 0.0))
    return found


SIZES = [len(bins) for bins in (*RESULT_FEATURES.values(), *LINE_FEATURES.values())]
NAMES = [*RESULT_FEATURES, *(f"line: {name}" for name in LINE_FEATURES)]
# How edits are made decides which lines they quote. Patches come from too few repositories to tell
# it from how many names these need.
_NOT_OF_NAMES = NAMES.index("edits")


def _matrix(bins: np.ndarray, without: int | None = None) -> sparse.csr_matrix:
    """One column for each bin."""
    offsets = np.cumsum([0, *SIZES[:-1]])
    columns = bins.astype(np.int64) + offsets
    if without is not None:
        columns = np.delete(columns, without, axis=1)
    count, each = columns.shape
    ends = np.arange(0, count * each + 1, each)
    ones = np.ones(count * each, np.float32)
    return sparse.csr_matrix((ones, columns.ravel(), ends), shape=(count, sum(SIZES)))


def _regression(
    lines: Lines, train: np.ndarray, of: np.ndarray, without: int | None = None
) -> PoissonRegressor:
    fit = PoissonRegressor(alpha=_PENALTY, tol=_EXACT, max_iter=1_000)
    return fit.fit(
        _matrix(lines.bins[train], without), of[train], sample_weight=lines.weight[train]
    )


def _fitted(lines: Lines, train: np.ndarray) -> dict[str, PoissonRegressor]:
    return {
        "whole": _regression(lines, train, lines.whole),
        "names": _regression(lines, train, lines.named, _NOT_OF_NAMES),
    }


def _repository(groups: np.ndarray) -> np.ndarray:
    return np.array([group.split(" ")[1] for group in groups])


def _judged(lines: Lines) -> list[tuple[str, str, float, float, float]]:
    """Held out by repository: AUC, predicted for each needed, needs kept by half of the tokens."""
    repositories = _repository(lines.group)
    found: list[tuple[str, str, float, float, float]] = []
    for group in sorted(set(lines.group)):
        test, train = lines.group == group, repositories != group.split(" ")[1]
        for name, fit in _fitted(lines, train).items():
            real = (lines.whole if name == "whole" else lines.named)[test]
            rate, weight, size = (
                fit.predict(_matrix(lines.bins[test])),
                lines.weight[test],
                lines.size[test],
            )
            auc = roc_auc_score(real > 0, rate, sample_weight=weight)
            ratio = float(np.sum(rate * weight) / max(1e-9, np.sum(real * weight)))
            row = (group, name, float(auc), ratio, _kept_by_half(rate, real, weight, size))
            found.append(row)
            print(f"{group:42} {name:6} AUC {auc:.3f} predicted/real {ratio:.2f} half {row[4]:.3f}")
    return found


def _kept_by_half(
    rate: np.ndarray, real: np.ndarray, weight: np.ndarray, size: np.ndarray
) -> float:
    """The share of all needs that stays when the better half of the tokens does."""
    order = np.argsort(-rate / np.maximum(size, 8))
    tokens, needs = np.cumsum((size * weight)[order]), np.cumsum((real * weight)[order])
    return float(np.interp(0.5, tokens / tokens[-1], needs / needs[-1]))


def _ablate(lines: Lines) -> None:
    """Print how much worse held-out lines are predicted without each feature."""
    some = np.random.default_rng(_SEED).random(len(lines.whole)) < ABLATED
    lines = Lines(**{name: getattr(lines, name)[some] for name in lines.__struct_fields__})
    repositories = _repository(lines.group)
    for name, of in (("whole", lines.whole), ("names", lines.named)):
        full = _held_out(lines, repositories, of, None)
        worth = [
            (_held_out(lines, repositories, of, at) / full - 1, NAMES[at])
            for at in range(len(NAMES))
        ]
        for more, feature in sorted(worth, reverse=True):
            print(f"{name:6} without {feature:22} deviance {100 * more:+.2f} %", flush=True)


def _held_out(lines: Lines, repositories: np.ndarray, of: np.ndarray, without: int | None) -> float:
    total = 0.0
    for repository in sorted(set(repositories)):
        test = repositories == repository
        fit = _regression(lines, ~test, of, without)
        rate = np.maximum(fit.predict(_matrix(lines.bins[test], without)), 1e-9)
        real = of[test]
        logs = np.where(real > 0, real * np.log(np.maximum(real, 1e-9) / rate), 0)
        total += 2 * float(np.sum(lines.weight[test] * (logs - real + rate)))
    return total


def _document(
    fits: Mapping[str, PoissonRegressor],
    calls: Mapping[str, Sequence[float]],
    scores: Sequence[tuple[str, str, float, float, float]],
    sessions: int,
    count: int,
) -> str:
    """The weights as a file that people can read."""
    said = [
        "# How many later turns will need a line, as the logarithm of what each of its bins",
        "# multiplies the rate by. Written by bench/fit_forecast.py; see docs/how/forecast.md.",
        f'date = "{date.today()}"',
        f'data = "{count:,} lines of results in {sessions:,} sessions, 0, 1, 2, 4 … requests old"',
        "",
        "# Held out: weights from all other repositories. AUC; predicted for each real need; the",
        "# share of needs that the better half of the tokens holds.",
    ]
    for group, name, auc, ratio, half in scores:
        said += [
            "[[scores]]",
            f'of = "{group}"',
            f'forecast = "{name}"',
            f"auc = {auc:.3f}",
            f"predicted = {ratio:.2f}",
            f"half = {half:.3f}",
            "",
        ]
    for name, fit in fits.items():
        said += _section(name, fit)
    for kind, rates in calls.items():
        said += [f"[calls.{kind}]  # turns for each line, by age in requests"]
        said += [f'"{age}" = {rate:.5f}' for age, rate in zip(AGES, rates, strict=True)]
        said.append("")
    return "\n".join(said)


def _section(name: str, fit: PoissonRegressor) -> list[str]:
    said = [f"[{name}]", f"rate = {float(fit.intercept_):.4f}", ""]
    at = 0
    for of, features in (("result", RESULT_FEATURES), ("line", LINE_FEATURES)):
        for feature, bins in features.items():
            said.append(f'[{name}.{of}."{feature}"]')
            said += [f'"{bin}" = {fit.coef_[at + n]:.3f}' for n, bin in enumerate(bins)]
            said.append("")
            at += len(bins)
    return said


def _crossed(lines: Lines, calls: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, str]]:
    """For each repository the weights of all others, as a file."""
    repositories = _repository(lines.group)
    for repository in sorted(set(repositories)):
        fits = _fitted(lines, repositories != repository)
        yield repository, _document(fits, calls, (), 0, 0)


def _frontier(
    recordings: Sequence[tuple[str, bool, Recording]],
    lines: Lines,
    calls: Mapping[str, Sequence[float]],
    shipped: ForecastModel,
    aversions: Sequence[float],
) -> None:
    """All-in against lost turns on the sessions of the baselines."""
    crossed = {
        repository: parse_model(tomllib.loads(said)) for repository, said in _crossed(lines, calls)
    }
    panel = [(group, recording) for group, used, recording in recordings if used]
    for weights, crossing in (("other repositories", True), ("all", False)):
        for aversion in aversions:
            for agent in ("claude-code", "codex"):
                of = [
                    (crossed[group.split(" ")[1]] if crossing else shipped, recording)
                    for group, recording in panel
                    if group.startswith(agent)
                ]
                print(
                    f"{agent:12} weights of {weights:20} aversion {aversion:4.1f}",
                    _replayed(of, aversion),
                    flush=True,
                )


def _replayed(panel: Sequence[tuple[ForecastModel, Recording]], aversion: float) -> str:
    bill = all_in = base = 0.0
    lost = turns = worse = epochs = 0
    expected = 0.0
    for model, recording in panel:
        none = score_policy(recording, UnchangedSender(recording), "none").all_in
        sender = Planned(recording, model, Knobs(aversion=aversion, margin=1.0))
        got = score_policy(recording, sender, "planned")
        bill, all_in, base = bill + got.bill.cost, all_in + got.all_in, base + none
        lost, turns = lost + got.lost_turns, turns + got.requests
        worse += got.all_in > 1.01 * none
        epochs, expected = epochs + sender.epochs, expected + sender.expected
    return (
        f"bill {bill / base:.3f} all-in {all_in / base:.3f} lost {lost / turns:.4f} "
        f"({lost}, expected {expected:.0f}) worse {worse} epochs {epochs}"
    )


if __name__ == "__main__":
    main()
