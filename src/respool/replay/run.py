"""Files of transcripts in, the replay of their sessions out, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..sessions.readers import READERS
from ..sessions.reading import read_file
from ..sessions.session import Session, Skipped
from .one import Options, replay_session
from .result import Left, SessionResult
from .twice import Place, Traced, Twice, told_elsewhere, told_twice, traced, without

Item = Session | Skipped
Outcome = SessionResult | Traced | Left | None  # None: a session that was not asked for

PACKED = 8  # bytes in a packed file for each of its own, about
SMALL = 1_000_000  # bytes of transcripts that one process replays before others have started


class Wanted(Struct, frozen=True):
    """Which sessions are replayed, how, and how much is kept of them."""

    options: Options
    agents: tuple[str, ...] = ()  # none: all
    since: float | None = None  # seconds since the epoch; sessions that ended later
    with_details: bool = True  # False: without what only the page and JSON show
    trace_only: bool = False  # nothing is replayed: it is found out who tells the same requests
    duplicates: Mapping[Place, Twice] = {}


class Progress(Struct, frozen=True):
    """How far a run is."""

    files: int = 0
    size: int = 0  # of their bytes
    sessions: int = 0
    requests: int = 0


class Found(Struct, frozen=True):
    """What the files held."""

    sessions: tuple[SessionResult, ...]
    skipped: tuple[Left, ...]
    unselected: int = 0  # sessions of other agents, or older than asked for
    duplicates: int = 0  # requests that several sessions tell, and that are counted once


Note = Callable[[Progress], None]


def replay_files(files: Sequence[Path], request: Wanted, jobs: int, on_progress: Note) -> Found:
    """The sessions of all files, in the order of the files, whoever replayed them."""
    sizes = {str(file): weight(file) for file in files}
    kept = Kept(sizes, on_progress)
    only = list(islice(items(files[0]), 2)) if len(files) == 1 else None
    if only is not None and len(only) < 2:
        _replay_here({str(files[0]): iter(only)}, request, kept)
        return kept.result()
    traces = Kept(sizes, lambda _: None)
    _go_through(replace(request, trace_only=True), jobs, traces)
    twice = told_twice(traces.traces())
    for file, why in traces.abandoned.items():
        kept.abandon(file, 0, why)
        kept.finish_file(file)
    _go_through(replace(request, duplicates=twice), jobs, kept)
    return replace(kept.result(), twice=sum(len(one.requests) for one in twice.values()))


def _go_through(request: Wanted, jobs: int, collector: Kept) -> None:
    """Do with all sessions what is wanted, here or in processes of their own."""
    if jobs == 1 or sum(collector.sizes.values()) < SMALL:
        _replay_here({file: items(Path(file)) for file in collector.pending()}, request, collector)
        return
    from .workers import Workers  # late: few runs on small input need processes

    Workers(request, jobs, collector).run()


def weight(file: Path) -> int:
    """About how many bytes are to be read."""
    try:
        size = file.stat().st_size
    except (OSError, ValueError):  # or a name that no file can have
        return 0
    return size * PACKED if file.suffix == ".gz" else size


def size_of(item: Item) -> int:
    """About how many bytes of its file a session takes."""
    try:
        return 0 if isinstance(item, Skipped) else len(msgspec.json.encode(item.messages))
    except (ValueError, TypeError, RecursionError):
        return 0


def items(file: Path) -> Iterator[Item]:
    """What a file holds; that its reader fails is one more thing that can be wrong with it."""
    try:
        yield from read_file(file, READERS)
    except Exception as error:  # noqa: BLE001 - one file must not cost the others
        yield Skipped(str(file), f"reading it failed: {_told(error)}")


def outcome(item: Item, place: Place, request: Wanted) -> Outcome:
    """What became of a session; one that cannot be replayed costs itself only."""
    if isinstance(item, Skipped):
        return Left(item.source, item.reason)
    if not _is_wanted(item, request):
        return None
    try:
        return traced(item) if request.trace_only else _replayed(item, place, request)
    except Exception as error:  # noqa: BLE001 - one session must not cost the others
        return Left(item.source, f"session {item.id}: {_told(error)}")


def _replayed(session: Session, place: Place, request: Wanted) -> SessionResult | Left:
    twice = request.duplicates.get(place)
    own = session if twice is None else without(session, twice)
    if twice is not None and not own.requests:
        return Left(session.source, told_elsewhere(session, twice))
    result = replay_session(own, request.options)
    return result if request.with_details else _without_details(result)


def _told(error: Exception) -> str:
    """What went wrong, for a person who may want to report it."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_wanted(session: Session, request: Wanted) -> bool:
    if request.agents and session.agent not in request.agents:
        return False
    return request.since is None or _ended(session) > request.since


