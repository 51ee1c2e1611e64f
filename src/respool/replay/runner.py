"""Replay runner: read files, drop duplicate requests, replay each session.

An agent that resumes or forks a session copies what was said into a new file, and so do people
who keep a copy. What is copied was sent, and paid for, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..sessions.readers import READERS, read_file
from ..sessions.session import RecordedRequest, RecordedSession, Skipped
from ..tokens import counter_for, tokenizer_family
from ..wire.json import compact_json
from .calibration import UsageEvidence, calibrated_measure, infer_evidence
from .cost_breakdown import block_charges, break_down_cost, session_loops
from .policies import sender_factory
from .prompt_cache import CharacterMeasure, CounterMeasure, TokenMeasure
from .reconciliation import reconcile
from .recording import BillingConditions, Recording, infer_conditions, main_model
from .result import SessionResult, SkippedSource
from .score import score_policy


class ReplayOptions(Struct, frozen=True):
    """How sessions are replayed."""

    policies: tuple[str, ...]  # the first is "none"
    plain: bool = False  # count characters / 4
    window: int | None = None  # in place of the model's own


def replay_session(session: RecordedSession, options: ReplayOptions) -> SessionResult:
    """What a session cost, and what each policy would have done."""
    evidence = None if options.plain else infer_evidence(session)
    measure = choose_measure(session, options, evidence)
    conditions = infer_conditions(session, measure, options.window)
    return replay_under(session, measure, conditions, options.policies, evidence)


def choose_measure(
    session: RecordedSession, options: ReplayOptions, evidence: UsageEvidence | None = None
) -> TokenMeasure:
    """How a session's tokens are counted: as its usage shows, where it has any."""
    if options.plain:
        return CharacterMeasure()
    model = main_model(session)
    if evidence is not None:
        return calibrated_measure(evidence, tokenizer_family(session.format, model))
    return CounterMeasure(counter_for(session.format, model))


def replay_under(
    session: RecordedSession,
    measure: TokenMeasure,
    conditions: BillingConditions,
    policies: Sequence[str],
    evidence: UsageEvidence | None = None,
) -> SessionResult:
    """A session under these conditions, whatever they were really."""
    recording = Recording(session, measure, conditions)
    scores = [score_policy(recording, sender_factory(name)(recording), name) for name in policies]
    charged = block_charges(recording)
    times = [sent.time for sent in session.requests if sent.time is not None]
    return SessionResult(
        id=session.id,
        agent=session.agent,
        format=session.format,
        model=main_model(session),
        source=session.source,
        segment=session.segment,
        parent=session.parent,
        started=min(times, default=None),
        ended=max(times, default=None),
        requests=len(session.requests),
        window=conditions.window,
        scores=tuple(scores),
        spent=break_down_cost(recording, charged),
        recorded=reconcile(recording, scores[0], evidence) if scores else None,
        notes=session.notes,
        samples=evidence.growths if evidence is not None else (),
        circles=session_loops(recording, charged[1]),
    )


SessionKey = tuple[str, int]  # a file, and which of its sessions

_NO_KEY = 0  # in place of a key: nothing tells this request from others


class SessionTrace(Struct, frozen=True):
    """What tells the requests of one session from all others."""

    started: float
    keys: tuple[int, ...]


class DuplicateRequests(Struct, frozen=True):
    """The requests of a session that another one tells as well, and the file of that one."""

    requests: frozenset[int]
    source: str


def trace_session(session: RecordedSession) -> SessionTrace:
    """A session's requests, by what their answers are."""
    times = (sent.time for sent in session.requests if sent.time is not None)
    keys = tuple(_request_key(session, sent) for sent in session.requests)
    return SessionTrace(min(times, default=float("inf")), keys)


def _request_key(session: RecordedSession, sent: RecordedRequest) -> int:
    """By its answer's name; else by the moment, and what was answered then."""
    if sent.answer is not None:
        said = sent.answer
    elif sent.time is not None and sent.cut < len(session.messages):
        said = f"{sent.time} {compact_json(session.messages[sent.cut])}"
    else:
        return _NO_KEY
    told = f"{session.agent} {said}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(told, digest_size=8).digest())


