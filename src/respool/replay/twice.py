"""Requests that more than one session tells: each is replayed once.

An agent that resumes or forks a session copies what was said into a new file, and so do people
who keep a copy. What is copied was sent, and paid for, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from ..codecs.json_tree import compact_text
from ..sessions.session import Sent, Session

Place = tuple[str, int]  # a file, and which of its sessions

_NOTHING = 0  # in place of a key: nothing tells this request from others


class Traced(Struct, frozen=True):
    """What tells the requests of one session from all others."""

    started: float
    keys: tuple[int, ...]


class Twice(Struct, frozen=True):
    """The requests of a session that another one tells as well, and the file of that one."""

    requests: frozenset[int]
    source: str


def traced(session: Session) -> Traced:
    """A session's requests, by what their answers are."""
    times = (sent.time for sent in session.requests if sent.time is not None)
    keys = tuple(_key(session, sent) for sent in session.requests)
    return Traced(min(times, default=float("inf")), keys)


def _key(session: Session, sent: Sent) -> int:
    """By its answer's name; else by the moment, and what was answered then."""
    if sent.answer is not None:
        said = sent.answer
    elif sent.time is not None and sent.cut < len(session.messages):
        said = f"{sent.time} {compact_text(session.messages[sent.cut])}"
    else:
        return _NOTHING
    told = f"{session.agent} {said}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(told, digest_size=8).digest())


def told_twice(traces: Mapping[Place, Traced]) -> dict[Place, Twice]:
    """The sessions with requests that one before them tells: one that began earlier, if any did.

    Codex writes what it copies with new times, so the one that began first has the true ones.
    """
    owners: dict[int, Place] = {}
    twice: dict[Place, Twice] = {}
    for place in sorted(traces, key=lambda place: traces[place].started):  # in order where alike
        again: dict[int, Place] = {}
        for number, key in enumerate(traces[place].keys):
            owner = owners.setdefault(key, place) if key != _NOTHING else place
            if owner != place:
                again[number] = owner
        if again:
            twice[place] = Twice(frozenset(again), next(iter(again.values()))[0])
    return twice


def without(session: Session, duplicates: Twice) -> Session:
    """The session with the requests that are its own; it may have none."""
    own = [sent for number, sent in enumerate(session.requests) if number not in duplicates.requests]
    count = len(duplicates.requests)
    what = "request that stands" if count == 1 else "requests that stand"
    note = f"{count:,} {what} in {duplicates.source} as well left out"
    return replace(session, requests=tuple(own), notes=(*session.notes, note))


def told_elsewhere(session: Session, duplicates: Twice) -> str:
    """Why a session is left out that has no request of its own."""
    whose = f"its {len(duplicates.requests):,} requests stand" if len(duplicates.requests) > 1 else (
        "its one request stands"
    )  # fmt: skip
    same = "it" if duplicates.source == session.source else duplicates.source
    return f"session {session.id}: {whose} in another session of {same} as well"
