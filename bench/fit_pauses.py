"""Chances that a silent conversation goes on, for `respool.pauses.GOES_ON`.

    python -m bench.fit_pauses [CORPUS] [--part fit|judge|all]

The end of a session, and the agent's own compaction, count as an end: a request after it does not
begin with the same prefix. The chances never rise with the pause: neighbours that would are pooled.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from bench.held_out import CORPUS, corpus_files
from respool.pauses import GOES_ON, PING_AT, WaitsFor
from respool.providers.registry import PROVIDERS
from respool.replay.cache_costs import waits_for
from respool.replay.runner import find_duplicates, trace_session
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession

MAX_PINGS = 12
MIN_CONTINUED = 3  # conversations that must have gone on for a chance to count

Pause = tuple[WaitsFor, float]  # what it waited for, and its seconds; infinite: the end


def session_pauses(session: RecordedSession, skipped: frozenset[int]) -> Iterator[Pause]:
    """Each request's pause, without requests that another session records too."""
    codec = PROVIDERS[session.format].codec
    requests = session.requests
    for number, sent in enumerate(requests):
        if number in skipped or sent.time is None:
            continue
        answer = session.messages[sent.cut : _next_cut(session, number)]
        kind = waits_for(part.kind for one in answer for part in codec.decode(0, one))
        if number + 1 == len(requests):
            yield kind, float("inf")
            continue
        after = requests[number + 1].time
        if after is not None:
            yield kind, after - sent.time


def _next_cut(session: RecordedSession, number: int) -> int:
    requests = session.requests
    return requests[number + 1].cut if number + 1 < len(requests) else len(session.messages)


def chances(pauses: Sequence[Pause], kind: WaitsFor, lifetime: float) -> list[float]:
    """Share of the silent conversations at each ping that go on before the next one."""
    silent: Counter[int] = Counter()
    continued: Counter[int] = Counter()
    for waited, seconds in pauses:
        for number in range(1, MAX_PINGS + 1):
            due = number * PING_AT * lifetime
            if waited != kind or seconds <= due:
                break
            silent[number] += 1
            continued[number] += seconds <= due + PING_AT * lifetime
    pools: list[list[int]] = []  # continued, silent, pings
    for number in sorted(silent):
        pools.append([continued[number], silent[number], 1])
        while len(pools) > 1 and _rises(pools[-2], pools[-1]):
            last = pools.pop()
            pools[-1] = [one + other for one, other in zip(pools[-1], last, strict=True)]
    return [
        round(went / all_of, 3)
        for went, all_of, count in pools
        if went >= MIN_CONTINUED
        for _ in range(count)
    ]


def _rises(before: Sequence[int], after: Sequence[int]) -> bool:
    return after[0] * before[1] >= before[0] * after[1]


def recorded_pauses(files: Sequence[Path]) -> list[Pause]:
    """The pauses of all sessions, each request once."""
    sessions = {
        (str(path), at): one
        for path in files
        for at, one in enumerate(read_file(path, READERS))
        if isinstance(one, RecordedSession)
    }
    again = find_duplicates({key: trace_session(one) for key, one in sessions.items()})
    return [
        pause
        for key, one in sessions.items()
        for pause in session_pauses(one, again[key].requests if key in again else frozenset())
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--part", choices=("fit", "judge", "all"), default="fit")
    given = parser.parse_args()
    pauses = recorded_pauses(corpus_files(given.corpus, given.part))
    print(f"{len(pauses):,} requests")
    for lifetime in GOES_ON:
        for kind in get_args(WaitsFor):
            print(f"{lifetime:g} s, {kind}: {chances(pauses, kind, lifetime)}")


if __name__ == "__main__":
    main()