def find_duplicates(
    traces: Mapping[SessionKey, SessionTrace],
) -> dict[SessionKey, DuplicateRequests]:
    """The sessions with requests that one before them tells: one that began earlier, if any did.

    Codex writes what it copies with new times, so the one that began first has the true ones.
    """
    owners: dict[int, SessionKey] = {}
    twice: dict[SessionKey, DuplicateRequests] = {}
    for place in sorted(traces, key=lambda place: traces[place].started):  # in order where alike
        again: dict[int, SessionKey] = {}
        for number, key in enumerate(traces[place].keys):
            owner = owners.setdefault(key, place) if key != _NO_KEY else place
            if owner != place:
                again[number] = owner
        if again:
            twice[place] = DuplicateRequests(frozenset(again), next(iter(again.values()))[0])
    return twice


def without_duplicates(session: RecordedSession, duplicates: DuplicateRequests) -> RecordedSession:
    """The session with the requests that are its own; it may have none."""
    own = [
        sent for number, sent in enumerate(session.requests) if number not in duplicates.requests
    ]
    count = len(duplicates.requests)
    what = "request that stands" if count == 1 else "requests that stand"
    note = f"{count:,} {what} in {duplicates.source} as well left out"
    return replace(session, requests=tuple(own), notes=(*session.notes, note))


def describe_duplicate(session: RecordedSession, duplicates: DuplicateRequests) -> str:
    """Why a session is left out that has no request of its own."""
    whose = (
        f"its {len(duplicates.requests):,} requests stand"
        if len(duplicates.requests) > 1
        else ("its one request stands")
    )
    same = "it" if duplicates.source == session.source else duplicates.source
    return f"session {session.id}: {whose} in another session of {same} as well"


SessionItem = RecordedSession | Skipped
ItemOutcome = (
    SessionResult | SessionTrace | SkippedSource | None
)  # None: a session that was not asked for

GZIP_RATIO = 8  # bytes in a packed file for each of its own, about
MIN_PARALLEL_BYTES = (
    1_000_000  # bytes of transcripts that one process replays before others have started
)


class RunRequest(Struct, frozen=True):
    """Which sessions are replayed, how, and how much is kept of them."""

    options: ReplayOptions
    agents: tuple[str, ...] = ()  # none: all
    since: float | None = None  # seconds since the epoch; sessions that ended later
    with_details: bool = True  # False: without what only the page and JSON show
    trace_only: bool = False  # nothing is replayed: it is found out who tells the same requests
    duplicates: Mapping[SessionKey, DuplicateRequests] = {}


class Progress(Struct, frozen=True):
    """How far a run is."""

    files: int = 0
    size: int = 0  # of their bytes
    sessions: int = 0
    requests: int = 0


class RunResult(Struct, frozen=True):
    """What the files held."""

    sessions: tuple[SessionResult, ...]
    skipped: tuple[SkippedSource, ...]
    unselected: int = 0  # sessions of other agents, or older than asked for
    duplicates: int = 0  # requests that several sessions tell, and that are counted once


ProgressCallback = Callable[[Progress], None]


def replay_files(
    files: Sequence[Path], request: RunRequest, jobs: int, on_progress: ProgressCallback
) -> RunResult:
    """The sessions of all files, in the order of the files, whoever replayed them."""
    sizes = {str(file): estimate_bytes(file) for file in files}
    kept = OutcomeCollector(sizes, on_progress)
    only = list(islice(read_items(files[0]), 2)) if len(files) == 1 else None
    if only is not None and len(only) < 2:
        _process_serially({str(files[0]): iter(only)}, request, kept)
        return kept.result()
    traces = OutcomeCollector(sizes, lambda _: None)
    _process_files(replace(request, trace_only=True), jobs, traces)
    twice = find_duplicates(traces.traces())
    for file, why in traces.abandoned.items():
        kept.abandon(file, 0, why)
        kept.finish_file(file)
    _process_files(replace(request, duplicates=twice), jobs, kept)
    return replace(kept.result(), duplicates=sum(len(one.requests) for one in twice.values()))


def _process_files(request: RunRequest, jobs: int, collector: OutcomeCollector) -> None:
    """Do with all sessions what is wanted, here or in processes of their own."""
    if jobs == 1 or sum(collector.sizes.values()) < MIN_PARALLEL_BYTES:
        _process_serially(
            {file: read_items(Path(file)) for file in collector.pending()}, request, collector
        )
        return
    from .worker_pool import WorkerPool  # late: few runs on small input need processes

    WorkerPool(request, jobs, collector).run()