def _ended(session: Session) -> float:
    """When the last request was sent; without recorded times, when the file was last written."""
    times = [sent.time for sent in session.requests if sent.time is not None]
    if times:
        return max(times)
    try:
        return Path(session.source).stat().st_mtime
    except OSError:
        return 0.0


def _without_details(result: SessionResult) -> SessionResult:
    """The result without what grows with every request."""
    scores = tuple(replace(score, points=(), losses=()) for score in result.scores)
    return replace(result, scores=scores)


class Kept:
    """The outcomes so far, by file and by place in it."""

    def __init__(self, sizes: Mapping[str, int], on_progress: Note) -> None:
        self.sizes = sizes
        self._on_progress = on_progress
        self._files = list(sizes)
        self._ranks = {file: rank for rank, file in enumerate(sizes)}
        self._outcomes: dict[tuple[int, int], SessionResult | Traced | Left] = {}
        self._bytes_left = dict(sizes)  # bytes of each file that are still to come, about
        self._progress = Progress()
        self._unselected = 0
        self.abandoned: dict[str, str] = {}  # files that cannot be read to their end, and why

    def pending(self) -> dict[str, int]:
        """The files that are not done, and their sizes."""
        return {file: size for file, size in self.sizes.items() if file not in self.abandoned}

    def abandon(self, file: str, index: int, why: str) -> None:
        """Nobody can read on in a file; what comes is the last outcome of it."""
        self.abandoned[file] = why
        self.add(file, index, Left(file, why))

    def add(self, file: str, index: int, outcome: Outcome, size: int = 0) -> None:
        """Keep one outcome, of about so many bytes of the file."""
        if outcome is None:
            self._unselected += 1
        else:
            self._outcomes[self._ranks[file], index] = outcome
        done = self._progress
        if isinstance(outcome, SessionResult):
            done = replace(
                done, sessions=done.sessions + 1, requests=done.requests + outcome.requests
            )
        self._advance(file, min(size, self._bytes_left[file]), done)

    def finish_file(self, file: str) -> None:
        """A file is done."""
        done = replace(self._progress, files=self._progress.files + 1)
        self._advance(file, self._bytes_left[file], done)

    def _advance(self, file: str, size: int, done: Progress) -> None:
        self._bytes_left[file] -= size
        self._progress = replace(done, size=done.size + size)
        self._on_progress(self._progress)

    def result(self) -> Found:
        """All outcomes, in the order of the files."""
        outcomes = [self._outcomes[place] for place in sorted(self._outcomes)]
        return Found(
            tuple(one for one in outcomes if isinstance(one, SessionResult)),
            tuple(one for one in outcomes if isinstance(one, Left)),
            self._unselected,
        )

    def traces(self) -> dict[Place, Traced]:
        """What tells the sessions' requests, in the order of the files."""
        found = ((place, self._outcomes[place]) for place in sorted(self._outcomes))
        return {
            (self._files[rank], index): one
            for (rank, index), one in found
            if isinstance(one, Traced)
        }


def _replay_here(files: Mapping[str, Iterator[Item]], request: Wanted, collector: Kept) -> None:
    """Replay in this process, one session at a time."""
    for file, found in files.items():
        for index, item in enumerate(found):
            collector.add(file, index, outcome(item, (file, index), request), size_of(item))
        collector.finish_file(file)
