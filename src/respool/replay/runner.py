"""Replay runner: read files, drop duplicate requests, replay each session.

An agent that resumes or forks a session copies its history into a new file, and people keep
copies. A copied request was sent, and paid for, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..batch.addresses import EngineName, FoundFile, StorageError
from ..sessions.readers import READERS, read_file
from ..sessions.session import RecordedRequest, RecordedSession, Skipped
from ..sessions.transcript_file import describe_error
from ..tokens import counter_for, tokenizer_family
from ..wire.json import compact_json
from .cache_costs import cache_costs, unused_tools
from .cost_breakdown import block_charges, break_down_cost, session_loops
from .input_file import readable_copy
from .policies import sender_factory
from .prompt_cache import CharacterMeasure, CounterMeasure, TokenMeasure
from .reconciliation import UsageEvidence, calibrated_measure, infer_evidence, reconcile
from .recording import BillingConditions, Recording, infer_conditions, main_model
from .result import PolicyScore, SessionResult, SkippedSource
from .score import score_policy

if TYPE_CHECKING:
    from .checkpoint import Checkpoint, PassCheckpoint

InputFile = Path | FoundFile

_NO_KEY = 0  # the request cannot be identified
_READING_FAILED = "reading it failed"
GZIP_RATIO = 8  # approximate compression ratio
MIN_PARALLEL_BYTES = 1_000_000  # less is replayed faster in one process


class ReplayOptions(Struct, frozen=True):
    """Options of a replay."""

    policies: tuple[str, ...]  # the first is "none"
    plain: bool = False  # count characters / 4
    window: int | None = None  # overrides the model's context window


def replay_session(session: RecordedSession, options: ReplayOptions) -> SessionResult:
    """Replay a session under each policy."""
    evidence = None if options.plain else infer_evidence(session)
    measure = choose_measure(session, options, evidence)
    conditions = infer_conditions(session, measure, options.window)
    return replay_under(session, measure, conditions, policies=options.policies, evidence=evidence)


def choose_measure(
    session: RecordedSession, options: ReplayOptions, evidence: UsageEvidence | None = None
) -> TokenMeasure:
    """Choose a session's token measure, calibrated by its reported usage if it has any."""
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
    *,
    policies: Sequence[str],
    evidence: UsageEvidence | None = None,
) -> SessionResult:
    """Replay a session under given conditions."""
    recording = Recording(session, measure, conditions)
    scores = set_disputed_apart(
        session,
        [score_policy(recording, sender_factory(name)(recording), name) for name in policies],
    )
    charged = block_charges(recording)
    spent = break_down_cost(recording, charged)
    cache, cache_prices = (
        cache_costs(recording, scores[0], conditions.head * charged[1][0]) if scores else (None, ())
    )
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
        spent=spent,
        recorded=reconcile(recording, scores[0], evidence) if scores else None,
        notes=session.notes,
        samples=evidence.growths if evidence is not None else (),
        loops=session_loops(recording, charged[1]),
        cache=cache,
        cache_prices=cache_prices,
        unused_tools=unused_tools(recording),
    )


def set_disputed_apart(
    session: RecordedSession, scores: Sequence[PolicyScore]
) -> list[PolicyScore]:
    """Set findings apart that the recorded request has too, although the provider answered it."""
    if not scores or not any(score.invalid for score in scores):
        return list(scores)
    end = len(session.messages)
    answered = {at for at, sent in enumerate(session.requests) if sent.usage or sent.cut < end}
    disputed = {one for one in scores[0].invalid if one[0] in answered}
    return [
        replace(
            score,
            invalid=tuple(one for one in score.invalid if one not in disputed),
            disputed=tuple(one for one in score.invalid if one in disputed),
        )
        for score in scores
    ]


SessionKey = tuple[str, int]  # file, and the session's index in it


class SessionTrace(Struct, frozen=True):
    """Keys that identify the requests of one session."""

    started: float
    keys: tuple[int, ...]


class DuplicateRequests(Struct, frozen=True):
    """The requests of a session that another one records too, and that session's file."""

    requests: frozenset[int]
    source: str