def estimate_bytes(file: Path) -> int:
    """About how many bytes are to be read."""
    try:
        size = file.stat().st_size
    except (OSError, ValueError):  # or a name that no file can have
        return 0
    return size * GZIP_RATIO if file.suffix == ".gz" else size


def session_bytes(item: SessionItem) -> int:
    """About how many bytes of its file a session takes."""
    try:
        return 0 if isinstance(item, Skipped) else len(msgspec.json.encode(item.messages))
    except (ValueError, TypeError, RecursionError):
        return 0


def read_items(file: Path) -> Iterator[SessionItem]:
    """What a file holds; that its reader fails is one more thing that can be wrong with it."""
    try:
        yield from read_file(file, READERS)
    except Exception as error:  # noqa: BLE001 - one file must not cost the others
        yield Skipped(str(file), f"reading it failed: {_describe_error(error)}")


def process_item(item: SessionItem, place: SessionKey, request: RunRequest) -> ItemOutcome:
    """What became of a session; one that cannot be replayed costs itself only."""
    if isinstance(item, Skipped):
        return SkippedSource(item.source, item.reason)
    if not _is_selected(item, request):
        return None
    try:
        return (
            trace_session(item)
            if request.trace_only
            else _replay_own_requests(item, place, request)
        )
    except Exception as error:  # noqa: BLE001 - one session must not cost the others
        return SkippedSource(item.source, f"session {item.id}: {_describe_error(error)}")


def _replay_own_requests(
    session: RecordedSession, place: SessionKey, request: RunRequest
) -> SessionResult | SkippedSource:
    twice = request.duplicates.get(place)
    own = session if twice is None else without_duplicates(session, twice)
    if twice is not None and not own.requests:
        return SkippedSource(session.source, describe_duplicate(session, twice))
    result = replay_session(own, request.options)
    return result if request.with_details else _strip_details(result)


def _describe_error(error: Exception) -> str:
    """What went wrong, for a person who may want to report it."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_selected(session: RecordedSession, request: RunRequest) -> bool:
    if request.agents and session.agent not in request.agents:
        return False
    return request.since is None or _end_time(session) > request.since


def _end_time(session: RecordedSession) -> float:
    """When the last request was sent; without recorded times, when the file was last written."""
    times = [sent.time for sent in session.requests if sent.time is not None]
    if times:
        return max(times)
    try:
        return Path(session.source).stat().st_mtime
    except OSError:
        return 0.0


def _strip_details(result: SessionResult) -> SessionResult:
    """The result without what grows with every request."""
    scores = tuple(replace(score, points=(), losses=()) for score in result.scores)
    return replace(result, scores=scores)


class OutcomeCollector:
    """The outcomes so far, by file and by place in it."""

    def __init__(self, sizes: Mapping[str, int], on_progress: ProgressCallback) -> None:
        self.sizes = sizes
        self._on_progress = on_progress
        self._files = list(sizes)
        self._ranks = {file: rank for rank, file in enumerate(sizes)}
        self._outcomes: dict[tuple[int, int], SessionResult | SessionTrace | SkippedSource] = {}
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
        self.add(file, index, SkippedSource(file, why))

    def add(self, file: str, index: int, outcome: ItemOutcome, size: int = 0) -> None:
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

    def result(self) -> RunResult:
        """All outcomes, in the order of the files."""
        outcomes = [self._outcomes[place] for place in sorted(self._outcomes)]
        return RunResult(
            tuple(one for one in outcomes if isinstance(one, SessionResult)),
            tuple(one for one in outcomes if isinstance(one, SkippedSource)),
            self._unselected,
        )

    def traces(self) -> dict[SessionKey, SessionTrace]:
        """What tells the sessions' requests, in the order of the files."""
        found = ((place, self._outcomes[place]) for place in sorted(self._outcomes))
        return {
            (self._files[rank], index): one
            for (rank, index), one in found
            if isinstance(one, SessionTrace)
        }


def _process_serially(
    files: Mapping[str, Iterator[SessionItem]], request: RunRequest, collector: OutcomeCollector
) -> None:
    """Replay in this process, one session at a time."""
    for file, found in files.items():
        for index, item in enumerate(found):
            collector.add(
                file, index, process_item(item, (file, index), request), session_bytes(item)
            )
        collector.finish_file(file)
