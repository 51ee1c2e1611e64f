"""A long session as a picture: how large each request was, without respool and with it.

    python -m bench.context_chart [CORPUS] [-o docs/context.svg]

Of the sessions of the published baselines, the one of each agent that has the most requests.
Tokens are counted as there: characters / 4.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import respool
from bench.charts import Axis, Place, Plot, picture
from bench.frontier import CORPUS
from bench.passes import panel, recording_of
from respool.replay.policies import ProjectionSender, UnchangedSender
from respool.replay.score import score_policy
from respool.sessions.session import RecordedSession

AGENTS: Final = {"anthropic": "Claude Code", "openai-responses": "Codex"}
LEGEND: Final = {
    "grey": "without respool",
    "blue": "with respool",
    "orange": "with respool, preset lean",
}
MARKS: Final = (20, 50, 100, 200, 500)  # between lines, in requests and in thousands of tokens


def longest(corpus: Path, format: str) -> RecordedSession:
    """The session with the most requests."""
    sessions = (one for one in panel(corpus, rest=False) if one.format == format)
    return max(sessions, key=lambda one: len(one.requests))


def sizes_of(session: RecordedSession) -> dict[str, list[Place]]:
    """Tokens of each request, by kind of line."""
    recording = recording_of(session, real=False)
    senders = {
        "grey": UnchangedSender(recording),
        "blue": ProjectionSender(recording, respool.Policy()),
        "orange": ProjectionSender(recording, respool.Policy.preset("lean")),
    }
    scores = {kind: score_policy(recording, sender, kind) for kind, sender in senders.items()}
    return {
        kind: [(float(at), float(point.tokens)) for at, point in enumerate(found.points, 1)]
        for kind, found in scores.items()
    }


def plotted(agent: str, sizes: Mapping[str, list[Place]]) -> Iterator[str]:
    """One session."""
    requests = sizes["grey"][-1][0]
    most = max(tokens for line in sizes.values() for _, tokens in line)
    along, up = _step(requests), _step(most / 1_000)
    plot = Plot(
        f"{agent}, {requests:.0f} requests",
        "tokens of each request",
        "request",
        Axis(0, requests, {float(n): f"{n}" for n in range(0, int(requests) + 1, along)}),
        Axis(0, 1.05 * most, {1e3 * n: f"{n} k" for n in range(0, int(most / 1_000) + 1, up)}),
    )
    yield from plot.drawn()
    for kind, line in sizes.items():
        yield plot.line(line, kind)


def _step(most: float) -> int:
    """Distance between grid lines, for a few of them."""
    return next((one for one in MARKS if most / one <= 6), MARKS[-1])


def main() -> None:
    """Replay, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/context.svg"))
    given = parser.parse_args()
    plots = [
        plotted(agent, sizes_of(longest(given.corpus, format))) for format, agent in AGENTS.items()
    ]
    told = "The size of each request of two recorded sessions, without respool and with it"
    given.output.write_text(picture(told, plots, LEGEND), "utf-8")


if __name__ == "__main__":
    main()