def trace_session(session: RecordedSession) -> SessionTrace:
    """Compute the keys of a session's requests from their answers."""
    times = (sent.time for sent in session.requests if sent.time is not None)
    keys = tuple(_request_key(session, sent) for sent in session.requests)
    return SessionTrace(min(times, default=float("inf")), keys)


def _request_key(session: RecordedSession, sent: RecordedRequest) -> int:
    """Key of a request: its answer's id, or else its time and answer."""
    if sent.answer is not None:
        said = sent.answer
    elif sent.time is not None and sent.cut < len(session.messages):
        said = f"{sent.time} {compact_json(session.messages[sent.cut])}"
    else:
        return _NO_KEY
    key = f"{session.agent} {said}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def find_duplicates(
    traces: Mapping[SessionKey, SessionTrace],
) -> dict[SessionKey, DuplicateRequests]:
    """Find requests that an earlier session records too.

    Codex writes copies with new times, so the session that began first has the true ones.
    """
    owners: dict[int, SessionKey] = {}
    duplicates: dict[SessionKey, DuplicateRequests] = {}
    for place in sorted(traces, key=lambda place: traces[place].started):  # stable for equal times
        again: dict[int, SessionKey] = {}
        for number, key in enumerate(traces[place].keys):
            owner = owners.setdefault(key, place) if key != _NO_KEY else place
            if owner != place:
                again[number] = owner
        if again:
            duplicates[place] = DuplicateRequests(frozenset(again), next(iter(again.values()))[0])
    return duplicates


def without_duplicates(session: RecordedSession, duplicates: DuplicateRequests) -> RecordedSession:
    """Return the session with its own requests only; it may have none."""
    own = [
        sent for number, sent in enumerate(session.requests) if number not in duplicates.requests
    ]
    count = len(duplicates.requests)
    what = "request that stands" if count == 1 else "requests that stand"
    note = f"{count:,} {what} in {duplicates.source} as well left out"
    return replace(session, requests=tuple(own), notes=(*session.notes, note))


def describe_duplicate(session: RecordedSession, duplicates: DuplicateRequests) -> str:
    """Describe why a session without requests of its own is skipped."""
    whose = (
        f"its {len(duplicates.requests):,} requests stand"
        if len(duplicates.requests) > 1
        else ("its one request stands")
    )
    same = "it" if duplicates.source == session.source else duplicates.source
    return f"session {session.id}: {whose} in another session of {same} as well"


SessionItem = RecordedSession | Skipped
ItemOutcome = SessionResult | SessionTrace | SkippedSource | None  # None: not selected


class RunRequest(Struct, frozen=True):
    """Selection of sessions, replay options and level of detail."""

    options: ReplayOptions
    agents: tuple[str, ...] = ()  # none: all
    since: float | None = None  # seconds since the epoch; sessions that ended later
    with_details: bool = True  # False: omit what only the page and JSON show
    trace_only: bool = False  # only compute the keys that identify duplicates
    duplicates: Mapping[SessionKey, DuplicateRequests] = {}
    is_proxied: Callable[[str], bool] | None = None  # by session id; None: no session went through


class Progress(Struct, frozen=True):
    """Progress of a run."""

    files: int = 0
    size: int = 0  # bytes
    sessions: int = 0
    requests: int = 0


class RunResult(Struct, frozen=True):
    """Sessions found in the files."""

    sessions: tuple[SessionResult, ...]
    skipped: tuple[SkippedSource, ...]
    unselected: int = 0  # sessions of other agents, or older than `since`
    duplicates: int = 0  # requests recorded in several sessions, counted once


ProgressCallback = Callable[[Progress], None]


class Execution(Struct, frozen=True):
    """Processes, engine and checkpoint of a run; they change no figure."""

    jobs: int
    engine: EngineName = "local"
    checkpoint: Checkpoint | None = None


