"""The planner and the predictor on recorded sessions: all-in against lost turns, by caution.

    python -m bench.frontier [CORPUS] [--rest] [--weights FOLDER] [--preset NAME ...]
                             [--caution N ...] [--lean]

CORPUS (default: ../shared/corpus beside the repository). Counted and priced as the published
baselines are, on their sessions, or with --rest on all other long ones of the same files. --weights
takes for each session the weights that `bench.fit_forecast --folds FOLDER` fitted without its
owner. Without --caution, presets: those named, else safe and lean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import respool
from bench.held_out import use_weights, weights_for
from bench.passes import panel, recording_of
from respool.policy import PRESETS
from respool.replay.policies import ProjectionSender, UnchangedSender
from respool.replay.score import score_policy
from respool.sessions.session import RecordedSession

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


class Row(NamedTuple):
    """One session under one policy."""

    policy: str
    format: str
    base: float
    bill: float
    all_in: float
    lost: int
    requests: int
    worse: bool
    invalid: int
    breaks: int
    seconds: float


def policies(
    names: Sequence[str], cautions: Sequence[float], *, lean: bool
) -> dict[str, respool.Policy]:
    """Presets, or one of them at several degrees of caution."""
    if not cautions:
        return {name: respool.Policy.preset(name) for name in names}
    return {
        f"caution {one:g}": respool.Policy(miss_penalty=one, trim_on_arrival=lean)
        for one in cautions
    }


def measured(task: tuple[RecordedSession, dict[str, respool.Policy], Path | None]) -> list[Row]:
    """One session under each policy."""
    session, tried, weights = task
    if weights is not None:
        use_weights(weights)
    recording = recording_of(session, real=False)
    base = score_policy(recording, UnchangedSender(recording), "none")
    rows: list[Row] = []
    for name, policy in tried.items():
        got = score_policy(recording, ProjectionSender(recording, policy), name)
        worse = got.all_in > 1.01 * base.all_in
        rows.append(
            Row(
                name,
                session.format,
                base.bill.cost,
                got.bill.cost,
                got.all_in,
                got.lost_turns,
                got.requests,
                worse,
                len(got.invalid),
                len(got.breaks),
                got.seconds,
            )
        )
    return rows


def weights_of(session: RecordedSession, folder: Path | None) -> Path | None:
    """The file that was fitted without this session's owner: `agent/owner/repository/…`."""
    return weights_for(session.id.split("/")[1], folder)


def told(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each policy and format."""
    keys = list(dict.fromkeys((row.format, row.policy) for row in rows))
    for format, name in sorted(keys, key=lambda key: key[0]):
        of = [row for row in rows if (row.format, row.policy) == (format, name)]
        base, bill = sum(row.base for row in of), sum(row.bill for row in of)
        all_in, seconds = sum(row.all_in for row in of), sum(row.seconds for row in of)
        lost, requests = sum(row.lost for row in of), sum(row.requests for row in of)
        worse, invalid = sum(row.worse for row in of), sum(row.invalid for row in of)
        breaks = sum(row.breaks for row in of)
        yield (
            f"{format:17} {name:13} bill {bill / base:.3f}  all-in {all_in / base:.3f}  "
            f"lost {lost / requests:.4f} ({lost} of {requests})  "
            f"worse {worse} of {len(of)}  invalid {invalid}  breaks {breaks}  "
            f"{1e3 * seconds / requests:.1f} ms"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--preset", nargs="+", choices=PRESETS, default=("safe", "lean"))
    parser.add_argument("--caution", type=float, nargs="*", default=())
    given = parser.parse_args()
    tried = policies(given.preset, given.caution, lean=given.lean)
    sessions = panel(given.corpus, rest=given.rest)
    tasks = ((one, tried, weights_of(one, given.weights)) for one in sessions)
    with Pool() as pool:
        rows = [row for found in pool.imap_unordered(measured, tasks) for row in found]
    print("\n".join(told(rows)))


if __name__ == "__main__":
    main()
