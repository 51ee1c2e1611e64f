"""Logs of request bodies: one session per run of requests that extend one another.

A line may wrap the body, as an object or as text: `body`, `request`, or `request.body`; then the
logged usage and time are read too.

Requests that extend one another are one session, cache breakpoints aside: these move from request
to request, and the session has those of the last one. A few conversations may alternate in a log
(an agent's, its sub-agents', requests for a title). The answer to a session's last request is not
in the log. Besides the history, the model is used, and the system prompt and the tools of the first
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from pathlib import PurePath
from typing import cast

from ..errors import PassedThrough, UnreadableRequest
from ..providers.tool_definitions import tool_definitions
from ..regex import lazy_compile
from ..wire.base import FormatName, RequestBody, history_fields
from ..wire.body import read_body
from ..wire.detect import detect_format
from ..wire.json import JSON, Object, compact_json, get
from ..wire.message_identity import strip_breakpoints
from .session import RecordedRequest, RecordedSession, Skipped, parse_timestamp, parse_usage
from .transcript_file import decode_json, first_line, top_fields

AGENT = "request-log"
MAX_OPEN_RUNS = (
    8  # conversations that may take turns before the one idle for longest counts as over
)

# Fields of a request besides its history; a line with any of them is a request for certain.
_FIELDS = frozenset(
    """
    model stream temperature top_p top_k tools tool_choice metadata system thinking max_tokens
    stop_sequences context_management output_config service_tier betas stop n user seed
    stream_options max_completion_tokens reasoning_effort response_format parallel_tool_calls
    frequency_penalty presence_penalty store instructions reasoning include max_output_tokens text
    prompt_cache_key truncation systemInstruction system_instruction generationConfig
    generation_config toolConfig tool_config safetySettings safety_settings
    """.split()  # noqa: SIM905 - reads better
)
_HEAD_FIELDS = ("tools", "system", "instructions", "systemInstruction", "system_instruction")
_BODY_PATHS = (("request", "body"), ("body",), ("request",))
_USAGE_PATHS = (
    ("response", "body", "usage"),
    ("response", "body", "usageMetadata"),
    ("response", "usage"),
    ("response", "usageMetadata"),
    ("usage",),
)
_TIME_FIELDS = ("timestamp", "time", "ts", "created_at", "created", "start_time", "startTime")
_ENCODED_BODY = lazy_compile(rb'\\"(?:messages|input|contents)\\"\s*:\s*\[')


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file has a request body on its first line."""
    if not name.removesuffix(".gz").endswith(".jsonl"):
        return False
    line = first_line(head)
    fields = top_fields(line)
    if _is_body(fields, line != head.lstrip()):
        return True
    return not _is_transcript(fields) and any(
        _has_body(fields.get(w[0], b""), w) for w in _BODY_PATHS
    )


def _is_body(fields: dict[str, bytes], whole: bool) -> bool:
    beside = fields.keys() - set(history_fields())
    histories = [fields[name][:1] for name in history_fields() if name in fields]
    if not histories:  # it may follow fields that fill the head
        return not whole and "model" in beside and beside <= _FIELDS
    if histories != [b"["]:
        return False
    return beside <= _FIELDS or ("model" in beside and not _is_transcript(fields))


def _has_body(value: bytes, path: tuple[str, ...]) -> bool:
    """Check if a field's value is a body, contains one, or is one as text."""
    if value.startswith(b'"'):
        return value[1:].lstrip().startswith(b"{") and _ENCODED_BODY.search(value) is not None
    fields = top_fields(value)
    if len(path) > 1:
        return _has_body(fields.get(path[1], b""), path[1:])
    return any(fields.get(name, b"").startswith(b"[") for name in history_fields())


def _is_transcript(fields: dict[str, bytes]) -> bool:
    """Check for fields that transcripts have and requests do not."""
    return any(name in fields for name in ("agent", "format", "sessionId", "sessionID", "info"))


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """The conversations in a log, each when it is over; lines that are no request are named."""
    runs: list[_RequestRun] = []  # the most recently extended one last
    for line, record in enumerate(records, 1):
        try:
            body = read_body(_request_body(record))
            history = _messages(body)
        except (PassedThrough, UnreadableRequest) as why:
            yield Skipped(source, f"request {line}: {why}")
            continue
        bare = [_without_breakpoints(message) for message in history]
        run = _extended_run(runs, bare)
        if run is None:
            if len(runs) == MAX_OPEN_RUNS:
                yield runs.pop(0).session()
            run = _RequestRun(source, line)
        else:
            runs.remove(run)
        run.add(body, history, bare, record)
        runs.append(run)
    for run in runs:
        yield run.session()