def replay_files(
    files: Sequence[InputFile],
    request: RunRequest,
    execution: Execution | int,
    on_progress: ProgressCallback,
) -> RunResult:
    """Replay the sessions of all files; results are in the order of the files."""
    execution = Execution(execution) if isinstance(execution, int) else execution
    sizes = {str(file): estimate_bytes(file) for file in files}
    kept = OutcomeCollector(sizes, on_progress)
    only = list(islice(read_items(str(files[0])), 2)) if len(files) == 1 else None
    if only is not None and len(only) < 2:
        _process_serially({str(files[0]): iter(only)}, request, kept)
        return kept.result()
    traces = OutcomeCollector(sizes, lambda _: None)
    _process_files(replace(request, trace_only=True), execution, traces)
    duplicates = find_duplicates(traces.traces())
    for file, why in traces.abandoned.items():
        kept.abandon(file, 0, why)
        kept.finish_file(file)
    _process_files(replace(request, duplicates=duplicates), execution, kept)
    return replace(kept.result(), duplicates=sum(len(one.requests) for one in duplicates.values()))


def _process_files(request: RunRequest, execution: Execution, collector: OutcomeCollector) -> None:
    """Process all sessions that no checkpoint has."""
    if execution.checkpoint is not None:
        collector.use_checkpoint(execution.checkpoint.of(request))
    if execution.engine == "ray":
        from .ray_units import process_on_ray  # lazily: only for this engine

        process_on_ray(request, execution.jobs, collector)
        return
    if execution.jobs > 1 and sum(collector.pending().values()) >= MIN_PARALLEL_BYTES:
        from ..batch.worker_process import can_start_workers  # late: small inputs need no processes
        from .worker_pool import WorkerPool

        if can_start_workers():
            WorkerPool(request, execution.jobs, collector).run()
            return
    _process_serially({file: read_items(file) for file in collector.pending()}, request, collector)


def estimate_bytes(file: InputFile) -> int:
    """Estimate the bytes to read."""
    try:
        size = file.size if isinstance(file, FoundFile) else file.stat().st_size
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return 0
    return size * GZIP_RATIO if str(file).endswith(".gz") else size


def session_bytes(item: SessionItem) -> int:
    """Estimate the bytes of its file that a session takes."""
    try:
        return 0 if isinstance(item, Skipped) else len(msgspec.json.encode(item.messages))
    except (ValueError, TypeError, RecursionError):
        return 0


def read_items(file: str) -> Iterator[SessionItem]:
    """Yield the sessions of a file; a failing reader gives a Skipped."""
    try:
        with readable_copy(file) as path:
            for item in read_file(path, READERS):
                yield item if item.source == file else replace(item, source=file)
    except (StorageError, FileNotFoundError) as error:
        yield Skipped(file, describe_error(error))
    except Exception as error:  # noqa: BLE001 - one file must not fail the others
        yield Skipped(file, f"{_READING_FAILED}: {_describe_error(error)}")


def process_item(item: SessionItem, place: SessionKey, request: RunRequest) -> ItemOutcome:
    """Process a session; a failure skips only that session."""
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
    except Exception as error:  # noqa: BLE001 - one session must not fail the others
        return SkippedSource(item.source, f"session {item.id}: {_describe_error(error)}")


def _replay_own_requests(
    session: RecordedSession, place: SessionKey, request: RunRequest
) -> SessionResult | SkippedSource:
    duplicates = request.duplicates.get(place)
    own = session if duplicates is None else without_duplicates(session, duplicates)
    if duplicates is not None and not own.requests:
        return SkippedSource(session.source, describe_duplicate(session, duplicates))
    if request.is_proxied is not None and request.is_proxied(client_session_id(session.id)):
        result = replace(replay_session(_without_usage(own), request.options), proxied=True)
    else:
        result = replay_session(own, request.options)
    return result if request.with_details else _strip_details(result)


def client_session_id(id: str) -> str:
    """The agent's own id of a session; sub-agents and branches have theirs behind a slash."""
    return id.partition("/")[0]


def _without_usage(session: RecordedSession) -> RecordedSession:
    """The session without its usage, which is that of projections, not of this history."""
    bare = tuple(replace(sent, usage=None) for sent in session.requests)
    return replace(session, requests=bare)


