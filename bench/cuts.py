"""Cuts for a person to read: results before and after, drawn by a fixed seed.

    python -m bench.cuts [CORPUS] [--preset NAME] [--count N] [--seed N] [--agent NAME ...]
                         [--after] [--max-lines N]

The sessions are those of owners whose sessions fit weights (bench/held_out.py). Of each session at
most one cut is drawn. `--after` leaves out the originals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

import respool
from bench.held_out import AGENTS, CORPUS, corpus_files, long_sessions
from bench.passes import recording_of
from respool.edits import Replace
from respool.policy import PRESETS
from respool.replay.policies import ProjectionSender
from respool.sessions.session import RecordedSession

REASONS = ("unlikely_needed", "trimmed", "over_cap")  # of cuts that leave lines of the original
_PER_REPOSITORY = 12  # sessions of one repository that are drawn from


class DrawnCut(Struct, frozen=True):
    """One result that lost lines."""

    agent: str
    tool: str
    call: str
    reason: str
    before: str
    after: str


def cuts_of(session: RecordedSession, policy: respool.Policy) -> list[DrawnCut]:
    """The cuts in force at the end of a session."""
    recording = recording_of(session, real=False)
    sender = ProjectionSender(recording, policy)
    for request in range(len(recording.cuts)):
        sender.send(request)
    assert sender._folded is not None
    state = sender._folded.state
    found: list[DrawnCut] = []
    for part, edit in sorted(state.edits.by_part.items()):
        call = state.transcript.call_of(part)
        if isinstance(edit, Replace) and edit.reason in REASONS and call is not None:
            before = state.transcript.parts[part].text
            found.append(
                DrawnCut(session.format, call.name, call.text, edit.reason, before, edit.text)
            )
    return found


def drawn(
    corpus: Path, policy: respool.Policy, random: Random, agents: Sequence[str]
) -> Iterator[DrawnCut]:
    """Cuts in random order, one of a session."""
    files = corpus_files(corpus, "fit", agents)
    sessions = [(path, n) for path in files for n in range(_PER_REPOSITORY)]
    random.shuffle(sessions)
    for path, number in sessions:
        chosen = list(long_sessions(path, number + 1))
        if len(chosen) == number + 1:
            cuts = cuts_of(chosen[number], policy)
            if cuts:
                yield random.choice(cuts)


def shown(cut: DrawnCut, number: int, *, with_before: bool, max_lines: int) -> str:
    """One cut as text."""
    size = f"{cut.before.count(chr(10)) + 1:,} lines to {cut.after.count(chr(10)) + 1:,}"
    head = f"=== {number} · {cut.agent} · {cut.tool} · {cut.reason} · {size}\n{cut.call[:300]}"
    before = [f"--- before\n{clipped(cut.before, max_lines)}"] if with_before else []
    return "\n".join((head, *before, f"--- after\n{clipped(cut.after, max_lines)}", ""))


def clipped(text: str, max_lines: int) -> str:
    """The first lines of a text, none of them endless."""
    lines = [line if len(line) <= 240 else f"{line[:240]} (…)" for line in text.split("\n")]
    more = [f"({len(lines) - max_lines:,} more)"] if len(lines) > max_lines else []
    return "\n".join((*lines[:max_lines], *more))


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--preset", choices=PRESETS, default="safe")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--agent", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--max-lines", type=int, default=400)
    asked = parser.parse_args()
    random = Random(asked.seed)
    cuts = drawn(asked.corpus, respool.Policy.preset(asked.preset), random, asked.agent)
    for number, cut in zip(range(1, asked.count + 1), cuts, strict=False):
        print(shown(cut, number, with_before=not asked.after, max_lines=asked.max_lines))


if __name__ == "__main__":
    main()