def _request_body(record: JSON) -> JSON:
    """Return the body on a line, which may be in a field, or as text."""
    if any(get(record, (name,)) is not None for name in history_fields()):
        return record
    bodies: list[JSON] = [body for path in _BODY_PATHS if (body := get(record, path)) is not None]
    body = bodies[0] if bodies else record
    return decode_json(body.encode("utf-8", "replace")) if isinstance(body, str) else body


def _request(record: JSON, cut: int, model: JSON) -> RecordedRequest:
    """A request with the usage and the time that were logged with it."""
    usages: list[JSON] = [get(record, path) for path in _USAGE_PATHS]
    usage = parse_usage(next((found for found in usages if found is not None), None))
    times = (parse_timestamp(get(record, (name,))) for name in _TIME_FIELDS)
    time = next((found for found in times if found is not None), None)
    return RecordedRequest(cut, time, usage, model if isinstance(model, str) else None)


def _messages(body: RequestBody) -> list[JSON]:
    if not len(body):
        raise UnreadableRequest("Its history is empty.")
    return [body.message(at) for at in range(len(body))]


def _without_breakpoints(message: JSON) -> JSON:
    """Return the message without cache breakpoints, and a single text block as plain text."""
    bare: JSON = strip_breakpoints(message)
    if not isinstance(bare, dict):
        return bare
    holder = cast(Object, bare)
    content = holder.get("content")
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    block = cast(Object, blocks[0]) if len(blocks) == 1 and isinstance(blocks[0], dict) else {}
    return {**holder, "content": block["text"]} if block.keys() == {"type", "text"} else holder


def _extended_run(runs: Sequence[_RequestRun], bare: Sequence[JSON]) -> _RequestRun | None:
    """Return the run that this history extends; the longest if several match."""
    fitting = [run for run in runs if run.is_prefix_of(bare)]
    return max(fitting, key=len, default=None)


class _RequestRun:
    """Requests that extend one another."""

    def __init__(self, source: str, line: int) -> None:
        self._source = source
        self._line = line
        self._head = ""
        self._tools: tuple[tuple[str, str], ...] = ()
        self._messages: list[JSON] = []
        self._normalized: list[JSON] = []
        self._requests: list[RecordedRequest] = []
        self._retries = 0
        self._format: FormatName | None = None
        self._error = ""

    def __len__(self) -> int:
        return len(self._normalized)

    def is_prefix_of(self, bare: Sequence[JSON]) -> bool:
        """Check if this history begins with all of the run's messages."""
        return len(self._normalized) <= len(bare) and all(map(eq, self._normalized, bare))

    def add(self, body: RequestBody, history: list[JSON], bare: list[JSON], record: JSON) -> None:
        """Adds a request; one that repeats the last is a retry, which got no answer before."""
        if self._requests and len(history) == len(self._normalized):
            self._retries += 1
            return
        self._messages, self._normalized = history, bare
        fields = body.fields or {}
        model = fields.get("model")
        if not self._requests:
            head_fields = (compact_json(fields[name]) for name in _HEAD_FIELDS if fields.get(name))
            self._head = "\n".join(head_fields)
            self._tools = tuple(
                (name, compact_json(one)) for name, one in tool_definitions(fields).items()
            )
        self._requests.append(_request(record, len(history), model))
        if self._format is None:
            try:
                self._format = detect_format(body, None)
            except (PassedThrough, UnreadableRequest) as why:
                self._error = str(why)  # a later request may name it

    def session(self) -> RecordedSession | Skipped:
        """The conversation, or why it is none."""
        if self._format is None:
            return Skipped(self._source, f"request {self._line}: {self._error}")
        repeated = f"{self._retries} requests that repeat the one before left out"
        return RecordedSession(
            id=f"{PurePath(self._source).name}:{self._line}",
            agent=AGENT,
            format=self._format,
            messages=self._messages,
            requests=tuple(self._requests),
            source=self._source,
            head=self._head,
            tools=self._tools,
            notes=(repeated,) if self._retries else (),
        )