def _describe_error(error: Exception) -> str:
    """Describe an error for a report."""
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
    """Return the time of the last request, or else the file's modification time."""
    times = [sent.time for sent in session.requests if sent.time is not None]
    if times:
        return max(times)
    try:
        return Path(session.source).stat().st_mtime
    except OSError:
        return 0.0


def _strip_details(result: SessionResult) -> SessionResult:
    """Return the result without per-request details."""
    scores = tuple(replace(score, points=(), losses=()) for score in result.scores)
    return replace(result, scores=scores)


class OutcomeCollector:
    """Outcomes by file and index."""

    def __init__(self, sizes: Mapping[str, int], on_progress: ProgressCallback) -> None:
        self.sizes = sizes
        self._on_progress = on_progress
        self._files = list(sizes)
        self._ranks = {file: rank for rank, file in enumerate(sizes)}
        self._outcomes: dict[int, dict[int, ItemOutcome]] = {}
        self._bytes_left = dict(sizes)  # approximate remaining bytes of each file
        self._progress = Progress()
        self._unselected = 0
        self._checkpoint: PassCheckpoint | None = None
        self._done = set[str]()  # files
        self._disturbed = set[str]()  # files that another run may read better
        self.abandoned: dict[str, str] = {}  # unreadable files, and the reason

    def use_checkpoint(self, checkpoint: PassCheckpoint) -> None:
        """Take the outcomes that a checkpoint has, and save those of other files in it."""
        for file in self.pending():
            if (known := checkpoint.load(file)) is not None:
                for index, outcome in known:
                    self.add(file, index, outcome)
                self.finish_file(file)
        self._checkpoint = checkpoint

    def note_death(self, file: str) -> None:
        """Record that a process died at a file: its outcomes are not saved."""
        self._disturbed.add(file)

    def pending(self) -> dict[str, int]:
        """Return the files that are not done, with their sizes."""
        gone = self.abandoned.keys() | self._done
        return {file: size for file, size in self.sizes.items() if file not in gone}

    def abandon(self, file: str, index: int, why: str) -> None:
        """Record that the rest of a file cannot be read."""
        self.abandoned[file] = why
        self.add(file, index, SkippedSource(file, why))

    def add(self, file: str, index: int, outcome: ItemOutcome, size: int = 0) -> None:
        """Add one outcome, of about `size` bytes of the file."""
        if outcome is None:
            self._unselected += 1
        if isinstance(outcome, SkippedSource) and outcome.reason.startswith(_READING_FAILED):
            self._disturbed.add(file)
        self._outcomes.setdefault(self._ranks[file], {})[index] = outcome
        done = self._progress
        if isinstance(outcome, SessionResult):
            done = replace(
                done, sessions=done.sessions + 1, requests=done.requests + outcome.requests
            )
        self._advance(file, min(size, self._bytes_left[file]), done)

    def finish_file(self, file: str) -> None:
        """Record that a file is done."""
        self._done.add(file)
        if self._checkpoint is not None and file not in self._disturbed | self.abandoned.keys():
            self._checkpoint.save(file, self._outcomes.get(self._ranks[file], {}))
        done = replace(self._progress, files=self._progress.files + 1)
        self._advance(file, self._bytes_left[file], done)

    def _advance(self, file: str, size: int, done: Progress) -> None:
        self._bytes_left[file] -= size
        self._progress = replace(done, size=done.size + size)
        self._on_progress(self._progress)

    def result(self) -> RunResult:
        """All outcomes, in the order of the files."""
        outcomes = [one for _, one in self._in_order()]
        return RunResult(
            tuple(one for one in outcomes if isinstance(one, SessionResult)),
            tuple(one for one in outcomes if isinstance(one, SkippedSource)),
            self._unselected,
        )

    def traces(self) -> dict[SessionKey, SessionTrace]:
        """Return the traces in the order of the files."""
        return {place: one for place, one in self._in_order() if isinstance(one, SessionTrace)}

    def _in_order(self) -> Iterator[tuple[SessionKey, ItemOutcome]]:
        for rank in sorted(self._outcomes):
            file, outcomes = self._files[rank], self._outcomes[rank]
            yield from (((file, index), outcomes[index]) for index in sorted(outcomes))


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
